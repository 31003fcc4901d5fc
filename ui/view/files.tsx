// SPDX-License-Identifier: Apache-2.0
/*
 * Profiles from files that the reader drops or chooses. The server converts them to the page's
 * format and does not store them, so they are gone after a reload. Two files are compared.
 */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { compareProfiles } from "../model/compare.ts";
import { parseBody, showable } from "../model/payload.ts";
import type { Profile } from "../model/tree.ts";
import { App } from "./app.tsx";
import { Export } from "./export.tsx";
import type { What } from "./export.tsx";
import type { Keys } from "./help.tsx";
import type { Source } from "./source.ts";

export interface Opened {
  file: File;
  profile: Profile;
}

async function open(source: Source, file: File, signal: AbortSignal): Promise<Opened> {
  const profile = parseBody(await source.bytes("convert", {}, signal, file));
  return { file, profile: { ...profile, meta: { ...profile.meta, title: file.name } } };
}

function fileOf(file: File): What {
  return { parameters: {}, body: file };
}

function picture(files: Opened[]): Profile | string | null {
  if (files.length < 2)
    return files[0]?.profile ?? null;
  try {
    return compareProfiles(files[0]!.profile, files[1]!.profile);
  } catch (e) {
    return e instanceof Error ? e.message : String(e);
  }
}

export function Files(p: { source: Source; keys: Keys; dropped: File[] }): preact.JSX.Element {
  const [files, setFiles] = useState<Opened[]>([]);
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const shown = useMemo(() => picture(files), [files]);
  const input = useRef<HTMLInputElement>(null);
  const read = async (list: File[]): Promise<void> => {
    setBusy(true);
    setWrong("");
    try {
      const opened: Opened[] = [];
      for (const f of list.slice(0, 2))
        opened.push(await open(p.source, f, new AbortController().signal));
      setFiles((now) => [...now, ...opened].slice(-2));
    } catch (e) {
      setWrong(`${list.map((f) => showable(f.name)).join(", ")}: ${e instanceof Error ? e.message : String(e)}`);
    }
    setBusy(false);
  };
  // Read files one after the other: the first is the side before.
  const reading = useRef(Promise.resolve());
  const add = (list: File[]): void => {
    if (list.length > 0)
      reading.current = reading.current.then(() => read(list));
  };
  useEffect(() => add(p.dropped), [p.dropped]);
  const last = files[files.length - 1]?.file;
  const bar = <div class="files-bar">
    {files.map((f, i) => <button key={i} class="transform" title="Remove this file" onClick={() => setFiles(files.filter((_, k) => k !== i))}>
      {files.length > 1 ? (i === 0 ? "before: " : "after: ") : ""}{showable(f.file.name)} ✕</button>)}
    {files.length === 2 && <button class="text" onClick={() => setFiles([files[1]!, files[0]!])}>Swap</button>}
    <button class="text" onClick={() => input.current!.click()}>{files.length === 0 ? "Choose a file…" : files.length === 1 ? "Compare with…" : "Choose another…"}</button>
    {last && <Export source={p.source} path="convert" name={last.name.replace(/\.[^.]*$/, "")} of={fileOf(last)}
      compared={files.length === 2 && typeof shown !== "string" ? { before: fileOf(files[0]!.file),
        both: { parameters: { base_bytes: files[0]!.file.size }, body: new Blob([files[0]!.file, last]) } } : undefined} />}
    {busy && <span class="soft">Reading…</span>}
    {wrong !== "" && <span class="grew" role="alert">{wrong}</span>}
    <input ref={input} type="file" multiple hidden aria-label="Profiles" onChange={(e) => {
      add([...e.currentTarget.files ?? []]);
      e.currentTarget.value = "";
    }} />
  </div>;
  return <div class="files">
    {bar}
    {shown === null || typeof shown === "string"
      ? <div class="nothing"><h2>{typeof shown === "string" ? "These profiles cannot be compared" : "Drop a profile here"}</h2>
        {typeof shown === "string" ? <p>{showable(shown)}</p>
          : <p>pprof, OTLP, JFR, perf script, folded stacks, speedscope, .cpuprofile: any format that <code>culprit convert</code> reads, compressed or not.
            Open two files to compare them. The server does not store them.</p>}</div>
      : <App file profile={shown} keys={p.keys} />}
  </div>;
}
