# SPDX-License-Identifier: Apache-2.0
"""Resident memory by stack (record --resident) of programs whose memory /proc/PID/smaps tells: tests/tools/known_memory.c,
which also knows which of its functions brought it, Python and Java."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
from collections import Counter, defaultdict

import pytest

from pprof import samples
from recorder import record, start_record
from test_procman import TOOLS
from test_up import up

PAGE = os.sysconf("SC_PAGE_SIZE")
KNOWN = os.path.join(TOOLS, "known_memory")
FILE_BYTES = 16 << 20
BEFORE = "[resident before the recording]"


def tmpfs_devices(pid):
    """Numbers of the file systems whose pages are shared memory, as smaps writes them."""
    with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="replace") as f:
        mounts = [line.split(" - ") for line in f]
    numbers = [m[0].split()[2].split(":") for m in mounts if m[1].split()[0] == "tmpfs"]
    return {f"{int(major):02x}:{int(minor):02x}" for major, minor in numbers}


def of_smaps(pid):
    """What the process has by kind, in bytes, and Rss of smaps_rollup."""
    kinds, shared, tmpfs = Counter(), False, tmpfs_devices(pid)
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as f:
        for line in f:
            head = re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ (\S+) \d+ *(.*)", line)
            if head:
                shared = head[1] in tmpfs or re.match(r"/dev/zero|/memfd:|/SYSV", head[2]) is not None
                continue
            name, kib = re.match(r"(\w+): +(\d+) kB", line + " ").groups() if " kB" in line else (None, 0)
            n = int(kib) << 10
            if name == "Rss":
                kinds["shared" if shared else "file"] += n
            elif name == "Anonymous":
                kinds["anonymous"] += n
                kinds["shared" if shared else "file"] -= n
            elif name == "AnonHugePages":
                kinds["huge"] += n
                kinds["anonymous"] -= n
            elif name in ("ShmemPmdMapped", "FilePmdMapped"):
                kinds["huge"] += n
                kinds["shared" if shared else "file"] -= n
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        rss = int(re.search(r"^Rss: +(\d+) kB", f.read(), re.M)[1]) << 10
    return +kinds, rss


class Recorded:
    """The memory in a pprof file by process, kind and function, in bytes."""

    def __init__(self, path):
        self.samples = list(samples(path))
        self.kinds, self.functions, self.pages = defaultdict(Counter), defaultdict(Counter), defaultdict(Counter)
        for s in self.samples:
            pid, kind = s.labels["pid"], s.labels["memory"]
            self.kinds[pid][kind] += s.values[1]
            for function in set(s.functions):
                self.functions[pid][function, kind] += s.values[1]
                self.pages[pid][function, kind] += s.values[0]


def assert_is_smaps(got, pid, told):
    """The sum of the process and of each kind is that of smaps within 1 %, and a few pages that came or went since."""
    kinds, rss = told
    print(pid, dict(got.kinds[pid]), dict(kinds), rss)
    assert abs(sum(got.kinds[pid].values()) - rss) <= rss / 100
    assert abs(sum(kinds.values()) - rss) <= rss / 1000
    for kind in {*kinds, *got.kinds[pid]}:
        assert abs(got.kinds[pid][kind] - kinds[kind]) <= kinds[kind] / 100 + 4 * PAGE, kind


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("resident") / "file"
    path.write_bytes(os.urandom(1 << 20) * (FILE_BYTES >> 20))
    os.sync()
    path.read_bytes()
    return path


class Known:
    """known_memory, until it stands still. `told`: (function, kind) → bytes. `child`: the id of its child."""

    def __init__(self, process):
        self.process, self.told, self.child = process, Counter(), None

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line == "over\n":
                return
            name, *rest = line.split()
            if name == "child":
                self.child = int(rest[0])
            else:
                self.told[name, rest[0]] += int(rest[1])
        raise AssertionError("known_memory has ended")

    def end(self):
        for pid in self.child, self.process.pid:
            try:
                os.kill(pid or self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # the recorder has ended it
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def start_known(*command):
    process = subprocess.Popen([*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return Known(process)


def record_known(culprit, folder, file, *options, what=()):
    """Records it from its second function on. Returns the recording, and what smaps says at its end."""
    known = start_known(KNOWN, file, *what)
    try:
        out = folder / "out.pb.gz"
        recorder, messages = start_record(culprit, out, "-p", known.process.pid, "-d", 600, "--resident", *options)
        known.go_on()
        told = of_smaps(known.process.pid)
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(120) == 0, messages()
        print(messages())
    finally:
        known.end()
    got = Recorded(out)
    got.messages = messages()
    return known, got, told


def test_each_page_is_that_of_its_function(culprit, tmp_path, file):
    """With -c 1 each fault is walked, and each function has exactly what is left of its memory."""
    known, got, told = record_known(culprit, tmp_path, file, "-c", 1)
    pid = known.process.pid
    assert_is_smaps(got, pid, told)
    functions = {f: {k: v for (name, k), v in got.functions[pid].items() if name == f} for f, _ in known.told}
    print(functions)
    for (function, kind), n in known.told.items():
        # Around the memory: the stack of the function itself, headers of malloc; what is copied after the fork.
        slack = 8 * PAGE if function != "trimmed_heap" else n / 100 + 8 * PAGE
        # A file system and the heap may have huge pages.
        kinds = (kind, "huge") if kind == "file" or function == "trimmed_heap" else (kind,)
        assert abs(sum(functions[function].get(k, 0) for k in kinds) - n) <= slack, function
    before = sum(n for (function, _), n in got.functions[pid].items() if function == BEFORE)
    assert before >= 10 << 20
    unknown = sum(n for (function, _), n in got.functions[pid].items() if function == "[unknown]")
    assert unknown <= told[1] / 200


def test_within_the_budget(culprit, tmp_path, file):
    """Without -c few faults are walked: the sums are exact, and what a function has is right to within an interval."""
    known, got, told = record_known(culprit, tmp_path, file)
    pid = known.process.pid
    assert_is_smaps(got, pid, told)
    of_kind = Counter()
    for (function, kind), n in known.told.items():
        of_kind[kind] += n
    of_kind["huge"] += of_kind.pop("file")
    for kind, n in of_kind.items():
        kinds = ("huge", "file") if kind == "huge" else (kind,)
        # Which faults there were is known of each page.
        seen = sum(s.values[1] for s in got.samples
                   if s.labels["memory"] in kinds and {f for f, _ in known.told} & set(s.functions))
        assert abs(seen - n) <= n / 15 + 16 * PAGE, kind
    before = sum(n for (function, _), n in got.functions[pid].items() if function == BEFORE)
    assert before >= 10 << 20
    # What was said of a share of a tenth, for other shares: five standard deviations.
    said = re.search(r"a stack with a tenth of them is right to ([\d.]+) %", got.messages)
    of_all = sum(known.told.values())
    for (function, kind), n in known.told.items():
        kinds = (kind, "huge") if kind == "file" or function == "trimmed_heap" else (kind,)
        seen = sum(got.functions[pid][function, k] for k in kinds)
        deviation = (float(said[1]) if said else 0) / 200 / 3 * math.sqrt(n / of_all * (1 - n / of_all)) * of_all
        print(function, kind, n, seen, round((seen - n) / (deviation + 1), 2))
        assert abs(seen - n) <= 5 * deviation + 16 * PAGE, function


def test_more_pages_than_are_followed(culprit, tmp_path, file):
    """Then some stand for all, also those that move; the sums stay exact."""
    known, got, told = record_known(culprit, tmp_path, file, what=["much"])
    pid = known.process.pid
    assert_is_smaps(got, pid, told)
    assert int(re.search(r"one of (\d+) pages of memory was followed", got.messages)[1]) in (2, 4)
    for function, n in ("much", 448 << 20), ("much_moved", 192 << 20):
        assert abs(got.functions[pid][function, "anonymous"] - n) <= n / 10, function
    # All of its faults were walked, of the others not all: their weights are right.
    assert abs(got.functions[pid]["slowly", "anonymous"] - (4 << 20)) <= 1 << 20
    assert abs(got.functions[pid][BEFORE, "anonymous"] - (10 << 20)) <= 1 << 20
    assert got.functions[pid]["[moved by mremap]", "anonymous"] <= 1 << 20
    assert got.functions[pid]["[unknown]", "anonymous"] <= 1 << 20


def test_a_child_has_the_memory_of_its_parent(culprit, tmp_path, file):
    """What both have counts for both, as in smaps; what the child has copied is its own function's."""
    out = tmp_path / "out.pb.gz"
    known = start_known(culprit, "record", "-o", out, "--resident", "-c", 1, "--", KNOWN, file)
    try:
        parent = int(subprocess.run(["pgrep", "-P", str(known.process.pid), "-x", "known_memory"], check=True,
                                    capture_output=True, text=True).stdout)
        known.go_on()
        told = {pid: of_smaps(pid) for pid in (parent, known.child)}
        known.process.send_signal(signal.SIGINT)
        known.process.wait(120)
    finally:
        known.end()
    got = Recorded(out)
    for pid, of_pid in told.items():
        assert_is_smaps(got, pid, of_pid)
    child = got.functions[known.child]
    assert abs(child["child_writes", "anonymous"] - (4 << 20)) <= 4 * PAGE
    assert abs(child["child_reads", "shared"] - (6 << 20)) <= 4 * PAGE
    # Half of what the parent wrote is still the same memory, and all that it wrote before.
    assert abs(child["forked", "anonymous"] - (8 << 20)) <= 8 * PAGE
    for function, kind in ("kept", "anonymous"), ("second_owner", "anonymous"), ("moved_by_mremap", "anonymous"):
        assert abs(child[function, kind] - known.told[function, kind]) <= 4 * PAGE, function
    parent = got.functions[parent]
    assert not parent["child_writes", "anonymous"] and abs(parent["forked", "anonymous"] - (8 << 20)) <= 8 * PAGE


