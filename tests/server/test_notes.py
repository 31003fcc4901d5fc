# SPDX-License-Identifier: Apache-2.0
"""Annotations and saved views, which the server keeps, and deploys, which it finds by versions of samples."""

import json
import time

import pytest

from test_api import check, get

NOW = int(time.time() * 1000)


def add(server, what, body, headers=None):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return check(server.request("POST", f"/api/v1/{what}", data, {"Content-Type": "application/json", **(headers or {})}), f"/api/v1/{what}", "post")


def remove(server, what, note_id, headers=None):
    return check(server.request("DELETE", f"/api/v1/{what}/{note_id}", None, headers or {}), f"/api/v1/{what}/{{id}}", "delete")


def upload(server, service, version, at_s, value=10):
    labels = f"{{service.version={version}}}" if version else ""
    assert server.post("/ingest", f"main;work {value}\n".encode(), name=f"{service}.cpu{labels}", **{"from": at_s, "until": at_s + 10}).status == 200


# ---- annotations ----

def test_an_annotation_is_kept(serve, tmp_path):
    s, now = serve(directory=tmp_path / "s"), int(time.time() * 1000)
    a = add(s, "annotations", {"time": now - 60000, "text": "deployed 1.2.3", "labels": {"service.name": "shop"}}).json()
    b = add(s, "annotations", {"time": "now-2m", "text": "<b>config</b>"}).json()
    assert add(s, "annotations", {"text": "now"}).status == 200
    s.process.kill()
    s.process.wait(10)
    s = serve(directory=tmp_path / "s")
    found = get(s, "/api/v1/annotations")["annotations"]
    assert [x["text"] for x in found] == ["<b>config</b>", "deployed 1.2.3", "now"]
    assert found[1] == a and a["labels"] == {"service.name": "shop"} and a["time"] == now - 60000
    # Only those in the range, whose end is not in it.
    assert [x["id"] for x in get(s, "/api/v1/annotations", **{"from": now - 60000, "to": now - 59999})["annotations"]] == [a["id"]]
    assert get(s, "/api/v1/annotations", **{"from": now - 70000, "to": now - 60000})["annotations"] == []
    assert remove(s, "annotations", b["id"]).status == 200
    assert remove(s, "annotations", b["id"]).status == 404
    assert len(get(s, "/api/v1/annotations")["annotations"]) == 2


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"7", {}, {"text": ""}, {"text": 7}, {"text": "x" * 501}, {"text": "x", "time": "soon"}, {"text": "x", "time": -1},
                                  {"text": "x", "labels": []}, {"text": "x", "labels": {"a": 1}}, {"text": "x", "labels": {"": "b"}},
                                  {"text": "x", "labels": {str(i): "b" for i in range(9)}}, {"text": "x", "labels": {"a": "b" * 101}},
                                  {"text": "x", "id": "0"}, b'{"text":"a\\u0000b"}', b'{"text":"\xff"}'])
def test_what_is_no_annotation_is_refused(server, body):
    a = add(server, "annotations", body)
    assert a.status == 400 and a.json()["message"]
    assert get(server, "/api/v1/annotations")["annotations"] == []


def test_the_earliest_makes_room(server):
    for i in range(1003):
        assert add(server, "annotations", {"time": NOW - 1003 + i, "text": str(i)}).status == 200
    found = get(server, "/api/v1/annotations")["annotations"]
    assert [x["text"] for x in found] == [str(i) for i in range(3, 1003)]


def test_a_damaged_file_is_not_overwritten(serve, tmp_path):
    s = serve(directory=tmp_path / "s")
    [store] = (tmp_path / "s").rglob("profiles.db")
    for text in ("{", "[]", '{"annotations":7,"views":[]}'):
        (store.parent / "notes.json").write_text(text)
        assert s.get("/api/v1/views").status == 500
        assert s.request("POST", "/api/v1/annotations", b'{"text":"x"}', {"Content-Type": "application/json"}).status == 500
        assert (store.parent / "notes.json").read_text() == text


