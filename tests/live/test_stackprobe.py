# SPDX-License-Identifier: Apache-2.0
"""gala-gopher's API of flame graphs, as culprit stackprobe serves it: answers, which processes are observed, and what
comes out, of a program that knows what it did (tests/tools/stackprobe_load.c)."""

import contextlib
import glob
import gzip
import http.client
import http.server
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import threading
import time
import urllib.parse
import uuid

import pytest

from test_procman import TOOLS

LOAD = os.path.join(TOOLS, "stackprobe_load")
DONE = '{ "result": "success", "message":"New config takes effect" }\n'
EMPTY = "the snooper for flamegraph cannot be empty"
WAIT_S = 60


def failed(message):
    return f'{{ "result": "failed", "message":"{message}" }}\n'


class Load:
    """The program under a name of its own: a copy, so that its comm differs from that of other tests' programs."""

    def __init__(self, folder, name):
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            shutil.copy(LOAD, path)
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.process.pid
        assert self.process.stdout.readline() == "ready\n"

    def do(self, what, value):
        self.process.stdin.write(f"{what} {value}\n")
        return int(self.process.stdout.readline())

    def switches(self):
        """How often it has left its CPU."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return sum(int(n) for n in re.findall(r"^(?:non)?voluntary_ctxt_switches:\t(\d+)", f.read(), re.M))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Probe:
    """A `culprit stackprobe` with folders of its own."""

    def __init__(self, culprit, folder, *args, init="none", before=()):
        self.flame, self.svg = folder / "folded", folder / "svg"
        self.flame.mkdir()
        self.svg.mkdir()
        self.stderr = folder / "stderr"
        self.process = subprocess.Popen(
            [*before, culprit, "stackprobe", "--listen", "127.0.0.1:0", "--init", init, "--period", "1", "--cache-dir",
             "/var/cache/culprit", *map(str, args)], stdout=subprocess.PIPE, stderr=open(self.stderr, "wb"), text=True)
        line = self.process.stdout.readline()
        assert re.match(r"api \d+\n$", line), (line, self.said())
        self.port = int(line.split()[1])
        assert self.process.stdout.readline() == "ready\n"

    def said(self):
        return self.stderr.read_text(errors="replace")

    def request(self, method, path="/flamegraph", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def put(self, **config):
        return self.request("PUT", body="json=" + json.dumps(config))

    def start(self, probes, params=None, **snoopers):
        """Starts the recording; the answer comes when it has begun."""
        config = {"cmd": {"probe": probes}, "snoopers": snoopers, "state": "running",
                  "params": {"flame_dir": str(self.flame), "output_dir": str(self.svg), "pyroscope_server": "",
                             **(params or {})}}
        assert self.put(**config) == (200, DONE), self.said()

    def stop(self):
        assert self.put(state="stopped") == (200, DONE), self.said()

    def get(self):
        status, text = self.request("GET")
        assert status == 200, text
        return json.loads(text)

    def lines(self, kind, who="all"):
        """[(frames, count)] of a folded file, with the names above the frames; [] if there is none."""
        path = self.flame / kind / f"tmp_{who}"
        text = path.read_text() if path.exists() else ""
        return [(stack.split("; "), int(count)) for stack, count in
                (line.rsplit(" ", 1) for line in text.splitlines())]

    def sum(self, kind, frame, who="all"):
        return sum(count for frames, count in self.lines(kind, who) if frame in frames)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(30) == 0, self.said()
        self.process.stdout.close()
        assert "runtime error:" not in self.said() and "Sanitizer" not in self.said(), self.said()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.end()
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def probe(culprit, tmp_path):
    with Probe(culprit, tmp_path) as p:
        yield p


def test_answers(probe):
    """Of requests that start nothing. tests/unit/test_stackprobe.c has the other messages."""
    assert probe.request("GET") == (200, "{}\n")
    assert probe.request("GET", "/FlameGraph") == (200, "{}\n")
    for method in "GET", "PUT", "DELETE":
        for path in "/", "/tcp", "/flamegraph/x":
            assert probe.request(method, path, "json={}") == (404, failed("url not found")), (method, path)
    assert probe.request("POST", body="json={}") == (405, failed("method not allowed"))
    assert probe.request("PUT", body="{}") == (400, failed("put data must start with json="))
    assert probe.request("PUT", body="json={") == (400, failed("invalid json format"))
    assert probe.request("PUT", body="{}", **{"Content-Type": "application/json"}) == (400, failed(EMPTY))
    assert probe.put(cmd={"probe": ['a"b']}) == (400, failed('unsupported probe range: a\\"b.'))
    assert probe.request("GET") == (200, "{}\n")
    assert probe.request("DELETE") == (200, DONE)
    assert probe.put(cmd={"probe": ["oncpu", "offcpu"]}, snoopers={"proc_id": [101, 102]}) == (200, DONE)
    config = probe.get()
    assert config["cmd"]["probe"] == ["oncpu", "offcpu"]
    assert config["snoopers"]["proc_id"] == [101, 102]
    assert config["params"]["svg_period"] == 180 and config["params"]["pyroscope_server"] == "localhost:4040"
    assert config["state"] == "unknown"
    assert probe.request("DELETE") == (200, DONE)
    assert probe.request("GET") == (200, "{}\n")


@pytest.fixture
def probe_of_its_own_log(culprit, tmp_path):
    """Its /var/log is empty, and nobody else's."""
    mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /var/log && exec "$0" "$@"']
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace")
    with Probe(culprit, tmp_path, before=mount) as p:
        yield p


