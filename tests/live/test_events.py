# SPDX-License-Identifier: Apache-2.0
"""Events other than the CPU clock. A sample stands for all events since the previous sample, so in every output the
sums are the kernel's counts, in the event's unit."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from folded import sums_by_function
from otlp import first, message, numbers
from pprof import samples
from recorder import read, record
from test_up import up

HERE = os.path.dirname(os.path.abspath(__file__))
MANY = 100_000


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    path = tmp_path_factory.mktemp("events") / "events"
    subprocess.run(["gcc", "-O1", "-g", "-w", "-o", path, f"{HERE}/events.c"], check=True)
    return path


def record_events(culprit, tmp_path, events, kind, n, *args, ending="folded"):
    """Records the program. Returns the output, the kernel's counts of faults and switches, and the messages."""
    out = tmp_path / f"out.{ending}"
    done = record(culprit, out, *args, "--", events, kind, n)
    counted = list(map(int, done.stdout.split()))
    return out, counted, done.stderr


def by_function(path):
    return sums_by_function(read(path), ("seven", "three"))


def test_each_page_fault(culprit, events, tmp_path):
    out, (faults, _), messages = record_events(culprit, tmp_path, events, "faults", 5000, "-e", "page-faults", "-c", 1)
    sums = by_function(out)
    assert "each is a sample" in messages and "lost 0" in messages
    assert sums == {"seven": 3500, "three": 1500}
    # The kernel may count a few faults outside of the two functions.
    assert sum(sums.values()) <= faults <= sum(sums.values()) + 5


def test_page_faults_weigh_what_they_stand_for(culprit, events, tmp_path):
    out, (faults, _), _ = record_events(culprit, tmp_path, events, "faults", MANY, "-e", "page-faults", "-c", 7)
    sums = by_function(out)
    # A period may begin in one function and end in the other. A CPU that the program leaves keeps a part of a period.
    assert abs(sums["seven"] - MANY * 0.7) <= MANY * 0.01, sums
    assert abs(sums["three"] - MANY * 0.3) <= MANY * 0.01, sums
    assert faults >= MANY


def test_page_faults_by_rate_weigh_what_they_stand_for(culprit, events, tmp_path):
    """The kernel adapts the period, from 1 to thousands. Some hundred samples stand for all faults, except those in
    the unfinished last period of each CPU."""
    out, _, _ = record_events(culprit, tmp_path, events, "faults", MANY, "-e", "page-faults", "-F", 997)
    sums = by_function(out)
    assert MANY * 0.5 <= sum(sums.values()) <= MANY * 1.05, sums
    assert abs(sums["seven"] / sum(sums.values()) - 0.7) <= 0.15, sums


def types_of(path):
    """Returns a pprof file's sample types, period type, period, and the values of each sample."""
    with open(path, "rb") as f:
        m = message(gzip.decompress(f.read()))
    text = [s.decode() for s in m[6]]

    def name(v):
        return text[first(message(v), 1)], text[first(message(v), 2)]

    return [name(v) for v in m[1]], name(m[11][0]), first(m, 12) or 0, [numbers(message(s).get(2)) for s in m[2]]


def test_types_in_pprof(culprit, events, tmp_path):
    out, _, _ = record_events(culprit, tmp_path, events, "faults", 5000, "-e", "page-faults", "-c", 10, ending="pb.gz")
    types, period_type, period, values = types_of(out)
    assert types == [("samples", "count"), ("page_faults", "count")]
    assert (period_type, period) == (("page_faults", "count"), 10)
    assert all(v[1] == 10 * v[0] for v in values)
    assert sum(1 for s in samples(out) if "seven" in s.functions)


