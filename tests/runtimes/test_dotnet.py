# SPDX-License-Identifier: Apache-2.0
"""Managed frames of .NET, compared with its own: Environment.StackTrace.

The runtimes are in ~/.cache/culprit-runtimes/dotnet-N; tests/runtimes/dotnet/get fetches all of them. The test program
is compiled by Mono (apt-get install mono-mcs) and runs in the program that the package contains, as a startup hook.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
CACHE = os.path.expanduser("~/.cache/culprit-runtimes")
CULPRIT = os.environ.get("CULPRIT", os.path.join(TOP, "build/cli/culprit"))
VERSIONS = ["3.1.23", "3.1.32", "8.0.30", "9.0.7", "10.0.5", "10.0.11"]
PROGRAMS = ["dotnet", "azmcp", "Sarif.Multitool"]

sys.path.insert(0, os.path.join(TOP, "tests/live"))
from recorder import read, record # noqa: E402

LEAF = "Demo.Chains.Leaf"


def compiled(folder, source):
    if not shutil.which("mcs"):
        pytest.skip("no C# compiler: mcs")
    path = folder / os.path.basename(source).replace(".cs", ".dll")
    subprocess.run(["mcs", "-optimize+", f"-out:{path}", source], check=True)
    path.with_suffix(".runtimeconfig.json").write_text(
        '{"runtimeOptions": {"framework": {"name": "Microsoft.NETCore.App", "version": "3.1.0"}}}')
    return path


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("dotnet"), f"{HERE}/dotnet/Chains.cs")


class Runtime:
    def __init__(self, version, path):
        self.version, self.path = version, path
        self.major = int(version.partition(".")[0])

    def command(self, program, *args):
        """Returns the command that runs a program, and its environment."""
        env = {**os.environ, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"}
        if os.path.basename(self.path) == "dotnet":
            return [self.path, "exec", str(program), *args], env
        return [self.path, "--version"], {**env, "DOTNET_STARTUP_HOOKS": str(program)}

    def start(self, program, chain, **settings):
        """Starts a chain of the test program; settings are the runtime's, without the prefix."""
        command, env = self.command(program, chain)
        env["CHAIN"] = chain
        for prefix in ("DOTNET", "COMPlus"):
            env.update({f"{prefix}_{k}": str(v) for k, v in settings.items()})
        return Running(command, env)


class Running:
    """A running chain that has printed the runtime's own trace, root first."""

    def __init__(self, command, env):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        self.want = expected(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def record(self, output, *args, seconds=3):
        time.sleep(1) # until hot code is compiled
        assert self.process.poll() is None
        command = ["-F", 499, "-p", self.process.pid, *args, "-d"]
        done = record(CULPRIT, output, *command, seconds)
        if int(re.match(r"\d+", done.stderr).group()) < 100 * seconds: # a busy machine
            record(CULPRIT, output, *command, 4 * seconds)
        return read(output)


# Frames of StackTrace that are calls into native code, and so no managed code.
NATIVE = ["System.RuntimeMethodHandle.InvokeMethod", "Demo.Chains.qsort"]


def expected(line):
    """Returns the names of Environment.StackTrace's managed frames, root first."""
    names = re.findall(r"\bat ([^|(]*)\(", line)
    return [re.sub(r"\[[^]]*\]$", "", n) for n in names
            if n not in NATIVE and not n.startswith("System.Environment.")][::-1]


@pytest.fixture(scope="module", params=VERSIONS)
def dotnet(request):
    if os.geteuid() != 0:
        pytest.skip("not root")
    for name in PROGRAMS:
        path = f"{CACHE}/dotnet-{request.param}/{name}"
        if os.path.exists(path):
            return Runtime(request.param, path)
    pytest.skip(f"no .NET {request.param}: not {CACHE}/dotnet-{request.param}")


def managed(frames):
    """Returns the managed frames of a stack, in the form of StackTrace, which leaves out what the runtime has made."""
    names = [f for f in frames if re.match(r"(Demo|Internal|Interop|Microsoft|StartupHook|System|dynamicClass)\.", f)]
    return [re.sub(r"^dynamicClass\.", "", n) for n in names if not n.startswith("dynamicClass.IL_STUB")]


def check(stacks, want, least=200):
    """All stacks with Leaf have exactly the wanted managed frames."""
    right = total = 0
    wrong = Counter()
    for s in stacks:
        got = managed(s.frames)
        if LEAF not in got:
            continue
        total += s.count
        if got == want:
            right += s.count
        else:
            wrong[tuple(got)] += s.count
    for chain, n in wrong.most_common(3):
        print(f"wrong, {n}:", *chain, sep="\n   ")
    if right < total:
        print("wanted:", *want, sep="\n   ")
    assert total >= least, f"only {total} samples in {LEAF}"
    assert right >= 0.99 * total, f"{right} of {total} samples have the chain of StackTrace"
    print(f"{right} of {total} samples have exactly the chain of StackTrace")


CHAINS = ["two", "generic", "sort", "lambda", "deep", "dynamic", "native", "thread"]


@pytest.mark.sample("3.1.23-two")
@pytest.mark.parametrize("chain", CHAINS)
def test_chain(dotnet, program, tmp_path, chain):
    if dotnet.major == 10:
        pytest.skip("the program was published without startup hooks")
    with dotnet.start(program, chain) as p:
        check(p.record(tmp_path / "out.folded"), p.want)


def test_program(dotnet, tmp_path):
    """The program in the package does its own work, from its start."""
    if dotnet.version != "10.0.11":
        pytest.skip("the program does too little")
    out = tmp_path / "out.folded"
    record(CULPRIT, out, "-F", 499, "--", dotnet.path, "tools", "list",
           env={"DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"})
    stacks = [s for s in read(out) if not s.note]
    total = sum(s.count for s in stacks)
    main = sum(s.count for s in stacks if "Azure.Mcp.Server.Program.Main" in s.frames)
    stale = sum(s.count for s in stacks if "[stale]" in s.frames)
    print(f"{main} of {total} samples are below Main, {stale} have a stale frame")
    assert total >= 200 and main > 0.2 * total and stale <= 0.01 * total


def test_a_program_that_has_never_unwound_its_stack(dotnet, tmp_path):
    """Neither an exception nor a garbage collection has read the unwind codes of the images: no page of them is in memory."""
    command, env = dotnet.command(compiled(tmp_path, f"{TOP}/tests/bench/Frames.cs"))
    with subprocess.Popen(command, env={**env, "FRAMES": "24"}) as p:
        try:
            time.sleep(3)
            # The host of a recording with few samples a second has time to walk each again.
            record(CULPRIT, tmp_path / "o.folded", "-F", 49, "-p", p.pid, "-d", 6)
        finally:
            p.kill()
    stacks = [line.rpartition(" ") for line in (tmp_path / "o.folded").read_text().splitlines()]
    total = sum(int(n) for _, _, n in stacks)
    whole = sum(int(n) for stack, _, n in stacks if "[truncated" not in stack and stack.count(";Frames.level") == 22)
    assert total > 50 and whole >= 0.9 * total, stacks
