# SPDX-License-Identifier: Apache-2.0
"""Functions of the tracing language that name, compare or change things: their results against what this machine says, and
that what changes something needs --unsafe."""

import json
import os
import re
import signal
import subprocess

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture
def run(culprit):
    def run(program, *args, **options):
        return subprocess.run([culprit, "trace", "-q", "-e", program, *args], capture_output=True, text=True, timeout=60,
                              **options)

    return run


# (action, what it prints, for each that is wrong without the function)
VALUES = [
    ("print(signal_name(9)); print(signal_name(15))", "SIGKILL\nSIGTERM"),
    ("print(signal_name(999)); print(signal_name(-1))", "999\n-1"),
    ('$n = 11; printf("%s\\n", signal_name($n))', "SIGSEGV"),
    ("print(syscall_name(9999))", "9999"),
    # a text that is looked for and that is no literal
    ('$a = "hello-test"; $b = "test"; printf("%d %d\\n", strcontains($a, $b), strcontains($b, $a))', "1 0"),
    ('$b = ""; printf("%d\\n", strcontains("x", $b))', "1"),
    ('@b = "a longer text"; @b = "lo"; printf("%d %d\\n", strcontains("hello", @b), strcontains("helio", @b)); clear(@b)', "1 0\n@b: "),
    ('$b = "abcd"; printf("%d %d\\n", strcontains("xxabcd", $b), strcontains("xxabc", $b))', "1 0"),
    ('$b = "aab"; printf("%d\\n", strcontains("aaab", $b))', "1"),
    ('printf("%d\\n", strcontains(comm, comm))', "1"),
    # addresses
    ('printf("%s %s\\n", ntop(pton("10.1.2.3")), ntop(pton("2001:db8::1")))', "10.1.2.3 2001:db8::1"),
    ('printf("%x\\n", (uint32)pton("127.0.0.1"))', "100007f"),
    ('printf("%d %d\\n", pton("1.2.3.4") == pton("1.2.3.4"), pton("::1") == pton("::2"))', "1 0"),
    # casts to arrays, which are the bytes of an integer
    ('$a = (int8[8])12345; printf("%x %x %d\\n", $a[0], $a[1], (uint64)$a)', "39 30 12345"),
    ('$a = (uint8[])(uint32)0x01020304; print($a); printf("%d\\n", $a[3])', "[4,3,2,1]\n1"),
    ('$a = (int16[4])-2; print($a); @m[0] = $a; print(@m[0][0] == -2); delete(@m, 0)', "[-2,-1,-1,-1]\ntrue"),
    ('printf("%d %d\\n", (uint8[4])(uint32)0x0100007f == pton("127.0.0.1"), (uint8[4])(uint32)5 == pton("127.0.0.1"))', "1 0"),
    # records
    ('$a = (color="green", size=2); print($a); print($a.size); print($a.color)', "{ .color = green, .size = 2 }\n2\ngreen"),
    ('@m[1] = (a=1, b=(c="x")); print(@m[1]); printf("%s\\n", @m[1].b.c); delete(@m, 1)',
     "{ .a = 1, .b = { .c = x } }\nx"),
    ('$r = (a=1, b=2); $r = (a=3, b=4); print($r.b)', "4"),
    ("assert(1 == 1, \"not shown\"); print(5)", "5"),
]


@pytest.mark.parametrize("action, expected", VALUES)
def test_value(run, action, expected):
    done = run(f"BEGIN {{ {action}; exit(); }}")
    assert done.returncode == 0 and done.stdout.strip("\n") == expected, done.stdout + done.stderr


def test_record_as_json(run):
    done = run('BEGIN { print((color="green", size=2)); exit(); }', "-f", "json")
    assert {"type": "value", "data": {"color": "green", "size": 2}} in map(json.loads, done.stdout.splitlines()), done.stdout


@pytest.mark.parametrize("action, error", [
    ("$a = (a=1, b=2); print($a.c)", '1:34: error: this record has no member "c"; it has a, b'),
    ("$a = (1, 2); print($a.a)", '1:30: error: this tuple has no member "a"; it has 0 to 1'),
    ("$a = (a=1, b=2); $a = (b=1, a=2)", "error: $a is a tuple, and cannot become a tuple"),
    ("@ = tseries(1, 1s, 5, \"mean\")", 'tseries() keeps "avg", "max", "min" or "sum"'),
    ("@ = tseries(1, 1s, 5); $x = @;", "tseries() can only be assigned to a map"),
    ("print((uint8[3])(uint32)1)", "an int32 cannot be cast to an array of 3 bytes"),
    ("$a = (uint8[4])(uint32)1; print($a[4])", "the index into this array must be a number below 4"),
    ('print(pton("1.2.3"))', '1:20: error: "1.2.3" is no address of IPv4 or IPv6'),
    ("print(strcontains(\"x\", str(1)))", "str(p, 64) shortens it"),
    ("system(\"true\")", "1:9: error: system() changes what it looks at: --unsafe allows it"),
    ("signal(9)", "1:9: error: signal() changes what it looks at: --unsafe allows it"),
    ("override(1)", "1:9: error: override() changes what it looks at: --unsafe allows it"),
])
def test_errors(run, action, error):
    done = run(f"BEGIN {{ {action} }}")
    assert done.returncode == 1 and error in done.stderr, done.stderr


