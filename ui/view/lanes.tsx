// SPDX-License-Identifier: Apache-2.0
/*
 * A lane for each thread: what it did in each moment, in the colours of abi/tbl/wait.tbl. Within a column the states are
 * stacked by their share; what is empty is not known.
 */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { laneRange, laneShares, sharesText } from "../model/lanes.ts";
import type { Lane, Lanes } from "../model/lanes.ts";
import { showable } from "../model/payload.ts";
import { count, duration } from "../model/text.ts";
import { clock, rangeText, ticks } from "../model/times.ts";
import type { Range } from "../model/times.ts";
import { WAIT_ORDER } from "../model/vocab.ts";
import { ARROWS, usePick } from "./pick.ts";
import type { Pick } from "./pick.ts";

/** What the reader has chosen: a thread, and the time if it is not null. */
export type OnLane = (lane: Lane, range: Range | null) => void;

export interface LaneProps {
  idle: boolean;
  dark: boolean;
  /** The category that is shown alone, "" for all. */
  wait: string;
  isChosen: (lane: Lane) => boolean;
  onLane: OnLane;
  find: string;
  onFind: (text: string) => void;
}

interface Props extends LaneProps {
  lanes: Lanes;
  range: Range;
  now: number;
  /** What all the lanes are of. */
  label: string;
}

function paint(canvas: HTMLCanvasElement, p: Props, lane: Lane, over: number, picked: Pick | null): void {
  const ratio = devicePixelRatio || 1;
  const [w, h] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.round(w * ratio);
  canvas.height = Math.round(h * ratio);
  const c = canvas.getContext("2d")!;
  c.scale(ratio, ratio);
  const wide = w / p.lanes.columns;
  // Whole pixels: no seams between columns.
  const edge = (k: number): number => Math.round(k * wide * ratio) / ratio;
  for (let k = 0; k < p.lanes.columns; k++) {
    let y = h;
    for (const s of laneShares(p.lanes, lane, k, k, p.idle)) {
      c.globalAlpha = p.wait === "" || p.wait === s.wait.name ? 1 : 0.18;
      c.fillStyle = p.dark ? s.wait.dark : s.wait.light;
      c.fillRect(edge(k), y - s.share * h, edge(k + 1) - edge(k), s.share * h);
      y -= s.share * h;
    }
  }
  const [a, z] = picked ? [Math.min(...picked), Math.max(...picked)] : [over, over];
  if (a >= 0) {
    c.globalAlpha = picked ? 0.35 : 0.25;
    c.fillStyle = getComputedStyle(canvas).getPropertyValue("--text");
    c.fillRect(a * wide, 0, Math.max(1, (z - a + 1) * wide), h);
  }
}

function Strip(p: Props & { lane: Lane }): preact.JSX.Element {
  const { lane, lanes } = p;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState(0);
  useLayoutEffect(() => {
    const o = new ResizeObserver(() => setSize((s) => s + 1));
    o.observe(canvas.current!);
    return () => o.disconnect();
  }, []);
  const n = lanes.columns;
  const { over, picked, on } = usePick({
    n, keys: ARROWS,
    at: (e) => {
      const r = canvas.current!.getBoundingClientRect();
      return Math.max(0, Math.min(n - 1, Math.floor((e.clientX - r.left) / r.width * n)));
    },
    onPick: ([a, z]) => p.onLane(lane, laneRange(lanes, lane, a, z, p.range)),
    onClick: () => p.onLane(lane, null),
  });
  useEffect(() => paint(canvas.current!, p, lane, over, picked), [lanes, lane, over, picked, p.idle, p.dark, p.wait, size]);
  const [a, z] = picked ?? [over, over];
  const at = lanes.from + Math.min(a, z) * lanes.column;
  const when = picked ? rangeText({ from: at, to: lanes.from + (Math.max(a, z) + 1) * lanes.column }, p.now)
    : clock(at) + (lanes.column < 1000 ? `.${String(Math.floor(at % 1000)).padStart(3, "0")}` : "");
  return <div class="chart strip-of" tabIndex={0} role="application" aria-roledescription="lane"
              aria-label={`${laneText(lane)}. Arrow keys move, Shift and arrow keys select a time, Enter shows the thread's flame graph of it.`} {...on}>
    <canvas ref={canvas} aria-hidden="true" />
    {a >= 0 && <output class={a < n / 2 ? "right" : "left"}>{when}  {sharesText(laneShares(lanes, lane, a, z, p.idle))}</output>}
  </div>;
}

