# SPDX-License-Identifier: Apache-2.0
"""Spans of Datadog's tracer in a pool of threads: app.py SECONDS THREADS LOG. See ../spans.c."""

import sys
import threading
import time

from ddtrace import tracer

end = time.monotonic() + float(sys.argv[1])
log = open(sys.argv[3], "w", encoding="ascii")
lock = threading.Lock()


def burn(seconds):
    until, n = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for i in range(200):
            n += i


def work_0():
    burn(.004)


def work_1():
    burn(.004)


def work_2():
    burn(.004)


def work_3():
    burn(.004)


def idle_work():
    burn(.001)


def serve():
    while time.monotonic() < end:
        with tracer.trace("request", resource="/pay") as span:
            n = span.span_id % 4
            with lock:
                print(f"{span.trace_id:032x} {span.span_id:016x} {n} 0", file=log)
            (work_0, work_1, work_2, work_3)[n]()
        idle_work()


threads = [threading.Thread(target=serve) for _ in range(int(sys.argv[2]))]
for t in threads:
    t.start()
for t in threads:
    t.join()
log.close()
