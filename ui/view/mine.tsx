// SPDX-License-Identifier: Apache-2.0
/* The button for only one's own code, and the dialog that says what is one's own. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { count } from "../model/text.ts";

interface Props {
  on: boolean;
  /** How many functions are own, and how many are not; null while all are shown. */
  n: { own: number; others: number } | null;
  rules: string;
  onMine: (on: boolean) => void;
  onRules: (text: string) => void;
}

function Rules(p: Props & { onClose: () => void }): preact.JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState(p.rules);
  useLayoutEffect(() => ref.current!.showModal(), []);
  return <dialog class="help" ref={ref} onClose={p.onClose} aria-labelledby="mine-title" onClick={(e) => e.target === ref.current && ref.current!.close()}>
    <form onSubmit={(e) => {
      e.preventDefault();
      p.onRules(text.trim());
      ref.current!.close();
    }}>
      <header><h2 id="mine-title">What is my code</h2>
        <button class="icon" type="button" aria-label="Close" onClick={() => ref.current!.close()}>✕</button></header>
      <p>Frames of runtimes, installed libraries and the kernel are shown as boxes, each with the sum of its frames. What is a library
        is known by its path (site-packages, node_modules, /usr/lib, module caches …); without a path, by its package. Stacks without a
        frame of yours are shown whole.{p.n && ` Here ${count(p.n.own)} functions are yours and ${count(p.n.others)} are not.`}</p>
      <label>Paths, modules or packages that are mine; with - in front, not mine
        <input type="text" class="rules" spellcheck={false} value={text} placeholder="com.acme /opt/shop -/opt/shop/vendored"
               onInput={(e) => setText(e.currentTarget.value)} /></label>
      <p>A word matches anywhere in a path, or the start of a function's name; * stands for any text. The last word that matches decides.
        This browser remembers the words, and the address has them.</p>
      <button class="text">Apply</button>
    </form>
  </dialog>;
}

export function MineTools(p: Props): preact.JSX.Element {
  const [open, setOpen] = useState(false);
  return <>
    <button class="text" aria-pressed={p.on} title="Show only your code, other frames in boxes; or all frames (x)" onClick={() => p.onMine(!p.on)}>My code</button>
    <button class="icon" aria-label="What is my code" title="What is my code" onClick={() => setOpen(true)}>⋯</button>
    {open && <Rules {...p} onClose={() => setOpen(false)} />}
  </>;
}
