# SPDX-License-Identifier: Apache-2.0
"""A receiver of OTLP profiles over HTTP, and a decoder of its requests.

The decoder reads messages by field numbers (opentelemetry-proto 1.11), without code of culprit. check()
tests every request against the rules of opentelemetry-proto and of sig-profiling's profcheck, and fails at
the first rule that is broken.
"""

import gzip
import http.server
import threading
import time


# ---- protocol buffers, without a schema ----

def fields(data):
    """Yields (number, value) of a message's fields; value is an int (varint, fixed64) or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        elif kind == 1:
            yield key >> 3, int.from_bytes(data[at:at + 8], "little")
            at += 8
        elif kind == 2:
            n = varint()
            assert at + n <= len(data), "a field reaches beyond its message"
            yield key >> 3, data[at:at + n]
            at += n
        else:
            raise AssertionError(f"wire type {kind}")


def message(data):
    out = {}
    for number, value in fields(data):
        out.setdefault(number, []).append(value)
    return out


def numbers(values, fixed=False):
    """Reads a repeated number, packed or not."""
    out = []
    for v in values or []:
        if isinstance(v, int):
            out.append(v)
        elif fixed:
            out += [int.from_bytes(v[i:i + 8], "little") for i in range(0, len(v), 8)]
        else:
            value = shift = 0
            for byte in v:
                value |= (byte & 0x7f) << shift
                shift += 7
                if not byte & 0x80:
                    out.append(value)
                    value = shift = 0
    return out


def first(m, number, default=0):
    return m[number][0] if number in m else default


def any_value(data):
    m = message(data)
    return m[1][0].decode() if 1 in m else first(m, 3, first(m, 2, None))


def plain_attributes(pairs):
    out = {}
    for kv in map(message, pairs):
        assert 1 in kv and 3 not in kv, "an attribute by reference: few receivers resolve it"
        out[kv[1][0].decode()] = any_value(first(kv, 2, b""))
    return out


# ---- a request ----

class Sample:
    def __init__(self, resource, attributes, frames, link, times, values):
        self.resource, self.attributes, self.frames = resource, attributes, frames
        self.link = link # trace id and span id in hex, or None
        self.times, self.values = times, values

    @property
    def count(self):
        return len(self.times) or sum(self.values)


class Profile:
    def __init__(self, kind, start_ns, duration_ns, period, attributes, agent):
        self.kind, self.start_ns, self.duration_ns = kind, start_ns, duration_ns
        self.period, self.attributes, self.agent = period, attributes, agent
        self.samples = []


TABLES = {1: "mapping", 2: "location", 3: "function", 4: "link", 5: "string", 6: "attribute", 7: "stack"}


class Request:
    """One ExportProfilesServiceRequest, decoded and checked."""

    def __init__(self, body):
        m = message(body)
        dictionary = message(first(m, 2, b""))
        self.tables = {name: dictionary.get(n, []) for n, name in TABLES.items()}
        self.used = {name: {0} for name in TABLES.values()}
        self.strings = [s.decode() for s in self.tables["string"]]
        for name, table in self.tables.items():
            assert table, f"the {name} table has no entry 0"
            assert not table[0], f"entry 0 of the {name} table is not the zero value"
            assert len(set(table)) == len(table), f"duplicates in the {name} table"
        self.profiles = [p for r in m.get(1, []) for p in self.resource_profiles(message(r))]
        for name, table in self.tables.items():
            orphans = set(range(len(table))) - self.used[name]
            assert not orphans, f"{len(orphans)} orphans in the {name} table: {self.tables[name][min(orphans)]}"

    def use(self, table, index):
        assert index < len(self.tables[table]), f"index {index} beyond the {table} table"
        self.used[table].add(index)
        return index

    def string(self, index):
        return self.strings[self.use("string", index)]

    def attribute(self, index):
        m = message(self.tables["attribute"][self.use("attribute", index)])
        self.string(first(m, 3))
        return self.string(first(m, 1)), any_value(first(m, 2, b""))

    def attributes(self, indices):
        assert len(set(indices)) == len(indices), "an attribute twice"
        pairs = [self.attribute(i) for i in indices]
        assert len({k for k, _ in pairs}) == len(pairs), f"a key twice: {pairs}"
        return dict(pairs)

    def location(self, index):
        m = message(self.tables["location"][self.use("location", index)])
        mapping = self.use("mapping", first(m, 1))
        at = message(self.tables["mapping"][mapping])
        path = self.string(first(at, 4))
        ids = self.attributes(numbers(at.get(5)))
        if mapping and path.startswith("/"):
            assert any(k.startswith("process.executable.build_id.") for k in ids), f"{path} has no build id"
        kind = self.attributes(numbers(m.get(4))).get("profile.frame.type")
        lines = [message(x) for x in m.get(3, [])]
        out = []
        for line in lines:
            f = message(self.tables["function"][self.use("function", first(line, 1))])
            self.string(first(f, 2))
            self.string(first(f, 3))
            out.append(self.string(first(f, 1)))
        assert lines or mapping or first(m, 2) or kind, "a location that says nothing"
        return out or [f"{path.rsplit('/', 1)[-1]}+{first(m, 2):#x}"]

    def stack(self, index):
        m = message(self.tables["stack"][self.use("stack", index)])
        return [f for i in numbers(m.get(1)) for f in self.location(i)]

    def link(self, index):
        m = message(self.tables["link"][self.use("link", index)])
        assert not index or (len(m[1][0]), len(m[2][0])) == (16, 8), "ids of the wrong size"
        return (m[1][0].hex(), m[2][0].hex()) if index else None

    def value_type(self, data):
        m = message(data)
        return self.string(first(m, 1)), self.string(first(m, 2))

    def resource_profiles(self, m):
        resource = plain_attributes(message(first(m, 1, b"")).get(1, []))
        for scope in m.get(2, []):
            scope = message(scope)
            agent = plain_attributes(message(first(scope, 1, b"")).get(3, []))
            for p in scope.get(2, []):
                yield self.profile(resource, agent, message(p))

    def profile(self, resource, agent, m):
        p = Profile(self.value_type(first(m, 1, b"")), first(m, 3), first(m, 4),
                    (self.value_type(first(m, 5, b"")), first(m, 6)), self.attributes(numbers(m.get(11))),
                    agent)
        assert len(first(m, 7, bytes(16))) == 16
        identities = set()
        for s in m.get(2, []):
            s = message(s)
            indices = numbers(s.get(2))
            identity = (first(s, 1), frozenset(indices), first(s, 3))
            assert identity not in identities, "two samples of one identity"
            identities.add(identity)
            times, values = numbers(s.get(5), fixed=True), numbers(s.get(4))
            assert times or len(values) == 1, "several values without timestamps"
            assert not (times and values) or len(times) == len(values)
            for t in times:
                assert p.start_ns <= t < p.start_ns + p.duration_ns, "a time outside of the profile's"
            p.samples.append(Sample(resource, self.attributes(indices), self.stack(first(s, 1)),
                                    self.link(first(s, 3)), times, values))
        return p


# ---- the receiver ----

CONTROL = "/culprit.control.v1.Control/Sync"


class Receiver:
    """Answers POST /v1development/profiles with `status`, and keeps the requests that it answers with 200.
    With a TLS context it keeps the client certificates, too.

    Questions for tasks get the answer of `control` (a function of the question's body: a status and a body), by
    default 404 as from a Collector; `asked` has the time of each."""

    def __init__(self, port=0, tls=None):
        self.bodies, self.decoded, self.status, self.headers, self.shown = [], [], 200, [], []
        self.tls, self.asked, self.control = tls, [], lambda question: (404, b"")
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                while receiver.status == "hang":
                    time.sleep(0.05)
                if self.path == CONTROL:
                    receiver.asked.append(time.monotonic())
                    return self.answer(*receiver.control(body))
                assert self.path == "/v1development/profiles"
                if receiver.status == 200:
                    if tls:
                        receiver.shown.append(self.connection.getpeercert(binary_form=True))
                    receiver.headers.append(dict(self.headers))
                    receiver.bodies.append(body)
                return self.answer(receiver.status, b"")

            def answer(self, status, body):
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            allow_reuse_address = allow_reuse_port = True

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        if tls:
            # Leave the handshake to the connection's own thread.
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True,
                                                 do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    @property
    def url(self):
        return f"otlp+http://127.0.0.1:{self.port}"

    def requests(self):
        self.decoded += [Request(b) for b in self.bodies[len(self.decoded):]]
        return self.decoded

    def profiles(self):
        return [p for r in self.requests() for p in r.profiles]

    def samples(self, **resource):
        """Returns the samples whose resource has these attributes; write _ for the dots in their names."""
        want = {k.replace("_", "."): v for k, v in resource.items()}
        return [s for p in self.profiles() if p.kind == ("samples", "count") for s in p.samples
                if all(s.resource.get(k) == v for k, v in want.items())]

    def stop(self):
        if self.server:
            if self.status == "hang":
                self.status = 503
            self.server.shutdown()
            self.server.server_close()
            self.thread.join()
            self.server = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
