// SPDX-License-Identifier: Apache-2.0
/* Name and weight of a frame or of a box of folded frames: next to the pointer, or at the bottom on a phone. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { changeScore } from "../draw/colour.ts";
import { costHelp, costText, monthly } from "../model/cost.ts";
import type { Factors } from "../model/cost.ts";
import { hotLine } from "../model/functions.ts";
import { baseScale } from "../model/layout.ts";
import { baseSamplesPerValue, samplesPerValue, significant, wilson } from "../model/stats.ts";
import { count, percent, plural, signed, three, value } from "../model/text.ts";
import { COLLAPSED, GROUP, INLINED, LINE_SAMPLED, NONE, nodeName } from "../model/tree.ts";
import type { Profile, Tree } from "../model/tree.ts";
import { frameKind, nanoseconds } from "../model/vocab.ts";
import type { Place, Span, Spot } from "./flame.tsx";

export interface CardProps {
  profile: Profile;
  tree: Tree;
  /** The total of the tree without any transform. */
  all: number;
  zoom: Span;
  normalise: boolean;
  factors: Factors | null;
  /** False in a tree of callers, in which paths end at the first caller, not at the function that ran. */
  withSelf: boolean;
  /** Of an own frame: the value of hidden frames below it, 0 if none. Of a box: its functions, heaviest first. */
  inHidden?: number;
  inside?: [name: string, self: number][] | null;
  /** The functions of a box of own frames, each called by the one before. */
  chain?: string[];
  spot: Spot;
  at: Place;
  /** For touch: a card of the screen's width, on the half that was not touched. */
  sheet: boolean;
}

function sumOf(tree: Tree, s: Span, column: Float64Array): number {
  let sum = 0;
  for (let i = s.first; i <= s.last; i += tree.below[i]! + 1)
    sum += column[i]!;
  return sum;
}

export function interval(profile: Profile, tree: Tree, total: number): string {
  const k = samplesPerValue(profile.meta, profile.tree);
  const n = profile.tree.total[0]! * k;
  if (!(n > 0) || tree.total[0]! < 0)
    return "";
  const [lo, hi] = wilson(total * k, n);
  return `${percent(lo)} – ${percent(hi)}`;
}

function Row(p: { label: string; children: preact.ComponentChildren }): preact.JSX.Element {
  return <tr><th scope="row">{p.label}</th>{p.children}</tr>;
}

function Change(p: CardProps & { total: number }): preact.JSX.Element | null {
  const { profile, tree, spot } = p;
  const b = tree.base;
  if (!b)
    return null;
  const before = sumOf(tree, spot, b.total);
  const { meta } = profile;
  const k = baseScale(profile.tree, p.normalise);
  const sa = samplesPerValue(meta, profile.tree);
  const sb = baseSamplesPerValue(meta, profile.tree);
  const na = profile.tree.total[0]! * sa;
  const nb = profile.tree.base!.total[0]! * sb;
  const z = changeScore(before * sb, nb, p.total * sa, na, p.normalise);
  const delta = p.normalise
    ? p.total / (profile.tree.total[0]! || 1) - before / (profile.tree.base!.total[0]! || 1)
    : p.total - before;
  const text = p.normalise ? `${percent(delta).replace(" %", "")} percentage points`
                           : value(delta, meta.unit, meta.type);
  const word = before === 0 ? "new" : p.total === 0 ? "gone"
    : percent((p.total - k * before) / (k * before || 1));
  return <>
    <Row label="before"><td>{value(before, meta.unit, meta.type)}</td>
      <td colSpan={2}>{percent(before / (profile.tree.base!.total[0]! || 1))} of before</td></Row>
    <Row label="change"><td colSpan={3}>{signed(text, delta)} ({word === "new" || word === "gone"
      ? word : signed(word, delta)})
      {sa > 0 && sb > 0 && <span class={significant(z) ? "sure" : "unsure"}>
        {significant(z) ? " beyond chance" : " could be chance"}</span>}</td></Row>
  </>;
}

function Weights(p: CardProps): preact.JSX.Element {
  const { profile, tree, spot, zoom } = p;
  const { meta } = profile;
  const total = sumOf(tree, spot, tree.total);
  const self = spot.folded || !p.withSelf ? -1 : tree.self[spot.first]!;
  const view = sumOf(tree, zoom, tree.total) || 1;
  const all = p.all || 1;
  const k = samplesPerValue(meta, profile.tree);
  const month = p.factors && meta.durationNs > 0 ? monthly(total * nanoseconds(meta.unit), meta.durationNs / 1e6, p.factors) : null;
  const cells = (v: number): preact.JSX.Element => <>
    <td>{value(v, meta.unit, meta.type)}</td><td>{percent(v / view)}</td><td>{percent(v / all)}</td></>;
  return (
    <table>
      <thead><tr><td /><td /><th scope="col">of view</th><th scope="col">of all</th></tr></thead>
      <tbody>
        <Row label="total">{cells(total)}</Row>
        {self >= 0 && <Row label="self">{cells(self)}</Row>}
        {(p.inHidden ?? 0) > 0 && <Row label="self, hidden">{cells(p.inHidden!)}</Row>}
        {k > 0 && k !== 1 && <Row label="samples"><td>{count(total * k)}</td><td colSpan={2} /></Row>}
        {k > 0 && <Row label="95 % interval"><td colSpan={3}>{interval(profile, tree, total)} of all</td></Row>}
        {month && p.factors && <Row label="cost/month"><td title={costHelp(month, p.factors)}>{costText(month, p.factors)}</td>
          <td colSpan={2}>{month.kg < 0.01 ? "<0.01" : three(month.kg)} kg CO₂</td></Row>}
        <Change {...p} total={total} />
      </tbody>
    </table>
  );
}

