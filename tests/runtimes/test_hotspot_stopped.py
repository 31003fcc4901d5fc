# SPDX-License-Identifier: Apache-2.0
"""Java's frames of threads whose stacks do not change, compared with the JVM's own dumps: `jcmd Thread.print`
(jstack) for platform threads, `Thread.dump_to_file` for virtual threads and carriers."""

import re
import subprocess
from collections import Counter

import pytest

from test_hotspot import built, java, profile

PLATFORM = ["plain", "alternating", "compiled", "mixed"]
VIRTUAL = ["virtual", "parked"]
ALTERNATIONS = 104 # Stopped.java
# Methods that the JVM leaves out of dumps (@Hidden), and hidden classes.
HIDDEN = re.compile(r"\$\$Lambda|LambdaForm\$|\$Holder\.|\.VirtualThread\$VThreadContinuation\$1\.run$|"
                    r"\.Continuation\.enter(0|Special)?$|Thread\.runWith$")


def frames_in(text):
    """Returns (function, file, line) of a dump, leaf first. In names, module or loader are before a "/", and the address
    of a hidden class is after one."""
    out = []
    for m in re.finditer(r"^\s+(?:at )?([^\s(]+)\(([^()]*)\)$", text, re.M):
        name = re.sub(r"^(?:[\w.@-]*/)+(?=[A-Za-z])", "", m.group(1))
        file, _, line = m.group(2).rpartition("/")[2].partition(":")
        native = file == "Native Method"
        out.append((name, None if native else file, int(line or 0)))
    return out


def frames_of(text, name):
    """Returns a thread's frames in the text of `jcmd Thread.print`."""
    return frames_in(re.search(rf'^"{name}" .*?(?=^\s*$)', text, re.S | re.M).group(0))


def visible(frames):
    return tuple(f for f in frames if not HIDDEN.search(f[0]))


def java_part(stack, theirs):
    """Returns the Java frames, leaf first, in the form of the JVM's dumps: a native method has no line."""
    native = {n for n, file, _ in theirs if not file}
    return visible((f.name, None, 0) if f.name in native else tuple(f)
                   for f in reversed(stack) if f.file and f.file.endswith(".java"))


def difference(ours, theirs):
    """Tells where the most frequent stack first differs from the JVM's, leaf first."""
    got = max(ours, key=ours.get) if ours else ()
    at = next((i for i, (a, b) in enumerate(zip(got, theirs)) if a != b),
              min(len(got), len(theirs)))
    return f"{len(ours)} stacks; from {at} on {got[at:at + 3]}, not {theirs[at:at + 3]}"


@pytest.mark.parametrize("mode", ["interpreter", "tiered", "C1", "C2"])
def test_platform_threads(culprit, java, mode, tmp_path):
    options = {"interpreter": ["-Xint"], "C1": ["-XX:TieredStopAtLevel=1"],
               "C2": ["-XX:-TieredCompilation"], "tiered": []}[mode]
    process = java.start(",".join(PLATFORM), options=options, main="Stopped")
    try:
        stacks, truncated = profile(culprit, process, tmp_path)
        text = subprocess.run(java.command("jcmd", str(process.pid), "Thread.print"),
                              capture_output=True, text=True, timeout=60, check=True).stdout
    finally:
        process.kill()
        process.wait()
    for name in PLATFORM:
        theirs = visible(frames_of(text, name))
        assert theirs[0][0] == "Stopped.spin" and theirs[-1][0] == "java.lang.Thread.run", theirs
        ours = Counter()
        for stack, n in stacks.items():
            part = java_part(stack, theirs)
            if any(f[0] == f"Stopped.{name}" for f in part):
                ours[part] += n
        print(f"{java.version} {mode} {name}: {sum(ours.values())} samples, {len(theirs)} frames, "
              f"{len(ours)} different stacks")
        assert set(ours) == {theirs}, difference(ours, theirs)
    assert truncated <= 0.02 * sum(stacks.values())


def test_alternating(culprit, java, tmp_path):
    """A stack that alternates between Java and C has all frames in their order, up to the thread's entry."""
    process = java.start("alternating", main="Stopped")
    try:
        stacks, truncated = profile(culprit, process, tmp_path)
    finally:
        process.kill()
        process.wait()
    seen = 0
    for stack, n in stacks.items():
        names = [f.name for f in stack]
        if "Stopped.alternating" not in names:
            continue
        seen += n
        steps = [n for n in names if n in ("Stopped.down", "Stopped.cross", "Java_Stopped_cross",
                                           "Stopped.spin", "Java_Stopped_spin")]
        one = ["Stopped.down", "Stopped.cross", "Java_Stopped_cross"]
        assert steps == one * ALTERNATIONS + ["Stopped.down", "Stopped.spin", "Java_Stopped_spin"]
    print(f"{java.version}: {seen} samples of {3 * ALTERNATIONS} frames and libjvm.so's")
    assert seen >= 10
    assert truncated <= 0.02 * sum(stacks.values()) # the first samples, before culprit knows the process


def dumped(text):
    """Returns {name of a frame: the threads that have it} of `jcmd Thread.dump_to_file`."""
    out = {}
    for section in re.split(r"^#\d+ ", text, flags=re.M)[1:]:
        frames = frames_in(section)
        for name in {n for n, _, _ in frames}:
            out.setdefault(name, []).append(frames)
    return out


@pytest.mark.parametrize("mode", ["interpreter", "tiered"])
def test_virtual_threads(culprit, java, mode, tmp_path):
    if java.version < 21:
        pytest.skip("no virtual threads before 21")
    process = java.start(",".join(VIRTUAL), main="Stopped",
                         options=["-Xint"] if mode == "interpreter" else [])
    try:
        stacks, truncated = profile(culprit, process, tmp_path)
        to = f"{java.scratch}/threads.txt"
        said = subprocess.run(java.command("jcmd", str(process.pid), "Thread.dump_to_file",
                                           java.inside(to)),
                              capture_output=True, text=True, timeout=60)
        assert said.returncode == 0, said.stdout + said.stderr
        with open(to, encoding="utf-8") as f:
            theirs = dumped(f.read())
    finally:
        process.kill()
        process.wait()
    carriers = {visible(c) for c in theirs["java.util.concurrent.ForkJoinPool.runWorker"]
                if c[0][0] == "jdk.internal.vm.Continuation.run"}
    assert carriers
    for name in VIRTUAL:
        whole = visible(theirs[f"Stopped.{name}"][0])
        assert whole[0][0] == "Stopped.spin" and whole[-1][0] == "java.lang.VirtualThread.run"
        ours = Counter()
        for stack, n in stacks.items():
            part = java_part(stack, whole)
            at = [i for i, f in enumerate(part) if f[0] == "jdk.internal.vm.Continuation.run"]
            if at and part[0][0] == "Stopped.spin" and \
                    (name == "virtual") == any(f[0] == "Stopped.virtual" for f in part):
                assert part[at[0]:] in carriers, part
                ours[part[:at[0]]] += n
        print(f"{java.version} {mode} {name}: {sum(ours.values())} samples, {len(whole)} frames, of "
              f"which are shown {[len(part) for part in ours]}")
        assert sum(ours.values()) >= 10
        if name == "virtual":
            assert set(ours) == {whole}, difference(ours, whole)
        else: # the other frames are in the heap
            assert all(len(part) >= 2 and part == whole[:len(part)] for part in ours), ours
    assert truncated <= 0.02 * sum(stacks.values())
