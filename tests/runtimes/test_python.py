# SPDX-License-Identifier: Apache-2.0
"""CPython's frames: exact chains of names, files and lines, on each installed version."""

import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter, namedtuple

import pytest

from recorder import Completeness, read, record, wait_for_cpu

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.expanduser("~/.cache/culprit-runtimes")
SECONDS = os.environ.get("CULPRIT_RUNTIME_SECONDS", "5")

# Each version and build is a parameter, with the paths where its executable may be. In a root of its own it runs with
# chroot.
BUILDS = {
    "system": ["/usr/bin/python3"],
    **{f"3.{n}": [os.path.expanduser(f"~/.pyenv/versions/3.{n}.*/bin/python3.{n}"),
                  f"{CACHE}/python-3.{n}/bin/python3.{n}",
                  f"{CACHE}/python-debian-*/usr/bin/python3.{n}"] for n in range(6, 16)},
    "3.14-standalone": [f"{CACHE}/python-standalone-3.14/bin/python3.14"],
    # With JIT. (The JIT of 3.14 keeps no frame pointers: stacks are truncated, not wrong.)
    "3.15-jit": [f"{CACHE}/python-debian-*/usr/bin/python3.15"],
    # With musl, in a root that has only this; and linked statically.
    "3.13-musl": [f"{CACHE}/python-3.13-musl/usr/bin/python3.13"],
    "3.13-static": [f"{CACHE}/python-3.13-static/bin/python3.13"],
    "3.13t": [f"{CACHE}/python-3.13t/bin/python3.13t", "/usr/bin/python3.13t"],
    "3.14t": [f"{CACHE}/python-3.14t/bin/python3.14t", "/usr/bin/python3.14t"],
    "3.15t": [f"{CACHE}/python-3.15t/bin/python3.15t", "/usr/bin/python3.15t"],
}

Frame = namedtuple("Frame", "name file line")


class Python:
    """One interpreter, which may be in a root of its own. Starts scripts in it."""

    def __init__(self, path, tmp_path, build=""):
        self.path = path
        self.build = f"{path}{' with JIT' if build.endswith('-jit') else ''}"
        self.environment = {**os.environ, **({"PYTHON_JIT": "1"} if build.endswith("-jit") else {})}
        root = re.match(rf"({re.escape(CACHE)}/[^/]+)/usr/bin/", path)
        self.root = root.group(1) if root else None
        self.scratch = os.path.join(self.root, "tmp") if self.root else str(tmp_path)
        inside = path[len(self.root):] if self.root else path
        self.command = ["chroot", self.root, inside] if self.root else [inside]
        out = subprocess.run([*self.command, "-c", "import sys; print(*sys.version_info[:2])"],
                             capture_output=True, text=True)
        assert out.returncode == 0, out.stderr
        self.version = tuple(map(int, out.stdout.split()))

    def asks(self, expression):
        return subprocess.run([*self.command, "-c", f"import sys, sysconfig; print({expression})"],
                              capture_output=True, text=True).stdout.strip()

    def inside(self, path):
        return path[len(self.root):] if self.root else path

    def place(self, name):
        """Copies a script into the interpreter's root; returns the path that the interpreter sees."""
        to = os.path.join(self.scratch, name)
        shutil.copy(os.path.join(HERE, "python", name), to)
        return self.inside(to)

    def start(self, *args):
        p = subprocess.Popen([*self.command, *args], stdout=subprocess.PIPE, text=True,
                             env=self.environment)
        assert p.stdout.readline() == "ready\n"
        return p

    def name(self, qualified):
        """Returns a function's name in this version: code objects have qualified names from 3.11 on."""
        return qualified if self.version >= (3, 11) else qualified.rpartition(".")[2]


# Builds that python/get can install, and its argument.
GET = {**{b: b for b in ("3.13t", "3.14t", "3.15t", "3.13-musl")},
       "3.14": "debian-3.14", "3.15": "debian-3.15", "3.15-jit": "debian-3.15"}
COULD_NOT = {} # build → why


def look(build):
    return [f for pattern in BUILDS[build] for f in sorted(glob.glob(pattern))]


def find(build):
    """Returns the executable of a build. Installs the build if python/get can; skips the test if there is none."""
    if not look(build) and build in GET and build not in COULD_NOT:
        got = subprocess.run([os.path.join(HERE, "python/get"), GET[build]], capture_output=True,
                             text=True)
        if got.returncode:
            COULD_NOT[build] = got.stderr.strip()
    if not look(build):
        pytest.skip(f"no CPython {build}: " +
                    COULD_NOT.get(build, f"none of {', '.join(BUILDS[build])}"))
    return look(build)[0]


