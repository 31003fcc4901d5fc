# SPDX-License-Identifier: Apache-2.0
"""Two runtimes in one process: Lua and LuaJIT in Python's package lupa, each called by the other."""

import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from test_lua import HERE, profile

FOLDER = os.path.expanduser("~/.cache/culprit-runtimes/python-packages/lupa-%d.%d" % sys.version_info[:2])
FILES = ("mixed.py", '[string "<python>"]')
CHAIN = ["<module>", "main", '<[string "<python>"]:10>', "between", '<[string "<python>"]:2>']


@pytest.fixture(name="lupa")
def fetch_lupa():
    if not os.path.exists(FOLDER):
        os.makedirs(os.path.dirname(FOLDER), exist_ok=True)
        part = tempfile.mkdtemp(dir=os.path.dirname(FOLDER))
        got = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--only-binary=:all:", "--target", part,
                              "lupa"], capture_output=True, text=True)
        if got.returncode:
            shutil.rmtree(part)
            pytest.skip(f"no lupa from PyPI: {got.stderr.strip().splitlines()[-1]}")
        os.rename(part, FOLDER)
    return FOLDER


@pytest.mark.sample("lua54")
@pytest.mark.parametrize("module", ["lua51", "lua53", "lua54", "luajit21"])
def test_lua_and_python_call_each_other(culprit, lupa, module, tmp_path):
    program = os.path.join(HERE, "lua/mixed.py")
    process = subprocess.Popen([sys.executable, program, lupa, module], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        stacks, truncated = profile(culprit, process, tmp_path)
    finally:
        process.kill()
        process.wait()
    whole, wrong = 0, []
    for stack, n in stacks.items():
        part = [f.name for f in stack if os.path.basename(f.file or "") in FILES]
        whole += n * (part == CHAIN)
        if part != CHAIN[:len(part)]:
            wrong.append((n, part))
    print(f"{module}: {sum(stacks.values())} samples, {truncated} truncated, {whole} with the whole chain")
    assert not wrong, f"{len(wrong)} wrong chains, such as {wrong[:3]}"
    assert whole > 20
    assert truncated <= 0.02 * (sum(stacks.values()) + truncated)
