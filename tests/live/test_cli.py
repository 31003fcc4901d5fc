# SPDX-License-Identifier: Apache-2.0
"""Options and messages that all commands have in common. Needs no privilege."""

import os
import pty
import shutil
import subprocess

import pytest

import truth

COMPLETION = os.path.join(truth.TOP, "packaging/completion")


def test_help_lists_commands(run):
    done = run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: culprit")
    assert done.stderr == ""


def test_wrong_command_is_one_line_that_says_what_to_do(run):
    done = run("recrod")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "culprit: unknown command 'recrod'; did you mean record?\n"


@pytest.mark.parametrize("args, says", [
    (["frobnicate"], "unknown command 'frobnicate'; see culprit --help"),
    (["help", "reprot"], "unknown command 'reprot'; did you mean report?"),
    (["report", "--calers", "x"], "report: unknown option --calers; did you mean --callers?"),
    (["report", "--frobnicate", "x"], "report: unknown option --frobnicate; see culprit report --help"),
    (["record", "-d", "5x"], "record: --duration takes seconds from 0.01 to 1e+09, such as 90, 90s or 1.5m, not '5x'"),
    (["server", "--timeout", "1.5s"],
     "server: --timeout takes whole seconds from 1 to 3600, such as 90, 90s or 1.5m, not '1.5s'"),
])
def test_mistakes_are_one_line_that_says_what_was_meant(run, args, says):
    done = run(*args)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"culprit: {says}\n")


def test_help_of_a_command(run):
    done = run("help", "report")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout == run("report", "--help").stdout
    assert "\nExamples:\n  culprit report " in done.stdout


def test_an_output_file_is_not_replaced_unless_asked(run, tmp_path):
    source, out = tmp_path / "a.folded", tmp_path / "b.folded"
    source.write_text("app;main 1\n")
    out.write_text("precious")
    for args in (["convert", source, out], ["diff", source, source, "-o", out]):
        done = run(*map(str, args))
        assert done.returncode == 1 and done.stderr.endswith(f"{out} exists: --force replaces it\n")
        assert out.read_text() == "precious"
    assert run("convert", "--force", str(source), str(out)).returncode == 0
    assert out.read_text() == "app;main 1\n"
    # An empty file holds nothing that could be lost: mktemp makes such.
    out.write_text("")
    assert run("convert", str(source), str(out)).returncode == 0


def test_a_page_is_read_again(run, tmp_path):
    source, page, out = tmp_path / "a.folded", tmp_path / "a.html", tmp_path / "b.folded"
    source.write_text("app;main;pay 3\napp;main;[unknown] 1\n")
    assert run("convert", str(source), str(page)).returncode == 0
    assert run("convert", str(page), str(out)).returncode == 0
    assert sorted(out.read_text().splitlines()) == sorted(source.read_text().splitlines())
    assert "pay" in run("report", str(page)).stdout


# ---- completion ----

def complete(culprit, *words):
    """What bash offers for the last word."""
    script = f"""source {COMPLETION}/culprit.bash
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _culprit
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script, "bash", culprit, *words], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completes_commands_options_and_files(culprit, run, tmp_path):
    commands = {line.split("\t")[0] for line in run("--list-commands").stdout.splitlines()}
    assert {"report", "convert", "diff", "server"} <= commands
    assert complete(culprit, "") == commands | {"help"}
    assert complete(culprit, "rep") == {"report"}
    assert complete(culprit, "help", "dif") == {"diff"}
    assert complete(culprit, "report", "--call") == {"--callers"}
    (tmp_path / "some.html").write_text("")
    assert complete(culprit, "report", f"{tmp_path}/so") == {f"{tmp_path}/some.html"}
    assert complete(culprit, "report", "--nosuch") == set()


def test_each_command_lists_its_options(run):
    for line in run("--list-commands").stdout.splitlines():
        command = line.split("\t")[0]
        listed = run(command, "--list-options")
        rows = [row.split("\t") for row in listed.stdout.splitlines()]
        assert listed.returncode == 0 and all(len(row) == 4 for row in rows)
        assert "--help" in {name for name, *_ in rows}


@pytest.mark.parametrize("shell, file", [("zsh", "_culprit"), ("fish", "culprit.fish")])
def test_other_shells_take_their_files(shell, file):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", f"{COMPLETION}/{file}"], check=True)


def test_version(run):
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("culprit ")


# ---- colours ----

def in_terminal(culprit, *args, **environment):
    """What the command prints to a terminal."""
    out = b""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(culprit, [culprit, *args], {**os.environ, "TERM": "xterm", **environment})
    while True:
        try:
            part = os.read(fd, 65536)
        except OSError:
            break
        if not part:
            break
        out += part
    assert os.waitpid(pid, 0)[1] == 0
    return out.decode().replace("\r\n", "\n")


def test_tables_have_colours_in_a_terminal_only(culprit, run, tmp_path):
    before, after = tmp_path / "a.folded", tmp_path / "b.folded"
    before.write_text("app;main;grows 100\napp;main;vfs_read_[k] 900\n")
    after.write_text("app;main;grows 900\napp;main;vfs_read_[k] 100\n")
    for args in (["report", str(after)], ["diff", str(before), str(after)]):
        plain, colored = run(*args).stdout, in_terminal(culprit, *args)
        assert "\033" not in plain and "\033[" in colored
        assert "\033" not in in_terminal(culprit, *args, NO_COLOR="1")
        assert "\033" not in in_terminal(culprit, *args, TERM="dumb")
    assert "\033[31m  +80.00\033[0m" in colored and "\033[32m  -80.00\033[0m" in colored
