# SPDX-License-Identifier: Apache-2.0
"""Names, lines and inline chains against llvm-symbolizer, addr2line, Go's own runtime and nm.

The tests build each binary and look up addresses that are spread over all its functions. symbol_peers.py says which
differences count.
"""

import collections
import os
import random
import re
import shutil
import struct
import subprocess
import zlib

import pytest

from symbol_peers import CLONE, DUMP, clean, compare, functions, llvm, need, ours, sample, sh

GO = shutil.which("go") or "/usr/local/go/bin/go"
RUSTC = shutil.which("rustc") or "/root/.cargo/bin/rustc"

CXX = r"""
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>
namespace outer { inline namespace v1 {
template <class T, int N> struct Ring {
	T items[N]; int at = 0;
	void push(T v) { items[at++ % N] = v; }
	T sum() const { T s{}; for (auto &i : items) s += i; return s; }
	static int twice(int x) { return x * 2; }
};
struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
struct Square : Shape { double a; explicit Square(double v) : a(v) {} double area() const override { return a * a; } };
static int hidden(const std::vector<int> &v) { int s = 0; for (auto x : v) s += x; return s; }
} }
namespace {
__attribute__((noinline)) int anonymous(int a)
{
	std::map<int, std::string> m;
	for (int i = 0; i < a; i++)
		m[i % 7] += "x";
	int t = 0;
	for (auto &p : m)
		t += (int)p.second.size();
	return t;
}
}
extern "C" __attribute__((noinline)) int c_function(int a, int b) { return a * 31 + b; }
__attribute__((noinline)) int sorter(int n)
{
	std::vector<int> v;
	for (int i = 0; i < n; i++)
		v.push_back((i * 7919) % n);
	std::sort(v.begin(), v.end(), [](int a, int b) { return a > b; });
	std::function<int(int)> f = [&](int x) { return x + (int)v.size(); };
	outer::Ring<long, 8> r;
	for (auto x : v)
		r.push(f(x));
	return (int)r.sum() + outer::Ring<int, 3>::twice(v[1]) + outer::hidden(v);
}
int main(int argc, char **argv)
{
	std::unique_ptr<outer::Shape> s = std::make_unique<outer::Square>(argc);
	printf("%d %d %f %d\n", sorter(100 * argc), anonymous(50), s->area(), c_function(argc, 3));
}
"""
CXX2 = r"""
#include <string>
#include <vector>
struct Late { std::vector<std::string> names; Late(int n) { for (int i = 0; i < n; i++) names.push_back(std::to_string(i)); } };
int late(int n) { Late l(n); std::string all; for (auto &s : l.names) all += s; return (int)all.size(); }
static inline __attribute__((always_inline)) int deep0(int x) { return x * x + 1; }
static inline __attribute__((always_inline)) int deep1(int x) { return deep0(x + 1) ^ deep0(x + 2); }
static inline __attribute__((always_inline)) int deep2(int x) { return deep1(x + 1) ^ deep1(x + 2); }
int deep(int n) { int t = 0; for (int i = 0; i < n; i++) t += deep2(i); return t; }
"""
C = r"""
#include <stdio.h>
#include <stdlib.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static inline int clamp(int x) { return x < 0 ? 0 : x > 255 ? 255 : x; }
static __attribute__((noinline)) int fill(int *v, int n)
{
	int nested(int k) { return n + k; }
	for (int i = 0; i < n; i++)
		v[i] = clamp(i * 77 % 300 - 20) + nested(i);
	return v[n / 2];
}
int main(int argc, char **argv)
{
	int v[100], r;
	r = fill(v, 100);
	if (argc > 50)
		abort();
	qsort(v, 100, sizeof(v[0]), compare);
	printf("%d %d\n", v[0], r);
}
"""
RUST = r"""
use std::collections::HashMap;
mod inner {
    pub trait Weight { fn weight(&self) -> u64; }
    pub struct Apple(pub u64);
    impl Weight for Apple { fn weight(&self) -> u64 { self.0 * 3 } }
    #[inline(always)] pub fn total<T: Weight>(v: &[T]) -> u64 { v.iter().map(|x| x.weight()).sum() }
}
#[inline(never)] fn words(text: &str) -> HashMap<String, usize> {
    let mut m = HashMap::new();
    for w in text.split_whitespace() { *m.entry(w.to_string()).or_insert(0) += 1; }
    m
}
fn main() {
    let n = std::env::args().count() as u64;
    let v: Vec<inner::Apple> = (0..n * 100).map(inner::Apple).collect();
    println!("{} {}", inner::total(&v), words("a b a c b a").len());
}
"""
GO_MAIN = r"""
package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"sort"
	"strconv"
	"strings"
)

type box[T any] struct{ v []T }

func (b *box[T]) add(x T)  { b.v = append(b.v, x) }
func clamp(x int) int      { if x < 0 { return 0 }; return x }
func twice(x int) int      { return clamp(x) * 2 }

//go:noinline
func work(n int) int {
	b := &box[int]{}
	for i := 0; i < n; i++ {
		b.add(twice(i - 3))
	}
	sort.Slice(b.v, func(i, j int) bool { return b.v[i] > b.v[j] })
	return b.v[0]
}

// Prints what the runtime itself says of the addresses on standard input: the innermost frame.
func main() {
	var bias uint64
	if work(len(os.Args)*10) < 0 {
		return
	}
	if len(os.Args) > 1 {
		svma, _ := strconv.ParseUint(os.Args[1], 16, 64)
		bias = uint64(reflect.ValueOf(work).Pointer()) - svma
	}
	in := bufio.NewScanner(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		a, _ := strconv.ParseUint(strings.TrimSpace(in.Text()), 16, 64)
		f, _ := runtime.CallersFrames([]uintptr{uintptr(a + bias + 1)}).Next()
		fmt.Fprintf(out, "%s\t%s\t%d\n", f.Function, f.File, f.Line)
	}
}
"""

