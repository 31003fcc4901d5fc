# SPDX-License-Identifier: Apache-2.0
"""The tracing that the demo needs, with Python's standard library only: it reads and writes W3C trace
context, sends OTLP in JSON to the server from a thread of its own, and publishes the span of each
thread with libculprit-context. An OpenTelemetry SDK does all of this except the last.
"""

import contextlib
import ctypes
import json
import os
import queue
import re
import threading
import time
import urllib.request

OTLP = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
SERVER, CLIENT = 2, 3 # SpanKind
TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


def strings(texts):
    return (ctypes.c_char_p * len(texts))(*(t.encode() for t in texts))


class Tracer:
    def __init__(self, service):
        self.lib = ctypes.CDLL(os.environ.get("CULPRIT_CONTEXT", "libculprit-context.so.0"))
        self.attributes = {"service.name": service, "service.version": "1.0"}
        self.current = threading.local()
        self.finished = queue.SimpleQueue()
        self.lib.culprit_context_process(strings(self.attributes.keys()),
                                         strings(self.attributes.values()),
                                         ctypes.c_size_t(len(self.attributes)))
        threading.Thread(target=self.send, name="spans", daemon=True).start()

    def enter(self, ids):
        self.current.ids = ids
        if ids:
            trace, span = (bytes.fromhex(i) for i in ids)
            self.lib.culprit_context_enter(trace, span, ctypes.c_uint8(1))
        else:
            self.lib.culprit_context_leave()

    @contextlib.contextmanager
    def span(self, name, traceparent=None, route=None):
        """Makes the block work for a new span: of a request, by its traceparent, or inside of another span."""
        outer = getattr(self.current, "ids", None)
        caller = TRACEPARENT.fullmatch(traceparent or "")
        trace, parent = caller.groups() if caller else outer or (os.urandom(16).hex(), "")
        ids = trace, os.urandom(8).hex()
        begin = time.time_ns()
        self.enter(ids)
        try:
            yield f"00-{ids[0]}-{ids[1]}-01"
        finally:
            self.enter(outer)
            self.finished.put({
                "traceId": ids[0], "spanId": ids[1], "parentSpanId": parent, "name": name,
                "kind": SERVER if route else CLIENT, "startTimeUnixNano": str(begin),
                "endTimeUnixNano": str(time.time_ns()), "status": {},
                "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in
                               (("http.request.method", "GET"), ("http.route", route)) if v]})

    def get(self, url):
        with self.span("GET") as traceparent:
            request = urllib.request.Request(url, headers={"traceparent": traceparent})
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.read()

    def send(self):
        resource = {"attributes": [{"key": k, "value": {"stringValue": v}}
                                   for k, v in self.attributes.items()]}
        while True:
            spans = [self.finished.get()]
            time.sleep(0.5)
            while not self.finished.empty():
                spans.append(self.finished.get())
            body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}
            request = urllib.request.Request(f"{OTLP}/v1/traces", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            # At the end of the demo the server may stop before the services.
            with contextlib.suppress(OSError):
                urllib.request.urlopen(request, timeout=5).close()
