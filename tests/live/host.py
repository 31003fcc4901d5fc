# SPDX-License-Identifier: Apache-2.0
"""A busy host: a compiler, PostgreSQL, nginx, Redis, a Go and a Rust program, each under load.

The programs keep their files in a temporary folder and listen on unix sockets or a loopback port. A program
that refuses root runs as nobody. All of them have a time limit and are ended by pid. Programs that are not
installed are left out and listed in `missing`.
"""

import contextlib
import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
if not os.stat("/").st_mode & 0o001:
    # Only root may enter / (a chroot made by hand): give nobody the capability to search directories, and no
    # other; access() respects it only without the fix-up of capabilities when user ids change.
    NOBODY += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
               "--securebits=+no_setuid_fixup"]
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}


def free_port():
    """Returns a port for a server that listens with SO_REUSEADDR, as servers do, within a minute. Until then a
    connection in TIME_WAIT keeps the kernel from giving the port to another process."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        with socket.create_connection(s.getsockname()):
            s.accept()[0].close()
        return s.getsockname()[1]


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition, what, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not start"
        time.sleep(0.05)


def c_source(n):
    """A C file that keeps the compiler busy for some seconds."""
    out = ["#include <stdio.h>\n#include <string.h>\n#include <stdlib.h>\n"]
    for i in range(n):
        out.append(f"""struct s{i} {{ int a[{i % 7 + 1}]; double d; struct s{max(i - 1, 0)} *p; }};
static int f{i}(struct s{i} *s, int n, const char *t)
{{
    int r = {i};
    for (int k = 0; k < n; k++) {{
        if (t[k % 9] == 'a' + {i % 26}) r += s->a[k % {i % 7 + 1}] * k;
        else if (strlen(t) > (unsigned)k) r ^= (int)(s->d * k) + atoi(t);
        switch (r % 7) {{ case 0: r++; break; case 1: r *= 3; break; case 5: r -= k; break; }}
    }}
    return r{f' + f{i - 1}((struct s{i - 1} *)s->p, n - 1, t)' if i else ''};
}}
""")
    out.append(f"int main(int c, char **v) {{ struct s{n - 1} s = {{0}}; return f{n - 1}(&s, c, *v); }}\n")
    return "".join(out)


class Host:
    """Servers, and load(seconds), which starts the programs that keep them busy."""

    def __init__(self, programs):
        self.programs = programs
        self.folder = tempfile.mkdtemp(prefix="culprit-host-")
        os.chmod(self.folder, 0o755)
        self.processes, self.missing = [], []
        self.clients = []

    def start(self, name, command, **options):
        p = subprocess.Popen([str(c) for c in command], cwd=self.folder, start_new_session=True,
                             **{**QUIET, **options})
        self.processes.append((name, p))
        return p

    def nobody_folder(self, name):
        path = os.path.join(self.folder, name)
        os.mkdir(path)
        os.chown(path, 65534, 65534)
        return path

    def postgres(self):
        bins = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
        pgbench = shutil.which("pgbench")
        if not bins or not pgbench:
            self.missing.append("postgresql")
            return
        bin_dir, data, sockets = os.path.dirname(bins[-1]), self.nobody_folder("pg"), \
            self.nobody_folder("pgsock")
        subprocess.run([*NOBODY, f"{bin_dir}/initdb", "-D", data, "-N", "-A", "trust", "-U",
                        "bench"], check=True, cwd=self.folder, timeout=300, **QUIET)
        self.start("postgres", [*NOBODY, f"{bin_dir}/postgres", "-D", data, "-k", sockets, "-c",
                                "listen_addresses=", "-c", "fsync=off"])
        base = ["-h", sockets, "-U", "bench"]
        wait_for(lambda: subprocess.run([f"{bin_dir}/pg_isready", *base], **QUIET).returncode == 0,
                 "postgres")
        subprocess.run([*NOBODY, pgbench, "-i", "-s", "3", "-q", *base, "postgres"], check=True,
                       timeout=300, **QUIET)
        self.clients.append(lambda s: self.start("pgbench", [
            *NOBODY, pgbench, "-c", "4", "-T", s, *base, "postgres"]))

    def nginx(self, location="gzip on; gzip_min_length 1; gzip_types *;", upstream=""):
        """Starts a server with one worker; returns its port, or None if it or its client is not installed."""
        nginx, wrk = shutil.which("nginx") or "/usr/sbin/nginx", shutil.which("wrk")
        if not os.path.exists(nginx) or not wrk:
            self.missing.append("nginx or wrk")
            return None
        folder, port = self.nobody_folder("nginx"), free_port()
        with open(f"{folder}/page.html", "w", encoding="ascii") as f:
            f.write("<p>culprit</p>\n" * 300)
        temp = "".join(f"{n}_temp_path {folder}/{n};\n" for n in
                       ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(f"{folder}/nginx.conf", "w", encoding="ascii") as f:
            f.write(f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\n"
                    f"worker_processes 1; events {{ worker_connections 256; }}\n"
                    f"http {{ access_log off; {temp} {upstream}\n"
                    f"server {{ listen 127.0.0.1:{port}; root {folder}; location / {{ {location} }} }} }}\n")
        self.start("nginx", [*NOBODY, nginx, "-c", f"{folder}/nginx.conf", "-p",
                             folder])
        wait_for(lambda: listens(port), "nginx")
        self.clients.append(lambda s: self.start("wrk", [
            wrk, "-t1", "-c8", f"-d{s}s", "-H", "Accept-Encoding: gzip",
            f"http://127.0.0.1:{port}/page.html"]))
        return port

    def redis(self):
        server, client = shutil.which("redis-server"), shutil.which("redis-benchmark")
        if not server or not client:
            self.missing.append("redis")
            return
        sock = os.path.join(self.nobody_folder("redis"), "sock")
        self.start("redis-server", [*NOBODY, server, "--port", "0", "--unixsocket", sock,
                                    "--save", ""])
        wait_for(lambda: os.path.exists(sock), "redis-server")
        self.clients.append(lambda s: self.start("redis-benchmark", [
            *NOBODY, client, "-s", sock, "-q", "-l", "-c", "10", "-t",
            "set,get,lpush,sadd,zadd,lrange_100"]))

    def compiler(self):
        gcc = shutil.which("gcc")
        path = os.path.join(self.folder, "big.c")
        with open(path, "w", encoding="ascii") as f:
            f.write(c_source(1500))
        self.clients.append(lambda s: self.start("cc1", [
            "timeout", s, "sh", "-c", f"while :; do {gcc} -O2 -w -c {path} -o big.o; done"]))

    def own(self):
        for name in ("gos-go", "rusty-rss"):
            path = os.path.join(self.programs, name)
            if os.path.exists(path):
                self.clients.append(lambda s, p=path, n=name: self.start(n, [
                    "timeout", s, p, s * 1000]))
            else:
                self.missing.append(name)

    def load(self, seconds):
        for client in self.clients:
            client(int(seconds))

    def stop(self):
        for how in (signal.SIGTERM, signal.SIGKILL):
            for _, p in self.processes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(p.pid, how)
            for _, p in self.processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    p.wait(5)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def busy_host(programs):
    host = Host(programs)
    try:
        host.compiler()
        host.redis()
        host.nginx()
        host.postgres()
        host.own()
        yield host
    finally:
        host.stop()
