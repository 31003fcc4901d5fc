# SPDX-License-Identifier: Apache-2.0
"""The always-on commands on this machine: culprit up, and an agent that sends to a server.

The known shares of a program's functions must appear in the API, in Pyroscope's query API, and in exports.
"""

import gzip
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from folded import parse_folded
from statistics_of import binomial_interval
from truth import PROGRAMS, build

SHARES = {"spin_70": 0.7, "spin_20": 0.2, "spin_10": 0.1}


@pytest.fixture(scope="module")
def programs():
    build()
    return PROGRAMS


@pytest.fixture
def tmp_path(place):
    return place


SAMPLES = "process_cpu:samples:count:cpu:nanoseconds"


class Up:
    """A running `culprit up` or `culprit server`."""

    def __init__(self, *command):
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.started = time.monotonic()

    def get(self, path, **parameters):
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as r:
            return r.read()

    def wait_for(self, question, seconds=120):
        """Returns the first true answer, or the last answer when the time is over."""
        end = time.monotonic() + seconds
        while True:
            answer = question()
            if answer or time.monotonic() > end:
                return answer
            time.sleep(0.2)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, time.monotonic() - begin, out, err

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def up(culprit, store, *args):
    u = Up(culprit, "up", "--data-dir", store, "--listen", "127.0.0.1:0", "--otlp-grpc", "off",
           "--otlp-grpc-old", "off", "--otlp-http", "off", *args)
    line = u.process.stdout.readline()
    assert " at http://127.0.0.1:" in line, (line, u.process.poll())
    u.url = line.split(" at ")[1].strip().rstrip("/")
    return u


def server(culprit, store):
    u = Up(culprit, "server", "--data-dir", store, "--listen", "127.0.0.1:0", "--otlp-grpc",
           "127.0.0.1:0", "--otlp-grpc-old", "off", "--otlp-http", "127.0.0.1:0")
    u.ports = {}
    for line in u.process.stdout:
        if line.strip() == "ready":
            break
        name, port = line.split()
        u.ports[name] = int(port)
    u.url = f"http://127.0.0.1:{u.ports['api']}"
    return u


def spins(u, service):
    """Returns the samples of the program's functions, from a folded export."""
    try:
        text = u.get("/api/v1/export", format="folded", type=SAMPLES, query=f'{{service.name="{service}"}}')
    except urllib.error.HTTPError:
        return {}
    out = {}
    for s in parse_folded(text.decode()):
        for f in SHARES:
            if f in s.frames:
                out[f] = out.get(f, 0) + s.count
    return out


def stats(u):
    return json.loads(u.get("/api/v1/stats"))


def wait_until_it_samples(u):
    """culprit up prints the page's URL before it starts to sample."""
    assert u.wait_for(lambda: stats(u)["store"]["samples"], 120), "nothing is sampled"


def wait_until_all_is_stored(u):
    """Waits until all samples taken so far are stored."""
    now = time.time() * 1000
    assert u.wait_for(lambda: stats(u)["store"]["last"] > now, 120), "no more comes"


def run_program(programs, service, ms, attributes="deployment.environment=night%20shift"):
    subprocess.run([f"{programs}/split-g", str(ms)], check=True, timeout=120,
                   env={**os.environ, "OTEL_SERVICE_NAME": service, "OTEL_RESOURCE_ATTRIBUTES": attributes})


def assert_shares(counts):
    n = sum(counts.values())
    for f, share in SHARES.items():
        low, high = binomial_interval(n, share)
        assert low <= counts.get(f, 0) <= high, counts


def test_up_shows_what_runs(culprit, programs, tmp_path):
    with up(culprit, tmp_path / "store", "-F", "199") as u:
        page = u.get("/").decode()
        assert "<!DOCTYPE html>" in page and "culprit" in page
        wait_until_it_samples(u)
        run_program(programs, "shop", 3000)
        wait_until_all_is_stored(u)
        counts = spins(u, "shop")
        # 3 s at 199 Hz are 597 samples, minus the time that the hypervisor took.
        assert sum(counts.values()) >= 300, counts
        assert_shares(counts)
        values = json.loads(u.get("/api/v1/label-values", label="deployment.environment"))
        assert "night shift" in json.dumps(values)
        # Pyroscope's query API has the same functions.
        now = int(time.time() * 1000)
        request = urllib.request.Request(
            f"{u.url}/querier.v1.QuerierService/SelectMergeStacktraces", method="POST",
            headers={"content-type": "application/json"}, data=json.dumps({
                "profile_typeID": SAMPLES,
                "label_selector": '{service_name="shop"}', "start": now - 600000, "end": now,
            }).encode())
        with urllib.request.urlopen(request, timeout=60) as r:
            graph = json.load(r)["flamegraph"]
        assert set(SHARES) <= set(graph["names"])
        pprof = gzip.decompress(u.get("/api/v1/export", format="pprof",
                                      query='{service.name="shop"}'))
        assert all(f.encode() in pprof for f in SHARES)
        metrics = u.get("/metrics").decode()
        assert "culprit_agent_samples_total" in metrics and "culprit_store_rows" in metrics
        status, seconds, _, err = u.end()
        assert status == 0 and seconds < 10, (status, seconds, err)
        before = counts
    with up(culprit, tmp_path / "store") as u:
        assert spins(u, "shop") == before, "what was kept is not there any more"
        assert u.end()[0] == 0


