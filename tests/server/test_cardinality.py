# SPDX-License-Identifier: Apache-2.0
"""A fleet of very many services, series and names: what questions about it cost, and which limits hold."""

import json
import os
import time

from clickhouse import Proxy
from test_clickhouse import backends, database, node  # noqa: F401 (fixtures)
from wire import field, varint

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"


def request(resources, at_ns):
    """Makes an OTLP request with one sample for each resource, a dict of attributes."""
    strings = ["", "cpu", "nanoseconds", "main", "work"]
    dictionary = field(1, b"") + field(2, b"") + field(2, field(3, field(1, 1))) + field(2, field(3, field(1, 2)))
    dictionary += field(3, b"") + field(3, field(1, 3)) + field(3, field(1, 4)) + field(4, b"")
    dictionary += b"".join(field(5, s) for s in strings) + field(6, b"") + field(7, b"")
    dictionary += field(7, field(1, varint(2) + varint(1)))
    profile = field(1, field(1, 1) + field(2, 2)) + field(2, field(1, 1) + field(4, varint(10**7)))
    profile += varint(3 << 3 | 1) + at_ns.to_bytes(8, "little") + field(4, 10**9)
    profile += field(5, field(1, 1) + field(2, 2)) + field(6, 10**7) + field(7, bytes(range(16)))
    profile = field(2, field(2, profile))

    def resource(attributes):
        return b"".join(field(1, field(1, k) + field(2, field(1, v))) for k, v in attributes.items())

    return b"".join(field(1, field(1, resource(r)) + profile) for r in resources) + field(2, dictionary)


def send(server, resources, at_ns):
    return server.post("/v1development/profiles", request(resources, at_ns), {"Content-Type": "application/x-protobuf"})


def cpu_s(server):
    """The CPU time of the server so far."""
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as f:
        numbers = f.read().rsplit(")", 1)[1].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def ask(server, path, **parameters):
    a = server.get(path, **parameters)
    assert a.status == 200, a.text
    return a.json()


def querier(server, method, **message):
    a = server.post(f"/querier.v1.QuerierService/{method}", json.dumps(message).encode(),
                    {"Content-Type": "application/json"})
    assert a.status == 200, a.text
    return a.json()


# Each takes at most a second on an idle machine. On a busy one the same work takes more CPU time, too. One scan for
# each service took 100 s.
MUST_S = 4


