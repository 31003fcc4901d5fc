# SPDX-License-Identifier: Apache-2.0
"""PHP's frames: exact chains of names, files and lines, on each version, with and without OPcache and its JIT.

Debian's builds of other suites come from `tests/runtimes/php/get debian 7.4 8.2 8.4 8.5 8.6`; `get zts 8.2` makes a thread-safe
build ("8.2zts").
"""

import glob
import json
import os
import re
import shutil
import socket
import stat
import struct
import subprocess
import threading
import time
from collections import Counter, namedtuple

import pytest

from recorder import record, wait_for_cpu

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.expanduser("~/.cache/culprit-runtimes")
SECONDS = os.environ.get("CULPRIT_RUNTIME_SECONDS", "5")
VERSIONS = ["7.4", "8.2", "8.4", "8.5", "8.6"]
OPCACHE = ["opcache.enable_cli=1", "opcache.enable=1", "opcache.file_update_protection=0",
           "opcache.jit_buffer_size=32M"]
# How the interpreter runs: settings for each.
MODES = {
    "plain": [],
    "opcache": [*OPCACHE, "opcache.jit=disable"],
    "function": [*OPCACHE, "opcache.jit=function"],
    "tracing": [*OPCACHE, "opcache.jit=tracing"],
}
BUILDS = [f"{version}-{mode}" for version in VERSIONS for mode in MODES
          if mode == "plain" or version != "7.4" or mode == "opcache"]
BUILDS += [f"8.2zts-{mode}" for mode in MODES]

Frame = namedtuple("Frame", "name file line")


class Php:
    """One build of PHP, with the settings of one mode. Debian's are in a root of their own."""

    def __init__(self, root, version, mode, threads=False):
        self.root, self.build, self.threads = root, f"{version}{'zts' if threads else ''}-{mode}", threads
        self.version = tuple(map(int, version.split(".")))
        settings = [s for s in MODES[mode] if self.version >= (8, 0) or "jit" not in s]
        if settings and self.version < (8, 5):
            settings.insert(0, "zend_extension=opcache.so")
        if self.version < (8, 0):
            settings.insert(0, "extension=json.so")
        self.settings = [a for s in settings for a in ("-d", s)]
        program = f"{CACHE}/php-zts-{version}/bin/php" if threads else f"/usr/bin/php{version}"
        self.command = ["chroot", root, program, "-n", *self.settings]

    def place(self, *names):
        """Copies scripts into the root; returns the path of the first one for the interpreter."""
        os.makedirs(os.path.join(self.root, "tmp"), exist_ok=True)
        for name in names:
            shutil.copy(os.path.join(HERE, "php", name), os.path.join(self.root, "tmp", name))
        return f"/tmp/{names[0]}"

    def start(self, *args):
        return subprocess.Popen([*self.command, *args], stdout=subprocess.PIPE, text=True)

    def run(self, *args):
        return subprocess.run([*self.command, *args], capture_output=True, text=True, check=True).stdout


def find(version):
    """Returns the root of a version; php/get makes it if it can, else the test is skipped."""
    root = f"{CACHE}/php-debian-{version}"
    if not glob.glob(f"{root}/usr/bin/php{version}"):
        got = subprocess.run([os.path.join(HERE, "php/get"), "debian", version],
                             capture_output=True, text=True)
        if got.returncode:
            pytest.skip(f"no PHP {version}: {got.stderr.strip()}")
    return root


def find_threads(version):
    """php/get builds it if it can, else the test is skipped."""
    if not os.path.exists(f"{CACHE}/php-zts-{version}/bin/php"):
        got = subprocess.run([os.path.join(HERE, "php/get"), "zts", version], capture_output=True, text=True)
        if got.returncode:
            pytest.skip(f"no thread-safe PHP {version}: {got.stderr.strip()}")


@pytest.fixture(params=BUILDS)
def php(request):
    version, mode = request.param.split("-")
    if version.endswith("zts"):
        find_threads(version[:-3])
        return Php("/", version[:-3], mode, threads=True)
    return Php(os.path.realpath(find(version)), version, mode)


