# SPDX-License-Identifier: Apache-2.0
"""What a volume says when the file system below it fails."""
import errno
import os
import subprocess

from lab import MIB, MNT_DETACH, expect_error, umount


def fill(path, leave):
    """Takes all that is left of a file system, but for so many bytes."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(fd, bytes(65536))
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    os.ftruncate(fd, os.fstat(fd).st_size - leave)
    return fd


def test_everybody_hears_of_lost_data(lab):
    """A thinly provisioned disk that runs out: data that was written is lost, whoever asks first."""
    thin, disk = f"{lab.root}/thin", f"{lab.root}/disk"
    os.mkdir(thin)
    os.mkdir(disk)
    subprocess.check_call(["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", thin])
    try:
        with open(f"{thin}/image", "wb") as image:
            image.truncate(128 * MIB)
        subprocess.check_call(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard",
                               f"{thin}/image"])
        if subprocess.call(["mount", "-o", "loop", f"{thin}/image", disk], stderr=subprocess.DEVNULL) != 0:
            return "no loop device"
        volume = lab.volume(100 * MIB, base=disk)
        fds = [os.open(volume / "f", os.O_CREAT | os.O_RDWR) for _ in range(3)]
        filler = fill(f"{thin}/filler", 2 * MIB)
        for _ in range(20):
            os.write(fds[0], os.urandom(MIB))
        expect_error(errno.ENOSPC, os.fsync, fds[0])
        os.ftruncate(filler, 0)
        os.close(filler)
        late = os.open(volume / "f", os.O_RDWR)
        for fd in (fds[0], late):
            os.fsync(fd)
        for fd in fds[1:]:
            expect_error(errno.ENOSPC, os.fsync, fd)
            os.fsync(fd)
        for fd in fds + [late]:
            os.close(fd)
        volume.unmount()
    finally:
        for path in (disk, thin):
            if os.path.ismount(path):
                umount(path, MNT_DETACH)
    return None
