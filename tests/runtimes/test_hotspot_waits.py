# SPDX-License-Identifier: Apache-2.0
"""Virtual threads that wait (hotspot/Waits.java): their frames as the JVM's own dump shows them, how long each waits by
its own clock, and for what."""

import glob
import os
import re
import shutil
import subprocess
import time
from collections import Counter, defaultdict

import pytest

from pprof import samples
from recorder import cpu_seconds_of_all_threads, start_record
from task_waits import COPIES, SECONDS, Program, check_time, closing, marked_lines, record_known, recorded_seconds, stood_still, tasks
from test_hotspot import MODES, Java, built, homes
from test_hotspot_stopped import dumped, visible

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hotspot/Waits.java")
VERSIONS = [21, 25, 26, 27, 28]
MONITORS = 24 # from here on who waits for a monitor leaves its carrier
# function: what it waits for, and a method below it
EXPECTED = {
    "take": ("lock", "java.util.concurrent.LinkedBlockingQueue.take"),
    "put": ("lock", "java.util.concurrent.SynchronousQueue.put"),
    "lock": ("lock", "java.util.concurrent.locks.ReentrantLock.lock"),
    "sleep": ("sleep", "java.lang.Thread.sleep"),
    "readSocket": ("network", "sun.nio.ch.NioSocketImpl.park"),
    "readPipe": ("pipe", "sun.nio.ch.SourceChannelImpl.read"),
    "await": ("lock", "java.util.concurrent.CountDownLatch.await"),
    "monitor": ("lock", None),
    "object": ("lock", "java.lang.Object.wait"),
}
COLLECTORS = {
    "G1": [],
    "Serial": ["-XX:+UseSerialGC"],
    "Parallel": ["-XX:+UseParallelGC"],
    "wide": ["-XX:-UseCompressedOops"],
    "wider": ["-XX:-UseCompressedOops", "-XX:-UseCompressedClassPointers"],
    "compact": ["-XX:+UnlockExperimentalVMOptions", "-XX:+UseCompactObjectHeaders"],
}


@pytest.fixture(params=VERSIONS)
def java(request, built):
    found = homes(request.param)
    if not found:
        pytest.skip(f"no OpenJDK {request.param}")
    j = Java(request.param, found[0])
    yield j
    j.close()


def expected(java):
    return {f: e for f, e in EXPECTED.items() if java.version >= MONITORS or f not in ("monitor", "object")}


