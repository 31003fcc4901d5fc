# SPDX-License-Identifier: Apache-2.0
"""Pyroscope itself as the judge of the calls of test_grafana: both servers get the same profiles and the same questions, in
JSON and in protocol buffers. What is answered otherwise on purpose is listed with the reason.

Needs a server of Pyroscope 2: CULPRIT_TEST_PYROSCOPE=/path/to/pyroscope, or ~/.cache/culprit-peers/pyroscope/pyroscope. It
runs on loopback, in a folder of the test, and reports to nobody. Its storage "v2" judges; "v1" only where v2 has nothing."""

import base64
import json
import os
import signal
import socket
import subprocess
import time
import types
import urllib.error
import urllib.parse
import urllib.request

import pytest

from conftest import Server
from test_grafana import CPU, DRILLDOWN, MEMORY, SERVICE, SPANS, TRACE, bars, fill, pprof, pprof_stacks, read_varint, select

pytestmark = pytest.mark.slow

START_S = 60
RING = {".store": "inmemory", ".instance-addr": "127.0.0.1"}


def peer_executable():
    place = os.environ.get("CULPRIT_TEST_PYROSCOPE") or os.path.expanduser("~/.cache/culprit-peers/pyroscope/pyroscope")
    if not os.access(place, os.X_OK):
        pytest.skip(f"needs a Pyroscope server: {place} or CULPRIT_TEST_PYROSCOPE")
    return place


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def flags(directory, storage):
    http, grpc, raft, gossip = free_ports(4)
    here = "127.0.0.1"
    own = {
        "architecture.storage": storage, "target": "all", "log.level": "warn",
        "server.http-listen-address": here, "server.http-listen-port": http,
        "server.grpc-listen-address": here, "server.grpc-listen-port": grpc,
        "memberlist.bind-addr": here, "memberlist.bind-port": gossip, "memberlist.advertise-addr": here,
        "usage-stats.enabled": "false", "self-profiling.disable-push": "true",
    }
    if storage == "v2":
        own |= {"metastore.address": f"{here}:{grpc}", "query-backend.address": f"{here}:{grpc}",
                "metastore.min-ready-duration": "0s", "segment-writer.min-ready-duration": "0s",
                "segment-writer.store": "inmemory", "segment-writer.lifecycler.addr": here}
        own |= {f"metastore.raft.{k}": f"{here}:{raft}" for k in ("bind-address", "server-id", "advertise-address")}
        own |= {k: directory / k for k in ("metastore.data-dir", "metastore.raft.dir", "metastore.raft.snapshots-dir",
                                           "storage.filesystem.dir", "compaction-worker.temp-dir")}
    else:
        own |= {"write-path": "ingester", "enable-query-backend": "false", "ring.store": "inmemory", "ingester.lifecycler.addr": here, "query-frontend.instance-addr": here,
                "compactor.data-dir": directory / "compact", "pyroscopedb.data-path": directory / "db",
                "storage.filesystem.dir": directory / "shared", "blocks-storage.bucket-store.sync-dir": directory / "sync"}
        own |= {f"{k}{x}": v for k in ("compactor.ring", "query-scheduler.ring", "store-gateway.sharding-ring")
                for x, v in RING.items()}
    own |= {f"{k}{x}": v for k in ("distributor.ring", "overrides-exporter.ring") for x, v in RING.items()}
    return http, [f"-{k}={v}" for k, v in own.items()]


class Peer:
    def __init__(self, program, directory, storage):
        self.port, args = flags(directory, storage)
        self.log = directory / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([program, *args], cwd=directory, stdout=log, stderr=subprocess.STDOUT,
                                            env={"HOME": str(directory), "PATH": "/usr/bin:/bin"})

    def wait(self):
        for _ in range(START_S * 5):
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            try:
                if self.get("/ready").status == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.2)
        raise AssertionError(f"not ready after {START_S} s: {self.log.read_text()[-2000:]}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def request(self, method, path, body=None, headers=None, parameters=None):
        if parameters:
            path += "?" + urllib.parse.urlencode(parameters, doseq=True)
        r = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers or {}, method=method)
        try:
            with urllib.request.urlopen(r, timeout=60) as f:
                status, answer, got = f.status, f.read(), f.headers
        except urllib.error.HTTPError as e:
            status, answer, got = e.code, e.read(), e.headers
        return types.SimpleNamespace(status=status, body=answer, headers=got, text=answer.decode(errors="replace"),
                                     json=lambda: json.loads(answer))

    def get(self, path, headers=None, **parameters):
        return self.request("GET", path, None, headers, parameters)

    def post(self, path, body, headers=None, **parameters):
        return self.request("POST", path, body, headers, parameters)


