# SPDX-License-Identifier: Apache-2.0
"""Lua's frames: exact chains of names, files and lines, on Debian's versions of Lua. test_luajit.py uses the same
programs."""

import json
import os
import re
import shutil
import subprocess
from collections import Counter, namedtuple

import pytest

from recorder import record

HERE = os.path.dirname(os.path.abspath(__file__))
FETCH = os.path.join(HERE, "../../tools/vm/fetch")
SECONDS = os.environ.get("CULPRIT_RUNTIME_SECONDS", "5")

# Build → suite of Debian, package and program
BUILDS = {
    "5.1": ("bookworm", "lua5.1"),
    "5.1-sid": ("sid", "lua5.1"),
    "5.3": ("bookworm", "lua5.3"),
    "5.3-sid": ("sid", "lua5.3"),
    "5.4": ("bookworm", "lua5.4"),
    "5.4-bullseye": ("bullseye", "lua5.4"),
    "5.4-trixie": ("trixie", "lua5.4"),
    "5.4-sid": ("sid", "lua5.4"),
    "5.5-sid": ("sid", "lua5.5"),
}

Frame = namedtuple("Frame", "name file line")


class Lua:
    """An interpreter in a root of its own, which it runs in with chroot."""

    def __init__(self, build, suite, package, option=""):
        self.build = build
        self.option = option
        got = subprocess.run([FETCH, "root", suite, "amd64", package], capture_output=True, text=True)
        if got.returncode:
            pytest.skip(f"no {package} of {suite}: {got.stderr.strip()}")
        self.root = got.stdout.strip()
        self.program = f"/usr/bin/{package}"

    def place(self, name):
        """Copies a script into the root; returns the path that the interpreter sees."""
        os.makedirs(os.path.join(self.root, "tmp"), exist_ok=True)
        shutil.copy(os.path.join(HERE, "lua", name), os.path.join(self.root, "tmp", name))
        return f"/tmp/{name}"

    def start(self, script):
        return subprocess.Popen(["chroot", self.root, self.program, script, self.option],
                                stdout=subprocess.PIPE, text=True)

    @property
    def names_tail_calls(self):
        """LuaJIT does not mark frames of tail calls: the function has the name of the call before."""
        return "luajit" in self.program


@pytest.fixture(params=BUILDS)
def lua(request):
    return Lua(request.param, *BUILDS[request.param])


def profile(culprit, process, tmp_path, *options):
    """Records a process. Returns {stack of Frame, leaf last: count}, and the number of truncated samples."""
    out = tmp_path / "out.speedscope.json"
    record(culprit, out, "-p", process.pid, "-d", SECONDS, "-F", "199", *options)
    data = json.loads(out.read_text())
    frames = [Frame(f["name"], f.get("file"), f.get("line")) for f in data["shared"]["frames"]]
    stacks = Counter()
    for p in data["profiles"]:
        for stack, n in zip(p["samples"], p["weights"]):
            stacks[tuple(frames[i] for i in stack)] += n
    whole = {s: n for s, n in stacks.items()
             if not any("[truncated" in f.name or "frames not read]" in f.name for f in s)}
    return whole, sum(stacks.values()) - sum(whole.values())


def marked_lines(name):
    lines = {}
    with open(os.path.join(HERE, "lua", name), encoding="utf-8") as f:
        for number, text in enumerate(f, 1):
            for mark in re.findall(r"@(\w+)", text):
                lines.setdefault(mark, set()).add(number)
    return lines


def chains_of(lua, lines):
    """Returns the chains of (function, mark of the current line) by name."""
    def at(mark):
        return f"<chains.lua:{min(lines[mark])}>"
    index = [("__index", "index"), ("static", "static"), ("method", "method"), ("leaf", "leaf")]
    value = [("value", "value"), *index]
    tail = "tail" if lua.names_tail_calls else at("define_leaf")
    chains = {
        "sort": [("through_sort", "sort"), (at("define_compare"), "compare"), *value],
        "gsub": [("through_gsub", "gsub"), (at("define_replace"), "replace"), *value],
        "pcall": [("through_pcall", "pcall"), (at("define_value"), "value"), *index],
        "coroutines": [("through_coroutines", "coroutines"), (at("define_outer"), "outer"),
                       (at("define_inner"), "inner"), *value],
        "deep": [("through_deep", "through_deep"), *[("deep", "deep")] * 40, ("deep", "deepest"), *value],
        "tail": [("through_tail", "tail"), (tail, "leaf")],
    }
    return {name: [("main chunk", "chunk"), ("main", "main"), *chain] for name, chain in chains.items()}


