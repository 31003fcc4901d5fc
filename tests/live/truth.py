# SPDX-License-Identifier: Apache-2.0
"""Judges sampled stacks of the programs in tests/truth by the programs' own shadow stacks.

A program's shadow stack (tests/truth/truth.h) gives the set of all its chains of functions. A right stack is not
truncated, begins at a thread's entry, its frames of the program's own functions are one of the chains, and it has
foreign frames between them only where the program has them. As a script this file judges
`perf record --call-graph dwarf` of one program, to test the tests:

    python3 tests/live/truth.py build/truth/cxx-g [MS]
"""

import glob
import os
import re
import subprocess
import sys
from collections import Counter
from functools import lru_cache

from folded import ADDRESS, parse_perf_script, plain

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAMS = os.environ.get("TRUTH_PROGRAMS") or os.path.join(TOP, "build/truth")

# Functions at which stacks begin. A nameless frame is tested by its address: see entry_ranges().
ENTRIES = {
    "_start", "_dl_start_user", "_dlstart", "clone", "__clone", "clone3", "__clone3",
    "__clone_internal", "thread_start", "runtime.goexit", "runtime.mstart", "runtime.mcall",
    "runtime.rt0_go", "_rt0_amd64", "_rt0_amd64_linux", "_rt0_arm64_linux", "runtime.clone",
    "runtime.morestack", "runtime.sigtramp",
}

# By program: foreign frames that may stand between the program's own frames, because they call back.
CALLBACKS = {
    "sighandler": re.compile(r"__restore_rt|(__GI_)?raise|gsignal|pthread_kill|(__)?pthread_self|.*signal.*|tgkill|"
                             r"__pthread_kill.*|libc\.so.*|\[vdso\].*|ld-musl.*|"
                             r"__kernel_rt_sigreturn|__getpid|clock_ns|(__|__vdso_|__kernel_)?clock_gettime|"
                             r".*restore.*|.*__block.*|"
                             r"killpg|truth_.*|sighandler-.*\+0x.*"),
    "asmcalls": re.compile(r".*sort.*|libc\.so.*"),
    "cxx": re.compile(r"std::.*|.*lambda.*|cxx::.*operator.*|cxx-.*\+0x.*|.*_Function_handler.*"),
    "go": re.compile(r"runtime\..*|panics?|main\..*"),
    "gos": re.compile(r"runtime\..*|main\..*"),
    "rusty": re.compile(r".*(std|core|alloc)::.*|rusty::.*|__rust.*|rusty-.*\+0x.*|.*closure.*|"
                        r".*FnOnce.*|.*\{.*"),
}
CALLBACKS["rustys"] = CALLBACKS["rusty"]

# Kernel functions in which a stack without user frames is right, because the process has no address space yet, or
# none any more.
NO_USER_STACK = re.compile(
    r"(do_exit|do_group_exit|.*execve.*|bprm_.*|load_elf_binary|begin_new_exec|ret_from_fork.*|"
    r"exit_mmap|mmput|schedule_tail|.*_exit_group)$")


def make(*args):
    """Runs the Makefile of the programs and returns its output."""
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return subprocess.run(["make", "-s", "-C", os.path.join(TOP, "tests/truth"),
                           f"OUT={PROGRAMS}", *args], check=True, env=env, text=True,
                          stdout=subprocess.PIPE).stdout


def build():
    """Builds the programs that can be built on this machine."""
    make("-j2")


def listed():
    """Returns the names of the programs that can be built on this machine."""
    return make("list").split()


def twin(path):
    """Returns the file of which `path` is the stripped copy, or path."""
    base = os.path.basename(path)
    if re.search(r"-(g|c|ms|rs|x)s$", base):
        return path[:-1]
    return path


@lru_cache(maxsize=None)
def symbols(path):
    """Returns [(start, end, name)] of the file's functions, by nm. A symbol without a size (assembly) extends to the
    next symbol."""
    out = []
    text = subprocess.run(["nm", "-nS", "--defined-only", "-C", path], capture_output=True,
                          text=True).stdout
    found = re.findall(r"^([0-9a-f]+) (?:([0-9a-f]+) )?([A-Za-z]) (.*)", text, re.M)
    starts = [int(address, 16) for address, *_ in found]
    for i, (_, size, kind, name) in enumerate(found):
        after = next((s for s in starts[i + 1:i + 50] if s > starts[i]), starts[i])
        if kind in "TtWwi":
            out.append((starts[i], starts[i] + int(size, 16) if size else after, name))
    return out


@lru_cache(maxsize=None)
def code_of(path, name):
    """Returns the bytes of a function in a file with symbols."""
    for start, end, symbol in symbols(path):
        if symbol == name:
            with open(path, "rb") as f:
                data = f.read()
            for svma, offset, size in text_segments(path):
                if svma <= start < svma + size:
                    return data[start - svma + offset:end - svma + offset]
    return b""


