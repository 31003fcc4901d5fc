# SPDX-License-Identifier: Apache-2.0
"""What an always-on agent costs on hosts of several kinds: culprit and OpenTelemetry's eBPF profiler in turns."""

import contextlib
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections import namedtuple

from .common import BpfStats, CULPRIT, RUNS, fdinfo, note
from .grpc_sink import Sink
from .otel import PEER, cpu_of_tree, running, sampling_programs
from .runtimes import runtime_programs
from host import c_source, free_port
from truth import PROGRAMS

HZ = 20
PERIOD_S = 5 # of the reports of both
SETTLE_S, SECONDS = int(os.environ.get("BENCH_SETTLE", "15")), int(os.environ.get("BENCH_SECONDS", "30"))
Result = namedtuple("Result", "cpu bpf sample samples wakes rss pss maps owners")


# ---- hosts ----

def start(on, command, n=1, **options):
    """Starts n processes, which end with `on`."""
    for _ in range(n):
        p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        on.callback(p.wait)
        on.callback(p.kill)


def idle(on, folder):
    """Nothing runs but the machine itself."""
    del on, folder


def mixed(on, folder):
    """A program in C, and one of each runtime, share the CPUs."""
    start(on, [f"{PROGRAMS}/frames32-x", "100000000"], preexec_fn=lambda: os.nice(5))
    for command, _ in runtime_programs(folder).values():
        start(on, command, preexec_fn=lambda: os.nice(5))


def execs(on, folder):
    """A compiler, python3 and ls, each started again and again."""
    with open(f"{folder}/some.c", "w", encoding="ascii") as f:
        f.write(c_source(60))
    script = f"while :; do gcc -O1 -w -c {folder}/some.c -o {folder}/some.o; python3 -c 'import json'; ls / >/dev/null; done"
    # The shell's children end with it: it is the group's leader.
    p = subprocess.Popen(["nice", "-n", "5", "sh", "-c", script], start_new_session=True, stdout=subprocess.DEVNULL)
    on.callback(p.wait)
    on.callback(os.killpg, p.pid, 9)


def processes(on, folder):
    """1,000 processes, each of which wakes every second."""
    del folder
    start(on, ["/usr/bin/perl", "-e", "while (1) { sleep 1 }"], 1000)


def jvms(on, folder):
    """Four JVMs that are busy in turns, with 30 frames of Java."""
    command = runtime_programs(folder).get("hotspot")
    if not command:
        raise OSError("no JVM here")
    start(on, command[0], 4, preexec_fn=lambda: os.nice(5))


HOSTS = {f.__name__: f for f in (idle, mixed, execs, processes, jvms)}


# ---- one run ----

def profiler(name, port, metrics):
    address, first_of_all = f"127.0.0.1:{port}", ["nice", "-n", "-20"]
    if name == "culprit":
        return [*first_of_all, CULPRIT, "agent", "--collection-agent", address, "--disable-tls", "--no-off-cpu", "--no-tasks",
                "--no-remote-settings", "-F", str(HZ), "--period", str(PERIOD_S), "--metrics", f"127.0.0.1:{metrics}"]
    return [*first_of_all, PEER, "-collection-agent", address, "-disable-tls", "-samples-per-second", str(HZ),
            "-reporter-interval", f"{PERIOD_S}s"]


def tree(pid):
    """The process and its descendants."""
    found = [pid]
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/children", encoding="ascii") as f:
                found += [p for c in f.read().split() for p in tree(int(c))]
    return found


def wakes(pid):
    """How often threads of the process and its descendants have slept and run again."""
    total = 0
    for p in tree(pid):
        with contextlib.suppress(OSError):
            for tid in os.listdir(f"/proc/{p}/task"):
                with open(f"/proc/{p}/task/{tid}/status", encoding="ascii", errors="replace") as f:
                    total += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", f.read(), re.M)[1])
    return total


def resident(pid):
    """(RSS, PSS) of the process and its descendants in MB, without pages of BPF maps, which count as these."""
    rss = pss = 0
    for p in tree(pid):
        with contextlib.suppress(OSError), open(f"/proc/{p}/smaps", encoding="utf-8", errors="replace") as f:
            for part in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", f.read(), flags=re.M)[1:]:
                if "bpf-map" not in part.partition("\n")[0]:
                    rss += int(re.search(r"^Rss:\s+(\d+)", part, re.M)[1])
                    pss += int(re.search(r"^Pss:\s+(\d+)", part, re.M)[1])
    return rss / 1024, pss / 1024


