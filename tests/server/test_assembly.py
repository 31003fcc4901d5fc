# SPDX-License-Identifier: Apache-2.0
"""GET /api/v1/assembly: compares instructions with objdump and values with the stored samples, and checks which files
the server reads."""

import os
import re
import subprocess
import time

import pytest

from conftest import Server
from late import Program, run
from wire import field, varint

INSTRUCTION = re.compile(r"^ +([0-9a-f]+):\t((?:[0-9a-f]{2} )+) *(?:\t(.*))?$", re.M)


def disassembled(path, start, end):
    """[(address, length, mnemonic)] as binutils see it; bytes of long instructions continue on a line of their own."""
    out = []
    text = run("objdump", "-d", "-M", "intel", "--wide", f"--start-address={start}", f"--stop-address={end}", path)
    for address, code, words in INSTRUCTION.findall(text):
        out.append((int(address, 16), len(code.split()), (words.split() or [""])[0]))
    return out


def bounds(path, name):
    for line in run("nm", "-S", path).splitlines():
        words = line.split()
        if len(words) == 4 and words[3] == name:
            return int(words[0], 16), int(words[0], 16) + int(words[1], 16)
    raise AssertionError(f"no {name}")


def pprof(path, build_id, samples, at_s):
    """samples: [(count, [(address, [(function, line), ...innermost first]), ...leaf first])]."""
    strings = ["", "samples", "count", path, build_id]

    def s(text):
        if text not in strings:
            strings.append(text)
        return strings.index(text)

    functions, locations, body = {}, {}, b""
    for count, frames in samples:
        ids = []
        for address, lines in frames:
            for name, _ in lines:
                functions.setdefault(name, len(functions) + 1)
            ids.append(locations.setdefault((address, tuple(lines)), len(locations) + 1))
        body += field(2, field(1, b"".join(map(varint, ids))) + field(2, varint(count)))
    out = field(1, field(1, s("samples")) + field(2, s("count"))) + body
    out += field(3, field(1, 1) + field(2, 0) + field(3, 1 << 20) + field(5, s(path)) + field(6, s(build_id)))
    for (address, lines), i in locations.items():
        out += field(4, field(1, i) + field(2, 1) + field(3, address) +
                     b"".join(field(4, field(1, functions[n]) + field(2, line)) for n, line in lines))
    for name, i in functions.items():
        out += field(5, field(1, i) + field(2, s(name)) + field(3, s(name)) + field(4, s("app.c")))
    return out + b"".join(field(6, t.encode()) for t in strings) + field(9, int(at_s * 1e9)) + field(10, 10**9)


class Public:
    """Lets every user reach the file while the test runs; pytest's folders belong to one user."""

    def __init__(self, path):
        self.closed = [p for p in path.parents if not os.stat(p).st_mode & 1]

    def __enter__(self):
        for p in self.closed:
            os.chmod(p, os.stat(p).st_mode | 1)

    def __exit__(self, *_):
        for p in self.closed:
            os.chmod(p, os.stat(p).st_mode & ~1)


@pytest.fixture
def program(tmp_path):
    p = Program(tmp_path, "t")
    start, end = bounds(p.full, "touter")
    assert start % 16 == 0 and end > start
    return p


@pytest.fixture
def server(serve, tmp_path):
    return serve("--source-roots", f"{tmp_path}:/proc")


def ask(server, file, function, **more):
    a = server.get("/api/v1/assembly", file=str(file), function=function, **{"from": "now-1h", **more})
    assert a.status == 200, a.text
    return a.json()


def upload(server, program, path, samples):
    data = pprof(str(path), program.build_id, samples, time.time() - 60)
    a = server.request("POST", "/api/v1/upload?labels=service.name=app", data, {"Content-Type": "application/octet-stream"})
    assert a.status == 200, a.text


def some(program):
    """Stores samples on the first, the third and the last instruction of touter; the third has inlined code."""
    want = disassembled(program.full, *bounds(program.full, "touter"))
    call = bounds(program.full, "tcaller")[0] + 4
    first, third, last = want[0][0], want[2][0], want[-1][0]
    caller = (call, [("tcaller", 23)])
    return want, [(5, [(first, [("touter", 18)]), caller]), (7, [(third, [("innermost", 8), ("touter", 20)]), caller]),
                  (2, [(last, [("touter", 21)]), caller]), (3, [caller]),
                  # A recursive stack counts once.
                  (1, [(first, [("touter", 18)]), (third, [("innermost", 8), ("touter", 20)]), caller])]


