# SPDX-License-Identifier: Apache-2.0
"""A web server each of whose answers is some JSON: python3 server.py PORT"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1 # one write per answer: two would wait 40 ms for a delayed acknowledgement

    def do_GET(self):
        body = json.dumps([{"id": i, "name": f"item {i}"} for i in range(200)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