def test_questions_about_100000_services(serve):
    server = serve("--max-services", 200000)
    at = time.time_ns() - 60 * 10**9
    for k in range(5):
        a = send(server, [{"service.name": f"service-{k * 20000 + i}"} for i in range(20000)], at)
        assert a.status == 200 and a.body == b"", a.text
    span = {"from": at // 10**6 - 3600000, "to": at // 10**6 + 60000}
    pyroscope = {"start": span["from"], "end": span["to"]}
    selected = {**pyroscope, "profileTypeID": CPU, "labelSelector": "{}"}
    took = {}

    def timed(what, fn, *args, **more):
        before = cpu_s(server)
        answer = fn(server, *args, **more)
        took[what] = cpu_s(server) - before
        return answer

    tree = timed("flamegraph", ask, "/api/v1/flamegraph", max_nodes=100, **span)
    assert tree["nodes"]["total"][0] == 100000 * 10**7
    values = timed("label-values", ask, "/api/v1/label-values", label="service.name", **span)
    assert len(values["values"]) == 100000
    timed("types", ask, "/api/v1/types", **span)
    timed("labels", ask, "/api/v1/labels", **span)
    total = timed("series", ask, "/api/v1/series", **span)["series"]
    assert sum(p[1] for p in total[0]["points"]) == 100000 * 10**7
    timed("heatmap", ask, "/api/v1/heatmap", **span)
    timed("top", ask, "/api/v1/top", **span)
    one = timed("one service", ask, "/api/v1/flamegraph", query='{service_name="service-77777"}', **span)
    assert one["nodes"]["total"][0] == 10**7
    assert took["one service"] < 1
    names = timed("LabelValues", querier, "LabelValues", name="service_name", **pyroscope)["names"]
    assert len(names) == 100000
    timed("SelectSeries", querier, "SelectSeries", step=15, **selected)
    graph = timed("SelectMergeStacktraces", querier, "SelectMergeStacktraces", maxNodes=100, **selected)["flamegraph"]
    assert int(graph["total"]) == 100000 * 10**7
    assert all(s < MUST_S for s in took.values()), took


def test_clickhouse_is_asked_once_for_all_services(node, serve, database):  # noqa: F811 (fixtures)
    proxy, at, n = Proxy(node), time.time_ns() - 60 * 10**9, 300
    server = serve("--store", proxy.url(database))
    assert send(server, [{"service.name": f"service-{i}"} for i in range(n)], at).status == 200
    span = {"from": at // 10**6 - 3600000, "to": at // 10**6 + 60000}
    selected = {"start": span["from"], "end": span["to"], "profileTypeID": CPU, "labelSelector": "{}"}
    ask(server, "/api/v1/flamegraph", **span)
    proxy.seen.clear()
    assert ask(server, "/api/v1/flamegraph", **span)["nodes"]["total"][0] == n * 10**7
    assert len(ask(server, "/api/v1/label-values", label="service.name", **span)["values"]) == n
    assert len(ask(server, "/api/v1/series", group_by="service.name", **span)["series"]) == n
    assert int(querier(server, "SelectMergeStacktraces", maxNodes=100, **selected)["flamegraph"]["total"]) == n * 10**7
    assert len(proxy.seen) < n / 10, proxy.seen
    # Whether there is the type that is asked for is a question of its own only if nothing was found.
    asked = []
    for more in ({}, {"type": CPU}):
        proxy.seen.clear()
        ask(server, "/api/v1/series", **span, **more)
        asked.append(len(proxy.seen))
    assert asked[1] < asked[0], asked
    proxy.close()


# ---- limits ----

HOUR_MS = 3600000
OTHER_SERVICES, OTHER_SERIES, OTHER_STACKS = "(other services)", "(other series)", "[other stacks]"


def limited(server, kind):
    for line in server.get("/metrics").text.splitlines():
        if line.startswith(f'culprit_ingest_limited_total{{kind="{kind}"}}'):
            return int(float(line.rsplit(" ", 1)[1]))
    raise AssertionError(f"no counter of {kind}")


def around(at_ns):
    return {"from": at_ns // 10**6 - HOUR_MS, "to": at_ns // 10**6 + HOUR_MS}


def values(server, label, at):
    return {v["name"] for v in ask(server, "/api/v1/label-values", label=label, **around(at))["values"]}


def total(server, at, **more):
    return ask(server, "/api/v1/flamegraph", **around(at), **more)["nodes"]["total"][0]


def stand_ins(server, at, path="flamegraph", **more):
    a = ask(server, f"/api/v1/{path}", **around(at), **more)
    return (a["quality"] if "quality" in a else a)["limited"]


def test_services_beyond_the_limit(serve):
    server = serve("--max-services", 10)
    at = time.time_ns() - 60 * 10**9
    services = [{"service.name": f"service-{i}", "host.name": f"h{i}"} for i in range(30)]
    assert send(server, services[:10], at).body == b""
    a = send(server, services, at + 10**9)
    assert a.status == 200 and b'20 samples are stored as service "(other services)" (--max-services)' in a.body
    # Nothing is lost; what is known keeps its name.
    assert values(server, "service.name", at) == {s["service.name"] for s in services[:10]} | {OTHER_SERVICES}
    assert values(server, "host.name", at) == {s["host.name"] for s in services[:10]}
    assert total(server, at) == 40 * 10**7
    assert total(server, at, query=f'{{service_name="{OTHER_SERVICES}"}}') == 20 * 10**7
    assert total(server, at, query='{service_name="service-7"}') == 2 * 10**7
    assert limited(server, "services") == 20 and limited(server, "series") == 0
    # Answers that they take part in say so.
    for path, more in (("flamegraph", {}), ("top", {}), ("flamegraph", {"group_by": "host.name"}), ("labels", {}),
                       ("label-values", {"label": "host.name"}), ("series", {"group_by": "service.name", "step": 60000}),
                       ("heatmap", {"query": '{host_name=~"h.*"}'})):
        assert stand_ins(server, at, path, **more) == [OTHER_SERVICES], path
    assert stand_ins(server, at, query='{service_name="service-7"}') == stand_ins(server, at, "series") == []
    a = ask(server, "/api/v1/diff", **around(at), query='{service_name="service-7"}', base_query="{}")
    assert (a["quality"]["limited"], a["base"]["quality"]["limited"]) == ([], [OTHER_SERVICES])
    payload = server.get("/api/v1/payload", **around(at)).body
    assert OTHER_SERVICES.encode() in payload and b'"limited":' in payload
    assert b'"limited":' not in server.get("/api/v1/payload", **around(at), query='{service_name="service-7"}').body
    assert ask(server, "/api/v1/stats")["ingest"]["limited"]["services"] == 20
    # The log tells it once, not with every request.
    for k in range(5):
        assert b"--max-services" in send(server, services[20:], at + k).body
    assert server.stderr.count("--max-services") == 1
    assert send(server, services[:10], at + 2 * 10**9).body == b""


def test_series_beyond_the_limit(serve):
    server = serve("--max-series", 5)
    at = time.time_ns() - 60 * 10**9
    many = [{"service.name": "shop", "host.name": f"h{i}"} for i in range(12)]
    a = send(server, many + [{"service.name": "cart", "host.name": "h0"}], at)
    assert a.status == 200 and b'7 samples are stored as thread "(other series)" of their service (--max-series)' in a.body
    assert values(server, "host.name", at) == {f"h{i}" for i in range(5)}
    assert values(server, "thread.name", at) == {OTHER_SERIES}
    assert values(server, "service.name", at) == {"shop", "cart"}
    assert total(server, at, query='{service_name="shop"}') == 12 * 10**7
    assert total(server, at, query=f'{{thread_name="{OTHER_SERIES}"}}') == 7 * 10**7
    assert limited(server, "series") == 7
    # The sum of a service is right; by host, or of a host, it lacks samples.
    assert stand_ins(server, at) == stand_ins(server, at, query='{service_name="shop"}') == []
    for more in ({"group_by": "host.name"}, {"query": '{host_name="h1"}'}, {"query": '{service_name="shop",host_name!="h1"}'}):
        assert stand_ins(server, at, **more) == [OTHER_SERIES], more
        assert stand_ins(server, at, "series", **more) == [OTHER_SERIES], more
    assert stand_ins(server, at, query='{service_name="cart",host_name="h0"}') == []
    assert send(server, many[:5], at + 10**9).body == b""


def test_labels_beyond_the_limits(serve):
    server = serve("--max-labels", 8, "--max-label-bytes", 64)
    at = time.time_ns() - 60 * 10**9
    labels = {f"label-{i}": str(i) for i in range(40)}
    a = send(server, [{**labels, "service.name": "shop"}], at)
    assert a.status == 200 and b"33 labels were cut or left out" in a.body
    assert len(ask(server, "/api/v1/labels", **around(at))["labels"]) == 8
    assert values(server, "service.name", at) == {"shop"}
    # Two bytes a character: the cut is between characters.
    a = send(server, [{"service.name": "cart", "path": "x" + "\u00e9" * 100}], at)
    assert a.status == 200 and b"1 labels were cut" in a.body
    assert values(server, "path", at) == {"x" + "\u00e9" * 31 + "\u2026"}
    assert limited(server, "labels") == 34


def test_stacks_beyond_the_limit(serve):
    server = serve("--max-stacks", 3)
    at = int(time.time()) - 60
    text = "".join(f"main;work{i} {i}\n" for i in range(1, 9))
    sent = {"name": "shop.cpu{}", "from": at, "until": at + 1}
    a = server.post("/ingest", text.encode(), **sent)
    assert a.status == 200 and "culprit_ingest_limited_total" in a.headers["Culprit-Warning"]
    a = server.get("/api/v1/export", format="folded", **around(at * 10**9))
    kept = {line.rsplit(" ", 1)[0]: int(line.rsplit(" ", 1)[1]) // 10**7 for line in a.text.splitlines()}
    assert kept == {"shop;main;work8": 8, "shop;main;work7": 7, "shop;main;work6": 6, f"shop;{OTHER_STACKS}": 15}
    assert limited(server, "stacks") == 5
    assert stand_ins(server, at * 10**9) == stand_ins(server, at * 10**9, "top") == [OTHER_STACKS]
    assert stand_ins(server, at * 10**9, stacks='fn="work8"') == []
    a = server.post("/ingest", b"main;work1 1\n", **sent)
    assert a.status == 200 and "Culprit-Warning" not in a.headers
