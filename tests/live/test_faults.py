# SPDX-License-Identifier: Apache-2.0
"""Errors and how culprit handles them: by one line that says what to do, or by a complete result."""

import glob
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import xml.etree.ElementTree as ET
from collections import Counter

import pytest

from folded import by_comm
from recorder import cpu_seconds, read, record, record_of_running, start_record, wait_for_cpu
from statistics_of import binomial_interval
from truth import PROGRAMS, Truth, Verdict, build


@pytest.fixture(scope="session")
def programs():
    build()
    return PROGRAMS


# ---- mistakes on the command line ----

MISTAKES = [
    (["-F", "0"], 2, r"frequency"),
    (["-F", "99999"], 2, r"frequency.*10000"),
    (["-F", "fast"], 2, r"frequency.*'fast'"),
    (["-d", "-1"], 2, r"duration"),
    (["-d", "soon"], 2, r"duration.*'soon'"),
    (["-p", "bash"], 2, r"'bash' is not a process id"),
    (["-p", "4194000"], 1, r"no process 4194000"),
    (["-p"], 2, r"requires a value"),
    (["--freq", "99"], 2, r"unknown option --freq; .*--help"),
    (["-o", "x.png"], 2, r"x\.png.*"),
    (["-o", "-", "--format", "gif"], 2, r"gif"),
    (["-o", "/nonexistent/x.html"], 1, r"/nonexistent.*No such file"),
    (["-o", "/proc/x.html"], 1, r"/proc"),
    (["-o", "/tmp"], None, r"/tmp"),
    (["--uid", "nosuchuser"], 2, r"no user 'nosuchuser'"),
    (["--cgroup", "/no/such/cgroup"], 1, r"/no/such/cgroup"),
    (["-e", "nonsense"], None, r"nonsense"),
    (["--kernel-only", "--user-only"], 2, r"--kernel-only and --user-only"),
    (["--", "./not-there"], 127, r"not-there: No such file"),
    (["--", "/etc/passwd"], 126, r"/etc/passwd: Permission denied"),
]


@pytest.mark.parametrize("args, status, text", MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES])
def test_mistakes(culprit, tmp_path, args, status, text):
    """A wrong command line gives one line on standard error, quickly, and no file."""
    # culprit must find the mistake before it records, not at the end.
    done = subprocess.run([culprit, "record", "-q", "-d", "600", *args], cwd=tmp_path, capture_output=True,
                          text=True, timeout=60)
    assert done.stdout == ""
    assert re.fullmatch(r"culprit: [^\n]*" + text + r"[^\n]*\n", done.stderr), done.stderr
    assert done.returncode == status if status else done.returncode in (1, 2)
    # Only a command that could not be run leaves a file: an empty profile.
    assert args[0] == "--" or not os.listdir(tmp_path)


