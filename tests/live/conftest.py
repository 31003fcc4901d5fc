# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the live tests: the executable under test.

Tests that profile use `culprit`, which skips the test, with the reason, without root or BPF. Tests that
need no privilege use `culprit_plain`. The environment variable CULPRIT names the executable (make
check-root sets it); the default is the executable in build/.
"""

import ctypes
import errno
import os
import pathlib
import platform
import shutil
import subprocess
import tempfile

import pytest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Tests of `culprit server` run as root here, and it needs to be told.
os.environ["CULPRIT_ALLOW_ROOT"] = "yes"
# In a root that debootstrap has made, nobody else may enter /: there the server of `culprit up` has to stay root.
if not os.stat("/").st_mode & 1:
    os.environ["CULPRIT_USER"] = "root"
SYS_BPF = {"x86_64": 321, "aarch64": 280}
BPF_MAP_CREATE = 0
BPF_MAP_TYPE_ARRAY = 2


def bpf_refusal():
    """Tries BPF and returns the reason why it does not work here, or None."""
    if os.geteuid() != 0:
        return "not root"
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        return "kernel without BTF"
    # union bpf_attr of BPF_MAP_CREATE: map_type, key_size, value_size, max_entries, then zeros
    attr = (ctypes.c_uint32 * 32)(BPF_MAP_TYPE_ARRAY, 4, 4, 1)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(SYS_BPF[platform.machine()], BPF_MAP_CREATE, attr, ctypes.sizeof(attr))
    if fd < 0:
        return f"the kernel refuses bpf(): {errno.errorcode.get(ctypes.get_errno(), '?')}"
    os.close(fd)
    return None


@pytest.fixture(scope="session")
def culprit_plain():
    path = os.environ.get("CULPRIT") or os.path.join(TOP, "build/cli/culprit")
    assert os.access(path, os.X_OK), f"{path} is not there: make"
    return path


@pytest.fixture(scope="session")
def culprit(culprit_plain):
    reason = bpf_refusal()
    if reason:
        pytest.skip(reason)
    return culprit_plain


@pytest.fixture
def place():
    """A directory that everybody may enter, as /var/lib, also the server of `culprit up`; tmp_path is root's."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="culprit-live-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def run(culprit_plain):
    """run(ARG...) runs culprit to its end. The result has .returncode, .stdout and .stderr (text)."""

    def run_culprit(*args, timeout=60, **options):
        return subprocess.run([culprit_plain, *map(str, args)], capture_output=True, text=True,
                              errors="replace", timeout=timeout, **options)

    return run_culprit
