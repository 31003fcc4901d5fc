# SPDX-License-Identifier: Apache-2.0
"""The JSON API. Calls every route of doc/api/openapi.json with every parameter, and checks every answer against its
schema; then compares the content of answers with the stored samples."""

import gzip
import json
import os
import re
import time
import urllib.parse

import jsonschema
import pytest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
with open(f"{TOP}/doc/api/openapi.json", encoding="utf-8") as f:
    DOCUMENT = json.load(f)
FOLDED = b"main;work;inner 30\nmain;work 5\nmain;idle 10\n"
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
TICK = 10_000_000


def resolve(o):
    return resolve(DOCUMENT["components"][o["$ref"].split("/")[2]][o["$ref"].split("/")[3]]) if "$ref" in o else o


def check(answer, path, method="get"):
    """Checks that the document has the answer's status, and that the answer has the documented schema."""
    responses = DOCUMENT["paths"][path][method]["responses"]
    assert str(answer.status) in responses, f"{path}: {answer.status} is not in the document: {answer.text}"
    content = resolve(responses[str(answer.status)])["content"]
    kind = answer.headers["Content-Type"]
    assert kind in content or "*/*" in content, f"{path}: {kind}"
    schema = content.get(kind, content.get("*/*"))["schema"]
    if kind == "application/json" and "*/*" not in content:
        jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(answer.json())
    return answer


@pytest.fixture
def filled(server):
    at = int(time.time()) - 120
    for name, text in (("shop.cpu{env=prod,host.name=h1}", FOLDED), ("cart.cpu{env=test}", b"main;other 7\n")):
        assert server.post("/ingest", text, name=name, **{"from": at, "until": at + 10}).status == 200
    server.at = at
    return server


def get(server, path, **parameters):
    a = check(server.get(path, **parameters), path)
    assert a.status == 200, a.text
    return a.json()


def tree(answer):
    """Returns {path of names: (self, total, ...)}, and checks the rules of the columns."""
    n, names = answer["nodes"], answer["names"]
    assert all(len(c) == n["count"] for k, c in n.items() if k != "count")
    out, open_nodes = {}, []
    for i in range(n["count"]):
        while open_nodes and open_nodes[-1][0] < i:
            open_nodes.pop()
        path = (open_nodes[-1][1] if open_nodes else ()) + (names[n["name"][i]],)
        assert i == 0 or open_nodes
        assert path not in out
        out[path] = (n["self"][i], n["total"][i], *((n["base_self"][i], n["base_total"][i]) if "base_self" in n else ()))
        open_nodes.append((i + n["below"][i], path))
    for path, (self, total, *_) in out.items():
        assert total == self + sum(v[1] for p, v in out.items() if p[:-1] == path)
    return out


# ---- culprit's own samples ----

def test_samples_of_culprit_itself_can_be_left_out(server):
    """The selector that the page uses; a store that no agent fills knows the label, too."""
    at = int(time.time()) - 120

    def total(query):
        return get(server, "/api/v1/top", query=query, type=CPU)["total"]

    def push(name, text):
        assert server.post("/ingest", text, name=name, **{"from": at, "until": at + 10}).status == 200
    push("shop.cpu", b"main;work 30\n")
    assert total('{culprit.self!="true"}') == 30 * TICK
    assert total('{culprit_self="true"}') == 0
    push("culprit.cpu{culprit.self=true}", b"main;read 7\n")
    assert total("{}") == 37 * TICK
    assert total('{culprit.self!="true"}') == total('{culprit_self!="true"}') == 30 * TICK
    assert total('{culprit.self="true"}') == 7 * TICK


# ---- agents ----

def table(name):
    """{name: strings of the row} of a table in abi/tbl."""
    with open(f"{TOP}/abi/tbl/{name}.tbl", encoding="ascii") as f:
        rows = re.findall(r"^[A-Z_]+\((.*)\)$", f.read(), re.M)
    return {strings[0]: strings for strings in (re.findall(r'"([^"]*)"', row) for row in rows)}


