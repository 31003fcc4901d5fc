# SPDX-License-Identifier: Apache-2.0
"""Requests to disks (record --block-io) of a program that knows its own (tests/tools/known_requests.c), and what the
kernel has counted for the device."""

import os
import signal
import subprocess
from collections import defaultdict, namedtuple

import pytest

from pprof import samples
from recorder import start_record
from test_procman import TOOLS

BYTES = 8 << 20
KINDS = {"read_small": "read", "read_large": "read", "write_small": "write", "discard": "discard", "flush": "flush"}
Told = namedtuple("Told", "requests ns bytes device_requests device_sectors device_ms")
Device = namedtuple("Device", "path name number kinds")


def stat_of(name):
    return f"/sys/block/{name}/stat"


def disk_of(path):
    """The whole disk of a file: its name in sysfs; None: it is on no disk."""
    number = os.stat(path).st_dev
    link = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"
    return os.path.basename(os.path.realpath(link)) if os.path.exists(link) else None


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    """A loop device, or a file on a disk."""
    path = tmp_path_factory.mktemp("block") / "disk"
    path.write_bytes(os.urandom(BYTES))
    made = subprocess.run(["losetup", "-f", "--show", path], capture_output=True, text=True, check=False)
    loop = made.stdout.strip()
    if made.returncode:
        name = disk_of(path)
        if not name or not os.path.exists(stat_of(name)):
            pytest.skip(f"no loop device ({made.stderr.strip()}), and {path} is on no disk")
        number = os.stat(path).st_dev
        yield Device(path, name, f"{os.major(number)}:{os.minor(number)}", ("read_small", "read_large"))
        return
    number = os.stat(loop).st_rdev
    try:
        yield Device(loop, os.path.basename(loop), f"{os.major(number)}:{os.minor(number)}", tuple(KINDS))
    finally:
        subprocess.run(["losetup", "-d", loop], check=True)


class Recorded:
    def __init__(self, culprit, folder, device, count, kinds, *options):
        program = subprocess.Popen([os.path.join(TOOLS, "known_requests"), device.path, stat_of(device.name), str(count), *kinds],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert program.stdout.readline() == "ready\n"
            out = folder / "requests.pb.gz"
            recorder, messages = start_record(culprit, out, "-p", program.pid, "-d", 600, "--block-io", *options)
            program.stdin.write("\n")
            program.stdin.flush()
            self.told = {}
            for line in program.stdout:
                if line == "over\n":
                    break
                kind, *numbers = line.split()
                self.told[kind] = Told(*map(int, numbers))
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait(120) == 0, messages()
        finally:
            program.kill()
            program.wait()
            program.stdin.close()
            program.stdout.close()
        self.samples = list(samples(out))
        print(messages())

    def of(self, kind):
        """{(operation, device, number): [samples, ns, bytes]} in a function."""
        sums = defaultdict(lambda: [0, 0, 0])
        for s in self.samples:
            if kind in s.functions:
                at = sums[s.labels["operation"], s.labels["device"], s.labels["device.number"]]
                for i, v in enumerate(s.values):
                    at[i] += v
        return dict(sums)


def test_each_request(culprit, tmp_path, device):
    """Each has its stack, device, operation and bytes; times are those that the kernel has counted."""
    unlike = set(device.kinds) if device.name.startswith("loop") else set()
    for _ in range(4):
        got = Recorded(culprit, tmp_path, device, 200, device.kinds, "-c", 1)
        assert set(got.told) == set(device.kinds)
        for kind, told in got.told.items():
            seen = got.of(kind)
            print(kind, told, seen)
            assert list(seen) == [(KINDS[kind], device.name, device.number)], seen
            (n, ns, n_bytes), = seen.values()
            assert n == told.requests and n_bytes == told.bytes
            assert 0 < ns < told.ns
            if device.name.startswith("loop"):
                assert (n, n_bytes) == (told.device_requests, told.device_sectors * 512)
                # The kernel counts in milliseconds, and a request from a moment earlier on; but of a flush only the
                # command that a request becomes (blk_account_io_flush), which begins later and is over earlier.
                longer = ns - told.device_ms * 1e6
                most = 2e6 + 5e3 * n + told.device_ms * 1e6 / 50
                if -most < longer and (longer < most or kind == "flush"):
                    unlike.discard(kind)
        # The kernel also counts until a completing thread goes on, which may lose the CPU to who waits for the request.
        if not unlike:
            return
    assert not unlike


def test_within_the_budget(culprit, tmp_path, device):
    """Without -c few requests are samples, and stand for all but those after the last one. A sample that took long by
    chance stands for hundreds."""
    unlike = {"read_small", "read_large"}
    for _ in range(4):
        got = Recorded(culprit, tmp_path, device, 3000, ("read_small", "read_large"))
        for kind, told in got.told.items():
            (n, ns, n_bytes), = got.of(kind).values()
            print(kind, told, n, ns, n_bytes)
            assert n < told.requests / 2
            if 0.7 < n_bytes / told.bytes < 1.3 and told.ns / 5 < ns < 2 * told.ns:
                unlike.discard(kind)
        if not unlike:
            return
    assert not unlike


def test_others_are_left_out(culprit, tmp_path, device):
    """The threads of the loop device make requests, too: to the disk below it."""
    got = Recorded(culprit, tmp_path, device, 50, ("read_small",), "-c", 1)
    assert {s.labels["device"] for s in got.samples} == {device.name}
