# SPDX-License-Identifier: Apache-2.0
"""Servers that wait for something known: PostgreSQL, whose clients all change one row, and nginx, whose upstream is slow.

Run as a script it starts both under load, prints `name value` for their ports and "ready", and ends them when its input ends or at SIGTERM.
"""

import os
import shutil
import signal
import sys

from host import NOBODY, Host, free_port, listens, wait_for

CLIENTS = 4
HELD_MS, SLOW_MS = 5, 20

# The name of the process is `upstream`; the backend's name of a request's function is in its stack.
UPSTREAM = f"""
import ctypes, http.server, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.look_up()
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\\n")

    def look_up(self):
        time.sleep({SLOW_MS / 1000})

    def log_message(self, *args):
        pass

ctypes.CDLL(None).prctl(15, b"upstream", 0, 0, 0) # PR_SET_NAME
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class WaitingServers(Host):
    def __init__(self):
        super().__init__("")
        self.ports = {}

    def hot_row(self):
        """Each client locks the row, holds it for HELD_MS and commits; the others wait meanwhile."""
        self.postgres()
        if self.missing:
            return
        script = os.path.join(self.folder, "hot_row.sql")
        with open(script, "w", encoding="ascii") as f:
            f.write(f"begin;\nupdate pgbench_branches set bbalance = bbalance + 1 where bid = 1;\n"
                    f"select pg_sleep({HELD_MS / 1000});\nend;\n")
        self.clients = [lambda s: self.start("pgbench", [
            *NOBODY, shutil.which("pgbench"), "-n", "-c", str(CLIENTS), "-T", str(s), "-f", script, "-h", f"{self.folder}/pgsock", "-U",
            "bench", "postgres"])]

    def slow_upstream(self):
        port = free_port()
        self.start("upstream", ["/usr/bin/python3", "-c", UPSTREAM, port], env={**os.environ, "OTEL_SERVICE_NAME": "upstream"})
        wait_for(lambda: listens(port), "the upstream")
        self.ports["nginx"] = self.nginx('proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://slow;',
                                         f"upstream slow {{ server 127.0.0.1:{port}; keepalive {CLIENTS}; }}")
        self.ports["upstream"] = port


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    servers = WaitingServers()
    try:
        servers.hot_row()
        servers.slow_upstream()
        if servers.missing:
            sys.exit(f"not installed: {', '.join(servers.missing)}")
        servers.load(3600)
        for name, port in servers.ports.items():
            print(name, port)
        print("ready", flush=True)
        sys.stdin.read()
    finally:
        servers.stop()


if __name__ == "__main__":
    main()
