# SPDX-License-Identifier: Apache-2.0
"""Databases on a volume: their own checks have to find nothing, also while processes are killed."""
import glob
import os
import random
import re
import sqlite3
import subprocess
import threading
import time
import zlib

from lab import MIB, wait_until


def test_sqlite_in_a_volume_that_is_full(lab):
    volume = lab.volume(4 * MIB)
    database = sqlite3.connect(volume / "db", isolation_level=None)
    database.execute("pragma journal_mode=delete")
    database.execute("create table t (k integer primary key, v blob, c integer)")
    rows = 0
    try:
        while rows < 10000:
            data = os.urandom(20000)
            database.execute("insert into t values (?, ?, ?)", (rows, data, zlib.crc32(data)))
            rows += 1
        raise AssertionError("never full")
    except sqlite3.OperationalError as error:
        assert "full" in str(error) or "I/O" in str(error), error
    assert rows > 100
    volume.set_limit(16 * MIB)
    database.execute("insert into t values (?, ?, ?)", (rows, b"later", zlib.crc32(b"later")))
    database.close()
    volume.kill()
    database = sqlite3.connect(volume / "db")
    assert database.execute("pragma integrity_check").fetchone() == ("ok",)
    found = list(database.execute("select v, c from t"))
    assert len(found) == rows + 1 and all(zlib.crc32(data) == check for data, check in found)
    database.close()


def find_postgres():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/pgbench"))
    return os.path.dirname(found[-1]) if found else None


def as_postgres(*command, **named):
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", *command], named


def run(*command, timeout=120):
    arguments, named = as_postgres(*command)
    result = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
                            check=False, cwd="/", **named)
    assert result.returncode == 0, f"{command[0]}: {result.stdout[-2000:]}"
    return result.stdout


def test_postgres_while_processes_are_killed(lab):
    programs = find_postgres()
    if programs is None:
        return "postgresql is not installed"
    volume = lab.volume(400 * MIB)
    data, socket_directory = volume / "data", f"{lab.root}/pg"
    for path in (data, socket_directory):
        os.mkdir(path)
        subprocess.check_call(["chown", "postgres:postgres", path])
    os.chmod(volume.path, 0o755)
    run(f"{programs}/initdb", "-D", data, "-A", "trust", "--data-checksums", "--no-instructions")
    connection = ["-h", socket_directory, "-p", "5433"]
    arguments, _ = as_postgres(f"{programs}/postgres", "-D", data, "-k", socket_directory, "-p", "5433", "-c",
                               "listen_addresses=", "-c", "shared_buffers=8MB", "-c", "checkpoint_timeout=30s", "-c",
                               "max_wal_size=64MB")
    log = open(f"{lab.root}/postgres.log", "w+")
    server = subprocess.Popen(arguments, stdout=log, stderr=log, cwd="/")
    stop, kills = threading.Event(), [0]

    def killer():
        dice = random.Random(3)
        while not stop.wait(dice.uniform(0.1, 0.4)):
            volume.kill()
            kills[0] += 1

    thread = threading.Thread(target=killer)
    try:
        wait_until(lambda: subprocess.call([f"{programs}/pg_isready", *connection], stdout=subprocess.DEVNULL) == 0,
                   "postgres is ready", 30)
        run(f"{programs}/pgbench", "-i", "-q", "-s", "2", *connection, "postgres")
        thread.start()
        output = run(f"{programs}/pgbench", "-n", "-c", "4", "-T", "8", *connection, "postgres")
        stop.set()
        thread.join()
        done = int(re.search(r"transactions actually processed: (\d+)", output).group(1))
        assert "failed transactions: 0 " in output or "failed" not in output, output
        query = ("select count(*) = %d and sum(delta) = (select sum(abalance) from pgbench_accounts) and sum(delta) = "
                 "(select sum(tbalance) from pgbench_tellers) from pgbench_history" % done)
        assert run("psql", "-At", "-c", query, *connection, "postgres").strip() == "t"
        run(f"{programs}/pg_amcheck", "--install-missing", "--heapallindexed", *connection, "postgres")
        print(f"figure: postgres: {done} transactions during {kills[0]} kills, 0 failed, checks clean")
        server.terminate()
        server.wait(60)
        run(f"{programs}/pg_checksums", "--check", "-D", data)
        assert kills[0] > 10
        log.seek(0)
        bad = [line for line in log if "PANIC" in line or "could not" in line]
        assert bad == [], bad
    finally:
        stop.set()
        if thread.ident is not None:
            thread.join()
        if server.poll() is None:
            server.send_signal(3)  # at once
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        log.close()
    time.sleep(0.1)
    return None
