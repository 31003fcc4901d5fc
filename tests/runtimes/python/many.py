# SPDX-License-Identifier: Apache-2.0
"""Many processes of one interpreter: argv[1] groups, each an executed interpreter that forks argv[2] processes. Each
process works once, while it has one of argv[3] tokens, and sleeps before and after that. A byte on stdin starts the
work; "done" on stdout says that all have worked."""
import os
import signal
import sys
import time


def leaf(n):
    x = 0
    for i in range(n): # @leaf
        x += i * i % 7 # @leaf
    return x


def key(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        leaf(1000) # @key
    return seconds


def work():
    return sorted([0.004, 0.004], key=key) # @work


def child(tokens, done):
    token = os.read(tokens[0], 1)
    work() # @child
    os.write(tokens[1], token)
    os.write(done[1], b".")
    signal.pause()


def group(n, tokens, done):
    for _ in range(n):
        if os.fork() == 0:
            child(tokens, done) # @group
    os.write(done[1], b".")
    signal.pause()


def everybody(groups, n, at_a_time):
    tokens, done = os.pipe(), os.pipe()
    for fd in (*tokens, *done):
        os.set_inheritable(fd, True)
    for _ in range(groups):
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, __file__, "group", str(n),
                                      *map(str, (*tokens, *done))])
    with open("/proc/self/comm", "w") as f:
        f.write("parent")
    wait(done[0], groups)
    print("ready", flush=True)
    sys.stdin.read(1)
    os.write(tokens[1], b"t" * at_a_time)
    wait(done[0], groups * n)
    print("done", flush=True)
    signal.pause()


def wait(fd, n):
    while n:
        n -= len(os.read(fd, n))


if sys.argv[1] == "group":
    with open("/proc/self/comm", "w") as f:
        f.write("many")
    fds = list(map(int, sys.argv[3:]))
    group(int(sys.argv[2]), fds[:2], fds[2:]) # @module
else:
    os.setpgid(0, 0)
    everybody(*map(int, sys.argv[1:]))
