# SPDX-License-Identifier: Apache-2.0
"""The script of each interpreter of interpreters.py, on two threads. WHICH is the name of the interpreter."""
import threading
import time


def leaf(n):
    x = 0
    for i in range(n): # @leaf
        x += i * i % 7 # @leaf
    return x


def alpha_key(_):
    return leaf(3000) # @alpha_key


def alpha():
    return sorted([1, 2], key=alpha_key) # @alpha


def beta_key(_):
    return leaf(3000) # @beta_key


def beta():
    return max([1, 2], key=beta_key) # @beta


def alpha_spin(n):
    while n:
        n -= 1 # @alpha_spin


def alpha_other():
    while True:
        alpha_spin(100000) # @alpha_other
        time.sleep(0)


def beta_spin(n):
    while n:
        n -= 1 # @beta_spin


def beta_other():
    while True:
        beta_spin(100000) # @beta_other
        time.sleep(0)


work = {"alpha": alpha, "beta": beta}[WHICH]
threading.Thread(target={"alpha": alpha_other, "beta": beta_other}[WHICH]).start()
while True:
    work() # @module
    time.sleep(0)
