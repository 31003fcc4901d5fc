# SPDX-License-Identifier: Apache-2.0
"""Frames of regular expressions that PCRE2's JIT has compiled, on the libraries of Debian's suites: exact chains of
functions through them."""

import glob
import os
import re
import signal
import subprocess
from collections import Counter

import pytest

from recorder import Completeness, read, record

HERE = os.path.dirname(os.path.abspath(__file__))
FETCH = os.path.join(HERE, "../../tools/vm/fetch")
SECONDS = os.environ.get("CULPRIT_RUNTIME_SECONDS", "5")
REGEX = "[regular expression]"

SUITES = {"10.36": "bullseye", "10.42": "bookworm", "10.46": "trixie", "sid": "sid"}
# Patterns of pcre2/matches.c whose matches must be in most samples of their function.
LONG = {"through_own", "through_given", "through_direct", "through_partial", "through_groups", "through_recursive",
        "through_inner"}
# Functions of the library. It is stripped, so that those it does not export are names of the file.
LIBRARY = re.compile(r"libpcre2-8\.so[.0-9]*\+0x|pcre2_\w+_8$")


@pytest.fixture(params=SUITES)
def library(request):
    """The path of the library of a suite."""
    got = subprocess.run([FETCH, "root", SUITES[request.param], "amd64", "libpcre2-8-0"], capture_output=True, text=True)
    if got.returncode:
        pytest.skip(got.stderr.strip())
    found = glob.glob(got.stdout.split()[-1] + "/**/libpcre2-8.so.0", recursive=True)
    assert found
    return found[0]


@pytest.fixture(scope="module")
def matches(tmp_path_factory):
    """The program, which has symbols and no frame pointers."""
    out = tmp_path_factory.mktemp("pcre2") / "matches"
    subprocess.run(["gcc", "-O2", "-g", "-fomit-frame-pointer", "-Wall", "-Wextra", "-o", out,
                    os.path.join(HERE, "pcre2/matches.c"), "-ldl"], check=True)
    return out


def chain_of(frames):
    """Returns the frames from main on, with one "pcre2" for adjacent functions of the library."""
    chain = []
    for f in frames[frames.index("main"):]:
        name = "pcre2" if LIBRARY.match(f) else f
        if not chain or name != "pcre2" or chain[-1] != "pcre2":
            chain.append(name)
    return chain


ONE = ["main", r"through_(?!inner)\w+", "at_depth", "pcre2", re.escape(REGEX)]
# The library's function that calls back may have ended with a jump to called_back().
NESTED = [*ONE[:1], "through_outer", *ONE[2:], "called_back", "through_inner", *ONE[2:]]


def is_right(chain):
    """Whether a chain through a regular expression is one of those in matches.c. Functions of the library may follow,
    which compiled code calls."""
    while not re.match(r"main$|through_|at_depth$|called_back$|\[regular", chain[-1]):
        chain = chain[:-1] # functions of the library, and of libc, in which the sample is
    if "called_back" in chain and chain[chain.index("called_back") - 1] == "pcre2":
        del chain[chain.index("called_back") - 1]
    return any(len(c) >= len(chain) and all(re.fullmatch(p, f) for p, f in zip(c, chain)) for c in (ONE, NESTED))


@pytest.mark.sample("10.42")
def test_chains(culprit, library, matches, tmp_path):
    process = subprocess.Popen([matches, library, "600"], stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout.readline() != "ready\n":
            pytest.skip(f"{library} does not run here")
        out = tmp_path / "out.folded"
        record(culprit, out, "-p", process.pid, "-d", SECONDS, "-F", "997")
    finally:
        process.kill()
        process.wait()
    inside, without, wrong, notes = Counter(), Counter(), Counter(), Counter()
    for s in read(out):
        if not s.frames:
            continue
        if s.note or "main" not in s.frames:
            notes[f"{s.note}: {s.frames[0]}"] += s.count
            continue
        chain = chain_of(s.frames)
        through = [f for f in chain if f.startswith("through_")]
        if not is_right(chain):
            wrong[";".join(s.frames)] += s.count
        elif through:
            (inside if chain[-1] == REGEX else without)[through[-1]] += s.count
    total = sum(inside.values())
    print(f"{total} samples in compiled patterns, {sum(without.values())} in functions around them, {sum(wrong.values())} wrong, "
          f"{sum(notes.values())} truncated")
    print(dict(inside), dict(without), notes.most_common(5))
    assert not wrong, wrong.most_common(3)
    assert total > 500
    for name in LONG:
        assert inside[name] > without[name], (name, inside, without)
    # The rows of a page may not be loaded yet when its first sample comes.
    assert sum(notes.values()) <= 0.002 * total + 1, notes


@pytest.mark.sample("10.42")
def test_doctor(culprit, library, matches):
    process = subprocess.Popen([matches, library, "60"], stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout.readline() != "ready\n":
            pytest.skip(f"{library} does not run here")
        said = subprocess.run([culprit, "doctor", "-p", str(process.pid)], capture_output=True, text=True).stdout
    finally:
        process.kill()
        process.wait()
    assert re.search(r"pcre2: PCRE2 10\.\d\d, with the code of its JIT", said), said


def test_grep(culprit, tmp_path):
    """The system's grep -P: functions of grep and the library, down to the pattern. grep is stripped."""
    text = tmp_path / "text"
    text.write_text("abcdefgh ijk (lm(n)(op) 7)\n" * 1500000)
    command = ["sh", "-c", f"while :; do grep -cP '(\\w+)\\s+(\\w+)[=#]' {text}; done"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        out = tmp_path / "out.folded"
        record(culprit, out, "-d", SECONDS, "-F", "499")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    stacks = [s for s in read(out) if s.comm == "grep"]
    c = Completeness(stacks)
    inside = sum(s.count for s in stacks if s.frames and s.frames[-1] == REGEX and not s.note)
    print(f"{inside} of {c.user} samples of grep -P in the pattern\n{c}")
    assert c.user > 300 and inside > 0.2 * c.user and c.share > 0.98
    for s in stacks:
        if REGEX in s.frames and not s.note:
            at = s.frames.index(REGEX)
            assert s.frames.count(REGEX) == 1 and LIBRARY.match(s.frames[at - 1]), s.frames
            assert s.frames[1] == "__libc_start_main_impl" and s.frames[3].startswith("grep+0x"), s.frames
