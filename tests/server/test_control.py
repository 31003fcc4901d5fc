# SPDX-License-Identifier: Apache-2.0
"""How agents ask for tasks (doc/format/control.md), by a client that writes the messages byte by byte: by gRPC, HTTP
and grpc-web, with and without tokens, and what a newer or hostile agent may send."""

import gzip
import json
import struct
import time

import pytest

import h2_client
from test_net import ADMIN, READER, WRITER, bearer, tokens  # noqa: F401
from wire import decode, field, message

PATH = "/culprit.control.v1.Control/Sync"
PROTO = {"Content-Type": "application/x-protobuf"}
STATES = ["queued", "armed", "absent", "silent", "refused", "ended"]
ARMED, REFUSED = 2, 5
TRACE, SPAN = bytes(range(1, 17)), bytes(range(1, 9))


def question(host="web-1", tasks=(), kept=(), cursor=0, started=1, more=b""):
    return message(_1=host, _2=f"id-of-{host}", _3="9.9.9", _4=started, _5=cursor, _6=list(tasks),
                   _7=list(kept)) + more


def report(task, state=ARMED, reason="", revision=1, processes=2, publishing=2):
    return message(_1=task, _2=revision, _3=state, _4=reason, _5=processes, _6=publishing, _7=1000, _8=20000)


class Grpc:
    """Asks by gRPC. `ask` returns gRPC's status and the response's fields."""

    def __init__(self, server, token=None, tls=None):
        self.headers = [("authorization", f"Bearer {token}")] if token else []
        self.c = h2_client.Connection(server.ports["otlp-grpc"], tls)

    def ask(self, body, compressed=False):
        headers = self.headers + ([("grpc-encoding", "gzip")] if compressed else [])
        a = self.c.call(PATH, gzip.compress(body) if compressed else body, compressed, headers)
        if a.status:
            return a.status, a.message
        assert a.body[:1] == b"\0"
        assert len(a.body) == 5 + struct.unpack(">I", a.body[1:5])[0]
        return 0, decode(a.body[5:])


class Http:
    """Asks by HTTP; the status is gRPC's that means the same."""

    STATUS = {200: 0, 400: 3, 401: 16, 403: 7, 413: 8, 429: 8, 501: 12, 503: 14}

    def __init__(self, server, token=None, port="otlp-http"):
        self.server, self.headers, self.port = server, {**PROTO, **(bearer(token) if token else {})}, port

    def ask(self, body, compressed=False):
        headers = {**self.headers, **({"Content-Encoding": "gzip"} if compressed else {})}
        a = self.server.request("POST", PATH, gzip.compress(body) if compressed else body, headers,
                                port=self.server.ports[self.port])
        if a.status != 200:
            return self.STATUS[a.status], a.text
        assert a.headers["Content-Type"] == "application/x-protobuf"
        return 0, decode(a.body)


class Api(Http):
    """Asks at the port of the page."""

    def __init__(self, server, token=None):
        super().__init__(server, token, "api")


WAYS = pytest.mark.parametrize("way", [Grpc, Http, Api])


def admin(server, method, path, body=None, token=None):
    headers = {"Content-Type": "application/json", **(bearer(token) if token else {})}
    a = server.request(method, path, None if body is None else json.dumps(body).encode(), headers)
    assert a.status in (200, 201, 204), a.text
    return json.loads(a.body) if a.body else None


def add_task(server, service="shop", token=None, **more):
    return admin(server, "POST", "/api/v1/tasks", {"service": service, "duration_ms": 600000, **more}, token)["id"]


def agents(server, task, token=None):
    return {a["host"]: a for a in admin(server, "GET", f"/api/v1/tasks/{task}", token=token)["agents"]}


def text(values):
    return [v.decode() for v in values]


# ---- the exchange ----

@WAYS
def test_a_task_reaches_the_agent_and_its_report_the_server(server, way):
    a = way(server)
    status, answer = a.ask(question())
    assert status == 0 and 3 not in answer and answer[2][0] >= 200, answer
    task = add_task(server)
    status, answer = a.ask(question(), compressed=True)
    assert status == 0
    [t] = map(decode, answer[3])
    assert text(t[1]) == [task] and text(t[3]) == ["shop"] and t[6][0] >= 1000
    status, answer = a.ask(question(tasks=[report(task, REFUSED, "no room on this machine", processes=7)]))
    assert status == 0 and len(answer[3]) == 1
    told = agents(server, task)["web-1"]
    assert told["host_id"] == "id-of-web-1" and told["state"] == "refused" and told["processes"] == 7
    assert told["reason"] == "no room on this machine" and told["events"] == 20000
    # One that was cancelled ends later: the answers to its last requests are still to come.
    admin(server, "POST", f"/api/v1/tasks/{task}/cancel")
    [t] = map(decode, a.ask(question())[1][3])
    assert t[2][0] == 2
    admin(server, "DELETE", f"/api/v1/tasks/{task}")
    assert 3 not in a.ask(question())[1]


def test_a_restart_of_the_server_keeps_tasks_and_reports(serve, tmp_path):
    directory = tmp_path / "same"
    s = serve(directory=directory)
    task = add_task(s)
    assert Grpc(s).ask(question(tasks=[report(task, processes=7)]))[0] == 0
    assert s.stop()[0] == 0
    s = serve(directory=directory)
    status, answer = Http(s).ask(question(cursor=5))
    assert status == 0 and text(decode(answer[3][0])[1]) == [task]
    assert agents(s, task)["web-1"]["processes"] == 7


