# SPDX-License-Identifier: Apache-2.0
"""culprit's own samples: marked, left out unless --self is given, told, and not in the shares of the others."""

import os
import re
import subprocess
import time

import pytest

from folded import parse_folded
from otlp import Receiver
from pprof import samples
from recorder import record

MARK = "culprit.self"
# Without a cache a recording of the whole machine builds unwind tables, and has samples of its own for certain.
WHOLE = ["-F", 997, "-d", 2, "--cache-dir", "none"]
TOLD = re.compile(r"culprit itself: .*; its (\d+) samples \(([\d.]+) %\) are left out: --self keeps them\n")


@pytest.fixture
def spinner():
    """Something else to sample."""
    with subprocess.Popen(["/usr/bin/python3", "-c", "while True: pass"]) as p:
        yield p
        p.kill()


def counted(found):
    return sum(s.values[0] for s in found)


def test_own_samples_are_left_out_and_told(culprit, spinner, tmp_path):
    out = tmp_path / "o.pb.gz"
    done = record(culprit, out, *WHOLE)
    told = TOLD.search(done.stderr)
    assert told, done.stderr
    own, share = int(told[1]), float(told[2])
    found = list(samples(out))
    assert not [s for s in found if MARK in s.labels]
    assert spinner.pid in {s.labels["pid"] for s in found}
    # The summary, the file and the report count the rest; the share is that of all.
    rest = int(re.match(r"(\d+) samples of", done.stderr)[1])
    assert rest == counted(found)
    assert abs(share - 100 * own / (own + rest)) < 0.06
    report = subprocess.run([culprit, "report", str(out)], capture_output=True, text=True, check=True).stdout
    assert re.search(rf"left out: culprit itself \({share:.1f} %\)", report.split("\n")[0].replace(f"{own:,} ", "")), report


def test_self_keeps_them_marked(culprit, spinner, tmp_path):
    out = tmp_path / "o.pb.gz"
    done = record(culprit, out, "--self", *WHOLE)
    assert "left out" not in done.stderr
    found = list(samples(out))
    own = [s for s in found if s.labels.get(MARK) == "true"]
    assert {s.labels["comm"] for s in own} - {"parser", "parsers", "exe"} == {"culprit"}
    assert spinner.pid not in {s.labels["pid"] for s in own}
    assert int(re.match(r"(\d+) samples of", done.stderr)[1]) == counted(found)

    def shown(*args):
        text = subprocess.run([culprit, "report", "-m", "0", *args, str(out)], capture_output=True, text=True, check=True).stdout
        return text, int(re.match(r"([\d,]+) sample", text)[1].replace(",", ""))
    text, n = shown()
    assert n == counted(found) - counted(own)
    assert f"{counted(own):,} left out: culprit itself" in text
    text, n = shown("--self")
    assert n == counted(found) and "left out" not in text
    assert re.search(r"^ *[\d.]+ +[- ]*culprit$", text, re.M)


def test_a_culprit_that_is_the_command_is_no_part_of_the_recorder(culprit, tmp_path):
    out, folded = tmp_path / "o.pb.gz", tmp_path / "in.folded"
    folded.write_text("".join(f"app;f{i};g{i % 97} {i + 1}\n" for i in range(50000)))
    record(culprit, out, "-F", 997, "--", culprit, "convert", "--force", folded, tmp_path / "x.pb.gz")
    found = list(samples(out))
    assert counted(found) > 20 and {s.labels["comm"] for s in found} == {"culprit"}
    assert not [s for s in found if MARK in s.labels]


def test_nothing_but_culprit_says_so(culprit, tmp_path):
    """A selection that only culprit itself meets is not called idle. It has a name that no other process has."""
    os.symlink(culprit, tmp_path / "only-culprit")
    done = record(tmp_path / "only-culprit", tmp_path / "o.folded", "--comm", "only-culprit", *WHOLE)
    assert TOLD.search(done.stderr), done.stderr
    assert "nothing but culprit itself was sampled\n" in done.stderr
    assert parse_folded((tmp_path / "o.folded").read_text()) == []


def test_top_leaves_them_out(culprit, spinner, tmp_path):
    del spinner
    os.symlink(culprit, tmp_path / "own-culprit")

    def top(*args):
        return subprocess.run([tmp_path / "own-culprit", "top", "-b", "--processes", "-n", "1", "-d", "2", "-F", "997", "--cache-dir", "none",
                               *args], capture_output=True, text=True, check=True).stdout
    text = top()
    assert re.search(r", culprit itself [\d.]+ %: left out\n", text) and "  own-culprit  (" not in text, text
    # The rest is all: the shares of the others add up.
    assert sum(float(x) for x in re.findall(r"^ +([\d.]+) +[\d.]+  ", text, re.M)) == pytest.approx(100, abs=1)
    text = top("--self")
    assert "left out" not in text and "  own-culprit  (" in text, text


def test_agent_marks_its_processes_only(culprit, spinner):
    with Receiver() as r:
        p = subprocess.Popen([culprit, "agent", "--disable-tls", "--export", r.url, "-F", "199", "--period", "1",
                              "--no-off-cpu", "--cache-dir", "none"], stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 60
            while time.monotonic() < end and len(r.bodies) < 5:
                time.sleep(0.2)
        finally:
            p.terminate()
            p.wait()
        own = [s for s in r.samples() if MARK in s.attributes]
        assert own and {s.attributes[MARK] for s in own} == {"true"}
        assert p.pid in {s.resource["process.pid"] for s in own}
        assert spinner.pid not in {s.resource["process.pid"] for s in own}
        assert not [s for s in r.samples() if s.resource["process.pid"] == p.pid and MARK not in s.attributes]
