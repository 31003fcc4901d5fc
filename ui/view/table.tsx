// SPDX-License-Identifier: Apache-2.0
/*
 * The table of functions, which is also the text alternative of the picture. Only visible rows are
 * in the document, so the length of the table does not matter.
 */
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { changeScore } from "../draw/colour.ts";
import { functionKey, functionTable, sortTable } from "../model/functions.ts";
import type { FunctionIds, SortKey } from "../model/functions.ts";
import { baseScale } from "../model/layout.ts";
import { matcher, matchFrames } from "../model/search.ts";
import { baseSamplesPerValue, samplesPerValue, significant } from "../model/stats.ts";
import { base, count, percent, signed, value } from "../model/text.ts";
import { frameName, NONE } from "../model/tree.ts";
import type { Profile, Tree } from "../model/tree.ts";
import { frameKind } from "../model/vocab.ts";
import type { Place, Span } from "./flame.tsx";
import { useHold } from "./hold.ts";
import { Name } from "./name.tsx";

const HEIGHT = 25;
const EXTRA = 8;

interface Props {
  profile: Profile;
  tree: Tree;
  ids: FunctionIds;
  zoom: Span;
  sort: SortKey;
  descending: boolean;
  filter: string;
  normalise: boolean;
  /** There is no picture beside the table, so there is room for more columns. */
  alone: boolean;
  /** Frames that the search matches, to mark their rows. */
  matched: Uint8Array | null;
  /** Function under the pointer in the picture, -1 for none; and a callback for the function under it in the table. */
  over: number;
  onOver: (id: number) => void;
  onSort: (key: SortKey, descending: boolean) => void;
  /** By frame: 0 for the reader's own; null: all functions are rows. */
  own: Uint16Array | null;
  onAll: () => void;
  onMenu: (frame: number, at: Place) => void;
  onFilter: (text: string) => void;
  onPick: (name: string, frame: number) => void;
  onSandwich: (name: string) => void;
}

function Head(p: Props & { column: SortKey; label: string; title: string }): preact.JSX.Element {
  const on = p.sort === p.column;
  const turn = (): void => p.onSort(p.column, on ? !p.descending : p.column !== "name");
  return (
    <th scope="col" class={"c-" + p.column}
        aria-sort={on ? (p.descending ? "descending" : "ascending") : "none"}>
      <button onClick={turn} title={p.title}>
        {p.label}<span aria-hidden="true">{on ? (p.descending ? " ▾" : " ▴") : ""}</span>
      </button>
    </th>
  );
}

/** The change of a function: amounts, shares, and whether it may be chance. */
function changes(p: Props, total: number, before: number): { amount: number; points: number; sure: boolean | null } {
  const { tree, meta } = p.profile;
  const [a, b] = [tree.total[0]!, tree.base!.total[0]!];
  const [sa, sb] = [samplesPerValue(meta, tree), baseSamplesPerValue(meta, tree)];
  return {
    amount: total - before, points: total / (a || 1) - before / (b || 1),
    sure: sa > 0 && sb > 0 ? significant(changeScore(before * sb, b * sb, total * sa, a * sa, p.normalise)) : null,
  };
}

const CHANCE = "Chance alone makes a difference this large in more than one of 20 cases";

