# SPDX-License-Identifier: Apache-2.0
"""A program that computes for some seconds and that Pyroscope's SDK for Python profiles. Arguments: server, name of the
application, seconds."""

import sys
import time

import pyroscope


def burn(end):
    while time.time() < end:
        sum(range(1000))


pyroscope.configure(application_name=sys.argv[2], server_address=sys.argv[1], sample_rate=100, tags={"env": "test"})
burn(time.time() + float(sys.argv[3]))
pyroscope.shutdown()
