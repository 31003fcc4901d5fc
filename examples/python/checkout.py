# SPDX-License-Identifier: Apache-2.0
"""A server that creates spans with OpenTelemetry's SDK: GET /checkout checks the order, prices it in a
span of its own, and has a thread of a pool render the page. Nothing in this file is about profilers.

    pip install '.[checkout]'
    export OTEL_PYTHON_CONTEXT=culprit OTEL_SERVICE_NAME=checkout-python
    export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
    python3 checkout.py 8080

It prints a line for each finished span: trace, span, name, thread.
"""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("checkout")
servers, renderers = ThreadPoolExecutor(4), ThreadPoolExecutor(2)


def burn(rounds):
    n = 0
    for i in range(rounds):
        n += i * i
    return n


def work_check():
    burn(20000)


def work_price():
    burn(40000)


def work_render():
    burn(40000)


def idle_work(): # for no span
    burn(10000)


def log_span(span, what):
    s = span.get_span_context()
    sys.stdout.write(f"{s.trace_id:032x} {s.span_id:016x} {what} {threading.get_native_id()}\n")


def render(of):
    token = context.attach(of) # the threads of a pool have no context of their own
    with tracer.start_as_current_span("render") as span:
        work_render()
        log_span(span, "render")
    context.detach(token)
    idle_work()


def checkout():
    with tracer.start_as_current_span("check", kind=trace.SpanKind.SERVER) as request:
        work_check()
        with tracer.start_as_current_span("price") as span:
            work_price()
            log_span(span, "price")
        work_check() # for the request's span again
        renderers.submit(render, context.get_current()).result()
        log_span(request, "check")
    idle_work()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/checkout":
            self.send_error(404)
            return
        checkout()
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, *_):
        pass


class Server(HTTPServer):
    request_queue_size = 64

    def process_request(self, request, address):
        servers.submit(self.work, request, address)

    def work(self, request, address):
        self.finish_request(request, address)
        self.shutdown_request(request)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
