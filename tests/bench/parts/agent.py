# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of the always-on agent and of a recording."""

import json
import os
import re
import subprocess
import tempfile
import time

from .common import BpfStats, CPUS, CULPRIT, busy_seconds, cpu_by_thread, fdinfo, note, programs_of, start_record
from host import busy_host
from otlp import Receiver
from truth import PROGRAMS, listed


def steady(p, seconds):
    """Returns {thread of the process, or "BPF": share} and the load of the host, both in % of the host's CPU time."""
    t, cpu, (_, ns), busy = time.monotonic(), cpu_by_thread(p.pid), programs_of(p.pid), busy_seconds()
    time.sleep(seconds)
    t2, cpu2, (_, ns2), busy2 = time.monotonic(), cpu_by_thread(p.pid), programs_of(p.pid), busy_seconds()
    of = 100 / (CPUS * (t2 - t))
    shares = {name: (s - cpu.get(name, 0)) * of for name, s in cpu2.items()}
    return {**shares, "BPF": (ns2 - ns) / 1e9 * of}, (busy2 - busy) * of


def agent():
    """CPU time of `culprit agent`, which names frames and sends profiles by OTLP every 5 s, plus the run time of its BPF
    programs, as a share of the host's CPU time (all CPUs), while the busy host of tests/live/host.py runs: 30 s of
    steady state, after 15 s. Then a complete recording of 15 s, with start-up, symbols and writing. The figures include
    the work for programs that start meanwhile: unwind rows (loader), and learning their runtimes (learner)."""
    for hz in (20, 99):
        with tempfile.TemporaryDirectory() as d, busy_host(PROGRAMS) as host, BpfStats(), Receiver() as r:
            host.load(90)
            time.sleep(1)
            p = subprocess.Popen([CULPRIT, "agent", "--disable-tls", "--export", r.url, "-F", str(hz)],
                                 stderr=subprocess.DEVNULL)
            try:
                time.sleep(15)
                shares, busy = steady(p, 30)
            finally:
                p.terminate()
                p.wait()
            q = start_record(f"{d}/o.html", "-F", hz, "-d", 15)
            _, status, usage = os.wait4(q.pid, 0)
            q.returncode = status
            q.stderr.close()
        how = f"{busy:.0f} % of {CPUS} CPUs busy, load {os.getloadavg()[0]:.1f}"
        note(f"agent at {hz} Hz, busy host, steady state", sum(shares.values()), "%", how,
             *((0.3, 0.1) if hz == 20 else ()))
        for name, share in sorted(shares.items(), key=lambda s: -s[1]):
            if share >= 0.001:
                note(f"agent at {hz} Hz, of which {name}", share, "%")
        note(f"recording of 15 s at {hz} Hz, with symbols", usage.ru_utime + usage.ru_stime, "s CPU")


def memory():
    """RSS (smaps_rollup) and the memory of BPF maps (memlock in fdinfo), with 100 running processes. Pages of maps that
    are mapped into the agent count once, as BPF memory."""
    names = [n for n in listed() if not n.endswith(("-x", "-xs", "-go"))]
    workers = [subprocess.Popen([f"{PROGRAMS}/{names[i % len(names)]}", "100000000"],
                                preexec_fn=lambda: os.nice(5)) for i in range(100)]
    try:
        time.sleep(2)
        with tempfile.TemporaryDirectory() as d:
            p = start_record(f"{d}/o.folded", "-F", 20, "-d", 12)
            time.sleep(10)
            with open(f"/proc/{p.pid}/smaps", encoding="utf-8") as f:
                smaps = f.read()
            rss = mapped = 0
            for part in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", smaps, flags=re.M)[1:]:
                kb = int(re.search(r"^Rss:\s+(\d+)", part, re.M).group(1))
                rss += kb
                mapped += kb if "bpf-map" in part.partition("\n")[0] else 0
            maps = {i["map_id"]: int(i["memlock"]) for i in fdinfo(p.pid) if "map_id" in i}
            held = set(maps)
            show = subprocess.run(["bpftool", "map", "show", "-j"], capture_output=True,
                                  text=True).stdout
            # Chunks of the arena are held by the outer map alone once they are in it.
            for m in json.loads(show or "[]"):
                if m.get("name", "").startswith("culprit_arena") and str(m["id"]) not in held:
                    maps[str(m["id"])] = int(m["bytes_memlock"])
            p.communicate()
        note("memory, 100 processes: RSS without mapped BPF pages", (rss - mapped) / 1024, "MB")
        note("memory, 100 processes: BPF maps", sum(maps.values()) / 1e6, "MB",
             f"{len(maps)} maps")
        note("memory, 100 processes: RSS + BPF",
             (rss - mapped) / 1024 + sum(maps.values()) / 1e6, "MB", "", 60, 30)
    finally:
        for w in workers:
            w.kill()
            w.wait()
