# SPDX-License-Identifier: Apache-2.0
"""A small HTTP service under SkyWalking's agent for Python, and one that it calls; runs with the Python of the fixture
skywalking_python. Its log is at debug level.

    skywalking_app.py BACKEND SERVICE INTERVAL

GET /buy calls slowly() for 600 ms and then quickly() for 200 ms, and calls GET /cart, where the path has ?cart. Prints
its port. Ends when standard input does.
"""

import http.server
import sys
import threading
import time
import urllib.request

from skywalking import agent, config

BACKEND, SERVICE, INTERVAL = sys.argv[1], sys.argv[2], int(sys.argv[3])
config.init(agent_collector_backend_services=BACKEND, agent_name=SERVICE, agent_instance_name=SERVICE + "-1",
            agent_collector_get_profile_task_interval=INTERVAL, agent_collector_heartbeat_period=1,
            agent_meter_reporter_period=1, agent_logging_level="DEBUG")


def slowly(ms):
    end = time.monotonic() + ms / 1000
    while time.monotonic() < end:
        time.sleep(0.001)


def quickly(ms):
    time.sleep(ms / 1000)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/buy"):
            slowly(600)
            quickly(200)
        if "?cart" in self.path:
            urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/cart", timeout=10).read()
        self.send_response(500 if self.path == "/fail" else 200)
        self.end_headers()
        self.wfile.write(b"done\n")

    def log_message(self, *_):
        pass


agent.start()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
