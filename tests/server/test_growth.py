# SPDX-License-Identifier: Apache-2.0
"""Growth of memory: which function grows, how surely, and what is no growth. Profiles are pushed with the times of the past."""

import json
import math
import random
import time

import pytest

from test_types import Strings, get

STEP = 10
N = 60
RESIDENT = "memory:resident:bytes:resident:bytes"
NS = 1000000000


def otlp(at, stacks, kind="resident", pid=10, service="shop", memory=None, estimate=None):
    """A profile of one process at one time. stacks: {(function, …) from the leaf: bytes}"""
    strings, functions = Strings([""]), {}
    attribute = ("memory", memory) if memory else ("estimate", estimate) if estimate else None

    def location(name):
        return functions.setdefault(name, len(functions) + 1)

    rows, tables = [], [{}]
    for names, value in stacks.items():
        tables.append({"locationIndices": [location(n) for n in names]})
        rows.append({"stackIndex": len(tables) - 1, "values": [str(int(value))], "timestampsUnixNano": [str(at)],
                     "attributeIndices": [1] if attribute else []})
    type_of = {"typeStrindex": strings.of(kind), "unitStrindex": strings.of("bytes")}
    return json.dumps({
        "resourceProfiles": [{
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}},
                                        {"key": "service.instance.id", "value": {"stringValue": f"{service}-{pid}"}}]},
            "scopeProfiles": [{"profiles": [{"samples": rows, "sampleType": type_of, "timeUnixNano": str(at)}]}]}],
        "dictionary": {
            "mappingTable": [{}], "linkTable": [{}], "stackTable": tables,
            "attributeTable": [{}] + ([{"keyStrindex": strings.of(attribute[0]), "value": {"stringValue": attribute[1]}}] if attribute else []),
            "locationTable": [{}] + [{"lines": [{"functionIndex": i, "line": str(40 + i)}]} for i in functions.values()],
            "functionTable": [{}] + [{"nameStrindex": strings.of(n), "filenameStrindex": strings.of(f"/src/{n}.c")} for n in functions],
            "stringTable": strings}}).encode()


