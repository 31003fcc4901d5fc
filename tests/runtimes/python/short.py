# SPDX-License-Identifier: Apache-2.0
"""Works for a tenth of a second and exits."""
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