def report(server, **labels):
    """Sends a profile of one sample, with these labels as the agent's report."""
    attributes = [{"key": k, "value": {"stringValue": str(v)}} for k, v in labels.items()]
    kind = {"typeStrindex": 1, "unitStrindex": 2}
    at = str(int(time.time() * 1e9))
    one = {"sampleType": kind, "periodType": kind, "period": "1", "timeUnixNano": at,
           "samples": [{"stackIndex": 1, "values": ["1"], "timestampsUnixNano": [at]}]}
    body = {"resourceProfiles": [{"scopeProfiles": [{"scope": {"name": "culprit", "attributes": attributes}, "profiles": [one]}]}],
            "dictionary": {"mappingTable": [{}], "attributeTable": [{}], "linkTable": [{}],
                           "stackTable": [{}, {"locationIndices": [1]}], "locationTable": [{}, {"lines": [{"functionIndex": 1}]}],
                           "functionTable": [{}, {"nameStrindex": 3}], "stringTable": ["", "cpu", "nanoseconds", "main"]}}
    a = server.request("POST", "/v1development/profiles", json.dumps(body).encode(), {"Content-Type": "application/json"})
    assert a.status == 200 and a.json() == {}, a.text


def test_every_row_of_the_tables_is_told_of_an_agent(server):
    """Each counter with its loss, unit and sentence, and each reason of a drop with its sentence, as in the tables."""
    losses = {"NONE": "counted", "SAMPLE": "lost", "STACK": "incomplete"}
    with open(f"{TOP}/abi/tbl/counter.tbl", encoding="ascii") as f:
        loss_of = {name: losses[loss] for name, loss in re.findall(r'^COUNTER\(\w+, "(\w+)", "\w+", (\w+),', f.read(), re.M)}
    counters, drops = table("counter"), table("export_drop")
    assert counters.keys() == loss_of.keys() and len(counters) > 10 and len(drops) > 5
    counts = {name: 100 + i for i, name in enumerate([*counters, *drops])}
    report(server, **{"host.name": "h", "culprit.agent.version": "1", "culprit.agent.rate.cpu-clock": 19,
                      "culprit.agent.period.page-faults": 100, "culprit.agent.period.sched:sched_switch": 1,
                      "culprit.agent.dropped_samples": 77, "culprit.agent.dropped.newer": 3, "culprit.agent.lost.newer": 4},
           **{f"culprit.agent.{loss_of[name]}.{name}": counts[name] for name in counters},
           **{f"culprit.agent.dropped.{name}": counts[name] for name in drops})
    [a] = get(server, "/api/v1/agents")["agents"]
    assert {c["name"]: (c["unit"], c["help"], c["loss"], c["count"]) for c in a["counters"]} == {
        "newer": ("", "", "lost", 4), **{name: (*row[1:], loss_of[name], counts[name]) for name, row in counters.items()}}
    assert {d["reason"]: (d["help"], d["profiles"]) for d in a["drops"]} == {
        "newer": ("", 3), **{name: (row[1], counts[name]) for name, row in drops.items()}}
    assert {s["event"]: (s["label"], s["hz"], s["period"]) for s in a["sources"]} == {
        "cpu-clock": ("CPU", 19, 0), "page-faults": ("Page faults", 0, 100), "sched:sched_switch": ("sched:sched_switch", 0, 1)}
    assert a["dropped"] == 77


# ---- the document ----

