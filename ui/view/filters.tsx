// SPDX-License-Identifier: Apache-2.0
/*
 * Selections besides service and time: labels, a predicate over stacks, the label of the first
 * level. Chips show the selections; a sheet lists labels and their values with their weight.
 */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { askable, firstLabel, selector, without } from "../model/address.ts";
import type { Filter } from "../model/address.ts";
import { asPredicate, complete, STACK_HELP } from "../model/predicate.ts";
import { showable } from "../model/payload.ts";
import { matcher } from "../model/search.ts";
import { facets, readLines, readNames } from "../model/series.ts";
import type { Facet } from "../model/series.ts";
import { count, percent } from "../model/text.ts";
import type { Range } from "../model/times.ts";
import type { Source } from "./source.ts";

const MOST = 200;
const HIDDEN = new Set(["service.name"]);

interface Props {
  source: Source;
  service: string;
  filters: Filter[];
  range: Range;
  type: string;
  onChange: (f: Filter[]) => void;
  /** Label of the first level, and its change; undefined if the view has no such choice. */
  group?: string;
  onGroup?: (label: string) => void;
  open: boolean;
  onOpen: (open: boolean) => void;
}

/** The answer to a request, which a new request may replace before it arrives. */
function useAnswer<T>(key: string, ask: (signal: AbortSignal) => Promise<T>): T | string | null {
  const [answer, set] = useState<T | string | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    set(null);
    ask(abort.signal).then((a) => abort.signal.aborted || set(a),
                           (e: unknown) => abort.signal.aborted || set(e instanceof Error ? e.message : String(e)));
    return () => abort.abort();
  }, [key]);
  return answer;
}

function Values(p: Props & { name: string }): preact.JSX.Element {
  const [text, setText] = useState("");
  const query = selector(p.service, without(p.filters, p.name));
  const answer = useAnswer<Facet[]>(JSON.stringify([p.name, query, p.type, p.range]), async (signal) =>
    facets(readLines(await p.source.json("series", { from: p.range.from, to: p.range.to, query, type: p.type,
      step: p.range.to - p.range.from, group_by: p.name }, signal)), p.name));
  if (answer === null)
    return <p class="soft">Loading…</p>;
  if (typeof answer === "string")
    return <p class="soft">{answer}</p>;
  const m = matcher(text);
  const found = m && !("error" in m) ? answer.filter((f) => m.test(f.value)) : answer;
  const is = (f: Facet, not: boolean): boolean => p.filters.some((x) => x.label === p.name && x.value === f.value && x.not === not);
  const put = (f: Facet, not: boolean): void => p.onChange(is(f, not)
    ? p.filters.filter((x) => !(x.label === p.name && x.value === f.value && x.not === not))
    // A label can have at most one selected value, but any number of excluded ones.
    : [...p.filters.filter((x) => not ? !(x.label === p.name && x.value === f.value) : x.label !== p.name),
       { label: p.name, value: f.value, not }]);
  return <>
    {answer.length > 8 && <div class="filter"><input type="search" placeholder="Filter values" aria-label="Filter values (regular expression)"
      value={text} aria-invalid={m !== null && "error" in m} spellcheck={false} onInput={(e) => setText(e.currentTarget.value)} /></div>}
    <ul class="list values">
      {found.slice(0, MOST).map((f) => <li key={f.value}>
        <button aria-pressed={is(f, false)} onClick={() => put(f, false)} title={`Only ${showable(p.name)} = ${showable(f.value)}`}>
          <b class="bar" style={{ width: `${100 * f.share}%` }} aria-hidden="true" />
          <span class="n">{f.value === "" ? <i>not set</i> : showable(f.value)}</span><span class="s">{percent(f.share)}</span></button>
        <button class="not" aria-pressed={is(f, true)} aria-label={`Exclude ${showable(f.value)}`} title={`Exclude ${showable(p.name)} = ${showable(f.value)}`}
                onClick={() => put(f, true)}>≠</button></li>)}
      {found.length > MOST && <li class="more">{count(found.length - MOST)} more. Filter to see them.</li>}
      {found.length === 0 && <li class="more">{answer.length ? "No value matches." : "No samples in this time range have this label."}</li>}
    </ul>
  </>;
}

