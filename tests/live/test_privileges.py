# SPDX-License-Identifier: Apache-2.0
"""What the server's process of `culprit up` can do, and what the agent keeps of root's rights.

A program of our own stands in its place behind the same walls and tries what a hostile server would; the real process
is looked at through /proc, and gdb makes it try, too.
"""

import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import pytest

from test_up import Up, stats, up, wait_until_it_samples

TOOLS = pathlib.Path(__file__).parents[2] / "build" / "tests" / "tools"
SERVER_UID = 60578 # unless there is a user culprit
# Bits of linux/capability.h.
CHOWN, KILL, SETGID, SETUID, SETPCAP, SYS_MODULE, NET_ADMIN, SYS_ADMIN, BPF = 0, 5, 6, 7, 8, 16, 12, 21, 39

CLOSED = [str(p) for p in (TOOLS, *TOOLS.parents, pathlib.Path(tempfile.gettempdir())) if p.exists() and not p.stat().st_mode & 1]

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to have what the server gives away"),
              pytest.mark.skipif(CLOSED != [], reason=f"other users may not enter {', '.join(CLOSED)}")]


def status(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def descendant(pid, name):
    """The pid of the newest process below `pid` whose last argument is `name`, or None."""
    out = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    for child in sorted(map(int, out.split()), reverse=True):
        try:
            arguments = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if arguments[-2:-1] == [name.encode()]:
            return child
    return None


def server_of(u):
    """The server's process of a `culprit up`."""
    return descendant(u.process.pid, "up-server")


def secret_of(place, name, mode, uid=0):
    path = place / name
    path.write_text("a secret")
    os.chown(path, uid, uid)
    path.chmod(mode)
    return path


def attempts(*args):
    done = subprocess.run([TOOLS / "in_sandbox", *map(str, args)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ") for line in done.stdout.splitlines())


def test_what_a_hostile_server_can_do(place):
    own = place / "own"
    own.mkdir()
    os.chown(own, SERVER_UID, SERVER_UID)
    files = [secret_of(place, "of_root", 0o600), secret_of(place, "of_another", 0o600, 1234),
             secret_of(place, "public", 0o644), pathlib.Path("/etc/shadow"), pathlib.Path("/etc/passwd"),
             pathlib.Path("/proc/1/mem"), pathlib.Path("/proc/1/status"), pathlib.Path("/sys/kernel/notes")]
    with socket.create_server(("127.0.0.1", 0)) as listener, \
            subprocess.Popen(["sleep", "60"], user=1234) as other:
        try:
            # Without walls the same attempts succeed: that they fail below means something.
            free = attempts("--open", SERVER_UID, own, other.pid, listener.getsockname()[1], *files[:3])
            assert {v for k, v in free.items() if k != "execute-own"} == {"ok"}, free
            shutil.rmtree(own)
            own.mkdir()
            os.chown(own, SERVER_UID, SERVER_UID)
            got = attempts(SERVER_UID, own, other.pid, listener.getsockname()[1], *files)
        finally:
            other.kill()
    good = {"thread", "write-own", "read-own", "rename-own"}
    assert {k for k, v in got.items() if v == "ok"} == good, got
    # The filter says EPERM or ENOSYS; permissions and Landlock EACCES.
    assert {got[k] for k in ("bpf", "perf_event_open", "perf_event_open-self", "mount", "ptrace", "process_vm_readv", "execve",
                             "execute-own", "fork", "kill", "socket", "unshare-user", "setns", "chroot", "setuid-root",
                             "dumpable", "type-into-terminal")} == {"EPERM"}
    assert got["open:" + str(files[2])] == "EACCES", "a public file beyond its folders"


def test_the_real_server(culprit, place):
    with up(culprit, place / "store", "--period", "1") as u:
        wait_until_it_samples(u)
        pid = server_of(u)
        s = status(pid)
        uid = str(SERVER_UID if "culprit" not in {p.pw_name for p in pwd.getpwall()} else pwd.getpwnam("culprit").pw_uid)
        assert s["Uid"].split() == [uid] * 4 and set(s["Gid"].split()) != {"0"} and s["Groups"].strip() == ""
        assert all(int(s[c], 16) == 0 for c in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
        assert (s["NoNewPrivs"], s["Seccomp"]) == ("1", "2")
        # All threads, and not only the first.
        for task in os.listdir(f"/proc/{pid}/task"):
            t = status(f"{pid}/task/{task}")
            assert (t["Seccomp"], int(t["CapEff"], 16), t["Uid"].split()) == ("2", 0, [uid] * 4)
        files = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        foreign = [f for f in files if not f.startswith((str(place), "socket:", "/dev/null", "pipe:")) and
                   f not in ("anon_inode:[eventfd]", "anon_inode:[eventpoll]")]
        assert not foreign, files
        for process in (pid, u.process.pid):
            with open(f"/proc/{process}/limits", encoding="ascii") as f:
                limits = dict(re.findall(r"^(Max.*?) {2,}(\d+ +\d+)", f.read(), re.M))
            assert limits["Max core file size"].split() == ["0", "0"]
            soft, hard = limits["Max open files"].split()
            assert soft == hard
        # The store is the server's, whoever started it.
        assert all(p.stat().st_uid == int(uid) for p in (place / "store").rglob("*"))
        assert u.end()[0] == 0
        assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.skipif(not shutil.which("gdb"), reason="no gdb")
def test_the_real_server_does_as_told(culprit, place):
    """gdb makes a thread of the server call the kernel."""
    secret, store = secret_of(place, "of_root", 0o600), place / "store"
    with socket.create_server(("127.0.0.1", 0)) as listener, up(culprit, store, "--period", "1") as u:
        wait_until_it_samples(u)
        port = listener.getsockname()[1]
        left = [secret_of(place, "left", 0o644, 1234), pathlib.Path(tempfile.mkstemp(dir="/var/tmp")[1])]
        os.chown(left[1], 1234, 1234)
        left[1].chmod(0o644)
        calls = {"own": f'(int)open("{store}/profiles.db", 0)', "usual": '(int)open("/usr/bin/env", 0)',
                 "tmp": f'(int)open("{left[0]}", 0)', "var": f'(int)open("{left[1]}", 0)', "secret": f'(int)open("{secret}", 0)', "maps": f'(int)open("/proc/{u.process.pid}/maps", 0)',
                 "passwd": '(int)open("/etc/passwd", 0)', "bpf": "(long)syscall(321, 0, 0, 0)", "perf": "(long)syscall(298, 0, 0, 0, 0, 0)",
                 "socket": "(int)socket(2, 1, 0)", "setuid": "(int)setuid(0)", "fork": "(int)fork()",
                 "port": f"(int)connect(3, \"\\2\\0\\{port >> 8:o}\\{port & 255:o}\\177\\0\\0\\1\", 16)"}
        done = subprocess.run(["gdb", "-nx", "-batch", "-p", str(server_of(u)),
                               *(a for n, c in calls.items() for a in ("-ex", f'printf "{n}=%d\\n", {c}'))],
                              capture_output=True, text=True, timeout=120, check=False)
        got = dict(re.findall(r"^(\w+)=(-?\d+)$", done.stdout, re.M))
        assert set(got) == set(calls), done.stdout + done.stderr
        left[1].unlink()
        assert int(got.pop("own")) >= 0 and int(got.pop("usual")) >= 0 and set(got.values()) == {"-1"}, got
        # It lives on.
        now = time.time() * 1000
        assert u.wait_for(lambda: stats(u)["store"]["last"] > now, 60)


PARANOID = pathlib.Path("/proc/sys/kernel/perf_event_paranoid")


@pytest.fixture(params=[2, 3])
def paranoid(request):
    """With 3, the default of Debian's kernel, that kernel wants CAP_SYS_ADMIN for perf events."""
    before = PARANOID.read_text()
    PARANOID.write_text(str(request.param))
    yield request.param
    PARANOID.write_text(before)


def test_the_agent_keeps_what_it_needs(culprit, place, paranoid):
    with up(culprit, place / "store") as u:
        wait_until_it_samples(u)
        kept = int(status(u.process.pid)["CapEff"], 16)
        assert kept == int(status(u.process.pid)["CapBnd"], 16) and status(u.process.pid)["NoNewPrivs"] == "1"
        assert all(kept >> c & 1 for c in (BPF, SETUID, KILL))
        assert not any(kept >> c & 1 for c in (CHOWN, SYS_MODULE, NET_ADMIN)) and kept >> SYS_ADMIN & 1 == (paranoid > 2)
        for task in os.listdir(f"/proc/{u.process.pid}/task"):
            assert int(status(f"{u.process.pid}/task/{task}")["CapEff"], 16) == kept
    with Up(culprit, "agent", "--export", f"file:{place}/%s.pb.gz", "--period", "1") as agent:
        assert agent.wait_for(lambda: list(place.glob("*.pb.gz")), 60)
        kept = int(status(agent.process.pid)["CapEff"], 16)
        assert kept >> BPF & 1 and not any(kept >> c & 1 for c in (CHOWN, KILL, SETUID, SETGID, SETPCAP))
        assert kept >> SYS_ADMIN & 1 == (paranoid > 2)


def test_a_server_that_dies_is_started_again(culprit, place):
    """What the agent samples meanwhile is stored later, and the port stays."""
    with up(culprit, place / "store", "--period", "1", "-F", "99") as u:
        wait_until_it_samples(u)
        first = server_of(u)
        before = stats(u)["store"]["samples"]
        os.kill(first, signal.SIGSEGV)
        died = time.time() * 1000

        def answer():
            try:
                return stats(u)
            except (OSError, urllib.error.URLError):
                return None

        after = u.wait_for(lambda: (a := answer()) and a["store"]["last"] > died + 3000 and a, 60)
        assert after and server_of(u) != first and after["store"]["samples"] > before
        # Nothing of the time without a server is missing.
        metrics = u.get("/metrics").decode()
        assert re.search(r'^culprit_export_dropped_profiles_total\{url="local:"\} 0$', metrics, re.M), metrics
        code, _, _, err = u.end()
        assert code == 0 and "ended by signal 11" in err and "starting it again in 1 s" in err, err


def test_the_server_ends_with_the_agent(culprit, place):
    with up(culprit, place / "store") as u:
        server = server_of(u)
        # Those of a terminal or of systemd reach both processes; the agent decides.
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(server, sig)
        u.get("/healthz")
        u.process.kill()
        u.process.wait()
        assert u.wait_for(lambda: not os.path.exists(f"/proc/{server}"), 15)


def test_a_store_that_root_made(culprit, place):
    """It is given to the server's user, but not what somebody has linked into it."""
    store = place / "store"
    plain = up(culprit, store, "--user", "root")
    with plain as u:
        assert u.end()[0] == 0
    assert (store / "profiles.db").stat().st_uid == 0
    secret, twin = secret_of(place, "secret", 0o600), secret_of(place, "twin", 0o600)
    (store / "spans.db-link").symlink_to(secret)
    os.link(twin, store / "profiles.db.twin")
    (store / "notes").write_text("root's")
    with up(culprit, store) as u:
        wait_until_it_samples(u)
        assert (store / "profiles.db").stat().st_uid == store.stat().st_uid == SERVER_UID
        assert secret.stat().st_uid == twin.stat().st_uid == (store / "notes").stat().st_uid == 0
        assert "gave" in u.end()[3]


def refusal(culprit, *args):
    done = subprocess.run([culprit, "up", "--listen", "127.0.0.1:0", "--otlp-grpc", "off", "--otlp-grpc-old", "off",
                           "--otlp-http", "off", *map(str, args)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2) and len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_directories_that_are_not_its_own(culprit, place):
    inner = place / "inner"
    inner.mkdir(mode=0o700)
    assert f"may not enter {inner}" in refusal(culprit, "--data-dir", inner / "store")
    (inner / "letters").write_text("of root")
    assert "not a directory of culprit's alone" in refusal(culprit, "--data-dir", inner)
    assert inner.stat().st_uid == 0 and (inner / "letters").stat().st_uid == 0
    assert "not a directory of culprit's alone" in refusal(culprit, "--data-dir", "/tmp")
    others = place / "others"
    others.mkdir()
    os.chown(others, 1234, 1234)
    assert "--user 1234" in refusal(culprit, "--data-dir", others)
    assert "no such user" in refusal(culprit, "--data-dir", place / "store", "--user", "nobody-has-this-name")


def test_secrets_that_only_root_may_read(culprit, place):
    """Tokens are read by the agent's process for the server's, also when they change; the file may not be readable by
    the server's user."""
    tokens = secret_of(place, "tokens", 0o600)
    tokens.write_text("read 0123456789abcdef-first\n")

    def get(token):
        request = urllib.request.Request(u.url + "/api/v1/stats", headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=60) as r:
                return json.load(r)
        except urllib.error.HTTPError as e:
            return e.code

    with up(culprit, place / "store", "--token-file", tokens) as u:
        assert isinstance(get("0123456789abcdef-first"), dict) and get("0123456789abcdef-other") == 401
        new = place / "tokens.new"
        new.write_text("read 0123456789abcdef-other\n")
        new.chmod(0o600)
        new.rename(tokens)
        assert u.wait_for(lambda: isinstance(get("0123456789abcdef-other"), dict), 20)
        assert get("0123456789abcdef-first") == 401


def test_a_server_refuses_root(culprit, place):
    done = subprocess.run([culprit, "server", "--data-dir", place / "store"], capture_output=True, text=True, timeout=60, check=False,
                          env={k: v for k, v in os.environ.items() if k != "CULPRIT_ALLOW_ROOT"})
    assert done.returncode == 2 and "--allow-root" in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (place / "store").exists()


def thread_names(pid):
    return {pathlib.Path(f"/proc/{pid}/task/{task}/comm").read_text().strip() for task in os.listdir(f"/proc/{pid}/task")}


def test_a_server_behind_its_walls(culprit, place):
    """`culprit server` as a user: it has the same walls, and no rights that it was started with."""
    place.joinpath("data").mkdir()
    os.chown(place / "data", 1234, 1234)
    with subprocess.Popen([culprit, "server", "--data-dir", place / "data" / "store", "--listen", "127.0.0.1:0", "--otlp-grpc", "off",
                           "--otlp-grpc-old", "off", "--otlp-http", "off"], stdout=subprocess.PIPE, text=True, user=1234, group=1234,
                          extra_groups=[]) as p:
        try:
            assert p.stdout.readline().startswith("api ")
            assert p.stdout.readline() == "ready\n"
            s = status(p.pid)
            assert (s["Seccomp"], s["NoNewPrivs"]) == ("2", "1") and int(s["CapBnd"], 16) >= 0 and int(s["CapEff"], 16) == 0
            # Threads have their names all the same, which profiles show. Each gives itself its name when it first runs.
            end = time.monotonic() + 20
            while not {"http-loop", "maintainer"} <= (names := thread_names(p.pid)):
                assert time.monotonic() < end, names
                time.sleep(0.1)
            p.terminate()
            assert p.wait(20) == 0
        finally:
            p.kill()


@pytest.mark.parametrize("command", ["up", "agent"])
def test_the_units_leave_enough(culprit, place, command):
    """With the capabilities of its unit in packaging/, and no others, it samples."""
    unit = (pathlib.Path(__file__).parents[2] / "packaging" / f"culprit-{command}.service").read_text()
    named = [c.removeprefix("CAP_").lower() for line in re.findall("^CapabilityBoundingSet=(.*)$", unit, re.M) for c in line.split()]
    bounded = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=" + ",".join(["-all", *(f"+{c}" for c in named)]), culprit]
    if command == "agent":
        with Up(*bounded, "agent", "--export", f"file:{place}/%s.pb.gz", "--period", "1") as agent:
            assert agent.wait_for(lambda: list(place.glob("*.pb.gz")), 60)
            assert agent.end()[0] == 0
        return
    with Up(*bounded, "up", "--data-dir", place / "store", "--listen", "127.0.0.1:0", "--otlp-grpc", "off", "--otlp-grpc-old", "off",
            "--otlp-http", "off", "--period", "1") as u:
        u.url = u.process.stdout.readline().split(" at ")[1].strip().rstrip("/")
        wait_until_it_samples(u)
        assert u.end()[0] == 0


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
@pytest.mark.parametrize("name, most", [("server", 2), ("agent", 5.7), ("up", 6.2)])
def test_the_units_are_tight(name, most, place):
    """systemd's own judgement, from 0 (nothing is exposed) to 10."""
    unit = place / f"culprit-{name}.service"
    text = (pathlib.Path(__file__).parents[2] / "packaging" / unit.name).read_text()
    for limit in ("MemoryMax", "TasksMax", "LimitNOFILE", "LimitCORE"):
        assert re.search(rf"^{limit}=\d+[MG]?$", text, re.M), limit
    # Of a program and a man page that are installed.
    unit.write_text(re.sub("^Documentation=.*\n", "", text.replace("/usr/bin/culprit", "/bin/true"), flags=re.M))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", str(unit)], capture_output=True, text=True, timeout=60, check=False)
    said = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    if not said:
        pytest.skip(f"systemd-analyze: {done.stderr.strip()}")
    assert float(said[1]) <= most, done.stdout
