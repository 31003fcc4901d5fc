# SPDX-License-Identifier: Apache-2.0
"""Threads of Python, Node, Java and Go that wait: their own functions are in the stacks, with what they wait for, and of
Python's GIL and Java's monitors who has them.
"""

import contextlib
import glob
import os
import shutil
import socket
import subprocess
import sys
import threading

import pytest

from pprof import samples
from recorder import record
from test_hotspot import VERSIONS, Java, homes
from test_python import BUILDS, Python, find

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


# ---- owners ----

# runtime: {thread's group: (functions in which its holder has the lock, those in which it does not)}
HOLDERS = {
    "python": {"": (["work_with_gil"], ["sleep_outside"])},
    "java": {"": (["work_in_monitor", "sleep_in_monitor"], ["sleep_outside"]),
             "other-": (["work_in_monitor", "sleep_in_monitor"], ["sleep_outside"])},
}


def threads_of(pid, said):
    """{tid: name}: as the program has said, by the ids by which it knows its threads; else as the kernel knows them."""
    names = {}
    for path in glob.glob(f"/proc/{pid}/task/*/status"):
        with open(path, encoding="ascii") as f:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in f)
        names[path.split("/")[4]] = said.get(fields["NSpid"].split()[-1], fields["Name"])
    return names


def judge_owners(got, names, runtime):
    by_group, by_waiter, held, known = {}, {}, {}, {group: f"{group}holder" for group in HOLDERS[runtime]}
    for s in got:
        name, value, wait = names.get(str(s.labels["tid"]), ""), s.values[-1], s.labels["wait"]
        group = name.rstrip("0123456789").removesuffix("waiter").removesuffix("holder")
        if group not in known or group == name:
            continue
        lock, holds = s.labels.get("lock"), s.labels.get("holds")
        assert not holds or lock != holds, (name, s.labels)  # nobody waits for what he has
        if "waiter" in name and wait == "lock":
            key = lock, names.get(s.labels.get("owner"))
            by_group.setdefault(group, {}).setdefault(key, 0)
            by_group[group][key] += value
            by_waiter.setdefault(group, {}).setdefault(name, 0)
            by_waiter[group][name] += value
        if "holder" in name:
            where = next((f.rpartition(".")[2] for f in s.functions
                          if f.rpartition(".")[2] in sum(HOLDERS[runtime][group], [])), "")
            # After a sleep it takes the lock again before the function returns.
            if where != "sleep_outside" or wait == "sleep":
                held.setdefault((group, where), {}).setdefault(holds, 0)
                held[group, where][holds] += value
    for group, holder in known.items():
        total = sum(by_group[group].values())
        (lock, _), _ = max(by_group[group].items(), key=lambda x: x[1])
        print(runtime, group, {k: f"{v / 1e6:.1f} ms" for k, v in by_group[group].items()}, file=sys.stderr)
        assert total > 0.5 * SECONDS * 1e9
        assert by_group[group].get((lock, holder), 0) > 0.95 * total, by_group
        # Others of the group have it for moments, and threads of the other group never.
        assert {o for _, o in by_group[group]} <= {None, holder, *(f"{group}waiter{i}" for i in range(3))}
        inside, outside = HOLDERS[runtime][group]
        holding = 0
        for where in inside:
            print(where, held[group, where], file=sys.stderr)
            holding += held[group, where].get(lock, 0)
            # The GIL's struct has a mutex, too.
            assert all(not h or abs(int(h, 16) - int(lock, 16)) < 128 for h in held[group, where]), (where, held)
        # Waiters that are ready to run, and look at the lock when they do, are not blocked: on a busy machine often.
        waited = by_waiter[group].values()
        assert 0.8 * max(waited) - 1e8 < holding < 1.1 * sum(waited) + 1e8, (holding, by_waiter)
        for where in outside:
            print(where, held[group, where], file=sys.stderr)
            assert set(held[group, where]) == {None}, (where, held)
    assert len({max(waits, key=waits.get)[0] for waits in by_group.values()}) == len(known)


def judge_program(culprit, out, command, runtime):
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as p:
        try:
            said = {}
            for line in p.stdout:
                if line == "ready\n":
                    break
                name, own_id = line.split()
                said[own_id] = name
            pid = p.pid
            if command[0] == "unshare":
                with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
                    pid = int(f.read())
            names = threads_of(pid, said)
            record(culprit, out, "--wall", "-p", pid, "-d", SECONDS)
        finally:
            subprocess.run(["kill", "-9", str(pid)], check=False)
            p.kill()
    judge_owners(list(samples(out)), names, runtime)


# In a namespace of processes, locks keep other ids of threads than the kernel's. /proc stays the old one: in a chroot unshare cannot mount another.
CONTAINER = ["unshare", "--pid", "--fork"]


@pytest.mark.sample("*")
@pytest.mark.parametrize("runtime, before", [("python", []), ("java", CONTAINER)], ids=["python", "java"])
def test_owners(culprit, tmp_path, runtime, before):
    tool = {"python": "/usr/bin/python3", "java": "javac"}[runtime]
    if not shutil.which(tool):
        pytest.skip(f"no {tool}")
    program = [tool, f"{HERE}/gil.py"]
    if runtime == "java":
        subprocess.run([tool, "-d", tmp_path, f"{HERE}/Monitors.java"], check=True, timeout=120)
        program = ["java", "-cp", str(tmp_path), "Monitors"]
    judge_program(culprit, tmp_path / "owners.pb.gz", before + program, runtime)


@pytest.mark.parametrize("version", VERSIONS)
def test_owners_of_monitors(culprit, tmp_path, version):
    if not homes(version):
        pytest.skip(f"no Java {version}")
    java = Java(version, homes(version)[0])
    try:
        subprocess.run(["javac", "--release", "8", "-d", java.scratch, f"{HERE}/Monitors.java"], check=True, timeout=120)
        program = java.command("java", "-cp", java.inside(java.scratch), "Monitors")
        judge_program(culprit, tmp_path / "owners.pb.gz", program, "java")
    finally:
        java.close()


# Threads of 3.7 and before do not know their ids; waits for a condition variable of musl do not show which one.
GILS = [b for b in BUILDS if b not in ("3.6", "3.7") and not b.endswith(("t", "-musl"))]


@pytest.mark.parametrize("build", GILS)
def test_owners_of_gil(culprit, tmp_path, build):
    python = Python(find(build), tmp_path, build)
    script = shutil.copy(f"{HERE}/gil.py", python.scratch)
    judge_program(culprit, tmp_path / "owners.pb.gz", [*python.command, python.inside(script)], "python")
