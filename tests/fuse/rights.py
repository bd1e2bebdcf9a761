# SPDX-License-Identifier: Apache-2.0
"""Nobody gets more rights through a volume than the file system below would give him."""
import errno
import os
import shutil

from lab import FALLOC_FL_KEEP_SIZE, MIB, fallocate


def as_user(user, function):
    """What `function` prints when it runs as that user, in a process of its own."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(into, 1)
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            function()
        except OSError as error:
            os.write(1, errno.errorcode[error.errno].encode())
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def test_changed_program_runs_without_setuid(lab):
    """Whoever may write to a setuid program and runs it at once, with nobody looking at its mode in between."""
    volume = lab.volume(16 * MIB)
    program = volume / "id"
    os.chmod(volume.path, 0o755)
    shutil.copy("/usr/bin/id", program)

    def change_and_run(change):
        fd = os.open(program, os.O_WRONLY | os.O_APPEND)
        change(fd)
        os.close(fd)
        os.execv(program, ["id", "-u"])

    for change, expected in ((lambda fd: None, 0), (lambda fd: os.write(fd, b"x"), 12345),
                             (lambda fd: fallocate(fd, FALLOC_FL_KEEP_SIZE, 4 * MIB, 4096), 12345)):
        os.chmod(program, 0o6777)
        found = as_user(12345, lambda run=change: change_and_run(run))
        assert found == f"{expected}\n", (found, expected)


def test_create_of_what_is_there_asks_for_permission(lab):
    """Also when the kernel remembers that there was none."""
    volume = lab.volume(16 * MIB)
    os.chmod(volume.path, 0o777)
    for name, mode, expected in (("secret", 0o600, "EACCES"), ("open", 0o666, "opened")):
        assert not os.path.exists(volume / name)
        fd = os.open(f"{volume.directory}/data/{name}", os.O_CREAT | os.O_WRONLY)
        os.fchmod(fd, mode)
        os.close(fd)
        found = as_user(12345, lambda path=volume / name: os.write(1, b"opened")
                        if os.open(path, os.O_CREAT | os.O_RDWR) > 0 else None)
        assert found == expected, (name, found)
