# SPDX-License-Identifier: Apache-2.0
"""Reads culprit's files with the tools for which the formats are meant. Needs no privilege."""

import json
import os
import re
import shutil
import subprocess
import tarfile
from xml.etree import ElementTree

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
    """culprit reads a CPU profile of the Go runtime, and gets the sums that pprof shows."""
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
	for t := time.Now(); time.Since(t) < 2*time.Second; { spin(100000) }
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


# ---- SVG ----

def browser_dom(url):
    """Returns the document after a real browser ran its scripts."""
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.skip("no chromium here")
    done = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", url],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def svg_frames(dom):
    """Returns name → (x, width, fill, shown) of each frame of an SVG document or of a browser's DOM."""
    frames = {}
    pattern = (r"<g data-s=\"\d+\" data-t=\"\d+\"([^>]*)><title>(.*?) \([^(]*\)</title>"
               r"<rect x=\"([\d.]+)\" y=\"[\d.]+\" width=\"([\d.]+)\"[^>]*fill=\"([^\"]*)\"")
    for m in re.finditer(pattern, dom):
        frames[m[2]] = (float(m[3]), float(m[4]), m[5].replace(" ", ""), "display: none" not in m[1])
    return frames


def test_svg_is_xml_and_its_widths_are_the_shares(run, folded, tmp_path):
    out = tmp_path / "x.svg"
    assert run("convert", folded, out).returncode == 0
    root = ElementTree.parse(out).getroot()
    svg = "{http://www.w3.org/2000/svg}"
    found = {}
    for g in root.find(f"{svg}g[@id='frames']"):
        m = re.fullmatch(r"(.*) \(([\d,]+) samples, ([\d.]+)%\)", g.find(f"{svg}title").text)
        found[m[1]] = int(m[2].replace(",", ""))
        width = float(g.find(f"{svg}rect").get("width"))
        assert abs(width - 1180 * found[m[1]] / 485) < 0.02
    assert found["all"] == 485 and found["handler"] == 355 and found['operator<(int&, "x")'] == 300


def test_svg_zooms_and_searches_in_a_browser(run, folded, tmp_path):
    out = tmp_path / "x.svg"
    assert run("convert", folded, out).returncode == 0
    plain = svg_frames(browser_dom(f"file://{out}"))
    assert plain["ngx_worker"][1] < 1180 and all(f[3] for f in plain.values())
    text = out.read_text()
    g = re.search(r"data-s=\"(\d+)\" data-t=\"(\d+)\"><title>handler .*?y=\"(\d+)\"", text)
    dom = browser_dom(f"file://{out}?x={g[1]}&y={g[3]}&t={g[2]}&s=NGX_&c=1")
    zoomed = svg_frames(dom)
    assert zoomed["handler"][1] == 1180 and zoomed["ngx_worker"][1] == 1180
    assert not zoomed["epoll_wait"][3] and not zoomed["gcc"][3]
    assert abs(zoomed["memcpy"][1] - 1180 * 55 / 355) < 0.02
    # ngx_copy is part of ngx_worker: 475 of 485, not 475 + 55.
    assert "Matched: 97.94%" in dom
    assert zoomed["ngx_copy"][2] == zoomed["ngx_worker"][2] == "rgb(230,0,230)"
    assert zoomed["memcpy"][2] != "rgb(230,0,230)"


# ---- speedscope and Firefox ----

SPEEDSCOPE = "speedscope@1.25.0"


@pytest.fixture(scope="session")
def speedscope_schema(tmp_path_factory):
    """Returns the schema from speedscope's npm package."""
    if not shutil.which("npm"):
        pytest.skip("no npm here")
    where = tmp_path_factory.mktemp("npm")
    done = subprocess.run(["npm", "pack", "--silent", SPEEDSCOPE], cwd=where, capture_output=True,
                          text=True, timeout=300)
    archives = list(where.glob("*.tgz"))
    if done.returncode != 0 or not archives:
        pytest.skip(f"npm cannot fetch {SPEEDSCOPE}: {done.stderr.strip()[-200:]}")
    with tarfile.open(archives[0]) as tar:
        name = next(n for n in tar.getnames() if n.endswith("file-format-schema.json"))
        return json.load(tar.extractfile(name))


@pytest.mark.parametrize("threads", [[], ["--threads"]])
def test_speedscope_files_are_valid_by_its_schema(run, folded, tmp_path, speedscope_schema, threads):
    jsonschema = pytest.importorskip("jsonschema")
    out = tmp_path / "x.speedscope.json"
    assert run("convert", *threads, folded, out).returncode == 0
    profile = json.loads(out.read_text())
    jsonschema.validate(profile, speedscope_schema)
    frames = profile["shared"]["frames"]
    for p in profile["profiles"]:
        assert len(p["samples"]) == len(p["weights"])
        assert sum(p["weights"]) == p["endValue"] - p["startValue"]
        assert all(0 <= i < len(frames) for s in p["samples"] for i in s)
    assert sum(p["endValue"] for p in profile["profiles"]) == 485
    broken = json.loads(out.read_text())
    broken["profiles"][0]["unit"] = "parsecs"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, speedscope_schema)


