# SPDX-License-Identifier: Apache-2.0
"""Large trees: time and memory."""
import os
import time

from cases_volumes import driver
from checks import equal, names
from driver import Driver

FILES = 50000


def populate(path, count, directories):
    for number in range(directories):
        os.makedirs(f"{path}/{number % 10}/{number}")
    for number in range(count):
        place = number % directories
        os.close(os.open(f"{path}/{place % 10}/{place}/file-{number}", os.O_CREAT | os.O_WRONLY))


def memory(pid, field):
    with open(f"/proc/{pid}/status", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    return 0


def scrub(context, version, directories):
    nfs = Driver(context.build, node="")
    try:
        volume = nfs.create("vol-large", context.parameters(version=version))
        populate(context.path() + "/vol-large", FILES, directories)
        before = memory(nfs.process.pid, "VmRSS")
        began = time.monotonic()
        removed = nfs.call("Scrub", {"volume_id": volume["volume_id"]}, timeout=300)["removed_entries"]
        seconds = time.monotonic() - began
        peak = memory(nfs.process.pid, "VmHWM")
        print(f"      v{version}, {directories} directories: {removed} entries in {seconds:.1f} s "
              f"({removed / seconds:.0f}/s), memory {before} -> {peak} KiB")
        equal(removed, FILES + directories + min(10, directories))
        equal(os.listdir(context.path() + "/vol-large"), [])
        assert seconds < 120
        assert peak - before < 20000, "memory"
        assert '"Scrubbing"' in nfs.log(), "progress in the log"
        nfs.delete(volume["volume_id"])
    finally:
        equal(nfs.close(), 0)


def test_scrub_50000_files_v3(context):
    scrub(context, 3, 200)


def test_scrub_50000_files_v4(context):
    scrub(context, 4, 200)


def test_scrub_one_large_directory(context):
    scrub(context, 3, 1)


def test_scrub_goes_on_where_it_was(context):
    """The caller gives up, the driver is killed in the middle: the next call does the rest."""
    with driver(context) as nfs:
        volume = nfs.create("vol-resume", context.parameters())
        populate(context.path() + "/vol-resume", 20000, 50)
        from driver import CallError
        try:
            nfs.call("Scrub", {"volume_id": volume["volume_id"]}, timeout=1)
            raise AssertionError("20,000 files in a second")
        except CallError as error:
            equal(error.code, "DEADLINE_EXCEEDED")
        nfs.restart()
        left = sum(len(files) for _, _, files in os.walk(context.path() + "/vol-resume"))
        removed = nfs.call("Scrub", {"volume_id": volume["volume_id"]}, timeout=120)["removed_entries"]
        assert left <= removed <= left + 60, (left, removed)
        equal(names(context.path() + "/vol-resume"), [])
        nfs.delete(volume["volume_id"])
