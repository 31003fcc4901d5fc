# SPDX-License-Identifier: Apache-2.0
"""HotSpot in other processes than a plain `java`: loaded late by a native program, in a container, stripped, with
classes from an archive, with classes that are loaded and unloaded; and doctor's lines about HotSpot."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections import Counter

import pytest

from recorder import read, record, start_record
from statistics_of import binomial_interval
from test_hotspot import HERE, MODES, built, check_chains, check_order, java, profile, stacks_of, wait_until_warm


def libjvm(java):
    for path in ("lib/server/libjvm.so", "jre/lib/amd64/server/libjvm.so"):
        if os.path.exists(f"{java.root or ''}{java.home}/{path}"):
            return f"{java.home}/{path}"
    pytest.fail(f"{java.home} has no libjvm.so")


def stop(process):
    process.kill()
    process.communicate()


# ---- doctor ----

def doctor(culprit, pid):
    """Returns doctor's lines about the runtime. (tests/live/test_doctor.py tests those about traces.)"""
    said = subprocess.run([culprit, "doctor", "-p", str(pid)], capture_output=True, text=True,
                          check=True, timeout=60).stdout.splitlines()
    return [line for line in said if not line.startswith(("traces: ", "heap: "))]


def test_doctor(culprit, java):
    """doctor prints the release, where its offsets come from, and what profiles will lack."""
    for options in [], ["-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints"]:
        process = java.start("stopped", options=options)
        try:
            said = doctor(culprit, process.pid)
        finally:
            stop(process)
        print(java.version, *said, sep="\n   ")
        version = subprocess.run(java.command("java", "-version"), capture_output=True,
                                 text=True).stderr
        m = re.fullmatch(r"hotspot: HotSpot (\S+), offsets from its vmStructs \((\d+) fields, "
                         r"(\d+) stubs\)", said[0])
        assert m, said
        # version 8 prints "(build 1.8.0_504-8u504-ga-1-b01)"
        assert f"(build {m.group(1)}" in version, version
        assert int(m.group(2)) > 35 and (int(m.group(3)) >= 10) == (java.version < 22)
        missing = "\n".join(said[1:])
        assert all(line.startswith("hotspot: missing: ") for line in said[1:])
        assert ("exact lines" in missing) == (not options)
        assert ("names of single stubs" in missing) == (java.version >= 22)
        assert ("virtual thread" in missing) == (java.version >= 21)


def test_doctor_of_another_vm(culprit, tmp_path):
    """doctor says which tables a foreign libjvm.so lacks."""
    for name, text in ("jvm", "int x;"), ("main", "int pause(void); int main(void) { pause(); }"):
        (tmp_path / f"{name}.c").write_text(text)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "libjvm.so", tmp_path / "jvm.c"],
                   check=True)
    subprocess.run(["gcc", "-o", tmp_path / "main", tmp_path / "main.c", "-Wl,--no-as-needed",
                    tmp_path / "libjvm.so"], check=True)
    process = subprocess.Popen([tmp_path / "main"])
    try:
        for _ in range(600):
            with open(f"/proc/{process.pid}/maps", encoding="utf-8") as f:
                if "libjvm.so" in f.read():
                    break
            time.sleep(0.1)
        said = doctor(culprit, process.pid)
    finally:
        process.kill()
        process.wait()
    print(*said, sep="\n")
    assert said[0].startswith("hotspot: not supported: it has no vmStructs"), said


# ---- other processes ----

def wait_for(condition, what):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return int(f.read().rpartition(")")[2].split()[11])


