# SPDX-License-Identifier: Apache-2.0
"""Fetches SkyWalking's agents into ~/.cache/culprit-peers, once.

    get_skywalking.py python        prints the path of a Python with the agent
    get_skywalking.py java FOLDER   makes agent/ and shop/ there, the folders of the agent and of a service for it

Where it cannot be had, it says why and ends with 1.
"""

import os
import shutil
import subprocess
import sys
import urllib.request

PEERS = os.path.expanduser("~/.cache/culprit-peers")
PYTHON_AGENT = "1.2.0" # the wheel of 1.3.0 lacks the modules that its protocol needs
MAVEN, JAVA_AGENT = "https://repo.maven.apache.org/maven2/org/apache/skywalking/apm-agent", "9.4.0"


class Unavailable(Exception):
    pass


def python():
    """The path of a Python with the agent from PyPI."""
    place = os.path.join(PEERS, f"skywalking-{PYTHON_AGENT}")
    program = os.path.join(place, "bin/python3")
    if os.access(program, os.X_OK):
        return program
    new = place + ".new"
    shutil.rmtree(new, ignore_errors=True)
    for command in ([sys.executable, "-m", "venv", new],
                    [f"{new}/bin/python3", "-m", "pip", "install", "-q", f"apache-skywalking=={PYTHON_AGENT}"]):
        r = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if r.returncode:
            raise Unavailable(f"SkyWalking's agent for Python cannot be installed: {r.stderr.strip().splitlines()[-1:]}")
    os.rename(new, place)
    return program


def java():
    """The path of the agent's jar from Maven Central."""
    jar = os.path.join(PEERS, f"skywalking-agent-{JAVA_AGENT}.jar")
    if os.path.exists(jar):
        return jar
    os.makedirs(PEERS, exist_ok=True)
    try:
        with urllib.request.urlopen(f"{MAVEN}/{JAVA_AGENT}/apm-agent-{JAVA_AGENT}.jar", timeout=120) as a, \
                open(jar + ".new", "wb") as f:
            shutil.copyfileobj(a, f)
    except OSError as e:
        raise Unavailable(f"SkyWalking's agent for Java cannot be downloaded: {e}") from e
    os.rename(jar + ".new", jar)
    return jar


def java_folders(top):
    """Makes agent/ (with a plugin for the tests' service: SkyWalking's own are not on Maven Central) and shop/ in `top`."""
    if not shutil.which("javac"):
        raise Unavailable("no JDK")
    jar, sources = java(), os.path.join(os.path.dirname(os.path.abspath(__file__)), "skywalking_java")
    for name in ("plugin", "shop", "agent/config", "agent/plugins", "agent/activations"):
        os.makedirs(os.path.join(top, name), exist_ok=True)
    shutil.copy(jar, f"{top}/agent/skywalking-agent.jar")
    for path, text in (("agent/config/agent.config", ""), ("plugin/skywalking-plugin.def", "shop=plugin.ShopPlugin\n")):
        with open(os.path.join(top, path), "w", encoding="ascii") as f:
            f.write(text)
    for command in (["javac", "-cp", jar, "-d", f"{top}/plugin", f"{sources}/ShopPlugin.java", f"{sources}/ShopInterceptor.java"],
                    ["javac", "-d", f"{top}/shop", f"{sources}/Shop.java"],
                    ["jar", "cf", f"{top}/agent/plugins/shop.jar", "-C", f"{top}/plugin", "."]):
        subprocess.run(command, check=True, timeout=120)


def main():
    try:
        if sys.argv[1] == "java":
            java_folders(sys.argv[2])
        print(python() if sys.argv[1] == "python" else sys.argv[2])
    except Unavailable as e:
        sys.exit(str(e))


if __name__ == "__main__":
    main()
