# SPDX-License-Identifier: Apache-2.0
"""Compares what procman knows about real processes, through tests/tools/watch_procs, with independent sources:
/proc/PID/maps, and readelf for load biases.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import threading
import time

import pytest

from test_agent import wait_for

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.dirname(os.path.dirname(os.environ.get("CULPRIT")
                                        or os.path.join(TOP, "build/cli/culprit")))
TOOLS = os.path.join(BUILD, "tests/tools")
TARGET = os.path.join(TOOLS, "proc_target")
PAGE = 4096

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="side-band events need root")


def as_it_says(pid, path):
    """Returns the path as the process itself sees it. A reader of /proc in a chroot sees paths of another mount
    namespace relative to that namespace's root; events have the process's own paths."""
    try:
        root = os.readlink(f"/proc/{pid}/root")
    except OSError: # the process has ended
        return path
    return path.removeprefix(root) if path.startswith(root + "/") else path


class Watcher:
    """Runs watch_procs. A thread reads its events, so that watch_procs never has to wait."""

    def __init__(self, *options):
        # Give it the priority of culprit's reader (pipeline.c), for busy machines.
        self.process = subprocess.Popen([os.path.join(TOOLS, "watch_procs"), *options],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        preexec_fn=lambda: os.setpriority(os.PRIO_PROCESS, 0, -20))
        self.events = []
        self.news = threading.Condition()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        self.ready = self.wait(lambda e: e["what"] == "ready")

    def read(self):
        for line in self.process.stdout:
            with self.news:
                self.events.append(json.loads(line))
                self.news.notify_all()

    def wait(self, condition, timeout=120, start=0):
        """Returns the first event, from number `start` on, that satisfies the condition."""
        end = time.monotonic() + timeout
        while True:
            with self.news:
                if len(self.events) == start:
                    self.news.wait(max(end - time.monotonic(), 0))
                n = len(self.events)
            for event in self.events[start:n]:
                if condition(event):
                    return event
            start = n
            if time.monotonic() > end:
                raise AssertionError("nothing like that was told")

    def ask(self, command, *what):
        start = len(self.events)
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()
        return self.wait(lambda e: e["what"] in what, start=start)

    def maps(self, pid):
        answer = self.ask(f"maps {pid}", "maps", "unknown")
        if answer["what"] != "maps":
            return None
        for m in answer["mappings"]:
            m["path"] = as_it_says(pid, m["path"])
        return answer

    def stats(self):
        return self.ask("stats", "stats")

    def cost_us(self):
        cost = self.ask("cost", "cost")
        return cost["user_us"] + cost["system_us"]

    def told_of(self, pid):
        return [e for e in self.events if e["what"] == "changed" and e["pid"] == pid]

    def close(self):
        self.process.stdin.close()
        self.reader.join(20)
        self.process.stdout.close()
        assert self.process.wait(20) == 0


@pytest.fixture
def watch():
    watchers = []

    def start(*options):
        watchers.append(Watcher(*options))
        return watchers[-1]

    yield start
    for w in watchers:
        w.close()


@pytest.fixture
def spawn():
    """Starts programs, and ends them after the test in any case."""
    children = []

    def start(*argv, **options):
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **options}
        child = subprocess.Popen(list(map(str, argv)), text=True, **options)
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.wait()
        for pipe in child.stdin, child.stdout:
            if pipe:
                pipe.close()


def target(spawn, *args):
    child = spawn(TARGET, *args)
    assert child.stdout.readline() == "ready\n"
    return child


def more(child):
    """Asks a target for more mappings; returns its answer."""
    child.stdin.write("\n")
    child.stdin.flush()
    return child.stdout.readline().strip()


# Not code of the process: [uprobes] appears, without a side-band event, when a process is probed for the first time.
NOT_ITS_CODE = "[vsyscall]", "[uprobes]"


def exec_lines(pid):
    """Returns (start, end, offset, path) of the executable mappings in /proc, with neighbours merged."""
    found = []
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as f:
        for line in f:
            m = re.match(r"(\w+)-(\w+) ..x. (\w+) (\S+) (\d+) *(.*)\n", line)
            if not m or m.group(6) in NOT_ITS_CODE:
                continue
            start, end, offset = (int(m.group(i), 16) for i in (1, 2, 3))
            path = as_it_says(pid, m.group(6).removesuffix(" (deleted)"))
            last = found[-1] if found else None
            if last and last[1] == start and last[3] == path and (
                    not path or last[2] + start - last[0] == offset):
                found[-1] = (last[0], end, last[2], path)
            else:
                found.append((start, end, offset, path))
    return found


def known_lines(maps):
    """Returns the same from an answer of watch_procs."""
    return [(m["start"], m["end"], 0 if m["kind"] == "anon" else m["foff"],
             "" if m["kind"] == "anon" else m["path"]) for m in maps["mappings"] if m["path"] not in NOT_ITS_CODE]


def readelf_bias(pid, m):
    """Returns the mapping's start minus the address that readelf reports for its file offset."""
    name = f"/proc/{pid}/map_files/{m['start']:x}-{m['end']:x}"
    text = subprocess.run(["readelf", "-lW", name], capture_output=True, text=True).stdout
    for line in text.splitlines():
        f = line.split()
        if len(f) > 6 and f[0] == "LOAD" and "E" in line[line.index(f[5]) + len(f[5]):]:
            offset, vaddr, size = int(f[1], 16), int(f[2], 16), int(f[4], 16)
            if offset // PAGE * PAGE <= m["foff"] < offset + size:
                return m["start"] - (vaddr + m["foff"] - offset)
    raise AssertionError(f"readelf finds no segment: {m}")


