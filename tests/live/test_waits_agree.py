# SPDX-License-Identifier: Apache-2.0
"""Waits as bpftrace and `perf sched` see them in the same run: three observers of the same switches."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import defaultdict, namedtuple

import pytest
from test_events import tracefs
from test_waits import FUNCTIONS, SECONDS, Recorded, file # noqa: F401

# unseen: what may be missing in the sums, because the observer missed a switch
Times = namedtuple("Times", "blocked runnable running unseen")

# One observer's programs run before the other's, on a busy machine with cold caches: measured are 0.1 to 0.5 µs a switch of
# threads that switch 100 times a second, and 0.03 to 0.06 µs of the pipe's.
TOLERANCE = 0.01
EDGE_NS = 100e3
PERF_CUTS_NS = 1000 # of each time, at most: it prints whole microseconds

# Blocked is the time from the switch to the wake-up, runnable from there, or from a switch in the state "running", to
# the next switch. A wait that has begun before bpftrace, or has not ended, is in no sum.
ACCOUNTING = """
tracepoint:sched:sched_switch {
	$now = nsecs;
	$out = args->prev_pid;
	$in = args->next_pid;
	if (@in[$out]) {
		@ran[$out] += $now - @in[$out];
	}
	delete(@in[$out]);
	delete(@woken[$out]);
	@out[$out] = $now;
	@blocks[$out] = args->prev_state & 0xff;
	if (@woken[$in]) {
		@queued[$in] += $now - @woken[$in];
	} else if (@out[$in]) {
		@queued[$in] += $now - @out[$in];
	}
	@in[$in] = $now;
}
tracepoint:sched:sched_waking /!@in[args->pid] && !@woken[args->pid] && (@blocks[args->pid] || !@out[args->pid])/ {
	$now = nsecs;
	@woken[args->pid] = $now;
	if (@out[args->pid]) {
		@blocked[args->pid] += $now - @out[args->pid];
	} else {
		@first[args->pid] = $now;
	}
}
END { clear(@in); clear(@woken); clear(@blocks); }
"""


@pytest.fixture(autouse=True, scope="module")
def tools():
    for tool in ("bpftrace", "perf"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed: tools/install test")
    if not tracefs():
        subprocess.run(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"], check=True)


@contextlib.contextmanager
def bpftrace(folder, _):
    out, errors = folder / "bpftrace.json", folder / "bpftrace.errors"
    with open(out, "wb") as o, open(errors, "wb") as e:
        p = subprocess.Popen(["bpftrace", "-f", "json", "-e", ACCOUNTING], stdout=o, stderr=e,
                             env={**os.environ, "BPFTRACE_MAP_KEYS_MAX": "65536"})
    try:
        end = time.monotonic() + 60
        while "attached_probes" not in out.read_text():
            assert p.poll() is None and time.monotonic() < end, errors.read_text()
            time.sleep(0.05)
        time.sleep(0.5) # it says so before it attaches
        yield
        p.send_signal(signal.SIGINT)
        assert p.wait(60) == 0, errors.read_text()
    finally:
        p.kill()
        p.wait()


def times_of_bpftrace(folder):
    maps = {}
    for line in (folder / "bpftrace.json").read_text().splitlines():
        if line.startswith('{"type": "map"'):
            maps.update(json.loads(line)["data"])
    blocked, queued, ran, first, last = (defaultdict(int, {int(k): v for k, v in maps.get(name, {}).items()})
                                         for name in ("@blocked", "@queued", "@ran", "@first", "@out"))
    return {t: Times(blocked[t], queued[t], ran[t], last[t] - first[t] - blocked[t] - queued[t] - ran[t]) for t in first}


@contextlib.contextmanager
def perf_sched(folder, pid):
    """As `perf sched record`, without what it does not need here: it cannot write all events of a busy machine. It needs
    all switches, also those of others, because a run begins at the switch before on its CPU."""
    wakes = " || ".join(f"pid == {t}" for t in os.listdir(f"/proc/{pid}/task"))
    (orders, order), (answer, answers) = os.pipe(), os.pipe()
    p = subprocess.Popen(["perf", "record", "-a", "-m", "32M", "-r", "1", "-c", "1", "-o", str(folder / "perf.data"),
                          f"--control=fd:{orders},{answers}", "-e", "sched:sched_switch", "-e", "sched:sched_waking",
                          "--filter", wakes], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                         pass_fds=(orders, answers))
    os.close(orders)
    os.close(answers)
    try:
        os.write(order, b"ping\n") # it answers when it records
        assert os.read(answer, 5) == b"ack\n\0", p.communicate()[1]
        yield
        p.send_signal(signal.SIGINT)
        errors = p.communicate(timeout=60)[1]
        assert "lost" not in errors.lower(), errors
    finally:
        os.close(order)
        os.close(answer)
        p.kill()
        p.communicate()


def doubtful_times_of_perf(data):
    """{thread: ns in which timehist may be wrong about it}. On some virtual machines perf has some or none of the switches
    from one CPU's idle task (bpftrace has them). timehist then counts the time until the next switch that it has as
    running, silently. Where the thread that a CPU leaves is not the one that it went to, both are in doubt from the last
    time that they were seen to leave a CPU until the next."""
    out = subprocess.run(["perf", "script", "-i", data, "--ns", "-F", "cpu,time,event,trace"], capture_output=True,
                         text=True, errors="replace", check=True).stdout
    last, left, since, doubtful = {}, {}, {}, defaultdict(float)
    switches = missing = begin = 0
    for cpu, s, before, after in re.findall(r"\[(\d+)\] +([\d.]+): .*sched_switch: .*prev_pid=(\d+) .*next_pid=(\d+)", out):
        now = float(s) * 1e9
        switches += 1
        begin = begin or now
        if last.get(cpu, before) != before:
            missing += 1
            for tid in (last[cpu], before):
                since.setdefault(tid, left.get(tid, begin))
        if before in since:
            doubtful[int(before)] += now - since.pop(before)
        left[before] = now
        last[cpu] = after
    for tid, then in since.items():
        doubtful[int(tid)] += now - then
    assert switches
    if missing > switches / 100:
        pytest.skip(f"perf has {switches} switches, and at least {missing} are missing")
    return doubtful


def times_of_perf(folder):
    """perf's "wait time" is from switch to switch, and "sch delay" the part of it after the wake-up. The state is that
    at the end of the line's run: S and D are blocked, all others could run on."""
    doubtful = doubtful_times_of_perf(folder / "perf.data")
    out = subprocess.run(["perf", "sched", "timehist", "--state", "-i", str(folder / "perf.data")], capture_output=True,
                         text=True, errors="replace", check=True).stdout
    sums, was_blocked = defaultdict(lambda: [0, 0, 0, 0]), {}
    for line in out.splitlines():
        words = line.split()
        if len(words) < 7 or not words[1].startswith("[") or not words[-2].replace(".", "").isdigit():
            continue
        tid = int(line[:line.rindex("]")].rpartition("[")[2].partition("/")[0])
        wait, delay, run = (float(w) * 1e6 for w in words[-4:-1])
        s = sums[tid]
        blocked = wait - delay if was_blocked.get(tid) and delay else 0
        s[0] += blocked
        s[1] += wait - blocked if tid in was_blocked else delay
        s[2] += run
        s[3] += PERF_CUTS_NS
        was_blocked[tid] = words[-1] in "SD"
    return {tid: Times(*s[:3], s[3] + doubtful[tid]) for tid, s in sums.items()}


