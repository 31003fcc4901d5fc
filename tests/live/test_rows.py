# SPDX-License-Identifier: Apache-2.0
"""Compares every row of the unwind tables with `readelf -wF`, an independent reader of the same bytes.

Where readelf has no function, culprit may have rows only of code that it knows without CFI: PLTs, the entry point,
signal trampolines, Go.
"""

import glob
import os
import shutil
import subprocess

import pytest

import readelf_rows

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FILES = {
    "libc": "/lib/*-linux-gnu/libc.so.6",
    "ld.so": "/lib/*-linux-gnu/ld-linux-*.so.*",
    "libstdc++": "/usr/lib/*-linux-gnu/libstdc++.so.6",
    "libcrypto": "/usr/lib/*-linux-gnu/libcrypto.so.3",
    "libm": "/lib/*-linux-gnu/libm.so.6",
    "bash": "/bin/bash",
    "git": "/usr/bin/git",
    "python": "/usr/bin/python3.[0-9]*[0-9]",
    "perl": "/usr/bin/perl",
    # All code of Debian's node is in a library.
    "node": "/usr/lib/*-linux-gnu/libnode.so.*|/usr/bin/node",
    "postgres": "/usr/lib/postgresql/*/bin/postgres",
    "libjvm": "/usr/lib/jvm/*/lib/server/libjvm.so",
    # clang's _start has a CIE of its own, at the end.
    "clang": "/usr/lib/llvm-*/bin/clang",
}


@pytest.fixture(scope="session")
def dump_rows():
    build = os.path.dirname(os.path.dirname(os.environ.get("CULPRIT", f"{TOP}/build/cli/culprit")))
    path = f"{build}/tests/tools/dump-rows"
    assert os.access(path, os.X_OK), f"{path} is not there: make"
    return path


def check(dump_rows, path, sections=(".eh_frame",), more=(),
          extra_allowed=("stop", "plt", "r7+")):
    ours, said = readelf_rows.dump(dump_rows, path, *more)
    theirs = readelf_rows.Reader(more[0] if more else path).rows(sections)
    assert theirs, f"readelf finds no rows in {path}"
    good, bad, extra = readelf_rows.compare(ours, theirs)
    print(f"{path}: {said}; {good} agree, {len(bad)} do not, {len(extra)} beyond CFI")
    assert not bad, f"{len(bad)} rows differ, first: {[(hex(b[0]), *b[1:]) for b in bad[:5]]}"
    odd = [(hex(pc), row) for pc, row in extra if not row[0].startswith(tuple(extra_allowed))]
    assert not odd, f"rows where there is no CFI: {odd[:5]}"
    return ours, good


@pytest.mark.parametrize("name", FILES)
def test_every_row_is_what_readelf_says(dump_rows, name):
    paths = [p for pattern in FILES[name].split("|") for p in sorted(glob.glob(pattern))]
    if not paths:
        pytest.skip(f"{FILES[name]} is not on this machine")
    ours, good = check(dump_rows, os.path.realpath(paths[0]))
    assert good > 100
    said = sum(row[0] == "unsupported" for _, row in ours)
    print(f"{name}: {said} rows unsupported")
    assert said <= good / 100


@pytest.mark.parametrize("name", ["libc", "ld.so", "libstdc++", "python", "libjvm", "clang"])
def test_code_has_no_say_where_cfi_has(dump_rows, name):
    """Rows that are derived from code in gaps of CFI do not change the rows from CFI."""
    paths = sorted(glob.glob(FILES[name]))
    if not paths:
        pytest.skip(f"{FILES[name]} is not on this machine")
    path = os.path.realpath(paths[0])
    plain, _ = readelf_rows.dump(dump_rows, path)
    code, _ = readelf_rows.dump(dump_rows, "-c", path)
    pcs = [pc for pc, _ in code]
    wrong = [(hex(pc), row, readelf_rows.at(code, pcs, pc)) for pc, row in plain
             if row[0] != "none" and readelf_rows.at(code, pcs, pc) != row]
    assert not wrong, f"{len(wrong)} of {len(plain)} rows, first: {wrong[:5]}"