@lru_cache(maxsize=None)
def text_segments(path):
    """Returns [(svma, offset, size)] of a file's code."""
    text = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True).stdout
    return [(int(m.group(2), 16), int(m.group(1), 16), int(m.group(3), 16)) for m in re.finditer(
        r"LOAD +(0x[0-9a-f]+) (0x[0-9a-f]+) 0x[0-9a-f]+ (0x[0-9a-f]+) 0x[0-9a-f]+ R.E", text)]


RET = b"\xc3"

# Assembly functions of musl, whose shared library has no symbols in Debian, and a program of tests/truth that has
# the same code with its symbol.
MUSL_ASSEMBLY = {"__clone": "threads-ms", "__restore_rt": "sighandler-ms"}


@lru_cache(maxsize=None)
def musl_symbols(path):
    """Like symbols(), but for a stripped musl, in which it finds assembly functions by their code."""
    out = []
    if "musl" not in os.path.realpath(path):
        return out
    with open(path, "rb") as f:
        data = f.read()
    for name, program in MUSL_ASSEMBLY.items():
        code = code_of(os.path.join(PROGRAMS, program), name)
        code = code[:code.rfind(RET) + 1] or code # no padding
        at = data.find(code) if code else -1
        for svma, offset, size in text_segments(path):
            if offset <= at < offset + size:
                start = at - offset + svma
                out.append((start, start + len(code), name))
    return out


@lru_cache(maxsize=None)
def entry_point(path):
    header = subprocess.run(["readelf", "-hW", path], capture_output=True, text=True).stdout
    m = re.search(r"Entry point address:\s+0x([0-9a-f]+)", header)
    return int(m.group(1), 16) if m else 0


@lru_cache(maxsize=None)
def entry_ranges(path):
    """Returns [(start, end)] of code that has no caller."""
    out = []
    text = subprocess.run(["readelf", "-wf", path], capture_output=True, text=True).stdout
    fde = None
    for line in text.splitlines():
        m = re.search(r" FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)", line)
        if m:
            fde = (int(m.group(1), 16), int(m.group(2), 16))
        elif " CIE" in line:
            fde = None
        elif fde and re.search(r"DW_CFA_undefined: r(16|30)\b", line):
            out.append(fde)
            fde = None
    symtab = subprocess.run(["nm", "-DS", "--defined-only", path], capture_output=True,
                            text=True).stdout
    for m in re.finditer(r"^([0-9a-f]+) ([0-9a-f]+) . (?:__)?clone3?\b", symtab, re.M):
        out.append((int(m.group(1), 16), int(m.group(1), 16) + int(m.group(2), 16)))
    return out


@lru_cache(maxsize=None)
def find_file(name, root=""):
    """Returns the path of a mapped file by its name in frames, in the process's root."""
    for d in (PROGRAMS, "/lib/x86_64-linux-gnu", "/lib64", "/lib", "/usr/lib/x86_64-linux-gnu",
              "/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-musl", "/usr/lib/postgresql/*/bin",
              "/usr/lib/gcc/*/*", "/usr/bin", "/usr/sbin"):
        for path in sorted(glob.glob(os.path.join(root + d, glob.escape(name)))):
            if not os.path.isfile(path):
                continue
            with open(path, "rb") as f:
                if f.read(4) == b"\x7fELF":
                    return path
    return None


@lru_cache(maxsize=None)
def resolve(frame):
    """Returns the name of a frame; nm finds the name of a nameless one in the unstripped file."""
    m = ADDRESS.match(frame)
    if not m:
        return plain(frame)
    path = find_file(m.group(1))
    if not path:
        return frame
    address = int(m.group(2), 16)
    for start, end, name in symbols(twin(path)) if path.startswith(PROGRAMS) else musl_symbols(path):
        if start <= address < end:
            return plain(name)
    return frame


@lru_cache(maxsize=None)
def is_entry(frame, root=""):
    """Tells whether this frame may be the root of a stack."""
    if (frame if root else resolve(frame)) in ENTRIES:
        return True
    m = ADDRESS.match(frame)
    path = m and find_file(m.group(1), root)
    if not path:
        return False
    address = int(m.group(2), 16)
    if entry_point(path) <= address < entry_point(path) + 64:
        return True
    return any(start <= address < end for start, end in entry_ranges(path))


