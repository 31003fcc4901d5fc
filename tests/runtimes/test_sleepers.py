# SPDX-License-Identifier: Apache-2.0
"""Threads that sleep through the whole recording: their own functions and lines are in their stacks, exactly, with all of
their time. BPF reads their memory from another thread's context (bpf/prog/sleeper.bpf.c), so every walker is tested."""

import os
import re
import shutil
import subprocess
import sys
import time

import pytest

import test_php
import test_ruby
from pprof import samples
from recorder import record, walks_sleepers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "waits")
SECONDS = 2

# runtime: (source, {thread: (what it waits for, functions of the source, leaf first)}). A function is marked at its line by
# its name or, where several have that name, by what follows its "@".
EXPECTED = {
    "python": ("sleepers.py", {
        "nap": ("sleep", ["nap_inner", "nap_middle", "<lambda>", "nap_outer"]),
        "lock": ("lock", ["lock_inner", "lock_outer"]),
        "main": ("sleep", ["main_inner", "main_outer", "<module>"])}),
    "node": ("sleepers.js", {
        "nap": ("lock", ["nap_inner", "nap_outer", "(anonymous)@top"]),
        "main": ("lock", ["main_inner", "main_middle", "main_outer", "(anonymous)@event"])}),
    "java": ("Sleepers.java", {
        "nap": ("sleep", ["nap_inner", "nap_outer", "lambda$start$0"]),
        "monitor": ("lock", ["monitor_inner", "monitor_outer", "lambda$start$0"]),
        "lock": ("lock", ["lock_inner", "lock_outer", "lambda$start$0"]),
        "main": ("sleep", ["main_inner", "main_middle", "main_outer", "main"])}),
    "ruby": ("sleepers.rb", {
        "nap": ("lock or poll", ["sleep@nap_inner", "nap_inner", "nap_outer", "block in <main>@nap_block"]),
        "lock": ("lock", ["pop@lock_inner", "lock_inner", "lock_outer", "block in <main>@lock_block"]),
        "main": ("lock or poll", ["sleep@main_inner", "main_inner", "main_outer", "<main>"])}),
    "perl": ("sleepers.pl", {"main": ("sleep", ["main_inner", "main_middle", "main_outer", "(main program)@program"])}),
    "php": ("sleepers.php", {"main": ("sleep", ["main_inner", "main_middle", "main_outer", "{main}"])}),
}


def start(runtime, folder):
    source = os.path.join(HERE, EXPECTED[runtime][0])
    if runtime == "ruby":
        ruby = test_ruby.Ruby("3.1", folder)
        return ruby.start(ruby.inside(shutil.copy(source, ruby.scratch)))
    if runtime == "php":
        php = test_php.Php(os.path.realpath(test_php.find("8.2")), "8.2", "plain")
        shutil.copy(source, f"{php.root}/tmp")
        return php.start("/tmp/sleepers.php")
    tool = {"python": "/usr/bin/python3", "node": "node", "java": "javac", "perl": "perl"}[runtime]
    if not shutil.which(tool):
        pytest.skip(f"no {tool}")
    command = [tool, source]
    if runtime == "java":
        subprocess.run([tool, "-g", "-d", folder, source], check=True, timeout=120)
        command = ["java", "-cp", str(folder), "Sleepers"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def marked_lines(source):
    """Returns {mark: line of the comment "in MARK"}."""
    with open(os.path.join(HERE, source), encoding="utf-8") as f:
        return {mark: n for n, text in enumerate(f, 1) for mark in re.findall(r"(?:#|//|,) in ([^\s,]+)", text)}


def own_frames(sample, source):
    return [(re.split(r"::|#|\.(?!locals)", name)[-1], line) for name, (path, line) in zip(sample.functions, sample.places)
            if os.path.basename(path) == source]


@pytest.fixture(autouse=True)
def needs_kernel(culprit):
    if not walks_sleepers(culprit):
        pytest.skip("this kernel cannot read another thread's memory in BPF: before Linux 6.10")


@pytest.mark.sample("[pj][ya]*")
@pytest.mark.parametrize("runtime", EXPECTED)
def test_asleep_all_through(culprit, tmp_path, runtime):
    source, threads = EXPECTED[runtime]
    out = tmp_path / "sleepers.pb.gz"
    with start(runtime, tmp_path) as p:
        try:
            assert p.stdout.readline() == "ready\n"
            time.sleep(0.5) # until all sleep
            record(culprit, out, "--off-cpu", "-p", p.pid, "-d", SECONDS)
        finally:
            p.kill()
    lines = marked_lines(source)
    got = list(samples(out))
    for s in got:
        print(runtime, s.labels.get("wait"), s.values[-1], own_frames(s, source), file=sys.stderr)
    times = set()
    for thread, (category, chain) in threads.items():
        expected = [(f.partition("@")[0], lines[f.rpartition("@")[2]]) for f in chain]
        waited = [s for s in got if own_frames(s, source) == expected]
        assert waited and {s.labels["wait"] for s in waited} <= set(category.split(" or ")), (thread, expected)
        assert not any("frames not read]" in f or "[truncated" in f for s in waited for f in s.functions), waited
        times.add(sum(s.values[-1] for s in waited))
    # From the begin to the end of the recording, to the nanosecond.
    assert len(times) == 1 and SECONDS <= times.pop() / 1e9 < SECONDS + 1, times


@pytest.mark.sample("*")
@pytest.mark.parametrize("runtime", ["python"])
def test_awake_meanwhile(culprit, tmp_path, runtime):
    """Threads wake and wait elsewhere while they are read. What they waited for, which is known at once, and their functions,
    which are read later, are of the same wait."""
    out = tmp_path / "alternate.pb.gz"
    with subprocess.Popen(["/usr/bin/python3", f"{HERE}/alternate.py"], stdout=subprocess.PIPE, text=True) as p:
        try:
            assert p.stdout.readline() == "ready\n"
            record(culprit, out, "--off-cpu", "-p", p.pid, "-d", 1)
        finally:
            p.kill()
    waits = {wait: [s for s in samples(out) if s.labels["wait"] == wait] for wait in ("pipe", "network")}
    for wait, function, other in (("pipe", "of_pipe", "of_socket"), ("network", "of_socket", "of_pipe")):
        assert sum(function in s.functions for s in waits[wait]) > 5
        assert not [s.functions for s in waits[wait] if other in s.functions]
