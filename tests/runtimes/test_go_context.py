# SPDX-License-Identifier: Apache-2.0
"""Spans in labels of goroutines, by Go's standard library. A sample's span must be the span for which the program,
by its own log, ran the function, in each installed release."""

import os
import sys

import pytest
from recorder import record
from test_go import VERSIONS, Toolchain

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../live"))

from pprof import samples # noqa: E402
from test_context import judge, logged # noqa: E402

# The label http.route names the function.
STYLES = {"hex": "http.route", "decimal": "trace endpoint", "many": None}


@pytest.mark.parametrize("flags", [[], ["-buildmode=pie"]], ids=["plain", "pie"])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_sample_has_the_span_of_its_goroutine(culprit, tmp_path, version, style, flags):
    if flags and style != "hex":
        pytest.skip("labels are the same in a PIE")
    toolchain = Toolchain(version)
    done = toolchain.run("build", "-o", tmp_path / "golabels", *flags, "main.go",
                         cwd=os.path.join(HERE, "../context/golabels"), timeout=300)
    assert done.returncode == 0, done.stderr
    record(culprit, tmp_path / "out.pb.gz", "-F", 997, "--", tmp_path / "golabels", 2, 8,
           tmp_path / "log", style)
    linked, missed, idle = judge(samples(tmp_path / "out.pb.gz"), logged(tmp_path / "log"),
                                 STYLES[style])
    print(f"{version} {style}: {linked} samples have their span, {missed} have none, {idle} should have none")
    assert missed <= 0.01 * linked, (missed, linked)
    assert linked > 100 and idle > 20, (linked, idle)
