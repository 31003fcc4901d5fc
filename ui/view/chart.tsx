// SPDX-License-Identifier: Apache-2.0
/* Totals by time as bars. Dragging over them, or Shift with the arrow keys, chooses a range. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { barMs, barRange, rate } from "../model/series.ts";
import type { Bars } from "../model/series.ts";
import { clock, rangeText, ticks } from "../model/times.ts";
import type { Range } from "../model/times.ts";
import type { SampleType } from "../model/vocab.ts";
import { ARROWS, usePick } from "./pick.ts";

const TOP = 4;
const AXIS = 16;

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
}

function shape(b: Bars, heights: (i: number) => number, width: number, height: number): string {
  const w = width / b.sum.length;
  const gap = w >= 4 ? 1 : 0;
  let d = "";
  for (let i = 0; i < b.sum.length; i++) {
    const h = heights(i);
    if (h > 0)
      d += `M${(i * w).toFixed(2)} ${(height - h).toFixed(2)}h${(w - gap).toFixed(2)}V${height}h${(gap - w).toFixed(2)}z`;
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
  let most = 0;
  for (let i = 0; i < n; i++)
    most = Math.max(most, b!.sum[i]! / ms(i));
  const heights = (i: number): number => {
    const v = b!.sum[i]! / ms(i) / most;
    return v > 0 ? Math.max(1, v * (tall - TOP)) : 0;
  };
  const { over: told, picked, on } = usePick({
    n, keys: ARROWS,
    at: (e) => {
      const r = box.current!.getBoundingClientRect();
      return Math.max(0, Math.min(n - 1, Math.floor((e.clientX - r.left) / r.width * n)));
    },
    onPick: (pick) => p.onSelect(barRange(b!, ...pick, p.range)),
  });

  const px = (ms: number): number => b ? (ms - b.from) / (b.to - b.from) * width! : 0;
  const span = b && picked ? barRange(b, picked[0], picked[1], p.range) : null;
  const inSpan = b && picked ? b.sum.slice(Math.min(...picked), Math.max(...picked) + 1) : new Float64Array(0);
  const total = inSpan.reduce((x, y) => x + y, 0);
  const said = span ? `${rangeText(span, p.now)}: ${rate(state ? total / inSpan.length : total, span.to - span.from, p.type)}`
    : told >= 0 ? `${clock(b!.from + told * b!.step)}  ${rate(b!.sum[told]!, ms(told), p.type)}` : "";
  const w = n > 0 ? width! / n : 0;
  const marked = span ? [px(span.from), px(span.to)] : told >= 0 ? [told * w, (told + 1) * w] : null;
  return (
    <div class="chart" ref={box} tabIndex={0} role="application" aria-roledescription="chart"
         aria-label={`${p.label}. Arrow keys move, Shift and arrow keys select a range, Enter applies it.`}
         {...on}>
      {b && width! > 0 && <svg width={width} height={height} aria-hidden="true">
        {marked && !span && <rect class="over" x={marked[0]} width={Math.max(1, marked[1]! - marked[0]!)} y={0} height={tall} />}
        {most > 0 && <path class="bars" d={shape(b, heights, width!, tall)} />}
        {marked && span && <rect class="pick" x={marked[0]} width={Math.max(1, marked[1]! - marked[0]!)} y={.5} height={tall - .5} />}
        <path class="base" d={`M0 ${tall + .5}H${width}`} />
        {axis && ticks(b, Math.max(2, Math.floor(width! / 90))).map((t) => px(t.at) > 26 && px(t.at) < width! - 26 &&
          <g key={t.at}><path class="base" d={`M${px(t.at)} ${tall}v4`} /><text x={px(t.at)} y={height! - 2}>{t.label}</text></g>)}
      </svg>}
      {(most > 0 || p.name) && <span class="most" aria-hidden="true">{p.name && <b>{p.name}{" "}</b>}
        {most > 0 ? rate(most * b!.step, b!.step, p.type) : b ? "nothing" : ""}</span>}
      {said !== "" && <output class={marked && marked[0]! < width! / 2 ? "right" : "left"}>{said}</output>}
    </div>
  );
}
