# SPDX-License-Identifier: Apache-2.0
"""What it costs to keep requests: a service of 2,000 short requests a second, of which one in 500 is asked for."""

import os
import time

from .common import BpfStats, CPUS, TOP, cpu_by_thread, note
from .waits import runs_by_name
from test_capture import Keeper, Service, percentile

TOOLS = os.path.join(TOP, "build/tests/tools")
THREADS = 4
EACH_US = 2000 # of a thread: 2,000 requests a second in all
SECONDS = 15
ONE_OF = 500


def serve(service):
    """Returns the requests, and the times that they took in µs."""
    requests = service.serve()
    return requests, [(r.end - r.begin) / 1e3 for r in requests]


def reader_seconds(pid):
    """Returns the CPU time of the thread that reads what is armed; the always-on recording has others."""
    return cpu_by_thread(pid).get("capture", 0)


def capture():
    """A service (tests/tools/traced_requests) with 2,000 requests a second in four threads, each spins 100 µs, sleeps as
    long and spins again. First nothing is armed, then all samples are taken at 1 kHz and all waits from 50 µs on have
    stacks, while one request in 500 is asked for. BPF: the mean of a run of each program (kernel.bpf_stats_enabled)."""
    keeper = Keeper(TOOLS)
    try:
        with BpfStats():
            service = Service(TOOLS, THREADS, SECONDS * 1000000 // EACH_US, EACH_US, 100)
            before = runs_by_name(keeper.p.pid)
            _, idle = serve(service)
            service.end()
            service = Service(TOOLS, THREADS, SECONDS * 1000000 // EACH_US, EACH_US, 100)
            keeper.arm("bench", 1000, 50, "both")
            before, cpu, begin = runs_by_name(keeper.p.pid), reader_seconds(keeper.p.pid), time.monotonic()
            requests, armed = serve(service)
            after, took = runs_by_name(keeper.p.pid), time.monotonic() - begin
            reading = reader_seconds(keeper.p.pid) - cpu
            asked = requests[::ONE_OF]
            outcomes = keeper.keep("bench", asked)
            tasks, _ = keeper.report()
            service.end()
    finally:
        keeper.end()
    how = f"{len(requests) / took:.0f} requests/s, load {os.getloadavg()[0]:.1f}, {CPUS} CPUs"
    for name in ("on_switch", "on_waking", "sample"):
        runs, ns = (a - b for a, b in zip(after.get(name, (0, 0)), before.get(name, (0, 0))))
        if runs:
            note(f"requests: BPF, {name} of all recordings", ns / runs, "ns", how)
    bpf = sum(ns for _, ns in after.values()) - sum(ns for _, ns in before.values())
    note("requests: BPF, with the always-on recording", bpf / 1e7 / took, "% of a CPU")
    note("requests: user space, the thread that reads", reading * 100 / took, "% of a CPU")
    note("requests: kept of those asked for", sum(o == "kept" for o, _ in outcomes.values()) * 100 / len(asked), "%")
    note("requests: lost samples and intervals", int(tasks["bench"][5]), "events")
    note("requests: p50 latency, nothing armed", percentile(idle, 50), "us")
    note("requests: p50 latency, armed", percentile(armed, 50), "us")
    note("requests: p99 latency, nothing armed", percentile(idle, 99), "us")
    note("requests: p99 latency, armed", percentile(armed, 99), "us")
    note("requests: p99 latency, ratio", percentile(armed, 99) / percentile(idle, 99), "x", how, None, 1.05)