class Both:
    """A Pyroscope and a culprit server with the same profiles."""

    def __init__(self, peer, own, client):
        self.peer, self.own, self.client, self.span = peer, own, client, None

    def select(self, **more):
        return select(self.own, **more)


@pytest.fixture(scope="module")
def run(executable, pyroscope_client, tmp_path_factory):
    """run(STORAGE) starts both; once for each storage."""
    program, started, to_stop = peer_executable(), {}, []

    def start(storage):
        if storage not in started:
            d = tmp_path_factory.mktemp(storage)
            (d / "own").mkdir()
            peer = Peer(program, d, storage)
            to_stop.append(peer)
            own = Server(executable, [], str(d / "own"))
            to_stop.append(own)
            started[storage] = Both(peer, own, pyroscope_client)
            peer.wait()
            fill(own)
            for p in own.profiles:
                r = peer.post("/ingest", pprof(p.samples), name=f"{p.service}{{env={p.env}}}", format="pprof", spyName="gospy",
                              **{"from": p.at, "until": p.at})
                assert r.status == 200, r.text
            started[storage].span = {"start": own.start, "end": own.end}
            wait_for_profiles(started[storage])
        return started[storage]

    yield start
    for server in to_stop:
        server.stop()


def wait_for_profiles(both):
    """A segment is visible when it is written: half a second later, or so."""
    want = both.own.post(SERVICE + "SelectMergeStacktraces", json.dumps(both.select(labelSelector="{}")).encode(), DRILLDOWN)
    for _ in range(100):
        got = both.peer.post(SERVICE + "SelectMergeStacktraces", json.dumps(both.select(labelSelector="{}")).encode(), DRILLDOWN)
        if got.json().get("flamegraph", {}).get("total") == want.json()["flamegraph"]["total"]:
            return
        time.sleep(0.2)
    raise AssertionError(f"Pyroscope does not show the profiles: {got.text}")


@pytest.fixture
def both(run):
    return run("v2")


# ---- answers in a form that can be compared ----

def tree_nodes(data):
    out, parents, at = {}, [None], 0
    while parents and at < len(data):
        above = parents.pop()
        n, at = read_varint(data, at)
        name, at = data[at:at + n].decode(), at + n
        own, at = read_varint(data, at)
        children, at = read_varint(data, at)
        path = () if above is None else above + (name,)
        out[path] = own
        parents += [path] * children
    return out


def profile_of(p):
    """Values by stack, lines and types. Where Pyroscope says less: times, sample labels; more: an empty mapping."""
    if not p.get("sample"):
        return {}
    text = p["stringTable"]
    return {"stacks": pprof_stacks(p), "lines": {int(line.get("line", 0)) for x in p["location"] for line in x["line"]},
            "types": [(text[int(t["type"])], text[int(t["unit"])]) for t in p["sampleType"] + [p["periodType"]]]}


def graph_of(graph, width):
    levels = [[int(v) for v in level["values"]] for level in graph.get("levels", [])]
    return {"bars": bars(graph["names"], levels, width), **{k: v for k, v in graph.items() if k not in ("names", "levels")}}


def without_ids(x):
    if isinstance(x, dict):
        return {k: "id" if k == "profileId" else without_ids(v) for k, v in x.items()}
    return [without_ids(v) for v in x] if isinstance(x, list) else x


def heat_of(series):
    """Pyroscope's order of series and of the exemplars in a slot is that of a hash table."""
    for s in series:
        for slot in s["slots"]:
            slot.get("exemplars", []).sort(key=lambda e: int(e["value"]))
    return sorted(series, key=lambda s: json.dumps(s.get("labels")))


def comparable(method, a):
    if "code" in a:
        return {"code": a["code"]}
    if method == "SelectMergeProfile":
        return profile_of(a)
    a = without_ids(a)
    if "flamegraph" in a:
        a["flamegraph"] = graph_of(a["flamegraph"], 7 if method == "Diff" else 4)
    if "tree" in a:
        a["tree"] = tree_nodes(base64.b64decode(a["tree"]))
    if "pprof" in a:
        a["pprof"] = profile_of(a["pprof"].get("profile", {}))
    if method == "SelectHeatmap" and "series" in a:
        a["series"] = heat_of(a["series"])
    return a


