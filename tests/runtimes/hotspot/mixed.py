# SPDX-License-Identifier: Apache-2.0
"""What Mixed.java calls."""


def step(n):
    java(n) # noqa: F821, put here by mixed.c