def test_every_row_of_the_vdso(dump_rows, tmp_path):
    with open("/proc/self/maps") as f:
        span = next((line.split()[0] for line in f if line.rstrip().endswith("[vdso]")), None)
    if not span:
        pytest.skip("no vDSO")
    start, end = (int(n, 16) for n in span.split("-"))
    with open("/proc/self/mem", "rb") as f:
        f.seek(start)
        image = f.read(end - start)
    path = tmp_path / "vdso.so"
    path.write_bytes(image)
    _, good = check(dump_rows, str(path), extra_allowed=("signal",))
    assert good > 10


GO_PROGRAM = """package main

import (
	"fmt"
	"os"
	"sort"
)

func main() {
	sort.Strings(os.Args)
	fmt.Println(os.Args, len(os.Environ()))
}
"""
# Places where culprit's rows say more than Go's tables: switches of stacks (r1 is rdx, in which asmcgocall keeps its
# own sp for some instructions; r12 has vfork's return address), and entries of threads.
GO_SPECIAL = ("fpchain", "stop", "signal", "unsupported", "go")


def go_build(tmp_path, **env):
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not os.access(go, os.X_OK):
        pytest.skip("no Go compiler")
    (tmp_path / "main.go").write_text(GO_PROGRAM)
    out = tmp_path / "program"
    subprocess.run([go, "build", "-o", out, "main.go"], cwd=tmp_path, check=True,
                   env=os.environ | {"GO111MODULE": "off", "CGO_ENABLED": "0"} | env)
    return str(out)


@pytest.mark.parametrize("env", [{}, {"GOFLAGS": "-buildmode=pie"}, {"GOARCH": "arm64"}],
                         ids=["exe", "pie", "arm64"])
def test_go_rows_agree_with_the_dwarf_that_the_linker_wrote(dump_rows, tmp_path, env):
    """Compares .gopclntab with .debug_frame. Both have the CFA; .debug_frame has no saved registers."""
    path = go_build(tmp_path, **env)
    ours, said = readelf_rows.dump(dump_rows, path)
    theirs = readelf_rows.Reader(path).rows((".debug_frame",))
    our_pcs, their_pcs = [pc for pc, _ in ours], [pc for pc, _ in theirs]
    good, special, padding, bad = 0, 0, 0, []
    for pc in sorted(set(our_pcs) | set(their_pcs)):
        a, b = readelf_rows.at(ours, our_pcs, pc), readelf_rows.at(theirs, their_pcs, pc)
        if b is None:
            continue
        if (a[0], a[2]) in {(cfa, ra) for cfa, _, ra in b}:
            good += 1
        elif a[0] == "none":
            padding += 1
        # DWARF ends the stack in sigtramp; culprit continues with the interrupted code.
        elif a[0].startswith((*GO_SPECIAL, "r29", "r1+")) or a[2] == "r12" or ("stop", "-", "-") in b:
            special += 1
        else:
            bad.append((hex(pc), a, b))
    print(f"{env}: {said}; {good} agree, {len(bad)} do not, {special} special, {padding} padding")
    assert not bad, bad[:5]
    assert good > 5000 and special < 100


def test_go_rows_need_no_section_headers_and_no_symbols(dump_rows, tmp_path):
    path = go_build(tmp_path)
    whole, _ = readelf_rows.dump(dump_rows, path)
    bare = path + ".bare"
    with open(path, "rb") as f:
        image = bytearray(f.read())
    image[0x28:0x30] = bytes(8)  # e_shoff
    image[0x3c:0x40] = bytes(4)  # e_shnum, e_shstrndx
    with open(bare, "wb") as f:
        f.write(image)
    rows, said = readelf_rows.dump(dump_rows, bare)
    assert ".gopclntab" in said
    assert rows == whole


ARM64_FILES = {
    "libc6": "lib/aarch64-linux-gnu/libc.so.6",
    "libstdc++6": "usr/lib/aarch64-linux-gnu/libstdc++.so.6",
    "libssl3": "usr/lib/aarch64-linux-gnu/libcrypto.so.3",
    "bash": "usr/bin/bash",
}


