# SPDX-License-Identifier: Apache-2.0
"""Tasks between agents and servers (doc/format/control.md): a task that is added at a server reaches the agent, and what
the agent says of it is at the server, by each way, with TLS and a token, and over restarts of both.

One receiver is not culprit's server: it speaks the protocol byte by byte, or does not know it.
"""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from host import free_port
from otlp import Receiver, first, message
from test_agent import Agent, wait_for
from test_up import Up, up

TOKEN, ADMIN = "writer-token-0123456789", "admin-token-01234567890"


@pytest.fixture
def tmp_path(place):
    return place


# ---- a receiver that is not ours ----

def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


class Tasks:
    """Answers questions with these tasks, {id: service}, and keeps the questions."""

    def __init__(self, tasks=(), cursor=1, next_ms=300):
        self.tasks, self.cursor, self.next_ms, self.questions = dict(tasks), cursor, next_ms, []

    def __call__(self, body):
        self.questions.append(message(body))
        tasks = b"".join(field(3, field(1, i) + field(2, 1) + field(3, s) + field(6, 1000) + field(8, 1))
                         for i, s in self.tasks.items())
        return 200, field(1, self.cursor) + field(2, self.next_ms) + tasks

    def reported(self):
        """The ids in the newest question."""
        return {message(r)[1][0].decode() for r in self.questions[-1].get(6, [])} if self.questions else set()


def test_one_that_knows_no_tasks_is_asked_once(culprit, tmp_path):
    with Receiver() as r, Agent(culprit, tmp_path, export=r.url, period=1) as agent:
        wait_for(lambda: len(r.asked) == 1, lambda: "nobody asks\n" + agent.stderr)
        at = len(r.bodies)
        wait_for(lambda: len(r.bodies) >= at + 6, lambda: "no profiles come\n" + agent.stderr)
        assert len(r.asked) == 1
        m = agent.metrics()
        assert m[f'culprit_agent_control_questions_total{{url="{r.url}"}}'] == 1
        assert m[f'culprit_agent_control_answers{{url="{r.url}"}}'] == 0
        assert m[f'culprit_agent_control_failures_total{{url="{r.url}"}}'] == 0
        assert "tasks" not in agent.stderr
        # A reload asks again: the destination may be another one now.
        agent.reload(export=r.url, period=1)
        wait_for(lambda: len(r.asked) == 2, "it does not ask after the reload")
        agent.end()


def test_tasks_come_and_go(culprit, tmp_path):
    with Receiver() as r:
        r.control = tasks = Tasks({"t-1": "nobody"}, cursor=7)
        with Agent(culprit, tmp_path, export=r.url, period=1) as agent:
            wait_for(lambda: tasks.reported() == {"t-1"}, lambda: "no report\n" + agent.stderr)
            q, last = tasks.questions[0], tasks.questions[-1]
            assert q[1][0].decode() == socket.gethostname() and first(q, 5) == 0 and first(last, 5) == 7
            assert abs(first(q, 4) / 1000 - time.time()) < 120 and q[3][0]
            assert wait_for(lambda: agent.metric("agent_control_tasks") == 1, "no metric")
            # Another set.
            tasks.tasks = {"t-2": "nobody", "t-3": "none"}
            wait_for(lambda: tasks.reported() == {"t-2", "t-3"}, "the tasks stay")
            # Intervals are the server's.
            assert 0.25 < min(b - a for a, b in zip(r.asked, r.asked[1:])) < 1
            # A server that fails and comes back: the tasks stay meanwhile.
            r.control = lambda body: (503, b"")
            wait_for(lambda: agent.metric("agent_control_failures_total") >= 2, "no failure is counted")
            assert len(re.findall("cannot ask for tasks", agent.stderr)) == 1, agent.stderr
            assert agent.metric("agent_control_tasks") == 2
            r.control = again = Tasks(tasks.tasks, cursor=9)
            wait_for(lambda: again.questions, lambda: "it is not asked again\n" + agent.stderr)
            assert first(again.questions[0], 5) == 7 and again.reported() == {"t-2", "t-3"}
            wait_for(lambda: "answers about tasks again" in agent.stderr, "nothing is logged")
            # A reload that keeps the destination keeps its tasks, one without it ends them.
            agent.reload(export=r.url, period=2)
            n = len(again.questions)
            wait_for(lambda: len(again.questions) > n + 1, "it does not ask after the reload")
            assert again.reported() == {"t-2", "t-3"} and first(again.questions[-1], 5) == 9
            agent.reload(export=r.url, period=2, no_tasks="yes")
            n = len(again.questions)
            time.sleep(1.5)
            assert len(again.questions) == n and agent.metric("agent_control_tasks") == 0
            agent.end()


