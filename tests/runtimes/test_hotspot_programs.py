# SPDX-License-Identifier: Apache-2.0
"""Real programs on HotSpot: a build by Maven, and Tomcat under load. The tests print the share of complete user
stacks. (test_hotspot.py has javac.)"""

import glob
import os
import shutil
import subprocess

import pytest

from recorder import Completeness, read, record
from test_hotspot import CACHE, HERE, built, java

MAVEN = f"{CACHE}/maven" # tests/runtimes/hotspot/get


def judge(java, what, path, inside):
    """Checks that 98 % of the stacks are complete. Returns the share of these that have a frame of `inside`."""
    stacks = [s for s in read(path) if s.comm not in ("chroot", "sh")]
    c = Completeness(stacks)
    # libc of another root has no names for its local functions.
    complete = c.complete + sum(n for why, n in c.faults.items()
                                if java.root and why.startswith("begins at libc.so.6+0x"))
    seen = sum(s.count for s in stacks if any(inside in f for f in s.frames))
    print(f"{what} {java.version}: {100 * complete / max(c.user, 1):.2f} % of {c.user} user stacks "
          f"complete, {seen} in {inside}\n{c}")
    assert c.user >= 200, "hardly any samples"
    assert complete >= 0.98 * c.user, str(c)
    return seen / complete


def needs(path):
    if not os.path.exists(path):
        pytest.skip(f"no {path} (tests/runtimes/hotspot/get)")


def test_maven(culprit, java, tmp_path):
    """Builds Commons Codec: Maven, its plugins and the compiler run in one JVM."""
    needs(f"{MAVEN}/repository")
    for folder in "apache-maven", "project", "repository":
        shutil.copytree(f"{MAVEN}/{folder}", f"{java.scratch}/{folder}")
    at, out = java.inside(java.scratch), tmp_path / "out.folded"
    maven, project = f"{at}/apache-maven", f"{at}/project"
    launcher, = glob.glob(f"{java.scratch}/apache-maven/boot/plexus-classworlds-*.jar")
    release = [] if java.version < 9 else [f"-Dmaven.compiler.release={min(java.version - 3, 17)}"]
    done = record(culprit, out, "-F", "199", "--", *java.command(
        "java", "-cp", java.inside(launcher), f"-Dclassworlds.conf={maven}/bin/m2.conf",
        f"-Dmaven.home={maven}", f"-Dlibrary.jansi.path={maven}/lib/jansi-native",
        f"-Dmaven.multiModuleProjectDirectory={project}",
        "org.codehaus.plexus.classworlds.launcher.Launcher", "-B", "-o", "-f", f"{project}/pom.xml",
        f"-Dmaven.repo.local={at}/repository", *release, "package"), timeout=400)
    assert os.path.exists(f"{java.scratch}/project/target/codec-1.jar"), done.stderr
    assert judge(java, "Maven", out, "org.apache.maven") >= 0.2


def test_tomcat(culprit, java, tmp_path):
    """A servlet under load: threads that wait for work, the selector, compiled code, zlib."""
    needs(f"{MAVEN}/tomcat")
    if not shutil.which("wrk"):
        pytest.skip("no wrk (tools/install test)")
    jars = glob.glob(f"{MAVEN}/tomcat/*.jar")
    subprocess.run(["javac", "-nowarn", "-Xlint:-options", "--release", "8", "-d", java.scratch,
                    "-cp", ":".join(jars), f"{HERE}/hotspot/tomcat/Server.java"], check=True)
    for jar in jars:
        shutil.copy(jar, java.scratch)
    at, out = java.inside(java.scratch), tmp_path / "out.folded"
    server = subprocess.Popen(java.command("java", "-Xmx512m", "-cp", f"{at}:{at}/*", "Server", at),
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    load = None
    try:
        word, _, port = server.stdout.readline().partition(" ")
        assert word == "port", word
        load = subprocess.Popen(["wrk", "-t", "1", "-c", "8", "-d", "60",
                                 f"http://127.0.0.1:{port.strip()}/"], stdout=subprocess.DEVNULL)
        record(culprit, out, "-p", server.pid, "-d", "10", "-F", "199")
        assert load.poll() is None and server.poll() is None
    finally:
        for p in (load, server):
            if p:
                p.kill()
                p.wait()
    assert judge(java, "Tomcat", out, "Server.doGet") >= 0.1