export function FunctionList(p: Props): preact.JSX.Element {
  const { profile, tree, ids, zoom } = p;
  const table = useMemo(() => functionTable(profile, tree, ids, zoom.first, zoom.last),
                        [profile, tree, ids, zoom.first, zoom.last]);
  const filter = useMemo(() => matcher(p.filter), [p.filter]);
  const bad = filter !== null && "error" in filter;
  const keep = useMemo(() => {
    const hits = filter && !bad ? matchFrames(profile, filter) : null;
    return p.own ? Uint8Array.from(p.own, (o, f) => o === 0 && (!hits || hits[f]) ? 1 : 0) : hits;
  }, [profile, filter, p.own]);
  const scale = baseScale(profile.tree, p.normalise);
  const sorted = useMemo(() => sortTable(profile, ids, table, p.sort, p.descending, scale, keep),
                         [profile, ids, table, p.sort, p.descending, scale, keep]);
  const [rows, hold] = useHold(sorted, profile, `${p.sort} ${p.descending} ${p.filter}`, (i) => functionKey(profile, ids.frame[table.id[i]!]!));
  const ref = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  useLayoutEffect(() => {
    const el = ref.current!;
    const o = new ResizeObserver(() => setHeight(el.clientHeight));
    o.observe(el);
    return () => o.disconnect();
  }, []);
  // With newer samples the table keeps its scroll position.
  const of = useRef(profile);
  useLayoutEffect(() => {
    // Reading the position makes the browser lay out the page, so do it only if needed.
    if (of.current === profile && top > 0) {
      ref.current!.scrollTop = 0;
      setTop(0);
    }
    of.current = profile;
  }, [sorted]);

  let view = 0;
  for (let i = zoom.first; i <= zoom.last; i += tree.below[i]! + 1)
    view += tree.total[i]!;
  view = view || 1;
  const from = Math.max(0, Math.floor(top / HEIGHT) - EXTRA);
  const to = Math.min(rows.length, Math.ceil((top + height) / HEIGHT) + EXTRA);
  const diff = table.baseTotal !== null;
  const unit = profile.meta.unit;
  const columns = (diff ? p.alone ? 7 : 4 : 3) + (p.alone ? 1 : 0);

  const row = (k: number): preact.JSX.Element => {
    const i = rows[k]!;
    const f = ids.frame[table.id[i]!]!;
    const name = frameName(profile, f);
    const m = profile.frames.mapping[f]!;
    const kind = profile.kinds[profile.frames.kind[f]!]?.name ?? "";
    const where = m === NONE ? (frameKind(kind)?.class === "native" ? "" : kind) : base(profile.mappings[m]!.path);
    const inl = ids.inlined[table.id[i]!]!;
    const delta = diff ? table.total[i]! - scale * table.baseTotal![i]! : 0;
    const c = diff ? changes(p, table.total[i]!, table.baseTotal![i]!) : null;
    const unsure = c?.sure === false && delta !== 0;
    const colour = (d: number): string => (unsure ? "unsure" : d > 0 ? "grew" : d < 0 ? "shrank" : "");
    const file = profile.strings[profile.frames.file[f]!] ?? "";
    return (
      <tr key={table.id[i]} aria-rowindex={k + 2} class={(p.matched?.[f] ? "hit" : "") + (p.over === table.id[i] ? " over" : "")}
          data-frame={f} onContextMenu={(e) => {
            e.preventDefault();
            p.onMenu(f, { x: e.clientX, y: e.clientY });
          }}
          onPointerEnter={() => p.onOver(table.id[i]!)} onPointerLeave={() => p.onOver(-1)}>
        <td class="c-self" title={value(table.self[i]!, unit, profile.meta.type)}>
          <b class="bar" style={{ width: `${(100 * table.self[i]!) / view}%` }} aria-hidden="true" />
          {percent(table.self[i]! / view)}</td>
        <td class="c-total" title={value(table.total[i]!, unit, profile.meta.type)}>{percent(table.total[i]! / view)}</td>
        {c && p.alone && <>
          <td class="c-amount" title={`after: ${value(table.total[i]!, unit, profile.meta.type)}`}>{value(table.baseTotal![i]!, unit, profile.meta.type)}</td>
          <td class={"c-amount " + colour(c.amount)}>{signed(value(c.amount, unit, profile.meta.type), c.amount)}</td>
          <td class={"c-change " + colour(c.points)}>{signed(percent(c.points), c.points)}</td></>}
        {diff && <td class={"c-change " + colour(delta)} title={unsure ? CHANCE : undefined}>
          {p.alone ? (c!.sure === null ? "" : unsure ? "could be chance" : delta === 0 ? "" : "beyond chance")
            : `${unsure ? "≈ " : ""}${signed(percent(delta / view), delta)}`}</td>}
        <td class="c-name"><span>
          <button class="pick" title={`Search for ${name}`} onClick={() => p.onPick(name, f)}><Name text={name} /></button>
          {inl > 0 && <i class="tag" title={inl === 2 ? "always inlined" : "inlined in places"}>inl</i>}
          {where !== "" && <i class="tag">{where}</i>}
          <button class="both" aria-label={`Callers and callees of ${name}`} title="Callers and callees"
                  onClick={() => p.onSandwich(name)}>⇅</button>
        </span></td>
        {p.alone && <td class="c-file" title={file}>{file}{file && profile.frames.line[f] ? `:${profile.frames.line[f]}` : ""}</td>}
      </tr>
    );
  };
  return (
    <section class={p.alone && diff ? "functions with-diff" : "functions"} aria-label="Functions">
      <div class="filter">
        <input type="search" placeholder="Filter functions" aria-label="Filter functions (regular expression)"
               aria-invalid={bad} value={p.filter} spellcheck={false}
               onInput={(e) => p.onFilter(e.currentTarget.value)} />
        <span class="n">{bad ? "not a regular expression" : p.own ? <>{count(rows.length)} of your functions <button class="shown-all" onClick={p.onAll}
          title="Also functions of runtimes, libraries and the kernel. Self of your functions includes the hidden frames that they call">show all</button></> : <>{count(rows.length)}{rows.length !== table.n ? ` of ${count(table.n)}` : ""} {table.n === 1 ? "function" : "functions"}</>}</span>
      </div>
      <div class="rows" ref={ref} onScroll={(e) => setTop(e.currentTarget.scrollTop)}>
        <table aria-rowcount={rows.length + 1}>
          <thead><tr aria-rowindex={1}>
            <Head {...p} column="self" label="Self" title={p.own ? "In the function itself and the hidden frames that it calls, as a share of the view" : "In the function itself, as a share of the view"} />
            <Head {...p} column="total" label="Total" title="In the function and what it calls; recursion counts once" />
            {diff && p.alone && <><th scope="col" class="c-amount">Before</th><th scope="col" class="c-amount">Amount</th>
              <th scope="col" class="c-change">Of all</th></>}
            {diff && <Head {...p} column="change" label={p.alone ? "Beyond chance?" : "Change"}
                           title="Share of the total, after minus before, in percentage points; ≈: the difference could be chance" />}
            <Head {...p} column="name" label="Function" title="Name" />
            {p.alone && <th scope="col" class="c-file">Source</th>}
          </tr></thead>
          <tbody {...hold}>
            {from > 0 && <tr aria-hidden="true" style={{ height: `${from * HEIGHT}px` }}><td colSpan={columns} /></tr>}
            {Array.from({ length: Math.max(0, to - from) }, (_, k) => row(from + k))}
            {to < rows.length && <tr aria-hidden="true" style={{ height: `${(rows.length - to) * HEIGHT}px` }}><td colSpan={columns} /></tr>}
          </tbody>
        </table>
        {rows.length === 0 && <p class="empty">{p.own ? p.filter ? "None of your functions matches. " : "None of your functions in this view. " : p.filter ? "No function matches." : "No functions in this view."}
          {p.own && <button class="shown-all" onClick={p.onAll}>Show all functions</button>}</p>}
      </div>
    </section>
  );
}
