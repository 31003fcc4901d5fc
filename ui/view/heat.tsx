// SPDX-License-Identifier: Apache-2.0
/*
 * Time on both axes: a column is a second (or more), a row is a part of it, so that changes within a
 * second are visible. Dragging, or Shift with the arrow keys, chooses a range.
 */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { oklch } from "../draw/colour.ts";
import { heatRange, heatValue, rate } from "../model/series.ts";
import type { Heat } from "../model/series.ts";
import { duration } from "../model/text.ts";
import { clock, rangeText, ticks } from "../model/times.ts";
import type { Range } from "../model/times.ts";
import type { SampleType } from "../model/vocab.ts";
import { usePick } from "./pick.ts";

interface Props {
  heat: Heat;
  dark: boolean;
  type: SampleType;
  label: string;
  now: number;
  onSelect: (r: Range) => void;
}

const BANDS = 24;

/** From nothing to the most: lightness and hue both change, so that cells near the most still differ. */
function ramp(dark: boolean): string[] {
  return Array.from({ length: BANDS }, (_, i) => {
    const v = i / (BANDS - 1);
    return oklch(dark ? 0.3 + 0.6 * v : 0.95 - 0.6 * v, 0.05 + 0.13 * Math.sin(Math.PI * (0.15 + 0.7 * v)), dark ? 300 + 150 * v : 95 - 130 * v);
  });
}

const band = (v: number, most: number): number => Math.min(BANDS - 1, Math.floor(v / most * BANDS));

function paint(canvas: HTMLCanvasElement, h: Heat, colours: string[], over: number, picked: [number, number] | null): void {
  const ratio = devicePixelRatio || 1;
  const [w, t] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.round(w * ratio);
  canvas.height = Math.round(t * ratio);
  const c = canvas.getContext("2d")!;
  const style = getComputedStyle(canvas);
  c.scale(ratio, ratio);
  const [cw, ch] = [w / h.columns, t / h.rows];
  const cell = (i: number): void => {
    // The first part of a second is at the top.
    c.fillRect(Math.floor(i / h.rows) * cw, (i % h.rows) * ch, cw + 0.3, ch + 0.3);
  };
  for (let i = 0; i < h.values.length; i++)
    if (h.values[i]! > 0) {
      c.fillStyle = colours[band(h.values[i]!, h.most)]!;
      cell(i);
    }
  const [a, z] = picked ? [Math.min(...picked), Math.max(...picked)] : [over, over];
  if (a >= 0) {
    c.globalAlpha = 0.45;
    c.fillStyle = style.getPropertyValue("--text");
    for (let i = a; i <= z; i++)
      cell(i);
  }
}

function Axis(p: { heat: Heat; width: number; height: number }): preact.JSX.Element {
  const { heat: h, width } = p;
  const to = h.from + h.columns * h.column;
  const px = (ms: number): number => (ms - h.from) / (to - h.from) * width;
  return <svg width={width} height={p.height + 16} aria-hidden="true">
    {ticks({ from: h.from, to }, Math.max(2, Math.floor(width / 90))).map((t) => px(t.at) > 26 && px(t.at) < width - 26 &&
      <g key={t.at}><path class="base" d={`M${px(t.at)} ${p.height}v4`} /><text x={px(t.at)} y={p.height + 14}>{t.label}</text></g>)}
  </svg>;
}

export function HeatMap(p: Props): preact.JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState(0);
  const h = p.heat;
  const n = h.columns * h.rows;
  useLayoutEffect(() => {
    const o = new ResizeObserver(() => setSize((s) => s + 1));
    o.observe(canvas.current!);
    return () => o.disconnect();
  }, []);
  const { over, picked, on } = usePick({
    n, keys: { ArrowLeft: -h.rows, ArrowRight: h.rows, ArrowUp: -1, ArrowDown: 1 },
    at: (e) => {
      const r = canvas.current!.getBoundingClientRect();
      const part = (x: number, of: number, cells: number): number => Math.max(0, Math.min(cells - 1, Math.floor(x / of * cells)));
      return part(e.clientX - r.left, r.width, h.columns) * h.rows + part(e.clientY - r.top, r.height, h.rows);
    },
    onPick: (pick) => p.onSelect(heatRange(h, ...pick)),
  });
  const colours = useMemo(() => ramp(p.dark), [p.dark]);
  useEffect(() => paint(canvas.current!, h, colours, over, picked));
  const span = picked ? heatRange(h, ...picked) : over >= 0 ? heatRange(h, over, over) : null;
  const fraction = (ms: number): string => `${clock(ms)}.${String(Math.floor(ms % 1000)).padStart(3, "0")}`;
  const said = span && (span.to - span.from < 1000 ? fraction(span.from) : rangeText(span, p.now)) +
    `: ${rate(heatValue(h, ...picked ?? [over, over], p.type), span.to - span.from, p.type)}`;
  return (
    <div class="chart heat" tabIndex={0} role="application" aria-roledescription="heat map"
         aria-label={`${p.label}: each column ${h.column / 1000} s, each row ${h.row} ms. Arrow keys move, Shift and arrow keys select a range, Enter applies it.`}
         {...on}>
      <canvas ref={canvas} aria-hidden="true" />
      {size > 0 && <Axis heat={h} width={canvas.current!.clientWidth} height={canvas.current!.clientHeight} />}
      {h.rows > 1 && <span class="heat-y" aria-hidden="true"><span>0</span><span>within {duration(h.column * 1e6)}</span><span>{duration(h.column * 1e6)}</span></span>}
      {h.most > 0 && <span class="heat-scale" aria-hidden="true">0 <i style={{ background: `linear-gradient(to right, ${colours.join()})` }} /> {rate(h.most, h.row, p.type)}</span>}
      {said && <output class="left">{said}</output>}
    </div>
  );
}
