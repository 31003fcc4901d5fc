# SPDX-License-Identifier: Apache-2.0
"""Snapshots of walks: recorded from a program with a known chain of calls, and walked again at once."""
import os
import platform
import subprocess

import pytest

from record_walks import CULPRIT, RECORD, TOP, WALKS, find, record

REPLAY = os.path.join(os.path.dirname(CULPRIT), "../tests/unit/test-walks")


@pytest.mark.sample("*")
@pytest.mark.parametrize("name", WALKS)
def test_recorded_walk(name, tmp_path):
    if platform.machine() != "x86_64":
        pytest.skip("record_walk reads the registers of x86-64")
    program, places, options = WALKS[name]
    runtime = find(places)
    if not runtime:
        pytest.skip(f"none of {', '.join(places)} is here")
    for tool in (RECORD, REPLAY):
        assert os.access(tool, os.X_OK), f"{tool} is not there: make"
    (tmp_path / f"{name}.walk").write_text(record(program, runtime, options, "pytest"))
    done = subprocess.run([REPLAY, "--jobs", "1"], capture_output=True, text=True,
                          env={**os.environ, "CULPRIT_SOURCE": TOP, "CULPRIT_WALKS": str(tmp_path)})
    assert done.returncode == 0, done.stderr
