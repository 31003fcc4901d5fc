# SPDX-License-Identifier: Apache-2.0
"""Page faults with their memory (record --faults) of a program that asks the kernel about itself
(tests/tools/known_faults.c)."""

import os
import signal
import subprocess
from collections import defaultdict, namedtuple

import pytest

from pprof import samples
from recorder import record, start_record
from test_procman import TOOLS

FILE_BYTES = 16 << 20
PAGE = 4096
Told = namedtuple("Told", "function resident touched minor major")
Seen = namedtuple("Seen", "faults bytes minor major")


class Recorded:
    def __init__(self, culprit, folder, file, *scenarios, options=()):
        program = subprocess.Popen([os.path.join(TOOLS, "known_faults"), file, *scenarios],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert program.stdout.readline() == "ready\n"
            out = folder / "faults.pb.gz"
            recorder, messages = start_record(culprit, out, "-p", program.pid, "-d", 600, "--faults", *options)
            program.stdin.write("\n")
            program.stdin.flush()
            self.told = []
            for line in program.stdout:
                if line == "over\n":
                    break
                name, *numbers = line.split()
                self.told.append(Told(name, *map(int, numbers)))
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait(120) == 0, messages()
        finally:
            program.kill()
            program.wait()
            program.stdin.close()
            program.stdout.close()
        self.samples = list(samples(out))
        print(messages())

    def of(self, function):
        """What the touching of memory for a function has cost, without the program's questions."""
        sums = defaultdict(int)
        for s in self.samples:
            if function in s.functions and not {"count", "tell"} & set(s.functions):
                sums[s.labels["fault"]] += s.values[1]
                sums["bytes"] += s.values[2]
        return Seen(sums["minor"] + sums["major"], sums["bytes"], sums["minor"], sums["major"])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("faults") / "file"
    path.write_bytes(os.urandom(1 << 20) * (FILE_BYTES >> 20))
    os.sync()
    return path


def has_huge_pages():
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as f:
            return "[never]" not in f.read()
    except OSError:
        return False


@pytest.mark.parametrize("scenario", [
    "small_pages", "huge_pages", "zero_pages", "huge_zero_pages", "cached_file", "cold_file", "shared_memory", "copied_pages",
    "read_into", "four_threads"])
def test_each_fault_and_its_memory(culprit, tmp_path, file, scenario):
    """With -c 1 each fault is a sample: numbers and bytes are exactly those of the kernel."""
    if "huge" in scenario and not has_huge_pages():
        pytest.skip("transparent huge pages are off")
    file.read_bytes()
    got = Recorded(culprit, tmp_path, file, scenario, options=("-c", 1))
    told = got.told[0]
    seen = got.of(told.function)
    print(told, seen)
    assert told.resident == (0 if scenario == "copied_pages" else told.touched) or scenario == "four_threads"
    if scenario == "four_threads":
        assert seen.faults == told.touched // PAGE
    else:
        assert (seen.minor, seen.major) == (told.minor, told.major)
    assert seen.bytes == told.touched
    if scenario == "huge_pages":
        assert seen.faults == told.touched >> 21
    if scenario == "cached_file":
        assert seen.faults < told.touched // PAGE / 8


def test_within_the_budget(culprit, tmp_path, file):
    """Without -c few faults are samples, and stand for all."""
    times = 24
    got = Recorded(culprit, tmp_path, file, *["small_pages", "shared_memory", "huge_pages"] * times)
    small, shared, huge = (got.of(f) for f in ("small_pages", "shared_memory", "huge_pages"))
    n = sum(1 for s in got.samples)
    print(small, shared, huge, n)
    faults = times * FILE_BYTES // PAGE
    assert abs(small.faults + shared.faults - 2 * faults) < 2 * 1024 * os.cpu_count() + faults / 50
    assert abs(small.faults / shared.faults - 1) < 0.5
    assert abs(small.bytes / small.faults - PAGE) < 1 and abs(shared.bytes / shared.faults - PAGE) < PAGE / 4
    if has_huge_pages():
        assert huge.bytes == times * FILE_BYTES and huge.faults < 2 * times * (FILE_BYTES >> 21)


@pytest.mark.parametrize("args, says", [
    (("--faults", "-F", 99), "--faults has no rate"),
    (("--faults", "--off-cpu"), "exclude each other"),
])
def test_mistakes_are_told_in_a_line(culprit, tmp_path, args, says):
    done = record(culprit, tmp_path / "out.folded", *args, "-d", 1, check=False)
    assert done.returncode in (1, 2) and says in done.stderr and done.stderr.count("\n") == 1, done.stderr
