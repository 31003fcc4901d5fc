# SPDX-License-Identifier: Apache-2.0
"""culprit trace FUNCTION and arguments by DWARF, against programs that say what they do: measured.c, measured.go."""

import json
import os
import re
import shutil
import subprocess
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
N = 100
THREADS = 2
GO = shutil.which("go") or "/usr/local/go/bin/go"


def build(tmp_path_factory, *flags):
    path = tmp_path_factory.mktemp("measured") / "measured"
    subprocess.run(["gcc", "-pthread", "-g", "-w", *flags, "-o", path, f"{HERE}/measured.c"], check=True)
    return path


@pytest.fixture(scope="module", params=["-O0", "-O2"])
def measured(request, tmp_path_factory):
    return build(tmp_path_factory, request.param)


@pytest.fixture(scope="module")
def optimized(tmp_path_factory):
    return build(tmp_path_factory, "-O2")


@pytest.fixture(scope="module")
def go_program(tmp_path_factory):
    if not os.path.exists(GO):
        pytest.skip("no go")
    folder = tmp_path_factory.mktemp("go")
    shutil.copy(f"{HERE}/measured.go", folder / "main.go")
    (folder / "go.mod").write_text("module measured\ngo 1.20\n")
    subprocess.run([GO, "build", "-o", "measured", "."], cwd=folder, check=True)
    return folder / "measured"


def run(culprit, *args, timeout=120):
    return subprocess.run([culprit, "trace", *map(str, args)], capture_output=True, text=True, timeout=timeout)


@pytest.fixture
def measure(culprit):
    """measure(FUNCTION, COMMAND, OPTION...) returns the last object of its JSON."""

    def measure_function(function, command, *options):
        done = run(culprit, function, "-f", "json", "--budget", "0", "-c", command, *options)
        assert done.returncode == 0, done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"type":"meas')]
        last = json.loads(lines[-1])
        assert last["type"] == "measured"
        return last

    return measure_function


def in_histogram(m):
    return sum(b["calls"] for b in m["histogram"])


def arguments(call):
    return {a["name"]: a["value"] for a in call["arguments"]}


# ---- counts and latencies ----

def test_calls_are_counted_exactly(measure, measured):
    m = measure("nothing", f"{measured} {N}")
    assert (m["calls"], m["returned"], in_histogram(m), m["lost"]) == (THREADS * N,) * 3 + (0,)


def test_recursive_calls_are_each_their_own(measure, measured):
    m = measure("recursive", f"{measured} {N}", "--slower-than", "1ns")
    assert m["calls"] == m["returned"] == in_histogram(m) == THREADS * N * 10
    # The result is what the call's own argument says.
    assert m["slowest"]
    for call in m["slowest"]:
        assert arguments(call)["n"] == call["result"]


def test_calls_that_longjmp_leaves_do_not_return_and_confuse_none(measure, measured):
    m = measure("leaps", f"{measured} {N}")
    assert (m["calls"], m["returned"]) == (THREADS * N, THREADS * N // 2)
    assert all(int(arguments(c)["n"]) % 2 == 0 for c in m["slowest"])
    m = measure("after_leap", f"{measured} {N}")
    assert m["calls"] == m["returned"] == THREADS * N
    assert all(arguments(c)["n"] == c["result"] for c in m["slowest"])


def test_latencies_are_those_of_the_calls(measure, measured):
    m = measure("nap", f"{measured} 0", "--slower-than", "50ms", "--stacks")
    assert m["calls"] == m["returned"] == THREADS * 5
    # On a busy machine others may be slow, too.
    assert m["slow"] == len(m["slowest"]) >= THREADS
    assert m["total_ns"] >= THREADS * (4 * 2 + 60) * 1_000_000
    naps = [c for c in m["slowest"] if arguments(c)["ms"] == "60"]
    assert len(naps) == THREADS
    for call in naps:
        assert 60_000_000 <= call["ns"] <= m["longest_ns"]
        assert arguments(call) == {"ms": "60", "why": '"a text"'}
        assert call["result"] == "54"
        assert call["tid"] != call["pid"] and call["comm"] == "measured"
        assert call["stack"][0]["function"] == "rounds", call["stack"]
    slow = sum(b["calls"] for b in m["histogram"] if b["from_ns"] >= 48_000_000)
    assert slow >= THREADS


def test_text_output_has_rows_histogram_and_calls(culprit, optimized):
    done = run(culprit, "nap", "-c", f"{optimized} 0")
    assert re.search(r"^10 calls, 10 returned: ", done.stdout, re.M), done.stdout
    assert re.search(r"\bmeasured \d+/\d+  \(ms=60, why=\"a text\"\) = 54$", done.stdout, re.M), done.stdout


def test_flame_graph_of_slow_calls(culprit, optimized, tmp_path):
    out = tmp_path / "x.folded"
    done = run(culprit, "nap", "-c", f"{optimized} 0", "--slower-than", "50ms", "-o", out)
    assert done.returncode == 0, done.stderr
    lines = out.read_text().splitlines()
    assert len(lines) == 1 and ";rounds " in lines[0], lines
    assert int(lines[0].split()[-1]) >= THREADS * 60_000_000


def test_measurement_of_a_process_ends_with_its_time(culprit, optimized):
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        begin = time.monotonic()
        done = run(culprit, "libc:malloc", "-p", sleeper.pid, "-d", "1")
        assert done.returncode == 0, done.stderr
        assert time.monotonic() - begin >= 1
        assert "0 calls, 0 returned" in done.stdout
    finally:
        sleeper.kill()
        sleeper.wait()


# ---- arguments ----

def printed(culprit, program, point, text, *values):
    """What a printf() at a point prints at the first event."""
    points = point.replace("PATH", str(program))
    done = run(culprit, "-q", "-e", f'{points} /@n++ == 0/ {{ printf("{text}\\n", {", ".join(values)}); }}',
               "-c", f"{program} 1")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line and not line.startswith(("@", "sum "))]
    assert lines, done.stdout + done.stderr
    return lines[0]


