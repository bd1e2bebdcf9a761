# SPDX-License-Identifier: Apache-2.0
"""The connection itself: a program of its own, see tests/unit/nfs/test_share.c."""
import os
import re
import subprocess

from checks import equal


def test_share_and_the_traps_of_the_library(context):
    program = os.path.join(context.build, "tests", "unit", "nfs", "test_share")
    assert os.path.exists(program), f"{program} is not built: make unit-build"
    where = f"{context.server.port} {context.server.mount_port} {context.path()}"
    result = subprocess.run([program], env={**os.environ, "BERTH_TEST_NFS": where}, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, timeout=120, check=False)
    text = result.stdout.decode()
    equal(result.returncode, 0, text)
    passed = re.search(r"\[  PASSED  \] (\d+) test", text)
    assert passed and int(passed.group(1)) == 8, text
