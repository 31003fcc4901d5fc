# SPDX-License-Identifier: Apache-2.0
"""Who may do what: pages of other sites, tokens in clear text, rights of tokens, files of the server's machine."""

import json
import os
import pathlib
import subprocess
import tempfile
import time

import pytest

import test_symbols
from conftest import wait_for
from test_net import ADMIN, READER, WRITER, bearer, run_server, tokens  # noqa: F401
from test_symbols import program  # noqa: F401

CROSS = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}


# ---- pages of other sites ----

@pytest.mark.parametrize("mode", ["open", "tokens", "certificates"])
def test_pages_of_other_sites_are_refused_in_every_mode(serve, tokens, certificates, client_context, mode):  # noqa: F811
    args, headers, tls = [], {}, None
    if mode == "tokens":
        args, headers = ["--token-file", tokens], bearer(ADMIN)
    if mode == "certificates":
        args = ["--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key",
                "--tls-ca", certificates / "ca.pem"]
        tls = client_context("client")
    s = serve(*args, tls=tls)
    own = {**headers, "Host": f"localhost:{s.port}"}
    if mode != "open":
        own["Host"] = "culprit.example"
    origin = f"{s.scheme}://{own['Host']}"
    assert s.get("/api/v1/types", own).status == 200
    assert s.get("/api/v1/types", {**own, "Sec-Fetch-Site": "same-origin"}).status == 200
    assert s.get("/api/v1/types", {**own, "Sec-Fetch-Site": "none"}).status == 200
    assert s.post("/ingest", b"a;b 1\n", {**own, "Origin": origin}, name="x.cpu").status == 200
    assert s.get("/api/v1/types", {**own, **CROSS}).status == 403
    assert s.get("/api/v1/types", {**own, **CROSS, "Sec-Fetch-Site": "same-site"}).status == 403
    assert s.post("/ingest", b"a;b 1\n", {**own, "Origin": "https://evil.example"}, name="x.cpu").status == 403
    assert s.post("/ingest", b"a;b 1\n", {**own, "Origin": origin, **CROSS}, name="x.cpu").status == 403
    # A link from another site to the page is fine; to anything else it is not.
    link = {**own, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert s.get("/", link).status == 200
    assert s.get("/api/v1/types", link).status == 403


# ---- tokens in clear text ----

@pytest.mark.parametrize("option", ["--listen", "--otlp-grpc", "--otlp-http"])
def test_tokens_in_clear_text_need_a_word(executable, serve, tmp_path, tokens, option):  # noqa: F811
    others = [a for o in ("--listen", "--otlp-grpc", "--otlp-http", "--otlp-grpc-old") if o != option
              for a in (o, "127.0.0.1:0")]
    args = [option, "0.0.0.0:0", "--token-file", tokens, *others]
    r = run_server(executable, tmp_path, *args)
    assert r.returncode == 1 and "clear text" in r.stderr and "--allow-clear-text" in r.stderr, r.stderr
    assert serve(*args, "--allow-clear-text").get("/healthz").status == 200


# ---- files of the server's machine ----

def name_files(server, files):
    """Stores a sample whose frames name these files."""
    frames = [{"name": f"f{i}", "file": str(f), "line": 1} for i, f in enumerate(files)]
    body = {"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {"frames": frames},
            "profiles": [{"type": "sampled", "name": "x", "unit": "none", "startValue": 0, "endValue": 1,
                          "samples": [list(range(len(frames)))], "weights": [1]}]}
    now = int(time.time() * 1000)
    a = server.request("POST", f"/api/v1/upload?from={now - 1000}&to={now}", json.dumps(body).encode(),
                       {"Content-Type": "application/json"})
    assert a.status == 200, a.text


def source(server, file):
    a = server.get("/api/v1/source", file=str(file), type="", **{"from": "now-1h"})
    assert a.status == 200, a.text
    return a.json()


@pytest.fixture
def open_folder():
    """A folder that every user may search, as its parents."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as d:
        os.chmod(d, 0o755)
        yield pathlib.Path(d)


def test_files_that_show_more_to_root_are_not_shown(serve, open_folder):
    """The modes of procfs and sysfs let everybody read what depends on the reader."""
    (open_folder / "link").symlink_to("/proc/self/status")
    (open_folder / "through").symlink_to("/proc/self")
    pseudo = ["/proc/1/status", "/proc/iomem", "/proc/self/maps", "/proc/version", "/sys/kernel/vmcoreinfo",
              "/sys/kernel/uevent_seqnum", open_folder / "link", open_folder / "through" / "status"]
    s = serve("--source-roots", f"{open_folder}:/proc:/sys")
    name_files(s, pseudo)
    for f in pseudo:
        a = source(s, f)
        assert a["text"] == [] and "every user" in a["why"] and a["total"] == 1, (f, a["why"])


def test_nobody_learns_what_a_closed_folder_has(serve, open_folder):
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    (closed / "there.c").write_text("secret\n")
    (open_folder / "in").symlink_to(closed / "there.c")
    (open_folder / "out").symlink_to(closed / "nothing.c")
    (open_folder / "loop").symlink_to(open_folder / "loop")
    files = [closed / "there.c", closed / "nothing.c", open_folder / "in", open_folder / "out", open_folder / "loop"]
    s = serve("--source-roots", f"{open_folder}:/proc:/sys")
    name_files(s, [*files, open_folder / "nothing.c"])
    answers = [source(s, f) for f in files]
    assert all(a["text"] == [] for a in answers) and len({a["why"] for a in answers}) == 1, answers
    assert "every user" in answers[0]["why"]
    assert "not on the server" in source(s, open_folder / "nothing.c")["why"]


def test_links_between_open_folders_work(serve, open_folder):
    (open_folder / "a").mkdir()
    (open_folder / "a" / "app.c").write_text("text\n")
    (open_folder / "b").symlink_to("a")
    (open_folder / "up.c").symlink_to("b/../a/./app.c")
    (open_folder / "again.c").symlink_to(open_folder / "up.c")
    names = [open_folder / "b" / "app.c", open_folder / "up.c", open_folder / "again.c", f"{open_folder}//a/app.c"]
    s = serve("--source-roots", f"{open_folder}:/proc:/sys")
    name_files(s, names)
    for n in names:
        assert source(s, n)["text"] == ["text"], n


def test_files_of_folders_for_everybody_need_the_option(serve, open_folder):
    """What somebody left readable in /tmp, mail or a spool is not shown to those who may ask the server."""
    left = open_folder / "left.c"
    left.write_text("text\n")
    usual = next(f for f in pathlib.Path("/usr/include").rglob("*.h") if f.is_file() and not f.is_symlink())
    for args, shown in (((), []), (("--source-roots", open_folder), ["text"])):
        s = serve(*args)
        name_files(s, [left, usual, "/etc/passwd"])
        assert source(s, left)["text"] == shown
        for f in ["/etc/passwd"] + ([] if shown else [left]):
            assert source(s, f)["text"] == [] and "--source-roots" in source(s, f)["why"]
        assert bool(source(s, usual)["text"]) == (not shown)


def test_source_roots(serve, open_folder):
    for folder in ("a", "ab", "c"):
        (open_folder / folder).mkdir()
        (open_folder / folder / "app.c").write_text(f"{folder}\n")
    (open_folder / "a" / "out.c").symlink_to("../ab/app.c")
    files = [open_folder / f for f in ("a/app.c", "ab/app.c", "c/app.c", "a/out.c")]
    s = serve("--source-roots", f"{open_folder}/a/:{open_folder}/c")
    name_files(s, files)
    assert [source(s, f)["text"] for f in files] == [["a"], [], ["c"], []]
    assert "--source-roots" in source(s, files[1])["why"]


# ---- rights of tokens ----

NO_SYMBOLS = "no-symbols-token-0123456789"


class As:
    """A server, asked with a token."""

    def __init__(self, server, token):
        self.server, self.headers = server, bearer(token)

    def get(self, path, **parameters):
        return self.server.get(path, self.headers, **parameters)

    def post(self, path, body, headers=None, **parameters):
        return self.server.post(path, body, {**self.headers, **(headers or {})}, **parameters)


def test_names_given_wrongly_are_replaced_by_an_admin_only(executable, serve, tokens, tmp_path, program):  # noqa: F811
    tokens.write_text(tokens.read_text().replace(ADMIN, ADMIN + " name=ann") + f"write {NO_SYMBOLS} symbols=no\n")
    server = serve("--token-file", tokens)
    admin, writer = As(server, ADMIN), As(server, WRITER)
    stacks = test_symbols.fill(writer, program, int(time.time()) - 300)
    path = f"/api/v1/symbols/{program.build_id}"
    with open(program.debug, "rb") as f:
        right = f.read()
    wrong = right.replace(b"innermost", b"foolsgold")
    assert wrong != right
    good, bad = test_symbols.expected(program, stacks), test_symbols.nameless(program, stacks)
    fooled = {k.replace("innermost", "foolsgold"): v for k, v in good.items()}

    def names_are(want):
        wait_for(lambda: test_symbols.folded(As(server, READER)) == want, want)

    assert As(server, NO_SYMBOLS).post(path, wrong).status == 403
    assert As(server, READER).post(path, wrong).status == 403
    assert writer.post(path, wrong).json()["new"] is True
    names_are(fooled)
    assert writer.post(path, right).json()["new"] is False
    a = writer.post(path, right, replace="1")
    assert a.status == 403 and "admin" in a.text
    assert test_symbols.folded(As(server, READER)) == fooled
    assert admin.post(path, right, replace="1").json()["new"] is True
    names_are(good)
    for file, token, status in ((wrong, WRITER, 1), (wrong, ADMIN, 0), (right, ADMIN, 0)):
        (tmp_path / "debug").write_bytes(file)
        (tmp_path / "token").write_text(token + "\n")
        r = subprocess.run([executable, "symbols", "push", "--server", f"http://127.0.0.1:{server.port}", "--token-file",
                            tmp_path / "token", "--replace", tmp_path / "debug"], capture_output=True, text=True, timeout=60)
        assert r.returncode == status and ("admin" in r.stderr) == bool(status), r.stderr
        names_are(fooled if file == wrong and not status else good)
    for token, status in ((WRITER, 403), (READER, 403), (ADMIN, 200), (ADMIN, 404)):
        assert server.request("DELETE", path, None, bearer(token)).status == status, token
    names_are(bad)
    assert writer.post(path, right).json()["new"] is True
    names_are(good)
    assert As(server, NO_SYMBOLS).post("/ingest", b"a;b 1\n", name="x.cpu").status == 200

    log = pathlib.Path(server.directory) / "store" / "audit.log"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(e["action"], e["token"]) for e in lines] == [
        ("symbols-uploaded", ""), *[("symbols-replaced", "ann")] * 3, ("symbols-removed", "ann"), ("symbols-uploaded", "")]
    assert {e["object"] for e in lines} == {program.build_id} and {e["peer"] for e in lines} == {"127.0.0.1"}
    assert os.stat(log).st_mode & 0o777 == 0o600
    assert "audit: symbols-replaced" in server.stderr and ADMIN not in server.stderr + log.read_text()


# ---- one token for each agent ----

WEB = "web-token-0123456789"


def test_a_token_of_one_host_writes_that_host_only(serve, tokens):  # noqa: F811
    tokens.write_text(tokens.read_text() + f"write {WEB} name=web host=web-3\n")
    server = serve("--token-file", tokens)
    web, reader = As(server, WEB), As(server, READER)
    now = int(time.time())

    def folded(service):
        a = reader.get("/api/v1/export", format="folded", type="", group_by="host.name", **{
            "from": "now-1h", "query": f'{{service_name="{service}"}}'})
        return a.text if a.status == 200 else ""

    def otlp(service, host):
        labels = {"service.name": service, **({"host.name": host} if host else {})}
        return json.dumps({"resourceSpans": [{
            "resource": {"attributes": [{"key": k, "value": {"stringValue": v}} for k, v in labels.items()]},
            "scopeSpans": [{"spans": [{"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "name": "x", "kind": 2,
                                       "startTimeUnixNano": str(now * 10 ** 9), "endTimeUnixNano": str(now * 10 ** 9 + 1)}]}]}]}).encode()

    as_json = {"Content-Type": "application/json"}
    for host, status in (("web-3", 200), ("", 200), ("web-4", 403)):
        label = f"{{host_name={host}}}" if host else ""
        a = web.post("/ingest", b"a;b 1\n", name=f"old{status}.cpu{label}")
        assert a.status == status, a.text
        labels = "service.name=up" + str(status) + (f",host.name={host}" if host else "")
        a = web.post("/api/v1/upload", b"a;b 1\n", labels=labels, **{"from": f"{now - 60}", "to": f"{now}"})
        assert a.status == status, a.text
        a = web.post("/v1/traces", otlp("spans", host), as_json)
        assert a.status == status, a.text
        if status == 403:
            assert "web-3" in a.text and "web-4" in a.text
    assert folded("old200") == "web-3;a;b 20000000\n"
    assert folded("up200") == "web-3;b 2\n" and not folded("up403") and not folded("old403")
    # Others may write any host.
    assert As(server, WRITER).post("/ingest", b"a;b 1\n", name="any.cpu{host_name=web-4}").status == 200


def test_pages_of_other_sites_show_and_load_nothing(serve):
    server = serve()
    server.post("/ingest", b"a;b 1\n", name="x.cpu")
    for path in ("/", "/api/v1/types", "/api/v1/export?format=html&from=now-1h", "/api/v1/export?format=svg&from=now-1h", "/nothing"):
        a = server.get(path)
        assert a.headers["X-Frame-Options"] == "DENY" and a.headers["Cross-Origin-Resource-Policy"] == "same-origin", path
