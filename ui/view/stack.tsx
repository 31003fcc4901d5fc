// SPDX-License-Identifier: Apache-2.0
/* Bars by time in parts, by a label, and the parts with their shares. */
import { oklch } from "../draw/colour.ts";
import type { Mark } from "../model/marks.ts";
import { showable } from "../model/payload.ts";
import { LAYER_COLOURS } from "../model/stack.ts";
import type { Layer, Stack } from "../model/stack.ts";
import { count, percent } from "../model/text.ts";
import type { Range } from "../model/times.ts";
import type { SampleType } from "../model/vocab.ts";
import { Chart } from "./chart.tsx";

interface Props {
  stack: Stack;
  dark: boolean;
  range: Range;
  type: SampleType;
  label: string;
  now: number;
  marks: Mark[];
  onSelect: (r: Range) => void;
  /** Only this value of the label. */
  onChoose: (name: string) => void;
}

/** Neighbours among the hues differ in lightness, too. */
function css(colour: number, dark: boolean): string {
  const l = (dark ? 0.6 : 0.68) + (colour % 2 ? 0.08 : -0.08);
  return colour < 0 ? "var(--line)" : oklch(l, 0.13, 25 + colour * 360 / LAYER_COLOURS);
}

export function StackView(p: Props): preact.JSX.Element {
  const { stack } = p;
  const layers = stack.layers.map((l) => ({ ...l, css: css(l.colour, p.dark) }));
  const all = stack.layers.reduce((s, l) => s + l.total, 0);
  const entry = (l: Layer & { css: string }): preact.JSX.Element => <><i style={{ background: l.css }} aria-hidden="true" />
    <span class="n">{l.name === null ? `${l.n > 0 ? `${count(l.n)} ` : ""}others` : l.name === "" ? "not set" : showable(l.name)}</span> {all > 0 && percent(l.total / all)}</>;
  return <div class="parts">
    <Chart bars={stack.whole} layers={layers} range={p.range} type={p.type} now={p.now} onSelect={p.onSelect} label={p.label} marks={p.marks} />
    <ul class="legend" aria-label={`By ${stack.by === "service.name" ? "service" : stack.by}`}>{layers.map((l) => <li key={l.name}>
      {l.name === null ? <span>{entry(l)}</span> : <button title={`Only ${showable(l.name) || "samples without this label"}`} onClick={() => p.onChoose(l.name!)}>{entry(l)}</button>}</li>)}</ul>
  </div>;
}
