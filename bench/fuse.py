#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The FUSE backend against the bare directory and an ext4 image on a loop device: throughput, calls a second, memory.

bench/fuse.sh runs it. Each figure is the best of some rounds, since other work on the machine only ever makes it worse.
"""
import argparse
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/fuse"))
sys.dont_write_bytecode = True
from lab import MIB, Lab, become_reaper, umount  # noqa: E402

SIZE = 256 * MIB
FILES = 4000


def drop_caches(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def rate(function, rounds=3):
    """Best of some rounds: what function returns (an amount), a second."""
    best = 0.0
    for _ in range(rounds):
        started = time.perf_counter()
        amount = function()
        best = max(best, amount / (time.perf_counter() - started))
    return best


def write(path, block, size=SIZE, sync=False):
    data = os.urandom(block)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    for _ in range(size // block):
        os.write(fd, data)
    if sync:
        os.fdatasync(fd)
    os.close(fd)
    return size / MIB


def overwrite(path, block, size):
    data = os.urandom(block)
    fd = os.open(path, os.O_WRONLY)
    for _ in range(size // block):
        os.write(fd, data)
    os.close(fd)
    return size / MIB


def read(path, block, size=SIZE):
    fd = os.open(path, os.O_RDONLY)
    buffer = bytearray(block)
    while os.readv(fd, [buffer]) > 0:
        pass
    os.close(fd)
    return size / MIB


def cold_read(path, block, rounds=3):
    best = 0.0
    for _ in range(rounds):
        drop_caches(path)
        started = time.perf_counter()
        amount = read(path, block)
        best = max(best, amount / (time.perf_counter() - started))
    return best


def files(directory, action):
    for number in range(FILES):
        action(f"{directory}/{number}")
    return FILES


def create(path):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL))


def measure(directory):
    path = f"{directory}/data"
    figures = {
        "write 1 MiB": (rate(lambda: write(path, MIB)), "MB/s"),
        "write 1 MiB + fdatasync": (rate(lambda: write(path, MIB, sync=True)), "MB/s"),
        "write 4 KiB": (rate(lambda: write(path, 4096, 64 * MIB)), "MB/s"),
        "overwrite 4 KiB": (rate(lambda: overwrite(path, 4096, 64 * MIB)), "MB/s"),
    }
    write(path, MIB)
    figures["read 1 MiB, cold"] = (cold_read(path, MIB), "MB/s")
    figures["read 1 MiB, cached"] = (rate(lambda: read(path, MIB)), "MB/s")
    figures["read 4 KiB, cached"] = (rate(lambda: read(path, 4096)), "MB/s")
    os.unlink(path)
    creates, stats, unlinks = [], [], []
    many = f"{directory}/many"
    os.mkdir(many)
    for _ in range(3):
        creates.append(rate(lambda: files(many, create), 1))
        stats.append(rate(lambda: files(many, os.stat), 1))
        unlinks.append(rate(lambda: files(many, os.unlink), 1))
    os.rmdir(many)
    figures["create"] = (max(creates), "/s")
    figures["stat"] = (max(stats), "/s")
    figures["unlink"] = (max(unlinks), "/s")
    return figures


def loop_image(lab):
    image, mount = f"{lab.root}/image", f"{lab.root}/loop"
    os.mkdir(mount)
    with open(image, "wb") as file:
        file.truncate(1024 * MIB)
    subprocess.check_call(["mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=8", image])
    subprocess.check_call(["mount", "-o", "loop", image, mount])
    return mount


def memory(pids):
    """Mean of the resident, proportional and private memory of processes, in KiB."""
    sums = {"Rss": 0, "Pss": 0, "Private": 0}
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            for line in file:
                for key in sums:
                    if line.startswith(key) and not line.startswith(("Pss_", "Private_Hugetlb")):
                        sums[key] += int(line.split()[1])
    return {key: value / len(pids) for key, value in sums.items()}


def many_volumes(lab, count=100):
    started = time.perf_counter()
    volumes = [lab.volume(64 * MIB) for _ in range(count)]
    took = time.perf_counter() - started
    pids = [volume.pid() for volume in volumes]
    print(f"{count} volumes: mounted in {took * 1000 / count:.1f} ms each")
    for label in ("idle", "after writing and reading 16 MiB"):
        if label != "idle":
            for volume in volumes:
                write(volume / "f", MIB, 16 * MIB)
                read(volume / "f", MIB)
                os.unlink(volume / "f")
        mean = memory(pids)
        print(f"{count} volumes, {label}: RSS {mean['Rss']:.0f} KiB, PSS {mean['Pss']:.0f} KiB, "
              f"private {mean['Private']:.0f} KiB each")
    mean = memory([lab.holder.pid])
    print(f"holder of {count}: RSS {mean['Rss']:.0f} KiB, private {mean['Private']:.0f} KiB")
    started = time.perf_counter()
    lab.call("restart", timeout=120)
    print(f"{count} processes replaced, one after the other: {(time.perf_counter() - started) * 1000 / count:.1f} ms each")


def take_over(lab):
    volume = lab.volume(256 * MIB)
    os.mkdir(volume / "many")
    for number in range(20000):
        create(f"{volume.path}/many/{number}")
    pauses = []
    for _ in range(10):
        started = time.perf_counter()
        os.kill(volume.pid(), 9)
        os.statvfs(volume.path)  # answered by the successor
        pauses.append(time.perf_counter() - started)
    print(f"killed with 20000 files: pause {min(pauses) * 1000:.0f} to {max(pauses) * 1000:.0f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", required=True)
    parser.add_argument("--base", help="where the volumes lie")
    options = parser.parse_args()
    become_reaper()
    lab = Lab(os.path.abspath(options.programs), options.base)
    try:
        lab.start()
        plain, loop, volume = f"{lab.root}/plain", loop_image(lab), lab.volume(1024 * MIB)
        os.mkdir(plain)
        results = {"directory": measure(plain), "loop": measure(loop), "fuse": measure(volume.path)}
        umount(loop)
        print(f"{'':26}" + "".join(f"{name:>14}" for name in results))
        for figure, (_, unit) in results["fuse"].items():
            print(f"{figure:26}" + "".join(f"{result[figure][0]:>9.0f} {unit:4}" for result in results.values()))
        volume.unmount()
        many_volumes(lab)
        take_over(lab)
    finally:
        lab.close()


if __name__ == "__main__":
    main()
