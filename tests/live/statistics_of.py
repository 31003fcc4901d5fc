# SPDX-License-Identifier: Apache-2.0
"""Statistics for the tests, which so do without SciPy."""

import math


# Each check has a hundred asserts with this level, and must not fail by chance.
LEVEL = 1 - 1e-7


def binomial_interval(n, p, level=LEVEL):
    """Returns (low, high): counts between which lies at least `level` of the binomial distribution of n and p."""
    tail = (1 - level) / 2
    log_p, log_q = math.log(p), math.log1p(-p)

    def mass(k):
        return math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) +
                        k * log_p + (n - k) * log_q)

    total, low = 0.0, 0
    while low < n and total + mass(low) <= tail:
        total += mass(low)
        low += 1
    total, high = 0.0, n
    while high > 0 and total + mass(high) <= tail:
        total += mass(high)
        high -= 1
    return low, high


def chi2_tail(x, df):
    """Returns the probability that a chi-square variable of df degrees of freedom exceeds x."""
    a, x = df / 2, x / 2
    if x <= 0:
        return 1.0
    if x < a + 1: # series of the lower incomplete gamma function
        term = total = 1 / a
        n = a
        while abs(term) > abs(total) * 1e-15:
            n += 1
            term *= x / n
            total += term
        return 1 - total * math.exp(-x + a * math.log(x) - math.lgamma(a))
    b, c = x + 1 - a, 1e300 # continued fraction of the upper one (Lentz)
    d = 1 / b
    h = d
    for i in range(1, 1000):
        an = -i * (i - a)
        b += 2
        d = 1 / (an * d + b or 1e-300)
        c = b + an / c or 1e-300
        h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return math.exp(-x + a * math.log(x) - math.lgamma(a)) * h


def g_test(a, b, least=5):
    """Returns the p value of "both counts {key: n} have the same distribution". Merges rare keys."""
    total = {k: a.get(k, 0) + b.get(k, 0) for k in {*a, *b}}
    n_a, n_b = sum(a.values()), sum(b.values())
    cells, rest = [], [0, 0]
    for k, n in total.items():
        if min(n * n_a, n * n_b) / (n_a + n_b) < least:
            rest[0] += a.get(k, 0)
            rest[1] += b.get(k, 0)
        else:
            cells.append((a.get(k, 0), b.get(k, 0)))
    if sum(rest):
        cells.append(tuple(rest))
    if len(cells) < 2:
        return 1.0
    g = 0.0
    for x, y in cells:
        for seen, n in ((x, n_a), (y, n_b)):
            if seen:
                g += 2 * seen * math.log(seen * (n_a + n_b) / ((x + y) * n))
    return chi2_tail(g, len(cells) - 1)
