# SPDX-License-Identifier: Apache-2.0
"""What it costs a program that its allocations are recorded."""

import contextlib
import mmap
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from .common import TOP
from .observers import by_turns, culprit, peer
from host import free_port, wait_for

MEASURE_S = int(os.environ.get("BENCH_ALLOC_S", "4"))
HERE = os.path.join(TOP, "tests/bench")
MEMLEAK = os.path.expanduser("~/.cache/culprit-peers/memleak")

# What gala-gopher's mem_glibc attaches to: each call, and its return.
EACH_CALL = """
uprobe:{0}:malloc {{ @n[tid] = arg0; }} uretprobe:{0}:malloc {{ @live[retval] = @n[tid]; }}
uprobe:{0}:calloc {{ @n[tid] = arg0 * arg1; }} uretprobe:{0}:calloc {{ @live[retval] = @n[tid]; }}
uprobe:{0}:realloc {{ delete(@live[arg0]); @n[tid] = arg1; }} uretprobe:{0}:realloc {{ @live[retval] = @n[tid]; }}
uprobe:{0}:free {{ delete(@live[arg0]); }}
END {{ clear(@n); clear(@live); }}
"""


def cpu_seconds(pid):
    return time.clock_gettime(~pid << 3 | 2) # CPUCLOCK_SCHED of the process


def allocator_of(pid):
    """The path of the library whose malloc() the process calls."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
        paths = {line.split()[5] for line in f if len(line.split()) > 5 and "r-xp" in line}
    for name in ("jemalloc", "tcmalloc", "mimalloc", "libc.so", "libc-"):
        for path in paths:
            if name in os.path.basename(path):
                return path
    raise OSError("no allocator is known")


EACH = "a probe of each call (bpftrace)", "memleak (libbpf-tools)"


@contextlib.contextmanager
def memleak(pid, path):
    """It prints its first table after the interval, by when it has long been attached. It cuts long paths."""
    if not os.path.isdir(MEMLEAK):
        raise OSError("run tests/bench/get")
    with tempfile.TemporaryDirectory() as d:
        os.symlink(path, f"{d}/so")
        with peer(f"{MEMLEAK}/lib64/ld-linux-x86-64.so.2", "--library-path", f"{MEMLEAK}/usr/lib/x86_64-linux-gnu",
                  f"{MEMLEAK}/usr/sbin/memleak-libbpf", "-p", str(pid), "-O", f"{d}/so", "60", seconds=3):
            yield


def observers(pid):
    path = allocator_of(pid)
    return {
        "nothing": contextlib.nullcontext,
        "culprit record --alloc": lambda: culprit("--alloc", "-p", pid),
        EACH[0]: lambda: peer("bpftrace", "-p", str(pid), "-e", EACH_CALL.format(path), seconds=4),
        EACH[1]: lambda: memleak(pid, path),
    }


@contextlib.contextmanager
def running(command, **options):
    p = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    try:
        yield p
    finally:
        p.send_signal(signal.SIGKILL)
        p.wait()


def loop():
    with tempfile.NamedTemporaryFile() as f:
        f.truncate(8)
        with running([os.path.join(TOP, "build/tests/bench/bench-alloc"), f.name]) as p, mmap.mmap(f.fileno(), 8) as counter:
            def calls():
                return int.from_bytes(counter[:8], "little")

            wait_for(calls, "bench-alloc")

            def run():
                n, cpu, begin = calls(), cpu_seconds(p.pid), time.monotonic()
                time.sleep(MEASURE_S)
                n = calls() - n
                return {"per second": n / (time.monotonic() - begin), "per CPU second": n / (cpu_seconds(p.pid) - cpu)}

            by_turns("malloc and free in a loop", "/s", observers(p.pid), run, EACH)


def commands_of(port):
    """How many commands the redis-server has processed."""
    with socket.create_connection(("127.0.0.1", port), 10) as c:
        c.sendall(b"INFO stats\r\n")
        text = b""
        while not re.search(rb"total_commands_processed:\d+\r", text):
            text += c.recv(65536)
    return int(re.search(rb"total_commands_processed:(\d+)", text)[1])


def listens(port):
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 10):
        return True
    return False


def redis():
    port = free_port()
    with running(["redis-server", "--port", port, "--save", "", "--appendonly", "no"]) as p:
        load = ["redis-benchmark", "-p", port, "-t", "set", "-d", "256", "-r", "100000", "-c", "20", "-q"]
        wait_for(lambda: listens(port), "redis-server")

        def run():
            with running([*load, "-l", "-n", "1000000"]):
                time.sleep(1)
                n, cpu, begin = commands_of(port), cpu_seconds(p.pid), time.monotonic()
                time.sleep(MEASURE_S)
                n = commands_of(port) - n
                return {"per second": n / (time.monotonic() - begin), "per CPU second": n / (cpu_seconds(p.pid) - cpu)}

        by_turns("redis SET of 256 bytes", "/s", observers(p.pid), run, EACH)


def web(what, *command):
    port = free_port()
    with running([*command, port]) as p:
        wrk = ["wrk", "-t1", "-c4", f"-d{MEASURE_S}s", f"http://127.0.0.1:{port}/"]

        def run():
            cpu = cpu_seconds(p.pid)
            out = subprocess.run(wrk, capture_output=True, text=True, check=True).stdout
            n, rate = re.search(r"(\d+) requests in", out), re.search(r"Requests/sec:\s*([\d.]+)", out)
            return {"per second": float(rate[1]), "per CPU second": int(n[1]) / (cpu_seconds(p.pid) - cpu)}

        wait_for(lambda: "Requests/sec: " in (out := subprocess.run(
            [*wrk[:3], "-d1s", wrk[4]], capture_output=True, text=True, check=False).stdout) and " 0 requests" not in out, what)
        for _ in range(4): # what a JIT compiler does at first
            run()
        by_turns(f"{what} under wrk", "/s", observers(p.pid), run, EACH)


def alloc():
    """Throughput of redis-server under redis-benchmark, a C program that only allocates and frees, and web servers in Java
    and Python, while each observer records their allocations, compared with the same round without. Per CPU second: of the
    program alone. gala-gopher's way is a uprobe and a uretprobe of each call: here by bpftrace, and in libbpf-tools' memleak,
    which walks each stack as well. These are measured once."""
    loop()
    if shutil.which("redis-server"):
        redis()
    if shutil.which("java"):
        web("a Java server", "java", "-Dsun.net.httpserver.nodelay=true", os.path.join(HERE, "Server.java"))
    web("a Python server", "/usr/bin/python3", os.path.join(HERE, "server.py"))
