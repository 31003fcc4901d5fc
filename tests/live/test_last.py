# SPDX-License-Identifier: Apache-2.0
"""record --last writes the samples of the last seconds and no older ones, and Ctrl-C ends it."""

import json
import re
import signal
import sys

import pytest

from folded import sums_by_function
from recorder import read, record, start_record

# Calls early() and then late(), by CLOCK_MONOTONIC, which is also culprit's clock.
PROGRAM = """
import sys, time
def early(end):
    while time.monotonic() < end: pass
def late(end):
    while time.monotonic() < end: pass
start = time.monotonic()
early(start + 3)
late(start + 6)
"""


def record_program(culprit, out, *args):
    return record(culprit, out, "-F", 197, *args, "--", sys.executable, "-c", PROGRAM).stderr


def by_function(path):
    return sums_by_function(read(path), ("early", "late"))


def test_only_the_window_is_kept(culprit, tmp_path):
    out = tmp_path / "out.folded"
    messages = record_program(culprit, out, "--last", "2")
    found = by_function(out)
    assert found["late"] > 0 and found["early"] == 0, (found, messages)
    said, seconds = re.match(r"(\d+) samples of \d+ processes in ([\d.]+) s", messages).groups()
    assert sum(s.count for s in read(out)) == int(said)
    assert seconds == "2.0"
    # The window is longer than the recording, so no sample is left out.
    record_program(culprit, out, "--last", "3600")
    found = by_function(out)
    assert found["late"] > 0 and found["early"] > 0, found


def test_times_in_the_window(culprit, tmp_path):
    out = tmp_path / "out.firefox.json"
    record_program(culprit, out, "--last", "2")
    with open(out) as f:
        times = [t for thread in json.load(f)["threads"] for t in thread["samples"]["time"]]
    assert times and min(times) >= 0 and max(times) - min(times) <= 2000, (min(times), max(times))


def test_an_interrupt_ends_it(culprit, tmp_path):
    out = tmp_path / "out.folded"
    p, messages = start_record(culprit, out, "-F", 197, "--last", 1)
    p.send_signal(signal.SIGINT)
    assert p.wait(60) == 0 and f"wrote {out}" in messages(), messages()


@pytest.mark.parametrize("value", ["0", "-1", "x", "1e9"])
def test_mistakes(culprit, tmp_path, value):
    done = record(culprit, tmp_path / "x.folded", f"--last={value}", check=False)
    assert done.returncode == 2 and "--last" in done.stderr