def test_requests_of_the_guide(probe_of_its_own_log, tmp_path):
    """The requests of gala-gopher's guide about flame graphs, one after the other, by the client that it uses."""
    if not shutil.which("curl"):
        pytest.skip("no curl")
    probe = probe_of_its_own_log
    url = f"http://localhost:{probe.port}/flamegraph"

    def curl(method, text=None):
        data = ["-d", "json=" + text] if text else []
        done = subprocess.run(["curl", "-sS", "-X", method, url, *data], capture_output=True, text=True, check=True)
        return done.stdout

    assert curl("PUT", '\n{\n "cmd": {\n "probe": [\n "oncpu",\n "offcpu"\n ]\n }\n}') == failed(EMPTY)
    # It has a comma too many.
    assert curl("PUT", '{"snoopers": {"proc_id": [101, 102], "proc_name": [{"comm": "app1", "cmdline": "", '
                '"debugging_dir": ""},], "pod_id": ["pod1"]}}') == failed("invalid json format")
    assert curl("PUT", '{"state": "running"}') == failed(EMPTY)
    assert curl("GET") == "{}\n"
    places = '"output_dir": "/var/log/gala-gopher/stacktrace", "flame_dir": "/var/log/gala-gopher/flamegraph"'
    assert curl("PUT", '{"cmd": {"probe": ["oncpu", "offcpu", "mem"]}, "snoopers": {"proc_id": [101, 102], "proc_name": ['
                '{"comm": "app1", "cmdline": "", "debugging_dir": ""}, {"comm": "app2", "cmdline": "", "debugging_dir": ""}'
                '], "pod_id": ["pod1", "pod2"], "container_id": ["container1", "container2"]}, "params": {'
                '"multi_instance": 1, "native_stack": 1, "pyroscope_server": "localhost:4040", "svg_period": 180, '
                f'"perf_sample_period": 10, {places}}}, "state":"running"}}') \
        == failed("Error occurs when parsing snooper pod_id")
    with Load(tmp_path, "cadvisor") as load:
        assert curl("PUT", '{ "cmd": {"probe": ["oncpu"] }, "snoopers": {"proc_name": [{ "comm": "cadvisor"}] }, '
                    '"state": "running"}') == DONE
        assert json.loads(curl("GET"))["state"] == "running"
        assert curl("PUT", '{ "cmd": {"probe": ["oncpu", "offcpu", "mem"] }, "snoopers": {  "proc_name": [{   "comm": '
                    '"cadvisor",   "cmdline": "",   "debugging_dir": ""  }, {   "comm": "java",   "cmdline": "",   '
                    '"debugging_dir": ""  }] }, "params": {  "perf_sample_period": 100,  "svg_period": 300,  '
                    f'{places},  "pyroscope_server": "localhost:4040",  "multi_instance": 1,  "native_stack": 0 }}, '
                    '"state": "running"}') == DONE
        config = json.loads(curl("GET"))
        assert config["cmd"]["probe"] == ["oncpu", "offcpu", "mem"]
        assert [n["comm"] for n in config["snoopers"]["proc_name"]] == ["cadvisor", "java"]
        assert config["params"]["perf_sample_period"] == 100 and config["params"]["svg_period"] == 300
        # On a busy machine the first wait may be over before the program's code is known.
        for _ in range(4):
            load.do("nap", 200)
        assert curl("PUT", '{"state": "stopped"}') == DONE
        top = f"/proc/{probe.process.pid}/root/var/log/gala-gopher"
        with open(f"{top}/flamegraph/offcpu/tmp_{load.pid}", encoding="utf-8") as f:
            text = f.read()
            assert "nap_here[u]" in text, text
        assert len(glob.glob(f"{top}/stacktrace/offcpu/*/*-{load.pid}.svg")) == 1
    assert curl("DELETE") == DONE