def test_document_is_openapi():
    """The document follows those rules of OpenAPI that can be checked without a validator: references, ids, parameters."""
    assert DOCUMENT["openapi"].startswith("3.1")
    refs = re.findall(r'"\$ref": ?"#/components/(\w+)/(\w+)"', json.dumps(DOCUMENT))
    assert refs and all(name in DOCUMENT["components"][kind] for kind, name in refs)
    ids = [o["operationId"] for p in DOCUMENT["paths"].values() for o in p.values()]
    assert len(ids) == len(set(ids))
    for path, methods in DOCUMENT["paths"].items():
        for o in methods.values():
            names = [resolve(p)["name"] for p in o.get("parameters", [])]
            assert len(names) == len(set(names)), path
            assert all(resolve(r)["description"] for r in o["responses"].values())
    for s in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(s)


def test_document_is_served_and_whole(server):
    assert server.get("/api/v1/openapi.json").json() == DOCUMENT
    # The routes of the server's JSON API are those of the document.
    routed = set()
    for name in ("page", "views", "agents", "source", "assembly", "symbols", "traces", "slow", "cost", "growth", "overview", "lanes", "tasks", "policies",
                 "measurements", "settings", "analysis", "endpoints", "notes", "moments"):
        with open(f"{TOP}/server/api/{name}.c", encoding="utf-8") as f:
            routed |= set(re.findall(r'\{"GET", "([^"]+)"', f.read())) - {"/", "/ui/{name}"}
    documented = {p for p, m in DOCUMENT["paths"].items() if "get" in m}
    assert routed == documented


def test_page_and_its_scripts(server):
    page = server.get("/")
    scripts = re.findall(r'(?:src|href)="(ui/[^"]+)"', page.text)
    assert len(scripts) == len(set(scripts)) >= 2 and "script-src 'self'" in page.headers["Content-Security-Policy"]
    for name in scripts:
        a = server.get("/" + name)
        assert a.status == 200 and a.headers["Content-Type"].startswith("text/javascript")
        assert "immutable" in a.headers["Cache-Control"] and a.headers["X-Content-Type-Options"] == "nosniff"
        # What it imports is there, too.
        for other in re.findall(r'(?:from|import|import\()"\./([^"]+)"', a.text):
            assert server.get("/ui/" + other).status == 200
        assert server.get("/" + name, headers={"If-None-Match": a.headers["ETag"]}).status == 304
        assert gzip.decompress(server.get("/" + name, headers={"Accept-Encoding": "gzip"}).body).decode() == a.text
    for name in ("nothing.js", "live.html", "..", "%2e%2e%2fetc"):
        assert server.get("/ui/" + name).status == 404


EXAMPLES = {"query": '{env="prod"}', "type": CPU, "also": CPU, "stacks": 'fn="work"', "from": "now-1h", "to": "now", "label": "env",
            "step": "1000", "group_by": "env", "functions": "3", "limit": "2", "search": "GET", "offset": "1", "column": "60000", "row": "30000", "format": "folded",
            "max_nodes": "100", "max_stacks": "100", "file": "/main.c", "function": "main", "build_id": "00",
            "service": "shop", "endpoint": "GET /buy", "min_ms": "1", "max_ms": "1000", "status": "ok",
            "slow": "90", "by": "function", "middle_from": "10", "middle_to": "60", "warmup": "60", "trace": "0af7651916cd43dd8448eb211c80319c", "span": "b7ad6b7169203331"}


