# SPDX-License-Identifier: Apache-2.0
"""Access control, and the bounds for hostile or slow clients: HTTP and gRPC, with TLS or without."""

import gzip
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
import urllib.error

import h2_client
import pytest

from conftest import wait_for

READER, WRITER, ADMIN = "reader-token-0123456789", "writer-token-0123456789", "admin-token-0123456789"
EXPORT = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
MIB = 1 << 20


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# who may what\nread {READER}\nwrite {WRITER}\n\nadmin {ADMIN}\n")
    path.chmod(0o600)
    return path


def raw(server, data, timeout=30, port=None):
    """The server's answer to these bytes, until it closes the connection or is silent."""
    with server.connect(port, timeout) as s:
        try:
            s.sendall(data)
            out = b""
            while chunk := s.recv(65536):
                out += chunk
                head, sep, body = out.partition(b"\r\n\r\n")
                if sep and b"ontent-Length: " in head and \
                        len(body) >= int(head.split(b"ontent-Length: ")[1].split(b"\r")[0]):
                    break
        except (ConnectionResetError, BrokenPipeError):
            pass
        return out


def run_server(executable, tmp_path, *args):
    return subprocess.run([executable, "server", "--data-dir", str(tmp_path / "store"), *map(str, args)],
                          capture_output=True, text=True, timeout=60)


# ---- who may ----

@pytest.mark.parametrize("option", ["--listen", "--otlp-grpc", "--otlp-http"])
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_refuses_to_listen_beyond_loopback_without_access_control(executable, tmp_path, option, address):
    others = [a for o in ("--listen", "--otlp-grpc", "--otlp-http", "--otlp-grpc-old") if o != option
              for a in (o, "127.0.0.1:0")]
    r = run_server(executable, tmp_path, option, address, *others)
    assert r.returncode == 1 and "--token-file" in r.stderr, r.stderr


def test_listens_beyond_loopback_with_tokens(serve, tokens):
    s = serve("--listen", "0.0.0.0:0", "--token-file", tokens, "--allow-clear-text")
    assert s.get("/healthz").status == 200
    assert s.get("/api/v1/stats").status == 401
    assert s.get("/api/v1/stats", bearer(READER)).status == 200


def test_roles(serve, tokens):
    s = serve("--token-file", tokens)
    for token, read, write in ((None, 401, 401), (READER, 200, 403), (WRITER, 403, 200), (ADMIN, 200, 200),
                               ("reader-token-012345678", 401, 401), (READER + "x", 401, 401), ("", 401, 401)):
        headers = bearer(token) if token is not None else {}
        assert s.get("/api/v1/types", headers).status == read, token
        assert s.get("/metrics", headers).status == read, token
        assert s.post("/ingest", b"a;b 1\n", headers, name="x.cpu").status == write, token
    basic = {"Authorization": "Basic " + __import__("base64").b64encode(f"any:{READER}".encode()).decode()}
    assert s.get("/api/v1/types", basic).status == 200
    for odd in ("Basic !!!!", "Basic ", "Bearer", "bearer " + READER + " x", "Digest x", "Basic " + "A" * 5000):
        assert s.get("/api/v1/types", {"Authorization": odd}).status == 401, odd
    for t in (READER, WRITER, ADMIN):
        assert t not in s.stderr


def test_tokens_are_read_again_and_a_broken_file_keeps_the_old_ones(serve, tokens):
    s = serve("--token-file", tokens)

    def becomes(token, status):
        end = time.monotonic() + 30
        while s.get("/api/v1/types", bearer(token)).status != status:
            assert time.monotonic() < end, f"never {status}"
            time.sleep(0.2)

    tokens.write_text("read another-token-0123456789\n")
    becomes("another-token-0123456789", 200)
    becomes(READER, 401)
    tokens.write_text("nonsense\n")
    end = time.monotonic() + 30
    while "the old tokens stay" not in s.stderr:
        assert s.get("/api/v1/types", bearer("another-token-0123456789")).status == 200
        assert time.monotonic() < end
        time.sleep(0.2)
    assert s.get("/api/v1/types", bearer("another-token-0123456789")).status == 200


