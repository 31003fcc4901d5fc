# SPDX-License-Identifier: Apache-2.0
"""Answers to questions that the server cannot answer, or that would take it too long: an error that says what to do."""

import os
import random

import pytest

WORDS = ("std vector basic_string json handle Request parser detail allocator iterator absl grpc Server serialize tree element "
         "encode __cxx11 char_traits operator").split()


def cpu_s(server):
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ingest(server, folded, **parameters):
    a = server.post("/ingest", folded.encode(), name="shop", **parameters)
    assert a.status == 200, a.text


# ---- regular expressions ----

@pytest.fixture
def names(server):
    """A server with a stack for each of 20,000 names like those of C++."""
    rand = random.Random(1)

    def name(i):
        text = "".join(rand.choice(WORDS) + rand.choice(("::", ", ", "<")) for _ in range(rand.randrange(3, 15)))
        return f"{text}::{i}({', '.join(rand.choices(WORDS, k=rand.randrange(6)))})"

    ingest(server, "".join(f"main;{name(i)} 1\n" for i in range(20000)))
    return server


@pytest.mark.parametrize("pattern", [".*e.{50}x", "(.*e.*){8}x", "(.*.*)*#", "(a|e)*(a|e)*(a|e)*#"])
def test_no_expression_keeps_the_server_busy(names, pattern):
    cpu, memory = cpu_s(names), names.rss_bytes()
    a = names.get("/api/v1/flamegraph", stacks=f'fn~"{pattern}"', max_nodes=10)
    assert a.status == 200, a.text
    assert cpu_s(names) - cpu < 15
    assert names.rss_bytes() - memory < 128 << 20


def leaves(server, **parameters):
    a = server.get("/api/v1/export", format="folded", **parameters)
    assert a.status == 200, a.text
    return sorted(line.rsplit(" ", 1)[0].rsplit(";", 1)[1] for line in a.text.splitlines())


def test_expressions(server):
    ingest(server, "parse_json;größe 3\nHandle;write 4\n")
    for expression, found in (('fn~"json|Handle"', ["größe", "write"]), ('fn~"(?i)^handle$"', ["write"]),
                              ('fn~"gr..e"', ["größe"]), ('fn!~"write"', ["größe"]), ('fn~"^rite"', [])):
        assert leaves(server, stacks=expression) == found, expression
    for wrong, why in (('fn~"("', "missing )"), ('fn~"(a)\\\\1"', "invalid escape"), ('fn~"(?=a)"', "invalid perl operator"),
                       (" or ".join(['fn~"a"'] * 33), "more than 32 regular expressions")):
        a = server.get("/api/v1/flamegraph", stacks=wrong)
        assert (a.status, a.json()["code"]) == (400, "invalid_argument") and why in a.json()["message"], a.text
    for label, found in (('service_name=~"sh.*"', True), ('service_name=~"ho"', False), ('service_name=~"(?i)SHOP"', True)):
        assert bool(leaves(server, query="{" + label + "}")) == found, label


def test_a_match_without_an_answer_is_an_error(server):
    """A name that is too long for the expression: an error that says so, never a "no"."""
    ingest(server, "main;" + "e" * 900_000 + "x 1\n")
    a = server.get("/api/v1/flamegraph", stacks='fn~"[a-z]{900}x"')
    assert a.status == 400 and "too large to match a name" in a.json()["message"], a.text
    assert len(leaves(server, stacks='fn~"e*x$"')) == 1
