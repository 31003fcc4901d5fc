# SPDX-License-Identifier: Apache-2.0
"""Tasks of pprof and of async-profiler for SkyWalking's agents: by its agent for Java as it is, and by hand, with the published
numbers of the fields (skywalking.v10), what others would send: its agent for Go is not on the module proxy."""

import json
import subprocess
import time

import h2_client
import pytest

import wire
from conftest import go_peer, wait_for
from test_api import check, get
from test_skywalking import frame, java_app, skywalking_java  # noqa: F401 (fixtures)
from test_tasks import ctl  # noqa: F401 (a fixture)

V3, V10 = "/skywalking.v3.", "/skywalking.v10."
PPROF, ASYNC = V10 + "PprofTask/", V10 + "AsyncProfilerTask/"
ASK = {PPROF: PPROF + "getPprofTaskCommands", ASYNC: ASYNC + "getAsyncProfilerTaskCommands"}
OK, FAILED, TOO_LARGE = 0, 1, 2
FOLDED = "main;work;inner 70\nmain;other 30\n"


def add(server, kind, events, ok=True, **spec):
    duration = {"duration_ms": 60000 if kind == "pprof" else 5000}
    a = server.post("/api/v1/tasks", json.dumps({"service": "shop", "kind": kind, "events": events, **duration, **spec}).encode(),
                    {"Content-Type": "application/json"})
    check(a, "/api/v1/tasks", "post")
    assert (a.status == 200) == ok, a.text
    return a.json()["id"] if ok else a.json()["message"]


def types(server):
    return {t["name"] for t in get(server, "/api/v1/types")["types"]}


def get_task(server, name):
    a = check(server.get(f"/api/v1/tasks/{name}"), "/api/v1/tasks/{id}")
    assert a.status == 200, a.text
    return a.json()


def agents(server, name):
    return {a["host"]: (a["state"], a["reason"]) for a in get_task(server, name)["agents"]}


class Agent:
    """Asks and sends as an agent of SkyWalking."""

    def __init__(self, server, methods=PPROF, instance="shop-1", service="shop"):
        self.c = h2_client.Connection(server.ports["otlp-grpc"])
        self.methods, self.instance, self.service, self.last = methods, instance, service, -1

    def ask(self):
        """The name and arguments of the command, or None."""
        a = self.c.call(ASK[self.methods], wire.message(_1=self.service, _2=self.instance, _3=self.last))
        assert a.status == 0, a.message
        commands = wire.decode(a.body[5:]).get(1, [])
        assert len(commands) <= 1
        for command in map(wire.decode, commands):
            pairs = [wire.decode(p) for p in command[2]]
            arguments = {p[1][0].decode(): p[2][0].decode() for p in pairs}
            self.last = int(arguments["CreateTime"])
            return command[1][0].decode(), arguments
        return None

    def begin(self, name, size, kind=OK, error=None):
        """Says what it has. Returns the call, and the server's status of it, or None: the call is over."""
        s = self.c.begin(self.methods + "collect", b"", end=False)
        meta = wire.message(_1=self.service, _2=self.instance, _3=name, _4=kind, _5=size)
        self.c.send(s, frame(wire.message(_1=meta) + (wire.message(_2=error) if error else b"")))
        answer = self.c.message(s)
        return s, answer if answer is None else wire.decode(answer).get(1, [0])[0]

    def end(self, s):
        self.c.send(s, b"", end=True)
        answer = self.c.wait(s)
        return answer.status, answer.message

    def deliver(self, name, data, size=None, part=1 << 20):
        s, status = self.begin(name, len(data) if size is None else size)
        if status != OK:
            return status
        for i in range(0, len(data), part):
            self.c.send(s, frame(wire.message(_3=data[i:i + part])))
        return self.end(s)


def profile(server, kind, **labels):
    query = ",".join(f'{k}="{v}"' for k, v in labels.items())
    now = int(time.time() * 1000)
    a = server.get("/api/v1/export", format="folded", type=kind, query=f"{{{query}}}", **{"from": now - 3600000, "to": now + 60000})
    return a.text.splitlines() if a.status == 200 else []


