#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Records the snapshots of tests/unit/walks, from programs of tests/runtimes/walks with a known chain of calls.

    tests/runtimes/record_walks.py           all whose runtime is here; needs root, and make
    tests/runtimes/record_walks.py NAME…     these

A snapshot whose chain is not the program's is not written.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
PROGRAMS = os.path.join(HERE, "walks")
SNAPSHOTS = os.path.join(TOP, "tests/unit/walks")
CULPRIT = os.environ.get("CULPRIT", os.path.join(TOP, "build/cli/culprit"))
RECORD = os.path.join(os.path.dirname(CULPRIT), "../tests/tools/record_walk")
CACHE = os.path.expanduser("~/.cache/culprit-runtimes")
CHAIN = ["main", "outer", "inner"]
WARM_SECONDS = 1.5
TRIES = 20

PYTHON, V8, HOTSPOT = "walk.py", "walk.js", "Walk.java"
RUBY, PERL, BEAM = "walk.rb", "walk.pl", "walk.erl"


def python(n):
    return [f"/usr/bin/python3.{n}", os.path.expanduser(f"~/.pyenv/versions/3.{n}.*/bin/python3.{n}"),
            f"{CACHE}/python-3.{n}/bin/python3.{n}"]


def node():
    return ["/usr/bin/node", "/usr/local/bin/node", f"{CACHE}/node-*/bin/node"]


def java(n):
    return [f"/usr/lib/jvm/java-{n}-openjdk-*/bin/java", f"/usr/lib/jvm/*-{n}-*/bin/java"]


def erlang(suite):
    return [f"{CACHE}/debian-{suite}-erlang/usr/bin/erl"]


# Name of the snapshot → program, places where its runtime may be, options.
WALKS = {
    "python-3.9": (PYTHON, python(9), []),
    "python-3.11": (PYTHON, python(11), []),
    "python-3.13": (PYTHON, python(13), []),
    "node": (V8, node(), []),
    "node-interpreter": (V8, node(), ["--no-opt", "--no-sparkplug"]),
    "hotspot-17": (HOTSPOT, java(17), []),
    "hotspot-17-interpreter": (HOTSPOT, java(17), ["-Xint"]),
    "hotspot-25": (HOTSPOT, java(25), ["-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Walk::*"]),
    "ruby-3.3-static": (RUBY, [f"{CACHE}/ruby-3.3-static/bin/ruby"], ["--disable-gems"]),
    "perl": (PERL, ["/usr/bin/perl"], []),
    "beam-25": (BEAM, erlang("bookworm"), ["+S", "1"]),
    "beam-27": (BEAM, erlang("trixie"), ["+S", "1"]),
    "beam-29": (BEAM, erlang("sid"), ["+S", "1"]),
}
# Frames of a program that are not part of the chain.
OTHERS = ("<module>", "(anonymous)", "<main>", "sort_by", "each")


def find(places):
    """The first executable that is there, or None."""
    found = [f for place in places for f in sorted(glob.glob(place))]
    return found[0] if found else None


@contextmanager
def running(program, runtime, options):
    """The process of a program, when it is warm."""
    with tempfile.TemporaryDirectory() as classes:
        command = [runtime, *options, program]
        if program == HOTSPOT:
            subprocess.run([shutil.which("javac"), "--release", "8", "-nowarn", "-Xlint:-options", "-d", classes,
                            program], cwd=PROGRAMS, check=True)
            command = [runtime, *options, "-cp", classes, "Walk"]
        if program == BEAM:
            root = runtime.removesuffix("/usr/bin/erl")
            shutil.copy(os.path.join(PROGRAMS, program), f"{root}/tmp")
            subprocess.run(["chroot", root, "sh", "-c", f"cd /tmp && erlc {program}"], check=True)
            command = ["chroot", root, "erl", "-noinput", *options, "-pa", "/tmp", "-s", "walk"]
        process = subprocess.Popen(command, cwd=PROGRAMS, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline() == "ready\n"
            time.sleep(WARM_SECONDS)
            yield process.pid
        finally:
            process.kill()
            process.communicate()


def thread_of(pid):
    """The thread that is called "walk", or as the BEAM calls its first scheduler; else the main thread."""
    for path in glob.glob(f"/proc/{pid}/task/*/comm"):
        with open(path, encoding="utf-8") as f:
            if f.read() in ("walk\n", "1_scheduler\n", "erts_sched_1\n"):
                return path.split("/")[4]
    return pid


def wrong_chain(snapshot, program):
    """Why the snapshot's frames are not the program's chain, or None."""
    with open(os.path.join(PROGRAMS, program), encoding="utf-8") as f:
        lines = f.read().splitlines()
    frames = [(re.sub(r".*[.:]|/\d+$", "", name), int(line)) for name, line in
              re.findall(rf"(?<=# )(\S+) \S*{re.escape(program)}:(\d+)", snapshot)]
    frames = [f for f in frames if f[0] not in OTHERS][::-1]
    if [name for name, _ in frames] != CHAIN:
        return f"the chain is {frames}, not {CHAIN}"
    for (name, line), callee in zip(frames, CHAIN[1:]):
        if not re.search(rf"\b{callee}\b", lines[line - 1]):
            return f"{name} calls {callee} in line {line}: {lines[line - 1]}"
    end = snapshot.splitlines()[-1]
    return None if end == "stop complete" else f"it ends with: {end}"


def record(program, runtime, options, again):
    """The text of a snapshot with the program's chain. A thread is not always in inner()."""
    with running(program, runtime, options) as pid:
        for _ in range(TRIES):
            done = subprocess.run([RECORD, str(pid), str(thread_of(pid)), again], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            why = wrong_chain(done.stdout, program)
            if not why:
                return done.stdout.replace(PROGRAMS + "/", "")
    raise AssertionError(f"{runtime} {program}: {why}\n{done.stdout}")


def main():
    for name in sys.argv[1:] or WALKS:
        program, places, options = WALKS[name]
        runtime = find(places)
        if not runtime:
            print(f"{name}: none of {', '.join(places)} is here")
            continue
        text = record(program, runtime, options, f"tests/runtimes/record_walks.py {name}")
        path = os.path.join(SNAPSHOTS, f"{name}.walk")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        print(f"{path}: {len(text)} bytes")


if __name__ == "__main__":
    main()