@pytest.mark.parametrize("period", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_time_on_a_cpu(probe, tmp_path, period):
    """The time is that which the program has used, whatever the period is; only it is observed."""
    with Load(tmp_path, "sp-burner") as load, Load(tmp_path, "sp-other") as other:
        probe.start(["oncpu"], {"perf_sample_period": period, "multi_instance": 1}, proc_id=[load.pid])
        switches = load.switches()
        used = load.do("burn", 1000)
        # The share of a sample at each end of a turn on the CPU is left to chance.
        switches = load.switches() - switches
        other.do("burn", 100)
        probe.stop()
        seen = probe.sum("oncpu", "burn_here[u]", load.pid)
        chance = 1000 * period * (1 + 2 * (switches + 1) ** 0.5)
        assert abs(seen - used) < used * 0.05 + chance, (period, used, seen, switches)
        assert os.listdir(probe.flame / "oncpu") == [f"tmp_{load.pid}"]
        assert all(frames[0] == f"[{load.pid}]sp-burner" for frames, _ in probe.lines("oncpu", load.pid))
        [path] = glob.glob(f"{probe.svg}/oncpu/*/*.svg")
        assert re.search(rf"/(\d{{4}}-\d\d-\d\d)/\1-\d\d-\d\d-\d\d-{load.pid}\.svg$", path), path
        text = open(path, encoding="utf-8").read()
        assert "On-CPU Time Flame Graph" in text and "burn_here" in text and f"[{load.pid}]sp-burner" in text


def test_waits_and_memory(probe, tmp_path):
    """Several types at once: time off the CPU, locks as a part of it, the whole time, and bytes by page faults."""
    with Load(tmp_path, "sp-mix") as load:
        probe.start(["oncpu", "offcpu", "lock", "wall", "mem"], proc_name=[{"comm": "^sp-mix$"}])
        slept, waited = load.do("nap", 500), load.do("lock", 400)
        touched, used = load.do("touch", 16384), load.do("burn", 500)
        probe.stop()
    for kind in "offcpu", "wall":
        assert probe.sum(kind, "nap_here[u]") == pytest.approx(slept, rel=0.05, abs=2000), kind
        assert probe.sum(kind, "lock_here[u]") == pytest.approx(waited, rel=0.05, abs=5000), kind
    assert probe.sum("lock", "lock_here[u]") == pytest.approx(waited, rel=0.05, abs=5000)
    assert probe.sum("lock", "nap_here[u]") == 0
    assert probe.sum("mem", "touch_here[u]") == pytest.approx(touched, rel=0.05)
    # The kernel does not charge a thread with the interrupts that it is interrupted by; a turn on the CPU has them.
    assert used * 0.95 - 20000 < probe.sum("oncpu", "burn_here[u]") < used * 1.3 + 20000
    assert probe.sum("wall", "burn_here[u]") >= probe.sum("oncpu", "burn_here[u]")
    assert probe.sum("oncpu", "nap_here[u]") < slept / 10
    assert os.path.basename(glob.glob(f"{probe.svg}/lock/*/*.svg")[0]).endswith("-all.svg")


def test_memory_by_malloc(probe, tmp_path):
    """mem_glibc has what a process has allocated and not freed, by the functions that called malloc()."""
    with Load(tmp_path, "sp-malloc") as load:
        probe.start(["mem_glibc"], proc_id=[load.pid])
        # Probes are inserted by a thread, after the answer.
        time.sleep(2)
        kept, churned = load.do("keep", 40), load.do("churn", 40)
        time.sleep(0.5)
        probe.stop()
    print(probe.lines("mem_glibc"), probe.said())
    assert kept == churned == 40000
    assert probe.sum("mem_glibc", "keep_here[u]") == kept
    assert probe.sum("mem_glibc", "churn_here[u]") == 0
    picture, = glob.glob(f"{probe.svg}/mem_glibc/*/*-all.svg")
    with open(picture, encoding="utf-8") as f:
        text = f.read()
    assert "Memory Leak Flame Graph" in text and "keep_here" in text


def test_processes_come_and_go(probe, tmp_path):
    """A name selects processes that start later, their children, and those that take the name; not those that lose it.
    Another list takes effect without a restart."""
    with Load(tmp_path, "sp-waits") as other:
        probe.start(["oncpu"], {"multi_instance": 1}, proc_name=[{"comm": "^sp-fol+ow"}])
        with Load(tmp_path, "sp-follow") as load:
            load.do("burn", 300)
            child = load.do("fork", 300)
            other.do("burn", 1000)
            renamed = other.do("name", "sp-follower")
            other.do("burn", 300)
            other.do("name", "sp-gone")
            time.sleep(0.3)
            other.do("burn", 1000)
            # Its children have no choice of their own.
            assert probe.put(snoopers={"proc_id": [load.pid]}) == (200, DONE)
            time.sleep(0.3)
            grandchild = load.do("fork", 300)
            probe.stop()
            # 300 ms of each; of the third, not the second before and the second after.
            for pid in load.pid, child, renamed:
                assert 120000 < probe.sum("oncpu", "burn_here[u]", pid) < 700000, (pid, load.pid, child, renamed)
            assert probe.lines("oncpu", grandchild) == []


def test_blacklist(probe, tmp_path):
    """All processes but those of the list, now and when they start later."""
    with Load(tmp_path, "sp-black1") as black, Load(tmp_path, "sp-white1") as white:
        probe.start(["oncpu"], {"multi_instance": 1}, proc_id=[1])
        assert probe.put(blacklist={"proc_name": [{"comm": "^sp-black"}]}) == (200, DONE)
        time.sleep(0.3)
        assert "snoopers" not in probe.get()
        with Load(tmp_path, "sp-black2") as later, Load(tmp_path, "sp-white2") as seen:
            for load in black, white, later, seen:
                load.do("burn", 300)
            probe.stop()
            for load in white, seen:
                assert probe.sum("oncpu", "burn_here[u]", load.pid) > 120000
            for load in black, later:
                assert probe.sum("oncpu", "burn_here[u]", load.pid) == 0


def test_stop_and_forget(probe, tmp_path):
    with Load(tmp_path, "sp-stop") as load:
        probe.start(["oncpu"], proc_id=[load.pid])
        load.do("burn", 500)
        probe.stop()
        assert probe.get()["state"] == "stopped"
        before = probe.sum("oncpu", "burn_here[u]")
        assert before > 120000
        load.do("burn", 300)
        assert probe.sum("oncpu", "burn_here[u]") == before
        assert probe.put(state="running") == (200, DONE)
        load.do("nap", 300)
        load.do("burn", 20)
        assert probe.request("DELETE") == (200, DONE)
        assert probe.request("GET") == (200, "{}\n")
        assert probe.sum("oncpu", "burn_here[u]") < before / 2, "the second recording alone"
        assert probe.put(state="running") == (400, failed(EMPTY))


def test_a_start_that_fails(culprit, tmp_path):
    """Nothing has changed then, and it can be tried again."""
    with Probe(culprit, tmp_path, before=["prlimit", "--nofile=64:64"]) as probe:
        for _ in range(2):
            status, text = probe.put(cmd={"probe": ["oncpu", "mem", "io"]}, snoopers={"proc_id": [1]}, state="running")
            assert status == 400, text
            assert json.loads(text)["message"].startswith("failed to start probe: "), text
            assert probe.request("GET") == (200, "{}\n")


@contextlib.contextmanager
def cgroup(*names):
    top = "/sys/fs/cgroup/unified" if os.path.isdir("/sys/fs/cgroup/unified") else "/sys/fs/cgroup"
    path = os.path.join(top, *names)
    try:
        os.makedirs(path)
    except OSError as e:
        pytest.skip(f"no cgroup: {e}")
    try:
        yield path
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                os.rmdir(path)
                break
            time.sleep(0.1)
        for i in range(len(names) - 1, 0, -1):
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(top, *names[:i]))


