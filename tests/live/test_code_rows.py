# SPDX-License-Identifier: Apache-2.0
"""Unwind rows that lib/unwind/code.c derives from instructions, against the CFI of files that have it.

compare-code builds each file's rows as if it had no CFI, and compares them with the CFI's rows at every
instruction. A row may be missing (the stack ends there with a reason), but must not be wrong.
"""

import glob
import os
import re
import shutil
import subprocess

import pytest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WRONG = 0.001
# Installed files, mostly stripped, and the share of instructions that must agree. In libc that is low, because
# of assembly for each processor and of functions that are called only through pointers.
FILES = {
    "libc": ("/lib/*-linux-gnu/libc.so.6", 0.70),
    "bash": ("/bin/bash", 0.90),
    "git": ("/usr/bin/git", 0.90),
    "libcrypto": ("/usr/lib/*-linux-gnu/libcrypto.so.3", 0.80),
    "python": ("/usr/bin/python3.[0-9]*[0-9]", 0.60),
}
COMPILED = [(compiler, flag) for compiler in ("gcc", "clang", "aarch64-linux-gnu-gcc")
            for flag in ("-fomit-frame-pointer", "-fno-omit-frame-pointer")]
# Files of culprit that need only headers of the C library and of the kernel.
SOURCES = ["base/buf.c", "base/str.c", "base/text.c", "base/arena.c", "base/diag.c", "base/log.c",
           "dwarf/cfi.c", "dwarf/cfi_run.c", "disasm/arm64.c", "unwind/page.c", "unwind/host.c",
           "format/folded.c", "profile/tree.c", "symbol/perf_map.c", "symbol/jitdump.c",
           "symbol/kallsyms.c"]


@pytest.fixture(scope="session")
def compare_code():
    build = os.path.dirname(os.path.dirname(os.environ.get("CULPRIT", f"{TOP}/build/cli/culprit")))
    path = f"{build}/tests/tools/compare-code"
    assert os.access(path, os.X_OK), f"{path} is not there: make"
    return path


def compare(compare_code, path, name=None):
    out = subprocess.run([compare_code, path], capture_output=True, text=True, check=True,
                         timeout=60).stdout
    n = {what: int(count) for count, what in re.findall(r"(\d+) (\w+)", out)}
    total = n["instructions"]
    assert total > 1000, out
    for what in ("agree", "alike", "none", "wrong"):
        n[what] /= total
    print(f"{name or path}: {total} instructions, agree {n['agree']:.2%}, in other words "
          f"{n['alike']:.2%}, none {n['none']:.2%}, WRONG {n['wrong']:.3%}; "
          f"{n['ms'] / n['pages']:.1f} ms a page")
    assert n["wrong"] <= WRONG, out
    return n["agree"] + n["alike"]


@pytest.mark.parametrize("name", FILES)
def test_installed_files(compare_code, name):
    pattern, least = FILES[name]
    paths = sorted(glob.glob(pattern))
    if not paths:
        pytest.skip(f"{pattern} is not on this machine")
    assert compare(compare_code, os.path.realpath(paths[0])) >= least


@pytest.mark.parametrize("compiler,flag", COMPILED)
def test_c_code_of_this_tree(compare_code, tmp_path, compiler, flag):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    whole, stripped = tmp_path / "whole.so", tmp_path / "stripped.so"
    objects = []
    # The host's headers suffice, because the code is never run.
    (tmp_path / "gnu").mkdir()
    (tmp_path / "gnu/stubs-32.h").touch()
    headers = [f"-idirafter{d}" for d in (tmp_path, "/usr/include",
                                          *glob.glob("/usr/include/*-linux-gnu"))]
    for source in SOURCES:
        o = tmp_path / (source.replace("/", "-") + ".o")
        subprocess.run([compiler, "-O2", flag, "-w", "-fPIC", "-D_GNU_SOURCE", "-c", f"-I{TOP}",
                        f"-I{TOP}/lib", *headers, "-o", o, f"{TOP}/lib/{source}"], check=True)
        objects.append(o)
    subprocess.run([compiler, "-shared", "-nostdlib", "-o", whole, *objects], check=True)
    strip = "aarch64-linux-gnu-strip" if compiler.startswith("aarch64") else "strip"
    subprocess.run([strip, "-s", "-o", stripped, whole], check=True)
    assert compare(compare_code, whole, f"{compiler} {flag}") >= 0.95
    assert compare(compare_code, stripped, f"{compiler} {flag}, stripped") >= 0.85