def times_of_culprit(got, t, name):
    """Only what blocked it in its function: before and after that it is blocked longer than the others have observed."""
    sums, inside = got.of(t.tid), got.of(t.tid, FUNCTIONS.get(name, name))
    blocked = sum(v for k, v in inside.items() if k not in ("running", "runnable"))
    return Times(blocked, sums["runnable"], sums["running"], got.unheard(t.tid))


@pytest.mark.parametrize("observer, times_of", [(bpftrace, times_of_bpftrace), (perf_sched, times_of_perf)],
                         ids=["bpftrace", "perf-sched"])
@pytest.mark.parametrize("scenarios", [("sleep", "lock", "migrate", "runnable"), ("pipe",)], ids="-".join)
def test_agrees(culprit, tmp_path, file, scenarios, observer, times_of): # noqa: F811
    """Per thread: how long it was blocked in the function that waits, and runnable and running all in all."""
    got = Recorded(culprit, tmp_path, file, *scenarios, beside=lambda pid: observer(tmp_path, pid))
    theirs = times_of(tmp_path)
    wrong = []
    for name, threads in got.threads.items():
        for t in threads:
            ours, their = times_of_culprit(got, t, name), theirs[t.tid]
            for f, o, h in zip(Times._fields, ours, their):
                print(f"{name:10} {f:9} {o / 1e6:10.3f} {h / 1e6:10.3f} ms {(o - h) / 1e6:+9.3f}")
                if f != "unseen" and abs(o - h) > h * TOLERANCE + EDGE_NS + ours.unseen + their.unseen:
                    wrong.append((name, t.tid, f, o, h))
            assert sum(their[:3]) > 0.9e9 * SECONDS
    assert not wrong
