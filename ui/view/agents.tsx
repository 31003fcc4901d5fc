// SPDX-License-Identifier: Apache-2.0
/* Hosts and their agents: what the agents cost, what they lost and counted, and what to do about it. */
import { complaints, counterText, dropText, keptBy, lostBy, SILENT_MS, sourceText } from "../model/agents.ts";
import type { Agent, Agents, Counter } from "../model/agents.ts";
import { showable } from "../model/payload.ts";
import { count, duration, percent, value } from "../model/text.ts";
import { QualityOf } from "./bar.tsx";

/** An agent's problems, all its losses, and on demand all its counters. */
function Details(p: { agent: Agent; version: string; now: number }): preact.JSX.Element | null {
  const bad = complaints(p.agent, p.version, p.now);
  const line = (c: Counter): preact.JSX.Element => <p key={c.name} class="soft">{showable(counterText(c))}</p>;
  const losses = p.agent.counters.filter((c) => c.loss !== "counted");
  const others = p.agent.counters.filter((c) => c.loss === "counted");
  if (bad.length + p.agent.counters.length + p.agent.drops.length === 0)
    return null;
  return (
    <tr class="advice"><td colSpan={11}>
      {bad.map((b) => <p key={b}>{showable(b)}</p>)}
      {p.agent.drops.map((d) => <p key={d.reason} class="soft">{showable(dropText(d))}</p>)}
      {losses.map(line)}
      {others.length > 0 && <details><summary>Counters of this agent</summary>{others.map(line)}</details>}
    </td></tr>
  );
}

/** What the server refused, stopped or deleted since it started. */
function Events(p: { events: string[] }): preact.JSX.Element | null {
  if (p.events.length === 0)
    return null;
  return <section class="server-events" aria-label="Events of the server"><h2>Events since this server started</h2>
    <ul>{p.events.map((e) => <li key={e}>{showable(e)}</li>)}</ul></section>;
}

interface Props {
  data: Agents;
  events: string[];
  now: number;
  onHost: (host: string) => void;
}

export function AgentTable(p: Props): preact.JSX.Element {
  const { agents, version } = p.data;
  if (agents.length === 0)
    return <div class="nothing"><h2>No agents yet</h2>
      <p>Run <code>culprit agent --collection-agent HOST:4317</code> on a machine, where HOST is this server. The machine appears here within ten
        seconds.</p><Events events={p.events} /></div>;
  const sum = (of: (a: Agent) => number): number => agents.reduce((n, a) => n + of(a), 0);
  const all = { samples: sum(keptBy), lost: sum(lostBy), truncated: sum((a) => a.samples > 0 ? a.truncated * keptBy(a) / a.samples : 0),
    unknown: -1, frames: -1, userStacks: -1, limited: "" };
  return (
    <section class="services-page" aria-label="Hosts and agents">
      <QualityOf quality={all} what="Samples taken by these agents since they started" />
      <div class="table-scroll">
        <table>
          <thead><tr><th class="c-name">Host</th><th>Version</th><th>Kernel</th><th>Rate</th><th class="num">CPU</th>
            <th class="num">Memory</th><th class="num">Processes</th><th class="num">Samples</th><th class="num">Truncated</th>
            <th class="num">Lost</th><th>Last seen</th></tr></thead>
          <tbody>
            {agents.map((a) => {
              const silent = p.now - a.last > SILENT_MS;
              return <>
                <tr key={a.host}>
                  <td class="c-name"><button class="pick" title="Only this host" onClick={() => p.onHost(a.host)}>{showable(a.host)}</button></td>
                  <td>{showable(a.version)}</td><td>{showable(`${a.kernel} ${a.arch}`)}</td>
                  <td>{showable(a.sources.map(sourceText).join(", "))}</td><td class="num">{percent(a.cpu)}</td><td class="num">{value(a.rss, "bytes")}</td>
                  <td class="num">{count(a.processes)}</td><td class="num">{count(a.samples)}</td>
                  <td class="num">{percent(a.samples > 0 ? a.truncated / a.samples : 0)}</td>
                  <td class="num">{count(lostBy(a))}</td>
                  <td class={silent ? "grew" : ""}>{silent ? `${duration(1e6 * (p.now - a.last))} ago` : "now"}</td>
                </tr>
                <Details key={`${a.host} `} agent={a} version={version} now={p.now} />
              </>;
            })}
          </tbody>
        </table>
      </div>
      <Events events={p.events} />
    </section>
  );
}
