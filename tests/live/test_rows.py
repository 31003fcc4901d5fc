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
