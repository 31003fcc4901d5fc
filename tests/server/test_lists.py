# SPDX-License-Identifier: Apache-2.0
"""Lists that the server sorts and searches before it cuts them: the order is exact, the rest is counted, no row is on two pages."""

import random
import time

import pytest

from test_api import get
from test_traces import export, span

N = 1449
START = int(time.time() * 1000) - 300000
ORDERS = ["endpoint", "requests", "p50_ms", "p95_ms", "p99_ms", "max_ms"]


@pytest.fixture(scope="module")
def known():
    """Endpoint → durations in ms. The rarest is the slowest, so that a list by count has it last."""
    r = random.Random(7)
    return {f"GET /e/{i:04}/x": [r.randrange(1, 500) for _ in range(1 + i % 5)] for i in range(N - 1)} | {"POST /slow": [10000]}


@pytest.fixture
def many(server, known):
    rows = [(name, ms) for name, all_ms in known.items() for ms in all_ms]
    spans = [span(f"{i + 1:032x}", f"{i + 1:016x}", START + i, ms, name=name, **({"status": {"code": 2}} if i % 7 == 0 else {}))
             for i, (name, ms) in enumerate(rows)]
    for at in range(0, len(spans), 1000):
        assert export(server, *spans[at:at + 1000], service="shop").json() == {}
    return server


def percentile(all_ms, share):
    ordered = sorted(all_ms)
    return next(ms for i, ms in enumerate(ordered) if i + 1 >= len(ordered) * share)


def value(name, all_ms, order):
    return {"endpoint": name, "requests": len(all_ms), "p50_ms": percentile(all_ms, 0.5), "p95_ms": percentile(all_ms, 0.95),
            "p99_ms": percentile(all_ms, 0.99), "max_ms": max(all_ms)}[order]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sign", ["", "-"])
def test_every_order_is_that_of_all_endpoints(many, known, order, sign):
    a = get(many, "/api/v1/endpoints", order=sign + order, limit=500)
    assert (a["total"], a["matching"], a["requests"], a["share_of"]) == (N, N, sum(map(len, known.values())), 1)
    by_name = sorted(known)
    expected = sorted(by_name, key=lambda name: value(name, known[name], order), reverse=bool(sign))
    if sign:  # reverse keeps the order of equal ones: by name, as in every order
        expected = sorted(by_name, key=lambda name: -value(name, known[name], order) if order != "endpoint" else 0) \
            if order != "endpoint" else by_name[::-1]
    assert [e["endpoint"] for e in a["endpoints"]] == expected[:500]


def test_the_slowest_is_found(many):
    assert get(many, "/api/v1/endpoints", order="-p99_ms", limit=1)["endpoints"][0]["endpoint"] == "POST /slow"
    assert get(many, "/api/v1/endpoints", order="-requests", limit=500)["endpoints"][0]["endpoint"] != "POST /slow"


def test_pages_have_each_row_once(many, known):
    found = []
    for offset in range(0, N, 400):
        found += [e["endpoint"] for e in get(many, "/api/v1/endpoints", order="-requests", limit=400, offset=offset)["endpoints"]]
    assert len(found) == N and set(found) == known.keys()
    assert get(many, "/api/v1/endpoints", offset=N)["endpoints"] == []


def test_the_search_is_of_all_endpoints(many, known):
    a = get(many, "/api/v1/endpoints", search="slow", limit=10)
    assert (a["total"], a["matching"], [e["endpoint"] for e in a["endpoints"]]) == (N, 1, ["POST /slow"])
    a = get(many, "/api/v1/endpoints", search="E/00", limit=10)
    assert (a["matching"], len(a["endpoints"])) == (100, 10)
    assert get(many, "/api/v1/endpoints", search="shop post")["matching"] == 1
    assert a["requests"] == sum(map(len, known.values()))


@pytest.mark.parametrize("text", ["", "%", "_", "\\", "'; drop table spans", "(", "[", ".*", "é", "\x01", "x" * 256])
def test_a_search_is_a_text(many, text):
    a = get(many, "/api/v1/endpoints", search=text)
    assert a["matching"] == (N if text == "" else 0)


def test_what_is_refused(many):
    for path in ("endpoints", "traces", "top"):
        for wrong in ({"order": "nothing"}, {"order": "--value"}, {"order": "-"}, {"search": "x" * 257}, {"offset": -1}, {"offset": 10**9},
                      {"limit": 0}):
            a = many.get(f"/api/v1/{path}", **wrong)
            assert a.status == 400 and a.json()["message"], (path, wrong)


def test_requests_in_every_order(many, known):
    all_ms = [(ms, name) for name, each in known.items() for ms in each]
    a = get(many, "/api/v1/traces", limit=50)
    assert [t["duration_ms"] for t in a["traces"]] == sorted((ms for ms, _ in all_ms), reverse=True)[:50]
    a = get(many, "/api/v1/traces", limit=50, order="duration_ms")
    assert [t["duration_ms"] for t in a["traces"]] == sorted(ms for ms, _ in all_ms)[:50]
    assert a["matching"] == len(all_ms) and a["share_of"] == 1
    a = get(many, "/api/v1/traces", limit=50, order="-start_ms")
    assert [round(t["start_ms"]) for t in a["traces"]] == [START + len(all_ms) - 1 - i for i in range(50)]
    a = get(many, "/api/v1/traces", limit=7, order="-endpoint")
    assert a["traces"][0]["endpoint"] == "POST /slow" and a["traces"][1]["endpoint"] == "GET /e/1447/x"
    a = get(many, "/api/v1/traces", limit=1000, order="-status")
    assert {t["status"] for t in a["traces"][:600]} == {"error"}
    a = get(many, "/api/v1/traces", limit=10, search="post /slow")
    assert [(t["endpoint"], t["duration_ms"]) for t in a["traces"]] == [("POST /slow", 10000)] and a["matching"] == 1
    # Two pages of the slowest have what one has.
    one = [t["trace_id"] for t in get(many, "/api/v1/traces", limit=60)["traces"]]
    two = [t["trace_id"] for k in (0, 30) for t in get(many, "/api/v1/traces", limit=30, offset=k)["traces"]]
    assert one == two


def test_functions_in_every_order(server):
    at = int(time.time()) - 120
    text = "".join(f"main;f{i:03};g{i % 7} {1 + i * 37 % 101}\n" for i in range(300)).encode()
    assert server.post("/ingest", text, name="shop.cpu", **{"from": at, "until": at + 10}).status == 200
    every = get(server, "/api/v1/top", limit=100000)
    names = [r["name"] for r in every["rows"]]
    assert every["functions"] == every["matching"] == len(names)
    for order, key in (("name", lambda r: r["name"]), ("self", lambda r: r["self"]), ("total", lambda r: r["total"])):
        for sign in ("", "-"):
            rows = get(server, "/api/v1/top", limit=20, order=sign + order)["rows"]
            keys = [key(r) for r in rows]
            assert keys == sorted((key(r) for r in every["rows"]), reverse=bool(sign))[:20], order
    a = get(server, "/api/v1/top", search="f29", limit=3)
    assert a["matching"] == 10 and len(a["rows"]) == 3 and a["functions"] == len(names)