def by_json(server, method, body, service=SERVICE):
    r = server.post(service + method, json.dumps(body).encode(), DRILLDOWN)
    return r.status, comparable(method, r.json())


def by_proto(both, server, method, body):
    """The answer to Pyroscope's Go client."""
    r = subprocess.run([both.client, f"http://127.0.0.1:{server.port}", method, json.dumps(body)], capture_output=True,
                       text=True, timeout=60)
    return comparable(method, json.loads(r.stdout) if r.returncode == 0 else {"code": r.stderr.split(":")[0]})


def compare(both, method, bodies, proto=True):
    for body in bodies:
        want, got = (by_json(s, method, body) for s in (both.peer, both.own))
        assert got == want, f"{method} {body}"
        if proto and "nonsense" not in body:
            want, got = (by_proto(both, s, method, body) for s in (both.peer, both.own))
            assert got == want, f"{method} {body}, protocol buffers"


def different(both, method, cases):
    """Answers that differ on purpose: (body, status of Pyroscope, status of culprit)."""
    for body, theirs, ours in cases:
        assert [by_json(s, method, body)[0] for s in (both.peer, both.own)] == [theirs, ours], f"{method} {body}"


# ---- what there is ----

MATCHERS = ([], ["{}"], ['{service_name="shop"}'], ['{service_name="none"}'], ['{service_name="shop"}', '{env="prod"}'],
            ["process_cpu{}"], ["memory{}"], ['{env!=""}'], ['{env!~"te.*"}'], ['{service_name=~"sh.*"}'],
            ['{__service_name__="cart"}'], [f'{{__profile_type__="{CPU}"}}'], ["{"], ['{service_name=~"("}'])


def test_names(both):
    start, end = both.span["start"], both.span["end"]
    day = 24 * 3600 * 1000
    ranges = (both.span, {"start": 1, "end": 1000}, {"start": end, "end": start}, {"start": end - 100 * day, "end": end - 99 * day})
    compare(both, "ProfileTypes", [{}, *ranges])
    compare(both, "LabelNames", [{**both.span, "matchers": m} for m in MATCHERS] + list(ranges))
    compare(both, "LabelValues", [
        {**both.span, "name": name, "matchers": m} for m in MATCHERS for name in (
            "env", "service_name", "__service_name__", "__profile_type__", "__name__", "__unit__", "nothing", "")], proto=False)
    compare(both, "LabelValues", [{**r, "name": "env"} for r in ranges])
    asked = ([], ["service_name", "__profile_type__"], ["env"], ["nothing"], ["env", "nothing"],
             ["service_name", "__profile_type__", "__type__", "__name__", "pyroscope_app"])
    compare(both, "Series", [{**both.span, "matchers": m, "labelNames": n} for m in MATCHERS for n in asked], proto=False)
    compare(both, "Series", [{**r, "labelNames": ["env"]} for r in ranges])
    # Without a range all times are meant; a range may be longer than Pyroscope's default of a day; "" selects everything.
    for method, more in (("LabelNames", {}), ("LabelValues", {"name": "env"}), ("Series", {})):
        different(both, method, [(more, 400, 200), ({**more, "start": end - 2 * day, "end": end}, 400, 200),
                                 ({**both.span, **more, "matchers": [""]}, 400, 200)])


# ---- stacks ----

NODES = (None, 0, 1, 2, 3, 4, 5, 8192, 1 << 20, (1 << 20) + 1, -1)
# The same selection in every call that takes one.
SELECTIONS = [
    {"profileTypeID": ""}, {"profileTypeID": "x"}, {"profileTypeID": "a:b:c:d:e"}, {"profileTypeID": CPU + ":delta"},
    {"profileTypeID": MEMORY}, {"labelSelector": "{}"}, {"labelSelector": '{service_name="none"}'},
    {"labelSelector": "process_cpu{}"}, {"labelSelector": '{env=~"p.*", service_name!="cart"}'}, {"nonsense": 1}]
BROKEN = [{"labelSelector": "{"}, {"labelSelector": '{service_name=~"["}'}, {"start": "x"}, {"labelSelector": 5}]
SITES = [{"stackTraceSelector": {"callSite": [{"name": n} for n in names]}} for names in (
    [], ["main"], ["main", "work"], ["work"], ["main", "work", "inner", "x"])]


