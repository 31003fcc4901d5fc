// SPDX-License-Identifier: Apache-2.0
/* Save this view as a file. */
import { useState } from "preact/hooks";
import { decodeState } from "../model/state.ts";
import { address } from "./location.ts";
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

/** The data of which the server makes a file. */
export interface What {
  /** Parameters of the request, without `format`. */
  parameters: Parameters;
  body?: Blob;
}

interface Props {
  source: Source;
  path: string;
  of: What;
  /** For a comparison: both sides, for formats that have two, and the other side alone. */
  compared?: { both: What; before: What } | undefined;
  /** Name of the file, without an extension. */
  name: string;
}

/** The formats that have two sides. */
const BOTH: [string, string][] = [["html", "HTML page"], ["svg", "SVG picture"], ["folded", "Folded stacks with both values on each line"]];

export function Export(p: Props): preact.JSX.Element {
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const run = async (side: string, format: string): Promise<void> => {
    setBusy(true);
    try {
      const what = side === "both" ? p.compared!.both : side === "before" ? p.compared!.before : p.of;
      const shares = side === "both" && decodeState(address().hash).normalise ? { normalize: "1" } : {};
      const bytes = await p.source.bytes(p.path, { ...what.parameters, ...shares, format }, new AbortController().signal, what.body ?? null);
      const end = FORMATS.find(([f]) => f === format)![2];
      save(bytes, `${(p.name + (p.compared ? ` ${side === "both" ? "compared" : side}` : "")).replace(/[^\w.-]+/g, "_").slice(0, 80) || "profile"}.${end}`);
      setWrong("");
    } catch (e) {
      setWrong(e instanceof Error ? e.message : String(e));
    }
    setBusy(false);
  };
  const options = (side: string, of: [string, string][]): preact.JSX.Element[] =>
    of.map(([f, label]) => <option key={f} value={side ? `${side} ${f}` : f}>{label}</option>);
  const one = FORMATS.map(([f, label]): [string, string] => [f, label]);
  return <>
    <select aria-label="Export" title={wrong || "Save this view to a file"} class={wrong ? "bad" : ""} disabled={busy} value=""
            onChange={(e) => {
              const [side, format] = e.currentTarget.value.split(" ");
              void run(format ? side! : "", format ?? side!);
              e.currentTarget.value = "";
            }}>
      <option value="">{busy ? "exporting…" : wrong ? "export failed" : "export…"}</option>
      {p.compared ? <>
        <optgroup label="Both sides">{options("both", BOTH)}</optgroup>
        <optgroup label="After only">{options("after", one)}</optgroup>
        <optgroup label="Before only">{options("before", one)}</optgroup></> : options("", one)}</select>
    <span class="spoken" role="status">{wrong}</span>
  </>;
}
