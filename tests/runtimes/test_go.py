# SPDX-License-Identifier: Apache-2.0
"""Go's frames: exact chains of names, files and lines, compared with runtime.Callers, on each installed release.

`tests/runtimes/go/get VERSION…` installs releases into ~/.cache/culprit-runtimes/go/mod, which is a GOMODCACHE.
"""

import glob
import json
import os
import re
import shutil
import subprocess
from collections import Counter, namedtuple

import pytest

from recorder import record

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.expanduser("~/.cache/culprit-runtimes/go")
SECONDS = os.environ.get("CULPRIT_RUNTIME_SECONDS", "8")
SCENARIOS = ["inlines", "growing", "deep", "callbacks", "c_leaf", "systems", "systems_in_callback",
             "assembly", "scheduled", "thread"]
VERSIONS = [f"1.{n}" for n in range(15, 28)]
# Options of `go build`: none, a PIE, and without symbols and DWARF.
FLAVOURS = {"plain": [], "pie": ["-buildmode=pie"], "stripped": ["-ldflags=-s -w"]}

Frame = namedtuple("Frame", "name file line")


class Toolchain:
    """One release of Go."""

    def __init__(self, version):
        places = sorted(glob.glob(f"{CACHE}/mod/golang.org/toolchain@v0.0.1-go{version}.*"))
        places += glob.glob(f"/usr/lib/go-{version}")
        here = shutil.which("go")
        if here:
            places.append(os.path.dirname(os.path.dirname(os.path.realpath(here))))
        for root in places:
            self.go = f"{root}/bin/go"
            self.env = {**os.environ, "GOROOT": root, "GOTOOLCHAIN": "local", "GOENV": "off",
                        "GOFLAGS": "", "GO111MODULE": "off", "CGO_ENABLED": "1",
                        "GOCACHE": f"{CACHE}/build"}
            if not os.path.exists(self.go):
                continue
            out = self.run("version")
            if out.returncode == 0 and re.search(rf"go{re.escape(version)}\b", out.stdout):
                self.full = out.stdout.split()[2]
                return
        pytest.skip(f"no Go {version}: tests/runtimes/go/get {version}")

    def run(self, *args, **options):
        return subprocess.run([self.go, *args], env=self.env, capture_output=True, text=True,
                              **options)


def record_enough(culprit, output, pid, enough):
    """Records for SECONDS, again and again until there are enough stacks for the test, and returns all stacks. More than
    one recording is needed on a busy machine, or by chance."""
    stacks = Counter()
    for _ in range(15):
        record(culprit, output, "-p", pid, "-d", SECONDS, "-F", "499",
               timeout=60 + 20 * int(SECONDS))
        stacks += read(output)
        if enough(stacks):
            break
    return stacks


def samples(n):
    return lambda stacks: sum(stacks.values()) >= n


# ((functions in one stack), samples): how often record_enough() must see them, which is more than tests require.
SEEN = [(("main.inlines", "main.spin"), 25), (("main.deep", "main.spin"), 25),
        (("main.callbacks", "main.goLeaf", "main.spin"), 25), (("main.cLeaf",), 25),
        (("main.goFromThread", "main.spin"), 25),
        (("main.systems", "runtime.systemstack", "runtime.Stack.func1"), 25),
        (("main.systemsInCallback", "runtime.systemstack", "runtime.Stack.func1"), 25),
        (("runtime.morestack", "runtime.newstack", "main.grow"), 25), (("runtime.gopark",), 1),
        (("main.move", "runtime.memmove"), 6), (("main.hash",), 6)]


def all_seen(stacks):
    seen = Counter()
    for stack, n in stacks.items():
        text = {f.name.removesuffix(".abi0") for f in stack}
        seen.update({what: n for what, _ in SEEN if text.issuperset(what)})
    return sum(stacks.values()) >= 1200 and all(seen[what] >= n for what, n in SEEN)