@pytest.mark.parametrize("text", ["", "read short\n", "reed token-0123456789abc\n", "read a token-with-space\n"])
def test_errors_of_token_files_do_not_quote_the_token(executable, tmp_path, text):
    path = tmp_path / "t"
    path.write_text(text)
    path.chmod(0o600)
    r = run_server(executable, tmp_path, "--token-file", path, "--listen", "127.0.0.1:0")
    assert r.returncode == 1 and str(path) in r.stderr
    assert "0123456789abc" not in r.stderr and "short" not in r.stderr


def test_other_sites_cannot_use_a_browser_on_this_machine(server):
    ok = {"Host": f"localhost:{server.port}"}
    assert server.get("/api/v1/types", ok).status == 200
    assert server.get("/api/v1/types", {"Host": f"[::1]:{server.port}"}).status == 200
    assert server.get("/api/v1/types", {"Host": "rebound.example"}).status == 403
    assert server.get("/api/v1/types", {"Host": "127.0.0.1.example"}).status == 403
    own = {**ok, "Origin": f"http://localhost:{server.port}"}
    assert server.post("/ingest", b"a;b 1\n", own, name="x.cpu").status == 200
    for origin in ("http://evil.example", "null", "http://localhost:1"):
        assert server.post("/ingest", b"a;b 1\n", {**ok, "Origin": origin}, name="x.cpu").status == 403


# ---- TLS ----

def test_tls(serve, certificates, client_context):
    s = serve("--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key",
              tls=client_context())
    assert s.get("/healthz").text == "ok\n"
    assert s.request("GET", "/healthz", port=s.ports["otlp-http"]).status == 200
    c = h2_client.Connection(s.ports["otlp-grpc"], client_context())
    assert c.alpn == "h2"
    assert c.call(EXPORT, b"").status == 0
    with pytest.raises(ssl.SSLError), socket.create_connection(("127.0.0.1", s.port)) as plain:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.wrap_socket(plain)


def test_mutual_tls(serve, certificates, client_context):
    s = serve("--listen", "0.0.0.0:0", "--tls-cert", certificates / "server.pem", "--tls-key",
              certificates / "server.key", "--tls-ca", certificates / "ca.pem", tls=client_context("client"))
    assert s.get("/api/v1/stats").status == 200
    c = h2_client.Connection(s.ports["otlp-grpc"], client_context("client"))
    assert c.call(EXPORT, b"").status == 0
    for name in (None, "other"):
        s.context = client_context(name)
        assert s.get("/api/v1/stats").status == 403
        assert s.post("/ingest", b"a;b 1\n", name="x.cpu").status == 403
        with pytest.raises((OSError, EOFError)):
            c = h2_client.Connection(s.ports["otlp-grpc"], client_context(name))
            c.call(EXPORT, b"")


def test_certificates_are_read_again(serve, certificates, client_context, tmp_path):
    """SIGHUP: open connections go on, new ones get the new certificate and are checked with the new client CA.
    Files that do not fit are reported and change nothing."""
    cert, key, ca = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem"

    def install(name, authority):
        shutil.copy(certificates / f"{name}.pem", cert)
        shutil.copy(certificates / f"{name}.key", key)
        shutil.copy(certificates / f"{authority}.pem", ca)

    def context(name):
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
        c.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
        c.set_alpn_protocols(["http/1.1", "h2"])
        return c

    def shown(port):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as plain, \
                context("client").wrap_socket(plain) as s:
            return s.getpeercert(binary_form=True)

    def der(name):
        return ssl.PEM_cert_to_DER_cert((certificates / f"{name}.pem").read_text())

    def reload(says):
        n = len(s.stderr)
        s.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 60
        while says not in s.stderr[n:]:
            assert time.monotonic() < end, s.stderr[n:]
            time.sleep(0.05)

    install("server", "ca")
    s = serve("--verbose", "--tls-cert", cert, "--tls-key", key, "--tls-ca", ca, tls=context("client"))
    ports = [s.port, s.ports["otlp-grpc"], s.ports["otlp-http"]]
    assert [shown(p) for p in ports] == [der("server")] * 3
    assert s.get("/api/v1/stats").status == 200
    old = h2_client.Connection(s.ports["otlp-grpc"], context("client"))
    assert old.call(EXPORT, b"").status == 0

    # A key that is not the certificate's, a file that is none, one that is not there.
    for break_it in (lambda: shutil.copy(certificates / "other.key", key), lambda: cert.write_text("none"),
                     ca.unlink):
        install("server", "ca")
        break_it()
        reload("the old certificates stay in effect")
        assert [shown(p) for p in ports] == [der("server")] * 3
        assert s.get("/api/v1/stats").status == 200

    install("other", "other_ca")
    reload("certificates reloaded")
    assert [shown(p) for p in ports] == [der("other")] * 3
    assert old.call(EXPORT, b"").status == 0, "a connection that was there"
    assert s.get("/api/v1/stats").status == 403
    with pytest.raises((OSError, EOFError)):
        h2_client.Connection(s.ports["otlp-grpc"], context("client")).call(EXPORT, b"")
    s.context = context("other")
    assert s.get("/api/v1/stats").status == 200
    assert h2_client.Connection(s.ports["otlp-grpc"], context("other")).call(EXPORT, b"").status == 0
    assert "PRIVATE" not in s.stderr


