# SPDX-License-Identifier: Apache-2.0
"""Elastic's universal profiling integration, with a publisher that follows its specification. The stacks that the
agent sends to the publisher's socket are those that it exports."""

import os
import shutil
import signal
import subprocess
from collections import Counter

import pytest
from otlp import Receiver, first, message, numbers
from test_agent import Agent, wait_for
from test_procman import with_own_mounts

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCES = os.path.join(TOP, "tests/context")
X86 = os.uname().machine == "x86_64"


def build(where):
    if not shutil.which("gcc"):
        pytest.skip("no gcc: tools/install test")
    library = where / "elastic-jvmti-linux-test.so"
    subprocess.run(["gcc", "-O2", "-fPIC", "-shared", "-ftls-model=global-dynamic",
                    f"-mtls-dialect={'gnu2' if X86 else 'desc'}",
                    os.path.join(SOURCES, "elastic_library.c"), "-o", library], check=True)
    subprocess.run(["gcc", "-O2", "-g", "-D_GNU_SOURCE", "-fno-omit-frame-pointer", "-pthread",
                    os.path.join(SOURCES, "elastic.c"), str(library), f"-Wl,-rpath,{where}",
                    "-o", where / "elastic"], check=True)
    return where / "elastic"


# ---- ids of stacks, computed from exported requests as a receiver does ----

def xxh64(data):
    """Computes XXH64 with seed 0."""
    m = (1 << 64) - 1
    p1, p2, p3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    p4, p5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

    def rotated(v, n):
        return (v << n | v >> (64 - n)) & m

    def mixed(acc, lane):
        return rotated((acc + lane * p2) & m, 31) * p1 & m

    at, n = 0, len(data)
    if n >= 32:
        v = [(p1 + p2) & m, p2, 0, -p1 & m]
        while at + 32 <= n:
            v = [mixed(a, int.from_bytes(data[at + 8 * i:at + 8 * i + 8], "little")) for i, a in enumerate(v)]
            at += 32
        h = sum(rotated(a, r) for a, r in zip(v, (1, 7, 12, 18))) & m
        for a in v:
            h = ((h ^ mixed(0, a)) * p1 + p4) & m
    else:
        h = p5
    h = (h + n) & m
    while at + 8 <= n:
        h = (rotated(h ^ mixed(0, int.from_bytes(data[at:at + 8], "little")), 27) * p1 + p4) & m
        at += 8
    if at + 4 <= n:
        h = (rotated(h ^ int.from_bytes(data[at:at + 4], "little") * p1 & m, 23) * p2 + p3) & m
        at += 4
    for byte in data[at:]:
        h = rotated(h ^ byte * p5 & m, 11) * p1 & m
    h = (h ^ h >> 33) * p2 & m
    h = (h ^ h >> 29) * p3 & m
    return h ^ h >> 32


def stack_id(tables, index):
    """Computes the id as collector-contrib's elasticsearchexporter does."""
    h = 0x6c62272e07bb014262b821756295c58d
    for at in numbers(message(tables[7][index]).get(1)):
        location = message(tables[2][at])
        mapping = message(tables[1][first(location, 1)])
        lines = [message(x) for x in location.get(3, [])]
        file = None
        for a in numbers(mapping.get(5)):
            attribute = message(tables[6][a])
            if tables[5][first(attribute, 1)] == b"process.executable.build_id.htlhash":
                file = bytes.fromhex(message(attribute[2][0])[1][0].decode())
        if not file:
            text = b""
            for line in lines:
                f = message(tables[3][first(line, 1)])
                text += tables[5][first(f, 1)] + tables[5][first(f, 3)]
                text += first(line, 2).to_bytes(8, "big") + first(line, 3).to_bytes(8, "big")
            file = xxh64(text).to_bytes(8, "big") * 2
        place = first(location, 2) or (first(lines[-1], 2) if lines else 0)
        for byte in file + str(place).encode():
            h = (h ^ byte) * 0x1000000000000000000013B & ((1 << 128) - 1)
    return h.to_bytes(16, "big").hex()


def exported(receiver, traces):
    """Returns {(trace, stack id): samples} of these traces, from all requests."""
    seen = Counter()
    for body in receiver.bodies:
        m = message(body)
        tables = message(first(m, 2))
        ids = {}
        for r in map(message, m.get(1, [])):
            for p in [message(p) for s in r.get(2, []) for p in message(s).get(2, [])]:
                if tables[5][first(message(p[1][0]), 1)] != b"samples":
                    continue
                for s in map(message, p.get(2, [])):
                    trace = message(tables[4][first(s, 3)]).get(1, [b""])[0].hex()
                    if trace not in traces:
                        continue
                    stack = first(s, 1)
                    ids.setdefault(stack, stack_id(tables, stack))
                    count = len(numbers(s.get(5), fixed=True)) or sum(numbers(s.get(4)))
                    seen[trace, ids[stack]] += count
    return seen


def read(log):
    transactions, seen, registrations = {}, Counter(), []
    with open(log) as f:
        for line in f.read().rpartition("\n")[0].splitlines():
            what, *rest = line.split()
            if what == "transaction":
                transactions[rest[0]] = (rest[1], int(rest[2]))
            elif what == "seen" and len(rest) == 4:
                assert int(rest[3]) > 0, line
                assert transactions[rest[0]] == (rest[1], 1), f"{line}: of {transactions[rest[0]]}"
                seen[rest[0], rest[2]] += int(rest[3])
            elif what == "registration":
                registrations.append(rest)
            else:
                assert what != "wrong", line
    return transactions, seen, registrations