def map_bytes(pid):
    """Memory of the process's BPF maps, also of those that only another map of it holds."""
    maps = {i["map_id"]: int(i["memlock"]) for p in tree(pid) for i in fdinfo(p) if "map_id" in i}
    inner = {"culprit_arena"} # chunks of the arena
    shown = subprocess.run(["bpftool", "map", "show", "-j"], capture_output=True, text=True, check=False).stdout
    for m in json.loads(shown or "[]"):
        if str(m["id"]) not in maps and any(m.get("name", "").startswith(n) for n in inner):
            maps[str(m["id"])] = int(m["bytes_memlock"])
    return sum(maps.values())


def owners(port):
    """{owner: MB} of what culprit says that it holds."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as r:
        found = re.findall(r'^culprit_agent_memory_owned_bytes{owner="([^"]*)"} (\S+)', r.read().decode(), re.M)
    return {name: float(value) / 1e6 for name, value in found}


def measure(name):
    with contextlib.ExitStack() as on:
        sink, port = on.enter_context(Sink()), free_port()
        on.enter_context(BpfStats())
        p = on.enter_context(running(profiler(name, sink.port, port)))
        time.sleep(SETTLE_S)
        begin, cpu, (runs, ns), woken = time.monotonic(), cpu_of_tree(p.pid), sampling_programs(p.pid), wakes(p.pid)
        time.sleep(SECONDS)
        took = time.monotonic() - begin
        cpu2, (runs2, ns2), woken2 = cpu_of_tree(p.pid), sampling_programs(p.pid), wakes(p.pid)
        rss, pss = resident(p.pid)
        result = Result(100 * (cpu2 - cpu) / took, 100 * (ns2 - ns) / 1e9 / took, (ns2 - ns) / max(runs2 - runs, 1) / 1e3,
                        (runs2 - runs) / took, (woken2 - woken) / took, rss, pss, map_bytes(p.pid) / 1e6,
                        owners(port) if name == "culprit" else {})
        if not sink.bodies or sink.errors:
            raise OSError(f"{name}: nothing arrived {sink.errors}")
    return result


# ---- the part ----

FIGURES = (("cpu", "CPU time of user space", "% CPU"), ("bpf", "run time of BPF programs", "% CPU"),
           ("sample", "BPF time of a run, gross", "us"), ("samples", "runs of the program", "/s"),
           ("wakes", "wake-ups of its threads", "/s"), ("rss", "RSS without BPF maps", "MB"),
           ("pss", "PSS without BPF maps", "MB"), ("maps", "BPF maps", "MB"))


def interval(values):
    """The median's confidence interval: the extremes, which hold it with 1 - 2 ** (1 - n)."""
    return f"{min(values):.3g}..{max(values):.3g}, {100 * (1 - 2.0 ** (1 - len(values))):.0f} %" if len(values) > 1 else "one run"


def compare(host, of):
    for field, what, unit in FIGURES:
        found = {}
        for name, results in of.items():
            values = [getattr(r, field) for r in results]
            if values:
                found[name] = statistics.median(values)
                note(f"{host}: {what}, {name}", found[name], unit, interval(values))
        if len(found) == 2 and found["peer"]:
            note(f"{host}: {what}, culprit / peer", found["culprit"] / found["peer"], "x")
    for owner in sorted({o for r in of["culprit"] for o in r.owners}):
        note(f"{host}: culprit's memory of {owner}", statistics.median(r.owners.get(owner, 0) for r in of["culprit"]), "MB")


def agents():
    """culprit's agent and the peer sample the whole machine in turns, RUNS rounds, at 20 Hz, with a report every 5 s to one
    receiver; their figures are those of BENCH_SECONDS (30) after BENCH_SETTLE (15). BENCH_HOSTS chooses hosts. CPU time is
    that of all threads and child processes; BPF's is the kernel's statistics, with the cost of measuring."""
    chosen = os.environ.get("BENCH_HOSTS", "").split() or list(HOSTS)
    peer = os.path.exists(PEER) and os.environ.get("BENCH_PEER", "1") != "0"
    if not peer:
        print(f"agents: without a peer: no OpenTelemetry ebpf-profiler as {PEER} (CULPRIT_BENCH_OTEL), or BENCH_PEER=0")
    for host in chosen:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as on:
            try:
                HOSTS[host](on, folder)
            except OSError as e:
                print(f"agents: {host}: left out: {e}")
                continue
            time.sleep(3)
            of = {"culprit": [], "peer": []}
            for _ in range(RUNS):
                for name in list(of)[:1 + peer]:
                    try:
                        of[name].append(measure(name))
                    except (OSError, AssertionError) as e:
                        print(f"{host}: {name}: {e}", flush=True)
            compare(host, of)
