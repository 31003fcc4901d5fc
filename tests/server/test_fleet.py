# SPDX-License-Identifier: Apache-2.0
# flake8: noqa: F811 (arguments have the names of imported fixtures)
"""Many agents and several culprit servers over one ClickHouse: requests are written in groups, and each counts once
whichever server it is repeated to (server/store/clickhouse/group.c)."""

import concurrent.futures
import signal
import time

import pytest

from clickhouse import Proxy, wait_for
from test_api import report
from test_clickhouse import any_backend, backends, counts, database, ingest, node  # noqa: F401
from test_ingest import otlp_request

POISON = b"poisonous"


class Watched(Proxy):
    """Refuses INSERTs of samples with the service POISON as ClickHouse refuses bad data, delays others by `delay_s`, and
    lists the number of bytes of each in `inserts`."""

    def __init__(self, backend):
        super().__init__(backend)
        self.delay_s, self.inserts, self.arrivals = 0, [], []

    def forward(self, handler, body):
        self.arrivals.append(time.monotonic())
        if "INSERT+INTO+samples" in handler.path or "INSERT%20INTO%20samples" in handler.path:
            time.sleep(self.delay_s)
            self.inserts.append(len(body))
            if POISON in body:
                handler.send_response(400)
                text = b"Code: 27. DB::Exception: Cannot parse input: bad data\n"
                handler.send_header("Content-Length", str(len(text)))
                handler.end_headers()
                handler.wfile.write(text)
                return
        super().forward(handler, body)


@pytest.fixture
def watched(node):
    p = Watched(node)
    yield p
    p.close()


def at_once(n, write):
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(write, range(n)))


def test_requests_at_the_same_time_are_written_together(watched, serve, database):
    s = serve("--store", watched.url(database))
    at, n = int(time.time()) - 100, 40
    watched.delay_s = 0.3
    answers = at_once(n, lambda k: ingest(s, "app.cpu", f"main;f{k} {k + 1}\n".encode(), at))
    assert [a.status for a in answers] == [200] * n
    assert counts(s, "app") == {f"app;main;f{k}": k + 1 for k in range(n)}
    assert len(watched.inserts) <= n // 4, watched.inserts
    assert s.get("/api/v1/stats").json()["store"]["rows"] == 2 * n  # of two types; markers are not samples


