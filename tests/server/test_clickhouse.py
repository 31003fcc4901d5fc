# SPDX-License-Identifier: Apache-2.0
"""The store on ClickHouse: the real server of 18.16 that Debian packages, a current engine (chDB) behind
ClickHouse's HTTP interface, and a cluster of four real servers (clickhouse.py fetches and starts them).

One suite of tests runs over all stores (tests/unit/test_store.c). Besides, this file compares whole culprit servers
with one on SQLite, and kills processes between a write and its answer.
"""

import itertools
import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest

import test_growth
import test_traces

import clickhouse
from clickhouse import PASSWORD, Proxy, wait_for
from conftest import TOP
from test_ingest import otlp_request

BUILD = os.path.dirname(os.path.dirname(os.environ.get("CULPRIT") or os.path.join(TOP, "build/cli/culprit")))
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
_databases = itertools.count()


def need(path_and_why):
    path, why = path_and_why
    if not path:
        pytest.skip(why)
    return path


@pytest.fixture(scope="module")
def backends(tmp_path_factory):
    """Returns a function that returns a backend by name, and starts it at the first call."""
    started = {}

    def get(name):
        if name not in started:
            directory = tmp_path_factory.mktemp(f"clickhouse-{name}")
            if name == "18.16":
                started[name] = clickhouse.Server(need(clickhouse.old_server()), directory)
            elif name == "26":
                started[name] = clickhouse.Front(need(clickhouse.library()), directory)
            else:
                home, jars = need(clickhouse.old_server()), need(clickhouse.keeper_jars())
                keeper = clickhouse.Keeper(jars, f"{directory}/keeper")
                started[name] = clickhouse.Cluster(home, keeper, directory)
        return started[name]

    yield get
    for s in started.values():
        s.kill()


@pytest.fixture(params=["18.16", "26", pytest.param("cluster", marks=pytest.mark.slow)])
def any_backend(request, backends):
    return backends(request.param)


@pytest.fixture(params=["18.16", "26"])
def node(request, backends):
    return backends(request.param)


@pytest.fixture
def database():
    return f"test_{os.getpid()}_{next(_databases)}"


def ingest(server, name, text, at, **more):
    return server.post("/ingest", text, name=name, **{"from": at, "until": at + 1}, **more)


def counts(server, service, **more):
    a = server.get("/api/v1/export", format="folded", query=f'{{service_name="{service}"}}', type=CPU, **{"from": 1}, **more)
    assert a.status == 200, a.text
    return {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) // 10**7 for line in a.text.splitlines()}


# ---- the contract ----

@pytest.mark.parametrize("suite,least", [("store", 12), ("names", 6), ("spans", 4)])
def test_contract(any_backend, suite, least):
    """Runs the tests of all stores, with the same expectations as for SQLite."""
    url = any_backend.url("DATABASE").replace("%", "%25").replace("DATABASE", "%s").replace("%25", "%")
    r = subprocess.run([os.path.join(BUILD, f"tests/unit/test-{suite}"), "-j2"], capture_output=True, text=True, timeout=600,
                       env={**os.environ, "CULPRIT_TEST_STORE": url}, check=False)
    told = re.search(r"Tested: (\d+) \| Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)", r.stderr)
    assert told, r.stderr
    tested, passing, failing, crashing = map(int, told.groups())
    assert (failing, crashing) == (0, 0) and tested == passing >= least, r.stderr
    assert PASSWORD not in r.stderr


QUESTIONS = [("types", {"type": ""}), ("labels", {}), ("label-values", {"label": "service.name"}), ("label-values", {"label": "host.name"}),
             ("series", {"group_by": "service_name", "step": 1000}),
             ("series", {"stacks": 'fn="inner"', "step": 5000}),
             ("flamegraph", {}), ("flamegraph", {"query": '{service_name="shop"}', "stacks": 'fn~"in.*" under fn="main"'}),
             ("flamegraph", {"query": '{host_name=~"h[12]"}'}), ("top", {}), ("heatmap", {"column": 5000, "row": 500}),
             ("export", {"format": "folded"}), ("export", {"format": "folded", "query": '{service_name!="shop"}'})]


