// SPDX-License-Identifier: Apache-2.0
/* The menu of a frame: at the pointer, or at the focused frame when opened by the keyboard. */
import { Fragment } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Place } from "./flame.tsx";

/** An entry: its label, its action, the key that does the same to the focused frame, and why it cannot be done here. */
export type Item = [label: string, run: () => void, key?: string | undefined, whyNot?: string];

interface Props {
  at: Place;
  name: string;
  items: Item[];
  onClose: () => void;
}

export function Menu(p: Props): preact.JSX.Element {
  const ref = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const el = ref.current!;
    el.style.left = `${Math.max(4, Math.min(p.at.x, innerWidth - el.offsetWidth - 4))}px`;
    el.style.top = `${Math.max(4, Math.min(p.at.y, innerHeight - el.offsetHeight - 4))}px`;
    el.querySelector("button")!.focus();
  }, [p.at]);
  useLayoutEffect(() => {
    const outside = (e: PointerEvent): void => {
      if (!ref.current?.contains(e.target as Node))
        p.onClose();
    };
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  });
  const onKey = (e: KeyboardEvent): void => {
    const all = [...ref.current!.querySelectorAll<HTMLButtonElement>("button:not(:disabled)")];
    const at = all.indexOf(document.activeElement as HTMLButtonElement);
    const to = e.key === "ArrowDown" ? at + 1 : e.key === "ArrowUp" ? at - 1 : e.key === "Home" ? 0
      : e.key === "End" ? all.length - 1 : null;
    if (e.key === "Tab")
      p.onClose();
    if (to === null)
      return;
    e.preventDefault();
    all[(to + all.length) % all.length]!.focus();
  };
  return (
    <div class="menu" role="menu" aria-label={p.name} ref={ref} onKeyDown={onKey}>
      <p title={p.name}>{p.name}</p>
      {p.items.map(([label, run, key, whyNot = ""]) => <Fragment key={label}>
        <button role="menuitem" aria-keyshortcuts={key} disabled={whyNot !== ""} onClick={() => {
          p.onClose();
          run();
        }}>{label}{key && <kbd aria-hidden="true">{key}</kbd>}</button>
        {whyNot !== "" && <small class="why-not">{whyNot}</small>}</Fragment>)}
    </div>
  );
}
