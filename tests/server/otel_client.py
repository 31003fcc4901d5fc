# SPDX-License-Identifier: Apache-2.0
"""Makes and exports spans with OpenTelemetry's Python SDK; runs with the Python of the fixture otel_sdk. A shop's
request calls the cart, which fails every tenth time. Prints the spans as JSON.

    otel_client.py grpc|http ENDPOINT gzip|none|deflate N
"""

import json
import sys
import threading

from opentelemetry import propagate, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

PROTOCOL, ENDPOINT, COMPRESSION, N = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])

if PROTOCOL == "grpc":
    from grpc import Compression
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(endpoint=ENDPOINT, insecure=True,
                                compression=Compression.Gzip if COMPRESSION == "gzip" else Compression.NoCompression)
else:
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(endpoint=ENDPOINT,
                                compression=Compression.Gzip if COMPRESSION == "gzip" else Compression.NoCompression)


class Kept(SpanExporter):
    """Keeps all spans in one list, to export them in one request at the end."""

    def __init__(self):
        self.spans = []

    def export(self, spans):
        self.spans += spans
        return SpanExportResult.SUCCESS

    def shutdown(self):
        pass


kept = Kept()


def tracer(service):
    provider = TracerProvider(resource=Resource.create({"service.name": service, "host.name": "h1"}))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return provider.get_tracer("test")


shop, cart = tracer("shop"), tracer("cart")
for i in range(N):
    with shop.start_as_current_span("GET /buy/{id}", kind=trace.SpanKind.SERVER, attributes={
            "http.route": "/buy/{id}", "http.request.method": "GET", "thread.id": threading.get_native_id(),
            "list": [1, "two", True], "number": 1.5}):
        with shop.start_as_current_span("price"):
            pass
        with shop.start_as_current_span("POST", kind=trace.SpanKind.CLIENT):
            carrier = {}
            propagate.inject(carrier)
            context = propagate.extract(carrier, context={})
            with cart.start_as_current_span("Cart/Add", context=context, kind=trace.SpanKind.SERVER, attributes={
                    "rpc.service": "Cart", "rpc.method": "Add"}) as s:
                if i % 10 == 0:
                    s.set_status(trace.StatusCode.ERROR, "no room")
assert exporter.export(kept.spans) == SpanExportResult.SUCCESS
print(json.dumps([{
    "trace_id": f"{s.context.trace_id:032x}", "span_id": f"{s.context.span_id:016x}",
    "parent_id": f"{s.parent.span_id:016x}" if s.parent else None, "name": s.name,
    "service": s.resource.attributes["service.name"], "start_ns": s.start_time, "end_ns": s.end_time,
    "kind": s.kind.name.lower(), "status": s.status.status_code.name.lower(), "message": s.status.description or "",
} for s in kept.spans]))
