// SPDX-License-Identifier: Apache-2.0
/* What readers leave for each other on the server: saved views, and annotations on the charts. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { readMarks, readViews } from "../model/marks.ts";
import type { Mark, SavedView } from "../model/marks.ts";
import { showable } from "../model/payload.ts";
import { clock, day, localInput } from "../model/times.ts";
import type { Range } from "../model/times.ts";
import type { Source } from "./source.ts";

interface Props {
  source: Source;
  range: Range;
  service: string;
  /** The page's address from its ? or # on. */
  address: string;
  onChanged: () => void;
  onClose: () => void;
}

export function Notes(p: Props): preact.JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  const [views, setViews] = useState<SavedView[]>([]);
  const [marks, setMarks] = useState<Mark[]>([]);
  const [said, setSaid] = useState("");
  const [name, setName] = useState("");
  const [text, setText] = useState("");
  const [at, setAt] = useState(localInput(p.range.to));
  const [only, setOnly] = useState(p.service !== "");
  const load = async (): Promise<void> => {
    const { signal } = new AbortController();
    try {
      setViews(readViews(await p.source.json("views", {}, signal)));
      setMarks(readMarks(await p.source.json("annotations", { from: p.range.from, to: p.range.to }, signal)).filter((m) => m.id !== ""));
    } catch (e) {
      setSaid(e instanceof Error ? e.message : String(e));
    }
  };
  useLayoutEffect(() => ref.current!.showModal(), []);
  useEffect(() => void load(), []);
  const act = async (method: "POST" | "DELETE", path: string, body: object | null): Promise<void> => {
    const answer = await p.source.send(method, path, body);
    setSaid(answer.said);
    if (answer.said !== "")
      return;
    setName("");
    setText("");
    p.onChanged();
    await load();
  };
  const remove = (what: string, id: string, of: string): preact.JSX.Element =>
    <button class="icon" aria-label={`Remove ${of}`} title="Remove" onClick={() => void act("DELETE", `${what}/${id}`, null)}>✕</button>;
  return <dialog class="help sheet-notes" ref={ref} onClose={p.onClose} aria-labelledby="notes-title" onClick={(e) => e.target === ref.current && ref.current!.close()}>
    <div>
      <header><h2 id="notes-title">Saved on this server</h2><button class="icon" aria-label="Close" onClick={() => ref.current!.close()}>✕</button></header>
      <section aria-label="Views"><h3>Views</h3>
        <ul class="saved">{views.map((v) => <li key={v.id}><a href={location.pathname + v.address}>{showable(v.name)}</a>{remove("views", v.id, showable(v.name))}</li>)}</ul>
        {views.length === 0 && <p class="soft">No saved views yet.</p>}
        <form onSubmit={(e) => {
          e.preventDefault();
          void act("POST", "views", { name: name.trim(), address: p.address });
        }}><input required maxLength={100} placeholder="Name" aria-label="Name of the view" value={name} onInput={(e) => setName(e.currentTarget.value)} />{" "}
          <button class="text" disabled={name.trim() === ""}>Save this view</button></form></section>
      <section aria-label="Annotations"><h3>Annotations in this time range</h3>
        <ul class="saved">{marks.map((m) => <li key={m.id}><span class="soft">{day(m.at)} {clock(m.at)}</span> <span class="n">{showable(m.text)}</span>{" "}
          {m.labels["service.name"] && <small>{showable(m.labels["service.name"])}</small>}{remove("annotations", m.id, showable(m.text))}</li>)}</ul>
        {marks.length === 0 && <p class="soft">None.</p>}
        <form onSubmit={(e) => {
          e.preventDefault();
          void act("POST", "annotations", { text: text.trim(), time: new Date(at).getTime(), labels: only && p.service !== "" ? { "service.name": p.service } : {} });
        }}><input type="datetime-local" step="1" required aria-label="Time" value={at} onInput={(e) => setAt(e.currentTarget.value)} />{" "}
          <input required maxLength={160} placeholder="What happened" aria-label="What happened" value={text} onInput={(e) => setText(e.currentTarget.value)} />{" "}
          {p.service !== "" && <label class="soft"><input type="checkbox" checked={only} onChange={(e) => setOnly(e.currentTarget.checked)} /> only {showable(p.service)}</label>}{" "}
          <button class="text" disabled={text.trim() === ""}>Add</button></form></section>
      {said !== "" && <p class="grew" role="alert">{said}</p>}
    </div>
  </dialog>;
}
