# SPDX-License-Identifier: Apache-2.0
"""Structs that a script defines lie in memory as the C compiler has them, and a script reads the members of a program's."""

import subprocess

import pytest

# Defined in both languages with the same text.
TYPES = """
struct inner { char a; long b; };
struct outer {
    char c; short s[3]; struct inner i[2]; int x : 3, y : 7, z : 30; struct outer *next;
    union { char u; int v; } w; char text[6]; unsigned long m[2][3]; short q;
};
struct packed { char c; int x; struct inner i; short q; } __attribute__((packed));
struct list_head { char is_also_in_the_kernel[24]; int but_differs; };
"""
OUTER = ["c", "s", "i", "next", "w", "text", "m", "q"]
PACKED = ["c", "x", "i", "q"]
SIZES = ["inner", "outer", "packed", "list_head"]
WHAT = ([f"sizeof(struct {s})" for s in SIZES] + [f"offsetof(struct outer, {m})" for m in OUTER]
        + [f"offsetof(struct packed, {m})" for m in PACKED])
FORMAT = " ".join(["%d"] * len(WHAT))

PROGRAM = "#include <stddef.h>\n#include <stdio.h>\n" + TYPES + """
__attribute__((noinline)) long see(struct outer *o, struct packed *p) { return o->q + p->q; }
int main(void)
{
    static struct outer second = {.q = 77}, first = {
        .c = 'c', .s = {1, 2, -3}, .i = {{.b = 5}, {.b = -6}}, .x = -2, .y = 33, .z = 1 << 27, .next = &second,
        .w.v = 9, .text = "hello", .m = {{1, 2, 3}, {4, 5, 6}}, .q = -8};
    static struct packed p = {.c = 'p', .x = -123456, .i.b = 1L << 40, .q = 321};

    printf(""" + f'"{FORMAT}\\n", ' + ", ".join(f"(int){w}" for w in WHAT) + """);
    fflush(stdout);
    return see(&first, &p) == 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("structs")
    (folder / "structs.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-O1", "-g", "-w", "-o", folder / "structs", folder / "structs.c"], check=True)
    return str(folder / "structs")


def trace(culprit, tmp_path, action, *args):
    script = tmp_path / "structs.bt"
    script.write_text(TYPES + action)
    done = subprocess.run([culprit, "trace", "-q", *args, str(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_layout(culprit, program, tmp_path):
    layout = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=False).stdout
    said = trace(culprit, tmp_path, f'BEGIN {{ printf("{FORMAT}\\n", {", ".join(WHAT)}); exit(); }}')
    assert len(layout.split()) == len(WHAT)
    assert said == layout


def test_members(culprit, program, tmp_path):
    out = trace(culprit, tmp_path, f"""
uprobe:{program}:see
{{
    $o = (struct outer *)arg0;
    $p = (struct packed *)arg1;
    printf("%c %d %d %d ", $o.c, $o.s[2], $o.i[0].b, $o->i[1].b);
    printf("%d %d %d %d %d ", $o.x, $o.y, $o.z, $o.next.q, $o.w.v);
    printf("%s %d %d | ", $o.text, $o.m[1][2], $o.q);
    printf("%c %d %d %d\\n", $p.c, $p.x, $p.i.b, $p.q);
}}
""", "-c", program)
    lines = [line for line in out.splitlines() if "|" in line]
    assert lines == [f"c -3 5 -6 -2 33 {1 << 27} 77 9 hello 6 -8 | p -123456 {1 << 40} 321"], out