def profile(culprit, pids, tmp_path, seconds=SECONDS):
    """Records processes. Returns {stack of Frame, leaf last: count}, and the number of truncated samples."""
    out = tmp_path / "out.speedscope.json"
    record(culprit, out, "-p", pids, "-d", seconds, "-F", "199")
    data = json.loads(out.read_text())
    frames = [Frame(f["name"], f.get("file"), f.get("line")) for f in data["shared"]["frames"]]
    stacks = Counter()
    for p in data["profiles"]:
        for stack, n in zip(p["samples"], p["weights"]):
            stacks[tuple(frames[i] for i in stack)] += n
    whole = {s: n for s, n in stacks.items()
             if not any("[truncated" in f.name or "frames not read]" in f.name for f in s)}
    return whole, sum(stacks.values()) - sum(whole.values())


def marked_lines(*paths):
    lines = {}
    for path in paths:
        with open(path, encoding="utf-8") as f:
            for number, text in enumerate(f, 1):
                for name in re.findall(r"@(\w+)", text):
                    lines.setdefault(name, set()).add(number)
    return lines


# Functions of C code that are in the chains. Native functions with other names are between the frames.
INTERNAL = {"usort", "array_map", "array_filter", "Generator::current", "call_user_func_array",
            "preg_replace_callback", "hash", "reset"}
KEY = ["by_key", "Outer::__get", "Outer::fixed", "Outer::method", "Outer::ofTrait", "leaf"]
MAIN = ["{main}", "round_of_all"]
CHAINS = {name: [*MAIN, *chain] for name, chain in {
    "usort": ["through_usort", "usort", *KEY],
    "foreach": ["through_foreach", "generator", *KEY],
    "delegates": ["through_delegates", "Generator::current", "delegates_again", "delegates", "generator", *KEY],
    "closure": ["through_closure", "array_map", "{closure}", "leaf"],
    "arrow": ["through_arrow", "array_filter", "{closure}", "leaf"],
    "call": ["through_magic", "Outer::__call", "leaf"],
    "text": ["through_magic", "Outer::__toString", "leaf"],
    "destructor": ["through_destructor", "array_map", "Ends::__destruct", "leaf"],
    "iterator": ["through_iterator", "Walk::current", "leaf"],
    "of_generator": ["through_iterators_of_generators", "Generator::current", "{closure}", "Walk::current", "leaf"],
    "anonymous": ["through_anonymous", "class@anonymous::run", "leaf"],
    "include": ["through_include", "include", "leaf"],
    "eval": ["through_eval", "eval", "leaf"],
    "replace": ["through_replace", "preg_replace_callback", "{closure}", "leaf"],
    "deep": ["through_deep", *["deep"] * 41, "leaf"],
    "hash": ["through_hash", "hash"],
}.items()}
# Parts of chains that are at other functions than the ones above, for short times.
ASIDE = [[*MAIN, "through_iterator", f] for f in
         ("Pair::getIterator", "Walk::key", "Walk::next", "Walk::rewind", "Walk::valid")] + \
        [[*MAIN, "through_iterators_of_generators", "Generator::current", "{closure}", f"Walk::{f}"]
         for f in ("key", "next", "rewind", "valid")] + \
        [[*MAIN, "through_destructor", "array_map", "{closure}"],
         # A generator is created.
         [*MAIN, "through_delegates", "delegates_again"], [*MAIN, "through_iterators_of_generators", "{closure}"],
         # 7.4 has the generator itself not in its list while `yield from` asks an iterator.
         *([*MAIN, "through_iterators_of_generators", "Generator::current", f"Walk::{f}", *g]
           for f, g in (("current", ["leaf"]), ("key", []), ("next", []), ("rewind", []), ("valid", [])))]
# Marks of functions whose mark is not the last part of their name.
MARKS = {"{main}": "main", "round_of_all": "round", "class@anonymous::run": "anonymous",
         "through_iterators_of_generators": "through_iterators", "include": "included"}
CLOSURES = {"through_closure": "closure", "through_arrow": "through_arrow", "through_replace": "replacing",
            "through_destructor": "ending", "through_iterators_of_generators": "yields"}


def plain_name(name):
    """Since 8.4 a closure's name says where it is: {closure:through_closure():123}."""
    return re.sub(r"\{closure:[^}]*\}", "{closure}", name)


def php_part(stack, files):
    return [f._replace(name=plain_name(f.name)) for f in stack
            if f.file in files or (f.file or "").startswith(f"{files[0]}(") or
            (not f.file and f.name in INTERNAL)]


def mark_of(chain, i):
    name = chain[i]
    if name == "{closure}":
        return CLOSURES[chain[2]]
    if name == "deep" and i + 1 < len(chain) and chain[i + 1] == "leaf":
        return "deepest"
    return MARKS.get(name, name.rpartition("::")[2])