class Truth:
    """The chains and notes that processes of the program COMM wrote to the folder."""

    def __init__(self, folder, comm, inlined=True):
        self.comm = comm # inlined: whether the samples name inlined functions
        self.chains, self.names, self.notes = set(), set(), Counter()
        files = glob.glob(os.path.join(folder, glob.escape(comm) + ".*"))
        assert files, f"{comm} wrote no account of itself"
        for path in files:
            nodes = {0: ()}
            with open(path, encoding="utf-8") as f:
                for line in f:
                    a, b, name = line.rstrip("\n").split(" ", 2)
                    if a == "#":
                        self.notes[b] += int(name)
                        continue
                    if name.startswith("~"):
                        if not inlined:
                            nodes[int(a)] = nodes[int(b)]
                            continue
                        name = name[1:]
                    nodes[int(a)] = (*nodes[int(b)], name)
                    self.names.add(name)
            self.chains.update(nodes.values())
        self.after_timer = {c[i:] for c in self.chains for i, n in enumerate(c)
                            if n == "on_timer"}
        self.callbacks = CALLBACKS.get(comm.rpartition("-")[0])

    def own(self, frames):
        """Returns the program's own functions among the frames, root first."""
        return tuple(n for n in map(self._name, frames) if n in self.names)

    def _name(self, frame):
        name = resolve(frame)
        if name in self.names:
            return name
        for n in self.names: # a trait method of Rust: `<rusty::Square as …>::work`
            if " as " in n and name.endswith(n):
                return n
        return name

    def _is_chain(self, chain):
        if chain in self.chains:
            return True
        # A timer may strike between a function's entry and its TRUTH(), once in thousands of times. Then the
        # frames before the handler are a chain, and those from the handler on are the end of another.
        cut = max((i for i, n in enumerate(chain) if n == "on_timer"), default=0)
        return cut > 0 and self._is_chain(chain[:cut]) and chain[cut:] in self.after_timer

    def fault(self, stack):
        """Returns what is wrong with a stack, or None."""
        if stack.note:
            return stack.note
        if not stack.frames:
            if any(NO_USER_STACK.match(k) for k in stack.kernel):
                return None
            return "no user stack"
        # A new thread that has not left the kernel yet is in clone, which has no name in some libcs.
        newborn = len(stack.frames) == 1 and any(k.startswith("ret_from_fork") for k in stack.kernel)
        if not newborn and not is_entry(stack.frames[0]):
            return f"begins at {stack.frames[0]}"
        names = [self._name(f) for f in stack.frames]
        own = [i for i, n in enumerate(names) if n in self.names]
        chain = tuple(names[i] for i in own)
        if not self._is_chain(chain):
            return "no such chain: " + ";".join(shorten(chain))
        if own:
            for n in names[own[0]:own[-1]]:
                if n not in self.names and not (self.callbacks and self.callbacks.match(n)):
                    return f"a frame that is not there: {n}"
        return None


def shorten(chain):
    """Shortens a chain for people, by its middle."""
    chain = list(chain)
    return chain if len(chain) < 14 else [*chain[:5], f"…{len(chain) - 10}…", *chain[-5:]]


class Verdict:
    """Counts over the stacks of one program."""

    def __init__(self, truth, stacks):
        self.faults = Counter()
        self.samples = self.right = self.bare = 0
        self.leaves = Counter()
        self.examples = {}
        for s in stacks:
            self.samples += s.count
            why = truth.fault(s)
            if why:
                self.faults[why] += s.count
                self.examples.setdefault(why, s)
                continue
            self.right += s.count
            if not s.frames:
                self.bare += s.count
            own = truth.own(s.frames)
            if own:
                self.leaves[own[-1]] += s.count

    @property
    def wrong(self):
        return self.samples - self.right

    @property
    def cut(self):
        """Returns how many of the wrong stacks are marked as incomplete."""
        return sum(n for why, n in self.faults.items() if why.startswith("[truncated"))

    def __str__(self):
        share = 100 * self.right / self.samples if self.samples else 0
        text = f"{self.samples} samples, {share:.2f} % complete and right"
        if self.bare:
            text += f", {self.bare} in exec or exit"
        for why, n in self.faults.most_common(5):
            s = self.examples[why]
            text += f"\n    {n} × {why}: {';'.join(shorten(s.frames))}"
            if s.kernel:
                text += f" (kernel: {';'.join(s.kernel[-3:])})"
        return text


def main():
    program = os.path.abspath(sys.argv[1])
    os.makedirs("/tmp/truth-out", exist_ok=True)
    comm = os.path.basename(program)
    for f in glob.glob(f"/tmp/truth-out/{glob.escape(comm)}.*"):
        os.unlink(f)
    data = "/tmp/truth-out/perf.data"
    subprocess.run(["perf", "record", "-q", "-F", "999", "-e", "cpu-clock", "--call-graph",
                    "dwarf,32768", "-o", data, program, *(sys.argv[2:] or ["300"])],
                   env={**os.environ, "TRUTH_OUT": "/tmp/truth-out"}, check=True)
    text = subprocess.run(["perf", "script", "-i", data, "-F", "comm,ip,sym,dso", "--no-inline", "--max-stack",
                           "1024"], capture_output=True, text=True).stdout
    print(comm, Verdict(Truth("/tmp/truth-out", comm, inlined=False), parse_perf_script(text)))


if __name__ == "__main__":
    main()
