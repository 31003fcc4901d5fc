# SPDX-License-Identifier: Apache-2.0
"""JavaScript frames of Node.js, compared with V8's own: Error.stack and --cpu-prof.

The tests run with the node of this machine ("system"), and with those in ~/.cache/culprit-runtimes:

    node-N/bin/node         from the npm registry
    npm, npm-old            Express, TypeScript, webpack; the latter for Node.js before 18
    debian-SUITE-node       a root of another Debian, entered as a container is

tests/runtimes/v8/get fetches all of them.
"""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, namedtuple

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
SOURCES = os.path.join(HERE, "v8")
CACHE = os.path.expanduser("~/.cache/culprit-runtimes")
CULPRIT = os.environ.get("CULPRIT", os.path.join(TOP, "build/cli/culprit"))
VERSIONS = ["system", *(f"node{n}" for n in (12, 14, 16, 18, 20, 22, 24, 26)),
            *(f"debian_{suite}" for suite in ("bullseye", "bookworm", "trixie", "sid"))]

sys.path.insert(0, os.path.join(TOP, "tests/live"))
from recorder import Completeness, read, record # noqa: E402

Frame = namedtuple("Frame", "name file line column")
NATIVE = "native_call" # the addon's function


class Node:
    """A Node.js, which may be in a root of its own. `shared`: folders that the root has at the same paths."""

    def __init__(self, path, root=None, shared=()):
        self.path, self.root, self.shared = path, root, [str(p) for p in shared]
        self.version = self.output("--version").strip()
        self.major = int(self.version[1:].partition(".")[0])
        self.flags = self.output("--v8-options")

    def output(self, *args):
        return subprocess.run(self.command(*args), capture_output=True, text=True,
                              check=True).stdout

    def command(self, *args, path=None):
        """Returns a command whose process becomes node by exec, so that its pid is node's."""
        command = [path or self.path, *map(str, args)]
        if not self.root:
            return command
        binds = "".join(f"mkdir -p {self.root}{p}; mount --bind {p} {self.root}{p}; "
                        for p in self.shared)
        return ["unshare", "--mount", "sh", "-ec",
                f"mount -t proc proc {self.root}/proc; {binds}exec chroot {self.root} \"$@\"",
                "sh", *command]

    def library(self):
        """Returns the path of its libnode.so, or None."""
        found = glob.glob(f"{self.root or ''}/usr/lib/*/libnode.so.*")
        if not found or self.path != "/usr/bin/node":
            return None
        return found[0][len(self.root or ""):]

    def only(self, *flags):
        """Returns those of the flags that this version has."""
        return [f for f in flags if re.search(r"\s--(no-)?" + re.sub(r"^--(no-)?|=.*", "", f)
                                              + r"\s", self.flags)]


@pytest.fixture(scope="module", params=VERSIONS)
def node(request, tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("not root")
    kind, number = re.match(r"(system|node|debian)_?(.*)", request.param).groups()
    if kind == "system":
        path = shutil.which("node")
        if not path:
            pytest.skip("no Node.js on this machine")
        return Node(os.path.realpath(path))
    if kind == "node":
        path = f"{CACHE}/node-{number}/bin/node"
        if not os.path.exists(path):
            pytest.skip(f"no Node.js {number}: not {path}")
        return Node(path)
    root = f"{CACHE}/debian-{number}-node"
    if not os.path.exists(f"{root}/usr/bin/node"):
        pytest.skip(f"no Node.js of Debian {number}: not {root}")
    shared = [HERE, tmp_path_factory.getbasetemp(), f"{CACHE}/npm", f"{CACHE}/npm-old", f"{TOP}/ui"]
    return Node("/usr/bin/node", root, [p for p in shared if os.path.isdir(p)])


@pytest.fixture(scope="session")
def addon(tmp_path_factory):
    path = tmp_path_factory.mktemp("addon") / "addon.node"
    subprocess.run(["cc", "-O1", "-g", "-shared", "-fPIC", "-o", path, f"{SOURCES}/addon.c"],
                   check=True)
    return path


class Running:
    """A running test program that has printed its first line. record() records its stacks."""

    def __init__(self, command):
        self.process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE,
                                        text=True)
        self.first = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def record(self, output, seconds=3, warm=2):
        time.sleep(warm) # until hot code is compiled
        assert self.process.poll() is None
        command = ["-F", 499, "-p", self.process.pid, "-d"]
        done = record(CULPRIT, output, *command, seconds)
        if int(re.match(r"\d+", done.stderr).group()) < 100 * seconds: # too few samples, on a busy machine
            record(CULPRIT, output, *command, 4 * seconds)


