# SPDX-License-Identifier: Apache-2.0
"""Every row of the unwind tables against `readelf -wF`, an independent reader of the same bytes.

Where readelf has no function, ours may only be what is known of code without CFI: PLTs, the entry
point, signal trampolines, Go.
"""

import glob
import os
import shutil
import subprocess

import pytest

import readelf_rows

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FILES = {
    "libc": "/lib/*-linux-gnu/libc.so.6",
    "ld.so": "/lib/*-linux-gnu/ld-linux-*.so.*",
    "libstdc++": "/usr/lib/*-linux-gnu/libstdc++.so.6",
    "libcrypto": "/usr/lib/*-linux-gnu/libcrypto.so.3",
    "libm": "/lib/*-linux-gnu/libm.so.6",
    "bash": "/bin/bash",
    "git": "/usr/bin/git",
    "python": "/usr/bin/python3.[0-9]*[0-9]",
    "perl": "/usr/bin/perl",
    "node": "/usr/bin/node",
    "postgres": "/usr/lib/postgresql/*/bin/postgres",
    "libjvm": "/usr/lib/jvm/*/lib/server/libjvm.so",
}


@pytest.fixture(scope="session")
def dump_rows():
    build = os.path.dirname(os.path.dirname(os.environ.get("CULPRIT", f"{TOP}/build/cli/culprit")))
    path = f"{build}/tests/tools/dump-rows"
    assert os.access(path, os.X_OK), f"{path} is not there: make"
    return path


def check(dump_rows, path, sections=(".eh_frame",), more=(), extra_allowed=("stop", "plt", "r7+")):
    ours, said = readelf_rows.dump(dump_rows, path, *more)
    theirs = readelf_rows.Reader(more[0] if more else path).rows(sections)
    assert theirs, f"readelf finds no rows in {path}"
    good, bad, extra = readelf_rows.compare(ours, theirs)
    print(f"{path}: {said}; {good} agree, {len(bad)} do not, {len(extra)} beyond CFI")
    assert not bad, f"{len(bad)} rows differ, first: {[(hex(b[0]), *b[1:]) for b in bad[:5]]}"
    odd = [(hex(pc), row) for pc, row in extra if not row[0].startswith(tuple(extra_allowed))]
    assert not odd, f"rows where there is no CFI: {odd[:5]}"
    return ours, good


@pytest.mark.parametrize("name", FILES)
def test_every_row_is_what_readelf_says(dump_rows, name):
    paths = sorted(glob.glob(FILES[name]))
    if not paths:
        pytest.skip(f"{FILES[name]} is not on this machine")
    ours, good = check(dump_rows, os.path.realpath(paths[0]))
    assert good > 100
    said = sum(row[0] == "unsupported" for _, row in ours)
    print(f"{name}: {said} rows unsupported")
    assert said <= good / 100


GO_PROGRAM = """package main

import (
	"fmt"
	"os"
	"sort"
)

func main() {
	sort.Strings(os.Args)
	fmt.Println(os.Args, len(os.Environ()))
}
"""
# Where the tables of Go are not the whole truth and ours say more: stack switches, thread entries.
GO_SPECIAL = ("fpchain", "stop", "signal", "unsupported")


def go_build(tmp_path, **env):
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not os.access(go, os.X_OK):
        pytest.skip("no Go compiler")
    (tmp_path / "main.go").write_text(GO_PROGRAM)
    out = tmp_path / "program"
    subprocess.run([go, "build", "-o", out, "main.go"], cwd=tmp_path, check=True,
                   env=os.environ | {"GO111MODULE": "off", "CGO_ENABLED": "0"} | env)
    return str(out)


@pytest.mark.parametrize("env", [{}, {"GOFLAGS": "-buildmode=pie"}, {"GOARCH": "arm64"}],
                         ids=["exe", "pie", "arm64"])
def test_go_rows_agree_with_the_dwarf_that_the_linker_wrote(dump_rows, tmp_path, env):
    """.gopclntab against .debug_frame: both know the CFA, the latter nothing of saved registers."""
    path = go_build(tmp_path, **env)
    ours, said = readelf_rows.dump(dump_rows, path)
    theirs = readelf_rows.Reader(path).rows((".debug_frame",))
    our_pcs, their_pcs = [pc for pc, _ in ours], [pc for pc, _ in theirs]
    good, special, padding, bad = 0, 0, 0, []
    for pc in sorted(set(our_pcs) | set(their_pcs)):
        a, b = readelf_rows.at(ours, our_pcs, pc), readelf_rows.at(theirs, their_pcs, pc)
        if b is None:
            continue
        if (a[0], a[2]) in {(cfa, ra) for cfa, _, ra in b}:
            good += 1
        elif a[0] == "none":
            padding += 1
        # DWARF ends the stack in sigtramp; below it is the interrupted code.
        elif a[0].startswith(GO_SPECIAL) or a[0].startswith("r29") or {c for c, _, _ in b} == {"stop"}:
            special += 1
        else:
            bad.append((hex(pc), a, b))
    print(f"{env}: {said}; {good} agree, {len(bad)} do not, {special} special, {padding} padding")
    assert not bad, bad[:5]
    assert good > 5000 and special < 100


def test_go_rows_need_no_section_headers_and_no_symbols(dump_rows, tmp_path):
    path = go_build(tmp_path)
    whole, _ = readelf_rows.dump(dump_rows, path)
    bare = path + ".bare"
    with open(path, "rb") as f:
        image = bytearray(f.read())
    image[0x28:0x30] = bytes(8)  # e_shoff
    image[0x3c:0x40] = bytes(4)  # e_shnum, e_shstrndx
    with open(bare, "wb") as f:
        f.write(image)
    rows, said = readelf_rows.dump(dump_rows, bare)
    assert ".gopclntab" in said
    assert rows == whole
