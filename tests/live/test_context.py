# SPDX-License-Identifier: Apache-2.0
"""Spans published by libculprit-context, in every kind of thread-local storage, on glibc and musl, under load,
with a pool of threads that hand requests over. A sample's span must be the span for which the program, by its
own log, ran the sampled function."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest
from folded import parse_folded
from otlp import Receiver
from pprof import samples
from recorder import record
from test_agent import Agent, wait_for
from test_up import up

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CONTEXT = os.path.join(TOP, "context")
MACHINE = os.uname().machine
# The TLS dialects of compilers: with descriptors, and the traditional one.
DIALECTS = {"x86_64": ("gnu2", "gnu"), "aarch64": ("desc", "trad")}
THREADS = 8

# name: compiler, flags of the library (None: it is part of the program), loaded late, environment
SHAPES = {
    "inside": ("gcc", None, False, {}),
    "static-pie": ("gcc -static-pie -fPIE -fuse-ld=lld", None, False, {}),
    "descriptor": ("gcc", "-mtls-dialect=DESC", False, {}),
    "descriptor-late": ("gcc", "-mtls-dialect=DESC", True, {}),
    "descriptor-dynamic": ("gcc", "-mtls-dialect=DESC", True,
                           {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=0"}),
    "general": ("gcc", "-mtls-dialect=GNU", False, {}),
    "general-late": ("gcc", "-mtls-dialect=GNU", True, {}),
    "general-dynamic": ("gcc", "-mtls-dialect=GNU", True,
                        {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=0"}),
    "general-symbolic": ("gcc", "-mtls-dialect=GNU -Wl,-Bsymbolic", True, {}),
    "initial": ("gcc", "-ftls-model=initial-exec", False, {}),
    "musl-inside": ("musl-gcc", None, False, {}),
    "musl-static": ("musl-gcc -static-pie -fPIE", None, False, {}),
    "musl-descriptor": ("musl-gcc", "-mtls-dialect=DESC", False, {}),
    "musl-late": ("musl-gcc", "-mtls-dialect=DESC", True, {}),
    "musl-general-late": ("musl-gcc", "-mtls-dialect=GNU", True, {}),
}


def build(where, shape, machine=MACHINE, compilers=None):
    """Builds the program and its library. Returns the program, the libraries that it loads late, and its
    environment. `compilers`: the compilers for another machine."""
    compiler, flags, late, env = SHAPES[shape]
    cc, *more = compiler.split()
    cc = (compilers or {}).get(cc, [cc])
    if not shutil.which(cc[0]):
        pytest.skip(f"no {cc[0]}: tools/install test")
    for name, dialect in zip(("DESC", "GNU"), DIALECTS[machine]):
        flags = flags and flags.replace(f"={name}", f"={dialect}")
    base = cc + more + ["-O2", "-g", "-fno-omit-frame-pointer", "-D_GNU_SOURCE", "-pthread", "-I", CONTEXT]
    program = [*base, os.path.join(TOP, "tests/context/spans.c"), "-o", str(where / "spans"), "-ldl"]
    context = os.path.join(CONTEXT, "context.c")
    library = where / "libculprit-context.so.0"
    if flags is None:
        program += [context, "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"]
    else:
        subprocess.run([*base, "-fPIC", "-shared", *flags.split(), f"-Wl,-soname,{library.name}", context, "-o",
                        library], check=True)
        program += ["-DLATE"] if late else [str(library), "-Wl,-rpath,$ORIGIN"]
    subprocess.run(program, check=True)
    return [where / "spans"], [library] if late else [], env


def logged(path):
    spans = {}
    with open(path) as f:
        for line in f:
            trace, span, n, tid = line.split()
            spans.setdefault((trace, span), (f"work_{n}", set()))[1].add(int(tid))
    return spans


def judge(got, spans, attribute=None):
    """Counts samples of functions that work for a span, with the span and without, and samples of functions that
    work for no span. `attribute`: a label that has the function's number."""
    linked = missed = idle = 0
    for s in got:
        functions = [f.replace("::", ".").rpartition(".")[2] for f in s.functions] # without package or class
        worked = [f for f in functions if f.startswith("work_")]
        key = (s.labels.get("trace_id"), s.labels.get("span_id"))
        # A sample has the attribute exactly if it has the span. Samples of publishing code may have both.
        route = f"/pay/{worked[0][-1]}" if worked and key[0] else None
        assert not attribute or s.labels.get(attribute) == route or key[0] and not worked, (s.labels, s.functions)
        if worked and key == (None, None):
            missed += s.value
        elif worked:
            assert key in spans, f"{s.functions} for {key}, which is nobody's"
            assert spans[key][0] == worked[0], f"{worked} for {key} of {spans[key]}"
            assert s.labels["tid"] in spans[key][1] or 0 in spans[key][1]
            linked += s.value
        elif "idle_work" in functions:
            assert key == (None, None), f"idle for {key}"
            idle += s.value
    return linked, missed, idle


