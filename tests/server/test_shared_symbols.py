# SPDX-License-Identifier: Apache-2.0
# flake8: noqa: F811 (arguments have the names of imported fixtures)
"""Symbol files that several culprit servers share through one ClickHouse: what one server receives, replaces or removes
holds at the others. Late symbols in ClickHouse are kept as long as the frames that they name."""

import datetime
import os
import signal
import time

import pytest

import test_symbols
from late import Program
from test_clickhouse import any_backend, backends, database  # noqa: F401
from test_symbols import SYMBOLS, expected, fill, folded, nameless, program, push  # noqa: F401


def wait_for(condition, what):
    """After a round of naming, which waits for ClickHouse, a server pauses twenty times as long."""
    test_symbols.wait_for(condition, what, 180)


@pytest.fixture
def pair(any_backend, serve, database, tmp_path):
    """Returns a function that starts a server on the database, with the directory `name` for its symbols."""
    def start(name, *more):
        return serve("--store", any_backend.url(database), "--symbols-dir", tmp_path / name, *more)

    return start


def cached(tmp_path, name):
    return [f for _, _, files in os.walk(tmp_path / name / "usr") for f in files]


def knows(server, program, wanted=True):
    wait_for(lambda: (server.get(f"{SYMBOLS}/{program.build_id}").status == 200) == wanted, f"file is known: {wanted}")


def state_of(server, program):
    return server.get(f"{SYMBOLS}/{program.build_id}").json()


def variants(program):
    with open(program.debug, "rb") as f:
        right = f.read()
    wrong = right.replace(b"innermost", b"foolsgold")
    assert wrong != right
    return right, wrong


def test_a_file_names_frames_at_the_other_server(pair, program, tmp_path):
    a, b = pair("a"), pair("b")
    at = int(time.time()) - 300
    first = fill(b, program, at)
    assert folded(b) == nameless(program, first)
    assert push(a, program).json()["new"] is True
    wait_for(lambda: folded(b) == expected(program, first), "names of what came to the other server before the file")
    knows(b, program)
    assert push(b, program).json()["new"] is False
    # Frames that arrive later at a server that has not seen the file, while the one that received it is gone.
    a.stop(signal.SIGKILL)
    more = fill(b, program, at + 60, program.addresses("main"))
    both = expected(program, first)
    for k, n in expected(program, more).items():
        both[k] = both.get(k, 0) + n
    wait_for(lambda: folded(b) == both, "names of what came after the file")
    assert state_of(b, program)["named"] > 0 and cached(tmp_path, "b") == [program.build_id[2:] + ".debug"]
    # The cache is used after a restart, and a new server without a cache fetches the file.
    before = os.stat(next(tmp_path.glob("b/usr/lib/debug/.build-id/*/*.debug"))).st_ino
    b.stop()
    b, c = pair("b"), pair("c")
    knows(b, program)
    knows(c, program)
    assert os.stat(next(tmp_path.glob("b/usr/lib/debug/.build-id/*/*.debug"))).st_ino == before
    fill(c, program, at + 120, service="third")
    wait_for(lambda: cached(tmp_path, "c"), "the third server fetches the file")


def test_replaced_and_removed_at_the_other_server(pair, program, any_backend, database, tmp_path):
    right, wrong = variants(program)
    a, b = pair("a"), pair("b")
    stacks = fill(b, program, int(time.time()) - 300)
    good, bad = expected(program, stacks), nameless(program, stacks)
    fooled = {k.replace("innermost", "foolsgold"): v for k, v in good.items()}
    assert push(b, program, wrong).json()["new"] is True
    wait_for(lambda: folded(b) == fooled, "wrong names")
    assert cached(tmp_path, "b")
    assert push(a, program).json()["new"] is False  # the store has a file of that kind
    assert a.post(f"{SYMBOLS}/{program.build_id}", right, replace="1").json()["new"] is True
    wait_for(lambda: folded(a) == good, "right names")
    # The other server drops its cached file, and names what arrives by the new one.
    wait_for(lambda: not cached(tmp_path, "b"), "the wrong file goes")
    more = fill(b, program, int(time.time()) - 200, program.addresses("main"), service="more")
    wait_for(lambda: folded(a, query='{service_name="more"}') ==
             {k.replace("late;", "more;", 1): v for k, v in expected(program, more).items()}, "right names of what came later")
    assert folded(a, query='{service_name="late"}') == good
    # Each may remove it.
    assert b.request("DELETE", f"{SYMBOLS}/{program.build_id}").status == 200
    assert b.request("DELETE", f"{SYMBOLS}/{program.build_id}").status == 404
    knows(a, program, False)
    wait_for(lambda: folded(b, query='{service_name="late"}') == bad, "no names")
    assert not cached(tmp_path, "a") and not cached(tmp_path, "b")
    assert a.request("DELETE", f"{SYMBOLS}/{program.build_id}").status == 404
    # The database says who did what, and so do the logs of both servers.
    told = any_backend.query("SELECT state, peer FROM symbols ORDER BY changed_ms", database).split()
    assert told == ["1", "127.0.0.1", "2", "127.0.0.1", "3", "127.0.0.1"]
    wait_for(lambda: "audit: symbols-removed" in a.stderr and "at another server" in a.stderr, "the log of the other server")
    wait_for(lambda: any_backend.query("SELECT count() FROM symbol_parts", database) == "0\n", "the content goes")
    # What was removed may come again.
    assert push(a, program).json()["new"] is True
    wait_for(lambda: folded(a, query='{service_name="late"}') == good, "names again")


