# SPDX-License-Identifier: Apache-2.0
"""Java's frames: exact chains of names, files and lines, on each installed version of HotSpot.

The system's javac compiles the workload once, for Java 8. A version that is in a root of its own runs with chroot.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter, namedtuple

import pytest

from recorder import Completeness, read, record

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.expanduser("~/.cache/culprit-runtimes")
SECONDS = os.environ.get("CULPRIT_RUNTIME_SECONDS", "5")
VERSIONS = [8, 11, 17, 21, 25, 26, 27, 28]
MODES = {
    "interpreter": ["-Xint"],
    "C1": ["-XX:TieredStopAtLevel=1"],
    "C2": ["-XX:-TieredCompilation"],
    "tiered": [],
}
COLLECTORS = ["Serial", "Parallel", "G1", "Z", "Shenandoah"]

Frame = namedtuple("Frame", "name file line")


def homes(version):
    patterns = [f"/usr/lib/jvm/java-{version}-openjdk-*", f"/usr/lib/jvm/temurin-{version}-jdk-*",
                f"{CACHE}/*/usr/lib/jvm/java-{version}-openjdk-*", f"{CACHE}/jdk-{version}*"]
    return [h for p in patterns for h in sorted(glob.glob(p))
            if os.path.exists(f"{h}/bin/java") or os.path.exists(f"{h}/jre/bin/java")]


class Java:
    """One JDK, which may be in a root of its own, and the workload in a folder of that root."""

    def __init__(self, version, home):
        self.version = version
        root = re.match(rf"({re.escape(CACHE)}/[^/]+)/usr/", home)
        self.root = root.group(1) if root else None
        self.home = home[len(self.root):] if self.root else home
        self.scratch = tempfile.mkdtemp(prefix="culprit-java-", dir=f"{self.root or ''}/tmp")
        if self.root and not os.path.ismount(f"{self.root}/proc"):
            subprocess.run(["mount", "-t", "proc", "proc", f"{self.root}/proc"], check=True)

    def close(self):
        shutil.rmtree(self.scratch)

    def inside(self, path):
        return path[len(self.root):] if self.root else path

    def enter(self):
        return ["chroot", self.root] if self.root else []

    def command(self, tool, *args):
        return [*self.enter(), f"{self.home}/bin/{tool}", *args]

    def native(self):
        """Returns the option that lets Java load the tests' libraries without a warning."""
        return ["--enable-native-access=ALL-UNNAMED"] if self.version >= 24 else []

    def place(self):
        """Copies the workloads to the JDK's root; returns the folder as the JDK sees it."""
        for f in glob.glob(f"{BUILT[0]}/*"):
            shutil.copy(f, self.scratch)
        return self.inside(self.scratch)

    def start(self, *args, options=(), main="Chains", classpath=None, home=None, enter=None):
        """Starts the workload and returns its process once it runs."""
        at = self.place()
        p = subprocess.Popen([*(self.enter() if enter is None else enter),
                              f"{home or self.home}/bin/java", *options, *self.native(), "-cp", classpath or at,
                              main, f"{at}/lib{LIBRARIES.get(main, 'chains')}.so", *args],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if p.stdout.readline() != "ready\n":
            p.kill()
            reason = p.communicate()[1]
            if "Unrecognized VM option" in reason or "not supported" in reason:
                pytest.skip(f"this build has no {options}")
            pytest.fail(reason)
        return p


def wait_until_warm(process):
    """Waits until the hot code of Chains is compiled. Then its main thread ends."""
    assert process.stdout.readline() == "warm\n"


BUILT = []
# The native library of a workload; the default is that of Chains.
LIBRARIES = {"Stopped": "stopped", "Mixed": "mixed"}


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Compiles the workloads' classes and their native libraries."""
    if not shutil.which("javac") or not shutil.which("gcc"):
        pytest.skip("no javac or no gcc (tools/install test)")
    to = tmp_path_factory.mktemp("chains")
    javac = os.path.realpath(shutil.which("javac"))
    include = os.path.join(os.path.dirname(os.path.dirname(javac)), "include")
    subprocess.run([javac, "-g", "-nowarn", "-Xlint:-options", "--release", "8", "-d", to,
                    *glob.glob(f"{HERE}/hotspot/*.java")], check=True)
    for name in "chains", "stopped", "mixed":
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", f"-I{include}", f"-I{include}/linux",
                        "-o", to / f"lib{name}.so", f"{HERE}/hotspot/{name}.c", "-ldl"], check=True)
    BUILT[:] = [str(to)]
    return to