class Past:
    """A server, and profiles every STEP seconds of the last N steps."""

    def __init__(self, server):
        self.server, self.begin = server, (int(time.time()) // STEP - N - 1) * STEP

    def push(self, step, stacks, **options):
        a = self.server.request("POST", "/v1development/profiles", otlp(int((self.begin + step * STEP + 1) * NS), stacks, **options),
                                {"Content-Type": "application/json"})
        assert a.status == 200 and a.json() == {}, a.text

    def growth(self, **parameters):
        return get(self.server, "/api/v1/growth", **{"from": self.begin * 1000, "to": (self.begin + N * STEP) * 1000, "type": RESIDENT,
                                                     "query": '{service.name="shop"}', "step": STEP * 1000, **parameters})


@pytest.fixture
def past(server):
    return Past(server)


def site(row):
    return row["frames"][row["own"]]


def row_of(answer, name):
    row, = (r for r in answer["rows"] if r["frames"] and site(r)["name"] == name)
    return row


def test_a_small_leak_beside_noise_comes_first(past):
    r = random.Random(4)
    for i in range(N):
        past.push(i, {("malloc", "leak", "serve", "main"): 1000 * STEP * i + 1, ("malloc", "leak", "other", "main"): 100,
                      ("malloc", "churn", "serve", "main"): 500e6 + 50e6 * r.random(),
                      ("malloc", "collect", "main"): 30e6 * math.fmod(i / 7.3, 1) + 1})
    answer = past.growth()
    first = answer["rows"][0]
    # The function that allocates, not malloc; the stack with most of it, and how many there are.
    assert (site(first)["name"], site(first)["file"], first["chains"]) == ("leak", "/src/leak.c", 2)
    assert site(first)["line"] == 42 and [f["name"] for f in first["frames"]] == ["malloc", "leak", "serve", "main"]
    assert 995 < first["slope"] < 1005 and first["low"] <= first["slope"] <= first["high"] and first["only_grows"] and first["sure"] and first["grew"] == 1
    for name in ("churn", "collect"):
        row = row_of(answer, name)
        assert row["low"] <= 0 <= row["high"] and not row["only_grows"] and not row["sure"], name
    assert answer["instances"] == {"all": 1, "used": 1, "new": 0, "ended": 0, "merged": False}
    assert (answer["periods"], answer["adds"], answer["unit"], answer["step"]) == (N, "at_moment", "bytes", STEP * 1000)
    # Sums are those of the total.
    assert abs(sum(r["slope"] for r in answer["rows"]) - answer["all"]["slope"]) < 1
    assert abs(answer["totals"][5] - sum(r["values"][5] for r in answer["rows"])) < 4


def test_a_restart_is_no_growth(past):
    """Three processes, one after the other, each of which takes 100 MB in its first minute and then stays."""
    for i in range(N):
        past.push(i, {("cache", "main"): 10e6 * min(i % 20, 6) + 1000}, pid=i // 20)
    answer = past.growth(warmup=70)
    assert answer["instances"] == {"all": 3, "used": 3, "new": 2, "ended": 2, "merged": False}
    # The first was there before, as far as anybody knows: its first minute is no growth for sure, either.
    assert answer["all"]["low"] <= 0 and not row_of(answer, "cache")["only_grows"]
    # With the warm-up it looks as if it grew.
    assert past.growth(warmup=0)["all"]["slope"] > 1.5 * answer["all"]["slope"]


UNFREED = "memory:unfreed_space:bytes:unfreed_space:bytes"
ALLOCATED = "memory:alloc_space:bytes:alloc_space:bytes"


def test_a_leak_of_which_little_is_drawn(past):
    """1 kB a second, of which one object in 125 is seen, beside churn: the time without a sample counts, too."""
    r = random.Random(5)
    seen = 0
    for i in range(N):
        past.push(i, {("malloc", "churn", "main"): 1e9 + 1e8 * r.random(), ("malloc", "leak", "main"): 5000 * (i % 2)}, kind="alloc_space",
                  estimate="windows")
        if i in (14, 30, 31, 46, 52):
            seen += 1
            past.push(i, {("malloc", "leak", "main"): 125000}, kind="unfreed_space", estimate="windows")
    answer = past.growth(type=UNFREED)
    first = answer["rows"][0]
    assert site(first)["name"] == "leak" and first["sure"]
    # The first and the last step do not count.
    expected = seen * 125000 / ((N - 2) * STEP)
    assert abs(first["slope"] - expected) < 1
    # A Poisson variable of 5 is one of 1.62 to 11.67, and windows are right to within 1.25.
    assert abs(first["low"] * 1.25 / expected - 1.62 / 5) < 0.1 and abs(first["high"] / 1.25 / expected - 11.67 / 5) < 0.3


@pytest.mark.parametrize("estimate", ["sampled", "windows", "at least"])
def test_bounds_of_what_was_drawn(past, estimate):
    """Each function has an interval of its own draws: four large objects are worth four, whatever else was drawn."""
    for i in range(N):
        past.push(i, {("malloc", "often", "main"): 1000}, kind="alloc_space", estimate=estimate)
        if i % 15 == 0:
            past.push(i, {("malloc", "seldom", "main"): 100000}, kind="alloc_space", estimate=estimate)
    answer = get(past.server, "/api/v1/top", type=ALLOCATED, query='{service.name="shop"}',
                 **{"from": past.begin * 1000, "to": (past.begin + N * STEP) * 1000})
    rows = {r["name"]: r for r in answer["rows"]}
    factor = 1 if estimate == "sampled" else 1.25
    for name, value, low, high in (("often", 60000, 45.8 / 60, 77.2 / 60), ("seldom", 400000, 1.09 / 4, 10.24 / 4)):
        row = rows[name]
        assert row["total"] == value and row["self"] == 0 and "self_low" not in row and "self_share_low" not in row
        assert abs(row["total_low"] / value * factor - low) < 0.03, row
        if estimate == "at least":
            assert "total_high" not in row
        else:
            assert abs(row["total_high"] / value / factor - high) < 0.05, row
    assert rows["malloc"]["self_low"] == rows["malloc"]["total_low"]


def test_processes_at_the_same_time_add_up(past):
    for i in range(N):
        for pid in (1, 2, 3):
            past.push(i, {("cache", "main"): 1e6 + 2000 * STEP * i}, pid=pid)
    answer = past.growth()
    assert answer["instances"]["used"] == 3 and 5990 < answer["all"]["slope"] < 6010
    one = past.growth(query='{service.name="shop",service.instance.id="shop-2"}')
    assert 1995 < one["all"]["slope"] < 2005


def test_kinds_of_memory_are_one_process(past):
    for i in range(N):
        past.push(i, {("fill", "main"): 1e6 + 1000 * i}, memory="anonymous")
        if i > 30:
            past.push(i, {("map", "main"): 4e6}, memory="file")
    answer = past.growth()
    assert answer["instances"]["all"] == 1
    # It was not there before: that is a step, and not a gap in what is known.
    assert row_of(answer, "map")["values"][10] == 0 and row_of(answer, "map")["low"] <= 0


def test_too_few_periods(past):
    for i in range(N - 5, N):
        past.push(i, {("cache", "main"): 1e6 * i})
    answer = past.growth()
    assert answer["note"] == "not enough data: 5 of 8 periods" and "all" not in answer and answer["rows"] == []
    # What was not reported is not zero.
    assert answer["totals"][:3] == [None, None, None] and answer["totals"][-1] > 0


def test_gaps_are_no_zeros(past):
    for i in range(0, N, 3):
        past.push(i, {("cache", "main"): 50e6 + 3000 * STEP * i})
    answer = past.growth()
    assert answer["periods"] == 20 and 2990 < answer["all"]["slope"] < 3010


def test_values_that_add_up_have_a_rate(past):
    for i in range(N):
        past.push(i, {("leak", "main"): 1000 * STEP}, kind="unfreed_space")
    answer = past.growth(type="memory:unfreed_space:bytes:unfreed_space:bytes")
    if answer["adds"] != "over_time":
        pytest.fail("unfreed memory of a period is no state")
    assert 990 < answer["all"]["slope"] < 1010 and answer["all"]["low"] > 0
    # Each profile has one sample of it: 58 of them are right to about a quarter.
    assert answer["all"]["low"] < 800 and answer["all"]["high"] > 1200


def test_very_many_functions(past):
    """Those that gained least become one row, and the sums stay right."""
    many = {(f"f{k}", "main"): 1000 + k for k in range(2500)}
    for i in range(12):
        past.push(N - 12 + i, {**many, ("leak", "main"): 1e5 * i + 1})
    answer = past.growth(limit=1000)
    assert answer["left_out"] == 501 and answer["sites"] == 2001
    assert site(answer["rows"][0])["name"] == "leak"
    assert abs(answer["totals"][-2] - (sum(many.values()) + 1e6 + 1)) < 2


def test_very_many_processes(past):
    """Then a service is one: its growth is that of all."""
    for i in range(10):
        whole = json.loads(otlp(int((past.begin + (N - 10 + i) * STEP + 1) * NS), {("cache", "main"): 1e6 + 100 * STEP * i}))
        one, = whole["resourceProfiles"]
        whole["resourceProfiles"] = [json.loads(json.dumps(one).replace("shop-10", f"shop-{k}")) for k in range(450)]
        a = past.server.request("POST", "/v1development/profiles", json.dumps(whole).encode(), {"Content-Type": "application/json"})
        assert a.status == 200 and a.json() == {}, a.text
    answer = past.growth()
    assert answer["instances"] == {"all": 1, "used": 1, "new": 0, "ended": 0, "merged": True}
    assert 44900 < answer["all"]["slope"] < 45100 and abs(answer["totals"][-1] - 450 * (1e6 + 9000)) < 450


def test_stacks_select(past):
    for i in range(N):
        past.push(i, {("leak", "a", "main"): 1e5 * i + 1, ("leak", "b", "main"): 7e5 * i + 1})
    answer = past.growth(stacks='fn="a"')
    assert 9990 < answer["all"]["slope"] < 10010 and len(answer["rows"]) == 1


@pytest.mark.parametrize("parameters, message", [
    ({"also": RESIDENT}, "also"),
    ({"step": 0}, "step: a number"),
    ({"step": "-1"}, "step: a number"),
    ({"step": 10 ** 20}, "step: a number"),
    ({"warmup": 86401}, "warmup: a number"),
    ({"limit": 0}, "limit: a number"),
    ({"stacks": 'fn="'}, "closing"),
    ({"query": '{service.name='}, "in quotes"),
    ({"type": "x" * 500}, "type"),
    ({"type": "memory:none:bytes:none:bytes"}, "type"),
    ({"from": 5, "to": 4}, "from must be before"),
    ({"nothing": 1}, "nothing"),
])
def test_bad_parameters(past, parameters, message):
    past.push(N - 1, {("cache", "main"): 1e6})
    a = past.server.get("/api/v1/growth", **{"from": past.begin * 1000, "to": (past.begin + N * STEP) * 1000, "type": RESIDENT,
                                             "step": STEP * 1000, **parameters})
    assert a.status == 400 and message in a.text, a.text


def test_steps_that_do_not_fit_and_times_to_come(past):
    for i in range(N):
        past.push(i, {("cache", "main"): 1e6 * i + 1})
    assert past.growth(step=10 ** 11)["note"] == "not enough data: 1 of 8 periods"
    assert past.growth(step=1)["step"] == STEP * N * 1000 // 240
    later = past.growth(to=4000000000000, step=300000, **{"from": past.begin * 1000})
    assert later["to"] <= (time.time() + 1) * 1000


def test_a_token_is_needed(serve, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("write secret-of-agents\nread secret-of-readers\n")
    tokens.chmod(0o600)
    server = serve("--token-file", tokens)
    assert server.get("/api/v1/growth", type=RESIDENT).status == 401
    assert server.get("/api/v1/growth", {"Authorization": "Bearer secret-of-agents"}, type=RESIDENT).status == 403


class Agent:
    """As culprit's agents send memory: processes with ids, and no threads, all in one report."""

    def __init__(self, past):
        self.past = past

    def push(self, step, processes):
        """processes: {pid: {stack: bytes}}"""
        for pid, stacks in processes.items():
            one = json.loads(otlp(int((self.past.begin + step * STEP + 1) * NS), stacks))
            resource = one["resourceProfiles"][0]["resource"]["attributes"]
            resource[1:] = [{"key": "process.pid", "value": {"intValue": str(pid)}}, {"key": "host.name", "value": {"stringValue": "h"}}]
            a = self.past.server.request("POST", "/v1development/profiles", json.dumps(one).encode(), {"Content-Type": "application/json"})
            assert a.status == 200 and a.json() == {}, a.text


def test_processes_of_an_agent_are_told_apart(past):
    """One after the other, each of which leaks: what the service has is never the sum of all three."""
    agent = Agent(past)
    for i in range(N):
        agent.push(i, {100 + i // 20: {("leak", "main"): 2e6 + 3000 * STEP * (i % 20)}, 50: {("keep", "main"): 5e6}})
    answer = past.growth(warmup=40)
    # Each is told apart after half a minute; until then it is of a series without a process.
    assert answer["instances"]["all"] == 4 and answer["instances"]["ended"] == 2
    # The first moments of each, which are of another series, are not counted: 9 of 60 buckets.
    assert 2450 < row_of(answer, "leak")["slope"] < 3100 and row_of(answer, "leak")["only_grows"]
    assert row_of(answer, "keep")["low"] <= 0 <= row_of(answer, "keep")["high"]
    assert all(7e6 <= v <= 7.6e6 for v in answer["totals"]), answer["totals"]
    # The mean over the range, in the flame graph, too.
    for begin, end in ((0, N), (10, 50), (18, 22)):
        flame = get(past.server, "/api/v1/flamegraph", type=RESIDENT, **{"from": (past.begin + begin * STEP) * 1000,
                                                                        "to": (past.begin + end * STEP) * 1000})
        assert 6.9e6 < flame["nodes"]["total"][0] < 7.7e6, (begin, end)
    labels = get(past.server, "/api/v1/label-values", label="process.pid", **{"from": past.begin * 1000})
    assert {v["name"] for v in labels["values"]} == {"50", "100", "101", "102"}
