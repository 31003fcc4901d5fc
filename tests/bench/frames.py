# SPDX-License-Identifier: Apache-2.0
"""Burns CPU at the end of sys.argv[1] frames."""
import sys


def leaf():
    x = 1
    while True:
        for i in range(1000):
            x = (x * 5 + i) & 0xffff


def level(n):
    if n > 1:
        level(n - 1)
    else:
        leaf()


level(int(sys.argv[1]) - 2)