@pytest.fixture(scope="session")
def arm64_root(tmp_path_factory):
    """Downloads and unpacks Debian's arm64 packages, without a change to the system's packages."""
    if shutil.which("apt-get") is None:
        pytest.skip("no apt-get")
    top = tmp_path_factory.mktemp("arm64")
    for name in ("state/lists/partial", "cache/archives/partial", "root"):
        (top / name).mkdir(parents=True)
    (top / "status").touch()
    options = ["APT::Architecture=arm64", "APT::Architectures=arm64", f"Dir::State={top}/state",
               f"Dir::State::status={top}/status", f"Dir::Cache={top}/cache"]
    apt = ["apt-get", "-q"] + [word for o in options for word in ("-o", o)]
    try:
        subprocess.run([*apt, "update"], check=True, capture_output=True, timeout=120)
        subprocess.run([*apt, "download", *ARM64_FILES], check=True, capture_output=True,
                       timeout=120, cwd=top)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as e:
        pytest.skip(f"Debian's arm64 packages cannot be had: {e}")
    for deb in top.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", deb, top / "root"], check=True)
    return top / "root"


@pytest.mark.parametrize("package", ARM64_FILES)
def test_every_row_of_arm64_files(dump_rows, arm64_root, package):
    path = arm64_root / ARM64_FILES[package]
    if not path.exists():
        path = arm64_root / ARM64_FILES[package].removeprefix("usr/")
    ours, good = check(dump_rows, str(path), extra_allowed=("stop", "signal", "r31+"))
    assert good > 1000
    assert sum(row[0] == "unsupported" for _, row in ours) <= good / 1000


C_PROGRAM = """
#include <stdio.h>
#include <string.h>
struct big { char text[600]; };
__attribute__((noinline)) static int deep(int n, struct big b)
{
	char room[n + 1];
	memset(room, n, sizeof(room));
	return n ? deep(n - 1, b) + room[n / 2] : (int)strlen(b.text);
}
int main(int argc, char **argv)
{
	struct big b = {"x"};
	printf("%d %s\\n", deep(argc + 5, b), argv[0]);
	return 0;
}
"""


def compile_c(tmp_path, *args, name="program", compiler="gcc", source=C_PROGRAM):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    (tmp_path / "program.c").write_text(source)
    out = tmp_path / name
    r = subprocess.run([compiler, tmp_path / "program.c", "-O2", "-o", out, *args],
                       capture_output=True, text=True)
    if r.returncode:
        pytest.skip(f"{compiler} {' '.join(args)}: {r.stderr.splitlines()[:1]}")
    return str(out)


DEBUG_FRAME_ONLY = ("-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables")


@pytest.mark.parametrize("args", [(), ("-gdwarf-4",), ("-gdwarf64",), ("-gz=zlib",)],
                         ids=["dwarf5", "dwarf4", "dwarf64", "zlib"])
def test_debug_frame_where_the_program_has_no_eh_frame(dump_rows, tmp_path, args):
    path = compile_c(tmp_path, *DEBUG_FRAME_ONLY, *args)
    assert "debug_frame" in subprocess.run(["readelf", "-SW", path], capture_output=True,
                                           text=True).stdout
    ours, good = check(dump_rows, path, (".eh_frame", ".debug_frame"))
    main = int(next(l.split()[0] for l in subprocess.run(
        ["nm", path], capture_output=True, text=True).stdout.splitlines() if l.endswith(" T main")), 16)
    row = readelf_rows.at(ours, [pc for pc, _ in ours], main)
    assert row[0] == "r7+8" or row[0] == "r31+0", row


def test_debug_frame_compressed_the_old_way(dump_rows, tmp_path):
    """culprit reads .zdebug_frame, which readelf does not."""
    path = compile_c(tmp_path, *DEBUG_FRAME_ONLY)
    old = compile_c(tmp_path, *DEBUG_FRAME_ONLY, "-Wl,--compress-debug-sections=zlib-gnu", name="old")
    assert ".zdebug_frame" in readelf_rows.tool("readelf", "-SW", old)
    assert readelf_rows.dump(dump_rows, old)[0] == readelf_rows.dump(dump_rows, path)[0]