def test_a_command_that_has_ended(culprit, tmp_path):
    """What it had shortly before its end is shown."""
    out = tmp_path / "out.pb.gz"
    code = "import time; kept = bytearray(b'x') * (64 << 20); time.sleep(0.5)"
    record(culprit, out, "--resident", "--", sys.executable, "-c", code)
    got = Recorded(out)
    assert len(got.kinds) == 1
    kinds = next(iter(got.kinds.values()))
    print(dict(kinds))
    assert 64 << 20 <= kinds["anonymous"] + kinds["huge"] < 80 << 20


PYTHON = "kept = [str(i) for i in range(300000)]; print('ready', flush=True); input()"
JAVA = """
public class Kept {
    static byte[][] kept = new byte[64][];
    public static void main(String[] args) throws Exception {
        for (int i = 0; i < kept.length; i++)
            kept[i] = new byte[1 << 20];
        System.out.println("ready");
        System.in.read();
    }
}
"""


@pytest.mark.parametrize("language", ["python", "java"])
def test_the_sum_of_a_runtime(culprit, tmp_path, language):
    """A process that was there before, and goes on a little."""
    if language == "java":
        if not shutil.which("java") or not shutil.which("javac"):
            pytest.skip("there is no JDK")
        (tmp_path / "Kept.java").write_text(JAVA)
        subprocess.run(["javac", "-d", tmp_path, tmp_path / "Kept.java"], check=True, timeout=120)
        command = ["java", "-cp", tmp_path, "Kept"]
    else:
        command = [sys.executable, "-c", PYTHON]
    known = start_known(*command)
    try:
        out = tmp_path / "out.pb.gz"
        recorder, messages = start_record(culprit, out, "-p", known.process.pid, "-d", 600, "--resident")
        told = of_smaps(known.process.pid)
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(120) == 0, messages()
    finally:
        known.end()
    assert_is_smaps(Recorded(out), known.process.pid, told)


