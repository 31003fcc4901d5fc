// SPDX-License-Identifier: Apache-2.0
/* The strips around the picture: facts and quality of the profile, the path to the zoomed frame, the legend. */
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Colouring, Swatch } from "../draw/colour.ts";
import { baseSamplesPerValue, lossFact, warnings } from "../model/stats.ts";
import type { Losses, Warning } from "../model/stats.ts";
import type { FoldedSum } from "./flame.tsx";
import { count, duration, percent, plural, value } from "../model/text.ts";
import type { Transform } from "../model/transform.ts";
import { nodeName, pathOf } from "../model/tree.ts";
import type { Profile, Quality as QualityFacts, Tree } from "../model/tree.ts";
import { countsSamples, unitId, valueType } from "../model/vocab.ts";
import type { Span } from "./flame.tsx";
import { Name } from "./name.tsx";

type Fact = [text: string, help: string];

/** Warnings come early, because a narrow window cuts off the end. */
export function Facts(p: { first: Fact[]; bad: Warning[]; rest: Fact[] }): preact.JSX.Element {
  const fact = ([text, help]: Fact): preact.JSX.Element => <span key={text} title={help}>{text}</span>;
  return (
    <p class="quality" aria-label="Quality of the profile">
      {p.first.map(fact)}
      {p.bad.map((w) => <strong key={w.text} class={w.level} title={w.help}>{w.text}</strong>)}
      {p.rest.map(fact)}
    </p>
  );
}

/** Undefined: there are no agents to ask; null: the agents do not know. */
type MaybeLosses = Losses | null | undefined;

/** Judges a profile's quality by itself, and by the agents' losses if the profile has no counts of its own. */
function judge(q: QualityFacts, samples: number, losses: MaybeLosses): { bad: Warning[]; calm: Fact[] } {
  const bad = warnings(q, samples);
  const calm: Fact[] = [];
  const share = (k: number, n: number, word: string, help: string): void => {
    if (k > 0 && n > 0 && !bad.some((w) => w.text.includes(word)))
      calm.push([`${percent(k / n)} ${word}`, help]);
  };
  if (q.lost === 0)
    calm.push(["none lost", "No samples were dropped before they were stored"]);
  share(q.lost, q.lost + q.samples, "lost", "Samples that were dropped before they were stored");
  const loss = q.lost < 0 && losses !== undefined && samples > 0 ? lossFact(losses) : null;
  if (loss?.level === "warn")
    bad.push({ ...loss, level: "warn" });
  else if (loss)
    calm.push([loss.text, loss.help]);
  if (q.truncated === 0 && q.userStacks > 0)
    calm.push(["all stacks complete", "Every user stack reaches its thread's entry point"]);
  share(q.truncated, q.userStacks > 0 ? q.userStacks : q.samples, "truncated", "Incomplete user stacks");
  share(q.unknown, q.frames, "of frames have no name", "Addresses for which no symbol was found");
  return { bad, calm };
}

/** Whether one of the warnings gives the number of samples. */
const isFew = (bad: Warning[]): boolean => bad.some((w) => /samples?$/.test(w.text));

/** The bar of a view without a picture. */
export function QualityOf(p: { quality: QualityFacts; losses?: Losses | null; what: string }): preact.JSX.Element {
  const { samples } = p.quality;
  const { bad, calm } = judge(p.quality, samples, p.losses);
  return <Facts first={isFew(bad) ? [] : [[plural(samples, "sample"), p.what]]} bad={bad} rest={calm} />;
}

export function Quality(p: { profile: Profile; samples: number; losses?: Losses | null | undefined }): preact.JSX.Element {
  const { meta, tree } = p.profile;
  const facts: Fact[] = [];
  if (p.samples >= 0)
    facts.push([plural(p.samples, "sample"), "Samples in this profile"]);
  if (tree.base) {
    const k = baseSamplesPerValue(meta, tree);
    // Of a state it is the number of reports.
    const before = k > 0 ? tree.base.total[0]! * k : valueType(meta.type, meta.unit).adds === "at_moment" ? -1 : meta.baseSamples;
    const other = meta.baseTitle || "before";
    facts.push([`vs ${[before >= 0 ? plural(before, "sample") : "", other].filter((x) => x !== "").join(other === "before" ? " " : " of ")}`,
                "The profile that this one is compared with"]);
  }
  const type = valueType(meta.type, meta.unit);
  if (!countsSamples(type)) {
    const sum = value(tree.total[0]!, meta.unit, meta.type);
    facts.push([unitId(meta.unit) === "COUNT" ? sum : `${sum} ${type.label}`.trim(), `Sum of ${type.help || type.label || "the values"}`]);
  }
  if (meta.durationNs > 0)
    facts.push([`over ${duration(meta.durationNs)}`, "Time from the first to the last sample"]);
  if (meta.hz > 0)
    facts.push([`${count(meta.hz)} Hz`, "Samples per second on each CPU"]);
  const { bad, calm } = judge(meta.quality, p.samples, p.losses);
  if (tree.base && tree.base.total[0] === 0 && tree.total[0]! > 0)
    bad.unshift({ text: "no samples before", help: "The earlier profile has no samples, so everything here is new.", level: "warn" });
  return <Facts first={isFew(bad) ? [] : facts.slice(0, 1)} bad={bad} rest={[...calm, ...facts.slice(1)]} />;
}