def test_the_clock_is_time(culprit, events, tmp_path):
    out = tmp_path / "out.pb.gz"
    record(culprit, out, "-F", 997, "--", "sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
    types, period_type, period, values = types_of(out)
    assert types == [("samples", "count"), ("cpu", "nanoseconds")]
    assert (period_type, period) == (("cpu", "nanoseconds"), 1_000_000_000 // 997)
    assert values and all(v[1] == v[0] * period for v in values)


def test_context_switches(culprit, events, tmp_path):
    out, (_, switches), messages = record_events(culprit, tmp_path, events, "switches", 1000, "-e", "context-switches", "-c", 1)
    sums = by_function(out)
    # The kernel also counts switches of threads whose time slice ends.
    assert sums["seven"] >= 700 and sums["three"] >= 300
    assert "lost 0" in messages
    # Switches before and after the two functions are counted, too.
    assert sum(sums.values()) <= switches <= sum(sums.values()) + 5 + switches // 100
    assert all("schedule" in " ".join(s.kernel) for s in read(out) if "seven" in s.frames)


def tracefs():
    for path in ("/sys/kernel/tracing", "/sys/kernel/debug/tracing"):
        if os.path.isdir(f"{path}/events/syscalls/sys_enter_write"):
            return path
    return None


def test_a_tracepoint(culprit, events, tmp_path):
    if not tracefs():
        pytest.skip("tracefs is not mounted, or the kernel has no tracepoints of system calls")
    out, _, _ = record_events(culprit, tmp_path, events, "writes", 1000, "-e", "syscalls:sys_enter_write", ending="pb.gz")
    types, _, period, values = types_of(out)
    assert types == [("samples", "count"), ("syscalls_sys_enter_write", "count")] and period == 1
    sums = {f: sum(s.value for s in samples(out) if f in s.functions) for f in ("seven", "three")}
    assert sums == {"seven": 700, "three": 300}


def by_label(path, label):
    sums = Counter()
    for s in samples(path):
        sums[s.labels.get(label)] += s.value
    return sums


def test_fields_of_a_tracepoint(culprit, events, tmp_path):
    """Every other write of the program fails. Each sample has the result of its own call."""
    if not tracefs():
        pytest.skip("tracefs is not mounted, or the kernel has no tracepoints of system calls")
    out, _, messages = record_events(culprit, tmp_path, events, "failing", 1000, "-e", "syscalls:sys_exit_write/ret",
                                     ending="pb.gz")
    results = {"seven": Counter(), "three": Counter()}
    for s in samples(out):
        for function in results.keys() & set(s.functions):
            results[function][s.labels["event.ret"]] += s.value
    assert results == {"seven": {"1": 350, "-9": 350}, "three": {"1": 150, "-9": 150}}
    assert "lack attributes" not in messages


def test_texts_among_the_fields(culprit, tmp_path):
    if not tracefs():
        pytest.skip("tracefs is not mounted, or the kernel has no tracepoints of system calls")
    out, path = tmp_path / "out.pb.gz", "/nonexistent/" + "x" * 140
    record(culprit, out, "-e", "syscalls:sys_enter_openat/filename/dfd", "--", "sh", "-c", f"cat /etc/hostname {path}; true")
    opened = by_label(out, "event.filename")
    assert opened["/etc/hostname"] == 1 and opened[path[:127] + "…"] == 1, opened
    assert set(by_label(out, "event.dfd")) == {"-100"}
    out = tmp_path / "exec.pb.gz"
    record(culprit, out, "-e", "sched:sched_process_exec/filename/pid", "--", "sh", "-c", "ls / && ls /tmp")
    assert sum(v for k, v in by_label(out, "event.filename").items() if k.endswith("/ls")) == 2
    assert len(by_label(out, "event.pid")) == 3


def test_more_values_than_are_kept_apart_are_counted(culprit, tmp_path):
    if not tracefs():
        pytest.skip("tracefs is not mounted, or the kernel has no tracepoints of system calls")
    out = tmp_path / "out.pb.gz"
    code = "import os\nfor i in range(300):\n try: os.open('/no/such/%d' % i, 0)\n except OSError: pass"
    done = record(culprit, out, "-e", "syscalls:sys_enter_openat/filename", "--", sys.executable, "-S", "-c", code)
    opened = by_label(out, "event.filename")
    kept = sum(v for k, v in opened.items() if k and k.startswith("/no/such"))
    # A BPF program cannot read a text in a page that the process has not touched yet.
    assert 0 < kept <= 128 and opened[None] >= 300 - kept - opened["[not readable]"], opened
    assert int(done.stderr.split(" lack attributes")[0].split()[-1]) == opened[None]


def test_perf_counts_as_many(culprit, events, tmp_path):
    """perf counts the events of the whole program, from exec to exit, while culprit samples them: neither takes events
    from the other."""
    if not tracefs() or not shutil.which("perf"):
        pytest.skip("no perf, or tracefs is not mounted")
    event = "syscalls:sys_enter_write"
    counted = tmp_path / "counted"
    done = record(culprit, tmp_path / "out.folded", "-e", event, "--", "perf", "stat", "-x", ",", "-o", counted, "-e", event,
                  events, "writes", 1000)
    assert "lost 0" in done.stderr
    sampled = sum(s.count for s in read(tmp_path / "out.folded") if s.comm == "events")
    with open(counted) as f:
        lines = [line for line in f if event in line]
    assert sampled == int(lines[0].split(",")[0]) > 1000


@pytest.mark.parametrize("args, says", [
    (("-e", "sched:sched_process_exec/no_such"), "it has filename, pid, old_pid"),
    (("-e", "sched:sched_process_exec/"), "no field ''"),
    (("-e", "page-faults/address"), "'page-faults' has no fields"),
    (("-e", "page-fault"), "no event 'page-fault'"),
    (("-e", "sched:no_such_thing"), "no tracepoint 'sched:no_such_thing'"),
    (("-e", "../../etc:passwd"), "no event '../../etc:passwd'"),
    (("-e", "cpu-clock", "-c", "5"), "give a rate"),
    (("-e", "cpu-clock,page-faults"), "one event a file"),
    (("-e", ""), "event"),
    (("-c", "0"), "--count"),
])
def test_mistakes_are_told_in_a_line(culprit, tmp_path, args, says):
    if "sched:" in args[1] and not tracefs():
        pytest.skip("tracefs is not mounted")
    done = record(culprit, tmp_path / "out.folded", *args, "-d", 1, check=False)
    assert done.returncode in (1, 2) and says in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_two_events_at_once(culprit, events, place):
    """The store keeps the samples of two events under two types, with separate sums."""
    with up(culprit, place / "store", "-e", "cpu-clock,page-faults", "-F", 97) as u:
        wanted = {"process_cpu:cpu:nanoseconds:cpu:nanoseconds", "page_faults:page_faults:count:page_faults:count"}

        def types():
            return {t["name"] for t in json.loads(u.get("/api/v1/types"))["types"]}

        def seen():
            subprocess.run([events, "faults", str(MANY)], check=True, capture_output=True, timeout=60,
                           env={**os.environ, "OTEL_SERVICE_NAME": "faulty"})
            return wanted <= types()
        assert u.wait_for(seen), types()
        u.end()


def test_every_program_type_is_accepted(culprit_plain):
    """The verifier accepts the walkers in each type of program that a source may have (bpf/test)."""
    if os.geteuid() != 0:
        pytest.skip("not root")
    tool = os.path.join(os.path.dirname(os.path.dirname(culprit_plain)), "tests/tools/verify_bpf")
    done = subprocess.run([tool], capture_output=True, text=True, timeout=300)
    read_by = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert done.returncode == 0, done.stderr[-2000:]
    assert {name.split("/")[0] for name in read_by} >= {"perf", "tracepoint", "raw_tracepoint", "kprobe", "uprobe", "follow"}
    assert max(map(int, read_by.values())) < 600_000, read_by
