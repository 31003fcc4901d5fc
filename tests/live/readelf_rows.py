# SPDX-License-Identifier: Apache-2.0
"""Unwind rows that readelf reads, in the notation of tests/tools/dump_rows.c.

readelf is the independent reader: `-wF` prints the interpreted rows, `-wf` the expressions that `-wF`
prints only as "exp". A file's rows are a step function: sorted [(pc, row)], where row is (cfa, fp, ra),
or None between functions.
"""

import bisect
import collections
import re
import subprocess

X86 = {name: i for i, name in enumerate(
    "rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip".split())}
ARM64 = {f"x{i}": i for i in range(31)} | {"sp": 31}
MACHINES = {
    "X86-64": dict(regs=X86, fp="rbp", sp="rsp", ra=16, ra_initial=None),
    "AArch64": dict(regs=ARM64, fp="x29", sp="sp", ra=30, ra_initial="r30"),
}
ENTRY = re.compile(r"^[0-9a-f]+ [0-9a-f]+ [0-9a-f]+ (CIE|FDE)(.*)")
RANGE = re.compile(r"cie=([0-9a-f]+) pc=([0-9a-f]+)\.\.([0-9a-f]+)")
REGISTER_NAME = re.compile(r" \(\w+\)")  # after a register's number: "r5 (rdi)"
SECTION = re.compile(r"^Contents of the (\S+) section")
PLT = re.compile(r"DW_OP_breg7 \(rsp\): (\d+); DW_OP_breg16 \(rip\): 0; DW_OP_lit15; DW_OP_and; "
                 r"DW_OP_lit(\d+); DW_OP_ge; DW_OP_lit3; DW_OP_shl; DW_OP_plus")


def tool(*args):
    return subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          errors="replace", check=False).stdout


def machine(path):
    header = tool("readelf", "-hW", path)
    return next(m for name, m in MACHINES.items() if name in header)


class Fde:
    def __init__(self, section, start, end, cie_rows, signal):
        self.section, self.start, self.end = section, start, end
        self.rows = []
        self.cie_rows = cie_rows
        self.signal = signal
        self.expressions = collections.defaultdict(set)  # "cfa", or a register's number
        self.undefined_ra = False


def signed(n):
    return f"{int(n):+d}"


def expression(text):
    """Returns an expression in the notation of dump-rows, or "unsupported"."""
    if m := PLT.fullmatch(text):
        return f"plt{signed(m[1])}/{m[2]}"
    if m := re.fullmatch(r"DW_OP_breg(\d+) \(\w+\): (-?\d+)", text):
        return f"r{m[1]}{signed(m[2])}"
    if m := re.fullmatch(r"DW_OP_breg(\d+) \(\w+\): (-?\d+); DW_OP_deref", text):
        return f"*(r{m[1]}{signed(m[2])})+0"
    if m := re.fullmatch(r"DW_OP_breg(\d+) \(\w+\): (-?\d+); DW_OP_deref; DW_OP_plus_uconst: (\d+)",
                         text):
        return f"*(r{m[1]}{signed(m[2])}){signed(m[3])}"
    return "unsupported"


def read_fdes(path):
    fdes, cies, section, current, columns = [], {}, "", None, []
    for line in tool("readelf", "-wF", path).splitlines():
        if m := SECTION.match(line):
            section = m[1]
        elif m := ENTRY.match(line):
            offset = int(line.split()[0], 16)
            if m[1] == "CIE":
                current = cies[section, offset] = Fde(section, 0, 0, [], '"' in m[2] and
                                                      "S" in m[2].split('"')[1])
            else:
                r = RANGE.search(m[2])
                cie = cies[section, int(r[1], 16)]
                current = Fde(section, int(r[2], 16), int(r[3], 16), cie.rows, cie.signal)
                fdes.append(current)
        elif line.startswith("   LOC"):
            columns = line.split()[1:]
        elif not line.strip():
            current = None
        elif current and (words := REGISTER_NAME.sub("", line).split()) and len(words) == len(columns) + 1:
            current.rows.append((int(words[0], 16), dict(zip(columns, words[1:]))))
    return fdes


def read_expressions(path, fdes):
    by_range = {(f.section, f.start, f.end): f for f in fdes}
    section, current, cies, cie = "", None, {}, None
    for line in tool("readelf", "-wf", path).splitlines():
        if m := SECTION.match(line):
            section = m[1]
        elif m := ENTRY.match(line):
            if m[1] == "CIE":
                cie = cies[section, int(line.split()[0], 16)] = Fde(section, 0, 0, [], False)
                current = cie
            else:
                r = RANGE.search(m[2])
                current = by_range[section, int(r[2], 16), int(r[3], 16)]
                parent = cies[section, int(r[1], 16)]
                current.undefined_ra |= parent.undefined_ra
                for key, texts in parent.expressions.items():
                    current.expressions[key] |= texts
        elif m := re.match(r"  DW_CFA_def_cfa_expression \((.*)\)$", line):
            current.expressions["cfa"].add(m[1])
        elif m := re.match(r"  DW_CFA_(val_)?expression: r(\d+) \(\w+\) \((.*)\)$", line):
            current.expressions[int(m[2])].add(("val " if m[1] else "") + m[3])
        elif re.match(r"  DW_CFA_undefined: r(16|30) ", line):
            current.undefined_ra = True


