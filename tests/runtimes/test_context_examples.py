# SPDX-License-Identifier: Apache-2.0
"""The servers of examples/ with OpenTelemetry's SDKs for Python, Java and Node.js, tested like the server in C in
tests/live/test_examples.py. tests/context/get fetches the SDKs."""

import os
import shutil
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../live"))

from test_context import TOP # noqa: E402
from test_context_peers import need # noqa: E402
from test_examples import prove # noqa: E402


@pytest.fixture
def env(culprit):
    build = os.path.dirname(os.path.dirname(os.path.abspath(culprit)))
    return {"CULPRIT_CONTEXT": f"{build}/context/libculprit-context.so.0"}


def test_the_example_in_python(culprit, env, tmp_path):
    python = need("otel-python/bin/python")
    shutil.copytree(f"{TOP}/examples/python", tmp_path / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target",
                    tmp_path / "installed", tmp_path / "python"], check=True)
    env = {**env, "OTEL_PYTHON_CONTEXT": "culprit", "OTEL_SERVICE_NAME": "checkout-python",
           "PYTHONPATH": str(tmp_path / "installed")}
    prove(culprit, tmp_path, [python, f"{TOP}/examples/python/checkout.py"], env, "Python")


def test_the_example_in_java(culprit, env, tmp_path):
    jars = need("otel-java")
    if not shutil.which("javac"):
        pytest.skip("no javac: tools/install test")
    sources = [f"{TOP}/examples/java/{c}.java" for c in ("Checkout", "CulpritContext")]
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", tmp_path / "classes", *sources], check=True)
    prove(culprit, tmp_path, ["java", "-cp", f"{tmp_path}/classes:{jars}/*", "Checkout"], env, "Java")


@pytest.mark.parametrize("version", ["system", "22", "24", "26"])
def test_the_example_in_node(culprit, env, tmp_path, version):
    modules = need("otel-node/node_modules")
    node = "node" if version == "system" else need(f"../node-{version}/bin/node")
    for name in ("checkout.js", "culprit_context.js"):
        shutil.copy(f"{TOP}/examples/node/{name}", tmp_path)
    os.symlink(modules, tmp_path / "node_modules")
    prove(culprit, tmp_path, [node, tmp_path / "checkout.js"], env, f"Node {version}")
