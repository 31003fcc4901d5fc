# SPDX-License-Identifier: Apache-2.0
"""Python → an extension in C → libc's qsort → the extension → Python, twice. argv[1] is the folder of the extension."""
import sys

sys.path.insert(0, sys.argv[1])
import callback # noqa: E402


def leaf(n):
    x = 0
    for i in range(n): # @leaf
        x += i * i % 7 # @leaf
    return x


def inner():
    leaf(3000) # @inner


def outer():
    callback.sort(inner) # @outer


def main():
    while True:
        callback.sort(outer) # @main


print("ready", flush=True)
main() # @module
