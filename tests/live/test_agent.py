# SPDX-License-Identifier: Apache-2.0
"""The always-on agent: reload, several destinations, probabilistic profiling, shutdown.

The receivers of these tests check every request against the rules of OTLP (otlp.py).
"""

import base64
import collections
import contextlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.request

import pytest

from folded import parse_folded
from host import free_port
from otlp import Receiver
from recorder import walks_sleepers
from statistics_of import binomial_interval
from truth import PROGRAMS, build, listed
from written import FORMATS, key_of, stacks_of

WAIT_S = 150


@pytest.fixture(scope="module")
def programs():
    build()
    return PROGRAMS


@contextlib.contextmanager
def held_port():
    """Yields a port at which nothing listens. Only a Receiver, which shares ports, can bind it meanwhile."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        s.bind(("127.0.0.1", 0))
        yield s.getsockname()[1]


def wait_for(condition, what, seconds=WAIT_S):
    end = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < end, what if isinstance(what, str) else what()
        time.sleep(0.05)
    return answer


class Agent:
    """A `culprit agent` with a configuration file of its own and /metrics; without waits, unless asked for."""

    def __init__(self, culprit, folder, *args, tls=False, start=(), **config):
        os.makedirs(folder, exist_ok=True)
        self.config, self.err_path = f"{folder}/agent.conf", f"{folder}/stderr"
        self.port = free_port()
        self.write(config)
        self.process = subprocess.Popen(
            [culprit, *start, "agent", "--config", self.config, *([] if tls else ["--disable-tls"]), "--metrics",
             f"127.0.0.1:{self.port}", *map(str, args)], stderr=open(self.err_path, "wb"))

    def write(self, config):
        config = {"no_off_cpu": "yes", **config}
        with open(self.config, "w", encoding="utf-8") as f:
            f.writelines(f"{k.replace('_', '-')} = {v}\n" for k, v in config.items())

    @property
    def stderr(self):
        with open(self.err_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def metrics(self):
        """Returns {name or name{labels}: value}; {} before the agent answers."""
        assert self.process.poll() is None, self.stderr
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=20) as r:
                text = r.read().decode()
        except OSError:
            return {}
        return {k: float(v) for k, v in re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", text, re.M)}

    def metric(self, name):
        """Returns the sum of a metric over all labels."""
        return sum(v for k, v in self.metrics().items() if k.partition("{")[0] == f"culprit_{name}")

    def wait_until_it_counts(self):
        wait_for(lambda: self.metric("agent_samples_total") > 0, lambda: "no samples\n" + self.stderr)

    def reload(self, **config):
        """Changes the configuration, sends SIGHUP, and returns the agent's messages."""
        before = len(self.stderr)
        self.write(config)
        self.process.send_signal(signal.SIGHUP)
        return wait_for(lambda: (said := self.stderr[before:]) and re.search(
            r"configuration reloaded|reload refused", said) and said, lambda: "no reload\n" + self.stderr)

    def rss(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def end(self, seconds=10):
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        took = time.monotonic() - begin
        assert status == 0, (status, self.stderr)
        assert "runtime error:" not in self.stderr and "Sanitizer" not in self.stderr, self.stderr
        assert took < seconds, f"it took {took:.1f} s to end"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Work:
    """A program that only burns CPU time, with a service name."""

    def __init__(self, programs, service, seconds=900):
        self.process = subprocess.Popen(
            [f"{programs}/split-g", str(seconds * 1000)],
            # A CPU for the program, also on a busy machine.
            preexec_fn=lambda: os.setpriority(os.PRIO_PROCESS, 0, -15),
            env={**os.environ, "OTEL_SERVICE_NAME": service})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def times_of(receiver, service):
    return sorted(t for s in receiver.samples(service_name=service) for t in s.times)


def wait_past(t, *receivers):
    """Waits until a receiver has a profile that starts after t; then it has all earlier profiles, too."""
    wait_for(lambda: any(p.start_ns > t for r in receivers for p in r.profiles()), "it is late", 120)


def assert_alike(a, b, what):
    """Compares two counts of the same work."""
    low, high = binomial_interval(a + b, 0.5)
    assert low <= a <= high, f"{what}: {a} and {b}"


# ---- waits ----


def test_waits_beside_the_cpu_time(culprit, programs, tmp_path):
    """Without options an agent sends both; what each wait was for is an attribute of its samples. --no-off-cpu leaves waits out."""
    code = "import ctypes, time\nctypes.CDLL(None).prctl(15, b'waits-sleeper')\nwhile True: time.sleep(0.05)"
    options = {"period": 1, "comm": "split-g,waits-sleeper"}
    sleeper = subprocess.Popen(["python3", "-c", code],
                               env={**os.environ, "OTEL_SERVICE_NAME": "sleeper"})
    try:
        with Receiver() as both, Receiver() as one, Work(programs, "shop"), \
                Agent(culprit, tmp_path / "a", export=both.url, **options, no_off_cpu="no") as agent, \
                Agent(culprit, tmp_path / "b", export=one.url, **options) as without:
            def of(receiver, kind, service):
                """Returns {what was waited for: [(time, ns)]}."""
                found = collections.defaultdict(list)
                for s in (s for p in receiver.profiles() if p.kind[0] == kind for s in p.samples):
                    if s.resource.get("service.name") == service:
                        found[s.attributes.get("wait")] += zip(s.times, s.values)
                return found

            wait_for(lambda: len(of(both, "off_cpu", "sleeper")["sleep"]) > 60 and of(both, "cpu", "shop") and of(one, "cpu", "shop"),
                     "nothing", 120)
            waits = of(both, "off_cpu", "sleeper")
            times = sorted(t for w in waits.values() for t, _ in w)
            span = times[-1] - times[0]
            # It sleeps nearly all of its time, but on a busy machine it also waits for a CPU.
            assert 0.8 * span < sum(ns for w in waits.values() for _, ns in w) < 1.2 * span, (span, waits)
            assert sum(ns for _, ns in waits["sleep"]) > span / 3 and set(waits) <= {"sleep", "runnable", "fault", "other"}, waits
            assert set(of(both, "cpu", "shop")) == {None}
            assert not any(p.kind[0] == "off_cpu" for p in one.profiles())
            assert agent.metric('agent_samples_lost_total') == 0
            agent.end()
            without.end()
    finally:
        sleeper.kill()
        sleeper.wait()


def test_who_sleeps_on_is_told(culprit, tmp_path):
    """A thread that hangs is seen while it hangs, with its stack, and no time is told twice."""
    code = ("import ctypes, os, select, time\nctypes.CDLL(None).prctl(15, b'waits-stuck')\nr, w = os.pipe()\n"
            "if not os.fork():\n time.sleep(22)\n os._exit(0)\n"
            "os.close(w)\ndef hang():\n os.read(r, 1)\nhang()\nwhile True: select.poll().poll(100)")
    stuck = subprocess.Popen(["python3", "-c", code], env={**os.environ, "OTEL_SERVICE_NAME": "stuck"})
    began = time.time()
    try:
        with Receiver() as receiver, Agent(culprit, tmp_path / "a", export=receiver.url, period=1, comm="waits-stuck", no_off_cpu="no"):
            def told(wait):
                return [(t, ns) for p in receiver.profiles() if p.kind[0] == "off_cpu" for s in p.samples
                        if s.resource.get("service.name") == "stuck" and s.attributes.get("wait") == wait for t, ns in zip(s.times, s.values)]

            wait_for(lambda: told("pipe"), "nothing of the thread that sleeps on", 15 + 20)
            assert time.time() < began + 22, "it was told only when it was over"
            wait_for(lambda: told("poll"), "it never ran on", 60)
            parts = told("pipe")
            assert len(parts) >= 2, parts
            frames = [s.frames for p in receiver.profiles() for s in p.samples if s.attributes.get("wait") == "pipe"]
            assert not walks_sleepers(culprit) or frames and all("hang" in f for f in frames), frames
            first = min(t - ns for t, ns in parts) / 1e9
            assert abs(sum(ns for _, ns in parts) / 1e9 - (began + 22 - first)) < 2, (parts, first - began)
    finally:
        stuck.kill()
        stuck.wait()


# ---- reload ----


def test_a_reload_loses_no_sample(culprit, programs, tmp_path):
    """One agent reloads its configuration again and again, another agent does not. Their counts of the same work
    agree in total and around each reload."""
    options = {"frequency": 199, "period": 1, "comm": "split-g"}
    changes = [{"labels": "team=blue"}, {"uid": "root"}, {"period": 2},
               {"comm": "split-g,nobody", "labels": "team=red"}, {}]
    with Receiver() as still, Receiver() as first, Receiver() as second, \
            Agent(culprit, tmp_path / "a", export=still.url, **options) as control, \
            Agent(culprit, tmp_path / "b", export=first.url, **options) as agent:
        reloads = []
        with Work(programs, "shop"):
            control.wait_until_it_counts()
            agent.wait_until_it_counts()
            begun = time.time_ns()
            for i, change in enumerate(changes):
                time.sleep(2)
                # Every other reload changes the destination, too.
                to = [second, first][i % 2].url
                reloads.append(time.time_ns())
                said = agent.reload(**{**options, "export": to, **change})
                assert "configuration reloaded" in said, said
            time.sleep(3)
            ended = time.time_ns()
            wait_past(ended, still)
            wait_past(ended, first, second)
        assert agent.metric("agent_samples_lost_total") == 0
        assert control.metric("agent_samples_lost_total") == 0
        assert agent.metric("agent_reloads_total") == len(changes)
        agent.end()
        control.end()
        for r in (still, first, second):
            assert all(s.resource for s in r.samples())
        a, b = times_of(still, "shop"), sorted(times_of(first, "shop") + times_of(second, "shop"))
        a, b = [[t for t in times if begun <= t < ended] for times in (a, b)]
        assert len(a) > 400
        assert_alike(len(a), len(b), "all")
        for t in reloads:
            near = [sum(t - 5e8 <= x < t + 4e9 for x in times) for times in (a, b)]
            assert_alike(*near, f"around the reload at {t}")
        teams = {s.resource.get("team") for r in (first, second)
                 for s in r.samples(service_name="shop")}
        assert teams == {None, "blue", "red"}


def test_a_frequency_that_changes(culprit, programs, tmp_path):
    options = {"period": 1, "comm": "split-g"}
    with Receiver() as r, Work(programs, "shop"), \
            Agent(culprit, tmp_path, export=r.url, frequency=49, **options) as agent:
        wait_for(lambda: len(times_of(r, "shop")) > 50, "nothing")
        assert "configuration reloaded" in agent.reload(export=r.url, frequency=499, **options)
        wait_for(lambda: any(p.period[1] == 1000000000 // 499 for p in r.profiles()), "as before")
        agent.end()
        # No profile has samples of two frequencies.
        assert {p.period[1] for p in r.profiles()} == {1000000000 // 49, 1000000000 // 499}


@pytest.mark.parametrize("config, says", [
    ({"frequency": "often"}, r"agent.conf:\d+: --frequency takes a whole number"),
    ({"frequncy": "20"}, r"agent.conf:\d+: unknown option frequncy"),
    ({"export": "pigeon://x"}, r"pigeon://x: not a destination"),
    ({"export": "file:/nowhere/x.folded"}, r"/nowhere"),
    ({"uid": "nobody-of-that-name"}, r"no user 'nobody-of-that-name'"),
    ({"cgroup": "/no/such/group"}, r"/no/such/group"),
    ({"labels": "a=%zz"}, r"--labels takes NAME=VALUE"),
    ({"export-token-file": "/nowhere/token"}, r"cannot read a token from /nowhere/token"),
])
def test_a_bad_configuration_is_refused(culprit, programs, tmp_path, config, says):
    good = {"frequency": 99, "period": 1, "comm": "split-g", "labels": "team=blue"}
    with Receiver() as r, Work(programs, "shop"), \
            Agent(culprit, tmp_path, **{**good, "export": r.url}) as agent:
        agent.wait_until_it_counts()
        said = agent.reload(**{**good, "export": r.url, **config})
        lines = said.strip().splitlines()
        assert len(lines) == 2 and re.search(says, lines[0]), said
        assert "reload refused; the previous configuration stays in effect" in lines[1]
        n = len(r.bodies)
        wait_for(lambda: len(r.bodies) > n + 1, "it does not go on")
        assert all(s.resource["team"] == "blue" for s in r.samples())
        assert {p.period[1] for p in r.profiles()} == {1000000000 // 99}
        assert agent.metric("agent_reloads_refused_total") == 1
        agent.end()


def test_a_reload_keeps_what_waits_and_reads_tokens_again(culprit, tmp_path):
    """Profiles that wait in the spool survive a change of the destination's token."""
    token = tmp_path / "token"
    token.write_text("first-token-of-all\n")
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(held_port())
        config = {"frequency": 49, "period": 1, "export": f"otlp+http://127.0.0.1:{port}",
                  "export_token_file": token}
        agent = stack.enter_context(Agent(culprit, tmp_path, **config))
        wait_for(lambda: agent.metric("export_spooled_bytes") > 0, "nothing waits")
        token.write_text("second-token-of-all\n")
        assert "configuration reloaded" in agent.reload(**config)
        with Receiver(port) as r:
            wait_for(lambda: agent.metric("export_profiles_total") >= 3, "nothing is sent")
            agent.end()
            assert {h["Authorization"] for h in r.headers} == {"Bearer second-token-of-all"}
            assert told_lost(r) == 0
            starts = sorted({p.start_ns for p in r.profiles()})
            ends = {p.start_ns: p.start_ns + p.duration_ns for p in r.profiles()}
            # Each profile begins where the previous one ended, or before: no profile is missing.
            gaps = [b - ends[a] for a, b in zip(starts, starts[1:])]
            assert all(g < 2e7 for g in gaps), gaps


def told_lost(*receivers):
    return sum(p.attributes.get("culprit.samples.lost", 0) for r in receivers for p in r.profiles()
               if p.kind == ("samples", "count"))


def test_a_reload_reads_certificates_again(culprit, tmp_path):
    """A reload changes the client certificate; the agent refuses files that do not match, and logs it."""
    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    for name in ("receiver", "first", "second"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{name}.key",
                "-out", f"{name}.pem")
    (tmp_path / "trusted.pem").write_text((tmp_path / "first.pem").read_text() +
                                          (tmp_path / "second.pem").read_text())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "receiver.pem", tmp_path / "receiver.key")
    tls.load_verify_locations(tmp_path / "trusted.pem")
    tls.verify_mode = ssl.CERT_REQUIRED

    def install(cert, key):
        shutil.copy(tmp_path / f"{cert}.pem", tmp_path / "cert.pem")
        shutil.copy(tmp_path / f"{key}.key", tmp_path / "key.pem")

    def der(name):
        return ssl.PEM_cert_to_DER_cert((tmp_path / f"{name}.pem").read_text())

    install("first", "first")
    with Receiver(tls=tls) as r:
        config = {"frequency": 49, "period": 1, "export": r.url, "export_ca": tmp_path / "receiver.pem",
                  "export_cert": tmp_path / "cert.pem", "export_key": tmp_path / "key.pem"}
        with Agent(culprit, tmp_path, tls=True, **config) as agent:
            wait_for(lambda: len(r.shown) > 1, lambda: "nothing comes\n" + agent.stderr)
            install("second", "first")
            said = agent.reload(**config)
            assert "key.pem" in said and "reload refused; the previous configuration stays in effect" in said, said
            n = len(r.shown)
            wait_for(lambda: len(r.shown) > n, lambda: "it does not go on\n" + agent.stderr)
            assert set(r.shown) == {der("first")}
            install("second", "second")
            assert "configuration reloaded" in agent.reload(**config)
            wait_for(lambda: r.shown[-1] == der("second"), lambda: "the old one is shown\n" + agent.stderr)
            agent.end()
            assert set(r.shown) == {der("first"), der("second")} and told_lost(r) == 0


# ---- /metrics ----


def rows(table):
    """Returns the names of the rows of a table in abi/tbl."""
    with open(f"{os.path.dirname(__file__)}/../../abi/tbl/{table}.tbl", encoding="ascii") as f:
        return re.findall(r'^[A-Z_]+\(\w+, "(\w+)"', f.read(), re.M)


def test_every_row_of_the_tables_is_a_metric(culprit, programs, tmp_path):
    """/metrics has each BPF counter of each source, and each drop reason of each destination."""
    url = f"file:{tmp_path}/%s.folded"
    with Work(programs, "shop"), Agent(culprit, tmp_path, comm="split-g", frequency=99, period=1, export=url,
                                       event="cpu-clock,page-faults") as agent:
        agent.wait_until_it_counts()
        metrics = agent.metrics()
        for source in "cpu-clock", "page-faults":
            seen = {n: metrics[f'culprit_agent_bpf_total{{counter="{n}",source="{source}"}}'] for n in rows("counter")}
            assert len(seen) > 10
        assert metrics['culprit_agent_bpf_total{counter="samples",source="cpu-clock"}'] > 0
        assert len(rows("export_drop")) > 5
        for reason in rows("export_drop"):
            assert metrics[f'culprit_export_dropped_total{{url="{url}",reason="{reason}"}}'] == 0
        agent.end()


# ---- unreachable receivers, several receivers ----


def test_a_receiver_that_is_away(culprit, programs, tmp_path):
    """The receiver is unreachable at the start, reachable, unreachable until the spool is full, and reachable
    again. Every sample is sent, or counted as dropped in /metrics and in the data."""
    # Labels that do not compress fill a spool of 1 MiB soon.
    labels = ",".join(f"pad{i}={base64.b64encode(os.urandom(720), b'-_').decode()}" for i in range(45))
    with held_port() as port, Work(programs, "shop"), Work(programs, "mall"):
        with Agent(culprit, tmp_path, "--spool-limit", 1, comm="split-g", frequency=99, period=1, labels=labels,
                   export=f"otlp+http://127.0.0.1:{port}") as agent:
            def waiting():
                return agent.metric("export_spooled_bytes")

            def dropped():
                return agent.metric("export_dropped_samples_total")
            wait_for(lambda: waiting() > 0, "nothing waits")
            with Receiver(port) as first:
                # The agent sends in order: the profile of now arrives after all spooled ones.
                wait_past(time.time_ns(), first)
                assert dropped() == 0
                first.status = 503
                before = agent.metric("export_retries_total")
                wait_for(lambda: agent.metric("export_retries_total") > before, "it is not tried again")
            wait_for(lambda: waiting() <= 1 << 20 and dropped() > 0, lambda: f"{waiting()} bytes wait")
            with Receiver(port) as second:
                # The profile that reports the drops comes after all spooled ones; then no more are dropped.
                wait_for(lambda: waiting() < 1 << 19 and told_lost(first, second) >= dropped() > 0,
                         lambda: f"{waiting()} wait; {told_lost(first, second)} told of {dropped()}")
                lost, gone = agent.metric("agent_samples_lost_total"), dropped()
                agent.end()
                both = [p for r in (first, second) for p in r.profiles() if p.kind == ("samples", "count")]
                sent = sum(s.count for p in both for s in p.samples)
                assert sent == sum(p.attributes.get("culprit.samples.seen", 0) for p in both)
                # The last profile that arrived says how many samples the agent had taken until then.
                sampled = max(int(p.agent["culprit.agent.samples"]) for p in both if p.agent)
                assert sent + gone == sampled and gone > 0
                assert told_lost(first, second) == gone + lost


def test_one_that_goes_keeps_nobody(culprit, programs, tmp_path):
    """The old receiver still answers 503 on its connections, while a new one listens at the same port."""
    with Work(programs, "shop"), Receiver() as first, \
            Agent(culprit, tmp_path, comm="split-g", frequency=49, period=1, export=first.url) as agent:
        wait_for(lambda: first.bodies, "nothing comes")
        first.status = 503
        wait_for(lambda: agent.metric("export_retries_total") > 0, "it is not tried again")
        first.stop()
        with Receiver(first.port) as second:
            before = agent.metric("export_retries_total")
            wait_for(lambda: second.bodies, "nothing comes to the second")
            assert agent.metric("export_retries_total") <= before + 1 # a request may have been under way


def test_what_waited_for_a_destination_that_is_none_any_more_is_told(culprit, programs, tmp_path):
    with held_port() as port, Work(programs, "shop"), \
            Agent(culprit, tmp_path, comm="split-g", frequency=199, period=1,
                  export=f"otlp+http://127.0.0.1:{port}") as agent:
        # Let at least one profile wait in the spool.
        wait_for(lambda: agent.metric("export_spooled_bytes") > 0, "nothing waits")
        with Receiver() as r:
            assert "configuration reloaded" in agent.reload(comm="split-g", frequency=199, period=1, export=r.url)
            wait_for(lambda: len(r.bodies) > 2, "nothing comes")
            agent.end()
            told = re.search(r": (\d+) profiles not sent", agent.stderr)
            assert told and int(told[1]) >= 1, agent.stderr


def test_several_at_once_and_a_filter(culprit, programs, tmp_path):
    """Two receivers and files get the same samples, all of the one program that the filter selects."""
    out = tmp_path / "out"
    out.mkdir()
    with Receiver() as a, Receiver() as b, Work(programs, "shop"), \
            Agent(culprit, tmp_path, comm="split-g", frequency=199, period=1, labels="host.name=node-7",
                  export=f"{a.url},{b.url},file:{out}/%s.folded") as agent:
        wait_for(lambda: len(times_of(a, "shop")) > 100, "nothing")
        agent.end()
        assert times_of(a, "shop") == times_of(b, "shop") and len(a.bodies) == len(b.bodies)
        assert {s.resource["process.executable.name"] for s in a.samples()} == {"split-g"}
        assert {s.resource["host.name"] for s in a.samples()} == {"node-7"}
        stacks = [s for f in out.glob("*.folded") for s in parse_folded(f.read_text())]
        assert sum(s.count for s in stacks) == sum(s.count for s in a.samples())


def test_files_keep_the_rules_of_their_formats(culprit, programs, tmp_path):
    """Writes files of all formats at once, with native code, kernel code and the installed interpreters. Each file
    follows the rules of its format (written.py), and all agree with each other and with a receiver."""
    out = tmp_path / "out"
    out.mkdir()
    files = ",".join(f"file:{out}/%s.{ending}" for ending in FORMATS)
    with Receiver() as r, Work(programs, "shop"), \
            Agent(culprit, tmp_path, frequency=99, period=1, comm="split-g,culprit,python3,node,java",
                  export=f"{r.url},{files}") as agent:

        def written():
            """Returns the seconds that have a file of each format; a file is complete or does not exist."""
            return set.intersection(*({int(re.match(r"\d+", path.name)[0]) for path in out.glob(f"*.{ending}")}
                                      for ending in FORMATS))
        # Collect them before the agent ends, because its end does not wait long enough for six slow files.
        wait_for(lambda: len(r.bodies) > 3 and len(written()) > 2, lambda: f"{len(r.bodies)} came\n{agent.stderr}")
        whole = written()
        agent.end(60)
        sent, told = {}, {}
        for p in r.profiles():
            for s in p.samples if p.kind == ("samples", "count") else []:
                comm = s.resource.get("culprit.process.comm", s.resource.get("process.executable.name"))
                at = sent.setdefault(p.start_ns // 10**9, collections.Counter())
                at[key_of(comm, s.frames[::-1])] += s.count
        for ending in FORMATS:
            for path in out.glob(f"*.{ending}"):
                key = ending, int(re.match(r"\d+", path.name)[0])
                told[key] = told.get(key, collections.Counter()) + stacks_of(path)
        seconds = sorted(whole & set(sent))
        assert len(seconds) > 1
        for at in seconds:
            assert sum(told["svg", at].values()) == sum(sent[at].values()) > 0
            for ending in set(FORMATS) - {"svg"}:
                file, got = told[ending, at], sent[at]
                only = [(k, file[k], got[k]) for k in file | got if file[k] != got[k]]
                assert not only, f"{ending}: {len(only)} differ: {only[:3]}"


# ---- whose samples they are ----

BURN_PYTHON = "while True: sum(range(1000))"
BURN_NODE = "for (;;) Math.sqrt(Date.now())"
BURN_JAVA = "class Burn { public static void main(String[] a) { for (long i = 0; ; i++) if (i < 0) return; } }"
RUNTIMES = {
    "cpython": (["/usr/bin/python3", "-c", BURN_PYTHON],
                ["/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]),
    "nodejs": (["node", "-e", BURN_NODE], None),
    "OpenJDK Runtime Environment": (
        ["java", "BURN.java"],
        ["sh", "-c", "java -XshowSettings:properties -version 2>&1 | sed -n 's/ *java.runtime.version = //p'"]),
    "go": ([f"{PROGRAMS}/gos-go", "1000000"],
           ["sh", "-c", f"go version {PROGRAMS}/gos-go | sed 's/.*: //'"]),
}


@pytest.mark.parametrize("name", list(RUNTIMES))
def test_a_process_says_its_runtime(culprit, programs, tmp_path, name):
    """Resources have the runtime's attributes by OpenTelemetry's conventions, also if the runtime is loaded after
    the first samples, as launchers load the JVM. Processes without a runtime have no such attributes.
    Attributes that the process publishes take precedence."""
    command, ask = RUNTIMES[name]
    here = f"-{os.getpid()}" # keeps the names of services apart from those of other test runs
    if not shutil.which(command[0]):
        pytest.skip(f"no {command[0]}")
    (tmp_path / "BURN.java").write_text(BURN_JAVA)
    command = [str(tmp_path / c) if c == "BURN.java" else c for c in command]
    version = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip() if ask else None
    with Receiver() as r, Work(programs, f"native{here}"), \
            Agent(culprit, tmp_path, frequency=49, period=1, export=r.url) as agent:
        agent.wait_until_it_counts()
        # env sets the service's name, so that this Python's child has it only after its exec.
        running = [subprocess.Popen(["env", f"OTEL_SERVICE_NAME={service}",
                                     f"OTEL_RESOURCE_ATTRIBUTES=process.runtime.name={own}", *command])
                   for service, own in ((f"shop{here}", ""), (f"own{here}", "mine"))]

        def said(service):
            return {(s.resource.get("process.runtime.name"), s.resource.get("process.runtime.version"))
                    for s in r.samples(service_name=service + here)}
        try:
            wait_for(lambda: (name, version) in said("shop"), lambda: f"{said('shop')}")
            wait_for(lambda: said("own") and said("native"), "nothing of the others")
        finally:
            for p in running:
                p.kill()
                p.wait()
        agent.end()
        assert said("own") == {("mine", None)}
        assert said("native") == {(None, None)}
        # Early samples may lack attributes, but have no other ones.
        assert said("shop") <= {(None, None), (name, None), (name, version)}


# ---- probabilistic profiling ----


def test_intervals_by_chance(culprit, programs, tmp_path):
    """The agent samples 40 % of the intervals of a second. The share is right, other intervals are empty, sampled
    intervals agree with an agent that always samples, and the data contain the share."""
    percent, options = 40, {"comm": "split-g", "frequency": 99, "period": 2}
    with Receiver() as all_of_it, Receiver() as r, Work(programs, "shop"), \
            Agent(culprit, tmp_path / "all", export=all_of_it.url, **options) as control, \
            Agent(culprit, tmp_path / "some", export=r.url, probabilistic_threshold=percent,
                  probabilistic_interval=1, **options) as agent:
        control.wait_until_it_counts()
        wait_for(lambda: agent.metric("agent_intervals_total") >= 40, "no intervals", 300)
        on, of = agent.metric("agent_intervals_sampled_total"), agent.metric("agent_intervals_total")
        agent.end()
        control.end()
        low, high = binomial_interval(int(of), percent / 100)
        assert low <= on <= high, (on, of)
        assert {s.resource.get("culprit.probabilistic.percent") for s in r.samples()} == {str(percent)}
        some, whole = times_of(r, "shop"), times_of(all_of_it, "shop")
        some = [t for t in some if t >= whole[0]]
        # Pauses of half a second and more are intervals that the agent did not sample.
        spans = [(a, b) for a, b in zip(some, some[1:]) if b - a < 5e8]
        assert len(spans) < len(some) - 1, "no interval was left out"
        seen = sum(any(a <= t < b for a, b in spans) for t in whole)
        assert_alike(len(spans), seen, "in the intervals that are sampled")
        left_out = sum(any(a < t < b for a, b in zip(some, some[1:]) if b - a >= 5e8) for t in whole)
        assert left_out > 0


# ---- memory ----


def test_memory_stays_below_its_limit(culprit, programs, tmp_path):
    """With 60 processes of many programs, resident memory plus BPF maps stay below the limit at each check. The
    agent continues, and counts what it leaves out."""
    limit = 96
    names = [n for n in listed() if not n.endswith(("-x", "-xs"))]
    many = [subprocess.Popen([f"{programs}/{names[i % len(names)]}", "1000000"], stdout=subprocess.DEVNULL,
                             preexec_fn=lambda: os.nice(15)) for i in range(60)]
    try:
        with Receiver() as r, Work(programs, "shop"), \
                Agent(culprit, tmp_path, frequency=49, period=1, export=r.url, memory_limit=limit) as agent:
            most = 0

            def enough():
                nonlocal most
                most = max(most, agent.rss())
                return len(r.bodies) > 8
            wait_for(enough, "no profiles")
            metrics = agent.metrics()
            # BPF maps that are not mapped into the agent; mapped ones are part of its resident memory.
            outside = max(0, metrics["culprit_agent_memory_bytes"] - agent.rss())
            assert most + outside < limit << 20, f"{most >> 20} MiB and {outside / 2**20:.1f}"
            assert metrics["culprit_agent_resident_max_bytes"] < limit << 20
            assert metrics["culprit_agent_memory_limit_bytes"] == limit << 20
            for what in ("short_names", "short_tables", "short_unnamed", "left_out"):
                assert f"culprit_agent_memory_{what}_total" in metrics
            agent.end()
            assert times_of(r, "shop")
    finally:
        for p in many:
            p.kill()
            p.wait()


def test_a_limit_that_is_too_small(culprit, programs, tmp_path):
    """With too small a limit the agent leaves out names and stacks and counts them, but loses no sample and does
    not end."""
    with Receiver() as r, Work(programs, "shop"), \
            Agent(culprit, tmp_path, frequency=99, period=1, export=r.url, memory_limit=24) as agent:
        wait_for(lambda: len(times_of(r, "shop")) > 100, "no samples")
        wait_for(lambda: agent.metric("agent_memory_short_unnamed_total") +
                 agent.metric("agent_memory_left_out_total") > 0, "nothing is left out")
        agent.end()


# ---- shutdown ----


@pytest.mark.parametrize("receiver", ["dead", "hangs"])
def test_it_ends_in_time_without_its_receiver(culprit, programs, tmp_path, receiver):
    with Receiver() as r, held_port() as nobody, Work(programs, "shop"):
        r.status = "hang"
        port = r.port if receiver == "hangs" else nobody
        with Agent(culprit, tmp_path, comm="split-g", frequency=99, period=1,
                   export=f"otlp+http://127.0.0.1:{port}") as agent:
            wait_for(lambda: agent.metric("export_spooled_bytes") > 0, "nothing waits")
            agent.end()
            assert re.search(r"\d+ profiles not sent", agent.stderr), agent.stderr


@pytest.mark.parametrize("receiver", ["dead", "hangs"])
def test_it_ends_in_time_with_a_full_spool(culprit, programs, tmp_path, receiver):
    with Receiver() as r, held_port() as nobody, Work(programs, "shop"):
        r.status = "hang"
        port = r.port if receiver == "hangs" else nobody
        with Agent(culprit, tmp_path, "--spool-limit", 1, frequency=999, period=1,
                   export=f"otlp+http://127.0.0.1:{port}") as agent:
            wait_for(lambda: agent.metric("export_dropped_samples_total") > 0 or
                     agent.metric("export_spooled_bytes") > 5e5, "the spool is not full", 300)
            agent.end()
            assert re.search(r"\d+ profiles not sent", agent.stderr), agent.stderr
