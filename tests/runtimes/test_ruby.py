# SPDX-License-Identifier: Apache-2.0
"""Ruby's frames: chains of names, files and lines, compared with Ruby's own backtraces, on each installed version."""

import json
import os
import re
import shutil
import subprocess
import time
from collections import Counter, namedtuple

import pytest

from recorder import record

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.expanduser("~/.cache/culprit-runtimes")
SECONDS = os.environ.get("CULPRIT_RUNTIME_SECONDS", "5")

# Each version and build is a parameter: (name for ruby/get, executable, options). "-mn": threads share native threads.
BUILDS = {
    "2.7": ("2.7", "usr/bin/ruby2.7", []),
    "3.1": ("3.1", "usr/bin/ruby3.1", []),
    "3.1-yjit": ("3.1", "usr/bin/ruby3.1", ["--yjit"]),
    "3.3": ("3.3", "usr/bin/ruby3.3", []),
    "3.3-static": ("3.3-static", "bin/ruby", []),
    "3.3-yjit": ("3.3-yjit", "bin/ruby", ["--yjit"]),
    "3.4": ("3.4", "usr/bin/ruby3.4", []),
    "3.4-mn": ("3.4", "usr/bin/ruby3.4", []),
}

Frame = namedtuple("Frame", "name file line")