@pytest.mark.parametrize("by", ["container_name", *(pytest.param(p, marks=pytest.mark.slow)
                                                    for p in ("container_id", "pod_id"))])
def test_containers(culprit, tmp_path, by):
    """By a name from the engine's file, the beginning of an id, or the pod; a process that moves into the container,
    too. The container stands above its stacks."""
    container, pod = os.urandom(32).hex(), str(uuid.uuid4())
    state = tmp_path / "root" / "var/lib/docker/containers" / container
    state.mkdir(parents=True)
    (state / "config.v2.json").write_text(json.dumps({"ID": container, "Name": "/sp-shop", "Config": {"Image": "x"}}))
    with Probe(culprit, tmp_path, "--host-root", tmp_path / "root") as probe, \
            cgroup(f"kubepods-culprit-pod{pod.replace('-', '_')}.slice", f"docker-{container}.scope") as path, \
            Load(tmp_path, "sp-con") as load, Load(tmp_path, "sp-free") as free:
        probe.start(["oncpu"], {"multi_instance": 1}, 
                    **{by: [{"container_name": "sp-sho", "container_id": container[:12], "pod_id": pod}[by]]})
        with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as f:
            f.write(str(load.pid))
        time.sleep(2.5)
        load.do("burn", 300)
        child = load.do("fork", 300)
        free.do("burn", 300)
        probe.stop()
        for pid in load.pid, child:
            assert probe.sum("oncpu", "burn_here[u]", pid) > 120000
            for frames, _ in probe.lines("oncpu", pid):
                assert frames[:3] == [f"[Pod]{pod}", "[Con]sp-shop", f"[{pid}]sp-con"], frames
        assert probe.lines("oncpu", free.pid) == []