def test_loaded_late(culprit, java, tmp_path):
    """A program loads libjvm.so by dlopen() during the recording."""
    include = os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("javac")))) + "/include"
    subprocess.run(["gcc", "-O1", "-g", f"-I{include}", f"-I{include}/linux", "-o",
                    f"{java.scratch}/late", f"{HERE}/hotspot/late.c", "-ldl"], check=True)
    at, out = java.place(), tmp_path / "out.speedscope.json"
    process = subprocess.Popen([*java.enter(), f"{at}/late", libjvm(java), "Chains",
                                f"{at}/libchains.so", f"-Djava.class.path={at}",
                                *java.native()],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    recorder = None
    try:
        assert process.stdout.readline() == "begins\n"
        recorder, _ = start_record(culprit, out, "-p", process.pid, "-d", 600, "-F", 499)
        for what in "native", "java":
            if what == "java":
                process.stdin.write("\n")
                process.stdin.flush()
                assert process.stdout.readline() == "ready\n", process.stderr.read()
            begin = cpu_ticks(process.pid)
            enough = begin + (50 if what == "native" else 800)
            wait_for(lambda limit=enough: cpu_ticks(process.pid) >= limit, f"no {what} code runs")
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(60) == 0 and process.poll() is None
    finally:
        for p in process, recorder:
            if p:
                stop(p)
    stacks, truncated = stacks_of(out)
    early = {s: n for s, n in stacks.items() if any(f.name == "work_natively" for f in s)}
    assert early and not any(f.name.startswith("Chains") for s in early for f in s)
    check_chains({s: n for s, n in stacks.items() if s not in early}, truncated,
                 f"{java.version} by dlopen")


def test_first_moments(culprit, java, tmp_path):
    """culprit knows a new process before its first sample, also its libjvm.so, which it loads by dlopen(), and also if a
    shell or chroot starts it."""
    command = java.command("java", "-version")
    n, cut, why = 0, 0, Counter()
    while n < 200:
        for started in command, ["sh", "-c", shlex.join(command) + "; true"]:
            record(culprit, tmp_path / "out.folded", "-F", "997", "--", *started)
            stacks = read(tmp_path / "out.folded")
            assert stacks
            n += sum(s.count for s in stacks)
            for s in stacks:
                if s.note:
                    cut += s.count
                    why[s.note, ";".join(s.frames[-3:])] += s.count
    print(f"{java.version}: {n} samples, {cut} truncated")
    assert cut <= binomial_interval(n, 0.01)[1], why.most_common(5)


CONTAINER = """
set -e
mount --rbind "$1" "$2"
cd "$2"
pivot_root . .
umount -l .
mount -t proc proc /proc
shift 2
exec "$@"
"""


def child_of(pid):
    for _ in range(600):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            children = f.read().split()
        if children:
            return int(children[0])
        time.sleep(0.1)
    pytest.fail("no process in the container")


def test_container(culprit, java, tmp_path):
    """The JVM runs with mounts, root and pids of its own, as process 1."""
    root = tmp_path / "root"
    root.mkdir()
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", CONTAINER, "sh",
             java.root or "/", str(root)]
    process = java.start(enter=enter)
    try:
        inside = child_of(process.pid)
        with open(f"/proc/{inside}/status", encoding="ascii") as f:
            assert re.search(r"^NSpid:\t\d+\t1$", f.read(), re.M)
        assert os.readlink(f"/proc/{inside}/ns/mnt") != os.readlink("/proc/self/ns/mnt")
        wait_until_warm(process)
        stacks, truncated = profile(culprit, inside, tmp_path)
    finally:
        stop(process)
    check_chains(stacks, truncated, f"{java.version} in a container")
    check_order(stacks)


def test_stripped(culprit, java, tmp_path):
    """culprit needs only the exported symbols of libjvm.so."""
    to = f"{java.scratch}/jdk"
    home, shared = f"{java.root or ''}{java.home}", libjvm(java)[len(java.home) + 1:]
    jre = "jre/" if shared.startswith("jre") else ""
    os.makedirs(os.path.dirname(f"{to}/{shared}"))
    shutil.copytree(f"{home}/{jre}bin", f"{to}/{jre}bin", symlinks=False)
    # Copy libjvm.so and link all other files, which the VM looks up relative to libjvm.so.
    for where, folders, names in os.walk(f"{home}/{jre}lib"):
        inside = where[len(home) + 1:]
        os.makedirs(f"{to}/{inside}", exist_ok=True)
        for name in names + [f for f in folders if os.path.islink(f"{where}/{f}")]:
            if f"{inside}/{name}" != shared:
                os.symlink(f"{java.home}/{inside}/{name}", f"{to}/{inside}/{name}")
    if os.path.exists(f"{home}/conf"):
        os.symlink(f"{java.home}/conf", f"{to}/conf")
    subprocess.run(["strip", "-s", "-o", f"{to}/{shared}", f"{home}/{shared}"], check=True)
    process = java.start(home=f"{java.inside(to)}/{jre}".rstrip("/"))
    try:
        with open(f"/proc/{process.pid}/maps", encoding="utf-8") as f:
            assert f"{to}/{shared}" in f.read()
        wait_until_warm(process)
        stacks, truncated = profile(culprit, process, tmp_path)
        said = doctor(culprit, process.pid)
    finally:
        stop(process)
    assert "offsets from its vmStructs" in said[0], said
    check_chains(stacks, truncated, f"{java.version} stripped")
    check_order(stacks)


