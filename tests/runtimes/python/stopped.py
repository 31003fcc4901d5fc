# SPDX-License-Identifier: Apache-2.0
"""Two threads that stay where they are, and what Python itself says of them: faulthandler writes
its view to argv[1] at SIGUSR1."""
import faulthandler
import functools
import signal
import sys
import threading


class Holder:
    def spin(self):
        while True: pass


def one(_, __):
    Holder().spin()


def two(n):
    if n:
        return two(n - 1)
    return functools.reduce(one, [1, 2])


def produce():
    yield two(5)


def start():
    for _ in produce():
        pass


faulthandler.register(signal.SIGUSR1, file=open(sys.argv[1], "w"), all_threads=True)
t = threading.Thread(target=start)
t.daemon = True
t.start()
print("ready", flush=True)
two(3)
