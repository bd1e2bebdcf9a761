# SPDX-License-Identifier: Apache-2.0
"""Small helpers of the cases."""
import contextlib
import json
import os
import stat

from driver import CallError


def equal(actual, expected, what=""):
    assert actual == expected, f"{what}: {actual!r}, expected {expected!r}"


@contextlib.contextmanager
def fails(code, *words):
    """The block must fail with this code and all these words in the message."""
    try:
        yield
    except CallError as error:
        assert error.code == code, f"{error.code} instead of {code}: {error.message}"
        for word in words:
            assert word in error.message, f"no {word!r} in: {error.message}"
        return
    raise AssertionError(f"did not fail with {code}")


def write(path, data=b"x"):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(data)


def tree(path):
    """What is below a directory: {relative path: (type, mode, uid, gid, content or link target or None)}."""
    found = {}
    for base, dirs, files in os.walk(path):
        for name in dirs + files:
            full = os.path.join(base, name)
            st = os.lstat(full)
            content = None
            if stat.S_ISREG(st.st_mode):
                with open(full, "rb") as data:
                    content = data.read()
            elif stat.S_ISLNK(st.st_mode):
                content = os.readlink(full)
            mode = None if stat.S_ISLNK(st.st_mode) else stat.S_IMODE(st.st_mode)
            found[os.path.relpath(full, path)] = (stat.S_IFMT(st.st_mode), mode, st.st_uid, st.st_gid, content)
    return found


def names(path, hidden=False):
    """Entries of a directory; the driver's own is left out."""
    return sorted(name for name in os.listdir(path) if hidden or name != ".berth")


def record(export, volume):
    with open(os.path.join(export, ".berth", "volumes", volume + ".json"), encoding="utf-8") as text:
        return json.load(text)


def leftovers(export):
    """Files of the driver that should be gone when no volume is left."""
    found = []
    for base, dirs, files in os.walk(os.path.join(export, ".berth")):
        depth = os.path.relpath(base, export).count(os.sep)
        if depth >= 1:
            found += [os.path.relpath(os.path.join(base, name), export) for name in dirs + files]
    return found
