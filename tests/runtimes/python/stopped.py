# SPDX-License-Identifier: Apache-2.0
"""Threads whose stacks do not change. At SIGUSR1 faulthandler writes the threads' stacks to argv[1]. Prints "ready",
and then the number of threads."""
import asyncio
import faulthandler
import functools
import signal
import sys
import threading

try:
    import ctypes
except ImportError:
    ctypes = None


class Holder:
    def spin(self):
        while True: pass  # noqa: E701 (on one line, so that both views name the same)


def one(_, __):
    Holder().spin()


def two(n):
    if n:
        return two(n - 1)
    return functools.reduce(one, [1, 2])


def produce():
    yield two(5)


def delegate():
    yield from produce()


def in_generator():
    for _ in delegate():
        pass


class Awaitable:
    def __await__(self):
        return delegate()


async def coroutine():
    async for _ in numbers():
        return await Awaitable()


async def numbers():
    yield 1


async def task():
    return await asyncio.ensure_future(coroutine())


def in_task():
    asyncio.new_event_loop().run_until_complete(task())


def compare(_, __):
    one(1, 2)


def in_callback():
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    ctypes.CDLL(None).qsort((ctypes.c_int * 3)(), 3, 4, kind(compare))


faulthandler.register(signal.SIGUSR1, file=open(sys.argv[1], "w"), all_threads=True)
targets = [in_generator, in_task] + ([in_callback] if ctypes else [])
for target in targets:
    t = threading.Thread(target=target)
    t.daemon = True
    t.start()
print("ready", flush=True)
print(len(targets) + 1, flush=True)
two(3)