def matches(part, chain, lines):
    """Tells whether the frames are a beginning of the chain. All but the last are at a call, whose line is known."""
    if len(part) > len(chain):
        return False
    for i, (frame, (name, mark)) in enumerate(zip(part, chain)):
        if frame.name != name:
            return False
        if i + 1 < len(part) and frame.line not in lines[mark]:
            return False
    return True


def judge_chains(lua, stacks, truncated, script):
    lines = marked_lines("chains.lua")
    chains = chains_of(lua, lines)
    # Only for some instructions, before the tail call.
    short = [*chains["tail"][:-1], ("tail", "in_tail")]
    seen, wrong, no_line = Counter(), [], 0
    for stack, n in stacks.items():
        part = [f for f in stack if f.file == script]
        fits = [name for name, chain in chains.items() if matches(part, chain, lines)]
        if part and not fits and not matches(part, short, lines):
            wrong.append((n, part))
        for name in fits:
            if len(part) == len(chains[name]):
                if name == "tail" and part[-1].line in lines["in_tail"]:
                    continue
                seen[name] += n
                if part[-1].line is None:
                    no_line += n  # it is about to begin or to end
                else:
                    assert part[-1].line - min(lines["define_leaf"]) in range(0, 7), part[-1]
    total = sum(stacks.values())
    assert no_line <= 0.01 * total
    print(f"{lua.build}: {total} samples, {truncated} truncated, complete chains: {dict(seen)}")
    assert not wrong, f"{len(wrong)} wrong chains, such as {wrong[:3]}"
    assert set(seen) == set(chains), "chains never seen whole"
    assert truncated <= 0.02 * (total + truncated)


def record_chains(culprit, lua, tmp_path, *options):
    script = lua.place("chains.lua")
    process = lua.start(script)
    try:
        assert process.stdout.readline() == "ready\n"
        return script, *profile(culprit, process, tmp_path, *options)
    finally:
        process.kill()
        process.wait()


@pytest.mark.sample("5.4")
def test_chains(culprit, lua, tmp_path):
    script, stacks, truncated = record_chains(culprit, lua, tmp_path)
    judge_chains(lua, stacks, truncated, script)
    judge_native_frames(stacks)


def judge_native_frames(stacks):
    """Checks that functions of C are between the Lua functions that call them and that they call."""
    found = 0
    for stack, n in stacks.items():
        names = [f.name for f in stack]
        if "through_sort" not in names or "__index" not in names:
            continue
        between = stack[names.index("through_sort") + 1:names.index("value")]
        assert between[0] == Frame("sort", "[C]", None), between
        assert any("lua" in f.name and not f.file for f in between[1:]), between
        found += n
    assert found


def traceback_of(process):
    """Returns (function, line) of the Lua functions in the traceback that the process prints, leaf last."""
    frames = []
    for line in iter(process.stdout.readline, "end\n"):
        m = re.match(r"\s+\S*/stopped\.lua:(\d+): in (.*)", line)
        if not m:
            continue
        named = re.search(r"'(?:.*[.:])?(\w+)'", m.group(2))
        at = re.search(r"<.*?([^/]*:\d+)>", m.group(2))
        name = named.group(1) if named else f"<{at.group(1)}>" if at else "main chunk"
        frames.insert(0, (name.lstrip("_"), int(m.group(1))))
    return frames


def judge_traceback(culprit, lua, tmp_path):
    script = lua.place("stopped.lua")
    process = lua.start(script)
    try:
        theirs = traceback_of(process)
        stacks, _ = profile(culprit, process, tmp_path)
    finally:
        process.kill()
        process.wait()
    if lua.build.startswith("5.1"): # its tracebacks do not name metamethods
        theirs = [("add", line) if name == "<stopped.lua:23>" else (name, line) for name, line in theirs]
    ours = Counter()
    for stack, n in stacks.items():
        part = [(f.name.lstrip("_"), f.line) for f in stack if f.file == script]
        assert part[-1][0] == theirs[-1][0], (part, theirs)
        ours[tuple(part[:-1])] += n # the last function goes on
    print(f"{lua.build}: {sum(ours.values())} samples, {theirs}")
    assert set(ours) == {tuple(theirs[:-1])}


@pytest.mark.sample("5.4")
def test_agrees_with_traceback(culprit, lua, tmp_path):
    judge_traceback(culprit, lua, tmp_path)


@pytest.mark.sample("5.4")
def test_doctor(culprit, lua):
    process = lua.start(lua.place("chains.lua"))
    try:
        assert process.stdout.readline() == "ready\n"
        said = subprocess.run([culprit, "doctor", "-p", str(process.pid)], capture_output=True, text=True).stdout
    finally:
        process.kill()
        process.wait()
    assert re.search(rf"lua: Lua {lua.build[:3]}\.\d, offsets from a table", said), said
