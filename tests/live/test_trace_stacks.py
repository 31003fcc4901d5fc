# SPDX-License-Identifier: Apache-2.0
"""Stacks of a script's events (abi/trace.h): a uprobe in a C library, called by programs in C, Python, Java,
JavaScript, Ruby and Go. The second half of the action must get the stacks of its own event, with the frames of the runtimes."""

import os
import re
import shutil
import subprocess
import time

import pytest

import truth

TOOL = os.path.join(truth.TOP, "build/tests/tools/trace_stacks")
LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
pytestmark = pytest.mark.skipif(not os.path.exists(LIBC), reason="no x86-64 C library of Debian's")


class Stack:
    def __init__(self, line):
        words = line.split()
        self.count, self.pid, self.finished = int(words[1]), int(words[2]), words[-1] == "finished"
        self.frames = []

    @property
    def names(self):
        return [name for _, name, _ in self.frames]


def parse(out):
    lines = out.splitlines()
    words = lines[0].split()
    counts = dict(zip(words[::2], map(int, words[1::2])))
    stacks = []
    for line in lines[1:]:
        if line.startswith("stack "):
            stacks.append(Stack(line))
        else:
            stacks[-1].frames.append(tuple(line.split("\t")))
    return counts, stacks


def trace(file, symbol, run, pid=None):
    """Counts calls while run() runs."""
    tool = subprocess.Popen([TOOL, file, symbol] + ([str(pid)] if pid else []), stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    try:
        assert tool.stdout.readline() == "ready\n"
        run()
        out = tool.communicate(timeout=60)[0]
    finally:
        tool.kill()
    assert tool.returncode == 0
    counts, stacks = parse(out)
    print(counts)
    assert counts["events"] == counts["handled"] + counts["nested"] + counts["full"]
    assert sum(s.count for s in stacks) == counts["handled"]
    return counts, stacks


def started(args, **more):
    """A program that calls the function when it gets a line, says so, and goes on until the end of its input."""
    p = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)
    assert p.stdout.readline() == "started\n"
    return p


def ask(p, n=1):
    for _ in range(n):
        p.stdin.write("go\n")
        p.stdin.flush()
        assert p.stdout.readline() == "done\n"


def of(stacks, p):
    mine = [s for s in stacks if s.pid == p.pid]
    for s in mine:
        print(s.count, " ".join(s.names))
    return mine


PYTHON = """
import os, sys
def leaf_py():
    os.getppid()
def chain_py(n):
    leaf_py() if n == 0 else chain_py(n - 1)
print("started", flush=True)
for line in sys.stdin:
    for i in range(100):
        chain_py(5)
    print("done", flush=True)
"""


def test_python(tmp_path):
    script = tmp_path / "calls.py"
    script.write_text(PYTHON)
    p = started(["/usr/bin/python3", str(script)])
    try:
        _, stacks = trace(LIBC, "getppid", lambda: ask(p, 3), p.pid)
    finally:
        p.kill()
    stacks = of(stacks, p)
    # The ends of the loop differ by nothing: one stack, of 300 calls.
    assert [s.count for s in stacks] == [300]
    names = stacks[0].names
    assert [n for n in names if n.endswith("_py")] == ["leaf_py"] + 6 * ["chain_py"]
    assert [(k, n) for k, n, _ in stacks[0].frames if k == "python"][-1][1] == "<module>"
    assert [f for k, n, f in stacks[0].frames if n == "leaf_py"] == [f"{script}:4"]
    assert names[-1] == "_start"


NODE = """
function leaf_js() { return process.getegid(); }
function chain_js(n) { return n ? chain_js(n - 1) : leaf_js(); }
require("readline").createInterface({input: process.stdin}).on("line", function on_line() {
    for (let i = 0; i < 100; i++)
        chain_js(5);
    console.log("done");
});
console.log("started");
"""


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_node(tmp_path):
    script = tmp_path / "calls.js"
    script.write_text(NODE)
    p = started(["node", str(script)])
    try:
        _, stacks = trace(LIBC, "getegid", lambda: ask(p, 3), p.pid)
    finally:
        p.kill()
    stacks = of(stacks, p)
    assert sum(s.count for s in stacks) == 300
    whole = [s for s in stacks if [re.sub(r".*\.", "", n) for n in s.names if n.endswith("_js")] ==
             ["leaf_js"] + 6 * ["chain_js"]]
    # A walk that a V8 compilation or collection changes under way may end early.
    assert sum(s.count for s in whole) >= 290
    assert all(any(n.endswith("on_line") or n.startswith("on_line") for n in s.names) for s in whole)


JAVA = """
public class Calls {
    static int leafJava(byte[] b) throws Exception { return System.in.read(b); }
    static int chainJava(int n, byte[] b) throws Exception { return n == 0 ? leafJava(b) : chainJava(n - 1, b); }
    public static void main(String[] args) throws Exception {
        System.out.println("started");
        byte[] line = new byte[3];
        while (chainJava(5, line) > 0)
            System.out.println("done");
    }
}
"""