@pytest.fixture(params=BUILDS)
def python(request, tmp_path):
    python = Python(find(request.param), tmp_path, request.param)
    if request.param.endswith("-jit"):
        on = subprocess.run([*python.command, "-c", "import sys; print(sys._jit.is_enabled())"],
                            capture_output=True, text=True, env=python.environment).stdout
        if on != "True\n":
            pytest.skip(f"{python.path} was built without JIT")
    return python


def profile(culprit, process, tmp_path, seconds=SECONDS):
    """Records a process. Returns {stack of Frame, leaf last: count}, and the number of truncated samples."""
    out = tmp_path / "out.speedscope.json"
    record(culprit, out, "-p", process.pid, "-d", seconds, "-F", "199")
    return stacks_of(json.loads(out.read_text()))


def stacks_of(data):
    """Returns the same for the content of a speedscope file."""
    frames = [Frame(f["name"], f.get("file"), f.get("line"))
              for f in data["shared"]["frames"]]
    stacks = Counter()
    for p in data["profiles"]:
        for stack, n in zip(p["samples"], p["weights"]):
            stacks[tuple(frames[i] for i in stack)] += n
    whole = {s: n for s, n in stacks.items()
             if not any("[truncated" in f.name or "frames not read]" in f.name for f in s)}
    return whole, sum(stacks.values()) - sum(whole.values())


def marked_lines(path):
    lines = {}
    with open(path) as f:
        for number, text in enumerate(f, 1):
            for name in re.findall(r"@(\w+)", text):
                lines.setdefault(name, set()).add(number)
    return lines


# The chains of Python functions, by marks in the script. QUALIFIED: the names of functions whose mark differs.
QUALIFIED = {
    "module": "<module>", "method": "Outer.Inner.method", "static": "Outer.static",
    "value": "Outer.value", "deepest": "deep", "lambda": "through_partial.<locals>.<lambda>",
}
VALUE = ["by_key", "value", "static", "method", "leaf"]
CHAINS = {
    "sorted": ["module", "main", "through_sorted", *VALUE],
    "await": ["module", "main", "through_await", "awaits", "coroutine", "generator", *VALUE],
    "qsort": ["module", "main", "through_qsort", "compare", "leaf"],
    "partial": ["module", "main", "through_partial", "lambda", "leaf"],
    "deep": ["module", "main", "through_deep", *["deep"] * 40, "deepest", "leaf"],
    "other": ["other_thread", "spin_other"],
    "without_lock": ["without_lock"],
}


def python_part(stack, script):
    return [f for f in stack if f.file == script]


def matches(part, chain, lines, python):
    """Tells whether the frames are a beginning of the chain. All but the last are at a call, whose line is known."""
    if len(part) > len(chain):
        return False
    for i, (frame, mark) in enumerate(zip(part, chain)):
        if frame.name != python.name(QUALIFIED.get(mark, mark)):
            return False
        known = lines["through_partial"] if mark == "lambda" else lines[mark]
        if i + 1 < len(part) and frame.line not in known:
            return False
    return True


PROFILES = {}


@pytest.fixture
def chains(culprit, python, tmp_path):
    """Returns (the script's path for the interpreter, stacks, truncated); recorded once for each build."""
    if python.build not in PROFILES:
        script = python.place("chains.py")
        process = python.start(script)
        try:
            # culprit loads the unwind rows of 28 MB of code page by page, and each page costs a sample.
            seconds = 3 * int(SECONDS) if "standalone" in python.path else SECONDS
            PROFILES[python.build] = script, *profile(culprit, process, tmp_path, seconds)
        finally:
            process.kill()
            process.wait()
    return PROFILES[python.build]


def judge_chains(python, what, script, stacks, truncated, source="chains.py", expected=None):
    """Checks that no chain is wrong and that each was seen whole. Returns how often each was."""
    expected = expected or CHAINS
    lines = marked_lines(os.path.join(HERE, "python", source))
    seen, wrong = Counter(), []
    for stack, n in stacks.items():
        part = python_part(stack, script)
        fits = [c for c, chain in expected.items() if matches(part, chain, lines, python)]
        if not fits:
            wrong.append((n, part))
        for c in fits:
            if len(part) == len(expected[c]):
                seen[c] += n
    total = sum(stacks.values())
    print(f"{what}: {total} samples, {truncated} truncated, complete chains: {dict(seen)}")
    assert not wrong, f"{len(wrong)} wrong chains, such as {wrong[:3]}"
    assert set(seen) == set(expected), "chains never seen whole"
    assert truncated <= 0.02 * (total + truncated)
    return seen


