# SPDX-License-Identifier: Apache-2.0
"""CPython in other processes than a plain interpreter: loaded late by a native program, in a container, several
interpreters in one process, a thousand processes, native extensions."""

import glob
import json
import os
import re
import select
import signal
import statistics
import subprocess
import time

import pytest

from recorder import record
from test_python import BUILDS, HERE, Python, find, judge_chains, marked_lines, profile, python_part, stacks_of


def shared_python(version, tmp_path):
    """Returns an interpreter with a libpython of its own, that library, and their prefix."""
    for pattern in BUILDS[version]:
        for path in sorted(glob.glob(pattern)):
            prefix = os.path.dirname(os.path.dirname(path))
            for library in glob.glob(f"{prefix}/lib/libpython{version}*.so.1.0"):
                return Python(path, tmp_path), library, prefix
    pytest.skip(f"no CPython {version} with a libpython")


def compile_c(tmp_path, name, *flags):
    out = tmp_path / name
    subprocess.run(["gcc", "-O1", "-g", "-o", out, os.path.join(HERE, f"python/{name}.c"), *flags],
                   check=True)
    return out


@pytest.mark.parametrize("version", ["3.6", "3.9", "3.11", "3.12", "3.13"])
def test_loaded_late(culprit, version, tmp_path):
    """A program loads libpython by dlopen() after three seconds, and starts it six seconds later: a longer time than an
    interpreter needs to start."""
    python, library, prefix = shared_python(version, tmp_path)
    program = compile_c(tmp_path, "late", "-ldl")
    script = python.place("chains.py")
    process = subprocess.Popen([program, library, script], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONHOME": prefix})
    try:
        assert process.stdout.readline() == "ready\n"
        stacks, truncated = profile(culprit, process, tmp_path, 22)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    native = {s: n for s, n in stacks.items() if s[-1].name == "work_natively"}
    assert native and all(f.file is None or not f.file.endswith(".py") for s in native for f in s)
    judge_chains(python, f"{library}, by dlopen", script,
                 {s: n for s, n in stacks.items() if s not in native}, truncated)


@pytest.mark.parametrize("version", ["3.13-musl", "3.14"])
def test_container(culprit, version, tmp_path):
    """The interpreter has a mount namespace and a libc of its own, so its files have no path outside."""
    python = Python(find(version), tmp_path)
    script = python.place("chains.py")
    place = tmp_path / "root"
    place.mkdir()
    inside = python.command[2:]
    python.command = ["unshare", "--mount", "sh", "-c",
                      'mount --bind "$0" "$1" && shift && exec chroot "$@"', python.root, place, place,
                      *inside]
    process = python.start(script)
    try:
        assert not os.listdir(place)
        stacks, truncated = profile(culprit, process, tmp_path)
    finally:
        process.kill()
        process.wait()
    judge_chains(python, f"{python.path}, contained", script, stacks, truncated)


INSIDE = {
    "alpha": ["module", "alpha", "alpha_key", "leaf"],
    "beta": ["module", "beta", "beta_key", "leaf"],
    "alpha_other": ["alpha_other", "alpha_spin"],
    "beta_other": ["beta_other", "beta_spin"],
}
OUTSIDE = {"outside": ["module", "outside", "spin_outside"], "run": ["run"]}


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13",
                                     "3.14", "3.15"])
def test_interpreters(culprit, version, tmp_path):
    """Three interpreters in one process, on five threads. Two threads run one interpreter from within another. No
    stack may mix the frames of interpreters, except where one runs another."""
    python = Python(find(version), tmp_path)
    script, inside = python.place("interpreters.py"), python.place("inside.py")
    process = python.start(script, inside)
    try:
        stacks, truncated = profile(culprit, process, tmp_path, 8)
    finally:
        process.kill()
        process.wait()
    judge_chains(python, f"{python.path}, inside", inside, stacks, truncated, "inside.py", INSIDE)
    judge_chains(python, f"{python.path}, outside", script, stacks, truncated, "interpreters.py",
                 OUTSIDE)
    lines = marked_lines(os.path.join(HERE, "python/interpreters.py"))["run"]
    for stack in stacks:
        names = [f.name for f in python_part(stack, inside)]
        called = [f for f in python_part(stack, script) if f.name == "run"]
        # An inner interpreter's main thread has the frame that runs it below its own; its other threads do not.
        assert len(called) == (names[:1] == ["<module>"]), stack
        for f in called:
            assert f.line in lines and stack.index(f) < stack.index(python_part(stack, inside)[0])


# The time from the start of a process until culprit can read its interpreter's state, for which it looks every 50 ms;
# longer on a busy machine.
START_MS = 60