def test_servers_have_tasks_of_their_own(culprit, tmp_path):
    """The same id at two servers, a third destination that hangs, and a fourth that knows no tasks."""
    with Receiver() as a, Receiver() as b, Receiver() as hangs, Receiver() as other:
        a.control, b.control = Tasks({"t": "here", "u": "here"}), Tasks({"t": "there"})
        hangs.status = "hang"
        with Agent(culprit, tmp_path, export=",".join(r.url for r in (a, b, hangs, other)), period=1) as agent:
            wait_for(lambda: a.control.reported() == {"t", "u"} and b.control.reported() == {"t"},
                     lambda: "no reports\n" + agent.stderr)
            b.control.tasks = {}
            wait_for(lambda: not b.control.reported() and a.control.reported() == {"t", "u"}, "tasks of the other end")
            n = len(other.bodies)
            wait_for(lambda: len(other.bodies) > n + 2, "profiles wait for another destination")
            agent.end()
        assert len(other.asked) == 1


def test_no_tasks(culprit, tmp_path):
    with Receiver() as r, Agent(culprit, tmp_path, "--no-tasks", export=r.url, period=1) as agent:
        wait_for(lambda: len(r.bodies) >= 3, lambda: "no profiles come\n" + agent.stderr)
        assert not r.asked
        agent.end()


# ---- culprit's server ----

WAYS = pytest.mark.parametrize("way", ["otlp", pytest.param("otlp+http", marks=pytest.mark.slow)])


class Server(Up):
    """A `culprit server` whose ports stay over restarts."""

    def __init__(self, culprit, folder, *args):
        self.ports, self.tokens = [free_port() for _ in range(3)], None
        self.culprit, self.folder, self.args = culprit, folder, args
        self.context, self.token = None, None
        self.start()

    def start(self):
        names = zip(("--listen", "--otlp-grpc", "--otlp-http"), self.ports)
        super().__init__(self.culprit, "server", "--data-dir", f"{self.folder}/store", "--otlp-grpc-old", "off",
                         *(x for name, port in names for x in (name, f"127.0.0.1:{port}")), *self.args)
        for line in self.process.stdout:
            if line.strip() == "ready":
                return
        raise AssertionError(self.process.communicate()[1])

    def restart(self):
        assert self.end()[0] == 0
        self.start()

    @property
    def url(self):
        return f"http{'s' if self.context else ''}://127.0.0.1:{self.ports[0]}"


def call(server, method, path, body=None):
    r = urllib.request.Request(server.url + path, None if body is None else json.dumps(body).encode(),
                               {"Content-Type": "application/json"}, method=method)
    if getattr(server, "token", None):
        r.add_header("Authorization", f"Bearer {server.token}")
    with urllib.request.urlopen(r, timeout=60, context=getattr(server, "context", None)) as a:
        return json.loads(a.read())


def add_task(server, service="nobody"):
    return call(server, "POST", "/api/v1/tasks", {"service": service, "duration_ms": 600000})["id"]


def agents(server, task):
    return call(server, "GET", f"/api/v1/tasks/{task}")["agents"]


def wait_for_report(server, task, what, since_ms=0):
    """Waits until one agent has told of the task after that time, and returns what it told."""
    [told] = wait_for(lambda: [a for a in agents(server, task) if a["asked"] > since_ms], what)
    assert told["host"] == socket.gethostname()
    return told


