# SPDX-License-Identifier: Apache-2.0
"""Sends a day of 100 agents, compressed in time, to a server with small limits (tests/tools/soak_agents.c describes
the data). The test watches the server's memory and disk. At the end the store has, hour by hour, what was sent, except
the hours that were evicted.

One request has SOAK_MINUTES (20) of an agent's time, and SOAK_ROWS (120) rows.
"""

import json
import os
import subprocess
import threading
import time

import pytest

MINUTES = int(os.environ.get("SOAK_MINUTES", "20"))
ROWS = int(os.environ.get("SOAK_ROWS", "120"))
MAX_MIB = 16
RSS_MIB = 400 # the store's caches, four requests at work, SQLite's


def store_bytes(server):
    total = 0
    for entry in os.scandir(os.path.join(server.directory, "store")):
        try:
            total += entry.stat().st_size
        except FileNotFoundError:
            pass
    return total


@pytest.mark.slow
def test_a_day_of_100_agents(serve, executable):
    server = serve("--max-size", MAX_MIB)
    tool = os.path.join(os.path.dirname(os.path.dirname(executable)), "tests/tools/soak_agents")
    day = 86400
    start = int(time.time()) // 3600 * 3600 - day # so that no sample is in the future
    agents = subprocess.Popen([tool, f"http://127.0.0.1:{server.ports['otlp-http']}/v1development/profiles",
                               str(start), str(MINUTES), str(ROWS)], stdout=subprocess.PIPE,
                              text=True)
    memory, disk, done = [], [], threading.Event()

    def watch():
        while not done.wait(0.2):
            memory.append(server.rss_bytes())
            disk.append(store_bytes(server))

    watcher = threading.Thread(target=watch)
    began = time.monotonic()
    watcher.start()
    try:
        lines = agents.stdout.read().splitlines()
    finally:
        done.set()
        watcher.join()
    took = time.monotonic() - began
    agents.stdout.close()
    assert agents.wait(60) == 0
    sent = json.loads(lines[-1])
    tenth = len(memory) // 10
    print(f"\n{sent['requests']} requests, {sent['rows']} rows, {sent['bytes'] >> 20} MiB in "
          f"{took:.0f} s; {sent['again']} sent again\n"
          f"RSS: {memory[tenth] >> 20} MiB after a tenth, {memory[-1] >> 20} MiB at the end, "
          f"at most {max(memory) >> 20} MiB\n"
          f"disk: at most {max(disk) / (1 << 20):.1f} MiB of {MAX_MIB} allowed")
    assert sent["requests"] == 100 * day // (MINUTES * 60)
    assert max(memory) < RSS_MIB << 20
    # The size may exceed the limit by one batch.
    assert max(disk) < (MAX_MIB << 20) + (512 << 10)
    stats = server.get("/api/v1/stats").json()["store"]
    assert stats["damaged"] == 0
    answer = server.get("/api/v1/series", **{"from": start * 1000, "to": (start + day) * 1000,
                                             "step": 3600000, "query": "{}"})
    assert answer.status == 200, answer.text
    points = {p[0]: p[1] for p in answer.json()["series"][0]["points"]}
    kept = [points.get((start + h * 3600) * 1000, 0) for h in range(24)]
    whole = [h for h in range(24) if kept[h] == sent["hours"][h]]
    print(f"hours kept whole: {whole}; {stats['rows']} rows kept, {stats['evicted_rows']} evicted")
    # The oldest blocks were evicted; from some hour on all samples are there.
    first = min(h for h in range(24) if kept[h])
    assert stats["evicted_rows"] > 0 and first > 0
    assert set(whole) >= set(range(first + 1, 24))
    assert len(whole) >= 3
    assert all(k <= s for k, s in zip(kept, sent["hours"]))
    begin = time.monotonic()
    graph = server.get("/api/v1/flamegraph", **{"from": (start + 20 * 3600) * 1000,
                                                "to": (start + day) * 1000, "query": "{}"})
    assert graph.status == 200, graph.text
    print(f"flame graph of the last four hours: {(time.monotonic() - begin) * 1000:.0f} ms")
    assert graph.json()["quality"]["damaged"] is False
