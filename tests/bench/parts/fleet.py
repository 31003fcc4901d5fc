# SPDX-License-Identifier: Apache-2.0
"""A fleet: thousands of agents, two servers, one ClickHouse."""

import heapq
import json
import os
import random
import resource
import selectors
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time

from .common import CULPRIT, TICK, TOP, note

sys.path.insert(0, os.path.join(TOP, "tests/server"))
import h2_client as h2 # noqa: E402

EXPORT = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
HOST, AT, ID = b"host-000000", b"\x11\x22\x33\x44\x55\x66\x77\x01", b"0123456789abcdef"
SERVICES, FUNCTIONS, STACKS, DEPTH, STACKS_A_REQUEST, TEMPLATES = 40, 4000, 4000, 24, 60, 400
TIMEOUT_S = 30
DATABASE = "fleet"
LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Requests:
    """Requests as an agent's: one profile of 60 of 4,000 stacks, each 24 deep over 4,000 functions, with a service, a host
    and a time."""

    def __init__(self):
        from test_ingest import otlp_request # which imports pytest

        r = random.Random(1)
        stacks = [";".join(f"module{f % 97}::function_{f}" for f in (min(int(r.paretovariate(0.7)) + 50 * d, FUNCTIONS)
                                                                      for d in range(DEPTH))) for _ in range(STACKS)]
        self.made, self.chosen = [], []
        for i in range(TEMPLATES):
            chosen = {stacks[min(int(r.paretovariate(0.5)), STACKS - 1)]: r.randrange(1, 9) for _ in range(STACKS_A_REQUEST)}
            self.chosen.append(chosen)
            data = otlp_request(f"service-{i % SERVICES}", chosen, int.from_bytes(AT, "little"), **{"host.name": HOST})
            data = data.replace(bytes(range(16)), ID)
            assert data.count(AT) == data.count(HOST) == data.count(ID) == 1
            self.made.append((data, len(chosen), sum(chosen.values())))

    def get(self, agent):
        """Returns the request's bytes, its rows, the sum of their values, and the number of its template."""
        number = random.randrange(TEMPLATES)
        data, rows, total = self.made[number]
        return (data.replace(HOST, b"host-%06d" % agent).replace(AT, time.time_ns().to_bytes(8, "little"))
                .replace(ID, os.urandom(16)), rows, total, number)


class Agent:
    """One agent's gRPC connection, without threads. It repeats a request that failed, to the other server."""

    def __init__(self, fleet, number):
        self.fleet, self.number, self.sock, self.request = fleet, number, None, None
        self.side, self.sent_at, self.out, self.deadline = number % 2, 0, b"", 0

    def connect(self):
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        n = self.number # hosts of their own
        self.sock.bind((f"127.1.{n // 250 % 250 + 1}.{n % 250 + 1}", 0))
        self.sock.connect_ex(("127.0.0.1", self.fleet.ports[self.side]))
        self.stream, self.received, self.window, self.told = 1, b"", 65535, b""
        self.shakes = self.fleet.tls is not None
        self.out = h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0, struct.pack(">HIHI", 1, 0, 4, 1 << 20))
        self.fleet.selector.register(self.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def close(self):
        if self.sock:
            self.fleet.selector.unregister(self.sock)
            self.sock.close()
            self.sock = None

    def begin(self):
        """Sends the next request, or the last one again."""
        if not self.sock:
            self.connect()
        if not self.request:
            self.request = self.fleet.requests.get(self.number)
            self.sent_at = time.monotonic()
        self.deadline = time.monotonic() + TIMEOUT_S
        body = b"\0" + struct.pack(">I", len(self.request[0])) + self.request[0]
        assert len(body) < 65535, "larger than a new stream's window"
        out = [h2.frame(h2.HEADERS, h2.END_HEADERS, self.stream, self.fleet.head)]
        out += [h2.frame(h2.DATA, h2.END_STREAM if i + 16384 >= len(body) else 0, self.stream, body[i:i + 16384])
                for i in range(0, len(body), 16384)]
        self.window -= len(body)
        self.data = b"".join(out)
        self.stream += 2
        self.flush()

    def flush(self):
        if self.shakes:
            return
        # A request waits for the connection's window.
        if self.request and self.data and self.window >= 0:
            self.out, self.data = self.out + self.data, b""
        try:
            while self.out:
                self.out = self.out[self.sock.send(self.out):]
        except LATER:
            pass
        except OSError:
            return self.failed()
        self.fleet.selector.modify(self.sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if self.out else 0), self)

    def failed(self):
        self.close()
        self.fleet.failures += 1
        self.side ^= 1
        if self.request:
            self.fleet.at(time.monotonic() + random.uniform(0.5, 1.5), self)

    def shake_hands(self):
        """Once the socket is connected."""
        try:
            if not isinstance(self.sock, ssl.SSLSocket):
                self.fleet.selector.unregister(self.sock)
                self.sock = self.fleet.tls.wrap_socket(self.sock, do_handshake_on_connect=False, server_hostname="localhost")
                self.fleet.selector.register(self.sock, selectors.EVENT_READ, self)
            self.sock.do_handshake()
        except ssl.SSLWantReadError:
            return
        except OSError:
            if self.sock.fileno() < 0: # wrap_socket() has closed it
                self.sock = None
            return self.failed()
        self.shakes = False
        self.flush()

    def ready(self, events):
        if self.shakes:
            return self.shake_hands()
        if events & selectors.EVENT_WRITE:
            self.flush()
        if not self.sock or not events & selectors.EVENT_READ:
            return
        try:
            more = self.sock.recv(65536)
        except LATER:
            return
        except OSError:
            more = b""
        if not more:
            if not self.request: # idle
                return self.close()
            return self.failed()
        self.received += more
        while self.sock and len(self.received) >= 9:
            n = int.from_bytes(self.received[:3], "big")
            if len(self.received) < 9 + n:
                break
            kind, flags, stream = self.received[3], self.received[4], int.from_bytes(self.received[5:9], "big")
            payload, self.received = self.received[9:9 + n], self.received[9 + n:]
            self.take(kind, flags, stream, payload)

    def take(self, kind, flags, stream, payload):
        if kind == h2.SETTINGS and not flags & h2.ACK:
            self.out += h2.frame(h2.SETTINGS, h2.ACK, 0, b"")
            self.flush()
        elif kind == h2.PING and not flags & h2.ACK:
            self.out += h2.frame(h2.PING, h2.ACK, 0, payload)
            self.flush()
        elif kind == h2.WINDOW and not stream:
            self.window += int.from_bytes(payload, "big")
            self.flush()
        elif kind == h2.GOAWAY or kind == h2.RST:
            self.failed()
        elif kind == h2.DATA:
            self.told = payload[5:]
        elif kind == h2.HEADERS and flags & h2.END_STREAM:
            status = dict(self.fleet.inflate(payload)).get("grpc-status")
            if status == "0":
                self.fleet.acknowledged(self)
            else:
                self.failed()


