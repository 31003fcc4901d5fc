# SPDX-License-Identifier: Apache-2.0
"""--cpu-budget: the agent's rate falls before it takes more of the machine than that, and its values stay right."""

import os
import time

import pytest

from otlp import Receiver
from test_agent import Agent, Work, programs, wait_for  # noqa: F401 (a fixture)

HZ = 997


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_ns(receiver, service, begin, end):
    """By the profiles from begin to end: (ns of CPU time, rates). A sample stands for its profile's period."""
    found, rates = 0, set()
    for p in receiver.profiles():
        if p.kind[0] == "samples" and begin <= p.start_ns < end:
            rates.add(p.period[1])
            found += sum(s.count * p.period[1] for s in p.samples if s.resource.get("service.name") == service)
    return found, rates


@pytest.mark.slow
def test_the_rate_falls_and_the_values_stay_right(culprit, programs, tmp_path): # noqa: F811
    """Two minutes. A budget of a tenth of what the rate costs here. A reload without it restores the rate."""
    with Receiver() as r, Work(programs, "shop") as work, \
            Agent(culprit, tmp_path, export=r.url, frequency=HZ, period=1, comm="split-g", cpu_budget=0.1) as agent:
        agent.wait_until_it_counts()
        assert agent.metrics()["culprit_agent_rate_hertz"] == HZ
        begin, cpu = time.time_ns(), cpu_seconds(work.process.pid)
        wait_for(lambda: agent.metrics().get("culprit_agent_rate_changes_total"), "the rate has not changed", 150)
        time.sleep(10)
        end, cpu = time.time_ns(), cpu_seconds(work.process.pid) - cpu
        assert agent.metrics()["culprit_agent_rate_hertz"] < HZ
        assert agent.metrics()["culprit_agent_cpu_budget_ratio"] == pytest.approx(0.001)
        assert "configuration reloaded" in agent.reload(export=r.url, frequency=HZ, period=1, comm="split-g")
        wait_for(lambda: r.profiles()[-1].period[1] == 10 ** 9 // HZ, "the rate stays low")
        agent.end()
        assert "--cpu-budget" in agent.stderr
        found, periods = cpu_ns(r, "shop", begin, end)
        assert len(periods) > 1 and min(periods) == 10 ** 9 // HZ, periods
        # The first and the last profile may be half outside.
        assert abs(found / 1e9 - cpu) < 0.02 * cpu + 1.5, (found, cpu, periods)


def test_without_a_budget_nothing_is_said(culprit, programs, tmp_path): # noqa: F811
    with Receiver() as r, Work(programs, "shop"), Agent(culprit, tmp_path, export=r.url, comm="split-g", period=1) as agent:
        agent.wait_until_it_counts()
        assert not [k for k in agent.metrics() if "budget" in k]
        agent.end()