def values(answer):
    return {i[0]: (i[2], i[3]) for i in answer["instructions"] if i[3]}


@pytest.mark.parametrize("stripped", [False, True])
def test_instructions(server, program, tmp_path, stripped):
    """The instructions are objdump's, for a file with symbols and for one with unwind tables only."""
    path = tmp_path / os.path.basename(program.path if stripped else program.full)
    want, samples = some(program)
    upload(server, program, path, samples)
    with Public(path):
        a = ask(server, path, "touter", build_id=program.build_id)
    assert a["why"] == "" and (a["all"], a["self"], a["total"]) == (18, 15, 15)
    # Padding after the function is not part of it, with and without symbols.
    assert [(i[0], i[1], i[4].split()[0]) for i in a["instructions"]] == want
    first, third, last = want[0][0], want[2][0], want[-1][0]
    assert values(a) == {first: (6, 6), third: (7, 8), last: (2, 2)}
    lines = {i[0]: (i[5], i[6]) for i in a["instructions"] if i[5]}
    assert lines == {first: ("app.c", 18), third: ("app.c", 8), last: ("app.c", 21)}
    with Public(path):
        inlined = ask(server, path, "innermost", build_id=program.build_id)
        caller = ask(server, path, "tcaller")
    assert [i[:2] for i in inlined["instructions"]] == [i[:2] for i in a["instructions"]]
    assert values(inlined) == {third: (7, 8)} and (inlined["self"], inlined["total"]) == (7, 8)
    assert (caller["self"], caller["total"]) == (3, 18)
    if not stripped:
        assert any("<touter>" in i[4] for i in caller["instructions"]), caller["instructions"]