@pytest.mark.parametrize("broken", ["cert", "key", "ca"])
def test_broken_pem_files_are_reported(executable, tmp_path, certificates, broken):
    junk = tmp_path / "junk.pem"
    junk.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    files = {"cert": certificates / "server.pem", "key": certificates / "server.key", "ca": certificates / "ca.pem"}
    files[broken] = junk
    for grpc in (True, False):
        where = ["--otlp-grpc", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--otlp-http", "off"]
        if not grpc:
            where[1] = "off"
        r = run_server(executable, tmp_path, "--tls-cert", files["cert"], "--tls-key", files["key"], "--tls-ca",
                       files["ca"], "--otlp-grpc-old", "off", *where)
        assert r.returncode == 1 and r.stderr.startswith("culprit: server: "), r.stderr


# ---- hostile HTTP ----

def test_path_traversal_finds_nothing(server):
    for path in ("/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/api/v1/../../etc/passwd",
                 "/api/v1/types%00", "//etc/passwd", "/api/v1/export/../stats", "/..%2f..%2fetc%2fpasswd"):
        a = raw(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert b"root:" not in a
        assert a.split(b" ")[1] in (b"404", b"400", b"200") and not (b" 200 " in a[:20] and b"%00" not in path.encode())


def test_garbage_is_refused_and_the_server_lives(server):
    for data in (b"\0" * 1000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                 b"POST /ingest HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
                 b"POST /ingest HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
                 b"POST /ingest HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n\r\n",
                 b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100, os.urandom(4000)):
        with server.connect(timeout=5) as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            try:
                while s.recv(65536):
                    pass
            except (TimeoutError, ConnectionResetError):
                pass
        assert server.get("/healthz").status == 200


def test_huge_headers_are_refused(server):
    for head in (b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"b" * 200000 + b"\r\n\r\n",
                 b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 50000 + b"\r\n"):
        a = raw(server, head)
        assert not a or a.split(b" ")[1] in (b"400", b"413", b"414", b"431"), a[:100]
        assert server.get("/healthz").status == 200


def test_bodies_are_bounded(serve):
    s = serve("--max-request", 2)
    big = os.urandom(3 * MIB)
    assert s.post("/ingest", b"a;b 1\n", name="x.cpu").status == 200
    head = f"POST /ingest?name=x HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(big)}\r\n\r\n".encode()
    assert raw(s, head).split(b" ")[1] == b"413"  # told before a byte of it is sent
    chunks = b"POST /ingest?name=x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks += b"%x\r\n" % len(big) + big + b"\r\n0\r\n\r\n"
    assert raw(s, chunks).split(b" ")[1] == b"413"
    c = h2_client.Connection(s.ports["otlp-grpc"])
    assert c.call(EXPORT, big).status == 8  # RESOURCE_EXHAUSTED
    assert h2_client.Connection(s.ports["otlp-grpc"]).call(EXPORT, b"").status == 0


def bomb(encoding):
    plain = b"a;b 1\n" * (200 * MIB // 6)
    if encoding == "gzip":
        return gzip.compress(plain, 9)
    return subprocess.run(["zstd", "-19", "-c"], input=plain, capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def bombs():
    return {e: bomb(e) for e in ("gzip", "zstd")}


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compression_bombs(serve, bombs, encoding):
    """200 MiB in a few hundred KiB are refused at the limit, and never in memory as a whole."""
    s = serve()
    data = bombs[encoding]
    assert len(data) < 2 * MIB
    before = s.rss_bytes()
    header = {"Content-Encoding": encoding}
    assert s.post("/ingest", data, header, name="x.cpu").status == 413
    assert s.post("/v1development/profiles", data, {**header, "Content-Type": "application/x-protobuf"}).status == 413
    assert s.post("/querier.v1.QuerierService/LabelNames", data,
                  {**header, "Content-Type": "application/json"}).status == 429
    assert s.post("/api/v1/upload", data).status == 413  # compressed by itself
    c = h2_client.Connection(s.ports["otlp-grpc"])
    assert c.call(EXPORT, data, compressed=True, headers=[("grpc-encoding", encoding)]).status == 8
    with open(f"/proc/{s.process.pid}/status", encoding="ascii") as f:
        peak = next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))
    assert peak - before < 200 * MIB, f"{(peak - before) // MIB} MiB"


def test_unknown_encodings_are_refused(server):
    assert server.post("/ingest", b"a;b 1\n", {"Content-Encoding": "br"}, name="x.cpu").status == 415
    assert server.post("/ingest", b"not gzip", {"Content-Encoding": "gzip"}, name="x.cpu").status == 400
    cut = gzip.compress(b"a;b 1\n" * 100)[:-10]
    assert server.post("/ingest", cut, {"Content-Encoding": "gzip"}, name="x.cpu").status == 400
    c = h2_client.Connection(server.ports["otlp-grpc"])
    assert c.call(EXPORT, b"x", compressed=True, headers=[("grpc-encoding", "snappy")]).status == 12
    assert c.call(EXPORT, b"x", compressed=True).status == 3


def wait_closed(s, seconds):
    """Whether the server closes the connection in time."""
    s.settimeout(seconds)
    try:
        while s.recv(65536):
            pass
        return True
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


WALL_CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *t)
{
	int (*next)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
	int r = next(clock, t);

	if (clock == CLOCK_REALTIME)
		t->tv_sec += 3600;
	return r;
}
"""


def test_slow_clients_are_cut_off_whatever_the_wall_clock_says(serve, tmp_path, monkeypatch):
    """The server reads a wall clock that is an hour ahead of the kernel's, as after a step backward."""
    (tmp_path / "clock.c").write_text(WALL_CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "clock.so", tmp_path / "clock.c"],
                   check=True, timeout=60)
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "clock.so"))
    monkeypatch.setenv("ASAN_OPTIONS", "verify_asan_link_order=0")
    s = serve("--timeout", 1)
    monkeypatch.undo()
    with s.connect() as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")
        closed = False
        for _ in range(200):
            try:
                slow.sendall(b"X")
            except OSError:
                closed = True
                break
            time.sleep(0.1)
        assert closed, "still open after 20 s"


