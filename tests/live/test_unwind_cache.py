# SPDX-License-Identifier: Apache-2.0
"""The cache of unwind rows on disk: a second recording builds none, its rows are those that are built, and damage is repaired.

The reader below follows doc/format/unwind-cache.md, and shares nothing with culprit's.
"""

import os
import pathlib
import re
import shutil
import struct
import subprocess
import time

import pytest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADER = struct.Struct("<8sQIIIIQQQ272s")
RULE = struct.Struct("<BBBBihhhh")
PAGE = struct.Struct("<QQII")
PAGE_SHIFT = 14
WORK = "sub spin { my $x = 0; $x += sqrt($_) for 1..100000; $x } spin() while (times)[0] < 0.7"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A copy of Perl is a file that no cache can know, and that has been there for a while."""
    path = str(tmp_path_factory.mktemp("program") / "perl")
    shutil.copy(os.path.realpath(shutil.which("perl")), path)
    time.sleep(1.5)
    return path


def command(culprit, program, out, cache):
    return [culprit, "record", "-v", "--force", "--runtime-frames", "-o", str(out), "--cache-dir", str(cache), "--", program, "-e", WORK]


def counts(program, stderr):
    found = re.search(rf"{re.escape(program)}: (\d+) pages of unwind rows from the cache, (\d+) built", stderr)
    assert found, stderr
    return int(found[1]), int(found[2])


def record(culprit, program, cache):
    """Returns how many pages came from the cache and how many were built, and the log."""
    out = pathlib.Path(program).parent / "out.folded"
    run = subprocess.run(command(culprit, program, out, cache), capture_output=True, text=True,
                         timeout=200, check=False)
    assert run.returncode == 0, run.stderr
    assert "spin" in out.read_text(encoding="utf-8")
    return counts(program, run.stderr), run.stderr


def record_until_cached(culprit, program, cache):
    """Pages that nobody needed in one recording are built in the next."""
    for _ in range(4):
        (cached, built), _ = record(culprit, program, cache)
        print(f"{cached} pages cached, {built} built")
        if not built:
            return cached
    raise AssertionError("each recording builds pages")


def build_id(program):
    said = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
    return re.search(r"Build ID: ([0-9a-f]+)", said)[1]


def file_of(program, cache):
    path, = (cache / "unwind").glob(f"{build_id(program)}-*.rows")
    return path


def text_of(rule):
    """A rule as dump-rows prints it."""
    cfa_op, reg, ra_op, fp_op, off, fp_off, ra_off, add, _ = rule
    fixed = ["none", "stop", "unsupported"]
    if cfa_op < 3:
        return f"{fixed[cfa_op]} - -"
    if cfa_op == 7:
        return "fpchain - -"
    if cfa_op == 6:
        return f"signal{off:+d} - -"
    cfa = {3: f"r{reg}{off:+d}", 4: f"*(r{reg}{off:+d}){add:+d}", 5: f"plt{off:+d}/{add}"}[cfa_op]
    fp = ["s", f"c{fp_off:+d}", f"f{fp_off:+d}"][fp_op]
    return f"{cfa} {fp} " + (f"c{ra_off:+d}" if not ra_op else f"r{ra_off}")


def read(path):
    """Returns {page: [line of dump-rows]}."""
    data = path.read_bytes()
    magic, _, fmt, n_rules, n_pages, reserved, end, _, _, _ = HEADER.unpack_from(data)
    assert (magic, fmt, reserved) == (b"CULPROW\0", 1, 0)
    assert len(data) == end + n_rules * RULE.size + n_pages * PAGE.size
    rules = [text_of(RULE.unpack_from(data, end + i * RULE.size)) for i in range(n_rules)]
    pages = {}
    for i in range(n_pages):
        page, _, at, n = PAGE.unpack_from(data, end + n_rules * RULE.size + i * PAGE.size)
        rows = struct.unpack_from(f"<{n}I", data, at * 4)
        pages[page] = [f"{(page << PAGE_SHIFT) + (row >> 16):x} {rules[row & 0xffff]}" for row in rows]
    return pages


def built(program):
    """The same, of the rows that are built now."""
    culprit = os.environ.get("CULPRIT", f"{TOP}/build/cli/culprit")
    tool = pathlib.Path(culprit).parent.parent / "tests/tools/dump-rows"
    lines = subprocess.run([str(tool), "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()
    pages = {}
    for line in lines:
        pages.setdefault(int(line.split()[0], 16) >> PAGE_SHIFT, []).append(line)
    return pages


def assert_right(program, cache):
    cached, fresh = read(file_of(program, cache)), built(program)
    assert len(cached) > 20
    for page, rows in cached.items():
        assert rows == fresh[page], f"page {page:#x}"


def test_a_second_recording_builds_no_table(culprit, program, tmp_path):
    cache = tmp_path / "cache"
    (cached, n_built), _ = record(culprit, program, cache)
    assert cached == 0 and n_built > 20
    assert record_until_cached(culprit, program, cache) > 20
    assert_right(program, cache)

    # Damage is one line of the log, and is repaired.
    path = file_of(program, cache)
    data = bytearray(path.read_bytes())
    for damaged in (data[:-1], data[:400] + bytes([data[400] ^ 1]) + data[401:]):
        path.write_bytes(damaged)
        (_, n_built), log = record(culprit, program, cache)
        assert n_built > 0
        assert log.count(f"{path.name} is damaged") == 1
        assert_right(program, cache)
    record_until_cached(culprit, program, cache)

    # A changed file with the build-id and the size of the old one.
    os.utime(program)
    time.sleep(1.5)
    assert record(culprit, program, cache)[0][0] == 0


def test_none_writes_nothing(culprit, program, tmp_path):
    env = dict(os.environ, XDG_CACHE_HOME=str(tmp_path / "xdg"), HOME=str(tmp_path / "home"))
    before = {p.name for p in pathlib.Path("/var/cache/culprit").glob("*/*")}
    out = tmp_path / "out.folded"
    run = subprocess.run(command(culprit, program, out, "none"), capture_output=True, text=True, timeout=200, check=False,
                         env=env)
    assert run.returncode == 0, run.stderr
    assert counts(program, run.stderr)[0] == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.folded"]
    after = {p.name for p in pathlib.Path("/var/cache/culprit").glob("*/*")}
    assert not any(name.startswith(build_id(program)) for name in after - before)


def test_a_folder_that_others_can_change_is_not_used(culprit, program, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    (cached, _), log = record(culprit, program, cache)
    assert cached == 0
    assert "not used as a cache of unwind rows" in log
    assert not list((cache / "unwind").iterdir())
    run = subprocess.run([culprit, "record", "--cache-dir", "here", "-o", str(tmp_path / "x.folded"), "true"], capture_output=True,
                         text=True, timeout=60, check=False)
    assert run.returncode != 0 and "give an absolute path, or none" in run.stderr


def test_recording_goes_on_when_the_disk_is_full(culprit, program, tmp_path):
    cache = tmp_path / "cache"
    (cache / "unwind").mkdir(parents=True)
    # Not in a namespace of its own: unshare cannot make one in a chroot.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", cache / "unwind"], check=True, timeout=60)
    try:
        (_, n_built), log = record(culprit, program, cache)
    finally:
        subprocess.run(["umount", "-l", cache / "unwind"], check=True, timeout=60)
    assert n_built > 20
    assert re.search(r"\.rows cannot be written: No space left on device", log)


def test_two_recordings_share_a_folder(culprit, program, tmp_path):
    cache = tmp_path / "cache"
    runs = [subprocess.Popen(command(culprit, program, tmp_path / f"{i}.folded", cache), stderr=subprocess.PIPE, text=True)
            for i in range(2)]
    for run in runs:
        _, log = run.communicate(timeout=200)
        assert run.returncode == 0, log
    assert_right(program, cache)
    record_until_cached(culprit, program, cache)
    assert_right(program, cache)
    assert all(p.name.endswith(".rows") for p in (cache / "unwind").iterdir())