# test_symbols.py, test_traces.py and test_tasks.py call the routes with a variable part.
@pytest.mark.parametrize("path", [p for p, m in DOCUMENT["paths"].items() if "get" in m and "{" not in p])
def test_every_route(filled, path):
    """Calls the route without parameters, and with each parameter of the document, alone and together."""
    parameters = [resolve(p) for p in DOCUMENT["paths"][path]["get"].get("parameters", [])]
    names = [p["name"] for p in parameters]
    needed = {p["name"]: EXAMPLES[p["name"]] for p in parameters if p.get("required") or p["name"] in ("label", "file", "function")}

    orders = [p["schema"]["default"] for p in parameters if p["name"] == "order"]

    def value(name):
        name = name.removeprefix("base_")
        return orders[0] if name == "order" else EXAMPLES.get(name, "true")

    assert check(filled.get(path, **needed), path).status == 200
    for name in names:
        extra = {"column": "60000"} if name == "row" else {"row": "1000"} if name == "column" and "row" in names else {}
        if name in ("base_type", "also"):
            extra = {"type": CPU}
        if name == "to":
            extra = {"from": "now-1h"}
        if name == "diff":
            extra = {"format": "folded"}  # pprof, the default format, has only one side
        if name in ("span", "base_span"):
            extra["trace"] = EXAMPLES["trace"]
        a = check(filled.get(path, **{**needed, **extra, name: value(name)}), path)
        assert a.status == 200, f"{path} {name}: {a.text}"
    # Lines are of labels or of functions.
    a = check(filled.get(path, **{n: value(n) for n in names if n != "functions"}), path)
    assert a.status == 200, a.text
    if "post" not in DOCUMENT["paths"][path]:
        assert filled.post(path, b"").status == 405


def test_every_post_route(filled):
    a = filled.request("POST", "/api/v1/upload", b"a;b 1\n", {"Content-Type": "application/octet-stream"})
    assert check(a, "/api/v1/upload", "post").status == 200
    for data in (b"", b"nonsense"):
        a = filled.request("POST", "/api/v1/upload", data, {"Content-Type": "application/octet-stream"})
        assert check(a, "/api/v1/upload", "post").status == 400
    for kind, body in (("application/x-protobuf", b""), ("application/json", b"{}")):
        for path in ("/v1development/profiles", "/v1/traces"):
            assert check(filled.request("POST", path, body, {"Content-Type": kind}), path, "post").status == 200


def test_convert(filled):
    """Converts a file to another format and to the page's data. The store does not change."""
    before = get(filled, "/api/v1/stats")["store"]
    folded = b"a;b 3\na;c 4\n"
    kind = {"Content-Type": "application/octet-stream"}

    def convert(body, encoding=None, **parameters):
        headers = {**kind, "Content-Encoding": encoding} if encoding else kind
        query = urllib.parse.urlencode(parameters)
        return check(filled.request("POST", "/api/v1/convert" + (f"?{query}" if query else ""), body, headers),
                     "/api/v1/convert", "post")

    assert convert(folded).body.startswith(b"CULPRIT1")
    assert sorted(convert(folded, format="folded").text.split("\n")[:-1]) == ["a;b 3", "a;c 4"]
    pprof = convert(gzip.compress(folded), "gzip", format="pprof").body
    assert sorted(convert(pprof, format="folded").text.split("\n")[:-1]) == ["a;b 3", "a;c 4"]
    assert convert(folded, from_format="folded", format="folded", inverted="true").status == 200
    for body, parameters in ((b"", {}), (b"\0\1", {}), (folded, {"format": "nothing"}), (folded, {"from_format": "pprof"})):
        assert convert(body, **parameters).status == 400
    after = get(filled, "/api/v1/stats")["store"]
    assert (after["rows"], after["stacks"], after["functions"]) == (before["rows"], before["stacks"], before["functions"])


SPEEDSCOPE = {"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {"frames": []},
              "profiles": [{"type": "sampled", "name": "x", "unit": "none", "startValue": 0, "endValue": 10,
                            "samples": [[0, 1], [0, 1, 1], [0, 2], [0]], "weights": [4, 3, 2, 1]}]}


