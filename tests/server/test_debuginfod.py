# SPDX-License-Identifier: Apache-2.0
"""The server as a debuginfod client: with Debian's debuginfod, and with servers that fail in every way. Without
configured servers it sends no requests."""

import collections
import http.server
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.request

import pytest

from conftest import free_port
from late import Program, build_id_of, pprof
from test_symbols import SYMBOLS, expected, fill, folded, nameless, push, wait_for


class Fake:
    """An HTTP server that answers with answers[path] (status, body) and counts the requests."""

    def __init__(self):
        fake = self
        self.asked, self.answers, self.hang = collections.Counter(), {}, False
        self.go_on = threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                fake.asked[self.path] += 1
                if fake.hang:
                    fake.go_on.wait(60)
                status, body, *headers = fake.answers.get(self.path, (404, b"not here"))
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    pass

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def fake():
    f = Fake()
    yield f
    f.stop()


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return Program(str(tmp_path_factory.mktemp("program")))


@pytest.fixture
def debuginfod(tmp_path):
    if not shutil.which("debuginfod"):
        pytest.skip("no debuginfod (Debian package debuginfod)")
    started = []

    def start(folder):
        port = free_port()
        p = subprocess.Popen(["debuginfod", "-F", "-d", ":memory:", "-p", str(port), str(folder)], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, env={**os.environ, "DEBUGINFOD_CACHE_PATH": str(tmp_path / "cache")})
        started.append(p)
        return f"http://127.0.0.1:{port}"

    yield start
    for p in started:
        p.terminate()
        p.wait(30)


def serves(url, build_id):
    def ask():
        try:
            return urllib.request.urlopen(f"{url}/buildid/{build_id}/debuginfo", timeout=10).status == 200
        except OSError:
            return False

    wait_for(ask, f"{build_id} at debuginfod")


def path_of(program):
    return f"/buildid/{program.build_id}/debuginfo"


def note_of(server, program):
    for f in server.get(SYMBOLS).json()["files"]:
        if f["build_id"] == program.build_id:
            return f["note"]
    return ""


def test_a_real_server_has_the_names(serve, debuginfod, program):
    folder = os.path.join(os.path.dirname(program.path), "served")
    os.makedirs(folder, exist_ok=True)
    shutil.copy(program.debug, folder)
    url = debuginfod(folder)
    serves(url, program.build_id)
    # It is off by default: stored frames stay as they are.
    server = serve()
    stacks = fill(server, program, int(time.time()) - 300)
    assert folded(server) == nameless(program, stacks)
    server.stop()
    # With the option, both stored and new frames get names.
    server = serve("--debuginfod-urls", f"{url}/", directory=server.directory)
    wait_for(lambda: folded(server) == expected(program, stacks), "names of what was there")
    assert server.get(f"{SYMBOLS}/{program.build_id}").json()["bytes"] == os.path.getsize(program.debug)
    server.stop()
    server = serve("--debuginfod-urls", url)
    stacks = fill(server, program, int(time.time()) - 300)
    wait_for(lambda: folded(server) == expected(program, stacks), "names of what came")


def test_files_that_dwz_made_small(serve, debuginfod, tmp_path):
    """The debug files of two programs share a third file, which is fetched before frames are named."""
    if not shutil.which("dwz"):
        pytest.skip("no dwz")
    a, b = Program(str(tmp_path / "d"), "a_"), Program(str(tmp_path / "d"), "b_")
    common = tmp_path / "d/common.debug"
    want = {p.path: {x: p.chain(x) for x in p.addresses(p.tag + "outer")} for p in (a, b)}
    subprocess.run(["dwz", "-m", str(common), a.debug, b.debug], check=True, capture_output=True, timeout=60)
    if not common.exists():
        pytest.skip("this dwz found nothing in common")
    for p in (a, b):
        os.unlink(p.full)
    url = debuginfod(tmp_path / "d")
    for build_id in (a.build_id, b.build_id, build_id_of(common)):
        serves(url, build_id) # it reads one file after the other
    server = serve("--debuginfod-urls", url)
    for p in (a, b):
        stacks = [([x], i + 1) for i, x in enumerate(want[p.path])]
        assert server.post("/api/v1/upload", pprof(p, stacks, int(time.time()) - 100), labels=f"service.name={p.tag}").status == 200

    def names(p):
        out = collections.Counter()
        for i, (x, chain) in enumerate(want[p.path].items()):
            out[";".join([p.tag] + [n for n, _ in chain][::-1])] += i + 1
        return dict(out)

    wait_for(lambda: folded(server) == {**names(a), **names(b)}, "names through the shared file")


