# SPDX-License-Identifier: Apache-2.0
"""Tests of the live tests' own readers and comparisons. Needs no privilege."""

import pytest

from folded import Stack, parse_folded, parse_perf_script, plain
from statistics_of import binomial_interval, chi2_tail, g_test
from truth import Truth, Verdict


@pytest.mark.parametrize("name, want", [
    ("main", "main"),
    ("spin.constprop.0", "spin"),
    ("level_1001.part.0.cold", "level_1001"),
    ("cxx::thrower(int, long)", "cxx::thrower"),
    ("void cxx::apply<std::function<void ()>&>(std::function<void ()>&)", "cxx::apply"),
    ("std::function<void ()>::operator()() const", "std::function::operator"),
    ("cxx::catcher() [clone .cold]", "cxx::catcher"),
    ("rusty::leaf::h0123456789abcdef", "rusty::leaf"),
    ("<rusty::Square as rusty::Shape>::work", "<rusty::Square as rusty::Shape>::work"),
    ("main.(*square).work", "main.(*square).work"),
])
def test_plain(name, want):
    assert plain(name) == want


def test_parse_folded():
    text = "a b;_start;main;f_[i];read_[k];vfs_read_[k] 7\nx;[truncated: why];f 1\n"
    assert parse_folded(text) == [
        Stack("a b", ("_start", "main", "f"), ("read", "vfs_read"), None, 7),
        Stack("x", ("f",), (), "[truncated: why]", 1),
    ]


def test_a_user_frame_above_a_kernel_frame_is_a_fault():
    assert parse_folded("a;_start;read_[k];main 1")[0].note


def test_parse_perf_script():
    text = ("prog \n\tffffffff81000000 sys_read ([kernel.kallsyms])\n\t 1139 main+0x9 (/x/prog)\n"
            "\t 2000 [unknown] (/x/lib.so)\n\t 1050 _start (/x/prog)\n\n")
    assert parse_perf_script(text) == [
        Stack("prog", ("_start", "lib.so+0x2000", "main"), ("sys_read",), None, 1)]


@pytest.fixture
def account(tmp_path):
    (tmp_path / "prog-g.1").write_text("1 0 main\n2 1 a\n3 2 ~b\n4 3 spin\n# n 3\n")
    return tmp_path


@pytest.mark.parametrize("line, fault", [
    ("prog-g;_start;__libc_start_main;main;a;b;spin 1", None),
    ("prog-g;_start;main;a;b 1", None),
    ("prog-g;clone3;main 1", None),
    ("prog-g;do_exit_[k] 1", None),
    ("prog-g;vfs_read_[k] 1", "no user stack"),
    ("prog-g;[truncated: x];main;a;b;spin 1", "[truncated: x]"),
    ("prog-g;main;a;b;spin 1", "begins at main"),
    ("prog-g;_start;main;b;spin 1", "no such chain: main;b;spin"),
    ("prog-g;_start;main;a;spin 1", "no such chain: main;a;spin"),
    ("prog-g;_start;main;a;memcpy;b;spin 1", "a frame that is not there: memcpy"),
    ("prog-g;_start;main;a;main;a;b;spin 1", "no such chain: main;a;main;a;b;spin"),
])
def test_judgement(account, line, fault):
    truth = Truth(account, "prog-g")
    assert truth.notes["n"] == 3
    assert truth.fault(parse_folded(line)[0]) == fault


def test_judgement_without_inlined_names(account):
    truth = Truth(account, "prog-g", inlined=False)
    assert truth.fault(parse_folded("prog-g;_start;main;a;spin 1")[0]) is None
    verdict = Verdict(truth, parse_folded("prog-g;_start;main;a;spin 3\nprog-g;main 1"))
    assert (verdict.samples, verdict.right, verdict.wrong) == (4, 3, 1)
    assert "75.00 %" in str(verdict)


def test_statistics():
    low, high = binomial_interval(1000, 0.7, 0.999)
    # 0.7 ± 3.2905 · sqrt(0.21 / 1000) = 0.7 ± 0.0477; the exact bounds differ by at most two samples
    assert 0.649 < low / 1000 < 0.656 and 0.744 < high / 1000 < 0.751
    assert g_test({"a": 700, "b": 300}, {"a": 710, "b": 290}) > 0.1
    assert g_test({"a": 700, "b": 300}, {"a": 600, "b": 400}) < 1e-4
    assert g_test({"a": 700}, {"a": 600}) == 1
    # chi-square with 1 degree: the 5 % point is 3.841
    assert abs(chi2_tail(3.841, 1) - 0.05) < 1e-4
    assert abs(chi2_tail(18.307, 10) - 0.05) < 1e-4
