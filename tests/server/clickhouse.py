# SPDX-License-Identifier: Apache-2.0
"""ClickHouse for tests, fetched once into ~/.cache/culprit-peers and run on loopback.

- `Server`: the real server that Debian packages (18.16), with ports and data of its own;
- `Front`: a current engine, chDB from PyPI, behind clickhouse_front.py;
- `Keeper`: Apache ZooKeeper from Maven Central, for `cluster()`: two shards of two replicas of
  `Server`;
- `Proxy`: between culprit and one of them; loses or delays answers, or refuses requests.

Each of old_server(), library() and keeper_jars() returns a path (or None), and the reason for None.
"""

import glob
import http.client
import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from conftest import PEERS, TOP, free_port

USER, PASSWORD = "culprit", "s3cret/pass:word"
MAVEN = "https://repo1.maven.org/maven2/"
CHDB = "26.9.0"
ZOOKEEPER = "3.8.4"
JARS = [f"org/apache/zookeeper/zookeeper/{ZOOKEEPER}/zookeeper-{ZOOKEEPER}.jar",
        f"org/apache/zookeeper/zookeeper-jute/{ZOOKEEPER}/zookeeper-jute-{ZOOKEEPER}.jar",
        "org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar",
        *(f"io/netty/netty-{n}/4.1.105.Final/netty-{n}-4.1.105.Final.jar"
          for n in ("handler", "common", "transport", "buffer")),
        "io/dropwizard/metrics/metrics-core/4.1.12.1/metrics-core-4.1.12.1.jar",
        "org/xerial/snappy/snappy-java/1.1.10.5/snappy-java-1.1.10.5.jar"]
START_S = 90


def wait_for(condition, what, seconds=START_S):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


# ---- fetching ----

def fetched(name, make):
    """Returns the folder `name`, which make(folder) fills if it does not exist; or None, and the reason."""
    target = os.path.join(PEERS, name)
    if os.path.isdir(target):
        return target, None
    work = f"{target}.new{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    try:
        make(work)
    except (OSError, subprocess.SubprocessError, urllib.error.URLError) as e:
        shutil.rmtree(work, ignore_errors=True)
        return None, f"{name} cannot be had: {e}"
    os.rename(work, target)
    return target, None


def run(*command, **kw):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=900, **kw).stdout


def old_server():
    def make(folder):
        simulated = run("apt-get", "install", "-s", "--no-install-recommends", "clickhouse-server")
        packages = [line.split()[1] for line in simulated.splitlines() if line.startswith("Inst ")]
        if "clickhouse-server" not in packages: # installed already: it is what depends on nothing new
            packages.append("clickhouse-server")
        run("apt-get", "download", *packages, cwd=folder)
        for deb in glob.glob(f"{folder}/*.deb"):
            run("dpkg-deb", "-x", deb, folder)
            os.unlink(deb)

    return fetched("clickhouse-18.16", make)


def library():
    pip = [sys.executable, "-m", "pip"] if subprocess.run([sys.executable, "-m", "pip", "--version"],
                                                           capture_output=True, check=False).returncode == 0 else ["pip"]
    return fetched(f"chdb-{CHDB}", lambda folder: run(
        *pip, "install", "-q", "--no-deps", "--target", folder, f"chdb-core=={CHDB}"))


def keeper_jars():
    if not shutil.which("java"):
        return None, "no java"

    def make(folder):
        for jar in JARS:
            urllib.request.urlretrieve(MAVEN + jar, os.path.join(folder, os.path.basename(jar)))

    return fetched(f"zookeeper-{ZOOKEEPER}", make)


# ---- processes ----

