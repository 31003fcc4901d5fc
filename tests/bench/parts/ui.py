# SPDX-License-Identifier: Apache-2.0
"""The page in a browser."""

import json
import os
import subprocess
import tempfile

from .common import TOP, note


def ui():
    """The page in Debian's Chromium, measured by Chromium's trace (tests/ui/bench.mjs): 100,000 and 1,000,000 nodes."""
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        subprocess.run(["node", os.path.join(TOP, "tests/ui/bench.mjs"), "--json", f.name], check=True, timeout=900,
                       stdout=subprocess.DEVNULL)
        with open(f.name, encoding="utf-8") as g:
            b = json.load(g)
    note("UI: page that the server shows, compressed", b["live_gzip_bytes"] / 1000, "kB", must=300)
    note("UI: first paint of it, loopback", b["served_first_paint_ms"], "ms", must=1000)
    note("UI: its picture is there", b["served_picture_ms"], "ms")
    for r in b["runs"]:
        what = f"UI: {r['nodes']:,} nodes"
        note(f"{what}: first paint, from a file", r["load_first_paint_ms"], "ms")
        for doing in ("zoom", "pan", "search"):
            note(f"{what}: {doing}, frames a second", r[f"{doing}_fps"], "/s", aim=60)
            note(f"{what}: {doing}, script a frame, 95th percentile", r[f"{doing}_script_p95_ms"], "ms", aim=16.7)
            note(f"{what}: {doing}, longest task", r[f"{doing}_longest_task_ms"], "ms")