def test_without_privilege(culprit, tmp_path):
    """The error names the missing capability, and how to get it."""
    # Keep the user: another user may lack access to the file or to libraries.
    done = subprocess.run(["setpriv", "--inh-caps=-all", "--bounding-set=-all", culprit, "record",
                           "-d", "1", "-o", tmp_path / "unprivileged.folded"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert re.fullmatch(r"culprit: [^\n]*CAP_BPF[^\n]*(root|setcap|sudo)[^\n]*\n", done.stderr), \
        done.stderr
    assert not os.listdir(tmp_path)


# ---- how a recording ends ----

def test_exit_status_of_the_command(culprit, tmp_path):
    for command, status in (("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)):
        done = record(culprit, tmp_path / "o.folded", "--", "sh", "-c", command, check=False)
        assert done.returncode == status
        assert (tmp_path / "o.folded").exists()


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("with_command", [False, True])
def test_a_signal_ends_it_early_with_the_result(culprit, programs, tmp_path, sig, with_command):
    out = tmp_path / "o.folded"
    # Longer than culprit takes to load; the test ends the command together with the recording.
    busy = [f"{programs}/recursion-gs", "120000"]
    other = None if with_command else subprocess.Popen(busy)
    p, messages = start_record(culprit, out, "-F", "999", "-d", "600", *(["--", *busy] if with_command else []))
    with p:
        of = other.pid if other else None
        while not of:
            of = int(subprocess.run(["pgrep", "-x", "-P", str(p.pid), "recursion-gs"], capture_output=True, text=True).stdout or 0)
        wait_for_cpu(of, cpu_seconds(of) + 1)
        p.send_signal(sig)
        p.wait(60)
    err = messages()
    if other:
        other.kill()
        other.wait()
    stacks = by_comm(read(out)).get("recursion-gs", [])
    assert sum(s.count for s in stacks) > 20, err
    assert "Traceback" not in err and "wrote" in err
    assert not os.path.exists(f"/proc/{of}"), "the command goes on"


def test_the_process_ends_before_the_recording(culprit, programs, tmp_path):
    record_of_running(culprit, tmp_path / "o.folded", [f"{programs}/recursion-gs", "2000"], "-F", "999",
                      "-d", "6", env={"TRUTH_OUT": str(tmp_path)})
    verdict = Verdict(Truth(tmp_path, "recursion-gs", inlined=False),
                      read(tmp_path / "o.folded"))
    print(verdict)
    assert verdict.samples > 20 and verdict.right >= 0.95 * verdict.samples


# ---- where the result goes ----

def test_full_disk(culprit, programs, tmp_path):
    """On a full disk culprit prints one line, exits with status 1 and leaves no partial file."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk]).returncode:
        pytest.skip("mount is refused here")
    try:
        done = record(culprit, disk / "o.html", "-F", "999", "--", f"{programs}/deep-g", "300",
                      check=False)
        assert done.returncode == 1
        lines = [l for l in done.stderr.splitlines() if l.startswith("culprit: ")]
        assert len(lines) == 1 and "No space left on device" in lines[0], done.stderr
        assert os.listdir(disk) == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_an_old_result_is_kept_when_the_new_one_fails(culprit, programs, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", disk]).returncode:
        pytest.skip("mount is refused here")
    try:
        (disk / "o.html").write_text("old")
        done = record(culprit, disk / "o.html", "-F", "999", "--", f"{programs}/deep-g", "300",
                      check=False)
        assert done.returncode == 1
        assert (disk / "o.html").read_text() == "old"
    finally:
        subprocess.run(["umount", disk], check=True)


def test_standard_output_carries_the_result_and_nothing_else(culprit, programs):
    done = subprocess.run([culprit, "record", "-F", "999", "-o", "-", "--format", "folded", "--",
                           f"{programs}/split-g", "300"], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines and all(re.fullmatch(r"[^;]+(;.+)* [0-9]+", l) for l in lines)
    assert any(l.startswith("split-g;") for l in lines)


@pytest.fixture(scope="session")
def results(culprit, programs, tmp_path_factory):
    """Records the same program in each format."""
    folder = tmp_path_factory.mktemp("formats")
    for ending in ("html", "svg", "folded", "pb.gz", "speedscope.json", "firefox.json"):
        record(culprit, folder / f"o.{ending}", "-F", "999", "--", f"{programs}/split-g", "400")
    return folder


def test_pprof_is_read_by_go(results):
    if not shutil.which("go"):
        pytest.skip("no go")
    done = subprocess.run(["go", "tool", "pprof", "-raw", results / "o.pb.gz"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "spin_70" in done.stdout and "split-g" in done.stdout
    assert re.search(r"^Samples:\n.*samples/count", done.stdout, re.M), done.stdout[:500]
    assert gzip.decompress((results / "o.pb.gz").read_bytes())


def test_speedscope_is_sound(results):
    p = json.loads((results / "o.speedscope.json").read_text())
    assert p["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    names = [f["name"] for f in p["shared"]["frames"]]
    assert "spin_70" in names
    for one in p["profiles"]:
        assert one["type"] == "sampled" and len(one["samples"]) == len(one["weights"])
        assert all(0 <= i < len(names) for s in one["samples"] for i in s)
        assert one["endValue"] >= one["startValue"]


def test_firefox_is_sound(results):
    p = json.loads((results / "o.firefox.json").read_text())
    assert p["meta"]["processType"] == 0 and p["meta"]["interval"] > 0 and p["threads"]
    text = json.dumps(p)
    assert "spin_70" in text
    for t in p["threads"]:
        strings = t.get("stringArray") or p.get("shared", {}).get("stringArray")
        assert strings
        prefix = t["stackTable"]["prefix"]
        assert all(x is None or x < i for i, x in enumerate(prefix)), "stacks refer forward"


def test_svg_and_html_carry_the_data(results):
    ET.parse(results / "o.svg") # well-formed
    assert "spin_70" in (results / "o.svg").read_text()
    html = (results / "o.html").read_text()
    assert html.lstrip().lower().startswith("<!doctype html")
    assert not re.search(r"(src|href)=[\"']https?://", html), "not self-contained"


@pytest.mark.parametrize("ending", ["pb.gz", "speedscope.json", "svg"])
def test_the_formats_agree(culprit, results, ending):
    """Each format, and its conversion to folded text, has the program's shares of 70, 20 and 10 %."""
    leaf = Counter()
    if ending == "svg":
        for name, n in re.findall(r"(spin_\d+) \((\d+) samples", (results / "o.svg").read_text()):
            leaf[name] += int(n)
    else:
        done = subprocess.run([culprit, "convert", results / f"o.{ending}", "-", "--format",
                               "folded"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            path, _, n = line.rpartition(" ")
            for f in path.split(";"):
                if f.startswith("spin_"):
                    leaf[f] += int(n)
    assert leaf.total() > 200
    low, high = binomial_interval(leaf.total(), 0.7)
    assert low <= leaf["spin_70"] <= high, leaf


# ---- binaries that change while they are recorded ----

def truncate_all(path):
    os.truncate(path, 0)


def truncate_half(path):
    os.truncate(path, os.path.getsize(path) // 2)


def garbage_tables(path):
    """Overwrites .eh_frame_hdr, .eh_frame, symbols and debug information with random bytes, in place."""
    text = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True).stdout
    with open(path, "r+b") as f:
        for m in re.finditer(r"\] (\.(?:eh_frame\w*|symtab|strtab|debug_\w+))\s+\S+\s+\S+ (\S+) "
                             r"(\S+)", text):
            f.seek(int(m.group(2), 16))
            f.write(os.urandom(int(m.group(3), 16)))


def garbage_header(path):
    with open(path, "r+b") as f:
        f.seek(16)
        f.write(b"\xff" * 48)


def replace(path):
    other = path + ".new"
    shutil.copy(os.path.join(PROGRAMS, "libswap2.so"), other)
    os.rename(other, path)


def remove(path):
    os.unlink(path)


def frames_by_the_original(stacks):
    """Resolves the nameless frames of the damaged library with the undamaged file."""
    return [s._replace(frames=tuple(f.replace("libvictim.so+", "libswap1.so+") for f in s.frames))
            for s in stacks]


DAMAGE = [truncate_all, truncate_half, garbage_tables, garbage_header, replace, remove]


# The program could not start with damage elsewhere.
EARLY = [garbage_tables]


def when_mapped(path, stopped):
    """Waits until victim-x has run code of the file for a while. (culprit, which predicts the programs that a command
    runs, maps the file earlier.)"""
    while not stopped.wait(0.05):
        for maps in glob.glob("/proc/[0-9]*/maps"):
            try:
                with open(maps, encoding="utf-8", errors="replace") as f, open(maps.replace("maps", "comm")) as comm:
                    if comm.read() == "victim-x\n" and path in f.read():
                        wait_for_cpu(int(maps.split("/")[2]), 0.5)
                        return True
            except OSError:
                pass # the process has ended
    return False


@pytest.mark.parametrize("damage, early", [(d, False) for d in DAMAGE] + [(d, True) for d in EARLY],
                         ids=[f"{d.__name__} while mapped" for d in DAMAGE] +
                             [f"{d.__name__} before the first sample" for d in EARLY])
def test_a_damaged_file_harms_only_its_own_frames(culprit, programs, tmp_path, damage, early):
    lib = str(tmp_path / "libvictim.so")
    shutil.copy(f"{programs}/libswap1.so", lib)
    done = tmp_path / "damaged"
    if early:
        damage(lib)
        done.touch()
    else:
        ended, damaged = threading.Event(), threading.Event()

        def wait_and_damage():
            if when_mapped(lib, ended):
                damage(lib)
                damaged.set()
                done.touch()

        waiter = threading.Thread(target=wait_and_damage)
        waiter.start()
    record(culprit, tmp_path / "o.folded", "-F", "999", "--", "sh", "-c",
           f"{programs}/recursion-gs 1500 & {programs}/victim-x 1000 {lib} {done}; wait",
           env={"TRUTH_OUT": str(tmp_path)})
    if not early:
        ended.set()
        waiter.join()
        assert damaged.is_set(), "it ended undamaged"
    stacks = by_comm(read(tmp_path / "o.folded"))
    innocent = Verdict(Truth(tmp_path, "recursion-gs", inlined=False), stacks["recursion-gs"])
    print("innocent", innocent)
    assert innocent.samples > 1000 and innocent.wrong <= max(3, innocent.samples // 500), \
        str(innocent)
    truth = Truth(tmp_path, "victim-x")
    of_victim = frames_by_the_original(stacks["victim-x"])
    print("victim", Verdict(truth, of_victim), dict(truth.notes))
    safe = wrong = invented = 0
    for s in of_victim:
        fault = truth.fault(s)
        if "safe_work" in truth.own(s.frames):
            safe += s.count
            wrong += s.count if fault else 0
        elif fault and not s.note:
            invented += s.count # in the damaged library a stack may be short, but not wrong
    assert safe > 300 and wrong <= max(1, safe // 500), "frames of other files were harmed"
    assert invented <= max(3, 0.01 * sum(s.count for s in of_victim)), "frames invented"
    if damage in (replace, remove): # the mapped file is unchanged
        named = {f for s in stacks["victim-x"] for f in s.frames}
        assert "swap_one" in named and not any(f.startswith("libvictim.so+") for f in named)


def test_a_damaged_file_leaves_nothing_behind(culprit, programs, tmp_path):
    """Cached answers from a damaged file are not used for an intact file with the same build-id."""
    lib = str(tmp_path / "libvictim.so")

    def names():
        record(culprit, tmp_path / "o.folded", "-F", "999", "--", f"{programs}/victim-x", "400", lib, lib,
               env={"TRUTH_OUT": str(tmp_path)})
        return {f for s in read(tmp_path / "o.folded") for f in s.frames}

    shutil.copy(f"{programs}/libswap1.so", lib)
    garbage_tables(lib)
    assert "swap_one" not in names()
    os.unlink(lib)
    shutil.copy(f"{programs}/libswap1.so", lib)
    assert "swap_one" in names()
