# SPDX-License-Identifier: Apache-2.0
"""Pyroscope's SDK for Go, as it sends: waits for channels and for mutexes are types of their own."""

import subprocess

import pytest

from conftest import peer
from test_ingest import folded

SECONDS = 4


@pytest.mark.slow
def test_go(server):
    program = peer("pyroscope_sdk", "main.go", "go.mod")
    subprocess.run([program, f"http://127.0.0.1:{server.port}", "sdk", str(SECONDS)], check=True, timeout=120)
    types = {t["name"]: t for t in server.get("/api/v1/types", query='{service_name="sdk"}').json()["types"]}
    waits = {"block:delay:nanoseconds": "main.receive", "mutex:delay:nanoseconds": "main.hold"}
    for prefix, function in waits.items():
        name = next(t for t in types if t.startswith(prefix))
        of = {stack: ns / 1e9 for stack, ns in folded(server, "sdk", name).items() if function in stack}
        # One goroutine waits for the channel all the time; of the two with the mutex one has it, the other waits.
        assert 0.6 * SECONDS < sum(of.values()) < 1.6 * SECONDS, (name, of)
    assert any(t.startswith("block:contentions:count") for t in types) and any(
        t.startswith("mutex:contentions:count") for t in types)
    assert not any("main.receive" in stack for stack in folded(server, "sdk", next(
        t for t in types if t.startswith("mutex:delay"))))
    # A label of each start of the program would be a series of each start.
    labels = {n["name"] for n in server.get("/api/v1/labels").json()["labels"]}
    assert "service.name" in labels and not any(n.startswith("__") for n in labels), labels
