# SPDX-License-Identifier: Apache-2.0
"""The roots [Pod], [Con] and [PID] of processes in containers of all engines, which start and end while culprit records."""

import collections
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.error

import pytest

from containers import USER, Cgroups, all_kinds, containerd, docker, docker_state, lxc
from recorder import start_record
from test_agent import Agent, wait_for
from test_up import server

CPU_MS = 30

SPIN = r"""
#include <signal.h>
#include <stdlib.h>
#include <time.h>
/* spin CPU_MS [EVERY_MS]: uses the CPU that long, or for that long in each interval until it is ended. */
static double now(clockid_t c)
{
	struct timespec t;
	clock_gettime(c, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
int main(int argc, char **argv)
{
	double ms = atof(argv[1]), every = argc > 2 ? atof(argv[2]) : 0;
	do {
		double until = now(CLOCK_PROCESS_CPUTIME_ID) + ms;
		while (now(CLOCK_PROCESS_CPUTIME_ID) < until)
			for (volatile int i = 0; i < 10000; i++)
				;
		nanosleep(&(struct timespec){.tv_nsec = every * 1e6}, NULL);
	} while (every);
	return 0;
}
"""


@pytest.fixture(scope="module")
def spin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spin")
    (folder / "spin.c").write_text(SPIN)
    subprocess.run(["gcc", "-O1", "-g", "-o", folder / "spin", folder / "spin.c"], check=True)
    return folder / "spin"


@pytest.fixture
def cgroups():
    c = Cgroups()
    yield c
    c.remove()


@pytest.fixture
def host(place):
    """A folder that stands for the host's /."""
    (place / "etc").mkdir()
    (place / "etc/passwd").write_text(f"root:x:0:0::/root:/bin/sh\nalice:x:{USER}:{USER}::/home/alice:/bin/sh\n")
    (place / "home/alice").mkdir(parents=True)
    os.chown(place / "home/alice", USER, USER)
    return place


