# SPDX-License-Identifier: Apache-2.0
"""Programs with Pyroscope's SDKs, as the registries of their languages have them: Go (module proxy), Java (Maven Central),
Node.js (npm), Python (PyPI), Rust (crates.io). They are installed into ~/.cache/culprit-peers when a test first needs them.
Those for Ruby and .NET are not here: RubyGems and NuGet are not among the registries of this project, and Debian has neither."""

import hashlib
import os
import shutil
import subprocess
import urllib.request

import pytest

from conftest import PEERS, TOP, peer, virtual_environment

HERE = os.path.join(TOP, "tests/server")
AGENT = "https://repo.maven.apache.org/maven2/io/pyroscope/agent/2.9.2/agent-2.9.2.jar"
NODE = "@pyroscope/nodejs@0.6.4"
PYTHON = "pyroscope-io==1.4.0"


def run(command, why, **more):
    try:
        r = subprocess.run(command, capture_output=True, text=True, timeout=1800, **more)
    except OSError as e:
        pytest.skip(f"{why}: {e}")
    if r.returncode:
        pytest.skip(f"{why}: {r.stderr.strip().splitlines()[-1:]}")


def go(server, name, seconds):
    return [peer("pyroscope_sdk", "main.go", "go.mod"), server, name, str(seconds)], {}


def python(server, name, seconds):
    interpreter = virtual_environment("pyroscope-io-" + PYTHON.rpartition("=")[2], [PYTHON])
    return [interpreter, f"{HERE}/pyroscope_sdk_python/main.py", server, name, str(seconds)], {}


def node(server, name, seconds):
    place = os.path.join(PEERS, "pyroscope-nodejs-" + NODE.rpartition("@")[2])
    if not os.path.isdir(place):
        shutil.rmtree(place + ".new", ignore_errors=True)
        run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", place + ".new", NODE],
            "Pyroscope's SDK for Node.js cannot be installed")
        os.rename(place + ".new", place)
    return ["node", f"{HERE}/pyroscope_sdk_node/main.js", server, name, str(seconds)], {"NODE_PATH": f"{place}/node_modules"}


def java(server, name, seconds):
    jar, classes = os.path.join(PEERS, os.path.basename(AGENT)), os.path.join(PEERS, "contended")
    if not os.path.exists(jar):
        try:
            urllib.request.urlretrieve(AGENT, jar + ".new")
        except OSError as e:
            pytest.skip(f"Pyroscope's agent for Java cannot be had: {e}")
        os.rename(jar + ".new", jar)
    run(["javac", "-d", classes, f"{HERE}/java/Contended.java"], "no JDK here")
    options = {"APPLICATION_NAME": name, "SERVER_ADDRESS": server, "FORMAT": "jfr", "LABELS": "env=test", "UPLOAD_INTERVAL": "1s",
               "PROFILER_EVENT": "itimer", "PROFILER_ALLOC": "100k", "PROFILER_LOCK": "1ms", "LOG_LEVEL": "error"}
    return (["java", f"-javaagent:{jar}", "-cp", classes, "Contended", str(int(1000 * seconds))],
            {f"PYROSCOPE_{k}": v for k, v in options.items()})


def rust(server, name, seconds):
    source, digest = f"{HERE}/pyroscope_sdk_rust", hashlib.sha256()
    for path in ("Cargo.toml", "src/main.rs"):
        with open(f"{source}/{path}", "rb") as f:
            digest.update(f.read())
    program = os.path.join(PEERS, f"pyroscope_sdk_rust-{digest.hexdigest()[:16]}")
    if not os.access(program, os.X_OK):
        work = program + ".build"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(source, work)
        run(["cargo", "build", "--quiet", "-j", "1"], "Pyroscope's SDK for Rust cannot be built", cwd=work,
            env={**os.environ, "CARGO_TARGET_DIR": work + "/target"})
        os.rename(work + "/target/debug/pyroscope_sdk_rust", program)
        shutil.rmtree(work)
    return [program, server, name, str(seconds)], {}