@pytest.mark.parametrize("action, error", [
    ("signal(9)", "sends to the thread of an event; BEGIN has none"),
    ('signal("SIGNOTHING")', "sends to the thread of an event"),
    ("override(1)", "override() works in a kprobe only"),
])
def test_errors_of_unsafe_functions(run, action, error):
    done = run(f"BEGIN {{ {action} }}", "--unsafe")
    assert done.returncode == 1 and error in done.stderr, done.stderr


def test_failed_assert_ends_the_script(run):
    done = run('BEGIN { assert(1 == 2, "sizes differ"); print(7); } interval:s:9 { exit() }')
    assert done.returncode == 1 and "assert failed: sizes differ\n" in done.stderr and "7" not in done.stdout, done.stderr


def test_names_of_system_calls(run):
    """Those of a program that makes them, in a key: one key for each call."""
    done = run("tracepoint:raw_syscalls:sys_enter /comm == \"sleep\"/ { @[syscall_name(args.id)] = count(); }", "-c", "sleep 0.1")
    assert "@[clock_nanosleep]: 1\n" in done.stdout and "@[exit_group]: 1\n" in done.stdout, done.stdout + done.stderr
    assert not [line for line in done.stdout.splitlines() if line.startswith("@[4") or line.startswith("@[1")], done.stdout


# ---- time series ----

@pytest.mark.parametrize("how, expected", [("", [9, 19, 29]), (', "sum"', [45, 145, 245]), (', "avg"', [4, 14, 24]),
                                           (', "min"', [0, 10, 20]), (', "max"', [9, 19, 29])])
def test_series(run, how, expected):
    """Ten values at once, three times, with empty intervals between."""
    program = ("BEGIN { @i = 0; } interval:ms:400 { $i = 0; while ($i < 10) { @s = tseries(@i, 100ms, 30%s); @i++; $i++; } "
               "if (@i == 30) { exit(); } }" % how)
    done = run(program, "-f", "json")
    found = [json.loads(line) for line in done.stdout.splitlines() if '"tseries"' in line]
    assert [v["value"] for v in found[0]["data"]["@s"]] == expected, done.stdout + done.stderr


def test_series_as_text(run):
    done = run("BEGIN { @i = -2; } interval:ms:50 { @s[1] = tseries(@i, 10ms, 13); @i++; if (@i == 4) { exit(); } }")
    lines = done.stdout.splitlines()
    at = lines.index("@s[1]:")
    assert lines[at + 1].split() == ["1", "3"] and lines[at + 2].startswith("hh:mm:ss.ms  |____")
    marks = [line for line in lines[at + 3:] if line[2:3] == ":" and "*" in line]
    assert [m.split()[-1] for m in marks] == ["1", "2", "3"], done.stdout
    assert [m.index("*") for m in marks] == [13, 39, 65], done.stdout


