// SPDX-License-Identifier: Apache-2.0
/* The instructions of a function with their values: a sheet over the picture. */
import { useLayoutEffect, useRef } from "preact/hooks";
import type { CodeOf } from "../model/address.ts";
import { readAssembly } from "../model/assembly.ts";
import type { Assembly } from "../model/assembly.ts";
import { showable } from "../model/payload.ts";
import { base, percent, value } from "../model/text.ts";
import { Sheet } from "./sourcecode.tsx";
import type { Parameters, Source } from "./source.ts";

interface Props {
  source: Source;
  code: CodeOf;
  /** Parameters that select the same samples as the picture. */
  parameters: Parameters;
  /** The quality of these samples. */
  quality: preact.ComponentChildren;
  onSource: (file: string, line: number) => void;
  onClose: () => void;
}

function Instructions(p: { a: Assembly; onSource: Props["onSource"] }): preact.JSX.Element {
  const { a } = p;
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => box.current?.querySelector("tr.hot")?.scrollIntoView({ block: "center" }), [a]);
  const share = (v: number): string => (v > 0 ? percent(v / (a.total || 1)) : "");
  const rows: preact.JSX.Element[] = [];
  a.instructions.forEach((x, i) => {
    if (x.gap)
      rows.push(<tr key={`gap${x.address}`} class="gap"><td colSpan={3} /><td class="soft" colSpan={2}>…</td></tr>);
    rows.push(<tr key={x.address} class={i === a.hottest ? "hot" : x.total > 0 ? "warm" : ""}>
      <td class="num c-share" title={x.self > 0 ? value(x.self, a.unit, a.type) : undefined}>
        {x.self > 0 && <b class="bar" style={{ width: `${100 * x.self / (a.total || 1)}%` }} aria-hidden="true" />}{share(x.self)}</td>
      <td class="num" title={x.total > 0 ? value(x.total, a.unit, a.type) : undefined}>{share(x.total)}</td>
      <td class="num soft text-of">{x.address.toString(16)}</td>
      <td class="text-of">{x.length > 0 ? showable(x.text) : <i class="soft">unknown</i>}</td>
      <td class="text-of soft">{x.file !== "" && <button class="pick" title={`Source lines of ${showable(x.file)}`} onClick={() => p.onSource(x.file, x.line)}>
        {showable(base(x.file))}{x.line > 0 ? `:${x.line}` : ""}</button>}</td></tr>);
  });
  return (
    <div class="table-scroll" ref={box} tabIndex={0}>
      <table class="code">
        <thead><tr><th class="num">Self</th><th class="num">Total</th><th class="num">Address</th><th>Instruction</th><th>Line</th></tr></thead>
        <tbody>{rows}</tbody>
      </table>
    </div>
  );
}

export function AssemblySheet(p: Props): preact.JSX.Element {
  const { name, file, buildId } = p.code;
  const ask = async (signal: AbortSignal): Promise<Assembly> => readAssembly(
    await p.source.json("assembly", { ...p.parameters, file, function: name, build_id: buildId }, signal));
  return <Sheet title={name} ask={ask} onClose={p.onClose}>{(a: Assembly) => <>
    <p>{percent(a.total / (a.all || 1))} of the total runs through this function of <code>{showable(file)}</code>, {percent(a.self / (a.all || 1))} in
      the function itself. Shares below are of the function. {a.why}</p>
    {p.quality}
    {a.instructions.length > 0 && <Instructions a={a} onSource={p.onSource} />}
  </>}</Sheet>;
}
