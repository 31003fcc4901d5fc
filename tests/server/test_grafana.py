# SPDX-License-Identifier: Apache-2.0
"""The calls that Grafana's Pyroscope data source (Connect, protocol buffers) and its Drilldown app (Connect in JSON and
the older HTTP API, through Grafana's proxy) make, replayed with the fields and headers that they send. Answers are
compared with the profiles that the test ingested."""

import json
import time
import uuid

import pytest

from test_clickhouse import backends, database  # noqa: F401
from wire import decode, field, message, packed, read_varint, varint

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
MEMORY = "memory:inuse_space:bytes:space:bytes"
SERVICE = "/querier.v1.QuerierService/"
# What Grafana's proxy adds to the requests of Drilldown.
DRILLDOWN = {"Content-Type": "application/json", "X-Grafana-Org-Id": "1",
             "Accept": "application/json; allow-utf8-labelnames=true"}
DATA_SOURCE = {"Content-Type": "application/proto", "Connect-Protocol-Version": "1", "User-Agent": "connect-go/1.18.1"}
STEP = 15


def pprof(samples, kind=("cpu", "nanoseconds"), period=("cpu", "nanoseconds")):
    """A profile of [(stack from the root "main;work", value, labels)]."""
    strings = [""]

    def s(text):
        if text not in strings:
            strings.append(text)
        return strings.index(text)

    names, body = [], b""
    for stack, value, labels in samples:
        frames = stack.split(";")
        names += [f for f in frames if f not in names]
        ids = b"".join(varint(names.index(f) + 1) for f in reversed(frames))
        body += field(2, message(_1=ids, _2=varint(value), _3=[message(_1=s(k), _2=s(v)) for k, v in labels.items()]))
    for i, name in enumerate(names, 1):
        body += field(4, message(_1=i, _4=message(_1=i, _2=7))) + field(5, message(_1=i, _2=s(name), _3=s(name)))
    head = field(1, message(_1=s(kind[0]), _2=s(kind[1]))) + field(11, message(_1=s(period[0]), _2=s(period[1])))
    return head + body + field(12, 1) + b"".join(field(6, t) for t in strings)


# ---- what was ingested ----

SPANS = ["9a517183f26a089d", "5a4fe264a9c987fe"]
TRACE = "7c9e66797425440de944be07fc1f90ae"


class Profile:
    def __init__(self, service, env, at, samples):
        self.service, self.env, self.at, self.samples = service, env, at, samples

    @property
    def value(self):
        return sum(v for _, v, _ in self.samples)


def fill(server):
    """Profiles of two services, 15 s apart, some of them within spans."""
    # Times on the boundary of a step, and not so.
    base = (int(time.time()) - 900) // STEP * STEP * 1000
    profiles = []
    for i in range(8):
        at = base + i * STEP * 1000 + (i % 3) * 4000
        span = {"span_id": SPANS[i % 2], "trace_id": TRACE if i % 2 == 0 else "00" * 15 + "01"}
        profiles.append(Profile("shop", "prod" if i % 4 else "test", at, [
            ("main;work;inner", 1_000_000 * (i + 1), span), ("main;work", 300_000, {}), ("main;idle", 50_000 * i, {})]))
        if i % 2:
            profiles.append(Profile("cart", "prod", at + 1000, [("main;other", 7_000_000 + i, {})]))
    for p in profiles:
        r = server.post("/ingest", pprof(p.samples), name=f"{p.service}{{env={p.env}}}", format="pprof",
                        spyName="gospy", **{"from": p.at, "until": p.at})
        assert r.status == 200, r.text
    server.profiles = profiles
    server.start, server.end = base, base + 10 * STEP * 1000
    return server


@pytest.fixture
def truth(server):
    return fill(server)


def chosen(server, service=None, env=None):
    return [p for p in server.profiles if service in (None, p.service) and env in (None, p.env)]


def tree_of(profiles, keep=lambda stack, labels: True):
    """{path from the root: [total, self]}"""
    out = {(): [0, 0]}
    for p in profiles:
        for stack, value, labels in p.samples:
            frames = stack.split(";")
            if not value or not keep(stack, labels):
                continue
            for i in range(len(frames) + 1):
                node = out.setdefault(tuple(frames[:i]), [0, 0])
                node[0] += value
                node[1] += value if i == len(frames) else 0
    return {k: tuple(v) for k, v in out.items()}


def ask(server, method, body, service=SERVICE, status=200):
    r = server.post(service + method, json.dumps(body).encode(), DRILLDOWN)
    assert r.status == status, f"{method}: {r.status} {r.text}"
    assert r.headers["Content-Type"] == "application/json"
    return r.json()


def ask_proto(server, method, body):
    r = server.post(SERVICE + method, body, DATA_SOURCE)
    assert r.status == 200, r.text
    assert r.headers["Content-Type"] == "application/proto"
    return decode(r.body)