def test_source(serve, tmp_path):
    """The answer has values of lines, and the text only of a sampled file that every user may read."""
    server = serve("--source-roots", f"{tmp_path}:/proc:/etc")

    def ask(file):
        return get(server, "/api/v1/source", file=str(file), type="", **{"from": "now-1h"})

    os.chmod(tmp_path, 0o755)
    text = tmp_path / "app.c"
    text.write_text("one\n\ttwo \"2\"\nthree")
    frames = [{"name": "main", "file": str(text), "line": 1}, {"name": "work", "file": str(text), "line": 2},
              {"name": "odd", "file": str(text)}]
    body = json.dumps({**SPEEDSCOPE, "shared": {"frames": frames}}).encode()
    now = int(time.time() * 1000)
    a = server.request("POST", f"/api/v1/upload?from={now - 1000}&to={now}", body, {"Content-Type": "application/json"})
    assert a.status == 200, a.text
    # pytest's folders belong to one user, and others cannot reach the file.
    parents = [p for p in text.parents if not os.stat(p).st_mode & 1]
    hidden = ask(text)
    if parents:
        assert hidden["text"] == [] and "every user" in hidden["why"]
        for p in parents:
            os.chmod(p, os.stat(p).st_mode | 1)
    try:
        s = ask(text)
        assert s["text"] == ["one", '        two "2"', "three"] and s["why"] == ""
        assert (s["all"], s["self"], s["total"]) == (10, 10, 10)
        assert s["lines"] == hidden["lines"] == [[0, 2, 2], [1, 1, 10], [2, 7, 7]]
        os.chmod(text, 0o640)
        s = ask(text)
        assert s["text"] == [] and "every user" in s["why"] and s["lines"]
        os.chmod(text, 0o644)
        text.write_bytes(b"\0binary")
        assert "no text" in ask(text)["why"]
        text.write_bytes(b"x" * (5 << 20))
        assert "4 MiB" in ask(text)["why"]
        text.unlink()
        os.mkfifo(text)
        assert ask(text)["text"] == []
        text.unlink()
        text.mkdir()
        assert ask(text)["text"] == []
        # A file that no sample names is not read.
        for other in ("/etc/passwd", "/etc/shadow", "../../etc/passwd", "/proc/self/environ", "app.c"):
            s = ask(other)
            assert (s["text"], s["lines"], s["total"]) == ([], [], 0), other
    finally:
        for p in parents:
            os.chmod(p, os.stat(p).st_mode & ~1)
    assert server.get("/api/v1/source").status == 400


# ---- the content of answers ----

def test_what_there_is(filled):
    assert {t["name"] for t in get(filled, "/api/v1/types")["types"]} == {
        CPU, "process_cpu:samples:count:cpu:nanoseconds"}
    assert {n["name"] for n in get(filled, "/api/v1/labels")["labels"]} >= {"service.name", "env", "host.name"}
    values = get(filled, "/api/v1/label-values", label="service.name")["values"]
    assert {v["name"] for v in values} == {"shop", "cart"}
    assert [v["name"] for v in get(filled, "/api/v1/label-values", label="service_name",
                                   query='{host_name="h1"}')["values"]] == ["shop"]


def test_flamegraph(filled):
    a = get(filled, "/api/v1/flamegraph", query='{service_name="shop"}', type=CPU)
    assert (a["type"], a["unit"], a["quality"]["samples"]) == ("cpu", "nanoseconds", 45)
    t = tree(a)
    assert t[("all", "shop", "main", "work")] == (5 * TICK, 35 * TICK)
    assert t[("all",)] == (0, 45 * TICK) and len(t) == 6
    t = tree(get(filled, "/api/v1/flamegraph", type=CPU, no_process="true"))
    assert t[("all", "main")] == (0, 52 * TICK)
    t = tree(get(filled, "/api/v1/flamegraph", type=CPU, inverted="true", no_process="true"))
    assert t[("all", "inner", "work")] == (0, 30 * TICK)
    t = tree(get(filled, "/api/v1/flamegraph", type=CPU, stacks='fn="inner"'))
    assert t[("all",)] == (0, 30 * TICK)


