# SPDX-License-Identifier: Apache-2.0
"""What happens to a server at the same time, for test_storm.py. Each part is a process of its own with a priority of its
own, so that none delays another more than the machine makes it:

    python3 tests/server/storm.py PART ARGUMENTS-AS-JSON

It works until its standard input is closed, and then prints what it has seen as JSON.
"""

import collections
import gc
import http.client
import json
import os
import resource
import select
import socket
import ssl
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
PROBES_A_SECOND = 20
QUEUE_BURST = 400


def stopped(seconds=0.0):
    """Waits so long for the end, and says whether it has come."""
    return bool(select.select([0], [], [], seconds)[0])


def set_group_nice(pid, nice):
    """Of the whole session, where the kernel weighs sessions (sched_autogroup_enabled) and not only processes."""
    os.setpriority(os.PRIO_PROCESS, pid, max(nice, 0))
    try:
        with open(f"/proc/{pid}/autogroup", "w", encoding="ascii") as f:
            f.write(str(nice))
    except OSError:
        pass


def ready():
    print("ready", flush=True)


def context_of(ca):
    return ssl.create_default_context(cafile=ca) if ca else None


def connect(port, address, context=None):
    s = socket.create_connection(("127.0.0.1", port), 60, (address, 0))
    return context.wrap_socket(s, server_hostname="localhost") if context else s


# ---- /healthz ----

def probe(port, ca):
    """Asks for /healthz over a new connection each time, before all other processes if the system lets it."""
    context, times, failures, late, urgent = context_of(ca), [], [], 0, True
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except PermissionError:
        urgent = False
    gc.disable()
    ready()
    begin = time.monotonic()
    due = begin
    while not stopped(max(0, due - time.monotonic())):
        at = time.monotonic()
        late = max(late, at - due)
        try:
            with connect(port, "127.0.0.9", context) as s:
                s.sendall(ask)
                answer = b""
                while chunk := s.recv(4096):
                    answer += chunk
            if not answer.endswith(b"\r\n\r\nok\n"):
                failures.append(answer.decode(errors="replace"))
        except OSError as e:
            failures.append(str(e))
        times.append((time.monotonic() - at, at - begin))
        due = max(due + 1 / PROBES_A_SECOND, time.monotonic())
    return {"n": len(times), "ms": sorted(1000 * t for t, _ in times), "slow": [(round(1000 * t), round(at, 1)) for t, at in sorted(times)[-5:]],
            "failures": failures, "late_ms": 1000 * late, "urgent": urgent}


# ---- agents ----

