# SPDX-License-Identifier: Apache-2.0
"""Goroutines that wait (go/waits/main.go): their functions, how long each waits by its own clock, for what, and from where."""

import contextlib
import math
import os
import re
import subprocess
import time
from collections import defaultdict

import pytest

from pprof import samples
from recorder import cpu_seconds_of_all_threads, start_record
from test_go import CACHE, FLAVOURS, Toolchain

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "go/waits/main.go")
SECONDS = 10
COPIES = 8
HZ = 20 # each process is looked at so often
SIGMAS = 5
# In the order of releases in which runtime.g differs.
VERSIONS = ["1.15.15", "1.17", "1.21", "1.22", "1.23", "1.24", "1.25", "1.26", "1.27"]

# function: what it waits for, and the functions in which it waits, leaf first
EXPECTED = {
    "receive": ("channel", ["runtime.chanrecv", "runtime.chanrecv1"]),
    "send": ("channel", ["runtime.chansend", "runtime.chansend1"]),
    "choose": ("channel", ["runtime.selectgo"]),
    "lock": ("lock", ["runtime.semacquire1", "sync.runtime_SemacquireMutex|internal/sync.runtime_SemacquireMutex",
                      r"(internal/)?sync.\(\*Mutex\).lockSlow"]),
    "sleep": ("sleep", ["time.Sleep"]),
    "readSocket": ("network", ["runtime.netpollblock", "internal/poll.runtime_pollWait"]),
    "readPipe": ("pipe", ["runtime.netpollblock", "internal/poll.runtime_pollWait"]),
    "waitGroup": ("lock", ["runtime.semacquire1"]),
}


def build(version, flavour, folder):
    toolchain = Toolchain(version)
    done = toolchain.run("build", "-o", folder / "waits", *FLAVOURS[flavour], SOURCE, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder / "waits"


class Program:
    def __init__(self, path, copies, idle=0, spinning=0):
        self.process = subprocess.Popen([path, *map(str, (copies, idle, spinning))], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == "ready\n"
        self.pid = self.process.pid

    def clocks(self):
        """(ns since the start, {function: (waits, ns) of all copies})"""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        _, now, *words = self.process.stdout.readline().split()
        sums = defaultdict(lambda: (0, 0))
        for name, n, ns in zip(words[::3], words[1::3], words[2::3]):
            sums[name] = sums[name][0] + int(n), sums[name][1] + int(ns)
        return int(now), sums

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@contextlib.contextmanager
def running(*args, **options):
    program = Program(*args, **options)
    try:
        yield program
    finally:
        program.close()


def goroutines(path):
    """The samples of goroutines: their stacks without the note, leaf first."""
    for s in samples(path):
        if "[goroutine]" in s.functions:
            assert s.functions[-1] == "[goroutine]" and s.labels.get("tid", 0) == 0, s
            yield s._replace(functions=s.functions[:-1])


def has(s, function):
    return f"main.{function}" in s.functions


def record_known(culprit, out, program, *options):
    """Records for SECONDS. {function: (its share of the time by its clocks, waits)}, messages"""
    recorder, messages = start_record(culprit, out, "-p", program.pid, "-d", SECONDS, *options)
    begin, before = program.clocks()
    time.sleep(SECONDS)
    end, after = program.clocks()
    assert recorder.wait(120) == 0, messages()
    return {name: ((after[name][1] - before[name][1]) / (end - begin), after[name][0] - before[name][0])
            for name in after}, messages()


def check_stack(function, s):
    category, inner = EXPECTED[function]
    assert s.labels["wait"] == category, (function, s)
    assert s.functions[0] == "runtime.gopark" or s.functions[0] == "runtime.goparkunlock", s
    at = [f for f in s.functions if not f.startswith("runtime.gopark")]
    for expected in inner:
        assert re.fullmatch(expected, at.pop(0)), (expected, s.functions)
    below = s.functions[s.functions.index(f"main.{function}"):]
    assert below[-1] == "runtime.goexit" and below[1:-1] and all(f.startswith("main.startAll.") for f in below[1:-1]), s.functions


def check_time(shares, sums, out):
    """What is found of each function is what its clocks say. In each of HZ * SECONDS looks each copy waits with
    the probability p, which gives the sum a standard deviation of sqrt(p (1 - p) / looks), or less, as a look stands
    for its own period. The clocks also count the time from when a goroutine could run until it runs."""
    for function in EXPECTED:
        share, waits = shares[function]
        found = sums[function] / SECONDS / 1e9
        p = min(share / COPIES, 1)
        tolerance = SIGMAS * COPIES * math.sqrt(max(p * (1 - p), 0.001) / (HZ * SECONDS * COPIES))
        print(f"{function}: {found / COPIES:.4f} found, {share / COPIES:.4f} by the clocks, tolerance {tolerance / COPIES:.4f}, "
              f"{waits} waits")
        assert abs(found - share) < tolerance + 0.01 * COPIES, (function, found, share, tolerance)


@pytest.mark.sample("1.26-plain")
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("version", VERSIONS)
def test_known_waits(culprit, tmp_path, version, flavour):
    path, out = build(version, flavour, tmp_path), tmp_path / "out.pb.gz"
    with running(path, COPIES) as program:
        shares, messages = record_known(culprit, out, program, "--off-cpu")
    sums, ids = defaultdict(int), defaultdict(set)
    for s in goroutines(out):
        assert not all(f.startswith("runtime.") for f in s.functions), s
        for function in filter(lambda f: has(s, f), EXPECTED):
            if has(s, "rest"):
                assert s.labels["wait"] == "sleep", s
                continue
            check_stack(function, s)
            sums[function] += s.values[-1]
            ids[function].add(s.labels["goroutine"])
    print(re.search(r"goroutines:.*", messages)[0])
    assert all(len(ids[f]) == COPIES for f in EXPECTED), ids
    check_time(shares, sums, out)
