# SPDX-License-Identifier: Apache-2.0
"""The program that test_python.py profiles: known chains through Python, C and Python again, on three threads.

A line that the test refers to carries a comment `@name`. Runs until it is killed.
"""
import bz2
import ctypes
import functools
import threading


def leaf(n):
    x = 0
    for i in range(n): # @leaf
        x += i * i % 7 # @leaf
    return x


class Outer:
    class Inner:
        def method(self, n):
            return leaf(n) # @method

    @staticmethod
    def static(n):
        return Outer.Inner().method(n) # @static

    @property
    def value(self):
        return Outer.static(3000) # @value


def by_key(item):
    return Outer().value # @by_key


def through_sorted():
    return sorted([1, 2], key=by_key) # @through_sorted


def generator():
    while True:
        yield by_key(0) # @generator


async def coroutine():
    return next(generator()) # @coroutine


async def awaits():
    return await coroutine() # @awaits


def through_await():
    try:
        awaits().send(None) # @through_await
    except StopIteration:
        pass


COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def compare(a, b):
    leaf(3000) # @compare
    return 0


CALLBACK = COMPARE(compare)
LIBC = ctypes.CDLL(None)


def through_qsort():
    LIBC.qsort((ctypes.c_int * 3)(), 3, 4, CALLBACK) # @through_qsort


def through_partial():
    return functools.reduce(lambda a, b: leaf(3000), [1, 2, 3]) # @through_partial


def deep(n):
    if n:
        return deep(n - 1) # @deep
    return leaf(3000) # @deepest


def through_deep():
    return deep(40) # @through_deep


def main():
    while True:
        through_sorted() # @main
        through_await() # @main
        through_qsort() # @main
        through_partial() # @main
        through_deep() # @main


def spin_other(n):
    while n:
        n -= 1 # @spin_other


def other_thread():
    while True:
        spin_other(100000) # @other_thread


DATA = bytes(range(256)) * 4000


def without_lock():
    while True:
        bz2.compress(DATA) # @without_lock


for target in (other_thread, without_lock):
    t = threading.Thread(target=target)
    t.daemon = True
    t.start()
print("ready", flush=True)
main() # @module
