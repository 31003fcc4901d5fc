# SPDX-License-Identifier: Apache-2.0
"""Perl's frames: exact chains of names, files and lines, on each version.

Perls of other Debian suites are unpacked into a cache folder by tools/vm/fetch, and run in that root;
`perl/get` builds one without threads.
"""

import glob
import json
import os
import re
import shutil
import stat
import subprocess
import time
from collections import Counter, namedtuple

import pytest

from recorder import Completeness, read, record

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
CACHE = os.path.expanduser("~/.cache/culprit-runtimes")
SECONDS = os.environ.get("CULPRIT_RUNTIME_SECONDS", "5")
ENOUGH = 1800 # samples in which each chain is seen
ENVIRONMENT = {**os.environ, "LC_ALL": "C"} # the roots have no other locale
SUITES = {"5.32": ("bullseye", "perl"), "5.36": ("bookworm", "perl"), "5.40": ("trixie", "perl"), "sid": ("sid", "perl"),
          "5.44": ("experimental", "perl=5.44*", "perl-base=5.44*")}
BUILDS = ["system", *SUITES, "plain"]

Frame = namedtuple("Frame", "name file line")


class Perl:
    """One perl, which may be in a root of its own. Starts scripts in it."""

    def __init__(self, root, path, build):
        self.root, self.build = root, build
        self.command = ["chroot", root, path] if root else [path]
        if root and not os.path.exists(f"{root}/dev/null"): # which `perl -e` opens
            os.makedirs(f"{root}/dev", exist_ok=True)
            os.mknod(f"{root}/dev/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        out = subprocess.run([*self.command, "-MConfig", "-e",
                              'print "$] $Config{version} ", $Config{usethreads} || "no"'],
                             capture_output=True, text=True, env=ENVIRONMENT)
        assert out.returncode == 0, out.stderr
        number, self.version, threads = out.stdout.split()
        self.minor = int(number[2:5])
        self.threads = threads == "define"

    def place(self, tmp_path, *names):
        """Copies files into the perl's root; returns the path of the first as the perl sees it."""
        to = os.path.join(self.root, "tmp") if self.root else str(tmp_path)
        os.makedirs(to, exist_ok=True)
        for name in names:
            shutil.copy(os.path.join(HERE, "perl", name), to)
        return os.path.join("/tmp" if self.root else to, names[0])

    def start(self, *args):
        p = subprocess.Popen([*self.command, *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                             env=ENVIRONMENT)
        assert p.stdout.readline() == "ready\n"
        return p


def root_perl(what, build):
    """Returns the Perl of a root with packages of a Debian suite; skips the test if it cannot be had."""
    suite, *packages = what
    got = subprocess.run([os.path.join(TOP, "tools/vm/fetch"), "root", suite, "amd64", *packages], capture_output=True,
                         text=True)
    if got.returncode:
        pytest.skip(got.stderr.strip())
    return Perl(got.stdout.split()[-1], "/usr/bin/perl", build)


def find(build):
    """Returns the Perl of a build; skips the test if it cannot be had."""
    if build == "system":
        if not shutil.which("perl"):
            pytest.skip("no perl on this system")
        return Perl(None, shutil.which("perl"), build)
    if build == "plain":
        path = f"{CACHE}/perl-plain/bin/perl"
        got = subprocess.run([os.path.join(HERE, "perl/get"), "plain"], capture_output=True, text=True)
        if got.returncode:
            pytest.skip(got.stderr.strip())
        return Perl(None, path, build)
    return root_perl(SUITES[build], build)


@pytest.fixture(params=BUILDS)
def perl(request):
    return find(request.param)


def stacks_of(path):
    """Returns {stack of Frame, leaf last: count} of a speedscope file, and the number of truncated samples."""
    data = json.loads(path.read_text())
    frames = [Frame(f["name"], f.get("file"), f.get("line")) for f in data["shared"]["frames"]]
    stacks = Counter()
    for p in data["profiles"]:
        for stack, n in zip(p["samples"], p["weights"]):
            stacks[tuple(frames[i] for i in stack)] += n
    whole = {s: n for s, n in stacks.items()
             if not any("[truncated" in f.name or "frames not read]" in f.name for f in s)}
    return whole, sum(stacks.values()) - sum(whole.values())


def marked_lines(*names):
    lines = {}
    for name in names:
        with open(os.path.join(HERE, "perl", name), encoding="utf-8") as f:
            for number, text in enumerate(f, 1):
                for mark in re.findall(r"@([a-z]\w*)\b", text.partition("#")[2], re.I):
                    lines.setdefault(mark, set()).add(number)
    return lines


def call(mark, name=None):
    """A frame of a chain: its name, and the mark of the line that calls the next frame."""
    return name or f"main::{mark}", mark


PROGRAM = call("program", "(main program)")
LEAF = call("leaf")
BY_VALUE = [call("by_value"), LEAF]
TEXT = call("", "eval '...'") # its line is in no file
C_EVAL = call("", "eval {...}") # of Perl's C code, which calls the next frame
CHAINS = {
    "method": [call("through_method"), call("method", "Outer::Inner::method"), LEAF],
    "eval": [call("through_eval"), call("block", "eval {...}"), LEAF],
    "text": [call("through_text"), TEXT, LEAF],
    "sort block": [call("through_sort_block"), call("sort_block", "sort {...}"), *BY_VALUE],
    "sort statements": [call("through_sort_statements"), call("sort_statements", "sort {...}"), *BY_VALUE],
    "sort eval": [call("through_sort_eval"), call("sort_eval", "sort {...}"), call("sort_eval", "eval {...}"), *BY_VALUE],
    "sort after eval": [call("through_sort_eval"), call("sort_after_eval", "sort {...}"), LEAF],
    "sort sub": [call("through_sort_sub"), call("by_name"), LEAF],
    "first": [call("through_first"), call("first", "main::__ANON__"), LEAF],
    "reduce": [call("through_reduce"), call("reduce", "main::__ANON__"), LEAF],
    "overload": [call("through_overload"), call("add", "Number::add"), LEAF],
    "tie": [call("through_tie"), call("FETCH_eval", "Tied::FETCH"), call("FETCH_eval", "eval {...}"), LEAF],
    "tie after eval": [call("through_tie"), call("FETCH", "Tied::FETCH"), call("after", "Tied::after"), LEAF],
    "store": [call("through_store", "main::through_tie"), call("STORE", "Tied::STORE"), LEAF],
    "destroy": [call("through_destroy"), C_EVAL, call("DESTROY", "Doomed::DESTROY"), LEAF],
    "storable": [call("through_storable"), call("STORABLE_freeze", "Frozen::STORABLE_freeze"), LEAF],
    "regex": [call("through_regex"), call("regex", "(?{...})"), LEAF],
    "do": [call("through_do"), call("loaded", "require LOADED"), LEAF],
    "begin": [call("through_begin"), TEXT, C_EVAL, call("", "main::BEGIN"), LEAF],
    "closure": [call("through_closure"), call("closure", "main::__ANON__"), LEAF],
    "goto": [call("target"), LEAF],
    "before goto": [call("through_goto")],
    "tie itself": [call("through_tie"), call("tied", "Tied::TIESCALAR")],
    "autoload": [call("through_autoload"), call("AUTOLOAD", "Auto::AUTOLOAD"), LEAF],
    "warn": [call("through_warn"), call("warn", "main::__ANON__"), LEAF],
    "signal": [call("through_signal"), C_EVAL, call("on_signal"), LEAF],
    "deep": [call("through_deep"), *[call("deep")] * 40, call("deepest", "main::deep"), LEAF],
}
SHORT = {"before goto", "tie itself"} # hardly ever sampled


def perl_part(stack, files):
    """The frames of Perl in a stack. A frame without a position has the name of a sub."""
    names = {name for chain in CHAINS.values() for name, _ in chain}
    return [f for f in stack if f.file in files or (f.file or "").startswith("(eval ") or
            (not f.file and f.name in names) or f.name == "(main program)" or f.name.startswith("require")]


def matches(part, chain, lines):
    """Tells whether the frames are a beginning of the chain. All but the last are at a call, whose line is known."""
    if len(part) > len(chain):
        return False
    for i, (frame, (name, mark)) in enumerate(zip(part, chain)):
        if frame.name != name and not (name == "require LOADED" and
                                        re.match(r"require( .*/loaded\.pl)?$", frame.name)):
            return False
        stale = not frame.file and name in ("eval '...'", "require LOADED")
        if i + 1 < len(part) and mark and not stale and frame.line not in lines[mark]:
            return False
    return True


def record_chains(culprit, perl, tmp_path, *names):
    """Records a script, on a busy machine for longer. Returns (stacks, truncated samples, the files that the frames may have)."""
    script = perl.place(tmp_path, *names)
    process = perl.start(script)
    out, stacks, truncated = tmp_path / "out.speedscope.json", Counter(), 0
    try:
        for _ in range(4):
            record(culprit, out, "-p", process.pid, "-d", SECONDS, "-F", "499")
            whole, cut = stacks_of(out)
            stacks, truncated = stacks + Counter(whole), truncated + cut
            if stacks.total() + truncated >= ENOUGH:
                break
    finally:
        process.kill()
        process.wait()
    files = {os.path.join(os.path.dirname(script), name) for name in names}
    return stacks, truncated, files


PROFILES = {}


@pytest.fixture
def chains(culprit, perl, tmp_path):
    """Returns (stacks, truncated, files); recorded once for each build."""
    if perl.build not in PROFILES:
        PROFILES[perl.build] = record_chains(culprit, perl, tmp_path, "chains.pl", "loaded.pl")
    return PROFILES[perl.build]


def judge_chains(what, stacks, truncated, files, chains, lines):
    """Checks that no chain is wrong and that each was seen whole."""
    seen, wrong = Counter(), []
    for stack, n in stacks.items():
        part = perl_part(stack, files)
        fits = [c for c, chain in chains.items() if matches(part, [PROGRAM, *chain], lines)]
        if not fits:
            wrong.append((n, part, [f.name for f in stack]))
        for c in fits:
            if len(part) == len(chains[c]) + 1:
                seen[c] += n
    total = sum(stacks.values())
    print(f"{what}: {total} samples, {truncated} truncated, {sum(n for n, *_ in wrong)} wrong, "
          f"complete chains: {dict(seen)}")
    assert not wrong, f"{len(wrong)} wrong chains, such as {wrong[:3]}"
    missing = set(chains) - set(seen) - SHORT
    assert not missing, f"chains never seen whole: {missing}"
    assert truncated <= 0.02 * (total + truncated)


@pytest.mark.sample("system")
def test_chains(perl, chains):
    judge_chains(f"{perl.build} {perl.version}", *chains, CHAINS, marked_lines("chains.pl", "loaded.pl"))


@pytest.mark.sample("system")
def test_native_frames_are_between_perl_frames(chains):
    """C and XS code that Perl calls, and that calls Perl, comes between the two."""
    between = {
        ("main::through_sort_block", "sort {...}"): "Perl_sortsv_flags",
        ("main::through_first", "main::__ANON__"): "Util.so|XS_List__Util_first",
        ("main::through_overload", "Number::add"): "Perl_amagic_call",
        ("main::through_tie", "Tied::FETCH"): "Perl_mg_get",
        ("main::through_storable", "Frozen::STORABLE_freeze"): "Storable.so|XS_Storable",
        ("main::through_destroy", "Doomed::DESTROY"): "Perl_call_sv",
    }
    found = Counter()
    for stack, n in chains[0].items():
        names = [f.name for f in stack]
        for (caller, callee), native in between.items():
            if caller in names and callee in names[names.index(caller):]:
                a = names.index(caller)
                b = names.index(callee, a)
                assert any(re.search(native, f) for f in names[a + 1:b]), ";".join(names)
                found[callee] += n
        assert "Perl_runops_standard" not in names, names
    assert set(found) == {callee for _, callee in between}


def frames_of_carp(text):
    """Returns [(frame, file and line of its caller)] of Carp::longmess, innermost first."""
    frames = []
    for line in text.splitlines()[1:]:
        name, where = re.match(r"\t(.*) called at (.*)$", line).groups()
        if name.startswith("eval '"):
            name = "eval '...'"
        if not name.startswith(("eval ", "require ")):
            name = name.partition("(")[0]
        frames.append((name, where))
    return frames


def wait_for(path):
    end = time.monotonic() + 60
    while not os.path.exists(path):
        assert time.monotonic() < end, f"{path} does not come"
        time.sleep(0.05)


HIDDEN = {"sort {...}", "(?{...})"} # frames that caller() leaves out


def view_of_caller(stack, files):
    """The same of a sampled stack, root first: a frame, and the position in the frame around it."""
    part = [f for f in stack if f.file in files or (f.file or "").startswith("(eval ")]
    return [(f.name, f"{around.file} line {around.line}") for around, f in zip(part, part[1:])
            if f.name not in HIDDEN][::-1]


@pytest.mark.sample("system")
def test_agrees_with_carp(culprit, perl, tmp_path):
    """Compares stacks with Carp::longmess: through tie, overloading in sort, destructors, recursion, XS, a regular
    expression, evals, a hook of die, and BEGIN in a file that is being compiled."""
    script = perl.place(tmp_path, "stopped.pl", "spins.pl")
    folder = os.path.dirname(script)
    outside = (perl.root or "") + folder
    process = perl.start(script, folder)
    try:
        files = {f"{folder}/stopped.pl", f"{folder}/spins.pl"}
        pids = process.stdout.readline().split()
        theirs, ours, lost = set(), Counter(), 0
        for pid in pids:
            wait_for(f"{outside}/{pid}.txt")
            with open(f"{outside}/{pid}.txt", encoding="utf-8") as f:
                theirs.add(tuple(frames_of_carp(f.read())))
        out = tmp_path / "out.speedscope.json"
        for _ in range(6): # on a busy machine a recording may lack some processes
            record(culprit, out, "-p", ",".join(pids), "-d", SECONDS, "-F", "99")
            stacks, truncated = stacks_of(out)
            lost += truncated
            for stack, n in stacks.items():
                ours[tuple(view_of_caller(stack, files))] += n
            if theirs <= set(ours):
                break
    finally:
        process.kill()
        process.wait()
    print(f"{perl.build} {perl.version}: {sum(ours.values())} samples, {lost} truncated, {len(ours)} different stacks of "
          f"{len(pids)} processes, as Carp sees them")
    assert set(ours) == theirs and not lost


@pytest.mark.sample("system")
def test_doctor(culprit, perl):
    process = perl.start("-e", '$| = 1; print "ready\\n"; sleep 100')
    try:
        said = subprocess.run([culprit, "doctor", "-p", str(process.pid)], capture_output=True,
                              text=True).stdout.splitlines()
    finally:
        process.kill()
        process.wait()
    how = "interpreter from PL_thr_key, its layout from Perl_cxinc" if perl.threads else "without threads"
    assert said[0] == f"perl: Perl {perl.version}, {how}, kinds of contexts from PL_block_type"
    assert all(line.startswith(("traces: ", "heap: perl: ")) for line in said[1:]), said


def chains_of_script(culprit, process, tmp_path, script):
    """Records a process. Returns [(its chain of Perl frames, all frames, count)], and the truncated samples."""
    out = tmp_path / "out.speedscope.json"
    try:
        record(culprit, out, "-p", process.pid, "-d", SECONDS, "-F", "299")
    finally:
        process.kill()
        process.wait()
    stacks, truncated = stacks_of(out)
    return [([f for f in s if f.file == script or f.name == "(main program)"], [f.name for f in s], n)
            for s, n in stacks.items()], truncated


def judge_threads(what, found, truncated, expected, lines):
    """Checks that each stack is a beginning of an expected chain, and that each chain was seen."""
    seen = Counter()
    for part, names, n in found:
        fits = [c for c, chain in expected.items() if part and matches(part, chain, lines)]
        # A thread that has not come to Perl, or is between two calls, has no frame.
        assert fits or not part, (part, names)
        for c in fits:
            if len(part) == len(expected[c]):
                seen[c] += n
    print(f"{what}: {sum(n for *_, n in found)} samples, {truncated} truncated, complete chains: {dict(seen)}")
    assert set(seen) == set(expected)
    assert truncated <= 0.02 * sum(n for *_, n in found)


SORT = call("sort", "sort {...}")


@pytest.mark.sample("system")
def test_threads(culprit, perl, tmp_path):
    if not perl.threads:
        pytest.skip("built without threads")
    script = perl.place(tmp_path, "threads.pl")
    found, truncated = chains_of_script(culprit, perl.start(script), tmp_path, script)
    judge_threads(f"{perl.build} {perl.version}, threads", found, truncated,
                  {"main": [PROGRAM, LEAF], "one": [C_EVAL, call("one"), LEAF], "two": [C_EVAL, call("two"), SORT, LEAF]},
                  marked_lines("threads.pl"))


def test_embedded(culprit, tmp_path):
    """Perl in a C program: two interpreters, each in its thread, below frames of the program."""
    perl = find("system")
    core = subprocess.run([*perl.command, "-MConfig", "-e", 'print "$Config{archlibexp}/CORE"'], capture_output=True,
                          text=True).stdout
    libraries = glob.glob(f"/usr/lib/*/libperl.so.5.{perl.minor}")
    if not libraries or not os.path.exists(f"{core}/perl.h"):
        pytest.skip("no libperl or its headers")
    script = perl.place(tmp_path, "inside.pl")
    program = tmp_path / "embed"
    subprocess.run(["gcc", "-w", "-O2", "-D_GNU_SOURCE", f"-I{core}", f"{HERE}/perl/embed.c", "-o", program, libraries[0],
                    "-lpthread"], check=True)
    process = subprocess.Popen([program, script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    found, truncated = chains_of_script(culprit, process, tmp_path, script)
    judge_threads(f"embedded {perl.version}", found, truncated,
                  {"first": [call("first"), LEAF], "second": [call("second"), SORT, LEAF]}, marked_lines("inside.pl"))
    for part, names, _ in found:
        if part:
            assert "host_calls_perl" in names[:names.index(part[0].name)], names
            assert ("first" in names) == (part[0].name == "main::first"), names


# ---- real programs ----

PROGRAMS = ("bookworm", "perl", "perltidy", "libimage-exiftool-perl", "starman")


@pytest.fixture
def programs():
    return root_perl(PROGRAMS, "programs")


def judge_program(what, out, sub):
    """98 % of the user stacks are complete, and `sub` is in some."""
    stacks = read(out)
    c = Completeness(stacks)
    inside = sum(s.count for s in stacks if sub in s.frames)
    print(f"{what}: {c}; {inside} in {sub}")
    assert c.user >= 50, "hardly any samples"
    # libc of another root has no names for its local functions, and Completeness does not look into roots.
    complete = c.complete + sum(n for why, n in c.faults.items() if why.startswith("begins at libc.so.6+0x"))
    assert complete >= 0.98 * c.user, str(c)
    assert inside


def test_perltidy(culprit, programs, tmp_path):
    out = tmp_path / "out.folded"
    record(culprit, out, "-F", "199", "--", *programs.command, "/usr/bin/perltidy", "-st",
           "/usr/share/perl/5.36/CPAN/Module.pm", env=ENVIRONMENT)
    judge_program("perltidy", out, "Perl::Tidy::perltidy")


def test_exiftool(culprit, programs, tmp_path):
    out = tmp_path / "out.folded"
    record(culprit, out, "-F", "199", "--", *programs.command, "/usr/bin/exiftool", "-r", "-json", "-q", "/usr/share", "/usr/lib",
           env=ENVIRONMENT)
    judge_program("exiftool", out, "Image::ExifTool::ExtractInfo")