@pytest.mark.skipif(not shutil.which("java"), reason="no java")
def test_java(tmp_path):
    script = tmp_path / "Calls.java"
    script.write_text(JAVA)
    subprocess.run(["javac", str(script)], check=True)
    p = started(["java", "-cp", str(tmp_path), "Calls"])
    try:
        _, stacks = trace(LIBC, "read", lambda: ask(p, 50), p.pid)
    finally:
        p.kill()
    stacks = of(stacks, p)
    whole = [s for s in stacks if len([n for n in s.names if n.endswith("chainJava")]) == 6]
    # The first call began before the probe was there.
    assert sum(s.count for s in whole) >= 48
    assert all(any(n.endswith("Calls.main") for n in s.names) for s in whole)


RUBY = """
def leaf_rb
  Process.ppid
end
def chain_rb(n)
  n == 0 ? leaf_rb : chain_rb(n - 1)
end
STDOUT.sync = true
puts "started"
while STDIN.gets
  100.times { chain_rb(5) }
  puts "done"
end
"""


@pytest.mark.skipif(not shutil.which("ruby"), reason="no ruby")
def test_ruby(tmp_path):
    script = tmp_path / "calls.rb"
    script.write_text(RUBY)
    p = started(["ruby", str(script)])
    try:
        _, stacks = trace(LIBC, "getppid", lambda: ask(p, 3), p.pid)
    finally:
        p.kill()
    stacks = of(stacks, p)
    assert sum(s.count for s in stacks) == 300
    for s in stacks:
        assert [n for n in s.names if n.endswith("_rb")] == ["leaf_rb"] + 6 * ["chain_rb"]
        assert [n for k, n, _ in s.frames if k == "ruby"][-1] == "<main>"
        assert [f for k, n, f in s.frames if n == "leaf_rb"] == [f"{script}:3"]
        assert s.names[-1] == "_start"


GO = """
package main

// #cgo CFLAGS: -O2
// #include <unistd.h>
// __attribute__((noinline)) static int leaf_c(void) { int r = getppid(); asm volatile("" : "+r"(r)); return r; }
import "C"

import (
    "bufio"
    "fmt"
    "os"
)

//go:noinline
func leafGo() int { return int(C.leaf_c()) }

//go:noinline
func chainGo(n int) int {
    if n == 0 {
        return leafGo() + 1
    }
    return chainGo(n-1) + 1
}

func main() {
    fmt.Println("started")
    lines := bufio.NewScanner(os.Stdin)
    for lines.Scan() {
        for i := 0; i < 100; i++ {
            chainGo(5)
        }
        fmt.Println("done")
    }
}
"""
GO_COMMAND = shutil.which("go") or "/usr/local/go/bin/go"


@pytest.mark.skipif(not os.path.exists(GO_COMMAND), reason="no Go")
def test_go(tmp_path):
    """C code that Go calls runs on a stack of its own; the goroutine's frames are on another."""
    (tmp_path / "calls.go").write_text(GO)
    subprocess.run([GO_COMMAND, "build", "-o", "calls", "calls.go"], cwd=tmp_path, check=True,
                   env={**os.environ, "CGO_ENABLED": "1", "GO111MODULE": "off", "GOFLAGS": ""})
    p = started([str(tmp_path / "calls")])
    try:
        _, stacks = trace(LIBC, "getppid", lambda: ask(p, 3), p.pid)
    finally:
        p.kill()
    stacks = of(stacks, p)
    assert sum(s.count for s in stacks) == 300
    for s in stacks:
        assert [n for n in s.names if n.startswith("main.")] == (
            ["main._Cfunc_leaf_c", "main.leafGo"] + 6 * ["main.chainGo"] + ["main.main"])
        assert s.names.index("leaf_c") < s.names.index("main._Cfunc_leaf_c")
        assert s.names[-1] == "runtime.goexit"


C = """
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) int probed(int n) { asm volatile("" : "+r"(n)); return n + 1; }
__attribute__((noinline)) int chain_c(int n) { int r = n ? chain_c(n - 1) : probed(1); asm volatile("" : "+r"(r)); return r; }
__attribute__((noinline)) int other_c(int n) { int r = chain_c(n); asm volatile("" : "+r"(r)); return r; }
int main(void) {
    char line[16];
    puts("started"); fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        for (int i = 0; i < 100; i++) { chain_c(9); other_c(3); }
        puts("done"); fflush(stdout);
    }
}
"""