class Run:
    """Runs the scenarios under the recorder. Has their own chains and the recorded stacks."""

    def __init__(self, culprit, version, flavour, folder):
        self.flavour = flavour
        self.toolchain = Toolchain(version)
        program, out = f"{folder}/work", folder / "out.speedscope.json"
        done = self.toolchain.run("build", "-o", program, *FLAVOURS[flavour],
                                  cwd=os.path.join(HERE, "go"), timeout=300)
        assert done.returncode == 0, done.stderr
        with subprocess.Popen([program, ",".join(SCENARIOS)], text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as p:
            self.stacks = record_enough(culprit, out, p.pid, all_seen)
            self.doctor = subprocess.run([culprit, "doctor", "-p", str(p.pid)], text=True,
                                         capture_output=True, check=True).stdout
            said, _ = p.communicate("x")
        self.said, self.stopped = {}, [] # chains by runtime.Callers, stacks by runtime.Stack
        for line in said.splitlines():
            one = json.loads(line)
            if "stacks" in one:
                self.stopped += goroutines(one["stacks"])
            else:
                self.said[one["scenario"]] = [Frame(*f) for f in one["chain"]]

    def of(self, function):
        """Returns the stacks with this Go function."""
        return {s: n for s, n in self.stacks.items() if any(f.name == function for f in s)}


def goroutines(text):
    """Yields the stacks of runtime.Stack(all), root first, without long ones, which it shortens."""
    for block in text.split("\n\n"):
        lines = block.splitlines()[1:]
        if any("elided" in line for line in lines):
            continue
        stack = []
        for call, place in zip(lines[::2], lines[1::2]):
            m = re.match(r"\t(.*):(\d+)", place)
            name = re.fullmatch(r"(.+)\([^()]*\)", call)
            if name: # not "created by"
                stack.append(Frame(name[1], m[1], int(m[2])))
        yield stack[::-1]


def read(path):
    data = json.loads(path.read_text())
    frames = [Frame(f["name"], f.get("file"), f.get("line")) for f in data["shared"]["frames"]]
    stacks = Counter()
    for p in data["profiles"]:
        for stack, n in zip(p["samples"], p["weights"]):
            stacks[tuple(frames[i] for i in stack[1:])] += n # the first frame is the process
    return stacks


@pytest.fixture(scope="module", params=[f"{v}-{f}" for v in VERSIONS for f in FLAVOURS])
def go(request, culprit, tmp_path_factory):
    version, flavour = request.param.split("-")
    return Run(culprit, version, flavour, tmp_path_factory.mktemp("go"))


def names(stack):
    return [f.name for f in stack]


def show(stack):
    return ";".join(names(stack))


# Frames where a stack changes between Go and C, or between stacks. runtime.Callers leaves them out.
CROSSING = re.compile(r"runtime\.(systemstack|systemstack_switch|asmcgocall.*|cgocall|cgocallback.*|"
                      r"call\d+|reflectcall.*)|crosscall2|_cgoexp_.*|runtime\._cgoexpwrap.*")


def go_part(stack):
    """Returns the frames of Go code, which must be those of runtime.Callers. A goroutine that a thread of C borrows has
    no frame in which goroutines begin."""
    return [f for f in stack if f.file and f.file.endswith((".go", ".s")) and
            not CROSSING.fullmatch(f.name)]


def check_chain(run, scenario, leaf):
    """Checks that all stacks of a scenario that end in `leaf` equal the one of runtime.Callers. Returns their number."""
    said = go_part(run.said[scenario])
    if scenario == "thread" and said[0].name == "runtime.goexit":
        said = said[1:]
    assert said[-1].name == leaf, said
    root = said[1].name if said[0].name == "runtime.goexit" else said[0].name
    count = 0
    for stack, n in run.stacks.items():
        part = [f for f in go_part(stack)]
        if root not in names(stack) or leaf not in names(part):
            continue
        while part[-1].name != leaf: # functions that the leaf calls, or that interrupt it
            part.pop()
        assert names(part) == names(said), f"{show(stack)}\nnot {show(said)}"
        # The line of the leaf differs between samples.
        assert part[:-1] == said[:-1], "\n".join(map(str, zip(part, said)))
        assert part[-1].file == said[-1].file
        count += n
    return count


@pytest.mark.sample("1.19-plain-*")
@pytest.mark.parametrize("scenario", ["inlines", "deep", "callbacks", "thread"])
def test_chains_are_those_of_runtime_callers(go, scenario):
    n = check_chain(go, scenario, "main.spin")
    print(f"{go.toolchain.full} {go.flavour} {scenario}: {n} samples")
    assert n > 20


def without_runtime(stack):
    return [f for f in go_part(stack) if not f.name.startswith("runtime.")]


@pytest.mark.sample("1.19-plain-*")
@pytest.mark.parametrize("root,leaf", [
    ("main.inlines", "main.spin"), ("main.callbacks", "main.spin"),
    ("main.cLeaf", "main._Cfunc_c_spin"), ("main.goFromThread", "main.spin")])
def test_chains_are_those_of_stopped_goroutines(go, root, leaf):
    """runtime.Stack stops the goroutines in the functions where they spend their time."""
    def between(stack):
        """Returns the frames from root to leaf, without those of the runtime, and without the leaf's line."""
        part = without_runtime(stack)
        if root not in names(part) or leaf not in names(part):
            return ()
        part = part[names(part).index(root):names(part).index(leaf) + 1]
        return (*part[:-1], part[-1]._replace(line=0))

    told = {between(s) for s in go.stopped if s and s[-1].name == leaf} - {()}
    assert len(told) == 1, told
    told, count = told.pop(), 0
    for stack, n in go.of(root).items():
        part = between(stack)
        if part:
            assert part == told, "\n".join(map(str, zip(part, told)))
            count += n
    print(f"{go.toolchain.full} {go.flavour} {root}: {count} samples as runtime.Stack says")
    assert count > 20


C_NAMES = {
    "callbacks": r"main\.callbacks;main\._Cfunc_c_outer;runtime\.cgocall;runtime\.asmcgocall(\.abi0)?;"
                 r"(runtime\.asmcgocall_landingpad;)?_cgo_\w+_Cfunc_c_outer;c_outer;c_call;goMiddle;"
                 r"crosscall2;(runtime\.[\w.]+;|_cgoexp_\w+;|main\._cgoexpwrap\w+;)+main\.goMiddle;"
                 r"main\.middle;main\._Cfunc_c_inner;runtime\.cgocall;runtime\.asmcgocall;"
                 r"(runtime\.asmcgocall_landingpad;)?_cgo_\w+_Cfunc_c_inner;c_inner;c_call;goLeaf;"
                 r"crosscall2;(runtime\.[\w.]+;|_cgoexp_\w+;|main\._cgoexpwrap\w+;)+main\.goLeaf;"
                 r"main\.spin",
    "c_leaf": r"main\.cLeaf;main\.leavesGo;main\._Cfunc_c_spin;runtime\.cgocall;runtime\.asmcgocall;"
              r"(runtime\.asmcgocall_landingpad;)?_cgo_\w+_Cfunc_c_spin;c_spin",
    "thread": r"([^;]*clone[^;]*;)?[^;]*;c_thread_start;c_call;goFromThread;crosscall2;"
              r"(runtime\.[\w.]+;|_cgoexp_\w+;|main\._cgoexpwrap\w+;)+main\.goFromThread;main\.spin",
}


@pytest.mark.parametrize("scenario", C_NAMES)
def test_c_frames_lie_between_those_of_go(go, scenario):
    if go.flavour == "stripped":
        pytest.skip("no names of C functions")
    root = {"callbacks": "main.callbacks", "c_leaf": "main.cLeaf", "thread": "c_thread_start"}
    leaf = "c_spin" if scenario == "c_leaf" else "main.spin"
    pattern = re.compile(r"(.*;)?" + C_NAMES[scenario])
    count = 0
    for stack, n in go.of(root[scenario]).items():
        text = [x.removesuffix(".abi0") for x in names(stack)]
        if leaf not in text:
            continue
        text = ";".join(text[:text.index(leaf) + 1])
        assert pattern.fullmatch(text), text
        count += n
    print(f"{go.toolchain.full} {go.flavour} {scenario}: {count} samples")
    assert count > 20


@pytest.mark.parametrize("scenario", ["system", "system_in_callback"])
def test_the_caller_of_systemstack_is_not_lost(go, scenario):
    said = go_part(go.said[scenario])
    chain = names(said) + ["runtime.Stack"]
    count = 0
    root = "main.systems" if scenario == "system" else "main.systemsInCallback"
    for stack, n in go.of(root).items():
        all_names = [x.removesuffix(".abi0") for x in names(stack)]
        if "runtime.systemstack" not in all_names or "runtime.Stack.func1" not in all_names:
            continue
        at = len(all_names) - 1 - all_names[::-1].index("runtime.systemstack")
        assert names(go_part(stack[:at])) == chain, f"{show(stack)}\nnot {';'.join(chain)}"
        assert go_part(stack[:at])[:len(said) - 1] == said[:-1]
        assert all_names[at + 1] == "runtime.Stack.func1", show(stack)
        count += n
    print(f"{go.toolchain.full} {go.flavour} {scenario}: {count} samples on the system stack")
    assert count > 20


def test_a_stack_that_grows_has_its_goroutine_below(go):
    below = 0
    for stack, n in go.stacks.items():
        text = [x.removesuffix(".abi0") for x in names(stack)]
        if "runtime.newstack" not in text or "[truncated" in text[0]:
            continue
        at = text.index("runtime.morestack")
        assert text[at + 1] == "runtime.newstack", show(stack)
        if at == 0:
            # The goroutine was preempted: the scheduler runs.
            assert {"runtime.schedule", "runtime.gopreempt_m", "runtime.goschedImpl"} & set(text), \
                show(stack)
            continue
        if text[at - 1] == "main.grow":
            begin = text.index("main.grows")
            assert text[0] == "runtime.goexit" and begin <= 2, show(stack)
            assert set(text[begin + 1:at]) == {"main.grow"}, show(stack)
            below += n
    print(f"{go.toolchain.full} {go.flavour}: {below} samples below newstack")
    assert below > 20


# Functions that may call mcall. An inlined one has a frame of its own.
PARKS = re.compile(r"runtime\.(gopark|goparkunlock|Gosched|gosched|goschedguarded|goyield|goexit1|"
                   r"asyncPreempt2|exitsyscall|entersyscallblock|systemstack|coroswitch.*|"
                   r"preemptPark|mPark)")


def test_a_goroutine_that_waits_is_below_mcall(go):
    below = scheduler = 0
    for stack, n in go.stacks.items():
        text = names(stack)
        if "runtime.mcall" not in text or "[truncated" in text[0]:
            continue
        at = text.index("runtime.mcall")
        if at == 0:
            scheduler += n
            continue
        assert text[0] == "runtime.goexit" or "crosscall2" in text, show(stack)
        assert PARKS.fullmatch(text[at - 1]), show(stack)
        below += n
    print(f"{go.toolchain.full} {go.flavour}: {below} samples in mcall for a goroutine, "
          f"{scheduler} of the scheduler's own")
    assert below > 0


def test_assembly_has_its_callers(go):
    found = Counter()
    said = go_part(go.said["asm"])
    for stack, n in go.of("main.assembly").items():
        part = go_part(stack)
        if part[-1].name == "runtime.memmove" and part[-2].name == "main.move":
            assert names(part[:-1]) == ["runtime.goexit", "main.assembly", "main.move"], show(stack)
            found["move"] += n
        elif "main.hash" in names(part) and re.search(r"sha256.*block", part[-1].name):
            assert part[:len(said) - 1] == said[:-1], show(stack)
            assert re.search(r"sha256.*Sum256", part[len(said)].name), show(stack)
            found["hash"] += n
    print(f"{go.toolchain.full} {go.flavour}: {dict(found)}")
    assert found["move"] > 5 and found["hash"] > 5


def test_doctor(go):
    """doctor prints the release, where rows and names come from, and how culprit finds the goroutine below the system
    stack."""
    print(go.doctor, end="")
    line = re.search(rf"^go: {re.escape(go.toolchain.full)}; rows and names of \S+.*$", go.doctor,
                     re.M)
    assert line and "goroutines below the system stack by offsets in its code" in line[0]
    assert "missing" not in go.doctor


def test_stacks_are_complete(go):
    total = sum(go.stacks.values())
    bad = Counter()
    for stack, n in go.stacks.items():
        if "[truncated" in stack[0].name:
            bad[show(stack)[:300]] += n
    share = 1 - sum(bad.values()) / total
    print(f"{go.toolchain.full} {go.flavour}: {total} samples, {100 * share:.2f} % complete")
    for text, n in bad.most_common(5):
        print(f"    {n} × {text}")
    assert total > 500 and share >= 0.98


# ---- real programs ----

# Functions in which the runtime's threads, the scheduler and code before main begin.
ENDS = re.compile(r"runtime\.(goexit|mstart|mcall|morestack|rt0_go|sigtramp|clone|gogo)(\.abi0)?|"
                  r"_rt0_\w+|_start|(__)?clone3?(_internal)?|_dl_start_user|_dlstart|gogo")


def share_of_complete(stacks):
    """Returns the number of user stacks, the share of complete ones, and the incomplete ones."""
    total, bad = 0, Counter()
    for stack, n in stacks.items():
        if stack[0].name.endswith("_[k]"):
            continue # the process has no user space yet, or none any more
        total += n
        if not ENDS.fullmatch(stack[0].name):
            bad[show(stack)[:300]] += n
    return total, 1 - sum(bad.values()) / total, bad


def report(what, stacks):
    total, share, bad = share_of_complete(stacks)
    print(f"{what}: {total} user stacks, {100 * share:.2f} % complete")
    for text, n in bad.most_common(5):
        print(f"    {n} × {text}")
    return total, share


@pytest.mark.parametrize("version", VERSIONS)
def test_from_its_start(culprit, tmp_path, version):
    """Records a new program, which runs for a second, from its start."""
    toolchain = Toolchain(version)
    out, program = tmp_path / "out.speedscope.json", str(tmp_path / "start")
    done = toolchain.run("build", "-o", program, "main.go", cwd=os.path.join(HERE, "go/start"),
                         timeout=300)
    assert done.returncode == 0, done.stderr
    record(culprit, out, "-F", "499", "--", program)
    stacks = read(out)
    total, share = report(f"{toolchain.full} a program from its start", stacks)
    below = sum(n for s, n in stacks.items() if {"main.main", "runtime.systemstack"} <= {
        f.name.removesuffix(".abi0") for f in s})
    assert total >= 300 and share >= 0.99 and below >= 20


@pytest.mark.parametrize("version", ["1.19", "1.26"])
def test_the_go_compiler(culprit, tmp_path, version):
    """Building the standard library runs hundreds of short processes, each a large Go program."""
    toolchain = Toolchain(version)
    out = tmp_path / "out.speedscope.json"
    record(culprit, out, "-F", "199", "--", toolchain.go, "build", "-p", "2", "std",
           env={**toolchain.env, "GOCACHE": str(tmp_path / "cache"), "CGO_ENABLED": "0"},
           timeout=500)
    stacks = Counter()
    for stack, n in read(out).items():
        stacks[stack] += n
    total, share = report(f"{toolchain.full} build std", stacks)
    assert total > 1000 and share >= 0.98 # the build takes 8 s of CPU time or more


@pytest.mark.parametrize("version", ["1.16", "1.20", "1.26", "1.15-pie", "1.17-pie", "1.27-pie"])
def test_an_http_server(culprit, tmp_path, version):
    """An HTTP server; -pie: a stripped PIE by Go's own linker, which puts relocations into another section."""
    version, _, pie = version.partition("-")
    toolchain = Toolchain(version)
    out, server = tmp_path / "out.speedscope.json", str(tmp_path / "server")
    toolchain.env["CGO_ENABLED"] = "0" if pie else "1"
    flags = ["-buildmode=pie", "-ldflags=-s -w"] if pie else []
    done = toolchain.run("build", *flags, "-o", server, "server.go", cwd=os.path.join(HERE, "go/server"),
                         timeout=300)
    assert done.returncode == 0, done.stderr
    with subprocess.Popen([server, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as p:
        address = p.stdout.readline().strip()
        with subprocess.Popen([server, "load", address, "8"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as load:
            stacks = record_enough(culprit, out, p.pid, samples(600))
            answered = int(load.communicate("x")[0])
        doctor = subprocess.run([culprit, "doctor", "-p", str(p.pid)], capture_output=True,
                                text=True, check=True).stdout
        p.communicate("x")
    assert f"go: {toolchain.full}; rows and names of " in doctor
    assert "goroutines below the system stack by offsets in its code" in doctor, doctor
    total, share = report(f"{toolchain.full} {pie} net/http, {answered} requests", stacks)
    assert answered > 1000 and total > 300 and share >= 0.98
    handled = [s for s in stacks if "main.handle" in names(s)]
    # `go c.serve()` starts the function itself, or a wrapper around it.
    begin = re.compile(r"runtime\.goexit;net/http\.(\(\*conn\)\.serve|"
                       r"\(\*Server\)\.Serve(·dwrap·\d+|\.func\d+|\.gowrap\d+));")
    assert handled and all(begin.match(show(s)) for s in handled
                           if "[truncated" not in s[0].name)
