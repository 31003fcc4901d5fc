# SPDX-License-Identifier: Apache-2.0
"""The installed libculprit-context: header, pkg-config, shared and static library, for C from C99 and C++ from
C++98, glibc and musl. A program of each kind publishes a span and checks what it published."""

import os
import re
import shutil
import subprocess

import pytest

from test_examples import install, pkg_config

PROGRAM = r"""
#include <culprit_context.h>
#include <stdio.h>
#include <string.h>

/* Readers find the variable by its name. The shared library has it, or the program itself. */
#ifdef __cplusplus
extern "C" {
#endif
extern __thread unsigned char *otel_thread_ctx_v1;
#ifdef __cplusplus
}
#endif

int main(void)
{
	const char *names[] = {"service.name"}, *values[] = {"installed"};
	const unsigned char trace[16] = {1, 2, 3}, span[8] = {4, 5, 6};
	char line[512];
	int key, seen = 0;
	FILE *maps;

	if (culprit_context_process(names, values, 1) != 0)
		return 1;
	culprit_context_enter(trace, span, 1);
	key = culprit_context_key("http.route");
	if (key < 0 || culprit_context_attribute(key, "/pay", 4) != 0)
		return 2;
	if (memcmp(otel_thread_ctx_v1, trace, 16) != 0 || memcmp(otel_thread_ctx_v1 + 16, span, 8) != 0 ||
	    otel_thread_ctx_v1[24] != 1 || memcmp(otel_thread_ctx_v1 + 28, "\0\4/pay", 6) != 0)
		return 3;
	maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof(line), maps))
		seen |= strstr(line, "OTEL_CTX") != NULL;
	culprit_context_leave();
	return seen && !otel_thread_ctx_v1 ? 0 : 4;
}
"""


@pytest.fixture(scope="module")
def system(culprit_plain, tmp_path_factory):
    folder = tmp_path_factory.mktemp("system")
    return install(os.path.dirname(os.path.dirname(os.path.abspath(culprit_plain))), folder)


# compiler with flags, whether the library is linked statically
WAYS = {
    "c99": ("gcc -std=c99 -pedantic-errors", False),
    "c17": ("gcc -std=c17 -pedantic-errors", False),
    "c++98": ("g++ -x c++ -std=c++98 -Wno-long-long", False),
    "c++20": ("g++ -x c++ -std=c++20 -pedantic-errors", False),
    "clang": ("clang", False),
    "static": ("gcc", True),
    "static-c++": ("g++ -x c++", True),
    "wholly-static": ("gcc -static", True),
    # Programs by GNU ld crash in glibc's start: doc/context.md.
    "static-pie": ("gcc -static-pie -fPIE -fuse-ld=lld", True),
}


def has_variable(program):
    said = subprocess.run(["readelf", "-W", "--dyn-syms", program], capture_output=True, text=True, check=True).stdout
    return re.search(r"TLS +GLOBAL +DEFAULT +\d+ otel_thread_ctx_v1$", said, re.M)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_installed_can_be_used(system, tmp_path, way):
    compiler, inside = WAYS[way]
    cc = compiler.split()
    if not shutil.which(cc[0]):
        pytest.skip(f"no {cc[0]}: tools/install build test")
    (tmp_path / "program.c").write_text(PROGRAM)
    flags = pkg_config(system, "--cflags", "--libs", *(["--static"] if inside else []), "culprit-context")
    if inside: # the linker would prefer the shared library
        flags = [f"-l:lib{f[2:]}.a" if f == "-lculprit-context" else f for f in flags]
    subprocess.run([*cc, "-Wall", "-Wextra", "-Werror", tmp_path / "program.c", "-o", tmp_path / "program", "-x", "none",
                    *flags], check=True)
    done = subprocess.run([tmp_path / "program"], env={**os.environ, "LD_LIBRARY_PATH": system["LD_LIBRARY_PATH"]})
    assert done.returncode == 0
    needed = subprocess.run(["readelf", "-d", tmp_path / "program"], capture_output=True, text=True).stdout
    assert ("[libculprit-context.so.0]" in needed) != inside
    if inside and "-static" not in cc: # a static program has no dynamic symbols
        assert has_variable(tmp_path / "program")


def test_the_shared_library_exports_what_it_says(system):
    library = os.path.join(system["LD_LIBRARY_PATH"], "libculprit-context.so.0")
    said = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in said.splitlines()} == {"otel_thread_ctx_v1"} | {
        f"culprit_context_{f}" for f in ("attribute", "enter", "key", "leave", "process")}
    assert has_variable(library)
    text = subprocess.run(["readelf", "-Wr", library], capture_output=True, text=True, check=True).stdout
    assert re.search(r"TLSDESC .*otel_thread_ctx_v1", text), "not the model that readers know"


def test_it_is_built_for_musl(system, tmp_path):
    if not shutil.which("musl-gcc"):
        pytest.skip("no musl-gcc: tools/install test")
    (tmp_path / "program.c").write_text(PROGRAM)
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    own = ["musl-gcc", "-Wall", "-Wextra", "-Werror", f"-I{top}/context", "-pthread"]
    library = tmp_path / "libculprit-context.so.0"
    subprocess.run([*own, "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"{top}/context/context.c", "-o", library],
                   check=True)
    for how in ([library, f"-Wl,-rpath,{tmp_path}"], ["-static", f"{top}/context/context.c"]):
        subprocess.run([*own, tmp_path / "program.c", "-o", tmp_path / "program", *how], check=True)
        assert subprocess.run([tmp_path / "program"]).returncode == 0