@pytest.mark.parametrize("args, says", [
    (("--resident", "-F", 99), "--resident has no rate"),
    (("--resident", "--off-cpu"), "exclude each other"),
    (("--resident", "--last", 5), "of one moment"),
])
def test_mistakes_are_told_in_a_line(culprit, tmp_path, args, says):
    done = record(culprit, tmp_path / "out.folded", *args, "-d", 1, check=False)
    assert done.returncode in (1, 2) and says in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_top_refuses_what_is_no_rate(culprit):
    done = subprocess.run([culprit, "top", "--resident"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "top shows rates" in done.stderr and done.stderr.count("\n") == 1, done.stderr


RESIDENT = "memory:resident:bytes:resident:bytes"


def test_the_always_on_agent(culprit, tmp_path, place):
    """Each period has what is resident at its end, and an export of several periods is their mean."""
    code = "import sys; kept = bytearray(b'x') * (96 << 20); print('ready', flush=True); sys.stdin.read()"
    with up(culprit, place / "store", "--resident") as u:
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, "OTEL_SERVICE_NAME": "keeper"})
        try:
            assert process.stdout.readline() == "ready\n"

            def has_memory():
                """Sum by kind, once there is more than a period."""
                try:
                    text = u.get("/api/v1/export", format="pprof", type=RESIDENT, query='{service.name="keeper"}')
                except urllib.error.HTTPError:
                    return None
                (tmp_path / "out.pb.gz").write_bytes(text)
                kinds = Counter()
                for s in samples(tmp_path / "out.pb.gz"):
                    kinds[s.labels.get("memory")] += s.values[-1]
                return kinds if sum(kinds.values()) > 96 << 20 else None
            kinds = u.wait_for(has_memory, 60)
            told, rss = of_smaps(process.pid)
            print(kinds, told, rss)
            assert kinds and abs(sum(kinds.values()) - rss) <= rss / 20
            types = {t["name"] for t in json.loads(u.get("/api/v1/types"))["types"]}
            assert {RESIDENT, "process_cpu:cpu:nanoseconds:cpu:nanoseconds"} <= types
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
        u.end()
