# SPDX-License-Identifier: Apache-2.0
"""The agent's exporters against real receivers: an OpenTelemetry Collector, and a receiver on the
Collector's own messages that behaves as it is told (otlp_sink). What they got is judged by the rules
of opentelemetry-proto and compared, all indices resolved, with what was sent.

Nothing is lost within the bounds of the spool; what is dropped is counted and told.
"""

import glob
import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

from conftest import TOP, WAIT_S, free_port, otlp_collector, peer, wait_for

BUILD = os.path.dirname(os.path.dirname(os.environ.get("CULPRIT") or os.path.join(TOP, "build/cli/culprit")))
TOOL = os.path.join(BUILD, "tests/tools/export-profile")
FOLDED = """app;main;work;inner_[i] 5
app;main;read;vfs_read_[k] 3
app;[truncated: too deep];jitted_[j] 2
db;start;query;libc.so.6+0x1234 7
"""
SAMPLES = 17
TYPE = "process_cpu:samples:count:cpu:nanoseconds"


@pytest.fixture(scope="session")
def sink_path():
    return peer("otlp_sink", "main.go", "judge.go", "go.mod")


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "in.folded"
    path.write_text(FOLDED)
    return str(path)


class Sink:
    def __init__(self, path, directory, answers, ports, tls):
        self.path, self.directory = path, str(directory)
        os.makedirs(directory)
        env = dict(os.environ, GRPC_PORT=str(ports[0]), HTTP_PORT=str(ports[1]))
        self.log_path = self.directory + ".log"
        self.process = subprocess.Popen([path, "serve", self.directory, *tls], env=env,
                                        stdin=subprocess.PIPE, stdout=open(self.log_path, "wb"))
        self.process.stdin.write("".join(a + "\n" for a in answers).encode())
        self.process.stdin.flush()
        wait_for(lambda: "ready\n" in self.log and self.log.count("told ") == len(answers), "no sink")
        self.grpc, self.http = (int(re.search(rf"^{n} (\d+)$", self.log, re.M)[1]) for n in ("grpc", "http"))

    @property
    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    @property
    def files(self):
        return sorted(glob.glob(self.directory + "/*.otlp"))

    def stop(self):
        self.process.kill()
        self.process.wait(WAIT_S)
        self.process.stdin.close()


@pytest.fixture
def sink(sink_path, tmp_path):
    """sink(ANSWER..., ports=(GRPC, HTTP), tls=(CERT, KEY)) starts one."""
    started = []

    def start(*answers, ports=(0, 0), tls=()):
        s = Sink(sink_path, tmp_path / f"sink{len(started)}", answers or ["ok"], ports, list(map(str, tls)))
        started.append(s)
        return s

    yield start
    for s in started:
        s.stop()


class Export:
    """export-profile that ran: statistics of each destination at the end, and its messages."""

    def __init__(self, process, told=""):
        if told: # communicate() knows nothing of what was read
            out, self.stderr = told + process.stdout.read(), process.stderr.read()
            process.wait(WAIT_S)
        else:
            out, self.stderr = process.communicate(timeout=WAIT_S * 3)
        assert process.returncode == 0, self.stderr
        self.all = [json.loads(line) for line in out.splitlines()]
        self.end = [s for s in self.all if s["when"] == "end"]

    def __getattr__(self, name):
        return self.end[0][name]

    def drops(self):
        return {k: self.end[0][k] for k in ("queue_full", "spool_full", "refused", "partial", "damaged",
                                            "failed", "shutdown") if self.end[0][k]}