@pytest.fixture(params=VERSIONS)
def java(request, built):
    found = homes(request.param)
    if not found:
        pytest.skip(f"no OpenJDK {request.param} in /usr/lib/jvm or {CACHE}")
    j = Java(request.param, found[0])
    yield j
    j.close()


def profile(culprit, process, tmp_path, seconds=SECONDS):
    """Records a process for some seconds. Returns stacks_of() the recording."""
    out = tmp_path / "out.speedscope.json"
    record(culprit, out, "-p", getattr(process, "pid", process), "-d", seconds, "-F", "499")
    return stacks_of(out)


def stacks_of(out):
    """Returns {stack of Frame, leaf last: count}, and the number of truncated samples."""
    data = json.loads(out.read_text())
    frames = [Frame(f["name"].removesuffix("_[k]"), f.get("file"), f.get("line")) for f in data["shared"]["frames"]]
    stacks = Counter()
    for p in data["profiles"]:
        for stack, n in zip(p["samples"], p["weights"]):
            stacks[tuple(frames[i] for i in stack)] += n
    whole = {s: n for s, n in stacks.items() if not any("[truncated" in f.name for f in s)}
    return whole, sum(stacks.values()) - sum(whole.values())


def marked_lines():
    lines = {}
    with open(f"{HERE}/hotspot/Chains.java", encoding="utf-8") as f:
        for number, text in enumerate(f, 1):
            for name in re.findall(r"@(\w+)", text):
                lines.setdefault(name, set()).add(number)
    return lines


# The chain of each thread in frames of Chains.java: (class after Chains, method, mark of its line).
START = [("$N", "run", "run"), ("", "loop", "loop"), ("$N", "run", "work")]
CHAINS = {
    "interface": [("", "viaInterface", None), ("$N", "area", None), ("", "leaf", None)],
    "deep": [*[("", "deep", "deep")] * 40, ("", "deep", "bottom"), ("", "leaf", None)],
    "sort": [("", "viaSort", None), ("$ByKey", "compare", "bridge"), ("$ByKey", "compare", None),
             ("", "leaf", None)],
    "lock": [("", "viaLock", None), ("", "leaf", None)],
    "throw": [("", "viaThrow", None), ("", "thrower", None), ("", "leaf", None)],
    "reflection": [("", "viaReflection", None), ("", "leaf", None)],
    "native": [("", "viaNative", None), ("", "nativeOuter", "native"), ("", "between", None),
               ("", "nativeInner", "native"), ("", "callback", None), ("", "leaf", None)],
    "kernel": [("", "viaKernel", None)],
    "allocation": [("", "viaAllocation", None), ("", "leaf", None)],
}


def fits(part, chain, lines):
    """Tells whether the frames are a beginning of the chain. All but the last are at a call, whose line is known."""
    if len(part) > len(chain):
        return False
    for i, (frame, (inner, method, mark)) in enumerate(zip(part, chain)):
        inner = r"\$\w+" if inner == "$N" else re.escape(inner)
        if not re.fullmatch(rf"Chains{inner}\.{method}", frame.name):
            return False
        known = lines.get(mark or method, set())
        if i + 1 < len(part) and mark != "native" and frame.line not in known:
            return False
    return True


def java_part(stack):
    return [f for f in stack if f.file == "Chains.java" or f.name.startswith("Chains")]


def shown(wrong):
    """Returns the most frequent wrong stacks, shortened."""
    return "\n".join(f"{n} × {len(part)}: " + ";".join(f"{f.name}:{f.line}" for f in
                                                      (*part[:5], *part[max(5, len(part) - 5):]))
                     for n, part in sorted(wrong, key=lambda w: -w[0])[:5])


def check_chains(stacks, truncated, what):
    lines = marked_lines()
    seen, wrong = Counter(), []
    for stack, n in stacks.items():
        part = java_part(stack)
        # Initialisers run at the start; their callers are in the chain.
        while part and part[-1].name.endswith((".<init>", ".<clinit>")):
            part = part[:-1]
        if part and part[0].name == "Chains.main":
            continue
        # The outer frames of a virtual thread may be in the heap since it was parked.
        first = [0, 1, 2] if any("Continuation" in f.name for f in stack) else [0]
        found = [c for c, chain in CHAINS.items()
                 if any(fits(part, START[k:] + chain, lines) for k in first)]
        if not found:
            wrong.append((n, part))
        for c in found:
            if len(part) == len(START + CHAINS[c]):
                seen[c] += n
    total = sum(stacks.values())
    n_wrong = sum(n for n, _ in wrong)
    print(f"{what}: {total} samples, {truncated} truncated, {n_wrong} wrong, "
          f"whole chains: {dict(seen)}")
    assert not wrong, f"{len(wrong)} wrong chains, such as {shown(wrong)}"
    assert set(seen) == set(CHAINS), f"never seen whole: {set(CHAINS) - set(seen)}"
    assert truncated <= 0.02 * (total + truncated)