function Folded(p: CardProps): preact.JSX.Element {
  const { tree, spot, profile } = p;
  const top: number[] = [];
  for (let i = spot.first; i <= spot.last; i += tree.below[i]! + 1)
    top.push(i);
  top.sort((a, b) => tree.total[b]! - tree.total[a]!);
  return <>
    <h2>{plural(spot.folded, "narrow frame")}</h2>
    <p class="chips"><span class="chip">too narrow to draw</span><span class="chip">click to zoom in</span></p>
    <Weights {...p} />
    <p class="where">{top.length > 3 ? "largest: " : ""}{top.slice(0, 3).map((i) =>
      nodeName(profile, tree, i)).join(", ")}{top.length > 3 ? ` and ${count(top.length - 3)} more` : ""}</p>
  </>;
}

function Frame(p: CardProps): preact.JSX.Element {
  const { profile, tree, spot } = p;
  const { frames, mappings, kinds, strings } = profile;
  const f = tree.frame[spot.first]!;
  const flags = frames.flags[f]!;
  const kind = kinds[frames.kind[f]!];
  const file = strings[frames.file[f]!] ?? "";
  const m = frames.mapping[f] === NONE ? null : mappings[frames.mapping[f]!];
  const group = (flags & GROUP) !== 0;
  const hot = hotLine(profile, f);
  const { folded } = tree;
  if (p.chain)
    return <>
      <h2>{nodeName(profile, tree, spot.first)}</h2>
      <p class="chips"><span class="chip">your code</span><span class="chip">x shows all frames</span></p>
      <Weights {...p} />
      <p class="where">functions that call only one another: {p.chain.slice(0, 6).join(" → ")}{p.chain.length > 6 && ` and ${count(p.chain.length - 6)} more`}</p>
    </>;
  if (flags & COLLAPSED)
    return <>
      <h2>{nodeName(profile, tree, spot.first)}</h2>
      <p class="chips"><span class="chip">not your code</span><span class="chip">x shows all frames</span></p>
      <Weights {...p} />
      {folded && p.withSelf && <p class="where">includes self time of {count(folded[spot.first]!)} hidden frames{p.inside && p.inside.length > 0 && `, most in ${p.inside.slice(0, 3)
        .map(([name, v]) => `${name} (${percent(v / (p.all || 1))} of all)`).join(", ")}`}</p>}
    </>;
  return <>
    <h2>{nodeName(profile, tree, spot.first)}</h2>
    <p class="chips">
      <span class="chip">{group ? (spot.first === 0 ? "everything" : "process or thread") : kind?.name ?? "unknown"}</span>
      {(flags & INLINED) !== 0 && <span class="chip">inlined</span>}
      {m && <span class="chip mono" title={m.path}>{m.path}</span>}
    </p>
    <Weights {...p} />
    {file !== "" && <p class="where mono">{file}{frames.line[f] && !(hot && flags & LINE_SAMPLED) ? `:${frames.line[f]}` : ""}
      {!hot && (flags & LINE_SAMPLED) !== 0 && " (one of the lines hit)"}</p>}
    {hot && <p class="where">hottest line <b class="mono">{hot.place}</b>: {percent(hot.share)} of this function’s {value(hot.total, profile.meta.unit, profile.meta.type)} in the
      whole profile{tree.base ? " after" : ""}</p>}
    {m?.buildId && <p class="where mono">build-id {m.buildId}</p>}
    {kind && frameKind(kind.name)?.class === "note" && !group && <p class="where">{kind.help}</p>}
  </>;
}

export function Card(p: CardProps): preact.JSX.Element {
  const ref = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const el = ref.current!;
    if (p.sheet) {
      el.style.left = el.style.top = "";
      return;
    }
    const { offsetWidth: w, offsetHeight: h } = el;
    const x = p.at.x + 16 + w > innerWidth ? p.at.x - w - 12 : p.at.x + 16;
    const y = p.at.y + 20 + h > innerHeight ? p.at.y - h - 12 : p.at.y + 20;
    el.style.left = `${Math.max(4, x)}px`;
    el.style.top = `${Math.max(4, y)}px`;
  });
  return (
    <div class={!p.sheet ? "card" : p.at.y > innerHeight / 2 ? "card sheet up" : "card sheet"} ref={ref} role="tooltip">
      {p.spot.folded ? <Folded {...p} /> : <Frame {...p} />}
    </div>
  );
}