@pytest.mark.sample("system")
def test_chains(python, chains):
    script, stacks, truncated = chains
    judge_chains(python, python.build, script, stacks, truncated)


@pytest.mark.sample("system")
def test_native_frames_are_between_python_frames(chains):
    script, stacks, _ = chains
    found = 0
    for stack, n in stacks.items():
        names = [f.name for f in stack]
        # C calls Python back: qsort of libc is between its caller and the callback.
        if "compare" in names:
            a, b = names.index("through_qsort"), names.index("compare")
            assert any("qsort" in f for f in names[a + 1:b]), names
            found += n
        # Python calls C: the frames of C come after their caller.
        if "without_lock" in names and names[-1] != "without_lock":
            assert all(f.file != script for f in stack[names.index("without_lock") + 1:]), names
        # The interpreter's loop is hidden.
        assert not any(f.startswith("_PyEval_EvalFrameDefault") for f in names), names
        # Each stack begins at a thread's entry (in sid and in musl, libc's local functions have no
        # names).
        assert names[1] in ("_start", "clone3", "__clone3") or \
            names[1].startswith(("libc.so.6+0x", "ld-musl-x86_64.so.1+0x")), names
    assert found


def frames_of_faulthandler(text):
    """Returns for each thread a list of (function, file, line), leaf first."""
    threads, now = [], None
    for line in text.splitlines():
        if "most recent call first" in line:
            now = []
            threads.append(now)
        m = re.match(r'\s+File "(.*)", line (\d+) in (.*)', line)
        if m and now is not None:
            now.append((m.group(3), m.group(1), int(m.group(2))))
    return threads


def view_of_faulthandler(process, view, n):
    """Returns faulthandler's stacks of n threads, as soon as each thread is in its final function."""
    deadline = time.time() + 60
    threads = []
    while time.time() < deadline:
        os.truncate(view, 0) # faulthandler continues at its old offset, so the file begins with a hole
        process.send_signal(signal.SIGUSR1)
        for _ in range(50):
            time.sleep(0.1)
            with open(view, encoding="utf-8") as f:
                threads = frames_of_faulthandler(f.read().replace("\0", ""))
            if len(threads) == n and all(t and t[-1][0].rpartition(".")[2] in ("<module>", "_bootstrap")
                                         for t in threads):
                break
        if len(threads) == n and all(t and t[0][0].endswith("spin") for t in threads):
            return threads
    pytest.fail(f"faulthandler has written {threads}")


@pytest.mark.sample("system")
def test_agrees_with_faulthandler(culprit, python, tmp_path):
    """Compares stacks with those of faulthandler: threads in a function of C that calls Python, a generator that
    delegates, a task with a coroutine that awaits an object, and a callback by ctypes."""
    script = python.place("stopped.py")
    view = os.path.join(python.scratch, "faulthandler.txt")
    process = python.start(script, python.inside(view))
    try:
        n = int(process.stdout.readline())
        threads = view_of_faulthandler(process, view, n)
        theirs = {tuple((name.rpartition(".")[2], f, l) for name, f, l in reversed(t)) for t in threads}
        assert len(theirs) == n, theirs
        files = {f for t in theirs for _, f, _ in t}
        ours, lost = Counter(), 0
        for _ in range(6): # on a busy machine a recording may lack some threads
            stacks, truncated = profile(culprit, process, tmp_path)
            lost += truncated
            for stack, count in stacks.items():
                ours[tuple((f.name.rpartition(".")[2], f.file, f.line)
                           for f in stack if f.file in files)] += count
            if theirs <= set(ours):
                break
    finally:
        process.kill()
        process.wait()
    print(f"{python.build}: {sum(ours.values())} samples, {lost} truncated, {len(ours)} different "
          f"stacks of {n} threads")
    assert set(ours) == theirs


