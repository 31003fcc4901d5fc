# SPDX-License-Identifier: Apache-2.0
"""The same recording by culprit and by perf."""

import os
import statistics
import subprocess
import tempfile
import time

from .common import CULPRIT, RUNS, note
from folded import parse_folded, parse_perf_script
from host import busy_host
from recorder import Completeness
from truth import PROGRAMS


def perf_text(path):
    return subprocess.run(["perf", "script", "-i", path, "-F", "comm,ip,sym,dso", "--no-inline",
                           "--max-stack", "1024"], capture_output=True, text=True,
                          errors="replace").stdout


def usage_of(command, **options):
    """Returns (CPU seconds of the command and of the children that it waited for, exit status)."""
    p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = status
    return usage.ru_utime + usage.ru_stime


def peers():
    """Each profiler in turn records the busy host, RUNS times: 10 s at 99 Hz, the whole machine. CPU is the time of the
    profiler's own process; for perf with that of `perf script`, because culprit's figure includes unwinding and names.
    Neither includes the cost in interrupts, which part bpf measures. Complete are user stacks that reach the thread's
    entry; those of Go, musl and all other programs count alike."""
    seconds = "10"
    figures = {}
    with busy_host(PROGRAMS) as host, tempfile.TemporaryDirectory() as d:
        host.load(RUNS * 90 + 60)
        time.sleep(2)
        for _ in range(RUNS):
            for name, command in (
                    ("culprit", [CULPRIT, "record", "-q", "--force", "-F", "99", "-d", seconds, "-o",
                                 f"{d}/o.folded"]),
                    ("culprit pprof", [CULPRIT, "record", "-q", "--force", "-F", "99", "-d", seconds, "-o",
                                       f"{d}/o.pb.gz"]),
                    ("perf -g", ["perf", "record", "-q", "-F", "99", "-e", "cpu-clock", "-a",
                                 "-g", "-o", f"{d}/fp", "sleep", seconds]),
                    ("perf dwarf", ["perf", "record", "-q", "-F", "99", "-e", "cpu-clock", "-a",
                                    "--call-graph", "dwarf", "-o", f"{d}/dw", "sleep",
                                    seconds])):
                f = figures.setdefault(name, {"cpu": [], "bytes": [], "script": [],
                                              "complete": []})
                f["cpu"].append(usage_of(command))
                path = command[command.index("-o") + 1]
                f["bytes"].append(os.path.getsize(path))
                if name == "culprit":
                    stacks = parse_folded(open(path).read())
                elif name == "culprit pprof":
                    continue
                else:
                    start = os.times()
                    stacks = parse_perf_script(perf_text(path))
                    end = os.times()
                    f["script"].append(end.children_user - start.children_user +
                                       end.children_system - start.children_system)
                own = [s for s in stacks if s.comm not in ("perf", "culprit", "swapper", ":-1")]
                f["complete"].append(Completeness(own))
    median = {n: {k: statistics.median(v) for k, v in f.items() if v and k != "complete"}
              for n, f in figures.items()}
    for name, m in median.items():
        note(f"{name}: CPU of the recorder, {seconds} s busy host at 99 Hz", m["cpu"], "s")
        if "script" in m:
            note(f"{name}: CPU until the stacks can be read (perf script)",
                 m["cpu"] + m["script"], "s")
        note(f"{name}: bytes written", m["bytes"], "B")
        shares = [100 * c.share for c in figures[name]["complete"]]
        if shares:
            note(f"{name}: user stacks down to the thread's entry", statistics.median(shares),
                 "%", f"{figures[name]['complete'][0].user} user stacks in a run")
    ours = median["culprit"]
    for name in ("perf -g", "perf dwarf"):
        m = median[name]
        note(f"ratio {name} / culprit: CPU until the stacks can be read",
             (m["cpu"] + m.get("script", 0)) / ours["cpu"], "×")
        note(f"ratio {name} / culprit: bytes (culprit: pprof)",
             m["bytes"] / median["culprit pprof"]["bytes"], "×")
