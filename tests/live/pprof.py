# SPDX-License-Identifier: Apache-2.0
"""Reads the samples of a pprof file by the field numbers of the schema, without code of culprit."""

import gzip
from collections import namedtuple

from otlp import first, message, numbers

# functions: leaf first, and places (file, line) of each. labels: texts and numbers. values: by sample type; value: the
# first.
Sample = namedtuple("Sample", "functions labels value values places")


def samples(path):
    with open(path, "rb") as f:
        m = message(gzip.decompress(f.read()))
    text = [s.decode() for s in m[6]]
    names = {first(f, 1): (text[first(f, 2)], text[first(f, 4)]) for f in map(message, m.get(5, []))}
    where = {}
    for location in map(message, m.get(4, [])):
        lines = [(*names[first(line, 1)], first(line, 2)) for line in map(message, location.get(4, []))]
        where[first(location, 1)] = lines or [("?", "", 0)]
    for s in map(message, m.get(2, [])):
        labels = {}
        for label in map(message, s.get(3, [])):
            labels[text[first(label, 1)]] = text[first(label, 2)] or first(label, 3)
        frames = [f for at in numbers(s.get(1)) for f in where[at]]
        values = numbers(s.get(2))
        yield Sample([f[0] for f in frames], labels, values[0], values, [f[1:] for f in frames])
