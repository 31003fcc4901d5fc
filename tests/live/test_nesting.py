# SPDX-License-Identifier: Apache-2.0
"""Samples that interrupt each other. A task can be preempted while a uprobe's program walks its stack, by a task
whose stack is walked, too, while the clock's program interrupts both at 997 Hz. No sample may have the stack of
another task."""

import os
import re
import signal
import subprocess
import sys

import pytest

import truth
from recorder import read, start_record

TOOL = os.path.join(truth.TOP, "build/tests/tools/sample_uprobe")
LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
PROCESSES, DEPTH = 6, 24
SECONDS = 6

# Calls getpid() in a loop, below a chain of functions that no other process has.
PYTHON = """
import os, sys, time
k, end = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
if k & 1:
    os.nice(-5)
code = f"def p{k}_0():\\n    while time.monotonic() < end: os.getpid()\\n"
for i in range(1, DEPTH):
    code += f"def p{k}_{i}():\\n    p{k}_{i - 1}()\\n"
exec(code)
globals()[f"p{k}_{DEPTH - 1}"]()
"""


def sample(culprit, out, file, symbol, start):
    """Records the processes that `start` starts, by the clock and by a uprobe. Returns the stacks and the uprobe's
    counters."""
    recorder, _ = start_record(culprit, out, "-F", 997, "-d", 600)
    programs = []
    try:
        tool = subprocess.Popen([TOOL, str(recorder.pid), file, symbol], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)
        assert tool.stdout.readline() == "ready\n"
        programs = start()
        for p in programs:
            assert p.wait(timeout=120) == 0
        counters = dict(line.split() for line in tool.communicate()[0].splitlines())
    finally:
        for p in programs:
            p.kill()
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(timeout=60) == 0
    counters = {name: int(n) for name, n in counters.items()}
    print(counters)
    assert counters["events"] > 10000
    assert counters["events"] == sum(counters[x] for x in ("filtered", "filtered_idle", "samples", "lost_sample",
                                                           "nested"))
    # Each CPU has room for four unfinished samples. More tasks are seldom preempted during a sample.
    assert counters["nested"] <= counters["events"] / 100
    return read(out), counters


def test_native_stacks(culprit, tmp_path):
    truth.make(os.path.join(truth.PROGRAMS, "probed-x"))
    program = os.path.join(truth.PROGRAMS, "probed-x")
    stacks, counters = sample(culprit, tmp_path / "out.folded", program, "probed_leaf", lambda: [subprocess.Popen(
        [program, str(SECONDS * 1000)], env={**os.environ, "TRUTH_OUT": str(tmp_path)})])
    verdict = truth.Verdict(truth.Truth(tmp_path, "probed-x"), [s for s in stacks if s.comm == "probed-x"])
    print(verdict)
    assert verdict.samples > counters["samples"] / 2
    # Stacks from before the tables were loaded are marked as truncated. The probe is at the first instruction of
    # probed_leaf(), which has not entered its name there.
    wrong = {why: n for why, n in verdict.faults.items()
             if not why.startswith("[truncated") and not re.search(r"probed_leaf$", why)}
    assert not wrong


@pytest.mark.skipif(not os.path.exists(LIBC), reason="no x86-64 C library of Debian's")
def test_stacks_of_python(culprit, tmp_path):
    """The walker's buffers hold code objects of one process while frames of another process are read."""
    script = tmp_path / "nested.py"
    script.write_text(PYTHON.replace("DEPTH", str(DEPTH)))
    stacks, _ = sample(culprit, tmp_path / "out.folded", LIBC, "getpid", lambda: [
        subprocess.Popen([sys.executable, "-S", "-E", str(script), str(k), str(SECONDS)]) for k in range(PROCESSES)])
    right = wrong = 0
    for s in stacks:
        names = [n for n in s.frames if re.fullmatch(r"p\d+_\d+", n)]
        if not names or (s.note and s.note.startswith("[truncated")):
            continue
        k = names[0].split("_")[0]
        # On its way down the script has called only the outer functions.
        if names == [f"{k}_{DEPTH - 1 - i}" for i in range(len(names))]:
            right += s.count
        else:
            wrong += s.count
            print(s.count, names)
    print(right, "right", wrong, "wrong")
    assert right > 5000
    assert not wrong