def test_arguments_of_all_integers(culprit, measured):
    assert printed(culprit, measured, "uprobe:PATH:ints", "%d %d %d %d %d %u %d %u", "args.a", "args.b", "args.c", "args.d",
                   "args.e", "args.f", "args.g", "args->h") == \
        "-1 255 -2 65535 -3 4000000000 -4 18446744073709551615"


def test_arguments_of_other_kinds(culprit, measured):
    assert printed(culprit, measured, "uprobe:PATH:kinds", "%d %s %s %d %s %d %d %d %d", "args.yes", "args.c", "str(args.s)",
                   "args.p->x", "str(args.p->label)", "args.p->inner", "args.p->bits", "args.p->more", "args.last") == \
        "1 BLUE a text 42 a text -3 5 17 77"


def test_arguments_behind_structs_by_value(culprit, measured):
    assert printed(culprit, measured, "uprobe:PATH:structs", "%d", "args.behind") == "99"
    assert printed(culprit, measured, "uprobe:PATH:returns_big", "%d", "args.n") == "5"


@pytest.mark.parametrize("function,value", [("color", "BLUE"), ("negative", "-5"), ("kinds", "0")])
def test_results_have_their_type(culprit, measured, function, value):
    assert printed(culprit, measured, f"uretprobe:PATH:{function}", "%s", "retval") == value


@pytest.mark.parametrize("argument,why", [("d", "floating-point"), ("nope", 'has no argument "nope"; it has')])
def test_arguments_that_cannot_be_read(culprit, optimized, argument, why):
    done = run(culprit, "-e", f"uprobe:{optimized}:kinds {{ print(args.{argument}); }}")
    assert done.returncode == 1 and why in done.stderr, done.stderr
    done = run(culprit, "-e", f"uprobe:{optimized}:structs {{ print(args.p); }}")
    assert done.returncode == 1 and '"p" cannot be read: it is a struct' in done.stderr, done.stderr


def test_without_debug_information_arguments_are_registers(culprit, measure, optimized, tmp_path):
    plain = tmp_path / "plain"
    subprocess.run(["strip", "-g", "-o", plain, optimized], check=True)
    m = measure("nap", f"{plain} 0", "--slower-than", "50ms")
    assert m["calls"] == m["returned"] == THREADS * 5
    assert [arguments(c)["arg0"] for c in m["slowest"]].count("0x3c") == THREADS
    done = run(culprit, "-e", f"uprobe:{plain}:nap {{ print(args.ms); }}")
    assert done.returncode == 1 and "has no debug information: use arg0" in done.stderr, done.stderr


def test_debug_information_in_a_file_of_its_own(measure, optimized, tmp_path):
    plain = tmp_path / "plain"
    subprocess.run(["objcopy", "--only-keep-debug", optimized, tmp_path / "plain.debug"], check=True)
    subprocess.run(["strip", "-g", "-o", plain, optimized], check=True)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={tmp_path}/plain.debug", plain], check=True)
    m = measure("nap", f"{plain} 0", "--slower-than", "50ms")
    assert [arguments(c)["ms"] for c in m["slowest"]].count("60") == THREADS


def test_methods_of_cxx(culprit, measure, tmp_path):
    source = tmp_path / "x.cc"
    source.write_text("""
        #include <string>
        namespace shop { struct cart { int id; __attribute__((noinline)) int add(int n, const std::string &what);
                                       __attribute__((noinline)) std::string name(int n); }; }
        int shop::cart::add(int n, const std::string &what) { asm volatile(""); return id + n + (int)what.size(); }
        std::string shop::cart::name(int n) { asm volatile(""); return std::to_string(n); }
        int main() { shop::cart c{3}; int s = 0; for (int i = 0; i < 50; i++) s += c.add(i, "x") + c.name(7).size(); return s == 0; }
        """)
    path = tmp_path / "x"
    subprocess.run(["g++", "-O2", "-g", "-o", path, source], check=True)
    m = measure("shop::cart::add", path)
    assert m["calls"] == m["returned"] == 50
    for call in m["slowest"]:
        assert int(call["result"]) == 3 + int(arguments(call)["n"]) + 1
    # The result is in memory that a hidden argument before `this` points to.
    assert printed(culprit, path, 'uprobe:PATH:_ZN4shop4cart4nameB5cxx11Ei', "%d %d", "args.this->id", "args.n") == "3 7"


