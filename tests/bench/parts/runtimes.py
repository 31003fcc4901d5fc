# SPDX-License-Identifier: Apache-2.0
"""Samples of language runtimes, and the time until a process of one can be unwound."""

import glob
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

from .common import RUNS, TOP, note, start_record
from .bpf import bpf_empty, bpf_run, rates


def runtime_programs(folder):
    """Returns {runtime: (command that spins below 32 frames, its comm)} of the installed runtimes."""
    here = os.path.join(TOP, "tests/bench")
    found = {}
    if shutil.which("/usr/bin/python3"):
        path = os.path.realpath("/usr/bin/python3")
        found["python"] = [path, f"{here}/frames.py", "21"], os.path.basename(path)
    if shutil.which("node"):
        found["v8"] = [os.path.realpath(shutil.which("node")), f"{here}/frames.js", "13"], "node"
    if shutil.which("javac"):
        subprocess.run(["javac", "-d", folder, f"{here}/Frames.java"], check=True)
        found["hotspot"] = ["java", "-cp", folder, "Frames", "25"], "java"
    for name in ("python", "v8", "hotspot"):
        if name not in found:
            print(f"{name}: not here, not measured")
    return found


def runtimes():
    """Like part bpf, with a program of each language runtime: about 32 frames to the thread's entry, including native
    frames."""
    with tempfile.TemporaryDirectory() as d:
        for name, (command, comm) in runtime_programs(d).items():
            for hz in rates():
                empty = statistics.median(bpf_empty(hz) for _ in range(RUNS))
                costs = []
                for _ in range(RUNS):
                    per, depth, n = bpf_run(hz, comm, command)
                    costs.append(per - empty)
                note(f"BPF: one sample, {depth:g} frames of {name}, net, at {hz} Hz",
                     statistics.median(costs), "ns", f"median of {RUNS} runs, {n}")


def attach():
    """Times that `record --verbose` prints for two processes of each runtime: the first has a new binary (learned and
    attached), the second a known one (attached)."""
    with tempfile.TemporaryDirectory() as d:
        for name, (command, _) in runtime_programs(d).items():
            unknown, known = [], []
            for _ in range(4 * max(RUNS, 3)): # a busy machine's log leaves lines out
                p = start_record(f"{d}/o.folded", "-v", "-F", 20, "-d", 8)
                while not is_sampling(p.pid) and p.poll() is None:
                    time.sleep(0.05)
                # Another file than all others that run: a copy, for Java of the library.
                own = fresh_copy(name, command, d)
                two = [subprocess.Popen(own, env={**os.environ, "PYTHONHOME": "/usr"})]
                time.sleep(1.5)
                two.append(subprocess.Popen(own, env={**os.environ, "PYTHONHOME": "/usr"}))
                err = p.communicate()[1]
                for q in two:
                    q.kill()
                    q.wait()
                learned = re.findall(rf"{re.escape(d)}/fresh\S*: {name} learned in ([\d.]+) ms", err)
                took = [re.findall(rf"pid {q.pid}: {name} attached in ([\d.]+) ms", err)
                        for q in two]
                if len(learned) == 1 and all(took):
                    unknown.append(float(learned[0]) + max(map(float, took[0])))
                    known.append(max(map(float, took[1])))
                if len(known) == max(RUNS, 3):
                    break
            if not known:
                raise OSError(f"{name} was not attached")
            how = f"median of {len(known)}, wall clock"
            note(f"{name}: attaching to a process of an unknown binary", statistics.median(unknown),
                 "ms", how, 200)
            note(f"{name}: attaching to a process of a known binary", statistics.median(known),
                 "ms", how, 5)


def is_sampling(pid):
    """Tells whether the recorder has loaded its BPF programs, which it attaches next."""
    return any("bpf-prog" in os.readlink(f) for f in glob.glob(f"/proc/{pid}/fd/*") if os.path.lexists(f))


def fresh_copy(name, command, folder):
    """Returns the command with a copy of its runtime in folder/fresh, which no other process runs."""
    fresh = f"{folder}/fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    if name != "hotspot":
        os.mkdir(fresh)
        return [shutil.copy(command[0], fresh), *command[1:]]
    java = os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("java"))))
    shutil.copytree(java, fresh, symlinks=False, ignore=shutil.ignore_patterns(
        "*.jmod", "*.zip", "legal", "docs", "man", "demo"), ignore_dangling_symlinks=True)
    return [f"{fresh}/bin/java", *command[1:]]
