# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the server's tests: a running `culprit server`, real clients, certificates.

`serve(ARG...)` starts a server on free ports with a store of its own. After the test it gets SIGTERM and must exit
in time with status 0. The environment variable CULPRIT names the executable (make check-server sets it); the default
is the one in build/.
"""

import hashlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PEERS = os.path.expanduser("~/.cache/culprit-peers")
START_S = 60

# The tests may run as root; the server then needs to be told.
os.environ["CULPRIT_ALLOW_ROOT"] = "yes"
WAIT_S = 60


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    def json(self):
        return json.loads(self.body)


class Server:
    """A running `culprit server`: its ports, and requests to it."""

    def __init__(self, executable, args, directory, tls=None):
        self.directory = directory
        self.stderr_path = os.path.join(directory, "stderr")
        self.context = tls
        self.scheme = "https" if tls else "http"
        own = ["--data-dir", os.path.join(directory, "store")]
        for name in ("--listen", "--otlp-grpc", "--otlp-grpc-old", "--otlp-http"):
            if name not in args:
                own += [name, "off" if name == "--otlp-grpc-old" else "127.0.0.1:0"]
        if "--store" in args:
            own = own[2:]
        with open(self.stderr_path, "ab") as err:
            self.process = subprocess.Popen([executable, "server", *own, *map(str, args)],
                                            stdout=subprocess.PIPE, stderr=err, text=True)
        self.ports = {}
        for line in self.process.stdout:
            if line.strip() == "ready":
                break
            name, port = line.split()
            self.ports[name] = int(port)
        else:
            self.process.wait(START_S)
            raise RuntimeError(f"no server: {self.stderr}")

    @property
    def port(self):
        return self.ports["api"]

    @property
    def stderr(self):
        with open(self.stderr_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def request(self, method, path, body=None, headers=None, parameters=None, port=None, timeout=60):
        if parameters:
            path += "?" + urllib.parse.urlencode(parameters, doseq=True)
        r = urllib.request.Request(f"{self.scheme}://127.0.0.1:{port or self.port}{path}", body,
                                   headers or {}, method=method)
        try:
            with urllib.request.urlopen(r, timeout=timeout, context=self.context) as a:
                return Answer(a.status, a.headers, a.read())
        except urllib.error.HTTPError as e:
            return Answer(e.code, e.headers, e.read())

    def get(self, path, headers=None, **parameters):
        return self.request("GET", path, None, headers, parameters)

    def post(self, path, body, headers=None, **parameters):
        headers = {"Content-Type": "application/octet-stream", **(headers or {})}
        return self.request("POST", path, body, headers, parameters)

    def connect(self, port=None, timeout=60):
        s = socket.create_connection(("127.0.0.1", port or self.port), timeout)
        return s

    def rss_bytes(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self, sig=signal.SIGTERM, timeout=15):
        """Ends the server. Returns its exit status, and the seconds until its end."""
        begin = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(sig)
        status = self.process.wait(timeout)
        self.process.stdout.close()
        return status, time.monotonic() - begin


@pytest.fixture(scope="session")
def executable():
    path = os.environ.get("CULPRIT") or os.path.join(TOP, "build/cli/culprit")
    assert os.access(path, os.X_OK), f"{path} is not there: make"
    return path


@pytest.fixture
def serve(executable, tmp_path):
    started = []

    def start(*args, tls=None, directory=None):
        if directory is None:
            directory = tmp_path / f"server{len(started)}"
        os.makedirs(directory, exist_ok=True)
        s = Server(executable, list(args), str(directory), tls)
        started.append(s)
        return s

    yield start
    for s in started:
        if s.process.returncode is not None:
            continue
        status, took = s.stop()
        assert status == 0, f"the server ended with {status}: {s.stderr}"
        # For a build with sanitizers.
        assert "runtime error:" not in s.stderr and "Sanitizer" not in s.stderr, s.stderr
        assert took < 10, f"it took {took:.1f} s to end"


@pytest.fixture
def server(serve):
    return serve()


@pytest.fixture
def convert(executable, tmp_path):
    """convert(FOLDED-TEXT, ENDING) returns the profile in another format, as bytes."""

    def run(folded, ending):
        a, b = tmp_path / "input.folded", tmp_path / f"converted{ending}"
        a.write_text(folded)
        subprocess.run([executable, "convert", "--force", str(a), str(b)], check=True, timeout=60)
        return b.read_bytes()

    return run


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """Makes ca.pem, server.pem/.key and client.pem/.key by that CA, and other.pem/.key by another CA."""
    d = tmp_path_factory.mktemp("tls")

    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=d, check=True, capture_output=True, timeout=120)

    def authority(name):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")

    def leaf(name, ca):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout",
                f"{name}.key", "-out", f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key",
                "-CAcreateserial", "-days", "2", "-copy_extensions", "copy", "-out", f"{name}.pem")

    authority("ca")
    authority("other_ca")
    leaf("server", "ca")
    leaf("client", "ca")
    leaf("other", "other_ca")
    return d


@pytest.fixture
def client_context(certificates):
    """Returns a TLS context that trusts the CA, with the certificate `name` or none."""

    def make(name=None):
        c = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        if name:
            c.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
        return c

    return make


def go_peer(name, sources):
    """Builds a Go program of this directory through the module proxy, once; None and why not."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not os.access(go, os.X_OK):
        return None, "no Go"
    digest = hashlib.sha256()
    for s in sources:
        with open(os.path.join(TOP, "tests/server", name, s), "rb") as f:
            digest.update(f.read())
    target = os.path.join(PEERS, f"{name}-{digest.hexdigest()[:16]}")
    if os.access(target, os.X_OK):
        return target, None
    work = target + ".build"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(os.path.join(TOP, "tests/server", name), work)
    for command in (["mod", "tidy"], ["build", "-p", "1", "-o", target + ".new", "."]):
        r = subprocess.run([go, *command], cwd=work, capture_output=True, text=True, timeout=1200)
        if r.returncode:
            return None, f"go {command[0]}: {r.stderr.strip().splitlines()[-1:]}"
    os.rename(target + ".new", target)
    shutil.rmtree(work, ignore_errors=True)
    return target, None