class Fleet:
    """n agents. tls: an SSLContext. `kept` counts acknowledged requests by template; `told` has the partial successes."""

    def __init__(self, n, interval_s, ports, token=None, tls=None):
        self.tls, self.kept, self.told = tls, [0] * TEMPLATES, []
        self.head = h2.request_headers(EXPORT, [("authorization", f"Bearer {token}")] if token else [])
        self.inflate = h2.Inflater() # without a dynamic table it has no state
        self.selector, self.requests, self.ports = selectors.DefaultSelector(), Requests(), ports
        self.interval_s, self.timers, self.latencies, self.failures, self.rows, self.total = interval_s, [], [], 0, 0, 0
        self.agents = [Agent(self, i) for i in range(n)]
        self.ending, self.order = False, 0
        begin = time.monotonic()
        for a in self.agents:
            self.at(begin + random.uniform(0, interval_s), a)

    def at(self, when, agent):
        self.order += 1
        heapq.heappush(self.timers, (when, self.order, agent))

    def acknowledged(self, agent):
        self.latencies.append(time.monotonic() - agent.sent_at)
        if agent.told:
            self.told.append(agent.told)
        agent.told = b""
        self.kept[agent.request[3]] += 1
        self.rows += agent.request[1]
        self.total += agent.request[2]
        agent.request = None
        if not self.ending:
            self.at(agent.sent_at + self.interval_s, agent)

    def run(self, seconds, half_way=None, stopped=lambda: False):
        """Until stopped(), or for so many seconds, and then until all requests are acknowledged."""
        end = time.monotonic() + seconds
        looked = 0
        while True:
            now = time.monotonic()
            if not self.ending and stopped():
                end = now
            if half_way and now >= end - seconds / 2:
                half_way()
                half_way = None
            if not self.ending and now >= end:
                self.ending = True
                self.timers = [t for t in self.timers if t[2].request]
                heapq.heapify(self.timers)
            if self.ending and not any(a.request for a in self.agents):
                return
            while self.timers and self.timers[0][0] <= now:
                heapq.heappop(self.timers)[2].begin()
            if now > looked + 1:
                looked = now
                for a in self.agents:
                    if a.request and a.sock and now > a.deadline:
                        a.failed()
            for key, events in self.selector.select(0.02):
                if key.data.sock is key.fileobj:
                    key.data.ready(events)


