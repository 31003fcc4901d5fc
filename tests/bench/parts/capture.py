# SPDX-License-Identifier: Apache-2.0
"""What it costs to keep requests: a service of 2,000 short requests a second, of which one in 500 is asked for."""

import collections
import json
import os
import statistics
import subprocess
import time

from .bpf import EmptyProgram
from .common import BpfStats, CPUS, RUNS, TICK, TOP, cpu_by_thread, fdinfo, note, programs_of
from test_capture import Keeper, Service, percentile

TOOLS = os.path.join(TOP, "build/tests/tools")
THREADS = 4
EACH_US = 2000 # of a thread: 2,000 requests a second in all
SECONDS = int(os.environ.get("BENCH_CAPTURE_S", "15"))
ONE_OF = 500
A_SECOND = 2000 / ONE_OF

Run = collections.namedtuple("Run", "requests took p50 p99 programs reading steal")


def programs(pid):
    """Returns {id of a BPF program of the process: (name, runs, ns)}."""
    ids = {int(i["prog_id"]) for i in fdinfo(pid) if "prog_id" in i}
    show = json.loads(subprocess.run(["bpftool", "prog", "show", "-j"], capture_output=True, text=True, check=True).stdout)
    return {p["id"]: (p["name"], p.get("run_cnt", 0), p.get("run_time_ns", 0)) for p in show if p["id"] in ids}


def steal_seconds():
    with open("/proc/stat", encoding="ascii") as f:
        return int(f.readline().split()[8]) / TICK


def capture_seconds(pid):
    """Returns the CPU time of capture's thread and of those that it has started, which have ended; the other threads are
    those of the always-on recording, which follows the whole machine."""
    others = sum(s for name, s in cpu_by_thread(pid).items() if name != "capture")
    return time.clock_gettime(~pid << 3 | 2) - others # CPUCLOCK_SCHED of the process