@pytest.mark.sample("system")
def test_doctor(culprit, python):
    """doctor prints the version, where its offsets come from, and what profiles will lack."""
    process = python.start("-c", "import time; print('ready', flush=True); time.sleep(100)")
    try:
        said = subprocess.run([culprit, "doctor", "-p", str(process.pid)], capture_output=True,
                              text=True).stdout.splitlines()
    finally:
        process.kill()
        process.wait()
    print(python.build, said)
    major, minor = python.version
    threads = " free-threaded" if python.asks("sysconfig.get_config_var('Py_GIL_DISABLED')") == "1" else ""
    source = "_Py_DebugOffsets" if minor >= 13 else "a table"
    state = "_PyThreadState_GetCurrent and " if minor >= 12 else ""
    assert said[0] == (f"python: CPython {major}.{minor}{threads}, offsets from {source}, thread state "
                       f"from {state}PyGILState_GetThisThreadState, interpreters from "
                       "PyInterpreterState_Head")
    assert all(line.startswith(("python: missing: ", "traces: ", "heap: cpython: ")) for line in said[1:])
    jit = (3, 13) <= python.version < (3, 15) and python.asks(
        "getattr(sys, '_jit', None) and sys._jit.is_available()") == "True"
    assert any("JIT build" in line for line in said) == jit
    # Both lines are about builds with tail calls.
    assert any("another interpreter" in line for line in said) == \
        any("tail calls" in line for line in said)


# ---- real programs ----

