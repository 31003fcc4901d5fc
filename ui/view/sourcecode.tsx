// SPDX-License-Identifier: Apache-2.0
/* A source file with the values of its lines: a sheet over the picture. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { showable } from "../model/payload.ts";
import { lookedAt, readSource } from "../model/source.ts";
import type { SourceFile } from "../model/source.ts";
import { colour, languageOf } from "../model/syntax.ts";
import { percent, value } from "../model/text.ts";
import type { Parameters, Source } from "./source.ts";

/** Of more lines, colours would take the browser seconds. */
const MOST_COLOURED = 20000;

interface Props {
  source: Source;
  file: string;
  /** The line to show, 0: the heaviest. */
  line: number;
  /** Parameters that select the same samples as the picture. */
  parameters: Parameters;
  /** The quality of these samples. */
  quality: preact.ComponentChildren;
  onClose: () => void;
}

function Lines(p: { s: SourceFile; line: number }): preact.JSX.Element {
  const { s } = p;
  const box = useRef<HTMLDivElement>(null);
  const hot = lookedAt(s, p.line);
  useLayoutEffect(() => box.current?.querySelector("tr.hot")?.scrollIntoView({ block: "center" }), [s]);
  const pieces = useMemo(() => colour(s.lines.map((l) => l.text), s.lines.length > MOST_COLOURED ? null : languageOf(s.file)), [s]);
  const share = (v: number): string => (v > 0 ? percent(v / (s.all || 1)) : "");
  return (
    <div class="table-scroll" ref={box} tabIndex={0}>
      <table class="code">
        <thead><tr><th class="num">Self</th><th class="num">Total</th><th class="num">Line</th><th /></tr></thead>
        <tbody>
          {s.lines.map((l, i) => <tr key={l.line} class={i === hot ? "hot" : l.total > 0 ? "warm" : ""}>
            <td class="num" title={l.self > 0 ? value(l.self, s.unit, s.type) : undefined}>{share(l.self)}</td>
            <td class="num c-share" title={l.total > 0 ? value(l.total, s.unit, s.type) : undefined}>
              {l.total > 0 && <b class="bar" style={{ width: `${100 * l.total / (s.all || 1)}%` }} aria-hidden="true" />}{share(l.total)}</td>
            <td class="num soft">{l.line}</td>
            <td class="text-of">{l.text === null ? <i class="soft">the file has no such line now</i> : pieces[i]!.map(([kind, text]) => kind ? <span class={`s-${kind}`}>{showable(text)}</span> : showable(text))}</td></tr>)}
        </tbody>
      </table>
    </div>
  );
}

interface SheetProps<T> {
  title: string;
  ask: (signal: AbortSignal) => Promise<T>;
  onClose: () => void;
  children: (t: T) => preact.ComponentChildren;
}

/** A sheet that sends one request, and shows the answer or the error. */
export function Sheet<T extends object>(p: SheetProps<T>): preact.JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  const [answer, set] = useState<T | string | null>(null);
  useLayoutEffect(() => ref.current!.showModal(), []);
  useEffect(() => {
    const abort = new AbortController();
    p.ask(abort.signal).then((a) => abort.signal.aborted || set(a))
      .catch((e: unknown) => abort.signal.aborted || set(e instanceof Error ? e.message : String(e)));
    return () => abort.abort();
  }, []);
  return (
    <dialog class="help sheet-source" ref={ref} onClose={p.onClose} aria-labelledby="source-title"
            onClick={(e) => e.target === ref.current && ref.current!.close()}>
      <div>
        <header><h2 id="source-title">{showable(p.title)}</h2>
          <button class="icon" aria-label="Close" onClick={() => ref.current!.close()}>✕</button></header>
        {answer !== null && typeof answer !== "string" ? p.children(answer) : <p role="status">{answer ?? "Loading…"}</p>}
      </div>
    </dialog>
  );
}

export function SourceCode(p: Props): preact.JSX.Element {
  const ask = async (signal: AbortSignal): Promise<SourceFile> =>
    readSource(await p.source.json("source", { ...p.parameters, file: p.file }, signal));
  return <Sheet title={p.file} ask={ask} onClose={p.onClose}>{(s: SourceFile) => <>
    <p>{percent(s.total / (s.all || 1))} of the total runs through this file, {percent(s.self / (s.all || 1))} in the file itself.
      {s.unknown.total > 0 && ` For ${percent(s.unknown.total / (s.all || 1))} the line is unknown.`} {s.why}</p>
    {p.quality}
    {s.links.length > 0 && <p>In the repository: {s.links.map((l) => <> <a key={l.url} href={l.url.replaceAll("{line}", String(s.lines[lookedAt(s, p.line)]?.line ?? 1))}
      target="_blank" rel="noopener noreferrer">{l.version ? `version ${showable(l.version)}` : "open"}</a></>)}</p>}
    {s.lines.length > 0 ? <Lines s={s} line={p.line} /> : <p>No samples with line information in this file.</p>}
  </>}</Sheet>;
}
