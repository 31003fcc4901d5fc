# SPDX-License-Identifier: Apache-2.0
"""What waits cost: a switch, a walk, a program that waits as fast as it can, and a web server."""

import contextlib
import glob
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

from .bpf import EmptyProgram
from .common import BpfStats, CPUS, CULPRIT, RUNS, TOP, fdinfo, note, programs_of, start_record
from .observers import by_turns, culprit, peer, that_run
from folded import by_comm, parse_folded
from host import Host, wait_for

DEPTHS = 4, 32, 128
MEASURE_S = 3
PIPE_LOOPS = 100000
OTEL = os.environ.get("CULPRIT_BENCH_OTEL") or os.path.expanduser("~/.cache/culprit-peers/otel-profiler/ebpf-profiler")


def runs_by_name(pid):
    """Returns {name of a BPF program of the process: (runs, ns)}."""
    ids = {int(i["prog_id"]) for i in fdinfo(pid) if "prog_id" in i}
    show = json.loads(subprocess.run(["bpftool", "prog", "show", "-j"], capture_output=True, text=True, check=True).stdout)
    return {p["name"]: (p.get("run_cnt", 0), p.get("run_time_ns", 0)) for p in show if p["id"] in ids}


@contextlib.contextmanager
def running(command, **options):
    p = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         start_new_session=True, **options)
    try:
        yield p
    finally:
        os.killpg(p.pid, signal.SIGKILL) # `perf bench` has a child that goes on
        p.wait()


def cost_of(command, *args, beside=contextlib.nullcontext):
    """Records waits for MEASURE_S seconds while the command runs. Returns {BPF program: (runs, ns per run)}, the folded
    stacks, the counters, and what `beside`, a context in the same seconds, has brought."""
    with tempfile.TemporaryDirectory() as d, BpfStats(), running(command) as p:
        os.sched_setscheduler(p.pid, os.SCHED_FIFO, os.sched_param(1)) # also on a busy machine
        time.sleep(0.2)
        r = start_record(f"{d}/o.folded", "-v", "--off-cpu", "-d", 60, *args)
        wait_for(lambda: r.poll() is not None or sum(n for n, _ in runs_by_name(r.pid).values()), "culprit record")
        with beside() as b:
            time.sleep(MEASURE_S)
            runs = runs_by_name(r.pid)
            r.send_signal(signal.SIGINT)
            said = r.communicate()[1]
        stacks = parse_folded(open(f"{d}/o.folded").read())
    counters = {k: int(v) for k, v in re.findall(r"^  (\w+): (\d+) ", said, re.M)}
    return {k: (n, ns / n) for k, (n, ns) in runs.items() if n}, stacks, counters, b


@contextlib.contextmanager
def refused():
    """A recording whose filter lets no thread pass: {"sample": (runs, ns)} of its programs."""
    with tempfile.TemporaryDirectory() as d:
        r, cost = start_record(f"{d}/o.folded", "--off-cpu", "-d", 60, "--comm", "no-such-name"), {}
        try:
            wait_for(lambda: r.poll() is not None or sum(n for n, _ in runs_by_name(r.pid).values()), "culprit record")
            yield cost
            cost.update(runs_by_name(r.pid))
        finally:
            r.send_signal(signal.SIGINT)
            r.communicate()


def per_walk(depth, *args):
    """Returns (ns of a walk, frames, walks), with a budget for each wait. What the program takes at switches without a
    walk is measured by a recording without any, in the same seconds."""
    costs, stacks, counters, none = cost_of([os.path.join(TOP, "build/tests/bench/bench-waits"), depth], *args,
                                            "--comm", "bench-waits", beside=refused)
    runs, ns = costs["sample"]
    runs0, ns0 = none["sample"]
    walks = counters["samples"]
    of = by_comm(stacks).get("bench-waits", [])
    frames = statistics.median(len(s.frames) for s in of for _ in range(min(s.count, 10000))) if of else 0
    return (runs * ns - (runs - walks) * ns0 / runs0) / walks, frames, walks


