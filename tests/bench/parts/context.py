# SPDX-License-Identifier: Apache-2.0
"""The time that reading the span of a thread adds to a sample."""

import contextlib
import glob
import json
import math
import mmap
import os
import platform
import random
import re
import runpy
import shutil
import signal
import statistics
import struct
import subprocess
import tempfile
import time

from .common import BpfStats, CPUS, CULPRIT, RUNS, TOP, note, programs_of, start_record
from .bpf import BURNER, EmptyProgram, LIBC, burners, rates
from pprof import samples
from truth import PROGRAMS

CONTEXT_PAIRS, CONTEXT_SECONDS = 40, 0.05 # each time, of which there are RUNS
DEMO_PAIRS = 1200, 200 # at each rate: stacks of many kinds differ more
CONTEXT_ONLY = os.environ.get("BENCH_CONTEXT", "") # publishers whose names have it
READS = 10
NONE, OBI = "none", "OBI's map" # publishers: in truth none


class ContextSwitch:
    """The word context_n of a running recorder, which tells BPF whether processes publish spans. While it is 0, BPF reads
    no spans, and nothing else changes."""

    PIDFD_OPEN, PIDFD_GETFD = 434, 438

    def __init__(self, pid):
        shown = {m["id"]: m for m in json.loads(subprocess.run(["bpftool", "-j", "map", "show"], check=True,
                                                               capture_output=True).stdout)}
        self.pidfd = LIBC.syscall(self.PIDFD_OPEN, pid, 0)
        for path in glob.glob(f"/proc/{pid}/fdinfo/*"):
            with open(path, encoding="ascii") as f:
                held = re.search(r"^map_id:\s*(\d+)$", f.read(), re.M)
            m = shown.get(int(held.group(1))) if held else None
            if not m or not m.get("name", "").endswith(".bss"):
                continue
            text = subprocess.run(["bpftool", "btf", "dump", "id", str(m["btf_id"])], check=True,
                                  capture_output=True, text=True).stdout
            at = re.search(r"offset=(\d+) size=4 \(VAR 'context_n'\)", text)
            if at:
                fd = LIBC.syscall(self.PIDFD_GETFD, self.pidfd, int(os.path.basename(path)), 0)
                self.memory, self.at = mmap.mmap(fd, mmap.PAGESIZE), int(at.group(1))
                os.close(fd)
                return
        raise OSError("no context_n in the recorder's maps")

    @property
    def value(self):
        return struct.unpack_from("=I", self.memory, self.at)[0]

    @value.setter
    def value(self, n):
        struct.pack_into("=I", self.memory, self.at, n)


class RunTime:
    """Like programs_of(), but faster, for a process whose programs stay the same."""

    def __init__(self, pid, fds=None):
        self.files = {}
        for path in glob.glob(f"/proc/{pid}/fdinfo/*") if fds is None else [f"/proc/{pid}/fdinfo/{fd}" for fd in fds]:
            with open(path, encoding="ascii") as f:
                of = dict(re.findall(r"^(\S+):\s*(.*)$", f.read(), re.M))
            if "prog_id" in of and "run_cnt" in of:
                self.files[of["prog_id"]] = path

    def read(self):
        runs = ns = 0
        for path in self.files.values():
            with open(path, encoding="ascii") as f:
                text = f.read()
            runs += int(re.search(r"^run_cnt:\s*(\d+)$", text, re.M).group(1))
            ns += int(re.search(r"^run_time_ns:\s*(\d+)$", text, re.M).group(1))
        return runs, ns

    def slice(self):
        """Returns the ns per run in a slice of time, or None if there was no run."""
        runs, ns = self.read()
        time.sleep(CONTEXT_SECONDS)
        runs2, ns2 = self.read()
        return (ns2 - ns) / (runs2 - runs) if runs2 > runs else None


def slice_of_context(run_time, switch, on):
    """Returns the ns per run while spans are read, or not. Repeats if another process has begun or ended publishing."""
    while True:
        switch.value = on
        per = run_time.slice()
        if switch.value == on and per is not None:
            return per


def ns_of_context(pid, pairs=CONTEXT_PAIRS):
    """Returns the time that reading spans adds to a run of the recorder's program, for pairs of time slices: the
    difference between a slice with reading and one without, in random order. Slices are short, so that disturbances by
    other programs and the hypervisor hit few of them and do not change the median."""
    run_time, switch, out = RunTime(pid), ContextSwitch(pid), []
    was = switch.value
    for _ in range(pairs):
        per = {on: slice_of_context(run_time, switch, on) for on in random.sample((0, 1), 2)}
        out.append(per[1] - per[0])
    switch.value = was
    return out