def matches(part, chain, lines):
    """Tells whether the frames are a beginning of the chain. All but the last are at a call, whose line is known."""
    if len(part) > len(chain):
        return False
    for i, (frame, name) in enumerate(zip(part, chain)):
        if frame.name != name:
            return False
        if name in INTERNAL:
            if frame.line:
                return False
        elif name == "eval":
            if frame.line != 1:
                return False
        elif i + 1 < len(part) and frame.line not in lines[mark_of(chain, i)]:
            return False
    return True


PROFILES = {}


@pytest.fixture
def chains(culprit, php, tmp_path):
    """Returns (stacks, truncated); recorded once for each build."""
    if php.build not in PROFILES:
        process = php.start(php.place("chains.php", "included.php"))
        try:
            assert process.stdout.readline() == "ready\n"
            wait_for_cpu(process.pid, 0.5) # the JIT has compiled
            PROFILES[php.build] = profile(culprit, process.pid, tmp_path)
        finally:
            process.kill()
            process.wait()
    return PROFILES[php.build]


def judge(what, stacks, truncated, files=("/tmp/chains.php", "/tmp/included.php"), expected=None):
    """Checks that no chain is wrong and that each was seen whole."""
    expected = expected or CHAINS
    lines = marked_lines(os.path.join(HERE, "php/chains.php"), os.path.join(HERE, "php/included.php"))
    seen, wrong = Counter(), []
    for stack, n in stacks.items():
        part = php_part(stack, files)
        fits = [c for c, chain in expected.items() if matches(part, chain, lines)]
        if not fits and not any(matches(part, chain, lines) for chain in ASIDE):
            wrong.append((n, part))
        for c in fits:
            if len(part) == len(expected[c]):
                seen[c] += n
    total = sum(stacks.values())
    print(f"{what}: {total} samples, {truncated} truncated, complete chains: {dict(seen)}, "
          f"wrong: {sum(n for n, _ in wrong)}")
    assert not wrong, f"{len(wrong)} wrong chains, such as {wrong[:3]}"
    assert truncated <= 0.02 * (total + truncated)
    return seen


def without_stale(what, stacks):
    """Leaves out the stacks with a function that PHP had freed before its name was read."""
    whole = {s: n for s, n in stacks.items() if not any(f.name == "[stale]" for f in s)}
    print(f"{what}: {sum(stacks.values()) - sum(whole.values())} of {sum(stacks.values())} with a stale frame")
    return whole


# PHP frees closures and the code of files and of strings when they have run, in these chains after 0.1 ms.
FREED = {"closure", "arrow", "replace", "of_generator", "include", "eval"}


@pytest.mark.sample("8.2-plain")
def test_chains(php, chains):
    stacks, truncated = chains
    seen = judge(php.build, without_stale(php.build, stacks), truncated)
    assert set(CHAINS) - FREED <= set(seen), "chains never seen whole"


REGEX = "[regular expression]"
# Chains to code that PCRE2's JIT has compiled. C code is between the last function and the code.
EXPRESSIONS = [
    ["{main}", "matching", "preg_match", REGEX],
    ["{main}", "Replaces::round", "preg_replace_callback", REGEX],
    ["{main}", "Replaces::round", "preg_replace_callback", "Replaces::replacement", "inside", "preg_match_all", REGEX],
]


@pytest.mark.sample("8.2-plain")
def test_regular_expressions(culprit, php, tmp_path):
    """Code of PCRE2's JIT that PHP has called, and that PHP which C code has called back has called."""
    process = php.start(php.place("regex.php"))
    try:
        assert process.stdout.readline() == "ready\n"
        wait_for_cpu(process.pid, 0.5)
        stacks, truncated = profile(culprit, process.pid, tmp_path)
    finally:
        process.kill()
        process.wait()
    lines = marked_lines(os.path.join(HERE, "php/regex.php"))
    known = {name for chain in EXPRESSIONS for name in chain}
    seen, wrong = Counter(), []
    for stack, n in stacks.items():
        part = [f for f in stack if f.name in known]
        names = [f.name for f in part]
        fits = [chain[:len(names)] == names for chain in EXPRESSIONS]
        if not any(fits) or any(f.line not in lines[f.name.rpartition("::")[2].strip("{}")]
                                for f in part[:-1] if f.file):
            wrong.append((n, part))
        elif names[-1] == REGEX:
            before = stack[stack.index(part[-1]) - 1].name
            assert re.match(r"pcre2_|libpcre2-8\.so", before), stack
            seen[names[-2]] += n
    total = sum(stacks.values())
    print(f"{php.build}: {total} samples, {truncated} truncated, in regular expressions: {dict(seen)}, wrong: {len(wrong)}")
    assert not wrong, wrong[:3]
    assert len(seen) == len(EXPRESSIONS) and sum(seen.values()) > 0.3 * total, seen
    assert truncated <= 0.005 * total


