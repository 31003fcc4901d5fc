# SPDX-License-Identifier: Apache-2.0
"""Waits of known length (tests/tools/known_waits.c): by the threads' own clocks, and by what the kernel has counted."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections import defaultdict, namedtuple

import pytest
from pprof import samples
from recorder import start_record
from test_procman import TOOLS

SECONDS = 3
FILE_BYTES = 64 << 20
Thread = namedtuple("Thread", "tid waited n ran queued begin end")

# scenario: {thread: (what it waits for, a function in the kernel of the call that it measures)}
SCENARIOS = {
    "sleep": {"sleeper": ("sleep", "hrtimer_nanosleep")},
    "lock": {"ladder_a": ("lock", "futex_wait"), "ladder_b": ("lock", "futex_wait"),
             "ladder_c": ("sleep", "hrtimer_nanosleep")},
    "mutex": {"contender": ("lock", "futex_wait"), "owner": ("sleep", "hrtimer_nanosleep")},
    "pipe": {"pinger": ("pipe", "ksys_read"), "ponger": ("pipe", "ksys_read")},
    "network": {"receiver": ("network", "__sys_recvfrom"), "sender": ("sleep", "hrtimer_nanosleep")},
    "tcp": {"receiver": ("network", "__sys_recvfrom"), "sender": ("sleep", "hrtimer_nanosleep")},
    "poll": {"poller": ("poll", "do_sys_poll")},
    "disk": {"reader": ("disk", "__x64_sys_pread64")},
    "fault": {"faulter": ("fault", "asm_exc_page_fault")},
    "child": {"parent": ("child", "do_wait")},
    "migrate": {"migrant": ("sleep", "hrtimer_nanosleep")},
}
# What each call of the thread "turner" waits in.
TURNS = {"in_nanosleep": "do_nanosleep", "in_poll": "do_sys_poll", "in_select": "do_select",
         "in_futex": "futex_wait", "in_signal_wait": "__x64_sys_rt_sigtimedwait"}
FUNCTIONS = {"ladder_a": "ladder", "ladder_b": "ladder", "ladder_c": "ladder_end"}


def stolen_ns():
    """The time of all CPUs in which the hypervisor ran something else, rounded up."""
    with open("/proc/stat", encoding="ascii") as f:
        return (int(f.readline().split()[8]) + os.cpu_count()) * 10**9 // os.sysconf("SC_CLK_TCK")


class Recorded:
    """`beside(pid)` is a context in which the threads wait. With this budget each wait is walked, also where a machine
    takes the CPU away from a walk; test_a_budget_keeps_the_sums is of less."""

    def __init__(self, culprit, folder, file, *scenarios, options=("--wall", "--budget", 50), beside=contextlib.nullcontext):
        stolen = stolen_ns()
        program = subprocess.Popen([os.path.join(TOOLS, "known_waits"), str(SECONDS), file, *scenarios],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        recorder = None
        try:
            self.said = {}
            for line in program.stdout:
                if line == "ready\n":
                    break
                self.said.update([line.split()])
            out = folder / "waits.pb.gz"
            recorder, self.messages = start_record(culprit, out, "-p", program.pid, "-d", 600, *options)
            self.threads = defaultdict(list)
            with beside(program.pid):
                program.stdin.write("\n")
                program.stdin.flush()
                for line in program.stdout:
                    if line == "over\n":
                        break
                    name, *numbers = line.split()
                    self.threads[name].append(Thread(*map(int, numbers)))
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait(120) == 0, self.messages()
            self.stolen = stolen_ns() - stolen
        finally:
            if recorder:
                recorder.kill()
            program.kill()
            program.wait()
            program.stdin.close()
            program.stdout.close()
        self.samples = list(samples(out))
        self.pid = program.pid

    def of(self, tid, *frames):
        """{what was waited for: ns} of a thread; `frames`: functions that are in the stack."""
        sums = defaultdict(int)
        for s in self.samples:
            if s.labels["tid"] == tid and set(frames) <= set(before_wakers(s.functions)):
                sums[s.labels["wait"]] += s.values[-1]
        return sums

    def unheard(self, tid):
        """ns without a stack: short waits in no sample, and waits whose end the machine hides from tracing."""
        return sum(s.values[-1] for s in self.samples if s.labels["tid"] == tid and not s.functions)

    def shares(self, tid, category, label):
        """{value of the label: share of the thread's time in the category}"""
        sums = defaultdict(int)
        for s in self.samples:
            if s.labels["tid"] == tid and s.labels["wait"] == category:
                sums[label(s)] += s.values[-1]
        return {k: v / sum(sums.values()) for k, v in sums.items()}


def before_wakers(functions):
    """The part of a stack that belongs to the thread that waits."""
    notes = [i for i, f in enumerate(functions) if f.startswith("[woken by ")]
    return functions[notes[-1] + 1:] if notes else functions


def wakers(functions):
    """[(who, its function of known_waits)] from the wait outwards."""
    notes = [i for i, f in enumerate(functions) if f.startswith("[woken by ")]
    begins = [0, *(i + 1 for i in notes)]
    return [(functions[i][len("[woken by "):-1], functions[begin:i])
            for begin, i in zip(begins[:-1], notes)][::-1]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("waits") / "file"
    path.write_bytes(os.urandom(1 << 20) * (FILE_BYTES >> 20))
    os.sync()
    return path


@contextlib.contextmanager
def load(_pid):
    """Threads that take two thirds of the CPUs from all others."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * os.cpu_count())]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def each_scenario():
    for scenario in SCENARIOS:
        yield pytest.param(scenario, contextlib.nullcontext, id=f"{scenario}-idle")
        marks = [] if scenario in ("lock", "tcp") else [pytest.mark.slow]
        yield pytest.param(scenario, load, id=f"{scenario}-loaded", marks=marks)


@pytest.mark.parametrize("scenario, beside", each_scenario())
def test_known_waits(culprit, tmp_path, file, scenario, beside):
    """What a thread measures is what it waits and runs in the call, as recorded."""
    got = Recorded(culprit, tmp_path, file, scenario, beside=beside)
    for name, (category, frame) in SCENARIOS[scenario].items():
        function = FUNCTIONS.get(name, name)
        for t in got.threads[name]:
            sums = got.of(t.tid, frame, function)
            print(name, t, dict(sums), dict(got.of(t.tid, function)), dict(got.of(t.tid)))
            # Running is seen at the clock's ticks only; between waits it is short, and in them shorter.
            waited = sum(sums.values()) - sums["running"]
            least = t.waited - t.ran - got.stolen - got.unheard(t.tid)
            tolerance = max(t.waited / 100, 50e3 * min(t.n, 300))
            # Other threads may take the CPU on the call's way back, which the thread measures too.
            wider = got.of(t.tid, function) if beside is load else sums
            assert t.n > 10 and least - tolerance < sum(wider.values()) - wider["running"], (wider, t, least)
            assert waited < t.waited + tolerance, (sums, t)
            assert sums[category] + sums["runnable"] > 0.99 * waited, sums


def test_time_adds_up(culprit, tmp_path, file):
    """What a thread has run, waited for a CPU and waited else is the time of the recording, whatever it did."""
    got = Recorded(culprit, tmp_path, file, "sleep", "lock", "network", "poll", "migrate", "dormant", "runnable")
    sums = {t.tid: got.of(t.tid) for threads in got.threads.values() for t in threads}
    all_ns = [sum(s.values()) for s in sums.values()]
    print(sums, min(all_ns), max(all_ns), got.stolen)
    assert max(all_ns) - min(all_ns) < 20e3 * max(all_ns) / 1e9
    for t in (t for threads in got.threads.values() for t in threads):
        # Switches to threads that the machine hides from tracing: what went on between them has no stack.
        unheard = sum(s.values[-1] for s in got.samples
                      if s.labels["tid"] == t.tid and not s.functions and s.labels["wait"] == "other")
        # The kernel leaves out stolen time. The thread had the CPU, so culprit counts it as running. And the kernel's
        # clock stands still between a wake-up and the switch that it makes necessary (rq_clock_skip_update): there
        # a thread runs some 30 us too early.
        is_, early = sums[t.tid], 50e3 * t.n
        tolerance = max(10e6, t.ran / 50) + unheard
        assert -tolerance - early < is_["running"] - t.ran < tolerance + got.stolen, (t, is_, got.stolen)
        tolerance = max(50e6, t.queued / 20) + unheard
        assert -tolerance < is_["runnable"] - t.queued < tolerance + early, (t, is_)
        both, tolerance = t.ran + t.queued, max(20e6, (t.ran + t.queued) / 50) + unheard
        assert -tolerance < is_["running"] + is_["runnable"] - both < tolerance + got.stolen, (t, is_, got.stolen)
    dormant = sums[got.threads["dormant"][0].tid]
    assert dormant["poll"] + dormant["runnable"] > SECONDS * 1e9


def test_who_woke_it(culprit, tmp_path, file):
    """The ladder: a waits for b, b for c, and c for a timer. The receiver waits for the sender, by TCP too."""
    got = Recorded(culprit, tmp_path, file, "lock", "sleep", "tcp", options=("--off-cpu", "--wakers"))
    tid = {name: threads[0].tid for name, threads in got.threads.items()}
    chains = {name: got.shares(tid[name], category, lambda s: tuple(
        (who, "ladder" in stack or "ladder_end" in stack) for who, stack in wakers(s.functions)))
              for name, category in (("ladder_a", "lock"), ("ladder_b", "lock"), ("ladder_c", "sleep"), ("sender", "sleep"),
                                     ("receiver", "network"))}
    print(chains)

    def share_of(name, *expected):
        return sum(v for k, v in chains[name].items() if k[:len(expected)] == expected)

    timer = ("a timer", False)
    assert share_of("ladder_c", timer) > 0.9
    assert share_of("sender", timer) > 0.9
    assert share_of("receiver", ("sender", False)) > 0.9
    assert share_of("receiver", ("sender", False), timer) > 0.5
    assert share_of("ladder_b", ("ladder_c", True)) > 0.9
    assert share_of("ladder_a", ("ladder_b", True)) > 0.9
    assert share_of("ladder_a", ("ladder_b", True), ("ladder_c", True), timer) > 0.5


def test_a_budget_keeps_the_sums(culprit, tmp_path, file):
    """With next to no budget, short waits share samples: far fewer, of the same time."""
    by_budget = {}
    for budget in (100, 0.01):
        got = Recorded(culprit, tmp_path, file, "pipe", options=("--wall", "--budget", budget))
        sums = {name: got.of(threads[0].tid) for name, threads in got.threads.items()}
        mine = [s for s in got.samples if s.labels["wait"] == "pipe"]
        by_budget[budget] = (sum(s.values[0] for s in mine), re.search(r"those below (\d+) us", got.messages()), sums)
        for name, threads in got.threads.items():
            t, waited = threads[0], sum(sums[name].values()) - sums[name]["running"]
            print(budget, name, t, waited, dict(sums[name]))
            assert abs(sum(sums[name].values()) - sum(sums["pinger"].values())) < 20e3 * SECONDS
            assert sums[name]["pipe"] + sums[name]["runnable"] > t.waited * 0.97 - t.ran - 100e6
    print({b: (n, m and m[0]) for b, (n, m, _) in by_budget.items()})
    assert by_budget[0.01][0] < by_budget[100][0] / 2
    assert int(by_budget[0.01][1][1]) > 1000


def test_each_wait_has_its_own_kernel_stack(culprit, tmp_path, file):
    """BPF remembers walks of the kernel's stacks. None may be taken for another."""
    got = Recorded(culprit, tmp_path, file, "turns", options=("--off-cpu", "--budget", 100))
    seen = defaultdict(lambda: defaultdict(int))
    for s in got.samples:
        in_user, in_kernel = ([f for f in functions if f in s.functions] for functions in (TURNS, TURNS.values()))
        if in_user and in_kernel:
            seen[in_user[0]][tuple(in_kernel)] += s.values[0]
    print({k: dict(v) for k, v in seen.items()})
    own = {f for s in got.samples for f in s.functions if re.match("bpf_|__bpf_|__traceiter_", f)}
    assert not own, "frames of the tracing itself"
    assert {k: list(v) for k, v in seen.items()} == {k: [(v,)] for k, v in TURNS.items()}


def test_whose_lock(culprit, tmp_path, file):
    got = Recorded(culprit, tmp_path, file, "mutex", options=("--off-cpu",))
    contender, owner = (got.threads[n][0].tid for n in ("contender", "owner"))
    locks = got.shares(contender, "lock", lambda s: (s.labels.get("lock"), s.labels.get("owner")))
    print(locks, contender, owner)
    assert sum(v for (_, o), v in locks.items() if o == str(owner)) > 0.9
    assert max(sum(v for (lock, _), v in locks.items() if lock == one) for one, _ in locks) > 0.9
    # While the owner has the lock and the other one waits, it does nothing but sleep, and then waits for a CPU.
    lock = max(locks, key=locks.get)[0]
    held = [s for s in got.samples if s.labels.get("holds")]
    waited = sum(s.values[-1] for s in got.samples if s.labels.get("lock") == lock and s.labels["wait"] == "lock")
    holding = sum(s.values[-1] for s in held)
    print(f"waited {waited / 1e9:.3f} s, held {holding / 1e9:.3f} s")
    assert {(s.labels["tid"], s.labels["holds"]) for s in held} == {(owner, lock)}
    # Up to 200 µs between two of its waits count as well.
    assert waited * 0.95 - 5e6 < holding < waited * 1.05 + 5e6


def test_whose_socket(culprit, tmp_path, file):
    got = Recorded(culprit, tmp_path, file, "tcp", options=("--off-cpu",))
    peers = got.shares(got.threads["receiver"][0].tid, "network", lambda s: s.labels.get("peer"))
    assert peers[f"127.0.0.1:{got.said['port']}"] > 0.99, peers
