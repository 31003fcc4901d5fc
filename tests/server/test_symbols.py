# SPDX-License-Identifier: Apache-2.0
"""Late symbols: frames that came as build-id and address get their names when a debug file comes, in
every answer, also of what was there before. What addr2line says of each address is the truth."""

import gzip
import json
import os
import shutil
import time

import pytest

from late import Program, pprof

SYMBOLS = "/api/v1/symbols"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return Program(str(tmp_path_factory.mktemp("program")))


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


def fill(server, program, at, addresses=None, service="late"):
    """One sample of each address of outer, below one of caller and one of main."""
    outer = addresses or program.addresses(program.tag + "outer")
    stacks = [([a, program.addresses(program.tag + "caller")[0], program.addresses("main")[0]], i + 1)
              for i, a in enumerate(outer)]
    a = server.post("/api/v1/upload", pprof(program, stacks, at), labels=f"service.name={service}")
    assert a.status == 200, a.text
    return stacks


def folded(server, **parameters):
    a = server.get("/api/v1/export", format="folded", **{"from": "now-1d", **parameters})
    assert a.status == 200, a.text
    return dict((k, int(v)) for k, v in (line.rsplit(" ", 1) for line in a.text.splitlines()))


def expected(program, stacks):
    out = {}
    for frames, count in stacks:
        names = [name for a in frames for name, _ in program.chain(a)]
        key = ";".join(["late"] + names[::-1])
        out[key] = out.get(key, 0) + count
    return out


def nameless(program, stacks):
    base = os.path.basename(program.path)
    return {";".join(["late"] + [f"{base}+{a:#x}" for a in frames[::-1]]): count for frames, count in stacks}


def push(server, program, data=None, headers=None, build_id=None):
    if data is None:
        with open(program.debug, "rb") as f:
            data = f.read()
    return server.post(f"{SYMBOLS}/{build_id or program.build_id}", data, headers)


def named(server, program, n, seconds=60):
    """Waits until so many frames of it are named."""
    def look():
        a = server.get(f"{SYMBOLS}/{program.build_id}")
        return a.status == 200 and a.json()["named"] >= n and not a.json()["waiting"]

    wait_for(look, f"{n} frames of {program.path}: {server.get(SYMBOLS).text}", seconds)


def test_names_come_late_and_everywhere(serve, program):
    server = serve()
    at = int(time.time()) - 300
    stacks = fill(server, program, at)
    n = len({a for s, _ in stacks for a in s})
    before = folded(server)
    assert before == nameless(program, stacks)
    missing = server.get(SYMBOLS, **{"from": "now-1d"}).json()["missing"]
    assert missing == [{"build_id": program.build_id, "path": program.path, "samples": sum(c for _, c in stacks)}]
    assert server.get(f"{SYMBOLS}/{program.build_id}").status == 404

    a = push(server, program)
    assert a.status == 200 and a.json()["new"] is True, a.text
    assert a.json()["file"]["has"] == ".debug_info"
    named(server, program, n)
    want = expected(program, stacks)
    assert len(want) > 1 and any("innermost" in k for k in want), "nothing is inlined: this proves little"
    assert folded(server) == want
    assert server.get(SYMBOLS, **{"from": "now-1d"}).json()["missing"] == []

    # What comes now is named by the same file: known addresses at once, others in a moment.
    more = fill(server, program, at + 60, [a + 0 for a in program.addresses("main")])
    both = {k: want.get(k, 0) + expected(program, more).get(k, 0) for k in {**want, **expected(program, more)}}
    wait_for(lambda: folded(server) == both, "names of what came after the file")

    status, _ = server.stop()
    assert status == 0
    server = serve(directory=server.directory)
    assert folded(server) == both
    assert push(server, program).json()["new"] is False
