# SPDX-License-Identifier: Apache-2.0
"""Three interpreters in one process: the main one, and two that run argv[1], each on a thread of the
main one's, which starts another."""
import sys
import threading
import time

try:
    import _interpreters as interpreters # 3.13 on
except ImportError:
    import _xxsubinterpreters as interpreters


def run(which):
    inside = interpreters.create() # from 3.12 on, with a GIL of its own
    interpreters.run_string(inside, "WHICH = %r; path = %r\n"
                            "exec(compile(open(path).read(), path, 'exec'))" % (which, sys.argv[1]))


def spin_outside(n):
    while n:
        n -= 1 # @spin_outside


def outside():
    print("ready", flush=True)
    while True:
        spin_outside(100000) # @outside


for name in ("alpha", "beta"):
    t = threading.Thread(target=run, args=(name,))
    t.daemon = True
    t.start()
time.sleep(1)
outside() # @module
