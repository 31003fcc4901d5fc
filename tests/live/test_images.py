# SPDX-License-Identifier: Apache-2.0
"""Samples belong to the program that ran, also while programs replace each other by exec.

exec_twin_a and exec_twin_b each have a function at the same address. The thread's name, which the kernel adds to
each sample, says which of the two programs ran.
"""

import os
import subprocess

import pytest

from recorder import read, record
from test_procman import TOOLS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="recording needs root")


def judge(stacks):
    """Counts samples with the function of the program that ran, and samples with the other program's function."""
    right = wrong = 0
    for s in stacks:
        of = [f[-1] for f in s.frames if f in ("in_twin_a", "in_twin_b")]
        thread = next((f for f in s.frames if f.startswith("exec_twin_")), s.comm)
        if of:
            right += s.count * (of == [thread[-1]])
            wrong += s.count * (of != [thread[-1]])
    return right, wrong


@pytest.mark.parametrize("aslr", [["setarch", "-R"], []], ids=["without", "with"])
def test_exec_of_equal_stacks(culprit, tmp_path, aslr):
    """Without address randomisation an exec does not change start_stack."""
    right = wrong = 0
    with subprocess.Popen([*aslr, os.path.join(TOOLS, "exec_twin_a"), "2"]) as twin:
        try:
            for _ in range(10):
                record(culprit, tmp_path / "p.folded", "--threads", "-F", 997, "-d", 3,
                       "--comm", "exec_twin_a,exec_twin_b")
                more = judge(read(tmp_path / "p.folded"))
                right, wrong = right + more[0], wrong + more[1]
                if right > 500:
                    break
        finally:
            twin.kill()
    print(f"{right} samples in the program that ran, {wrong} in the other")
    assert right > 500
    assert wrong == 0
