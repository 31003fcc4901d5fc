# SPDX-License-Identifier: Apache-2.0
"""CPython in other places than an interpreter of its own: loaded late by a native program, several
interpreters in one process."""

import glob
import json
import os
import re
import signal
import subprocess

import pytest

from test_python import BUILDS, HERE, Python, find, judge_chains, marked_lines, profile, python_part, stacks_of


def shared_python(version, tmp_path):
    """An interpreter that has its own libpython, and that."""
    for pattern in BUILDS[version]:
        for path in sorted(glob.glob(pattern)):
            prefix = os.path.dirname(os.path.dirname(path))
            for library in glob.glob(f"{prefix}/lib/libpython{version}*.so.1.0"):
                return Python(path, tmp_path), library, prefix
    pytest.skip(f"no CPython {version} with a libpython")


def compile_c(tmp_path, name, *flags):
    out = tmp_path / name
    subprocess.run(["gcc", "-O1", "-g", "-o", out, os.path.join(HERE, f"python/{name}.c"), *flags],
                   check=True)
    return out


@pytest.mark.parametrize("version", ["3.6", "3.9", "3.11", "3.12", "3.13"])
def test_loaded_late(culprit, version, tmp_path):
    """libpython comes by dlopen() after three seconds, and is started six seconds after that: longer
    than a process that starts needs."""
    python, library, prefix = shared_python(version, tmp_path)
    program = compile_c(tmp_path, "late", "-ldl")
    script = python.place("chains.py")
    process = subprocess.Popen([program, library, script], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONHOME": prefix})
    try:
        assert process.stdout.readline() == "ready\n"
        stacks, truncated = profile(culprit, process, tmp_path, 22)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    native = {s: n for s, n in stacks.items() if s[-1].name == "work_natively"}
    assert native and all(f.file is None or not f.file.endswith(".py") for s in native for f in s)
    judge_chains(python, f"{library}, by dlopen", script,
                 {s: n for s, n in stacks.items() if s not in native}, truncated)


INSIDE = {
    "alpha": ["module", "alpha", "alpha_key", "leaf"],
    "beta": ["module", "beta", "beta_key", "leaf"],
    "alpha_other": ["alpha_other", "alpha_spin"],
    "beta_other": ["beta_other", "beta_spin"],
}
OUTSIDE = {"outside": ["module", "outside", "spin_outside"], "run": ["run"]}


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13",
                                     "3.14", "3.15"])
def test_interpreters(culprit, version, tmp_path):
    """Three interpreters in one process, on five threads, two of which run one interpreter from
    within another. The frames of none may be those of another."""
    python = Python(find(version), tmp_path)
    script, inside = python.place("interpreters.py"), python.place("inside.py")
    process = python.start(script, inside)
    try:
        stacks, truncated = profile(culprit, process, tmp_path, 8)
    finally:
        process.kill()
        process.wait()
    judge_chains(python, f"{python.path}, inside", inside, stacks, truncated, "inside.py", INSIDE)
    judge_chains(python, f"{python.path}, outside", script, stacks, truncated, "interpreters.py",
                 OUTSIDE)
    lines = marked_lines(os.path.join(HERE, "python/interpreters.py"))["run"]
    for stack in stacks:
        names = [f.name for f in python_part(stack, inside)]
        called = [f for f in python_part(stack, script) if f.name == "run"]
        # Who started the interpreter is beneath it, in its place; a thread of its own has nobody.
        assert len(called) == (names[:1] == ["<module>"]), stack
        for f in called:
            assert f.line in lines and stack.index(f) < stack.index(python_part(stack, inside)[0])
