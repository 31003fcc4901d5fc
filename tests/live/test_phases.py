# SPDX-License-Identifier: Apache-2.0
"""The sampling clocks of CPUs do not tick at the same moment, nor in step with programs that run every 50 or 100 ms."""

import cmath
import gzip
import json
import os
import subprocess

import pytest

from folded import sums_by_function
from recorder import read, record
from statistics_of import binomial_interval

HERE = os.path.dirname(os.path.abspath(__file__))
HZ = 19 # of `culprit agent`
SECONDS = 12


@pytest.fixture(scope="module")
def periodic(tmp_path_factory):
    path = tmp_path_factory.mktemp("phases") / "periodic"
    subprocess.run(["gcc", "-O1", "-g", "-w", "-o", path, f"{HERE}/periodic.c"], check=True)
    return path


@pytest.mark.parametrize("period_ms", [50, 100])
def test_a_periodic_program_is_sampled_in_proportion(culprit, periodic, tmp_path, period_ms):
    """Each function has samples in proportion to its CPU time. At 20 Hz all samples would fall on one or two moments
    of the period: one function would have 10 a second and the others none, instead of 4 a second each."""
    out = tmp_path / "out.folded"
    done = record(culprit, out, "-F", HZ, "--no-inline", "--", periodic, period_ms, SECONDS)
    *used, passed = map(int, done.stdout.split())
    ticks = passed * HZ // 10**9
    seen = sums_by_function(read(out), ("one", "two", "three"))
    print(f"{ticks} ticks, {seen}, used {[u / 1e9 for u in used]} s")
    assert "lost 0" in done.stderr
    for function, ns in zip(seen, used):
        low, high = binomial_interval(ticks, ns / passed)
        # 19 ticks a second fall on 19 places of the period, of which a function may get one more or less.
        assert low - SECONDS <= seen[function] <= high + SECONDS, (function, seen, low, high)


def times_by_comm(path):
    """Returns the times of a Firefox profile's samples, in ms: {name of the thread: [times]}."""
    with open(path, "rb") as f:
        data = f.read()
    profile = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return {t["name"]: t["samples"]["time"] for t in profile["threads"] if t["samples"]["length"]}


def phase(times, period):
    """Returns (phase, sharpness) of the ticks of a clock. The phase is from 0 to 1; 1 is sharp: all ticks have it."""
    mean = sum(cmath.exp(2j * cmath.pi * t / period) for t in times) / len(times)
    return cmath.phase(mean) / (2 * cmath.pi) % 1, abs(mean)


def test_cpus_tick_one_after_the_other(culprit, periodic, tmp_path):
    """The clocks of CPUs start a part of the period apart. On a busy machine a clock may start late and get the phase of
    the previous one by chance, one time in eight, but not ten times in a row."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        pytest.skip("one CPU")
    links = [tmp_path / f"spinner-{cpu}" for cpu in cpus]
    for link in links:
        link.symlink_to(periodic)
    apart = []
    while len(apart) < 10 and not (apart and apart[-1] > 1 / 16):
        out = tmp_path / f"out{len(apart)}.firefox.json"
        programs = [subprocess.Popen([link, "spin", str(cpu), "120"]) for cpu, link in zip(cpus, links)]
        try:
            record(culprit, out, "-F", HZ, "-d", 3, "-p", ",".join(str(p.pid) for p in programs))
        finally:
            for p in programs:
                p.kill()
                p.wait()
        phases = [phase(times, 1000 / HZ) for name, times in times_by_comm(out).items() if "spinner" in name]
        assert len(phases) == 2 and min(sharp for _, sharp in phases) > 0.9, phases
        difference = abs(phases[0][0] - phases[1][0])
        apart.append(min(difference, 1 - difference))
    print("parts of a period between two CPUs:", apart)
    assert apart[-1] > 1 / 16, apart