def running(java, copies, idle=0, spinning=0, options=(), more=()):
    at = java.place()
    process = subprocess.Popen(java.command("java", *options, "-cp", at, "Waits", "none", *map(str, (copies, idle, spinning)), *more),
                               text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if "ready\n" not in iter(process.stdout.readline, ""): # warnings come first
        process.kill()
        reason = process.communicate()[1]
        if "Unrecognized VM option" in reason or "not supported" in reason:
            pytest.skip(f"this build has no {options}")
        pytest.fail(reason)
    return closing(Program(process))


def virtual(path):
    return tasks(path, "virtual thread")


def has(s, function):
    return f"Waits.{function}" in s.functions


def dump(java, pid):
    """{name of a frame: the threads that have it} of the JVM's own dump, by a jcmd of any version."""
    tools = [f"{java.root or ''}{java.home}/bin/jcmd", *glob.glob("/usr/lib/jvm/*/bin/jcmd"), shutil.which("jcmd")]
    tool = next((t for t in tools if t and os.path.exists(t)), None)
    if not tool:
        pytest.skip("no jcmd")
    to = f"{java.scratch}/threads.txt"
    command = java.command("jcmd") if tool == tools[0] else [tool]
    said = subprocess.run([*command, str(pid), "Thread.dump_to_file", "-overwrite", java.inside(to)], capture_output=True,
                          text=True, timeout=60)
    assert said.returncode == 0, said.stdout + said.stderr
    with open(to, encoding="utf-8") as f:
        return dumped(f.read())


def frames(s):
    """(function, file, line), leaf first."""
    return tuple((f, os.path.basename(p[0]) or None, p[1]) for f, p in zip(s.functions, s.places))


def check_stack(java, function, s):
    category, below = EXPECTED[function]
    assert s.labels["wait"] == category, (function, s)
    own = s.functions.index(f"Waits.{function}")
    assert os.path.basename(s.places[own][0]) == "Waits.java"
    assert s.places[own][1] == marked_lines(SOURCE)[function], (function, s)
    assert not below or below in s.functions[:own], (below, s.functions)
    assert s.functions[own + 1].startswith("Waits.lambda$startAll$"), s.functions
    assert s.functions[-1] == "jdk.internal.vm.Continuation.enter", s.functions
    assert not any(f.startswith("[") for f in s.functions), s.functions


@pytest.mark.sample("25-tiered")
@pytest.mark.parametrize("mode", MODES)
def test_known_waits(culprit, java, tmp_path, mode):
    out = tmp_path / "out.pb.gz"
    with running(java, COPIES, options=MODES[mode]) as program:
        for _ in range(4):
            shares, messages = record_known(culprit, out, program, "--off-cpu")
            if not stood_still(shares):
                break
    sums, ids = defaultdict(int), defaultdict(set)
    for s in virtual(out):
        for function in filter(lambda f: has(s, f), expected(java)):
            if has(s, "rest"):
                assert s.labels["wait"] == "sleep", s
                continue
            check_stack(java, function, s)
            sums[function] += s.values[-1]
            ids[function].add(s.labels["virtual_thread"])
    print(re.search(r"virtual threads:.*", messages)[0])
    assert set(shares) == set(expected(java))
    assert all(len(ids[f]) == COPIES for f in expected(java)), ids
    check_time(shares, sums, recorded_seconds(messages))


@pytest.mark.parametrize("layout", COLLECTORS)
def test_collector_moves_objects(culprit, java, tmp_path, layout):
    """Threads that wait for ever, in a heap that is collected all the time: each is found, and their frames are right."""
    out = tmp_path / "out.pb.gz"
    with running(java, 0, idle=50, options=["-Xmx128m", *COLLECTORS[layout]], more=["garbage"]) as program:
        _, messages = record_known(culprit, out, program, "--off-cpu")
    sums, stacks = defaultdict(int), Counter()
    for s in virtual(out):
        if has(s, "idleForever"):
            sums[s.labels["virtual_thread"]] += s.values[-1]
            stacks[tuple(f for f in frames(s) if not re.search(r"\.(lambda|run|enter|exec|call)", f[0]))] += 1
        else:
            assert has(s, "deep") or "sun.nio.ch.Poller.poll" in s.functions, s.functions
    told = re.search(r"virtual threads: read (\d+) times, \d+ waited, (\d+) ", messages)
    print(java.version, layout, told[0], min(sums.values()) / 1e9, max(sums.values()) / 1e9)
    assert len(sums) == 50 and len(stacks) == 1, stacks
    # A look in which the collector moves objects goes on later, with other draws.
    assert int(told[2]) < 0.02 * int(told[1])
    seconds = recorded_seconds(messages)
    assert all(abs(ns / 1e9 / seconds - 1) < 0.2 for ns in sums.values()), sums
    assert abs(sum(sums.values()) / 1e9 / seconds / 50 - 1) < 0.03, sums


# Innermost frames, which the JVM leaves out of dumps.
YIELD = re.compile(r"jdk\.internal\.vm\.Continuation\.yield0?$|java\.lang\.VirtualThread\.yieldContinuation$")


def comparable(stack):
    """A dump names neither file nor line of a native method."""
    return tuple((f, None, 0) if f == "java.lang.Object.wait0" else (f, p, n) for f, p, n in visible(stack) if not YIELD.match(f))


@pytest.mark.parametrize("mode", MODES)
def test_frames_of_the_dump(culprit, java, tmp_path, mode):
    """Frames equal those of `jcmd Thread.dump_to_file`, but for those that the JVM hides."""
    out, functions = tmp_path / "out.pb.gz", [*expected(java), "idleForever"]
    known, ours = defaultdict(set), defaultdict(set)
    with running(java, 1, idle=3, options=MODES[mode]) as program:
        record_known(culprit, out, program, "--off-cpu")
        # Who waits for ever is in each dump; others only if they wait at that moment.
        for _ in range(12):
            theirs = dump(java, program.pid)
            for function in functions:
                known[function].update(comparable(s) for s in theirs.get(f"Waits.{function}", []) if s[0][0] != "Waits.rest")
            time.sleep(0.05)
    for s in virtual(out):
        for function in filter(lambda f: has(s, f), functions):
            if not has(s, "rest"):
                ours[function].add(comparable(frames(s)))
    compared = [f for f in functions if ours[f] & known[f]]
    print(java.version, mode, compared, {f: len(ours[f]) for f in functions})
    assert {"await", "idleForever"} <= set(compared) and len(compared) > len(functions) / 2, (ours, known)
    for function in "await", "idleForever":
        assert ours[function] == known[function], (function, ours[function] ^ known[function])


def test_who_runs_does_not_wait(culprit, java, tmp_path):
    """Among threads that wait for ever, whose time is that of the recording, two spin. The deep stack is cut."""
    out = tmp_path / "out.pb.gz"
    with running(java, 0, idle=5, spinning=1, options=["-Djdk.virtualThreadScheduler.parallelism=4"]) as program:
        record_known(culprit, out, program, "--wall")
    got = list(virtual(out))
    assert not any(has(s, "spin") for s in got), got
    idle = defaultdict(int)
    for s in got:
        if has(s, "idleForever"):
            idle[s.labels["virtual_thread"]] += s.values[-1]
    print(dict(idle))
    assert len(idle) == 5 and all(abs(ns / 1e9 - SECONDS) < 0.3 for ns in idle.values()), idle
    deep = [s for s in got if has(s, "deep")]
    assert deep and all(s.functions[-1].startswith("[truncated: ") for s in deep), deep
    # The time of each thread is that of the recording: no virtual thread's wait is in it.
    threads = defaultdict(int)
    for s in samples(out):
        if "[virtual thread]" not in s.functions:
            threads[s.labels["tid"]] += s.values[-1]
    print(dict(threads))
    assert len(threads) > 2 and all(ns / 1e9 < SECONDS + 0.3 for ns in threads.values()), threads


@pytest.mark.parametrize("idle", [100, 10000])
def test_many_cost_little(culprit, java, tmp_path, idle):
    """Some of very many threads stand for all, and looking stays within a small part of one CPU."""
    out = tmp_path / "out.pb.gz"
    with running(java, 0, idle=idle) as program:
        recorder, messages = start_record(culprit, out, "-p", program.pid, "-d", SECONDS, "--off-cpu")
        before = cpu_seconds_of_all_threads(recorder.pid)
        time.sleep(SECONDS - 1)
        used = (cpu_seconds_of_all_threads(recorder.pid) - before) / (SECONDS - 1)
        assert recorder.wait(120) == 0, messages()
    waiting = sum(s.values[-1] for s in virtual(out) if has(s, "idleForever")) / SECONDS / 1e9
    print(f"{idle} idle virtual threads: {waiting:.1f} found, {100 * used:.2f} % of a CPU")
    print(re.search(r"virtual threads:.*", messages())[0])
    assert abs(waiting - idle) < 0.03 * idle and used < 0.1, (waiting, used)


@pytest.mark.parametrize("options,reason", [
    (["-XX:+UseZGC"], "ZGC moves objects while threads run"),
    (["-XX:+UseShenandoahGC"], "Shenandoah moves objects while threads run"),
    (["-Djdk.trackAllThreads=false"], "but for those of executors"),
])
def test_doctor_says_what_is_missing(culprit, java, options, reason):
    with running(java, 0, idle=2, options=options) as program:
        said = subprocess.run([culprit, "doctor", "-p", str(program.pid)], capture_output=True, text=True, timeout=120).stdout
        assert re.search(f"missing: virtual threads that wait.*{reason}", said), said
