// SPDX-License-Identifier: Apache-2.0
/* The sheet that explains the keys and the picture. */
import { useLayoutEffect, useRef } from "preact/hooks";

export type Keys = [string[], string][];

const KEYS: Keys = [
  [["←", "→", "↑", "↓"], "move from frame to frame"],
  [["Enter"], "zoom in on the frame"],
  [["Esc", "0"], "show everything"],
  [["Backspace"], "zoom out to the caller"],
  [["/", "Ctrl F"], "search by regular expression"],
  [["n", "N"], "next and previous match"],
  [["i"], "root on top (icicle) or at the bottom (flame)"],
  [["r"], "invert: leaves first, with their callers"],
  [["t"], "function table: beside the flame graph, hidden, or alone"],
  [["k"], "draw narrow frames, or hide them"],
  [["x"], "only your code, other frames in boxes; or all frames"],
  [["w"], "siblings by weight, or by name"],
  [["Shift F10"], "the menu of a frame, a row or a match"],
  [["s"], "callers and callees of the function"],
  [["F", "D"], "only stacks from the function on, or exclude its stacks"],
  [["H", "E"], "hide the function, merge callees into it"],
  [["R", "M"], "collapse its recursion, merge all direct recursion"],
  [["c"], "next colouring"],
  [["d"], "dark or light"],
  [["?"], "show these keys"],
];

export function Help(p: { onClose: () => void; diff: boolean; more: Keys | undefined }): preact.JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    ref.current!.showModal();
  }, []);
  return (
    <dialog class="help" ref={ref} onClose={p.onClose} aria-labelledby="help-title"
            onClick={(e) => e.target === ref.current && ref.current!.close()}>
      <div>
        <header><h2 id="help-title">Reading a flame graph</h2>
          <button class="icon" aria-label="Close" onClick={() => ref.current!.close()}>✕</button></header>
        <p>Each box is a function; the box that it touches on the root's side called it. The width of a box is the function's
          share of what the profile measures (CPU time, page faults …), callees included. Left to right is alphabetical, not
          chronological.</p>
        {p.diff && <p>Red grew and blue shrank since the earlier profile. Differences that could be chance stay pale.</p>}
        <dl class="keys">
          {[...p.more ?? [], ...KEYS].map(([keys, text]) => <div key={text}>
            <dt>{keys.map((k) => <kbd key={k}>{k}</kbd>)}</dt><dd>{text}</dd></div>)}
        </dl>
        <p>Click a frame to zoom; its callers are in the row above the graph. Right-click, or press long, for more: focus, hide, callers and
          callees, copy. Frames of runtimes, libraries and the kernel are grey or blue boxes ("12 runtime frames") where a stack has
          frames of yours; x shows all frames. <span class="hatched" /> stands for frames too narrow to draw; click it to see them.</p>
        <p>A profile is a sample. In 95 of 100 cases, the true share is within the 95 % interval.</p>
      </div>
    </dialog>
  );
}
