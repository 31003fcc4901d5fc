# SPDX-License-Identifier: Apache-2.0
"""The run time of the sampling program."""

import contextlib
import ctypes
import fcntl
import os
import platform
import re
import signal
import statistics
import struct
import subprocess
import tempfile
import time

from .common import BpfStats, CPUS, RUNS, note, programs_of, start_record
from folded import by_comm, parse_folded
from truth import PROGRAMS

BURNER = os.environ.get("BENCH_BURNER", "frames32-x") # one with another depth tells the slope
LIBC = ctypes.CDLL(None, use_errno=True)
LICENSE = ctypes.create_string_buffer(b"GPL")


def instruction(op, to=0, of=0, off=0, value=0):
    return struct.pack("<BBhi", op, to | of << 4, off, value)


class EmptyProgram:
    """An empty perf_event program on every CPU, which shows the cost of the measurement itself. With `reads` it reads the
    sampled program's stack so many times, 8 bytes each."""

    SYS = {"x86_64": (321, 298), "aarch64": (280, 241)}[platform.machine()] # bpf, perf_event_open
    SP = {"x86_64": 19 * 8, "aarch64": 31 * 8}[platform.machine()] # in struct bpf_perf_event_data
    PROG_LOAD, TYPE_PERF_EVENT = 5, 7 # enum bpf_cmd, bpf_prog_type
    SET_BPF = 0x40042408 # PERF_EVENT_IOC_SET_BPF
    PROBE_READ_USER = 112

    def __init__(self, hz, reads=0):
        self.fds = []
        # r6 = sp; each: probe_read_user(r10 - 8, 8, r6); r0 = 0; exit
        read = (instruction(0xbf, 1, 10), instruction(0x07, 1, value=-8), instruction(0xb7, 2, value=8),
                instruction(0xbf, 3, 6), instruction(0x85, value=self.PROBE_READ_USER))
        code = b"".join((instruction(0x79, 6, 1, self.SP), *read * reads, instruction(0xb7), instruction(0x95)))
        text = ctypes.create_string_buffer(code, len(code))
        attr = struct.pack("<IIQQIIQIIQ", self.TYPE_PERF_EVENT, len(code) // 8, ctypes.addressof(text),
                           ctypes.addressof(LICENSE), 0, 0, 0, 0, 0, 0)
        self.call(self.SYS[0], self.PROG_LOAD, attr, len(attr))
        # struct perf_event_attr, version 0: software, size, cpu-clock, Hz, …, freq
        attr = struct.pack("<IIQQQQQIIQ", 1, 64, 0, hz, 0, 0, 1 << 10, 0, 0, 0)
        for cpu in range(CPUS):
            fcntl.ioctl(self.call(self.SYS[1], attr, -1, cpu, -1, 0), self.SET_BPF, self.fds[0])

    def call(self, *args):
        fd = LIBC.syscall(*args)
        if fd < 0:
            raise OSError(ctypes.get_errno(), "the empty program")
        self.fds.append(fd)
        return fd

    def __enter__(self):
        self.pid = os.getpid()
        return self

    def __exit__(self, *_):
        for fd in reversed(self.fds):
            os.close(fd)


@contextlib.contextmanager
def burners(command=None):
    """Runs programs with stacks of 32 user frames on every CPU; once culprit knows them, for 95 % of the CPU time."""
    running = [subprocess.Popen(command or [f"{PROGRAMS}/{BURNER}", "100000000"])
               for _ in range(CPUS)]
    try:
        time.sleep(2 if not command else 4) # their tables are loaded, and hot code is compiled
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
        for p in running:
            for tid in os.listdir(f"/proc/{p.pid}/task"):
                os.sched_setscheduler(int(tid), os.SCHED_FIFO, os.sched_param(1))
        time.sleep(0.3)
        yield running
    finally:
        for p in running:
            p.kill()
            p.wait()
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def ns_a_run(pid, command=None):
    """Returns the ns per run of the process's BPF programs, over 1.5 s with the burners."""
    with burners(command):
        runs, ns = programs_of(pid)
        time.sleep(1.5)
        runs2, ns2 = programs_of(pid)
    if runs2 == runs:
        raise OSError("no runs were counted")
    return (ns2 - ns) / (runs2 - runs)


def rates():
    """Sampling rates for cold and for warm caches. On a busy machine the kernel lowers the maximum rate."""
    with open("/proc/sys/kernel/perf_event_max_sample_rate", encoding="ascii") as f:
        return 997, min(9973, int(f.read()))


def bpf_empty(hz):
    with BpfStats(), EmptyProgram(hz) as p:
        return ns_a_run(p.pid)


def bpf_run(hz, comm, command=None):
    """Returns (ns per run of the sampling program, user frames per sample, number of samples as text)."""
    with tempfile.TemporaryDirectory() as d, BpfStats():
        p = start_record(f"{d}/o.folded", "-F", hz, "-d", 60, "--comm", comm)
        while not programs_of(p.pid)[0] and p.poll() is None:
            time.sleep(0.05)
        per = ns_a_run(p.pid, command)
        p.send_signal(signal.SIGINT)
        err = p.communicate()[1]
        of = by_comm(parse_folded(open(f"{d}/o.folded").read())).get(comm, [])
    depth = statistics.median(len(s.frames) for s in of for _ in range(s.count)) if of else 0
    lost = re.search(r"^lost .*?\)", err, re.M)
    return per, depth, f"{sum(s.count for s in of)} samples, {lost.group(0) if lost else ''}"


def bpf():
    """Run time of the sampling program by the kernel's statistics, over 1.5 s in which every CPU runs a program with
    stacks of 32 user frames, at a real-time priority and for 95 % of the time. --comm filters out samples of other
    programs, whose cost is small; it is measured by filtering out all programs. The statistics read the clock twice
    within the measured time; an empty program shows how long that takes, and "net" is the time without it. At about
    1000 Hz, as at all usual rates, the tables are not in the caches any more at the next sample; at about 10,000 Hz
    they are."""
    for hz in rates():
        costs = {"empty": [], "filtered": [], "sampled": []}
        for _ in range(RUNS):
            costs["empty"].append(bpf_empty(hz))
            costs["filtered"].append(bpf_run(hz, "no-such-name")[0])
            per, depth, n = bpf_run(hz, BURNER)
            costs["sampled"].append(per)
        empty, filtered, sampled = (statistics.median(c) for c in costs.values())
        note(f"BPF: an empty program, at {hz} Hz", empty, "ns")
        note(f"BPF: one filtered event, at {hz} Hz", filtered, "ns", "gross")
        note(f"BPF: one filtered event, net, at {hz} Hz", filtered - empty, "ns")
        note(f"BPF: one sample, {depth:g} native frames, at {hz} Hz", sampled, "ns",
             f"gross, median of {RUNS} runs, {n}", 3000, 1500)
        note(f"BPF: one sample, {depth:g} native frames, net, at {hz} Hz", sampled - empty, "ns")
