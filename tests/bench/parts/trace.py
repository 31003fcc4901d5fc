# SPDX-License-Identifier: Apache-2.0
"""Tracing: what those that are traced pay, with culprit, strace, perf trace and bpftrace by turns in one run."""

import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

from .common import CULPRIT, RUNS, TOP, note

CALLS = os.path.join(TOP, "build/tests/bench/bench-calls")
LOOPS = 200000
# Fewer for those under which a call takes so much longer.
LOOPS_OF = {name: LOOPS // 20 for name in ("strace -f -c", "strace -f", "perf trace -s")}
PYTHON = ("/usr/bin/python3", "-m", "http.server", "--help") # no blank in a word: bpftrace splits a command at blanks
FIND = ("find", "/usr/include", "-newer", "/proc/1")
BPFTRACE = ("tracepoint:raw_syscalls:sys_enter /@of[pid]/ { @begin[tid] = nsecs; } "
            "tracepoint:raw_syscalls:sys_exit /@begin[tid]/ { @calls[args->id] = count(); "
            "@ns[args->id] = sum(nsecs - @begin[tid]); delete(@begin[tid]); } "
            "BEGIN { @of[cpid] = 1; } tracepoint:sched:sched_process_fork /@of[args->parent_pid]/ "
            "{ @of[args->child_pid] = 1; } END { clear(@begin); clear(@of); }")


def quoted(command):
    return " ".join(command)


def tracers(out):
    """{name: what makes the command line of a command under it}. `out` is a file for what it says."""
    return {
        "nothing": list,
        "culprit --summary": lambda c: [CULPRIT, "trace", "--syscalls", "--summary", "-o", out, "--", *c],
        "culprit, lines to a file": lambda c: [CULPRIT, "trace", "--syscalls", "-o", out, "--", *c],
        "strace -f -c": lambda c: ["strace", "-f", "-c", "-o", out, *c],
        "strace -f": lambda c: ["strace", "-f", "-o", out, *c],
        "perf trace -s": lambda c: ["perf", "trace", "-s", "-o", out, *c],
        "bpftrace": lambda c: ["bpftrace", "-q", "-o", out, "-e", BPFTRACE, "-c", quoted([shutil.which(c[0]), *c[1:]])],
    }


def run(command):
    """Returns the nanoseconds that bench-calls says."""
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", timeout=600,
                          check=False)
    found = re.search(r"^bench-calls: ([\d.]+)$", done.stderr, re.M)
    if not found:
        lines = done.stderr.strip().splitlines()
        raise OSError(lines[-1] if lines else f"it ended with {done.returncode}")
    return float(found.group(1))


def works(all_of, command):
    """Those that run here."""
    good = {}
    for name, wrap in all_of.items():
        try:
            run(wrap(command))
            good[name] = wrap
        except (OSError, subprocess.SubprocessError) as e:
            print(f"trace: {name} does not run here: {e}")
    return good


def count_of(name, out, call, number):
    """How often a tracer has counted a call; None: its output does not say."""
    with open(out, encoding="utf-8", errors="replace") as f:
        text = f.read()
    if name == "culprit --summary":
        found = re.search(rf"^ *[\d.]+ +[\d.]+ +(\d+) .* {call}$", text, re.M)
    elif name == "strace -f -c":
        found = re.search(rf"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) .*\b{call}$", text, re.M)
    elif name == "perf trace -s":
        found = re.search(rf"^ +{call} +(\d+) ", text, re.M)
    elif name == "bpftrace":
        found = re.search(rf"^@calls\[{number}\]: (\d+)$", text, re.M)
    else:
        return len(re.findall(rf"\b{call}\(", text)) if name != "nothing" else None
    return int(found.group(1)) if found else 0


def by_turns(what, wraps, command_of, check=None):
    """Rounds in which each tracer has its turn. Returns {tracer: median of ns}."""
    ns = {name: [] for name in wraps}
    for _ in range(RUNS):
        for name, wrap in wraps.items():
            ns[name].append(run(wrap(command_of(name))))
            if check:
                check(name)
    bare = statistics.median(ns["nothing"])
    for name, of in ns.items():
        ratios = [a / b for a, b in zip(of, ns["nothing"])]
        note(f"{what}: {name}", statistics.median(ratios), "×", f"{min(ratios):.2f} to {max(ratios):.2f}")
    return {name: statistics.median(of) - (bare if name != "nothing" else 0) for name, of in ns.items()}


