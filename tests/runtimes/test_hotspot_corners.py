# SPDX-License-Identifier: Apache-2.0
"""The walker after each instruction of Java code that the VM treats specially: stubs that copy, compute and encrypt,
loops that are compiled while they run, deoptimised code, exceptions, barriers."""

import json
import os
import re
import subprocess
from collections import Counter

import pytest

from recorder import cpu_seconds_of_all_threads, wait_for_cpu
from test_hotspot import MODES, Frame, built, java, shown # some of these are fixtures

# The function that each thread calls from its run().
CORNERS = {
    "copy": "viaCopy", "bytes": "viaBytes", "clone": "viaClone", "fill": "viaFill",
    "math": "viaMath", "checksum": "viaChecksum", "digest": "viaDigest", "cipher": "viaCipher",
    "multiply": "viaMultiply", "strings": "viaStrings", "loop": "viaLoop",
    "surprise": "viaSurprise", "tree": "viaTree", "references": "viaReferences",
    "contention": "viaContention", "contention2": "viaContention", "throws": "viaThrows",
    "rethrow": "viaRethrow",
}
# Recursive functions, and their depth.
DEPTH = {"Corners.viaTree": 7, "Corners.deepThrow": 6, "Corners.rethrow": 6}


def starts_in_native(frames):
    """Tells whether the walk ended at native code: a function that the VM called, or a stub of the VM."""
    return re.search(r"<init>|<clinit>|MethodHandleNatives|loadClass", frames[0].name) or (
        len(frames) == 1 and is_stub(frames[0]))


def is_stub(frame):
    return frame.name.startswith(("[", "StubRoutines"))


def fits_corner(thread, frames):
    """Tells whether the frames are a beginning of the thread's chain, without gaps."""
    frames = [f for f in frames if f.name != "java.lang.Thread.runWith"]
    if frames and starts_in_native(frames):
        return True
    chain = [r"java\.lang\.Thread\.run", r"Corners\$1\.run", r"Corners\.loop", r"Corners\$\d+\.run"]
    for frame, known in zip(frames, chain):
        # A stub returns from a method whose frame is already gone.
        if not re.fullmatch(known, frame.name) and not is_stub(frame):
            return False
    ours = [f.name for f in frames[len(chain):] if f.name.startswith("Corners")]
    if ours and ours[0] != f"Corners.{CORNERS[thread]}" and not ours[0].endswith("<init>"):
        return False
    return all(n <= DEPTH.get(name, 1) for name, n in Counter(ours).items())


@pytest.mark.parametrize("mode", MODES)
def test_every_corner(culprit, java, mode):
    stepper = os.path.join(os.path.dirname(culprit), "../tests/tools/step_java")
    assert os.access(stepper, os.X_OK), f"{stepper} is not there: make"
    process = java.start(options=MODES[mode], main="Corners")
    try:
        # After so much CPU time the hot code is compiled.
        wait_for_cpu(process.pid, 3, used=cpu_seconds_of_all_threads)
        done = subprocess.run([stepper, str(process.pid), "12", "2500", *CORNERS],
                              capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        assert process.poll() is None, "it died of being stepped"
    finally:
        process.kill()
        process.wait()
    n, cut, wrong = 0, 0, []
    for seen in map(json.loads, done.stdout.splitlines()):
        frames = [Frame(*f) for f in seen["frames"]]
        n += seen["n"]
        if seen["stop"] != "native":
            cut += seen["n"]
        elif seen.get("missed") or not fits_corner(seen["thread"], frames):
            wrong.append((seen["n"], frames, seen["state"]))
    print(f"{java.version} {mode}: {n} instructions, {cut} truncated, "
          f"{sum(w[0] for w in wrong)} wrong")
    assert n >= 1000, done.stderr
    assert not wrong, f"{shown([w[:2] for w in wrong])}\n{wrong[0][2]}"
    assert cut <= 0.005 * n