def fill(server, at):
    for i, (service, host, text) in enumerate([("shop", "h1", "main;work;inner 30\nmain;work 5\nmain;idle 10\n"),
                                                ("shop", "h2", "main;work;inner 3\nstart;loop 4\n"),
                                                ("cart", "h1", "main;other 7\nmain;work;inner 2\n")]):
        assert ingest(server, f"{service}.cpu{{host.name={host}}}", text.encode(), at + 7 * i).status == 200
    headers = {"Content-Type": "application/x-protobuf"}
    stacks = {"main;sent;inner": 9, "main;sent": 4, "a;b;c;d;e;f;g": 1}
    for k in range(3):
        data = otlp_request(f"sent{k % 2}", stacks, (at + 11 * k) * 10**9)
        a = server.request("POST", "/v1development/profiles", data, headers, port=server.ports["otlp-http"])
        assert a.status == 200, a.text


def test_it_answers_what_sqlite_answers(any_backend, serve, database):
    ours, sqlite = serve("--store", any_backend.url(database)), serve()
    at = int(time.time()) // 60 * 60 - 600
    for s in (ours, sqlite):
        fill(s, at)
    asked = 0
    for path, parameters in QUESTIONS:
        a, b = (s.get(f"/api/v1/{path}", **{"from": at * 1000 - 5000, "to": at * 1000 + 60000, "type": CPU, **parameters})
                for s in (ours, sqlite))
        assert (a.status, b.status) == (200, 200), f"{path} {parameters}: {a.text} {b.text}"
        if path == "export":
            assert sorted(a.text.splitlines()) == sorted(b.text.splitlines())
        else:
            assert a.json() == b.json(), path
        asked += len(a.body) > 20
    assert asked >= 11 # the questions had answers


