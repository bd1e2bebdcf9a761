# SPDX-License-Identifier: Apache-2.0
"""What programs expect of a file system: the checks of fuse-posix, on a volume and, to prove them, on a directory."""
import os
import random
import re
import subprocess
import threading

from lab import MIB


def run(lab, directory, *which, expected=54):
    result = subprocess.run([f"{lab.programs}/fuse-posix", directory, *which], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, timeout=600, check=False)
    last = re.search(r"(\d+) passed, (\d+) failed\n$", result.stdout)
    bad = [line for line in result.stdout.splitlines() if not line.startswith("ok ")]
    assert last and result.returncode == 0, "\n".join(bad)
    assert int(last.group(1)) >= expected


def test_on_a_plain_directory(lab):
    directory = f"{lab.root}/plain"
    os.mkdir(directory)
    run(lab, directory)


def test_on_a_volume(lab):
    volume = lab.volume(256 * MIB)
    os.chmod(volume.path, 0o755)
    run(lab, volume.path)
    volume.settle(slack=16 * 4096)  # blocks for extents come with the write-back


def test_after_a_takeover(lab):
    volume = lab.volume(256 * MIB)
    os.chmod(volume.path, 0o755)
    volume.kill()
    run(lab, volume.path)
    volume.settle(slack=16 * 4096)
    assert os.listdir(volume.directory + "/orphans") == []


def test_while_processes_are_killed(lab):
    killed_meanwhile(lab, lab.volume(256 * MIB))


def test_on_a_file_system_with_other_handles(lab):
    """Where a handle is no number (tmpfs, as XFS and btrfs), it is remembered, and looked for after a take-over."""
    base = f"{lab.root}/tmpfs"
    os.mkdir(base)
    subprocess.check_call(["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", base])
    volume = lab.volume(256 * MIB, base=base)
    os.chmod(volume.path, 0o755)
    run(lab, volume.path)
    killed_meanwhile(lab, volume)
    volume.unmount()
    subprocess.check_call(["umount", base])


def killed_meanwhile(lab, volume):
    os.chmod(volume.path, 0o755)
    stop = threading.Event()
    kills = [0]

    def killer():
        dice = random.Random(7)
        while not stop.wait(dice.uniform(0.01, 0.15)):
            volume.kill()
            kills[0] += 1

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        # who is in a directory that is gone cannot ask about it after its process was killed
        run(lab, volume.path, "-removed_directory_in_use", expected=53)
    finally:
        stop.set()
        thread.join()
    assert kills[0] > 5, kills
    volume.settle(slack=16 * 4096)