def test_who_has_nothing_is_not_asked_again(serve, fake, program):
    server = serve("--debuginfod-urls", fake.url)
    fill(server, program, int(time.time()) - 300)
    wait_for(lambda: "do not have it" in note_of(server, program), "the note")
    for i in range(3):
        fill(server, program, int(time.time()) - 200 + i)
        time.sleep(0.5)
    assert fake.asked == {path_of(program): 1}
    assert "app-plain+0x" in "".join(folded(server))


def test_the_next_server_is_asked(serve, fake, program):
    with open(program.debug, "rb") as f:
        fake.answers[path_of(program)] = (200, f.read())
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0)) # nobody listens
        server = serve("--debuginfod-urls", f"http://127.0.0.1:{s.getsockname()[1]},{fake.url}")
        stacks = fill(server, program, int(time.time()) - 300)
        wait_for(lambda: folded(server) == expected(program, stacks), "names from the second")


def test_what_is_wrong_is_told_and_not_kept(serve, fake, program, tmp_path):
    other = Program(str(tmp_path), "o_")
    with open(other.debug, "rb") as f:
        wrong = f.read()
    for status, body, text in ((200, wrong, "its build-id is"), (200, b"<html>welcome</html>", "not an ELF file"), (500, b"", "HTTP 500"),
                               (200, bytes(6 << 20), "larger than 4 MiB")):
        fake.answers[path_of(program)] = (status, body)
        server = serve("--debuginfod-urls", fake.url, "--symbols-max-size", "16")
        stacks = fill(server, program, int(time.time()) - 300)
        wait_for(lambda: text in note_of(server, program), f"{text}, not {note_of(server, program)}")
        assert folded(server) == nameless(program, stacks)
        files = [f for _, _, names in os.walk(os.path.join(server.directory, "store/symbols")) for f in names]
        assert files == []
    # A redirection to a local file is not followed.
    fake.answers[path_of(program)] = (302, b"", ("Location", f"file://{program.debug}"))
    server = serve("--debuginfod-urls", fake.url)
    fill(server, program, int(time.time()) - 300)
    wait_for(lambda: note_of(server, program), "the note")
    assert server.get(f"{SYMBOLS}/{program.build_id}").status == 404


def test_redirections_stay_on_the_server(serve, fake, program):
    """A server of names must not make ours ask any machine that it can reach."""
    with open(program.debug, "rb") as f:
        right = f.read()
    other = Fake()
    other.answers["/here"] = fake.answers["/here"] = (200, right)
    fake.answers[path_of(program)] = (302, b"", ("Location", f"{other.url}/here"))
    server = serve("--debuginfod-urls", fake.url)
    stacks = fill(server, program, int(time.time()) - 300)
    wait_for(lambda: f"redirects to another server, {other.url}" in note_of(server, program), "the note")
    assert not other.asked and folded(server) == nameless(program, stacks)
    other.stop()
    fake.answers[path_of(program)] = (302, b"", ("Location", "/here"))
    server = serve("--debuginfod-urls", fake.url)
    stacks = fill(server, program, int(time.time()) - 300)
    wait_for(lambda: folded(server) == expected(program, stacks), "names from where the server redirects to on itself")
    fake.answers["/here"] = (302, b"", ("Location", "/here"))
    server = serve("--debuginfod-urls", fake.url)
    fill(server, program, int(time.time()) - 300)
    wait_for(lambda: "HTTP 302" in note_of(server, program), "the end of a circle")


def test_a_server_that_hangs_holds_up_nothing(serve, fake, program, tmp_path):
    fake.hang = True
    other = Program(str(tmp_path / "other"), "o_")
    server = serve("--debuginfod-urls", fake.url)
    stacks = fill(server, program, int(time.time()) - 300)
    wait_for(lambda: fake.asked, "the question")
    assert folded(server) == nameless(program, stacks)
    # Meanwhile frames with local debug files are named, also with files that are uploaded.
    assert push(server, other).status == 200
    others = fill(server, other, int(time.time()) - 200)
    wait_for(lambda: folded(server) == {**nameless(program, stacks), **expected(other, others)}, "names of the other one")
    assert push(server, program).status == 200
    wait_for(lambda: folded(server) == {**expected(program, stacks), **expected(other, others)}, "names of what was pushed")
    status, seconds = server.stop()
    assert status == 0 and seconds < 10, seconds