def test_growth_is_what_sqlite_says(any_backend, serve, database):
    """Of processes of an agent, one after the other."""
    pasts = [test_growth.Past(serve("--store", any_backend.url(database))), test_growth.Past(serve())]
    pasts[1].begin = pasts[0].begin
    for past in pasts:
        agent = test_growth.Agent(past)
        for i in range(test_growth.N):
            agent.push(i, {100 + i // 30: {("leak", "main"): 2e6 + 30000 * i, ("main",): 1e6 + i * 7919 % 50000}})
    ours, sqlite = (past.growth(warmup=30) for past in pasts)
    assert test_growth.site(ours["rows"][0])["name"] == "leak" and ours["instances"]["used"] == 2
    assert ours == sqlite


def test_whole_hours_are_read_from_their_sums(node, serve, database):
    """Also in a database of an older culprit. The rest of the first and of the last hour counts, too."""
    proxy, hour = Proxy(node), 3600
    serve("--store", node.url(database)).stop()
    if node.name != "18.16":
        for name in ("by_stack", "by_series"):
            node.query(f"ALTER TABLE {database}.samples DROP PROJECTION {name} SETTINGS mutations_sync=1")
    node.query(f"DROP TABLE {database}.culprit_schema")
    node.query(f"CREATE TABLE {database}.culprit_schema (version UInt32, at UInt32) ENGINE = MergeTree ORDER BY version")
    node.query(f"INSERT INTO {database}.culprit_schema VALUES (2, 0)")
    ours, sqlite = serve("--store", proxy.url(database)), serve()
    base = int(time.time()) // hour * hour - 4 * hour
    for s in (ours, sqlite):
        for i, at in enumerate((0, 1, hour - 1, hour, 2 * hour - 1, 2 * hour, 2 * hour + 1, 3 * hour - 1)):
            text = f"main;work;at{i % 3} {1 << i}\nmain;idle {i}\n".encode()
            assert ingest(s, f"shop.cpu{{host.name=h{i % 2}}}", text, base + at).status == 200
    for begin, end in ((0, 3 * hour), (1, 3 * hour - 1), (hour, 2 * hour), (hour - 1, 2 * hour + 1), (1, hour - 1), (0, 1),
                       (hour + 1, 2 * hour - 1), (hour, 2 * hour - 1), (1, 2 * hour)):
        for path, parameters in (("flamegraph", {}), ("top", {"stacks": 'fn="at1"'}),
                                 ("flamegraph", {"query": '{host_name="h1"}'})):
            proxy.seen.clear()
            a, b = (s.get(f"/api/v1/{path}", **{"from": (base + begin) * 1000, "to": (base + end) * 1000, **parameters})
                    for s in (ours, sqlite))
            assert (a.status, b.status) == (200, 200), f"{path} {parameters}: {a.text} {b.text}"
            assert a.json() == b.json(), f"{path} {parameters} {begin} {end}"
            # No projection has sums of one host's stacks.
            asked = [q for q in proxy.seen if "FROM samples" in q and not ("series IN" in q and "stack" in q)]
            if (begin % hour, end % hour) == (0, 0) and node.name != "18.16":
                assert asked
                for q in asked:
                    node.query(q.replace("FORMAT RowBinary", "SETTINGS force_optimize_projection = 1 FORMAT Null"), database)
    proxy.close()


def test_a_range_whose_ends_add_nothing_is_read_as_whole_hours(node, serve, database):
    """The sums of whole hours answer a range up to now; what arrives past the range in that moment does not count."""
    proxy, hour = Proxy(node), 3600
    ours, writer = serve("--store", proxy.url(database)), serve("--store", node.url(database))
    base = int(time.time()) // hour * hour - 4 * hour

    def write(text, at):
        assert ingest(writer, "shop.cpu", text.encode(), base + at).status == 200

    def ask(begin, end):
        proxy.seen.clear()
        a = ours.get("/api/v1/export", **{"from": (base + begin) * 1000, "to": (base + end) * 1000, "query": '{service_name="shop"}',
                                          "format": "folded"})
        assert a.status == 200, a.text
        return sorted(line.split(";")[-1] for line in a.text.splitlines())

    for name, at in (("first", 600), ("middle", hour), ("last", 2 * hour + 600)):
        write(f"main;{name} 1\n", at)
    hours = ask(300, 2 * hour + 900)
    asked = [q for q in proxy.seen if "FROM samples" in q]
    assert [line.split()[0] for line in hours] == ["first", "last", "middle"] and asked
    for q in asked if node.name != "18.16" else []:
        assert "at <" not in q and "at >=" not in q
        node.query(q.replace("FORMAT RowBinary", "SETTINGS force_optimize_projection = 1 FORMAT Null"), database)

    def arrive(_):
        if "stack, sum(" in proxy.seen[-1]:
            proxy.plan = lambda _: None
            write("main;late 1\n", 2 * hour + 900)
            write("main;early 1\n", 299)

    proxy.plan = arrive
    assert ask(300, 2 * hour + 900) == hours and proxy.plan is not arrive
    assert ask(300, 2 * hour + 900) == hours
    assert [line.split()[0] for line in ask(299, 2 * hour + 901)] == ["early", "first", "last", "late", "middle"]
    proxy.close()


def test_a_type_is_chosen_by_what_it_has_in_the_range(node, serve, database):
    """Not by what the range's hours have."""
    s, hour = serve("--store", node.url(database)), 3600
    base = int(time.time()) // hour * hour - 2 * hour
    for kind, times in (("page_faults", (5, 6, 7)), ("context_switches", (8, 20, 21, 22, 23, hour - 1))):
        for at in times:
            assert ingest(s, f"shop.{kind}", f"main;{kind} 1\n".encode(), base + at).status == 200
    for end, kind in ((10, "page_faults"), (hour, "context_switches")):
        a = s.get("/api/v1/export", **{"from": base * 1000, "to": (base + end) * 1000, "format": "folded"})
        assert a.status == 200 and kind in a.text, a.text


def test_spans_are_answered_as_sqlite_answers(any_backend, serve, database):
    test_traces.START = int(time.time()) * 1000 - 120_000
    ours, sqlite = serve("--store", any_backend.url(database)), serve()
    spans, samples = test_traces.backtracking(200)
    for s in (ours, sqlite):
        assert test_traces.export(s, *spans).json() == {}
        assert test_traces.export(s, *({**x, "spanId": f"{i + 1:016x}"} for i, x in enumerate(spans[:3])),
                                  service="cart").json() == {}
        test_traces.profile(s, "shop", samples)
    trace = spans[7]["traceId"]
    for path, parameters in (("traces", {}), ("traces", {"service": "cart"}), ("traces", {"min_ms": 300, "limit": 2}),
                             ("traces", {"stacks": 'fn="regex"'}), ("traces", {"status": "error"}), (f"traces/{trace}", {}),
                             ("endpoints", {}), ("endpoints", {"stacks": 'fn="match"'}), ("slow", {"endpoint": "/mail"}),
                             ("flamegraph", {"trace": trace}), ("top", {"endpoint": "/mail", "service": "shop"}),
                             ("flamegraph", {"endpoint": "/mail", "max_ms": 100})):
        times = {} if path.startswith("traces/") else {"from": test_traces.START - 60000, "to": test_traces.START + 60000}
        a, b = (s.get(f"/api/v1/{path}", **times, **parameters) for s in (ours, sqlite))
        assert (a.status, b.status) == (200, 200), f"{path} {parameters}: {a.text} {b.text}"
        assert a.json() == b.json(), f"{path} {parameters}"



# ---- opening ----

def refused(executable, url):
    r = subprocess.run([executable, "server", "--store", url, "--listen", "127.0.0.1:0", "--otlp-grpc", "off",
                        "--otlp-grpc-old", "off", "--otlp-http", "off"],
                       capture_output=True, text=True, timeout=60, check=False)
    assert r.returncode not in (0, -signal.SIGSEGV, -signal.SIGABRT) and len(r.stderr.splitlines()) == 1, r.stderr
    assert "wrong-one" not in r.stderr + r.stdout and PASSWORD not in r.stderr + r.stdout
    return r.stderr


@pytest.mark.parametrize("url,text", [
    ("clickhouse://u:wrong-one@", "1 to 16 hosts"),
    ("clickhouse://u:wrong-one@/db", "1 to 16 hosts"),
    ("clickhouse://u:wrong-one@127.0.0.1:1/d-b", "letters, digits and _"),
    ("clickhouse://u:wrong-one@127.0.0.1:1/db?cluster=a'b", "letters, digits and _"),
    ("clickhouse://u:wrong-one@127.0.0.1:1/db?nothing=1", "unknown option 'nothing'"),
    ("clickhouse://u:wrong-one@127.0.0.1:1/db?retry=x", "a number"),
    ("clickhouse://u:wrong-one@127.0.0.1:1/db?password-file=/nowhere", "cannot read the password file"),
    ("clickhouse://u:wrong-one%0a@127.0.0.1:1/db", "a line break"),
    ("clickhouse://u:wrong-one@127.0.0.1:1 /db", "not of the form"),
    ("clickhouse://u:wrong-one@127.0.0.1:1/db?retry=0", "127.0.0.1:1/db: "),
])
def test_what_is_wrong_is_told_without_the_password(executable, url, text):
    assert text in refused(executable, url)


def test_passwords(executable, serve, node, database, tmp_path):
    wrong = node.url(database).replace(node.url("").split("@")[0].split("//")[1], "culprit:wrong-one")
    assert "check user and password" in refused(executable, wrong)
    (tmp_path / "password").write_text(PASSWORD + "\n")
    s = serve("--store", f"clickhouse://culprit@127.0.0.1:{node.port}/{database}?password-file={tmp_path}/password")
    assert s.get("/healthz").status == 200
    assert PASSWORD not in s.stderr + s.get("/api/v1/stats").text


def test_what_is_changed_there_loses_nothing(node, serve, database):
    """While a table is missing, clients are told to retry; afterwards the server goes on."""
    s = serve("--store", node.url(database, retry=0))
    at = int(time.time()) - 60
    node.query("RENAME TABLE samples TO away", database)
    a = ingest(s, "app.cpu", b"main 1\n", at)
    assert a.status == 503 and PASSWORD not in a.text, a.text
    node.query("RENAME TABLE away TO samples", database)
    assert ingest(s, "app.cpu", b"main 1\n", at).status == 200
    assert counts(s, "app") == {"app;main": 1}


def test_what_is_not_ours_is_left_alone(executable, node, database):
    node.query(f"CREATE DATABASE {database}")
    node.query(f"CREATE TABLE {database}.samples (x UInt8) ENGINE = MergeTree ORDER BY x")
    assert "choose another database" in refused(executable, node.url(database))
    assert node.query(f"SELECT name FROM system.tables WHERE database = '{database}'") == "samples\n"


def test_schema_versions(executable, serve, node, database):
    """An interrupted creation of the schema is completed; a schema of a later version is left alone."""
    serve("--store", node.url(database)).stop()
    node.query(f"DROP TABLE {database}.culprit_schema")
    node.query(f"CREATE TABLE {database}.culprit_schema (version UInt32, at UInt32) ENGINE = MergeTree ORDER BY version")
    node.query(f"DROP TABLE {database}.names")
    s = serve("--store", node.url(database))
    assert ingest(s, "app.cpu", b"main 1\n", int(time.time()) - 60).status == 200
    assert node.query(f"SELECT count() FROM {database}.names") == "0\n"
    s.stop()
    node.query(f"INSERT INTO {database}.culprit_schema VALUES (99, 0)")
    assert "newer culprit (version 99)" in refused(executable, node.url(database))


# ---- what was acknowledged is there, once ----

def test_answers_that_are_lost(node, serve, database):
    """ClickHouse has executed an INSERT, but its answer is lost: culprit repeats the INSERT, which counts once."""
    proxy = Proxy(node)
    s = serve("--store", proxy.url(database))
    at = int(time.time()) - 100
    for what in ("lose", "refuse", "drop"):
        for table in ("samples", "stacks", "functions", "series"):
            left = [2]

            def plan(sql, table=table, what=what, left=left):
                if not sql.startswith(f"INSERT INTO {table} ") or not left[0]:
                    return None
                left[0] -= 1
                return what

            proxy.plan = plan
            service = f"{what}-{table}"
            assert ingest(s, f"{service}.cpu", f"{service};main;a 3\n{service};b 4\n".encode(), at).status == 200
            assert left[0] == (1 if node.name == "18.16" and (what, table) == ("lose", "samples") else 0) # culprit queries first
            assert counts(s, service) == {f"{service};{service};main;a": 3, f"{service};{service};b": 4}
    proxy.close()


def test_killed_between_insert_and_answer(node, serve, database):
    """culprit is killed before it acknowledges a batch: the client sends the batch to another server."""
    proxy = Proxy(node)
    at = int(time.time()) - 100
    for k in range(3):
        s = serve("--store", proxy.url(database))
        proxy.plan = lambda sql: "hold" if sql.startswith("INSERT INTO samples") else None
        data = otlp_request("kept", {"main;a": 3 + k, "main;b": 1}, (at + k) * 10**9)
        headers = {"Content-Type": "application/x-protobuf"}
        sender = threading.Thread(target=lambda s=s, data=data: pytest.raises(OSError, s.request, "POST", "/v1development/profiles",
                                                                    data, headers, port=s.ports["otlp-http"]))
        sender.start()
        wait_for(lambda k=k: node.query(f"SELECT sum(value) FROM {database}.samples WHERE type LIKE '%:samples:%'")
                 == f"{sum(4 + i for i in range(k + 1))}\n", "it was not inserted")
        s.stop(signal.SIGKILL)
        sender.join(60)
        proxy.plan = lambda sql: None
        again = serve("--store", proxy.url(database))
        for _ in range(2):
            assert again.request("POST", "/v1development/profiles", data, headers, port=again.ports["otlp-http"]).status == 200
        again.stop()
    s = serve("--store", node.url(database))
    a = s.get("/api/v1/export", format="folded", **{"from": 1}, type="process_cpu:samples:count:cpu:nanoseconds").text
    assert sorted(a.splitlines()) == ["kept;main;a 12", "kept;main;b 3"]
    proxy.close()


@pytest.mark.slow
def test_clickhouse_is_killed(backends, serve, database):
    """ClickHouse is killed again and again while two clients write: acknowledged batches are there, once."""
    node = backends("18.16")
    s = serve("--store", node.url(database, retry=1))
    at, acknowledged, stop = int(time.time()) - 3000, {}, threading.Event()

    def client(c):
        for k in range(10**6):
            if stop.is_set():
                return
            data = f"main;c{c}_{k} {k + 1}\nmain;common 1\n".encode()
            while (a := ingest(s, "app.cpu", data, at + k)).status != 200: # the same bytes again
                assert a.status == 503, a.text
            acknowledged[f"app;main;c{c}_{k}"] = k + 1

    clients = [threading.Thread(target=client, args=(c,)) for c in range(2)]
    for t in clients:
        t.start()
    for i in range(6):
        before = len(acknowledged)
        wait_for(lambda before=before: len(acknowledged) >= before + 5, "no writes")
        node.kill()
        node.start(wait=False)
    wait_for(node.is_up, "ClickHouse does not come back")
    stop.set()
    for t in clients:
        t.join(60)
    found = counts(s, "app")
    assert found.pop("app;main;common") == len(acknowledged) > 30
    assert found == acknowledged


def test_several_servers_on_one_database(any_backend, serve, database):
    servers = [serve("--store", any_backend.url(database, grace=4)) for _ in range(3)]
    at = int(time.time()) - 5 * 86400 # a day that is rounded meanwhile
    for k in range(12):
        assert ingest(servers[k % 3], f"s{k % 2}.cpu", f"main;f{k} {k + 1}\n".encode(), at + k).status == 200
    want = {f"s{i};main;f{k}": k + 1 for i in range(2) for k in range(i, 12, 2)}

    def rounded():
        for s in servers:
            assert {**counts(s, "s0"), **counts(s, "s1")} == want # at every moment
        states = any_backend.query("SELECT state FROM partitions WHERE resolution = 10000", database).split()
        return "2" in states

    wait_for(rounded, "the day was not rounded", 120)
    rounded()


def test_deleted_hours_are_told(node, serve, database):
    """A day that alone exceeds --max-size loses its first hours."""
    s = serve("--store", node.url(database), "--max-size", "16")
    day = int(time.time()) // 86400 - 1
    date = time.strftime("%Y%m%d", time.gmtime(day * 86400))
    for _ in range(6):
        node.query("INSERT INTO samples (day, resolution, run, service, type, hour, stack, series, at, batch, count, value) "
                   f"SELECT toUInt32({date}), toUInt32(1), toUInt32(0), 'app', '{CPU}', toUInt32({day * 24} + number % 24), "
                   "rand64(1), rand64(2), toUInt32(number % 3600000), toUInt64(0), toUInt64(1), toInt64(1) FROM numbers(200000)",
                   database)
    wait_for(lambda: "deleted " in s.stderr, "nothing is deleted", 120)
    told = re.search(r"deleted (\d+) rows of samples from (\S+) 00:00 to (\S+) \d\d:59 UTC: the store has reached --max-size", s.stderr)
    assert told and told[2] == told[3] == time.strftime("%Y-%m-%d", time.gmtime(day * 86400)), s.stderr
    assert int(told[1]) >= 200000 // 5
    assert day * 86400_000 < s.get("/api/v1/health").json()["evicted_to"] < (day + 1) * 86400_000
    evicted = re.search(r"^culprit_store_evicted_rows_total (\d+)", s.get("/metrics").text, re.M)
    assert int(evicted[1]) >= int(told[1])


# ---- a cluster ----

@pytest.mark.slow
def test_a_service_is_on_all_shards(backends, serve, database):
    """Samples, their stacks, and after the day was rounded, too."""
    cluster = backends("cluster")
    s = serve("--store", cluster.url(database, grace=1))
    at = int(time.time()) - 100
    for when in (at, at - 5 * 86400):
        for k in range(20):
            assert ingest(s, "app.cpu", f"main;f{k} {k + 1}\n".encode(), when).status == 200
    whole = {f"app;main;f{k}": 2 * (k + 1) for k in range(20)}
    assert counts(s, "app") == whole
    wait_for(lambda: "2" in cluster.query("SELECT state FROM partitions WHERE resolution = 10000", database).split(),
             "the day was not rounded", 120)
    assert counts(s, "app") == whole
    for what in ("count() FROM samples_local WHERE run = 0", "count() FROM samples_local WHERE run != 0",
                 "count() FROM stacks_local"):
        n = [int(shard[0].query(f"SELECT {what}", database)) for shard in cluster.servers]
        assert min(n) >= 4, what
    for shard in cluster.servers:
        wait_for(lambda shard=shard: len({r.query("SELECT count(), sum(value) FROM samples_local", database) for r in shard}) == 1,
                 "replicas differ")


@pytest.mark.slow
def test_a_cluster_that_was_sharded_by_service(backends, serve, database):
    """A database of an older culprit: its rows stay, new rows go to all shards."""
    cluster = backends("cluster")
    serve("--store", cluster.url(database)).stop()
    for table in ("samples", "stacks"):
        cluster.query(f"DROP TABLE {table} ON CLUSTER fleet", database)
        cluster.query(f"CREATE TABLE {table} ON CLUSTER fleet AS {database}.{table}_local ENGINE = Distributed(fleet, {database}, "
                      f"{table}_local, cityHash64(service))", database)
    s = serve("--store", cluster.url(database))
    at = int(time.time()) - 100
    for k in range(10):
        assert ingest(s, "app.cpu", f"main;old{k} 1\n".encode(), at).status == 200
    s.stop()
    on = [int(shard[0].query("SELECT count() FROM samples_local WHERE type != ''", database)) for shard in cluster.servers]
    assert sorted(on) == [0, 20]
    for node in cluster.all:
        node.query("DROP TABLE culprit_schema", database)
    time.sleep(1)
    cluster.query("CREATE TABLE culprit_schema ON CLUSTER fleet (version UInt32, at UInt32) ENGINE = MergeTree ORDER BY version",
                  database)
    for node in cluster.all:
        node.query("INSERT INTO culprit_schema VALUES (3, 0)", database)
    s = serve("--store", cluster.url(database))
    for k in range(20):
        assert ingest(s, "app.cpu", f"main;new{k} 1\n".encode(), at).status == 200
    assert counts(s, "app") == {f"app;main;{x}": 1 for x in [*(f"old{k}" for k in range(10)), *(f"new{k}" for k in range(20))]}
    new = [int(shard[0].query("SELECT count() FROM samples_local WHERE type != ''", database)) - was
           for shard, was in zip(cluster.servers, on)]
    assert min(new) >= 4, new


@pytest.mark.slow
def test_replicas_are_read_evenly(backends, serve, database):
    """Hosts are asked in turn, and each of them asks replicas by chance; without one replica of each shard queries are
    answered without its delay."""
    cluster = backends("cluster")
    proxies = [Proxy(n) for n in cluster.all]
    url = cluster.url(database, **{"first-replica": 0})
    for n, proxy in zip(cluster.all, proxies):
        url = url.replace(f"127.0.0.1:{n.port}", f"127.0.0.1:{proxy.port}")
    s = serve("--store", url)
    at = int(time.time()) - 100
    for k in range(10):
        assert ingest(s, "app.cpu", f"main;f{k} {k + 1}\n".encode(), at).status == 200
    whole = {f"app;main;f{k}": k + 1 for k in range(10)}
    wait_for(lambda: all(r.query("SELECT sum(value) FROM samples", database) == cluster.query("SELECT sum(value) FROM samples", database)
                         for r in cluster.all), "replicas differ")
    wait_for(lambda: counts(s, "app") == whole, "not all is there")

    def scans(proxy):
        return sum(q.startswith("SELECT") and "FROM samples WHERE 1" in q for q in proxy.seen)

    def selects():
        return [int(n.query("SELECT value FROM system.events WHERE event = 'SelectQuery'")) for n in cluster.all]

    before, asked = selects(), [scans(p) for p in proxies]
    for _ in range(40):
        assert counts(s, "app") == whole
    asked = [scans(p) - was for p, was in zip(proxies, asked)]
    assert sum(asked) >= 40 and max(asked) - min(asked) <= 1, asked
    # A host answers for its own shard itself, and asks either replica of the other: a replica is asked 40 times of 80 by a
    # fair coin, less than 8 times once in 50,000 tests.
    done = [b - a for a, b in zip(before, selects())]
    assert min(done) >= min(asked) * 7 // 5, (asked, done)
    for shard in cluster.servers:
        shard[1].kill()
    assert counts(s, "app") == whole
    begin = time.monotonic()
    for _ in range(10):
        assert counts(s, "app") == whole
    assert time.monotonic() - begin < 20
    for shard in cluster.servers:
        shard[1].start(wait=False)
    for shard in cluster.servers:
        wait_for(shard[1].is_up, "it does not come back")
    for proxy in proxies:
        proxy.close()


@pytest.mark.slow
def test_a_replica_goes_and_comes_back(backends, serve, database):
    """The store works without one replica of each shard. Replicas that return get all data."""
    cluster = backends("cluster")
    s = serve("--store", cluster.url(database))
    at, n = int(time.time()) - 1000, 0

    def write(k):
        nonlocal n
        for _ in range(k):
            data = f"main;f{n} {n + 1}\n".encode()
            while (a := ingest(s, f"service{n % 5}.cpu", data, at + n)).status != 200:
                assert a.status == 503, a.text
            n += 1

    def whole():
        found = {}
        for i in range(5):
            found.update(counts(s, f"service{i}"))
        return found == {f"service{i % 5};main;f{i}": i + 1 for i in range(n)}

    write(10)
    assert whole()
    for k in range(2):
        for shard in cluster.servers:
            shard[k].kill()
        write(10)
        wait_for(whole, "not all is there")
        for shard in cluster.servers:
            shard[k].start(wait=False)
        for shard in cluster.servers:
            wait_for(shard[k].is_up, "it does not come back")
        for shard in cluster.servers:
            wait_for(lambda shard=shard: len({r.query("SELECT count(), sum(value) FROM samples_local", database)
                                              for r in shard}) == 1, "replicas differ")
    assert whole()


@pytest.mark.slow
def test_a_block_that_comes_again_in_a_cluster(backends, serve, database):
    cluster = backends("cluster")
    s = serve("--store", cluster.url(database))
    at = int(time.time()) - 100
    data = b"main;a 3\n"
    assert ingest(s, "one.cpu", data, at).status == 200
    s.stop()
    s = serve("--store", cluster.url(database)) # a new server without any state
    assert ingest(s, "one.cpu", data, at).status == 200
    assert counts(s, "one") == {"one;main;a": 3}
    assert json.loads(s.get("/api/v1/stats").text)["store"]["rows"] == 2 # of two types
