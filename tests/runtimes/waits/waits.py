# SPDX-License-Identifier: Apache-2.0
# Threads that wait for a lock, a socket and a time, each in a function of its own.

import socket
import threading
import time

lock = threading.Lock()
here, there = socket.socketpair()


def wait_lock():
    while True:
        with lock:
            pass
        time.sleep(0.001)


def wait_socket():
    while True:
        here.recv(1)


def wait_sleep():
    while True:
        time.sleep(0.02)


for f in (wait_lock, wait_socket, wait_sleep):
    threading.Thread(target=f, daemon=True).start()
print("ready", flush=True)
while True:
    with lock:
        time.sleep(0.01)
    there.send(b"x")
