# SPDX-License-Identifier: Apache-2.0
"""LuaJIT's frames, interpreted and in traces, on Debian's versions. The programs and what is expected are those of
test_lua.py."""

import re
import subprocess

import pytest

from test_lua import (Lua, judge_chains, judge_native_frames, judge_traceback, record_chains)

# Build → suite of Debian, package and program, argument of the scripts
BUILDS = {
    "2.1": ("bookworm", "luajit", "on"),
    "2.1-off": ("bookworm", "luajit", "off"),
    "2.1-trixie": ("trixie", "luajit", "on"),
    "2.1-trixie-off": ("trixie", "luajit", "off"),
    "2.1-sid": ("sid", "luajit", "on"),
    "2.1-sid-off": ("sid", "luajit", "off"),
}


@pytest.fixture(params=BUILDS)
def luajit(request):
    return Lua(request.param, *BUILDS[request.param])


@pytest.mark.sample("2.1")
def test_chains(culprit, luajit, tmp_path):
    script, stacks, truncated = record_chains(culprit, luajit, tmp_path)
    judge_chains(luajit, stacks, truncated, script)
    judge_native_frames(stacks)
    assert not any("[trace" in f.name for stack in stacks for f in stack)


@pytest.mark.sample("2.1")
def test_traces(culprit, luajit, tmp_path):
    """With --runtime-frames the number of the trace is before the functions that it runs."""
    script, stacks, _ = record_chains(culprit, luajit, tmp_path, "--runtime-frames")
    if luajit.option == "off":
        assert not any("[trace" in f.name for stack in stacks for f in stack)
        return
    total = inside = 0
    for stack, n in stacks.items():
        marks = [i for i, f in enumerate(stack) if re.fullmatch(r"\[trace \d+\]", f.name)]
        total += n
        inside += n * bool(marks)
        for i in marks:
            assert stack[i].file == script and stack[i].line, stack[i]
            assert stack[i + 1].file == script, stack[i:]
    print(f"{luajit.build}: {inside} of {total} samples in traces")
    assert inside > 0.5 * total


@pytest.mark.sample("2.1")
def test_agrees_with_traceback(culprit, luajit, tmp_path):
    judge_traceback(culprit, luajit, tmp_path)


@pytest.mark.sample("2.1")
def test_doctor(culprit, luajit):
    process = luajit.start(luajit.place("chains.lua"))
    try:
        assert process.stdout.readline() == "ready\n"
        said = subprocess.run([culprit, "doctor", "-p", str(process.pid)], capture_output=True, text=True).stdout
    finally:
        process.kill()
        process.wait()
    assert re.search(r"luajit: LuaJIT 2\.1[.0-9a-z-]+, offsets from the VM's code", said), said


def test_without_gc64_is_refused(culprit):
    """Debian 11 built LuaJIT with 32-bit pointers to objects: its frames stay native, and doctor says why."""
    luajit = Lua("2.1-bullseye", "bullseye", "luajit", "off")
    process = luajit.start(luajit.place("chains.lua"))
    try:
        assert process.stdout.readline() == "ready\n"
        said = subprocess.run([culprit, "doctor", "-p", str(process.pid)], capture_output=True, text=True).stdout
    finally:
        process.kill()
        process.wait()
    assert "built without LJ_GC64, or its VM has changed" in said, said
