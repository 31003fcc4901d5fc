# SPDX-License-Identifier: Apache-2.0
"""Ground truth: programs that know their own stacks, built with every installed compiler and libc.

All programs run once, two at a time, under one `culprit record`; then each is judged on its own (truth.py).
Tests of programs that need a recording of their own follow below.
"""

import os
import shutil
from collections import Counter

import pytest

from folded import by_comm
from recorder import Completeness, read, record, record_of_running
from statistics_of import binomial_interval
from truth import PROGRAMS, TOP, Truth, Verdict, build, listed

RATE = 999
CPU_MS = 1000
OUTSIDE = ("-x", "-xs") # not part of the common run
COMMON = [n for n in listed() if not n.endswith(OUTSIDE)]


@pytest.fixture(scope="session")
def programs():
    build()
    return PROGRAMS


@pytest.fixture(scope="session")
def accounts(tmp_path_factory):
    return tmp_path_factory.mktemp("accounts")


@pytest.fixture(scope="session")
def common_run(culprit, programs, accounts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("common")
    names = folder / "names"
    names.write_text("\n".join(COMMON) + "\n")
    record(culprit, folder / "all.folded", "-F", RATE, "--", "xargs", "-a", names, "-P", "2",
           "-I{}", "env", f"{programs}/{{}}", CPU_MS, env={"TRUTH_OUT": str(accounts)}, timeout=1200)
    os.makedirs(os.path.join(TOP, "tests/artefacts"), exist_ok=True)
    shutil.copy(folder / "all.folded", os.path.join(TOP, "tests/artefacts/truth.folded"))
    return by_comm(read(folder / "all.folded"))


def has_symbols(name):
    return not name.endswith(("-gs", "-cs", "-mss", "-xs", "-rss"))


def judge(stacks, accounts, name):
    verdict = Verdict(Truth(accounts, name, inlined=has_symbols(name)), stacks)
    print(name, verdict)
    return verdict


def allowed(n):
    """Returns how many of n samples may be wrong: 0.1 %, but at least one."""
    return max(1, n // 1000)


def assert_right(verdict):
    """No stack is wrong, and hardly any is truncated. Before the unwind tables of a process are loaded, its stacks
    are unwound from copies of at most 256 KiB, so deep stacks may be truncated, which culprit marks.
    test_shares_of_all() requires that 99.9 % of all programs' stacks are complete."""
    assert verdict.wrong - verdict.cut <= allowed(verdict.samples), str(verdict)
    assert verdict.cut <= 0.01 * verdict.samples, str(verdict)


@pytest.mark.parametrize("name", COMMON)
def test_stacks(common_run, accounts, name):
    verdict = judge(common_run.get(name, []), accounts, name)
    assert verdict.samples >= 0.85 * RATE * CPU_MS / 1000, "samples are missing"
    assert_right(verdict)


@pytest.mark.parametrize("name", COMMON)
def test_no_chain_is_missing(common_run, accounts, name):
    """Programs spend most of their time in spin(), and equally much under each chain."""
    truth = Truth(accounts, name, inlined=has_symbols(name))
    hot = {c for c in truth.chains if c and c[-1] in ("spin", "main.leaf", "rusty::leaf")}
    if name.startswith("sighandler"): # most orders in which signals meet are rare
        hot = {c for c in hot if "on_timer" not in c or
               c == ("main", "work", "spin", "on_timer", "handler_work", "spin")}
    seen = {truth.own(s.frames) for s in common_run.get(name, [])}
    missing = hot - seen
    assert not missing, missing


def test_shares_of_all(common_run, accounts):
    """Prints the figures for doc/performance.md."""
    right = samples = 0
    for name in COMMON:
        verdict = Verdict(Truth(accounts, name, inlined=has_symbols(name)),
                          common_run.get(name, []))
        right, samples = right + verdict.right, samples + verdict.samples
    print(f"ground truth: {len(COMMON)} programs, {samples} samples, "
          f"{100 * right / samples:.3f} % complete and right")
    assert right >= 0.999 * samples


def assert_split(what, notes, leaves):
    """Functions have shares of the samples as of the CPU time. Chance causes a larger deviation once in ten
    million."""
    total = sum(notes.values())
    n = sum(leaves[f] for f in notes)
    for f, cpu in notes.items():
        low, high = binomial_interval(n, cpu / total)
        print(f"{what} {f}: {100 * cpu / total:.1f} % of CPU time, {leaves[f]} of {n} samples, "
              f"interval {low}..{high}")
        assert low <= leaves[f] <= high
    assert abs(notes["spin_70"] / total - 0.7) < 0.01, "the program itself missed its shares"


SPLITS = [n for n in COMMON if n.startswith("split-")]


@pytest.mark.parametrize("name", SPLITS)
def test_split(common_run, accounts, name):
    truth = Truth(accounts, name, inlined=has_symbols(name))
    assert_split(name, truth.notes, Verdict(truth, common_run[name]).leaves)


def test_split_of_all(common_run, accounts):
    """One program has too few samples for a narrow interval; all programs together have enough."""
    notes, leaves = Counter(), Counter()
    for name in SPLITS:
        truth = Truth(accounts, name, inlined=has_symbols(name))
        notes.update(truth.notes)
        leaves.update(Verdict(truth, common_run[name]).leaves)
    assert_split("all", notes, leaves)


@pytest.mark.parametrize("name", [n for n in COMMON if n.startswith("deep-")])
def test_depth_500_is_whole(common_run, accounts, name):
    truth = Truth(accounts, name)
    depths = {}
    for s in common_run[name]:
        own = truth.own(s.frames)
        if not s.note and own and own[-1] == "spin":
            depths[len(own) - 2] = depths.get(len(own) - 2, 0) + s.count
    print(name, dict(sorted(depths.items())))
    assert sorted(depths) == [1, 2, 7, 30, 31, 32, 33, 64, 127, 128, 200, 256, 400, 500]


@pytest.mark.parametrize("name", [n for n in COMMON if n.startswith("syscalls-")])
def test_kernel_frames_lie_below_user_frames(common_run, accounts, name):
    truth = Truth(accounts, name)
    known = {"reads", "stats", "pipes", "bare"}
    both = {f: 0 for f in known}
    for s in common_run[name]:
        own = truth.own(s.frames)
        if s.kernel and own and own[-1] in known:
            both[own[-1]] += s.count
            assert not any(k.startswith("[truncated") for k in s.kernel)
    print(name, both)
    assert all(both[f] > 0 for f in known), both


def test_attach_to_a_running_process(culprit, programs, accounts, tmp_path):
    """Programs that ran before the recorder started are known from /proc."""
    name = "recursion-gs"
    record_of_running(culprit, tmp_path / "o.folded", [f"{programs}/{name}", "2000"], "-F", RATE, "-d", "3",
                      env={"TRUTH_OUT": str(tmp_path)})
    stacks = read(tmp_path / "o.folded")
    assert {s.comm for s in stacks} == {name}, "-p lets other processes in"
    verdict = Verdict(Truth(tmp_path, name, inlined=False), stacks)
    print(name, verdict)
    assert verdict.samples >= 30 # few, because the recording may end before a busy machine has run the program for long
    assert_right(verdict)


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl")
def test_hand_written_assembly(culprit, tmp_path):
    record(culprit, tmp_path / "o.folded", "-F", RATE, "--", "openssl", "speed", "-seconds", "2",
           "-bytes", "8192", "sha256", "aes-256-cbc", "rsa2048")
    c = Completeness(by_comm(read(tmp_path / "o.folded"))["openssl"])
    print("openssl speed", c)
    assert c.user >= 1000 and c.complete >= 0.999 * c.user, str(c)


@pytest.mark.parametrize("how", ["exec", "copies", "fork"])
def test_short_processes(culprit, programs, tmp_path, how):
    """Processes of 20 ms of CPU time start as fast as the machine can; "copies": each runs a new file."""
    short = f"{programs}/short-x"
    if how == "copies":
        copies = [tmp_path / "bin" / f"{i}" / "short-x" for i in range(400)]
        for c in copies:
            c.parent.mkdir(parents=True)
            shutil.copy(short, c)
        command = [f"{programs}/starter", "3", "2", *copies]
    elif how == "exec":
        command = [f"{programs}/starter", "3", "2", short]
    else:
        command = [short, "20", "100"]
    done = record(culprit, tmp_path / "o.folded", "-F", RATE, "--", *command,
                  env={"TRUTH_OUT": str(tmp_path)})
    verdict = judge(by_comm(read(tmp_path / "o.folded"))["short-x"], tmp_path, "short-x")
    with_user = verdict.samples - verdict.bare
    no_stack = sum(n for why, n in verdict.faults.items()
                   if why == "no user stack" or why.startswith("[truncated"))
    print(f"{how}: {done.stdout.strip() or 100} processes, {verdict.samples} samples, "
          f"{100 * (with_user - no_stack) / with_user:.2f} % with a whole user stack")
    assert verdict.samples > 150
    assert no_stack <= 0.01 * with_user, str(verdict)
    assert verdict.wrong - no_stack <= allowed(verdict.samples), str(verdict)


@pytest.mark.parametrize("name", ["unmapper-x", "unmapper-xs"])
def test_code_that_takes_the_place_of_other_code(culprit, programs, tmp_path, name):
    # A high priority keeps the delay of culprit's reader short on a busy machine.
    record(culprit, tmp_path / "o.folded", "-F", RATE, "--", f"{programs}/{name}", "1500",
           env={"TRUTH_OUT": str(tmp_path)},
           preexec_fn=lambda: os.setpriority(os.PRIO_PROCESS, 0, -20))
    verdict = judge(by_comm(read(tmp_path / "o.folded"))[name], tmp_path, name)
    assert verdict.samples > 1000
    # The kernel reports new mappings, not their ends, and culprit reads its reports a moment later. The program
    # exchanges code more than a hundred times a second, so samples fall into that moment.
    assert_right(verdict)


def test_a_pid_used_again_is_another_process(culprit, programs, tmp_path):
    names = ["deep-np", "split-np"] # both at the same fixed addresses
    done = record(culprit, tmp_path / "o.folded", "-F", RATE, "--", f"{programs}/reuse", "4",
                  *(f"{programs}/{n}" for n in names), env={"TRUTH_OUT": str(tmp_path)},
                  check=False)
    if done.returncode == 77:
        pytest.skip("clone3 with set_tid is refused here")
    assert done.returncode == 0 and int(done.stdout) > 1, done.stderr
    stacks = by_comm(read(tmp_path / "o.folded"))
    print(f"{done.stdout.strip()} times the same pid")
    runs = (int(done.stdout) + 1) // 2 # of each program, with 60 ms of CPU time each
    for name in names:
        verdict = judge(stacks[name], tmp_path, name)
        assert verdict.samples >= 0.85 * RATE * 0.06 * runs, "samples are missing"
        assert_right(verdict)


@pytest.fixture
def map_count():
    path = "/proc/sys/vm/max_map_count"
    with open(path, encoding="ascii") as f:
        was = f.read()
    try:
        with open(path, "w", encoding="ascii") as f:
            f.write("300000")
    except OSError as e:
        pytest.skip(f"vm.max_map_count cannot be raised: {e}")
    yield
    with open(path, "w", encoding="ascii") as f:
        f.write(was)


def test_a_hundred_thousand_mappings(culprit, programs, tmp_path, map_count):
    name = "manymaps-x"
    record(culprit, tmp_path / "o.folded", "-F", RATE, "--", f"{programs}/{name}", "1500",
           env={"TRUTH_OUT": str(tmp_path)})
    stacks = by_comm(read(tmp_path / "o.folded"))[name]
    verdict = judge(stacks, tmp_path, name)
    assert verdict.samples > 1000
    assert_right(verdict)