def test_first_level(filled):
    """Groups by any label. Samples without the label are a group, and none is lost or counted twice."""
    by_service = tree(get(filled, "/api/v1/flamegraph", type=CPU))
    for label in ("host.name", "host_name", "env", "thread.name"):
        t = tree(get(filled, "/api/v1/flamegraph", type=CPU, group_by=label))
        assert t[("all",)] == by_service[("all",)]
        first = {p[1]: v[1] for p, v in t.items() if len(p) == 2}
        lines = get(filled, "/api/v1/series", type=CPU, group_by=label, step=str(366 * 86400000))["series"]
        assert first == {line["labels"][label] or f"[no {label}]": sum(p[1] for p in line["points"]) for line in lines}
    same = tree(get(filled, "/api/v1/flamegraph", type=CPU, group_by="service.name"))
    assert same == by_service
    t = tree(get(filled, "/api/v1/flamegraph", type=CPU, max_nodes=4))
    assert t[("all",)] == (0, 52 * TICK) and any(p[-1] == "[other]" for p in t)


@pytest.mark.parametrize("keep", [1, 2, 3, 5, 8, 13, 40])
def test_pruning_keeps_every_sum(server, keep):
    lines = [f"{';'.join(f'f{(i * k) % 7}' for k in range(1, 2 + i % 6))} {1 + i % 9}" for i in range(60)]
    assert server.post("/ingest", "\n".join(lines).encode(), name="x").status == 200
    whole = tree(get(server, "/api/v1/flamegraph", type=CPU))
    part = tree(get(server, "/api/v1/flamegraph", type=CPU, max_nodes=keep))
    kept = {p: v for p, v in part.items() if p[-1] != "[other]"}
    assert len(kept) <= keep and len(kept) >= min(keep, len(whole))
    for path, (_, total) in kept.items():
        assert whole[path][1] == total
    assert sum(v[0] for v in part.values()) == sum(v[0] for v in whole.values())
    lightest = min(v[1] for v in kept.values())
    assert all(v[1] <= lightest for p, v in whole.items() if p not in kept)


def test_top(filled):
    a = get(filled, "/api/v1/top", query='{service_name="shop"}', type=CPU)
    rows = {r["name"]: (r["self"], r["total"]) for r in a["rows"]}
    assert rows == {"inner": (30 * TICK, 30 * TICK), "idle": (10 * TICK, 10 * TICK), "work": (5 * TICK, 35 * TICK),
                    "main": (0, 45 * TICK)}
    assert a["total"] == 45 * TICK
    first = a["rows"][0]
    # Wilson's interval for 30 of 45.
    assert abs(first["self_share_low"] - 0.5206) < 0.001 and abs(first["self_share_high"] - 0.7866) < 0.001


def test_series_by_the_function_that_ran(filled):
    """The lines add up to the sum of all samples; a predicate selects one of them."""
    def points(a, name=None):
        out = {}
        for s in a["series"]:
            for at, value, _ in s["points"] if name in (None, s["labels"].get("function")) else []:
                out[at] = out.get(at, 0) + value
        return out

    span = {"from": (filled.at - 60) * 1000, "to": (filled.at + 60) * 1000, "step": 1000}
    for also in (span, {"query": '{service.name="shop"}', **span}, {"stacks": 'fn="work"', **span}):
        whole = get(filled, "/api/v1/series", type=CPU, **also)
        for n in (1, 2, 50):
            a = get(filled, "/api/v1/series", type=CPU, functions=n, **also)
            assert points(a) == points(whole)
            names = [s["labels"]["function"] for s in a["series"]]
            assert len(names) <= n + 1 and names[-1] == ""
    a = get(filled, "/api/v1/series", type=CPU, step=1000, functions=2)
    assert [s["labels"]["function"] for s in a["series"]] == ["inner", "idle", ""] and a["others"] == 2
    assert sum(points(a, "inner").values()) == 30 * TICK and sum(points(a, "").values()) == 12 * TICK
    a = get(filled, "/api/v1/series", type=CPU, step=1000, functions=5, stacks='leaf="work"')
    assert [(s["labels"]["function"], sum(p[1] for p in s["points"])) for s in a["series"]] == [("work", 5 * TICK), ("", 0)]
    for stacks, total in (('leaf="main"', 0), ('leaf="inner" under fn="work"', 30), ('fn="work" under leaf="inner"', 0),
                          ('leaf!="inner"', 22), ('leaf~"^i" and fn="main"', 40)):
        assert get(filled, "/api/v1/top", type=CPU, stacks=stacks)["total"] == total * TICK, stacks
    for wrong in ({"functions": 2, "group_by": "env"}, {"functions": 0}, {"functions": 51}, {"functions": 2, "step": 1, "from": "now-10000h"}):
        assert check(filled.get("/api/v1/series", type=CPU, **wrong), "/api/v1/series").status == 400, wrong
    # What lives adds up over functions, but not over time.
    assert filled.post("/ingest", b"main;keep 1\n", name="heap.inuse_space").status == 200
    a = check(filled.get("/api/v1/series", type="memory:inuse_space:bytes:space:bytes", functions=2), "/api/v1/series")
    assert a.status == 400 and "states" in a.text


