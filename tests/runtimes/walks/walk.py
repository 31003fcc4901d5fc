# SPDX-License-Identifier: Apache-2.0
"""main calls outer calls (sorted, in C, calls) inner, over and over."""


def inner(n):
    for i in range(1000):
        n = n * 31 % 1000003 + i
    return n


def outer():
    return sorted(range(100), key=inner)


def main():
    while True:
        outer()


print("ready", flush=True)
main()
