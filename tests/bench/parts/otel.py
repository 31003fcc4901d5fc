# SPDX-License-Identifier: Apache-2.0
"""The same processes, profiled by culprit and by OpenTelemetry's eBPF profiler in turns."""

import contextlib
import glob
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, namedtuple

from .common import BpfStats, CPUS, CULPRIT, RUNS, TOP, fdinfo, note
from .grpc_sink import Frame, Sink
from .runtimes import runtime_programs
from truth import PROGRAMS, entry_point, entry_ranges, is_entry, plain, symbols, twin

HZ = int(os.environ.get("BENCH_HZ", "97"))
PEER = os.environ.get("CULPRIT_BENCH_OTEL") or os.path.expanduser("~/.cache/culprit-peers/otel-profiler/ebpf-profiler")
HERE = os.path.join(TOP, "tests/bench")
RUNTIMES = os.path.join(TOP, "tests/runtimes")
CACHE = os.path.expanduser("~/.cache/culprit-runtimes")
PERIOD_S = int(os.environ.get("BENCH_PERIOD", "2")) # of the reports of both
SETTLE_S, STEADY_S, BPF_S, PATIENCE_S = 1, PERIOD_S, 1.5, 40
PERF_EVENT = "7" # BPF_PROG_TYPE_PERF_EVENT

# command: what runs; root: where its files are; the stack has `deep` frames of the function `level` above `leaf`
Program = namedtuple("Program", "command root level deep leaf")
Result = namedtuple("Result", "ns complete right kept attach start steady faults")


# ---- programs ----

def inside(root, *files):
    """Copies files into /tmp of a root."""
    os.makedirs(f"{root}/tmp", exist_ok=True)
    for f in files:
        shutil.copy(f, f"{root}/tmp")


def in_root(root, *command):
    """A command whose process becomes the program by exec, with /proc."""
    os.makedirs(f"{root}/proc", exist_ok=True)
    return ["unshare", "--mount", "sh", "-ec", f"mount -t proc proc {root}/proc; exec chroot {root} \"$@\"", "sh", *command]


def got(*command):
    """Runs a script that gets a runtime; tells whether it is here."""
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def ruby():
    root = f"{CACHE}/ruby-3.1"
    if got(f"{RUNTIMES}/ruby/get", "3.1"):
        inside(root, f"{HERE}/frames.rb")
        return Program(in_root(root, "/usr/bin/ruby3.1", "/tmp/frames.rb", "24"), root, "level", 22, "leaf")
    return None


def go(folder):
    if not shutil.which("go"):
        return None
    subprocess.run(["go", "build", "-o", f"{folder}/frames-go", f"{HERE}/frames.go"], check=True,
                   env={**os.environ, "GO111MODULE": "off"})
    return Program([f"{folder}/frames-go", "30"], "", "level", 28, "leaf")


def php():
    root = f"{CACHE}/php-debian-8.2"
    if got(f"{RUNTIMES}/php/get", "debian", "8.2"):
        inside(root, f"{HERE}/frames.php")
        return Program(in_root(root, "/usr/bin/php8.2", "/tmp/frames.php", "24"), root, "level", 22, "leaf")
    return None


def perl():
    path = os.path.realpath("/usr/bin/perl")
    return Program([path, f"{HERE}/frames.pl", "24"], "", "level", 22, "leaf") if os.path.exists(path) else None


def beam(folder):
    if not shutil.which("erlc"):
        return None
    subprocess.run(["erlc", "-o", folder, f"{HERE}/frames.erl"], check=True)
    return Program(["erl", "-noshell", "-pa", folder, "-run", "frames", "start", "24"], "", "level", 22, "leaf")


def dotnet(folder):
    path = f"{CACHE}/dotnet-9.0.7/azmcp"
    if not shutil.which("mcs") or not got(f"{RUNTIMES}/dotnet/get", "9.0.7"):
        return None
    subprocess.run(["mcs", "-optimize+", f"-out:{folder}/Frames.dll", f"{HERE}/Frames.cs"], check=True)
    return Program(["env", f"DOTNET_STARTUP_HOOKS={folder}/Frames.dll", "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1", "FRAMES=24",
                    path, "--version"], "", "level", 22, "leaf")


def programs(folder):
    """{runtime: Program} of what is here; says what is not."""
    def known(name):
        command = runtime_programs(folder).get(name, [None])[0]
        return command and Program(command, "", "level", int(command[-1]) - 2, "leaf")
    makers = {"native": lambda: Program([f"{PROGRAMS}/frames32-x", "100000000"], "", "down", 27, "spin"),
              "go": lambda: go(folder), "python": lambda: known("python"), "v8": lambda: known("v8"),
              "hotspot": lambda: known("hotspot"), "ruby": ruby, "php": php, "perl": perl, "beam": lambda: beam(folder),
              "dotnet": lambda: dotnet(folder)}
    chosen = os.environ.get("BENCH_RUNTIMES", "").split()
    found = {name: make() for name, make in makers.items() if not chosen or name in chosen}
    for name, program in found.items():
        if not program:
            print(f"{name}: cannot be had here, not compared")
    return {name: program for name, program in found.items() if program}