def test_a_lone_writer_does_not_wait(watched, serve, database):
    s = serve("--store", watched.url(database))
    at, n = int(time.time()) - 100, 10
    waits = []
    for k in range(n):
        watched.arrivals.clear()
        begin = time.monotonic()
        assert ingest(s, "app.cpu", f"main;f{k} 1\n".encode(), at).status == 200
        waits.append(watched.arrivals[0] - begin)
    assert len(watched.inserts) == n
    assert sorted(waits)[n // 2] < 0.5, waits  # until the server begins


def test_profiles_of_a_request_are_written_together(watched, serve, database):
    """Those of equal types are one profile; here each has a type of its own."""
    s = serve("--store", watched.url(database))
    at, types = int(time.time()) - 100, ["samples", "kind1", "kind2", "kind3"]

    def send(service, stacks):
        return s.request("POST", "/v1development/profiles", otlp_request(service, stacks, at * 10**9, types),
                         {"Content-Type": "application/x-protobuf"}, port=s.ports["otlp-http"])

    def sums(service):
        listed = s.get("/api/v1/types", query=f'{{service_name="{service}"}}', **{"from": 1}).json()["types"]
        out = []
        for e in listed:
            a = s.get("/api/v1/export", format="folded", query=f'{{service_name="{service}"}}', type=e["name"], **{"from": 1})
            out.append(sum(int(line.rpartition(" ")[2]) for line in a.text.splitlines()))
        return out

    for _ in range(2): # the second request writes nothing
        assert send("sent", {"main;a": 3, "main;b": 4}).status == 200
        assert len(watched.inserts) == 1, watched.inserts
        assert sums("sent") == [7] * len(types)
    # The client learns that ClickHouse refuses a part of the request.
    a = send("poisonous", {"main;a": 3})
    assert a.status == 500 and "bad data" in a.text, a.text
    answers = at_once(3, lambda k: send(f"more{k}", {"main;a": 1}))
    assert [a.status for a in answers] == [200] * 3
    assert [sums(f"more{k}") for k in range(3)] == [[1] * len(types)] * 3


def test_a_bad_request_fails_alone(watched, serve, database):
    s = serve("--store", watched.url(database))
    at, n = int(time.time()) - 100, 16
    watched.delay_s = 0.2
    answers = at_once(n, lambda k: ingest(s, "poisonous.cpu" if k == 5 else "app.cpu", f"main;f{k} 1\n".encode(), at))
    assert [a.status == 200 for a in answers] == [k != 5 for k in range(n)], [a.text for a in answers]
    assert "bad data" in answers[5].text
    assert counts(s, "app") == {f"app;main;f{k}": 1 for k in range(n) if k != 5}
    assert counts(s, "poisonous") == {}


def test_a_group_whose_answer_is_lost_is_repeated_elsewhere(watched, node, serve, database):
    """The requests come again to another server, in other groups, and count once."""
    a, b = serve("--store", watched.url(database, retry=0)), serve("--store", node.url(database))
    at, n = int(time.time()) - 100, 12
    watched.delay_s = 0.2
    watched.plan = lambda sql: "lose" if sql.startswith("INSERT INTO samples") else None

    def data(k):
        return f"main;f{k} {k + 1}\n".encode()

    answers = at_once(n, lambda k: ingest(a, "app.cpu", data(k), at))
    assert {x.status for x in answers} == {503}
    for k in range(n):
        assert ingest(b, "app.cpu", data(k), at).status == 200
        assert ingest(b, "other.cpu", data(k), at).status == 200
    want = {f"app;main;f{k}": k + 1 for k in range(n)}
    assert counts(b, "app") == want
    watched.plan = lambda sql: None
    assert {x.status for x in at_once(n, lambda k: ingest(a, "app.cpu", data(k), at))} == {200}
    assert counts(a, "app") == want


def test_a_repeated_request_counts_once_without_clickhouses_window(node, serve, database):
    """However many INSERTs came between, and after a restart: ClickHouse's own window is not needed."""
    servers = [serve("--store", node.url(database)) for _ in range(2)]
    if node.name != "18.16":
        for table in ("samples", "links", "spans"):
            node.query(f"ALTER TABLE {database}.{table} MODIFY SETTING non_replicated_deduplication_window = 0")
    at = int(time.time()) - 3000
    for k in range(3):
        assert ingest(servers[0], "app.cpu", b"main;a 3\n", at + 900 * k).status == 200
    servers.append(serve("--store", node.url(database)))
    servers[0].stop(signal.SIGKILL)
    for s in servers[1:]:
        for k in range(3):
            assert ingest(s, "app.cpu", b"main;a 3\n", at + 900 * k).status == 200
        assert counts(s, "app") == {"app;main;a": 9}


def test_killed_with_a_group_in_clickhouse(watched, node, serve, database):
    """Killed while ClickHouse has executed the INSERT of a group, which was not acknowledged."""
    a, b = serve("--store", watched.url(database)), serve("--store", node.url(database))
    at, n = int(time.time()) - 100, 8
    watched.delay_s = 0.2
    watched.plan = lambda sql: "hold" if sql.startswith("INSERT INTO samples") and len(watched.inserts) == 2 else None

    def send(k):
        try:
            return ingest(a, "app.cpu", f"main;f{k} {k + 1}\n".encode(), at).status
        except OSError:
            return 0

    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        pending = [pool.submit(send, k) for k in range(n)]
        wait_for(lambda: len(watched.inserts) == 2, "no second group")
        time.sleep(0.5)
        a.stop(signal.SIGKILL)
        statuses = [p.result() for p in pending]
    assert 0 in statuses
    for k in range(n):
        assert ingest(b, "app.cpu", f"main;f{k} {k + 1}\n".encode(), at).status == 200
    assert counts(b, "app") == {f"app;main;f{k}": k + 1 for k in range(n)}


def test_agents_are_known_to_all_servers(any_backend, serve, database):
    """Those that report to another server, and after a restart those of before it."""
    servers = [serve("--store", any_backend.url(database)) for _ in range(2)]

    def agents(s):
        return {a["host"]: a["samples"] for a in s.get("/api/v1/agents").json()["agents"]}

    def say(s, host, samples):
        report(s, **{"host.name": host, "culprit.agent.version": "1", "culprit.agent.samples": samples})

    # A server collects reports from the first exchange on, so repeat as agents do.
    def told():
        say(servers[0], "a", 1)
        say(servers[1], "b", 2)
        return all(agents(s) == {"a": 1, "b": 2} for s in servers)

    wait_for(told, "the servers do not know each other's agents")
    servers[1].stop(signal.SIGKILL)
    again = serve("--store", any_backend.url(database))
    wait_for(lambda: agents(again) == {"a": 1, "b": 2}, "the agents of before are not known")
    say(again, "a", 9)
    assert agents(again) == {"a": 9, "b": 2}
