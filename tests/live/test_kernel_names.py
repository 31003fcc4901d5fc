# SPDX-License-Identifier: Apache-2.0
"""Names of kernel code that is loaded while culprit records."""

import contextlib
import ctypes
import glob
import os
import platform
import subprocess
import time

from folded import parse_folded

SYS_BPF = {"x86_64": 321, "aarch64": 280}
PROG_LOAD, PROG_TEST_RUN = 5, 10
SOCKET_FILTER = 1


class ProgLoad(ctypes.Structure):  # the first members of union bpf_attr for BPF_PROG_LOAD
    _fields_ = [("prog_type", ctypes.c_uint32), ("insn_cnt", ctypes.c_uint32),
                ("insns", ctypes.c_uint64), ("license", ctypes.c_uint64),
                ("log_level", ctypes.c_uint32), ("log_size", ctypes.c_uint32),
                ("log_buf", ctypes.c_uint64), ("kern_version", ctypes.c_uint32),
                ("prog_flags", ctypes.c_uint32), ("prog_name", ctypes.c_char * 16)]


class TestRun(ctypes.Structure):  # the same for BPF_PROG_TEST_RUN
    __test__ = False
    _fields_ = [("prog_fd", ctypes.c_uint32), ("retval", ctypes.c_uint32),
                ("data_size_in", ctypes.c_uint32), ("data_size_out", ctypes.c_uint32),
                ("data_in", ctypes.c_uint64), ("data_out", ctypes.c_uint64),
                ("repeat", ctypes.c_uint32), ("duration", ctypes.c_uint32)]


def bpf(command, attr):
    libc = ctypes.CDLL(None, use_errno=True)
    r = libc.syscall(SYS_BPF[platform.machine()], command, ctypes.byref(attr), ctypes.sizeof(attr))
    if r < 0:
        raise OSError(ctypes.get_errno(), "bpf()")
    return r


@contextlib.contextmanager
def loaded_program(name):
    """Loads a BPF program that only takes some microseconds; yields a function that runs it."""
    mov_0, add_1, leave = b"\xb7\0\0\0\0\0\0\0", b"\x07\0\0\0\1\0\0\0", b"\x95\0\0\0\0\0\0\0"
    code = ctypes.create_string_buffer(mov_0 + add_1 * 4000 + leave)
    text = ctypes.create_string_buffer(b"GPL")
    fd = bpf(PROG_LOAD, ProgLoad(SOCKET_FILTER, 4002, ctypes.addressof(code), ctypes.addressof(text),
                                 prog_name=name.encode()))
    packet = ctypes.create_string_buffer(64)
    try:
        yield lambda: bpf(PROG_TEST_RUN, TestRun(fd, data_size_in=64, repeat=100000,
                                                 data_in=ctypes.addressof(packet)))
    finally:
        os.close(fd)


def kernel_names(folder, seen):
    """Returns names of kernel functions in the output files that were not read yet."""
    names = set()
    for path in set(glob.glob(f"{folder}/*.folded")) - seen:
        seen.add(path)
        with open(path, encoding="utf-8", errors="replace") as f:
            names |= {frame for stack in parse_folded(f.read()) for frame in stack.kernel}
    return names


def wait_for_name(folder, seen, word, run, seconds=90):
    end = time.monotonic() + seconds
    while not any(word in name for name in kernel_names(folder, seen)):
        assert time.monotonic() < end, f"no frame of {word}"
        run()


def test_bpf_programs_that_are_loaded_later(culprit, tmp_path):
    """Loads two programs one after the other, so that the second may get the address of the first."""
    agent = subprocess.Popen([culprit, "agent", "-F", "199", "--period", "1", "--export",
                              f"file:{tmp_path}/%s.folded", "--pid", str(os.getpid())])
    seen = set()
    try:
        with loaded_program("early_one") as run:
            wait_for_name(tmp_path, seen, "_early_one", run)
        for name in ("later_one", "last_one"):
            with loaded_program(name) as run:
                wait_for_name(tmp_path, seen, f"_{name}", run)
            assert not any("_early_one" in x for x in kernel_names(tmp_path, seen))
    finally:
        agent.terminate()
        assert agent.wait(timeout=60) == 0
