# SPDX-License-Identifier: Apache-2.0
"""Recordings of async-profiler (tests/server/get downloads it): each type of samples against async-profiler's own converter."""

import os
import platform
import shutil
import subprocess
import zipfile

import pytest

from test_ingest import stored

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = os.path.expanduser("~/.cache/culprit-peers/async-profiler")
ARCH = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}.get(platform.machine(), "")
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
WALL = "wall:wall:nanoseconds:wall:nanoseconds"

# Version and options: {type: (options of the converter, what its numbers are multiplied by)}.
CASES = {
    ("4.1", "event=ctimer,interval=5ms"): {CPU: ("--cpu", 5e6)},
    ("4.1", "event=itimer"): {CPU: ("--cpu", 1e7)},
    ("4.1", "event=itimer,interval=5ms,wall=20ms"): {CPU: ("--cpu", 5e6), WALL: ("--wall", 2e7)},
    ("4.1", "event=wall,interval=10ms"): {WALL: ("--wall", 1e7)},
    ("4.1", "event=itimer,alloc=100k,lock=1ms"): {
        "memory:alloc_in_new_tlab_objects:count:space:bytes": ("--alloc", 1),
        "mutex:contentions:count:mutex:count": ("--lock --include Contended.hold", 1)},
    ("4.1", "event=itimer,alloc=50k,live"): {"memory:live:count:objects:count": ("--live", 1)},
    ("4.1", "nativemem=1m"): {"memory:malloc_bytes:bytes:space:bytes": ("--nativemem --total", 1)},
    ("2.9", "event=itimer,interval=5ms"): {CPU: ("--wall", 5e6)},  # its threads have other states
    ("2.9", "event=wall,interval=10ms"): {WALL: ("--wall", 1e7), CPU: ("--wall --state runnable", 1e7)},
}


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    if not all(map(shutil.which, ("java", "javac"))):
        pytest.skip("no JDK here")
    d = tmp_path_factory.mktemp("contended")
    subprocess.run(["javac", "-d", str(d), f"{HERE}/java/Contended.java"], check=True, timeout=300)
    return d


@pytest.mark.slow
@pytest.mark.parametrize("version, options", CASES, ids=lambda v: v.replace("event=", ""))
def test_recording(server, program, tmp_path, version, options):
    jar, converter = f"{PEERS}/async-profiler-{version}.jar", f"{PEERS}/jfr-converter.jar"
    if not os.path.exists(jar) or not os.path.exists(converter):
        pytest.skip("async-profiler is not here: tests/server/get")
    library = zipfile.ZipFile(jar).extract(f"{ARCH}/libasyncProfiler.so", tmp_path)
    recording = tmp_path / "r.jfr"
    p = subprocess.run(["java", f"-agentpath:{library}=start,{options},file={recording}", "-cp", str(program), "Contended",
                        "2000"], capture_output=True, text=True, timeout=300)
    if not recording.exists():
        pytest.skip(f"async-profiler does not run here: {(p.stdout + p.stderr).strip()}")
    service = f"async-{version}-{options}"
    assert server.post("/api/v1/upload", recording.read_bytes(), labels=f"service.name={service}".replace(",", ".")).status == 200
    for type_, (choice, factor) in CASES[version, options].items():
        out = tmp_path / "out.collapsed"
        subprocess.run(["java", "-jar", converter, *choice.split(), "-o", "collapsed", str(recording), str(out)], check=True,
                       capture_output=True, timeout=300)
        want = sum(int(line.rpartition(" ")[2]) for line in out.read_text().splitlines()) * factor
        got = sum(stored(server, service.replace(",", "."), type_).values())
        assert want > 0 and got * (1000 if type_ == WALL else 1) == want, (type_, choice)
