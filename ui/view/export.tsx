// SPDX-License-Identifier: Apache-2.0
/* What is shown, as a file. */
import { useState } from "preact/hooks";
import type { Parameters, Source } from "./source.ts";

export const FORMATS: [string, string, string][] = [
  ["html", "HTML page", "html"], ["svg", "SVG picture", "svg"], ["pprof", "pprof", "pb.gz"], ["folded", "Folded stacks", "folded"],
  ["speedscope", "speedscope", "speedscope.json"], ["firefox", "Firefox Profiler", "firefox.json"],
];

function save(bytes: Uint8Array, name: string): void {
  const url = URL.createObjectURL(new Blob([bytes as Uint8Array<ArrayBuffer>]));
  const a = document.createElement("a");
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

interface Props {
  source: Source;
  path: string;
  /** `format` is added. */
  parameters: Parameters;
  body?: Blob;
  /** Of the file, without an extension. */
  name: string;
}

export function Export(p: Props): preact.JSX.Element {
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const run = async (format: string): Promise<void> => {
    setBusy(true);
    try {
      const bytes = await p.source.bytes(p.path, { ...p.parameters, format }, new AbortController().signal, p.body ?? null);
      const end = FORMATS.find(([f]) => f === format)![2];
      save(bytes, `${p.name.replace(/[^\w.-]+/g, "_").slice(0, 80) || "profile"}.${end}`);
      setWrong("");
    } catch (e) {
      setWrong(e instanceof Error ? e.message : String(e));
    }
    setBusy(false);
  };
  return <>
    <select aria-label="Export" title={wrong || "What is shown, as a file"} class={wrong ? "bad" : ""} disabled={busy} value=""
            onChange={(e) => {
              void run(e.currentTarget.value);
              e.currentTarget.value = "";
            }}>
      <option value="">{busy ? "exporting…" : wrong ? "export failed" : "export…"}</option>
      {FORMATS.map(([f, label]) => <option key={f} value={f}>{label}</option>)}</select>
    <span class="spoken" role="status">{wrong}</span>
  </>;
}