def compiled(tmp_path):
    source, program = tmp_path / "calls.c", tmp_path / "calls"
    source.write_text(C)
    subprocess.run(["gcc", "-O2", "-g", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-o", program, source],
                   check=True)
    return str(program)


@pytest.mark.parametrize("at", ["", "%return"])
def test_process_that_is_new(tmp_path, at):
    """The process starts after the recording: BPF does not know it, and the host finishes its first walks. The
    action has their random ids in its keys; after the names are known, the stacks must be the two that there are."""
    program = compiled(tmp_path)
    programs = []

    def run():
        for _ in range(3):
            p = started([program])
            programs.append(p)
            ask(p, 2)

    try:
        counts, stacks = trace(program, "probed" + at, run)
    finally:
        for p in programs:
            p.kill()
    assert counts["events"] == 3 * 400
    leaf = [] if at else ["probed"]
    want = {tuple(leaf + 10 * ["chain_c"] + ["main"]), tuple(leaf + 4 * ["chain_c"] + ["other_c", "main"])}
    got = {}
    for s in stacks:
        key = tuple(s.names[:s.names.index("main") + 1]) if "main" in s.names else tuple(s.names)
        got[key] = got.get(key, 0) + s.count
    # On a busy machine more walks may wait for the host than there is room for: those say so.
    whole = {key: n for key, n in got.items() if not any("truncated" in name for name in key)}
    print({key[:3]: n for key, n in got.items()})
    assert set(whole) == want and all(n <= 600 for n in whole.values())
    assert sum(whole.values()) >= 0.7 * counts["events"]
    assert any(s.finished for s in stacks), "no walk was finished by the host: the test tests nothing"
    if not at:
        assert all(where.endswith("calls.c:4") for s in stacks for _, n, where in s.frames[:1] if n == "probed")


@pytest.mark.skipif(not shutil.which("ruby"), reason="no ruby")
def test_runtime_that_is_new(tmp_path):
    """No process runs Ruby when the recording begins, so its walker is loaded when the first one is seen. The host
    finishes the walks until then, and says that it did not read Ruby's frames."""
    script = tmp_path / "calls.rb"
    script.write_text(RUBY)
    programs = []

    def run():
        for _ in range(3):
            p = started(["ruby", str(script)])
            programs.append(p)
            ask(p, 3)
        time.sleep(3)
        ask(p, 3)

    try:
        _, stacks = trace(LIBC, "getppid", run)
    finally:
        for p in programs:
            p.kill()
    stacks = of(stacks, programs[0]) + of(stacks, programs[1]) + of(stacks, programs[2])
    assert sum(s.count for s in stacks) == 1200
    noted = [s for s in stacks if "[ruby frames not read]" in s.names]
    whole = [s for s in stacks if s.names.count("chain_rb") == 6 and s.names.count("leaf_rb") == 1]
    assert sum(s.count for s in noted + whole) == 1200
    assert sum(s.count for s in whole) >= 300 and all(s.names[-1] == "_start" for s in noted + whole)


def test_runtime_of_a_command(culprit, tmp_path):
    """With -c, walkers are loaded before the command starts, because nobody knows its runtime. Calls that come before
    culprit knows the process, and names that are read after its end, are told as such."""
    script, out = tmp_path / "calls.py", tmp_path / "out.folded"
    script.write_text("import os, time\ndef leaf_py():\n    os.getpgrp()\nfor i in range(400):\n    leaf_py()\n"
                      "    if i == 199: time.sleep(1)\ntime.sleep(1)\n")
    subprocess.run([culprit, "trace", "-o", str(out), "-c", f"/usr/bin/python3 {script}", "-e",
                    "uprobe:libc:getpgrp { @[ustack] = count(); }"], check=True)
    lines = [line.rsplit(" ", 1) for line in out.read_text().splitlines()]
    assert sum(int(n) for _, n in lines) == 400
    assert sum(int(n) for s, n in lines if ";leaf_py;" in s) >= 200
    assert all(re.search(r";leaf_py;|\[python frames not read\]|\[stale\]|\[truncated: ", s) for s, _ in lines)


PREEMPTED = """
import os, sys, time
k, end = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
if k & 1:
    os.nice(-5)
code = f"def p{k}_0():\\n    while time.monotonic() < end: os.getpgrp()\\n"
for i in range(1, 24):
    code += f"def p{k}_{i}():\\n    p{k}_{i - 1}()\\n"
exec(code)
globals()[f"p{k}_23"]()
"""


def test_no_stack_of_another_task():
    """Tasks that preempt each other in the middle of a walk, or between two halves of an action."""
    def run():
        programs = [subprocess.Popen(["/usr/bin/python3", "-c", PREEMPTED, str(k), "5"]) for k in range(6)]
        pids.update({p.pid: k for k, p in enumerate(programs)})
        for p in programs:
            assert p.wait(timeout=120) == 0

    pids = {}
    counts, stacks = trace(LIBC, "getpgrp", run)
    assert counts["events"] > 10000
    assert counts["nested"] + counts["full"] <= counts["events"] / 100
    good = 0
    for s in stacks:
        k = pids.get(s.pid)
        if k is None:
            continue
        own = [n for n in s.names if re.match(r"p\d+_\d+$", n)]
        assert all(n.startswith(f"p{k}_") for n in own)
        assert own in ([], [f"p{k}_{i}" for i in range(24)])
        good += s.count if own else 0
    print(good)
    assert good >= counts["handled"] * 0.9


def run_script(culprit, tmp_path, script, p, *more):
    """Runs a script until it has ended; p gets lines meanwhile. Returns samples as (frames from the root, value)."""
    out = tmp_path / "out.folded"
    tool = subprocess.Popen([culprit, "trace", "-o", str(out), "-e", script, *more], stderr=subprocess.PIPE, text=True)
    try:
        assert tool.stderr.readline().startswith("Attached")
        while tool.poll() is None:
            ask(p)
        err = tool.stderr.read()
    finally:
        tool.kill()
    assert tool.returncode == 0, err
    assert "lost" not in err
    samples = []
    for line in out.read_text().splitlines():
        frames, value = line.rsplit(" ", 1)
        samples.append((frames.split(";"), int(value)))
    print("\n".join(f"{n} {' '.join(s)}" for s, n in samples[:20]))
    return samples


PROBES = {
    # The type of program, a probe of this type that the calls of PYTHON hit, and a function of the kernel's stack.
    "tracepoint": ("tracepoint:syscalls:sys_enter_getppid", r"do_syscall_64|x64_sys_call|syscall_trace_enter"),
    "raw": ("rawtracepoint:sys_enter", r"do_syscall_64|x64_sys_call|syscall_trace_enter"),
    "perf": ("profile:hz:999", None),
}


@pytest.mark.parametrize("kind", PROBES)
def test_program_types(culprit, tmp_path, kind):
    """Each type of program has its own walker objects."""
    probe, kernel = PROBES[kind]
    script = tmp_path / "calls.py"
    script.write_text(PYTHON)
    p = started(["/usr/bin/python3", str(script)])
    try:
        samples = run_script(culprit, tmp_path, f"{probe} /pid == {p.pid}/ {{ @[ustack, kstack] = count(); }} "
                                                "interval:s:2 { exit(); }", p)
    finally:
        p.kill()
    total = sum(n for _, n in samples)
    assert total > 30
    # Between its calls it reads and writes lines.
    good = [(s, n) for s, n in samples if "leaf_py" in s]
    assert good
    for s, n in good:
        assert s.count("chain_py") == 6 and s.index("leaf_py") > s.index("chain_py") and "_start" in s
    assert sum(n for s, n in samples if "_start" in s) >= 0.95 * total
    if kernel:
        assert sum(n for s, n in samples if any(re.match(kernel, f) for f in s)) >= 0.95 * total
        # The programs that follow a tracepoint are no part of the stack.
        assert not [f for s, _ in samples for f in s if re.match(r"bpf_(prog|trace_run)|__bpf_trace|__traceiter", f)]


def test_flame_graph_of_sums(culprit, tmp_path):
    script = tmp_path / "calls.py"
    script.write_text(PYTHON)
    p = started(["/usr/bin/python3", str(script)])
    try:
        samples = run_script(culprit, tmp_path,
                             f"tracepoint:syscalls:sys_enter_write /pid == {p.pid}/ {{ @[comm, ustack] = "
                             "sum(args.count); @n = count() } interval:s:1 { exit(); }", p)
    finally:
        p.kill()
    # Each line is "done\n", in one write or in two of 4 bytes and 1; the end may come between.
    total = sum(n for _, n in samples)
    assert total > 100 and total % 5 in (0, 4)
    assert all(n == total or abs(n - total * part / 5) < 5 for (_, n), part in zip(sorted(samples, key=lambda s: s[1]),
                                                                                    (1, 4)))
    assert all("<module>" in s and any("write" in f for f in s[-3:]) for s, _ in samples)
    assert all(s[0].startswith("python3") or s[1].startswith("python3") for s, _ in samples)


@pytest.mark.parametrize("script, error", [
    ("BEGIN { @ = count(); exit(); }", "a flame graph needs a map of counts or sums by stacks"),
    ("profile:hz:9 { @a[ustack] = count(); @b[kstack] = count(); }", "@a and @b are by stacks"),
    ("profile:hz:9 { @[ustack] = hist(1); }", "a flame graph needs a map of counts or sums by stacks"),
])
def test_maps_that_are_no_flame_graph(culprit, tmp_path, script, error):
    out = tmp_path / "out.svg"
    r = subprocess.run([culprit, "trace", "-o", str(out), "-e", script], capture_output=True, text=True)
    assert r.returncode == 1 and error in r.stderr
    assert not out.exists()