def test_initial_requests(culprit, tmp_path):
    """The file of them, and the client on the command line."""
    with Load(tmp_path, "sp-init") as load:
        init = tmp_path / "probes.init"
        config = {"cmd": {"probe": ["oncpu"]}, "snoopers": {"proc_name": [{"comm": "sp-init"}]}, "state": "running",
                  "params": {"flame_dir": str(tmp_path), "output_dir": str(tmp_path), "pyroscope_server": ""}}
        init.write_text(f'# tcp {{}}\n\ntcp {{"cmd":{{"probe":["tcp_rtt"]}}}}\n  flamegraph {json.dumps(config)}\n')
        with Probe(culprit, tmp_path, init=init) as probe:
            def ctl(*args):
                return subprocess.run([culprit, "ctl", "flamegraph", *args, "--server",
                                       f"http://127.0.0.1:{probe.port}"], capture_output=True, text=True, check=False)

            end = time.monotonic() + WAIT_S
            while not (answer := ctl("get")).stdout.startswith('{"cmd"') and time.monotonic() < end:
                time.sleep(0.1)
            assert json.loads(answer.stdout)["state"] == "running", answer
            # Returns when what was asked for before has begun.
            assert ctl("set", '{"state":"running"}').returncode == 0
            assert "culprit has no probe 'tcp': left out" in probe.said()
            load.do("burn", 300)
            done = ctl("set", '{"state":"stopped"}')
            assert (done.returncode, done.stdout) == (0, "New config takes effect\n"), done
            text = (tmp_path / "oncpu" / "tmp_all").read_text()
            assert f"[{load.pid}]sp-init; " in text and "burn_here[u]" in text
            done = ctl("set", '{"state":"paused"}')
            assert done.returncode == 1 and "invalid state paused: must be running or stopped" in done.stderr, done
            assert ctl("delete").returncode == 0
            assert json.loads(ctl("get").stdout) == {}


