# SPDX-License-Identifier: Apache-2.0
"""The servers of examples/ under load, built and run as their first lines say. A sample's span must be the span
for which the server, by its own log, ran the function, and culprit's server must have the spans. This file has
the example in C; tests/runtimes/test_context_examples.py has the other languages."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from pprof import samples
from recorder import record
from test_context import TOP, judge, logged
from test_up import server

CLIENTS = 6
SECONDS = 3


def install(build, folder):
    """Installs the library and returns the environment in which compilers and loaders find it."""
    subprocess.run(["meson", "install", "-C", build, "--quiet", "--no-rebuild", "--tags", "runtime,devel",
                    "--destdir", folder], check=True)
    found = [os.path.join(at, "culprit-context.pc") for at, _, names in os.walk(folder) if "culprit-context.pc" in names]
    assert len(found) == 1, found
    return {"PKG_CONFIG_PATH": os.path.dirname(found[0]), "PKG_CONFIG_SYSROOT_DIR": str(folder),
            "LD_LIBRARY_PATH": os.path.dirname(os.path.dirname(found[0]))}


def pkg_config(env, *args):
    return subprocess.run(["pkg-config", *args], env={**os.environ, **env}, check=True, capture_output=True,
                          text=True).stdout.split()


class Example:
    """Runs an example server, and clients that request /checkout again and again."""

    def __init__(self, command, env, folder):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log, self.failed, self.answered = folder / "log", [], 0
        with open(self.log, "wb") as out, open(folder / "stderr", "wb") as err:
            self.process = subprocess.Popen([*command, str(self.port)], stdout=out, stderr=err,
                                            env={**os.environ, **env})
        self.asking = True
        self.clients = [threading.Thread(target=self.ask) for _ in range(CLIENTS)]

    def ask(self):
        while self.asking:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/checkout", timeout=30) as r:
                    assert r.read() == b"ok\n"
                self.answered += 1
            except OSError as e:
                self.failed.append(e)

    def comes_up(self):
        end = time.monotonic() + 300
        while time.monotonic() < end:
            assert self.process.poll() is None, "it ended"
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        pytest.fail("the example did not come up")

    def __enter__(self):
        self.comes_up()
        for c in self.clients:
            c.start()
        return self

    def rest(self):
        self.asking = False
        for c in self.clients:
            c.join()

    def __exit__(self, *_):
        self.rest()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def stored(s, spans):
    """Returns those of the spans (trace, span) that culprit's server has, with their names."""
    got = {}
    for trace in {t for t, _ in spans}:
        try:
            answer = json.loads(s.get(f"/api/v1/traces/{trace}"))
        except urllib.error.HTTPError as e:
            assert e.code == 404
            continue
        got.update({(trace, x["span_id"]): x["name"] for x in answer["spans"]})
    return got


def prove(culprit, folder, command, env, how):
    with server(culprit, folder / "store") as s:
        env = {**env, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{s.ports['otlp-http']}", "OTEL_BSP_SCHEDULE_DELAY": "200"}
        with Example(command, env, folder) as e:
            record(culprit, folder / "out.pb.gz", "-F", 997, "-d", SECONDS, "-p", e.process.pid)
            e.rest()
            assert not e.failed, e.failed[0]
            spans = logged(e.log)
            some = dict(sorted(spans.items())[:150])
            want = {k: v[0].removeprefix("work_") for k, v in some.items()}
            assert s.wait_for(lambda: stored(s, some).items() >= want.items()), "not all spans came"
    got = list(samples(folder / "out.pb.gz"))
    linked, missed, idle = judge(got, spans)
    print(f"{how}: {e.answered} requests; {linked} samples have their span, {missed} have none, "
          f"{idle} should have none")
    assert missed <= 0.01 * linked, (missed, linked)
    assert linked > 100 and idle > 20, (linked, idle)
    of = {spans[k][0] for s in got if (k := (s.labels.get("trace_id"), s.labels.get("span_id"))) in spans}
    assert of == {"work_check", "work_price", "work_render"}


def test_the_example_in_c(culprit, tmp_path):
    build = os.path.dirname(os.path.dirname(os.path.abspath(culprit)))
    env = install(build, tmp_path / "system")
    flags = pkg_config(env, "--cflags", "--libs", "culprit-context") + pkg_config({}, "--libs", "libmicrohttpd", "libcurl")
    subprocess.run(["gcc", "-O2", "-g", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror",
                    f"{TOP}/examples/c/checkout.c", "-o", tmp_path / "checkout",
                    "-pthread", *flags], check=True)
    prove(culprit, tmp_path, [tmp_path / "checkout"], {"LD_LIBRARY_PATH": env["LD_LIBRARY_PATH"]}, "C")
