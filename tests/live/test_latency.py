# SPDX-License-Identifier: Apache-2.0
"""culprit latency against programs and files of the kernel that know how long things took."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import pytest

CULPRIT = os.environ.get("CULPRIT", "build/cli/culprit")
SPIN = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass\n"


class Measurement:
    """culprit latency at work; `result` after the end."""

    def __init__(self, kind, *args, seconds=60):
        self.process = subprocess.Popen([CULPRIT, "latency", kind, "-d", str(seconds), *args, "-f", "json"],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.result = None

    def attached(self):
        """Waits until its probes are there: the maps of the script are read by the process's descriptors."""
        folder = f"/proc/{self.process.pid}/fd"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            links = sum("bpf" in os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder) if os.path.lexists(f"{folder}/{fd}"))
            if links > 8:
                break
            time.sleep(0.1)
        time.sleep(2)

    def end(self):
        self.process.send_signal(2)
        out, err = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, err
        self.result = json.loads(out)
        return self.result


def group(result, name):
    return next((g for g in result["groups"] if g["group"] == name), None)


def check(g):
    """What holds of every group."""
    assert sum(b["count"] for b in g["buckets"]) == g["count"]
    quantiles = list(g["quantiles_ns"].values())
    assert quantiles == sorted(quantiles) and quantiles[-1] <= g["max_ns"]
    assert g["max_ns"] <= g["total_ns"] <= g["count"] * g["max_ns"]


def run_delay(pid):
    """Nanoseconds that the threads of a process have waited for a CPU, as the scheduler counts them."""
    total = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as f:
            total += int(f.read().split()[1])
    return total


def test_runqueue_is_what_the_scheduler_counts():
    """Three processes that spin on one CPU, of which one is measured."""
    spinners = [subprocess.Popen(["taskset", "-c", "0", sys.executable, "-c", SPIN]) for _ in range(3)]
    try:
        pid = spinners[0].pid
        m = Measurement("runqueue", "-p", str(pid))
        m.attached()
        before = run_delay(pid)
        time.sleep(4)
        after = run_delay(pid)
        start = time.monotonic()
        result = m.end()
        g = group(result, "run queue")
        check(g)
        # attached() has waited for 2 s, in which waits counted, and the end takes its time.
        expected = after - before
        assert expected > 1.5e9
        outside = (2 + time.monotonic() - start) * 1e9
        assert 0.9 * expected <= g["total_ns"] <= expected + outside
        assert [p["pid"] for p in result["processes"]] == [pid]
        assert result["processes"][0]["total_ns"] == g["total_ns"]
    finally:
        for s in spinners:
            s.kill()
            s.wait()


PROGRAM = """
import os, sys
os.read(0, 1)
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for i in range(40): os.pwrite(fd, b"x" * 100, 0)
for i in range(30): os.pread(fd, 100, 0)
for i in range(7): os.fsync(fd)
r, w = os.pipe()
for i in range(50): os.write(w, b"y"); os.read(r, 1)
for i in range(5):
    try: os.open(sys.argv[1] + ".missing", os.O_RDONLY)
    except FileNotFoundError: pass
os.close(fd)
os.read(0, 1)
"""


def test_fs_counts_each_call_on_a_file():
    """Exact counts by operation; pipes, and opens that fail, are not counted."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as where:
        program = subprocess.Popen([sys.executable, "-c", PROGRAM, where + "/file"], stdin=subprocess.PIPE)
        m = Measurement("fs", "-p", str(program.pid))
        m.attached()
        program.stdin.write(b"a")
        program.stdin.flush()
        time.sleep(2)
        result = m.end()
        program.communicate(b"b")
    counts = {g["group"]: g["count"] for g in result["groups"]}
    assert counts == {"tmpfs open": 1, "tmpfs write": 40, "tmpfs read": 30, "tmpfs fsync": 7}
    for g in result["groups"]:
        check(g)
    assert result["lost"] == 0


def test_a_connection_that_nobody_answers_is_told():
    """It has no latency yet: it must not be silence."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    full = socket.create_connection(listener.getsockname())
    m = Measurement("tcp", "-p", str(os.getpid()))
    m.attached()
    waiting = socket.socket()
    waiting.setblocking(False)
    # The kernel drops what asks for a connection while the listener's queue is full.
    assert waiting.connect_ex(listener.getsockname()) == 115
    time.sleep(1)
    result = m.end()
    for s in (waiting, full, listener):
        s.close()
    assert result["groups"] == []
    assert result["open"] == 1
    assert 0.9e9 < result["oldest_open_ns"] < 60e9


def test_tcp_counts_connections_and_refusals():
    listener = socket.create_server(("127.0.0.1", 0))
    nobody = socket.create_server(("127.0.0.1", 0))
    address = nobody.getsockname()
    nobody.close()
    m = Measurement("tcp", "-p", str(os.getpid()))
    m.attached()
    for _ in range(12):
        socket.create_connection(listener.getsockname()).close()
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
    time.sleep(0.5)
    result = m.end()
    listener.close()
    counts = {g["group"]: g["count"] for g in result["groups"]}
    assert counts == {"connect": 12, "connect failed": 3}
    assert [(p["pid"], p["count"]) for p in result["processes"]] == [(os.getpid(), 15)]


@pytest.fixture
def loop_device(tmp_path):
    path = tmp_path / "disk"
    path.write_bytes(bytes(8 << 20))
    done = subprocess.run(["losetup", "--find", "--show", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode:
        pytest.skip("no loop devices here: " + done.stderr.strip())
    yield done.stdout.strip()
    subprocess.run(["losetup", "--detach", done.stdout.strip()], check=True)


def test_block_counts_requests_by_device_and_operation(loop_device):
    m = Measurement("block")
    m.attached()
    for what, n in (("of", 25), ("if", 15)):
        for i in range(n):
            other = "if=/dev/zero" if what == "of" else "of=/dev/null"
            place = ("seek" if what == "of" else "skip") + f"={i}"
            direct = "oflag=direct" if what == "of" else "iflag=direct"
            subprocess.run(["dd", f"{what}={loop_device}", other, "bs=4096", "count=1", place, direct, "conv=notrunc", "status=none"],
                           check=True)
    time.sleep(0.5)
    result = m.end()
    name = os.path.basename(loop_device)
    written, read = group(result, f"{name} write"), group(result, f"{name} read")
    assert written["count"] == 25
    assert read["count"] >= 15, "dd, and readers of partition tables"
    check(written)
    check(read)


def test_every_script_is_shown_and_runs_under_culprit_trace():
    for kind in ("runqueue", "block", "fs", "tcp"):
        shown = subprocess.run([CULPRIT, "latency", kind, "--show-script"], stdout=subprocess.PIPE, text=True, check=True).stdout
        assert "@wait[" in shown and "@began[" in shown
        with tempfile.NamedTemporaryFile("w", suffix=".bt") as f:
            f.write(shown)
            f.flush()
            done = subprocess.run([CULPRIT, "trace", "-c", "true", f.name, "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  check=False)
            assert done.returncode == 0, done.stderr


def test_wrong_usage_says_what_there_is():
    done = subprocess.run([CULPRIT, "latency", "disk"], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "--help" in done.stderr
