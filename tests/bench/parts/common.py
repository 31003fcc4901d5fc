# SPDX-License-Identifier: Apache-2.0
"""Shared by the parts of the benchmark: paths, results, and counters of the kernel."""

import glob
import os
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(TOP, "tests/live"))
CULPRIT = os.environ.get("CULPRIT") or os.path.join(TOP, "build/cli/culprit")
CPUS = os.cpu_count()
TICK = os.sysconf("SC_CLK_TCK")
RUNS = int(os.environ.get("BENCH_RUNS", "3"))
results = []


def note(what, value, unit, how="", must=None, aim=None):
    results.append({"what": what, "value": value, "unit": unit, "how": how, "must": must,
                    "aim": aim})
    print(f"{what:58} {value:>12.6g} {unit}", flush=True)


def cpu_by_thread(pid):
    """Returns {name of a thread: CPU seconds}, by the scheduler's clock, which is finer than ticks."""
    total = {}
    for folder in glob.glob(f"/proc/{pid}/task/*"):
        with open(f"{folder}/comm", encoding="utf-8") as f, open(f"{folder}/schedstat", encoding="ascii") as g:
            name = "reader" if folder.endswith(f"/{pid}") else f.read().strip()
            total[name] = total.get(name, 0) + int(g.read().split()[0]) / 1e9
    return total


def busy_seconds():
    """Returns the CPU time of all CPUs without idle time."""
    with open("/proc/stat", encoding="ascii") as f:
        v = [int(x) for x in f.readline().split()[1:9]]
    return (sum(v) - v[3] - v[4]) / TICK


def fdinfo(pid):
    """Returns the texts of /proc/PID/fdinfo/* as dictionaries."""
    out = []
    for path in glob.glob(f"/proc/{pid}/fdinfo/*"):
        try:
            with open(path, encoding="ascii") as f:
                out.append(dict(re.findall(r"^(\S+):\s*(.*)$", f.read(), re.M)))
        except OSError:
            continue
    return out


def programs_of(pid):
    """Returns (runs, nanoseconds) of the process's BPF programs."""
    seen = {i["prog_id"]: i for i in fdinfo(pid) if "prog_id" in i and "run_cnt" in i}
    return (sum(int(i["run_cnt"]) for i in seen.values()),
            sum(int(i["run_time_ns"]) for i in seen.values()))


class BpfStats:
    """Makes the kernel count the run time of BPF programs."""

    PATH = "/proc/sys/kernel/bpf_stats_enabled"

    def __enter__(self):
        with open(self.PATH, encoding="ascii") as f:
            self.was = f.read()
        self.set("1")

    def __exit__(self, *_):
        self.set(self.was)

    def set(self, value):
        with open(self.PATH, "w", encoding="ascii") as f:
            f.write(value)


def start_record(out, *args):
    return subprocess.Popen([CULPRIT, "record", "--force", "-o", out, *map(str, args)],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