def record_spans(culprit, where, hz, program, late, env):
    """Records the program to out.pb.gz. A library that is loaded late publishes only after culprit has read its
    thread context, because the time until then depends on the machine."""
    seen = where / "seen"
    command = [culprit, "record", "-v", "-o", where / "out.pb.gz", "-F", hz, "--", *program, *late]
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, errors="replace",
                          env={**os.environ, **env, "SPANS_SEEN": str(seen)}) as p:
        hangs = threading.Timer(300, p.kill)
        hangs.start()
        for line in p.stderr:
            if "its trace context is read" in line:
                seen.touch()
            sys.stderr.write(line)
        assert p.wait() == 0
        hangs.cancel()


@pytest.mark.parametrize("shape", SHAPES)
def test_every_sample_has_the_span_that_it_was_for(culprit, tmp_path, shape):
    program, late, env = build(tmp_path, shape)
    record_spans(culprit, tmp_path, 997, [*program, 3, THREADS, tmp_path / "log"], late, env)
    linked, missed, idle = judge(samples(tmp_path / "out.pb.gz"), logged(tmp_path / "log"), "http.route")
    print(f"{shape}: {linked} samples have their span, {missed} have none, {idle} should have none")
    assert missed <= 0.01 * linked, (missed, linked)
    assert linked > 100 and idle > 20, (linked, idle)


def test_spans_stay_their_threads_own_while_what_threads_have_grows(culprit, tmp_path):
    """A thread's DTV moves when it grows because libraries are loaded."""
    program, late, env = build(tmp_path, "descriptor-dynamic")
    touches = []
    for i in range(40): # more modules than a DTV of glibc has room for at first
        touches.append(tmp_path / f"touch{i}.so")
        subprocess.run(["gcc", "-O2", "-fPIC", "-shared", os.path.join(TOP, "tests/context/touch.c"), "-o", touches[-1]],
                       check=True)
    record_spans(culprit, tmp_path, 997, [*program, 4, THREADS, tmp_path / "log"], [*late, *touches], env)
    linked, missed, idle = judge(samples(tmp_path / "out.pb.gz"), logged(tmp_path / "log"), "http.route")
    print(f"{linked} samples have their span, {missed} have none, {idle} should have none")
    assert missed <= 0.01 * linked, (missed, linked)
    assert linked > 100 and idle > 20, (linked, idle)


def test_records_where_memory_ends(culprit, tmp_path):
    program = tmp_path / "edges"
    subprocess.run(["gcc", "-O2", "-g", "-fno-omit-frame-pointer", "-D_GNU_SOURCE", "-pthread", "-I", CONTEXT,
                    os.path.join(TOP, "tests/context/edges.c"), os.path.join(CONTEXT, "context.c"), "-o", program,
                    "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"], check=True)
    record(culprit, tmp_path / "out.pb.gz", "-F", 1997, "--", program, 4, tmp_path / "log")
    linked, missed, _ = judge(samples(tmp_path / "out.pb.gz"), logged(tmp_path / "log"), "http.route")
    print(f"{linked} samples have their span, {missed} have none")
    assert missed <= 0.01 * linked and linked > 500, (linked, missed)


def labels_of(receiver, **resource):
    return {s.resource.get("service.version") for s in receiver.samples(**resource) if s.link}


def routes_of(receiver):
    return {s.attributes.get("http.route") for s in receiver.samples() if s.link} - {None}


def test_what_a_process_says_of_itself_is_its_resource_and_spans_are_links(culprit, tmp_path):
    program, _, _ = build(tmp_path, "inside")
    receiver = Receiver()
    said = {"service_name": "spans", "deployment_environment_name": "test"}
    # The process context takes precedence over the environment.
    env = {**os.environ, "OTEL_SERVICE_NAME": "other", "OTEL_RESOURCE_ATTRIBUTES": "team=pay"}
    work = subprocess.Popen([*program, "300", "2", tmp_path / "log"], env=env)
    try:
        with Agent(culprit, tmp_path, export=receiver.url, period=1, comm="spans") as agent:
            wait_for(lambda: "1" in labels_of(receiver, team="pay", **said), lambda: agent.stderr)
            work.send_signal(signal.SIGUSR1)
            wait_for(lambda: "2" in labels_of(receiver, team="pay", **said) and len(routes_of(receiver)) == 4,
                     lambda: f"{routes_of(receiver)} {agent.stderr}")
            agent.end()
    finally:
        work.kill()
        work.wait()
        receiver.stop()
    linked = [s for s in receiver.samples() if s.link]
    names = {s.resource["service.name"] for s in linked}
    assert names <= {"spans", "other"}, names
    # Attributes of threads belong to samples, not to the process's resource.
    assert routes_of(receiver) == {f"/pay/{i}" for i in range(4)}
    assert not any("http.route" in s.resource for s in linked)