def theirs(trace):
    """The stack that debug_backtrace() returned, root first. An entry's file and line are its caller's position."""
    out = []
    for i, entry in enumerate(trace):
        at = trace[i - 1] if i else {}
        name = "::".join(filter(None, [entry.get("class", "").partition("\0")[0], entry["function"]]))
        out.append(Frame(name, at.get("file"), at.get("line")))
    if "file" in trace[-1]: # not called by C code, at the end of the script
        out.append(Frame("{main}", trace[-1]["file"], trace[-1]["line"]))
    return tuple(reversed(out[1:])) # spin()'s own line is not in it


def scenes(php):
    return json.loads(php.run("/tmp/stopped.php"))


@pytest.mark.sample("8.2-plain")
def test_agrees_with_debug_backtrace(culprit, php, tmp_path):
    """Compares stacks with debug_backtrace()'s, in scenes that stay in one function. All run at once."""
    php.place("stopped.php", "scene.php", "scene_once.php", "fibers.php")
    names = scenes(php)
    processes = [php.start("/tmp/stopped.php", scene) for scene in names]
    try:
        expected = {theirs(json.loads(p.stdout.readline())): scene for p, scene in zip(processes, names)}
        assert len(expected) == len(names)
        known = {f.name for stack in expected for f in stack}
        ours, lost = Counter(), 0
        for _ in range(4): # on a busy machine a recording may lack some processes
            stacks, truncated = profile(culprit, ",".join(str(p.pid) for p in processes), tmp_path)
            lost += truncated
            for stack, n in stacks.items():
                part = tuple(f for f in stack if (f.file or "").startswith("/tmp/") or
                             not f.file and f.name in known)
                ours[part[:-1] if part and part[-1].name == "spin" else part] += n
            if set(expected) <= set(ours):
                break
    finally:
        for p in processes:
            p.kill()
            p.wait()
    missing = {scene: stack for stack, scene in expected.items() if stack not in ours}
    more = {stack: n for stack, n in ours.items() if stack not in expected}
    print(f"{php.build}: {len(names)} scenes, {sum(ours.values())} samples, {lost} truncated, "
          f"{len(missing)} scenes not seen, {sum(more.values())} samples differ")
    assert not more and not missing, "\n".join(
        [f"{scene}: {stack}" for scene, stack in missing.items()] +
        [f"not theirs, {n} times: {stack}" for stack, n in more.items()])
    assert not lost


# ---- FPM ----

def fastcgi(path, script, query):
    """Sends a request to FPM's socket; returns the answer."""
    def record_of(kind, content):
        return struct.pack(">BBHHBx", 1, kind, 1, len(content), 0) + content
    parameters = {"SCRIPT_FILENAME": script, "REQUEST_METHOD": "GET", "QUERY_STRING": query}
    text = b"".join(struct.pack(">BB", len(k), len(v)) + k.encode() + v.encode() for k, v in parameters.items())
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(path)
        s.sendall(record_of(1, struct.pack(">HB5x", 1, 0)) + record_of(4, text) + record_of(4, b"") +
                  record_of(5, b""))
        return b"".join(iter(lambda: s.recv(65536), b""))


@pytest.fixture
def fpm(php):
    """Starts FPM with two workers; returns (process, socket)."""
    if php.threads:
        pytest.skip("the thread-safe build has no FPM: a worker of FPM has one thread")
    script = php.place("chains.php", "included.php")
    assert script == "/tmp/chains.php"
    for name, text in {"passwd": "root:x:0:0::/:/bin/sh\n", "group": "root:x:0:\n"}.items():
        if not os.path.exists(os.path.join(php.root, "etc", name)):
            with open(os.path.join(php.root, "etc", name), "w", encoding="ascii") as f:
                f.write(text)
    null = os.path.join(php.root, "dev/null")
    if not os.path.exists(null):
        os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with open(os.path.join(php.root, "tmp/fpm.conf"), "w", encoding="ascii") as f:
        f.write("[global]\nerror_log = /tmp/fpm.log\ndaemonize = no\n"
                "[www]\nuser = root\ngroup = root\nlisten = /tmp/fpm.sock\npm = static\npm.max_children = 2\n")
    path = os.path.join(php.root, "tmp/fpm.sock")
    if os.path.exists(path):
        os.unlink(path)
    version = ".".join(map(str, php.version))
    process = subprocess.Popen(["chroot", php.root, f"/usr/sbin/php-fpm{version}", "-R", "-n", *php.settings,
                                "-y", "/tmp/fpm.conf"])
    try:
        deadline = time.time() + 30
        while not os.path.exists(path):
            assert process.poll() is None and time.time() < deadline, "FPM does not start"
            time.sleep(0.05)
        yield process, path
    finally:
        process.terminate()
        process.wait()


