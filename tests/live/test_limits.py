# SPDX-License-Identifier: Apache-2.0
"""Limits: BPF maps of processes, wake-ups, and the agent's memory beside hostile processes."""

import contextlib
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from host import free_port
from test_agent import Agent, programs, wait_for
from test_procman import TARGET

BPFTOOL = shutil.which("bpftool") or "/usr/sbin/bpftool"


def map_ids(pid):
    """Returns the ids of the BPF maps that a process has open."""
    ids = set()
    for path in glob.glob(f"/proc/{pid}/fdinfo/*"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as f:
            ids |= {int(line.split()[1]) for line in f if line.startswith("map_id:")}
    return ids


def entries(agent, name):
    """Returns the pids in a map of the agent whose keys begin with a pid."""
    ids = map_ids(agent.process.pid)
    maps = json.loads(subprocess.run([BPFTOOL, "-j", "map", "show"], check=True, capture_output=True).stdout)
    at, = (m["id"] for m in maps if m["id"] in ids and m.get("name") == name)
    dump = json.loads(subprocess.run([BPFTOOL, "-j", "map", "dump", "id", str(at)], check=True,
                                     capture_output=True).stdout)
    return {int.from_bytes(bytes(int(b, 16) for b in e["key"][:4]), "little") for e in dump}


def test_a_process_that_ended_makes_room_at_once(culprit, tmp_path):
    """The map of processes drops an ended process at once, although the agent waits 5 s for its last samples."""
    with Agent(culprit, tmp_path, export=f"file:{tmp_path}/%s.pb.gz", period=1) as agent:
        agent.wait_until_it_counts()
        children = [subprocess.Popen(["sleep", "1000"]) for _ in range(20)]
        pids = {c.pid for c in children}
        wait_for(lambda: pids <= entries(agent, "processes"), "they are not known")
        for c in children:
            c.kill()
            c.wait()
        begin = time.monotonic()
        wait_for(lambda: not pids & entries(agent, "processes"), "they are still there")
        assert time.monotonic() - begin < 4


def test_no_process_of_a_crowd_stays_unknown(culprit, tmp_path):
    """While 10,000 processes come and go, BPF knows each of 6,000 others, or a counter has the number that it does
    not know."""
    crowd = subprocess.Popen([TARGET, "crowd", "6000", "10000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             preexec_fn=lambda: os.setpriority(os.PRIO_PROCESS, 0, -15))
    try:
        with Agent(culprit, tmp_path, export=f"file:{tmp_path}/%s.pb.gz", frequency=99, period=1) as agent:
            agent.wait_until_it_counts()
            assert crowd.stdout.readline() == "ready\n"
            children = set(map(int, pathlib.Path(f"/proc/{crowd.pid}/task/{crowd.pid}/children").read_text().split()))
            print("\n", file=crowd.stdin, flush=True)
            took_ms = int(crowd.stdout.readline())
            wait_for(lambda: len(children - entries(agent, "processes")) <= agent.metric("agent_tables_no_room_total"),
                     lambda: f"{len(children - entries(agent, 'processes'))} of them are not known")
            left = children - entries(agent, "processes")
            print(f"{10000e3 / took_ms:.0f} a second; {len(left)} of {len(children)} not known")
            assert len(children) == 6000
    finally:
        crowd.kill()
        crowd.wait()


# ---- wake-ups ----

# Starts 30 processes a second, each of which uses a CPU for a millisecond ten times.
NOW_AND_THEN = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
open("/proc/self/comm", "w").write("nowandthen")
os.nice(-15)
while True:
    if os.fork() == 0:
        for _ in range(10):
            end = time.process_time() + 0.001
            while time.process_time() < end:
                pass
            time.sleep(0.1)
        os._exit(0)
    time.sleep(1 / 30)
"""


def test_it_wakes_when_a_look_is_due_and_not_before(culprit, tmp_path):
    """The agent looks for contexts in a sampled process after 50 ms, 100 ms and so on, and sleeps until then. (It
    once woke 1,000 times a second whenever a look was due within 100 ms.)"""
    busy = subprocess.Popen([sys.executable, "-c", NOW_AND_THEN], start_new_session=True)
    try:
        with Agent(culprit, tmp_path, comm="nowandthen", frequency=99, period=1,
                   export=f"file:{tmp_path}/%s.pb.gz") as agent:
            def wakes():
                text = pathlib.Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/status").read_text()
                return int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", text)[1])

            agent.wait_until_it_counts()
            begin, before = time.monotonic(), wakes()
            wait_for(lambda: agent.metric("agent_samples_total") > 500, "no samples")
            per_second = (wakes() - before) / (time.monotonic() - begin)
            print(f"{per_second:.0f} wake-ups a second")
            assert per_second < 400
    finally:
        os.killpg(busy.pid, signal.SIGKILL)
        busy.wait()


# ---- memory ----

# V8 keeps a script's source for as long as its functions live.
HUGE_SCRIPT = "const f = new Function('for (;;) Math.sqrt(Date.now());' + '\\n'.repeat(%d)); f()" % (30 << 20)


@contextlib.contextmanager
def memory_cgroup(limit):
    """Creates a cgroup whose processes are killed when they use more memory; yields its folder."""
    v1 = pathlib.Path("/sys/fs/cgroup/memory")
    root = v1 if v1.is_dir() else pathlib.Path("/sys/fs/cgroup")
    folder = root / f"culprit-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.limit_in_bytes" if v1.is_dir() else "memory.max")).write_text(str(limit))
    except OSError as e:
        pytest.skip(f"no memory cgroup: {e}")
    try:
        yield folder
    finally:
        folder.rmdir()


def killed(folder):
    """Returns how many processes of the cgroup were killed for lack of memory."""
    events = folder / "memory.oom_control"
    text = (events if events.exists() else folder / "memory.events").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.split()[0] == "oom_kill")


# Runs a loop in anonymous memory, for which it has a perf map of a million names.
HUGE_PERF_MAP = """
import ctypes, mmap, os
code = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
                 prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex({"x86_64": "48b8000000400000000048ffc875fbc3",
                          "aarch64": "0000a8d2000400f1e1ffff54c0035fd6"}[os.uname().machine]))
at = ctypes.addressof(ctypes.c_char.from_buffer(code))
with open(f"/tmp/perf-{os.getpid()}.map", "w") as f:
    f.writelines(f"{at + 64 * i:x} 40 f{i:x}\\n" for i in range(1 << 20))
spin = ctypes.CFUNCTYPE(None)(at)
while True:
    spin()
"""

# Starts and ends threads, each with a name of its own.
MANY_THREADS = """
import threading, time
def work(i):
    with open("/proc/thread-self/comm", "w") as f:
        f.write(f"thread {i}")
    end = time.thread_time() + 0.01
    while time.thread_time() < end:
        pass
for i in range(1 << 30):
    threads = [threading.Thread(target=work, args=(i * 20 + j,)) for j in range(20)]
    [t.start() for t in threads]
    [t.join() for t in threads]
"""


def hostile_processes(programs):
    """Yields programs that make a profiler keep much data."""
    yield [TARGET, "many", "20000"]
    for script in HUGE_PERF_MAP, HUGE_PERF_MAP, MANY_THREADS:
        yield [sys.executable, "-c", script]
    if shutil.which("node"):
        yield ["node", "-e", HUGE_SCRIPT]
    for _ in range(8):
        yield [f"{programs}/split-g", "1000000"]


def test_memory_of_a_cgroup_at_the_limit(culprit, programs, tmp_path):
    """The agent, with its BPF maps and spools, runs in a cgroup with its own --memory-limit and is not killed. Beside
    it run processes that map code without end, name a million pieces of code each and start thousands of
    threads, and one whose script has 30 million lines; 16 receivers are unreachable."""
    limit = 160
    away = ",".join(f"otlp://127.0.0.1:{free_port()}" for _ in range(16))
    hostile = [subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.nice(19))
               for args in hostile_processes(programs)]
    with memory_cgroup(limit << 20) as folder:
        enter = f'echo $$ > {folder}/cgroup.procs && exec "$0" "$@"'
        try:
            with Agent("sh", tmp_path, start=("-c", enter, culprit), frequency=199, period=1,
                       memory_limit=limit, export=away) as agent:
                wait_for(lambda: agent.metric("agent_profiles_total") > 12, lambda: agent.stderr)
                samples = agent.metric("agent_samples_total")
                wait_for(lambda: agent.metric("agent_samples_total") > samples, "it does not go on")
                assert killed(folder) == 0 and agent.process.poll() is None
                print(f"{agent.metric('agent_resident_max_bytes') / 2**20:.0f} MiB at most")
                assert agent.metric("agent_resident_max_bytes") < limit << 20
        finally:
            for p in hostile:
                p.kill()
                p.wait()
                pathlib.Path(f"/tmp/perf-{p.pid}.map").unlink(missing_ok=True)
            wait_for(lambda: not (folder / "cgroup.procs").read_text(), "it does not end")


def test_a_debuginfod_that_does_not_answer(culprit, tmp_path):
    """While the agent waits for the names of a period, the next period grows up to its share of the limit. Samples
    without room there are reported as lost, and a cgroup with the limit does not kill the agent."""
    limit = 48
    threads = subprocess.Popen([sys.executable, "-c", MANY_THREADS], stdout=subprocess.DEVNULL)
    cache = tmp_path / "cache"
    try:
        with socket.create_server(("127.0.0.1", 0)) as silent, memory_cgroup(limit << 20) as folder:
            start = ("-c", f'echo $$ > {folder}/cgroup.procs; DEBUGINFOD_CACHE_PATH={cache} '
                           f'DEBUGINFOD_URLS=http://127.0.0.1:{silent.getsockname()[1]} exec "$0" "$@"', culprit)
            with Agent("sh", tmp_path, start=start, frequency=999, period=1, memory_limit=limit,
                       export=f"file:{tmp_path}/%s.pb.gz") as agent:
                wait_for(lambda: "samples are lost: one period has reached its memory limit" in agent.stderr, lambda: agent.stderr)
                assert killed(folder) == 0 and agent.process.poll() is None
                print(f"{agent.rss() / 2**20:.0f} MiB")
            wait_for(lambda: not (folder / "cgroup.procs").read_text(), "it does not end")
    finally:
        threads.kill()
        threads.wait()
