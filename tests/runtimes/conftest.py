# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the live tests, and a log of results for tools/runtime-table.

Runtimes that the system does not have are in ~/.cache/culprit-runtimes, one folder each, and never in the tree.
The tests of a missing runtime are skipped, with the reason.
"""
import fnmatch
import hashlib
import json
import os
import subprocess
import sys
import time

import pytest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests/live"))

_spec = __import__("importlib.util").util.spec_from_file_location(
    "live_conftest", os.path.join(TOP, "tests/live/conftest.py"))
_live = __import__("importlib.util").util.module_from_spec(_spec)
_spec.loader.exec_module(_live)
culprit = _live.culprit
culprit_plain = _live.culprit_plain
run = _live.run


# ---- the results of the tests, for tools/runtime-table ----
#
# Each test appends a line of JSON when it ends, so that an interrupted run keeps its results and several runs can
# go on at once. CULPRIT_RESUME=1 leaves out tests that have passed with this build, and tests that skipped
# themselves because they do not apply to the version. A test that a fixture skipped runs again, because the missing
# runtime may have been installed.

RESULTS = os.path.join(TOP, "tests/artefacts/runtimes.jsonl")


def _build():
    path = os.environ.get("CULPRIT", os.path.join(TOP, "build/cli/culprit"))
    if not os.path.exists(path):
        return ""
    with open(path, "rb") as f:
        return hashlib.sha1(f.read()).hexdigest()[:12]


def _commit():
    done = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=TOP,
                          capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


BUILD, COMMIT = _build(), _commit() # when the tests started
_setup = {} # test → seconds that its fixtures took


def _results():
    if os.path.exists(RESULTS):
        with open(RESULTS, encoding="utf-8") as f:
            yield from map(json.loads, f)


def pytest_configure(config):
    config.addinivalue_line("markers", "sample(pattern): part of ./check, with the parameters that match")


def _mark_sample(items):
    """Removes the mark `sample` from tests whose parameters do not match, so that -m sample leaves them out."""
    for item in items:
        mark = item.get_closest_marker("sample")
        if mark and not fnmatch.fnmatchcase(item.callspec.id, mark.args[0]):
            item.own_markers.remove(mark)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    _mark_sample(items)
    if os.environ.get("CULPRIT_RESUME", "") in ("", "0"):
        return
    last = {}
    for r in _results():
        if r["build"] == BUILD:
            last[r["runtime"], r["test"]] = r["outcome"], r.get("when", "call")
    over = {("passed", "call"), ("skipped", "call")}
    done = [i for i in items if last.get((_runtime(i.nodeid), _test(i.nodeid))) in over]
    config.hook.pytest_deselected(items=done)
    items[:] = [i for i in items if i not in done]


def _runtime(nodeid):
    """Returns RUNTIME of a file test_RUNTIME.py or test_RUNTIME_MORE.py."""
    return os.path.basename(nodeid.split("::")[0])[len("test_"):-len(".py")].split("_")[0]


def _test(nodeid):
    return nodeid.split("::")[-1]


def pytest_runtest_logreport(report):
    """Appends a test's result. The first parameter of a test is the version: test_chain[3.11-…]."""
    if report.when != "call" and report.outcome == "passed":
        _setup[report.nodeid] = report.duration if report.when == "setup" else 0
        return
    parameters = report.nodeid.rpartition("[")[2].rstrip("]") if "[" in report.nodeid else ""
    line = {"runtime": _runtime(report.nodeid), "version": parameters.split("-")[0],
            "test": _test(report.nodeid), "outcome": report.outcome, "when": report.when,
            "build": BUILD, "commit": COMMIT, "at": round(time.time()),
            "seconds": round(report.duration + _setup.get(report.nodeid, 0), 1),
            "said": (report.capstdout if report.outcome != "skipped"
                     else str(report.longrepr[-1]))[-2000:]}
    os.makedirs(os.path.dirname(RESULTS), exist_ok=True)
    with open(RESULTS, "a", encoding="utf-8") as f:
        f.write(json.dumps(line) + "\n")
