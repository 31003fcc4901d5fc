#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Which scripts of the tracing language culprit takes, and why it refuses the others.

    tests/tools/trace_scripts.py parse|compile|load build FOLDER|FILE...

A folder stands for its *.bt, at any depth; a Markdown file for its code blocks that look like scripts,
and for the programs of `bpftrace -e '...'` in it. Nothing is fetched. The folders that issue 19 is about
are tools/ and docs/ of bpftrace's repository and what its package installs (/usr/sbin/*.bt).
"""

import os
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^ *```[^\n]*\n(.*?)^ *```", re.S | re.M)
ONE_LINER = re.compile(r"bpftrace [^\n']*-e '(.*?)'(?=\s|$)", re.S)
PROBE = re.compile(r"^ *(?:BEGIN|END|begin|end|[a-zA-Z]+:[^\s{]+)[^{}\n]*(?:\n[^{}\n]*){0,4}\{", re.M)
# What the documents say, and no script is: output, C++ and ellipses.
NO_SCRIPT = re.compile(r"\{ ?\.\.\. ?\}|^\s*\.\.\.|, \.\.\.\)|^namespace|^(?:\$|#) ", re.M)


def scripts_of_document(text):
    """(line, script) of a Markdown text."""
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1)) + 1
        body = block.group(1)
        programs = ONE_LINER.findall(body)
        if programs:
            yield from ((line, p) for p in programs)
        elif PROBE.search(body) and not NO_SCRIPT.search(body):
            yield line, body


def collect(paths, scratch):
    """Paths of scripts; those of documents are written to `scratch`."""
    for path in paths:
        if os.path.isdir(path):
            for where, dirs, names in os.walk(path):
                dirs.sort()
                yield from (os.path.join(where, n) for n in sorted(names) if n.endswith(".bt"))
        elif path.endswith(".md"):
            with open(path, encoding="utf-8") as f:
                text = f.read()
            for i, (line, script) in enumerate(scripts_of_document(text)):
                name = os.path.join(scratch, f"{os.path.basename(path)}:{line}-{i}.bt")
                with open(name, "w", encoding="utf-8") as f:
                    f.write(script)
                yield name
        else:
            yield path


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in ("parse", "compile", "load"):
        print(__doc__)
        return 2
    mode, build, *paths = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        scripts = list(collect(paths, scratch))
        if not scripts:
            print("no scripts")
            return 2
        tool = os.path.join(build, "tests/tools/trace_check")
        done = subprocess.run([tool, mode, *scripts], stdout=subprocess.PIPE, text=True, check=False)
        for line in done.stdout.replace(scratch + "/", "").split("\n"):
            if line and not line.endswith(": right"):
                print(line)
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
