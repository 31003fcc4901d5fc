# SPDX-License-Identifier: Apache-2.0
"""Reads the stacks that tests compare, from folded text and from the text of `perf script`."""

import re
from collections import namedtuple

# frames and kernel: root first, of names without any suffix. note: text of a `[truncated: …]` root.
Stack = namedtuple("Stack", "comm frames kernel note count")

ADDRESS = re.compile(r"(.*)\+0x([0-9a-f]+)$")


def plain(name):
    """Returns a function's name without arguments, template parameters, clone suffixes and hashes."""
    name = re.sub(r"^(?:non-virtual thunk to |virtual thunk to )", "", name)
    name = re.sub(r"(?:\.(?:part|cold|constprop|isra|lto_priv|llvm|abi)[.0-9]*)+$", "", name)
    name = re.sub(r"( \[clone [^]]*\])+$", "", name)
    name = re.sub(r"::h[0-9a-f]{16}$", "", name)
    name = re.sub(r"( const| volatile| &{1,2}| noexcept)+$", "", name)
    if name.startswith("<") or "(*" in name or name.startswith("main."):
        return name # a trait method of Rust, or a function of Go
    depth, out = 0, []
    for c in name.replace("(anonymous namespace)", "{anonymous}"):
        depth -= c in ">)" and depth > 0
        if not depth and c not in "<>()":
            out.append(c)
        depth += c in "<("
    return "".join(out).strip().rpartition(" ")[2] or name


def parse_folded(text):
    """The stacks of folded output of culprit: `comm;root;…;leaf count`."""
    stacks = []
    for line in text.splitlines():
        path, _, count = line.rpartition(" ")
        comm, *frames = path.split(";")
        note = None
        user, kernel, in_kernel = [], [], False
        for f in frames:
            if f.startswith("[truncated"):
                note = f
            elif f.endswith("_[k]"):
                in_kernel = True
                kernel.append(f[:-4])
            else:
                if in_kernel:
                    note = note or "[user frame above a kernel frame]"
                user.append(f[:-4] if f.endswith(("_[i]", "_[j]")) else f)
        stacks.append(Stack(comm, tuple(user), tuple(kernel), note, int(count)))
    return stacks


def sums_by_function(stacks, functions):
    """The counts of the stacks that contain each function, in user space."""
    sums = dict.fromkeys(functions, 0)
    for s in stacks:
        for function in sums.keys() & set(s.frames):
            sums[function] += s.count
    return sums


PERF_FRAME = re.compile(r"\s+([0-9a-f]+) (.*?)(?:\+0x[0-9a-f]+)? \((.*)\)$")


def parse_perf_script(text):
    """The stacks of `perf script -F comm,ip,sym,dso` (empty line between samples)."""
    stacks = []
    comm, frames, kernel = None, [], []

    def flush():
        if comm is not None:
            stacks.append(Stack(comm, tuple(reversed(frames)), tuple(reversed(kernel)), None, 1))

    for line in text.splitlines():
        if not line.strip():
            flush()
            comm, frames, kernel = None, [], []
        elif line[0] not in " \t" or comm is None:
            comm = line.strip()
        else:
            m = PERF_FRAME.match(line)
            if not m:
                continue
            address, name, dso = m.groups()
            if dso.startswith("[kernel") or dso.endswith(".ko") or int(address, 16) >> 63:
                kernel.append(name)
            else:
                if name == "[unknown]" and not dso.startswith(("inlined", "[")):
                    name = f"{dso.rpartition('/')[2]}+0x{address}"
                frames.append(name)
    flush()
    return stacks


def by_comm(stacks):
    """{comm: [stacks]}"""
    out = {}
    for s in stacks:
        out.setdefault(s.comm, []).append(s)
    return out