def ranges_of(both):
    start, end = both.span["start"], both.span["end"]
    month = 30 * 24 * 3600 * 1000
    return [{"start": start, "end": start}, {"start": end, "end": start}, {"start": start + 777, "end": end - 60001},
            {"start": end - 2 * month, "end": end - 2 * month + 3600000}]


def test_graphs(both):
    for kind in ("FLAMEGRAPH", "TREE"):
        compare(both, "SelectMergeStacktraces", [both.select(maxNodes=n, format=f"PROFILE_FORMAT_{kind}") for n in NODES])
    selected = SELECTIONS + SITES + ranges_of(both)
    spans = [{"spanSelector": s} for s in (SPANS[:1], SPANS, ["00" * 8])]
    others = [{"traceIdSelector": [TRACE]}, {"traceIdSelector": ["11" * 16]},
              {"profileIdSelector": ["7c9e6679-7425-40de-944b-e07fc1f90ae7"]},
              {"spanSelector": SPANS, "traceIdSelector": [TRACE]}]
    compare(both, "SelectMergeStacktraces", [both.select(**s) for s in selected + spans + others])
    compare(both, "SelectMergeSpanProfile", [both.select(**s) for s in SELECTIONS + spans + ranges_of(both)], proto=False)
    compare(both, "SelectMergeStacktraces", [both.select(**s) for s in BROKEN], proto=False)
    # Ids that are none are the client's fault. "" selects everything, dots are OpenTelemetry's; ranges as above.
    wrong = ({"spanSelector": ["x"]}, {"traceIdSelector": ["ab"]}, {"profileIdSelector": ["1"]})
    different(both, "SelectMergeStacktraces", [(both.select(**w), 500, 400) for w in wrong])
    different(both, "SelectMergeStacktraces", [(both.select(**s), 400, 200) for s in (
        {"labelSelector": ""}, {"labelSelector": '{a.b="x"}'}, {"start": 0, "end": 0},
        {"start": both.span["end"] - 3 * 24 * 3600 * 1000})])


def test_pprof(both):
    pgo = [{"stackTraceSelector": {"goPgo": p}} for p in ({}, {"keepLocations": 1}, {"keepLocations": 2, "aggregateCallees": True})]
    selected = SELECTIONS + SITES + pgo + ranges_of(both) + [{"traceIdSelector": [TRACE]}] + [{"maxNodes": n} for n in (
        None, 0, -1, 5, 8192, (1 << 20) + 1)]
    compare(both, "SelectMergeProfile", [both.select(**s) for s in selected])
    compare(both, "SelectMergeProfile", [both.select(**s) for s in BROKEN], proto=False)
    compare(both, "SelectMergeStacktraces", [both.select(format="PROFILE_FORMAT_PPROF", **s) for s in (
        *SITES, *pgo, {"spanSelector": SPANS[:1]}, {"maxNodes": 5})])
    # Pyroscope cuts each of its blocks for itself, one frame below the last node that is left. culprit has the nodes of
    # the flame graph. The sum is the same.
    for nodes in (1, 2, 3):
        answers = [by_json(s, "SelectMergeProfile", both.select(maxNodes=nodes))[1] for s in (both.peer, both.own)]
        assert len({sum(a["stacks"].values()) for a in answers}) == 1
        assert any(path[-1] == "other" for path in answers[1]["stacks"])


def test_dot(both):
    """Another picture of the same functions; nothing for an empty profile."""
    q = both.select(format="PROFILE_FORMAT_DOT")
    for answer in (by_json(s, "SelectMergeStacktraces", q)[1]["dot"] for s in (both.peer, both.own)):
        assert answer.startswith("digraph") and all(name in answer for name in ("main", "work", "inner", "idle"))
    compare(both, "SelectMergeStacktraces", [{**q, "labelSelector": '{service_name="none"}'}])


def test_diff(both):
    def side(env, **more):
        return both.select(labelSelector=f'{{service_name="shop", env="{env}"}}', **more)

    none, cart = ({"labelSelector": f'{{service_name="{s}"}}'} for s in ("none", "cart"))
    pairs = [(side("prod", maxNodes=n), side("test", maxNodes=m)) for n in (None, 2, 3, 4, 5, 1 << 20, (1 << 20) + 1) for m in (None, 3)]
    pairs += [(both.select(**a), both.select(**b)) for a, b in (({}, cart), (none, {}), ({}, none), (none, none))]
    pairs += [(both.select(**s), both.select()) for s in SELECTIONS + ranges_of(both)]
    compare(both, "Diff", [{"left": a, "right": b} for a, b in pairs], proto=False)
    compare(both, "Diff", [{"left": a, "right": b} for a, b in pairs[:4]] + [{}, {"left": side("prod")}])
    # Of equally large nodes Pyroscope keeps all, however many; culprit as many as are asked for.
    q = {"left": side("prod", maxNodes=1), "right": side("test")}
    kept = [set(by_json(s, "Diff", q)[1]["flamegraph"]["bars"]) for s in (both.peer, both.own)]
    assert kept == [{(), ("main",), ("main", "other")}, {(), ("other",)}]