@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    d = tmp_path_factory.mktemp("symbols")
    for name, text in (("one.cc", CXX), ("two.cc", CXX2), ("one.c", C), ("one.rs", RUST)):
        (d / name).write_text(text)
    return d


def build_cxx(d, name, compiler, *flags):
    need(compiler)
    out = d / name
    out.mkdir()
    for source in ("one.cc", "two.cc"):
        sh(compiler, "-O2", *flags, "-c", f"../{source}", "-o", f"{source}.o", cwd=out)
    sh(compiler, "-O2", *flags, "one.cc.o", "two.cc.o", "-o", "prog", "-Wl,--build-id", cwd=out)
    return out / "prog"


VARIANTS = {
    "gcc-dwarf5": ("g++", "-g"),
    "gcc-dwarf4": ("g++", "-gdwarf-4"),
    "gcc-dwarf5-64": ("g++", "-g", "-gdwarf64"),
    "gcc-O0": ("g++", "-g", "-O0"),
    "gcc-sections": ("g++", "-g", "-ffunction-sections", "-Wl,--gc-sections"),
    "gcc-types": ("g++", "-g", "-fdebug-types-section"),
    "gcc-gz": ("g++", "-g", "-gz"),
    "gcc-lto": ("g++", "-g", "-flto"),
    "gcc-static": ("g++", "-g", "-static"),
    "clang-dwarf5": ("clang++", "-g", "-gdwarf-5"),
    "clang-dwarf4": ("clang++", "-gdwarf-4"),
    "clang-O3": ("clang++", "-g", "-gdwarf-5", "-O3"),
}
SPLIT = {
    "gcc-split5": ("g++", "-g", "-gsplit-dwarf"),
    "gcc-split4": ("g++", "-gdwarf-4", "-gsplit-dwarf"),
    "clang-split5": ("clang++", "-g", "-gdwarf-5", "-gsplit-dwarf"),
    "clang-split4": ("clang++", "-gdwarf-4", "-gsplit-dwarf"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_cxx_is_as_llvm_symbolizer_says(sources, name):
    need("llvm-symbolizer")
    binary = build_cxx(sources, name, *VARIANTS[name])
    deepest = compare(name, binary, source=".debug_info")
    assert deepest >= 3 or "O0" in name


@pytest.mark.parametrize("name", SPLIT)
def test_split_dwarf(sources, name):
    need("llvm-symbolizer")
    binary = build_cxx(sources, name, *SPLIT[name])
    assert compare(name, binary) >= 3
    addresses = sample(binary)
    _, with_dwo = ours(binary, addresses)
    # A .dwp package gives the same, without the .dwo files. llvm-dwp 14 hangs on gcc's DWARF 5.
    packager = "llvm-dwp" if name.startswith("clang") else "dwp" if name == "gcc-split4" else None
    if packager:
        need(packager)
        sh(packager, "-e", binary, "-o", f"{binary}.dwp", cwd=binary.parent)
    for f in binary.parent.glob("*.dwo"):
        f.unlink()
    if packager:
        _, with_dwp = ours(binary, addresses)
        assert with_dwp == with_dwo
        os.unlink(f"{binary}.dwp")
    # Without both there are functions and lines, but no inlined calls, and nothing is invented.
    _, with_none = ours(binary, addresses)
    inlined = 0
    for a in addresses:
        if with_dwo[a]:
            inlined += len(with_dwo[a]) > 1
            assert len(with_none[a]) == 1
            assert with_none[a][0]["line"] == with_dwo[a][0]["line"]
    assert inlined > 50


def test_c(sources):
    need("gcc", "llvm-symbolizer")
    binary = sources / "prog-c"
    sh("gcc", "-O2", "-g", "one.c", "-o", binary, cwd=sources)
    compare("c", binary)


def test_addr2line_agrees_on_demangled_names(sources):
    need("addr2line")
    binary = build_cxx(sources, "a2l", "g++", "-g")
    addresses = sample(binary)
    _, mine = ours(binary, addresses)
    out = subprocess.run(["addr2line", "-a", "-i", "-f", "-C", "-e", binary], capture_output=True, text=True,
                         input="".join(f"{a:x}\n" for a in addresses), timeout=300).stdout.splitlines()
    theirs, i = {}, 0
    while i < len(out):
        if re.fullmatch("0x[0-9a-f]+", out[i]):
            chain = theirs[int(out[i], 16)] = []
            i += 1
            continue
        chain.append((re.sub(r" \[clone [^]]*\]", "", CLONE.sub("", out[i])),
                      re.sub(r" \(discriminator \d+\)|\?", "", out[i + 1]).rsplit(":", 1)))
        i += 2
    equal = unqualified = enclosing = 0
    for a in addresses:
        if not mine[a] or mine[a][0]["name"].endswith("@plt"):
            continue
        assert len(mine[a]) == len(theirs[a]), hex(a)
        for m, (name, (_, line)) in zip(mine[a], theirs[a]):
            assert m["line"] == int(line or 0), (hex(a), m, line)
            if m["name"] == name:
                equal += 1
            else:
                # Without a linkage name binutils prints DW_AT_name alone, or the name of the symbol
                # into which the code was inlined.
                identifier = name.split("<")[0].split("(")[0]
                if identifier in m["name"]:
                    unqualified += 1
                else:
                    outer = [x["name"] for x in mine[a]]
                    assert not m["system"].startswith("_Z") and name in outer, (hex(a), m, name, outer)
                    enclosing += 1
    print(f"addr2line: {equal} frames equal, {unqualified} by the last part of the name, "
          f"{enclosing} by that of the symbol around it")
    assert equal > 10 * unqualified and equal > 40 * enclosing


def test_stripped_with_debug_file_by_link_and_by_build_id(sources, tmp_path):
    need("llvm-symbolizer", "objcopy")
    full = build_cxx(sources, "strip", "g++", "-g")
    addresses = sample(full)
    _, want = ours(full, addresses)
    root = tmp_path / "root"
    (root / "opt").mkdir(parents=True)
    stripped = root / "opt/prog"
    debug = root / "opt/prog.debug"
    sh("objcopy", "--only-keep-debug", full, debug)
    sh("objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", full, stripped)
    options = ("-r", root, "-p", "/opt/prog")
    places = ["opt/prog.debug", "opt/.debug/prog.debug", "usr/lib/debug/opt/prog.debug"]
    note = sh("readelf", "-n", full)
    build_id = re.search(r"Build ID: ([0-9a-f]+)", note)[1]
    places.append(f"usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug")
    for place in places:
        target = root / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if target != debug:
            shutil.move(debug, target)
            debug = target
        where, got = ours(stripped, addresses, *options)
        assert where == "debug file", place
        assert got == want, place
    # A symbolic link that leads out of the root is followed inside the root.
    secret = tmp_path / "outside.debug"
    shutil.move(debug, secret)
    (root / "opt/prog.debug").symlink_to(f"../../../../../{secret}")
    assert ours(stripped, addresses, *options)[0] == ".dynsym"
    (root / "opt/prog.debug").unlink()
    # The debug file of another build is used in no place.
    other = build_cxx(sources, "strip-other", "g++", "-g", "-DOTHER", "-O1")
    for place in places:
        target = root / place
        sh("objcopy", "--only-keep-debug", other, target)
        where, got = ours(stripped, addresses, *options)
        assert where == ".dynsym", place
        assert not any(f["line"] for c in got.values() for f in c)
        target.unlink()
    # A fifo instead of a debug file must not block.
    os.mkfifo(root / "opt/prog.debug")
    assert ours(stripped, addresses[:3], *options)[0] == ".dynsym"


def test_debuglink_without_build_id_needs_the_right_crc(sources, tmp_path):
    full = tmp_path / "prog"
    sh("gcc", "-O2", "-g", sources / "one.c", "-o", full, "-Wl,--build-id=none")
    addresses = sample(full)
    _, want = ours(full, addresses)
    sh("objcopy", "--only-keep-debug", full, tmp_path / "prog.debug")
    sh("objcopy", "--strip-all", f"--add-gnu-debuglink={tmp_path}/prog.debug", full, tmp_path / "stripped")
    where, got = ours(tmp_path / "stripped", addresses)
    assert (where, got) == ("debug file", want)
    with open(tmp_path / "prog.debug", "ab") as f:
        f.write(b"\0")
    assert ours(tmp_path / "stripped", addresses)[0] == ".dynsym"
    assert zlib.crc32((tmp_path / "prog.debug").read_bytes())


def test_minidebuginfo(sources, tmp_path):
    need("xz", "objcopy")
    full = build_cxx(sources, "mini", "g++")
    stripped, mini = tmp_path / "prog", tmp_path / "mini"
    addresses = sample(full)
    sh("objcopy", "--only-keep-debug", full, mini)
    (tmp_path / "keep").write_text("".join(f"{n}\n" for _, _, n in functions(full)))
    sh("objcopy", "-S", f"--keep-symbols={tmp_path}/keep", mini)
    sh("xz", "--keep", mini)
    sh("strip", "--strip-all", full, "-o", stripped)
    sh("objcopy", f"--add-section=.gnu_debugdata={mini}.xz", stripped)
    where, got = ours(stripped, addresses)
    assert where == ".gnu_debugdata"
    _, want = ours(full, addresses)
    different = [hex(a) for a in addresses if [f["name"] for f in got[a]] != [f["name"] for f in want[a]]]
    assert not different, different[:5]


def test_dwz(sources, tmp_path):
    need("dwz", "llvm-symbolizer")
    full = build_cxx(sources, "dwz", "g++", "-gdwarf-4")
    addresses = sample(full)
    _, want = ours(full, addresses)
    a, b, common = tmp_path / "a", tmp_path / "b", tmp_path / "common"
    shutil.copy(full, a)
    shutil.copy(full, b)
    sh("dwz", "-m", common, a, b)
    assert b".gnu_debugaltlink" in a.read_bytes()
    _, got = ours(a, addresses)
    assert got == want
    # Without the common file its names are unknown, and no other names replace them.
    common.unlink()
    _, without = ours(a, addresses)
    for x in addresses:
        for f in without[x]:
            assert f["name"] == "[inlined]" or any(f["name"] == w["name"] for w in want[x]) or \
                f["system"] in {n for _, _, n in functions(full)}, (hex(x), f, want[x])


def test_rust(sources):
    need(RUSTC, "llvm-symbolizer")
    for name, flags in {"legacy": ["-O"], "v0": ["-O", "-C", "symbol-mangling-version=v0"],
                        "o3": ["-C", "opt-level=3"]}.items():
        binary = sources / f"prog-rust-{name}"
        sh(RUSTC, "-g", *flags, "one.rs", "-o", binary, cwd=sources)
        assert compare(f"rust-{name}", binary, addresses=sample(binary, 1500)) >= 4
        _, chains = ours(binary, sample(binary, 3000))
        names = {f["name"] for c in chains.values() for f in c}
        assert any("words" in n for n in names)
        mangled = [n for n in names if re.match("_ZN|_R", n)]
        assert not mangled, mangled


def build_go(d, *flags, toolchain=None, env=None):
    go = toolchain if toolchain and toolchain.startswith("/") else GO
    need(go)
    d.mkdir(exist_ok=True)
    (d / "main.go").write_text(GO_MAIN)
    (d / "go.mod").write_text("module m\n\ngo 1.19\n")
    e = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local" if go == toolchain else toolchain or "local", "CGO_ENABLED": "0",
         **(env or {})}
    r = subprocess.run([go, "version"], cwd=d, env=e, capture_output=True, text=True, timeout=300)
    if r.returncode:
        pytest.skip(f"{toolchain} cannot be had: {r.stderr[-200:]}")
    r = subprocess.run([go, "build", *flags, "-o", "prog", "."], cwd=d, env=e, capture_output=True, text=True,
                       timeout=600)
    assert r.returncode == 0, r.stderr
    return d / "prog"


GO_VARIANTS = {
    "plain": ([], None),
    "pie": (["-buildmode=pie"], None),
    "noinline": (["-gcflags=all=-l"], None),
    "go1.19": ([], "/usr/lib/go-1.19/bin/go"),  # Debian's golang-1.19-go
    "go1.22": ([], "go1.22.0"),
    "go1.24": ([], "go1.24.0"),
}


@pytest.mark.parametrize("name", GO_VARIANTS)
def test_go_is_as_its_runtime_says(tmp_path, name):
    flags, toolchain = GO_VARIANTS[name]
    full = build_go(tmp_path / "full", *flags, toolchain=toolchain)
    addresses = sample(full, 4000)
    work = next(s for s, _, n in functions(full) if n == "main.work")
    out = subprocess.run([full, f"{work:x}"], input="".join(f"{a:x}\n" for a in addresses), text=True,
                         capture_output=True, timeout=120)
    assert out.returncode == 0, out.stderr[-500:]
    innermost = dict(zip(addresses, out.stdout.splitlines()))
    chains = llvm(full, addresses)
    starts = {s for s, _, _ in functions(full)}
    stripped = tmp_path / "stripped"
    sh("strip", "--strip-all", full, "-o", stripped)
    bare = tmp_path / "bare" # a file without section headers
    image = bytearray(stripped.read_bytes())
    image[0x28:0x30], image[0x3c:0x40] = bytes(8), bytes(4)
    bare.write_bytes(image)
    for binary in (full, stripped, bare):
        where, mine = ours(binary, addresses)
        assert binary == bare or where == ".gopclntab"
        wrong, deep, wrappers = [], 0, 0
        for a in addresses:
            got = [(f["name"], clean(f["file"]), f["line"]) for f in mine[a]] or [("", "", 0)]
            # The runtime has no name for the function whose name comes first in the table, prints
            # type arguments as [...], and takes an address before an entry for the entry.
            function, file, line = innermost[a].split("\t")
            shown = re.sub(r"\[.*\]", "[...]", got[0][0]) if function else ""
            if got == [("", "", 0)] and ((file, line) == ("?", "0") or a + 1 in starts):
                pass
            elif (shown, got[0][1], str(got[0][2])) != (function, file, line):
                wrong.append(("runtime", hex(a), got, innermost[a]))
            # The compiler's DWARF, independently, has the calls around the innermost frame.
            want = [(f["system"], clean(f["file"]), f["line"]) for f in chains[a]]
            want = [(re.sub(r"\.abi(0|internal)$", "", w[0]), *w[1:]) for w in want]
            got = [(g[0].replace("·", "."), *g[1:]) for g in got]
            # Before 1.20 the linker cut type arguments out of the table.
            want = [(re.sub(r"\[.*\]", "[...]", w[0]) if "[...]" in g[0] else w[0], *w[1:])
                    for w, g in zip(want, got)] if len(want) == len(got) else want
            if got[0][1:] == ("<autogenerated>", 1) and want[0][1:] == ("", 0):
                want[0] = (want[0][0], *got[0][1:])  # the line table leaves the wrapper's line out
            if len(want) == 1 and got[0][1:] == want[0][1:] and got[-1][:2] == (want[0][0], "<autogenerated>"):
                wrappers += 1  # the compiler's DWARF lacks the call in a wrapper
            elif got == want:
                deep += len(got) > 1
            else:
                wrong.append(("DWARF", hex(a), got, want))
        print(f"go {name} {binary.name}: {len(addresses)} addresses, {len(wrong)} wrong, {deep} with inlined calls, "
              f"{wrappers} in wrappers")
        assert not wrong, wrong[:3]
        assert wrappers < len(addresses) / 20
        assert deep > 200 or name == "noinline"


def test_cache_answers_without_the_debug_information(sources, tmp_path):
    full = build_cxx(sources, "cache", "g++", "-g")
    addresses = sample(full)
    cache = tmp_path / "a/cache"
    _, first = ours(full, addresses, "-c", cache)
    files = list(cache.iterdir())
    assert len(files) == 1 and files[0].suffix == ".sym"
    _, second = ours(full, addresses, "-c", cache)
    assert second == first == ours(full, addresses)[1]
    # A run with the cache reads less than the file, so it does not read the debug information.
    opened = subprocess.run(["strace", "-f", "-e", "trace=pread64", DUMP, "-i", "-l", "-c", cache, full, "-"],
                            input="".join(f"{a:x}\n" for a in addresses), text=True, capture_output=True) \
        if shutil.which("strace") else None
    if opened:
        read = sum(int(m) for m in re.findall(r"= (\d+)$", opened.stderr, re.M))
        assert read < os.path.getsize(full)
    # A damaged cache file counts as absent.
    whole = files[0].read_bytes()
    for damaged in (b"", whole[:20], whole[:-1], whole + b"x", b"\0" * len(whole),
                    whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]):
        files[0].write_bytes(damaged)
        assert ours(full, addresses, "-c", cache)[1] == first
        assert files[0].read_bytes()[:7] == b"CULPSYM"
    # Debug symbols that are installed later are used, although the build-id is the same.
    stripped = tmp_path / "prog"
    sh("strip", "--strip-all", full, "-o", stripped)
    _, bare = ours(stripped, addresses, "-c", cache)
    assert not any(f["line"] for c in bare.values() for f in c)
    sh("objcopy", "--only-keep-debug", full, tmp_path / "prog.debug")
    sh("objcopy", f"--add-gnu-debuglink={tmp_path}/prog.debug", stripped)
    assert ours(stripped, addresses, "-c", cache)[1] == first
    # If the folder cannot be written to, only the cache is missing.
    (tmp_path / "file").write_text("x")
    assert ours(full, addresses, "-c", tmp_path / "file/sub")[1] == first


