# SPDX-License-Identifier: Apache-2.0
"""ClickHouse's HTTP interface over chDB, which is a current ClickHouse as a library.

    clickhouse_front.py LIBRARY DATA-DIRECTORY PORT USER PASSWORD

Supports what culprit uses: the query in the parameter or the body, data of an INSERT in the body, settings as
parameters, gzip both ways, errors as a status, the header X-ClickHouse-Exception-Code and text. Requests go to the
engine one at a time, because it has one session. Settings of a request are passed on by name, so an unknown setting
is an error.
"""
import gzip
import http.server
import os
import re
import sys
import tempfile
import threading
import urllib.parse
import zlib

sys.path.insert(0, sys.argv[1])
from chdb import session  # noqa: E402

NOT_SETTINGS = {"query", "database", "user", "password", "wait_end_of_query", "enable_http_compression",
                "buffer_size", "default_format", "session_id", "compress", "decompress"}


class Engine:
    def __init__(self, directory):
        self.lock = threading.Lock()
        self.session = session.Session(directory)
        self.directory = directory

    def run(self, database, settings, query, body):
        """The answer's bytes; RuntimeError with ClickHouse's text."""
        with self.lock, tempfile.NamedTemporaryFile(dir=self.directory + ".tmp") as f:
            insert = re.match(r"(?is)\s*(INSERT\s+INTO\s+.*?)\s+FORMAT\s+(\w+)\s*$", query)
            if insert:
                f.write(body)
                f.flush()
                query = f"{insert[1]} FROM INFILE '{f.name}' FORMAT {insert[2]}"
            else:
                query += body.decode()
            self.session.query(f"USE `{database}`")
            if settings:
                self.session.query("SET " + ", ".join(f"{k} = '{v}'" for k, v in settings.items()))
            try:
                answer = self.session.query(query, "TabSeparated")
                return answer.bytes() if answer else b""
            finally:
                if settings:
                    self.session.query("SET " + ", ".join(f"{k} = DEFAULT" for k in settings))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True # otherwise 40 ms pass between the writes of head and body

    def log_message(self, *_):
        pass

    def answer(self, status, body, **headers):
        if self.wants_gzip and len(body) > 100:
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        url = urllib.parse.urlsplit(self.path)
        given = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.wants_gzip = given.get("enable_http_compression") == "1" and \
            "gzip" in self.headers.get("Accept-Encoding", "")
        if self.headers.get("X-ClickHouse-User", "default") != USER or \
                self.headers.get("X-ClickHouse-Key", "") != PASSWORD:
            return self.answer(403, b"Code: 516. DB::Exception: Authentication failed. "
                                    b"(AUTHENTICATION_FAILED)\n", X_ClickHouse_Exception_Code="516")
        if self.headers.get("Content-Encoding") == "gzip":
            body = zlib.decompress(body, 31)
        settings = {k: v for k, v in given.items() if k not in NOT_SETTINGS}
        try:
            out = ENGINE.run(given.get("database", "default"), settings, given.get("query", ""), body)
        except RuntimeError as e:
            code = re.match(r"Code: (\d+)", str(e))
            return self.answer(404 if code and code[1] in ("60", "81") else 500, f"{e}\n".encode(),
                               X_ClickHouse_Exception_Code=code[1] if code else "0")
        return self.answer(200, out)

    def do_GET(self):
        self.wants_gzip = False
        self.answer(200, b"Ok.\n")


if __name__ == "__main__":
    USER, PASSWORD = sys.argv[4], sys.argv[5]
    os.makedirs(sys.argv[2] + ".tmp", exist_ok=True)
    ENGINE = Engine(sys.argv[2])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3])), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()
