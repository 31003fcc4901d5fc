# SPDX-License-Identifier: Apache-2.0
# Threads that wait for the GIL, which one thread keeps while it is in C code for tens of milliseconds.

import threading
import time


def work_with_gil():
    sum(range(2_000_000))


def sleep_outside():
    time.sleep(0.005)


def hold_gil():
    while True:
        work_with_gil()
        sleep_outside()


def wait_gil():
    while True:
        time.sleep(0.001)


def start(name, f):
    started = threading.Event()

    def run():
        print(name, threading.get_native_id(), flush=True)
        started.set()
        f()

    threading.Thread(target=run, daemon=True).start()
    started.wait()


start("holder", hold_gil)
for i in range(3):
    start(f"waiter{i}", wait_gil)
print("ready", flush=True)
threading.Event().wait()
