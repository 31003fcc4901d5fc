# SPDX-License-Identifier: Apache-2.0
"""Records the whole machine while it is busy with real programs, stripped as Debian ships them."""

import os
import re
import shutil
import subprocess
from functools import lru_cache

import pytest

from folded import ADDRESS, by_comm
from host import busy_host
from recorder import Completeness, read, record
from truth import PROGRAMS, TOP, build, find_file

SECONDS = 10
WANTED = ["cc1", "postgres", "pgbench", "nginx", "wrk", "redis-server", "redis-benchmark",
          "gos-go", "rusty-rss"]


@pytest.fixture(scope="session")
def host_run(culprit, tmp_path_factory):
    build()
    out = tmp_path_factory.mktemp("host") / "host.folded"
    with busy_host(PROGRAMS) as host:
        # The load ends with `host`, because culprit may need a while to load.
        host.load(SECONDS + 120)
        done = record(culprit, out, "-F", "499", "-d", SECONDS)
        missing = host.missing
    os.makedirs(os.path.join(TOP, "tests/artefacts"), exist_ok=True)
    shutil.copy(out, os.path.join(TOP, "tests/artefacts/host.folded"))
    stacks = by_comm(read(out))
    # The kernel cuts names to 15 characters, and processes of servers rename themselves.
    named = {w: [s for c, l in stacks.items() if c[:15] == w[:15] for s in l] for w in WANTED}
    return stacks, named, missing, done


def test_user_stacks_are_complete(host_run):
    """At least 99 % of stacks reach the thread's entry, for each program and for all together."""
    stacks, named, missing, done = host_run
    print(done.stderr)
    for m in missing:
        print(f"not installed, left out: {m}")
    bad = []
    for name, of in named.items():
        c = Completeness(of)
        print(f"{name:16}{c}")
        if c.user >= 100 and c.share < 0.99:
            bad.append(f"{name}: {100 * c.share:.2f} %")
    everything = Completeness([s for l in stacks.values() for s in l])
    print(f"{'whole machine':16}{everything}")
    assert not bad, bad
    assert everything.user > 1000 and everything.share >= 0.99


def test_every_program_of_the_host_was_seen(host_run):
    _, named, missing, _ = host_run
    unseen = [n for n, of in named.items() if not of]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    assert not unseen


def debug_file(path):
    notes = subprocess.run(["readelf", "-nW", path], capture_output=True, text=True).stdout
    m = re.search(r"Build ID: ([0-9a-f]{2})([0-9a-f]+)", notes)
    found = m and f"/usr/lib/debug/.build-id/{m.group(1)}/{m.group(2)}.debug"
    return found if found and os.path.exists(found) else None


@lru_cache(maxsize=None)
def functions(path):
    """Returns sorted (start, end) of every function that nm finds in the file or its debug file."""
    out = []
    for args in ([path], ["-D", path], [debug_file(path)]):
        if args[-1]:
            text = subprocess.run(["nm", "-S", "--defined-only", *args], capture_output=True,
                                  text=True).stdout
            for m in re.finditer(r"^([0-9a-f]+) ([0-9a-f]+) [tTwWiI] ", text, re.M):
                start = int(m.group(1), 16)
                out.append((start, start + int(m.group(2), 16)))
    return sorted(out)


@lru_cache(maxsize=None)
def nm_can_name(frame):
    """Tells whether nm finds a function at the address of a nameless frame."""
    m = ADDRESS.match(frame)
    path = find_file(m.group(1))
    address = int(m.group(2), 16)
    return bool(path) and any(a <= address < b for a, b in functions(path))


def test_what_has_a_symbol_has_a_name(host_run):
    """Looks up nameless frames with nm, which must find names for hardly any of them."""
    _, named, _, _ = host_run # other roots may run other files under the same paths
    frames = nameless = findable = 0
    example = {}
    for l in named.values():
        for s in l:
            for f in s.frames:
                frames += s.count
                if not ADDRESS.match(f):
                    continue
                nameless += s.count
                if nm_can_name(f):
                    findable += s.count
                    example.setdefault(f, s)
    print(f"{frames} frames, {nameless} without a name, of which nm can name {findable}: "
          f"{list(example)[:10]}")
    assert findable <= 0.001 * frames