interface CrumbProps {
  profile: Profile;
  tree: Tree;
  zoom: Span;
  transforms: Transform[];
  /** So many groups are too narrow to draw each one (0: they are not), and whether they are merged. */
  groups: number;
  isMerged: boolean;
  onGroups: (show: boolean) => void;
  onZoom: (s: Span) => void;
  onTransforms: (t: Transform[]) => void;
}

const TRANSFORM_WORD: Record<Transform["op"], string> = {
  hide: "hidden:", drop: "without stacks with", focus: "only stacks from", keep: "only stacks with", merge: "direct recursion merged",
  fold: "callees merged into", collapse: "recursion collapsed:",
};

export function Crumbs(p: CrumbProps): preact.JSX.Element {
  const { profile, tree, zoom } = p;
  const path = zoom.first === 0 ? [] : pathOf(tree, zoom.first).slice(1);
  const several = zoom.first !== zoom.last;
  if (several)
    path.pop();
  // The row scrolls; only a path that nobody reads is shortened in its middle.
  const gap = path.length > 64;
  const shown = gap ? [...path.slice(0, 2), ...path.slice(-60)] : path;
  const list = useRef<HTMLOListElement>(null);
  useLayoutEffect(() => {
    list.current!.scrollLeft = list.current!.scrollWidth;
  }, [zoom.first, tree]);
  let n = 0;
  for (let i = zoom.first; several && i <= zoom.last; i += tree.below[i]! + 1)
    n++;
  return (
    <nav class="crumbs" aria-label="Zoomed frame">
      {p.groups > 0 && <button class="transform" title={p.isMerged ? "Draw each one, however narrow" : "Merge them, because they are too narrow to draw"}
                               onClick={() => p.onGroups(p.isMerged)}>{count(p.groups)} narrow groups {p.isMerged ? "merged" : "drawn"} ✕</button>}
      {p.transforms.map((t, i) => (
        <button key={`${t.op}${i}`} class="transform" title="Undo this change of the view"
                onClick={() => p.onTransforms(p.transforms.filter((_, k) => k !== i))}>
          {TRANSFORM_WORD[t.op]}{t.name === undefined ? "" : ` ${t.name}`} ✕</button>))}
      {zoom.first !== 0 && <button class="reset" onClick={() => p.onZoom({ first: 0, last: 0 })}
                                   title="Show the whole profile (Esc)">✕ Reset zoom</button>}
      <ol ref={list}>
        <li><button onClick={() => p.onZoom({ first: 0, last: 0 })} disabled={zoom.first === 0}>all</button></li>
        {shown.map((i, k) => <>
          {gap && k === 2 && <li key="gap" class="gap" title={plural(path.length - 62, "more frame")}>…</li>}
          <li key={i}><button aria-current={i === zoom.first && !several ? "true" : undefined}
                              onClick={() => p.onZoom({ first: i, last: i })}
                              title={nodeName(profile, tree, i)}>
            <Name text={nodeName(profile, tree, i)} /></button></li>
        </>)}
        {several && <li key="several"><span>{plural(n, "narrow frame")}</span></li>}
        {zoom.first === 0 && <li class="hint">click a frame to zoom, / to search, ? for all keys</li>}
      </ol>
    </nav>
  );
}

const LEGEND_MAX = 9;

interface LegendProps {
  colours: Colouring;
  /** Shows only one category of waits, or again all. */
  onWait: (name: string) => void;
  /** The folded boxes of the view, and the weight of the view. */
  folded: FoldedSum;
  total: number;
  narrow: boolean;
  onNarrow: () => void;
}

export function Legend(p: LegendProps): preact.JSX.Element {
  const { legend, palette } = p.colours;
  const max = legend.some((e) => e.wait) ? LEGEND_MAX + 4 : LEGEND_MAX;
  const rest = legend.length - max;
  const entry = (e: Swatch): preact.JSX.Element => <><i style={{ background: palette[e.colour]! }} />{e.label}</>;
  return (
    <ul class="legend" aria-label="Colours">
      {legend.slice(0, max).map((e) => (
        <li key={e.label} title={e.help} class={e.wait ? "wait" : undefined}>
          {e.wait ? <button onClick={() => p.onWait(e.wait!)}>{entry(e)}</button> : entry(e)}</li>))}
      {rest > 0 && <li class="more" title={legend.slice(max).map((e) => e.label).join(", ")}>and {rest} more</li>}
      <li class="folding"><button aria-pressed={p.narrow} onClick={p.onNarrow}
          title={`Hatched boxes stand for frames too narrow to draw. Click a box to zoom in; click here to ${p.narrow ? "hide more frames" : "draw frames down to one pixel"} (k)`}>
        <i class="hatched" />{p.folded.frames === 0 ? "no frames hidden"
          : `${plural(p.folded.frames, "narrow frame")} hidden, ${percent(p.total > 0 ? p.folded.weight / p.total : 0)}`}</button></li>
    </ul>
  );
}
