# SPDX-License-Identifier: Apache-2.0
"""Reads the samples of a pprof file by the field numbers of the schema, without code of culprit."""

import gzip
from collections import namedtuple

from otlp import first, message, numbers

# functions: leaf first. labels: texts and numbers. values: by sample type; value: the first.
Sample = namedtuple("Sample", "functions labels value values")


def samples(path):
    with open(path, "rb") as f:
        m = message(gzip.decompress(f.read()))
    text = [s.decode() for s in m[6]]
    names = {first(f, 1): text[first(f, 2)] for f in map(message, m.get(5, []))}
    where = {}
    for location in map(message, m.get(4, [])):
        lines = [first(message(line), 1) for line in location.get(4, [])]
        where[first(location, 1)] = [names[f] for f in lines] or ["?"]
    for s in map(message, m.get(2, [])):
        labels = {}
        for label in map(message, s.get(3, [])):
            labels[text[first(label, 1)]] = text[first(label, 2)] or first(label, 3)
        functions = [f for at in numbers(s.get(1)) for f in where[at]]
        values = numbers(s.get(2))
        yield Sample(functions, labels, values[0], values)