def seen_alike(w, pid):
    """Returns what watch_procs and what /proc say about a process at one moment."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
        fields = f.read().rpartition(")")[2].split()
    if fields[0] == "Z":
        raise ProcessLookupError(pid)
    maps = w.maps(pid)
    assert maps and maps["alive"]
    return maps, ([maps["start_ticks"], maps["start_stack"], *known_lines(maps)],
                  [int(fields[19]), int(fields[25]), *exec_lines(pid)])


def check(w, pid, seconds=20):
    """Waits until everything that procman knows about a process agrees with /proc and readelf. The process may still
    be loading, procman repeats its look at an exec for 0.3 s, and it reports expensive changes a little later
    (exec_looks_ns and must_wait() in procman). Returns the answer."""
    end = time.monotonic() + seconds
    while True:
        maps, (known, said) = seen_alike(w, pid)
        if known == said:
            break
        assert time.monotonic() < end, (known, said)
        time.sleep(0.02)
    for m in maps["mappings"]:
        if m["kind"] == "file" and m["elf"]:
            assert m["bias"] == readelf_bias(pid, m), m
    return maps


def wait_for_comm(pid, comm):
    """Waits until the process runs the program `comm`."""
    def is_it():
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as f:
            return f.read() == comm + "\n"
    wait_for(is_it, f"{pid} is not {comm}")


def test_every_process_that_was_there(watch, spawn):
    child = target(spawn, "zero")
    w = watch()
    checked = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            lines = exec_lines(pid)
            if lines and lines == exec_lines(pid):
                check(w, int(pid))
                checked += 1
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        except AssertionError:
            # The process ended, or executed another program, during the check.
            try:
                if exec_lines(pid) != lines:
                    continue
            except OSError:
                continue
            raise
    print(f"{checked} processes agree with /proc; scan took {w.ready['scan_ms']:.1f} ms")
    assert checked >= 2
    zero = [m for m in w.maps(child.pid)["mappings"] if m["path"] == "/dev/zero"]
    assert [(m["elf"], m["error"]) for m in zero] == [(False, "ENXIO")]


def test_kernel_threads(watch):
    w = watch()
    assert w.ask("find 2", "found")["kthread"]
    assert w.ask(f"find {os.getpid()}", "found")["kthread"] is False
    assert w.ask("find 2147483000", "found", "unknown")["what"] == "unknown"


def test_exec_fork_dlopen(watch, spawn):
    w = watch()
    # A library of libc6 to which no program links.
    library, = glob.glob("/usr/lib/*-linux-gnu/libnss_compat.so.2")
    child = target(spawn, "dlopen", library)
    before = check(w, child.pid)
    assert before["comm"] == "proc_target"
    assert not any(m["path"] == library for m in before["mappings"])
    assert more(child) == "opened"
    after = check(w, child.pid)
    assert any(m["path"] == library and m["elf"] for m in after["mappings"])
    assert after["generation"] > before["generation"]


def test_a_forked_child_shares_until_it_changes(watch, spawn):
    w = watch()
    parent = target(spawn, "zero")
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    try:
        # The child shares this process's mappings.
        ours, its = w.maps(os.getpid()), w.maps(child)
        assert its["mappings_id"] == ours["mappings_id"] and its["ppid"] == os.getpid()
        assert its["n"] == ours["n"] > 0
        assert known_lines(its) == exec_lines(child)
        assert w.maps(parent.pid)["mappings_id"] != its["mappings_id"]
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert w.wait(lambda e: e["what"] == "changed" and e["pid"] == child and not e["alive"])


def test_private_code_of_a_forked_child_is_its_own(watch, spawn):
    """Two JITs with a common parent may have different functions at the same address."""
    w = watch()
    parent = target(spawn, "jit")
    child = int(more(parent))

    def told():
        """Returns the code of both processes once watch_procs knows all of it, else None."""
        maps = [w.maps(pid) for pid in (parent.pid, child)]
        if [known_lines(m) for m in maps] != [exec_lines(pid) for pid in (parent.pid, child)]:
            return None
        code = [[m for m in one["mappings"] if m["kind"] == "anon"] for one in maps]
        return code if [c[0]["code_of"] for c in code] != [code[0][0]["code_of"]] * 2 else None
    code = wait_for(told, "the child's code is its parent's")
    assert len(code[0]) == len(code[1]) == 1
    assert code[0][0]["start"] == code[1][0]["start"] == code[0][0]["start"]
    assert code[0][0]["jit"] and code[0][0]["bias"] == 0
    assert [c[0]["code_of"] for c in code] == [parent.pid, child]
    assert [c[0]["file_id"] for c in code] == [0, 0]
    assert known_lines(w.maps(child)) == exec_lines(child)


def short_processes(w, pids):
    """Returns the share of the processes for which every mapped file was opened."""
    wait_for(lambda: w.stats() and all(any(not e["alive"] for e in w.told_of(pid)) for pid in pids),
             "not all are told of to their end")
    good = 0
    for pid in pids:
        told = [e for e in w.told_of(pid) if e["comm"] != "proc_target" or e["n"]]
        good += any(e["n"] >= 3 and e["opened"] == e["n"] for e in told)
    return good / len(pids)


def test_short_processes_as_fast_as_the_machine_can(watch, spawn):
    w = watch()
    n, begin = 150, time.monotonic()
    storm = spawn(TARGET, "storm", n, 20, TARGET)
    pids = [int(line) for line in storm.stdout]
    took = time.monotonic() - begin
    assert storm.wait() == 0 and len(pids) == n
    share = short_processes(w, pids)
    print(f"{n} processes of 20 ms in {took:.1f} s: {100 * share:.1f} % known with every file open; "
          f"own CPU {w.cost_us() / 1e3:.0f} ms, {w.stats()['events_lost']} events lost")
    assert share >= 0.99


def test_short_processes_of_files_that_are_gone_at_once(watch, spawn, tmp_path):
    w = watch()
    n = 50
    copies = spawn(TARGET, "copies", n, 20, tmp_path)
    pids = [int(line) for line in copies.stdout]
    assert copies.wait() == 0 and len(pids) == n
    share = short_processes(w, pids)
    print(f"{n} processes of 20 ms, each of a file of its own: {100 * share:.1f} % with every file open")
    assert share >= 0.99


def files_of(maps, path):
    return [m for m in maps["mappings"] if m["path"] == str(path)]


def test_replaced_rewritten_and_deleted_files(watch, spawn, tmp_path):
    w = watch()
    program = tmp_path / "program"
    shutil.copy("/bin/sleep", program)
    first = spawn(program, 1000)
    one, = files_of(check(w, first.pid), program)
    # Another file with the same content at the same path.
    os.rename(program, tmp_path / "old")
    shutil.copy("/bin/sleep", program)
    second = spawn(program, 1000)
    two, = files_of(check(w, second.pid), program)
    assert one["elf"] and two["elf"] and one["build_id"] == two["build_id"]
    assert one["file_id"] != two["file_id"]
    # A second process maps the same file.
    third = spawn(program, 1000)
    assert files_of(check(w, third.pid), program)[0]["file_id"] == two["file_id"]
    # Rewrite the file in place, which the kernel allows while no process runs it.
    for child in second, third:
        child.kill()
        child.wait()
    with open("/bin/cat", "rb") as new, open(program, "wb") as f:
        f.write(new.read())
    fourth = spawn(program)
    four, = files_of(check(w, fourth.pid), program)
    assert four["file_id"] != two["file_id"] and four["build_id"] != two["build_id"]
    # Delete the file before another watcher starts.
    os.unlink(program)
    late = watch()
    mine = check(late, fourth.pid)
    gone, = files_of(mine, program)
    assert gone["elf"] and gone["deleted"] and gone["build_id"] == four["build_id"]


def test_a_hostile_file_with_the_build_id_of_another_is_not_the_other(watch, spawn, tmp_path):
    w = watch()
    fake = tmp_path / "fake"
    shutil.copy(TARGET, fake)
    with open(fake, "ab") as f:
        f.write(b"not the same file")
    ours, other = spawn(TARGET, "zero"), spawn(fake, "zero")
    a, = files_of(check(w, ours.pid), TARGET)
    b, = files_of(check(w, other.pid), fake)
    assert a["build_id"] == b["build_id"] and a["file_id"] != b["file_id"]


def test_memory_file(watch, spawn):
    w = watch()
    child = spawn(TARGET, "memfd", "/bin/sleep")
    wait_for(lambda: os.readlink(f"/proc/{child.pid}/exe").startswith("/memfd:"), "it is no memory file")
    code, = [m for m in check(w, child.pid)["mappings"] if m["kind"] == "memfd"]
    assert code["elf"] and not code["jit"] and code["path"] == "/memfd:payload"


def test_pids_used_again(watch, spawn):
    """Each process with a reused pid is reported and removed on its own."""
    w = watch("--linger-ms", "3000") # longer than it takes to use the pid again
    n = 6
    free = spawn("/bin/true")
    free.wait()
    reuse = spawn(TARGET, "reuse", free.pid, n)
    assert reuse.wait() == 0
    w.stats()
    told = {}
    for e in w.told_of(free.pid):
        if e["comm"] == "proc_target" and e["image_ns"] == e["start_ns"]:
            told[e["start_ns"]] = e
    assert len(told) == n
    lives = [told[t] for t in sorted(told)]
    assert all(not e["alive"] for e in lives)
    for a, b in zip(lives, lives[1:]):
        assert a["start_ns"] < a["exit_ns"] <= b["start_ns"]
    # Every second process maps code of its own, which its successor must not have.
    assert [e["n"] for e in lives] == [lives[0]["n"] + i % 2 for i in range(n)]
    w.wait(lambda e: e["what"] == "gone" and e["start_ns"] == lives[-1]["start_ns"])
    gone = {e["start_ns"]: e for e in w.events if e["what"] == "gone" and e["pid"] == free.pid}
    assert set(told) <= set(gone)
    assert len(gone) == sum(e["what"] == "gone" and e["pid"] == free.pid for e in w.events)
    # Only the last process still had the pid when procman removed it.
    assert [gone[t]["latest"] for t in sorted(told)] == [False] * (n - 1) + [True]


def test_a_leader_that_exits_before_its_threads(watch, spawn):
    w = watch("--linger-ms", "400")
    child = target(spawn, "leader")
    for _ in range(2):
        start = int(more(child))
        wait_for(lambda at=start: (maps := w.maps(child.pid)) and maps["alive"] and
                 any(m["start"] <= at < m["end"] for m in maps["mappings"]), "its code is not known")
        time.sleep(1)
        assert not any(e["what"] == "gone" and e["pid"] == child.pid for e in w.events)
    child.stdin.close()
    child.wait()
    w.wait(lambda e: e["what"] == "gone" and e["pid"] == child.pid)


def test_exec_by_a_thread_that_is_not_the_leader(watch, spawn):
    w = watch("--linger-ms", "300")
    child = target(spawn, "threadexec", "/bin/sleep")
    child.stdin.write("\n")
    child.stdin.flush()
    w.wait(lambda e: e["what"] == "changed" and e["pid"] == child.pid and e["comm"] == "sleep"
           and e["n"] >= 3)
    time.sleep(0.6)
    assert check(w, child.pid)["comm"] == "sleep"
    assert not any(e["what"] == "gone" and e["pid"] == child.pid for e in w.events)


def test_lost_events_lose_nothing(watch, spawn):
    """A ring of one page overflows at once; procman still knows the processes that survive the storm."""
    w = watch("--ring-bytes", "4096", "--quiet")
    os.kill(w.process.pid, 19)  # SIGSTOP, so that the ring is not read
    children = [spawn("/bin/sleep", 1000) for _ in range(40)]
    mapper = target(spawn, "many", 500)
    os.kill(w.process.pid, 18)
    stats = wait_for(lambda: (s := w.stats())["rescans"] > 0 and s, "it does not look again")
    assert stats["events_lost"] > 0
    for child in children + [mapper]:
        check(w, child.pid)
    gone = children.pop()
    gone.kill()
    gone.wait()
    # The event of this exit may be lost, too; then the next rescan finds it.
    wait_for(lambda: not w.maps(gone.pid)["alive"], "it is still there")
    print(f"{stats['events_lost']} events lost, {stats['rescans']} rescans")


def test_lost_events_do_not_keep_the_reader(watch, spawn):
    """procman reads all processes again, 2 ms with each drain, so that samples do not wait for the whole rescan."""
    crowd = subprocess.Popen(["sh", "-c", "for i in $(seq 1000); do sleep 1000 & done; echo ready; wait"],
                             stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert crowd.stdout.readline() == b"ready\n"
        w = watch("--ring-bytes", "4096", "--quiet")
        before = w.stats()
        os.kill(w.process.pid, 19)
        subprocess.run(["sh", "-c", "for i in $(seq 200); do /bin/true; done"], check=True)
        last = spawn("/bin/sleep", 1000)
        os.kill(w.process.pid, 18)
        slowest, cost = [], w.cost_us()

        def read_again():
            now = w.stats()
            slowest.append(now["slowest_drain_us"])
            return now["rescanned"] - before["rescanned"] > 1000
        wait_for(read_again, "they are not read again")
        cost = w.cost_us() - cost
        check(w, last.pid)
        print(f"{cost / 1e3:.0f} ms in all, at most {max(slowest) / 1e3:.1f} ms at a time")
        assert max(slowest) < 10000 and max(slowest) < cost / 3
    finally:
        os.killpg(crowd.pid, 9)
        crowd.wait()


@pytest.fixture
def many_mappings_allowed():
    name = "/proc/sys/vm/max_map_count"
    with open(name, encoding="ascii") as f:
        before = f.read()
    try:
        with open(name, "w", encoding="ascii") as f:
            f.write("1000000")
    except OSError as e:
        pytest.skip(f"{name}: {e}")
    yield
    with open(name, "w", encoding="ascii") as f:
        f.write(before)


def test_100_000_mappings(watch, spawn, many_mappings_allowed):
    n, extra = 100_000, 300
    w = watch("--quiet")
    begin = w.cost_us()
    child = target(spawn, "many", n)
    lines = exec_lines(child.pid)
    assert len(lines) > n

    def known():
        return w.ask(f"find {child.pid}", "found")["n"]
    wait_for(lambda: known() >= len(lines), "they are not known", 300)
    first = w.cost_us() - begin
    assert known_lines(w.maps(child.pid)) == lines
    begin, events = w.cost_us(), w.stats()["events"]
    for _ in range(extra):
        child.stdin.write("\n")
        child.stdin.flush()
        time.sleep(0.002)
    wait_for(lambda: len(exec_lines(child.pid)) == len(lines) + extra, "it does not map them")
    wait_for(lambda: known() >= len(lines) + extra, "they are not known")
    each = (w.cost_us() - begin) / max(w.stats()["events"] - events, 1)
    maps = w.maps(child.pid)
    assert known_lines(maps) == exec_lines(child.pid)
    assert maps["n"] >= n + extra
    late = watch("--quiet")
    assert late.maps(child.pid)["n"] == maps["n"]
    print(f"{n} mappings as they come: {first / 1e3:.0f} ms of CPU; then {each:.0f} µs an event; "
          f"a start-up scan with them: {late.ready['scan_ms']:.0f} ms")


def test_1000_processes_at_start_up(watch, spawn):
    for _ in range(1000):
        spawn("/bin/sleep", 1000, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    w = watch("--quiet")
    with open(f"/proc/{w.process.pid}/status", encoding="ascii") as f:
        rss = int(re.search(r"VmHWM:\s*(\d+)", f.read()).group(1))
    assert w.ready["processes"] >= 1000
    print(f"{w.ready['processes']} processes, {w.ready['binaries']} binaries, "
          f"{w.ready['mappings']} mappings: scan {w.ready['scan_ms']:.0f} ms, RSS {rss} KB")


def with_own_mounts(script, folder):
    """Returns a command that runs the script, with $0 the folder, in a mount namespace of its own, so that mounts below
    the folder stay private. It works in a chroot, too, where unshare cannot make / private, because / is not a
    mount point."""
    mount = folder
    while not os.path.ismount(mount):
        mount = mount.parent
    return ("unshare", "-m", "--propagation", "unchanged", "sh", "-c",
            f"mount --make-rprivate {mount} || exit 1; {script}", folder)


def test_files_of_another_mount_namespace(watch, spawn, tmp_path):
    w = watch()
    script = "mount -t tmpfs none $0 && cp /bin/sleep $0/hidden && exec $0/hidden 1000"
    child = spawn(*with_own_mounts(script, tmp_path))
    w.wait(lambda e: e["what"] == "changed" and e["pid"] == child.pid and e["comm"] == "hidden"
           and e["n"] >= 3)
    assert not (tmp_path / "hidden").exists()
    seen, = files_of(check(w, child.pid), tmp_path / "hidden")
    assert seen["elf"] and seen["build_id"]
    late, = files_of(watch().maps(child.pid), tmp_path / "hidden")
    assert late["elf"] and late["build_id"] == seen["build_id"]


def test_files_of_an_overlay(watch, spawn, tmp_path):
    """maps and stat report different devices on overlayfs; an event and a scan must yield the same file."""
    for name in "lower", "upper", "work", "merged", "base":
        (tmp_path / name).mkdir()
    script = ("mount -t tmpfs none $0/base && mkdir $0/base/u $0/base/w && cp /bin/sleep $0/lower/prog && "
              "mount -t overlay none -o lowerdir=$0/lower,upperdir=$0/base/u,workdir=$0/base/w $0/merged || "
              "exit 77; $0/merged/prog 1000 & echo $!; echo ready; exec $0/merged/prog 1000")
    first = spawn(*with_own_mounts(script, tmp_path))
    line = first.stdout.readline()
    if not line and first.wait() == 77:
        with open("/proc/filesystems", encoding="ascii") as f:
            assert "\toverlay\n" not in f.read(), "an overlay could not be mounted"
        pytest.skip("the kernel has no overlayfs")
    sibling = int(line)
    try:
        assert first.stdout.readline() == "ready\n"
        for pid in first.pid, sibling:
            wait_for_comm(pid, "prog")
        w = watch()
        path = tmp_path / "merged/prog"
        scanned, = files_of(w.maps(first.pid), path)
        again, = files_of(w.maps(sibling), path)
        assert scanned["elf"] and scanned["file_id"] == again["file_id"]
        entered = spawn("nsenter", "-t", first.pid, "-m", "-r", path, 1000)
        w.wait(lambda e: e["what"] == "changed" and e["pid"] == entered.pid and e["comm"] == "prog"
               and e["n"] >= 3)
        told, = files_of(check(w, entered.pid), path)
        assert told["file_id"] == scanned["file_id"]
    finally:
        os.kill(sibling, 9)


def test_refresh_finds_what_the_kernel_does_not_tell(watch, spawn):
    """mremap() moves code without an event."""
    code = ("import ctypes, mmap, sys\n"
            "libc = ctypes.CDLL(None); libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p\n"
            "size = ctypes.c_size_t(4096)\n"
            "p = libc.mmap(None, size, 5, 0x22, -1, ctypes.c_long(0))\n"
            "to = libc.mmap(None, size, 0, 0x22, -1, ctypes.c_long(0))\n"
            "print(p, to, flush=True); sys.stdin.readline()\n"
            "libc.mremap(ctypes.c_void_p(p), size, size, 3, ctypes.c_void_p(to))\n"
            "print('moved', flush=True); sys.stdin.readline()\n")
    w = watch()
    child = spawn("/usr/bin/python3", "-c", code)
    before, after = map(int, child.stdout.readline().split())
    # Python has just mapped its libraries, then the code; events may arrive a little later.
    n = len(exec_lines(child.pid))
    w.wait(lambda e: e["what"] == "changed" and e["pid"] == child.pid and e["n"] == n)
    check(w, child.pid)
    assert more(child) == "moved"
    starts = {m["start"] for m in w.maps(child.pid)["mappings"]}
    assert before in starts and after not in starts
    # Of two refreshes at once, procman does only the first.
    w.ask(f"refresh {child.pid}\nrefresh {child.pid}", "refreshed")
    maps = w.maps(child.pid)
    assert known_lines(maps) == exec_lines(child.pid)
    assert [e["result"] for e in w.events if e["what"] == "refreshed"] == [1, 0]
    assert w.stats()["refreshes"] == 1


def test_nothing_is_kept_for_good(watch, spawn):
    """After the linger time procman has forgotten all processes of a storm, and their binaries."""
    w = watch("--linger-ms", "200")
    before = w.stats()
    storm = spawn(TARGET, "storm", 100, 1, TARGET)
    pids = [int(line) for line in storm.stdout]
    assert storm.wait() == 0
    for pid in [*pids, storm.pid]:
        w.wait(lambda e, of=pid: e["what"] == "gone" and e["pid"] == of)
    w.wait(lambda e: e["what"] == "binary_gone" and e["path"] == TARGET)
    assert w.stats()["forks"] >= before["forks"] + 100