def totals(log, receiver):
    """Returns the number of samples in messages to the publisher, and in exported requests."""
    transactions, seen, _ = read(log)
    sampled = {t for t, (_, flags) in transactions.items() if flags}
    return sum(seen.values()), sum(exported(receiver, sampled).values())


@pytest.mark.parametrize("shape", ["usual", "long-path", "bursts"])
def test_what_is_told_is_what_was_sampled(culprit, tmp_path, shape):
    program = build(tmp_path)
    folder = tmp_path / ("d" * 100 if shape == "long-path" else "d")
    folder.mkdir()
    log, receiver = tmp_path / "log", Receiver()
    # Bursts: each transaction has one or two samples, so there are more messages than one send takes.
    seconds, hz = ("0.002", 997) if shape == "bursts" else ("0.1", 499)
    work = subprocess.Popen([program, folder / "essock", log, "4", seconds])
    try:
        with Agent(culprit, tmp_path, export=receiver.url, period=1, comm="elastic",
                   frequency=hz) as agent:
            wait_for(lambda: len(receiver.bodies) > 4 and sum(read(log)[1].values()) > 300,
                     lambda: f"{totals(log, receiver)} {agent.stderr}")
            # Stop the work. When all samples are exported, the messages must have the same number.
            work.send_signal(signal.SIGUSR1)
            n = agent.metric("agent_profiles_total")
            wait_for(lambda: agent.metric("agent_profiles_total") > n + 2, "no periods")
            wait_for(lambda: totals(log, receiver)[0] == totals(log, receiver)[1],
                     lambda: f"{totals(log, receiver)}\n{agent.stderr}")
            agent.end()
    finally:
        work.kill()
        work.wait()
        receiver.stop()
    transactions, seen, registrations = read(log)
    assert registrations and min(int(r[0]) for r in registrations) == 6000, registrations
    with open("/etc/machine-id") as f:
        assert registrations[0][1] == f.read().strip()
    sampled = {t for t, (_, flags) in transactions.items() if flags}
    want = exported(receiver, sampled)
    print(f"{shape}: {sum(seen.values())} told in {len(seen)} messages' worth, {sum(want.values())} sampled")
    assert {s.resource["service.name"] for s in receiver.samples() if s.link} == {"elastic-service"}
    assert seen == want


# ---- in a container, with the unit's capabilities ----

def unit_capabilities():
    with open(os.path.join(TOP, "packaging/culprit-agent.service"), encoding="utf-8") as f:
        line = next(x for x in f if x.startswith("CapabilityBoundingSet="))
    return [c.removeprefix("CAP_").lower() for c in line.partition("=")[2].split()]


def as_unit(culprit, where):
    """Runs culprit as the systemd unit does: as root, but only with the unit's capabilities."""
    numbers = {"perfmon": 38, "bpf": 39, "checkpoint_restore": 40} # older setpriv do not know their names
    names = ",".join(f"+cap_{numbers[c]}" if c in numbers else f"+{c}" for c in unit_capabilities())
    wrapper = where / "culprit-unit"
    wrapper.write_text(f"#!/bin/sh\nexec setpriv --no-new-privs --bounding-set=-all,{names} {culprit} \"$@\"\n")
    wrapper.chmod(0o755)
    return wrapper


CONTAINER = """
set -e
mount -t tmpfs -o mode=755 none {root}
mkdir -p {root}/data {root}/tmp
chown 65534:65534 {root}/data
ln -s /data {root}/link # an absolute link that leads to a place in the container
for f in {files}; do mkdir -p {root}/$(dirname $f); cp -L $f {root}/$f; done
exec chroot --userspec=65534:65534 {root} {program} /link/essock /data/log 2 0.1
"""


def test_a_socket_in_a_container_of_another_user_under_the_units_capabilities(culprit, tmp_path):
    if not shutil.which("setpriv"):
        pytest.skip("no setpriv (package util-linux)")
    program = build(tmp_path)
    # Only the container's mount namespace has the container's root.
    libraries = [w for line in subprocess.run(["ldd", program], capture_output=True, text=True).stdout.splitlines()
                 for w in line.split() if w.startswith("/")]
    root = tmp_path / "root"
    root.mkdir()
    script = CONTAINER.format(root=root, program=program, files=" ".join([str(program), *libraries]))
    work = subprocess.Popen(with_own_mounts(script, root))
    log, receiver = f"/proc/{work.pid}/root/data/log", Receiver()
    try:
        wait_for(lambda: os.path.exists(log), "the container does not start")
        assert not os.path.exists(root / "data")
        with Agent(as_unit(culprit, tmp_path), tmp_path, export=receiver.url, period=1, comm="elastic",
                   frequency=499) as agent:
            wait_for(lambda: sum(read(log)[1].values()) > 20, lambda: f"{read(log)[2]} {agent.stderr}")
            agent.end()
        assert read(log)[2], "not registered"
    finally:
        work.kill()
        work.wait()
        receiver.stop()
    assert {s.resource["service.name"] for s in receiver.samples() if s.link} == {"elastic-service"}