def test_something_is_there_within_ten_seconds(culprit, programs, tmp_path):
    with subprocess.Popen([f"{programs}/split-g", "20000"]) as busy:
        try:
            with up(culprit, tmp_path / "store", "-F", "99") as u:
                assert u.wait_for(lambda: spins(u, "split-g"), seconds=10)
                assert u.end()[0] == 0
        finally:
            busy.kill()


def test_metrics_while_the_agent_ends(culprit, tmp_path):
    """/metrics answers while the agent waits for a destination that hangs, and has no metrics of an agent that is
    being destroyed."""
    with socket.create_server(("127.0.0.1", 0)) as hangs, \
            up(culprit, tmp_path / "store", "--period", "1", "--disable-tls",
               "--export", f"otlp+http://127.0.0.1:{hangs.getsockname()[1]}") as u:
        assert u.wait_for(lambda: re.search(r"^culprit_export_spooled_bytes.* [1-9]", u.get("/metrics").decode(), re.M))
        u.process.send_signal(signal.SIGTERM)
        assert u.wait_for(lambda: "culprit_agent_" not in u.get("/metrics").decode())
        assert u.process.wait(60) == 0


def family(pid):
    """The process and those below it: the agent's parsers of files."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        children = [int(child) for child in f.read().split()]
    return [pid] + [p for child in children for p in family(child)]


def peak_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))


def assert_agent_tells(s, agent, samples, begun):
    """The server's data about the agent agree with the agent's process and host."""
    [a] = json.loads(s.get("/api/v1/agents"))["agents"]
    u = os.uname()
    assert (a["host"], a["kernel"]) == (u.nodename, u.release)
    sources = {x.pop("event"): x for x in a["sources"]}
    assert sources["cpu-clock"] == {"label": "CPU", "hz": 199, "period": 0} and a["drops"] == [] and a["dropped"] == 0
    assert set(sources) <= {"cpu-clock", "off-cpu"} and sources.get("off-cpu", {"hz": 0})["hz"] == 0
    assert begun - 1000 < a["started"] < a["last"] < time.time() * 1000 + 1000
    # The agent started within the last hour, which is the range of the query.
    assert a["range"]["samples"] == a["samples"] and a["range"]["lost"] == sum(c["count"] for c in a["counters"] if c["loss"] == "lost")
    # The answer has every counter of abi/tbl/counter.tbl that is not 0, with unit and help text.
    counted = {c["name"]: c for c in a["counters"]}
    assert counted["samples"]["loss"] == "counted" and counted["samples"]["unit"] == "samples"
    assert counted["samples"]["help"] == "sample records sent"
    assert counted["events"]["count"] >= counted["samples"]["count"] > 0
    assert a["samples"] >= samples and a["truncated"] <= a["samples"] and a["processes"] > 0
    peak = sum(peak_of(pid) for pid in family(agent.process.pid))
    assert 0 < a["rss"] <= peak and 0 < a["cpu"] < os.cpu_count()


def test_an_agent_is_one_whomever_it_samples(culprit, programs, tmp_path):
    """The agent samples no process first, then one with another host name, and is one agent for the server."""
    with server(culprit, tmp_path / "store") as s, \
            Up(culprit, "agent", "--export", f"otlp+http://127.0.0.1:{s.ports['otlp-http']}", "--disable-tls", "-F", "199",
               "--period", "1", "--comm", "split-g", "--labels", "host.id=machine-7"):
        assert s.wait_for(lambda: json.loads(s.get("/api/v1/agents"))["agents"]), "nothing of an agent that samples nobody"
        run_program(programs, "shop", 2000, "host.name=elsewhere,host.id=other")
        assert s.wait_for(lambda: spins(s, "shop"))
        [a] = json.loads(s.get("/api/v1/agents"))["agents"]
        assert a["host"] == os.uname().nodename and a["samples"] > 0


@pytest.mark.parametrize("way", ["gRPC", "HTTP"])
def test_an_agent_sends_to_a_server(culprit, programs, tmp_path, way):
    begun = time.time() * 1000
    with server(culprit, tmp_path / "store") as s:
        where = (["--collection-agent", f"127.0.0.1:{s.ports['otlp-grpc']}"] if way == "gRPC" else
                 ["--export", f"otlp+http://127.0.0.1:{s.ports['otlp-http']}"])
        with Up(culprit, "agent", *where, "--disable-tls", "-F", "199", "--period", "2") as agent:
            wait_until_it_samples(s)
            run_program(programs, "shop", 3000)
            wait_until_all_is_stored(s)
            counts = spins(s, "shop")
            assert sum(counts.values()) >= 300, counts
            assert_shares(counts)
            assert_agent_tells(s, agent, sum(counts.values()), begun)
            status, seconds, _, err = agent.end()
            assert status == 0 and seconds < 10, (status, seconds, err)
        assert s.end()[0] == 0


@pytest.mark.parametrize("args, says", [
    (["agent"], "agent: no destination; give --collection-agent or --export"),
    (["agent", "--export", "carrier-pigeon://x"], "carrier-pigeon"),
    (["up", "file"], "up: unexpected argument 'file'; see culprit up --help"),
    (["up", "--data-dir", "x", "--store", "y"], "give either --data-dir or --store"),
    (["up", "--data-dir", "/proc/nowhere"], "/proc/nowhere"),
    (["up", "--data-dir", "/tmp", "--listen", "0.0.0.0:0"], "token"),
])
def test_mistakes_are_told_in_a_line(culprit, args, says):
    done = subprocess.run([culprit, *args], capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("culprit: ") and says in lines[0], done.stderr