function Sheet(p: Props): preact.JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  const [name, setName] = useState(p.filters[p.filters.length - 1]?.label ?? "");
  useLayoutEffect(() => ref.current!.showModal(), []);
  // The list keeps its range while a live view goes on, so that values do not move under the pointer.
  const [range] = useState(p.range);
  const query = selector(p.service, []);
  const names = useAnswer<string[]>(JSON.stringify([query, p.type, range]), async (signal) =>
    readNames(await p.source.json("labels", { from: range.from, to: range.to, query, type: p.type }, signal), "labels")
      .filter((n) => askable(n) && !HIDDEN.has(n)));
  const chosen = name || (Array.isArray(names) ? firstLabel(names) : "");
  return (
    <dialog class="help sheet-filters" ref={ref} onClose={() => p.onOpen(false)} aria-labelledby="filters-title"
            onClick={(e) => e.target === ref.current && ref.current!.close()}>
      <div>
        <header><h2 id="filters-title">Filter by label</h2>
          <button class="icon" aria-label="Close" onClick={() => ref.current!.close()}>✕</button></header>
        {names === null ? <p>Loading…</p> : typeof names === "string" ? <p>{names}</p> : names.length === 0
          ? <p>No samples in this time range have labels.</p> : <div class="columns">
          <ul class="list names" aria-label="Labels">
            {names.map((n) => <li key={n}><button aria-pressed={n === chosen} onClick={() => setName(n)}>
              <span class="n">{showable(n)}</span>{p.filters.some((f) => f.label === n) && <span class="s">●</span>}</button></li>)}
          </ul>
          <section aria-label={`Values of ${showable(chosen)}`}>
            {p.onGroup && <label class="group"><input type="checkbox" checked={p.group === chosen}
              onChange={(e) => p.onGroup!(e.currentTarget.checked ? chosen : "")} /> Group flame graph by this label</label>}
            <Values key={chosen} {...p} range={range} name={chosen} />
          </section>
        </div>}
      </div>
    </dialog>
  );
}

export function Filters(p: Props): preact.JSX.Element {
  return <>
    {p.filters.map((f, i) => <button key={`${f.label}${f.not ? "!" : ""}=${f.value}`} class="transform" title="Remove this filter"
        onClick={() => p.onChange(p.filters.filter((_, k) => k !== i))}>
      {showable(f.label)} {f.not ? "≠" : "="} {f.value === "" ? "(none)" : showable(f.value)} ✕</button>)}
    {p.group && p.onGroup && <button class="transform" title="Group by service again" onClick={() => p.onGroup!("")}>
      grouped by {showable(p.group)} ✕</button>}
    <button class="text" aria-haspopup="dialog" onClick={() => p.onOpen(true)} title="Filter and group by label (m)">Filter ▾</button>
    {p.open && <Sheet {...p} />}
  </>;
}

/** The predicate over stacks, with completion by the names in the picture. */
export function Stacks(p: { value: string; names: () => string[]; onChange: (text: string) => void }): preact.JSX.Element {
  const [text, setText] = useState(p.value);
  const [at, setAt] = useState(0);
  const [on, setOn] = useState(false);
  const [chosen, choose] = useState(-1);
  const box = useRef<HTMLInputElement>(null);
  // A layout effect: after the next paint it would revert text that was typed meanwhile.
  useLayoutEffect(() => setText(p.value), [p.value]);
  const offers = on ? complete(text, at, p.names) : [];
  const take = (i: number): void => {
    const o = offers[i]!;
    setText(o.text);
    setAt(o.at);
    choose(-1);
    requestAnimationFrame(() => box.current?.setSelectionRange(o.at, o.at));
  };
  return (
    <div class="stacks" role="search">
      <input ref={box} value={text} placeholder='Stacks: word, or fn="a" under fn="b"' spellcheck={false} autocomplete="off"
             role="combobox" aria-expanded={offers.length > 0} aria-controls="stack-offers" aria-autocomplete="list"
             aria-activedescendant={chosen >= 0 ? `offer-${chosen}` : undefined} aria-label="Only stacks with these frames" title={STACK_HELP}
             onInput={(e) => {
               setText(e.currentTarget.value);
               setAt(e.currentTarget.selectionStart ?? 0);
               setOn(true);
               choose(-1);
               if (e.currentTarget.value === "")
                 p.onChange("");
             }}
             onBlur={() => setOn(false)}
             onKeyDown={(e) => {
               if (e.key === "ArrowDown" || e.key === "ArrowUp") {
                 setOn(true);
                 choose(offers.length ? (chosen + (e.key === "ArrowDown" ? 1 : offers.length) + offers.length) % offers.length : -1);
               } else if (e.key === "Enter" || (e.key === "Tab" && chosen >= 0)) {
                 if (chosen >= 0)
                   take(chosen);
                 else
                   p.onChange(asPredicate(text));
               } else if (e.key === "Escape" && offers.length) {
                 setOn(false);
               } else {
                 return;
               }
               e.preventDefault();
               e.stopPropagation();
             }} />
      {offers.length > 0 && <ul id="stack-offers" role="listbox" class="offers">
        {offers.map((o, i) => <li key={o.label} id={`offer-${i}`} role="option" aria-selected={i === chosen}
          // Keep the focus in the box.
          onPointerDown={(e) => {
            e.preventDefault();
            take(i);
          }}>{showable(o.label)}</li>)}
      </ul>}
    </div>
  );
}
