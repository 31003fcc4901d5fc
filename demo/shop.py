#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shop of the demo: GET /checkout?coupon=TEXT checks the coupon, asks prices and stock, and
renders the page. The check of one coupon in a hundred takes half a second, for culprit to find.

    shop.py PORT PRICES-URL STOCK-URL
"""

import html
import random
import re
import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from spans import Tracer

tracer = Tracer("shop")
PRICES, STOCK = "", ""

# Intended to match words joined by dashes. But the expression can also split one word into several, in a
# number of ways that doubles with each letter, and tries all of them before it fails.
COUPON = re.compile(r"^(([a-z]+)-?)+$")


def check_coupon(coupon):
    return COUPON.match(coupon) is not None


def render(items):
    rows = []
    for name, price, stock in items:
        rows.append(f"<tr><td>{html.escape(name)}</td><td>{price / 100:.2f}</td><td>{stock}</td></tr>")
    return "<table>" + "\n".join(sorted(rows)) + "</table>"


def checkout(coupon):
    valid = check_coupon(coupon)
    prices = tracer.get(f"{PRICES}/prices?n=200").decode().split()
    stock = tracer.get(f"{STOCK}/stock?n=200").decode().split()
    items = [(f"item <{i}>", int(p), s) for i, (p, s) in enumerate(zip(prices, stock))]
    page = "".join(render(items) for _ in range(8))
    return page + ("" if valid else "<p>This coupon is not valid.</p>")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path != "/checkout":
            self.send_error(404, "there is only /checkout")
            return
        query = urllib.parse.parse_qs(url.query)
        with tracer.span("GET /checkout", self.headers.get("traceparent"), "/checkout"):
            body = checkout(query.get("coupon", [""])[0]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True


if __name__ == "__main__":
    PRICES, STOCK = sys.argv[2:4]
    random.seed()
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