def empty_ns():
    with BpfStats(), EmptyProgram(997) as p:
        runs, ns = programs_of(p.pid)
        time.sleep(1)
        runs2, ns2 = programs_of(p.pid)
    return (ns2 - ns) / (runs2 - runs)


def switches():
    """Run time of the accounting programs for each switch and each wake-up, and of a walk, by the kernel's statistics."""
    empty = statistics.median(empty_ns() for _ in range(RUNS))
    pipe = ["perf", "bench", "sched", "pipe", "-l", 10 ** 9]
    costs = [cost_of(pipe)[0] for _ in range(RUNS)]
    for program, what in (("on_switch", "a switch"), ("on_waking", "a wake-up")):
        ns = statistics.median(c[program][1] for c in costs)
        note(f"waits: accounting of {what}", ns, "ns", f"gross, {costs[0][program][0]} runs", 500)
        note(f"waits: accounting of {what}, net", ns - empty, "ns")
    for depth in DEPTHS:
        for what, args in (("caches warm", ("--budget", 100)), ("at the default budget", ()),
                           ("caches warm, user stack alone", ("--budget", 100, "--user-only"))):
            got = [per_walk(depth, *args) for _ in range(RUNS)]
            note(f"waits: a walk of {got[0][1]:g} frames, net, {what}", statistics.median(g[0] for g in got), "ns",
                 f"{sum(g[2] for g in got):.0f} walks", 3000 if depth == 32 and not args else None)


# ---- programs with and without ----

def observers():
    """{name: context}. Those that do not run here are left out, with the reason."""
    all_of = {
        "culprit record --off-cpu": lambda: culprit("--off-cpu"),
        "culprit record --wall": lambda: culprit("--wall"),
        "offcputime (libbpf-tools)": lambda: peer("offcputime", "600"),
        "offcputime-bpfcc": lambda: peer("offcputime-bpfcc", "-f", "600", seconds=10),
    }
    return that_run("waits", all_of)


def pipe(*prefix):
    """Round trips per second and per second of CPU time."""
    p = subprocess.Popen([*prefix, "perf", "bench", "-f", "simple", "sched", "pipe", "-l", str(PIPE_LOOPS)],
                         stdout=subprocess.PIPE, text=True)
    seconds = float(p.stdout.read())
    p.stdout.close()
    _, p.returncode, usage = os.wait4(p.pid, 0)
    return {"per second": PIPE_LOOPS / seconds, "per CPU second": PIPE_LOOPS / (usage.ru_utime + usage.ru_stime)}


def cpu_of(comm):
    """CPU seconds of the processes of this name, by the scheduler's clock."""
    total = 0
    for folder in glob.glob("/proc/[0-9]*"):
        with contextlib.suppress(OSError), open(f"{folder}/comm", encoding="utf-8") as f, \
                open(f"{folder}/schedstat", encoding="ascii") as g:
            if f.read().strip() == comm:
                total += int(g.read().split()[0])
    return total / 1e9


def web(port):
    """Requests per second, and per second of the server's CPU time."""
    before = cpu_of("nginx")
    out = subprocess.run(["wrk", "-t1", "-c8", "-d4s", f"http://127.0.0.1:{port}/page.html"], capture_output=True,
                         text=True, check=True).stdout
    n, rate = re.search(r"(\d+) requests in", out), re.search(r"Requests/sec:\s*([\d.]+)", out)
    return {"per second": float(rate.group(1)), "per CPU second": int(n.group(1)) / (cpu_of("nginx") - before)}


