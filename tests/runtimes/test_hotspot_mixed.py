# SPDX-License-Identifier: Apache-2.0
"""Java and Python in one stack. The walker of each language is a BPF program, and a walk changes between the two
programs at each call."""

import json
import shutil
from collections import Counter

import pytest

from recorder import record
from test_hotspot import HERE, Java, built, homes
from test_python_process import shared_python

# The most parts of a stack, each in one language. A sample has at most 32 tail calls (bpf/prog/sample.h): one begins
# the walk, one ends it, and each part takes one.
MAX_PARTS = 32 - 1 - 1
ENOUGH = 400
CHANGES = "[truncated: too many changes between runtimes]"


@pytest.fixture(params=[17])
def java(request, built):
    found = homes(request.param)
    if not found:
        pytest.skip(f"no OpenJDK {request.param}")
    j = Java(request.param, found[0])
    yield j
    j.close()


def profile(culprit, java, tmp_path, calls):
    """Returns {(languages of the workload's functions, root first; why the stack is cut or ""): samples}."""
    _, libpython, prefix = shared_python("3.13", tmp_path)
    script = shutil.copy(f"{HERE}/hotspot/mixed.py", java.scratch)
    process = java.start(libpython, script, str(calls), main="Mixed",
                         enter=["env", f"PYTHONHOME={prefix}"])
    out, stacks = tmp_path / "out.speedscope.json", Counter()
    try:
        for _ in range(20): # on a busy machine one recording may have few samples
            record(culprit, out, "-p", process.pid, "-d", 3, "-F", 499)
            assert process.poll() is None
            stacks += languages(json.loads(out.read_text()))
            if sum(stacks.values()) > ENOUGH:
                break
    finally:
        process.kill()
        process.communicate()
    return stacks


def languages(data):
    names = [f["name"] for f in data["shared"]["frames"]]
    language = {"Mixed.java": "j", "step": "p"}
    stacks = Counter()
    for p in data["profiles"]:
        for stack, n in zip(p["samples"], p["weights"]):
            if any(names[i] in language for i in stack):
                stacks["".join(language.get(names[i], "") for i in stack),
                       "".join(names[i] for i in stack if "[truncated" in names[i])] += n
    return stacks


@pytest.mark.parametrize("calls", [1, 5, (MAX_PARTS - 1) // 2])
def test_java_and_python(culprit, java, tmp_path, calls):
    stacks = profile(culprit, java, tmp_path, calls)
    right = stacks.pop(("jp" * calls + "j", ""), 0)
    cut = sum(n for (_, note), n in stacks.items() if note)
    print(f"{calls} calls of each: {right} samples, {cut} truncated")
    assert not [s for s in stacks if not s[1]]
    assert right > ENOUGH // 2 and cut <= 0.02 * right, stacks


def test_java_and_python_without_end(culprit, java, tmp_path):
    """A stack with more changes than tail calls is truncated, and marked with the reason."""
    stacks = profile(culprit, java, tmp_path, 2 * MAX_PARTS)
    right = stacks.pop(("pj" * (MAX_PARTS // 2), CHANGES), 0)
    print(f"{right} samples, others: {stacks}")
    assert right > ENOUGH // 2 and sum(stacks.values()) <= 0.02 * right, stacks