@WAYS
def test_an_agent_needs_a_name(server, way):
    """An empty message is a question of nobody."""
    status, why = way(server).ask(b"")
    assert status == 3 and "needs a host" in why


# ---- who may ask ----

@WAYS
def test_who_may_ask(serve, tokens, way):  # noqa: F811
    tokens.write_text(tokens.read_text() + f"write {WRITER}-of-web-1 host=web-1\n")
    s = serve("--token-file", tokens)
    assert way(s).ask(question())[0] == 16
    assert way(s, READER).ask(question())[0] == 7
    assert way(s, WRITER).ask(question())[0] == 0
    assert way(s, WRITER).ask(question("another"))[0] == 0
    assert way(s, ADMIN).ask(question())[0] == 0


@WAYS
def test_a_token_of_one_host_asks_for_it_only(serve, tokens, way):  # noqa: F811
    own = f"{WRITER}-of-web-1"
    tokens.write_text(tokens.read_text() + f"write {own} host=web-1\n")
    s = serve("--token-file", tokens)
    task = add_task(s, token=ADMIN)
    status, why = way(s, own).ask(question("web-2", [report(task)]))
    assert status == 7 and "web-1 only, not of web-2" in why, why
    assert not agents(s, task, ADMIN)
    # It need not say which host it is, and then it is this one.
    assert way(s, own).ask(question("", [report(task)]))[0] == 0
    assert list(agents(s, task, ADMIN)) == ["web-1"]
    assert way(s, own).ask(question("web-1"))[0] == 0


def test_tls(serve, certificates, client_context):
    s = serve("--tls-cert", certificates / "server.pem", "--tls-key", certificates / "server.key",
              tls=client_context())
    assert Grpc(s, tls=client_context()).ask(question())[0] == 0
    assert Http(s).ask(question())[0] == 0


# ---- newer and hostile agents ----

@WAYS
def test_fields_and_values_of_a_newer_agent_are_no_error(server, way):
    task = add_task(server)
    newer = question(tasks=[report(task, 77), report("no-such-task"), report(task) + field(99, "later")],
                     kept=[message(_1=task, _2=TRACE, _3=SPAN, _4=99)], more=field(100, "later") + field(101, 5))
    status, answer = way(server).ask(newer)
    assert status == 0 and len(answer[3]) == 1
    assert agents(server, task)["web-1"]["state"] == "armed"


@WAYS
@pytest.mark.parametrize("body", [
    b"<html>", b"\x0a\x05ab", b"\xff" * 100, field(6, b"\xff\xff"), field(1, "x" * ((1 << 20) + 1)),
    field(6, b"") * 400000], ids=["html", "short", "ff", "report", "long", "memory"])
def test_garbage_is_refused_and_the_server_lives(server, way, body):
    status, why = way(server).ask(body)
    assert status == 3 and "SyncRequest" in why, (status, why)
    assert way(server).ask(question())[0] == 0


@WAYS
def test_odd_entries_are_left_out(server, way):
    """Ids that are none, outcomes of requests that nobody wanted, and texts that would break a line of a log."""
    task = add_task(server)
    odd = [report(""), report("x" * 300), report("../../etc"), report("a\nb"), report(task, reason="a\nb\x1b[31m")]
    kept = [message(_1=task, _2=TRACE, _3=SPAN, _4=1, _5=3), message(_1=task, _2=b"x", _3=SPAN, _4=1),
            message(_1=task, _2=bytes(16), _3=SPAN, _4=1), message(_1="other", _2=TRACE, _3=SPAN, _4=2)]
    status, answer = way(server).ask(question(tasks=odd * 20, kept=kept * 2000))
    assert status == 0 and len(answer[3]) == 1
    shown = json.dumps(admin(server, "GET", f"/api/v1/tasks/{task}"))
    assert "\\n" not in shown and "\\u001b" not in shown and "x" * 100 not in shown, shown
    assert server.get("/healthz").status == 200


def test_only_its_types_and_methods(server):
    for kind in ("application/json", "text/plain", None):
        headers = {"Content-Type": kind} if kind else {"Content-Type": ""}
        assert server.request("POST", PATH, question(), headers).status == 415
    a = server.request("POST", PATH, question(), {"Content-Type": "application/proto"})
    assert a.status == 200 and a.headers["Content-Type"] == "application/proto"
    assert server.get(PATH).status == 405
    assert server.request("POST", PATH.replace("v1", "v2"), question(), PROTO).status == 501
    assert Grpc(server).c.call(PATH.replace("v1", "v2"), question()).status == 12


def test_grpc_web(server):
    body = question()
    a = server.request("POST", PATH, b"\0" + struct.pack(">I", len(body)) + body,
                       {"Content-Type": "application/grpc-web+proto"})
    assert a.status == 200 and a.headers["Content-Type"] == "application/grpc-web+proto"
    n = struct.unpack(">I", a.body[1:5])[0]
    assert decode(a.body[5:5 + n])[2][0] >= 200 and b"grpc-status:0" in a.body[5 + n:]


def test_many_agents_ask_at_once(server):
    """A question is answered in less than a millisecond or two, so that thousands of agents can ask every 2 s."""
    add_task(server)
    c = h2_client.Connection(server.ports["otlp-grpc"])
    begin = time.monotonic()
    for i in range(500):
        body = question(f"web-{i}")
        assert c.call(PATH, body).status == 0
    print(f"500 questions in {time.monotonic() - begin:.2f} s")
