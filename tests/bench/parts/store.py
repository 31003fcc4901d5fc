# SPDX-License-Identifier: Apache-2.0
"""Unwind rows and the engines of the store, by benchmarks in C."""

import glob
import json
import os
import subprocess
import sys
import tempfile

from .common import TOP, note


def rows():
    """Runs tests/bench/bench_rows, which prints JSON lines."""
    found = glob.glob(os.path.join(TOP, "build/tests/bench/bench*rows"))
    if not found:
        print("rows: no bench_rows in build/tests/bench")
        return
    out = subprocess.run([found[0]], capture_output=True, text=True, timeout=300).stdout
    for line in out.splitlines():
        if line.startswith("{"):
            r = json.loads(line)
            note(r["what"], r["value"], r["unit"], r.get("how", ""), r.get("must"), r.get("aim"))


def store_of(url, name, bench="store", n=None):
    """Runs tests/bench/bench_store and bench_spans, which describe their data in their first comments."""
    p = subprocess.Popen([os.path.join(TOP, f"build/tests/bench/bench-{bench}"), url,
                          n or os.environ.get("BENCH_STORE_ROWS", "10000000")],
                         stdout=subprocess.PIPE, text=True)
    for line in p.stdout:
        r = json.loads(line)
        note(f"{name} {r['what']}", r["value"], r["unit"], r["how"], r.get("must"), r.get("aim"))
    if p.wait(60):
        print(f"{name} store: bench-{bench} ended with {p.returncode}")


def store():
    """Measures SQLite and each available ClickHouse, or only the store BENCH_STORE=URL, which must be empty.
    BENCH_STORE_ROWS sets a smaller number of rows. The current ClickHouse is chDB behind a front in Python, whose time
    is part of the figures."""
    if "BENCH_STORE" in os.environ:
        store_of(os.environ["BENCH_STORE"], "")
        return
    sys.path.insert(0, os.path.join(TOP, "tests/server"))
    import clickhouse

    with tempfile.TemporaryDirectory() as d:
        store_of(f"{d}/store", "SQLite")
        store_of(f"{d}/spans", "SQLite", "spans", "40000")
        for name, get, kind in (("ClickHouse 18.16", clickhouse.old_server, clickhouse.Server),
                                (f"ClickHouse {clickhouse.CHDB}", clickhouse.library, clickhouse.Front)):
            home, why = get()
            if not home:
                print(f"{name}: {why}")
                continue
            server = kind(home, f"{d}/{name.replace(' ', '-')}")
            try:
                store_of(server.url("bench", grace=600), name)
            finally:
                server.kill()