def bars(names, levels, width=4):
    """{path: (total, self)} of a flame graph's levels; of a diff all six values."""
    out, above = {}, []
    for values in levels:
        here, x = [], 0
        for i in range(0, len(values), width):
            bar = values[i:i + width]
            begin = x + bar[0]
            x = begin + bar[1]
            path = next((p + (names[bar[-1]],) for b, e, p in above if b <= begin and x <= e), ())
            here.append((begin, x, path))
            out[path] = tuple(bar[1:3]) if width == 4 else (*bar[1:3], *bar[4:6])
        above = here
    return out


def json_bars(graph):
    assert graph["names"][0] == "total"
    return bars(graph["names"], [[int(v) for v in level["values"]] for level in graph["levels"]])


def proto_bars(graph):
    g = decode(graph)
    return bars([n.decode() for n in g[1]], [packed(decode(level)[1][0]) for level in g[2]])


def select(server, **more):
    return {"profileTypeID": CPU, "labelSelector": '{service_name="shop"}', "start": server.start, "end": server.end,
            **more}


def steps(server, profiles, step=STEP * 1000):
    """{end of the step: profiles}, as Pyroscope cuts the range: a step has its end and not its start."""
    out = {}
    for p in profiles:
        end = server.start + max(0, -(-(p.at - server.start) // step)) * step
        out.setdefault(end, []).append(p)
    return dict(sorted(out.items()))


# ---- the data source ----

def test_data_source(truth):
    """ProfileTypes for the test button; names, values, a series and a flame graph of a panel."""
    span = {"start": truth.start, "end": truth.end}
    types = ask_proto(truth, "ProfileTypes", message(_1=span["start"], _2=span["end"]))
    assert [decode(t)[1][0].decode() for t in types[1]] == [CPU]
    names = ask_proto(truth, "LabelNames", message(_1='{service_name="shop"}', _2=span["start"], _3=span["end"]))
    assert {b"env", b"service_name", b"__profile_type__"} <= set(names[1])
    values = ask_proto(truth, "LabelValues", message(_1="env", _2='{service_name="shop"}', _3=span["start"],
                                                     _4=span["end"]))
    assert values[1] == [b"prod", b"test"]
    q = message(_1=CPU, _2='{service_name="shop"}', _3=span["start"], _4=span["end"])
    series = ask_proto(truth, "SelectSeries", q + message(_5="env", _6=float(STEP), _10=1))
    got = {}
    for s in map(decode, series[1]):
        label = decode(s[1][0])
        assert label[1] == [b"env"]
        got[label[2][0].decode()] = {decode(p)[2][0]: decode(p)[1][0] for p in s[2]}
    want = {env: {end: sum(p.value for p in ps) for end, ps in steps(truth, chosen(truth, "shop", env)).items()}
            for env in ("prod", "test")}
    assert got == want
    graph = ask_proto(truth, "SelectMergeStacktraces", q + message(_5=16384))
    assert proto_bars(graph[1][0]) == tree_of(chosen(truth, "shop"))
    span_graph = ask_proto(truth, "SelectMergeSpanProfile", message(
        _1=CPU, _2='{service_name="shop"}', _3=SPANS[:1], _4=span["start"], _5=span["end"], _6=16384))
    assert proto_bars(span_graph[1][0]) == tree_of(
        chosen(truth, "shop"), lambda stack, labels: labels.get("span_id") == SPANS[0])


def test_spans(truth):
    """Profiles of spans, of traces, and of one profile by its id."""
    def of(**more):
        return json_bars(ask(truth, "SelectMergeStacktraces", select(truth, **more))["flamegraph"])

    shop = chosen(truth, "shop")
    for spans in (SPANS[:1], SPANS):
        want = tree_of(shop, lambda stack, labels, spans=spans: labels.get("span_id") in spans)
        assert of(spanSelector=spans) == want
        old = ask(truth, "SelectMergeSpanProfile", select(truth, spanSelector=spans))
        assert json_bars(old["flamegraph"]) == want
    assert of(traceIdSelector=[TRACE]) == tree_of(shop, lambda stack, labels: labels.get("trace_id") == TRACE)
    # Nothing of another service, and nothing outside of the range.
    none = select(truth, spanSelector=SPANS, labelSelector='{service_name="cart"}')
    assert json_bars(ask(truth, "SelectMergeStacktraces", none)["flamegraph"]) == {(): (0, 0)}
    half = {"end": truth.start + 4 * STEP * 1000}
    assert of(spanSelector=SPANS, **half) == tree_of(
        [p for p in shop if p.at <= half["end"]], lambda stack, labels: "span_id" in labels)
    for bad in ({"spanSelector": ["x"]}, {"traceIdSelector": ["ab"]}, {"profileIdSelector": ["1"]},
                {"spanSelector": SPANS, "traceIdSelector": [TRACE]}):
        assert ask(truth, "SelectMergeStacktraces", select(truth, **bad), status=400)["code"] == "invalid_argument"


def test_exemplars(truth):
    """A series with exemplars; each id then selects exactly that profile."""
    answer = ask(truth, "SelectSeries", select(truth, step=60, exemplarType="EXEMPLAR_TYPE_INDIVIDUAL"))
    shop = chosen(truth, "shop")
    want = steps(truth, shop, 60000)
    points = answer["series"][0]["points"]
    assert [int(p["timestamp"]) for p in points] == [t for t in want if t <= truth.end - truth.end % 1000]
    for p in points:
        best = max(want[int(p["timestamp"])], key=lambda p: p.value)
        e, = p["exemplars"]
        assert (int(e["value"]), int(e["timestamp"])) == (best.value, best.at)
        assert {(x["name"], x["value"]) for x in e["labels"]} >= {
            ("env", best.env), ("service_name", "shop"), ("__service_name__", "shop"), ("__profile_type__", CPU)}
        assert str(uuid.UUID(e["profileId"])) == e["profileId"]
        one = ask(truth, "SelectMergeStacktraces", select(truth, profileIdSelector=[e["profileId"]]))
        assert json_bars(one["flamegraph"]) == tree_of([best])
    absent = select(truth, profileIdSelector=["7c9e6679-7425-40de-944b-e07fc1f90ae7"])
    assert json_bars(ask(truth, "SelectMergeStacktraces", absent)["flamegraph"]) == {(): (0, 0)}
    plain = ask(truth, "SelectSeries", select(truth, step=60, exemplarType="EXEMPLAR_TYPE_NONE"))
    assert not any("exemplars" in p for p in plain["series"][0]["points"])


def heat(values):
    """The least value of each of 20 buckets of equal height."""
    least, most = min(values), max(values)
    return [least + int(i * (most - least) / 20) for i in range(20)]


@pytest.mark.parametrize("kind", ["INDIVIDUAL", "SPAN"])
def test_heat_map(truth, kind):
    of_spans = kind == "SPAN"
    shop = chosen(truth, "shop")
    values = {p: sum(v for _, v, labels in p.samples if "span_id" in labels) if of_spans else p.value for p in shop}
    answer = ask(truth, "SelectHeatmap", select(
        truth, step=60, groupBy=["env"], queryType=f"HEATMAP_QUERY_TYPE_{kind}",
        exemplarType=f"EXEMPLAR_TYPE_{kind}"))["series"]
    assert [s["labels"] for s in answer] == [[{"name": "env", "value": e}] for e in ("prod", "test")]
    lows = heat(values.values())
    for s in answer:
        want = {}
        for end, ps in steps(truth, chosen(truth, "shop", s["labels"][0]["value"]), 60000).items():
            counts = [0] * 20
            for p in ps:
                counts[max(i for i in range(20) if lows[i] <= values[p])] += 1
            want[end] = counts
        assert {int(slot["timestamp"]): slot["counts"] for slot in s["slots"]} == want
        for slot in s["slots"]:
            assert slot["yMin"] == lows
            assert len(slot["exemplars"]) == sum(c > 0 for c in slot["counts"])
            for e in slot["exemplars"]:
                p = next(p for p in shop if p.at == int(e["timestamp"]))
                assert int(e["value"]) == values[p]
                if of_spans:
                    assert e["spanId"] == p.samples[0][2]["span_id"]
                    assert e["traceId"] == p.samples[0][2]["trace_id"]
                else:
                    assert "spanId" not in e and uuid.UUID(e["profileId"])
    one = ask(truth, "SelectHeatmap", select(truth, step=60, groupBy=["env"], limit="1",
                                             queryType=f"HEATMAP_QUERY_TYPE_{kind}"))["series"]
    assert [s["labels"][0]["value"] for s in one] == ["prod"] and "exemplars" not in one[0]["slots"][0]
    for bad in ({"step": 0}, {"queryType": "HEATMAP_QUERY_TYPE_UNSPECIFIED"}, {"start": truth.end},
                {"exemplarType": "EXEMPLAR_TYPE_" + ("INDIVIDUAL" if of_spans else "SPAN")}):
        q = {**select(truth, step=60, queryType=f"HEATMAP_QUERY_TYPE_{kind}"), **bad}
        assert ask(truth, "SelectHeatmap", q, status=400)["code"] == "invalid_argument"


def test_averages(truth):
    """An average is the mean of the profiles of a step, and a sum is their sum."""
    shop = chosen(truth, "shop")
    for aggregation, of in (("SUM", sum), ("AVERAGE", lambda v: sum(v) / len(v))):
        points = ask(truth, "SelectSeries", select(
            truth, step=60, aggregation=f"TIME_SERIES_AGGREGATION_TYPE_{aggregation}"))["series"][0]["points"]
        want = {end: of([p.value for p in ps]) for end, ps in steps(truth, shop, 60000).items()}
        assert {int(p["timestamp"]): p["value"] for p in points} == pytest.approx(
            {t: v for t, v in want.items() if t <= truth.start + 2 * 60000})
    by = ask(truth, "SelectSeries", select(truth, step=60, labelSelector="{}", groupBy=["service_name"],
                                           aggregation="TIME_SERIES_AGGREGATION_TYPE_AVERAGE"))["series"]
    assert [s["labels"][0]["value"] for s in by] == ["cart", "shop"]
    assert all(7_000_000 <= p["value"] < 7_000_010 for p in by[0]["points"])


def test_averages_of_states(server):
    """Live memory: the average of a series is the mean of its states, over series the mean of all states."""
    at = (int(time.time()) - 600) // 60 * 60 * 1000
    states = {"a": [100, 300], "b": [1000]}
    for host, values in states.items():
        for i, v in enumerate(values):
            body = pprof([("main;keep", v, {})], ("inuse_space", "bytes"), ("space", "bytes"))
            t = at + 10000 * (i + 1)
            r = server.post("/ingest", body, name=f"db{{host={host}}}", format="pprof", **{"from": t, "until": t})
            assert r.status == 200, r.text
    types = ask(server, "ProfileTypes", {"start": at, "end": at + 60000})["profileTypes"]
    q = {"profileTypeID": types[0]["ID"], "labelSelector": '{service_name="db"}', "start": at, "end": at + 60000,
         "step": 60, "aggregation": "TIME_SERIES_AGGREGATION_TYPE_AVERAGE"}
    assert ask(server, "SelectSeries", q)["series"][0]["points"] == [
        {"timestamp": str(at + 60000), "value": pytest.approx(1400 / 3)}]
    by = ask(server, "SelectSeries", {**q, "groupBy": ["host"]})["series"]
    assert {s["labels"][0]["value"]: s["points"][0]["value"] for s in by} == {"a": 200, "b": 1000}


@pytest.mark.slow
def test_clickhouse(serve, backends, database):  # noqa: F811
    """The questions that read single profiles and links, over the other engine."""
    s = fill(serve("--store", backends("18.16").url(database)))
    test_spans(s)
    test_exemplars(s)
    test_averages(s)
    for kind in ("INDIVIDUAL", "SPAN"):
        test_heat_map(s, kind)


def test_ranges_and_types(truth):
    """A range that ends before it starts, and what is no type, are refused; a sixth part of a type is ignored."""
    span = {"start": truth.end, "end": truth.start}
    for method, more in (("ProfileTypes", {}), ("LabelNames", {}), ("LabelValues", {"name": "env"}), ("Series", {}),
                         ("AnalyzeQuery", {"query": "{}"})):
        assert ask(truth, method, {**span, **more}, status=400)["code"] == "invalid_argument"
    for method, more in (("SelectMergeStacktraces", {}), ("SelectMergeProfile", {}), ("SelectSeries", {"step": 60})):
        want = ask(truth, method, select(truth, **more))
        assert ask(truth, method, select(truth, profileTypeID=CPU + ":delta", **more)) == want
        for bad in (span, {"profileTypeID": ""}, {"profileTypeID": "cpu"}, {"profileTypeID": CPU + ":a:b"}):
            refused = ask(truth, method, {**select(truth, **more), **bad}, status=400)
            assert refused["code"] == "invalid_argument"
    assert truth.post(SERVICE + "ProfileTypes", b"{}", {"Content-Type": "text/plain"}).status == 415


def test_call_sites(truth):
    """Drilldown refines a cut part of a graph by its call site, and the series of a function likewise."""
    shop = chosen(truth, "shop")
    site = {"callSite": [{"name": "main"}, {"name": "work"}]}

    def below(stack, labels):
        return stack.startswith("main;work")

    graph = ask(truth, "SelectMergeStacktraces", select(truth, stackTraceSelector=site, maxNodes=16387))
    assert json_bars(graph["flamegraph"]) == tree_of(shop, below)
    points = ask(truth, "SelectSeries", select(truth, step=60, stackTraceSelector=site))["series"][0]["points"]
    want = {end: tree_of(ps, below)[()][0] for end, ps in steps(truth, shop, 60000).items()}
    assert {int(p["timestamp"]): p["value"] for p in points} == {
        t: v for t, v in want.items() if t <= truth.start + 2 * 60000}
    nowhere = {"callSite": [{"name": "work"}]}
    graph = ask(truth, "SelectMergeStacktraces", select(truth, stackTraceSelector=nowhere))
    assert json_bars(graph["flamegraph"]) == {(): (0, 0)}
    # For Go's compiler: the leaf and its caller; no line of the leaf.
    p = ask(truth, "SelectMergeProfile", select(truth, stackTraceSelector={
        "goPgo": {"keepLocations": 2, "aggregateCallees": True}}))
    locations = {x["id"]: x for x in p["location"]}
    functions = {x["id"]: p["stringTable"][int(x["name"])] for x in p["function"]}
    got = {}
    for s in p["sample"]:
        lines = [locations[i]["line"][0] for i in s["locationId"]]
        assert [x.get("line", "0") for x in lines] == ["0", "7"]
        key = tuple(functions[x["functionId"]] for x in lines)
        got[key] = got.get(key, 0) + int(s["value"][-1])
    tree = tree_of(shop)
    assert got == {("inner", "work"): tree["main", "work", "inner"][0], ("work", "main"): tree["main", "work"][1],
                   ("idle", "main"): tree["main", "idle"][0]}


def test_cut_graphs(truth):
    """Removed nodes are told by the name that clients look for."""
    graph = ask(truth, "SelectMergeStacktraces", select(truth, maxNodes=3))["flamegraph"]
    tree = tree_of(chosen(truth, "shop"))
    got = json_bars(graph)
    assert got[()] == tree[()] and got["main", "work"][0] == tree["main", "work"][0]
    assert got["main", "other"] == (tree["main", "idle"][0],) * 2
    assert got["main", "work", "inner"] == tree["main", "work", "inner"]
    assert ask(truth, "SelectMergeStacktraces", select(truth, maxNodes=(1 << 20) + 1), status=400)
    # In a diff the root is one of the nodes.
    diff = ask(truth, "Diff", {"left": select(truth, maxNodes=2), "right": select(truth)})["flamegraph"]
    below = tree["main",][0]
    levels = [[int(v) for v in level["values"]] for level in diff["levels"]]
    assert bars(diff["names"], levels, 7)["main", "other"] == (below, below, below, below)
    # Formats of newer versions than this one are answered as if there was none, as Connect does.
    for more in ({"format": "PROFILE_FORMAT_FUNCTIONS", "maxNodes": None},
                 {"format": "PROFILE_FORMAT_SANDWICH", "sandwichFunction": "work"}):
        answer = ask(truth, "SelectMergeStacktraces", select(truth, **more))
        assert json_bars(answer["flamegraph"]) == tree
    answer = ask(truth, "Diff", {"left": select(truth), "right": select(truth), "format": "PROFILE_FORMAT_FUNCTIONS",
                                 "maxNodes": None})
    assert set(answer) == {"flamegraph"}


def pprof_stacks(p):
    """{path from the root: value} of an answer in JSON."""
    names = {f["id"]: p["stringTable"][int(f["name"])] for f in p.get("function", [])}
    frames = {x["id"]: [names[line["functionId"]] for line in x["line"]] for x in p.get("location", [])}
    out = {}
    for s in p.get("sample", []):
        path = tuple(n for i in s["locationId"] for n in frames[i])[::-1]
        out[path] = out.get(path, 0) + int(s["value"][-1])
    return out


def test_cut_pprof(truth):
    """pprof data is complete unless maxNodes says otherwise; then it has the nodes of the flame graph."""
    tree = tree_of(chosen(truth, "shop"))
    want = {path: own for path, (_, own) in tree.items() if own}
    for more in ({}, {"maxNodes": 0}, {"maxNodes": -1}, {"maxNodes": 4}, {"maxNodes": str(2 ** 63 - 1)}):
        assert pprof_stacks(ask(truth, "SelectMergeProfile", select(truth, **more))) == want
    for nodes in (1, 2, 3):
        got = pprof_stacks(ask(truth, "SelectMergeProfile", select(truth, maxNodes=nodes)))
        graph = json_bars(ask(truth, "SelectMergeStacktraces", select(truth, maxNodes=nodes))["flamegraph"])
        assert got == {path: own for path, (_, own) in graph.items() if own}
        assert any(path[-1] == "other" for path in got) and sum(got.values()) == tree[()][0]
        again = ask(truth, "SelectMergeStacktraces", select(truth, maxNodes=nodes, format="PROFILE_FORMAT_PPROF"))
        assert pprof_stacks(again["pprof"]["profile"]) == got


def test_no_query_goes_on_without_its_client(truth):
    """profilecli asks for it with --async; "unimplemented" makes it say why it ends."""
    for kind, status in (("ASYNC_QUERY_TYPE_DISABLED", 200), ("ASYNC_QUERY_TYPE_FORCE", 501)):
        r = truth.post(SERVICE + "SelectMergeStacktraces", json.dumps(select(truth, **{"async": {"type": kind}})).encode(), DRILLDOWN)
        assert r.status == status, r.text
        assert status == 200 or r.json()["code"] == "unimplemented"


def test_trees_and_dot(truth):
    import base64

    answer = ask(truth, "SelectMergeStacktraces", select(truth, format="PROFILE_FORMAT_TREE"))
    data, out, parents, at = base64.b64decode(answer["tree"]), {}, [None], 0
    while parents:
        above = parents.pop()
        n, at = read_varint(data, at)
        name, at = data[at:at + n].decode(), at + n
        own, at = read_varint(data, at)
        children, at = read_varint(data, at)
        path = () if above is None else above + (name,)
        out[path] = own
        parents += [path] * children
    tree = tree_of(chosen(truth, "shop"))
    assert at == len(data) and out == {path: own for path, (_, own) in tree.items()}
    dot = ask(truth, "SelectMergeStacktraces", select(truth, format="PROFILE_FORMAT_DOT"))["dot"]
    assert dot.startswith("digraph") and all(f'label="{n}"' in dot for n in ("main", "work", "inner", "idle"))
    assert f'label="{tree["main", "work"][0]} (' in dot
    assert "dot" not in ask(truth, "SelectMergeStacktraces", select(
        truth, format="PROFILE_FORMAT_DOT", labelSelector='{service_name="none"}'))


# ---- Drilldown ----

def test_names(truth):
    """Services, their types, labels and values."""
    span = {"start": truth.start, "end": truth.end}
    sets = ask(truth, "Series", {**span, "labelNames": ["service_name", "__profile_type__"], "matchers": []})
    assert sets["labelsSet"] == [
        {"labels": [{"name": "__profile_type__", "value": CPU}, {"name": "service_name", "value": s}]}
        for s in ("cart", "shop")]
    assert ask(truth, "Series", {**span, "labelNames": ["nothing"]}) == {}
    everything = ask(truth, "Series", {**span, "matchers": ['{service_name="shop"}']})["labelsSet"]
    assert sorted(dict((p["name"], p["value"]) for p in s["labels"])["env"] for s in everything) == ["prod", "test"]
    matchers = [f'{{__profile_type__="{CPU}", service_name="shop"}}']
    assert "env" in ask(truth, "LabelNames", {**span, "matchers": matchers})["names"]

    def values(name, *m):
        return ask(truth, "LabelValues", {**span, "name": name, "matchers": list(m)}).get("names", [])

    assert values("env", *matchers) == ["prod", "test"]
    assert values("service_name", '{env="test"}', '{service_name!="x"}') == ["shop"]
    assert values("service_name", '{env="test"}', '{service_name="cart"}') == []
    for label, part in (("__name__", "process_cpu"), ("__type__", "cpu"), ("__unit__", "nanoseconds"),
                        ("__profile_type__", CPU)):
        assert values(label) == [part]
        assert values("service_name", f'{{{label}="{part}"}}') == ["cart", "shop"]
        assert values("service_name", f'{{{label}=~"{part[:3]}.*", env!~"te.*"}}') == ["cart", "shop"]
        assert values("service_name", f'{{{label}!="{part}"}}') == []
    assert values("service_name", 'process_cpu{env="test"}') == ["shop"]
    assert values("service_name", 'memory{env="test"}') == []
    assert values("nothing") == []
    assert values("__service_name__") == ["cart", "shop"]
    assert values("env", '{__service_name__="shop"}') == ["prod", "test"]
    assert "__service_name__" in ask(truth, "LabelNames", {**span, "matchers": matchers})["names"]
    assert {"name": "__service_name__", "value": "shop"} in everything[0]["labels"]
    by = ask(truth, "SelectSeries", {**select(truth, step=60, labelSelector="{}"), "groupBy": ["__service_name__"]})
    assert sorted(s["labels"][0]["value"] for s in by["series"]) == ["cart", "shop"]


def test_internal_labels_of_clients(server):
    """A session's number would make new series at each start of a program; Pyroscope drops it, and names the client."""
    at = (int(time.time()) - 60) * 1000
    for session in "12":
        r = server.post("/ingest", b"main 5\n", name=f"shop{{__session_id__={session},env=prod}}", format="folded",
                        spyName="gospy", **{"from": at, "until": at})
        assert r.status == 200, r.text
    sets = ask(server, "Series", {"start": at - 1000, "end": at + 1000, "matchers": [f'{{__profile_type__="{CPU}"}}']})
    labels, = [{p["name"]: p["value"] for p in s["labels"]} for s in sets["labelsSet"]]
    assert "__session_id__" not in labels and labels["pyroscope_spy"] == "gospy" and labels["env"] == "prod"


def test_render(truth):
    """Flame graph and timeline of the older API, times as Drilldown sends them."""
    want = tree_of(chosen(truth, "shop"))
    for path in ("/pyroscope/render", "/render"):
        r = truth.get(path, DRILLDOWN, query=f'{CPU}{{service_name="shop"}}', until=truth.end, aggregation="sum",
                      format="json", **{"from": truth.start, "max-nodes": 16384})
        assert r.status == 200, r.text
        a = r.json()
        graph = a["flamebearer"]
        assert bars(graph["names"], graph["levels"]) == want and graph["numTicks"] == want[()][0]
        assert graph["maxSelf"] == max(own for _, own in want.values())
        assert a["metadata"] == {"format": "single", "spyName": "", "sampleRate": 10 ** 9, "units": "samples",
                                 "name": "cpu"}
        line = a["timeline"]
        assert (line["startTime"], line["durationDelta"]) == (truth.start // 1000, STEP)
        assert line["samples"] == [sum(p.value for p in steps(truth, chosen(truth, "shop")).get(t, []))
                                   for t in range(truth.start, truth.end, STEP * 1000)]
        assert a["version"] == 1 and a["groups"] is None and a["heatmap"] is None
    by = truth.get("/pyroscope/render", query=f"{CPU}{{}}", until=truth.end, groupBy="service_name",
                   aggregation="avg", **{"from": truth.start}).json()
    assert set(by["groups"]) == {"shop", "cart"}
    first = steps(truth, chosen(truth, "cart"))
    at = (min(first) - truth.start) // (STEP * 1000)
    assert by["groups"]["cart"]["samples"][at] == first[min(first)][0].value
    dot = truth.get("/pyroscope/render", query=f"{CPU}{{}}", until="now", format="dot", **{"from": "now-1h"})
    assert dot.text.startswith("digraph") and '"inner"' in dot.text
    for bad in ({}, {"query": '{env="prod"}'}, {"query": f"{CPU}{{"}, {"query": CPU, "from": "yesterday"}):
        r = truth.get("/pyroscope/render", **bad)
        assert r.status == 400 and r.json()["code"] == "invalid_argument", r.text


def test_render_diff(truth):
    r = truth.get("/pyroscope/render-diff", DRILLDOWN, leftQuery=f'{CPU}{{service_name="shop", env="prod"}}',
                  leftFrom=truth.start, leftUntil=truth.end, rightQuery=f'{CPU}{{service_name="shop", env="test"}}',
                  rightFrom=truth.start, rightUntil=truth.end, **{"max-nodes": 16384})
    assert r.status == 200, r.text
    a = r.json()
    left, right = tree_of(chosen(truth, "shop", "prod")), tree_of(chosen(truth, "shop", "test"))
    got = {}
    names = a["flamebearer"]["names"]
    for level in a["flamebearer"]["levels"]:
        for i in range(0, len(level), 7):
            got[names[level[i + 6]]] = (level[i + 1], level[i + 2], level[i + 4], level[i + 5])
    paths = {"total": (), "main": ("main",), "work": ("main", "work"), "inner": ("main", "work", "inner"),
             "idle": ("main", "idle")}
    assert got == {name: left[p] + right.get(p, (0, 0)) for name, p in paths.items()}
    assert (a["leftTicks"], a["rightTicks"]) == (left[()][0], right[()][0])
    assert a["metadata"]["format"] == "double" and a["flamebearer"]["numTicks"] == left[()][0] + right[()][0]
    r = truth.get("/pyroscope/render-diff", leftQuery=CPU, rightQuery=MEMORY)
    assert r.status == 400 and "match" in r.json()["message"]
    assert truth.get("/pyroscope/label-values", label="__name__").json() == [CPU]
    assert truth.get("/pyroscope/label-values", label="env").json() == ["prod", "test"]
    assert truth.get("/pyroscope/label-values").status == 400


def test_analysis(truth):
    """The bytes are those of the query, by its share of the samples."""
    def of(query):
        return ask(truth, "AnalyzeQuery", {"query": query, "start": truth.start, "end": truth.end})

    everything, some = of(f"{CPU}{{}}"), of(f'{CPU}{{service_name="cart"}}')
    whole = int(everything["queryImpact"]["totalBytesInTimeRange"])
    assert whole == pytest.approx(truth.get("/api/v1/stats").json()["store"]["bytes"], rel=0.01)
    part = int(some["queryScopes"][0]["sampleCount"]) / int(everything["queryScopes"][0]["sampleCount"])
    assert 0 < part < 1
    assert int(some["queryImpact"]["totalBytesInTimeRange"]) == pytest.approx(whole * part, rel=0.01)
    assert int(some["queryImpact"]["totalQueriedSeries"]) == 1
    assert "totalBytesInTimeRange" not in of(f'{CPU}{{service_name="none"}}')["queryImpact"]


def test_extremes(truth):
    """Times, steps and numbers at their limits end in an answer or in a refusal, soon."""
    limits = (0, 1, -2 ** 63, 2 ** 63 - 1, truth.start)
    for start in limits:
        for end in limits:
            for step in (0.001, 60, 1e9):
                q = select(truth, start=str(start), end=str(end), step=step, limit=str(-2 ** 63))
                for method, more in (("SelectSeries", {"aggregation": "TIME_SERIES_AGGREGATION_TYPE_AVERAGE"}),
                                     ("SelectSeries", {"exemplarType": "EXEMPLAR_TYPE_SPAN"}),
                                     ("SelectHeatmap", {"queryType": "HEATMAP_QUERY_TYPE_SPAN", "limit": "1"})):
                    r = truth.post(SERVICE + method, json.dumps({**q, **more}).encode(), DRILLDOWN, timeout=10)
                    assert r.status in (200, 400), f"{method} {start} {end} {step}: {r.text}"
    # Far from all times a heat map still has the same profiles.
    wide = select(truth, start="1", end=str(2 ** 53), step=1e9, queryType="HEATMAP_QUERY_TYPE_INDIVIDUAL")
    slots = ask(truth, "SelectHeatmap", wide)["series"][0]["slots"]
    assert sum(sum(slot["counts"]) for slot in slots) == len(chosen(truth, "shop"))
    many = select(truth, profileIdSelector=[str(uuid.UUID(int=i)) for i in range(1001)])
    assert ask(truth, "SelectMergeStacktraces", many, status=400)["code"] == "invalid_argument"


def test_get(truth):
    """Connect's GET: the message is in the parameters."""
    import base64
    import gzip

    q = select(truth, maxNodes=100)
    want = ask(truth, "SelectMergeStacktraces", q)
    text = json.dumps(q).encode()
    path = SERVICE + "SelectMergeStacktraces"
    r = truth.get(path, connect="v1", encoding="json", message=text.decode())
    assert r.status == 200 and r.json() == want
    for data, more in ((text, {}), (gzip.compress(text), {"compression": "gzip"})):
        coded = base64.urlsafe_b64encode(data).decode().rstrip("=")
        assert truth.get(path, connect="v1", encoding="json", base64=1, message=coded, **more).json() == want
    coded = base64.urlsafe_b64encode(message(_1=truth.start, _2=truth.end)).decode()
    r = truth.get(SERVICE + "ProfileTypes", connect="v1", encoding="proto", base64=1, message=coded)
    assert r.headers["Content-Type"] == "application/proto"
    assert decode(decode(r.body)[1][0])[1] == [CPU.encode()]
    for bad in ({}, {"encoding": "json"}, {"message": "{}"}, {"encoding": "proto", "base64": 1, "message": "!"}):
        r = truth.get(path, connect="v1", **bad)
        assert r.status == 400 and r.json()["code"] == "invalid_argument", bad


def test_settings(serve, tmp_path):
    """What Drilldown keeps for all of its users; it survives a restart."""
    service = "/settings.v1.SettingsService/"
    where = tmp_path / "kept"
    s = serve("--data-dir", where)
    assert ask(s, "Get", {}, service) == {}
    value = json.dumps({"collapsedFlamegraphs": False, "maxNodes": 16384})
    done = ask(s, "Set", {"setting": {"name": "pluginSettings", "value": value}}, service)["setting"]
    assert done["value"] == value and abs(int(done["modifiedAt"]) - time.time() * 1000) < 60000
    ask(s, "Set", {"setting": {"name": "other", "value": "x\n"}}, service)
    kept = ask(s, "Get", {}, service)["settings"]
    assert {e["name"]: e["value"] for e in kept} == {"pluginSettings": value, "other": "x\n"}
    old = {"setting": {"name": "other", "value": "y", "modifiedAt": 5}}
    assert ask(s, "Set", old, service, status=409)["code"] == "already_exists"
    s.stop()
    tokens = tmp_path / "tokens"
    tokens.write_text("read reader-token-0123456789\nadmin writer-token-0123456789\n")
    tokens.chmod(0o600)
    s = serve("--data-dir", where, "--token-file", tokens)

    def call(method, body, token):
        return s.post(service + method, json.dumps(body).encode(), {**DRILLDOWN, "Authorization": f"Bearer {token}"})

    assert call("Get", {}, "reader-token-0123456789").json()["settings"] == kept
    assert call("Delete", {"name": "other"}, "reader-token-0123456789").status == 403
    assert call("Delete", {"name": "other"}, "writer-token-0123456789").json() == {}
    left = call("Get", {}, "reader-token-0123456789").json()["settings"]
    assert [e["name"] for e in left] == ["pluginSettings"]
    for method, body in (("Set", {}), ("Set", {"setting": {"value": "x"}}), ("Delete", {})):
        assert call(method, body, "writer-token-0123456789").json()["code"] == "invalid_argument"
    for i in range(2, 66):
        r = call("Set", {"setting": {"name": str(i), "value": "v"}}, "writer-token-0123456789")
        assert r.status == (200 if i < 65 else 429), r.text
    big = {"setting": {"name": "2", "value": "v" * (300 << 10)}}
    assert call("Set", big, "writer-token-0123456789").json()["code"] == "resource_exhausted"
    assert len(call("Get", {}, "reader-token-0123456789").json()["settings"]) == 64


def test_probes_need_no_token(serve, tmp_path):
    """Pyroscope's charts and profilecli ask /ready without a token."""
    tokens = tmp_path / "tokens"
    tokens.write_text("read reader-token-0123456789\n")
    tokens.chmod(0o600)
    s = serve("--token-file", tokens)
    assert (s.get("/ready").status, s.get("/ready").text) == (200, "ready\n")
    assert s.request("GET", "/ready", b"x").status == 401
    assert s.get("/api/v1/status/buildinfo").status == s.get("/pyroscope/render").status == 401


def test_server(server):
    """What clients ask about the server, and refusals as Connect says."""
    assert server.get("/ready").text == "ready\n"
    info = server.get("/api/v1/status/buildinfo").json()
    assert info["status"] == "success" and info["data"]["version"].startswith("culprit")
    assert ask(server, "Version", {}, "/version.v1.Version/") == {"QuerierAPI": "1"}
    flags = ask(server, "GetFeatureFlags", {}, "/capabilities.v1.FeatureFlagsService/")["featureFlags"]
    assert {f["name"]: f.get("enabled", False) for f in flags}["v2StorageLayer"] is True
    for service, method in (("/settings.v1.RecordingRulesService/", "ListRecordingRules"),
                            ("/settings.v1.RecordingRulesService/", "UpsertRecordingRule"),
                            ("/vcs.v1.VCSService/", "GithubApp"), ("/vcs.v1.VCSService/", "GetFile"),
                            ("/adhocprofiles.v1.AdHocProfileService/", "Upload"), (SERVICE, "Nothing")):
        refused = ask(server, method, {}, service, status=501)
        assert refused["code"] == "unimplemented" and method in refused["message"]
    for path in ("/labels", "/api/apps", "/pyroscope/labels"):
        r = server.get(path, query="x")
        assert r.status == 404 and "LabelNames" in r.text and "/label-values" in r.text
    assert server.get("/api/v1/nothing").status == 404 and server.post("/a/b", b"").status == 404
