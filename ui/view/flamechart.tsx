// SPDX-License-Identifier: Apache-2.0
/* A chronological flame chart of a request: for each thread what it ran, from left to right in the order of time. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { oklch } from "../draw/colour.ts";
import { threadBoxes } from "../model/flamechart.ts";
import type { ChartBox, ChartThread, TraceSamples } from "../model/flamechart.ts";
import { showable } from "../model/payload.ts";
import { count, duration } from "../model/text.ts";
import type { Range } from "../model/times.ts";

const ROW = 17;
const MIN_TEXT = 24;
const ms = (v: number): string => duration(1e6 * v);

function hue(name: string): number {
  let h = 0;
  for (let i = 0; i < name.length; i++)
    h = Math.imul(h, 31) + name.charCodeAt(i) | 0;
  return (h >>> 0) % 360;
}

interface LaneProps {
  samples: TraceSamples;
  thread: ChartThread;
  range: Range;
  /** When the request began. */
  origin: number;
  dark: boolean;
  onRange: (r: Range | null) => void;
  onSource: (file: string, line: number) => void;
}

function draw(canvas: HTMLCanvasElement, p: LaneProps, boxes: ChartBox[], chosen: number): void {
  const ratio = devicePixelRatio || 1;
  const [w, h] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.round(w * ratio);
  canvas.height = Math.round(h * ratio);
  const c = canvas.getContext("2d")!;
  const text = getComputedStyle(canvas).getPropertyValue("--text");
  c.scale(ratio, ratio);
  c.font = "12px system-ui, sans-serif";
  c.textBaseline = "middle";
  const px = (t: number): number => (t - p.range.from) / (p.range.to - p.range.from) * w;
  boxes.forEach((b, i) => {
    const [x0, x1] = [Math.max(0, px(b.from)), Math.min(w, px(b.to))];
    if (x1 <= 0 || x0 >= w || x1 < x0)
      return;
    const name = p.samples.frames[b.frame]!.name;
    const y = b.depth * ROW;
    c.fillStyle = i === chosen ? text : oklch(p.dark ? 0.45 : 0.86, 0.08, hue(name));
    c.fillRect(x0, y, Math.max(0.5, x1 - x0 - 0.5), ROW - 1);
    if (x1 - x0 < MIN_TEXT)
      return;
    c.save();
    c.beginPath();
    c.rect(x0, y, x1 - x0 - 3, ROW);
    c.clip();
    c.fillStyle = i === chosen ? getComputedStyle(canvas).getPropertyValue("--panel") : text;
    c.fillText(showable(name), x0 + 3, y + ROW / 2);
    c.restore();
  });
}

function Lane(p: LaneProps): preact.JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [chosen, choose] = useState(-1);
  const [, resized] = useState(0);
  const t = useMemo(() => threadBoxes(p.samples, p.thread), [p.samples, p.thread]);
  useLayoutEffect(() => {
    const o = new ResizeObserver(() => resized((n) => n + 1));
    o.observe(canvas.current!);
    return () => o.disconnect();
  }, []);
  useEffect(() => draw(canvas.current!, p, t.boxes, chosen));
  const at = (e: PointerEvent | MouseEvent): number => {
    const r = canvas.current!.getBoundingClientRect();
    const time = p.range.from + (e.clientX - r.left) / r.width * (p.range.to - p.range.from);
    const depth = Math.floor((e.clientY - r.top) / ROW);
    return t.boxes.findIndex((b) => b.depth === depth && b.from <= time && time < b.to);
  };
  const box = t.boxes[chosen];
  const frame = box && p.samples.frames[box.frame]!;
  const to = (i: number): void => i >= 0 ? choose(i) : undefined;
  const onKey = (e: KeyboardEvent): void => {
    const depth = box?.depth ?? 0;
    const next: Record<string, () => void> = {
      ArrowRight: () => to(t.boxes.findIndex((b, i) => i > chosen && b.depth === depth)),
      ArrowLeft: () => to(t.boxes.findLastIndex((b, i) => i < chosen && b.depth === depth)),
      ArrowDown: () => to(t.boxes.findIndex((b, i) => i > chosen && b.depth === depth + 1 && (!box || b.from < box.to))),
      ArrowUp: () => to(t.boxes.findLastIndex((b, i) => i < chosen && b.depth === depth - 1)),
      Enter: () => box && p.onRange(box),
      Escape: () => p.onRange(null),
    };
    if (!next[e.key])
      return;
    e.preventDefault();
    next[e.key]!();
  };
  const n = p.thread.samples.reduce((sum, m) => sum + m.n, 0);
  const name = showable(p.thread.name) || "no name";
  return <section class="flame-lane" aria-label={`Thread ${name}`}>
    <h3>{showable(p.thread.service)} · {name} <small class="soft">{count(n)} {n === 1 ? "sample" : "samples"}, {ms(t.sampled)}
      {t.unknown > 0 && `; ${ms(t.unknown)} between samples not known`}
      {t.overlap > 1 && `; samples overlap by ${ms(t.overlap)}: their order within that time is not known`}</small></h3>
    <canvas ref={canvas} style={{ height: Math.max(1, t.levels) * ROW }} tabIndex={0} role="application" aria-roledescription="flame chart"
            aria-label={`What thread ${name} ran in the order of time. Arrow keys move, Enter zooms, Escape shows the whole request.`}
            onPointerMove={(e) => e.pointerType === "mouse" && choose(at(e))} onClick={(e) => {
              const i = at(e);
              choose(i);
              if (i >= 0 && i === chosen)
                p.onRange(t.boxes[i]!);
            }} onKeyDown={onKey} />
    <p class="flame-said" role="status">{box && frame ? <><b>{showable(frame.name)}</b> {ms(box.to - box.from)} from +{ms(Math.max(0, box.from - p.origin))}, {count(box.n)} {box.n === 1 ? "sample" : "samples"}
      {frame.file !== "" && <> <button class="pick" onClick={() => p.onSource(frame.file, frame.line)}>{showable(frame.file)}{frame.line > 0 && `:${frame.line}`}</button></>}</> : " "}</p>
  </section>;
}

interface Props {
  samples: TraceSamples | null;
  range: Range;
  dark: boolean;
  onSource: (file: string, line: number) => void;
}

export function FlameChart(p: Props): preact.JSX.Element {
  const [zoom, setZoom] = useState<Range | null>(null);
  useEffect(() => setZoom(null), [p.range.from, p.range.to]);
  const { samples } = p;
  const range = zoom ?? p.range;
  if (!samples)
    return <p class="soft none">The values of this type are no times, so there is no order of time to show: choose CPU time or waiting.</p>;
  if (samples.threads.length === 0)
    return <p class="soft none">No samples of this type belong to this request.</p>;
  return <div class="flame-chart">
    <p class="soft">{ms(range.to - range.from)} from left to right, a sample at the end of the time that it stands for; what is empty is not known.
      {samples.leftOut > 0 && ` The last ${count(samples.leftOut)} samples are left out.`}
      {" "}{zoom && <button class="text" onClick={() => setZoom(null)}>Whole request</button>}</p>
    {samples.threads.map((t) => <Lane key={`${t.service}\n${t.name}\n${t.id}`} samples={samples} thread={t} range={range} origin={p.range.from} dark={p.dark}
      onRange={(r) => setZoom(r && { from: r.from, to: r.to })} onSource={p.onSource} />)}
  </div>;
}