/** The thread's times, for those who do not see the lane. */
function laneText(l: Lane): string {
  return `${showable(l.thread || l.service)}: ${l.states.map((s) => `${s.wait.name} ${duration(s.sum)}`).join(", ")}`;
}

function Axis(p: { lanes: Lanes }): preact.JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const o = new ResizeObserver(() => setWidth(box.current?.clientWidth ?? 0));
    o.observe(box.current!);
    return () => o.disconnect();
  }, []);
  const { from, to } = p.lanes;
  const px = (ms: number): number => (ms - from) / (to - from) * width;
  return <div class="lane axis" aria-hidden="true"><span /><div class="chart" ref={box}>
    {width > 0 && <svg width={width} height={16}><path class="base" d={`M0 .5H${width}`} />
      {ticks({ from, to }, Math.max(2, Math.floor(width / 90))).map((t) => px(t.at) > 26 && px(t.at) < width - 26 &&
        <g key={t.at}><path class="base" d={`M${px(t.at)} 0v4`} /><text x={px(t.at)} y={14}>{t.label}</text></g>)}</svg>}
  </div></div>;
}

export function LaneView(p: Props): preact.JSX.Element {
  const { lanes } = p;
  const used = WAIT_ORDER.filter((w) => (p.idle || w.id !== "IDLE") && lanes.lanes.some((l) => l.states.some((s) => s.wait === w && s.sum > 0)));
  const more = lanes.found - lanes.lanes.length;
  const services = new Set(lanes.lanes.map((l) => l.service)).size > 1;
  return <section class="state-lanes" aria-label={`Threads of ${p.label}, what they did in each moment`}>
    <div class="lanes-head">
      <input type="search" placeholder="Find a thread" aria-label="Find a thread by name or id" value={p.find} spellcheck={false}
             onInput={(e) => p.onFind(e.currentTarget.value)} />
      <ul class="wait-legend" aria-label="Colours">{used.map((w) => <li key={w.id} title={w.help}>
        <i style={{ background: p.dark ? w.dark : w.light }} />{w.name}</li>)}</ul>
    </div>
    <div class="lanes">
      {lanes.lanes.map((l) => <div class={p.isChosen(l) ? "lane chosen" : "lane"} key={`${l.service}\0${l.thread}\0${l.id}`}>
        <button class="n" aria-pressed={p.isChosen(l)} onClick={() => p.onLane(l, null)}
                title={`${showable(l.thread)}${l.id ? `, thread ${l.id} of process ${l.process}` : l.many > 1 ? `, about ${l.many} threads` : ""
                } (${showable(l.service)}): waited ${duration(l.waited)}, ran ${duration(l.ran)}${l.idle > 0 ? `, idle ${duration(l.idle)}` : ""}`}>
          {l.thread === "" ? <i>no name</i> : showable(l.thread)}
          <small>{l.many > 1 ? ` ×${count(l.many)}` : ""}{services ? ` ${showable(l.service)}` : l.id ? ` ${l.id}` : ""}</small></button>
        <Strip {...p} lane={l} /></div>)}
      {lanes.lanes.length === 0 && <p class="soft">{p.find !== "" && lanes.threads > 0
        ? `No thread of ${count(lanes.threads)} matches.` : "No thread ran or waited in this time range."}</p>}
      {more > 0 && <p class="soft">{count(more)} more. Find them by name.</p>}
    </div>
    {lanes.lanes.length > 0 && <Axis lanes={lanes} />}
  </section>;
}