def check_columns(table, name):
    n = table["length"]
    for column, values in table.items():
        if isinstance(values, list):
            assert len(values) == n, f"{name}.{column}"
    return n


def check_index(values, n, none=()):
    assert all(v in none or (isinstance(v, int) and 0 <= v < n) for v in values)


def check_firefox_thread(t, libs):
    tables = {name: check_columns(t[name], name) for name in
              ("samples", "stackTable", "frameTable", "funcTable", "resourceTable", "markers",
               "nativeSymbols")}
    strings = len(t["stringArray"])
    check_index(t["samples"]["stack"], tables["stackTable"], [None])
    check_index(t["stackTable"]["frame"], tables["frameTable"])
    assert all(p is None or p < i for i, p in enumerate(t["stackTable"]["prefix"]))
    check_index(t["frameTable"]["func"], tables["funcTable"])
    check_index(t["frameTable"]["category"], 4)
    check_index(t["funcTable"]["name"], strings)
    check_index(t["funcTable"]["fileName"], strings, [None])
    check_index(t["funcTable"]["resource"], tables["resourceTable"], [-1])
    check_index(t["resourceTable"]["name"], strings)
    check_index(t["resourceTable"]["lib"], libs)
    assert t["samples"]["time"] == sorted(t["samples"]["time"])
    assert isinstance(t["pid"], str)


def firefox_stacks(profile):
    """Returns {folded stack: weight} over all threads, without the process."""
    stacks = {}
    for t in profile["threads"]:
        for at, weight in zip(t["samples"]["stack"], t["samples"]["weight"]):
            names = [t["processName"]]
            path = []
            while at is not None:
                func = t["frameTable"]["func"][t["stackTable"]["frame"][at]]
                path.append(t["stringArray"][t["funcTable"]["name"][func]])
                at = t["stackTable"]["prefix"][at]
            key = ";".join(names + path[::-1])
            stacks[key] = stacks.get(key, 0) + weight
    return stacks


def test_firefox_files_are_consistent_and_complete(run, folded, tmp_path):
    out = tmp_path / "x.firefox.json"
    assert run("convert", folded, out).returncode == 0
    profile = json.loads(out.read_text())
    assert profile["meta"]["preprocessedProfileVersion"] == 49
    for t in profile["threads"]:
        check_firefox_thread(t, len(profile["libs"]))
    want = {}
    for line in FOLDED.splitlines():
        stack, count = line.rsplit(" ", 1)
        want[re.sub(r"_\[[kij]\]", "", stack)] = int(count)
    assert firefox_stacks(profile) == want


# ---- perf script ----

