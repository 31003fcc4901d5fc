# SPDX-License-Identifier: Apache-2.0
"""Three interpreters in one process: the main one, and two that run argv[1]. Each of the two runs on a thread of the
main interpreter, and starts another thread."""
import sys
import threading
import time

try:
    import _interpreters as interpreters # 3.13 on
except ImportError:
    try:
        import _xxsubinterpreters as interpreters # 3.8 on
    except ImportError:
        import _testcapi


def run(which):
    text = ("WHICH = %r; path = %r\n"
            "exec(compile(open(path).read(), path, 'exec'))" % (which, sys.argv[1]))
    if sys.version_info < (3, 8):
        _testcapi.run_in_subinterp(text) # @run
    else:
        # From 3.12 on, the interpreter has a GIL of its own.
        interpreters.run_string(INSIDE[which], text) # @run


def spin_outside(n):
    while n:
        n -= 1 # @spin_outside


def outside():
    print("ready", flush=True)
    while True:
        spin_outside(100000) # @outside
        # From 3.9 to 3.11 an interpreter does not notice that another waits for the GIL.
        time.sleep(0)


INSIDE = {}
for name in ("alpha", "beta"):
    if sys.version_info >= (3, 8):
        # Up to 3.11 isolated interpreters, the default, must not start threads.
        shared = {"isolated": False} if (3, 9) <= sys.version_info < (3, 12) else {}
        INSIDE[name] = interpreters.create(**shared)
    t = threading.Thread(target=run, args=(name,))
    t.daemon = True
    t.start()
time.sleep(1)
outside() # @module
