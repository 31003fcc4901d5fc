# SPDX-License-Identifier: Apache-2.0
"""record --last: what happened before is gone, what happened since is there, and Ctrl-C ends it."""

import json
import re
import signal
import subprocess
import sys

import pytest

from recorder import read

# Marks its time: reads CLOCK_MONOTONIC, with which culprit tells times, too.
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


def functions(path):
    found = {"early": 0, "late": 0}
    for s in read(path):
        for name in found:
            if name in s.frames:
                found[name] += s.count
    return found


def record(culprit, out, *args):
    done = subprocess.run([culprit, "record", "-F", "197", "-o", out, *args, "--", sys.executable, "-c", PROGRAM],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_only_the_window_is_kept(culprit, tmp_path):
    out = tmp_path / "out.folded"
    messages = record(culprit, out, "--last", "2")
    found = functions(out)
    assert found["late"] > 0 and found["early"] == 0, (found, messages)
    said, seconds = re.match(r"(\d+) samples of \d+ processes in ([\d.]+) s", messages).groups()
    assert sum(s.count for s in read(out)) == int(said)
    assert seconds == "2.0"
    # The window is longer than the recording: all is there.
    record(culprit, out, "--last", "3600")
    found = functions(out)
    assert found["late"] > 0 and found["early"] > 0, found


def test_times_in_the_window(culprit, tmp_path):
    out = tmp_path / "out.firefox.json"
    record(culprit, out, "--last", "2")
    with open(out) as f:
        times = [t for thread in json.load(f)["threads"] for t in thread["samples"]["time"]]
    assert times and min(times) >= 0 and max(times) - min(times) <= 2000, (min(times), max(times))


def test_an_interrupt_ends_it(culprit, tmp_path):
    out = tmp_path / "out.folded"
    with subprocess.Popen([culprit, "record", "-v", "-F", "197", "--last", "1", "-o", out], stderr=subprocess.PIPE,
                          text=True) as p:
        for line in p.stderr:
            if "samples count from now on" in line:
                break
        p.send_signal(signal.SIGINT)
        messages = p.stderr.read()
    assert p.returncode == 0 and f"wrote {out}" in messages, messages


@pytest.mark.parametrize("value", ["0", "-1", "x", "1e9"])
def test_mistakes(culprit, tmp_path, value):
    done = subprocess.run([culprit, "record", f"--last={value}", "-o", tmp_path / "x.folded"], capture_output=True, text=True)
    assert done.returncode == 2 and "--last" in done.stderr
