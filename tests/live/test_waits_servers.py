# SPDX-License-Identifier: Apache-2.0
"""Why real servers are slow, by their waits: PostgreSQL with a row that all clients change, nginx with a slow upstream."""

import contextlib
from collections import defaultdict

import pytest

from pprof import samples
from recorder import record
from test_waits import before_wakers, wakers
from waiting_servers import WaitingServers

SECONDS = 5


@contextlib.contextmanager
def servers(start):
    s = WaitingServers()
    try:
        start(s)
        if s.missing:
            pytest.skip(f"not installed: {', '.join(s.missing)}: tools/install test")
        s.load(120)
        yield s
    finally:
        s.stop()


def recorded(culprit, folder, *args):
    out = folder / "waits.pb.gz"
    record(culprit, out, "-d", SECONDS, *args)
    return list(samples(out))


def shares(of, key):
    sums = defaultdict(int)
    for s in of:
        sums[key(s)] += s.values[-1]
    return {k: v / sum(sums.values()) for k, v in sorted(sums.items(), key=lambda i: -i[1])}


def test_a_hot_row(culprit, tmp_path):
    """Backends wait in ProcSleep() for the lock of a row, and the one that has it wakes them when it commits."""
    with servers(WaitingServers.hot_row):
        got = recorded(culprit, tmp_path, "--comm", "postgres", "--off-cpu", "--wakers")
    waits = [s for s in got if {"XactLockTableWait", "ProcSleep"} <= set(before_wakers(s.functions))]
    backends = {s.labels["tid"] for s in waits}
    # Three of four wait at each moment, in turns.
    assert len(backends) == 4 and 2 < sum(s.values[-1] for s in waits) / SECONDS / 1e9 < 4
    woken = shares((s for s in waits if s.labels["wait"] != "runnable"), lambda s: next(
        ((who, "ProcLockWakeup" in stack, "CommitTransactionCommand" in stack) for who, stack in wakers(s.functions)), None))
    print(woken)
    assert woken[("postgres", True, True)] > 0.9
    # What the owner did meanwhile: it slept in the transaction.
    assert any("pg_sleep" in before_wakers(s.functions) for s in got if s.labels["tid"] in backends)


def test_a_slow_upstream(culprit, tmp_path):
    """The worker waits in epoll for the upstream's socket; the upstream waits for a timer, in the function of the request."""
    with servers(WaitingServers.slow_upstream) as s:
        got = recorded(culprit, tmp_path, "--comm", "nginx,upstream", "--off-cpu")
    worker = [x for x in got if "ngx_process_events_and_timers" in x.functions and x.labels["wait"] != "runnable"]
    peers = shares(worker, lambda x: (x.labels["wait"], x.labels.get("peer")))
    print(peers, s.ports)
    assert peers[("poll", f"127.0.0.1:{s.ports['upstream']}")] > 0.9
    requests = [x for x in got if "Handler.look_up" in x.functions]
    of = shares(requests, lambda x: x.labels["wait"])
    print(of)
    assert of["sleep"] > 0.5 and of["sleep"] + of["runnable"] > 0.99
    assert sum(x.values[-1] for x in requests) > SECONDS * 1e9 / 2
