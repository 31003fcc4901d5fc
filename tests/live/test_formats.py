# SPDX-License-Identifier: Apache-2.0
"""What culprit writes, read by the tools it is written for. Needs no privilege."""

import os
import re
import shutil
import subprocess

import pytest

FOLDED = """\
gcc;[truncated: stack memory not readable];libfoo.so.1+0x1234 3
nginx;main;ngx_worker;epoll_wait;do_syscall_64_[k];ep_poll_[k] 120
nginx;main;ngx_worker;handler;memcpy_[i];ngx_copy 55
nginx;main;ngx_worker;handler;operator<(int&, "x") 300
node;main;LazyCompile:*go_[j] 7
"""


@pytest.fixture
def folded(tmp_path):
    path = tmp_path / "in.folded"
    path.write_text(FOLDED)
    return path


def go_pprof(*args):
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not os.access(go, os.X_OK):
        pytest.skip("no go here: `go tool pprof` cannot be asked")
    done = subprocess.run([go, "tool", "pprof", *map(str, args)], capture_output=True, text=True,
                          timeout=120, env={**os.environ, "PPROF_TMPDIR": "/tmp"})
    if "no such tool" in done.stderr:
        pytest.skip("this go comes without pprof")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_go_pprof_sees_the_same_functions_and_counts(run, folded, tmp_path):
    out = tmp_path / "x.pb.gz"
    assert run("convert", folded, out).returncode == 0
    top = go_pprof("-top", "-nodecount=100", out)
    rows = {}
    for line in top.splitlines():
        m = re.match(r"\s*(\d+)\s+[\d.]+%\s+[\d.]+%\s+(\d+)\s+[\d.]+%\s+(.*)", line)
        if m:
            rows[m[3]] = (int(m[1]), int(m[2]))
    assert rows['operator<(int&, "x")'] == (300, 300)
    assert rows["ep_poll"] == (120, 120)
    assert rows["handler"] == (0, 355)
    assert rows["memcpy (inline)"] == (0, 55)
    assert rows["[libfoo.so.1]"] == (3, 3)
    assert rows["main"] == (0, 482)
    assert sum(self for self, _ in rows.values()) == 485


def test_go_pprof_keeps_everything_through_its_own_writer(run, folded, tmp_path):
    ours, theirs = tmp_path / "ours.pb.gz", tmp_path / "theirs.pb.gz"
    assert run("convert", folded, ours).returncode == 0
    go_pprof("-proto", f"-output={theirs}", ours)
    back = run("convert", "--annotate", theirs, "-")
    assert back.returncode == 0, back.stderr
    assert back.stdout == FOLDED


def test_go_pprof_labels_tell_the_process(run, folded, tmp_path):
    out = tmp_path / "x.pb.gz"
    assert run("convert", folded, out).returncode == 0
    traces = go_pprof("-traces", out)
    assert re.search(r"comm:\s*node\n\s+7\s+LazyCompile:\*go\n\s+main\n", traces)


def test_profiles_of_go_itself_are_read(run, tmp_path):
    """A CPU profile that the Go runtime wrote: the sums must be those that pprof shows."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not os.access(go, os.X_OK):
        pytest.skip("no go here")
    (tmp_path / "spin.go").write_text("""package main
import ("os"; "runtime/pprof"; "time")
//go:noinline
func spin(n int) int { s := 0; for i := 0; i < n; i++ { s += i ^ n }; return s }
func main() {
	f, _ := os.Create(os.Args[1])
	pprof.StartCPUProfile(f)
	for t := time.Now(); time.Since(t) < 400*time.Millisecond; { spin(100000) }
	pprof.StopCPUProfile()
	f.Close()
}
""")
    profile = tmp_path / "cpu.pprof"
    env = {**os.environ, "GOFLAGS": "-mod=mod"}
    built = subprocess.run([go, "run", str(tmp_path / "spin.go"), str(profile)], env=env,
                           capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr
    text = run("convert", profile, "-")
    assert text.returncode == 0, text.stderr
    ours = sum(int(line.rsplit(" ", 1)[1]) for line in text.stdout.splitlines())
    spin = sum(int(line.rsplit(" ", 1)[1]) for line in text.stdout.splitlines()
               if "main.spin" in line)
    raw = go_pprof("-raw", profile)
    samples = raw[raw.index("samples/count"):raw.index("Locations")]
    theirs = sum(int(m[1]) for m in re.finditer(r"^\s*\d+\s+(\d+):", samples, re.M))
    assert ours == theirs > 0
    assert spin > 0.8 * ours
