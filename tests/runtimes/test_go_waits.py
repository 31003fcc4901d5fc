# SPDX-License-Identifier: Apache-2.0
"""Goroutines that wait (go/waits/main.go): their functions, how long each waits by its own clock, for what, and from where."""

import os
import re
import subprocess
import time
from collections import defaultdict

import pytest

from pprof import samples
from recorder import cpu_seconds_of_all_threads, start_record
from task_waits import COPIES, SECONDS, Program, check_time, closing, marked_lines, record_known, recorded_seconds, stood_still, tasks
from test_go import FLAVOURS, Toolchain

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "go/waits/main.go")
# In the order of releases in which runtime.g differs.
VERSIONS = ["1.15", "1.17", "1.21", "1.22", "1.23", "1.24", "1.25", "1.26", "1.27"]

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


def running(path, copies, idle=0, spinning=0):
    process = subprocess.Popen([path, *map(str, (copies, idle, spinning))], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    return closing(Program(process))


def goroutines(path):
    return tasks(path, "goroutine")


def has(s, function):
    return f"main.{function}" in s.functions


def check_stack(function, s):
    category, inner = EXPECTED[function]
    assert s.labels["wait"] == category, (function, s)
    assert s.functions[0] == "runtime.gopark" or s.functions[0] == "runtime.goparkunlock", s
    at = [f for f in s.functions if not f.startswith("runtime.gopark")]
    for expected in inner:
        assert re.fullmatch(expected, at.pop(0)), (expected, s.functions)
    own = s.functions.index(f"main.{function}")
    assert s.places[own] == (SOURCE, marked_lines(SOURCE)[function]), (function, s)
    # From 1.17 on `go` may run a closure of the compiler.
    assert re.fullmatch(r"main\.startAll\.func\d+( main\.start(\.func|\.gowrap|·dwrap·)\d+)? runtime\.goexit", " ".join(s.functions[own + 1:])), s


@pytest.mark.sample("1.26-plain")
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("version", VERSIONS)
def test_known_waits(culprit, tmp_path, version, flavour):
    path, out = build(version, flavour, tmp_path), tmp_path / "out.pb.gz"
    with running(path, COPIES) as program:
        for _ in range(4):
            shares, messages = record_known(culprit, out, program, "--off-cpu")
            if not stood_still(shares):
                break
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
    check_time(shares, sums, recorded_seconds(messages))


def test_who_runs_does_not_wait(culprit, tmp_path):
    """Among goroutines that wait for ever, whose time is that of the recording, two spin. The deep stack is cut."""
    path, out = build("1.26", "plain", tmp_path), tmp_path / "out.pb.gz"
    with running(path, 0, idle=5, spinning=2) as program:
        record_known(culprit, out, program, "--wall")
    got = list(goroutines(out))
    assert not any(has(s, "spin") for s in got), got
    idle = defaultdict(int)
    for s in got:
        if has(s, "idleForever"):
            idle[s.labels["goroutine"]] += s.values[-1]
    print(dict(idle))
    assert len(idle) == 5 and all(abs(ns / 1e9 - SECONDS) < 0.2 for ns in idle.values()), idle
    deep = [s for s in got if has(s, "deep")]
    assert deep and all(s.functions[-1] == "[truncated: end of copied stack]" for s in deep), deep
    assert all(set(s.functions[2:-1]) == {"runtime.chanrecv1", "main.deep"} for s in deep), deep
    # The time of each thread is that of the recording: no goroutine's wait is in it.
    threads = defaultdict(int)
    for s in samples(out):
        if "[goroutine]" not in s.functions:
            threads[s.labels["tid"]] += s.values[-1]
    print(dict(threads))
    assert len(threads) > 2 and all(abs(ns / 1e9 - SECONDS) < 0.3 for ns in threads.values()), threads


@pytest.mark.parametrize("idle", [100, 10000])
def test_many_cost_little(culprit, tmp_path, idle):
    """Some of very many goroutines stand for all, and looking stays within a small part of one CPU."""
    path, out = build("1.26", "plain", tmp_path), tmp_path / "out.pb.gz"
    with running(path, 0, idle=idle) as program:
        recorder, messages = start_record(culprit, out, "-p", program.pid, "-d", SECONDS, "--off-cpu")
        before = cpu_seconds_of_all_threads(recorder.pid)
        time.sleep(SECONDS - 1)
        used = (cpu_seconds_of_all_threads(recorder.pid) - before) / (SECONDS - 1)
        assert recorder.wait(120) == 0, messages()
    waiting = sum(s.values[-1] for s in goroutines(out) if has(s, "idleForever")) / SECONDS / 1e9
    print(f"{idle} idle goroutines: {waiting:.1f} found, {100 * used:.2f} % of a CPU")
    print(re.search(r"goroutines:.*", messages())[0])
    assert abs(waiting - idle) < 0.02 * idle and used < 0.1, (waiting, used)
