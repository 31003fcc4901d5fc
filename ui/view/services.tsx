// SPDX-License-Identifier: Apache-2.0
/* The services with their shares: the heaviest as a strip, all of them with a filter in a sheet. */
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { rate } from "../model/series.ts";
import type { Share } from "../model/series.ts";
import { matcher } from "../model/search.ts";
import { count, percent } from "../model/text.ts";
import { showable } from "../model/payload.ts";
import type { SampleType } from "../model/vocab.ts";
import { useHold } from "./hold.ts";

const STRIP = 12;
const SHEET = 300;

interface Props {
  services: Share[];
  chosen: string;
  type: SampleType;
  /** Length of the range, for rates. */
  ms: number;
  onChoose: (name: string) => void;
}

function Chip(p: { name: string; share: number; title: string; on: boolean; tab: boolean; onChoose: () => void }): preact.JSX.Element {
  return (
    <button class="chip-service" aria-pressed={p.on} tabIndex={p.tab ? 0 : -1} title={p.title} onClick={p.onChoose}>
      <b class="bar" style={{ width: `${100 * p.share}%` }} aria-hidden="true" />
      <span class="n">{p.name}</span> <span class="s">{percent(p.share)}</span>
    </button>
  );
}

/** The sheet of all services. */
function All(p: Props & { onClose: () => void }): preact.JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  const [filter, setFilter] = useState("");
  const box = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => {
    ref.current!.showModal();
    box.current!.focus();
  }, []);
  const m = useMemo(() => matcher(filter), [filter]);
  const matching = useMemo(() => (m && !("error" in m) ? p.services.filter((s) => m.test(s.name)) : p.services), [m, p.services]);
  const [held, hold] = useHold(matching, p.services, filter, (s) => s.name);
  const found = Array.from(held);
  const choose = (name: string): void => {
    p.onChoose(name);
    ref.current!.close();
  };
  return (
    <dialog class="help sheet-services" ref={ref} onClose={p.onClose} aria-labelledby="services-title"
            onClick={(e) => e.target === ref.current && ref.current!.close()}>
      <div {...hold}>
        <header><h2 id="services-title">Services</h2>
          <button class="icon" aria-label="Close" onClick={() => ref.current!.close()}>✕</button></header>
        <div class="filter">
          <input type="search" placeholder="Filter services" aria-label="Filter services (regular expression)" value={filter}
                 aria-invalid={m !== null && "error" in m} spellcheck={false} ref={box}
                 onInput={(e) => setFilter(e.currentTarget.value)}
                 onKeyDown={(e) => {
                   if (e.key !== "Enter" || !found[0])
                     return;
                   // Otherwise the key also presses the button that gets the focus back.
                   e.preventDefault();
                   choose(found[0].name);
                 }} />
          <span class="n">{count(found.length)}{found.length !== p.services.length ? ` of ${count(p.services.length)}` : ""}</span>
        </div>
        <ul class="list">
          <li><button aria-pressed={p.chosen === ""} onClick={() => choose("")}><span class="n">All services</span></button></li>
          {found.slice(0, SHEET).map((s) => <li key={s.name}>
            <button aria-pressed={p.chosen === s.name} onClick={() => choose(s.name)}>
              <b class="bar" style={{ width: `${100 * s.share}%` }} aria-hidden="true" />
              <span class="n">{showable(s.name)}</span><span class="s">{rate(s.value, p.ms, p.type)}</span><span class="s">{percent(s.share)}</span>
            </button></li>)}
          {found.length > SHEET && <li class="more">{count(found.length - SHEET)} more. Filter to see them.</li>}
          {found.length === 0 && <li class="more">No service matches.</li>}
        </ul>
      </div>
    </dialog>
  );
}

export function Services(p: Props & { open: boolean; onOpen: (open: boolean) => void }): preact.JSX.Element {
  const strip = useRef<HTMLDivElement>(null);
  const [held, hold] = useHold(p.services, p.services, "", (s) => s.name);
  const list = Array.from(held);
  const heavy = list.slice(0, STRIP);
  const mine = list.find((s) => s.name === p.chosen);
  if (p.chosen !== "" && !heavy.some((s) => s.name === p.chosen))
    heavy.unshift(mine ?? { name: p.chosen, value: 0, share: 0 });
  const all = list.reduce((sum, s) => sum + s.value, 0);
  const onKey = (e: KeyboardEvent): void => {
    const chips = [...strip.current!.querySelectorAll("button")];
    const at = chips.indexOf(document.activeElement as HTMLButtonElement);
    const to = e.key === "ArrowRight" ? at + 1 : e.key === "ArrowLeft" ? at - 1 : e.key === "Home" ? 0
      : e.key === "End" ? chips.length - 1 : null;
    if (at < 0 || to === null)
      return;
    e.preventDefault();
    chips[(to + chips.length) % chips.length]!.focus();
  };
  return (
    <nav class="services" aria-label="Services">
      <button class="text" aria-haspopup="dialog" title="All services (v)" onClick={() => p.onOpen(true)}>
        {count(p.services.length)} {p.services.length === 1 ? "service" : "services"} ▾</button>
      <div class="strip" ref={strip} role="group" aria-label="Heaviest services" onKeyDown={onKey} {...hold}>
        <button class="chip-service" aria-pressed={p.chosen === ""} tabIndex={p.chosen === "" ? 0 : -1}
                title="All samples" onClick={() => p.onChoose("")}>
          <span class="n">All</span> <span class="s">{rate(all, p.ms, p.type)}</span></button>
        {heavy.map((s) => <Chip key={s.name} name={showable(s.name)} share={s.share} title={`${showable(s.name)}: ${rate(s.value, p.ms, p.type)}`}
                                on={s.name === p.chosen} tab={s.name === p.chosen}
                                onChoose={() => p.onChoose(s.name === p.chosen ? "" : s.name)} />)}
        {list.length > heavy.length && <button class="chip-service rest" tabIndex={-1} onClick={() => p.onOpen(true)}>
          {count(list.length - heavy.length)} more…</button>}
      </div>
      {p.open && <All {...p} onClose={() => p.onOpen(false)} />}
    </nav>
  );
}
