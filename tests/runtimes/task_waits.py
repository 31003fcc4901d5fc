# SPDX-License-Identifier: Apache-2.0
"""For tests of programs whose tasks wait, as long as their own clocks say: go/waits/main.go, hotspot/Waits.java."""

import contextlib
import math
import re
import time
from collections import defaultdict

from pprof import samples
from recorder import start_record

SECONDS = 10
COPIES = 8
HZ = 20 # each process is looked at so often
SIGMAS = 4
# So many copies are worth one in which all are independent: they are woken by the same timers and fall in step. 76 measured
# deviations were 2.0 times as large as those of independent copies.
IN_STEP = 4
CYCLE = 0.06 # seconds of a sleep and the rest after it


class Program:
    """A process that has said "ready", with pipes as its standard input and output."""

    def __init__(self, process):
        self.process = process
        self.pid = process.pid

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
        for pipe in self.process.stdin, self.process.stdout, self.process.stderr:
            if pipe:
                pipe.close()


@contextlib.contextmanager
def closing(program):
    try:
        yield program
    finally:
        program.close()


def tasks(path, kind):
    """The samples of tasks: their stacks without the note, leaf first."""
    note = f"[{kind}]"
    for s in samples(path):
        if note in s.functions:
            assert s.functions[-1] == note and s.labels.get("tid", 0) == 0, s
            yield s._replace(functions=s.functions[:-1], places=s.places[:-1])


def record_known(culprit, out, program, *options):
    """Records for SECONDS, with a budget that has room for all tasks. {function: (its share of the time by its clocks, waits)}, messages"""
    recorder, messages = start_record(culprit, out, "-p", program.pid, "-d", SECONDS, "--budget", 100, *options)
    begin, before = program.clocks()
    time.sleep(SECONDS)
    end, after = program.clocks()
    assert recorder.wait(120) == 0, messages()
    return {name: ((after[name][1] - before[name][1]) / (end - begin), after[name][0] - before[name][0])
            for name in after}, messages()


def stood_still(shares):
    """On an overloaded machine all tasks stand still at the same time, in whatever they do."""
    return shares["sleep"][1] <= 0.85 * COPIES * SECONDS / CYCLE


def marked_lines(source):
    """{function: the line in which it waits}"""
    with open(source, encoding="utf-8") as f:
        return {m[1]: i for i, line in enumerate(f, 1) if (m := re.search("// waits: (.*)", line))}


def recorded_seconds(messages):
    return float(re.search(r"processes in ([\d.]+) s", messages)[1])


def check_time(shares, sums, seconds):
    """What is found of each function is what its clocks say. In each of HZ * SECONDS looks each copy waits with
    the probability p: the sum has a standard deviation of sqrt(p (1 - p) / looks) or less, as a look stands for its own
    period. The clocks also count the time from when a task could run until it runs."""
    errors = []
    for function in shares:
        share, found = shares[function][0] / COPIES, sums[function] / seconds / 1e9 / COPIES
        p = min(share, 1)
        tolerance = SIGMAS * math.sqrt(p * (1 - p) * IN_STEP / (HZ * SECONDS * COPIES)) + 0.01
        print(f"{function}: {found:.4f} found, {share:.4f} by the clocks, tolerance {tolerance:.4f}, {shares[function][1]} waits")
        errors.append((found - share, tolerance))
    assert all(abs(e) < tolerance for e, tolerance in errors), errors
    # Functions wait independently of each other: a bias of all would show.
    mean = sum(e for e, _ in errors) / len(errors)
    assert abs(mean) < sum(t for _, t in errors) / len(errors) / math.sqrt(len(errors)), errors