def test_a_profile_of_pprof(server, convert):
    """The task's way from the API to a profile of the service; each agent delivers once."""
    agent, other, stranger = Agent(server), Agent(server, instance="shop-2"), Agent(server, service="cart")
    assert agent.ask() is None
    name = add(server, "pprof", "cpu")
    assert "has asked" in get_task(server, name)["why"][0]["text"]
    assert stranger.ask() is None
    command, arguments = agent.ask()
    assert command == "PprofTaskQuery"
    created = arguments.pop("CreateTime")
    assert arguments == {"SerialNumber": name, "TaskId": name, "Events": "cpu", "Duration": "1"}
    assert int(created) == get_task(server, name)["start"]
    # It has the task; one that has not got the answer gets it again.
    assert agent.ask() is None
    agent.last = -1
    assert agent.ask()[1]["TaskId"] == name
    assert other.ask()[1]["TaskId"] == name
    assert agents(server, name) == {"shop-1": ("armed", ""), "shop-2": ("armed", "")}
    data = convert(FOLDED, ".pb.gz")
    assert agent.deliver(name, data, part=100) == (0, "")
    state, reason = agents(server, name)["shop-1"]
    assert state == "ended" and reason == f"2 samples in {len(data)} bytes"
    [kind] = types(server)
    assert kind.startswith("process_cpu:")
    assert profile(server, kind, **{"service.name": "shop", "service.instance.id": "shop-1", "task": name}) == [
        "shop;other 30", "shop;work;inner 70"]
    # It is asked for no more, and not taken twice.
    agent.last = -1
    assert agent.ask() is None
    assert agent.deliver(name, data) is None
    assert other.deliver(name, data) == (0, "")
    assert [a["samples"] for a in get_task(server, name)["agents"]] == [2, 2]
    log = [line["text"] for line in get_task(server, name)["log"]]
    assert log[:2] == ["created", "started"] and log[-1].startswith("has stopped: 2 samples in ")


def test_one_task_at_a_time(server, convert):
    """An agent gets the next when it has delivered the one before; an agent that was started again, what it has forgotten."""
    agent = Agent(server, ASYNC)
    first, second = add(server, "async-profiler", "cpu,alloc", period_us=20000), add(server, "async-profiler", "lock")
    command, arguments = agent.ask()
    assert command == "AsyncProfilerTaskQuery"
    assert (arguments["TaskId"], arguments["Duration"], arguments["ExecArgs"]) == (first, "5", "event=cpu,interval=20000000,alloc")
    assert agent.ask() is None
    assert agents(server, second) == {"shop-1": ("queued", "SkyWalking's agents run one task at a time")}
    again = Agent(server, ASYNC)
    assert again.ask()[1]["TaskId"] == first
    s, status = agent.begin(first, -1, FAILED, "No access to perf events")
    assert status == OK and agent.end(s) == (0, "")
    assert agents(server, first) == {"shop-1": ("refused", "failed: No access to perf events")}
    assert "No access to perf events" in json.dumps(get_task(server, first)["why"])
    assert agent.ask()[1]["ExecArgs"] == "lock"
    # The tasks of another kind are of other agents.
    assert Agent(server).ask() is None


@pytest.mark.slow
def test_an_agent_that_was_busy(server):
    """What can no more be begun after the first minute is over, and says why."""
    agent = Agent(server, ASYNC)
    first, second = add(server, "async-profiler", "cpu", duration_ms=300000), add(server, "async-profiler", "lock")
    assert agent.ask()[1]["TaskId"] == first and agent.ask() is None
    wait_for(lambda: get_task(server, second)["state"] == "ended" or agent.ask(), "the end of the second task", 90)
    assert agents(server, second) == {"shop-1": ("refused", "it was busy with another task for the first minute")}
    assert [line["text"] for line in get_task(server, second)["log"]][-2:] == [
        "ended: no agent runs it any more", "it was busy with another task for the first minute"]
    assert get_task(server, first)["state"] == "running" and agents(server, first) == {"shop-1": ("armed", "")}


