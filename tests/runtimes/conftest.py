# SPDX-License-Identifier: Apache-2.0
"""The fixtures of the live tests, and where runtimes are looked for.

Runtimes that the system does not have are taken from ~/.cache/culprit-runtimes, where each is one
folder, and never from the tree; what is not there is skipped, with the reason.
"""
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
