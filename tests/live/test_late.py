# SPDX-License-Identifier: Apache-2.0
"""Late symbols: a stripped program, or an agent that sends no symbols. Debug information arrives when the server
already has the samples. The program knows its own stacks, with which the server's names are compared."""

import json
import os
import subprocess

import pytest

from folded import parse_folded
from test_up import Up, server
from truth import PROGRAMS, Truth, Verdict, build, symbols

RATE, CPU_MS = 499, 2000


@pytest.fixture(scope="module")
def programs():
    build()
    return PROGRAMS


def stacks_of(s, name):
    text = s.get("/api/v1/export", format="folded", query=f'{{service.name="late-{name}"}}',
                 type="process_cpu:samples:count:cpu:nanoseconds").decode()
    return parse_folded(text.replace(f"late-{name};", f"{name};"))


def total(stacks):
    return sum(x.count for x in stacks)


def profiles(s):
    return json.loads(s.get("/api/v1/stats"))["ingest"]["profiles"]


def run_under_agent(culprit, s, programs, name, folder, *options):
    """Returns all samples of one run of the program, once the store has them."""
    before = profiles(s)
    with Up(culprit, "agent", "--collection-agent", f"127.0.0.1:{s.ports['otlp-grpc']}", "--disable-tls", "-F", RATE,
            "--period", "1", *options) as agent:
        assert s.wait_for(lambda: profiles(s) > before), "nothing is sampled"
        subprocess.run([f"{programs}/{name}", str(CPU_MS)], check=True, timeout=120,
                       env={**os.environ, "OTEL_SERVICE_NAME": f"late-{name}", "TRUTH_OUT": str(folder)})
        # Samples taken so far arrive with one of the next two profiles.
        n = profiles(s)
        assert s.wait_for(lambda: profiles(s) >= n + 3, 120), "no more comes"
        status, _, _, err = agent.end()
        assert status == 0, err
    stacks = s.wait_for(lambda: stacks_of(s, name))
    assert total(stacks) > RATE * CPU_MS / 1000 / 2, ("samples are missing", err)
    return stacks


def bare(stacks, base):
    """The program's frames that are only an address."""
    return [f for x in stacks for f in x.frames if f.startswith(f"{base}+0x")]


def unnamed_in(stacks, name, full):
    """Those whose address is in a function; the first entry of the PLT, say, is in none."""
    return {f for f in bare(stacks, name)
            if any(start <= int(f.partition("+")[2], 16) < end for start, end, _ in symbols(full))}


def nameless_of_kernel(stack):
    """Frames of the kernel without a name, but for BPF programs: the agent reads the names of loaded code again after some
    seconds only (tests/live/test_kernel_names.py), and its own programs are new."""
    program = next((i for i, f in enumerate(stack.kernel) if f.startswith(("bpf_", "__bpf_", "trace_call_bpf"))), None)
    return [f for f in stack.kernel[:program] if "+0x" in f]


@pytest.mark.parametrize("name, options", [("inlined-gs", []), ("inlined-g", ["--no-symbols"]),
                                           ("deep-g", ["--no-symbols"])])
def test_names_come_late(culprit, programs, tmp_path, name, options):
    full = f"{programs}/{name.removesuffix('s')}"
    with server(culprit, tmp_path / "store") as s:
        before = run_under_agent(culprit, s, programs, name, tmp_path, *options)
        own = {n for _, _, n in symbols(full)} - {"_start", "_init", "_fini"}
        assert not [x for x in before if own & set(x.frames)], "these have names already: this proves little"
        assert sum(x.count for x in before if bare([x], name)) > total(before) / 2
        kernel = [x for x in before if x.kernel]
        nameless = [f for x in kernel for f in nameless_of_kernel(x)]
        assert not nameless, "the kernel's names cannot come later"
        pushed = subprocess.run([culprit, "symbols", "push", "--server", s.url, full], capture_output=True, text=True,
                                timeout=60)
        assert pushed.returncode == 0 and "1 sent" in pushed.stdout, pushed
        assert s.wait_for(lambda: not unnamed_in(stacks_of(s, name), name, full)), unnamed_in(stacks_of(s, name), name, full)
        after = stacks_of(s, name)
        assert total(after) == total(before)
        verdict = Verdict(Truth(tmp_path, name), after)
        print(name, options, verdict)
        assert verdict.wrong - verdict.cut <= max(1, verdict.samples // 1000), str(verdict)
        if name.startswith("inlined"):
            assert verdict.leaves["mix"] + verdict.leaves["mix_twice"] + verdict.leaves["in_d"] > 0 or \
                any("mix" in x.frames for x in after), "nothing inlined was seen"
        # Samples that the server gets from now on have names, too.
        again = run_under_agent(culprit, s, programs, name, tmp_path, *options)
        assert s.wait_for(lambda: not unnamed_in(stacks_of(s, name), name, full)), unnamed_in(stacks_of(s, name), name, full)
        assert total(again) > total(after)
        assert s.end()[0] == 0
    with server(culprit, tmp_path / "store") as s:
        assert not unnamed_in(stacks_of(s, name), name, full), "the names are gone"
        assert own & {f for x in stacks_of(s, name) for f in x.frames}
        assert s.end()[0] == 0