def test_a_server_filters_and_groups_by_what_threads_say(culprit, tmp_path, place):
    program, _, _ = build(tmp_path, "inside")
    routes = {f"/pay/{i}" for i in range(4)}
    work = subprocess.Popen([*program, "300", "2", tmp_path / "log"])
    try:
        with up(culprit, place / "store", "-F", "199", "--comm", "spans") as u:
            def values():
                # Until a sample has the label, the server does not know it and says so.
                if "http.route" not in (n["name"] for n in json.loads(u.get("/api/v1/labels"))["labels"]):
                    return set()
                answer = json.loads(u.get("/api/v1/label-values", label="http.route"))
                return {v["name"] for v in answer["values"]}

            assert u.wait_for(lambda: values() >= routes), values()
            assert values() == routes
            for route in sorted(routes):
                text = u.get("/api/v1/export", format="folded", query=f'{{http.route="{route}"}}').decode()
                worked = {f for s in parse_folded(text) for f in s.frames if f.startswith("work_")}
                assert worked == {f"work_{route[-1]}"}, (route, worked)
            series = json.loads(u.get("/api/v1/series", group_by="http.route", query='{service.name="spans"}', step=3600000))
            groups = {s["labels"].get("http.route") for s in series["series"]}
            assert groups >= routes, series
            assert u.end()[0] == 0
    finally:
        work.kill()
        work.wait()


def told(run, program, *args, env=None):
    """Runs the program until it has published the context of its thread and then that of the process. Returns
    doctor's lines about the process by their first word."""
    work = subprocess.Popen([*program, "300", "2", *args], env={**os.environ, **(env or {})})
    lines = {}
    try:
        wait_for(lambda: "otel" in lines and "service.name=" in lines.get("process", "") or lines.update(
            line.split(": ", 1) for line in run("doctor", "-p", work.pid).stdout.splitlines()), lambda: lines)
    finally:
        work.kill()
        work.wait()
    return lines


def test_doctor_says_how_a_process_is_read_and_what_is_missing(culprit_plain, run, tmp_path):
    program, _, _ = build(tmp_path, "inside")
    lines = told(run, program, tmp_path / "log")
    # The program has no other thread-local storage than the library's, so the offset is known.
    assert lines["otel"] == (f"OpenTelemetry thread context, of {tmp_path}/spans: -152 from the thread pointer, "
                             "by the program's own headers") or MACHINE != "x86_64"
    assert lines["process"] == ("OpenTelemetry process context: service.name=spans, deployment.environment.name=test, "
                                "service.version=1; it names 2 attributes of its threads")
    assert "traces" not in lines
    os.mkdir(tmp_path / "dynamic")
    program, late, env = build(tmp_path / "dynamic", "descriptor-dynamic")
    lines = told(run, program, tmp_path / "log", *late, env=env)
    assert late[0].name in lines["otel"] and "in the block of module" in lines["otel"]
    assert lines["otel"].endswith("by its TLS descriptor")
    # The library is part of the program, but its symbol is not exported.
    os.mkdir(tmp_path / "hidden")
    subprocess.run(["gcc", "-O2", "-D_GNU_SOURCE", "-pthread", "-I", CONTEXT, "-o", tmp_path / "hidden/spans",
                    os.path.join(TOP, "tests/context/spans.c"), os.path.join(CONTEXT, "context.c")], check=True)
    lines = told(run, [tmp_path / "hidden/spans"], tmp_path / "log")
    assert lines["otel"] == (f"missing: {tmp_path}/hidden/spans has otel_thread_ctx_v1, but does not export it; "
                             "link it with -Wl,--export-dynamic-symbol=otel_thread_ctx_v1")
    # A process that publishes nothing.
    work = subprocess.Popen(["sleep", "300"])
    try:
        assert "traces: the process publishes no spans" in run("doctor", "-p", work.pid).stdout
    finally:
        work.kill()
        work.wait()


OBI = "/sys/fs/bpf/otel/traces_ctx_v1"


def bpftool(*args):
    tool = shutil.which("bpftool") or "/usr/sbin/bpftool"
    done = subprocess.run([tool, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def obi_map():
    """Pins a map like the one of OpenTelemetry's eBPF instrumentation."""
    if os.path.exists(OBI):
        pytest.skip(f"{OBI} is somebody's")
    if not os.path.ismount("/sys/fs/bpf"):
        pytest.skip("no BPF file system")
    os.makedirs(os.path.dirname(OBI), mode=0o1700, exist_ok=True)
    bpftool("map", "create", OBI, "type", "lru_hash", "key", 8, "value", 24, "entries", 16384,
            "name", "traces_ctx_v1")
    yield OBI
    os.unlink(OBI)
    os.rmdir(os.path.dirname(OBI))


def test_spans_that_only_obi_knows(culprit, tmp_path, obi_map):
    work = [subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"]) for _ in range(2)]
    try:
        pid, other = (w.pid for w in work)
        key = (pid << 32 | pid).to_bytes(8, "little")
        trace, span = os.urandom(16), os.urandom(8)
        bpftool("map", "update", "pinned", obi_map, "key", *key, "value", *trace, *span)
        record(culprit, tmp_path / "out.pb.gz", "-F", 199, "-d", 2, "-p", f"{pid},{other}")
    finally:
        for w in work:
            w.kill()
            w.wait()
    seen = {}
    for s in samples(tmp_path / "out.pb.gz"):
        seen.setdefault(s.labels["pid"], set()).add((s.labels.get("trace_id"), s.labels.get("span_id")))
    assert seen == {pid: {(trace.hex(), span.hex())}, other: {(None, None)}}
