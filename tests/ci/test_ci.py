#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""./check and .ci/run in a tree of their own, over tests that pass, fail, are skipped, or fail at first.

    tests/ci/test_ci.py     the last line is the sum: N passed, N failed
"""

import os
import shutil
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

MAKEFILE = """
.PHONY: check
check lint-quick check-vm-quick:
	@echo "3 passed, 0 failed, 1 skipped"
check-root-quick:
	@/usr/bin/python3 -m pytest -p no:cacheprovider -rsfE -q --no-header tests/live
check-runtimes-quick check-server-quick:
	@echo "1 passed in 0.01s"
check-ui-quick:
	@node tests/ui/run.mjs
"""
RUN = """
import { spawnSync } from "node:child_process";
const name = process.argv[2] ? [`--test-name-pattern=/^${process.argv[2]}$/`] : [];
process.exit(spawnSync(process.execPath, ["--test", ...name, "tests/ui/page.test.mjs"], { stdio: "inherit" }).status);
"""
FLAKY_PYTHON = """
import os
import pytest

@pytest.mark.parametrize("who", ["a - b", "c"])
def test_flaky(who):
    if not os.path.exists(f"seen-{who}"):
        open(f"seen-{who}", "w").close()
        raise AssertionError("a - message")

def test_passes():
    pass
"""
FLAKY_NODE = """
import { existsSync, writeFileSync } from "node:fs";
import { test } from "node:test";
test("page: it draws", () => {
  if (existsSync("seen-page"))
    return;
  writeFileSync("seen-page", "");
  throw new Error("not yet");
});
test("page: it loads", () => {});
"""


def write(top, path, text, executable=False):
    os.makedirs(os.path.dirname(f"{top}/{path}"), exist_ok=True)
    with open(f"{top}/{path}", "w", encoding="utf-8") as f:
        f.write(text)
    if executable:
        os.chmod(f"{top}/{path}", 0o755)


def run(command, **files):
    """Runs a command of the tree with these further files: (status, its lines)."""
    with tempfile.TemporaryDirectory() as top:
        for path in ("check", ".ci/run", "tools/count-tests"):
            os.makedirs(os.path.dirname(f"{top}/{path}"), exist_ok=True)
            shutil.copy(f"{TOP}/{path}", f"{top}/{path}")
        tree = {"Makefile": MAKEFILE, "tests/ui/run.mjs": RUN, "tests/ui/page.test.mjs": FLAKY_NODE,
                "tests/live/test_a.py": FLAKY_PYTHON, **files}
        for path, text in tree.items():
            write(top, path, text)
        write(top, "tools/install", "#!/bin/sh\n", True)
        # The machinery that runs these tests may itself be node's or pytest's.
        env = {k: v for k, v in os.environ.items() if not k.startswith(("NODE_", "PYTEST_", "MAKE", "MFLAGS"))}
        done = subprocess.run(f"{top}/{command}", cwd=top, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=300)
    return done.returncode, done.stdout.splitlines()


def check_does_not_retry():
    status, lines = run("check")
    assert status != 0, lines
    # 9 and 3 skipped of the three sums, 2 of the two groups of pytest, one each of test_a.py and page.test.mjs.
    assert lines[-1] == "13 passed, 3 failed, 3 skipped", lines[-1]
    assert not any(x.startswith("flaky:") for x in lines)


def ci_retries_live_tests():
    status, lines = run(".ci/run")
    assert status == 0, lines
    assert [x for x in lines if x.startswith("flaky:")] == [
        "flaky: tests/live/test_a.py::test_flaky[a - b]", "flaky: tests/live/test_a.py::test_flaky[c]",
        "flaky: page: it draws"], lines
    assert lines[-1] == "16 passed, 0 failed, 3 skipped", lines[-1]


def what_fails_twice_has_failed():
    broken = "def test_broken():\n    assert 0\n\ndef test_error(nothing):\n    pass\n"
    status, lines = run(".ci/run", **{"tests/live/test_b.py": broken})
    assert status != 0
    assert not any(x.startswith("flaky:") and "test_b" in x for x in lines)
    assert lines[-1] == "16 passed, 2 failed, 3 skipped", lines[-1]


def what_is_skipped_then_has_failed():
    broken = ("import os\nimport pytest\ndef test_broken():\n    if os.path.exists('once'):\n"
              "        pytest.skip('no')\n    open('once', 'w')\n    assert 0\n")
    status, lines = run(".ci/run", **{"tests/live/test_b.py": broken})
    assert status != 0 and lines[-1] == "16 passed, 1 failed, 3 skipped", lines[-1]


def other_parts_are_not_retried():
    makefile = MAKEFILE.replace('@echo "3 passed, 0 failed, 1 skipped"', '@echo "2 passed, 1 failed"; false')
    status, lines = run(".ci/run", Makefile=makefile)
    assert status != 0 and lines[-1] == "13 passed, 3 failed, 0 skipped", lines[-1]


def failed_build_has_failed():
    makefile = MAKEFILE.replace("check-root-quick:\n", "check-root-quick:\n\t@echo no compiler; false\n")
    status, lines = run(".ci/run", Makefile=makefile)
    assert status != 0 and lines[-1] == "13 passed, 1 failed, 3 skipped", lines[-1]


def main():
    tests = [check_does_not_retry, ci_retries_live_tests, what_fails_twice_has_failed, what_is_skipped_then_has_failed,
             other_parts_are_not_retried, failed_build_has_failed]
    failed = 0
    for test in tests:
        try:
            test()
        except AssertionError as e:
            failed += 1
            print(f"{test.__name__}: {e}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
