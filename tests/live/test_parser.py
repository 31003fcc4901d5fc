# SPDX-License-Identifier: Apache-2.0
"""The process that parses files of programs for record, top, agent and up: what it can do, and what the agent does
without it.

A program of our own stands in its place behind the same walls and tries what a hostile parser would; gdb makes the real
one try, too.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

from folded import by_comm
from recorder import read, start_record
from test_privileges import CLOSED, SERVER_UID, attempts, descendant, secret_of, status
from truth import PROGRAMS, Truth, Verdict, build

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to have what the parser gives away")
SEVERAL_S = 60
others_enter = pytest.mark.skipif(CLOSED != [], reason=f"other users may not enter {', '.join(CLOSED)}")


@pytest.fixture(scope="module", autouse=True)
def programs():
    build()


def parser_of(pid, other_than=None):
    """Waits for the parser of a culprit; it starts with the first file."""
    end = time.monotonic() + SEVERAL_S
    while time.monotonic() < end:
        starter = descendant(pid, "parsers")
        parser = starter and descendant(starter, "parsers")
        if parser and parser != other_than:
            return starter, parser
        time.sleep(0.05)
    raise AssertionError("no parser")


def run_new_program(folder, name):
    """Runs a program whose file nobody has seen before. Returns its directory for Truth."""
    own = folder / name
    own.mkdir()
    shutil.copy(f"{PROGRAMS}/recursion-gs", own / "recursion-gs")
    subprocess.run([own / "recursion-gs", "1500"], check=True, env={**os.environ, "TRUTH_OUT": str(own)})
    return own


def assert_exact(out, truth):
    verdict = Verdict(Truth(truth, "recursion-gs", inlined=False), by_comm(read(out))["recursion-gs"])
    assert verdict.samples > 100 and verdict.wrong <= max(3, verdict.samples // 500), str(verdict)


def end(p):
    p.send_signal(signal.SIGINT)
    assert p.wait(SEVERAL_S) == 0


@others_enter
def test_what_a_hostile_parser_can_do(place):
    files = [secret_of(place, "of_root", 0o600), secret_of(place, "public", 0o644), "/etc/passwd", "/proc/self/fd/1",
             "/proc/self/maps", "/proc/1/status"]
    with socket.create_server(("127.0.0.1", 0)) as listener, subprocess.Popen(["sleep", "60"], user=1234) as other:
        try:
            got = attempts("--parser", SERVER_UID, place, other.pid, listener.getsockname()[1], *files)
        finally:
            other.kill()
    assert len(got) > 40 and {k for k, v in got.items() if v == "ok"} == set(), got


def test_the_real_parser(culprit, tmp_path):
    """It has no rights, and nothing but what it was given; it does not do what gdb tells it to, and lives on."""
    out = tmp_path / "o.folded"
    p, messages = start_record(culprit, out, "-F", "199", "-d", "600")
    with p, socket.create_server(("127.0.0.1", 0)) as listener:
        starter, parser = parser_of(p.pid)
        for pid in (starter, parser):
            s = status(pid)
            assert 0 not in map(int, s["Uid"].split() + s["Gid"].split()) and s["Groups"].strip() == ""
            assert all(int(s[c], 16) == 0 for c in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
            assert s["NoNewPrivs"] == "1" and s["Seccomp"] == ("2" if pid == parser else "0")
            with open(f"/proc/{pid}/limits", encoding="ascii") as f:
                assert re.search(r"^Max core file size +0 +0", f.read(), re.M)
        for fd in os.listdir(f"/proc/{parser}/fd"):
            try:
                name, flags = os.readlink(f"/proc/{parser}/fd/{fd}"), open(f"/proc/{parser}/fdinfo/{fd}", encoding="ascii").read()
            except OSError:
                continue
            flags = int(re.search(r"^flags:\s*(\d+)", flags, re.M)[1], 8)
            # Files of programs are open for reading; the rest is its own.
            assert fd in "012" or name.startswith(("socket:", "/memfd:")) or \
                (name[0] == "/" and flags & os.O_ACCMODE == os.O_RDONLY), (fd, name, oct(flags))
        if shutil.which("gdb"):
            port = listener.getsockname()[1]
            calls = {"passwd": '(int)open("/etc/passwd", 0)', "fd": '(int)open("/proc/self/fd/2", 0)', "bpf": "(long)syscall(321, 0, 0, 0)",
                     "perf": "(long)syscall(298, 0, 0, 0, 0, 0)", "socket": "(int)socket(2, 1, 0)", "setuid": "(int)setuid(0)",
                     "fork": "(int)fork()", "kill": f"(int)kill({starter}, 9)", "mkdir": f'(int)mkdir("{tmp_path}/x", 0777)',
                     "connect": f"(int)connect(3, \"\\2\\0\\{port >> 8:o}\\{port & 255:o}\\177\\0\\0\\1\", 16)",
                     "code": "(long)mmap(0, 4096, 7, 0x22, -1, 0)", "direct": "(int)fcntl(4, 4, 040000)", "lock": "(int)flock(4, 2)"}
            done = subprocess.run(["gdb", "-nx", "-batch", "-p", str(parser),
                                   *(a for n, c in calls.items() for a in ("-ex", f'printf "{n}=%d\\n", {c}'))],
                                  capture_output=True, text=True, timeout=120, check=False)
            got = dict(re.findall(r"^(\w+)=(-?\d+)$", done.stdout, re.M))
            assert set(got) == set(calls) and set(got.values()) == {"-1"}, (got, done.stdout + done.stderr)
        truth = run_new_program(tmp_path, "after")
        assert parser_of(p.pid)[1] == parser
        end(p)
    assert "warning" not in messages(), messages()
    assert_exact(out, truth)
    assert not os.path.exists(f"/proc/{starter}") and not os.path.exists(f"/proc/{parser}")


def test_a_parser_that_is_killed_is_replaced(culprit, tmp_path):
    """Code that is loaded later unwinds, too: of files that were open there and of new ones."""
    out = tmp_path / "o.folded"
    p, messages = start_record(culprit, out, "-F", "499", "-d", "600")
    with p:
        first = parser_of(p.pid)[1]
        os.kill(first, signal.SIGKILL)
        truth = run_new_program(tmp_path, "after")
        assert parser_of(p.pid)[1] != first
        end(p)
    assert "no more" not in messages() and "parses files" not in messages(), messages()
    assert_exact(out, truth)


@pytest.mark.slow
def test_a_parser_that_hangs_is_replaced(culprit, tmp_path):
    """One file has no rows then; others do."""
    out = tmp_path / "o.folded"
    p, messages = start_record(culprit, out, "-F", "499", "-d", "600")
    with p:
        first = parser_of(p.pid)[1]
        os.kill(first, signal.SIGSTOP)
        run_new_program(tmp_path, "during")
        parser_of(p.pid, other_than=first)
        out_of_before = messages()
        truth = run_new_program(tmp_path, "after")
        end(p)
    assert "was too slow with" in out_of_before, out_of_before
    # Stacks of the first program are not told from those of the second by their names.
    verdict = Verdict(Truth(truth, "recursion-gs", inlined=False),
                      [s for s in by_comm(read(out))["recursion-gs"] if not s.note])
    assert verdict.samples > 100 and verdict.wrong <= max(3, verdict.samples // 500), str(verdict)


def test_the_parser_ends_with_the_agent(culprit, tmp_path):
    p, _ = start_record(culprit, tmp_path / "o.folded", "-d", "600")
    with p:
        starter, parser = parser_of(p.pid)
        # Those of a terminal reach all processes; the agent decides.
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.kill(starter, sig)
            os.kill(parser, sig)
        assert parser_of(p.pid) == (starter, parser)
        p.kill()
        p.wait()
    deadline = time.monotonic() + SEVERAL_S
    while any(os.path.exists(f"/proc/{pid}") for pid in (starter, parser)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("as_root", [True, pytest.param(False, marks=others_enter)],
                         ids=["root that cannot change its user", "capabilities only"])
def test_with_fewer_rights(culprit, place, as_root):
    """The parser gives away what it can, and one line says so if that is not all."""
    os.chown(place, 1234, 1234)
    out, own, command, options = place / "o.folded", place / "culprit", [culprit], {}
    if as_root:
        command = ["setpriv", "--bounding-set=-setuid,-setgid", culprit]
    else:
        shutil.copy(culprit, own)
        bounds = int(status("self")["CapBnd"], 16)
        names = {2: "dac_read_search", 19: "sys_ptrace", 24: "sys_resource", 34: "syslog", 38: "perfmon", 39: "bpf"}
        done = subprocess.run(["setcap", ",".join("cap_" + n for b, n in names.items() if bounds >> b & 1) + "+ep", own],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(done.stderr)
        command, options = [own], {"user": 1234, "group": 1234, "extra_groups": []}
    with subprocess.Popen([*command, "record", "-o", out, "-F", "499", "-d", "600"], stderr=subprocess.PIPE, text=True, **options) as p:
        try:
            _, parser = parser_of(p.pid)
            s = status(parser)
            assert int(s["CapEff"], 16) == int(s["CapPrm"], 16) == 0 and (s["NoNewPrivs"], s["Seccomp"]) == ("1", "2")
            assert s["Uid"].split() == ["0" if as_root else "1234"] * 4
            truth = run_new_program(place, "after")
            end(p)
        finally:
            p.kill()
        said = [line for line in p.stderr.read().splitlines() if "files of programs" in line]
    assert len(said) == as_root and all("as root, without capabilities" in line for line in said), said
    assert_exact(out, truth)
