# SPDX-License-Identifier: Apache-2.0
"""Unmodified publishers of other projects, which tests/context/get fetches. A sample's span must be the span for
which the program, by its own log, ran the function. Elastic's agent must have exactly the sampled stacks on its
transactions."""

import base64
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zlib
from collections import Counter

import pytest
from recorder import record

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../live"))

from otlp import Receiver # noqa: E402
from pprof import samples # noqa: E402
from test_agent import Agent, wait_for # noqa: E402
from test_context import judge, logged # noqa: E402
from test_context_elastic import exported # noqa: E402

CACHE = os.path.expanduser("~/.cache/culprit-runtimes/context")
APPS = os.path.join(HERE, "../context")


def need(path):
    if not os.path.exists(f"{CACHE}/{path}"):
        pytest.skip(f"no {path}: tests/context/get")
    return f"{CACHE}/{path}"


class Datadog:
    """The environment of Datadog's tracers, which need the address of an agent; they send spans nowhere."""
    env = {"DD_TRACE_OTEL_CTX_ENABLED": "true", "DD_TRACE_AGENT_URL": "http://127.0.0.1:1",
           "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false", "DD_SERVICE": "shop",
           "DD_REMOTE_CONFIGURATION_ENABLED": "false"}


@pytest.mark.parametrize("language", ["python", "node-22", "node-24", "node-26"])
def test_spans_of_datadogs_tracers(culprit, tmp_path, language):
    env = {**Datadog.env, "NODE_PATH": need("node/node_modules")}
    if language == "python":
        command = [need("python/bin/python"), os.path.join(APPS, "ddtrace/app.py")]
    else:
        # Before version 24, Node.js keeps asynchronous contexts in V8 only with this option.
        flags = ["--experimental-async-context-frame"] if language == "node-22" else []
        command = [need(f"../{language}/bin/node"), *flags, os.path.join(APPS, "ddtrace/app.js")]
    record(culprit, tmp_path / "out.pb.gz", "-F", 499, "--", *command, 4, 4, tmp_path / "log", env=env)
    linked, missed, idle = judge(samples(tmp_path / "out.pb.gz"), logged(tmp_path / "log"))
    print(f"{language}: {linked} samples have their span, {missed} have none, {idle} should have none")
    assert missed <= 0.01 * linked, (missed, linked)
    assert linked > 100 and idle > 20, (linked, idle)


def test_spans_in_custom_labels(culprit, tmp_path):
    source = need("custom-labels/src/customlabels.cpp")
    dialect = "gnu2" if os.uname().machine == "x86_64" else "desc"
    subprocess.run(["g++", "-O2", "-fPIC", "-shared", "-ftls-model=global-dynamic",
                    f"-mtls-dialect={dialect}", source, "-o", tmp_path / "libcustomlabels.so"], check=True)
    subprocess.run(["gcc", "-O2", "-g", "-D_GNU_SOURCE", "-pthread", os.path.join(APPS, "polar.c"),
                    tmp_path / "libcustomlabels.so", f"-Wl,-rpath,{tmp_path}", "-o", tmp_path / "polar"],
                   check=True)
    record(culprit, tmp_path / "out.pb.gz", "-F", 997, "--", tmp_path / "polar", 3, 4, tmp_path / "log")
    got = list(samples(tmp_path / "out.pb.gz"))
    linked, missed, idle = judge(got, logged(tmp_path / "log"))
    # Each sample with a span has the other label, too.
    assert {s.labels.get("customer") for s in got if "span_id" in s.labels} == {"ACME"}
    assert not any("customer" in s.labels for s in got if "idle_work" in s.functions)
    print(f"custom labels: {linked} samples have their span, {missed} have none, {idle} should have none")
    assert missed <= 0.01 * linked, (missed, linked)
    assert linked > 100 and idle > 20, (linked, idle)


def cargo():
    """Returns a cargo that is new enough for the crate."""
    tool = shutil.which("cargo")
    said = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout if tool else ""
    version = re.match(r"cargo (\d+)\.(\d+)", said)
    if not version or tuple(map(int, version.groups())) < (1, 91):
        pytest.skip(f"cargo 1.91 or newer is not here: {said.strip() or 'none'}")
    return tool


