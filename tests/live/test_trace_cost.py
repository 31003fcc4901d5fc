# SPDX-License-Identifier: Apache-2.0
"""What probes cost, and the budget that they have."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
pytestmark = pytest.mark.skipif(not os.path.exists(LIBC), reason="no x86-64 C library of Debian's")

# Calls functions until it is told the end, and says how often it has called them.
CALLS = """
import os, sys, threading
n, stop = 0, threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
while not stop.is_set():
    for i in range(100):
        os.getppid()
    n += 100
print(n)
"""


def busy():
    return subprocess.Popen([sys.executable, "-c", CALLS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def trace(culprit, *args):
    return subprocess.run([culprit, "trace", *args], capture_output=True, text=True, timeout=120)


DETACHED = r"culprit: uprobe:\S+:getppid(.*): detached, because the events cost (\d+) % of a CPU, and the budget is 1 %"


def test_probe_above_its_budget(culprit):
    """The counts stop where the line says so, and the other probes go on."""
    p = busy()
    try:
        r = trace(culprit, "--budget", "1", "-p", str(p.pid), "-e",
                  "uprobe:libc:getppid { @ = count(); } interval:s:1 { print(@); @ticks++; } interval:s:8 { exit(); }")
    finally:
        p.kill()
    counts = [int(n) for n in re.findall(r"^@: (\d+)$", r.stdout, re.M)]
    found = re.search(DETACHED, r.stderr)
    assert r.returncode == 0 and found and int(found[2]) >= 1
    assert counts[0] > 100 and counts[-1] == counts[-3]
    assert len(counts) >= 8
    assert r.stderr.count("detached") == 1


def test_json(culprit):
    p = busy()
    try:
        r = trace(culprit, "-f", "json", "--budget", "1", "-p", str(p.pid), "-e",
                  "uprobe:libc:getppid { @ = count(); } interval:s:6 { exit(); }")
    finally:
        p.kill()
    lines = [json.loads(line) for line in r.stdout.splitlines()]
    detached = [line for line in lines if line["type"] == "detached_probes"]
    assert len(detached) == 1 and detached[0]["count"] == 1
    assert detached[0]["data"]["probe"].endswith(":getppid")
    assert detached[0]["data"]["budget_percent"] == 1 < detached[0]["data"]["cpu_percent"]


def test_most_expensive_probe_goes(culprit):
    """A probe that is hit seldom stays, whatever the others do."""
    p = busy()
    seldom = subprocess.Popen([sys.executable, "-c",
                               "import os, time\nfor i in range(300): os.getpgrp(); time.sleep(0.1)"])
    try:
        r = trace(culprit, "--budget", "1", "-e",
                  f"uprobe:libc:getppid /pid == {p.pid}/ {{ @many = count(); }} "
                  f"uprobe:libc:getpgrp /pid == {seldom.pid}/ {{ @few = count(); }} "
                  "interval:s:6 { print(@many); print(@few); } interval:s:9 { exit(); }")
    finally:
        p.kill()
        seldom.kill()
    assert re.search(DETACHED, r.stderr) and r.stderr.count("detached") == 1
    many = [int(n) for n in re.findall(r"@many: (\d+)", r.stdout)]
    few = [int(n) for n in re.findall(r"@few: (\d+)", r.stdout)]
    assert many[0] == many[-1] > 100 and few[-1] >= few[0] + 10


@pytest.mark.parametrize("options, script", [
    (["--budget", "0"], "uprobe:libc:getppid { @ = count(); } interval:s:5 { exit(); }"),
    ([], "uprobe:libc:getpgrp { @ = count(); } interval:s:3 { exit(); }"),
    # What user space runs is no event of others.
    (["--budget", "0.0001"], "BEGIN { @ = 1 } interval:ms:1 { @++ } interval:s:3 { exit(); }"),
])
def test_within_the_budget(culprit, options, script):
    p = busy()
    try:
        r = trace(culprit, *options, "-e", script)
    finally:
        p.kill()
    assert r.returncode == 0 and "detached" not in r.stderr


def test_no_event_is_missed_before(culprit):
    """A budget changes no count."""
    p = busy()
    tool = subprocess.Popen([culprit, "trace", "--budget", "100000", "-p", str(p.pid), "-e",
                             "uprobe:libc:getppid { @ = count(); }"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)
    try:
        assert tool.stderr.readline().startswith("Attached")
        time.sleep(2)
        p.stdin.write("end\n")
        p.stdin.flush()
        all_calls = int(p.communicate(timeout=30)[0])
        out, err = tool.communicate(timeout=30)
    finally:
        p.kill()
        tool.kill()
    assert "detached" not in err
    assert 0 < int(re.search(r"@: (\d+)", out)[1]) <= all_calls


def listed(culprit, *args, cache):
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    r = subprocess.run([culprit, "list", *args], capture_output=True, text=True, timeout=120, env=env)
    assert r.returncode == 0, r.stderr
    return r.stdout


KINDS = ["tracepoint", "rawtracepoint", "kprobe", "kretprobe", "fentry", "fexit", "uprobe", "uretprobe", "software"]


def test_costs_of_kinds(culprit, tmp_path):
    kinds = [json.loads(line) for line in listed(culprit, "--again", "-f", "json", cache=tmp_path).splitlines()]
    assert [k["kind"] for k in kinds] == KINDS
    costs = {k["kind"]: k for k in kinds}
    for k in kinds:
        assert ("refused" in k) != (k.get("event_ns", 0) > 0)
    # A trap costs more than a call, by a factor of ten at least.
    assert costs["uprobe"]["event_ns"] > costs["rawtracepoint"]["event_ns"]
    assert costs["uprobe"]["least_event_ns"] <= 2 * costs["uprobe"]["event_ns"]
    assert costs["tracepoint"]["probes"] > 100


def test_cost_is_what_a_program_loses(culprit, tmp_path):
    """The measured cost against the slowdown of a program that is probed."""
    code = ("import os, time\nfor k in range(2):\n    b = time.process_time()\n    for i in range(20000): os.getppid()\n"
            "    print(time.process_time() - b, flush=True)\n    if not k: input()\n")
    ns = json.loads(listed(culprit, "--again", "-f", "json", "uprobe:libc:getppid", cache=tmp_path))["event_ns"]
    p = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    plain = float(p.stdout.readline())
    tool = subprocess.Popen([culprit, "trace", "--budget", "0", "-p", str(p.pid), "-e", "uprobe:libc:getppid { }"],
                            stderr=subprocess.PIPE, text=True)
    try:
        assert tool.stderr.readline().startswith("Attached")
        probed = float(p.communicate("go\n", timeout=60)[0])
        tool.wait(timeout=30)
    finally:
        p.kill()
        tool.kill()
    lost = (probed - plain) / 20000 * 1e9
    print(ns, lost)
    assert ns / 4 < lost < ns * 4


def test_points_with_costs(culprit, tmp_path):
    lines = listed(culprit, "tracepoint:sched:sched_switch", cache=tmp_path).splitlines()
    assert len(lines) == 1 and re.match(r"tracepoint:sched:sched_switch +\d+\.\d\d us$", lines[0])
    # The points are those of trace -l, and all of them.
    plain = subprocess.run([culprit, "trace", "-l", "kprobe:*"], capture_output=True, text=True).stdout.splitlines()
    assert [line.split()[0] for line in listed(culprit, "kprobe:*", cache=tmp_path).splitlines()] == plain
    assert len(plain) > 10000


def test_process(culprit, tmp_path):
    p = busy()
    try:
        out = listed(culprit, "-p", str(p.pid), "*getppid*", cache=tmp_path)
    finally:
        p.kill()
    assert re.search(r"^uprobe:\S*libc\.so\.6:getppid ", out, re.M)
    assert re.search(r"^tracepoint:syscalls:sys_enter_getppid ", out, re.M)


@pytest.mark.parametrize("args, status, text", [
    (["nothing:*"], 2, "no kind of probe 'nothing'"),
    (["uprobe:libc:no_such_function_at_all"], 1, "no function 'no_such_function_at_all'"),
    (["a", "b"], 2, "takes one glob"),
    (["-f", "xml"], 2, "no output format 'xml'"),
])
def test_errors(culprit, args, status, text):
    r = subprocess.run([culprit, "list", *args], capture_output=True, text=True)
    assert r.returncode == status and text in r.stderr and r.stderr.count("\n") == 1, r.stderr


@pytest.mark.parametrize("point", ["uprobe:{culprit}:trace_print_record", "rawtracepoint:sys_enter"])
def test_more_output_than_can_be_printed_ends_in_time(culprit, point):
    """Each line that is printed makes another event; or a process makes more than can be printed."""
    with busy():
        begin = time.monotonic()
        r = trace(culprit, "--budget", "0", "-e", 'BEGIN { printf("go\\n"); } ' + point.format(culprit=culprit)
                  + ' { printf("event\\n"); } interval:s:1 { exit(); }')
    assert r.returncode == 0
    assert r.stdout.startswith("go\nevent\n")
    assert time.monotonic() - begin < 30
