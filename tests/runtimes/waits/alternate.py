# SPDX-License-Identifier: Apache-2.0
# Threads that wait by turns in two functions, a few milliseconds each time: in of_pipe() for a pipe, in of_socket() for a socket.
# To C code both are the same call.

import os
import random
import socket
import threading
import time

N = 60
pipes = [os.pipe() for _ in range(N)]
sockets = [socket.socketpair() for _ in range(N)]


def of_pipe(fd):
    os.read(fd, 1)


def of_socket(fd):
    os.read(fd, 1)


def turns(i):
    while True:
        of_pipe(pipes[i][0])
        of_socket(sockets[i][0].fileno())


for i in range(N):
    threading.Thread(target=turns, args=(i,), daemon=True).start()
print("ready", flush=True)
while True:
    i = random.randrange(N)
    os.write(pipes[i][1], b"x")
    time.sleep(0.0001)
    sockets[i][1].send(b"x")