def test_damaged_debug_files_harm_nobody(sources, tmp_path):
    """After random changes in the debug sections (fixed seed), a lookup gives an answer or none, quickly."""
    need("llvm-dwp", "dwz")
    rng = random.Random(7)
    split = build_cxx(sources, "harm-split", "clang++", "-g", "-gdwarf-5", "-gsplit-dwarf")
    packed = build_cxx(sources, "harm-dwp", "clang++", "-gdwarf-4", "-gsplit-dwarf")
    sh("llvm-dwp", "-e", packed, "-o", f"{packed}.dwp", cwd=packed.parent)
    whole = build_cxx(sources, "harm", "g++", "-g")
    shared = build_cxx(sources, "harm-dwz", "g++", "-gdwarf-4")
    shutil.copy(shared, f"{shared}2")
    sh("dwz", "-m", shared.parent / "common", shared, f"{shared}2")
    cases = [(split, next(split.parent.glob("one*.dwo"))), (packed, packed.parent / "prog.dwp"), (whole, whole),
             (shared, shared.parent / "common"), (shared, shared)]
    runs = 0
    for binary, victim in cases:
        original = victim.read_bytes()
        sections = [(int(m[2], 16), int(m[3], 16)) for m in re.finditer(
            r"(\.debug_\S+|\.symtab|\.strtab) +\S+ +[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+)",
            sh("readelf", "-SW", victim)) if int(m[3], 16)]
        starts = [s for s, n, _ in functions(binary)]
        for _ in range(25):
            data = bytearray(original)
            for _ in range(rng.choice([1, 3, 20, 200])):
                at, n = rng.choice(sections)
                data[at + rng.randrange(n)] = rng.choice([0, 0xff, 0x7f, 0x80, rng.randrange(256)])
            victim.write_bytes(data)
            # ours() asserts that the tool exits in time, with status 0 and an answer for each address.
            ours(binary, [rng.choice(starts) + rng.randrange(200) for _ in range(60)])
            runs += 1
        victim.write_bytes(original)
    print(f"damage: {runs} runs")