@pytest.mark.sample("system")
@pytest.mark.parametrize("version", ["system", "3.6", "3.9", "3.11", "3.12", "3.13", "3.14", "3.15"])
def test_start(culprit, version, tmp_path):
    """Records a program that runs for 0.1 s from its start. Little of it is lost, because culprit knows the interpreter
    from another process."""
    python = Python(find(version), tmp_path)
    script = python.place("short.py")
    out = tmp_path / "out.speedscope.json"
    other = python.start("-c", "import time; print('ready', flush=True); time.sleep(1000)")
    try:
        record(culprit, out, "-F", "999", "--", *python.command, script)
    finally:
        other.kill()
        other.wait()
    stacks, lost = stacks_of(json.loads(out.read_text()))
    print(f"{python.path}: of {sum(stacks.values())} samples {lost} without Python frames or truncated")
    judge_chains(python, python.path, script, {s: n for s, n in stacks.items() if python_part(s, script)},
                 0, "short.py", {"main": ["module", "main", "leaf"]})
    assert lost <= START_MS


THOUSAND = {"work": ["module", "group", "child", "work", "key", "leaf"]}


class Recorder:
    """A recording that runs until end(); its messages go to a file."""

    def __init__(self, culprit, out, *args):
        self.out, self.log = out, str(out) + ".log"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([culprit, "record", "-v", "-o", out, *args], stderr=log)

    def lines(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read().splitlines()

    def wait_for_attached(self, n, seconds=60):
        """Waits for n lines about attached processes, including those that are only counted: "(58 more like this)"."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [l for l in self.lines() if " attached in " in l]
            more = [int(m[1]) for m in map(re.compile(r".*\((\d+) more like").match, found) if m]
            if len(found) + sum(more) >= n:
                return
            time.sleep(0.1)
        pytest.fail(f"not all attached: {self.lines()[-5:]}")

    def memory(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) / 1024

    def end(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 0, self.lines()[-20:]
        return self.lines()


def line_of(stream, seconds):
    assert select.select([stream], [], [], seconds)[0], f"nothing said for {seconds} s"
    return stream.readline()


def in_group(leader):
    found = set()
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.getpgid(int(entry)) == leader:
                found.add(int(entry))
        except ProcessLookupError:
            pass
    return found


@pytest.mark.parametrize("version", ["system"])
def test_a_thousand(culprit, version, tmp_path):
    """A thousand processes of one interpreter, ten of them executed and the others forked. culprit learns the binary
    once, and each process that worked has exact chains."""
    python = Python(find(version), tmp_path)
    script = python.place("many.py")
    parent = subprocess.Popen([*python.command, script, "10", "100", "3"], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    recorder = None
    try:
        assert line_of(parent.stdout, 60) == "ready\n"
        pids = in_group(parent.pid)
        assert len(pids) == 1011
        recorder = Recorder(culprit, tmp_path / "out.speedscope.json", "--comm", "many", "--pids",
                            "-F", "499", "-d", "600")
        recorder.wait_for_attached(len(pids))
        before = recorder.memory()
        parent.stdin.write("g")
        parent.stdin.flush()
        assert line_of(parent.stdout, 120) == "done\n"
        after = recorder.memory()
        lines = recorder.end()
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        if recorder:
            recorder.process.kill()
            recorder.process.wait()
    stacks, truncated = stacks_of(json.loads(recorder.out.read_text()))
    names = {f.name for s in stacks for f in s if re.match(r"many-\d+$", f.name)}
    judge_chains(python, "a thousand", script, stacks, truncated, "many.py", THOUSAND)
    learned = [l for l in lines if f"{os.path.realpath(python.path)}: python learned" in l]
    attached = [float(m[1]) for m in map(re.compile(r".*: python attached in ([\d.]+)").match, lines)
                if m]
    print(f"{len(names)} processes seen; attached in {statistics.median(attached):.2f} ms each; "
          f"{before:.0f} MB resident before they worked, {after:.0f} after")
    assert len(learned) == 1
    assert len(names) >= 900


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13",
                                     "3.13t"])
def test_extension(culprit, version, tmp_path):
    """The frames of an extension that calls Python are in their places between the frames of Python."""
    python = Python(find(version), tmp_path)
    include = python.asks("sysconfig.get_path('include')")
    if not os.path.exists(f"{include}/Python.h"):
        pytest.skip(f"no headers of {python.path}")
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", f"-I{include}", "-o",
                    tmp_path / "callback.so", os.path.join(HERE, "python/callback.c")], check=True)
    script = python.place("extension.py")
    process = python.start(script, str(tmp_path))
    try:
        stacks, truncated = profile(culprit, process, tmp_path)
    finally:
        process.kill()
        process.wait()
    judge_chains(python, f"{python.path}, extension", script, stacks, truncated, "extension.py",
                 {"extension": ["module", "main", "outer", "inner", "leaf"]})
    native = ["callback_sort", "qsort", "callback_compare"]
    for stack in stacks:
        names = [next((k for k in native if k in f.name), f.name) for f in stack]
        names = [n for i, n in enumerate(names) if n != names[i - 1] or not i] # qsort and qsort_r
        for caller, called in (("main", "outer"), ("outer", "inner")):
            if called in names:
                between = names[names.index(caller) + 1:names.index(called)]
                assert [n for n in between if n in native] == native, names