@WAYS
def test_a_task_goes_to_the_agent_and_its_state_to_the_server(culprit, tmp_path, way):
    """The server starts again in between, and then the agent."""
    with Server(culprit, tmp_path) as server:
        config = {"export": f"{way}://127.0.0.1:{server.ports[1 if way == 'otlp' else 2]}", "period": 1}
        with Agent(culprit, tmp_path, **config) as agent:
            task = add_task(server)
            wait_for_report(server, task, lambda: "no report\n" + agent.stderr)
            begun = time.time() * 1000
            server.restart()
            assert len(agents(server, task)) == 1
            wait_for_report(server, task, lambda: "no report after the restart\n" + agent.stderr, begun)
            second = add_task(server)
            wait_for_report(server, second, lambda: "no report of a task of the second server\n" + agent.stderr)
            agent.end()
        begun = time.time() * 1000
        with Agent(culprit, tmp_path / "again", **config) as agent:
            wait_for_report(server, task, lambda: "no report of the second agent\n" + agent.stderr, begun)
            call(server, "POST", f"/api/v1/tasks/{task}/cancel")
            call(server, "POST", f"/api/v1/tasks/{second}/cancel")
            call(server, "DELETE", f"/api/v1/tasks/{task}")
            call(server, "DELETE", f"/api/v1/tasks/{second}")
            wait_for(lambda: agent.metric("agent_control_tasks") == 0, "the tasks do not end")
            assert agent.metric("agent_control_failures_total") == 0, agent.stderr
            agent.end()


@pytest.mark.slow
def test_a_server_that_has_lost_its_data(culprit, tmp_path):
    """The cursor of the agent is of another time; the server's tasks reach it nevertheless."""
    with Server(culprit, tmp_path) as server, \
            Agent(culprit, tmp_path, export=f"otlp://127.0.0.1:{server.ports[1]}", period=1) as agent:
        wait_for_report(server, add_task(server), lambda: "no report\n" + agent.stderr)
        assert server.end()[0] == 0
        os.rename(tmp_path / "store", tmp_path / "lost")
        server.start()
        assert not call(server, "GET", "/api/v1/tasks")["tasks"]
        task = add_task(server)
        wait_for_report(server, task, lambda: "no report of a task of the new server\n" + agent.stderr)
        agent.end()


@WAYS
def test_with_tls_and_a_token_of_this_host(culprit, tmp_path, way):
    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    import ssl
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
            "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "server.key", "-out", "server.pem")
    (tmp_path / "tokens").write_text(f"write {TOKEN} host={socket.gethostname()}\nadmin {ADMIN}\n")
    (tmp_path / "tokens").chmod(0o600)
    (tmp_path / "token").write_text(TOKEN + "\n")
    with Server(culprit, tmp_path, "--tls-cert", tmp_path / "server.pem", "--tls-key", tmp_path / "server.key",
                "--token-file", tmp_path / "tokens") as server:
        server.context = ssl.create_default_context(cafile=str(tmp_path / "server.pem"))
        server.token = ADMIN
        task = add_task(server)
        with Agent(culprit, tmp_path, tls=True, export=f"{way}://127.0.0.1:{server.ports[1 if way == 'otlp' else 2]}",
                   period=1, export_ca=tmp_path / "server.pem", export_token_file=tmp_path / "token") as agent:
            wait_for_report(server, task, lambda: "no report\n" + agent.stderr)
            assert agent.metric("agent_control_failures_total") == 0, agent.stderr
            # A token of another host: profiles and questions are refused.
            (tmp_path / "tokens").write_text(f"write {TOKEN} host=another\nadmin {ADMIN}\n")
            wait_for(lambda: "this token may ask for tasks of the host another only" in agent.stderr
                     or re.search("cannot ask for tasks: answers HTTP 403", agent.stderr), lambda: agent.stderr)
            agent.end()


# ---- culprit up ----

def test_up(culprit, tmp_path):
    """The socket pair of the two processes, and a server's process that dies."""
    with up(culprit, f"{tmp_path}/store") as u:
        task = add_task(u)
        wait_for_report(u, task, "no report")
        metrics = u.get("/metrics").decode()
        assert re.search(r'^culprit_agent_control_answers\{url="local:"\} 1$', metrics, re.M)
        assert re.search(r'^culprit_agent_control_tasks\{url="local:"\} 1$', metrics, re.M)
        children = subprocess.run(["pgrep", "-P", str(u.process.pid), "-f", "up-server"], capture_output=True, text=True,
                                  check=True).stdout.split()
        begun = time.time() * 1000
        os.kill(int(children[0]), signal.SIGKILL)

        def comes_back():
            try:
                return [a for a in agents(u, task) if a["asked"] > begun]
            except (urllib.error.URLError, ConnectionError):
                return None

        assert u.wait_for(comes_back), "no report to the next server's process"
        assert u.end()[0] == 0