# swap: each span has a record, which replaces the thread's. update: the thread's record is written anew.
@pytest.mark.parametrize("how", ["swap", "update"])
def test_spans_of_datadogs_crate(culprit, tmp_path, how):
    tool, crates = cargo(), need("rust/crates")
    shutil.copytree(os.path.join(APPS, "rust"), tmp_path / "rust")
    subprocess.run([tool, "build", "--release", "--quiet", "--offline",
                    "--config", 'source.crates-io.replace-with="fetched"',
                    "--config", f'source.fetched.directory="{crates}"'], check=True, cwd=tmp_path / "rust")
    record(culprit, tmp_path / "out.pb.gz", "-F", 997, "--", tmp_path / "rust/target/release/spans", 3, 4,
           tmp_path / "log", how)
    linked, missed, idle = judge(samples(tmp_path / "out.pb.gz"), logged(tmp_path / "log"))
    print(f"Rust, {how}: {linked} samples have their span, {missed} have none, {idle} should have none")
    assert missed <= 0.01 * linked, (missed, linked)
    assert linked > 100 and idle > 20, (linked, idle)


class Apm:
    """An APM server that keeps the events that it gets."""

    def __init__(self):
        self.events = []
        apm = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, body):
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.answer(b'{"version":"8.15.0","build_sha":"x","publish_ready":true}')

            def chunks(self):
                while n := int(self.rfile.readline().strip() or b"0", 16):
                    yield self.rfile.read(n)
                    self.rfile.readline()
                self.rfile.readline()

            def do_POST(self):
                if self.headers.get("Transfer-Encoding") == "chunked":
                    raw = b"".join(self.chunks())
                else:
                    raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Content-Encoding") == "deflate":
                    raw = zlib.decompressobj().decompress(raw)
                apm.events += [json.loads(line) for line in raw.splitlines() if line]
                self.answer(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def transactions(self):
        return [e["transaction"] for e in list(self.events) if "transaction" in e]


def stacks_of(transactions):
    seen = Counter()
    for t in transactions:
        ids = t.get("otel", {}).get("attributes", {}).get("elastic.profiler_stack_trace_ids", [])
        seen.update((t["trace_id"], base64.urlsafe_b64decode(i + "==").hex()) for i in ids)
    return seen


# dynamic: without room for static thread-local storage in libraries that are loaded late.
@pytest.mark.parametrize("tunables", ["", "glibc.rtld.optional_static_tls=0"], ids=["static", "dynamic"])
def test_elastics_agent_for_java_has_every_sample_on_its_transactions(culprit, tmp_path, tunables):
    agent_jar, api = need("elastic-apm-agent.jar"), need("apm-agent-api.jar")
    if not shutil.which("javac"):
        pytest.skip("no javac: tools/install test")
    subprocess.run(["javac", "-cp", api, "-d", tmp_path,
                    os.path.join(APPS, "elasticjava/App.java")], check=True)
    apm, receiver, log = Apm(), Receiver(), tmp_path / "log"
    # The agent holds transactions back until culprit's messages have arrived, of which it reads 500 a second. Its
    # buffer has 4096 transactions by default, which is too few.
    options = {"universal_profiling_integration_enabled": "true", "service_name": "shop",
               "universal_profiling_integration_buffer_size": "32768",
               "environment": "prod", "cloud_provider": "NONE", "api_request_time": "1s",
               "server_url": f"http://127.0.0.1:{apm.port}"}
    # A name of its own, because other Java programs may run on this machine.
    (tmp_path / "shopjava").symlink_to(os.path.realpath(shutil.which("java")))
    command = [tmp_path / "shopjava", f"-javaagent:{agent_jar}", *[f"-Delastic.apm.{k}={v}" for k, v in options.items()],
               "-cp", f"{tmp_path}:{api}", "App", "6", "4", log]
    try:
        with Agent(culprit, tmp_path, export=receiver.url, period=1, comm="shopjava",
                   frequency=99) as agent:
            with open(tmp_path / "java.out", "wb") as out:
                subprocess.run(command, stdout=out, stderr=out, check=True, timeout=120,
                               env={**os.environ, "GLIBC_TUNABLES": tunables})
            n = agent.metric("agent_profiles_total")
            wait_for(lambda: agent.metric("agent_profiles_total") > n + 2, "no periods")
            agent.end()
    finally:
        receiver.stop()
    spans, transactions = logged(log), apm.transactions()
    for s in receiver.samples():
        worked = [f.rpartition(".")[2] for f in s.frames if ".work_" in f]
        if worked and s.link:
            assert spans[s.link][0] == worked[0], (worked, s.link)
    told = stacks_of(transactions)
    want = exported(receiver, {t["trace_id"] for t in transactions if t["sampled"]})
    print(f"Elastic's agent: {sum(told.values())} told, {sum(want.values())} sampled, "
          f"{len(transactions)} transactions")
    assert {s.resource["service.name"] for s in receiver.samples() if s.link} == {"shop"}
    assert sum(told.values()) > 100
    assert told == want
