# SPDX-License-Identifier: Apache-2.0
"""Profiles as peers read them: Counters of stacks (tuples of names, root first) with their values."""

import gzip
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Refused(Exception):
    """A reader does not take the file; the text says why."""


def run(*command, stdin=None, limit=120):
    done = subprocess.run([str(c) for c in command], capture_output=True, timeout=limit, input=stdin,
                          env={**os.environ, "PPROF_TMPDIR": "/tmp"})
    if done.returncode:
        raise Refused((done.stderr or done.stdout).decode(errors="replace").strip()[:300] or
                      f"exit {done.returncode}")
    return done.stdout.decode(errors="replace")


def plain(name):
    """The name without what readers write in ways of their own: parameters, quotes, blanks, places in the file."""
    name = re.sub(r"_\[[kij]\]$", "", name.strip())
    if not name or name.startswith(("[", "0x", "???")) or re.search(r"\+0x[0-9a-f]+$", name):
        return "?"
    name = re.sub(r"^L(?=[\w$]+/)", "", name).replace("/", ".")
    name = re.sub(r"['\"\s;:]", "", re.sub(r"(?<=.)\((?!anonymous).*", "", name))
    return name or "?"


def folded(text):
    stacks = Counter()
    for line in text.splitlines():
        m = re.match(r"(.*\S)\s+(-?[\d.]+)\s*$", line)
        if m and not line.startswith("#"):
            stacks[tuple(plain(n) for n in m[1].split(";"))] += float(m[2])
    return stacks


def ours(culprit, path, type_name=None, process=True):
    """What culprit reads, and what it says of what it left out."""
    more = ["--type", type_name] if type_name else []
    done = subprocess.run([str(culprit), "convert", *more, str(path), "-"], capture_output=True, timeout=300)
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode < 0 or done.returncode > 2:
        raise AssertionError(f"culprit ended with {done.returncode}: {said}")
    if done.returncode:
        raise Refused(said.replace(str(path), path.name).removeprefix("culprit: convert: "))
    stacks = folded(done.stdout.decode(errors="replace"))
    if not process:
        stacks = without_root(stacks)
    return stacks, said


def without_root(stacks):
    out = Counter()
    for stack, value in stacks.items():
        out[stack[1:]] += value
    return out


def collapse_perf(flamegraph, path):
    """FlameGraph's stackcollapse-perf.pl."""
    if not shutil.which("perl"):
        raise Refused("no perl here")
    # It forgets the last sample unless an empty line follows.
    text = path.read_bytes() + b"\n\n"
    return folded(run("perl", flamegraph / "stackcollapse-perf.pl", stdin=text))


def speedscope(folder, path):
    """speedscope's own importers."""
    if not shutil.which("node"):
        raise Refused("no node here")
    return folded(run("node", HERE / "speedscope.mjs", folder, path))


def go_pprof(path):
    """`go tool pprof -raw`: {type: stacks}."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not os.access(go, os.X_OK):
        raise Refused("no go here")
    text = run(go, "tool", "pprof", "-symbolize=none", "-raw", path)
    head, _, rest = text.partition("\nSamples:\n")
    if not rest:
        raise Refused("pprof prints no samples")
    samples, _, locations = rest.partition("\nLocations\n")
    locations = locations.partition("\nMappings\n")[0]
    names = {}
    for line in locations.splitlines():
        m = re.match(r"\s*(\d+): 0x[0-9a-f]+ (?:M=\d+ )?(?:\[F\] )?(.*)$", line)
        if m:
            at = names[m[1]] = []
            line = m[2]
        line = re.sub(r" \S*:\d+(:\d+)? s=\d+(\(.*\))?$", "", line.strip())
        if line:
            at.append(plain(line))
    lines = samples.splitlines()
    types = [t.split("/")[0] for t in lines[0].replace("[dflt]", "").split()]
    out = {t: Counter() for t in types}
    for line in lines[1:]:
        m = re.match(r"\s*((?:-?\d+\s*)+):((?:\s*\d+)*)\s*$", line)
        if not m:
            continue  # labels
        stack = [n for i in reversed(m[2].split()) for n in reversed(names.get(i) or ["?"])]
        for t, v in zip(types, m[1].split()):
            out[t][tuple(stack) or ("?",)] += float(v)
    return out


def java(stacks):
    """Without libraries before functions, the numbers of lambdas, and what culprit says of stacks that the JVM cut."""
    out = Counter()
    for stack, value in stacks.items():
        names = [re.sub(r"^\.*(lib[^;]*?\.(?:so|dylib)(?:\.\d+)*\.)?", "", n) for n in stack]
        names = [re.sub(r"(\$\$Lambda|GeneratedMethodAccessor|\$\$FastClassBySpringCGLIB\$\$)[^.]*(\.(0x)?[0-9a-f]{6,}|\.\d+)?", r"\1",
                        n).replace("Lambda_", "Lambda") for n in names]
        out[tuple(n for n in names if n not in ("?", "[vdso]"))] += value
    return out


def collapsed_jfr(path):
    """What jfr-parser expects of its own sample: "a;b;c [VALUE]", with lines behind the names."""
    stacks = Counter()
    for line in gzip.decompress(path.read_bytes()).decode(errors="replace").splitlines():
        m = re.match(r"(.*) \[(\d+)\]$", line)
        if m:
            stacks[tuple(plain(re.sub(r":\d+$", "", n)) for n in m[1].split(";"))] += float(m[2])
    return stacks