def test_series_of_several_cpus(run):
    """Each CPU has its own: their sum is of all."""
    done = run('profile:hz:49 { @s = tseries(1, 60s, 2, "sum"); @n = count(); } interval:s:1 { exit(); }', "-f", "json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    n = [r["data"]["@n"] for r in rows if r["type"] == "map"]
    assert [sum(v["value"] for v in r["data"]["@s"]) for r in rows if r["type"] == "tseries"] == n, done.stdout


# ---- what changes the machine ----

def test_system_runs_a_command_and_prints_what_it_prints(run, tmp_path):
    mark = tmp_path / "mark"
    program = f'BEGIN {{ printf("before\\n"); system("echo %s %d > {mark}; echo seen; echo wrong >&2", comm, 7); ' \
        'printf("after\\n"); exit(); }'
    done = run(program, "--unsafe")
    assert done.stdout.splitlines() == ["before", "seen", "after"], done.stdout + done.stderr
    assert "wrong" in done.stderr
    assert mark.read_text() == "culprit 7\n"


def test_system_as_json(run):
    done = run('BEGIN { system("echo x"); exit(); }', "--unsafe", "-f", "json")
    assert {"type": "syscall", "data": "x\n"} in map(json.loads, done.stdout.splitlines()), done.stdout


def test_system_does_not_wait_for_what_it_leaves_in_the_background(run):
    done = run('BEGIN { system("sleep 600 2>/dev/null & echo $!"); exit(); }', "--unsafe")
    os.kill(int(done.stdout), signal.SIGKILL)


def test_a_command_without_end_is_killed(run):
    done = run('BEGIN { system("echo begun; sleep 600"); exit(); }', "--unsafe")
    assert done.stdout == "begun\n" and "was killed after 10 s" in done.stderr, done.stderr


@pytest.mark.parametrize("call", ["signal(10)", 'signal("SIGUSR1")', 'signal_thread("USR1")'])
def test_signal(run, call):
    """The process that makes the call gets the signal, and no other."""
    code = ("import os, signal, time; got = []; signal.signal(signal.SIGUSR1, lambda n, f: got.append(n))\n"
            "os.getppid(); time.sleep(0.05); print(len(got))")
    done = run(f'tracepoint:syscalls:sys_enter_getppid /comm == "python3"/ {{ {call}; @n = count(); }}', "--unsafe", "-c",
               f"/usr/bin/python3 -c \"{code}\"")
    assert done.stdout.splitlines()[0] == "1" and "@n: 1" in done.stdout, done.stdout + done.stderr


# ---- what fails in the kernel ----

def test_failed_reads_are_told_with_their_place(run):
    program = 'BEGIN { printf("[%s]\\n", str(0));\n  printf("%d\\n", *(uint64 *)8);\n exit(); }'
    done = run(program, "-k")
    assert done.stdout == "[]\n0\n", done.stdout
    assert "1:26: reading the kernel's memory failed: Bad address" in done.stderr, done.stderr
    assert "2:18: reading the kernel's memory failed: Bad address" in done.stderr, done.stderr
    assert run(program).stderr == ""


def test_failed_reads_as_json(run):
    done = run("BEGIN { print(*(uint64 *)8); exit(); }", "-k", "-f", "json")
    told = [m for m in map(json.loads, done.stdout.splitlines()) if m["type"] == "helper_error"]
    assert [m["retcode"] for m in told] == [-14] and told[0]["msg"].startswith("1:"), done.stdout


def test_reads_that_succeed_are_not_told(run):
    done = run('BEGIN { printf("%d %s\\n", curtask.tgid, curtask.comm); $s = str("text"); exit(); }', "-k")
    assert done.stderr == "", done.stderr


# ---- errors of probes, types ----

@pytest.mark.parametrize("program, error", [
    ("BEGIN { } profile:hz:0 { @ = count(); }", "1:11: error: '0' is not a number above 0"),
    ("BEGIN { }\n profile:us:1 { @ = count(); }", "2:2: error: a period below 10 us is refused"),
    ("interval:s:0 { exit(); }", "1:1: error: '0' is not a number above 0"),
    ("software:no-such:1 { exit(); }", "1:1: error: no software event 'no-such'"),
    ("struct a { int x; };\nstruct b { int x; };\nstruct a { int y; };\nBEGIN { exit(); }",
     "3:1: error: struct a is defined twice, first in line 1"),
])
def test_places_of_errors(run, program, error):
    done = run(program)
    assert done.returncode == 1 and error in done.stderr, done.stderr


# ---- iterators ----

def test_iterator_of_tasks(run):
    """Each task of the machine once, and the end without exit()."""
    child = subprocess.Popen(["sleep", "60"])
    try:
        done = run('iter:task { @n[ctx.task.tgid] = count(); printf("%d %d %s\\n", ctx.task.tgid, ctx.task.pid, ctx.task.comm); }')
        rows = [line.split(" ", 2) for line in done.stdout.splitlines() if not line.startswith("@") and line]
        tids = [int(r[1]) for r in rows]
        assert [str(child.pid), str(child.pid), "sleep"] in rows, done.stdout + done.stderr
        assert len(tids) == len(set(tids))
        threads = {int(t) for p in os.listdir("/proc") if p.isdigit() for t in tasks(p)}
        assert len(threads & set(tids)) > 0.8 * len(threads), "tasks that began or ended meanwhile are few"
    finally:
        child.kill()
        child.wait()


def tasks(pid):
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def test_iterator_of_files(run, tmp_path):
    with open(tmp_path / "a-known-name", "w") as f:
        done = run(f'iter:task_file /ctx.task.tgid == {os.getpid()} && ctx.fd == {f.fileno()}/ '
                   '{ printf("%s\\n", str(ctx.file.f_path.dentry.d_name.name)); }')
    assert "a-known-name" in done.stdout.splitlines(), done.stdout + done.stderr


def test_path_in_an_iterator(run, tmp_path):
    with open(tmp_path / "a-known-name", "w") as f:
        done = run(f'iter:task_file /ctx.task.tgid == {os.getpid()} && ctx.fd == {f.fileno()}/ '
                   '{ printf("%s\\n", path(ctx.file.f_path)); printf("%s\\n", path(ctx.file.f_path, 6)); }')
    assert done.stdout.splitlines()[0] == str(tmp_path / "a-known-name"), done.stdout + done.stderr


def test_path_of_an_argument(run, tmp_path):
    """In a key: what is behind the end of a path does not make another key of it."""
    (tmp_path / "closed").write_text("")
    done = run('fentry:filp_close /comm == "dd"/ { @[path(args.filp.f_path)] = count(); }', "-c",
               f"dd if={tmp_path}/closed of=/dev/null status=none")
    if done.returncode:
        pytest.skip(done.stderr)
    assert f"@[{tmp_path}/closed]: " in done.stdout, done.stdout + done.stderr
    keys = re.findall(r"^@\[(.*)\]: \d+$", done.stdout, re.M)
    assert len(keys) == len(set(keys)), done.stdout


@pytest.mark.parametrize("program, error", [
    ("fentry:vfs_read { print(path(args.buf)); }", "path() takes a struct path, as args.file.f_path is"),
    ("fentry:vfs_read { print(path(*(struct path *)args.pos)); }", "path() takes a member of args in fentry and fexit"),
])
def test_wrong_paths(run, program, error):
    done = run(program)
    assert done.returncode == 1 and error in done.stderr, done.stderr


@pytest.mark.parametrize("point, error", [("iter:nothing", "there is no probe 'iter:nothing'"),
                                          ("iter:task:pin", "it cannot be pinned")])
def test_wrong_iterators(run, point, error):
    done = run(f"{point} {{ print(1); }}")
    assert done.returncode == 1 and error in done.stderr, done.stderr


# ---- lines of source ----

SOURCE = """\
#include <stdio.h>
#include <stdlib.h>
static inline __attribute__((always_inline)) int twice(int x)
{
	volatile int y = x;
	return y * 2;
}
int main(int argc, char **argv)
{
	int n = atoi(argv[1]), sum = 0;
	for (int i = 0; i < n; i++) {
		if (i % 4 == 0)
			sum += twice(i);
		else
			sum -= twice(i);
	}
	printf("%d\\n", sum);
	return 0;
}
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    path = tmp_path_factory.mktemp("lines")
    (path / "lines.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-g", "-o", path / "lines", path / "lines.c"], check=True)
    return path / "lines"


@pytest.mark.parametrize("line, times", [(5, 1000), (13, 250), (15, 750), (17, 1)])
def test_line_of_source(run, lines, line, times):
    """Line 5 is in a function that is inlined at two places: both are probed."""
    done = run(f"uprobe:{lines}@lines.c:{line} {{ @n = count(); @[probe] = count(); }}", "-c", f"{lines} 1000")
    assert f"@n: {times}\n" in done.stdout, done.stdout + done.stderr
    assert f"@[uprobe:{lines}@lines.c:{line}]: {times}\n" in done.stdout, done.stdout


@pytest.mark.parametrize("where, error", [
    ("lines.c:4", "line 4 of lines.c has no code; line 5 has"),
    ("lines.c:400", "has no code of line 400 of lines.c or behind it"),
    ("ines.c:5", "has no code of line 5 of ines.c or behind it"),
])
def test_line_without_code(run, lines, where, error):
    done = run(f"uprobe:{lines}@{where} {{ @n = count(); }}")
    assert done.returncode == 1 and error in done.stderr and "1:1: error" in done.stderr, done.stderr


def test_line_needs_debug_information(run):
    done = run("uprobe:/bin/sleep@sleep.c:5 { @n = count(); }")
    assert done.returncode == 1 and "no debug information" in done.stderr, done.stderr


def test_line_of_a_uretprobe(run, lines):
    done = run(f"uretprobe:{lines}@lines.c:5 {{ @n = count(); }}")
    assert done.returncode == 1 and "a line of source is probed by a uprobe" in done.stderr, done.stderr


# ---- losses ----

def test_events_that_the_kernel_did_not_run_are_told(run):
    """Timers that expire while a long action runs on their CPU: the kernel does not run another program there."""
    code = "import os\nfor i in range(150): os.getppid()"
    done = run('tracepoint:syscalls:sys_enter_getppid /comm == "python3"/ { $n = 200000; for $i : 0..$n { @x += $i; } } '
               "tracepoint:timer:hrtimer_expire_entry { @timers = count(); }", "--budget", "0", "-c",
               f"/usr/bin/python3 -c '{code}'")
    missed = re.search(r"(\d+) of events, at which the kernel was running a BPF program already", done.stderr)
    assert missed and int(missed[1]) >= 10, done.stdout + done.stderr
