# SPDX-License-Identifier: Apache-2.0
"""Runs `culprit record` for the tests and reads its output."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter

from folded import parse_folded
from truth import NO_USER_STACK, is_entry, shorten


def record(culprit, output, *args, env=None, timeout=120, check=True, **options):
    """Runs culprit record -o OUTPUT ARGS… and returns the finished process. Its messages go to standard
    error."""
    command = [culprit, "record", "--force", "-o", str(output), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                          timeout=timeout, env={**os.environ, **(env or {})}, **options)
    sys.stderr.write(done.stderr)
    if check:
        assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stderr}"
    return done


def start_record(culprit, output, *args, seconds=120):
    """Starts culprit record -o OUTPUT ARGS… and waits until it counts samples. Returns (process, a function that
    returns its messages), without the messages from loading."""
    log = f"{output}.log"

    def messages():
        with open(log, encoding="utf-8", errors="replace") as f:
            return f.read()
    with open(log, "wb") as f:
        p = subprocess.Popen([culprit, "record", "-v", "--force", "-o", str(output), *map(str, args)], stderr=f)
    end = time.monotonic() + seconds
    while "debug: recording" not in messages():
        if time.monotonic() > end or p.poll() is not None:
            p.kill()
            p.wait()
            raise AssertionError(f"it does not record: {messages()}")
        time.sleep(0.02)
    return p, messages


def walks_sleepers(culprit):
    """Whether this kernel lets BPF read the runtimes' frames of a thread that sleeps on."""
    doctor = subprocess.run([culprit, "doctor"], capture_output=True, text=True)
    return "without runtimes' frames of threads that sleep on" not in doctor.stdout


def read(path):
    """Returns the stacks of a folded file."""
    with open(path, encoding="utf-8", errors="replace") as f:
        return parse_folded(f.read())


def cpu_seconds(pid):
    """Returns the CPU time of the process's main thread, also if the process is a zombie."""
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as f:
        return int(f.read().split()[0]) / 1e9


def is_running(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
        return f.read().rpartition(")")[2].split()[0] not in "ZX"


def cpu_seconds_of_all_threads(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
        user, system = f.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def wait_for_cpu(pid, seconds, within=120, used=cpu_seconds):
    """Waits until the running process has used this much CPU time."""
    end = time.monotonic() + within
    while used(pid) < seconds:
        assert time.monotonic() < end and is_running(pid), f"{pid} has used {used(pid):.1f} s"
        time.sleep(0.02)


def record_of_running(culprit, output, command, *args, env=None):
    """Runs culprit record -p on a running program. The program is stopped until the recording starts, so that it
    does no work before. Messages go to standard error."""
    with subprocess.Popen(list(map(str, command)), env={**os.environ, **(env or {})}) as p:
        wait_for_cpu(p.pid, 0.1)
        p.send_signal(signal.SIGSTOP)
        try:
            recorder, messages = start_record(culprit, output, "-p", p.pid, *args)
            p.send_signal(signal.SIGCONT)
            status = recorder.wait(120)
            sys.stderr.write(messages())
            assert status == p.wait(120) == 0
        finally:
            p.kill()


class Completeness:
    """Counts complete stacks, and frames with a name, of any program's stacks."""

    def __init__(self, stacks, root=""):
        self.samples = self.user = self.complete = self.frames = self.named = 0
        self.faults, self.unnamed, self.example = Counter(), Counter(), {}
        for s in stacks:
            self.samples += s.count
            if not s.frames and not s.note:
                if any(NO_USER_STACK.match(k) for k in s.kernel):
                    continue # no address space
                why = "no user stack"
            elif s.note:
                why = s.note
            elif any(f.endswith("frames not read]") for f in s.frames):
                why = "runtime frames not read"
            elif not is_entry(s.frames[0], root):
                why = f"begins at {s.frames[0]}"
            else:
                why = None
            self.user += s.count
            if why:
                self.faults[why] += s.count
                self.example.setdefault(why, s)
            else:
                self.complete += s.count
            for f in s.frames:
                self.frames += s.count
                if "+0x" in f or f == "[unknown]":
                    self.unnamed[f.partition("+0x")[0]] += s.count
                else:
                    self.named += s.count

    @property
    def share(self):
        return self.complete / self.user if self.user else 0.0

    def __str__(self):
        named = 100 * self.named / self.frames if self.frames else 0
        text = (f"{self.samples:6} samples, {self.user:6} with user stack, "
                f"{100 * self.share:6.2f} % complete, {named:6.2f} % of frames named")
        for why, n in self.faults.most_common(4):
            s = self.example[why]
            text += f"\n        {n} × {why}: {';'.join(shorten(s.frames))}"
            if s.kernel:
                text += f" (kernel: {';'.join(s.kernel[-3:])})"
        return text