@pytest.mark.slow
def test_slow_clients_are_cut_off_and_delay_nobody(serve):
    """Single bytes that each come in time, but never complete a request."""
    s = serve("--timeout", 1)
    slow = [s.connect(), s.connect(), s.connect(s.ports["otlp-grpc"])]
    slow[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
    slow[1].sendall(b"POST /ingest?name=x.cpu HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
    over = threading.Event()

    def drip(sock, byte):
        try:
            while not over.wait(0.1):
                sock.sendall(byte)
        except OSError:
            pass

    threads = [threading.Thread(target=drip, args=a) for a in ((slow[0], b"X"), (slow[1], b"a"))]
    for t in threads:
        t.start()
    try:
        assert s.get("/healthz").status == 200
        for sock in slow:
            assert wait_closed(sock, 60), "still open"
    finally:
        over.set()
        for t in threads:
            t.join()
        for sock in slow:
            sock.close()
    c = h2_client.Connection(s.ports["otlp-grpc"])
    assert c.call(EXPORT, b"").status == 0
    stuck = c.begin(EXPORT, b"\0\0\0\0\x10", end=False)
    assert c.wait(stuck).status == 4  # DEADLINE_EXCEEDED


@pytest.mark.slow
def test_connections_are_bounded(serve):
    s = serve("--max-connections", 8)
    many = [s.connect() for _ in range(30)]
    end, left = time.monotonic() + 60, many
    while len(left) > 8:
        assert time.monotonic() < end, f"{len(left)} are open"
        left = [c for c in left if not wait_closed(c, 0.1)]
    for c in many:
        c.close()
    end = time.monotonic() + 30
    while True:
        try:
            if s.get("/healthz").status == 200:
                break
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < end
            time.sleep(0.1)


def test_clients_that_go_away_leave_nothing(server):
    for _ in range(50):
        with server.connect() as s:
            s.sendall(b"POST /ingest?name=x.cpu HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nabc")
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c = h2_client.Connection(server.ports["otlp-grpc"])
        c.begin(EXPORT, b"\0\0\0\0\x10", end=False)
        c.close()
    assert server.get("/healthz").status == 200
    wait_for(lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) < 60, "descriptors stay")


# ---- gRPC ----

def test_grpc_framing(server):
    def frame(data, flag=0, length=None):
        return bytes([flag]) + struct.pack(">I", len(data) if length is None else length) + data

    c = h2_client.Connection(server.ports["otlp-grpc"])
    assert c.call(EXPORT, b"").status == 0
    for body in (b"", b"\0", frame(b"", flag=2), frame(b"abc", length=2), frame(b"abc", length=4),
                 frame(b"") + frame(b""), frame(b"", length=0xffffffff)):
        assert c.wait(c.begin(EXPORT, body)).status == 3, body
    a = c.call(EXPORT, b"\xff\xff\xff\xff")
    assert a.status == 3 and a.message
    assert c.call("/opentelemetry.proto.collector.trace.v1.TraceService/Export", b"").status == 0
    assert c.call("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", b"").status == 12
    assert c.wait(c.begin(EXPORT, frame(b""), headers=[("content-type", "text/plain")], plain=True)).http == "415"
    many = [c.begin(EXPORT, frame(b"")) for _ in range(40)]
    assert [c.wait(i).status for i in many] == [0] * 40


def test_grpc_tokens(serve, tokens):
    s = serve("--token-file", tokens)
    c = h2_client.Connection(s.ports["otlp-grpc"])
    assert c.call(EXPORT, b"").status == 16
    assert c.call(EXPORT, b"", headers=[("authorization", f"Bearer {READER}")]).status == 7
    assert c.call(EXPORT, b"", headers=[("authorization", f"Bearer {WRITER}")]).status == 0
    assert c.call(EXPORT, os.urandom(3 * MIB)).status == 16  # not even read


TYPES = "/querier.v1.QuerierService/ProfileTypes"


def test_grpc_on_the_http_port(server, serve, tokens):
    """A client that begins with HTTP/2 gets gRPC, as at a Pyroscope server; what it begins may arrive in pieces."""
    c = h2_client.Connection(server.port)
    assert c.call(EXPORT, b"").status == 0
    a = c.call(TYPES, b"")
    assert a.status == 0 and a.body == bytes(5)
    assert c.call("/querier.v1.QuerierService/Nothing", b"").status == 12
    assert c.wait(c.begin(TYPES, bytes(5), headers=[("content-type", "application/grpc+json")], plain=True)).status == 12
    assert c.wait(c.begin("/api/v1/types", b"", headers=[("content-type", "application/json")], plain=True)).http == "415"
    with server.connect() as s:
        s.sendall(h2_client.PREFACE[:10])
        time.sleep(0.2)
        s.sendall(h2_client.PREFACE[10:] + h2_client.frame(h2_client.SETTINGS, 0, 0))
        assert s.recv(9)[3] == h2_client.SETTINGS
    with server.connect() as s:
        s.sendall(b"PRI * HTTP/1.1\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 4")
    # The port for OTLP over HTTP has no gRPC.
    with server.connect(server.ports["otlp-http"]) as s:
        s.sendall(h2_client.PREFACE)
        assert s.recv(100).startswith(b"HTTP/1.1 505")
    assert server.get("/healthz").status == 200
    s = serve("--token-file", tokens)
    c = h2_client.Connection(s.port)
    for token, status in ((None, 16), (READER, 0), (WRITER, 7)):
        assert c.call(TYPES, b"", headers=[("authorization", f"Bearer {token}")] if token else []).status == status


def test_grpc_on_the_http_port_by_tls(serve, certificates, client_context):
    s = serve("--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key", "--tls-ca",
              certificates / "ca.pem", tls=client_context("client"))
    c = h2_client.Connection(s.port, client_context("client"))
    assert c.alpn == "h2" and c.call(TYPES, b"").status == 0
    # By HTTP/2 there is no page: a browser gets HTTP/1.1.
    both = client_context("client")
    both.set_alpn_protocols(["h2", "http/1.1"])
    with socket.create_connection(("127.0.0.1", s.port)) as plain, both.wrap_socket(plain, server_hostname="localhost") as t:
        assert t.selected_alpn_protocol() == "http/1.1"
    with pytest.raises((OSError, EOFError)):
        h2_client.Connection(s.port, client_context(None)).call(TYPES, b"")
    assert s.get("/healthz").status == 200


def test_grpc_huge_headers(server):
    c = h2_client.Connection(server.ports["otlp-grpc"])
    stream = c.begin(EXPORT, b"\0\0\0\0\0", headers=[(f"x-{i}", "v" * 1000) for i in range(15)] + [("y", "w" * 8000)])
    assert c.wait(stream).reset is not None
    assert h2_client.Connection(server.ports["otlp-grpc"]).call(EXPORT, b"").status == 0


# ---- the end ----

def test_sigterm_lets_running_requests_end(serve):
    s = serve()
    a = s.connect()
    a.sendall(b"POST /ingest?name=late.cpu HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n"
              b"Expect: 100-continue\r\n\r\n")
    assert a.recv(1000).startswith(b"HTTP/1.1 100")  # it is at work
    s.process.send_signal(signal.SIGTERM)
    end = time.monotonic() + 10
    while True:  # until it takes nothing new
        try:
            s.connect(timeout=5).close()
        except OSError:
            break
        assert time.monotonic() < end
        time.sleep(0.01)
    a.sendall(b"a;late 1")
    assert a.recv(1000).startswith(b"HTTP/1.1 200")
    a.close()
    status, took = s.stop()
    assert status == 0 and took < 10
    again = serve(directory=s.directory)
    assert {r["name"] for r in again.get("/api/v1/top").json()["rows"]} == {"a", "late"}


def test_sigterm_with_stuck_clients(serve):
    s = serve()
    held = [s.connect(), s.connect(s.ports["otlp-grpc"]), s.connect()]
    held[0].sendall(b"POST /ingest?name=x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\n")
    c = h2_client.Connection(s.ports["otlp-grpc"])
    c.begin(EXPORT, b"\0\0\0\0\x10", end=False)
    assert s.get("/healthz").status == 200
    status, took = s.stop()
    assert status == 0 and took < 10, took


def test_a_port_that_is_taken(executable, tmp_path, serve):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        r = run_server(executable, tmp_path, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        assert r.returncode == 1 and "cannot listen: Address already in use: another program does" in r.stderr
        r = run_server(executable, tmp_path, "--listen", "127.0.0.1:0", "--otlp-http",
                       f"127.0.0.1:{taken.getsockname()[1]}")
        assert r.returncode == 1 and "cannot listen" in r.stderr
    for wrong in ("127.0.0.1", "127.0.0.1:99999", "x:y", "[::1", "127.0.0.1:"):
        r = run_server(executable, tmp_path, "--listen", wrong)
        assert r.returncode == 1, wrong


def test_answers_are_compressed_on_request(server):
    server.post("/ingest", b"".join(b"a;function_%d 1\n" % i for i in range(1000)), name="x.cpu")
    plain = server.get("/api/v1/flamegraph")
    packed = server.get("/api/v1/flamegraph", {"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip" and len(packed.body) < len(plain.body) / 2
    assert json.loads(gzip.decompress(packed.body))["names"] == plain.json()["names"]
