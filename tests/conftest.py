# SPDX-License-Identifier: Apache-2.0
"""A deadline for every test of pytest, with its fixtures: a test that hangs fails, and those after it run.

Every process below pytest is killed at the deadline, because a test may wait for one of them without a limit also while
it fails: `with subprocess.Popen(…)` does.
"""

import os
import signal

import pytest

DEADLINE_S = 300
SLOW_DEADLINE_S = 3600
AGAIN_S = 30


class Overdue(Exception):
    pass


def processes_below(pid):
    """The pids of the processes below `pid`."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as f:
                children.setdefault(int(f.read().rpartition(")")[2].split()[1]), []).append(int(name))
        except OSError:
            continue
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    limit = SLOW_DEADLINE_S if item.get_closest_marker("slow") else DEADLINE_S

    def ring(_signal, _frame):
        for pid in processes_below(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        raise Overdue(f"the test was not over after {limit} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