@pytest.fixture(scope="session")
def pyroscope_client():
    """The path of Pyroscope's own client; skips where its modules cannot be had."""
    path, why = go_peer("pyroscope_client", ["main.go", "go.mod"])
    if not path:
        pytest.skip(f"Pyroscope's client cannot be built: {why}")
    return path


def peer(name, *sources):
    path, why = go_peer(name, sources)
    if path is None:
        pytest.skip(f"{name} cannot be built: {why}")
    return path


@pytest.fixture(scope="session")
def collector_path():
    return peer("collector", "main.go", "go.mod")


def free_port():
    """Returns a port for a server that listens with SO_REUSEADDR, as servers do, within a minute. Until then a
    connection in TIME_WAIT keeps the kernel from giving the port to another process."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        with socket.create_connection(s.getsockname()):
            s.accept()[0].close()
        return s.getsockname()[1]


def wait_for(condition, what, seconds=None):
    end = time.monotonic() + (seconds or WAIT_S)
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def otlp_collector(path, directory, exporter, signal_name):
    """Starts an OpenTelemetry Collector that forwards through this exporter. Returns the process, its ports (gRPC, HTTP)
    and its log."""
    grpc, http = free_port(), free_port()
    config, log_path = directory / "collector.yaml", directory / "collector.log"
    config.write_text(f"""
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: "127.0.0.1:{grpc}"}}
      http: {{endpoint: "127.0.0.1:{http}"}}
exporters:
  debug: {{verbosity: detailed}}
  {exporter}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    {signal_name}: {{receivers: [otlp], exporters: [debug, {exporter.split(":")[0]}]}}
""")
    with open(log_path, "wb") as log:
        process = subprocess.Popen([path, "--config", config, "--feature-gates=service.profilesSupport"],
                                   stdout=log, stderr=log)
    wait_for(lambda: "Everything is ready" in log_path.read_text(errors="replace"),
             "no collector: " + log_path.read_text(errors="replace"))
    return process, grpc, http, log_path


def virtual_environment(name, packages):
    """The Python of an environment with these packages of PyPI; skips where they cannot be had."""
    place = os.path.join(PEERS, name)
    python = os.path.join(place, "bin/python3")
    if not os.access(python, os.X_OK):
        new = place + ".new"
        shutil.rmtree(new, ignore_errors=True)
        for command in ([sys.executable, "-m", "venv", new], [f"{new}/bin/python3", "-m", "pip", "install", "-q", *packages]):
            r = subprocess.run(command, capture_output=True, text=True, timeout=600)
            if r.returncode:
                pytest.skip(f"{name} cannot be installed: {r.stderr.strip().splitlines()[-1:]}")
        os.rename(new, place)
    return python


@pytest.fixture(scope="session")
def otel_sdk():
    """A Python with OpenTelemetry's SDK and exporters from PyPI; skips where they cannot be had."""
    version = "1.45.2"
    return virtual_environment(f"otel-sdk-{version}", [f"opentelemetry-{p}=={version}" for p in (
        "sdk", "exporter-otlp-proto-grpc", "exporter-otlp-proto-http")])