def serve(keeper, others):
    """Serves requests for SECONDS; `others` are programs of BPF that do not count."""
    service = Service(TOOLS, THREADS, SECONDS * 1000000 // EACH_US, EACH_US, 100)
    for tid in os.listdir(f"/proc/{service.pid}/task"):
        os.sched_setscheduler(int(tid), os.SCHED_FIFO, os.sched_param(1)) # also on a busy machine
    try:
        if others is not None:
            keeper.arm("bench", 1000, 1000, "both")
        before, cpu = programs(keeper.p.pid), cpu_by_thread(keeper.p.pid).get("capture", 0)
        begin, steal = time.monotonic(), steal_seconds()
        requests = service.serve()
        took, steal = time.monotonic() - begin, steal_seconds() - steal
        cpu = cpu_by_thread(keeper.p.pid).get("capture", 0) - cpu
        ran = {i: (name, n - before.get(i, (0, 0, 0))[1], ns - before.get(i, (0, 0, 0))[2])
               for i, (name, n, ns) in programs(keeper.p.pid).items() if i not in (others or {})}
    finally:
        service.end()
    latencies = [(r.end - r.begin) / 1e3 for r in requests]
    return Run(requests, took, percentile(latencies, 50), percentile(latencies, 99), ran, cpu, steal / took)


def unarmed():
    keeper = Keeper(TOOLS)
    try:
        return serve(keeper, None)
    finally:
        keeper.end()


def keep_slowly(keeper, requests):
    """Asks for them as a server does, every two seconds for those of two seconds, and returns the outcomes."""
    outcomes, each = {}, int(2 * A_SECOND)
    for i in range(0, len(requests), each):
        begin = time.monotonic()
        outcomes |= keeper.keep("bench", requests[i:i + each])
        time.sleep(max(begin + 2 - time.monotonic(), 0))
    return [outcomes.get(r.trace, ("nothing",))[0] for r in requests]


def armed():
    """Returns the run, the outcomes of what is asked for, lost events, and the CPU time of keeping a request, in ms."""
    keeper = Keeper(TOOLS)
    try:
        run = serve(keeper, programs(keeper.p.pid))
        asked = run.requests[::ONE_OF]
        # The first ones find out the names of functions, once.
        half = len(asked) // 2
        outcomes = keep_slowly(keeper, asked[:half])
        cpu, begin = capture_seconds(keeper.p.pid), time.monotonic()
        outcomes += keep_slowly(keeper, asked[half:])
        cpu, took = capture_seconds(keeper.p.pid) - cpu, time.monotonic() - begin
        # The recordings go on meanwhile, and are subtracted.
        idle = capture_seconds(keeper.p.pid)
        time.sleep(took)
        idle = capture_seconds(keeper.p.pid) - idle
        tasks, _ = keeper.report()
    finally:
        keeper.end()
    return run, outcomes, int(tasks["bench"][5]), (cpu - idle) * 1000 / (len(asked) - half)


def empty_ns():
    """Returns what an empty program takes by the same statistics, as often as a CPU switches threads here."""
    with EmptyProgram(4000) as p:
        runs, ns = programs_of(p.pid)
        time.sleep(1)
        runs2, ns2 = programs_of(p.pid)
    return (ns2 - ns) / (runs2 - runs)


def percent_of(run, empty):
    """Returns the part of a CPU that BPF takes, and that the reading thread takes, in %. An empty program would take
    `empty` ns in each run, which is the measurement itself."""
    return sum(ns - n * empty for _, n, ns in run.programs.values()) / 1e7 / run.took, run.reading * 100 / run.took


def note_programs(run, empty):
    for name, runs, ns in sorted(run.programs.values()):
        if runs > len(run.requests) / 10:
            note(f"requests: BPF, {name}, net", ns / runs - empty, "ns")
            note(f"requests: BPF, {name}, runs for a request", runs / len(run.requests), "")


def capture():
    """A service (tests/tools/traced_requests) with 2,000 requests a second in four threads, each spins 100 µs, sleeps as
    long and spins again, once with no task and once while all samples are taken at 1 kHz and waits have stacks from 1 ms
    on, shorter ones in proportion; in pairs whose order alternates, BENCH_RUNS of them. The service has a real-time priority, so that other load
    delays its requests as little as may be. Then one request in 500 is asked for. BPF: the run time of
    the programs that are there for the task (kernel.bpf_stats_enabled). User space: the thread that reads them, and what
    keeping takes, four requests a second. Medians, in % of one CPU."""
    pairs, outcomes, lost, keeping = [], [], [], []
    with BpfStats():
        empty = empty_ns()
        for i in range(RUNS):
            idle = unarmed() if i % 2 == 0 else None
            run, kept, n, ms = armed()
            pairs.append((idle or unarmed(), run))
            outcomes += kept
            lost.append(n)
            keeping.append(ms)
    runs = [run for _, run in pairs]
    how = (f"{statistics.median(len(r.requests) / r.took for r in runs):.0f} requests/s, load {os.getloadavg()[0]:.1f}, {CPUS} CPUs, "
           f"steal {100 * statistics.median(r.steal for p in pairs for r in p):.1f} %")
    print(how)
    note_programs(runs[-1], empty)
    bpf, reading = (statistics.median(x) for x in zip(*(percent_of(r, empty) for r in runs)))
    kept = statistics.median(keeping)
    each = statistics.median(r.reading * 1e6 / len(r.requests) for r in runs)
    note("requests: BPF, an empty program", empty, "ns")
    note("requests: BPF, net", bpf, "% of a CPU", how)
    note("requests: user space, the thread that reads", reading, "% of a CPU", how)
    note("requests: the same, for each request", each, "us")
    note("requests: user space, to keep one", kept, "ms")
    note("requests: all together, four kept a second", bpf + reading + kept * A_SECOND / 10, "% of a CPU", how, None, 1)
    note("requests: kept of those asked for", outcomes.count("kept") * 100 / len(outcomes), "%", "", 100)
    note("requests: lost samples and intervals", max(lost), "events")
    for p in ("p50", "p99"):
        for what, side in (("nothing armed", 0), ("armed", 1)):
            note(f"requests: {p} latency, {what}", statistics.median(getattr(pair[side], p) for pair in pairs), "us")
        note(f"requests: {p} latency, ratio", statistics.median(getattr(b, p) / getattr(a, p) for a, b in pairs), "x", how,
             None, 1.05 if p == "p99" else None)
