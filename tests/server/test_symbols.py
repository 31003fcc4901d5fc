# SPDX-License-Identifier: Apache-2.0
"""Late symbols: frames that arrived as build-id and address get names when a debug file arrives, in all answers, also
about old samples. The names must be those of addr2line."""

import gzip
import json
import os
import re
import shutil
import subprocess
import time

import pytest

from late import Program, pprof, run
from test_api import check

SYMBOLS = "/api/v1/symbols"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return Program(str(tmp_path_factory.mktemp("program")))


@pytest.fixture
def symbols(executable):
    def run(*args, **keywords):
        return subprocess.run([executable, "symbols", *map(str, args)], capture_output=True, text=True, timeout=120, **keywords)

    return run


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


def fill(server, program, at, addresses=None, service="late"):
    """Stores one sample for each address of outer, below an address of caller and one of main."""
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
    """Waits until this many frames of the program have names."""
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

    # The same file names new samples: known addresses at once, others after a moment.
    more = fill(server, program, at + 60, [a + 0 for a in program.addresses("main")])
    both = {k: want.get(k, 0) + expected(program, more).get(k, 0) for k in {**want, **expected(program, more)}}
    wait_for(lambda: folded(server) == both, "names of what came after the file")

    status, _ = server.stop()
    assert status == 0
    server = serve(directory=server.directory)
    assert folded(server) == both
    assert push(server, program).json()["new"] is False


def test_every_view_shows_them(serve, program):
    server = serve()
    stacks = fill(server, program, int(time.time()) - 300)
    total = sum(c for _, c in stacks)
    inner = sum(c for s, c in stacks if "innermost" in [name for name, _ in program.chain(s[0])])
    assert 0 < inner < total

    def find(function):
        return server.get("/api/v1/export", format="folded", stacks=f'fn="{function}"', **{"from": "now-1d"}).text

    assert find("innermost") == "" and "app-plain+0x" in find(f"app-plain+{stacks[0][0][0]:#x}")
    push(server, program)
    named(server, program, len({a for s, _ in stacks for a in s}))
    # Conditions on functions, and on functions under others.
    def count(condition):
        text = server.get("/api/v1/export", format="folded", stacks=condition, **{"from": "now-1d"}).text
        return sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines())

    assert count('fn="innermost"') == inner
    assert count('fn="innermost" under fn="outer" under fn="main"') == inner
    assert count('fn~".*\\+0x.*"') == 0
    assert count(f'file~".*{os.path.basename(program.full)[:-5]}\\.c"') == total
    # Flame graph, top, series, pprof.
    tree = server.get("/api/v1/flamegraph", **{"from": "now-1d"}).json()
    assert {"innermost", "middle", "outer", "caller", "main"} <= set(tree["names"])
    assert not [n for n in tree["names"] if "+0x" in n]
    top = server.get("/api/v1/top", **{"from": "now-1d"}).json()
    assert "innermost" in json.dumps(top) and "+0x" not in json.dumps(top)
    data = gzip.decompress(server.get("/api/v1/export", format="pprof", **{"from": "now-1d"}).body)
    assert b"innermost" in data and program.build_id.encode() in data
    lines = server.get("/api/v1/flamegraph", by_line="true", **{"from": "now-1d"}).json()
    want = {line for s, _ in stacks for name, line in program.chain(s[0]) if name == "innermost" and line}
    got = {n for name, n in zip(lines["nodes"]["name"], lines["nodes"].get("line", [])) if lines["names"][name] == "innermost"}
    assert got == want
    # Pyroscope's query API.
    now = int(time.time() * 1000)
    a = server.post("/querier.v1.QuerierService/SelectMergeStacktraces", json.dumps({
        "profile_typeID": "process_cpu:cpu:nanoseconds:cpu:nanoseconds", "label_selector": '{service_name="late"}',
        "start": now - 86400000, "end": now}).encode(), {"Content-Type": "application/json"})
    names = a.json()["flamegraph"]["names"]
    assert {"innermost", "middle", "outer", "caller", "main"} <= set(names)
    assert not [n for n in names if "+0x" in n]


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compressed_uploads(serve, program, encoding):
    server = serve()
    stacks = fill(server, program, int(time.time()) - 300)
    tool = {"gzip": ["gzip", "-c"], "zstd": ["zstd", "-q", "-c", "--long"]}[encoding]
    data = subprocess.run([*tool, program.debug], capture_output=True, check=True, timeout=60).stdout
    cut = push(server, program, data[:-100], {"Content-Encoding": encoding})
    assert cut.status == 400 and "cut off" in cut.json()["message"], cut.text
    a = push(server, program, data, {"Content-Encoding": encoding})
    assert a.status == 200 and a.json()["file"]["bytes"] == os.path.getsize(program.debug), a.text
    named(server, program, len({a for s, _ in stacks for a in s}))
    assert folded(server) == expected(program, stacks)


