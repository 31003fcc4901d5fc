# SPDX-License-Identifier: Apache-2.0
"""Options and messages that all commands have in common. Needs no privilege."""


def test_help_lists_commands(run):
    done = run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: culprit")
    assert done.stderr == ""


def test_wrong_command_is_one_line_that_says_what_to_do(run):
    done = run("recrod")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "culprit: unknown command 'recrod'; see culprit --help\n"


def test_version(run):
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("culprit ")
