// SPDX-License-Identifier: Apache-2.0
/*
 * Colours of frames. A palette is a list of CSS colours per theme; a frame, or in a comparison a
 * node, has an index into it. Colours are made in OKLCH, so that all kinds look equally strong
 * and one text colour is readable on all of them.
 */
import { baseScale } from "../model/layout.ts";
import { baseSamplesPerValue, change, samplesPerValue, significant, zScore } from "../model/stats.ts";
import type { ColourBy } from "../model/state.ts";
import { base, percent } from "../model/text.ts";
import { COLLAPSED, frameName, GROUP, INLINED, NONE } from "../model/tree.ts";
import type { Profile, Tree } from "../model/tree.ts";
import { frameKind, waitOfFrame } from "../model/vocab.ts";
import type { Wait } from "../model/vocab.ts";

export type Theme = "dark" | "light";

export interface Swatch {
  label: string;
  help: string;
  /** Index into the palette. */
  colour: number;
  /** The category of waits that it stands for. */
  wait?: string;
}

export interface Colouring {
  /** CSS colours. */
  palette: string[];
  /** Palette index by node. */
  of: Uint16Array;
  legend: Swatch[];
}

export function oklch(l: number, c: number, hue: number): string {
  const h = (hue * Math.PI) / 180;
  const a = c * Math.cos(h);
  const b = c * Math.sin(h);
  const x = (l + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const y = (l - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const z = (l - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const hex = (v: number): string => {
    const s = v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055;
    return Math.round(255 * Math.min(1, Math.max(0, s))).toString(16).padStart(2, "0");
  };
  return "#" + hex(4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z) +
    hex(-1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z) +
    hex(-0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z);
}

interface Tone {
  light: number;
  chroma: number;
}

const TONE: Record<Theme, Tone> = {
  light: { light: 0.83, chroma: 0.105 },
  dark: { light: 0.52, chroma: 0.106 },
};

const INLINED_HUE: [number, number] = [92, 1.05];
const SHADES = 5;

function hash(s: string): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < s.length; i++)
    h = Math.imul(h ^ s.charCodeAt(i), 0x01000193);
  h ^= h >>> 15;
  return Math.imul(h, 0x2c1b3c6d) >>> 0;
}

/** Chroma 0 is grey. Kinds that are not in the table get a hue by their name. */
function kindHue(name: string): [number, number] {
  const kind = frameKind(name);
  return kind ? [kind.hue, kind.chroma] : [(hash(name) % 24) * 15, 1];
}

class Palette {
  readonly colours: string[] = [];
  private readonly known = new Map<string, number>();

  add(css: string): number {
    let i = this.known.get(css);
    if (i === undefined) {
      i = this.colours.push(css) - 1;
      this.known.set(css, i);
    }
    return i;
  }

  /** Neighbouring frames of one hue get shades by their names, so that they stay apart. */
  shade(theme: Theme, hue: [number, number], name: string): number {
    const t = TONE[theme];
    const k = hash(name) % SHADES;
    return this.add(oklch(t.light + (k - 2) * 0.013, t.chroma * hue[1], hue[0] + (k - 2) * 3.5));
  }

  plain(theme: Theme, hue: [number, number]): number {
    const t = TONE[theme];
    return this.add(oklch(t.light, t.chroma * hue[1], hue[0]));
  }
}

const GREY: Record<Theme, { group: string; note: string }> = {
  light: { group: "#cdd4de", note: "#e4e7ec" },
  dark: { group: "#414957", note: "#2c323b" },
};

function packageOf(p: Profile, f: number): string {
  const m = p.frames.mapping[f]!;
  return m === NONE ? "" : base(p.mappings[m]!.path);
}

const waitHelp = (w: Wait): string => `Waits for ${w.help}. Click to see only these`;

/** The wait of each frame that is one, by frame id. */
function waitsOf(p: Profile): (Wait | undefined)[] {
  return Array.from({ length: p.frames.n }, (_, f) => waitOfFrame(p.kinds[p.frames.kind[f]!]?.name ?? "", frameName(p, f)));
}

/** Whether leaves tell what was waited for. */
export function showsWaits(p: Profile): boolean {
  return waitsOf(p).some((w) => w !== undefined);
}

/** Nodes by what the most of their time was waited for; of an inverted tree by the wait that they begin with. */
function byWait(p: Profile, tree: Tree, theme: Theme): Colouring {
  const pal = new Palette();
  const note = pal.add(GREY[theme].note);
  const of = new Uint16Array(tree.n).fill(note);
  const waits = waitsOf(p);
  const most = new Float64Array(tree.n);
  const all = tree.total[0]! + (tree.base?.total[0] ?? 0) || 1;
  const legend: (Swatch & { weight: number })[] = [];
  for (const wait of new Set(waits)) {
    if (!wait)
      continue;
    const colour = pal.add(wait[theme]);
    const sum = new Float64Array(tree.n);
    for (let i = tree.n - 1; i >= 0; i--) {
      if (waits[tree.frame[i]!] === wait)
        sum[i] = tree.total[i]! + (tree.base?.total[i] ?? 0);
      if (i > 0)
        sum[tree.parent[i]!]! += sum[i]!;
      if (sum[i]! > most[i]!) {
        most[i] = sum[i]!;
        of[i] = colour;
      }
    }
    if (sum[0]! > 0)
      legend.push({ label: `${wait.name} ${percent(sum[0]! / all)}`, help: waitHelp(wait), colour, wait: wait.name, weight: sum[0]! });
  }
  const below = new Uint8Array(tree.n);
  for (let i = 1; i < tree.n; i++) {
    const parent = tree.parent[i]!;
    below[i] = below[parent] || waits[tree.frame[parent]!] ? 1 : 0;
    if (below[i])
      of[i] = of[parent]!;
  }
  const rest = all - legend.reduce((sum, e) => sum + e.weight, 0);
  if (rest > all * 1e-9)
    legend.push({ label: `no wait ${percent(rest / all)}`, help: "Samples that do not tell what was waited for", colour: note, weight: 0 });
  legend.sort((a, b) => b.weight - a.weight);
  return { palette: pal.colours, of, legend };
}

/** Frames whose colour does not depend on the node, by frame id. */
function byFrame(p: Profile, tree: Tree, theme: Theme, by: ColourBy): Colouring {
  const pal = new Palette();
  const frame = new Uint16Array(p.frames.n);
  const group = pal.add(GREY[theme].group);
  const note = pal.add(GREY[theme].note);
  const legend = new Map<string, Swatch & { weight: number }>();
  const entry = new Array<Swatch & { weight: number }>(p.frames.n);
  const put = (f: number, label: string, help: string, colour: number, wait?: Wait): void => {
    let e = legend.get(label);
    if (!e)
      legend.set(label, e = { label, help, colour, weight: 0, ...wait ? { wait: wait.name } : {} });
    entry[f] = e;
  };
  for (let f = 0; f < p.frames.n; f++) {
    const kind = p.kinds[p.frames.kind[f]!] ?? { name: "unknown", help: "" };
    const kindClass = frameKind(kind.name)?.class;
    const name = frameName(p, f);
    const flags = p.frames.flags[f]!;
    const wait = waitOfFrame(kind.name, name);
    if (wait) {
      frame[f] = pal.add(wait[theme]);
      put(f, wait.name, waitHelp(wait), frame[f], wait);
    } else if (flags & GROUP) {
      frame[f] = group;
      put(f, "process, thread", "Not code: the name of a process or thread", group);
    } else if (flags & COLLAPSED && kindClass !== "kernel") {
      frame[f] = group;
      put(f, "runtimes, libraries", kind.help, group);
    } else if (kindClass === "note") {
      frame[f] = note;
      put(f, kind.name, kind.help, note);
    } else if (by === "package" && packageOf(p, f) !== "" && kindClass !== "kernel") {
      const pkg = packageOf(p, f);
      const hue: [number, number] = [(hash(pkg) % 36) * 10, 1];
      frame[f] = pal.shade(theme, hue, name);
      put(f, pkg, p.mappings[p.frames.mapping[f]!]!.path, pal.plain(theme, hue));
    } else if (by === "name") {
      const h = hash(name);
      frame[f] = pal.add(oklch(TONE[theme].light + ((h >>> 8) % 3 - 1) * 0.02, TONE[theme].chroma,
                               (h % 30) * 12));
    } else {
      const inlined = (flags & INLINED) !== 0;
      const hue = inlined && kindClass !== "kernel" ? INLINED_HUE : kindHue(kind.name);
      frame[f] = pal.shade(theme, hue, name);
      put(f, inlined ? "inlined" : kind.name,
          inlined ? "Code that the compiler put into its caller" : kind.help, pal.plain(theme, hue));
    }
  }
  const of = new Uint16Array(tree.n);
  for (let i = 0; i < tree.n; i++) {
    const f = tree.frame[i]!;
    of[i] = frame[f]!;
    if (entry[f])
      entry[f].weight += tree.self[i]! + 1e-9;
  }
  const list = [...legend.values()].filter((e) => e.weight > 0);
  list.sort((a, b) => b.weight - a.weight);
  return { palette: pal.colours, of, legend: list };
}

const STEPS = 12;

function diffColour(theme: Theme, c: number): string {
  const a = Math.abs(c);
  const hue = c > 0 ? 25 : 255;
  return theme === "light" ? oklch(0.935 - 0.24 * a, 0.17 * a, hue)
                           : oklch(0.43 + 0.12 * a, 0.17 * a, hue);
}

/**
 * Grown is red, shrunk is blue. A difference that chance would make as well stays neutral whatever
 * its ratio: 1 sample that became 3 is no finding.
 */
function byChange(p: Profile, tree: Tree, theme: Theme, normalise: boolean): Colouring {
  const palette: string[] = [];
  for (let s = -STEPS; s <= STEPS; s++)
    palette.push(diffColour(theme, s / STEPS));
  const of = new Uint16Array(tree.n).fill(STEPS);
  const b = tree.base;
  if (b) {
    const k = baseScale(p.tree, normalise);
    const sa = samplesPerValue(p.meta, p.tree);
    const sb = baseSamplesPerValue(p.meta, p.tree);
    const na = p.tree.total[0]! * sa;
    const nb = p.tree.base!.total[0]! * sb;
    for (let i = 0; i < tree.n; i++) {
      const after = tree.total[i]!;
      const before = b.total[i]!;
      const z = changeScore(before * sb, nb, after * sa, na, normalise);
      if (sa > 0 && sb > 0 && !significant(z))
        continue;
      of[i] = STEPS + Math.round(STEPS * change(k * before, after));
    }
  }
  return {
    palette, of, legend: [
      { label: "grew", help: "More than before, by more than chance", colour: 2 * STEPS },
      { label: "unchanged", help: "No difference, or one that chance makes as well", colour: STEPS },
      { label: "shrank", help: "Less than before, by more than chance", colour: 0 },
    ],
  };
}

/** z of a change of shares (normalised) or of counts (absolute: the difference of two Poissons). */
export function changeScore(k1: number, n1: number, k2: number, n2: number,
                            normalise: boolean): number {
  if (normalise)
    return zScore(k1, n1, k2, n2);
  return k1 + k2 > 0 ? (k2 - k1) / Math.sqrt(k1 + k2) : 0;
}

export function colouring(p: Profile, tree: Tree, theme: Theme, by: ColourBy,
                          normalise: boolean): Colouring {
  if (by === "diff" && tree.base)
    return byChange(p, tree, theme, normalise);
  return by === "wait" ? byWait(p, tree, theme) : byFrame(p, tree, theme, by === "diff" ? "kind" : by);
}
