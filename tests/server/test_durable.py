# SPDX-License-Identifier: Apache-2.0
"""What an accident must not do to a server's data: a clock that jumps, senders whose clocks are wrong, a full disk,
damage; and backup, restore and upgrade."""

import base64
import json
import os
import re
import sqlite3
import subprocess
import threading
import time

import pytest

from conftest import Server, wait_for
from test_api import report
from test_ingest import folded
from test_store import Disk, Writer, acked, tool, verify  # noqa: F401
from test_traces import TRACE, export, span
from test_types import otlp, pprof

DAY = 86400
CPU = ([("cpu", "nanoseconds")], ("cpu", "nanoseconds"))
# The wall clock of a process, moved by the seconds in a file of 8 bytes.
SHIM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long *offset;
__attribute__((constructor)) static void begin(void)
{
	int fd = open(getenv("CLOCK_OFFSET"), O_RDONLY);
	offset = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
}
int clock_gettime(clockid_t clock, struct timespec *t)
{
	int r = syscall(SYS_clock_gettime, clock, t);
	if (r == 0 && clock == CLOCK_REALTIME && offset)
		t->tv_sec += *offset;
	return r;
}
time_t time(time_t *ret)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	if (ret)
		*ret = t.tv_sec;
	return t.tv_sec;
}
"""


class Clock:
    def __init__(self, directory):
        self.path, source, self.shim = directory / "offset", directory / "shim.c", directory / "shim.so"
        source.write_text(SHIM)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.shim, source], check=True, timeout=60)
        self.set(0)

    def set(self, seconds):
        with open(self.path, "r+b" if self.path.exists() else "w+b") as f:
            f.write(seconds.to_bytes(8, "little", signed=True))


@pytest.fixture
def clock(tmp_path, monkeypatch):
    """clock.set(SECONDS) moves the wall clock of the servers that the test starts."""
    c = Clock(tmp_path)
    monkeypatch.setenv("LD_PRELOAD", str(c.shim))
    monkeypatch.setenv("CLOCK_OFFSET", str(c.path))
    monkeypatch.setenv("ASAN_OPTIONS", "verify_asan_link_order=0")  # for a build with sanitizers
    return c


def upload(server, text, at=None, service="shop"):
    at = int(at or time.time() - 60)
    return server.post("/ingest", text, name=f"{service}.cpu", **{"from": at, "until": at + 1})


def rows(server):
    """Stored rows: two for each line of folded text, CPU time and number of samples."""
    return server.get("/api/v1/stats").json()["store"]["rows"]


def metric(server, name):
    found = re.search("^" + re.escape(name) + r" (\S+)$", server.get("/metrics").text, re.M)
    return float(found.group(1))


# ---- the clock of the server ----

def test_a_clock_that_jumps_erases_nothing(serve, clock):
    s = serve()
    assert upload(s, b"a;b 3\n", time.time() - 3600).status == 200
    assert upload(s, b"a;c 4\n").status == 200
    export(s, span())
    clock.set(32 * DAY)
    wait_for(lambda: "later than expected" in s.stderr, "the step is not noticed")
    time.sleep(5.5)  # one more round of maintenance
    assert metric(s, "culprit_clock_doubted") == 1
    # Samples with the right time, and samples with the time of this machine.
    assert upload(s, b"a;d 5\n").status == 200
    assert upload(s, b"a;d 5\n", time.time() + 32 * DAY).status == 200
    clock.set(0)
    wait_for(lambda: "shows the expected time again" in s.stderr, "the step back is not noticed")
    assert rows(s) == 8
    assert s.get("/api/v1/stats").json()["store"]["spans"] == 1
    assert s.stderr.count("later than expected") == 1, s.stderr
    assert metric(s, "culprit_clock_doubted") == 0


def test_a_clock_that_was_wrong_at_the_start(serve, clock, tmp_path):
    s = serve()
    assert upload(s, b"a;b 3\n").status == 200
    s.stop()
    clock.set(100 * DAY)
    # Without the file, which an older culprit did not write, the newest sample tells.
    for n in (1, 2):
        s = serve(directory=s.directory)
        time.sleep(5.5)
        assert rows(s) == 2
        assert s.stderr.count("last in use 100.0 days before") == n, s.stderr
        s.stop()
        if n == 1:
            os.unlink(tmp_path / "server0/store/clock")
    # A day in 1975: nothing is from the future but what is later than both times.
    clock.set(-50 * 365 * DAY)
    s = serve(directory=s.directory)
    time.sleep(5.5)
    assert upload(s, b"a;c 3\n").status == 200
    assert rows(s) == 4
    assert s.stderr.count("earlier than expected") == 1, s.stderr


# ---- clocks of senders ----

def test_times_out_of_the_window_are_refused(serve):
    s = serve("--max-age", 24, "--max-ahead", 10)
    now = time.time()
    assert upload(s, b"a 1\n", now - 23 * 3600).status == 200
    assert upload(s, b"a 1\n", now + 9 * 60).status == 200
    for at, why in ((now - 25 * 3600, "25.0 hours old, which is more than --max-age"),
                    (now + 11 * 60, "ahead of the server's time, which is more than --max-ahead"),
                    (978307200, "hours old"), (4102444800, "hours ahead")):
        a = upload(s, b"a 1\n", at, "sh\nop")
        assert a.status == 422 and why in a.json()["message"] and "check the clock of the sender" in a.json()["message"], a.text
    a = s.post("/api/v1/upload", pprof({"f": (7,)}, *CPU, at_s=now + 7200), labels="service.name=x")
    assert a.status == 422 and "'x' sent samples that are 2.0 hours ahead" in a.json()["message"], a.text
    assert rows(s) == 4
    assert metric(s, 'culprit_ingest_refused_samples_total{reason="old"}') == 4
    assert metric(s, 'culprit_ingest_refused_samples_total{reason="future"}') == 5
    assert len([line for line in s.stderr.splitlines() if "refused:" in line]) == 1, s.stderr


def test_otlp_tells_of_wrong_clocks(server):
    body = otlp("late", {"f": (7,)}, *CPU, at_s=time.time() - 40 * DAY)
    a = server.post("/v1development/profiles", json.dumps(body).encode(), {"Content-Type": "application/json"})
    assert a.status == 200
    assert a.json()["partialSuccess"]["rejectedProfiles"] == "1"
    assert "'late' sent samples that are 960.0 hours old" in a.json()["partialSuccess"]["errorMessage"]
    assert rows(server) == 0
    now = int(time.time() * 1000)
    a = export(server, span(), span(span="01" * 8, start=now + 2 * 3600_000), span(span="02" * 8, start=now - 40 * DAY * 1000))
    assert a.json()["partialSuccess"]["rejectedSpans"] == "2"
    assert "'shop' sent spans that are 2.0 hours ahead" in a.json()["partialSuccess"]["errorMessage"]
    assert server.get("/api/v1/stats").json()["store"]["spans"] == 1
    assert metric(server, 'culprit_ingest_refused_spans_total{reason="old"}') == 1
    assert metric(server, 'culprit_ingest_refused_spans_total{reason="future"}') == 1


def test_an_agents_clock_is_told(server):
    report(server, **{"host.name": "h", "culprit.agent.version": "1"})
    [a] = server.get("/api/v1/agents").json()["agents"]
    assert abs(a["newest"] - a["last"]) < 5000


def test_zipkin_and_push_with_wrong_clocks(server):
    now = int(time.time() * 1e6)
    one = {"traceId": TRACE, "id": "01" * 8, "name": "x", "timestamp": now, "duration": 9, "localEndpoint": {"serviceName": "z"}}
    wrong = {**one, "id": "02" * 8, "timestamp": now + 7200 * 10**6}
    headers = {"Content-Type": "application/json"}
    assert server.post("/api/v2/spans", json.dumps([one, wrong]).encode(), headers).status == 202
    a = server.post("/api/v2/spans", json.dumps([wrong]).encode(), headers)
    assert a.status == 422 and "'z' sent spans that are 2.0 hours ahead" in a.json()["message"]
    assert server.get("/api/v1/stats").json()["store"]["spans"] == 1

    def series(service, at):
        raw = base64.b64encode(pprof({"f": (7,)}, *CPU, at_s=at)).decode()
        return {"labels": [{"name": "__name__", "value": "process_cpu"}, {"name": "service_name", "value": service}],
                "samples": [{"rawProfile": raw}]}

    a = server.post("/push.v1.PusherService/Push", json.dumps(
        {"series": [series("wrong", time.time() + 7200), series("right", time.time() - 5)]}).encode(), headers)
    assert a.status == 400 and "'wrong' sent" in a.json()["message"], a.text
    assert rows(server) == 1


def test_negative_values_are_refused(server):
    a = server.post("/api/v1/upload", pprof({"f": (7,), "g": (2**64 - 7,)}, *CPU), labels="service.name=x")
    assert a.status == 400 and "'x' sent samples with negative values" in a.json()["message"], a.text
    assert server.post("/ingest", b"a;b -5\n", name="x.cpu").status == 400
    assert rows(server) == 0
    assert metric(server, 'culprit_ingest_refused_samples_total{reason="negative"}') == 4


# ---- a full disk, evictions ----

@pytest.fixture
def on_disk(executable, tmp_path):
    """on_disk(MEGABYTES, ARG...): a server whose store is on a disk of this size, and the disk."""
    ends = []

    def make(megabytes, *args):
        d = Disk(tmp_path / "disk", megabytes)
        ends.append(d.end)
        inside = tmp_path / "inside"
        inside.write_text(f'#!/bin/sh\nexec {" ".join(d.inside)} {executable} "$@"\n')
        inside.chmod(0o755)
        s = Server(str(inside), list(args), str(d.directory))
        ends.append(s.stop)
        return s, d

    yield make
    for end in reversed(ends):
        end()


def health(server):
    return server.get("/api/v1/health").json()["status"]


def test_a_full_disk_is_told(on_disk):
    s, d = on_disk(20)
    assert upload(s, b"a 1\n").status == 200
    assert health(s) == "ok"
    d.run("dd", "if=/dev/zero", f"of={d.directory}/ballast", "bs=1M", "count=18")
    for i in range(3):
        a = upload(s, b"b 1\n", time.time() - 100 - i)
        assert a.status == 503 and "no space left" in a.json()["message"], a.text
    a = s.request("POST", "/v1/traces", json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span()]}]}]}).encode(),
                  {"Content-Type": "application/json"})
    assert a.status == 503
    assert re.match("disk full: .*no space left for .*: free some", health(s))
    assert s.get("/healthz").status == 200
    assert metric(s, "culprit_store_refused_writes_total") == 4 and metric(s, "culprit_store_failing") == 1
    # Maintenance may fail, too, and has its own lines.
    assert len(re.findall(r"culprit: 1 writes refused: .*no space left", s.stderr)) == 1, s.stderr
    d.run("rm", d.directory / "ballast")
    assert upload(s, b"b 1\n").status == 200
    assert health(s) == "ok"
    assert metric(s, "culprit_store_failing") == 0
    assert "the store can be written again; 4 writes were refused" in s.stderr
    assert rows(s) == 4


def test_evictions_are_told(serve):
    """Of the age, with the time range. (Writers fill a store to its size in test_store.py and the unit tests.)"""
    s = serve()
    at = int(time.time()) - 5 * 3600
    assert upload(s, b"a 1\nb 2\n", at).status == 200
    s.stop()
    s = serve("--max-age", 1, directory=s.directory)
    wait_for(lambda: "deleted" in s.stderr, s.stderr)
    told = time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))
    assert f"culprit: deleted 4 rows of samples from {told} to {told} UTC: they are older than --max-age" in s.stderr
    health = s.get("/api/v1/health").json()
    assert {k: health[k] for k in ("status", "evicted_to", "spans_evicted_to")} == {"status": "ok", "evicted_to": 0, "spans_evicted_to": 0}
    assert [(e["name"], e["count"]) for e in health["events"]] == [("old_rows_deleted", 4)]


def test_evictions_for_size_are_told(serve):
    s = serve("--max-size", 16)
    at = int(time.time()) - 48 * 3600
    for i in range(40):
        text = "".join(f"main;{os.urandom(60).hex()};f{i} 1\n" for _ in range(2000)).encode()
        assert upload(s, text, at + 3600 * i).status == 200
    wait_for(lambda: "deleted" in s.stderr, s.stderr)
    line = re.search(r"deleted \d+ rows of samples from (\S+ \S+) to \S+ \S+ UTC: the store has reached --max-size", s.stderr)
    assert line.group(1) == time.strftime("%Y-%m-%d %H:%M", time.gmtime(at)), s.stderr
    to = s.get("/api/v1/health").json()["evicted_to"]
    assert at * 1000 <= to < (at + 40 * 3600) * 1000


# ---- damage ----

@pytest.mark.parametrize("share", [0.9, 0.7])
def test_a_truncated_store_is_salvaged(tool, tmp_path, share):  # noqa: F811
    """What is before the cut stays, and is exact; the rest is told."""
    w = Writer(tool, tmp_path / "store", 0, 240, "spans=1", "maintain=0")
    assert len(acked(w.lines())) == 240
    w.end()
    for name in ("profiles.db", "spans.db"):
        path = tmp_path / "store" / name
        os.truncate(path, int(path.stat().st_size * share))
    found = verify(tool, tmp_path / "store", 240, "damaged=1", "spans=1")
    assert found["present"] >= 150 and found["missing"] > 0 and found["damaged"] == 2, found
    assert sorted({p.name.split(".damaged")[0] for p in (tmp_path / "store").glob("*.damaged-*")}) == ["profiles.db", "spans.db"]


# ---- backup and restore ----

def command(executable, *args, status=0):
    r = subprocess.run([executable, "server", *map(str, args)], capture_output=True, text=True, timeout=120)
    assert r.returncode == status, f"{args}: {r.returncode} {r.stdout}{r.stderr}"
    return r.stdout + r.stderr


def test_a_backup_while_the_server_writes(serve, executable, tmp_path):
    """Has everything acknowledged before it began, and nothing in part."""
    s = serve()
    symbols = tmp_path / "server0/store/symbols"
    symbols.mkdir(exist_ok=True)
    (symbols / "aa").mkdir()
    (symbols / "aa/file.debug").write_bytes(os.urandom(3 << 20))
    stop, acked_to = threading.Event(), [0]

    def write():
        while not stop.is_set():
            i = acked_to[0]
            export(s, span(span=f"{i + 1:016x}"))
            text = "".join(f"main;f{i};{os.urandom(8).hex()} 1\n" for _ in range(50)).encode()
            assert upload(s, text, time.time() - 10).status == 200
            acked_to[0] = i + 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_for(lambda: acked_to[0] >= 50, "nothing is written")
        before = acked_to[0]
        out = command(executable, "backup", "--data-dir", tmp_path / "server0/store", tmp_path / "backup")
        during = acked_to[0]
        wait_for(lambda: acked_to[0] >= during + 20, "nothing is written any more")
    finally:
        stop.set()
        writer.join()
    assert "verified copy" in out
    assert "exists: choose another name" in command(
        executable, "backup", "--data-dir", tmp_path / "server0/store", tmp_path / "backup", status=1)
    (tmp_path / "restored").mkdir()
    command(executable, "restore", tmp_path / "backup", "--data-dir", tmp_path / "restored/store")
    assert "not empty" in command(executable, "restore", tmp_path / "backup", "--data-dir", tmp_path / "restored/store", status=1)
    assert "not empty" in command(executable, "restore", tmp_path / "backup", "--data-dir", tmp_path / "server0/store", status=1)
    assert (tmp_path / "restored/store/symbols/aa/file.debug").read_bytes() == (symbols / "aa/file.debug").read_bytes()
    r = serve(directory=tmp_path / "restored")
    lines = [stack.split(";")[1] for stack in folded(r, "shop", "process_cpu:cpu:nanoseconds:cpu:nanoseconds")]
    n = len(set(lines))
    assert before <= n <= during + 1, (before, n, during)
    assert sorted(lines) == sorted(f"f{i}" for i in range(n) for _ in range(50))
    stats = r.get("/api/v1/stats").json()["store"]
    assert n <= stats["spans"] <= during + 2 and stats["damaged"] == 0


def test_backups_that_cannot_be_used_are_refused(serve, executable, tmp_path):
    s = serve()
    assert upload(s, b"a 1\n").status == 200
    store, backup = tmp_path / "server0/store", tmp_path / "backup"
    (tmp_path / "backup.part").mkdir()
    assert "interrupted" in command(executable, "backup", "--data-dir", store, backup, status=1)
    (tmp_path / "backup.part").rmdir()
    command(executable, "backup", "--data-dir", store, f"{backup}/")
    s.stop()
    # A backup of a store without a server is the same.
    command(executable, "backup", "--data-dir", store, tmp_path / "again")
    assert (tmp_path / "again/profiles.db").stat().st_size == (backup / "profiles.db").stat().st_size
    new = tmp_path / "new"
    for damage in (lambda f: f.write(b"x"), lambda f: f.truncate(5000)):
        data = (backup / "profiles.db").read_bytes()
        with open(backup / "profiles.db", "r+b") as f:
            f.seek(6000)
            damage(f)
        out = command(executable, "restore", backup, "--data-dir", new, status=1)
        assert "not as it was when the backup was made" in out and not list(new.iterdir())
        (backup / "profiles.db").write_bytes(data)
    command(executable, "restore", backup, "--data-dir", new)
    assert "is no backup" in command(executable, "restore", store, "--data-dir", tmp_path / "other", status=1)
    assert "BACKUP DATABASE" in command(executable, "backup", "--store", "clickhouse://h/d", tmp_path / "x", status=1)
    # A store whose pages are damaged.
    with open(store / "profiles.db", "r+b") as f:
        f.seek(8192)
        f.write(os.urandom(4096))
    assert "damaged" in command(executable, "backup", "--data-dir", store, tmp_path / "third", status=1)
    assert not (tmp_path / "third").exists() and not (tmp_path / "third.part").exists()


# ---- an older version ----

def make_version_1(path):
    with sqlite3.connect(path) as db:
        db.executescript("DROP TABLE state; ALTER TABLE names DROP COLUMN sum; INSERT INTO names VALUES(0, ''); PRAGMA user_version=1")
    db.close()


def version_of(path):
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        return db.execute("PRAGMA user_version").fetchone()[0], db.execute("SELECT count(*) FROM blocks").fetchone()[0]


def test_an_update_keeps_a_copy(tool, tmp_path):  # noqa: F811
    w = Writer(tool, tmp_path / "store", 0, 100)
    assert len(acked(w.lines())) == 100
    w.end()
    path, copy = tmp_path / "store/profiles.db", tmp_path / "store/profiles.db.version-1"
    make_version_1(path)
    before = version_of(path)
    r = subprocess.run([tool, "verify", tmp_path / "store", "100"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    assert f"a copy is kept as {copy}" in r.stderr
    assert before[0] == 1 and version_of(copy) == before and version_of(path) == (2, before[1])
    # The copy is a store.
    os.rename(copy, path)
    verify(tool, tmp_path / "store", 100)


def test_no_update_without_room_for_the_copy(tool, tmp_path):  # noqa: F811
    w = Writer(tool, tmp_path / "small", 0, 100)
    assert len(acked(w.lines())) == 100
    w.end()
    make_version_1(tmp_path / "small/profiles.db")
    size = (tmp_path / "small/profiles.db").stat().st_size
    d = Disk(tmp_path / "disk", 10)
    try:
        d.run("cp", "-r", tmp_path / "small", d.directory / "store")
        d.run("dd", "if=/dev/zero", f"of={d.directory}/ballast", "bs=1k", f"count={10240 - size // 1024 - 600}")
        r = subprocess.run([*d.inside, tool, "verify", d.directory / "store", "100"], capture_output=True, text=True, timeout=60)
        assert r.returncode != 0 and "make room for" in r.stdout + r.stderr, r.stdout + r.stderr
        d.run("cp", d.directory / "store/profiles.db", tmp_path / "after.db")
        assert version_of(tmp_path / "after.db") == version_of(tmp_path / "small/profiles.db")
    finally:
        d.end()
