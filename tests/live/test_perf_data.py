# SPDX-License-Identifier: Apache-2.0
"""perf.data read directly, beside `perf script` of the same file: the same samples, and frames where both name them."""

import re
import shutil
import struct
import subprocess
from collections import Counter

import pytest

PROGRAM = r"""
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile unsigned long sink;
__attribute__((noinline)) void spin(unsigned long n) { while (n--) sink += n; }
__attribute__((noinline)) void touch(void)
{
	for (int i = 0; i < 200; i++) {
		char *p = malloc(1 << 20);
		memset(p, 1, 1 << 20);
		sink += p[4096];
		free(p);
	}
}
__attribute__((noinline)) void parent(void) { spin(200000000); touch(); sink++; }
__attribute__((noinline)) void child(void) { spin(100000000); sink++; }
int main(int argc, char **argv)
{
	if (argc > 1) {
		child();
		return 0;
	}
	if (fork() == 0) {
		spin(50000000);
		execl("/proc/self/exe", argv[0], "child", (char *)NULL);
		_exit(1);
	}
	parent();
	while (wait(NULL) > 0)
		;
	return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if not shutil.which("perf"):
        pytest.skip("no perf")
    folder = tmp_path_factory.mktemp("perf_data")
    (folder / "work.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-O0", "-g", "-fno-omit-frame-pointer", "-o", folder / "work",
                    folder / "work.c"], check=True)
    return folder / "work"


def recorded(folder, program, *options):
    """Records the program; a recording into a pipe has the same name in the end."""
    path = folder / "perf.data"
    command = ["perf", "record", "-q", "-g", "-F", "997", *options]
    if "-o" in options:
        path.write_bytes(subprocess.run([*command, program], stdout=subprocess.PIPE, check=True).stdout)
    else:
        subprocess.run([*command, "-o", path, program], check=True)
    return path


def alias(name):
    """Symbols at one address, and functions that compilers made of one, have several names."""
    name = {"_dl_start_user": "_start"}.get(name, name)  # the call is the last instruction of _start
    return re.sub(r"^_*(GI_+)?|\.(constprop|isra|part|cold)[.\d]*|_\[k\]$", "", name)


def folded(text):
    stacks = Counter()
    for line in text.splitlines():
        m = re.match(r"(.*) (\d+)$", line)
        names = ["?" if n.startswith("[") or "+0x" in n else alias(n) for n in m[1].split(";")]
        stacks[tuple(names)] += int(m[2])
    return stacks


def own(stacks):
    """By the process and the functions of the program."""
    out = Counter()
    for stack, value in stacks.items():
        out[stack[:1] + tuple(n for n in stack if n in ("main", "parent", "child", "spin", "touch"))] += value
    return out


def convert(culprit, *args, stdin=None):
    done = subprocess.run([culprit, "convert", *args, "-"], input=stdin, capture_output=True)
    assert done.returncode == 0, done.stderr
    return folded(done.stdout.decode()), done.stderr.decode()


@pytest.mark.parametrize("options", [("-e", "cpu-clock"), ("-e", "cpu-clock", "-z"), ("-e", "cpu-clock", "-o", "-"),
                                     ("-e", "cpu-clock", "-e", "page-faults"), ("-e", "cpu-clock", "--buildid-mmap"),
                                     ("-e", "cpu-clock", "-B")])
def test_the_same_samples_as_perf_script(culprit, program, tmp_path, options):
    data = recorded(tmp_path, program, *options)
    text = subprocess.run(["perf", "script", "-i", data, "--no-inline"], stdout=subprocess.PIPE, check=True).stdout
    kinds = [("cpu-clock", "cpu"), ("cpu-clock", "samples")] + [("page-faults", "page_faults")] * ("page-faults" in options)
    for event, kind in kinds:
        # The reader of that text takes the event of the first sample.
        only = b"\n\n".join(b for b in text.split(b"\n\n") if event.encode() + b":" in b.split(b"\n")[0])
        ours, _ = convert(culprit, "--no-inline", "--type", kind, data)
        theirs, _ = convert(culprit, "--no-inline", "--type", kind, "-", stdin=only)
        assert own(ours) == own(theirs)
        # Aliases and programs of BPF have names of their own in the kernel's and libc's frames.
        equal = sum(v for s, v in ours.items() if theirs[s] == v)
        assert equal > (0.9 if event == "cpu-clock" else 0.5) * sum(ours.values()) > 0
        if event == "cpu-clock":
            assert {("exe", "main", "child", "spin"), ("work", "main", "parent", "spin")} <= {*own(ours)}


def test_lines_and_inlined_functions_are_those_of_the_file(culprit, program, tmp_path):
    data = recorded(tmp_path, program, "-e", "cpu-clock")
    out = subprocess.run([culprit, "report", data], capture_output=True, text=True, check=True).stdout
    line = 1 + PROGRAM[:PROGRAM.index("while (n--)")].count("\n")
    assert re.search(rf"spin \(work\) work\.c:{line}\b", out), out


def test_a_cut_file_is_read_as_far_as_it_goes(culprit, program, tmp_path):
    data = recorded(tmp_path, program, "-e", "cpu-clock")
    whole, said = convert(culprit, data)
    assert "cut off" not in said
    content = data.read_bytes()
    offset, size = struct.unpack_from("<QQ", content, 40)  # perf_header.data
    data.write_bytes(content[:offset + size // 2])
    part, said = convert(culprit, data)
    assert 0 < sum(part.values()) < sum(whole.values())
    assert re.search(r"the file is cut off or damaged: \d+ bytes are not read", said), said


def test_another_file_gives_no_names(culprit, program, tmp_path):
    copy = tmp_path / "work"
    shutil.copy(program, copy)
    data = recorded(tmp_path, copy, "-e", "cpu-clock")
    stacks, _ = convert(culprit, data)
    assert any("spin" in s for s in stacks)
    subprocess.run(["gcc", "-O1", "-g", "-fno-omit-frame-pointer", "-o", copy, program.parent / "work.c"], check=True)
    stacks, said = convert(culprit, data)
    assert not any("spin" in s for s in stacks)
    assert str(copy) in said


def test_stacks_that_perf_would_unwind_are_told(culprit, program, tmp_path):
    data = recorded(tmp_path, program, "-e", "cpu-clock", "--call-graph", "dwarf,1024")
    stacks, said = convert(culprit, data)
    assert "perf script | culprit" in said
    assert any("?" == s[1] for s in stacks)  # the root says that the rest is missing