@pytest.fixture(scope="session")
def perf_text(tmp_path_factory):
    """Records with perf. Returns the text of perf script, and the leaves that perf lists."""
    perf = shutil.which("perf")
    if not perf:
        pytest.skip("no perf here")
    where = tmp_path_factory.mktemp("perf")
    data = where / "perf.data"
    spin = "import time\nt=time.time()\nwhile time.time()-t<1: sum(range(2000))"
    done = subprocess.run([perf, "record", "-q", "-e", "cpu-clock", "-F", "499", "-g", "-o", data,
                           "--", "python3", "-c", spin], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        pytest.skip(f"perf record does not work here: {done.stderr.strip()[-200:]}")
    text = subprocess.run([perf, "script", "-i", data], capture_output=True, text=True, timeout=60)
    fields = subprocess.run([perf, "script", "-i", data, "-F", "comm,period"], capture_output=True,
                            text=True, timeout=60)
    path = where / "perf.txt"
    path.write_text(text.stdout)
    return path, fields.stdout


def test_perf_script_is_read_without_loss(run, perf_text):
    path, fields = perf_text
    done = run("convert", path, "-")
    assert done.returncode == 0, done.stderr
    ours = sum(int(line.rsplit(" ", 1)[1]) for line in done.stdout.splitlines())
    periods = [int(line.split()[-1]) for line in fields.splitlines() if line.strip()]
    assert ours == sum(periods) > 0
    report = run("report", "--no-tree", "-n", "1", path)
    assert report.stdout.startswith(f"{len(periods):,} samples over ")


@pytest.mark.parametrize("options", [
    ["-F", "comm,pid,tid,event,ip,sym,dso"], ["-F", "comm,tid,time,event,ip,sym,dso"], ["-F", "comm,tid,event,ip,sym"],
    ["-F", "+srcline"], ["-F", "+misc"], ["-F", "+insn"], ["-F", "-dso"], ["-F", "-time"], ["--show-mmap-events"],
    ["--show-task-events"]], ids=" ".join)
def test_perf_script_with_other_fields(run, perf_text, options):
    """Each sample is read whatever perf prints of it, and nothing else is a sample."""
    path, fields = perf_text
    text = subprocess.run([shutil.which("perf"), "script", "-i", path.parent / "perf.data", *options], capture_output=True,
                          text=True, timeout=60)
    if text.returncode or not text.stdout:
        pytest.skip(f"this perf does not print {options[-1]}")
    other = path.parent / "other.txt"
    other.write_text(text.stdout)
    done = run("report", "--no-tree", "-n", "1", other)
    samples = sum(1 for line in fields.splitlines() if line.strip())
    assert done.stdout.startswith(f"{samples:,} samples"), done.stdout + done.stderr
    assert "damaged" not in done.stderr


def test_perf_script_leaves_are_those_that_perf_counts(run, perf_text):
    """Compares the leaves in perf's text, counted by a parser of a few lines, with culprit's table."""
    path, _ = perf_text
    leaves = {}
    leaf = False
    for line in path.read_text().splitlines():
        if not line.startswith("\t"):
            leaf = bool(line.strip())
            continue
        m = re.match(r"\t\s*[0-9a-f]+ (.*?)(\+0x[0-9a-f]+)? \(", line)
        if leaf and m[1] != "[unknown]":
            leaves[m[1]] = leaves.get(m[1], 0) + 1
        leaf = False
    out = run("convert", "--type", "samples", path, "-").stdout
    ours = {}
    for line in out.splitlines():
        stack, count = line.rsplit(" ", 1)
        name = re.sub(r"_\[k\]$", "", stack.split(";")[-1])
        ours[name] = ours.get(name, 0) + int(count)
    assert leaves
    for name, count in leaves.items():
        assert ours.get(name) == count, name


# ---- report and diff ----

def test_report_says_shares_intervals_and_a_tree(run, folded):
    done = run("report", "--min", "1", folded)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("485 samples, losses not known, 3 truncated (0.6 %), 3 frames")
    assert re.search(r'^ +300 +61\.86 +57\.5\.\.66\.1 +61\.86  operator<\(int&, "x"\)$', done.stdout, re.M)
    assert re.search(r"^ +120 +24\.74 +21\.1\.\.28\.8 +24\.74  ep_poll \[k\]$", done.stdout, re.M)
    tree = done.stdout[done.stdout.index("call tree"):].splitlines()[1:]
    assert tree[0].split() == ["100.00", "all"]
    assert tree[1].split() == ["97.94", "-", "nginx"]
    # Rows below the threshold are summed up, not dropped: gcc's 3 of 485.
    assert tree[-1].split() == ["0.62", "-", "(1", "more", "below", "1", "%)"]
    narrow = run("report", "--width", "60", folded).stdout.splitlines()
    assert max(map(len, narrow[1:])) <= 80


def test_kernel_only_and_user_only_keep_the_total(run, folded):
    for option, leaf in (("--kernel-only", "nginx;do_syscall_64_[k];ep_poll_[k] 120"),
                         ("--user-only", "nginx;main;ngx_worker;epoll_wait 120")):
        out = run("convert", option, folded, "-").stdout.splitlines()
        assert leaf in out
        assert sum(int(line.rsplit(" ", 1)[1]) for line in out) == 485
    both = run("convert", "--kernel-only", "--user-only", folded, "-")
    assert both.returncode == 2 and both.stderr.count("\n") == 1


def test_diff_marks_only_what_exceeds_its_uncertainty(run, folded, tmp_path):
    after = tmp_path / "after.folded"
    after.write_text(FOLDED.replace(" 300", " 200").replace(" 120", " 125"))
    table = run("diff", folded, after)
    assert table.returncode == 0, table.stderr
    assert re.search(r'61\.86 +51\.28 +-10\.57 +\d\.\d\d\* operator<', table.stdout)
    assert re.search(r"24\.74 +32\.05 +\+7\.31 +\d\.\d\d\* ep_poll \[k\]", table.stdout)
    assert re.search(r"1\.44 +1\.79 +\+0\.35 +\d\.\d\d  LazyCompile", table.stdout)
    both = run("diff", folded, after, "-o", "-")
    assert 'nginx;main;ngx_worker;handler;operator<(int&, "x") 300 200' in both.stdout.splitlines()
    none = run("diff", folded, after, "-o", tmp_path / "x.pb.gz")
    assert none.returncode == 1 and none.stderr == \
        f"culprit: diff: cannot write {tmp_path}/x.pb.gz as pprof: pprof cannot hold a diff\n"