def test_trim_changes_nothing(sources):
    binary = build_cxx(sources, "trim", "g++", "-g", "-gsplit-dwarf")
    addresses = sample(binary, 60)
    assert ours(binary, addresses, "-t") == ours(binary, addresses)


def test_plt_names(sources):
    binary = build_cxx(sources, "plt", "g++", "-g", "-fcf-protection")
    out = sh("objdump", "-d", "--no-show-raw-insn", "-j", ".plt.sec", "-j", ".plt", binary)
    entries = re.findall(r"^([0-9a-f]+) <(.+)@plt>:", out, re.M)
    assert len(entries) > 5
    _, chains = ours(binary, [int(a, 16) for a, _ in entries])
    for a, name in entries:
        if not name.startswith("*"):
            assert chains[int(a, 16)][0]["system"] == name.split("@")[0] + "@plt"


@pytest.mark.parametrize("path", ["/usr/bin/bash", "/usr/bin/git", "/lib/x86_64-linux-gnu/libc.so.6",
                                  "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/bin/perl"])
def test_exported_names_of_distribution_files(path):
    if not os.path.exists(path):
        pytest.skip(f"no {path}")
    wanted = {}
    for line in sh("nm", "-D", "-S", "--defined-only", path).splitlines():
        m = re.fullmatch(r"([0-9a-f]+) ([0-9a-f]+) ([TWi]) (.+)", line)
        if m:
            wanted.setdefault(int(m[1], 16), set()).add(m[4].split("@")[0])
    addresses = sorted(wanted)[:: max(1, len(wanted) // 800)]
    _, chains = ours(path, addresses)
    other = [a for a in addresses if not chains[a] or chains[a][-1]["name"] not in wanted[a] and
             chains[a][-1]["system"] not in wanted[a]]
    # Debug symbols, if installed, have the function's name in the source.
    told = subprocess.run(["addr2line", "-f", "-i", "-e", path, "-a"], capture_output=True, text=True, timeout=300,
                          input="".join(f"{a:x}\n" for a in other)).stdout.split("0x")[1:] if other else []
    wrong = [(hex(a), chains[a], wanted[a], t) for a, t in zip(other, told)
             if not chains[a] or not {chains[a][-1]["name"], chains[a][-1]["system"]} & set(t.split("\n"))]
    print(f"{path}: {len(addresses)} exported functions, {len(other)} named as in the source, {len(wrong)} wrong")
    assert not wrong, wrong[:3]


def test_kernel_symbols(tmp_path):
    symbols, everything = collections.defaultdict(set), set()
    # Copy /proc/kallsyms, because BPF programs come and go.
    frozen = tmp_path / "kallsyms"
    frozen.write_bytes(open("/proc/kallsyms", "rb").read())
    with open(frozen) as f:
        for line in f:
            address, kind, name, *module = line.split()
            if kind in "AaUu":
                continue
            everything.add(int(address, 16))
            if kind in "tTwW":
                symbols[int(address, 16)].add((name, module[0] if module else "[]"))
    if not any(symbols):
        pytest.skip("kallsyms shows no addresses")
    addresses = sorted(a for a in symbols if a)
    order = sorted(everything)
    following = dict(zip(order, order[1:]))
    ask = {}
    for a in addresses[:: max(1, len(addresses) // 20000)] + addresses[-200:]:
        ask[a] = a
        last = min(following.get(a, a + 1), a + 65536) - 1
        ask[last] = a
    out = subprocess.run([DUMP, "-k", frozen, "-"], input="".join(f"{a:x}\n" for a in ask), text=True,
                         capture_output=True, timeout=120)
    assert out.returncode == 0, out.stderr
    wrong = []
    for line in out.stdout.splitlines():
        a, name, module = line.split()
        if (name, module) not in symbols[ask[int(a, 16)]]:
            wrong.append((line, symbols[ask[int(a, 16)]]))
    print(f"kallsyms: {len(ask)} addresses, {len(wrong)} wrong")
    assert not wrong, wrong[:5]


JS = r"""
function leaf(n) { let t = 0; for (let i = 0; i < n; i++) t += Math.sqrt(i) * 3; return t; }
function outer(n) { let s = 0; for (let k = 0; k < 300; k++) s += leaf(n); return s; }
for (let k = 0; k < 30; k++) outer(2000 + k);
"""


ARM = r"""
extern int ext(int); extern int ext2(int);
static inline int sq(int x) { return x * x + ext(x); }
__attribute__((noinline)) int work(int n) { int t = 0; for (int i = 0; i < n; i++) t += sq(i); return t; }
int f(int x) { return ext2(work(x)) + 1; }
"""


def test_arm64(tmp_path):
    need("aarch64-linux-gnu-gcc", "llvm-symbolizer")
    (tmp_path / "arm.c").write_text(ARM)
    binary = tmp_path / "libarm.so"
    sh("aarch64-linux-gnu-gcc", "-O2", "-g", "-shared", "-nostdlib", "-fPIC", "arm.c", "-o", binary, cwd=tmp_path)
    out = sh("aarch64-linux-gnu-objdump", "-d", binary)
    addresses = [int(a, 16) for a in re.findall(r"^ +([0-9a-f]+):\t", out, re.M)]
    compare("arm64", binary, addresses=addresses)
    plt = dict(re.findall(r"^([0-9a-f]+) <(\w+@plt)>:", out, re.M))
    _, chains = ours(binary, [int(a, 16) for a in plt])
    assert {f"{a:016x}": c[0]["name"] for a, c in chains.items()} == plt and len(plt) == 3


def test_maps_and_dumps_that_node_writes(tmp_path):
    """Compares every piece of code with a reader of the formats in a dozen lines of Python."""
    need("node")
    (tmp_path / "prog.js").write_text(JS)
    node = subprocess.Popen(["node", "--perf-prof", "--perf-basic-prof", "prog.js"], cwd=tmp_path)
    assert node.wait(60) == 0
    perf_map = f"/tmp/perf-{node.pid}.map"
    code = {}
    with open(perf_map, encoding="utf-8", errors="surrogateescape") as f:
        for line in f:
            start, size, name = line.rstrip("\n").split(" ", 2)
            for a in range(int(start, 16), int(start, 16) + int(size, 16), 64):
                code[a] = name.strip()
    dump = (tmp_path / f"jit-{node.pid}.dump").read_bytes()
    at, loaded = 40, {}
    while at + 16 <= len(dump):
        kind, size = struct.unpack_from("<II", dump, at)
        if kind == 0:
            start, length = struct.unpack_from("<QQ", dump, at + 32)
            name = dump[at + 56:dump.index(b"\0", at + 56)].decode(errors="replace")
            for a in range(start, start + length, 64):
                loaded[a] = name
        at += size
    got = {}
    for option, path, asked in (("-m", perf_map, code), ("-j", tmp_path / f"jit-{node.pid}.dump", loaded)):
        out = subprocess.run([DUMP, option, path, "-"], input="".join(f"{a:x}\n" for a in asked), text=True,
                             capture_output=True, errors="replace", timeout=60)
        assert out.returncode == 0, out.stderr
        got[option] = out.stdout.splitlines()
    os.unlink(perf_map)
    wrong = [(line, code[int(line.split(" ")[0], 16)]) for line in got["-m"]
             if line.split(" ", 1)[1] != code[int(line.split(" ")[0], 16)]]
    assert not wrong, wrong[:3]
    names = {}
    for line in got["-j"]:
        if line.startswith("A "):
            address = int(line.split()[1], 16)
        else:
            frame = line[2:].split("\t")
            names[address] = frame[1]
            assert not frame[3] or frame[3].endswith(".js") or frame[3].startswith("node:"), line
    wrong = [(hex(a), names.get(a), loaded[a]) for a in loaded if names.get(a) != loaded[a]]
    print(f"node: {len(code)} addresses of its perf map, {len(loaded)} of its jitdump, {len(wrong)} wrong")
    assert not wrong, wrong[:3]
    assert any("leaf" in n for n in loaded.values())


def test_debuginfod(sources, tmp_path):
    need("debuginfod")
    full = build_cxx(sources, "served", "g++", "-g")
    served = tmp_path / "served"
    served.mkdir()
    sh("objcopy", "--only-keep-debug", full, served / "prog.debug")
    stripped = tmp_path / "prog"
    sh("strip", "--strip-all", full, "-o", stripped)
    addresses = sample(full, 100)
    import socket
    import time
    import urllib.request
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {**os.environ, "DEBUGINFOD_CACHE_PATH": str(tmp_path / "cache"), "DEBUGINFOD_TIMEOUT": "10"}
    server = subprocess.Popen(["debuginfod", "-F", "-d", ":memory:", "-p", str(port), "-R", str(served)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        build_id = re.search(r"Build ID: ([0-9a-f]+)", sh("readelf", "-n", full))[1]
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/buildid/{build_id}/debuginfo", timeout=5).read()
                break
            except OSError:
                time.sleep(0.3)
        where, got = ours(stripped, addresses, "-u", url, env=env)
        assert where == "debug file"
        assert got == ours(full, addresses)[1]
    finally:
        server.terminate()
        server.wait(20)
    # Without a server there is no debug file, and the lookup ends soon.
    env["DEBUGINFOD_CACHE_PATH"] = str(tmp_path / "cache2")
    start = time.monotonic()
    assert ours(stripped, addresses, "-u", url, env=env)[0] == ".dynsym"
    assert time.monotonic() - start < 15