def expected(stack):
    """Returns the chain of Error.stack, root first."""
    frames = []
    for line in stack.splitlines()[1:]:
        m = re.match(r"\s+at (?:async )?(?:new )?(?:(.*) \()?(.*?)\)?$", line)
        name, place = m.group(1) or "", m.group(2)
        name = re.sub(r" \[as .*\]$", "", name).rpartition(".")[2]
        if name in ("", "<anonymous>"):
            name = "(anonymous)"
        m = re.match(r"(.*):(\d+):(\d+)$", place)
        frames.append(Frame(name, *(m.group(1), int(m.group(2)), int(m.group(3))) if m
                            else (None, None, None)))
    return frames[::-1]


def with_native(line):
    """Returns the chain "native", with the addon's frames, which Error.stack leaves out."""
    want = expected(json.loads(line))
    for name in ("leaf", "inner"):
        want.insert([f.name for f in want].index(name), Frame(NATIVE, None, None, None))
    return want


def stacks(path):
    """Yields (frames, weight) of a speedscope file, root first."""
    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    frames = [Frame(x["name"], x.get("file"), x.get("line"), x.get("col"))
              for x in data["shared"]["frames"]]
    for p in data["profiles"]:
        for sample, weight in zip(p["samples"], p["weights"]):
            yield [frames[i] for i in sample], weight


def is_script(frame):
    return bool(frame.file) and re.search(r"\.m?js$|^node:|^internal/", frame.file)


def javascript(frames, library):
    """Returns the frames of JavaScript and of the addon. `library`: names of V8's own functions that count, too."""
    return [f for f in frames if is_script(f) or f.name == NATIVE
            or (f.name in library and not f.file)]


def same(got, want, columns):
    if got.name == NATIVE or want.name == NATIVE:
        return got.name == want.name
    if got.file != want.file or got.line != want.line:
        return False
    if columns and got.column != want.column:
        return False
    # In Error.stack, a function that was assigned to a property has the property's name.
    return got.name == want.name or not (want.file or "/").startswith("/")


def is_cut(frames):
    """Tells whether the stack is marked as incomplete."""
    return any("[truncated" in f.name or "frames not read]" in f.name for f in frames)


def judge(path, want, inlines=False, leaf="leaf", through=None, complete=False):
    """
    Returns how many samples in `leaf` have exactly the chain `want` (which ends with `leaf`), and how many samples
    are in `leaf`. `through`: only samples with this function. `complete`: no incomplete samples. `inlines`: the code
    is optimised; then inlined functions of V8's library have no position and so no frame, and a position may be the
    next one on the line (Node.js 12), because only Error.stack asks for the bytecode.
    """
    if inlines:
        want = [f for f in want if f.file or f.name == NATIVE]
    library = {f.name for f in want if not f.file}
    right = total = 0
    wrong = Counter()
    for frames, weight in stacks(path):
        if complete and is_cut(frames):
            continue
        got = javascript(frames, library)
        at = [i for i, f in enumerate(got) if f.name == leaf and is_script(f)]
        if not at or through and through not in [f.name for f in got]:
            continue
        got = got[:at[-1] + 1]
        total += weight
        # The leaf may be at any of its lines.
        if len(got) == len(want) and \
                all(same(g, w, not inlines) for g, w in zip(got[:-1], want[:-1])) and \
                (got[-1].name, got[-1].file) == (want[-1].name, want[-1].file) and \
                want[-1].line - 6 <= (got[-1].line or 0) <= want[-1].line + 4:
            right += weight
        else:
            wrong[tuple(got)] += weight
    for chain, weight in wrong.most_common(3):
        print(f"wrong, {weight}:", *chain, sep="\n   ")
    return right, total


def check(path, want, inlines=False, least=50):
    right, total = judge(path, want, inlines)
    if right < 0.99 * total:
        print("wanted:", *want, sep="\n   ")
    assert total >= least, f"only {total} samples in leaf()"
    assert right >= 0.99 * total, f"{right} of {total} samples have the chain of Error.stack"
    print(f"{right} of {total} samples in leaf() have exactly the chain of Error.stack")


