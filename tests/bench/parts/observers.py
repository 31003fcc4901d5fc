# SPDX-License-Identifier: Apache-2.0
"""Programs while somebody observes them, compared with the same programs while nobody does."""

import contextlib
import signal
import statistics
import subprocess
import tempfile
import time

from .common import RUNS, fdinfo, note, start_record
from host import wait_for


@contextlib.contextmanager
def culprit(*args):
    with tempfile.TemporaryDirectory() as d:
        p = start_record(f"{d}/o.folded", "-q", "-d", 600, *args)
        try:
            wait_for(lambda: p.poll() is not None or any("prog_id" in i for i in fdinfo(p.pid)), "culprit record")
            time.sleep(2)
            assert p.poll() is None, p.stderr.read()
            yield
        finally:
            p.send_signal(signal.SIGINT)
            p.communicate()


@contextlib.contextmanager
def peer(*command, seconds=3):
    with tempfile.TemporaryFile() as out:
        p = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            time.sleep(seconds)
            if p.poll() is not None:
                out.seek(0)
                lines = out.read().decode(errors="replace").strip().splitlines()
                raise OSError(next((line for line in lines if "fail" in line), lines[-1] if lines else "it says nothing"))
            yield
        finally:
            p.send_signal(signal.SIGINT)
            try:
                p.wait(30)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


def that_run(part, observers):
    """Returns those of {name: context} that run here, and "nothing"; of the others it prints the reason."""
    works = {"nothing": contextlib.nullcontext}
    for name, context in observers.items():
        try:
            with context():
                works[name] = context
        except (OSError, AssertionError) as e:
            print(f"{part}: {name} does not run here: {str(e).strip() or type(e).__name__}")
    return works


def measure(name, context, run):
    """What `run` returns while the observer watches; None if it does not run here."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(context())
        except (OSError, AssertionError) as e:
            print(f"{name} does not run here: {str(e).strip() or type(e).__name__}")
            return None
        return run()


def by_turns(what, unit, works, run, once=()):
    """`run` returns {figure: value}, higher is better. Each observer in turn, RUNS rounds; the ratio is to the same round
    without any. Those of `once`, which make the program very slow, are measured in the first round only."""
    rounds = []
    for i in range(RUNS):
        rounds.append({})
        for name, context in works.items():
            if i == 0 or name not in once:
                rounds[-1][name] = measure(name, context, run)
    for figure in rounds[0]["nothing"]:
        note(f"{what}, {figure}", statistics.median(r["nothing"][figure] for r in rounds), unit)
        for name in works:
            if name != "nothing":
                ratios = [r[name][figure] / r["nothing"][figure] for r in rounds if r.get(name)]
                if ratios:
                    note(f"{what}, {figure}: {name}", statistics.median(ratios), "×",
                         f"{min(ratios):.4f} to {max(ratios):.4f}", 0.97 if name.startswith("culprit") else None)