def test_archive(culprit, java, tmp_path):
    """Classes from a mapped archive (CDS), whose methods lie outside of loaders' memory."""
    if java.version < 11:
        pytest.skip("archives of own classes came with 10")
    at = java.place()
    names = sorted(f[:-len(".class")] for f in os.listdir(java.scratch) if f.endswith(".class"))
    with open(f"{java.scratch}/classes", "w", encoding="ascii") as f:
        f.write("".join(f"{n}\n" for n in ["java/lang/Object", *names]))
    subprocess.run(["jar", "cf", f"{java.scratch}/chains.jar", "-C", java.scratch, "."], check=True)
    done = subprocess.run(java.command(
        "java", "-Xshare:dump", f"-XX:SharedClassListFile={at}/classes", *java.native(),
        f"-XX:SharedArchiveFile={at}/chains.jsa", "-cp", f"{at}/chains.jar"), capture_output=True,
        text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    process = java.start(classpath=f"{at}/chains.jar", options=[
        "-Xshare:on", f"-XX:SharedArchiveFile={at}/chains.jsa", f"-Xlog:class+load:file={at}/log"])
    try:
        wait_until_warm(process)
        stacks, truncated = profile(culprit, process, tmp_path)
    finally:
        stop(process)
    with open(f"{java.scratch}/log", encoding="utf-8") as f:
        assert re.search(r"\bChains source: shared objects file", f.read())
    check_chains(stacks, truncated, f"{java.version} from an archive")


# ---- classes that are loaded and unloaded ----

UNIT = re.compile(r"Unit(\d{5})\.(run|<init>|turn(\d{5}))$")
CHURN = ["Churn.lane", "Unit.<init>", "Unit.run", "Unit.turn", "Churn.leaf"]


def churn_fault(stack):
    """Returns why the stack's names cannot be those of its thread, or None; and how many are [stale]. A thread's root is
    lane0 to lane3, and the numbers of the classes that it runs are, modulo 4, the thread's."""
    part = [f.name for f in stack if f.file in ("Churn.java", "Unit00000.java")
            or f.name.startswith(("Unit", "Churn.")) or "[stale]" in f.name]
    stale = sum("[stale]" in n for n in part)
    lanes = [int(m.group(1)) for n in part if (m := re.fullmatch(r"Churn\.lane(\d)", n))]
    numbers = set()
    order = []
    for n in part:
        m = UNIT.match(n)
        if m:
            numbers.add(int(m.group(1)))
            if m.group(3) and m.group(3) != m.group(1):
                return f"{n} is no method", stale
            order.append(CHURN.index("Unit.turn" if m.group(3) else f"Unit.{m.group(2)}"))
        elif n in CHURN:
            order.append(CHURN.index(n))
        elif not re.match(r"Churn(\$Loader)?\.(lane\d|main|numbered|define|leaf|<init>)$", n) and \
                "[stale]" not in n and not re.match(r"Churn\$\$Lambda|Churn\$Loader\.", n):
            return f"{n} does not exist", stale
    if len(numbers) > 1:
        return f"two classes at once: {numbers}", stale
    if numbers and lanes and numbers.pop() % 4 != lanes[0]:
        return "the class of another thread", stale
    if order != sorted(set(order)):
        return "frames out of order", stale
    return None, stale


@pytest.mark.parametrize("mode", ["tiered", "C1", "C2", "interpreter", "small"])
def test_stale(culprit, java, mode, tmp_path):
    """While methods and code are freed and made anew, no stack has the name of a method that was not running."""
    options = {**MODES, "small": ["-XX:ReservedCodeCacheSize=3m", "-XX:InitialCodeCacheSize=3m"]}[mode]
    process = java.start(main="Churn", options=["-XX:+UseSerialGC", "-Xmx64m", *options])
    wrong, units, stale, total, truncated = Counter(), Counter(), 0, 0, 0
    try:
        for _ in range(6): # until enough classes were loaded and unloaded, which takes longer on a busy machine
            stacks, cut = profile(culprit, process, tmp_path, 8)
            assert process.poll() is None, process.stderr.read()
            truncated += cut
            total += sum(stacks.values())
            for stack, n in stacks.items():
                why, gone = churn_fault(stack)
                stale += n if gone else 0
                units.update({m.group(1) for f in stack if (m := UNIT.match(f.name))})
                if why:
                    wrong[why, tuple(f.name for f in stack)] += n
            if len(units) >= 20:
                break
    finally:
        stop(process)
    print(f"{java.version} {mode}: {total} samples, {truncated} truncated, {len(units)} classes, "
          f"{stale} with [stale], {sum(wrong.values())} wrong")
    assert not wrong, "\n".join(f"{n} × {why}: {';'.join(s)}" for (why, s), n in
                                wrong.most_common(3))
    assert len(units) >= 20
