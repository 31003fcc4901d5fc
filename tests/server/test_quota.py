# SPDX-License-Identifier: Apache-2.0
"""What one request, and many at once, can make the server hold and do: no request of at most 1 MB takes more than
300 MB or 5 s of CPU time, all together no more than --request-memory, and the system gets the memory back."""

import os
import socket
import threading
import time

import bombs
import h2_client
import pytest

MIB = 1 << 20
BUDGET = 512 * MIB  # the default of --request-memory
# Uncharged beside it: caches of the store, stacks of threads, what malloc() holds between two malloc_trim().
MORE = 128 * MIB
CACHES = 100 * MIB  # of the store (64 MiB), its lists of names and blocks, and SQLite's
EXPORT = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
QUICK = ["query_lists", "push_json", "convert_speedscope", "pprof_samples", "otlp_resources", "folded_distinct"]


def memory(server, key):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key))


def cpu_s(server):
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_rss(server, limit, seconds=10):
    """The server returns memory at the end of a request, and every five seconds."""
    end = time.monotonic() + seconds
    while memory(server, "VmRSS") > limit and time.monotonic() < end:
        time.sleep(0.1)
    return memory(server, "VmRSS")


class Measured:
    """The growth of the peak of the resident memory, and the CPU time, of a block."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        self.before = memory(self.server, "VmRSS")
        with open(f"/proc/{self.server.process.pid}/clear_refs", "w", encoding="ascii") as f:
            f.write("5")  # VmHWM begins again
        self.cpu = cpu_s(self.server)
        return self

    def __exit__(self, *_):
        self.cpu = cpu_s(self.server) - self.cpu
        self.peak = memory(self.server, "VmHWM") - self.before


def explode(server, name):
    path, body, headers, parameters = bombs.BOMBS[name]()
    assert len(body) <= 1e6
    return server.post(path, body, headers, **parameters)


def all_at_once(n, fn):
    """Calls fn(i) in n threads at once. Returns what they return."""
    out = [None] * n
    start = threading.Barrier(n)

    def run(i):
        start.wait()
        out[i] = fn(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def check_bombs(server, names):
    server.get("/healthz")
    base = memory(server, "VmRSS")
    for name in names:
        with Measured(server) as m:
            a = explode(server, name)
        said = f"{name}: {a.status}, {m.peak // MIB} MiB, {m.cpu:.2f} s of CPU time: {a.text[:200]}"
        assert a.status in (200, 202, 400, 413, 429, 504), said
        assert m.peak < 300e6 and m.cpu < 5, said
    rss = wait_rss(server, base + CACHES)
    assert rss < base + CACHES, f"{(rss - base) // MIB} MiB stay"


def test_bombs(server):
    check_bombs(server, QUICK)


@pytest.mark.slow
def test_all_bombs(server):
    check_bombs(server, bombs.BOMBS)


def check_told(server, reason, line):
    """The operator learns of a request that a limit stopped, too."""
    assert f'culprit_net_stopped_total{{listener="api",reason="{reason}"}} 1\n' in server.get("/metrics").text
    [event] = [e for e in server.get("/api/v1/health").json()["events"] if e["name"] == reason]
    assert event["count"] >= 1
    assert line in server.stderr


def test_refusals_name_the_option(serve):
    s = serve("--query-cpu", 1)
    a = explode(s, "folded_stacks")
    assert a.status == 504 and "1 s of CPU time" in a.text and "--query-cpu" in a.text, a.text
    assert s.get("/api/v1/stats").json()["store"]["rows"] == 0
    check_told(s, "time", "stopped: it took longer than --query-timeout or --query-cpu")
    s = serve("--request-memory", 64)
    a = explode(s, "pprof_samples")
    assert a.status == 413 and "32 MiB" in a.text and "--request-memory" in a.text, a.text
    c = h2_client.Connection(s.ports["otlp-grpc"])
    answer = c.call(EXPORT, bombs.fill(b"\x0a\x00", 16 * MIB))
    assert answer.status == 8, answer.status  # RESOURCE_EXHAUSTED
    check_told(s, "memory", "stopped: it needed more than half of --request-memory")
    assert s.post("/api/v1/upload", b"a;b 1\n").status == 200


@pytest.mark.slow
def test_64_bombs_at_once(server):
    server.get("/healthz")
    base = memory(server, "VmRSS")
    names = list(bombs.BOMBS)
    made = {n: bombs.BOMBS[n]() for n in names}

    def fire(i):
        path, body, headers, parameters = made[names[i % len(names)]]
        return server.request("POST", path, body, {"Content-Type": "application/octet-stream", **headers}, parameters,
                              timeout=180)

    with Measured(server) as m:
        statuses = [a.status for a in all_at_once(64, fire)]
    assert set(statuses) <= {200, 202, 400, 413, 429, 503, 504}, statuses
    assert m.peak < BUDGET + MORE, f"{m.peak // MIB} MiB"
    rss = wait_rss(server, base + CACHES)
    assert rss < base + CACHES, f"{(rss - base) // MIB} MiB stay"
    assert server.post("/api/v1/upload", b"a;b 1\n").status == 200


@pytest.mark.slow
def test_32_otlp_bombs_at_once(server):
    path, body, headers, parameters = bombs.otlp_resources()
    base = memory(server, "VmRSS")
    with Measured(server) as m:
        statuses = [a.status for a in all_at_once(32, lambda _: server.post(path, body, headers, **parameters))]
    assert set(statuses) <= {413, 503, 504}, statuses
    assert m.peak < BUDGET + MORE, f"{m.peak // MIB} MiB"
    assert wait_rss(server, base + CACHES) < base + CACHES


def fill_store(server, stacks):
    text = "".join(f"shop;main;handler{i % 100};step{i % 1000};call{i // 10};leaf{i} {i % 7 + 1}\n"
                   for i in range(stacks))
    a = server.post("/api/v1/upload", text.encode(), format="folded")
    assert a.status == 200, a.text


@pytest.mark.slow
def test_parallel_questions(serve):
    """Answers of 50,000 stacks: some are refused for a moment, and the others are right."""
    s = serve()
    fill_store(s, 50_000)
    one = s.get("/api/v1/payload", max_stacks=2_000_000)
    assert one.status == 200, one.text
    base = memory(s, "VmRSS")
    with Measured(s) as m:
        answers = all_at_once(24, lambda _: s.request("GET", "/api/v1/payload?max_stacks=2000000", timeout=180))
    statuses = [a.status for a in answers]
    assert set(statuses) <= {200, 503, 504}, statuses
    assert all("retry later" in a.text for a in answers if a.status == 503)
    assert m.peak < BUDGET + MORE, f"{m.peak // MIB} MiB"
    assert wait_rss(s, base + CACHES) < base + CACHES
    again = s.get("/api/v1/payload", max_stacks=2_000_000)
    assert again.status == 200 and len(again.body) == len(one.body)


def test_work_ends_when_the_client_has_gone(serve):
    s = serve("--query-cpu", 600, "--query-timeout", 600)
    _, body, _, _ = bombs.folded_stacks()
    c = socket.create_connection(("127.0.0.1", s.port))
    c.sendall(b"POST /api/v1/upload?format=folded HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
              % len(body) + body)
    begin = cpu_s(s)
    while cpu_s(s) < begin + 0.5:
        time.sleep(0.05)
    c.close()
    time.sleep(1)
    begin = cpu_s(s)
    time.sleep(1)
    assert cpu_s(s) - begin < 0.3
    assert s.get("/api/v1/stats").json()["store"]["rows"] == 0