class Reader:
    """Turns readelf's cells into the notation of dump-rows. An "exp" cell becomes a set of choices."""

    def __init__(self, path):
        self.m = machine(path)
        self.fdes = read_fdes(path)
        read_expressions(path, self.fdes)

    def cfa(self, f, cell):
        if cell == "exp":
            return {expression(e) for e in f.expressions["cfa"]}
        m = re.fullmatch(r"(\w+?)([+-]\d+)", cell)
        if not m or m[1] not in self.m["regs"]:
            return {"unsupported"}
        return {f"r{self.m['regs'][m[1]]}{m[2]}"}

    def saved(self, f, cell, reg):
        if cell in ("u", "s"):
            return {"s"}
        if cell.startswith("c"):
            return {f"c{signed(cell[1:])}"}
        if cell == "exp":
            choices = set()
            for e in f.expressions[reg]:
                m = re.fullmatch(rf"DW_OP_breg{self.m['regs'][self.m['fp']]} \(\w+\): (-?\d+)", e)
                choices.add(f"f{signed(m[1])}" if m else "unsupported")
            return choices
        if re.fullmatch(r"r\d+", cell):
            return {cell}
        return {"unsupported"}

    def row(self, f, cells):
        """Returns the acceptable choices of (cfa, fp, ra)."""
        if f.signal:
            return {("signal+0" if self.m["ra"] == 16 else "signal+128", "-", "-")}
        ra = cells.get("ra", "u")
        ras = self.saved(f, ra, self.m["ra"])
        if ra == "u" and not self.m["ra_initial"]:
            return {("stop", "-", "-")}
        if ra in ("u", "s"):
            ras = {self.m["ra_initial"]}
        fps = self.saved(f, cells.get(self.m["fp"], "u"), self.m["regs"][self.m["fp"]])
        # On arm64 readelf prints "u" both for undefined registers and for registers without a rule yet.
        out = {("stop", "-", "-")} if ra == "u" and f.undefined_ra else set()
        for cfa in self.cfa(f, cells["CFA"]):
            for fp in fps:
                for r in ras:
                    # Rows of culprit cannot express a frame pointer that moved into another register.
                    bad = "unsupported" in (cfa, fp, r) or fp.startswith("r")
                    out.add(("unsupported", "-", "-") if bad else (cfa, fp, r))
        return out

    def rows(self, sections=(".eh_frame",)):
        """Returns sorted [(pc, choices or None)]. A function ends at the latest at the start of the next."""
        fdes = sorted((f for f in self.fdes if f.section in sections and f.end > f.start),
                      key=lambda f: f.start)
        out = []
        for i, f in enumerate(fdes):
            end = min([f.end] + [g.start for g in fdes[i + 1:i + 2]])
            rows = f.rows or [(f.start, f.cie_rows[0][1])]
            if out and out[-1][0] > f.start:
                out = [o for o in out if o[0] <= f.start]
            for pc, cells in rows:
                if pc < end:
                    out.append((pc, self.row(f, cells)))
            if end > f.start:
                out.append((end, None))
        return out


def dump(tool_path, path, *more):
    """Returns [(pc, (cfa, fp, ra))] of culprit's table, and the tool's messages."""
    r = subprocess.run([tool_path, path, *more], capture_output=True, text=True, check=True)
    out = []
    for line in r.stdout.splitlines():
        pc, *row = line.split()
        out.append((int(pc, 16), tuple(row)))
    return out, r.stderr.strip()


def at(steps, keys, pc):
    i = bisect.bisect_right(keys, pc) - 1
    return steps[i][1] if i >= 0 else None


def compare(ours, theirs):
    """Returns (number of readelf's rows that agree, [(pc, ours, theirs)] of rows that differ, [(pc, row)] of
    culprit's rows where readelf has no function)."""
    our_pcs, their_pcs = [pc for pc, _ in ours], [pc for pc, _ in theirs]
    good, bad, extra = 0, [], []
    for pc in sorted(set(our_pcs) | set(their_pcs)):
        a, b = at(ours, our_pcs, pc), at(theirs, their_pcs, pc)
        if b is None:
            if a and a[0] != "none":
                extra.append((pc, a))
        elif a in b:
            good += 1
        else:
            bad.append((pc, a, b))
    return good, bad, extra