def agents(port, ca, n, interval, token):
    sys.path.insert(0, os.path.join(TOP, "tests/bench"))
    from parts import fleet

    fleet.TEMPLATES, fleet.STACKS_A_REQUEST = 80, 20
    f = fleet.Fleet(n, interval, [port, port], token, context_of(ca))
    ready()
    f.run(1e9, stopped=stopped)
    for a in f.agents:
        a.close()
    sums = collections.defaultdict(collections.Counter)
    for i, times in enumerate(f.kept):
        for stack, value in f.requests.chosen[i].items():
            if times:
                sums[f"service-{i % fleet.SERVICES}"][stack] += times * value
    f.latencies.sort()
    return {"acknowledged": len(f.latencies), "repeated": f.failures, "told": [t.hex() for t in f.told], "sums": sums,
            "median_ms": 1000 * f.latencies[len(f.latencies) // 2], "max_ms": 1000 * f.latencies[-1]}


# ---- heavy questions ----

def heavy():
    import bombs

    wide = "from=now-30d&to=now"
    for path in (f"payload?max_stacks=2000000&{wide}", f"flamegraph?max_nodes=1000&{wide}&stacks=fn~%22.*e.%7B50%7Dx%22",
                 f"flamegraph?{wide}&stacks=fn~%22%5Ba-z%5D%7B900%7Dx%22", f"export?format=folded&{wide}",
                 f"top?{wide}&stacks=fn~%22(.*e.*)%7B8%7Dx%22", f"heatmap?{wide}"):
        yield "GET", "/api/v1/" + path, None, {}
    for bomb in (bombs.query_lists, bombs.query_texts):
        path, body, headers, _ = bomb()
        yield "POST", path, body, headers


def questions(port, ca, n, token):
    """n clients of ten addresses, each of which asks again when it has its answer."""
    context, seen, lock, asked = context_of(ca), collections.Counter(), threading.Lock(), list(heavy())
    end = threading.Event()
    ready()

    def client(i):
        where = {"source_address": (f"127.0.2.{i % 10 + 1}", 0), "timeout": 120}
        while not end.is_set():
            method, path, body, headers = asked[i % len(asked)]
            i += 1
            c = http.client.HTTPSConnection("localhost", port, context=context, **where) if context else \
                http.client.HTTPConnection("127.0.0.1", port, **where)
            try:
                c.request(method, path, body, {"Authorization": f"Bearer {token}", **headers})
                status = c.getresponse().status
            except (OSError, http.client.HTTPException) as e:
                status = type(e).__name__
            c.close()
            with lock:
                seen[status] += 1

    for i in range(n):
        threading.Thread(target=client, args=(i,), daemon=True).start()
    stopped(1e6)
    end.set()
    with lock:
        return {"answers": {str(k): v for k, v in seen.items()}}


# ---- strangers ----

class Half:
    """Connections of one address whose first request never ends."""

    def __init__(self, port, n, tls):
        self.port, self.n, self.held = port, n, []
        self.begin = b"\x16\x03" if tls else b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"

    def fill(self, seconds):
        end = time.monotonic() + seconds
        self.held = [s for s in self.held if not closed(s)]
        while len(self.held) < self.n and time.monotonic() < end:
            try:
                s = connect(self.port, "127.0.0.66")
                s.sendall(self.begin)
                self.held.append(s)
            except OSError:
                return


def closed(s):
    s.setblocking(False)
    try:
        return not s.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


def burst(port, context, token):
    """More questions of one client than may wait. Returns how many were refused."""
    held, refused = [], 0
    ask = f"GET /api/v1/payload?max_stacks=2000000 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    for _ in range(QUEUE_BURST):
        s = connect(port, "127.0.0.77", context)
        s.sendall(ask)
        held.append(s)
    time.sleep(1)
    for s in held:
        s.setblocking(False)
        try:
            refused += s.recv(20).startswith(b"HTTP/1.1 503")
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        s.close()
    return refused


def strangers(port, grpc, ca, token, half):
    """Wrong tokens, wrong times, requests that never end, and a crowd."""
    import h2_client
    from test_connections import grpc_hello

    context, seen, crowd = context_of(ca), collections.Counter(), 0
    ready()
    idle, begin = Half(port, half, ca), time.monotonic()
    while not stopped(0.05):
        for path, auth in (("/ingest?name=x.cpu", "wrong-token-0123456789"), ("/ingest?name=old.cpu&from=978307200&until=978307201", token),
                           ("/ingest?name=ahead.cpu&from=4102444800&until=4102444801", token)):
            c = http.client.HTTPSConnection("localhost", port, context=context) if context else http.client.HTTPConnection("127.0.0.1", port)
            try:
                c.request("POST", path, b"a;b 1\n", {"Authorization": f"Bearer {auth}"})
                seen[f"{path[13:18]} {c.getresponse().status}"] += 1
            except (OSError, http.client.HTTPException) as e:
                seen[type(e).__name__] += 1
            c.close()
        with connect(grpc, "127.0.0.67", context_with_h2(ca)) as s:
            s.sendall(grpc_hello("wrong-token-0123456789"))
            seen["gRPC"] += 1
        idle.fill(5)
        if not crowd and time.monotonic() > begin + 5:
            crowd = burst(port, context, token)
    assert h2_client.PREFACE
    return {"seen": seen, "refused": crowd}


def context_with_h2(ca):
    c = context_of(ca)
    if c:
        c.set_alpn_protocols(["h2"])
    return c


def main(part, arguments):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps({"probe": probe, "agents": agents, "questions": questions, "strangers": strangers}[part](**arguments)))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
