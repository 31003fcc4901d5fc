# SPDX-License-Identifier: Apache-2.0
"""A script's builtins that join events with requests and services: traceid, spanid, service, container, pod."""

import collections
import json
import os
import re
import signal
import subprocess

import pytest

import truth

CONTEXT = os.path.join(truth.TOP, "build/context")
PROGRAM = r"""
#include <culprit_context.h>
#include <stdio.h>
#include <string.h>

__attribute__((noipa)) void work(int n)
{
	__asm__ volatile("" : : "r"(n));
}

int main(void)
{
	unsigned char trace[16], span[8];

	puts("started");
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	for (int i = 1; i <= 90; i++) {
		memset(trace, i, sizeof(trace));
		memset(span, 0x80 + i, sizeof(span));
		if (i % 3)
			culprit_context_enter(trace, span, 1);
		work(i);
		if (i % 3)
			culprit_context_leave();
	}
	return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spans")
    source, binary = folder / "spans.c", folder / "spans"
    source.write_text(PROGRAM)
    subprocess.run(["gcc", "-O1", f"-I{truth.TOP}/context", str(source), "-o", str(binary), f"-L{CONTEXT}",
                    "-lculprit-context", f"-Wl,-rpath,{CONTEXT}"], check=True)
    return str(binary)


@pytest.fixture
def start(culprit):
    """start(SCRIPT, ARG...) starts culprit trace, and waits until its probes are attached."""
    started = []

    def run(script, *args):
        t = subprocess.Popen([culprit, "trace", "-e", script, *map(str, args)], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        started.append(t)
        line = t.stderr.readline()
        assert line.startswith("Attached"), line + t.stderr.read()
        return t

    yield run
    for t in started:
        if t.poll() is None:
            t.kill()
            t.communicate()


@pytest.fixture
def traced(program, start):
    """traced(SCRIPT) is what the script prints while the program makes its calls."""

    def run(script):
        p = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert p.stdout.readline() == "started\n"
        tool = start(script, "-p", p.pid)
        p.communicate("go\n", timeout=60)
        out, err = tool.communicate(timeout=60)
        assert tool.returncode == 0 and not err, err
        return out

    return run


def expected(i):
    return ("%02x" % i * 16, "%02x" % (0x80 + i) * 8) if i % 3 else ("", "")


@pytest.mark.parametrize("options", [[], ["--stacks", "--slower-than", "1ns"]])
def test_each_call_of_a_measured_function_has_its_own_span(culprit, program, options):
    p = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "started\n"
    tool = subprocess.Popen([culprit, "trace", "work", "-f", "json", "-p", str(p.pid), *options], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)
    line = tool.stderr.readline()
    assert line.startswith("Measuring work"), line
    p.communicate("go\n", timeout=60)
    measured = json.loads(tool.communicate(timeout=60)[0].splitlines()[-1])
    assert measured["calls"] == measured["returned"] == 90 and len(measured["slowest"]) == 10
    for call in measured["slowest"]:
        i = int(call["arguments"][0]["value"], 0)
        assert (call.get("trace_id", ""), call.get("span_id", "")) == expected(i), call


@pytest.mark.parametrize("stack", ["", "@[ustack] = count();"])
def test_each_event_has_its_own_span(traced, program, stack):
    out = traced(f'uprobe:{program}:work {{ printf("%d <%s> <%s>\\n", arg0, traceid, spanid); {stack} }}')
    found = {int(i): (trace, span) for i, trace, span in re.findall(r"^(\d+) <(\w*)> <(\w*)>$", out, re.M)}
    assert found == {i: expected(i) for i in range(1, 91)}


def test_spans_are_keys_and_conditions(traced, program):
    out = traced(f"uprobe:{program}:work {{ @by[traceid, spanid] = sum(arg0);"
                          " if (spanid) { @within = count(); } else { @outside = count(); } }")
    found = dict(re.findall(r"^(@\w+(?:\[.*\])?): (\d+)$", out, re.M))
    assert found.pop("@within") == "60" and found.pop("@outside") == "30"
    want = collections.Counter()
    for i in range(1, 91):
        want["@by[%s, %s]" % expected(i)] += i
    assert found == {key: str(n) for key, n in want.items()}


def test_a_predicate_says_what_to_write(culprit):
    r = subprocess.run([culprit, "trace", "-e", "BEGIN /spanid/ { }"], capture_output=True, text=True, timeout=60,
                       check=False)
    assert r.returncode == 1 and "1:8: error: a predicate cannot use spans: write if (spanid) { … }" in r.stderr


def test_processes_of_a_service_are_one_key(start):
    tool = start("uprobe:libc:getppid { @s[service] = count(); @c[container, pod] = count(); }")
    perl = '$| = 1; getppid for 1 .. 100; print "done\\n"; <STDIN>'
    children = [subprocess.Popen(["/usr/bin/perl", "-e", perl], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                 env={**os.environ, "OTEL_SERVICE_NAME": name}) for name in ("one", "two", "one")]
    # The processes live until the maps are read.
    for c in children:
        assert c.stdout.readline() == "done\n"
    tool.send_signal(signal.SIGINT)
    out = tool.communicate(timeout=60)[0]
    for c in children:
        c.communicate()
    assert "@s[one]: 200\n" in out and "@s[two]: 100\n" in out
    assert re.search(r"^@c\[, \]: \d+$", out, re.M)


def test_a_process_that_has_ended_is_known_by_its_name(start):
    tool = start('tracepoint:sched:sched_process_exit /comm == "true"/ { @[service] = count(); }')
    for _ in range(20):
        subprocess.run(["/bin/true"], check=True)
    tool.send_signal(signal.SIGINT)
    out = tool.communicate(timeout=60)[0]
    count = re.search(r"^@\[true\]: (\d+)$", out, re.M)
    assert count and int(count[1]) >= 20