class Worker:
    """A process of a container, which calls itself `name`."""

    def __init__(self, spin, name, folder, *arguments):
        self.name = name
        link = spin.with_name(name)
        link.symlink_to(spin)
        procs = str(folder / "cgroup.procs")

        def enter():
            with open(procs, "w", encoding="ascii") as f:
                f.write(str(os.getpid()))
        self.process = subprocess.Popen([link, *map(str, arguments)], preexec_fn=enter, start_new_session=True)

    def end(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def roots_of(text):
    """{comm: Counter of (roots before "[PID]comm", pid)} of a folded text."""
    out = collections.defaultdict(collections.Counter)
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        n = next((i for i, f in enumerate(frames) if f[0] == "[" and f[1:].partition("]")[0].isdigit()), None)
        if n is not None:
            pid, _, comm = frames[n][1:].partition("]")
            out[comm][tuple(frames[:n]), int(pid)] += int(count)
    return out


def assert_roots(seen, workers, most_missed=0):
    """Of each worker there are samples, and all have the roots of its container; those of a few may have no roots."""
    faults, missed = [], []
    for w, k in workers:
        assert seen[w.name], f"{w.name} was not sampled"
        for (roots, pid), count in seen[w.name].items():
            assert pid == w.process.pid
            if list(roots) != k.roots:
                (faults if roots else missed).append((w.name, k.cgroup, roots, k.roots, count))
    assert not faults, faults
    assert len(missed) <= most_missed, missed


def end_record(recorder, messages):
    recorder.send_signal(signal.SIGINT)
    status = recorder.wait(120)
    sys.stderr.write(messages())
    assert status == 0


def test_200_processes_in_50_containers(culprit, spin, cgroups, host, tmp_path):
    """Of each process all samples have the roots of its container, and none has those of another."""
    containers = all_kinds(cgroups.v1 is not None)
    assert len(containers) == 50
    for k in containers:
        k.folder = cgroups.make(k.cgroup, k.v1)
    late, early = containers[::5], [k for i, k in enumerate(containers) if i % 5]
    for k in early:
        k.write(host)
    out = tmp_path / "x.folded"
    recorder, messages = start_record(culprit, out, "--roots", "pod,container,process", "--host-root", host, "-F", 999,
                                      "-d", 300)
    workers, long = [], []
    try:
        # One of each lives on. The files of a fifth of the containers appear two seconds after their processes.
        for i, k in enumerate(containers):
            long.append((Worker(spin, f"w{i}.0", k.folder, 2, 300), k))
        files_at = time.monotonic() + 2
        for n in range(1, 4):
            running = []
            for i, k in enumerate(containers):
                running.append((Worker(spin, f"w{i}.{n}", k.folder, CPU_MS), k))
                if len(running) == 8 or k is containers[-1]:
                    for w, _ in running:
                        assert w.process.wait(60) == 0
                    workers += running
                    running = []
            if n == 1:
                time.sleep(max(0, files_at - time.monotonic()))
                for k in late:
                    k.write(host)
        time.sleep(1)
    finally:
        for w, _ in long:
            w.end()
    end_record(recorder, messages)
    seen = roots_of(out.read_text())
    samples = sum(sum(seen[w.name].values()) for w, _ in workers + long)
    print(f"{len(workers + long)} processes, {samples} samples")
    assert_roots(seen, long)
    # On a machine that is so busy that the recorder itself had to wait as long as a process lived, that process may have
    # ended before anybody looked.
    stall_ms = float(re.search(r"longest time between two reads of the ring: (\S+) ms", messages())[1])
    assert_roots(seen, workers, most_missed=3 if stall_ms >= CPU_MS else 0)


def enter_with_pid(pid, start):
    """Calls start() until the process that it returns has this pid."""
    for _ in range(300):
        try:
            with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as f:
                f.write(str(pid - 1))
        except OSError as e:
            pytest.skip(f"pids cannot be chosen: {e}")
        w = start()
        if w.process.pid == pid:
            return w
        w.end()
    return pytest.skip("somebody else takes the pid")


def test_a_pid_that_is_used_again_in_another_container(culprit, spin, cgroups, host, tmp_path):
    containers = [docker("first", False, False), containerd("pod-2", "second", True, False), docker("third", True, False)]
    for k in containers:
        k.write(host)
        k.folder = cgroups.make(k.cgroup, k.v1)
    out = tmp_path / "x.folded"
    recorder, messages = start_record(culprit, out, "--roots", "pod,container,process", "--host-root", host, "-F", 999,
                                      "-d", 120)
    workers = []
    for i, k in enumerate(containers):
        names = (f"p{i}.{n}" for n in range(1000))

        def start(k=k, names=names):
            return Worker(spin, next(names), k.folder, 100)
        w = enter_with_pid(workers[0][0].process.pid, start) if workers else start()
        assert w.process.wait(60) == 0
        workers.append((w, k))
    end_record(recorder, messages)
    assert len({w.process.pid for w, _ in workers}) == 1
    assert_roots(roots_of(out.read_text()), workers)


def test_from_a_container_with_a_cgroup_namespace_of_its_own(culprit, spin, cgroups, host, tmp_path):
    """As an agent in a pod sees the others: /proc/PID/cgroup has /../../podUID/ID."""
    own, k, other = (containerd("agent-pod", "agent", False, False), containerd("pod-1", "con-1", False, False),
                     docker("on-the-host", True, False))
    for c in (own, k, other):
        c.write(host)
        c.folder = cgroups.make(c.cgroup)
    inside = tmp_path / "inside"
    inside.write_text(f'#!/bin/sh\necho $$ >{own.folder}/cgroup.procs\nexec unshare -C "{culprit}" "$@"\n')
    inside.chmod(0o755)
    out = tmp_path / "x.folded"
    recorder, messages = start_record(inside, out, "--roots", "pod,container,process", "--host-root", host, "-F", 999,
                                      "-d", 60)
    text = [line for line in pathlib.Path(f"/proc/{recorder.pid}/cgroup").read_text().splitlines() if own.cgroup in line]
    assert text, "it is not in its cgroup"
    workers = [(Worker(spin, f"n{i}", c.folder, 60), c) for i, c in enumerate((k, other))]
    for w, _ in workers:
        assert w.process.wait(60) == 0
    end_record(recorder, messages)
    assert_roots(roots_of(out.read_text()), workers)


def containers_in(folder, comm):
    """The names of the container of this process, in the order of the files that the agent has written."""
    out = []
    for path in sorted(folder.glob("*.folded"), key=lambda p: p.stat().st_mtime_ns):
        out += [r[0] for r, _ in roots_of(path.read_text())[comm] if r]
    return out


def test_a_container_that_is_renamed_while_the_agent_exports(culprit, spin, cgroups, host, tmp_path):
    k = docker("before", False, False)
    folder, cid = cgroups.make(k.cgroup), os.path.basename(k.cgroup)
    k.write(host)
    w = Worker(spin, "renamed", folder, 5, 50)
    try:
        with Agent(culprit, tmp_path / "agent", "--roots", "container,process", "--host-root", host, frequency=199,
                   period=1, export=f"file:{tmp_path}/%s.folded") as agent:
            wait_for(lambda: "[Con]before" in containers_in(tmp_path, "renamed"), lambda: agent.stderr)
            docker_state(cid, "after")(host)
            wait_for(lambda: "[Con]after" in containers_in(tmp_path, "renamed"), lambda: agent.stderr)
            agent.end()
    finally:
        w.end()
    names = containers_in(tmp_path, "renamed")
    assert set(names) == {"[Con]before", "[Con]after"} and names == sorted(names, reverse=True), names


def test_a_recording_keeps_whose_the_processes_are(culprit, run, spin, cgroups, host, tmp_path):
    """pprof has the labels, from which any roots can be made later."""
    k = containerd("shop-6f", "cart; \"x\"", True, False)
    k.write(host)
    w = Worker(spin, "kept", cgroups.make(k.cgroup), 20, 20)
    try:
        recorder, messages = start_record(culprit, tmp_path / "x.pb.gz", "--roots", "container", "--host-root", host,
                                          "-p", w.process.pid, "-d", 3)
        assert recorder.wait(60) == 0, messages()
    finally:
        w.end()
    for roots, want in (("pod,container,process", [*k.roots, f"[{w.process.pid}]kept"]), ("pod", [k.roots[0], "kept"]),
                        ("process", [f"[{w.process.pid}]kept"])):
        done = run("convert", "--roots", roots, tmp_path / "x.pb.gz", tmp_path / "y.folded")
        assert done.returncode == 0, done.stderr
        for line in (tmp_path / "y.folded").read_text().splitlines():
            assert line.split(";")[:len(want)] == want, line
        svg = run("convert", "--roots", roots, tmp_path / "y.folded", tmp_path / "y.svg")
        assert svg.returncode == 0 and f"<title>{want[0]} (" in (tmp_path / "y.svg").read_text(), svg.stderr
    for bad in ("pods", ""):
        done = run("convert", "--roots", bad, tmp_path / "x.pb.gz", tmp_path / "z.folded")
        assert done.returncode == 2 and "--roots takes pod, container and process" in done.stderr


def exported(s, query):
    try:
        return s.get("/api/v1/export", format="folded", query=query)
    except urllib.error.HTTPError as e:
        return e.read()


def test_the_older_upload_of_pyroscope(culprit, spin, cgroups, host, tmp_path):
    """The agent's profiles arrive at /ingest of a server, each once, with labels; a server that is away gets them later."""
    k = lxc("box-a", "var/lib/lxc", False, "lxc.payload.box-a")
    k.write(host)
    w = Worker(spin, "uploaded", cgroups.make(k.cgroup), 20, 20)
    (tmp_path / "user").write_text("me:secret\n")
    try:
        with server(culprit, tmp_path / "store") as s:
            url = f"pyroscope+ingest://127.0.0.1:{s.ports['api']}"
            with Agent(culprit, tmp_path / "agent", "--host-root", host, frequency=199, period=1, export=url,
                       export_user_file=tmp_path / "user", no_tasks="yes") as agent:
                wait_for(lambda: b"main" in exported(s, '{service.name="box-a",container_name="box-a"}'),
                         lambda: agent.stderr)
                agent.end()
                assert "dropped" not in agent.stderr, agent.stderr
    finally:
        w.end()