def check_order(stacks):
    """Checks the order: native frames between the Java frames that call them and that they call, kernel frames last."""
    native = kernel = 0
    for stack in stacks:
        names = [f.name for f in stack]
        if "Chains.callback" in names:
            expected = ["JavaCalls::call_helper", "Chains.viaNative", "Chains.nativeOuter",
                        "Java_Chains_nativeOuter", "call_back", "JavaCalls::call_helper",
                        "Chains.between", "Chains.nativeInner", "Java_Chains_nativeInner",
                        "call_back", "JavaCalls::call_helper", "Chains.callback"]
            left = iter(names)
            # libjvm.so of some packages has no names.
            assert all(any(n.startswith(e) or (e.startswith("JavaCalls") and "libjvm.so+" in n)
                           for n in left) for e in expected), names
            native += 1
        if "Chains.viaKernel" in names and "ksys_read" in names:
            in_order = [names.index("Chains.viaKernel"), names.index("java.io.FileInputStream.read"),
                        names.index("ksys_read")]
            assert in_order == sorted(in_order), names
            kernel += 1
    assert native and kernel


@pytest.mark.parametrize("mode", MODES)
def test_chains(culprit, java, mode, tmp_path):
    process = java.start(options=MODES[mode])
    try:
        wait_until_warm(process)
        stacks, truncated = profile(culprit, process, tmp_path)
    finally:
        process.kill()
        process.wait()
    check_chains(stacks, truncated, f"{java.version} {mode}")
    check_order(stacks)


@pytest.mark.parametrize("collector", COLLECTORS)
def test_collectors(culprit, java, collector, tmp_path):
    process = java.start(options=["-Xmx64m", "-XX:+UnlockExperimentalVMOptions",
                                  f"-XX:+Use{collector}GC"])
    try:
        wait_until_warm(process)
        stacks, truncated = profile(culprit, process, tmp_path)
    finally:
        process.kill()
        process.wait()
    check_chains(stacks, truncated, f"{java.version} {collector}")


def fits_from_native(part, lines):
    """Tells whether the frames fit after a native call: a walk that ends at the first native frame has no earlier
    ones."""
    chain = START + CHAINS["native"]
    return any(fits(part, chain[i + 1:], lines) for i, (_, _, mark) in enumerate(chain)
               if mark == "native")