class Process:
    def begin(self, command, **kw):
        with open(self.directory + "/log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, **kw)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    @property
    def log(self):
        with open(self.directory + "/log", encoding="utf-8", errors="replace") as f:
            return f.read()


class Backend(Process):
    """The server for culprit, at `port`. query(SQL) uses a client of its own."""

    def url(self, database, **options):
        options.setdefault("grace", 0)
        user = urllib.parse.quote(USER, safe="") + ":" + urllib.parse.quote(PASSWORD, safe="")
        return f"clickhouse://{user}@127.0.0.1:{self.port}/{database}?" + urllib.parse.urlencode(options)

    def query(self, sql, database="default"):
        r = urllib.request.Request(f"http://127.0.0.1:{self.port}/?database={database}", sql.encode(),
                                   {"X-ClickHouse-User": USER, "X-ClickHouse-Key": PASSWORD})
        with urllib.request.urlopen(r, timeout=60) as a:
            return a.read().decode()

    def is_up(self):
        assert self.process.poll() is None, f"ClickHouse ended: {self.log[-2000:]}"
        try:
            return self.query("SELECT 1") == "1\n"
        except OSError:
            return False


CONFIG = """<yandex><logger><level>warning</level><console>1</console></logger>
<http_port>{http}</http_port><tcp_port>{tcp}</tcp_port><interserver_http_port>{inter}</interserver_http_port>
<interserver_http_host>127.0.0.1</interserver_http_host><listen_host>127.0.0.1</listen_host>
<path>{d}/data/</path><tmp_path>{d}/tmp/</tmp_path><user_files_path>{d}/files/</user_files_path>
<users_config>{d}/users.xml</users_config><default_profile>default</default_profile>
<default_database>default</default_database><mark_cache_size>67108864</mark_cache_size>{more}</yandex>"""
USERS = """<yandex><profiles><default><max_memory_usage>3000000000</max_memory_usage></default></profiles><users><{u}>
<password>{p}</password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></{u}>
<default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota>
</default></users><quotas><default/></quotas></yandex>"""


class Server(Backend):
    name = "18.16"

    def __init__(self, home, directory, ports=None, more=""):
        self.home, self.directory = home, str(directory)
        self.port, self.tcp, inter = ports or [free_port() for _ in range(3)]
        os.makedirs(self.directory, exist_ok=True)
        for name, text in (("config.xml", CONFIG.format(http=self.port, tcp=self.tcp, inter=inter, d=self.directory,
                                                        more=more)),
                           ("users.xml", USERS.format(u=USER, p=PASSWORD))):
            with open(f"{self.directory}/{name}", "w", encoding="ascii") as f:
                f.write(text)
        self.start()

    def start(self, wait=True):
        libs = f"{self.home}/usr/lib/x86_64-linux-gnu"
        self.begin([f"{self.home}/usr/sbin/clickhouse-server", f"--config-file={self.directory}/config.xml"],
                   env={**os.environ, "LD_LIBRARY_PATH": f"{libs}:{libs}/libmariadb3:{self.home}/lib/x86_64-linux-gnu"})
        if wait:
            wait_for(self.is_up, "ClickHouse does not answer")


class Front(Backend):
    name = CHDB

    def __init__(self, home, directory):
        self.home, self.directory = home, str(directory)
        os.makedirs(self.directory, exist_ok=True)
        self.port = free_port()
        self.start()

    def start(self):
        self.begin([sys.executable, os.path.join(TOP, "tests/server/clickhouse_front.py"), self.home,
                    self.directory + "/data", str(self.port), USER, PASSWORD])
        wait_for(self.is_up, "chDB does not answer")


class Keeper(Process):
    def __init__(self, home, directory):
        self.directory = str(directory)
        os.makedirs(self.directory, exist_ok=True)
        self.port = free_port()
        with open(self.directory + "/zoo.cfg", "w", encoding="ascii") as f:
            f.write(f"tickTime=500\ndataDir={self.directory}/data\nclientPort={self.port}\n"
                    "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n")
        self.begin(["java", "-Xmx256m", "-cp", f"{home}/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    self.directory + "/zoo.cfg"])
        wait_for(self.is_up, "ZooKeeper does not answer")

    def is_up(self):
        assert self.process.poll() is None, self.log
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as s:
                s.sendall(b"srvr")
                return b"Zookeeper version" in s.recv(4096)
        except OSError:
            return False


class Cluster:
    """Two shards of two replicas; servers[shard][replica]. url() names all four."""

    name = "cluster"

    def __init__(self, home, keeper, directory):
        ports = [[[free_port() for _ in range(3)] for _ in range(2)] for _ in range(2)]
        shards = "".join(
            "<shard><internal_replication>true</internal_replication>" + "".join(
                f"<replica><host>127.0.0.1</host><port>{p[1]}</port><user>{USER}</user><password>{PASSWORD}</password>"
                "</replica>" for p in shard) + "</shard>" for shard in ports)
        self.keeper = keeper
        self.servers = []
        for i, shard in enumerate(ports):
            self.servers.append([])
            for k, p in enumerate(shard):
                more = (f"<zookeeper><node><host>127.0.0.1</host><port>{keeper.port}</port></node>"
                        "<session_timeout_ms>5000</session_timeout_ms></zookeeper>"
                        f"<macros><shard>{i}</shard><replica>{k}</replica></macros>"
                        f"<remote_servers><fleet>{shards}</fleet></remote_servers>"
                        "<distributed_ddl><path>/clickhouse/task_queue/ddl</path></distributed_ddl>")
                self.servers[i].append(Server(home, f"{directory}/{i}{k}", p, more))

    @property
    def all(self):
        return [s for shard in self.servers for s in shard]

    def url(self, database, **options):
        first = self.servers[0][0]
        hosts = ",".join(f"127.0.0.1:{s.port}" for s in self.all)
        options.setdefault("first-replica", 1) # so that a query sees what was acknowledged just before
        return first.url(database, cluster="fleet", **options).replace(f"127.0.0.1:{first.port}", hosts)

    def query(self, sql, database="default"):
        return self.servers[0][0].query(sql, database)

    def kill(self):
        for s in self.all:
            s.kill()
        self.keeper.kill()


# ---- between them ----

class Proxy:
    """Forwards requests, or does not: `plan` gets the SQL and returns what to do with the request:
    None (forward), "lose" (forward, close without the answer), "hold" (forward, answer never),
    "refuse" (503), "drop" (close, nothing forwarded)."""

    def __init__(self, backend):
        self.backend, self.plan, self.seen = backend, lambda sql: None, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.forward(self, body)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, database, **options):
        return self.backend.url(database, **options).replace(f":{self.backend.port}/", f":{self.port}/")

    def forward(self, handler, body):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(handler.path).query).get("query", [""])[0]
        self.seen.append(query or body.decode(errors="replace"))
        what = self.plan(query)
        if what == "drop":
            handler.close_connection = True
            return
        if what == "refuse":
            handler.send_response(503)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        c = http.client.HTTPConnection("127.0.0.1", self.backend.port, timeout=60)
        try:
            c.request("POST", handler.path, body, {k: v for k, v in handler.headers.items() if k != "Host"})
            answer = c.getresponse()
            data = answer.read()
        except OSError:
            handler.close_connection = True
            return
        if what == "hold":
            time.sleep(3600)
        if what == "lose":
            handler.close_connection = True
            return
        handler.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "keep-alive", "content-length"):
                handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