# ---- finding ----

@pytest.mark.parametrize("arguments,what", [
    (["nop", "-c", "PATH"], "there is no function 'nop'"),
    (["nap"], "the kernel has no function 'nap'; for one of a program add -p PID"),
    (["libc:mallok", "-c", "PATH"], "there is no function 'mallok' in libc"),
    (["nosuchlib:f", "-c", "PATH"], "there is no program and no library 'nosuchlib'"),
    (["nap", "-c", "PATH", "--slower-than", "soon"], "--slower-than takes seconds"),
    (["nap", "more", "-c", "PATH"], "a function has no parameters"),
])
def test_errors_say_what_to_do(culprit, optimized, arguments, what):
    done = run(culprit, *[a.replace("PATH", str(optimized)) for a in arguments])
    assert done.returncode in (1, 2) and what in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_script_can_be_shown_and_run(culprit, optimized, tmp_path):
    shown = run(culprit, "nap", "-c", f"{optimized} 0", "--slower-than", "50ms", "--show-script")
    script = tmp_path / "x.bt"
    script.write_text(shown.stdout)
    done = run(culprit, "-c", f"{optimized} 0", script)
    assert done.stdout.count("args.ms=60 args.why=a text result=54") == THREADS, done.stdout + done.stderr


# ---- places that would damage a program ----

@pytest.mark.parametrize("point,why", [
    ("nap+100000", "the probe is behind it"),
    ("text", "has no function 'text'"),
    ("0x10", "is in no function"),
])
def test_probes_beside_instructions_are_refused(culprit, optimized, point, why):
    done = run(culprit, "-e", f"uprobe:{optimized}:{point} {{ @ = count(); }}")
    assert done.returncode == 1 and why in done.stderr, done.stderr


def test_probes_within_an_instruction_are_refused(culprit, optimized):
    shown = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "--disassemble=nap", optimized], capture_output=True,
                           text=True, check=True).stdout
    begins = [int(a, 16) for a in re.findall(r"^ +([0-9a-f]+):", shown, re.M)]
    within = next(a + 1 - begins[0] for a in begins[:-1] if a + 1 not in begins)
    done = run(culprit, "-e", f"uprobe:{optimized}:nap+{within} {{ @ = count(); }}")
    assert done.returncode == 1 and f"no instruction begins at nap+{within}" in done.stderr, done.stderr


# ---- Go ----

GO_CALLS = 20 * 300


def test_go_functions_whose_stacks_grow_are_counted_exactly(measure, go_program):
    m = measure("main.grow", go_program)
    assert m["calls"] == m["returned"] == in_histogram(m) == GO_CALLS
    for call in m["slowest"]:
        n = int(arguments(call)["n"])
        assert arguments(call)["name"] == '"name"' and arguments(call)["ok"] == "1"
        assert call["result"] == str(-7 if n % 1000 == 1 else n), call


def test_go_calls_that_panic_do_not_return(measure, go_program):
    m = measure("main.thrower", go_program)
    assert (m["calls"], m["returned"]) == (GO_CALLS, GO_CALLS // 2)
    m = measure("main.panics", go_program)
    assert m["calls"] == m["returned"] == GO_CALLS


def test_go_methods_and_stacks(measure, go_program):
    m = measure("main.(*shop).visit", go_program, "--stacks")
    assert m["calls"] == m["returned"] == GO_CALLS
    for call in m["slowest"]:
        assert arguments(call)["who"] == '"bob"'
        assert call["result"] in ('"even bob"', '"odd"')
        assert [f["function"] for f in call["stack"]][:2] == ["main.(*shop).visit", "main.main.func1"], call["stack"]


def test_uretprobe_of_go_is_at_its_returns(culprit, go_program):
    done = run(culprit, "-e", f'uretprobe:{go_program}:main.grow {{ @[probe] = count(); }}', "-c", go_program)
    assert done.returncode == 0, done.stderr
    assert f"@[uretprobe:{go_program}:main.grow]: {GO_CALLS}" in done.stdout, done.stdout


@pytest.mark.parametrize("where", ["main.grow+0", "main.grow+4", "ADDRESS"])
def test_other_return_probes_of_go_are_refused(culprit, go_program, where):
    symbols = subprocess.run(["nm", go_program], capture_output=True, text=True, check=True).stdout
    where = where.replace("ADDRESS", "0x" + re.search(r"^(\w+) T main\.grow$", symbols, re.M)[1])
    done = run(culprit, "-e", f"uretprobe:{go_program}:{where} {{ @ = count(); }}", timeout=30)
    assert done.returncode == 1 and "would crash the program" in done.stderr, done.stderr