def test_size_is_bounded_and_files_come_in_parts(pair, any_backend, database, tmp_path):
    a, b = pair("a", "--symbols-max-size", "80"), pair("b", "--symbols-max-size", "80")
    programs = [Program(str(tmp_path / "programs"), f"p{k}_") for k in range(5)]
    for k, p in enumerate(programs):
        with open(p.debug, "rb") as f:
            data = f.read() + os.urandom(19 << 20)
        assert push(a, p, data).json()["new"] is True
        time.sleep(0.01)
    knows(b, programs[-1])
    assert [b.get(f"{SYMBOLS}/{p.build_id}").status for p in programs] == [404, 200, 200, 200, 200]
    listed = b.get(SYMBOLS).json()
    assert 76 << 20 < listed["bytes"] < 80 << 20 == listed["max_bytes"]
    wait_for(lambda: int(any_backend.query("SELECT count() FROM symbol_parts", database)) == 4 * 3, "the content of the first goes")
    stacks = fill(b, programs[-1], int(time.time()) - 300, service="late")
    a.stop(signal.SIGKILL)
    wait_for(lambda: folded(b) == expected(programs[-1], stacks), "names from a file of three parts")
    with open(next((tmp_path / "b").glob("usr/lib/debug/.build-id/*/*.debug")), "rb") as f:
        assert f.read() == data


def test_files_of_before_are_given_to_the_store(pair, serve, program, tmp_path):
    """A directory of symbols of an older culprit, or of a server that had a store of its own."""
    old = serve("--symbols-dir", tmp_path / "a")
    assert push(old, program).status == 200
    old.stop()
    a, b = pair("a"), pair("b")
    knows(b, program)
    knows(a, program)
    assert cached(tmp_path, "a") and not cached(tmp_path, "b")


def number(backend, database, what):
    return int(backend.query(f"SELECT count() FROM {what}", database))


def to_month(backend, database, table, month, where):
    """Moves rows of a dictionary to another month, as if they had not been sent since."""
    local = "_local ON CLUSTER fleet" if backend.name == "cluster" else ""
    columns = {"frames": "id, kind, flags, path, build_id, address, function, line, col",
               "functions": "id, name, system_name, file, start_line"}[table]
    backend.query(f"INSERT INTO {table} (month, {columns}) SELECT toUInt32({month}), {columns} FROM {table} WHERE {where}", database)
    now = datetime.datetime.now(datetime.timezone.utc)
    backend.query(f"ALTER TABLE {table}{local} DROP PARTITION {now:%Y%m}", database)


def test_late_symbols_go_with_what_they_name(pair, program, any_backend, database):
    a = pair("a")
    stacks = fill(a, program, int(time.time()) - 300)
    assert push(a, program).status == 200
    wait_for(lambda: folded(a) == expected(program, stacks), "names")
    a.stop()
    names = number(any_backend, database, "names FINAL")
    assert names
    late = "(SELECT arrayJoin(frames) FROM names)"
    kept = number(any_backend, database, f"frames WHERE id GLOBAL IN {late}")
    # Nobody has sent them for a month: late symbols come along, other rows stay where they are.
    for table in ("frames", "functions"):
        to_month(any_backend, database, table, 202601, "1")
    months = "SELECT DISTINCT month FROM {} ORDER BY month"
    assert any_backend.query(months.format("frames"), database) == "202601\n"
    a = pair("a")
    wait_for(lambda: number(any_backend, database, "(SELECT DISTINCT id FROM frames WHERE month > 202601)") == kept, "frames")
    wait_for(lambda: number(any_backend, database, "functions WHERE month > 202601"), "functions")
    assert folded(a) == expected(program, stacks)
    assert number(any_backend, database, "names FINAL") == names
    a.stop()
    # The frames that they name are gone.
    local = "_local ON CLUSTER fleet" if any_backend.name == "cluster" else ""
    any_backend.query(f"ALTER TABLE frames{local} DROP PARTITION 202601", database)
    pair("a")
    wait_for(lambda: number(any_backend, database, "names FINAL") == 0, "names go")


def test_late_symbols_of_an_older_culprit(pair, program, any_backend, database):
    """It gave them a month that is never dropped."""
    a = pair("a")
    stacks = fill(a, program, int(time.time()) - 300)
    assert push(a, program).status == 200
    wait_for(lambda: folded(a) == expected(program, stacks), "names")
    a.stop()
    for table in ("frames", "functions"):
        to_month(any_backend, database, table, 999912, "1")
    for node in getattr(any_backend, "all", [any_backend]):
        node.query("DROP TABLE culprit_schema", database)
    time.sleep(1)
    on = " ON CLUSTER fleet" if any_backend.name == "cluster" else ""
    any_backend.query(f"CREATE TABLE culprit_schema{on} (version UInt32, at UInt32) ENGINE = MergeTree ORDER BY version", database)
    for node in getattr(any_backend, "all", [any_backend]):
        node.query("INSERT INTO culprit_schema VALUES (6, 0)", database)
    a = pair("a")
    assert number(any_backend, database, "frames WHERE month = 999912") == 0
    assert folded(a) == expected(program, stacks)
