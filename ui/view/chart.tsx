// SPDX-License-Identifier: Apache-2.0
/* Totals by time as bars. Dragging over them, or Shift with the arrow keys, chooses a range. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { barMs, barRange, peak, rate } from "../model/series.ts";
import type { Bars } from "../model/series.ts";
import type { Mark } from "../model/marks.ts";
import { showable } from "../model/payload.ts";
import type { Layer } from "../model/stack.ts";
import { clock, rangeText, ticks } from "../model/times.ts";
import type { Range } from "../model/times.ts";
import type { SampleType } from "../model/vocab.ts";
import { ARROWS, usePick } from "./pick.ts";

const TOP = 4;
const AXIS = 16;
/** A mark is told so close to it. */
const NEAR_PX = 4;

interface Props {
  bars: Bars | null;
  range: Range;
  type: SampleType;
  label: string;
  now: number;
  onSelect: (r: Range) => void;
  /** The chart's name, if there are two. */
  name?: string;
  /** Whether times are shown below; of several charts only one has them. */
  axis?: boolean;
  /** The top of the scale (see peak()), if several charts have one scale; else the highest bar. */
  most?: number;
  /** Parts of the bars, from the bottom up. */
  marks?: Mark[];
  layers?: (Layer & { css: string })[];
}

function shape(b: Bars, heights: (i: number) => number, base: (i: number) => number, width: number, height: number): string {
  const w = width / b.sum.length;
  const gap = w >= 4 ? 1 : 0;
  let d = "";
  for (let i = 0; i < b.sum.length; i++) {
    const h = heights(i);
    if (h > 0)
      d += `M${(i * w).toFixed(2)} ${(height - base(i) - h).toFixed(2)}h${(w - gap).toFixed(2)}V${(height - base(i)).toFixed(2)}h${(gap - w).toFixed(2)}z`;
  }
  return d;
}

export function Chart(p: Props): preact.JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [[width, height], setSize] = useState([0, 0]);
  useLayoutEffect(() => {
    const el = box.current!;
    const o = new ResizeObserver(() => setSize([el.clientWidth, el.clientHeight]));
    o.observe(el);
    return () => o.disconnect();
  }, []);

  const b = p.bars;
  const n = b?.sum.length ?? 0;
  const axis = p.axis ?? true;
  const tall = Math.max(1, height! - (axis ? AXIS : 0));
  // A state does not grow with the length of a bar.
  const state = p.type.adds === "at_moment";
  const ms = (i: number): number => (state ? b!.step : barMs(b!, i));
  const most = p.most ?? peak(b, p.type);
  const tallOf = (v: number, i: number): number => v / ms(i) / most * (tall - TOP);
  const heights = (i: number): number => b!.sum[i]! > 0 ? Math.max(1, tallOf(b!.sum[i]!, i)) : 0;
  const none = (): number => 0;
  const below = new Float64Array(n);
  const { over: told, picked, on } = usePick({
    n, keys: ARROWS,
    at: (e) => {
      const r = box.current!.getBoundingClientRect();
      return Math.max(0, Math.min(n - 1, Math.floor((e.clientX - r.left) / r.width * n)));
    },
    onPick: (pick) => p.onSelect(barRange(b!, ...pick, p.range)),
  });

  const msOfPx = b && width! > 0 ? (b.to - b.from) / width! : 0;
  const px = (ms: number): number => b ? (ms - b.from) / (b.to - b.from) * width! : 0;
  const span = b && picked ? barRange(b, picked[0], picked[1], p.range) : null;
  const inSpan = b && picked ? b.sum.slice(Math.min(...picked), Math.max(...picked) + 1) : new Float64Array(0);
  const total = inSpan.reduce((x, y) => x + y, 0);
  const said = span ? `${rangeText(span, p.now)}: ${rate(state ? total / inSpan.length : total, span.to - span.from, p.type)}`
    : told >= 0 ? `${clock(b!.from + told * b!.step)}  ${rate(b!.sum[told]!, ms(told), p.type)}` : "";
  const marks = b ? p.marks?.filter((m) => m.at >= b.from && m.at < b.to) ?? [] : [];
  const here = span ?? (told >= 0 ? { from: b!.from + told * b!.step, to: b!.from + (told + 1) * b!.step } : null);
  const near = here ? marks.filter((m) => m.at >= here.from - NEAR_PX * msOfPx && m.at < here.to + NEAR_PX * msOfPx) : [];
  const w = n > 0 ? width! / n : 0;
  const marked = span ? [px(span.from), px(span.to)] : told >= 0 ? [told * w, (told + 1) * w] : null;
  return (
    <div class="chart" ref={box} tabIndex={0} role="application" aria-roledescription="chart"
         aria-label={`${p.label}. Arrow keys move, Shift and arrow keys select a range, Enter applies it.`}
         {...on}>
      {b && width! > 0 && <svg width={width} height={height} aria-hidden="true">
        {marked && !span && <rect class="over" x={marked[0]} width={Math.max(1, marked[1]! - marked[0]!)} y={0} height={tall} />}
        {most > 0 && (p.layers ? p.layers.map((l) => {
          const from = below.slice();
          l.bars.sum.forEach((v, i) => below[i]! += v);
          return <path key={l.name} style={{ fill: l.css }} d={shape(b, (i) => tallOf(Math.max(0, l.bars.sum[i]!), i), (i) => tallOf(from[i]!, i), width!, tall)} />;
        }) : <path class="bars" d={shape(b, heights, none, width!, tall)} />)}
        {marked && span && <rect class="pick" x={marked[0]} width={Math.max(1, marked[1]! - marked[0]!)} y={.5} height={tall - .5} />}
        {marks.map((m) => <path key={m.id + m.at + m.text} class={m.id === "" ? "mark deploy" : "mark"} d={`M${px(m.at).toFixed(1)} ${tall}V0l5 4l-5 4`} />)}
        <path class="base" d={`M0 ${tall + .5}H${width}`} />
        {axis && ticks(b, Math.max(2, Math.floor(width! / 90))).map((t) => px(t.at) > 26 && px(t.at) < width! - 26 &&
          <g key={t.at}><path class="base" d={`M${px(t.at)} ${tall}v4`} /><text x={px(t.at)} y={height! - 2}>{t.label}</text></g>)}
      </svg>}
      {(most > 0 || p.name) && <span class="most" aria-hidden="true">{p.name && <b>{p.name}{" "}</b>}
        {most > 0 ? rate(most * b!.step, b!.step, p.type) : b ? "nothing" : ""}</span>}
      {said !== "" && <output class={marked && marked[0]! < width! / 2 ? "right" : "left"}>{said}{near.slice(0, 3).map((m) => `\n${clock(m.at)} ${showable(m.text)}`)}{near.length > 3 && `\nand ${near.length - 3} more`}</output>}
    </div>
  );
}
