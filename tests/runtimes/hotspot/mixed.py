# SPDX-License-Identifier: Apache-2.0
"""The script that Mixed.java runs."""


def step(n):
    java(n) # noqa: F821, defined by mixed.c
