# SPDX-License-Identifier: Apache-2.0
"""The holder: who may ask, what happens when things are there already, gone, dead or somebody else's."""
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import time

from lab import MIB, MNT_DETACH, Refused, bind_mount, expect_error, mounts, umount, wait_until


def refused(code, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except Refused as error:
        assert error.code == code, error
        return str(error)
    raise AssertionError(f"not refused with {code}")


def test_mount_is_idempotent(lab):
    volume = lab.volume(16 * MIB)
    pid = volume.pid()
    lab.mount(volume)
    lab.mount(volume)
    assert volume.pid() == pid and len(mounts(volume.path)) == 1
    point, kind, source, _ = mounts(volume.path)[0]
    assert kind == "fuse.berth" and source == f"berth:{volume.id}"
    volume.limit = 32 * MIB  # a mount with another limit is a change of the limit
    lab.mount(volume)
    assert volume.pid() == pid and os.statvfs(volume.path).f_blocks * 4096 == 32 * MIB
    refused("Conflict", lab.mount, volume, readOnly=True)
    refused("Conflict", lab.mount, volume, options=["noexec"])
    assert volume.unmount() is False and volume.unmount() is False
    assert mounts(volume.path) == [] and volume.entry() is None and not os.path.exists(volume.path)
    refused("NotFound", volume.stats)
    refused("NotFound", volume.set_limit, MIB)
    assert lab.call("unmount", id="never-mounted") == {"ok": True, "inUse": False}


def test_mount_options(lab):
    volume = lab.volume(16 * MIB, options=["nosuid", "nodev,noexec", "noatime"])
    options = mounts(volume.path)[0][3].split(",")
    assert {"nosuid", "nodev", "noexec", "noatime"} <= set(options), options
    with open(volume / "x", "w") as file:
        file.write("#!/bin/sh\n")
    os.chmod(volume / "x", 0o755)
    expect_error(errno.EACCES, subprocess.call, [volume / "x"])


def test_absent_volume(lab):
    refused("NotFound", lab.call, "mount", id="a", directory=f"{lab.root}/absent", target=f"{lab.root}/mounts/a",
            limit=MIB)
    os.makedirs(f"{lab.root}/half")
    refused("NotFound", lab.call, "mount", id="a", directory=f"{lab.root}/half", target=f"{lab.root}/mounts/a",
            limit=MIB)
    assert lab.call("list")["mounts"] == [] and not os.path.exists(f"{lab.root}/mounts/a")


def test_target_of_another_file_system(lab):
    directory, other = f"{lab.root}/volumes/b", f"{lab.root}/mounts/other"
    os.makedirs(directory + "/data")
    os.mkdir(other)
    bind_mount("/proc", other)
    refused("Conflict", lab.call, "mount", id="b", directory=directory, target=other, limit=MIB)
    assert len(mounts(other)) == 1
    assert lab.call("unmount", id="b", target=other)["inUse"] is False
    assert len(mounts(other)) == 1  # not ours
    umount(other)


def test_target_of_another_volume(lab):
    """A live mount is not taken for a dead one because somebody else wants its place."""
    first, second = lab.volume(16 * MIB), lab.volume(16 * MIB)
    second.unmount()
    own, second.path = second.path, first.path
    with open(first / "f", "w") as file:
        refused("Conflict", lab.mount, second)
        second.unmount()  # as a driver does after a mount that failed
        file.write("alive")
    assert len(mounts(first.path)) == 1 and second.entry() is None
    umount(first.path, MNT_DETACH)  # then the place is free, whatever the table says
    lab.mount(second)
    second.unmount()
    second.path = own
    lab.mount(second)
    second.unmount()


def test_many_open_files(lab):
    """More than the 1024 that a container may start with."""
    lab.start("--threads=2", soft_files=1024)
    volume = lab.volume(64 * MIB)
    fds = [os.open(volume / str(number), os.O_CREAT | os.O_WRONLY) for number in range(1500)]
    for fd in fds:
        os.close(fd)


def test_one_process_for_a_directory(lab):
    volume = lab.volume(16 * MIB)
    refused("Unavailable", lab.call, "mount", id="second", directory=volume.directory,
            target=f"{lab.root}/mounts/second", limit=MIB)
    assert mounts(f"{lab.root}/mounts/second") == []


def ask_as_user(lab):
    """What somebody who is not root gets, as the name of an exception or a code."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(12345)
            os.setuid(12345)
            lab.call_once("health")
            answer = "answered"
        except Refused as error:
            answer = error.code
        except OSError as error:
            answer = type(error).__name__
        finally:
            os.write(write_end, answer.encode())
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as file:
        return file.read()


def test_only_root_may_ask(lab):
    os.chmod(os.path.dirname(lab.socket_path), 0o755)
    assert os.stat(lab.socket_path).st_mode & 0o777 == 0o600
    assert ask_as_user(lab) == "PermissionError"
    os.chmod(lab.socket_path, 0o666)  # also when the file's mode does not keep him away
    assert ask_as_user(lab) == "Forbidden"


def test_garbage(lab):
    for data in (b"x", b"{", b"[]", b"\xff" * 1000, b'{"op":5}', b'{"op":"nothing"}', b"{}", b"a" * 70000,
                 json.dumps({"op": "mount", "id": "a" * 60000}).encode()):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.settimeout(5)
            peer.connect(lab.socket_path)
            peer.send(data)
            answer = json.loads(peer.recv(1 << 17))
            assert answer["ok"] is False and answer["code"] == "Invalid", answer
    assert lab.call("health")["ok"]


def test_many_volumes_are_listed_in_pages(lab):
    names = [lab.volume(4 * MIB).id for _ in range(60)]
    first = lab.call("list")
    assert first["more"] and len(first["mounts"]) == 50
    second = lab.call("list", after=first["mounts"][-1]["id"])
    assert not second["more"]
    listed = [entry["id"] for entry in first["mounts"] + second["mounts"]]
    assert listed == sorted(names)
    health = lab.call("health")
    assert health["mounts"] == 60 and health["serving"] == 60


def test_many_volumes_with_long_paths_are_listed(lab):
    base = f"{lab.root}/" + "/".join(["d" * 200] * 4)
    paths = []
    for _ in range(45):
        volume = lab.volume(16 * MIB, base=base)
        volume.unmount()
        volume.path = f"{base}/mount-{volume.id}"
        lab.mount(volume)
        paths.append(volume.path)
    found, more = [], True
    while more:
        answer = lab.call("list", after=found[-1]["id"] if found else None)
        found += answer["mounts"]
        more = answer["more"]
    assert sorted(entry["target"] for entry in found) == sorted(paths)


def test_unmounted_but_in_use(lab):
    volume = lab.volume(16 * MIB)
    target = f"{lab.root}/pod"
    os.mkdir(target)
    bind_mount(volume.path, target)
    with open(volume / "f", "w") as file:
        file.write("data")
    assert volume.unmount() is True
    assert mounts(volume.path) == [] and volume.entry()["detached"]
    os.kill(volume.pid(), signal.SIGKILL)  # it is still looked after
    with open(target + "/f") as file:
        assert file.read() == "data"
    refused("Unavailable", lab.mount, volume)
    umount(target)
    wait_until(lambda: volume.entry() is None, "it ends with the last mount")
    lab.mount(volume)
    with open(volume / "f") as file:
        assert file.read() == "data"


def test_unmounted_by_somebody_else(lab):
    volume = lab.volume(16 * MIB)
    umount(volume.path)
    wait_until(lambda: volume.entry() is None, "the holder notices")
    lab.mount(volume)
    assert len(mounts(volume.path)) == 1


def test_holder_is_killed(lab):
    volumes = [lab.volume(16 * MIB) for _ in range(3)]
    pids = [volume.pid() for volume in volumes]
    files = [open(volume / "f", "w+") for volume in volumes]
    lab.kill_holder()
    for file in files:
        file.write("written without a holder")
        file.flush()
    lab.start()
    assert [volume.pid() for volume in volumes] == pids  # the same processes
    for volume, file in zip(volumes, files):
        volume.kill()
        file.seek(0)
        assert file.read() == "written without a holder"
        file.close()
        volume.unmount()


def test_holder_and_process_are_killed(lab):
    """Then nobody has the descriptor any more: the mount is dead, and the next publish makes a new one."""
    volume = lab.volume(16 * MIB)
    with open(volume / "f", "w") as file:
        file.write("kept")
    pid = volume.pid()
    lab.kill_holder()
    os.kill(pid, signal.SIGKILL)

    def is_dead():
        try:
            os.stat(volume / "f")
        except OSError as error:
            return error.errno == errno.ENOTCONN
        return False
    wait_until(is_dead, "the mount is dead")
    lab.start()
    assert volume.entry() is None and mounts(volume.path) == []
    lab.mount(volume)
    with open(volume / "f") as file:
        assert file.read() == "kept"


def test_dead_mount_without_a_table(lab):
    volume = lab.volume(16 * MIB)
    pid = volume.pid()
    lab.kill_holder()
    os.kill(pid, signal.SIGKILL)
    os.unlink(f"{lab.root}/run/table.json")
    lab.start()
    assert len(mounts(volume.path)) == 1  # dead
    lab.mount(volume)
    assert len(mounts(volume.path)) == 1
    with open(volume / "f", "w") as file:
        file.write("alive")
    volume.unmount()
    assert mounts(volume.path) == []


def test_hand_over(lab):
    volumes = [lab.volume(16 * MIB) for _ in range(5)]
    pids = [volume.pid() for volume in volumes]
    old = lab.holder
    for _ in range(3):
        with open(volumes[0] / "f", "w") as file:
            lab.start()
            file.write("x")
    assert old.poll() == 0 and [volume.pid() for volume in volumes] == pids
    for volume in volumes:
        volume.kill()
        volume.set_limit(20 * MIB)
        assert volume.unmount() is False
    assert lab.call("list")["mounts"] == []


def test_hand_over_beside_a_silent_client(lab):
    volume = lab.volume(16 * MIB)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.connect(lab.socket_path)
        lab.call("health")
        started = time.monotonic()
        lab.start()
        assert time.monotonic() - started < 5
    volume.kill()
    volume.unmount()


def test_hand_over_that_breaks_off(lab):
    volume = lab.volume(16 * MIB)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.connect(lab.socket_path)
        peer.send(b'{"op":"hand-over"}')
        assert json.loads(peer.recv(1 << 16))["count"] == 1
    assert lab.call("health")["serving"] == 1
    volume.kill()
    volume.unmount()


def test_a_foreign_process_is_left_alone(lab):
    """The number in the table belongs to somebody else by now."""
    volume = lab.volume(16 * MIB)
    pid = volume.pid()
    lab.kill_holder()
    os.kill(pid, signal.SIGKILL)
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        path = f"{lab.root}/run/table.json"
        with open(path) as file:
            table = json.load(file)
        table["mounts"][0]["pid"] = innocent.pid
        with open(path, "w") as file:
            json.dump(table, file)
        lab.start()
        assert volume.entry() is None and innocent.poll() is None
        lab.mount(volume)
        volume.unmount()
        time.sleep(0.1)
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_damaged_table(lab):
    lab.kill_holder()
    path = f"{lab.root}/run/table.json"
    with open(path, "w") as file:
        file.write('{"format": 1, "mounts": [')
    result = subprocess.run([f"{lab.programs}/berth-holder", f"--socket={lab.socket_path}"], stderr=subprocess.PIPE,
                            text=True, timeout=20, check=False)
    assert result.returncode == 1 and "table.json is no JSON" in result.stderr, result.stderr
    with open(path, "w") as file:  # of a boot that is over: nothing of it is there any more
        json.dump({"format": 1, "bootId": "another", "mounts": [{"id": "x"}]}, file)
    lab.start()
    assert lab.call("list")["mounts"] == []


def test_second_holder_is_refused(lab):
    result = subprocess.run([f"{lab.programs}/berth-holder", f"--socket={lab.root}/run/other",
                             f"--state-dir={lab.root}/run", "--take-over=false"],
                            stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    assert result.returncode == 1 and "another holder uses" in result.stderr, result.stderr


def test_process_that_cannot_start(lab):
    """It is tried again, slower and slower; callers wait, and go on once it works again."""
    lab.fuse_program = f"{lab.root}/berth-fuse"
    shutil.copy(f"{lab.programs}/berth-fuse", lab.fuse_program)
    lab.start()
    volume = lab.volume(16 * MIB)
    with open(volume / "f", "w") as file:
        file.write("x")
    os.rename(lab.fuse_program, lab.fuse_program + ".good")
    shutil.copy("/bin/false", lab.fuse_program)
    os.kill(volume.pid(), signal.SIGKILL)
    wait_until(lambda: volume.entry()["restarts"] > 2, "it is tried again")
    entry = volume.entry()
    assert not entry["serving"] and "exit status 1" in entry["problem"], entry
    assert "Timeout" in refused("Timeout", lab.call, "stats", id=volume.id, timeout=0.3)
    reader = subprocess.Popen(["cat", volume / "f"], stdout=subprocess.PIPE)
    time.sleep(0.3)
    assert reader.poll() is None
    os.rename(lab.fuse_program + ".good", lab.fuse_program)
    assert reader.communicate(timeout=20)[0] == b"x"
    wait_until(lambda: volume.entry()["serving"] and volume.entry()["problem"] == "", "all is well again")
    os.rename(lab.fuse_program, lab.fuse_program + ".good")
    shutil.copy("/bin/false", lab.fuse_program)
    os.kill(volume.pid(), signal.SIGKILL)
    wait_until(lambda: not volume.entry()["serving"] and volume.entry()["restarts"] > 4, "it is down again")
    assert volume.unmount() is False and mounts(volume.path) == []
    volume.id = "fresh"  # a first start that fails says so
    assert "could not serve" in refused("Unavailable", lab.mount, volume)
    assert mounts(volume.path) == [] and volume.entry() is None


def test_upgrade_of_the_program(lab):
    lab.fuse_program = f"{lab.root}/berth-fuse"
    shutil.copy(f"{lab.programs}/berth-fuse", lab.fuse_program)
    lab.start()
    volumes = [lab.volume(16 * MIB) for _ in range(4)]
    files = [open(volume / "f", "w") for volume in volumes]
    os.rename(lab.fuse_program, lab.fuse_program + ".old")
    shutil.copy(f"{lab.programs}/berth-fuse", lab.fuse_program)
    pids = [volume.pid() for volume in volumes]
    lab.call("restart")
    for volume, file, pid in zip(volumes, files, pids):
        assert volume.pid() != pid and os.readlink(f"/proc/{volume.pid()}/exe") == lab.fuse_program
        file.write("still open")
        file.close()
        with open(volume / "f") as again:
            assert again.read() == "still open"
        assert volume.entry()["problem"] == ""


def test_holder_started_by_the_driver(lab):
    """The client starts one that is nobody's child; a second call finds it."""
    lab.kill_holder()
    call = [f"{lab.programs}/fuse-holder-call", lab.socket_path, f"{lab.programs}/berth-holder"]
    os.makedirs(f"{lab.root}/volumes/c/data")
    target = f"{lab.root}/mounts/c"
    mount = [*call, "mount", "c", f"{lab.root}/volumes/c", target, str(8 * MIB)]
    results = [subprocess.Popen(mount, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert all(result.wait(30) == 0 for result in results)
    assert len(mounts(target)) == 1

    def run(*arguments):
        return subprocess.run([*call, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=30, check=False)
    assert run("stats", "c").stdout == f"limit {8 * MIB} used 4096 inodes 0 of 2048\n"
    assert run("limit", "c", str(4 * MIB)).returncode == 0
    assert os.statvfs(target).f_blocks * 4096 == 4 * MIB
    assert run("list").stdout.split()[:3] == ["c", target, "serving"]
    assert run("health").stdout.startswith("mounts 1 serving 1 ")
    assert run("stats", "none").stdout == "NotFound: volume none is not mounted\n"
    assert "Conflict" in run("mount", "c", f"{lab.root}/volumes/c", target, str(8 * MIB), "noexec").stdout
    assert run("restart").returncode == 0
    assert run("unmount", "c", target).stdout == "not in use\n" and mounts(target) == []
    lab.start()  # relieves that one


def test_nobody_answers(lab):
    lab.kill_holder()
    started = time.monotonic()
    result = subprocess.run([f"{lab.programs}/fuse-holder-call", lab.socket_path, "-", "health"], timeout=30,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert result.returncode == 1 and result.stdout.startswith("Unavailable: nobody answers at "), result.stdout
    assert time.monotonic() - started < 12


def test_detach_flag_is_enough(lab):
    volume = lab.volume(16 * MIB)
    fd = os.open(volume / "f", os.O_CREAT | os.O_WRONLY)
    umount(volume.path, MNT_DETACH)
    assert os.write(fd, b"x") == 1  # lives on until the file is closed
    assert volume.entry() is not None
    os.close(fd)
    wait_until(lambda: volume.entry() is None, "it ends with the last file")


def test_control_group(lab):
    """In a group of their own, processes outlive the holder's container."""
    roots = [point for point, kind, _, options in mounts() if kind == "cgroup2" and "rw" in options.split(",")]
    if not roots:
        return "no control groups of version 2"
    group = f"{roots[0]}/berth-fuse-test-{os.getpid()}"
    lab.start(f"--cgroup={group}")
    volume = lab.volume(16 * MIB)
    try:
        for _ in range(2):
            with open(group + "/cgroup.procs") as file:
                assert file.read().split() == [str(volume.pid())]
            volume.kill()
    finally:
        volume.unmount()
        wait_until(lambda: os.rmdir(group) is None, "the group is empty")
    return None