TIERS = {
    "interpreted": ["--no-opt", "--no-sparkplug", "--no-maglev"],
    "baseline": ["--always-sparkplug", "--no-opt", "--no-maglev"],
    "maglev": ["--maglev", "--max-optimized-bytecode-size=0"],
    "default": [],
}
NEEDED = {"baseline": "--always-sparkplug", "maglev": "--maglev"}


@pytest.mark.sample("system-*-default")
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("chain", ["native", "inlined"])
def test_chain(node, addon, tmp_path, tier, chain):
    flags = node.only(*TIERS[tier])
    if tier in NEEDED and NEEDED[tier] not in flags:
        pytest.skip(f"{node.version} has no {tier} compiler")
    out = tmp_path / "out.speedscope.json"
    with Running(node.command(*flags, f"{SOURCES}/chain.js", chain, addon)) as p:
        p.record(out)
    want = with_native(p.first) if chain == "native" else expected(json.loads(p.first))
    check(out, want, inlines=tier in ("maglev", "default"))


def test_worker(node, addon, tmp_path):
    out = tmp_path / "out.speedscope.json"
    with Running(node.command(f"{SOURCES}/chain.js", "worker", addon)) as p:
        p.record(out)
    check(out, expected(json.loads(p.first)), inlines=True)


@pytest.mark.parametrize("tier", ["interpreted", "baseline", "default"])
def test_stripped(node, addon, tmp_path, tier):
    """node with dynamic symbols only, among which are no internal ones of V8 since Node.js 24."""
    flags = node.only(*TIERS[tier])
    if tier == "baseline" and NEEDED[tier] not in flags:
        pytest.skip(f"{node.version} has no {tier} compiler")
    if node.library():
        pytest.skip("is as the distribution made it: stripped")
    stripped, out = tmp_path / "node", tmp_path / "out.speedscope.json"
    subprocess.run(["strip", "-s", "-o", stripped, node.path], check=True)
    with Running(node.command(*flags, f"{SOURCES}/chain.js", "native", addon,
                              path=stripped)) as p:
        p.record(out)
    check(out, with_native(p.first), inlines=tier == "default")


def test_doctor(node, addon, tmp_path):
    """doctor prints the version of V8 and where culprit's knowledge of it comes from, also for a stripped node."""
    paths = [node.path]
    if not node.library():
        paths.append(tmp_path / "node")
        subprocess.run(["strip", "-s", "-o", paths[1], node.path], check=True)
    version = ".".join(node.output("-p", "process.versions.v8").split(".")[:3])
    for path in paths:
        with Running(node.command(f"{SOURCES}/chain.js", "native", addon, path=path)) as p:
            said = subprocess.run([CULPRIT, "doctor", "-p", str(p.process.pid)], text=True,
                                  capture_output=True, check=True).stdout
        print(path, said, end="")
        m = re.match(r"v8: V8 (\S+); offsets from (\d+) v8dbg_\* constants, builtins by (.*)\n",
                     said)
        assert m.group(1) == version and int(m.group(2)) > 300
        assert ("table" in m.group(3)) == (path != node.path or node.library() is not None)
        assert "missing" not in said


def test_several_isolates(node, addon, tmp_path):
    """Eight workers, each an isolate with code in memory of its own, have their own chains."""
    out = tmp_path / "out.speedscope.json"
    with Running(node.command(f"{SOURCES}/chain.js", "workers", addon)) as p:
        p.record(out, seconds=6)
    want = expected(json.loads(p.first))
    at = [f.name for f in want].index("worker0")
    total = 0
    for i in range(8):
        mine = [*want[:at], want[at]._replace(name=f"worker{i}", line=want[at].line + i),
                *want[at + 1:]]
        right, n = judge(out, mine, inlines=True, through=f"worker{i}")
        print(f"worker{i}: {right} of {n}")
        assert n >= 20 and right >= 0.99 * n
        total += n
    # Each sample has the frame of a worker.
    assert total >= 0.99 * judge(out, want, inlines=True)[1]