# ---- views ----

def test_a_view_is_kept_for_all(server):
    a = add(server, "views", {"name": "Slow checkout", "address": "?view=traces&sort=-p99_ms"}).json()
    assert add(server, "views", {"name": "Slow checkout", "address": "?x"}).status == 409
    assert get(server, "/api/v1/views")["views"] == [a]
    for wrong in ("//evil.example", "https://evil.example", "javascript:alert(1)", "/", "", "x" * 4001):
        assert add(server, "views", {"name": "x", "address": wrong}).status == 400
    assert remove(server, "views", a["id"]).status == 200
    assert get(server, "/api/v1/views")["views"] == []
    for i in range(200):
        assert add(server, "views", {"name": str(i), "address": "?"}).status == 200
    assert add(server, "views", {"name": "one more", "address": "?"}).status == 413


def test_roles_and_the_audit_log(serve, tmp_path):
    tokens, log = tmp_path / "tokens", tmp_path / "audit"
    tokens.write_text("read aaaaaaaaaaaaaaaaaaaaaaaa\nwrite bbbbbbbbbbbbbbbbbbbbbbbb\n")
    s = serve("--token-file", tokens, "--audit-log", log)
    read, write = ({"Authorization": "Bearer " + c * 24} for c in "ab")
    for what, body in (("annotations", {"text": "x"}), ("views", {"name": "x", "address": "?"})):
        assert add(s, what, body, read).status == 403
        assert add(s, what, body).status == 401
        note_id = add(s, what, body, write).json()["id"]
        assert s.get(f"/api/v1/{what}", headers=read).status == 200
        assert remove(s, what, note_id, read).status == 403
        assert remove(s, what, note_id, write).status == 200
        said = [json.loads(line) for line in log.read_text().splitlines()]
        assert [(e["action"], e["object"]) for e in said[-2:]] == [(f"{what[:-1]}-added", note_id), (f"{what[:-1]}-removed", note_id)]


# ---- deploys ----

def deploys(server, **more):
    a = get(server, "/api/v1/annotations", **{"from": "now-20m", **more})
    assert 6000 <= a["step"] <= 6001
    return [(d["service"], d["before"], d["version"]) for d in a["deploys"]], [d["time"] for d in a["deploys"]]


def test_deploys_are_changes_of_versions(server):
    start = NOW // 1000 - 1100
    for i in range(20):
        upload(server, "shop", "1.0" if i < 10 else "1.1", start + 50 * i)
        upload(server, "cart", "7", start + 50 * i)
        upload(server, "old", "", start + 50 * i)
    found, times = deploys(server)
    assert found == [("shop", "1.0", "1.1")]
    assert 0 <= (start + 500) * 1000 - times[0] <= 16000
    assert deploys(server, query='{service.name="cart"}')[0] == []
    # A range that begins with a version does not know when it came.
    assert get(server, "/api/v1/annotations", **{"from": (start + 550) * 1000})["deploys"] == []


def test_a_service_that_was_away_is_no_deploy(server):
    for at in (1100, 1090, 100):
        upload(server, "shop", "1.0", NOW // 1000 - at)
    assert deploys(server)[0] == []


def test_a_rollback_is_told_and_a_rolling_deploy_once(server):
    start = NOW // 1000 - 1150
    versions = [["a"]] * 6 + [["a", "b"]] * 6 + [["b"]] * 6 + [["a"]] * 4
    for i, each in enumerate(versions):
        for version in each:
            upload(server, "shop", version, start + 50 * i)
    assert deploys(server)[0] == [("shop", "a", "b"), ("shop", "b", "a")]


def test_without_versions_there_are_no_deploys(server):
    assert get(server, "/api/v1/annotations")["deploys"] == []
    upload(server, "shop", "", NOW // 1000 - 100)
    assert get(server, "/api/v1/annotations")["deploys"] == []