# ---- over time ----

def groups_of(both):
    return [{}, {"groupBy": ["env"]}, {"groupBy": ["nothing"]}, {"groupBy": ["service_name"], "labelSelector": "{}"},
            {"groupBy": ["env", "service_name"], "labelSelector": "{}", "limit": 2}, {"groupBy": ["__profile_type__"]},
            {"limit": -1}, {"limit": 1, "groupBy": ["env"]}, {"start": both.span["start"] + 777}, {"end": both.span["end"] + 5555}]


def test_series(both):
    for step in (15, 60, 7, 0.5, 3600, 1e9, 0, 0.0001, -1):
        selected = groups_of(both) + [{"exemplarType": "EXEMPLAR_TYPE_INDIVIDUAL", **g} for g in groups_of(both)]
        compare(both, "SelectSeries", [both.select(step=step, **s) for s in selected], proto=step == 15)
    compare(both, "SelectSeries", [both.select(step=60, **s) for s in SELECTIONS + ranges_of(both) + BROKEN], proto=False)
    # By service_name, env: an exemplar of Pyroscope repeats env, because its list of names is not sorted.
    # Exemplars of spans are not there in Pyroscope; a step of 30,000 years overflows in Pyroscope.
    different(both, "SelectSeries", [(both.select(step=60, exemplarType="EXEMPLAR_TYPE_SPAN"), 500, 200),
                                     (both.select(step=1e12), 200, 400)])


def test_heat_maps(both):
    for kind in ("INDIVIDUAL", "SPAN"):
        def of(step=60, kind=kind, **more):
            return both.select(step=step, queryType=f"HEATMAP_QUERY_TYPE_{kind}", **more)

        for step in (15, 60, 7, 3600, 0, -1):
            compare(both, "SelectHeatmap", [of(step, **g) for g in groups_of(both)], proto=step == 15)
        # With the values all different: of equal ones any is the exemplar.
        compare(both, "SelectHeatmap", [of(s, exemplarType=f"EXEMPLAR_TYPE_{kind}", **g) for s in (15, 60) for g in groups_of(both)[:3]],
                proto=False)
        compare(both, "SelectHeatmap", [of(**s) for s in SELECTIONS + ranges_of(both)], proto=False)
        # What the client does wrong is no failure of the server.
        other = "SPAN" if kind == "INDIVIDUAL" else "INDIVIDUAL"
        different(both, "SelectHeatmap", [(of(**s), 500, 400) for s in (*BROKEN[:2], {"exemplarType": f"EXEMPLAR_TYPE_{other}"})])
    different(both, "SelectHeatmap", [(both.select(step=60), 500, 400)])


def test_what_only_the_older_storage_has(run):
    """Averages, series below a call site and the times of the store: v2 answers with sums, all samples and nothing."""
    both = run("v1")
    mean = {"aggregation": "TIME_SERIES_AGGREGATION_TYPE_AVERAGE"}
    compare(both, "SelectSeries", [both.select(step=s, **mean, **g) for s in (15, 60, 7, 3600) for g in groups_of(both)[:6]])
    # Without any sample below the call site v1 has points of 0, culprit no series.
    compare(both, "SelectSeries", [both.select(step=60, **s) for s in SITES[:3]])
    compare(both, "GetProfileStats", [{}])
    older = dict(query=f'{CPU}{{service_name="shop"}}', until=both.span["end"], aggregation="avg", **{"from": both.span["start"]})
    want, got = (s.get("/pyroscope/render", **older).json()["timeline"] for s in (both.peer, both.own))
    assert got == want


# ---- the older API, the server ----

def older_answer(r):
    a = r.json()
    if isinstance(a, dict) and "flamebearer" in a:
        graph = a["flamebearer"]
        a["flamebearer"] = graph_of({"names": graph.pop("names"), "levels": [{"values": x} for x in graph.pop("levels")], **graph},
                                    7 if a["metadata"]["format"] == "double" else 4)
    return r.status, {"code": a["code"]} if isinstance(a, dict) and "code" in a else a


