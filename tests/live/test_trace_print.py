# SPDX-License-Identifier: Apache-2.0
"""What culprit trace prints: the same as bpftrace, where that is installed, and names that are true."""

import os
import shutil
import subprocess

import pytest

# Programs whose output is the same in all versions of bpftrace, but for blank lines.
SAME = [
    'printf("%d %u %x %5d|%-5d|%05d|%c|%s|%10s|%-10s|%hhd|%%|%ld|%llu|%lx\\n", 123456, 17, 255, 7, 7, 7, 65, "abc", "abc",'
    ' "abc", 300, 5, 6, 255);',
    'printf("%u %x %o %lx\\n", -1, -1, -1, -1); printf("%ld\\n", (uint32)-1);',
    'printf("%llx %lu %5u|%-6llu|%06x\\n", (uint64)-1, 5, 6, 7, 255);',
    '@a = hist(-1); @a = hist(0); @a = hist(1); @a = hist(5); @a = hist(1024); @a = hist(70000); @a = hist(70000);'
    '@a = hist(1000000);',
    '@a = lhist(-1, 0, 100, 10); @a = lhist(0, 0, 100, 10); @a = lhist(55, 0, 100, 10); @a = lhist(100, 0, 100, 10);',
    '@a = lhist(5000, 0, 10240, 1024); @a = lhist(9000, 0, 10240, 1024);',
    '@a = count(); @b = sum(5); @b = sum(6); @c = avg(4); @c = avg(7); @d = min(4); @d = min(3); @e = max(4);',
    '@a[1] = 5; @a[2] = 3; @a[0] = 9; @b["x", 2] = 1; @b["a", 3] = 0; @s["k"] = "v"; @s["b"] = "w";',
    '@t = (1, "abc", (5, 6)); print((1, 2)); print(5); print("x");',
    '@x[1] = count(); @x[2] = count(); @x[2] = count(); @x[3] = count(); @x[3] = count(); @x[3] = count();'
    'print(@x, 2); print(@x, 1, 2); clear(@x);',
    'printf("%r|%r\\n", buf("a\\x01b", 3), buf("hello", 5));',
    'printf("%s %s\\n", ntop(0x0100007f), username);',
    'printf("%s\\n", strftime("%Y-%m-%d", nsecs)); time("%Y\\n");',
    'cat("/proc/sys/kernel/%s", "ostype");',
    '@a = -5; @b[-1] = -7; @b[3] = -9; printf("%d %lld %u\\n", -1, -1, 3);',
    '@x["a b"] = hist(0); @x["a b"] = hist(7); print(@x); clear(@x);',
    '$a = (uint8)255; $b = (int8)255; printf("%d %d %x\\n", $a, $b, $b); @a = $b;',
]


def lines(command, program):
    out = subprocess.run([*command, "-e", f"BEGIN {{ {program} exit(); }}"], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True, timeout=60).stdout
    return [line.rstrip() for line in out.splitlines() if line.strip() and not line.startswith("Attaching")]


@pytest.mark.skipif(not shutil.which("bpftrace"), reason="no bpftrace")
@pytest.mark.parametrize("program", SAME)
def test_agrees_with_bpftrace(culprit, program):
    want = lines(["bpftrace"], program)
    assert want
    assert lines([culprit, "trace", "-q"], program) == want


def cgroup_mount():
    for line in open("/proc/mounts"):
        _, path, kind = line.split()[:3]
        if kind == "cgroup2":
            return path
    return None


@pytest.mark.skipif(cgroup_mount() not in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"), reason="no cgroups of v2")
def test_path_of_a_cgroup(culprit):
    group = os.path.join(cgroup_mount(), "culprit-test-trace", "inner")
    os.makedirs(group)
    try:
        r = subprocess.run([culprit, "trace", "-q", "-e", 'BEGIN { printf("%s\\n", cgroup_path(cgroup)); exit(); }'],
                           preexec_fn=lambda: open(f"{group}/cgroup.procs", "w").write("0"), capture_output=True,
                           text=True, timeout=60)
        assert r.stdout == "unified:/culprit-test-trace/inner\n"
    finally:
        os.rmdir(group)
        os.rmdir(os.path.dirname(group))
