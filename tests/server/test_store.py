# SPDX-License-Identifier: Apache-2.0
"""The SQLite store under torture: killed, out of space, damaged. The number of a batch determines its
content; tests/tools/store_tool.c writes batches and judges what is stored.

A failure prints the seed; CULPRIT_SEED=N runs the same dice again (moments of time still differ).
"""

import os
import random
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import time

import pytest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SEED = int(os.environ.get("CULPRIT_SEED") or random.SystemRandom().randrange(1 << 32))
AGE = "age_h=30"


@pytest.fixture(scope="session")
def tool(executable):
    path = os.path.join(os.path.dirname(os.path.dirname(executable)), "tests/tools/store_tool")
    assert os.access(path, os.X_OK), f"{path} is not there: make"
    return path


@pytest.fixture
def dice(request):
    print(f"seed {SEED}")
    return random.Random(f"{SEED} {request.node.name}")


class Writer:
    """A process that writes batches, and the lines that it prints."""

    def __init__(self, tool, directory, *args):
        tool = tool if isinstance(tool, list) else [tool]
        self.process = subprocess.Popen([*tool, "write", str(directory), *map(str, args)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.buffer = b""

    def lines(self, until=None):
        """Lines until one begins with `until`, or to the end of a process that ended."""
        fd = self.process.stdout.fileno()
        while True:
            while b"\n" in self.buffer:
                line, _, self.buffer = self.buffer.partition(b"\n")
                line = line.decode()
                yield line
                if until and line.startswith(until):
                    return
            assert select.select([fd], [], [], 120)[0], "the writer hangs"
            data = os.read(fd, 1 << 16)
            if not data:
                self.process.wait(60)
                return
            self.buffer += data

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        if self.process.poll() is None:
            self.process.kill()
        return self.process.wait(60)


def acked(lines):
    return [int(i.split()[1]) for i in lines if i.startswith("ack ")]


def verify(tool, directory, written, *args, status=0):
    tool = tool if isinstance(tool, list) else [tool]
    r = subprocess.run([*tool, "verify", str(directory), str(written), *args], timeout=300,
                       capture_output=True, text=True)
    assert r.returncode == status, f"seed {SEED}: verify {written}: {r.stdout}{r.stderr}"
    words = [i for i in r.stdout.splitlines() if i.startswith("present ")][0].split()
    return {k: int(v) for k, v in zip(words[::2], words[1::2])}


def integrity(directory):
    with sqlite3.connect(f"file:{directory}/profiles.db?mode=ro", uri=True) as db:
        return db.execute("PRAGMA integrity_check").fetchone()[0]


def kill_once(tool, directory, next_batch, dice, *more):
    """Writes until it is killed, again and again. Returns how many batches were acknowledged, and where it died."""
    again = max(0, next_batch - dice.choice([0, 0, 0, 1, 3]))
    if dice.random() < 0.5:
        # At a system call: the first ones are those of opening and recovery.
        w = Writer(tool, directory, again, 1000000, AGE, f"die={int(2 ** dice.uniform(0, 13))}", *more)
        lines = list(w.lines())
    else:
        w = Writer(tool, directory, again, 1000000, AGE, *more)
        lines = list(w.lines("ack")) if dice.random() < 0.9 else []
        time.sleep(dice.uniform(0, 0.5))
        w.process.send_signal(signal.SIGKILL)
        lines += list(w.lines())
    status = w.end()
    assert status == -signal.SIGKILL, f"the writer ended by itself: {status}, {lines[-3:]}"
    died = [i for i in lines if i.startswith("died ")]
    bad = [i for i in lines if i.split()[0] not in ("ack", "died")]
    assert not bad, bad
    where = "at any time"
    if died:
        where = died[0].replace(str(directory) + "/", "")[5:]
    return acked(lines), where


def torture(tool, directory, dice, kills, *more):
    """An acknowledged batch is there once; another one is there as a whole or not at all. Batches that were
    not acknowledged, and some that were, are sent again with their tokens."""
    written, where = 0, {}
    for i in range(kills):
        acks, what = kill_once(tool, directory, written, dice, *more)
        where[what] = where.get(what, 0) + 1
        if acks:
            assert acks == list(range(acks[0], acks[0] + len(acks)))
            written = max(written, acks[-1] + 1)
        verify(tool, directory, written, AGE, *more)
        if i % 20 == 19:
            assert integrity(directory) == "ok"
    return written, where


@pytest.fixture
def filled(tool, tmp_path):
    """A store with 150 batches, closed."""
    directory = tmp_path / "store"
    w = Writer(tool, directory, 0, 150, AGE)
    assert acked(w.lines()) == list(range(150)) and w.end() == 0
    return directory


def test_the_judge_judges(tool, filled):
    verify(tool, filled, 150, AGE)
    verify(tool, filled, 151, AGE, status=1)
    verify(tool, filled, 148, AGE, status=1)
    with sqlite3.connect(filled / "profiles.db") as db:
        row = db.execute("SELECT * FROM blocks LIMIT 1").fetchone()
        db.execute("DELETE FROM blocks WHERE n=?", row[:1])
    assert verify(tool, filled, 150, AGE, "damaged=1")["missing"] > 0
    verify(tool, filled, 150, AGE, status=1)
    with sqlite3.connect(filled / "profiles.db") as db:
        db.execute("DELETE FROM tokens")
    w = Writer(tool, filled, 149, 150, AGE)
    assert acked(w.lines()) == [149] and w.end() == 0
    verify(tool, filled, 150, AGE, "damaged=1", status=1)


@pytest.mark.parametrize("kills", [pytest.param(20, id="quick"),
                                   pytest.param(220, id="whole", marks=pytest.mark.slow)])
def test_killed_at_any_moment(tool, tmp_path, dice, kills):
    written, where = torture(tool, tmp_path / "store", dice, kills)
    w = Writer(tool, tmp_path / "store", written, written + 200, AGE)
    lines = list(w.lines())
    assert w.end() == 0, lines[-3:]
    found = verify(tool, tmp_path / "store", written + 200, AGE)
    assert found["damaged"] == 0
    print(f"{kills} kills, {written} batches, {found['rows']} rows kept; killed {where}")
    if kills >= 200:
        # Otherwise retention did not run.
        assert found["first"] > 24
        assert any("profiles.db-wal" in i for i in where), where
        assert any(i.endswith("profiles.db") for i in where), where


@pytest.mark.parametrize("kills", [pytest.param(10, id="quick"),
                                   pytest.param(120, id="whole", marks=pytest.mark.slow)])
def test_killed_while_spans_are_written(tool, tmp_path, dice, kills):
    """The same for spans, which have a file of their own, and for links, which are in both files."""
    written, where = torture(tool, tmp_path / "store", dice, kills, "spans=1")
    verify(tool, tmp_path / "store", written, AGE, "spans=1")
    print(f"{kills} kills, {written} batches; killed {where}")
    if kills >= 100:
        assert any("spans.db-wal" in i for i in where), where
    # The judge sees what is missing.
    for kind in (0, 1):
        shutil.copytree(tmp_path / "store", tmp_path / f"less{kind}")
        with sqlite3.connect(tmp_path / f"less{kind}/spans.db") as db:
            db.execute("DELETE FROM span_blocks WHERE kind=?", (kind,))
        verify(tool, tmp_path / f"less{kind}", written, AGE, "spans=1", status=1)


# ---- no space left ----


class Disk:
    """A small file system in a mount namespace of its own, which ends with the process that holds it."""

    def __init__(self, directory, megabytes):
        os.mkdir(directory)
        self.directory = directory
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        self.keeper = subprocess.Popen(
            ["unshare", *user, "--mount", "sh", "-c", f"mount -t tmpfs -o size={megabytes}m none "
             f"{directory} && echo there && exec cat"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if self.keeper.stdout.readline() != b"there\n":
            pytest.skip(f"no mount namespaces here: {self.keeper.stderr.read().decode().strip()}")
        self.inside = ["nsenter", *(["-U", "--preserve-credentials"] if user else []), "-m", "-t",
                       str(self.keeper.pid)]

    def run(self, *command):
        return subprocess.run([*self.inside, *map(str, command)], check=True, timeout=60,
                              capture_output=True, text=True).stdout

    def end(self):
        for f in (self.keeper.stdin, self.keeper.stdout, self.keeper.stderr):
            f.close()
        self.keeper.wait(60)


@pytest.fixture
def disk(tmp_path):
    disks = []

    def make(megabytes):
        disks.append(Disk(tmp_path / f"disk{len(disks)}", megabytes))
        return disks[-1]

    yield make
    for d in disks:
        d.end()


def try_again(writer):
    writer.process.stdin.write(b"again\n")
    writer.process.stdin.flush()


def fill(tool, d, *args):
    """A writer on a disk that became full, its lines up to its last error, and its store's directory. 8 MB on
    the disk can be freed."""
    d.run("dd", "if=/dev/zero", f"of={d.directory}/ballast", "bs=1M", "count=8")
    w = Writer([*d.inside, tool], d.directory / "store", 0, 100000, *args)
    lines = list(w.lines("error"))
    try_again(w)
    lines += list(w.lines("error"))
    assert re.search("no space left for .*--(spans-)?max-size", lines[-1]), lines[-1]
    assert len(acked(lines)) > 20
    return w, lines


@pytest.mark.parametrize("more", [[], ["spans=1"]])
def test_disk_full(tool, disk, more):
    """Batches that do not fit are refused with a reason. Acknowledged batches can be read while the disk is
    full, and writing goes on when there is space again."""
    d = disk(20)
    w, lines = fill(tool, d, *more)
    d.run("rm", d.directory / "ballast")
    try_again(w)
    failed, refused = int(lines[-1].split()[1]), 0
    for line in w.lines(f"ack {failed + 20}"):
        lines.append(line)
        # The log takes the new room until the next maintenance, which may come late.
        if line.startswith("error"):
            refused += 1
            assert refused < 1000, line
            time.sleep(0.02)
            try_again(w)
    w.process.kill()
    lines += list(w.lines())
    w.end()
    batches = acked(lines)
    assert batches == list(range(len(batches))) and len(batches) > failed + 20
    verify([*d.inside, tool], d.directory / "store", len(batches), *more)


@pytest.mark.parametrize("how, more", [("killed", []), ("ended", []), ("killed", ["spans=1"])])
def test_opened_on_a_full_disk(tool, disk, how, more):
    d = disk(20)
    w, lines = fill(tool, d, *more)
    if how == "killed":
        w.process.kill()
    w.end()
    verify([*d.inside, tool], d.directory / "store", len(acked(lines)), *more)


def test_a_smaller_size_frees_a_full_disk(tool, disk):
    """The oldest samples are evicted, although at first the disk has no room for a transaction."""
    d = disk(20)
    w, lines = fill(tool, d)
    w.process.kill()
    w.end()
    written = len(acked(lines))
    w = Writer([*d.inside, tool], d.directory / "store", written, written + 400, "max_mb=3")
    refused = 0
    for line in w.lines(f"ack {written + 399}"):
        if line.startswith("error"):
            refused += 1
            assert refused < 1000, line
            try_again(w)
    rest = list(w.lines())
    assert w.end() == 0, rest
    found = verify([*d.inside, tool], d.directory / "store", written + 400, "max_mb=3")
    assert found["bytes"] <= 3 << 20
    assert found["present"] > 0


# ---- retention ----


def test_size_holds_while_writing(tool, tmp_path):
    """With writing at full speed, and maintenance, all files together stay below the size, but for a batch
    (the largest take some 300 KiB). The newest batches are left, as a whole."""
    size = 3 << 20
    w = Writer(tool, tmp_path / "store", 0, 2500, "max_mb=3")
    lines = list(w.lines())
    assert w.end() == 0, lines[-3:]
    assert len(acked(lines)) == 2500
    largest = int([i for i in lines if i.startswith("largest")][0].split()[1])
    found = verify(tool, tmp_path / "store", 2500, "max_mb=3")
    print(f"largest {largest}, at the end {found}")
    assert size / 2 < largest <= size + (512 << 10)
    # Dictionaries take most of the space: only the last hours are left.
    assert 0 < found["first"] < 2500 * 2 // 60 - 3


def test_the_older_limit_is_age(tool, tmp_path):
    w = Writer(tool, tmp_path / "store", 0, 3000, "max_mb=1000", AGE)
    lines = list(w.lines())
    assert w.end() == 0, lines[-3:]
    found = verify(tool, tmp_path / "store", 3000, AGE)
    # A rounded sample has the time at which its day begins, and is evicted 30 hours later. So the day of the
    # limit may be there or not; earlier days are not there, later ones are.
    assert (100 - 30) // 24 * 24 - 24 <= found["first"] <= (100 - 30) // 24 * 24 + 24, found


# ---- damage ----


@pytest.fixture(scope="module")
def whole(tool, tmp_path_factory):
    """Stores of 240 batches: one was closed, the writer of the other was killed and left a log."""
    found = {}
    for how in ("closed", "killed"):
        directory = tmp_path_factory.mktemp("whole") / how
        w = Writer(tool, directory, 0, 240 if how == "closed" else 100000, AGE, "spans=1")
        lines = list(w.lines("ack 239"))
        if how == "killed":
            w.process.kill()
        lines += list(w.lines())
        w.end()
        found[how] = directory, len(acked(lines))
    return found


def flip(path, dice):
    """Flips bits in one place or in several."""
    size = os.path.getsize(path)
    with open(path, "r+b") as f:
        for _ in range(dice.choice([1, 1, 1, 8])):
            at = dice.randrange(size)
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ 1 << dice.randrange(8)]))


def cut(path, dice):
    os.truncate(path, dice.choice([0, dice.randrange(os.path.getsize(path)),
                                   dice.randrange(os.path.getsize(path)) // 4096 * 4096]))


def blank(path, dice):
    """Zeroes pages, as a file system may after a crash."""
    with open(path, "r+b") as f:
        f.seek(dice.randrange(os.path.getsize(path)) // 4096 * 4096)
        f.write(bytes(4096 * dice.choice([1, 1, 3])))


def damage_once(tool, whole, directory, dice):
    """Damages the store once. Returns how, and what was there afterwards."""
    how = dice.choice(["closed", "killed"])
    source, written = whole[how]
    shutil.copytree(source, directory)
    name = dice.choice(["profiles", "profiles", "spans"]) + ".db" + (dice.choice(["", "-wal"]) if how == "killed" else "")
    what = dice.choice([flip, flip, cut, blank])
    what(directory / name, dice)
    did = f"{what.__name__} {name} {how}"
    try:
        first = verify(tool, directory, written, AGE, "damaged=1", "spans=1")
        # New batches are stored after a repair.
        w = Writer(tool, directory, written, written + 40, AGE, "spans=1")
        full = 0
        for line in w.lines(f"ack {written + 39}"):
            if line.startswith("error"):
                # A page that refers to one beyond all looks like a full disk at first.
                full += "no space left" in line
                assert "damaged" in line or full in (1, 2), line
                time.sleep(0.05)
                try_again(w)
        list(w.lines())
        assert w.end() == 0
        then = verify(tool, directory, written + 40, AGE, "damaged=1", f"whole_from={written}", "spans=1")
    except AssertionError as e:
        raise AssertionError(f"seed {SEED}: {did}, kept in {directory}: {e}") from e
    shutil.rmtree(directory)
    return did, first, then


@pytest.mark.parametrize("rounds", [pytest.param(10, id="quick"),
                                    pytest.param(200, id="whole", marks=pytest.mark.slow)])
def test_damage_is_reported_and_the_rest_served(tool, whole, tmp_path, dice, rounds):
    """Random damage to bits, pages and ends of the files: no answer is wrong, missing data is reported, and the
    store goes on."""
    kept = {}
    for i in range(rounds):
        did, first, then = damage_once(tool, whole, tmp_path / str(i), dice)
        kept.setdefault(did, []).append((first["present"], first["lost"], then["present"]))
    for did, found in sorted(kept.items()):
        print(did, found[:12])


def test_a_server_reports_damage(serve, tmp_path):
    """In the log, at /metrics and /healthz, and in answers about times before the damage."""
    first = serve()
    now = int(time.time())
    body = b"main;work 5\nmain;rest 2\n"
    assert first.post("/ingest", body, name="shop.cpu", format="folded", **{"from": now}).status == 200
    store = os.path.join(first.directory, "store")
    first.stop()
    with sqlite3.connect(f"{store}/profiles.db") as db:
        root = db.execute("SELECT rootpage FROM sqlite_schema WHERE name='names'").fetchone()[0]
    db.close()
    with open(f"{store}/profiles.db", "r+b") as f:
        f.seek((root - 1) * 4096)
        f.write(bytes(4096))
    second = serve(directory=first.directory)
    assert "profiles.db was damaged" in second.stderr and "kept as" in second.stderr
    assert "culprit_store_damaged 1\n" in second.get("/metrics").text
    assert second.get("/api/v1/health").json()["status"] == "damaged"
    # New samples are stored. The old ones are there, too, but their service is not known.
    assert second.post("/ingest", b"main;new 3\n", name="shop.cpu", format="folded",
                       **{"from": now}).status == 200
    old = {"from": (now - 3600) * 1000, "to": (now + 3600) * 1000, "query": '{service_name="shop"}'}
    answer = second.get("/api/v1/flamegraph", **old).json()
    assert answer["quality"]["damaged"] is True, answer
    assert "new" in answer["names"] and "rest" not in answer["names"]
    everything = second.get("/api/v1/label-values", **old, label="service_name").json()
    assert [i["name"] for i in everything["values"]] == ["shop"]
    assert [i for i in os.listdir(store) if ".damaged-" in i]