def system_calls(out):
    wraps = works(tracers(out), [CALLS, "100"])
    wrong = set()

    def check(name):
        n, got = LOOPS_OF.get(name, LOOPS), count_of(name, out, "getppid", 110 if os.uname().machine == "x86_64" else 173)
        if got is not None and got != n:
            wrong.add(name)
            print(f"trace: {name} has {got} of {n} getppid()")

    more = by_turns("loop of system calls", wraps, lambda name: [CALLS, str(LOOPS_OF.get(name, LOOPS))], check)
    for name, ns in more.items():
        note(f"a system call: {name}", ns, "ns", "that it takes longer" if name != "nothing" else "untraced")
    for name in wraps:
        if name != "nothing":
            note(f"counts are exact: {name}", int(name not in wrong), "", "1: yes")
    if "strace -f -c" in more:
        note("culprit --summary / strace -f -c", more["culprit --summary"] / more["strace -f -c"], "",
             "of what a call takes longer", aim=0.05)
    for what, command in (("find", FIND), ("python3 that imports", PYTHON)):
        by_turns(what, wraps, lambda _, c=command: [CALLS, "3", *c])


# ---- the language ----

SCRIPTS = {
    "count by key": "@[comm] = count();",
    "histogram": "@ = hist(args->id);",
    "kernel stack": "@[kstack] = count();",
    "stack of the process": "@[ustack] = count();",
}


def scripts(out):
    """What an event costs the program, with the same action in both."""
    wraps = {
        "culprit": lambda s: lambda c: [CULPRIT, "trace", "-q", "-o", out, "-e", s, "-c", quoted(c)],
        "bpftrace": lambda s: lambda c: ["bpftrace", "-q", "-o", out, "-e", s, "-c", quoted(c)],
    }
    for what, action in SCRIPTS.items():
        script = f'tracepoint:raw_syscalls:sys_enter /comm == "bench-calls"/ {{ {action} }}'
        of = works({"nothing": list, **{name: wrap(script) for name, wrap in wraps.items()}}, [CALLS, "100"])
        ns = {name: [] for name in of}
        for _ in range(RUNS):
            for name, wrap in of.items():
                ns[name].append(run(wrap([CALLS, str(LOOPS)])))
        for name in of:
            if name != "nothing":
                more = [a - b for a, b in zip(ns[name], ns["nothing"])]
                note(f"an event, {what}: {name}", statistics.median(more), "ns", f"{min(more):.0f} to {max(more):.0f}")


def first_event(command):
    """Seconds from the start of a tracer to its first line."""
    begin = time.monotonic()
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        line = p.stdout.readline()
        seconds = time.monotonic() - begin
    finally:
        p.kill()
        p.communicate()
    if not line:
        raise OSError("it prints nothing")
    return seconds


def starts():
    script = 'tracepoint:raw_syscalls:sys_enter { printf("%s\\n", comm); exit(); }'
    stacks = "tracepoint:raw_syscalls:sys_enter { print(kstack); exit(); }"
    commands = {
        "culprit trace": [CULPRIT, "trace", "-q", "-e", script],
        "culprit trace, kstack": [CULPRIT, "trace", "-q", "-e", stacks],
        "culprit trace --syscalls": [CULPRIT, "trace", "--syscalls"],
        "bpftrace": ["bpftrace", "-q", "-e", script],
        "bpftrace, kstack": ["bpftrace", "-q", "-e", stacks],
    }
    for name, command in commands.items():
        try:
            times = [first_event(command) for _ in range(RUNS)]
            note(f"start to first event: {name}", statistics.median(times) * 1000, "ms", aim=200)
        except OSError as e:
            print(f"trace: {name} does not run here: {e}")


def trace():
    """A program that only makes system calls, find, and a Python program, traced by each in turns: how many times as long
    they take, what a call takes longer, and whether the counts are exact. Then an event of the tracing language with
    the same action, and the time from the start to the first event."""
    with tempfile.TemporaryDirectory() as d:
        system_calls(f"{d}/out")
        scripts(f"{d}/out")
    starts()
