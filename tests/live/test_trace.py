# SPDX-License-Identifier: Apache-2.0
"""culprit trace: each kind of probe against a program that says what it did (traced.c), the options, the end, and
errors that people make."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
N = 1000
NAPS = 20


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    path = tmp_path_factory.mktemp("traced") / "traced"
    subprocess.run(["gcc", "-O1", "-g", "-w", "-o", path, f"{HERE}/traced.c"], check=True)
    return path


class Result:
    def __init__(self, done):
        self.out, self.err, self.status = done.stdout, done.stderr, done.returncode
        self.lines = self.out.splitlines()

    def value(self, name):
        """What a map without keys is at the end."""
        found = re.findall(rf"^@{name}: (.*)$", self.out, re.M)
        assert len(found) == 1, self.out + self.err
        return found[0]

    def values(self, name=""):
        """What a map with keys is at the end."""
        return dict(re.findall(rf"^@{name}\[(.*)\]: (-?\d+)$", self.out, re.M))


@pytest.fixture
def trace(culprit):
    """trace(PROGRAM, ARG...) runs it to its end."""

    def run(program, *args, timeout=60, **options):
        return Result(subprocess.run([culprit, "trace", "-e", program, *map(str, args)], capture_output=True, text=True,
                                     timeout=timeout, **options))

    return run


@pytest.fixture
def start(culprit):
    """start(ARG...) starts culprit trace, and waits until its probes are attached."""
    started = []

    def run(*args):
        t = subprocess.Popen([culprit, "trace", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(t)
        lines = []
        for line in t.stderr:
            lines.append(line)
            if line.startswith("Attached"):
                return t
        raise AssertionError("".join(lines))

    yield run
    for t in started:
        t.kill()
        t.communicate()


def finish(t, number=signal.SIGINT):
    t.send_signal(number)
    out, err = t.communicate(timeout=30)
    return Result(subprocess.CompletedProcess([], t.returncode, out, err))


def of_command(trace, traced, program, *args):
    r = trace(program.replace("PATH", str(traced)), "-c", f"{traced} {N}", *args)
    assert r.status == 0, r.err
    said = re.search(r"^work (\d+) quiet (\d+) naps (\d+) ns (\d+)$", r.err, re.M)
    assert said, r.err
    r.quiet, r.nap_ns = int(said[2]), int(said[4])
    return r


# ---- probes of programs ----

def test_uprobe_has_all_calls_and_their_arguments(trace, traced):
    r = of_command(trace, traced, """
        uprobe:PATH:work {
            @n = count();
            @a = sum(arg0);
            if ((int64)arg0 + (int64)arg1 != 0) { @wrong = count(); }
            @text[str(arg2)] = count();
        }""")
    assert int(r.value("n")) == N
    assert int(r.value("a")) == N * (N - 1) // 2
    assert "@wrong" not in r.out or r.value("wrong") == "0"
    assert r.values("text") == {f"text {i}": "1" for i in range(N)}


def test_uretprobe_has_all_returns_and_their_values(trace, traced):
    r = of_command(trace, traced, "uretprobe:PATH:work /retval == 18446744073709551615/ { @none = count(); } "
                                  "uretprobe:PATH:work { @all = count(); }")
    assert int(r.value("all")) == N
    # Every fourth, and those whose -i + strlen("text i") is -1: i = 7
    assert int(r.value("none")) == N // 4 + 1


def test_latency_between_entry_and_return(trace, traced):
    r = of_command(trace, traced, """
        uprobe:PATH:nap { @at[tid] = nsecs; }
        uretprobe:PATH:nap /@at[tid]/ { $ns = nsecs - @at[tid]; @n = count(); @sum = sum($ns); @least = min($ns);
            delete(@at[tid]); }""")
    assert int(r.value("n")) == NAPS
    assert int(r.value("least")) >= 3_000_000
    # The program measures inside of the function; what a probe takes comes on top.
    assert r.nap_ns <= int(r.value("sum")) < r.nap_ns * 1.05 + NAPS * 100_000


def test_usdt_arguments_of_all_kinds(trace, traced):
    """In a register, in memory, as a pointer, and constant."""
    r = of_command(trace, traced, """
        usdt:PATH:demo:step {
            @n = count();
            if ((int64)arg0 + (int64)arg1 != 0 || arg3 != 77) { @wrong = count(); }
            @text[str(arg2)] = count();
        }""")
    assert int(r.value("n")) == N
    assert "@wrong" not in r.out or r.value("wrong") == "0"
    assert r.values("text") == {f"step {i}": "1" for i in range(N)}


def test_usdt_semaphore_is_set_while_the_probe_is_attached(trace, traced):
    r = of_command(trace, traced, "usdt:PATH:demo:quiet { @ = count(); @sum = sum(arg0); }")
    assert int(r.value("")) == N == r.quiet
    assert int(r.value("sum")) == N * (N - 1) // 2
    assert of_command(trace, traced, "usdt:PATH:demo:step { @ = count(); }").quiet == 0


def test_globs_of_functions_and_the_name_of_the_probe(trace, traced):
    r = of_command(trace, traced, "uprobe:PATH:wor*, uprobe:PATH:nap { @[probe] = count(); }")
    assert {re.sub(r".*/", "", k): int(v) for k, v in r.values().items()} == {"traced:work": N, "traced:nap": NAPS}


def test_probe_inside_of_a_function(trace, traced, culprit):
    """At each offset there is either a probe, which fires, or a refusal."""
    sizes = subprocess.run(["nm", "-S", traced], capture_output=True, text=True, check=True).stdout
    size = int(re.search(r"^\w+ (\w+) T work$", sizes, re.M)[1], 16)
    code = subprocess.run(["objdump", "-d", "--disassemble=work", traced], capture_output=True, text=True, check=True).stdout
    begins = [int(a, 16) for a in re.findall(r"^ +([0-9a-f]+):\t", code, re.M)]
    begins = {a - begins[0] for a in begins}
    for at in range(1, size):
        r = trace(f"uprobe:{traced}:work+{at} {{ @ = count(); }}", "-c", f"{traced} 8")
        if at in begins:
            assert r.status == 0 and int(r.value("")) in range(1, 9), r.err
        else:
            assert r.status == 1 and "no instruction begins at work+" in r.err


def test_only_the_process_of_p(start, traced):
    one, other = (subprocess.Popen([traced, str(N), "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True) for _ in range(2))
    for p in (one, other):
        p.stdout.readline()
    t = start("-p", one.pid, "-e", f"uprobe:{traced}:work {{ @[pid] = count(); }}")
    other.communicate("\n")
    assert t.poll() is None
    one.communicate("\n")
    # It ends with the process.
    out, err = t.communicate(timeout=20)
    assert t.returncode == 0
    assert re.findall(r"^@\[(\d+)\]: (\d+)$", out, re.M) == [(str(one.pid), str(N))], err


def test_watchpoint_sees_each_write(start, traced):
    p = subprocess.Popen([traced, str(N), "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True)
    _, _, address = p.stdout.readline().split()
    try:
        t = start("-p", p.pid, "-e", f"watchpoint:{address}:8:w {{ @ = count(); }}")
    except AssertionError as e:
        p.kill()
        if "has no event" in str(e):
            pytest.skip(f"no hardware breakpoints: {e}")
        raise
    p.communicate("\n")
    out, _ = t.communicate(timeout=20)
    assert re.findall(r"^@: (\d+)$", out, re.M) == [str(N)]


def test_uretprobe_of_go_is_at_its_returns_or_refused(trace, tmp_path):
    go = tmp_path / "main.go"
    go.write_text('package main\n\nimport "fmt"\n\n//go:noinline\nfunc f(i int) int { return i + 1 }\n\n'
                  "func main() { fmt.Println(f(1)) }\n")
    try:
        subprocess.run(["go", "build", "-o", tmp_path / "main", go], check=True, capture_output=True,
                       env={**os.environ, "GOFLAGS": "-mod=mod", "GOCACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)})
    except (OSError, subprocess.CalledProcessError) as e:
        pytest.skip(f"no Go: {e}")
    r = trace(f"uretprobe:{tmp_path}/main:main.f+0 {{ @ = count(); }}")
    assert r.status == 1 and "Go moves stacks" in r.err
    r = trace(f"uretprobe:{tmp_path}/main:main.f {{ @[retval] = count(); }}", "-c", f"{tmp_path}/main")
    assert r.status == 0 and "@[2]: 1" in r.out, r.err
    r = trace(f"uprobe:{tmp_path}/main:main.f {{ @ = count(); }}", "-c", f"{tmp_path}/main")
    assert r.status == 0 and r.value("") == "1", r.err


# ---- probes of the kernel ----

def test_tracepoint_and_its_fields(trace, traced):
    r = of_command(trace, traced, """
        tracepoint:syscalls:sys_enter_clock_nanosleep /comm == "traced"/ { @enter = count(); }
        tracepoint:syscalls:sys_exit_clock_nanosleep /comm == "traced" && args.ret == 0/ { @ok = count(); }""")
    assert int(r.value("enter")) == int(r.value("ok")) == NAPS


def test_raw_tracepoint(trace, traced):
    r = of_command(trace, traced, 'rawtracepoint:sys_enter /comm == "traced" && arg1 == 230/ { @ = count(); }')
    assert int(r.value("")) == NAPS


def test_tracepoints_by_glob(trace, traced):
    r = of_command(trace, traced, 'tracepoint:syscalls:sys_*_clock_nanosleep /comm == "traced"/ { @[probe] = count(); }')
    assert r.values() == {f"tracepoint:syscalls:sys_{w}_clock_nanosleep": str(NAPS) for w in ("enter", "exit")}


def test_interval(trace):
    r = trace("interval:ms:50 { @n++; if (@n == 10) { exit(); } }")
    assert r.value("n") == "10"


def test_profile_has_the_rate_that_was_asked_for(trace):
    # The CPU clock of an idle CPU may stand still, so that each CPU gets work.
    cpus = sorted(os.sched_getaffinity(0))
    busy = [subprocess.Popen(["taskset", "-c", str(c), sys.executable, "-c", "while True: pass"]) for c in cpus]
    try:
        r = trace("profile:hz:97 { @[cpu] = count(); } interval:s:2 { exit(); }")
    finally:
        for p in busy:
            p.kill()
            p.wait()
    assert sorted(map(int, r.values())) == cpus, r.out
    for n in r.values().values():
        assert 100 < int(n) <= 2.3 * 97, r.out


def test_software_event_of_a_process(start, traced):
    t = start("-e", "software:faults:1 { @[comm] = count(); }")
    subprocess.run([traced, "10"], check=False, capture_output=True)
    assert int(finish(t).values()["traced"]) > 20


# ---- the end ----

def test_begin_end_and_the_status_of_exit(trace):
    r = trace('BEGIN { printf("begin\\n"); exit(7); } END { printf("end\\n"); }')
    assert r.lines == ["begin", "end"] and r.status == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_with_end_and_maps(start, number):
    t = start("-e", 'BEGIN { @a = 5; } interval:s:100 { } END { printf("end\\n"); }')
    r = finish(t, number)
    assert r.status == 0 and r.lines[0] == "end" and r.value("a") == "5"


def test_missing_command(trace):
    r = trace("BEGIN { }", "-c", "/no/such/program")
    assert r.status == 127 and "/no/such/program" in r.err


def test_quotes_in_a_command(trace, tmp_path):
    r = trace("BEGIN { }", "-c", "printf '%s|' \"a b\" c\\ d ''")
    assert r.out.startswith("a b|c d||")


def test_no_probe_is_left(start, traced):
    t = start("-e", f"uprobe:{traced}:work {{ @ = count(); }}")
    finish(t)
    done = subprocess.run([traced, "10"], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    links = subprocess.run(["bpftool", "prog", "show"], capture_output=True, text=True, check=False).stdout
    assert "culprit_trace" not in links


def test_lost_output_is_told(start, traced):
    """More than the ring holds, while nobody reads."""
    calls = 100000
    t = start("-e", f'uprobe:{traced}:work {{ printf("%s %s\\n", str(arg2), str(arg2)); }}')
    t.send_signal(signal.SIGSTOP)
    subprocess.run([traced, str(calls)], check=False, capture_output=True)
    t.send_signal(signal.SIGCONT)
    r = finish(t)
    lost = int(re.search(r"lost: (\d+) of output", r.err)[1])
    assert 1000 < len(r.lines) == calls - lost


def test_full_map_is_told(trace):
    r = trace("config = { max_map_keys = 10; } BEGIN { $i = 0; while ($i < 25) { @[$i] = 1; $i++; } exit(); }")
    assert len(r.values()) == 10
    assert "15 of new keys, because a map was full" in r.err


# ---- options ----

def test_json(trace, traced):
    r = of_command(trace, traced, 'BEGIN { printf("hi\\n"); } uprobe:PATH:work { @n = count(); @h[comm] = hist(arg0); }',
                   "-f", "json")
    said = [json.loads(line) for line in r.lines if line.startswith("{")]
    assert {"type": "printf", "data": "hi\n"} in said
    assert any(s["type"] == "map" and s["data"] == {"@n": N} for s in said)
    hist = next(s["data"]["@h"]["traced"] for s in said if s["type"] == "hist")
    assert sum(b["count"] for b in hist) == N


def test_output_file(trace, tmp_path):
    r = trace('BEGIN { printf("hi\\n"); exit(); }', "-o", tmp_path / "out")
    assert r.status == 0 and not r.out
    assert (tmp_path / "out").read_text() == "hi\n"
    assert trace("BEGIN { exit(); }", "-o", "/no/such/folder/out").status == 1


def test_parameters_and_files(culprit, tmp_path):
    script = tmp_path / "x.bt"
    script.write_text('#!/usr/bin/env culprit\nBEGIN { printf("%d %s %d\\n", $1, str($2), $#); exit(); }\n')
    r = subprocess.run([culprit, "trace", script, "42", "word"], capture_output=True, text=True, check=False)
    assert r.stdout == "42 word 2\n", r.stderr
    r = subprocess.run([culprit, "trace", "-"], input='BEGIN { printf("in\\n"); exit(); }', capture_output=True, text=True,
                       check=False)
    assert r.stdout == "in\n", r.stderr


def test_list(run, traced):
    r = run("trace", "-l", f"uprobe:{traced}:w*")
    assert r.stdout == f"uprobe:{traced}:work\n"
    r = run("trace", "-l", f"usdt:{traced}:*")
    assert r.stdout.splitlines() == [f"usdt:{traced}:demo:step", f"usdt:{traced}:demo:quiet"]
    r = run("trace", "-lv", "tracepoint:sched:sched_process_exec")
    assert r.stdout.splitlines() == ["tracepoint:sched:sched_process_exec", "    __data_loc char[] filename",
                                     "    pid_t pid", "    pid_t old_pid"]
    assert "software:page-faults:\n" in run("trace", "-l", "software:*").stdout
    r = run("trace", "-l", f"uprobe:{traced}:nothing_like_it")
    assert r.returncode == 1


# ---- errors ----

@pytest.mark.parametrize("program, what, caret", [
    ("tracepoint:sched:sched_swich { @ = count(); }", "no tracepoint 'sched:sched_swich'|no probe 'tracepoint:", True),
    ("uprobe:libc:mallox { @ = count(); }", "no function 'mallox'; there are malloc", True),
    ("uprobe:/no/such/file:main { @ = count(); }", "no file '/no/such/file'", True),
    ("uprobe:libnosuch:main { @ = count(); }", "no program and no library 'libnosuch'", True),
    ("BEGIN { printf(\"%d\\n\", nsec); }", "nsecs", True),
    ("BEGIN { prinf(\"x\"); }", "printf", True),
    ("BEGIN { printf(\"%d\\n\"); }", "1 argument|arguments", True),
    ("tracepoint:sched:sched_switch { @[args.prev_com] = count(); }", "prev_comm", True),
    ("BEGIN { @x = 1; @x = \"a\"; }", "@x", True),
    ("BEGIN { exit( }", "expected|unexpected", True),
    ("interval:s:0 { }", "not a number above 0", True),
    ("software:falts:1 { }", "there are", True),
    ("profile:us:1 { }", "below 10 us", True),
    ("watchpoint:0x1000:3:w { }", "1, 2, 4 or 8 bytes|-p PID", True),
    ("", "no probe|expected|empty", False),
])
def test_errors_say_what_was_meant(trace, program, what, caret):
    r = trace(program)
    assert r.status == 1 and re.search(what, r.err), r.err
    assert "Attached" not in r.err
    if caret:
        assert re.search(r"^ +\^", r.err, re.M), r.err


def test_too_many_probes_end_with_a_sentence(trace):
    r = trace("uprobe:libc:* { @ = count(); }")
    assert r.status == 1 and "more than" in r.err


def test_wrong_usage(run):
    assert run("trace").returncode == 2
    assert run("trace", "-f", "xml", "-e", "BEGIN { }").returncode == 2
    assert run("trace", "-c", "true", "-p", "1", "-e", "BEGIN { }").returncode == 2
    assert run("trace", "-e", "BEGIN { }", "-c", "'open").returncode == 2
    r = run("trace", "-p", "4194303", "-e", "BEGIN { }")
    assert r.returncode == 1 and "4194303" in r.stderr


def test_first_event_soon(trace):
    """From the call to the end of a script that ends in BEGIN."""
    least = 9.0
    for _ in range(5):
        begin = time.monotonic()
        assert trace("BEGIN { exit(); }").status == 0
        least = min(least, time.monotonic() - begin)
    assert least < 0.5


# ---- beside bpftrace ----

SHARED = [
    'tracepoint:raw_syscalls:sys_enter /comm == "traced"/ { @[comm, args->id] = count(); }',
    'tracepoint:syscalls:sys_enter_openat /comm == "traced"/ { printf("%s %s\\n", comm, str(args->filename)); }',
    'tracepoint:syscalls:sys_exit_read /comm == "traced"/ { @[comm] = lhist(args->ret, 0, 2000, 200); }',
    'tracepoint:sched:sched_process_exec /comm == "traced"/ { printf("%s %s\\n", comm, str(args->filename)); }',
    "uprobe:PATH:work { @[probe] = hist(arg0); }",
    "uprobe:PATH:work { @a = avg(arg0); @mi = min(arg0); @ma = max(arg0); @s = sum(arg0); @c = count(); }",
    'uprobe:PATH:work /arg0 < 5/ { printf("%d %x %5d|%-5d| %s %c %s\\n", arg0, arg0, arg0, arg0, str(arg2), 65, func); }',
    "uprobe:PATH:work /arg0 < 5/ { @[str(arg2), arg0] = arg1; }",
    "uretprobe:PATH:work { @[retval] = count(); }",
    "uprobe:PATH:work { @y[arg0 % 3] = sum(arg0); } END { print(@y, 2); clear(@y); printf(\"end\\n\"); }",
    "usdt:PATH:demo:step { @[str(arg2)] = sum(arg3); }",
]


def interrupt(process):
    """bpftrace sometimes misses a signal."""
    for _ in range(30):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=2)[0]
        except subprocess.TimeoutExpired:
            pass
    pytest.skip("bpftrace does not end")
    return ""


@pytest.mark.parametrize("program", SHARED)
def test_same_as_bpftrace(start, traced, program):
    """Both see the same run of the program, and print the same lines, in any order."""
    if not shutil.which("bpftrace"):
        pytest.skip("no bpftrace")
    program = program.replace("PATH", str(traced))
    other = subprocess.Popen(["bpftrace", "-e", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline().startswith("Attaching")
        t = start("-e", program)
        # bpftrace attaches after it said so.
        time.sleep(2)
        subprocess.run([traced, str(N)], check=False, capture_output=True)
        mine = finish(t).out
        theirs = interrupt(other)
    finally:
        other.kill()
    lines = [sorted(line.rstrip() for line in out.splitlines() if line.strip()) for out in (mine, theirs)]
    assert lines[0] and lines[0] == lines[1]


def test_starts_sooner_than_bpftrace(trace):
    """From the call to the end of a script that ends in BEGIN; the least of five runs by turns."""
    if not shutil.which("bpftrace"):
        pytest.skip("no bpftrace")
    least = {"culprit": 99.0, "bpftrace": 99.0}
    program = "BEGIN { exit(); } tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }"
    for _ in range(5):
        begin = time.monotonic()
        assert trace(program).status == 0
        middle = time.monotonic()
        subprocess.run(["bpftrace", "-e", program], check=True, capture_output=True)
        least["culprit"] = min(least["culprit"], middle - begin)
        least["bpftrace"] = min(least["bpftrace"], time.monotonic() - middle)
    print(least)
    assert least["culprit"] < least["bpftrace"]
