# SPDX-License-Identifier: Apache-2.0
"""A fleet of very many services, series and names: what questions about it cost, and which limits hold."""

import json
import os
import time

from test_ingest import field, varint

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
    server = serve()
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
    assert took["one service"] < 0.3
    names = timed("LabelValues", querier, "LabelValues", name="service_name", **pyroscope)["names"]
    assert len(names) == 100000
    timed("SelectSeries", querier, "SelectSeries", step=15, **selected)
    graph = timed("SelectMergeStacktraces", querier, "SelectMergeStacktraces", maxNodes=100, **selected)["flamegraph"]
    assert int(graph["total"]) == 100000 * 10**7
    assert all(s < MUST_S for s in took.values()), took
