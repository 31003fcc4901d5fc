# SPDX-License-Identifier: Apache-2.0
"""JIT code that its process describes in /tmp/perf-PID.map (Mono, wasmtime) or in a jitdump (Bun, wasmtime), also in a
container with a /tmp and pids of its own. Mono is Debian's package mono-mcs (or mono-devel); jit/get fetches the others."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from recorder import read, record

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "jit")
HERE, CONTAINER = "here", "container"
MONO = ["Chains:Main ()", "Chains:Outer (int)", "Chains:Middle (int)", "Chains:Leaf (int)"]


@pytest.fixture
def place(request, tmp_path):
    """Yields a function that wraps a command so that it runs in the place, and the path of the place's /tmp."""
    if os.geteuid() != 0:
        pytest.skip("not root")
    if request.param == HERE:
        yield (lambda *command: command), "/tmp"
        return
    inner = tmp_path / "tmp"
    inner.mkdir()
    decoy = "/tmp/perf-1.map" # the map of the host's process 1, which is the command's pid in the container
    with open(decoy, "w", encoding="utf-8") as f:
        f.write("1000 7fffffffffff decoy\n")
    # cd before the mount, so that relative paths of the command do not lead to the new /tmp.
    yield (lambda *command: ("unshare", "--pid", "--fork", "--mount", "--mount-proc", "sh", "-ec",
                             'cd "$1"; mount --bind tmp /tmp; shift; exec "$@"', "sh",
                             str(tmp_path), *command)), str(inner)
    os.unlink(decoy)


def chains(path, leaf, name_of):
    """Returns {names of the user frames: samples} of the stacks that end in `leaf`."""
    found = Counter()
    for s in read(path):
        user = [name_of(f) for f in s.frames if not f.endswith("_[k]")]
        if user and user[-1] == leaf:
            found[tuple(user)] += s.count
    return found


def check(path, want, what, name_of=str):
    """name_of: a function's name by that of its frame."""
    found = chains(path, want[-1], name_of)
    total = sum(found.values())
    right = sum(n for c, n in found.items() if list(c[-len(want):]) == want)
    print(f"{what}: {right} of {total} samples in {want[-1]} have its callers")
    for c, n in found.most_common(3):
        print(f"    {n} × {';'.join(c)}")
    # A stack lacks the leaf's caller at the leaf's first and last instruction, where it has no frame of its own.
    assert total >= 100 and right >= 0.99 * total


@pytest.mark.parametrize("place", [HERE, CONTAINER], indirect=True)
@pytest.mark.parametrize("version", ["mono"])
def test_names_are_those_of_the_perf_map(culprit, tmp_path, version, place):
    if not shutil.which("mono") or not shutil.which("mcs"):
        pytest.skip("no Mono: packages mono-mcs, mono-runtime")
    run_in, tmp = place
    subprocess.run(["mcs", "-unsafe", f"-out:{tmp_path}/chains.exe", f"{SOURCES}/Chains.cs"],
                   check=True)
    out = tmp_path / "out.folded"
    done = record(culprit, out, "-F", 499, "--", *run_in(version, "--jitmap", "chains.exe"),
                  cwd=tmp_path)
    perf_map = f"{tmp}/perf-{int(done.stdout)}.map"
    with open(perf_map, encoding="utf-8") as f:
        written = {line.rstrip("\n").split(" ", 2)[2] for line in f}
    os.unlink(perf_map)
    assert set(MONO) <= written
    check(out, MONO, f"Mono, {place[1]}")
    assert not any("decoy" in s.frames for s in read(out))
    # Each name that looks like a method is in the map.
    methods = {f for s in read(out) for f in s.frames if re.match(r"[\w.`]+:\w+ \(", f)}
    assert methods <= written


@pytest.mark.parametrize("place", [HERE, CONTAINER], indirect=True)
@pytest.mark.parametrize("version", ["jitdump"])
def test_names_are_those_of_the_jitdump(culprit, tmp_path, version, place):
    if platform.machine() != "x86_64":
        pytest.skip("its code is x86-64's")
    run_in, _ = place
    program, out = tmp_path / version, tmp_path / "out.folded"
    (tmp_path / "tmp").mkdir(exist_ok=True)
    where = "/tmp" if run_in("x") != ("x",) else str(tmp_path / "tmp")
    subprocess.run(["cc", "-O1", "-g", "-fno-omit-frame-pointer", "-o", program,
                    f"{SOURCES}/dump.c"], check=True)
    record(culprit, out, "-F", 499, "--", *run_in(f"./{version}", where), cwd=tmp_path)
    check(out, ["main", "jit_outer", "jit_leaf"], f"jitdump, {place[1]}")
    assert not any({"decoy", "jit_before"} & set(s.frames) for s in read(out))
    record(culprit, tmp_path / "out.speedscope.json", "-F", 499, "--",
           *run_in(f"./{version}", where), cwd=tmp_path)
    text = (tmp_path / "out.speedscope.json").read_text()
    for name, line in (("jit_outer", 7), ("jit_leaf", 42)):
        assert re.search(rf'"name":\s*"{name}",\s*"file":\s*"made.src",\s*"line":\s*{line}\b', text)


def fetched(name):
    """The folder of what jit/get fetches."""
    if platform.machine() != "x86_64":
        pytest.skip("its package is for x86-64")
    folder = os.path.expanduser(f"~/.cache/culprit-runtimes/{name}")
    if not os.path.exists(folder):
        pytest.skip(f"no {name}: tests/runtimes/jit/get {name}")
    return folder


@pytest.mark.parametrize("profiler", ["perfmap", "jitdump"])
@pytest.mark.parametrize("version", ["wasmtime"])
def test_webassembly(culprit, tmp_path, version, profiler):
    out = tmp_path / "out.folded"
    record(culprit, out, "-F", 499, "--", sys.executable, f"{SOURCES}/wasm.py", fetched(version), profiler, 3, cwd=tmp_path)
    chain = ["outer", "middle", "leaf"]
    check(out, chain, f"{version}, {profiler}")
    assert not any(s.note for s in read(out) if set(chain) & set(s.frames))


@pytest.mark.parametrize("version", ["bun"])
def test_bun(culprit, tmp_path, version):
    """Bun's JavaScriptCore writes a jitdump when it is told to. What its compilers inline has no frame of its own."""
    out = tmp_path / "out.folded"
    record(culprit, out, "-F", 499, "--", f"{fetched(version)}/bun", f"{SOURCES}/chain.js", 3, cwd=tmp_path,
           env={"BUN_JSC_useJITDump": "1", "BUN_JSC_jitDumpDirectory": str(tmp_path), "BUN_JSC_maximumInliningDepth": "0"})
    # The names are JSC-TIER: NAME#HASH.
    check(out, ["outer", "middle", "leaf"], version, lambda frame: re.sub(r"^JSC-\w+: (.*)#\w+$", r"\1", frame))


@pytest.mark.parametrize("version", ["pypy"])
def test_pypy(version):
    """PyPy describes its code nowhere, so the test only reports that."""
    program = shutil.which("pypy3")
    if not program:
        pytest.skip("no PyPy: package pypy3")
    said = subprocess.run([program, "-c", "import sys; print(sys.version.split()[0])"],
                          capture_output=True, text=True, check=True).stdout.strip()
    pytest.skip(f"{version} {said} writes neither a perf map nor a jitdump")