def test_frames_of_the_interpreter_are_copied(node, addon, tmp_path):
    """Each function has a copy of the interpreter's entry, which makes it visible for other profilers."""
    out = tmp_path / "out.speedscope.json"
    flags = node.only("--interpreted-frames-native-stack", *TIERS["interpreted"])
    assert flags
    with Running(node.command(*flags, f"{SOURCES}/chain.js", "native", addon)) as p:
        p.record(out)
    check(out, with_native(p.first))


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_library_loaded_later(node, addon, tmp_path):
    """A program that is not Node.js loads libnode.so by dlopen() while it is recorded."""
    library = node.library()
    if not library:
        pytest.skip("it has no libnode.so")
    embed, out = tmp_path / "embed", tmp_path / "out.speedscope.json"
    built = subprocess.run(["cc", "-O1", "-g", "-o", embed, f"{SOURCES}/embed.c", "-ldl"],
                           check=False)
    assert built.returncode == 0
    command = node.command(library, *node.only(*TIERS["interpreted"]), f"{SOURCES}/chain.js",
                           "native", addon, path=str(embed))
    # culprit starts the program after it has loaded its own BPF programs.
    with subprocess.Popen([CULPRIT, "record", "-F", "499", "-o", out, "--", *command], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        pid = p.stdout.readline().strip()
        if not pid: # the program needs a newer libc than the root has
            pytest.skip("what is compiled here does not run there")
        p.stdin.write("go\n")
        p.stdin.flush()
        first = p.stdout.readline()
        while cpu_seconds(int(pid)) < 6: # this takes longer on a busy machine
            assert p.poll() is None
            time.sleep(0.1)
        os.kill(int(pid), signal.SIGKILL)
        p.communicate(timeout=120)
    # Stacks from before culprit knows the library are walked by the host, and are marked as incomplete.
    cut = sum(n for frames, n in stacks(out) if is_cut(frames))
    right, total = judge(out, with_native(first), complete=True)
    print(f"{right} of {total} complete samples have the chain of Error.stack, {cut} are cut")
    assert total >= 500 and right >= 0.99 * total and cut < 0.1 * total


def test_kernel_frames_below(node, addon, tmp_path):
    out = tmp_path / "out.speedscope.json"
    with Running(node.command(f"{SOURCES}/chain.js", "kernel", addon)) as p:
        p.record(out)
    chains = Counter()
    for frames, weight in stacks(out):
        names = [f.name for f in frames]
        if "stat" in names and any(n.startswith(("do_syscall", "entry_SYSCALL")) for n in names):
            chains[tuple(n for n in names if n in ("run", "stat", "statSync")
                         or n.startswith(("do_syscall_64", "el0_svc")))] += weight
    assert chains, "no kernel frames below stat()"
    chain = chains.most_common(1)[0][0]
    assert chain[:3] == ("run", "stat", "statSync") and len(chain) == 4


def self_shares(pairs):
    total = sum(n for _, n in pairs)
    shares = Counter()
    for key, n in pairs:
        shares[key] += n / total
    return shares


def test_agrees_with_cpu_prof(node, tmp_path):
    """Functions have the same shares of samples as in V8's own profiler, in the same run."""
    script, stop = tmp_path / "split.js", tmp_path / "stop"
    script.write_text("""
function seventy() { let t = 0; for (let i = 0; i < 7000000; i++) t = (t * 31 + i) | 0; return t; }
function twenty() { let t = 0; for (let i = 0; i < 2000000; i++) t = (t * 33 + i) | 0; return t; }
function ten() { let t = 0; for (let i = 0; i < 1000000; i++) t = (t * 35 + i) | 0; return t; }
const fs = require('fs');
console.log('begun');
let sum = 0;
while (!fs.existsSync(process.argv[2])) sum += seventy() + twenty() + ten();
""")
    out = tmp_path / "out.speedscope.json"
    command = node.command("--cpu-prof", "--cpu-prof-dir", tmp_path, script, stop)
    with Running(command) as p:
        p.record(out, warm=1, seconds=8)
        stop.touch()
        p.process.wait(timeout=120)
    with open(next(tmp_path.glob("*.cpuprofile")), encoding="utf-8") as f:
        profile = json.load(f)
    names = {"seventy", "twenty", "ten"}
    theirs = self_shares([(n["callFrame"]["functionName"], n["hitCount"])
                          for n in profile["nodes"] if n["callFrame"]["functionName"] in names])
    ours = self_shares([(scripts[-1].name, weight) for scripts, weight in
                        (([f for f in frames if f.name in names], weight)
                         for frames, weight in stacks(out)) if scripts])
    n = sum(weight for frames, weight in stacks(out) if any(f.name in names for f in frames))
    print("ours", dict(ours), "theirs", dict(theirs), n, "samples")
    assert set(ours) == names and n > 200
    for name in names: # 5 standard deviations, and 2 % for systematic differences
        chance = 5 * (ours[name] * (1 - ours[name]) / n) ** 0.5
        assert abs(ours[name] - theirs[name]) < 0.02 + chance


def completeness(path, what, node):
    c = Completeness(read(path), node.root or "")
    share = 100 * c.complete / c.user
    print(f"{what}: {c.complete} of {c.user} user stacks complete ({share:.2f} %)",
          dict(c.faults.most_common(3)))
    stale = sum(s.count for s in read(path) if "[stale]" in s.frames)
    assert c.user > 100
    assert share >= 98
    assert stale <= 0.01 * c.user
    return c


def modules(node):
    """Returns the folder of npm packages for this node; those for Node.js before 18 have other versions."""
    return f"{CACHE}/npm{'' if node.major >= 18 else '-old'}"


@pytest.mark.parametrize("load", ["own", "wrk"])
def test_server_is_complete(node, tmp_path, load):
    """A server under load, from JavaScript in its own process, or from wrk, a program in C."""
    wrk = shutil.which("wrk")
    if load == "wrk" and not wrk:
        pytest.skip("no wrk on this machine")
    out = tmp_path / "out.folded"
    express = os.path.isdir(f"{modules(node)}/node_modules/express")
    where = modules(node) if express else ""
    with Running(node.command(f"{SOURCES}/server.js", where, load)) as p:
        port = p.first.split()[1]
        clients = [subprocess.Popen([wrk, "-t1", "-c4", "-d600s", f"http://127.0.0.1:{port}/{path}"],
                                    stdout=subprocess.DEVNULL)
                   for path in ("number", "hash", "file", "json") if load == "wrk"]
        try:
            p.record(out, seconds=8)
        finally:
            for c in clients:
                c.kill()
                c.wait()
    kind = "Express" if express else "HTTP"
    completeness(out, f"{node.version}, {kind} server, load by {load}", node)


def test_from_its_start(node, tmp_path):
    """Records a script that runs through env, from its first function on, without a loss."""
    if node.root:
        pytest.skip("the shell that enters its root is what is started")
    script, out = tmp_path / "script.js", tmp_path / "out.folded"
    script.write_text("""#!/usr/bin/env node
function leaf(n) { let t = 0; for (let i = 0; i < n; i++) t = (t * 31 + i) | 0; return t; }
function middle(n) { return [1].map((k) => leaf(n) + k)[0]; }
while (process.cpuUsage().user < 1e6) middle(20000);
""")
    script.chmod(0o755)
    (tmp_path / "node").symlink_to(node.path)
    record(CULPRIT, out, "-F", 499, "--", script,
           env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    completeness(out, f"{node.version}, a script from its start", node)


def test_webpack_is_complete(node, tmp_path):
    if not os.path.isdir(f"{modules(node)}/node_modules/webpack"):
        pytest.skip(f"no webpack: not in {modules(node)}")
    out = tmp_path / "out.folded"
    record(CULPRIT, out, "-F", 499, "--", *node.command(
        f"{SOURCES}/build.js", modules(node), tmp_path / "built"), timeout=600)
    completeness(out, f"{node.version}, webpack", node)


def typescript(node):
    """Returns a TypeScript compiler that runs on this node."""
    places = [f"{modules(node)}/node_modules/typescript/bin/tsc"]
    if node.major >= 18:
        places.append(f"{TOP}/ui/node_modules/typescript/bin/tsc")
        places += [shutil.which("tsc") or ""] if not node.root else []
    found = [p for p in places if os.path.exists(p)]
    if not found:
        pytest.skip(f"no TypeScript compiler: not {places[0]}")
    return found[0]


def test_typescript_is_complete(node, tmp_path):
    tsc = typescript(node)
    source = tmp_path / "work.ts"
    source.write_text("\n".join(
        f"export interface I{i}<T> {{ a: T; b: Partial<I{max(0, i - 1)}<T[]>>; }}\n"
        f"export const f{i} = <T>(x: I{i}<T>): Required<I{i}<T>>['b'] => x.b;"
        for i in range(4000)))
    out = tmp_path / "out.folded"
    record(CULPRIT, out, "-F", 499, "--", *node.command(
        tsc, "--noEmit", "--strict", "--target", "es2022", source), timeout=300)
    completeness(out, f"{node.version}, tsc", node)
