# SPDX-License-Identifier: Apache-2.0
"""Compares the symbols that lib/symbol finds for addresses (tests/tools/dump_symbols.c) with llvm-symbolizer's.

For each address the whole chain (linkage name, path, line, column, inlined or not) must be equal. The only
accepted differences are of the classes in EXPLAINED; for each class the test checks that the difference is
of that class.
"""

import collections
import json
import os
import re
import shutil
import subprocess

import pytest

from conftest import TOP

DUMP = os.environ.get("DUMP_SYMBOLS") or os.path.join(TOP, "build/tests/tools/dump-symbols")
SAMPLES = 400
CLONE = re.compile(r"(\.(cold|part|isra|constprop|lto_priv|localalias|llvm|warm)(\.\d+)*)+$")

EXPLAINED = {
    "plt": "we name PLT entries",
    "padding": "no sized symbol covers it: bytes between functions",
    "qualified": "a name without linkage name: ours has its scopes",
    "alias": "another symbol of the same address",
    "line 0": "no line: the file alone says nothing",
    "mangled": "inlined, no linkage name: scopes and template arguments as the compiler wrote them",
}


def sh(*argv, **options):
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True, errors="replace",
                       timeout=300, **options)
    assert r.returncode == 0, f"{argv}: {r.stderr[-2000:]}"
    return r.stdout


def need(*tools):
    for t in tools:
        if not (shutil.which(t) or os.access(t, os.X_OK)):
            pytest.skip(f"{t} is not installed")


def functions(binary):
    """Returns [(start, size, name)] of the code symbols."""
    out = []
    for line in sh("nm", "-S", "--defined-only", binary).splitlines():
        m = re.fullmatch(r"([0-9a-f]+) (?:([0-9a-f]+) )?([tTwWiuV]) (.+)", line)
        if m:
            out.append((int(m[1], 16), int(m[2] or "0", 16), m[4]))
    return sorted(out)


def sample(binary, want=SAMPLES):
    """Returns addresses of instructions, spread over the functions."""
    out = sh("objdump", "-d", "--no-show-raw-insn", binary)
    all_of_them = [int(m[1], 16) for m in re.finditer(r"^ +([0-9a-f]+):\t", out, re.M)]
    step = max(1, len(all_of_them) // want)
    return all_of_them[::step]


def ours(binary, addresses, *options, env=None):
    text = "".join(f"{a:x}\n" for a in addresses)
    r = subprocess.run([DUMP, "-i", "-l", *map(str, options), str(binary), "-"], input=text, text=True,
                       capture_output=True, errors="replace", timeout=300, env=env)
    assert r.returncode == 0, r.stderr
    lines = r.stdout.removesuffix("\n").split("\n")
    assert lines[0].startswith("S ")
    chains, chain = {}, None
    for line in lines[1:]:
        if line.startswith("A "):
            chain = chains[int(line.split()[1], 16)] = []
        else:
            f = line[2:].split("\t")
            chain.append({"inlined": f[0] == "1", "name": f[1], "system": f[2], "file": f[3],
                          "line": int(f[4]), "column": int(f[5]), "start": int(f[6])})
    assert len(chains) == len(set(addresses))
    return lines[0][2:], chains


def llvm(binary, addresses, *options):
    text = "".join(f"0x{a:x}\n" for a in addresses)
    out = subprocess.run(["llvm-symbolizer", "--inlining", "--no-demangle", "--output-style=JSON", *options,
                          f"--obj={binary}"], input=text, capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr
    chains = {}
    for line in out.stdout.splitlines():
        j = json.loads(line)
        chains[int(j["Address"], 16)] = [
            {"system": f["FunctionName"], "file": f["FileName"], "line": f["Line"], "column": f["Column"],
             "start": f["StartLine"]} for f in j["Symbol"]]
    return chains


def clean(path):
    return os.path.normpath(path) if path else ""


def classify(a, mine, theirs, symbols):
    """Returns None if both are equal, else the class of the difference."""
    if not mine:
        covered = any(s <= a < s + n for s, n, _ in symbols if n)
        return "UNNAMED" if covered else "padding"
    if mine[0]["system"].endswith("@plt"):
        return "plt"
    if len(mine) != len(theirs):
        return "LENGTH"
    found = None
    for i, (m, t) in enumerate(zip(mine, theirs)):
        if m["inlined"] != (i + 1 < len(mine)):
            return "INLINED"
        if t["line"] == 0 and m["line"] == 0:
            found = found or ("line 0" if t["file"] and not m["file"] else None)
        elif (clean(m["file"]), m["line"], m["column"]) != (clean(t["file"]), t["line"], t["column"]):
            return "LINE"
        if t["start"] and m["start"] != t["start"]:
            return "START LINE"
        a_name, b_name = CLONE.sub("", m["system"]), CLONE.sub("", t["system"])
        if a_name == b_name:
            continue
        at = collections.defaultdict(set) # a name may have clones, which Rust marks by .llvm.NUMBER
        for s, _, n in symbols:
            if s <= a:
                at[CLONE.sub("", n)].add(s)
        if a_name.endswith("::" + b_name):
            found = "qualified"
        elif i + 1 == len(mine) and at[a_name] & at[b_name]:
            found = "alias"
        elif not m["system"].startswith("_Z") and b_name.split("<")[0] in m["system"]:
            found = "mangled"
        else:
            return "NAME"
    return found


def report(what, total, counts, examples):
    equal = counts.pop(None, 0)
    wrong = {k: n for k, n in counts.items() if k not in EXPLAINED}
    print(f"{what}: {total} addresses, {equal} equal, explained {dict(counts)}, "
          f"wrong {sum(wrong.values())}")
    assert not wrong, (wrong, {k: examples[k] for k in wrong})
    assert equal > total // 3, f"{what}: too few equal for the comparison to mean something"


def compare(what, binary, *options, addresses=None, reference=None, source=None, llvm_options=(), env=None):
    addresses = addresses or sample(reference or binary)
    where, mine = ours(binary, addresses, *options, env=env)
    theirs = llvm(reference or binary, addresses, *llvm_options)
    symbols = functions(reference or binary)
    counts, examples = collections.Counter(), {}
    for a in addresses:
        kind = classify(a, mine[a], theirs[a], symbols)
        counts[kind] += 1
        examples.setdefault(kind, (hex(a), mine[a], theirs[a]))
    report(what, len(addresses), counts, examples)
    if source:
        assert where == source
    deepest = max(len(c) for c in mine.values())
    return deepest