def test_access(culprit, run, tmp_path):
    """Beyond loopback only with tokens or client certificates; a token for reading changes nothing."""
    refused = run("stackprobe", "--listen", "0.0.0.0:0", "--init", "none")
    assert refused.returncode == 1 and "--listen 0.0.0.0:0" in refused.stderr, refused
    tokens = tmp_path / "tokens"
    tokens.write_text("read reader-of-these-tests\nadmin admin-of-these-tests\n")
    tokens.chmod(0o600)
    with Probe(culprit, tmp_path, "--token-file", tokens) as probe:
        reader, admin = ({"Authorization": f"Bearer {t}-of-these-tests"} for t in ("reader", "admin"))
        assert probe.request("GET")[0] == 401
        assert probe.request("GET", **reader) == (200, "{}\n")
        assert probe.request("DELETE", **reader) == (403, failed("the token does not allow this"))
        assert probe.request("DELETE", **admin) == (200, DONE)


def test_client_certificates(culprit, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("no openssl")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out",
                    "cert.pem"], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    with Probe(culprit, tmp_path, "--tls-cert", cert, "--tls-key", key, "--tls-ca", cert) as probe:
        def get(context):
            connection = http.client.HTTPSConnection("127.0.0.1", probe.port, timeout=WAIT_S, context=context)
            with contextlib.closing(connection):
                connection.request("GET", "/flamegraph")
                answer = connection.getresponse()
                return answer.status, answer.read().decode()

        context = ssl.create_default_context(cafile=cert)
        assert get(context)[0] == 403
        context.load_cert_chain(cert, key)
        assert get(context) == (200, "{}\n")


@pytest.mark.parametrize("scheme", ["", "pyroscope://", "pyroscope+ingest://"])
def test_upload(probe, tmp_path, scheme):
    """By Pyroscope's push API, or by the older one if the server's address asks for it."""
    got = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, Load(tmp_path, "sp-send") as load:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        probe.start(["oncpu"], {"pyroscope_server": f"{scheme}127.0.0.1:{server.server_port}"}, proc_id=[load.pid])
        load.do("burn", 500)
        probe.stop()
        end = time.monotonic() + 10
        while not got and time.monotonic() < end:
            time.sleep(0.1)
        server.shutdown()
    assert got, probe.said()
    path, body = got[0]
    if scheme == "pyroscope+ingest://":
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)
        assert path.startswith("/ingest?") and query["format"] == ["pprof"], path
        assert query["name"][0].startswith("sp-send{") and int(query["until"][0]) > int(query["from"][0]) > 1.7e9, path
        text = gzip.decompress(body)
        assert b"burn_here" in text and b"nanoseconds" in text
    else:
        assert path == "/push.v1.PusherService/Push" and b"process_cpu" in body


@pytest.mark.slow
def test_pictures_are_periodic(probe, tmp_path):
    """At the shortest period: the folded file goes with the picture, and begins again."""
    with Load(tmp_path, "sp-svg") as load:
        probe.start(["oncpu"], {"svg_period": 30, "multi_instance": 1}, proc_id=[load.pid])
        begin = time.time()

        def pictures():
            found = sorted(glob.glob(f"{probe.svg}/oncpu/*/*-{load.pid}.svg"))
            return [time.mktime(time.strptime(os.path.basename(p)[:19], "%Y-%m-%d-%H-%M-%S")) for p in found]

        used = 0
        while len(pictures()) < 2 and time.time() < begin + 90:
            used += load.do("burn", 300)
            time.sleep(0.5)
        first, second = pictures()
        assert first - begin == pytest.approx(30, abs=5) and second - first == pytest.approx(30, abs=3)
        load.do("burn", 300)
        probe.stop()
        assert 0 < probe.sum("oncpu", "burn_here[u]", load.pid) < used * 0.2
        assert len(pictures()) == 3