def test_render(both):
    def ask(path, parameters):
        want, got = (older_answer(s.get(path, **parameters)) for s in (both.peer, both.own))
        assert got == want, f"{path} {parameters}"

    start, end = both.span["start"], both.span["end"]
    usual = dict(query=f'{CPU}{{service_name="shop"}}', until=end, **{"from": start})
    for more in ({}, {"max-nodes": 2}, {"maxNodes": 3}, {"max-nodes": -1}, {"groupBy": "env"}, {"groupBy": "nothing"},
                 {"aggregation": "sum"}, {"aggregation": "nope"}, {"format": "json"}, {"format": "nope"}, {"query": ""}, {"query": "{"},
                 {"query": '{env="prod"}'}, {"query": f'{CPU}{{service_name="none"}}'}, {"query": CPU}, {"query": "process_cpu{}"},
                 {"query": f"{CPU}{{}}", "groupBy": "service_name"}, {"from": start // 1000, "until": end // 1000},
                 {"from": end, "until": start}):
        ask("/pyroscope/render", {**usual, **more})
    sides = {f"{side}{k}": v for side, env in (("left", "prod"), ("right", "test")) for k, v in (
        ("Query", f'{CPU}{{service_name="shop", env="{env}"}}'), ("From", start), ("Until", end))}
    for more in ({}, {"max-nodes": 2}, {"max-nodes": 3}, {"rightQuery": MEMORY}, {"rightQuery": ""}):
        ask("/pyroscope/render-diff", {**sides, **more})
    ask("/pyroscope/label-values", {"label": "__name__"})
    ask("/pyroscope/label-values", {})
    # A number that is none is told. Pyroscope does not pass the label on, so it finds no values.
    for path, parameters, theirs, ours in (
            ("/pyroscope/render", {**usual, "max-nodes": "x"}, 200, 400),
            ("/pyroscope/label-values", {"label": "env"}, 400, 200)):
        assert [s.get(path, **parameters).status for s in (both.peer, both.own)] == [theirs, ours]
    for s in (both.peer, both.own):
        assert s.get("/ready").text.strip() == "ready"
        assert [s.get(p).status for p in ("/labels", "/api/apps", "/nothing")] == [404] * 3
        assert s.get("/api/v1/status/buildinfo").json()["status"] == "success"


def test_protocol(both):
    """What is no message, and codings."""
    as_json = {"Content-Type": "application/json"}
    for method, body, headers in (
            ("SelectSeries", b"{", as_json), ("SelectSeries", b"[]", as_json), ("SelectSeries", b"null", as_json),
            ("ProfileTypes", b"", as_json), ("ProfileTypes", b"\xff\xff", {"Content-Type": "application/proto"}),
            ("ProfileTypes", b"", {"Content-Type": "application/proto"}), ("ProfileTypes", b"{}", {"Content-Type": "text/plain"}),
            ("ProfileTypes", b"", {"Content-Type": "application/x-protobuf"}),
            ("ProfileTypes", b"{}", {**as_json, "Content-Encoding": "gzip"}), ("ProfileTypes", b"{}", {**as_json, "Content-Encoding": "br"})):
        want, got = (s.post(SERVICE + method, body, headers) for s in (both.peer, both.own))
        assert got.status == want.status, f"{method} {body} {headers}: {got.text}"
        if want.status != 415:
            assert got.headers["Content-Type"] == want.headers["Content-Type"]
            assert got.status == 200 or got.json()["code"] == want.json()["code"]
    # Procedures that are not there: Connect's clients say "unimplemented" to both.
    assert [s.post(SERVICE + "Nothing", b"{}", as_json).status for s in (both.peer, both.own)] == [404, 501]


def test_settings(both):
    service = "/settings.v1.SettingsService/"
    for method, body in (("Get", {}), ("Set", {"setting": {"name": "a", "value": "b", "modifiedAt": 5}}), ("Set", {}), ("Get", {}),
                         ("Set", {"setting": {"name": "a", "value": "c", "modifiedAt": 1}}), ("Delete", {}),
                         ("Delete", {"name": "nothing"}), ("Delete", {"name": "a"}), ("Get", {})):
        want, got = (by_json(s, method, body, service) for s in (both.peer, both.own))
        assert got == want, f"{method} {body}"
    assert by_json(both.own, "Version", {}, "/version.v1.Version/") == by_json(both.peer, "Version", {}, "/version.v1.Version/")
