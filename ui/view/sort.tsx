// SPDX-License-Identifier: Apache-2.0
/* Heads of columns that sort, and a search: of lists that the server sorts and searches. */
import { useEffect, useState } from "preact/hooks";

/** `sort`: "column", or "-column" descending. A click sorts numbers descending first. */
export function Head(p: { of: string; sort: string; onSort: (sort: string) => void; text?: boolean; title?: string; class?: string; children: preact.ComponentChildren }):
preact.JSX.Element {
  const descending = p.sort === `-${p.of}`;
  const on = descending || p.sort === p.of;
  return <th class={`${p.class ?? ""}${p.text ? "" : " num"}`} title={p.title} aria-sort={on ? descending ? "descending" : "ascending" : "none"}>
    <button onClick={() => p.onSort(on ? descending ? p.of : `-${p.of}` : p.text ? p.of : `-${p.of}`)}>{p.children}{on && (descending ? " ↓" : " ↑")}</button></th>;
}

const TYPED_MS = 300;

/** Searches when the reader stops typing. */
export function Search(p: { label: string; value: string; onText: (text: string) => void }): preact.JSX.Element {
  const [text, setText] = useState(p.value);
  useEffect(() => setText(p.value), [p.value]);
  useEffect(() => {
    const timer = text === p.value ? 0 : setTimeout(() => p.onText(text), TYPED_MS);
    return () => clearTimeout(timer);
  }, [text, p.value]);
  return <input type="search" placeholder={p.label} aria-label={p.label} value={text} maxLength={200} spellcheck={false}
    onInput={(e) => setText(e.currentTarget.value)} />;
}
