// SPDX-License-Identifier: Apache-2.0
/*
 * What a reader has chosen, as text for location.hash: short keys, only what differs from the
 * defaults, so that a link stays readable. Unknown keys are skipped, bad values read as defaults.
 */
import { putFilters, putRange, takeFilters, takeRange, WAIT_VIEWS } from "./address.ts";
import type { Filter, WaitView } from "./address.ts";
import type { SortKey } from "./functions.ts";
import type { WidthBy } from "./layout.ts";
import type { Range } from "./times.ts";
import { OPS } from "./transform.ts";
import type { Transform } from "./transform.ts";

export type ColourBy = "kind" | "package" | "name" | "wait" | "diff";

/** Picture and table side by side, or one of them alone. */
export type Panes = "both" | "picture" | "table";

export interface ViewState {
  /** pathId() of the zoomed frame, "first~last" for folded siblings, "" for all. */
  zoom: string;
  search: string;
  icicle: boolean;
  /** Leaves first. */
  inverted: boolean;
  /** Only the reader's own code, other frames in boxes; and patterns of what is own. null: as the browser remembers. */
  mine: boolean | null;
  own: string | null;
  /** Siblings by weight, the heaviest first; else by name. */
  byWeight: boolean;
  /** Draw frames that are too narrow to tell apart, as far as the screen can. */
  narrow: boolean;
  /** null: as the width of the window suggests. */
  panes: Panes | null;
  colour: ColourBy | null;
  theme: "dark" | "light" | null;
  widthBy: WidthBy;
  /** null: as the profile says. */
  normalise: boolean | null;
  sort: SortKey;
  descending: boolean;
  filter: string;
  transforms: Transform[];
  /** Show the first level even if its groups are too narrow to tell apart. */
  groups: boolean;
  /** In a file: the table of waits, and whether those without work are shown. */
  waits: WaitView;
  idle: boolean;
  /** In a file: labels of samples, and their time. */
  only: Filter[];
  range: Range | null;
  lane: string;
  /** Name of the function whose callers and callees are shown, "" for none. */
  sandwich: string;
}

export const DEFAULTS: ViewState = {
  zoom: "", search: "", icicle: false, inverted: false, mine: null, own: null, byWeight: false, narrow: false, panes: null, colour: null, theme: null, widthBy: "after",
  normalise: null, sort: "self", descending: true, filter: "", transforms: [], groups: false, waits: "", idle: false, only: [], range: null, lane: "", sandwich: "",
};

const PANES: Record<string, Panes> = { 0: "picture", 1: "both", 2: "table" };

export function encodeState(s: ViewState): string {
  const q = new URLSearchParams();
  if (s.zoom)
    q.set("z", s.zoom);
  if (s.search)
    q.set("q", s.search);
  if (s.icicle !== DEFAULTS.icicle)
    q.set("i", s.icicle ? "1" : "0");
  if (s.inverted)
    q.set("v", "1");
  if (s.mine !== null)
    q.set("a", s.mine ? "0" : "1");
  if (s.own !== null)
    q.set("own", s.own);
  if (s.byWeight)
    q.set("o", "w");
  if (s.narrow)
    q.set("k", "1");
  if (s.panes)
    q.set("t", Object.keys(PANES).find((k) => PANES[k] === s.panes)!);
  if (s.colour)
    q.set("c", s.colour);
  if (s.theme)
    q.set("m", s.theme);
  if (s.widthBy !== DEFAULTS.widthBy)
    q.set("w", s.widthBy);
  if (s.normalise !== null)
    q.set("n", s.normalise ? "1" : "0");
  if (s.sort !== DEFAULTS.sort || s.descending !== DEFAULTS.descending)
    q.set("s", (s.descending ? "-" : "") + s.sort);
  if (s.filter)
    q.set("f", s.filter);
  for (const t of s.transforms)
    q.append("x", t.name === undefined ? t.op : `${t.op}:${t.name}`);
  if (s.groups)
    q.set("g", "1");
  if (s.waits)
    q.set("waits", s.waits);
  if (s.idle)
    q.set("idle", "1");
  if (s.lane)
    q.set("lane", s.lane);
  putFilters(q, "", s.only);
  putRange(q, "", s.range);
  if (s.sandwich)
    q.set("fn", s.sandwich);
  return q.toString();
}

function oneOf<T extends string>(v: string | null, of: readonly T[]): T | null {
  return of.includes(v as T) ? (v as T) : null;
}

function parseTransform(x: string): Transform | null {
  const [, op, , name] = /^([a-z]+)(:([^]*))?$/.exec(x) ?? [];
  const known = oneOf(op ?? null, OPS);
  if (!known || (known !== "merge" && !name))
    return null;
  return name === undefined ? { op: known } : { op: known, name };
}

export function decodeState(hash: string): ViewState {
  const q = new URLSearchParams(hash.replace(/^#/, ""));
  const flag = (key: string, absent: boolean): boolean =>
    q.get(key) === "1" ? true : q.get(key) === "0" ? false : absent;
  const sort = q.get("s") ?? "";
  const key = oneOf<SortKey>(sort.replace(/^-/, ""), ["name", "self", "total", "change"]);
  return {
    zoom: q.get("z") ?? "",
    search: q.get("q") ?? "",
    icicle: flag("i", DEFAULTS.icicle),
    inverted: flag("v", false),
    mine: q.get("a") === "1" ? false : q.get("a") === "0" ? true : null,
    own: q.get("own"),
    byWeight: q.get("o") === "w",
    narrow: flag("k", false),
    panes: PANES[q.get("t") ?? ""] ?? null,
    colour: oneOf<ColourBy>(q.get("c"), ["kind", "package", "name", "wait", "diff"]),
    theme: oneOf(q.get("m"), ["dark", "light"] as const),
    widthBy: oneOf<WidthBy>(q.get("w"), ["after", "before", "both"]) ?? DEFAULTS.widthBy,
    normalise: q.get("n") === "1" ? true : q.get("n") === "0" ? false : null,
    sort: key ?? DEFAULTS.sort,
    descending: key ? sort.startsWith("-") : DEFAULTS.descending,
    filter: q.get("f") ?? "",
    transforms: q.getAll("x").map(parseTransform).filter((x) => x !== null),
    groups: flag("g", false),
    waits: oneOf(q.get("waits"), WAIT_VIEWS) ?? "",
    idle: flag("idle", false),
    only: takeFilters(q, ""),
    range: takeRange(q, ""),
    lane: q.get("lane") ?? "",
    sandwich: q.get("fn") ?? "",
  };
}