# One round trip of known_waits' pipe is two waits. Its threads tell their number and the CPU time that they took. Both run
# on one CPU: between two, what wakes an idle CPU costs more than any observer, and each observer changes how often that is.
GUEST = """
export CULPRIT_ALLOW_ROOT=yes
mount -t debugfs nodev /sys/kernel/debug # where bcc reads which functions have no kprobes
one() { (sleep 1; echo; sleep 12) | taskset 2 known_waits 4 / pipe | awk -v who="$1" '/^p.nger/ { n += $4; ran += $5 } END { printf "%s %d\\n", who, n / ran * 1e9 }'; }
with() { # name, what it prints when it follows the machine ("": it does so within 20 s), command
	name=$1 text=$2
	shift 2
	"$@" >/tmp/$name.log 2>&1 &
	p=$!
	for i in $(seq 240); do
		sleep 1
		kill -0 $p || { echo "$name does not run: $(tail -n 1 /tmp/$name.log)"; return; }
		[ -n "$text" ] && grep -q "$text" /tmp/$name.log && break
		[ -z "$text" ] && [ $i = 20 ] && break
	done
	sleep 5
	one $name
	kill $p # a shell starts what is in the background with SIGINT ignored
	wait $p
}
culprit server --data-dir /tmp/store >/tmp/server.log 2>&1 &
sleep 5
one warm >/dev/null # QEMU has translated the code
for round in $(seq RUNS); do
	one nothing
	with culprit '' culprit record --off-cpu -d 600 -o /tmp/o.folded
	with offcputime '' offcputime 600
	with offcputime-bpfcc 'Tracing off-CPU' python3 -u /usr/sbin/offcputime-bpfcc 600
	with OpenTelemetry 'prctl monitor' ebpf-profiler -collection-agent 127.0.0.1:4317 -disable-tls -off-cpu-threshold 1
	with OpenTelemetry-1% 'prctl monitor' ebpf-profiler -collection-agent 127.0.0.1:4317 -disable-tls -off-cpu-threshold 0.01
done
"""


def emulated():
    """The same in a kernel with kprobes, which OpenTelemetry's profiler needs: Debian's 6.1 in QEMU. An emulated CPU is some
    thirty times slower, and differs in what is expensive, so only the ratios to each other mean something, and these only
    on a machine that does nothing else: the emulated clock goes on while QEMU waits for a CPU."""
    tools = os.path.join(os.path.dirname(CULPRIT), "../tests/tools/known_waits")
    adds = {CULPRIT: "culprit", tools: "known_waits", shutil.which("offcputime"): "offcputime", OTEL: "ebpf-profiler"}
    wrong = [name for path, name in adds.items() if not path or not os.path.exists(path)]
    if wrong:
        raise OSError(f"in QEMU: there is no {', '.join(wrong)}")
    # bcc compiles its programs with clang and the kernel's headers.
    bcc = subprocess.run([os.path.join(TOP, "tools/vm/fetch"), "root", "bookworm", "amd64", "bpfcc-tools",
                          "linux-headers-cloud-amd64"], capture_output=True, text=True, check=True).stdout.strip()
    command = [os.path.join(TOP, "tools/vm/run"), "--kernel", "6.1", "--timeout", "3600", "--memory", "6000", "--tree", bcc]
    for path, name in adds.items():
        command += ["--add", f"{path}:/usr/bin/{name}"]
    out = subprocess.run([*command, "--", GUEST.replace("RUNS", str(RUNS))], capture_output=True, text=True,
                         errors="replace").stdout
    rates = {}
    for line in out.splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isdigit():
            rates.setdefault(words[0], []).append(float(words[1]))
        else:
            print(f"waits: in QEMU: {line}")
    for name, of in rates.items():
        if name != "nothing":
            ratios = [a / b for a, b in zip(of, rates["nothing"])]
            note(f"pipe in QEMU, per CPU second: {name}", statistics.median(ratios), "×",
                 f"{min(ratios):.3f} to {max(ratios):.3f}")


def waits():
    """`perf bench sched pipe`, on one CPU and on all, and nginx under wrk: how many round trips and requests there are while
    each observer follows the whole machine, compared with the same round without. Per second of CPU time the figure is
    that of the program alone, also on a busy machine; per second it has what the observers take from other CPUs, too.
    OpenTelemetry's profiler is one that you have built: CULPRIT_BENCH_OTEL=/path/to/ebpf-profiler."""
    switches()
    works = observers()
    by_turns("sched pipe on one CPU", "/s", works, lambda: pipe("taskset", "-c", str(CPUS - 1)))
    by_turns("sched pipe", "/s", works, pipe)
    host = Host("")
    try:
        port = host.nginx()
        if not port:
            raise OSError(f"not installed: {host.missing}")
        by_turns("nginx under wrk", "/s", works, lambda: web(port))
    finally:
        host.stop()
    emulated()
