# SPDX-License-Identifier: Apache-2.0
"""The memory profile that Go keeps, read from outside: on each installed release equal to runtime.MemProfile() and to the file of
runtime/pprof (tests/live/test_heap.py has the checks), and found in stripped programs by their code."""

import os
import subprocess

import pytest

from test_go import FLAVOURS, HERE, VERSIONS, Toolchain
from test_heap import SOURCE, WITHOUT, check_equals_own, check_says_none

TOOLS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build/tests/tools")
CGO = [SOURCE, SOURCE.replace("main.go", "native.go")]
BUILDS = {**{name: [*options, SOURCE] for name, options in FLAVOURS.items()}, "cgo": CGO, "cgo-stripped-pie": [
    "-ldflags=-s -w", "-buildmode=pie", *CGO]}


def build(version, path, *arguments, machine=None):
    toolchain = Toolchain(version)
    if machine:
        toolchain.env.update(GOARCH=machine, CGO_ENABLED="0")
    done = toolchain.run("build", "-o", path, *arguments, timeout=600)
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.sample("1.26-stripped")
@pytest.mark.parametrize("flavour", BUILDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_equals_the_programs_own(culprit, tmp_path, version, flavour):
    check_equals_own(culprit, tmp_path, build(version, tmp_path / "known_heap", *BUILDS[flavour]))


@pytest.mark.sample("1.26-plain")
@pytest.mark.parametrize("flavour", ["plain", "stripped"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_program_without_a_profile(culprit, tmp_path, version, flavour):
    """Since 1.17 the linker turns the profile off where nothing reads it."""
    if version in ("1.15", "1.16"):
        pytest.skip("each program has one")
    (tmp_path / "without.go").write_text(WITHOUT)
    check_says_none(culprit, tmp_path, build(version, tmp_path / "without_profile", *FLAVOURS[flavour], tmp_path / "without.go"))


def found(path):
    """Distances from the cycle: of the rate, and of what may head the list; and whether the cycle is shifted. Or what is wrong."""
    done = subprocess.run([os.path.join(TOOLS, "go_heap"), path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    return int(words[0], 16), int(words[1], 16), words[2], [int(w, 16) for w in words[3:]]


@pytest.mark.sample("1.26-arm64")
@pytest.mark.parametrize("machine", ["amd64", "arm64"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_code_tells_what_symbols_tell(tmp_path, version, machine):
    """Programs for another machine are not run. `strip` leaves all addresses as they are."""
    path = build(version, tmp_path / "program", SOURCE, machine=machine)
    strip = {"amd64": "x86_64-linux-gnu-strip", "arm64": "aarch64-linux-gnu-strip"}[machine]
    stripped = tmp_path / "stripped"
    try:
        subprocess.run([strip, "-s", "-o", stripped, path], check=True, timeout=120)
    except FileNotFoundError:
        pytest.skip(f"there is no {strip}")
    rate, cycle, shifted, lists = found(path)
    assert len(lists) == 1
    got = found(stripped)
    assert got[:3] == (rate, cycle, shifted) and lists[0] in got[3] and len(got[3]) > 1