# ---- what a stack must be ----

def short(name):
    """The last part of a function's name in the notation of any runtime."""
    words = re.findall(r"\w+", re.split(r"[(/ ]", re.sub(r"^[\w.\[\]]+ (?=\S+\()", "", name))[0])
    return words[-1] if words else name


class Judge:
    """Knows the files that the processes have mapped, by name, to find the function at an address by itself: the peer sends
    no names of native functions, its backend has these."""

    def __init__(self, program, processes):
        self.program, self.files = program, {}
        for p in processes:
            with open(f"/proc/{p.pid}/maps", encoding="utf-8") as f:
                for path in re.findall(r" (/\S+)$", f.read(), re.M):
                    # Paths of a process in a root of its own start at that root.
                    path = path if path.startswith(program.root + "/") else program.root + path
                    self.files[os.path.basename(path)] = path
        self.known = {}

    def name(self, frame):
        if frame.name or not frame.file:
            return frame.name or ""
        path = self.files.get(os.path.basename(frame.file), "")
        if path.startswith(PROGRAMS):
            for start, end, name in symbols(twin(path)):
                if start <= frame.address < end:
                    return plain(name)
        return ""

    def is_root(self, frame):
        """A stack is complete if its outermost frame is a place that nothing calls: the program's entry point, the start
        of a thread, or code whose caller is undefined by its unwind information."""
        if frame.name and (is_entry(frame.name) or frame.name.startswith("erlang:apply/")): # what spawn() begins with
            return True
        path = self.files.get(os.path.basename(frame.file))
        if not path or not os.path.isfile(path):
            return False
        entry = entry_point(path)
        return entry <= frame.address < entry + 64 or any(a <= frame.address < b for a, b in entry_ranges(path))

    def __call__(self, frames):
        """(complete, right, what is wrong)"""
        if frames not in self.known:
            p = self.program
            own = [n for n in (short(self.name(f)) for f in frames) if n in (p.level, p.leaf)]
            want = [p.leaf] + [p.level] * p.deep
            if not frames or not self.is_root(frames[-1]):
                f = frames[-1] if frames else Frame("no frames", "", 0, "")
                self.known[frames] = False, False, f"ends at {f.name or f'{f.file}+{f.address:#x}'} {f.kind}"
            else:
                wrong = f"{own.count(p.leaf)} {p.leaf}, {own.count(p.level)} {p.level} below {short(self.name(frames[0]))}"
                self.known[frames] = True, own == want, wrong if own != want else None
        return self.known[frames]


# ---- one run ----

def profiler(name, port):
    """The command, at the highest priority: other load shall not decide."""
    address, first_of_all = f"127.0.0.1:{port}", ["nice", "-n", "-20"]
    if name == "culprit":
        return [*first_of_all, CULPRIT, "agent", "--collection-agent", address, "--disable-tls", "--no-off-cpu", "--no-tasks",
                "--no-remote-settings", "-F", str(HZ), "--period", str(PERIOD_S)]
    return [*first_of_all, PEER, "-collection-agent", address, "-disable-tls", "-samples-per-second", str(HZ),
            "-reporter-interval", f"{PERIOD_S}s", "-send-error-frames"]


def cpu_of_tree(pid):
    """CPU seconds of a process and its children, by the scheduler's clock."""
    total = 0
    for task in glob.glob(f"/proc/{pid}/task/*"):
        with contextlib.suppress(OSError), open(f"{task}/schedstat", encoding="ascii") as f, \
                open(f"{task}/children", encoding="ascii") as g:
            total += int(f.read().split()[0]) / 1e9
            total += sum(cpu_of_tree(c) for c in g.read().split())
    return total


def sampling_programs(pid):
    """(runs, ns) of the process's programs at events of perf. The kernel counts a program that another one calls by a tail
    call in the time of the first one, and not as a run."""
    seen = {i["prog_id"]: i for i in fdinfo(pid) if i.get("prog_type") == PERF_EVENT and "run_cnt" in i}
    return sum(int(i["run_cnt"]) for i in seen.values()), sum(int(i["run_time_ns"]) for i in seen.values())


@contextlib.contextmanager
def running(command, **options):
    with tempfile.TemporaryFile() as said, \
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, **options) as p:
        try:
            yield p
            if p.poll() is not None:
                said.seek(0)
                raise OSError(f"{command[0]} ended: {said.read().decode(errors='replace')[-300:]}")
        finally:
            p.terminate()
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()