def free_port():
    """Returns a port for a server that listens with SO_REUSEADDR, as servers do, within a minute. Until then a
    connection in TIME_WAIT keeps the kernel from giving the port to another process."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        with socket.create_connection(s.getsockname()):
            s.accept()[0].close()
        return s.getsockname()[1]


def wait_for_port(port, process):
    for _ in range(200):
        assert process.poll() is None, "the server has ended"
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail("the server does not listen")


def judge(culprit, process, tmp_path, what, function, share, load=None):
    """
    Records for 10 s. 98 % of the stacks must be complete, and the share `share` of these in `function` (a server
    spends the rest in accepting connections and starting threads).
    """
    out = tmp_path / "out.folded"
    driver = subprocess.Popen(load, stdout=subprocess.DEVNULL) if load else None
    try:
        record(culprit, out, "-p", process.pid, "-d", "10", "-F", "199")
    finally:
        if driver:
            driver.kill()
            driver.wait()
        process.kill()
        process.wait()
    stacks = read(out)
    c = Completeness(stacks)
    # libc of another root has no names for its local functions, and Completeness does not look into roots.
    complete = c.complete + sum(n for why, n in c.faults.items()
                                if CACHE in what and why.startswith("begins at libc.so.6+0x"))
    inside = sum(s.count for s in stacks if function in s.frames)
    print(f"{what}: {100 * complete / max(c.user, 1):.2f} % of {c.user} user stacks complete, "
          f"{inside} in {function}")
    assert c.user >= 50, "hardly any samples"
    assert complete >= 0.98 * c.user, str(c)
    assert inside >= share * complete, f"{function} in {inside} of {complete} stacks only"


def wrk(port, path="/"):
    if not shutil.which("wrk"):
        pytest.skip("no wrk (tools/install test)")
    return ["wrk", "-t", "1", "-c", "4", "-d", "30", f"http://127.0.0.1:{port}{path}"]


@pytest.fixture(params=["system", "3.9", "3.13", "3.15"])
def some_python(request, tmp_path):
    return Python(find(request.param), tmp_path)


def test_http_server(culprit, some_python, tmp_path):
    port = free_port()
    load = wrk(port)
    server = subprocess.Popen([*some_python.command, "-m", "http.server", str(port)],
                              stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_for_port(port, server)
    judge(culprit, server, tmp_path, f"http.server, {some_python.path}",
          some_python.name("BaseHTTPRequestHandler.handle"), 0.4, load)


def test_flask(culprit, tmp_path):
    for command in (["/usr/bin/python3"], ["python3"]):
        if subprocess.run([*command, "-c", "import flask"], capture_output=True).returncode == 0:
            break
    else:
        pytest.skip("no Flask for any python3 here")
    # Run the interpreter itself, not pyenv's wrapper script, whose process would be another one.
    python3 = subprocess.run([*command, "-c", "import sys; print(sys.executable)"],
                             capture_output=True, text=True).stdout.strip()
    port = free_port()
    load = wrk(port)
    server = subprocess.Popen([python3, os.path.join(HERE, "python/app.py"), str(port)],
                              stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_for_port(port, server)
    judge(culprit, server, tmp_path, f"Flask, {python3}", "page", 0.4, load)


@pytest.mark.sample("system")
@pytest.mark.parametrize("version", ["system", "3.13", "3.14", "3.15"])
def test_django(culprit, version, tmp_path):
    """Django from PyPI, for this version of Python, from wheels without native code."""
    python = Python(find(version), tmp_path)
    packages = os.path.join(CACHE, "python-packages", "django-%d.%d" % python.version)
    if not os.path.exists(packages):
        os.makedirs(os.path.dirname(packages), exist_ok=True)
        part = tempfile.mkdtemp(prefix="part-", dir=os.path.dirname(packages))
        got = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-compile",
                              "--python-version", "%d.%d" % python.version, "--only-binary=:all:",
                              "--target", part, "django"], capture_output=True, text=True)
        if got.returncode:
            shutil.rmtree(part)
            pytest.skip(f"no Django from PyPI: {got.stderr.strip().splitlines()[-1]}")
        os.rename(part, packages)
    inside = os.path.join(python.scratch, "packages")
    shutil.copytree(packages, inside, dirs_exist_ok=True)
    port = free_port()
    load = wrk(port)
    server = subprocess.Popen([*python.command, "-W", "ignore", python.place("project.py"),
                               python.inside(inside), str(port)],
                              stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_for_port(port, server)
    judge(culprit, server, tmp_path, f"Django, {python.path}", "page", 0.3, load)


def test_compileall(culprit, some_python, tmp_path):
    cache = some_python.inside(some_python.scratch)
    code = ("import compileall, os, sys; sys.pycache_prefix = sys.argv[1]\n"
            "while True: compileall.compile_dir(os.path.dirname(os.__file__), quiet=2, force=True)")
    process = subprocess.Popen([*some_python.command, "-c", code, os.path.join(cache, "pyc")],
                               stderr=subprocess.DEVNULL)
    wait_for_cpu(process.pid, 0.5)
    judge(culprit, process, tmp_path, f"compileall, {some_python.path}", "compile_dir", 0.95)


def write_wheels(folder):
    """Writes packages whose newest versions conflict, so that pip has to backtrack."""
    packages, versions = 12, 8
    os.makedirs(folder)
    for p in range(packages):
        for v in range(1, versions + 1):
            needs = [f"package{p + 1} >= {max(1, v - 2)}"] if p + 1 < packages else []
            if p + 2 < packages:
                needs.append(f"package{p + 2} < {v}" if v > 2 else f"package{p + 2}")
            text = (f"Metadata-Version: 2.1\nName: package{p}\nVersion: {v}\n" +
                    "".join(f"Requires-Dist: {n}\n" for n in needs))
            info = f"package{p}-{v}.dist-info"
            with zipfile.ZipFile(f"{folder}/package{p}-{v}-py3-none-any.whl", "w") as z:
                z.writestr(f"{info}/METADATA", text)
                z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
                z.writestr(f"{info}/RECORD", "")


@pytest.fixture(params=["3.9", "3.11", "3.13", "3.14-standalone"])
def python_with_pip(request, tmp_path):
    for path in [f for pattern in BUILDS[request.param] for f in sorted(glob.glob(pattern))]:
        python = Python(path, tmp_path)
        if subprocess.run([*python.command, "-m", "pip", "--version"], capture_output=True,
                          check=False).returncode == 0:
            return python
    pytest.skip(f"no CPython {request.param} with pip")


def test_pip(culprit, python_with_pip, tmp_path):
    """pip resolves dependencies, again and again, because one resolution is too short."""
    wheels = tmp_path / "wheels"
    write_wheels(wheels)
    code = ("from pip._internal.cli.main import main\n"
            "def resolve(): assert main(['download', '-qqq', '--no-index', '--no-cache-dir', "
            f"'--find-links', {str(wheels)!r}, '-d', {str(tmp_path / 'got')!r}, 'package0']) == 0\n"
            "resolve(); print('ready', flush=True)\n"
            "while True: resolve()")
    process = subprocess.Popen([*python_with_pip.command, "-c", code], stdout=subprocess.PIPE,
                               text=True)
    # Wait until pip is imported, which may take longer than the recording on a busy machine.
    assert process.stdout.readline() == "ready\n"
    judge(culprit, process, tmp_path, f"pip, {python_with_pip.path}",
          python_with_pip.name("Resolver.resolve"), 0.3)
