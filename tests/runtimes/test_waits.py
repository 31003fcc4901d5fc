# SPDX-License-Identifier: Apache-2.0
"""Threads of Python, Node, Java and Go that wait: their own functions are in the stacks, with what they wait for."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading

import pytest

from pprof import samples
from recorder import record

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "waits")
SECONDS = 3

# runtime: {function: what it waits for}; each waits most of the time
EXPECTED = {
    "python": {"wait_lock": "lock", "wait_socket": "network", "wait_sleep": "sleep"},
    "node": {"wait_lock": "lock", "wait_socket": "network", "wait_sleep": "lock"},
    "java": {"wait_monitor": "lock", "wait_lock": "lock", "wait_socket": "network", "wait_sleep": "sleep"},
    "go": {"wait_lock": "lock", "wait_socket": "network", "wait_sleep": "sleep"},
}


def command(runtime, folder):
    tool = {"python": "/usr/bin/python3", "node": "node", "java": "javac", "go": "go"}[runtime]
    if not shutil.which(tool):
        pytest.skip(f"no {tool}")
    if runtime == "python":
        return [tool, f"{HERE}/waits.py"]
    if runtime == "node":
        return [tool, f"{HERE}/waits.js"]
    if runtime == "java":
        subprocess.run([tool, "-d", folder, f"{HERE}/Waits.java"], check=True, timeout=120)
        return ["java", "-cp", folder, "Waits"]
    subprocess.run([tool, "build", "-o", folder / "waits", f"{HERE}/waits.go"], check=True, timeout=300)
    return [folder / "waits"]


@pytest.mark.sample("*")
@pytest.mark.parametrize("runtime", EXPECTED)
def test_own_frames(culprit, tmp_path, runtime):
    out = tmp_path / "waits.pb.gz"
    here, there = socket.socketpair()
    there.setblocking(False)  # not all programs read
    over = threading.Event()

    def send():
        while not over.wait(0.02):
            with contextlib.suppress(BlockingIOError):
                there.send(b"x")

    program = list(map(str, command(runtime, tmp_path)))
    with here, there, subprocess.Popen(program, stdin=here, stdout=subprocess.PIPE, text=True) as p:
        sender = threading.Thread(target=send)
        sender.start()
        try:
            assert p.stdout.readline() == "ready\n"
            record(culprit, out, "--off-cpu", "-p", p.pid, "-d", SECONDS)
        finally:
            over.set()
            sender.join()
            p.kill()
    got = list(samples(out))
    for function, category in EXPECTED[runtime].items():
        waited = {}
        for s in got:
            if any(function == f.replace("::", ".").rpartition(".")[2] for f in s.functions):
                waited[s.labels["wait"]] = waited.get(s.labels["wait"], 0) + s.values[-1]
        print(runtime, function, waited, file=sys.stderr)
        assert waited.get(category, 0) > 0.3 * SECONDS * 1e9, (function, waited)
        # Locks are taken again after a short sleep, or many.
        others = sum(v for k, v in waited.items() if k not in (category, "runnable", "sleep"))
        assert others < 0.5 * waited[category], (function, waited)