def test_profiles_that_are_not_taken(server, convert):
    """Each failure ends the call or is answered, and is in the task's log."""
    data = convert(FOLDED, ".pb.gz")
    name = add(server, "pprof", "heap")

    def armed(instance):
        a = Agent(server, instance=instance)
        assert a.ask()[1]["TaskId"] == name
        return a

    def reason(instance, state="refused"):
        found = agents(server, name)[instance]
        assert found[0] == state, found
        return found[1]

    s, status = armed("large").begin(name, 31 << 20)
    assert status == TOO_LARGE and "32505856 bytes, and this server takes 31457280" in reason("large")
    assert armed("empty").begin(name, 0)[1] is None and "empty" in reason("empty")
    assert armed("short").deliver(name, data[:-1], len(data))[0] == 3 and "shorter" in reason("short")
    assert armed("long").deliver(name, data + b"x", len(data))[0] != 0 and "longer" in reason("long")
    assert armed("damaged").deliver(name, b"nothing")[0] == 3 and reason("damaged").startswith("failed: ")
    late = armed("late")
    s, status = late.begin(name, len(data))
    late.c.send(s, frame(wire.message(_2="disk full")))
    assert late.end(s) == (0, "") and reason("late") == "failed: disk full"
    gone = armed("gone")
    s, status = gone.begin(name, len(data))
    gone.c.send(s, frame(wire.message(_3=data[:100])))
    time.sleep(1)
    gone.c.close()
    wait_for(lambda: agents(server, name)["gone"][0] == "refused", "a call that broke off")
    assert "broke off after 100 of" in reason("gone")
    # Strangers, other services, tasks that are not there, other kinds, no beginning.
    for agent, task_name in ((Agent(server, instance="stranger"), name), (Agent(server, service="cart", instance="late"), name),
                             (Agent(server), "0000"), (Agent(server, ASYNC), name)):
        s, status = agent.begin(task_name, len(data))
        assert status is None and agent.c.wait(s).status in (5, 7)
    c = h2_client.Connection(server.ports["otlp-grpc"])
    assert c.wait(c.begin(PPROF + "collect", b"")).status == 3
    assert c.wait(c.begin(PPROF + "collect", frame(wire.message(_3=data)))).status == 3
    assert c.wait(c.begin(PPROF + "collect", frame(b"\xff\xff\xff"))).status == 3
    assert "stranger" not in agents(server, name)
    assert get(server, "/api/v1/stats")["store"]["samples"] == 0


def test_room_for_profiles(server):
    """What agents send at a time has a limit in all, and comes back when calls are over."""
    name = add(server, "pprof", "heap")
    before, size, calls = server.rss_bytes(), 25 << 20, []
    for i in range(5):
        agent = Agent(server, instance=f"shop-{i}")
        agent.ask()
        calls.append((agent, *agent.begin(name, size)))
        for _ in range(24 if calls[-1][2] == OK else 0):
            agent.c.send(calls[-1][1], frame(wire.message(_3=bytes(1 << 20))))
    assert [status for _, _, status in calls] == [OK, OK, OK, OK, None]
    assert agents(server, name)["shop-4"] == ("refused", "failed: too many profiles arrive at once")
    assert calls[-1][0].c.wait(calls[-1][1]).status == 14
    assert server.rss_bytes() - before < 230 << 20
    for agent, s, _ in calls[:4]:
        agent.c.close()
    wait_for(lambda: [a[0] for a in agents(server, name).values()] == ["refused"] * 5, "calls that broke off")
    later = Agent(server, instance="later")
    later.ask()
    assert later.begin(name, size)[1] == OK


def test_ctl(server, ctl):  # noqa: F811
    """The kind and its events on the command line, and how a task looks."""
    name = ctl("task", "add", "shop", "--kind", "async-profiler", "--events", "wall,lock", "--for", "30s", "--period", "5ms").strip()
    spec = get_task(server, name)["spec"]
    assert (spec["kind"], spec["events"], spec["duration_ms"], spec["period_us"], spec["min_ms"]) == ("async-profiler", "wall,lock", 30000, 5000, None)
    agent = Agent(server, ASYNC)
    assert agent.ask()[1]["ExecArgs"] == "event=wall,interval=5000000,lock"
    assert "async-profiler: wall,lock" in ctl("task", "list")
    text = ctl("task", "show", name)
    assert "keeps      async-profiler: wall,lock" in text and "shop-1" in text and "armed" in text, text
    assert get_task(server, ctl("task", "add", "shop", "--kind", "pprof", "--for", "1m").strip())["spec"]["events"] == "cpu"
    assert "whole minutes" in ctl("task", "add", "shop", "--kind", "pprof", "--for", "30s", status=1)


@pytest.mark.parametrize("spec,why", [
    ({"kind": "pprof", "events": ""}, "what is pprof to record"),
    ({"kind": "pprof", "events": "cpu,heap"}, "one event"),
    ({"kind": "pprof", "events": "wall"}, "pprof has no 'wall'; it has cpu, heap"),
    ({"kind": "pprof", "events": "cpu", "duration_ms": 90000}, "whole minutes"),
    ({"kind": "pprof", "events": "cpu", "duration_ms": 0}, "whole minutes"),
    ({"kind": "async-profiler", "events": "cpu,wall"}, "one of cpu, wall"),
    ({"kind": "async-profiler", "events": "cpu,"}, "has no ''"),
    ({"kind": "async-profiler", "events": "cpu", "duration_ms": 1201000}, "1 to 1200"),
    ({"kind": "async-profiler", "events": "cpu", "duration_ms": 1500}, "whole seconds"),
    ({"kind": "async-profiler", "events": "cpu", "endpoint": "/buy"}, "no endpoint"),
    ({"kind": "async-profiler", "events": "cpu", "min_ms": 5}, "no endpoint, min_ms"),
    ({"kind": "requests", "events": "cpu"}, "only of the kinds"),
    ({"kind": "perf", "events": "cpu"}, "kind: requests, pprof or async-profiler"),
])
def test_tasks_that_cannot_be(server, spec, why):
    assert why in add(server, ok=False, **spec)


