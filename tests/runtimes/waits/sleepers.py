# SPDX-License-Identifier: Apache-2.0
# Threads that sleep on, each in functions of its own. A comment "in NAME" marks the line at which NAME waits.

import threading
import time

never = threading.Event()


def nap_inner(n):
    if n:
        nap_inner(n - 1) # not reached
    time.sleep(1000) # in nap_inner


def nap_middle(call):
    call(0) # in nap_middle


def nap_outer():
    sorted([1], key=lambda _: nap_middle(nap_inner)) # in <lambda>, in nap_outer


class Lock:
    def lock_inner(self):
        never.wait() # in lock_inner

    def lock_outer(self):
        self.lock_inner() # in lock_outer


def main_inner():
    time.sleep(1000) # in main_inner


def main_outer():
    main_inner() # in main_outer


threading.Thread(target=nap_outer, daemon=True).start()
threading.Thread(target=Lock().lock_outer, daemon=True).start()
print("ready", flush=True)
main_outer() # in <module>
