# SPDX-License-Identifier: Apache-2.0
"""Compares culprit doctor with what other tools say about the same machine."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from test_procman import with_own_mounts

STATUSES = {"ok", "limited", "missing"}


def doctor(run, **options):
    done = run("doctor", "--json", **options)
    assert done.stderr == ""
    return done.returncode, {line["name"]: line for line in json.loads(done.stdout)}


def unprivileged(culprit, *args):
    """Runs culprit without any capability, but as the same user, because other users may lack access to the file."""
    return subprocess.run(["setpriv", "--inh-caps=-all", "--bounding-set=-all", culprit, *args],
                          capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("command", [
    ("record", "-d", "1", "-o", "{tmp}/out.folded"),
    ("top", "-d", "1"),
    ("agent", "--export", "file:{tmp}/%s.pb.gz"),
    ("up",),
], ids=lambda c: c[0])
def test_a_pid_namespace_is_refused_with_the_sentence_of_doctor(culprit, tmp_path, command):
    """BPF and /proc would have different process ids, so a sample could be assigned to a wrong process."""
    # Do not use --mount-proc: it needs / to be a mount point, which is not so in a chroot.
    inside = ["unshare", "--pid", "--fork", culprit]
    options = dict(capture_output=True, text=True, timeout=60)
    doctor_says = subprocess.run([*inside, "doctor", "--json"], **options)
    line, = (x for x in json.loads(doctor_says.stdout) if x["name"] == "namespaces")
    assert doctor_says.returncode == 1 and line["status"] == "missing"
    done = subprocess.run([*inside, *(a.format(tmp=tmp_path) for a in command)], **options)
    assert done.returncode == 1
    assert done.stderr == f"culprit: {line['text']}: {line['advice']}\n"
    assert "--pid=host" in done.stderr and "hostPID" in done.stderr
    assert not list(tmp_path.iterdir())


def test_every_line_has_a_status_and_a_text(run):
    _, lines = doctor(run)
    assert len(lines) >= 15
    for line in lines.values():
        assert line["status"] in STATUSES
        assert line["text"]


def test_text_output_says_the_same_as_json(run):
    status, lines = doctor(run)
    done = run("doctor")
    assert done.returncode == status
    for line in lines.values():
        word = line["status"].upper() if line["status"] == "missing" else line["status"]
        assert f"{word:8} {line['name']:16} " in done.stdout


def test_exit_status_is_that_of_the_worst(run):
    status, lines = doctor(run)
    assert status == (1 if any(x["status"] == "missing" for x in lines.values()) else 0)


def test_the_programs_of_record_are_tried(run):
    """Only loading the programs shows whether the verifier accepts them; features of the kernel do not."""
    status, lines = doctor(run)
    assert lines["BPF programs"]["status"] == "ok"
    assert status == 0


def test_programs_are_not_tried_without_the_capabilities(culprit):
    lines = {x["name"]: x for x in json.loads(unprivileged(culprit, "doctor", "--json").stdout)}
    assert lines["capabilities"]["status"] == "missing"
    assert "BPF programs" not in lines


def test_helpers_as_bpftool_sees_them(culprit, run):
    bpftool = shutil.which("bpftool") or "/usr/sbin/bpftool"
    out = subprocess.run([bpftool, "-j", "feature", "probe", "kernel"], capture_output=True,
                         text=True, timeout=120)
    helpers = json.loads(out.stdout)["helpers"]["perf_event_available_helpers"]
    _, lines = doctor(run)
    assert (lines["bpf_loop"]["status"] == "ok") == ("bpf_loop" in helpers)
    both = {"bpf_get_current_task_btf", "bpf_task_pt_regs"} <= set(helpers)
    assert both == (lines["user registers"]["text"] == "bpf_get_current_task_btf and bpf_task_pt_regs")


def test_kernel_symbols_as_kallsyms_shows_them(run):
    with open("/proc/kallsyms") as f:
        shown = any(int(line.split()[0], 16) for line in f)
    _, lines = doctor(run)
    assert (lines["kernel symbols"]["status"] == "ok") == shown


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_without_privilege_it_says_so_and_claims_nothing(culprit_plain):
    done = unprivileged(culprit_plain, "doctor", "--json")
    assert done.stderr == ""
    lines = {line["name"]: line for line in json.loads(done.stdout)}
    assert done.returncode == 1
    assert lines["capabilities"]["status"] == "missing"
    assert "CAP_BPF, CAP_PERFMON" in lines["capabilities"]["text"]
    assert f"+ep {os.path.realpath(culprit_plain)}" in lines["capabilities"]["advice"]
    for name in ("BPF", "BPF maps", "perf events", "process events"):
        assert lines[name]["status"] == "missing", lines[name]
    for name in ("bpf_loop", "user registers", "kernel symbols", "hardware events"):
        assert lines[name]["status"] != "ok", lines[name]


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_without_btf_it_is_refused_and_says_what_to_do(culprit_plain, tmp_path):
    """Without BTF the offsets of the kernel's structs are unknown."""
    script = f"mount -t tmpfs none $0 && exec {culprit_plain} record -d 1 -o {tmp_path}/out.pb.gz"
    done = subprocess.run(with_own_mounts(script, pathlib.Path("/sys/kernel/btf")), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == ("culprit: kernel without BTF: /sys/kernel/btf/vmlinux is not there; boot a kernel with "
                           "CONFIG_DEBUG_INFO_BTF=y (distributions' own have it)\n")
    assert not os.path.exists(tmp_path / "out.pb.gz")


def test_wrong_arguments(run):
    done = run("doctor", "everything")
    assert done.returncode == 2
    assert done.stderr == "culprit: doctor: unexpected argument 'everything'; see culprit doctor --help\n"
    assert run("doctor", "--no-such").returncode == 2
    assert run("doctor", "--help").stdout.startswith("usage: culprit doctor")