@pytest.mark.parametrize("mode", MODES)
def test_every_instruction(culprit, java, mode):
    """Tests the walker after each instruction of each chain, not only where samples fall."""
    stepper = os.path.join(os.path.dirname(culprit), "../tests/tools/step_java")
    assert os.access(stepper, os.X_OK), f"{stepper} is not there: make"
    process = java.start(options=MODES[mode])
    try:
        wait_until_warm(process)
        done = subprocess.run([stepper, str(process.pid), "8", "4000", *CHAINS,
                               "ForkJoi"], # carriers of virtual threads: ForkJoinPool-1-, from 26 on ForkJoi..rker-1
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert process.poll() is None, "it died of being stepped"
    finally:
        process.kill()
        process.wait()
    lines, n, cut, wrong = marked_lines(), 0, 0, []
    for seen in map(json.loads, done.stdout.splitlines()):
        part = java_part([Frame(*f) for f in seen["frames"]])
        n += seen["n"]
        if seen["stop"] != "native":
            cut += seen["n"]
            continue
        first = [0, 1, 2] if any("Continuation" in f[0] for f in seen["frames"]) else [0]
        if seen.get("missed") or not (fits_from_native(part, lines) or any(
                fits(part, START[k:] + c, lines) for c in CHAINS.values() for k in first)):
            wrong.append((seen["n"], part, seen["state"]))
    print(f"{java.version} {mode}: {n} instructions, {cut} truncated, "
          f"{sum(w[0] for w in wrong)} wrong")
    assert n >= 1000, done.stderr
    assert not wrong, f"{shown([w[:2] for w in wrong])}\n{wrong[0][2]}"
    assert cut <= 0.001 * n


def frames_of_thread(text, name):
    """Returns a thread's (function, file, line) in the text of `jcmd Thread.print`, leaf first."""
    section = re.search(rf'^"{name}" .*?(?=^\s*$)', text, re.S | re.M).group(0)
    out = []
    for m in re.finditer(r"^\s+at (\S+)\((.*)\)$", section, re.M):
        file, _, line = m.group(2).rpartition("/")[2].partition(":")
        native = file == "Native Method"
        out.append((m.group(1).rpartition("/")[2], None if native else file, int(line or 0)))
    return out


@pytest.mark.sample("17-tiered")
@pytest.mark.parametrize("mode", ["interpreter", "tiered"])
def test_agrees_with_jstack(culprit, java, mode, tmp_path):
    process = java.start("stopped", options=MODES[mode])
    try:
        stacks, _ = profile(culprit, process, tmp_path)
        shown = subprocess.run(java.command("jcmd", str(process.pid), "Thread.print"),
                               capture_output=True, text=True, timeout=60)
    finally:
        process.kill()
        process.wait()
    theirs = frames_of_thread(shown.stdout, "stopped")
    assert theirs[0][0] == "Chains.nativeSpin" and len(theirs) > 8, shown.stdout
    ours = Counter()
    for stack, n in stacks.items():
        part = [f for f in stack if f.file and f.file.endswith(".java")][::-1]
        if any(f.name == "Chains.viaStopped" for f in part):
            # A native method has no line.
            native = part[0].name == "Chains.nativeSpin"
            ours[tuple((f.name, None, 0) if native and i == 0 else tuple(f)
                       for i, f in enumerate(part))] += n
    print(f"{java.version} {mode}: {sum(ours.values())} samples, {len(ours)} different stacks")
    assert set(ours) == {tuple(theirs)}


SOURCE = """
package tree;
import java.util.*;
import java.util.function.*;
public class Class%(n)d<T extends Comparable<T>> extends Base {
    private final Map<String, List<T>> values = new HashMap<>();
    interface Visitor<R> { R visit(Class%(n)d<?> c) throws Exception; }
    enum Kind { ONE, TWO, THREE { @Override int weight() { return 3; } }; int weight() { return 1; } }
%(methods)s
    static class Base%(n)d implements Supplier<Integer> {
        public Integer get() { return new Class%(n)d<Integer>().hashCode() + Class%(next)d.constant(); }
    }
    static int constant() { return %(n)d; }
}
"""
METHOD = """
    public <R> List<R> method%(m)d(Function<? super T, ? extends R> f, T... all) {
        List<R> out = new ArrayList<>();
        for (T t : all) {
            List<T> known = values.computeIfAbsent(t.toString(), k -> new ArrayList<>());
            known.add(t);
            switch (known.size() %% 3) {
            case 0: out.add(f.apply(t)); break;
            case 1: try { throw new IllegalStateException("x" + t); }
                    catch (RuntimeException e) { out.addAll(Collections.<R>emptyList()); }
            default: Runnable r = () -> out.add(f.apply(known.get(0))); r.run();
            }
        }
        return out;
    }
"""


def write_sources(to, n=300):
    """Writes a source tree that the compiler of every version accepts."""
    to.mkdir()
    (to / "Base.java").write_text("package tree; public class Base { }\n")
    for i in range(n):
        methods = "".join(METHOD % {"m": m} for m in range(12))
        (to / f"Class{i}.java").write_text(SOURCE % {"n": i, "next": (i + 1) % n,
                                                     "methods": methods})


def test_javac(culprit, java, tmp_path):
    """Records a real program: the compiler over a source tree."""
    sources = type(tmp_path)(java.scratch) / "tree"
    write_sources(sources)
    out = tmp_path / "javac.folded"
    at = java.inside(str(sources))
    (sources / "list").write_text("\n".join(java.inside(str(f)) for f in sources.glob("*.java")))
    record(culprit, out, "-F", "199", "--", *java.command(
        "javac", "-nowarn", "-Xlint:none", "-proc:none", "-d", java.inside(java.scratch),
        f"@{at}/list"))
    stacks = [s for s in read(out) if s.comm != "chroot"]
    c = Completeness(stacks)
    # libc of another root has no names for its local functions.
    complete = c.complete + sum(n for why, n in c.faults.items()
                                if java.root and why.startswith("begins at libc.so.6+0x"))
    inside = sum(s.count for s in stacks if any("com.sun.tools.javac" in f for f in s.frames))
    print(f"javac {java.version}: {100 * complete / max(c.user, 1):.2f} % of {c.user} user stacks "
          f"complete, {inside} in the compiler\n{c}")
    assert c.user >= 200, "hardly any samples"
    assert inside >= 0.1 * c.user
    assert complete >= 0.98 * c.user, str(c)