def test_series_and_heatmap(filled):
    a = get(filled, "/api/v1/series", type=CPU, step=10000, group_by="service.name")
    sums = {s["labels"]["service.name"]: sum(p[1] for p in s["points"]) for s in a["series"]}
    assert sums == {"shop": 45 * TICK, "cart": 7 * TICK}
    a = get(filled, "/api/v1/series", type=CPU, step=10000, group_by=["service.name", "env"])
    assert {tuple(s["labels"].values()) for s in a["series"]} == {("shop", "prod"), ("cart", "test")}
    begin = (filled.at - 60) * 1000
    a = get(filled, "/api/v1/heatmap", type=CPU, column=60000, row=10000, **{"from": begin, "to": begin + 180000})
    assert (a["columns"], a["rows"], len(a["values"])) == (3, 6, 18)
    assert [i for i, v in enumerate(a["values"]) if v] == [6] and sum(a["values"]) == 52 * TICK


def test_diff(filled):
    a = get(filled, "/api/v1/diff", query='{service_name="cart"}', base_query='{service_name="shop"}', type=CPU,
            no_process="true")
    t = tree(a)
    assert t[("all", "main")] == (0, 7 * TICK, 0, 45 * TICK)
    assert t[("all", "main", "other")] == (7 * TICK, 7 * TICK, 0, 0)
    assert a["base"]["total"] == 45 * TICK and a["normalized"] is False
    a = get(filled, "/api/v1/diff", query='{service_name="cart"}', base_query='{service_name="shop"}', type=CPU,
            no_process="true", normalize="true")
    assert tree(get(filled, "/api/v1/diff", query='{service_name="cart"}', base_query="{}", type=CPU))[("all",)] == (
        0, 7 * TICK, 0, 52 * TICK)
    a = get(filled, "/api/v1/diff", query='{service_name="cart"}', base_query='{service_name="shop"}', type=CPU,
            no_process="true", normalize="true")
    assert a["normalized"] and a["base"]["total"] == 45 * TICK
    assert abs(tree(a)[("all", "main", "work", "inner")][2] - 7 * TICK * 30 / 45) <= 1


def test_export(filled, executable):
    want = {"main;work;inner": 30, "main;work": 5, "main;idle": 10}
    text = filled.get("/api/v1/export", format="folded", query='{service_name="shop"}',
                      type="process_cpu:samples:count:cpu:nanoseconds").text
    assert {line.split(";", 1)[1].rsplit(" ", 1)[0]: int(line.rsplit(" ", 1)[1]) for line in text.splitlines()} == want
    pprof = filled.get("/api/v1/export")
    assert b"inner" in gzip.decompress(pprof.body)
    assert filled.get("/api/v1/export", format="svg").headers["Content-Type"] == "image/svg+xml"
    assert "<html" in filled.get("/api/v1/export", format="html").text[:200].lower()
    assert filled.get("/api/v1/export", format="speedscope").json()["shared"]["frames"]
    for name in ("pprof", "speedscope", "firefox"):
        a = filled.get("/api/v1/export", format=name, diff="1", base_query='{service_name="shop"}')
        assert a.status == 415 and "cannot hold a diff" in a.text