def test_over_a_restart_and_for_agents_of_culprit(serve, tmp_path, convert):
    """The task and its agents are still there; agents of culprit and spans have nothing to do with it."""
    server = serve(directory=tmp_path / "server")
    name = add(server, "async-profiler", "alloc")
    agent = Agent(server, ASYNC)
    assert agent.ask()[1]["ExecArgs"] == "alloc"
    from tasks_agent import Agent as OwnAgent  # pylint: disable=import-outside-toplevel
    assert OwnAgent(server).ask()[0] == []
    assert server.stop()[0] == 0
    server = serve(directory=tmp_path / "server")
    t = get_task(server, name)
    assert (t["spec"]["kind"], t["spec"]["events"], t["spec"]["min_ms"]) == ("async-profiler", "alloc", None)
    again = Agent(server, ASYNC)
    again.last = agent.last
    assert again.ask() is None
    assert agents(server, name) == {"shop-1": ("armed", "")}
    assert again.deliver(name, b"not a recording")[0] == 3


@pytest.mark.parametrize("method", ["EBPFProfilingService/queryTasks", "EBPFProcessService/reportProcesses",
                                    "ContinuousProfilingService/queryPolicies"])
def test_rover_is_told_where_to_look(server, method):
    answer = h2_client.Connection(server.ports["otlp-grpc"]).call(V3 + method, b"")
    assert answer.status == 12 and "culprit's agents take the place of SkyWalking's rover" in answer.message


@pytest.mark.slow
def test_pprof_of_a_go_program(server):
    """runtime/pprof's own profiles by grpc-go: each event is of its type, and has the function that caused it."""
    program, why = go_peer("skywalking_go", ["main.go", "go.mod"])
    if not program:
        pytest.skip(why)
    causes = {"cpu": "main.spin", "heap": "main.allocate", "block": "main.contend", "mutex": "main.contend", "goroutine": "main.main", "allocs": "main.allocate"}
    tasks = {event: add(server, "pprof", event, period_us=1000) for event in causes}
    r = subprocess.run([program, f"127.0.0.1:{server.ports['otlp-grpc']}", "shop", "shop-1", "1", str(len(tasks))], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr
    names = {"cpu": "process_cpu", "heap": "memory", "block": "block", "mutex": "mutex", "goroutine": "goroutines", "allocs": "memory"}
    for event, cause in causes.items():
        state, reason = agents(server, tasks[event])["shop-1"]
        assert state == "ended" and int(reason.split()[0]) > 0, (event, reason)
        found = {t: profile(server, t, **{"service.name": "shop", "task": tasks[event]}) for t in types(server) if t.startswith(names[event] + ":")}
        assert any(cause in line for lines in found.values() for line in lines), (event, found)
    print(sorted(types(server)))


@pytest.mark.slow
def test_async_profiler_of_a_java_agent(server, java_app):  # noqa: F811
    """The agent as it is, with the async-profiler in it."""
    shop = java_app(server.ports["otlp-grpc"])
    name = add(server, "async-profiler", "cpu,alloc", duration_ms=6000)
    wait_for(lambda: agents(server, name).get("shop-1", ("", ""))[0] == "armed", shop.log)
    for _ in range(10):
        shop.get("/buy")
    wait_for(lambda: agents(server, name)["shop-1"][0] != "armed", shop.log)
    state, reason = agents(server, name)["shop-1"]
    # On a busy machine a JVM gets little of a CPU: 43 samples in 6 s at a load of 30.
    assert state == "ended" and int(reason.split()[0]) > 10, (reason, shop.log)
    assert {t.split(":")[0] for t in types(server)} == {"process_cpu", "memory"}
    rows = [line.rpartition(" ") for line in profile(server, "process_cpu:samples:count:cpu:nanoseconds", **{"service.name": "shop", "task": name})]
    spinning = sum(int(n) for stack, _, n in rows if "Shop.slowly" in stack)
    print(f"{reason}; {spinning} of {sum(int(n) for _, _, n in rows)} samples of the CPU are in Shop.slowly")
    # A JVM that has just started compiles much.
    assert spinning > 0.2 * sum(int(n) for _, _, n in rows)
    assert "ERROR" not in shop.log, shop.log
