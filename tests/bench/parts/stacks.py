# SPDX-License-Identifier: Apache-2.0
"""How many stacks are right: programs that know their own stacks, and short processes."""

import os
import subprocess
import tempfile

from .common import CULPRIT, note
from folded import by_comm, parse_folded
from truth import PROGRAMS, Truth, Verdict, listed


def truth():
    """Judges all ground-truth programs of the common run, 500 ms of CPU time each, by their shadow stacks. Stacks that end
    in musl, with a mark, count as right."""
    names = [n for n in listed() if not n.endswith(("-x", "-xs"))]
    with tempfile.TemporaryDirectory() as d:
        with open(f"{d}/names", "w", encoding="ascii") as f:
            f.write("\n".join(names) + "\n")
        subprocess.run([CULPRIT, "record", "--force", "-F", "999", "-o", f"{d}/o.folded", "--", "xargs",
                        "-a", f"{d}/names", "-P", "2", "-I{}", "env", f"{PROGRAMS}/{{}}", "500"],
                       env={**os.environ, "TRUTH_OUT": d}, check=True, capture_output=True)
        stacks = by_comm(parse_folded(open(f"{d}/o.folded").read()))
        right = samples = 0
        for name in names:
            stripped = name.endswith(("-gs", "-cs", "-mss", "-rss"))
            v = Verdict(Truth(d, name, inlined=not stripped), stacks.get(name, []))
            right, samples = right + v.right, samples + v.samples
    note("ground truth: complete and right stacks", 100 * right / samples, "%",
         f"{len(names)} programs, {samples} samples", 99.9, 100)


def short():
    """Processes of 20 ms of CPU time each, of which two always run. Samples without user frames count, unless the kernel
    frames show that the process was in exec or exit."""
    with tempfile.TemporaryDirectory() as d:
        done = subprocess.run([CULPRIT, "record", "--force", "-F", "999", "-o", f"{d}/o.folded", "--",
                               f"{PROGRAMS}/starter", "5", "2", f"{PROGRAMS}/short-x"],
                              env={**os.environ, "TRUTH_OUT": d}, check=True,
                              capture_output=True, text=True)
        of = by_comm(parse_folded(open(f"{d}/o.folded").read())).get("short-x", [])
        v = Verdict(Truth(d, "short-x"), of)
    user = v.samples - v.bare
    bad = sum(n for why, n in v.faults.items()
              if why == "no user stack" or why.startswith("[truncated"))
    note("short processes: samples with a whole user stack", 100 * (user - bad) / user, "%",
         f"{done.stdout.strip()} processes, {v.samples} samples", 99, 100)
