# SPDX-License-Identifier: Apache-2.0
"""A second recording of a program takes its unwind rows from the cache on disk, and has the same stacks."""

import os
import re
import shutil
import subprocess
import time

import pytest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = "let end = Date.now() + 4000; function spin() { let x = 0; for (let i = 0; i < 1e6; i++) x += Math.sqrt(i); return x; } " \
    "while (Date.now() < end) spin();"


def record(culprit, program, out):
    run = subprocess.run([culprit, "record", "-v", "-o", str(out), "--", program, "-e", WORK],
                         capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == 0, run.stderr
    found = re.search(rf"{re.escape(program)}: (\d+) pages of unwind rows from the cache, (\d+) built", run.stderr)
    assert found, run.stderr
    return int(found[1]), int(found[2])


def test_second_recording_builds_no_table(tmp_path):
    culprit = os.environ.get("CULPRIT", f"{TOP}/build/cli/culprit")
    node = shutil.which("node")
    if not node:
        pytest.skip("node is not on this machine")
    # A copy is a file that no cache can know.
    program = str(tmp_path / "node")
    shutil.copy(os.path.realpath(node), program)
    time.sleep(1.5)
    first = record(culprit, program, tmp_path / "first.folded")
    # Pages that nobody needed in the first recording are built in the next.
    for _ in range(4):
        last = record(culprit, program, tmp_path / "last.folded")
        print(f"first {first}, then {last} pages (cached, built)")
        if last[1] == 0:
            break
    assert first[0] == 0 and first[1] > 20
    assert last[0] > 20 and last[1] == 0
    spin = [any("spin" in line for line in open(tmp_path / f"{name}.folded", encoding="utf-8"))
            for name in ("first", "last")]
    assert spin == [True, True]