class Culprit:
    def __init__(self, url, directory, ports=None):
        os.makedirs(directory, exist_ok=True)
        self.url, self.directory = url, directory
        grpc = f"127.0.0.1:{ports or 0}"
        with open(directory + "/stderr", "ab") as err:
            self.process = subprocess.Popen([CULPRIT, "server", "--store", url, "--listen", "127.0.0.1:0", "--otlp-grpc", grpc,
                                             "--otlp-grpc-old", "off", "--otlp-http", "off", "--max-connections", "20000"],
                                            stdout=subprocess.PIPE, stderr=err, text=True)
        for line in self.process.stdout:
            if line.strip() == "ready":
                return
            name, port = line.split()
            if name == "otlp-grpc":
                self.port = int(port)
        raise OSError("no server: see " + directory)

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as f:
            v = f.read().rpartition(")")[2].split()
        return (int(v[11]) + int(v[12])) / TICK

    def status(self, name):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith(name + ":"))

    def stop(self, sig=signal.SIGTERM):
        self.process.send_signal(sig)
        self.process.wait(60)


def measure(name, url, servers, backend, directory, n, interval_s, seconds):
    how = f"{n} agents, one request each {interval_s:g} s"
    f = Fleet(n, interval_s, [s.port for s in servers])
    cpu, begin = [s.cpu_s() for s in servers], time.monotonic()

    def kill():
        servers[0].stop(signal.SIGKILL)
        servers[0], cpu[0] = Culprit(url, f"{directory}/0", servers[0].port), 0

    f.run(seconds, kill if os.environ.get("BENCH_FLEET_KILL") else None)
    took = time.monotonic() - begin
    for a in f.agents:
        a.close()
    f.latencies.sort()
    note(f"{name} fleet: requests acknowledged a second", len(f.latencies) / took, "1/s", how)
    note(f"{name} fleet: acknowledgement, median", f.latencies[len(f.latencies) // 2] * 1000, "ms", how)
    note(f"{name} fleet: acknowledgement, 99th percentile", f.latencies[len(f.latencies) * 99 // 100] * 1000, "ms", how)
    note(f"{name} fleet: requests that were repeated", f.failures, "", how)
    inserts = json.loads("{" + ",".join(f'"{t}": {v}' for t, v in (line.split() for line in backend.query(
        f"SELECT table, max(max_block_number) FROM system.parts WHERE database = '{DATABASE}' GROUP BY table").splitlines()))
        + "}")
    note(f"{name} fleet: INSERTs of samples a second and server", inserts["samples"] / took / 2, "1/s", how)
    note(f"{name} fleet: INSERTs of all tables a second and server", sum(inserts.values()) / took / 2, "1/s", how)
    parts = backend.query(f"SELECT count() FROM system.parts WHERE active AND database = '{DATABASE}' AND table = 'samples'")
    note(f"{name} fleet: parts of samples", int(parts), "", how)
    for i, s in enumerate(servers):
        note(f"{name} fleet: server {i}, CPU", 100 * (s.cpu_s() - cpu[i]) / took, "%", how)
        note(f"{name} fleet: server {i}, largest RSS", s.status("VmHWM") / 1024, "MiB", how)
    stored = backend.query(f"SELECT count(), sum(value) FROM {DATABASE}.samples WHERE type LIKE '%:samples:%'").split()
    note(f"{name} fleet: acknowledged samples that are missing", f.total - int(stored[1]), "", how, must=0)
    note(f"{name} fleet: acknowledged rows that are missing", f.rows - int(stored[0]), "", how, must=0)


def fleet():
    """Simulated agents (BENCH_FLEET_AGENTS=10000), each with a gRPC connection from an address of its own, send a request every
    BENCH_FLEET_INTERVAL (20) seconds for BENCH_FLEET_SECONDS (60) seconds to two servers over one ClickHouse; a request that
    fails is repeated to the other server. After the last acknowledgement the stored samples are compared with the
    acknowledged ones. BENCH_FLEET_KILL=1 kills one server with SIGKILL half-way. The number of INSERTs is the number of the
    table's last block."""
    import clickhouse

    n = int(os.environ.get("BENCH_FLEET_AGENTS", "10000"))
    interval_s = float(os.environ.get("BENCH_FLEET_INTERVAL", "20"))
    seconds = float(os.environ.get("BENCH_FLEET_SECONDS", "60"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * n + 1000)), hard))
    with tempfile.TemporaryDirectory() as d:
        for name, get, kind in (("ClickHouse 18.16", clickhouse.old_server, clickhouse.Server),
                                (f"ClickHouse {clickhouse.CHDB}", clickhouse.library, clickhouse.Front)):
            home, why = get()
            if not home:
                print(f"{name}: {why}")
                continue
            backend = kind(home, f"{d}/{name.replace(' ', '-')}")
            url, directory, servers = backend.url(DATABASE, grace=600), f"{d}/servers-{kind.name}", []
            try:
                for i in range(2):
                    servers.append(Culprit(url, f"{directory}/{i}"))
                measure(name, url, servers, backend, directory, n, interval_s, seconds)
            finally:
                for s in servers:
                    s.stop()
                backend.kill()
