# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the live tests, and where runtimes are looked for.

Runtimes that the system does not have are taken from ~/.cache/culprit-runtimes, where each is one
folder, and never from the tree; what is not there is skipped, with the reason.
"""
import json
import os
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests/live"))

_spec = __import__("importlib.util").util.spec_from_file_location(
    "live_conftest", os.path.join(TOP, "tests/live/conftest.py"))
_live = __import__("importlib.util").util.module_from_spec(_spec)
_spec.loader.exec_module(_live)
culprit = _live.culprit
culprit_plain = _live.culprit_plain
run = _live.run


# ---- what the tests said, for the README's table (tools/runtime-table) ----

_outcomes = {} # runtime → version → test → outcome


def pytest_runtest_logreport(report):
    """Tests are parametrised by version first: test_chain[3.11-…], test_chain[node20-…]; files are
    called test_RUNTIME.py or test_RUNTIME_MORE.py."""
    runtime = os.path.basename(report.nodeid.split("::")[0])[len("test_"):-len(".py")].split("_")[0]
    version = report.nodeid.rpartition("[")[2].rstrip("]").split("-")[0] if "[" in report.nodeid else ""
    tests = _outcomes.setdefault(runtime, {}).setdefault(version, {})
    if report.when == "call" or report.outcome != "passed":
        tests[report.nodeid.split("::")[-1]] = report.outcome


def pytest_sessionfinish(session):
    folder = os.path.join(TOP, "tests/artefacts")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "runtimes.json")
    known = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            known = json.load(f)
    for runtime, versions in _outcomes.items():
        for version, tests in versions.items():
            known.setdefault(runtime, {}).setdefault(version, {}).update(tests)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(known, f, indent=1, sort_keys=True)
