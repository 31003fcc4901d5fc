# SPDX-License-Identifier: Apache-2.0
"""What is bounded: BPF's maps of processes, and memory beside processes that want much of it."""

import contextlib
import glob
import json
import shutil
import subprocess
import time

from test_agent import Agent, wait_for

BPFTOOL = shutil.which("bpftool") or "/usr/sbin/bpftool"


def map_ids(pid):
    """Of the BPF maps that a process has open."""
    ids = set()
    for path in glob.glob(f"/proc/{pid}/fdinfo/*"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as f:
            ids |= {int(line.split()[1]) for line in f if line.startswith("map_id:")}
    return ids


def entries(agent, name):
    """The pids in one of the agent's maps that are keyed by them."""
    ids = map_ids(agent.process.pid)
    maps = json.loads(subprocess.run([BPFTOOL, "-j", "map", "show"], check=True, capture_output=True).stdout)
    at, = (m["id"] for m in maps if m["id"] in ids and m.get("name") == name)
    dump = json.loads(subprocess.run([BPFTOOL, "-j", "map", "dump", "id", str(at)], check=True,
                                     capture_output=True).stdout)
    return {int.from_bytes(bytes(int(b, 16) for b in e["key"][:4]), "little") for e in dump}


def test_a_process_that_ended_makes_room_at_once(culprit, tmp_path):
    """In the map of processes, long before the 5 s are over for which its last samples are waited for."""
    with Agent(culprit, tmp_path, export=f"file:{tmp_path}/%s.pb.gz", period=1) as agent:
        agent.wait_until_it_counts()
        children = [subprocess.Popen(["sleep", "1000"]) for _ in range(20)]
        pids = {c.pid for c in children}
        wait_for(lambda: pids <= entries(agent, "processes"), "they are not known")
        for c in children:
            c.kill()
            c.wait()
        begin = time.monotonic()
        wait_for(lambda: not pids & entries(agent, "processes"), "they are still there")
        assert time.monotonic() - begin < 4