def test_which_files(server, program, tmp_path):
    """The answer always has values, but code only of the file that was sampled, if every user may read it."""
    path = tmp_path / os.path.basename(program.full)
    want, samples = some(program)
    upload(server, program, path, samples)
    first, third, last = want[0][0], want[2][0], want[-1][0]

    def refused(what, **more):
        a = ask(server, path, "touter", **more)
        assert what in a["why"], a["why"]
        assert all(i[1] == 0 and i[4] == "" for i in a["instructions"])
        assert values(a) == {first: (6, 6), third: (7, 8), last: (2, 2)}

    if any(not os.stat(p).st_mode & 1 for p in path.parents):
        refused("every user")
    with Public(path):
        os.chmod(path, 0o750)
        refused("every user")
        os.chmod(path, 0o755)
        other = Program(tmp_path / "other", "t", ["-DOTHER", "-O1"])
        data = path.read_bytes()
        path.write_bytes(open(other.full, "rb").read())
        refused("not the one")
        path.write_bytes(data[:len(data) // 2])
        a = ask(server, path, "touter")
        assert values(a) == {first: (6, 6), third: (7, 8), last: (2, 2)}
        path.write_bytes(b"#!/bin/sh\n")
        refused("no program")
        path.unlink()
        os.mkfifo(path)
        a = ask(server, path, "touter")
        assert values(a) and all(i[4] == "" for i in a["instructions"])
        path.unlink()
        refused("not on the server's machine")
        path.write_bytes(data)
        os.chmod(path, 0o644)
        # Another build, another function and another file have no samples.
        for file, function, build in ((path, "touter", "00"), (path, "main", ""), ("/bin/ls", "main", ""), ("/etc/shadow", "touter", ""),
                                      ("/proc/self/exe", "touter", ""), (f"{tmp_path}/../{tmp_path.name}/{path.name}", "touter", "")):
            a = ask(server, file, function, **({"build_id": build} if build else {}))
            assert (a["instructions"], a["total"]) == ([], 0) and a["why"], file
    assert server.get("/api/v1/assembly", file=str(path)).status == 400
    assert server.get("/api/v1/assembly", function="main").status == 400


def test_without_a_build_id(server, program, tmp_path):
    """A file without a build-id must be older than the requested range."""
    path = tmp_path / "bare"
    subprocess.run(["objcopy", "--remove-section=.note.gnu.build-id", program.full, path], check=True, timeout=60)
    program.build_id = ""
    upload(server, program, path, some(program)[1])
    with Public(path):
        assert "not the one" in ask(server, path, "touter")["why"]
        # The API's times are whole seconds.
        changed = os.stat(path).st_ctime
        while time.time() < changed + 2:
            time.sleep(0.05)
        since = time.time()
        data = pprof(str(path), "", some(program)[1], since)
        assert server.request("POST", "/api/v1/upload?labels=service.name=app", data,
                              {"Content-Type": "application/octet-stream"}).status == 200
        a = ask(server, path, "touter", **{"from": int(since * 1000), "to": int(since * 1000) + 1000})
        assert a["why"] == "" and values(a)


HOLDER = """
import mmap, sys
with open(sys.argv[1], "rb") as f:
    held = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
print("holds it", flush=True)
sys.stdin.read()
"""


class Holder:
    """A process that has mapped the file as code. `prefix` enters another root."""

    def __init__(self, path, *prefix):
        self.process = subprocess.Popen([*prefix, "/usr/bin/python3", "-c", HOLDER, str(path)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "holds it\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.communicate()


class Up(Server):
    """`culprit up`, whose agent opens for the server what processes have mapped."""

    def __init__(self, executable, directory):
        self.context, self.scheme = None, "http"
        self.process = subprocess.Popen(
            [executable, "up", "--user", "root", "--source-roots", os.path.dirname(directory), "--data-dir", str(directory), "--listen", "127.0.0.1:0", "--otlp-grpc", "off",
             "--otlp-grpc-old", "off", "--otlp-http", "off", "-F", "1", "--comm", "nobody"], stdout=subprocess.PIPE, text=True)
        self.ports = {"api": int(self.process.stdout.readline().rsplit(":", 1)[1].strip(" /\n"))}


@pytest.fixture
def up(executable, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root: to open what processes have mapped")
    u = Up(executable, tmp_path / "up")
    yield u
    assert u.stop()[0] == 0


def test_a_file_that_was_replaced(up, program, tmp_path):
    """A process still has the sampled file mapped, so the server reads that file."""
    server = up
    path = tmp_path / os.path.basename(program.full)
    want, samples = some(program)
    upload(server, program, path, samples)
    other = Program(tmp_path / "other", "t", ["-DOTHER", "-O1"])
    with Public(path), Holder(path):
        os.replace(other.full, path)
        a = ask(server, path, "touter")
        assert a["why"] == "" and [(i[0], i[1], i[4].split()[0]) for i in a["instructions"]] == want
    with Public(path):
        assert "not the one" in ask(server, path, "touter")["why"]


def test_in_a_container(up, program, tmp_path):
    """Files of another mount namespace, with a path that does not exist here, are read if every user may reach them."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs root: for a mount namespace")
    server = up
    at, copy = tmp_path / "in", tmp_path / "app"
    at.mkdir()
    path = at / "lib" / "app"
    want, samples = some(program)
    upload(server, program, path, samples)
    copy.write_bytes(open(program.full, "rb").read())
    inside = 'mount -t tmpfs none "$0" && mkdir -p "$0/lib" && cp "$1" "$0/lib/app" && chmod "$2" "$0/lib" && chmod "$3" "$0/lib/app" && shift 3 && exec "$@"'

    def holder(folder, file):
        return Holder(path, "unshare", "--mount", "--propagation", "private", "sh", "-c", inside, str(at), str(copy), folder, file)

    with Public(at / "x"):
        with holder("755", "644"):
            a = ask(server, path, "touter")
            assert a["why"] == "" and [(i[0], i[1], i[4].split()[0]) for i in a["instructions"]] == want
            assert not path.exists()
        for folder, file in (("750", "644"), ("755", "640")):
            with holder(folder, file):
                a = ask(server, path, "touter")
                assert "not on the server's machine" in a["why"] and all(i[4] == "" for i in a["instructions"])


def test_code_of_no_file(server):
    """The answer has addresses of kernel code, and sums of code that a runtime made, and says why it has no more."""
    folded = "app;main;vfs_read_[k] 4\napp;main;compiled_[j];inner_[j] 6\n"
    assert server.request("POST", "/api/v1/upload?format=folded&labels=service.name=app", folded.encode(), {}).status == 200
    a = ask(server, "[kernel]", "vfs_read")
    assert "kernel" in a["why"] and (a["all"], a["self"], a["total"]) == (10, 4, 4)
    a = ask(server, "[jit]", "compiled")
    assert "runtime" in a["why"] and (a["self"], a["total"], a["instructions"]) == (0, 6, [])
    assert ask(server, "[python]", "compiled")["total"] == 0