def begin(urls, *files, **options):
    assert os.access(TOOL, os.X_OK), f"{TOOL} is not there: make"
    urls = urls if isinstance(urls, str) else ",".join(urls)
    options = {"retry_ms": 50, "shutdown_ms": WAIT_S * 1000, "timeout": 20, **options}
    args = [f"{k}={v}" for k, v in options.items()]
    return subprocess.Popen([TOOL, *args, urls, *map(str, files)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def export(urls, *files, **options):
    return Export(begin(urls, *files, **options))


@pytest.fixture
def judge(sink_path):
    """judge(FILES): the requests in words; fails on what is against the rules."""

    def run(files):
        assert files
        r = subprocess.run([sink_path, "check", *files], capture_output=True, text=True, timeout=WAIT_S)
        assert r.returncode == 0, r.stderr
        r = subprocess.run([sink_path, "show", *files], capture_output=True, text=True, timeout=WAIT_S)
        assert r.returncode == 0, r.stderr
        return sorted(line for line in r.stdout.splitlines() if line)

    return run


def times(lines):
    """The start of each request's profiles, in the order of the requests."""
    return [int(re.search(r" at (\d+) for ", line)[1]) for line in lines]


def starts(judge, s):
    return [min(times(judge([f]))) for f in s.files]


def total(lines):
    return sum(sum(map(int, re.search(r"\| \[([-\d ]*)\]", line)[1].split())) for line in lines if " | " in line)


def lost(lines):
    return sum(map(int, re.findall(r"culprit\.samples\.lost=(\d+)",
                                   "\n".join(line for line in lines if " | " not in line))))


# ---- a real Collector ----


@pytest.fixture
def collector(collector_path, tmp_path):
    """collector(GRPC-PORT-BEHIND): ports of one that sends on what it takes."""
    started = []

    def start(behind):
        p, *rest = otlp_collector(collector_path, tmp_path,
                                  f'otlp_grpc: {{endpoint: "127.0.0.1:{behind}", tls: {{insecure: true}}}}', "profiles")
        started.append(p)
        return rest

    yield start
    for p in started:
        p.terminate()
        p.wait(WAIT_S)


@pytest.mark.parametrize("protocol", ["otlp", "otlp+http"])
@pytest.mark.parametrize("timed", [0, 1])
def test_a_collector_takes_it_and_sends_on_the_same(sink, collector, judge, profile, tmp_path, protocol, timed):
    pprof = tmp_path / "inlined.pb"
    shutil.copy(os.path.join(TOP, "tests/fuzz/corpus/pprof/inlined"), pprof)
    dump = tmp_path / "dump"
    dump.mkdir()
    s = sink()
    grpc, http, log = collector(s.grpc)
    port = grpc if protocol == "otlp" else http
    e = export(f"{protocol}://127.0.0.1:{port}", profile, pprof, resources=2, lost=3, timed=timed, dump=dump)
    assert (e.sent, e.dropped, e.error) == (2, 0, "")
    wait_for(lambda: len(s.files) == 2, "the collector sent nothing on: " + log.read_text(errors="replace"))
    ours = judge(sorted(map(str, dump.glob("*.otlp"))))
    assert judge(s.files) == ours
    assert lost(ours) == 2 * 3
    assert any("service.name=service-1" in line for line in ours)
    assert "service-1" in log.read_text(errors="replace")


@pytest.mark.parametrize("form", ["otlp", "json"])
@pytest.mark.parametrize("timed", [0, 1])
def test_what_was_read_is_sent_the_same(sink, sink_path, judge, profile, tmp_path, form, timed):
    """Both forms, the JSON one as the Collector's own code writes it, through our decoder."""
    pprof = tmp_path / "inlined.pb"
    shutil.copy(os.path.join(TOP, "tests/fuzz/corpus/pprof/inlined"), pprof)
    dump = tmp_path / "dump"
    dump.mkdir()
    export(f"file:{tmp_path}/ignored-%s.folded", profile, pprof, resources=2, lost=3, timed=timed, dump=dump)
    files = sorted(map(str, dump.glob("*.otlp")))
    requests = files
    if form == "json":
        requests = [f + ".json" for f in files]
        for f, name in zip(files, requests):
            with open(name, "wb") as out:
                subprocess.run([sink_path, "json", f], stdout=out, check=True, timeout=WAIT_S)
    s = sink()
    e = export(f"otlp://127.0.0.1:{s.grpc}", *requests)
    assert (e.dropped, e.error) == (0, "")
    assert judge(s.files) == judge(files)


# ---- a receiver that behaves as it is told ----


def test_what_is_refused_for_good_is_dropped_and_told_by_the_next(sink, judge, profile):
    s = sink("status 3", "ok")
    e = export(f"otlp://127.0.0.1:{s.grpc}", profile, profile, lost=4, settle_ms=WAIT_S * 1000)
    assert (e.sent, e.dropped, e.dropped_samples) == (1, 1, SAMPLES)
    assert e.drops() == {"refused": 1}
    lines = judge(s.files)
    assert total(lines) == SAMPLES
    # Its own, those that were dropped, and what their profile would have told.
    assert lost(lines) == 4 + SAMPLES + 4
    assert "gRPC status 3: as told, 100 %" in e.stderr


@pytest.mark.parametrize("code", [1, 4, 10, 11, 14, 15])
def test_grpc_statuses_that_pass_are_tried_again(sink, judge, profile, code):
    s = sink(f"status {code}", f"status {code}", "ok")
    e = export(f"otlp://127.0.0.1:{s.grpc}", profile)
    assert (e.sent, e.dropped, e.retried, e.error) == (1, 0, 2, "")
    assert total(judge(s.files)) == SAMPLES


def test_resource_exhausted_is_tried_again_only_when_it_says_when(sink, profile):
    s = sink("status 8", "retry 8 700", "ok")
    begun = time.monotonic()
    e = export(f"otlp://127.0.0.1:{s.grpc}", profile, profile)
    assert e.drops() == {"refused": 1}
    assert (e.sent, e.retried) == (1, 1)
    assert time.monotonic() - begun > 0.7


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_http_statuses_that_pass_are_tried_again(sink, judge, profile, code):
    s = sink(f"http {code} 1", "ok")
    begun = time.monotonic()
    e = export(f"otlp+http://127.0.0.1:{s.http}", profile)
    assert (e.sent, e.dropped, e.retried) == (1, 0, 1)
    assert time.monotonic() - begun > 1, "Retry-After was not kept"
    assert total(judge(s.files)) == SAMPLES


@pytest.mark.parametrize("code", [400, 401, 413, 500])
def test_http_statuses_that_stay_drop_it(sink, profile, code):
    s = sink(f"http {code}")
    e = export(f"otlp+http://127.0.0.1:{s.http}", profile)
    assert (e.sent, e.drops()) == (0, {"refused": 1})
    assert f"answers HTTP {code}" in e.error


@pytest.mark.parametrize("protocol", ["otlp", "otlp+http"])
def test_partial_success_is_counted_and_not_sent_again(sink, profile, protocol):
    s = sink("partial 2")
    port = s.grpc if protocol == "otlp" else s.http
    e = export(f"{protocol}://127.0.0.1:{port}", profile)
    assert (e.sent, e.retried, e.drops()) == (1, 0, {"partial": 2})
    assert "some were wrong" in e.error
    assert len(s.files) == 1


@pytest.mark.parametrize("protocol", ["otlp", "otlp+http"])
def test_one_that_hangs_is_given_up_and_tried_again(sink, judge, profile, protocol):
    s = sink("hang", "ok")
    port = s.grpc if protocol == "otlp" else s.http
    e = export(f"{protocol}://127.0.0.1:{port}", profile, timeout=5)
    assert (e.sent, e.dropped, e.retried) == (1, 0, 1)
    assert total(judge(s.files)) == SAMPLES


def test_one_that_hangs_keeps_no_other_waiting(sink, profile):
    slow, quick = sink("hang"), sink()
    p = begin([f"otlp://127.0.0.1:{slow.grpc}", f"otlp://127.0.0.1:{quick.grpc}"], profile, profile, timeout=60)
    wait_for(lambda: len(quick.files) == 2, "the second destination waits for the first")
    assert not slow.files
    p.kill()
    p.communicate()


def test_away_at_the_start(sink, judge, profile):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
        p = begin(f"otlp://127.0.0.1:{port}", profile, repeat=5, gap_ms=100)
        nobody.accept()[0].close()
    s = sink(ports=(port, 0))
    e = Export(p)
    assert (e.sent, e.dropped, e.error) == (5, 0, "")
    assert e.retried >= 1
    order = starts(judge, s)
    assert len(order) == 5 and order == sorted(order)


def test_a_receiver_that_restarts(sink, judge, profile):
    first = sink()
    p = begin(f"otlp://127.0.0.1:{first.grpc}", profile, repeat=20, gap_ms=100)
    wait_for(lambda: len(first.files) >= 3, "nothing came")
    first.stop()
    second = sink(ports=(first.grpc, 0))
    e = Export(p)
    assert (e.sent, e.dropped) == (20, 0)
    # What was acknowledged and whose answer the kill took away comes twice, and nothing else.
    got = starts(judge, first) + starts(judge, second)
    assert len(set(got)) == 20 and len(got) <= 21
    assert starts(judge, second) == sorted(starts(judge, second))


def test_the_spool_is_bounded_and_drops_are_counted(sink, judge, profile):
    port = free_port()
    p = begin(f"otlp://127.0.0.1:{port}", profile, repeat=30, gap_ms=20, spool_bytes=2500, retry_ms=1000)
    told = "".join(p.stdout.readline() for _ in range(30)) # as often as one was made
    s = sink(ports=(port, 0))
    e = Export(p, told)
    assert e.sent + e.dropped == 30 and e.sent >= 2 and e.dropped >= 5
    assert e.drops() == {"spool_full": e.dropped}
    assert e.dropped_samples == e.dropped * SAMPLES
    assert all(x["spooled_bytes"] <= 2500 + 1000 for x in e.all)
    lines = judge(s.files)
    assert total(lines) == e.sent * SAMPLES
    # Whatever was dropped is told, but for what was dropped after the last profile was made.
    assert lost(lines) % SAMPLES == 0 and 0 < lost(lines) <= e.dropped * SAMPLES


def test_the_spool_survives_the_process(sink, judge, profile, tmp_path):
    port, spool = free_port(), tmp_path / "spool"
    url = f"otlp://127.0.0.1:{port}"
    e = export(url, profile, repeat=3, spool=spool, shutdown_ms=500)
    assert (e.sent, e.dropped, e.spooled) == (0, 0, 3)
    # The second is killed, once its two are in files.
    p = begin(url, profile, repeat=2, spool=spool)
    wait_for(lambda: len(list(spool.glob("*.spool"))) == 5, "not in files")
    p.send_signal(signal.SIGKILL)
    p.communicate()
    s = sink(ports=(port, 0))
    e = export(url, profile, spool=spool)
    assert (e.sent, e.dropped) == (6, 0)
    assert not list(spool.glob("*.spool"))
    base = 1700000000000000000
    assert [(t - base) // 10**9 for t in starts(judge, s)] == [0, 1, 2, 0, 1, 0]


def test_a_damaged_spool(sink, judge, profile, tmp_path):
    port, spool = free_port(), tmp_path / "spool"
    url = f"otlp://127.0.0.1:{port}"
    export(url, profile, repeat=4, spool=spool, shutdown_ms=500)
    files = sorted(spool.glob("*.spool"))
    assert len(files) == 4
    os.truncate(files[0], 100)
    data = bytearray(files[1].read_bytes())
    data[-1] ^= 1
    files[1].write_bytes(data)
    (spool / "0000000000000099.part").write_bytes(b"half")
    s = sink(ports=(port, 0))
    e = export(url, profile, spool=spool)
    assert (e.sent, e.drops()) == (3, {"damaged": 2})
    assert len(judge(s.files)) and len(s.files) == 3
    assert not list(spool.glob("*.spool")) and not list(spool.glob("*.part"))


def test_two_processes_do_not_share_a_spool(profile, tmp_path):
    port, spool = free_port(), tmp_path / "spool"
    p = begin(f"otlp://127.0.0.1:{port}", profile, spool=spool)
    wait_for(lambda: (spool / "lock").exists() and list(spool.glob("*.spool")), "no spool")
    other = begin(f"otlp://127.0.0.1:{port}", profile, spool=spool)
    _, stderr = other.communicate(timeout=WAIT_S)
    assert other.returncode == 1 and "another process uses the spool directory" in stderr
    p.kill()
    p.communicate()


def test_what_is_larger_than_a_grpc_server_takes_is_split(sink, judge, tmp_path):
    big = tmp_path / "big.folded"
    with open(big, "w", encoding="ascii") as f:
        for i in range(60000):
            f.write(f"app;main;function_with_a_rather_long_name_{i};{'x' * 60}{i % 977}_{i} 1\n")
    s = sink()
    e = export(f"otlp://127.0.0.1:{s.grpc}", big, lost=9)
    assert e.dropped == 0 and e.sent == len(s.files) >= 2
    assert all(os.path.getsize(f) < 4 << 20 for f in s.files)
    lines = judge(s.files)
    assert total(lines) == 60000 and lost(lines) == 9


# ---- TLS, tokens ----


@pytest.mark.parametrize("protocol", ["otlp", "otlp+http"])
def test_tls_and_token(sink, judge, certificates, profile, protocol):
    s = sink(tls=(certificates / "server.pem", certificates / "server.key"))
    port = s.grpc if protocol == "otlp" else s.http
    e = export(f"{protocol}://127.0.0.1:{port}", profile, tls=1, ca=certificates / "ca.pem",
               token="s3cret-token", headers="x-tenant=blue")
    assert (e.sent, e.dropped, e.error) == (1, 0, "")
    assert "Bearer s3cret-tokenblue" in s.log
    assert total(judge(s.files)) == SAMPLES
    assert "s3cret" not in e.stderr


@pytest.mark.parametrize("protocol", ["otlp", "otlp+http"])
def test_certificates_that_are_not_trusted_are_one_clear_line(sink, certificates, profile, protocol):
    s = sink(tls=(certificates / "other.pem", certificates / "other.key"))
    port = s.grpc if protocol == "otlp" else s.http
    e = export(f"{protocol}://127.0.0.1:{port}", profile, tls=1, ca=certificates / "ca.pem", shutdown_ms=3500)
    assert e.sent == 0 and e.spooled == 1
    about = [line for line in e.stderr.splitlines() if "certificate" in line]
    assert len(about) == 1 and "give the file of its CA" in about[0]
    assert not s.files


def test_tls_with_one_that_does_not_speak_it(sink, profile):
    s = sink()
    e = export(f"otlp+http://127.0.0.1:{s.http}", profile, tls=1, shutdown_ms=3500)
    assert e.sent == 0 and "turn TLS off" in e.error


@pytest.mark.parametrize("url, why", [
    ("otlp:localhost:1", "not of the form otlp://HOST:PORT"),
    ("otlp://user:secret@localhost:1", "must not contain a user"),
    ("carrier-pigeon://x", "not a destination"),
    ("file:/tmp/%Y/x.pb.gz", "only the file name may contain a time"),
    ("file:/nowhere/x.pb.gz", "/nowhere"),
])
def test_wrong_urls_are_told_before_anything_is_sampled(profile, url, why):
    p = begin(url, profile)
    _, stderr = p.communicate(timeout=WAIT_S)
    assert p.returncode == 1 and why in stderr and len(stderr.splitlines()) == 1
    assert "secret" not in stderr


# ---- files ----


def test_files_are_written_by_period_and_the_oldest_go(profile, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    keep_out = out / "culprit-notes.folded"
    keep_out.write_text("not ours")
    e = export(f"file:{out}/culprit-%Y%m%d-%H%M%S.folded", profile, repeat=6, keep=4)
    assert (e.sent, e.dropped) == (6, 0)
    files = sorted(out.glob("culprit-2*.folded"))
    assert len(files) == 4 and keep_out.read_text() == "not ours"
    assert all(f.read_text().count("\n") == 4 for f in files)
    e = export(f"file:{out}/same-%Y.pb.gz", profile, repeat=3)
    assert sorted(f.name for f in out.glob("same*")) == ["same-2023-1.pb.gz", "same-2023-2.pb.gz",
                                                         "same-2023.pb.gz"]
    assert all(gzip.decompress(f.read_bytes()) for f in out.glob("same*"))
    e = export(f"file:{out}/one.folded", profile, repeat=3)
    assert e.sent == 3 and (out / "one.folded").read_text().count("\n") == 4


def test_a_folder_that_goes_away_is_counted(profile, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    p = begin(f"file:{out}/%s.folded", profile, repeat=20, gap_ms=50)
    wait_for(lambda: list(out.glob("*.folded")), "no file")
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    e = Export(p)
    assert e.sent + e.dropped == 20 and e.sent >= 1
    assert e.drops() == ({"failed": e.dropped} if e.dropped else {})


# ---- our own server ----


@pytest.mark.parametrize("way", ["otlp", "otlp+http", "pyroscope", "collector"])
def test_our_server_answers_what_was_sent(server, request, profile, way):
    """Also what a Collector sent on: its own exporter feeds our server."""
    url = {"otlp": f"otlp://127.0.0.1:{server.ports['otlp-grpc']}",
           "otlp+http": f"otlp+http://127.0.0.1:{server.ports['otlp-http']}",
           "pyroscope": f"pyroscope://127.0.0.1:{server.port}"}.get(way)
    if way == "collector":
        grpc, _, _ = request.getfixturevalue("collector")(server.ports["otlp-grpc"])
        url = f"otlp://127.0.0.1:{grpc}"
    start = int(time.time()) - 600
    e = export(url, profile, resources=2, start=start)
    assert (e.sent, e.dropped, e.error) == (1, 0, "")

    def answer(query):
        return server.get("/api/v1/export", format="folded", query=query, type=TYPE,
                          **{"from": (start - 60) * 1000, "to": (start + 60) * 1000}).text

    wait_for(lambda: answer('{service_name="service-1"}').strip(), "nothing arrived: " + server.stderr)
    # service-0 is app, service-1 is db.
    assert totals(answer('{service_name="service-0"}')) == [2, 3, 5]
    assert totals(answer('{service_name="service-1"}')) == [7]
    assert "libc.so.6+0x1234" in answer('{service_name="service-1"}')
    for name in ("inner", "vfs_read_[k]", "[truncated: too deep]"):
        assert name in answer('{service_name="service-0"}')


def totals(folded):
    return sorted(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines())