class Ruby:
    """One interpreter, which may be in a root of its own. Starts scripts in it."""

    def __init__(self, build, tmp_path):
        name, path, options = BUILDS[build]
        self.build = build
        folder = f"{CACHE}/ruby-{name}"
        if not os.path.exists(os.path.join(folder, path)):
            got = subprocess.run([os.path.join(HERE, "ruby/get"), name], capture_output=True, text=True)
            if got.returncode:
                pytest.skip(f"no Ruby {build}: {got.stderr.strip()}")
        self.root = folder if path.startswith("usr/") else None
        self.scratch = f"{folder}/tmp" if self.root else str(tmp_path)
        self.command = ["chroot", folder, f"/{path}"] if self.root else [f"{folder}/{path}"]
        self.command += options
        self.version = tuple(map(int, name[:3].split(".")))

    def inside(self, path):
        return path[len(self.root):] if self.root else path

    def place(self, *names):
        """Copies scripts to where the interpreter sees them; returns its path of the first."""
        for name in names:
            shutil.copy(os.path.join(HERE, "ruby", name), self.scratch)
        return self.inside(os.path.join(self.scratch, names[0]))

    def start(self, *args):
        environment = {**os.environ, **({"RUBY_MN_THREADS": "1"} if self.build.endswith("-mn") else {})}
        return subprocess.Popen([*self.command, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                env=environment)


@pytest.fixture(params=BUILDS)
def ruby(request, tmp_path):
    return Ruby(request.param, tmp_path)


def frames_of(backtrace):
    """Returns the frames of a backtrace of Ruby, root first; without a method in C at its root, which has no line."""
    found = [re.fullmatch(r"(.*?):(?:(\d+):)?in [`'](.*)'", line) for line in reversed(backtrace)]
    return tuple(Frame(m.group(3), m.group(1), int(m.group(2))) for m in found if m.group(2))


def profile(culprit, process, tmp_path, seconds=SECONDS, *options):
    """Records a process. Returns {stack of Frame, root first: count}, and the number of truncated samples."""
    out = tmp_path / "out.speedscope.json"
    record(culprit, out, "-p", process.pid, "-d", seconds, "-F", "199", *options)
    data = json.loads(out.read_text())
    frames = [Frame(f["name"], f.get("file"), f.get("line")) for f in data["shared"]["frames"]]
    stacks = Counter()
    for p in data["profiles"]:
        for stack, n in zip(p["samples"], p["weights"]):
            stacks[tuple(frames[i] for i in stack)] += n
    whole = {s: n for s, n in stacks.items()
             if not any("[truncated" in f.name or "frames not read]" in f.name for f in s)}
    return whole, sum(stacks.values()) - sum(whole.values())


def ruby_part(stack, files):
    return tuple(f for f in stack if f.file and (f.file in files or f.file.startswith(("<internal:", "(eval"))))


def fits(part, chain):
    """Whether the frames are a beginning of the chain: all but the last are at a call, whose line is known. A method
    in C has the line of its caller, whose line is then the current one, too."""
    if len(part) > len(chain) or any(a[:2] != b[:2] for a, b in zip(part, chain)):
        return False
    at_call = len(part) - 1 - (len(part) > 1 and part[-1][1:] == part[-2][1:])
    return all(a.line == b.line for a, b in zip(part[:at_call], chain))


# Methods in C that end a stack now and then: of the code between the chains, and of `leaf` itself.
BETWEEN = {"[]", "==", "raise", "yield", "exception", "backtrace", "initialize", "new", "load", "join", "public_send", "<=>", "<<", "sleep", "eval",
           "resume", "map", "lazy", "lambda", "method", "to_proc", "zero?", "first", "throw", "send", "then",
           "next", "catch",
           "gsub", "proc", "set_encoding", "==="}


def is_between(name):
    return re.split(r"[#.]", name)[-1] in BETWEEN


def seen_whole(stacks, known, files):
    """The names of the chains that were sampled up to their end."""
    parts = {ruby_part(stack, files) for stack in stacks}
    return {name for name, chain in known.items() for p in parts if len(p) == len(chain) and fits(p, chain)}


PROFILES = {}


@pytest.fixture
def chains(culprit, ruby, tmp_path):
    """Returns (known chains by name, the scripts' paths, stacks, truncated); recorded once for each build."""
    if ruby.build not in PROFILES:
        script = ruby.place("chains.rb", "loaded.rb")
        process = ruby.start(script)
        try:
            known = json.loads(process.stdout.readline())
            assert process.stdout.readline() == "ready\n"
            known = {name: frames_of(b) for name, b in known.items()}
            files = {script, os.path.join(os.path.dirname(script), "loaded.rb")}
            stacks, truncated = Counter(), 0
            for _ in range(4): # on a busy machine a recording may lack some chains
                more, lost = profile(culprit, process, tmp_path)
                stacks.update(more)
                truncated += lost
                if set(known) <= seen_whole(stacks, known, files):
                    break
            PROFILES[ruby.build] = known, files, stacks, truncated
        finally:
            process.kill()
            process.wait()
    return PROFILES[ruby.build]


@pytest.mark.sample("3.1")
def test_chains(ruby, chains):
    """No sampled stack differs from Ruby's own backtrace, and each chain is seen whole."""
    known, files, stacks, truncated = chains
    wrong, none, stale = [], 0, 0
    seen = seen_whole(stacks, known, files)

    def find(part):
        return [name for name, chain in known.items() if fits(part, chain)]

    for stack, n in stacks.items():
        part = whole = ruby_part(stack, files)
        if any(f.name == "[stale]" for f in stack): # code of loaded.rb that was freed before it was named
            stale += n
            continue
        if not part:
            # Threads of Ruby itself have none, and a fiber that starts.
            none += n if any(f.name == "ruby_run_node" for f in stack) else 0
            continue
        found = find(part)
        while not found and is_between(part[-1].name) and len(part) > 1:
            part = part[:-1]
            found = find(part)
        if not found:
            wrong.append((n, whole))
    total = sum(stacks.values())
    print(f"{ruby.build}: {total} samples, {truncated} truncated, {sum(n for n, _ in wrong)} wrong, "
          f"{none} without Ruby's frames, {stale} with stale ones, {len(seen)} of {len(known)} chains complete")
    assert not wrong, f"{len(wrong)} wrong chains, such as {wrong[:3]}"
    assert seen == set(known), f"chains never seen whole: {set(known) - seen}"
    assert truncated <= 0.02 * (total + truncated)
    assert none <= 0.02 * total
    assert stale <= 0.02 * total


def native_frames_fit(stack):
    """Whether each call of rb_ary_each() is where Array#each is."""
    return all(caller.name in ("each", "Array#each") for caller, frame in zip(stack, stack[1:])
               if frame.name == "rb_ary_each")


@pytest.mark.sample("3.1")
def test_switches(culprit, ruby, tmp_path):
    """Where samples hit the begin or the end of a call between Ruby and C, no frame belongs to another call."""
    script = ruby.place("switches.rb")
    process = ruby.start(script)
    try:
        known = json.loads(process.stdout.readline())
        assert process.stdout.readline() == "ready\n"
        known = [[f.name for f in frames_of(b)] for b in known.values()]
        stacks, truncated = profile(culprit, process, tmp_path, SECONDS, "-F", "997")
    finally:
        process.kill()
        process.wait()
    # Other ends are methods in C, and a block without a call.
    first = next(chain for chain in known if chain[-1].endswith("tiny"))
    n_inner = next(i for i, name in enumerate(first) if re.fullmatch("(Object#)?inner", name)) + 1
    ends = Counter()
    wrong, misplaced = [], 0
    for stack, n in stacks.items():
        names = [f.name for f in ruby_part(stack, {script})]
        misplaced += n * (not native_frames_fit(stack))
        if any(names == chain[:len(names)] for chain in known):
            ends[names[-1] if names else "none"] += n
        elif names[:n_inner] == first[:n_inner] and re.fullmatch(
                r"(\S*(each_with_index|inject|sort_by))( \S*each( block in \S*inner)?)?", " ".join(names[n_inner:])):
            ends["others"] += n
        else:
            wrong.append((n, names))
    total = sum(stacks.values())
    print(f"{ruby.build}: {total} samples between calls, {truncated} truncated, {sum(n for n, _ in wrong)} wrong, "
          f"{misplaced} with native frames in the wrong place, ends: {dict(ends)}")
    assert not misplaced
    assert not wrong, f"{len(wrong)} wrong chains, such as {wrong[:3]}"
    assert total >= 100
    assert truncated <= 0.02 * total


def backtraces_of(process, end, within=120):
    """Returns Thread#backtrace of all threads, as soon as each is in the method `end`."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        process.stdin.write("\n")
        process.stdin.flush()
        threads = [frames_of(b or []) for b in json.loads(process.stdout.readline())]
        if all(t and t[-1].name.endswith(end) for t in threads):
            return threads
        time.sleep(0.2)
    pytest.fail(f"the threads are in {threads}")


@pytest.mark.sample("3.1")
def test_agrees_with_backtraces(culprit, ruby, tmp_path):
    """Stacks of threads that stay at one place are what Thread#backtrace says, line by line."""
    script = ruby.place("stopped.rb")
    process = ruby.start(script)
    try:
        assert process.stdout.readline() == "ready\n"
        threads = backtraces_of(process, "spin")
        ours, lost = Counter(), 0
        for _ in range(6): # on a busy machine a recording may lack some threads
            stacks, truncated = profile(culprit, process, tmp_path)
            lost += truncated
            for stack, n in stacks.items():
                part = ruby_part(stack, {script, "text.rb"})
                ours[part] += n if part else 0
            if set(threads) <= set(ours):
                break
    finally:
        process.kill()
        process.wait()
    total = sum(ours.values())
    # The position of code of YJIT is not known, see doc/runtimes/ruby.md.
    def without_line(stack):
        return stack[:-1] + (stack[-1]._replace(line=None),)
    leaves = {without_line(t) for t in threads}
    other = {s: n for s, n in ours.items() if n and s not in threads and
             not (ruby.build.endswith("-yjit") and s in leaves)}
    print(f"{ruby.build}: {total} samples of {len(threads)} threads, {lost} truncated, {sum(other.values())} elsewhere")
    missing = [t for t in threads if t not in ours and not (ruby.build.endswith("-yjit") and without_line(t) in ours)]
    assert not missing, f"{missing[0]} is not among {list(ours)}"
    assert not other
    assert len(set(threads)) == len(threads) >= 8


@pytest.mark.sample("3.1")
def test_doctor(culprit, ruby):
    """doctor prints the version and where the thread's state comes from, and misses nothing in these builds."""
    process = ruby.start("-e", "$stdout.sync = true; puts 'ready'; sleep")
    try:
        assert process.stdout.readline() == "ready\n"
        said = subprocess.run([culprit, "doctor", "-p", str(process.pid)], capture_output=True,
                              text=True).stdout.splitlines()
    finally:
        process.kill()
        process.wait()
    print(ruby.build, said)
    state = "ruby_native_thread_p" if ruby.version == (2, 7) else "rb_errinfo"
    assert re.fullmatch(rf"ruby: Ruby {ruby.version[0]}\.{ruby.version[1]}\.\d+, offsets from a table, interpreter by "
                        rf"its table of instructions, thread state from {state}", said[0])
    assert not any("missing" in line for line in said)
