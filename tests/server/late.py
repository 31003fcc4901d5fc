# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of late symbols: programs with separate debug files, addr2line's answers for each of their
addresses, and profiles of such addresses as pprof, written byte by byte."""

import os
import re
import subprocess

from wire import field, varint

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static volatile unsigned long sink;
static inline __attribute__((always_inline)) void innermost(unsigned long i)
{
	sink += i * i ^ sink >> 3;
	sink ^= sink << 7;
}
static inline __attribute__((always_inline)) void middle(unsigned long i)
{
	innermost(i);
	sink -= i;
}
__attribute__((noinline, noclone)) void TAGouter(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		middle(i);
}
__attribute__((noinline, noclone)) void TAGcaller(unsigned long n)
{
	TAGouter(n);
	sink++;
}
int main(int argc, char **argv)
{
	time_t end = time(NULL) + (argc > 1 ? atol(argv[1]) : 1);

	while (time(NULL) < end)
		TAGcaller(1000000);
	return 0;
}
"""


def run(*args, **keywords):
    return subprocess.run(list(map(str, args)), check=True, capture_output=True, text=True, timeout=120, **keywords).stdout


def build_id_of(path):
    return re.search(r"Build ID: (\w+)", run("readelf", "-n", path)).group(1)


class Program:
    """DIR/app-TAG, stripped; .debug has its debug information, .full both; .build_id."""

    def __init__(self, directory, tag="", flags=()):
        os.makedirs(directory, exist_ok=True)
        self.path = os.path.join(directory, f"app-{tag or 'plain'}")
        self.debug, self.full, source = self.path + ".debug", self.path + ".full", self.path + ".c"
        with open(source, "w", encoding="ascii") as f:
            f.write(SOURCE.replace("TAG", tag))
        run("gcc", "-g", "-O2", "-Wl,--build-id=sha1", *flags, "-o", self.full, source)
        run("objcopy", "--only-keep-debug", self.full, self.debug)
        run("strip", "-s", "-o", self.path, self.full)
        self.build_id = build_id_of(self.full)
        self.tag, self.chains = tag, {}

    def addresses(self, function):
        """Returns the addresses of all instructions."""
        text = run("objdump", "-d", "--no-show-raw-insn", f"--disassemble={function}", self.full)
        return [int(a, 16) for a in re.findall(r"^\s+([0-9a-f]+):\t", text, re.M)]

    def chain(self, address):
        """Returns [(function, line)] of an address, innermost first, by binutils."""
        if address not in self.chains:
            self.chains[address] = self.ask(address)
        return self.chains[address]

    def ask(self, address):
        out = run("addr2line", "-f", "-i", "-e", self.full, hex(address)).splitlines()
        return [(f, int(re.match(r"\d+", l.rsplit(":", 1)[1]).group()) if l.rsplit(":", 1)[1][0].isdigit() else 0)
                for f, l in zip(out[::2], out[1::2])]


# ---- pprof ----

def pprof(program, stacks, at_s):
    """A profile of stacks [([address, ...] leaf first, count)] without any names."""
    strings = ["", "cpu", "nanoseconds", program.path, program.build_id]
    addresses = sorted({a for s, _ in stacks for a in s})
    ids = {a: i + 1 for i, a in enumerate(addresses)}
    out = field(1, field(1, 1) + field(2, 2))
    for s, count in stacks:
        out += field(2, field(1, b"".join(varint(ids[a]) for a in s)) + field(2, varint(count)))
    out += field(3, field(1, 1) + field(3, 1 << 32) + field(5, 3) + field(6, 4))
    for a in addresses:
        out += field(4, field(1, ids[a]) + field(2, 1) + field(3, a))
    out += b"".join(field(6, s.encode()) for s in strings)
    out += field(9, at_s * 10**9) + field(10, 10**9)
    return out + field(11, field(1, 1) + field(2, 2)) + field(12, 1)
