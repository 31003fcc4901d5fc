# SPDX-License-Identifier: Apache-2.0
"""culprit stat against programs that make known events, and against perf stat."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
N = 1000


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    path = tmp_path_factory.mktemp("calls") / "calls"
    subprocess.run(["gcc", "-O1", "-w", "-pthread", "-o", path, f"{HERE}/calls.c"], check=True)
    return str(path)


def values(line):
    return {e["event"]: e.get("value") for e in json.loads(line)["events"]}


@pytest.fixture
def stat(culprit, tmp_path):
    """stat(EVENTS, ARG...) returns {event: value} of the whole run."""

    def run(events, *args, status=0):
        out = tmp_path / "stat.json"
        done = subprocess.run([culprit, "stat", "-f", "json", "-o", out, "-e", events, *map(str, args)], capture_output=True,
                              text=True, timeout=60)
        assert done.returncode == status, done.stderr
        return values(out.read_text().splitlines()[-1])

    return run


def test_tracepoints_are_counted_exactly(stat, calls):
    """From the exec on, with all threads, forks and execs: also what a thread or child counts that has ended."""
    got = stat("syscalls:sys_enter_getppid,tracepoint:syscalls:sys_exit_getppid,sched:sched_process_fork", "--", calls,
               "threads", N)
    assert got == {"syscalls:sys_enter_getppid": 10 * N, "tracepoint:syscalls:sys_exit_getppid": 10 * N,
                   "sched:sched_process_fork": 10}


def test_page_faults(stat):
    """A program that touches so many new pages has so many more faults than one that does not."""
    code = "import mmap; m = mmap.mmap(-1, {0} * 4096); m.madvise(mmap.MADV_NOHUGEPAGE)\nfor i in range({0}): m[i * 4096] = 1"
    few, many = [stat("page-faults,minor-faults,major-faults", "--", "/usr/bin/python3", "-c", code.format(n))
                 for n in (10, 4010)]
    assert 3900 <= many["page-faults"] - few["page-faults"] <= 4200 # those of the interpreter itself differ a little
    assert many["page-faults"] == many["minor-faults"] + many["major-faults"]


def test_agrees_with_perf(stat, calls):
    if not shutil.which("perf"):
        pytest.skip("perf is not installed")
    events = "raw_syscalls:sys_enter,minor-faults"
    done = subprocess.run(["perf", "stat", "-x,", "-e", events, calls, "plain", str(N)], capture_output=True, text=True)
    perf = {name: int(n) for n, name in re.findall(r"^(\d+),,([\w:-]+?)(?::u)?,", done.stderr, re.M)}
    if len(perf) != 2:
        pytest.skip(f"perf stat does not count here: {done.stderr}")
    got = stat(events, "--", calls, "plain", N)
    assert abs(got["raw_syscalls:sys_enter"] - perf["raw_syscalls:sys_enter"]) <= 2
    assert abs(got["minor-faults"] - perf["minor-faults"]) <= 10


def test_times(culprit, tmp_path):
    """task-clock is the CPU time that the program itself sees; elapsed time is not less than its sleep."""
    code = ("import time; time.sleep(0.3); end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
            "print(time.process_time())")
    out = tmp_path / "o"
    done = subprocess.run([culprit, "stat", "-f", "json", "-o", out, "-e", "task-clock", "--", "/usr/bin/python3", "-c", code],
                          stdout=subprocess.PIPE, text=True, check=True)
    got, seen = json.loads(out.read_text()), float(done.stdout)
    clock = got["events"][0]["value"] / 1e9
    assert seen * 0.95 <= clock <= seen * 1.1 + 0.05
    assert got["elapsed_s"] >= 0.6
    assert abs(got["user_s"] + got["sys_s"] - clock) <= 0.02


def test_a_running_process(culprit, calls):
    """Its threads that run already, and a child that it starts."""
    code = "import os, sys; sys.stdin.readline()\nfor i in range(500): os.getppid()\nos.fork() or [os.getppid() for i in range(7)]"
    p = subprocess.Popen(["/usr/bin/python3", "-c", code], stdin=subprocess.PIPE, text=True)
    s = subprocess.Popen([culprit, "stat", "-f", "json", "-e", "syscalls:sys_enter_getppid", "-p", str(p.pid)],
                         stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    p.stdin.write("\n")
    p.stdin.close()
    p.wait()
    out, _ = s.communicate(timeout=30)
    assert values(out)["syscalls:sys_enter_getppid"] in (500, 507) # the child may end later
    assert s.returncode == 0


def test_parts_add_up_to_the_whole(culprit, calls, tmp_path):
    out = tmp_path / "o"
    subprocess.run([culprit, "stat", "-f", "json", "-o", out, "-I", "50", "-e", "syscalls:sys_enter_nanosleep", "--", calls,
                    "naps", "20", "20"], check=True)
    *parts, whole = map(json.loads, out.read_text().splitlines())
    assert whole["events"][0]["value"] == 20 and "at_s" not in whole
    assert len(parts) >= 2
    assert sum(p["events"][0]["value"] for p in parts) <= 20
    assert all(a["at_s"] < b["at_s"] for a, b in zip(parts, parts[1:]))


def cgroup(tmp_name):
    for root in ("/sys/fs/cgroup/perf_event", "/sys/fs/cgroup"):
        path = f"{root}/{tmp_name}"
        try:
            os.mkdir(path)
            if os.path.exists(f"{path}/cgroup.procs"):
                return path
            os.rmdir(path)
        except OSError:
            continue
    return None


def test_cgroup(culprit, calls):
    """A process of the cgroup is counted, and the same outside of it is not."""
    path = cgroup("culprit-test-stat")
    if not path:
        pytest.skip("no cgroup can be made here")
    try:
        s = subprocess.Popen([culprit, "stat", "-f", "json", "-e", "syscalls:sys_enter_getppid", "--cgroup", path],
                             stdout=subprocess.PIPE, text=True)
        time.sleep(1)
        subprocess.run([calls, "plain", "300"], check=True)
        subprocess.run(["sh", "-c", f'echo $$ > {path}/cgroup.procs && exec {calls} plain 200'], check=True)
        s.send_signal(signal.SIGINT)
        out, _ = s.communicate(timeout=30)
        assert values(out)["syscalls:sys_enter_getppid"] == 200
    finally:
        s.kill()
        os.rmdir(path)


def test_the_whole_machine_for_a_time(culprit, calls):
    begin = time.monotonic()
    s = subprocess.Popen([culprit, "stat", "-f", "json", "-e", "syscalls:sys_enter_getppid", "-d", "3"],
                         stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    subprocess.run([calls, "plain", "5000"], check=True)
    out, _ = s.communicate(timeout=30)
    assert values(out)["syscalls:sys_enter_getppid"] >= 5000
    assert time.monotonic() - begin >= 3


def test_what_the_machine_lacks_is_told(culprit):
    """Hardware counters, or that there are none; never a zero in their place."""
    done = subprocess.run([culprit, "stat", "-e", "cycles,instructions,page-faults", "--", "true"], capture_output=True,
                          text=True, check=True)
    assert re.search(r"^ +\d+ +page-faults", done.stderr, re.M)
    for name in ("cycles", "instructions"):
        assert re.search(rf"^ +(<not supported>|<not counted>|[1-9][\d,]*) +{name}", done.stderr, re.M), done.stderr


def test_status_and_output(culprit):
    done = subprocess.run([culprit, "stat", "--", "sh", "-c", "echo x; exit 5"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (5, "x\n")
    assert "seconds time elapsed" in done.stderr and "CPUs utilized" in done.stderr
    done = subprocess.run([culprit, "stat", "--", "sh", "-c", "kill -9 $$"], capture_output=True, text=True)
    assert done.returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize("args, said", [
    (["-e", "cyles", "true"], "no event 'cyles'; there are cycles"),
    (["-e", "sched:no_such", "true"], "no tracepoint 'sched:no_such'"),
    (["-p", "4194303"], "no process has the id 4194303"),
    (["-p", "1", "true"], "-p, --cgroup and a command exclude each other"),
    (["--cgroup", "/no/such"], "no cgroup '/no/such'"),
    (["/nonexistent/program"], "/nonexistent/program"),
    (["-e", ",", "true"], "no event is named"),
])
def test_errors_of_the_user(culprit, args, said):
    done = subprocess.run([culprit, "stat", *args], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and said in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1