def bad_files(program):
    with open(program.debug, "rb") as f:
        debug = f.read()
    with open(program.path, "rb") as f:
        stripped = f.read()
    wide = bytearray(debug)
    wide[4] = 1 # ELFCLASS32
    return [
        ("not ELF", b"#!/bin/sh\n" * 100, None, 400, "not an ELF file"),
        ("nothing", b"", None, 400, "not an ELF file"),
        ("32 bits", bytes(wide), None, 415, "64-bit"),
        ("cut off", debug[:len(debug) // 2], None, 400, "cut off"),
        ("cut off by one", debug[:-1], None, 400, "cut off"),
        ("other build-id", debug, "00112233445566778899aabbccddeeff00112233", 400, "its build-id is"),
        ("no build-id", debug, "xyz", 400, "a build-id is"),
        ("capitals", debug, program.build_id.upper(), 400, "a build-id is"),
        ("half a byte", debug, program.build_id[:-1], 400, "a build-id is"),
        ("a folder", debug, "..", 400, "a build-id is"),
        ("a path", debug, "..%2f..%2fetc", 404, "nothing"),
        ("stripped", stripped.replace(b".dynsym", b".nodyns"), None, 400, "stripped"),
        ("unknown encoding", debug, None, 415, "encoding must be"),
        ("damaged gzip", b"\x1f\x8b\x08" + debug[3:], None, 400, "gzip"),
        ("damaged zstd", b"\x28\xb5\x2f\xfd" + b"\xff" * 1000, None, 400, "zstd"),
    ]


def test_bad_uploads_are_refused_and_nothing_is_lost(serve, program):
    server = serve()
    stacks = fill(server, program, int(time.time()) - 300)
    before = folded(server)
    for name, data, build_id, status, text in bad_files(program):
        headers = {"unknown encoding": {"Content-Encoding": "br"}, "damaged gzip": {"Content-Encoding": "gzip"},
                   "damaged zstd": {"Content-Encoding": "zstd"}}.get(name)
        a = push(server, program, data, headers, build_id)
        assert a.status == status and text in a.json()["message"] and "\n" not in a.json()["message"], f"{name}: {a.text}"
        if name != "a path":
            check(a, SYMBOLS + "/{build_id}", "post")
    assert folded(server) == before
    store = os.path.join(server.directory, "store/symbols")
    assert os.listdir(f"{store}/incoming") == []
    assert [f for _, _, files in os.walk(store) for f in files] == []
    # The right file is still accepted.
    check(push(server, program), SYMBOLS + "/{build_id}", "post")
    named(server, program, len({a for s, _ in stacks for a in s}))
    assert folded(server) == expected(program, stacks)
    check(server.get(SYMBOLS), SYMBOLS)
    check(server.get(f"{SYMBOLS}/{program.build_id}"), SYMBOLS + "/{build_id}")
    check(server.get(f"{SYMBOLS}/00112233"), SYMBOLS + "/{build_id}")


def test_damaged_debug_information_names_what_it_can(serve, program):
    """With any damage the server goes on; frames whose data it cannot read stay nameless."""
    server = serve()
    with open(program.debug, "rb") as f:
        debug = bytearray(f.read())
    stacks = fill(server, program, int(time.time()) - 300)
    header = subprocess.run(["readelf", "-SW", program.debug], capture_output=True, text=True, check=True).stdout
    for section in (".debug_info", ".debug_abbrev", ".debug_line"):
        _, _, offset, size = re.search(re.escape(section) + r"\s+(\w+)\s+(\w+)\s+(\w+)\s+(\w+)", header).groups()
        for i in range(int(size, 16) // 4):
            debug[int(offset, 16) + i * 4] ^= 0xa5
    assert push(server, program, bytes(debug)).status == 200
    wait_for(lambda: not server.get(f"{SYMBOLS}/{program.build_id}").json()["waiting"], "the look at it")
    # The length of the first unit is damaged.
    assert server.get(f"{SYMBOLS}/{program.build_id}").json()["note"] == \
        ".debug_info: a unit of impossible length at offset 0x0"
    now = folded(server)
    assert sum(now.values()) == sum(c for _, c in stacks)
    assert server.get("/healthz").status == 200


def test_large_uploads_go_to_disk(serve, program, executable, tmp_path):
    """A file with a section of 200 MB is not kept in the server's memory."""
    blob, big = tmp_path / "blob", tmp_path / "big.debug"
    with open(blob, "wb") as f:
        for _ in range(200):
            f.write(os.urandom(1 << 20))
    subprocess.run(["objcopy", f"--add-section=.blob={blob}", program.debug, str(big)], check=True, timeout=120)
    server = serve()
    fill(server, program, int(time.time()) - 300)
    before, most = server.rss_bytes(), 0
    done = subprocess.Popen([executable, "symbols", "push", "--server", f"http://127.0.0.1:{server.port}", str(big)],
                            stdout=subprocess.PIPE, text=True)
    while done.poll() is None:
        most = max(most, server.rss_bytes())
        time.sleep(0.02)
    assert "1 sent" in done.communicate()[0]
    assert server.get(f"{SYMBOLS}/{program.build_id}").json()["bytes"] == os.path.getsize(big)
    assert most - before < 30 << 20, f"{(most - before) >> 20} MiB more"
    named(server, program, 1)


def test_what_is_too_large_is_refused(serve, program, symbols, tmp_path):
    server = serve("--symbols-max-size", "16") # so 4 MiB for one
    with open(program.debug, "rb") as f:
        data = f.read()
    large = tmp_path / "large"
    large.write_bytes(data + bytes(5 << 20))
    # With and without its length at the beginning; and compressed it ends where it is too much.
    with server.connect() as s:
        s.sendall(f"POST {SYMBOLS}/{program.build_id} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for _ in range(80):
            s.sendall(b"10000\r\n" + bytes(65536) + b"\r\n")
        s.sendall(b"0\r\n\r\n")
        assert s.recv(1000).startswith(b"HTTP/1.1 413 ")
    done = symbols("push", "--server", f"http://127.0.0.1:{server.port}", large)
    assert done.returncode == 1 and "larger" in done.stderr and done.stderr.count("\n") == 1, done
    a = push(server, program, gzip.compress(data + bytes(500 << 20)), {"Content-Encoding": "gzip"})
    assert a.status == 413 and "MiB" in a.json()["message"], a.text
    assert push(server, program, data).status == 200


def test_the_oldest_goes(serve, tmp_path):
    server = serve("--symbols-max-size", "16")
    programs = [Program(str(tmp_path), f"p{i}_") for i in range(6)]
    blob = tmp_path / "blob"
    blob.write_bytes(os.urandom(3 << 20))
    for p in programs:
        subprocess.run(["objcopy", f"--add-section=.blob={blob}", p.debug], check=True, timeout=60)
        assert push(server, p).status == 200
        time.sleep(0.01) # of another millisecond
    listed = server.get(SYMBOLS).json()
    here = {f["build_id"] for f in listed["files"] if f["bytes"]}
    assert here == {p.build_id for p in programs[1:]}
    assert listed["bytes"] <= listed["max_bytes"] == 16 << 20
    on_disk = sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(f"{server.directory}/store/symbols") for f in files)
    assert on_disk == listed["bytes"]


def test_tokens(serve, program, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("read read-read-read-read\nwrite write-write-write-write\n")
    server = serve("--token-file", tokens)

    def as_(token):
        return {"Authorization": f"Bearer {token}"} if token else {}

    assert push(server, program).status == 401
    assert push(server, program, headers=as_("read-read-read-read")).status == 403
    assert server.get(f"{SYMBOLS}/{program.build_id}", as_("read-read-read-read")).status == 403
    assert server.get(f"{SYMBOLS}/{program.build_id}", as_("write-write-write-write")).status == 404
    assert server.get(SYMBOLS, as_("write-write-write-write")).status == 403
    assert push(server, program, headers=as_("write-write-write-write")).status == 200
    assert server.get(SYMBOLS, as_("read-read-read-read")).json()["files"][0]["build_id"] == program.build_id


def test_broken_off_uploads_leave_nothing(serve, program):
    server = serve()
    incoming = os.path.join(server.directory, "store/symbols/incoming")

    def begin():
        s = server.connect()
        s.sendall(f"POST {SYMBOLS}/{program.build_id} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n".encode() + bytes(1000))
        return s

    s = begin()
    wait_for(lambda: len(os.listdir(incoming)) == 1, "the file on its way")
    s.close()
    wait_for(lambda: os.listdir(incoming) == [], "the end of what was broken off")
    # The number of simultaneous uploads is limited.
    sockets = [begin() for _ in range(4)]
    wait_for(lambda: len(os.listdir(incoming)) == 4, "four files on their way")
    a = push(server, program)
    assert a.status == 503 and a.headers["Retry-After"], a.text
    # After a kill, the next server removes incomplete files.
    server.process.kill()
    server.process.wait(10)
    for s in sockets:
        s.close()
    assert len(os.listdir(incoming)) == 4
    server = serve(directory=server.directory)
    assert os.listdir(incoming) == []
    assert push(server, program).status == 200


def test_killed_between_file_and_names(serve, program):
    """An acknowledged file is kept, and the next server names frames with it."""
    server = serve()
    stacks = fill(server, program, int(time.time()) - 300)
    assert push(server, program).status == 200
    server.process.kill()
    server.process.wait(10)
    server = serve(directory=server.directory)
    wait_for(lambda: folded(server) == expected(program, stacks), "names after the kill")


def test_better_symbols_replace_worse(serve, program, tmp_path):
    server = serve()
    only = tmp_path / "symtab.only"
    subprocess.run(["objcopy", "--strip-debug", program.full, str(only)], check=True, timeout=60)
    a = push(server, program, only.read_bytes())
    assert a.json()["new"] and a.json()["file"]["has"] == ".symtab"
    a = push(server, program)
    assert a.json()["new"] and a.json()["file"]["has"] == ".debug_info"
    a = push(server, program, only.read_bytes())
    assert not a.json()["new"] and a.json()["file"]["has"] == ".debug_info"


def test_a_store_elsewhere_needs_a_place(serve, program, tmp_path):
    """With sqlite:// symbols are stored beside the database; --symbols-dir sets another folder."""
    server = serve("--store", f"sqlite://{tmp_path}/s", "--symbols-dir", tmp_path / "elsewhere")
    assert push(server, program).status == 200
    assert os.path.exists(f"{tmp_path}/elsewhere/usr/lib/debug/.build-id/{program.build_id[:2]}/{program.build_id[2:]}.debug")
    server = serve("--store", f"sqlite://{tmp_path}/t")
    assert push(server, program).status == 200
    assert os.path.exists(f"{tmp_path}/t/symbols/usr/lib/debug/.build-id/{program.build_id[:2]}")


# ---- the command ----

def test_command(serve, symbols, tmp_path):
    server = serve()
    url = f"http://127.0.0.1:{server.port}"
    program, other = Program(str(tmp_path / "a"), "a_"), Program(str(tmp_path / "b"), "b_")
    stacks = fill(server, program, int(time.time()) - 300)
    listed = symbols("list", "--server", url, "--from", "now-1d")
    assert listed.returncode == 0 and program.build_id in listed.stdout and "without names" in listed.stdout
    # A stripped file whose debug file is beside it.
    os.unlink(program.full)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={program.debug}", program.path], check=True, timeout=60)
    done = symbols("push", "--server", url, program.path)
    assert done.returncode == 0 and program.build_id in done.stdout and "1 sent" in done.stdout, done
    named(server, program, len({a for s, _ in stacks for a in s}))
    os.rename(program.debug, program.full)
    assert folded(server) == expected(program, stacks)
    # A second push sends nothing. Of a folder, only new ELF files are sent.
    done = symbols("push", "--server", url, program.full)
    assert done.returncode == 0 and "0 sent" in done.stdout and "1 already there" in done.stdout, done
    (tmp_path / "b/text").write_text("no ELF file\n")
    (tmp_path / "b/loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "b/fifo")
    done = symbols("push", "--server", url, tmp_path)
    assert done.returncode == 0 and "1 sent" in done.stdout and other.build_id in done.stdout, done
    listed = symbols("list", "--server", url, "--from", "now-1d")
    assert program.build_id in listed.stdout and other.build_id in listed.stdout
    assert "without names" not in listed.stdout
    # Push the files of a process.
    third = Program(str(tmp_path / "c"), "c_")
    running = subprocess.Popen([third.full, "60"])
    try:
        done = symbols("push", "--server", url, "--pid", running.pid)
        assert done.returncode == 0 and third.build_id in done.stdout, done
    finally:
        running.kill()
        running.wait()


def test_command_errors(serve, symbols, program, tmp_path):
    tokens, token = tmp_path / "tokens", tmp_path / "token"
    tokens.write_text("read read-read-read-read\n")
    token.write_text("read-read-read-read\n")
    server = serve("--token-file", tokens)
    url = f"http://127.0.0.1:{server.port}"
    text, bare = tmp_path / "text", tmp_path / "bare"
    text.write_text("no ELF file\n")
    with open(tmp_path / "x.c", "w", encoding="ascii") as f:
        f.write("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-Wl,--build-id=none", "-o", bare, tmp_path / "x.c"], check=True, timeout=60)
    for args, status, want in (
            (["push"], 2, "nothing to push"), ([], 2, "push FILE"), (["pull"], 2, "push FILE"),
            (["push", "/nonexistent"], 1, "cannot read /nonexistent"),
            (["push", text], 1, "not an ELF file"), (["push", bare], 1, "has no build-id"),
            (["push", program.path], 1, "is stripped"), (["push", "--pid", "0"], 2, "not a process id"),
            (["push", "--pid", "2147483647"], 1, "no such process"),
            (["push", program.debug], 1, "a token"), (["push", "--token-file", token, program.debug], 1, "may not"),
            (["push", "--token-file", "/nonexistent", program.debug], 1, "cannot read a token"),
            (["list"], 1, "a token"), (["list", "--token-file", token, "--from", "yesterday"], 1, "from")):
        done = symbols(*args, "--server", url)
        assert done.returncode == status and want in done.stderr, f"{args}: {done}"
        assert done.stderr.startswith("culprit: ") and done.stderr.count("\n") == 1, done.stderr
    done = symbols("list", "--server", "http://127.0.0.1:1")
    assert done.returncode == 1 and "cannot reach" in done.stderr and done.stderr.count("\n") == 1, done


@pytest.mark.slow
def test_a_large_program(serve, executable, tmp_path):
    """Names thousands of addresses of culprit itself, and compares with addr2line. Prints the speed and memory that
    doc/server.md reports."""
    class Itself:
        path, full, debug, tag = "/opt/culprit", executable, str(tmp_path / "culprit.debug"), ""

    subprocess.run(["objcopy", "--only-keep-debug", executable, Itself.debug], check=True, timeout=120)
    Itself.build_id = re.search(r"Build ID: (\w+)", run("readelf", "-n", executable)).group(1)
    functions = [(int(a, 16), int(n, 16)) for a, n in re.findall(r"^(\w+) (\w+) [tT] ", run("nm", "-S", "--defined-only", executable), re.M)]
    addresses = sorted({a + n * k // 8 for a, n in functions for k in range(8) if n})
    server = serve()
    at = int(time.time()) - 300
    for i in range(0, len(addresses), 5000):
        stacks = [([a], 1) for a in addresses[i:i + 5000]]
        assert server.post("/api/v1/upload", pprof(Itself, stacks, at + i // 5000), labels="service.name=late").status == 200
    before, most = server.rss_bytes(), 0
    begin = time.monotonic()
    assert push(server, Itself).status == 200

    def done():
        nonlocal most
        most = max(most, server.rss_bytes())
        f = server.get(f"{SYMBOLS}/{Itself.build_id}").json()
        return not f["waiting"] and f["named"]

    count = wait_for(done, "all names", 300)
    took = time.monotonic() - begin
    print(f"\n{count} of {len(addresses)} frames in {took:.1f} s, {count / took:.0f}/s, file {os.path.getsize(Itself.debug) >> 20} MiB, "
          f"{(most - before) >> 20} MiB more memory")
    assert count >= 0.99 * len(addresses)
    text = gzip.decompress(server.get("/api/v1/export", format="pprof", max_stacks="1000000", **{"from": "now-1d"}).body)
    assert Itself.build_id.encode() in text
    # Of some, what addr2line says, by their place in the tree: each is a stack of its own.
    got = folded(server, max_stacks="1000000")
    some = addresses[::max(1, len(addresses) // 400)]
    out = subprocess.run(["addr2line", "-f", "-i", "-a", "-e", executable], input="\n".join(map(hex, some)), text=True,
                         capture_output=True, check=True, timeout=300).stdout.splitlines()
    chains, at = [], 0
    while at < len(out):
        chain, at = [], at + 1
        while at < len(out) and not out[at].startswith("0x"):
            chain.append(out[at])
            at += 2
        chains.append(chain)
    wrong = [c for c in chains if ";".join(["late", *c[::-1]]) not in got and "??" not in c]
    assert len(wrong) <= len(chains) // 100, wrong[:5]


def test_command_sends_what_dwz_shares(serve, symbols, tmp_path):
    """Two debug files share a third, which is sent first, so that the server never names frames without it."""
    if not shutil.which("dwz"):
        pytest.skip("no dwz")
    a, b = Program(str(tmp_path / "d"), "a_"), Program(str(tmp_path / "d"), "b_")
    stacks = [([x], i + 1) for i, x in enumerate(a.addresses("a_outer"))]
    want = expected(a, stacks) # before dwz
    common = tmp_path / "d/common.debug"
    subprocess.run(["dwz", "-m", str(common), a.debug, b.debug], check=True, capture_output=True, timeout=60)
    if not common.exists():
        pytest.skip("this dwz found nothing in common")
    for p in (a, b):
        os.unlink(p.full)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={a.debug}", a.path], check=True, timeout=60)
    server = serve()
    assert server.post("/api/v1/upload", pprof(a, stacks, int(time.time()) - 300), labels="service.name=late").status == 200
    done = symbols("push", "--server", f"http://127.0.0.1:{server.port}", a.path)
    assert done.returncode == 0 and "2 sent" in done.stdout and done.stdout.index("dwz") < done.stdout.index(a.build_id), done
    wait_for(lambda: folded(server) == want, f"names through the shared file: {folded(server)}")


def test_slow_uploads_are_cut_off_and_long_ones_are_not(serve, program):
    server = serve("--timeout", "3")
    incoming = os.path.join(server.directory, "store/symbols/incoming")
    with open(program.debug, "rb") as f:
        data = f.read()

    def begin(length):
        s = server.connect()
        s.sendall(f"POST {SYMBOLS}/{program.build_id} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode())
        return s

    # An upload that sends a byte now and then is too slow.
    began = time.monotonic()
    with begin(1000000) as s:
        with pytest.raises(OSError):
            while time.monotonic() < began + 60:
                s.sendall(b"\x7f")
                time.sleep(0.2)
    assert time.monotonic() - began < 30
    wait_for(lambda: os.listdir(incoming) == [], "the end of what was cut off")
    # An upload at a sufficient rate may last longer than other requests (twice the timeout).
    padded = data + bytes(3 << 20)
    began = time.monotonic()
    with begin(len(padded)) as s:
        step = len(padded) // 45 + 1
        for at in range(0, len(padded), step):
            s.sendall(padded[at:at + step])
            time.sleep(0.2)
        assert s.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert time.monotonic() - began > 7


def test_a_server_without_a_place_says_so(executable):
    done = subprocess.run([executable, "server", "--store", "clickhouse://127.0.0.1:1/x", "--debuginfod-urls", "http://127.0.0.1:1"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "requires --symbols-dir" in done.stderr and done.stderr.count("\n") == 1, done


def test_an_upload_of_zeros_is_refused_before_it_fills_the_disk(server, program):
    """A part of a megabyte that decompresses to a gigabyte."""
    bomb = gzip.compress(bytes(1 << 20), 9) * 400
    wrote = written(server)
    a = push(server, program, bomb, {"Content-Encoding": "gzip"})
    assert a.status == 413 and "64 times its size" in a.text, a.text
    assert written(server) - wrote < 64 << 20
    # A real file passes, however it is compressed.
    with open(program.debug, "rb") as f:
        assert push(server, program, gzip.compress(f.read(), 9), {"Content-Encoding": "gzip"}).status == 200


def written(server):
    """Bytes that the server has written to files and sockets."""
    with open(f"/proc/{server.process.pid}/io", encoding="ascii") as f:
        return int(re.search(r"wchar: (\d+)", f.read())[1])