def ns_of_reads(hz):
    """Returns the time that a read of 8 bytes adds to a run, for each slice."""
    out = []
    with EmptyProgram(hz) as empty, EmptyProgram(hz, READS) as reading:
        of = {reads: RunTime(p.pid, p.fds[:1]) for reads, p in ((0, empty), (READS, reading))}
        for _ in range(CONTEXT_PAIRS // 2):
            per = {reads: of[reads].slice() for reads in random.sample((0, READS), 2)}
            if None not in per.values():
                out.append((per[READS] - per[0]) / READS)
    return out


def interval_of_median(values):
    """Returns the 95 % interval of the median, from the binomial distribution of the number of values below it."""
    v, n = sorted(values), len(values)
    k = max(0, int(n / 2 - 0.98 * math.sqrt(n)))
    return v[k], v[n - 1 - k]


@contextlib.contextmanager
def obi_map():
    """Pins a map like that of OpenTelemetry's eBPF instrumentation, unless it exists; a recorder reads it from its start
    on. tell(processes) gives each process a span."""
    path = "/sys/fs/bpf/otel/traces_ctx_v1"

    def tell(processes):
        for p in processes:
            key = (p.pid << 32 | p.pid).to_bytes(8, "little")
            subprocess.run(["bpftool", "map", "update", "pinned", path, "key", *map(str, key), "value",
                            *["7"] * 24], check=True)

    os.makedirs(os.path.dirname(path), mode=0o1700)
    try:
        subprocess.run(["bpftool", "map", "create", path, "type", "lru_hash", "key", "8", "value", "24", "entries",
                        "16384", "name", "traces_ctx_v1"], check=True)
        yield tell
    finally:
        if os.path.exists(path):
            os.unlink(path)
        os.rmdir(os.path.dirname(path))


@contextlib.contextmanager
def recorder_of_spans(hz, *options):
    """Runs a recorder. Yields its pid, and a list that gets (samples with a span, samples) at the end."""
    counts = []
    with tempfile.TemporaryDirectory() as d, BpfStats():
        p = start_record(f"{d}/o.pb.gz", "-F", hz, "-d", 600, *options)
        while not programs_of(p.pid)[0] and p.poll() is None:
            time.sleep(0.05)
        if p.poll() is not None:
            raise OSError(p.communicate()[1].strip())
        yield p.pid, counts
        p.send_signal(signal.SIGINT)
        p.communicate()
        of = [(s.value if "trace_id" in s.labels else 0, s.value) for s in samples(f"{d}/o.pb.gz")]
        counts += map(sum, zip(*of))


def measure_context(command, comm, hz, publishes, tell=lambda processes: None):
    """Returns (time that reading spans adds, time that a read adds), ns."""
    with recorder_of_spans(hz, "--comm", comm) as (pid, counts):
        with burners(command) as running:
            tell(running)
            added, reads = ns_of_context(pid), ns_of_reads(hz)
    linked, total = counts
    assert (linked > 0.2 * total) == publishes, f"{linked} of {total} samples have a span"
    return added, reads


def measure_demo(hz, pairs):
    """Returns (time that reading spans adds to a sample of any process, while the demo's shop is fully loaded; share of
    samples with a span)."""
    demo = runpy.run_path(os.path.join(TOP, "demo/start"))
    with demo["shop"](os.path.join(TOP, "build"), "127.0.0.1:1") as (shop, stock):
        load = [subprocess.Popen([os.path.join(TOP, "demo/load.py"), shop, stock]) for _ in range(2 * CPUS)]
        try:
            with recorder_of_spans(99) as (_, counts):
                time.sleep(10)
            with recorder_of_spans(hz) as (pid, _):
                time.sleep(5) # who publishes is known
                added = ns_of_context(pid, pairs)
        finally:
            demo["end"](load)
    return added, counts[0] / counts[1]


def publishers(folder):
    """Returns {name: (command of a program that publishes spans, its comm)} of the installed programs."""
    def source(name):
        return os.path.join(TOP, name)

    cc = ["gcc", "-O2", "-g", "-D_GNU_SOURCE", "-pthread", "-I", source("context")]
    library = [*cc, "-fPIC", "-shared", *([] if platform.machine() == "aarch64" else ["-mtls-dialect=gnu2"])]
    cache = os.path.expanduser("~/.cache/culprit-runtimes")
    plain = [f"{PROGRAMS}/{BURNER}", "100000000"]

    def preloaded(*defines):
        path = f"{folder}/preload{''.join(defines)}.so"
        subprocess.run([*library, *defines, source("context/context.c"), source("tests/context/preload.c"), "-o", path],
                       check=True)
        return ["env", f"LD_PRELOAD={path}", *plain]

    subprocess.run([*library, source("context/context.c"), "-o", f"{folder}/context.so"], check=True)
    subprocess.run([*cc, "-DLATE", source("tests/context/spans.c"), "-o", f"{folder}/spans"], check=True)
    subprocess.run([*library, source("tests/context/elastic_library.c"), "-o", f"{folder}/elastic.so"], check=True)
    subprocess.run([*cc, source("tests/context/elastic.c"), f"{folder}/elastic.so", "-o", f"{folder}/elastic"],
                   check=True)
    found = {
        "thread context": (preloaded(), BURNER),
        "thread context, an attribute": (preloaded("-DATTRIBUTES=1"), BURNER),
        "thread context, 600 bytes": (preloaded("-DATTRIBUTES=30"), BURNER),
        "thread context, dynamic": (["env", "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=0", f"{folder}/spans",
                                     "100000", "1", "/dev/null", f"{folder}/context.so"], "spans"),
        "Elastic's": (["sh", "-c", f"exec {folder}/elastic {folder}/socket.$$ /dev/null 1 0.002"], "elastic"),
        f"{NONE}, a program of a kind that could": (preloaded("-DNOTHING"), BURNER),
        f"{NONE}, another program": (plain, BURNER),
    }
    if shutil.which("go"):
        subprocess.run(["go", "build", "-o", f"{folder}/golabels", "main.go"], check=True,
                       cwd=source("tests/context/golabels"), env={**os.environ, "GO111MODULE": "off"})
        found["Go's labels"] = ([f"{folder}/golabels", "100000", "1", "/dev/null", "hex"], "golabels")
        found[f"{NONE}, Go"] = ([f"{folder}/golabels", "100000", "1", "/dev/null", "none"], "golabels")
    node = next(iter(sorted(glob.glob(f"{cache}/node-2[46]/bin/node"))), None)
    if node and os.path.exists(f"{cache}/context/node"):
        found["Node.js"] = (["env", f"NODE_PATH={cache}/context/node/node_modules", "DD_TRACE_OTEL_CTX_ENABLED=true",
                             "DD_TRACE_AGENT_URL=http://127.0.0.1:1", "DD_INSTRUMENTATION_TELEMETRY_ENABLED=false",
                             "DD_REMOTE_CONFIGURATION_ENABLED=false", "DD_TRACE_STARTUP_LOGS=false", node,
                             source("tests/context/ddtrace/app.js"), "100000", "4", "/dev/null"], "MainThread")
    if os.path.exists(f"{cache}/context/custom-labels"):
        subprocess.run(["g++", *library[1:], f"{cache}/context/custom-labels/src/customlabels.cpp", "-o",
                        f"{folder}/libcustomlabels.so"], check=True)
        subprocess.run([*cc, source("tests/context/polar.c"), f"{folder}/libcustomlabels.so", "-o",
                        f"{folder}/polar", f"-Wl,-rpath,{folder}"], check=True)
        found["custom labels"] = ([f"{folder}/polar", "100000", "1", "/dev/null"], "polar")
    return found


def measure_publishers(found):
    """Returns {(name, Hz): (time that reading spans adds, time that a read adds, medians of the runs)}. Each is measured
    RUNS times, in random order, so that disturbances hit all of them alike."""
    got = {}
    for what, hz in random.sample([(w, h) for w in found for h in rates()] * RUNS, len(found) * 2 * RUNS):
        command, comm = found[what]
        with obi_map() if what == OBI else contextlib.nullcontext(lambda processes: None) as tell:
            try:
                added, reads = measure_context(command, comm, hz, not what.startswith(NONE), tell)
            except (AssertionError, OSError) as e:
                print(f"{what}: could not be measured: {e}")
                continue
        of = got.setdefault((what, hz), ([], [], []))
        of[0].extend(added)
        of[1].extend(reads)
        of[2].append(statistics.median(added))
    return got


def context():
    """The time that reading the span adds to a sample. The same programs run and are sampled by the same recorder, while
    BPF is told in turns that processes publish spans and that none does. Each CPU runs a program that publishes, at a
    real-time priority and for 95 % of the time. Both rates of rates() are measured: with cold and with warm caches.
    The cost of a read of 8 bytes there limits the possible number of reads. Then the cost for programs that call
    libculprit-context."""
    with tempfile.TemporaryDirectory() as d:
        found = {**publishers(d), OBI: ([f"{PROGRAMS}/{BURNER}", "100000000"], BURNER)}
        got = measure_publishers({w: v for w, v in found.items() if CONTEXT_ONLY in w})
    for (what, hz), (added, reads, medians) in sorted(got.items()):
        low, high = interval_of_median(added)
        note(f"BPF: the span of a sample, {what}, at {hz} Hz", statistics.median(added), "ns",
             f"median of {len(added)} pairs, 95 %: {low:.0f} to {high:.0f}; of each time {min(medians):.0f} to "
             f"{max(medians):.0f}; a read of 8 bytes {statistics.median(reads):.0f}, load {os.getloadavg()[0]:.0f}", 300)
    for hz, pairs in zip(rates(), DEMO_PAIRS):
        added, share = measure_demo(hz, pairs) if "demo".startswith(CONTEXT_ONLY) else ([], 0)
        if added:
            low, high = interval_of_median(added)
            note(f"BPF: the span of a sample of any program, the demo, at {hz} Hz", statistics.median(added), "ns",
                 f"median of {len(added)} pairs, 95 %: {low:.0f} to {high:.0f}; {share:.0%} of the samples have one", 300)
    out = subprocess.run([os.path.join(os.path.dirname(CULPRIT), "../tests/bench/bench-context")], check=True,
                         capture_output=True, text=True).stdout
    for line in out.splitlines():
        what, ns = line.split("\t")
        note(f"libculprit-context: {what}", float(ns), "ns", "CPU time of the thread, median of 31 rounds")
