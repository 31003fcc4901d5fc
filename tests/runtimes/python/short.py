# SPDX-License-Identifier: Apache-2.0
"""A tenth of a second of work, at once."""
import time


def leaf(n):
    x = 0
    for i in range(n): # @leaf
        x += i * i % 7 # @leaf
    return x


def main():
    end = time.process_time() + 0.1
    while time.process_time() < end:
        leaf(1000) # @main


main() # @module