def test_nothing_is_an_answer_too(server):
    """An empty store, and a selector without matches."""
    for path, methods in DOCUMENT["paths"].items():
        if "get" in methods and "{" not in path:
            needed = {p["name"]: "x" for p in map(resolve, methods["get"].get("parameters", [])) if p.get("required")}
            assert (a := check(server.get(path, **needed), path)).status == 200, f"{path}: {a.text}"
    server.post("/ingest", b"a;b 1\n", name="x")
    for path in ("flamegraph", "top", "series", "heatmap", "diff", "export"):
        a = server.get(f"/api/v1/{path}", query='{service_name="nobody"}')
        assert check(a, f"/api/v1/{path}").status == 200, f"{path}: {a.text}"


@pytest.mark.parametrize("path,parameters", [
    ("flamegraph", {"query": "{"}), ("flamegraph", {"query": '{a="b"'}), ("flamegraph", {"query": '{a=~"("}'}),
    ("flamegraph", {"stacks": "fn="}),
    ("flamegraph", {"stacks": 'fn~"a%s"' % ("+" * 30)}), ("flamegraph", {"query": '{a=~"%sa%s"}' % ("(" * 20, "+)" * 20)}),
    ("flamegraph", {"query": '{a=~"%sa%s"}' % ("(" * 20, ")+" * 20)}), ("flamegraph", {"max_nodes": "0"}), ("flamegraph", {"max_nodes": "-1"}),
    ("flamegraph", {"max_nodes": "99999999999999999999"}), ("flamegraph", {"threads": "maybe"}),
    ("flamegraph", {"from": "yesterday"}), ("flamegraph", {"from": "now-9999999999999999d"}),
    ("flamegraph", {"from": "now", "to": "now-1h"}), ("flamegraph", {"to": "1e9"}), ("series", {"step": "0"}),
    ("series", {"step": "1", "from": "now-10000h"}), ("heatmap", {"column": "7", "row": "3"}),
    ("heatmap", {"column": "1", "row": "1", "from": "now-1h"}), ("export", {"format": "exe"}),
    ("export", {"format": "jfr"}), ("export", {"format": "../../x"}), ("label-values", {}), ("label-values", {"label": ""}),
    ("top", {"limit": "none"}), ("flamegraph", {"query": "{" + "a" * 10000}),
    ("flamegraph", {"query": "{" + ",".join(f'l{i}="x"' for i in range(100)) + "}"})])
def test_wrong_questions_are_told(filled, path, parameters):
    a = filled.get(f"/api/v1/{path}", **parameters)
    assert a.status == 400, f"{a.status} {a.text}"
    check(a, f"/api/v1/{path}")
    assert a.json()["code"] == "invalid_argument"


def test_unknown_routes(server):
    for path in ("/api/v1", "/api/v2/types", "/api/v1/types/", "/debug/pprof", "/querier.v1.QuerierService/Nothing"):
        a = server.get(path)
        assert a.status == 404 and a.json()["code"] == "not_found"


def test_metrics_are_prometheus_text(filled):
    filled.get("/api/v1/nothing")
    text = filled.get("/metrics").text
    seen = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP \w+ .+|TYPE \w+ (counter|gauge))", line)
        else:
            m = re.fullmatch(r'(\w+)(\{\w+="[^"]*"(?:,\w+="[^"]*")*\})? (\d+)', line)
            assert m, line
            seen[m[1] + (m[2] or "")] = int(m[3])
    assert seen["culprit_ingest_requests_total"] == 2 and seen["culprit_ingest_profiles_total"] == 2
    assert seen["culprit_store_up"] == 1 and seen["culprit_store_series"] == 2
    assert seen['culprit_answers_total{status="4xx"}'] == 1