@pytest.mark.sample("8.2-plain")
def test_fpm(culprit, php, fpm, tmp_path):
    """Requests of different lengths on two workers, of which each frees what it has compiled."""
    process, path = fpm
    ended = threading.Event()

    def ask():
        while not ended.is_set():
            assert b"ready" in fastcgi(path, "/tmp/chains.php", "rounds=5")
    clients = [threading.Thread(target=ask) for _ in range(2)]
    for c in clients:
        c.start()
    try:
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as f:
            workers = ",".join(f.read().split())
        stacks, truncated = profile(culprit, workers, tmp_path)
    finally:
        ended.set()
        for c in clients:
            c.join()
    whole = {s: n for s, n in without_stale(f"{php.build} FPM", stacks).items()
             if any(f.name == "round_of_all" for f in s)}
    assert sum(whole.values()) >= 0.5 * sum(stacks.values())
    judge(f"{php.build} FPM", whole, truncated)


@pytest.mark.parametrize("version", ["8.2zts"])
def test_threads(culprit, version, tmp_path):
    """Scripts that run at the same time in threads of a process: each thread has the frames of its own script."""
    version = version[:-3]
    find_threads(version)
    build = f"{CACHE}/php-zts-{version}"
    headers = [f"-I{build}/include/php{d}" for d in ("", "/main", "/Zend", "/TSRM")]
    subprocess.run(["cc", "-O1", "-rdynamic", "-D_GNU_SOURCE", "-DZTS", *headers, "-o", tmp_path / "php-threads",
                    os.path.join(HERE, "php/threads.c"), f"{build}/lib/libphp.a", "-lpcre2-8", "-lm", "-ldl", "-lresolv",
                    "-lpthread"], check=True)
    names = ["red", "green", "blue"]
    for name in names:
        (tmp_path / f"{name}.php").write_text(
            f"<?php\nfunction {name}_leaf() {{\n    for ($i = 0, $n = 0; $i < 10000; $i++) $n += $i;\n    return $n;\n}}\n"
            f"function {name}_outer() {{\n    return {name}_leaf();\n}}\n"
            f"while (true)\n    {name}_outer();\n", encoding="ascii")
    with subprocess.Popen([tmp_path / "php-threads", *(tmp_path / f"{n}.php" for n in names)],
                          stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            for tid in os.listdir(f"/proc/{process.pid}/task"):
                if int(tid) != process.pid: # which waits for the others
                    wait_for_cpu(int(tid), 0.5)
            said = subprocess.run([culprit, "doctor", "-p", str(process.pid)], capture_output=True, text=True,
                                  check=True).stdout
            stacks, truncated = profile(culprit, process.pid, tmp_path)
        finally:
            process.kill()
    assert f"php: PHP {version}" in said and "(thread-safe), offsets from its code" in said, said
    right, wrong = Counter(), Counter()
    for stack, n in stacks.items():
        part = [(f.name, os.path.basename(f.file), f.line) for f in stack if (f.file or "").endswith(".php")]
        name = part[-1][1][:-4] if part else ""
        chain = [("{main}", f"{name}.php", 10), (f"{name}_outer", f"{name}.php", 7), (f"{name}_leaf", f"{name}.php", 3)]
        if part[:-1] == chain[:len(part) - 1] and part and part[-1][:2] == chain[len(part) - 1][:2]:
            right[name, len(part)] += n
        elif part:
            wrong[tuple(part)] += n
    total = sum(stacks.values())
    print(f"{version}, thread-safe: {total} samples, {truncated} truncated, right by script and depth: {dict(right)}, "
          f"wrong: {wrong.total()}")
    assert not wrong, wrong.most_common(3)
    assert all(right[name, 3] >= 20 for name in names) and right.total() >= 0.95 * total
    assert truncated <= 0.01 * total
