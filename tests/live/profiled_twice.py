# SPDX-License-Identifier: Apache-2.0
"""A service that two profilers look at: SkyWalking's agent, which is in it, and culprit, for which it publishes its spans with
libculprit-context. Runs with the Python of tests/server/get_skywalking.py.

    profiled_twice.py BACKEND LIBRARY       SkyWalking's backend; libculprit-context

GET /first runs first_50_ms() and then the_rest() for 90 ms; GET /rest the latter alone. The answer has the request's ids in both
worlds. Prints its port. Ends when standard input does.
"""

import ctypes
import http.server
import json
import os
import sys
import threading
import time

from skywalking import agent, config
from skywalking.trace.context import get_context

SERVICE = os.environ["OTEL_SERVICE_NAME"]
config.init(agent_collector_backend_services=sys.argv[1], agent_name=f"{SERVICE}-skywalking", agent_instance_name="one",
            agent_collector_get_profile_task_interval=1, agent_collector_heartbeat_period=1)
lib = ctypes.PyDLL(sys.argv[2])
lib.culprit_context_enter.argtypes = ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint8


def first_50_ms():
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass


def the_rest():
    end = time.monotonic() + 0.09
    while time.monotonic() < end:
        time.sleep(0.002)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        trace, span = os.urandom(16), os.urandom(8)
        ids = {"trace": trace.hex(), "span": span.hex(), "skywalking": get_context().segment.related_traces[0].value}
        begin = time.time_ns()
        lib.culprit_context_enter(trace, span, 1)
        if self.path == "/first":
            first_50_ms()
        the_rest()
        lib.culprit_context_leave()
        body = json.dumps({**ids, "begin": begin, "end": time.time_ns()}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


agent.start()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