def test_debug_frame_of_a_separate_file(dump_rows, tmp_path):
    path = compile_c(tmp_path, *DEBUG_FRAME_ONLY)
    debug, stripped = path + ".debug", path + ".stripped"
    subprocess.run(["objcopy", "--only-keep-debug", path, debug], check=True)
    subprocess.run(["strip", "-o", stripped, path], check=True)
    whole, _ = readelf_rows.dump(dump_rows, path)
    alone, _ = readelf_rows.dump(dump_rows, stripped)
    both, _ = readelf_rows.dump(dump_rows, stripped, debug)
    assert both == whole
    assert alone != whole


def test_programs_without_section_headers_have_the_same_rows(dump_rows, tmp_path):
    path = compile_c(tmp_path, "-Wl,-z,now")
    with open(path, "rb") as f:
        image = bytearray(f.read())
    image[0x28:0x30] = bytes(8)
    image[0x3c:0x40] = bytes(4)
    with open(path + ".bare", "wb") as f:
        f.write(image)
    whole, _ = readelf_rows.dump(dump_rows, path)
    bare, said = readelf_rows.dump(dump_rows, path + ".bare")
    assert ".eh_frame_hdr" in said or ".eh_frame" in said
    assert bare == whole


def function_rows(ours, path, name):
    line = next(l.split() for l in subprocess.run(["nm", "-S", path], capture_output=True, text=True)
                .stdout.splitlines() if l.endswith(" " + name))
    lo, pcs = int(line[0], 16), [pc for pc, _ in ours]
    hi = lo + (int(line[1], 16) if len(line) == 4 else 1)
    return lo, [readelf_rows.at(ours, pcs, lo)] + [row for pc, row in ours if lo < pc < hi]


MUSL_PROGRAM = """
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
static void on_signal(int n) { (void)n; }
static void *thread(void *p) { raise(SIGUSR1); return p; }
int main(void)
{
	pthread_t t;
	signal(SIGUSR1, on_signal);
	if (pthread_create(&t, 0, thread, 0) || pthread_cancel(t))
		return 1;
	return pthread_join(t, 0);
}
"""


def test_musl_without_cfi_has_its_entries_and_trampolines(dump_rows, tmp_path):
    path = compile_c(tmp_path, "-static", compiler="musl-gcc", source=MUSL_PROGRAM)
    ours, _ = readelf_rows.dump(dump_rows, path)
    pcs = [pc for pc, _ in ours]
    start, rows = function_rows(ours, path, "_start")
    assert [row[0] for row in rows] == ["stop"]
    restore, rows = function_rows(ours, path, "__restore_rt")
    assert rows[0][0] == "signal+0"
    assert readelf_rows.at(ours, pcs, restore - 1)[0] == "signal+0"
    # The only call in __clone is the child's call of the thread's function.
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True,
                          text=True).stdout
    body = code[code.index("<__clone>:"):].split("\n\n")[0].splitlines()
    call = next(i for i, line in enumerate(body) if "call" in line.split())
    after = int(body[call + 1].split(":")[0], 16)
    assert readelf_rows.at(ours, pcs, after - 1)[0] == "stop"
    # Threads wait in these functions, which have pushed nothing at the system call.
    for name in ("__clone", "__syscall_cp_asm"):
        body = code[code.index(f"<{name}>:"):].split("\n\n")[0].splitlines()
        syscall = next(int(line.split(":")[0], 16) for line in body if line.endswith("syscall"))
        assert readelf_rows.at(ours, pcs, syscall + 1) == ("r7+8", "s", "c-8"), name


def test_plt_of_lld(dump_rows, tmp_path):
    """lld writes no CFI for PLTs. GNU ld does, and culprit's rows of lld's PLTs must be of the same form."""
    ours, _ = readelf_rows.dump(dump_rows, compile_c(tmp_path, "-fuse-ld=lld", compiler="clang"))
    assert {"plt+8/11", "r7+16", "r7+24"} <= {row[0] for _, row in ours}