@contextlib.contextmanager
def realtime(processes):
    """Gives the processes 95 % of the CPUs, so that nearly all samples are theirs."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    try:
        for p in processes:
            for tid in os.listdir(f"/proc/{p.pid}/task"):
                os.sched_setscheduler(int(tid), os.SCHED_FIFO, os.sched_param(1))
        time.sleep(0.3)
        yield
    finally:
        for p in processes:
            for tid in os.listdir(f"/proc/{p.pid}/task"):
                os.sched_setscheduler(int(tid), os.SCHED_OTHER, os.sched_param(0))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def measure(name, program):
    with contextlib.ExitStack() as on:
        processes = [on.enter_context(running(program.command)) for _ in range(CPUS)]
        time.sleep(2) # hot code is compiled
        judge, pids = Judge(program, processes), {p.pid for p in processes}
        sink = on.enter_context(Sink())
        started = time.time_ns()
        p = on.enter_context(running(profiler(name, sink.port)))
        end = time.monotonic() + PATIENCE_S
        while not sink.samples(pids) and time.monotonic() < end and p.poll() is None:
            time.sleep(0.1)
        time.sleep(SETTLE_S)
        start, settled = cpu_of_tree(p.pid), time.time_ns()
        time.sleep(STEADY_S)
        steady = cpu_of_tree(p.pid) - start
        with BpfStats(), realtime(processes):
            runs, ns = sampling_programs(p.pid)
            from_ns = time.time_ns()
            time.sleep(BPF_S)
            to_ns = time.time_ns()
            runs2, ns2 = sampling_programs(p.pid)
        time.sleep(PERIOD_S * 1.25 + 0.3) # the last report: the peer varies its interval by a fifth
        samples = sink.samples(pids)
    if runs2 == runs or sink.errors:
        raise OSError(f"{name}: no runs were counted {sink.errors}")
    judged = [(t, *judge(tuple(s.frames))) for s in samples for t in s.times]
    late = [j for j in judged if j[0] >= settled]
    if not late:
        raise OSError(f"{name}: no samples of the program")
    whole = [j[0] for j in judged if j[1]]
    faults = Counter(j[3] for j in late if j[3])
    within = sum(from_ns <= j[0] < to_ns for j in judged)
    return Result((ns2 - ns) / (runs2 - runs), sum(j[1] for j in late) / len(late), sum(j[2] for j in late) / len(late),
                  within / (runs2 - runs), (min(whole) - started) / 1e9 if whole else float("inf"), start,
                  steady / STEADY_S, faults)


# ---- the part ----

FIGURES = (("ns", "BPF time of a sample", "ns", 1), ("complete", "complete stacks", "%", 100),
           ("right", "complete stacks with the right chain", "%", 100), ("kept", "samples that arrive", "%", 100),
           ("attach", "from the start to the first complete sample", "s", 1),
           ("start", f"CPU time of user space until it samples, and {SETTLE_S} s", "s", 1),
           ("steady", "CPU time of user space, steady state", "% CPU", 100))


def otel():
    """CPUS processes of each runtime spin below some thirty frames. culprit's agent and the peer start in turns, RUNS rounds,
    sample the whole machine at BENCH_HZ (97), and send OTLP to a receiver of this benchmark. BPF time: the kernel's
    statistics over 1.5 s in which the processes have 95 % of the CPUs, tail calls included, and the cost of the measurement
    too. A stack is complete if its outermost frame is the entry of the program or of a thread, by its ELF file. The chain is
    right if the program's own functions are all there, in order, and no other. Samples that arrive: those of the processes,
    of all runs in these 1.5 s. The times of the first samples are those that the profilers send."""
    if not os.path.exists(PEER):
        print(f"otel: left out: no OpenTelemetry ebpf-profiler as {PEER}; set CULPRIT_BENCH_OTEL to a build of it")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("otel: ended")) # not without ending what it started
    with tempfile.TemporaryDirectory() as folder:
        table = []
        for runtime, program in programs(folder).items():
            of = {"culprit": [], "peer": []}
            for _ in range(RUNS):
                for name, results in of.items():
                    try:
                        results.append(measure(name, program))
                    except (OSError, AssertionError) as e:
                        print(f"{runtime}: {name}: {e}", flush=True)
            table.append(compare(runtime, of))
    print(f"\n{'culprit / peer':14}" + "".join(f" {f[0]:>20}" for f in FIGURES))
    for runtime, row in table:
        print(f"{runtime:14}" + "".join(f" {c:>20}" for c in row))


def compare(runtime, of):
    """Notes the medians; returns the row of the table: both, and the ratio of the peer's to ours."""
    row = []
    for field, what, unit, scale in FIGURES:
        values = {}
        for name, results in of.items():
            if results:
                values[name] = scale * statistics.median(getattr(r, field) for r in results)
                note(f"{runtime}: {what}, {name}", values[name], unit, f"median of {len(results)}")
        ours, theirs = values.get("culprit"), values.get("peer")
        text = " / ".join("-" if v is None else f"{v:.4g}" for v in (ours, theirs))
        if ours and theirs:
            note(f"{runtime}: {what}, peer / culprit", theirs / ours, "×")
            text += f" ={theirs / ours:.2f}"
        row.append(text)
    for name, results in of.items():
        for fault, n in sum((r.faults for r in results), Counter()).most_common(3):
            print(f"    {name}: {n} stacks: {fault}")
    return runtime, row
