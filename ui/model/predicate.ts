// SPDX-License-Identifier: Apache-2.0
/* Completion of predicates over stacks: fn="…" and fn~"…", under, and, or, not, (…). */

import { literal } from "./search.ts";

const quoted = (name: string): string => name.replace(/[\\"]/g, "\\$&");

export const STACK_HELP = 'A word: stacks with a function whose name contains it. ' +
  'fn="name": a frame of this name. fn~"a.*b": by regular expression. leaf="name": it ran itself. ' +
  'A under B: A with B nearer to the root. and, or, not, ( ).';

const OFFERS = 12;

/** A predicate as it is; of a plain word, the stacks with a function whose name contains the word. Case matters as in matcher(). */
export function asPredicate(text: string): string {
  const t = text.trim();
  if (t === "" || /["']|\b(fn|file|binary|kind|leaf)\s*[!=~]/.test(t))
    return t;
  return `fn~"${/[A-Z]/.test(t) ? "" : "(?i)"}${quoted(literal(t))}"`;
}

/** The predicate, and that the function itself ran. */
export function andLeaf(text: string, name: string): string {
  const leaf = `leaf="${quoted(name)}"`;
  const t = asPredicate(text);
  return t === "" || t === leaf ? leaf : `(${t}) and ${leaf}`;
}

export interface Offer {
  label: string;
  /** The whole text when it is taken, and where the cursor is then. */
  text: string;
  at: number;
}

/** The string that the cursor is in: where it starts, and whether it is one of a regular expression. */
function openString(text: string, at: number): { start: number; regex: boolean } | null {
  let start = -1;
  for (let i = 0; i < at; i++) {
    if (text[i] === "\\" && start >= 0)
      i++;
    else if (text[i] === '"')
      start = start < 0 ? i + 1 : -1;
  }
  return start < 0 ? null : { start, regex: text[start - 2] === "~" };
}

function words(text: string, at: number): Offer[] {
  const before = text.slice(0, at);
  const [word] = /[a-z]*$/.exec(before)!;
  const whole = /"\s*\)*\s*[a-z]*$/.test(before);
  const next = whole ? ['under fn="', 'and fn="', 'or fn="', 'and not fn="'] : ['fn="', 'fn~"', 'not fn="'];
  const head = before.slice(0, at - word.length);
  return next.filter((n) => n.startsWith(word)).map((n) => {
    const gap = head === "" || /[\s(]$/.test(head) ? "" : " ";
    return { label: n, text: head + gap + n + text.slice(at), at: head.length + gap.length + n.length };
  });
}

/** What could stand at the cursor, names of functions first; `names` are those that there are. */
export function complete(text: string, at: number, names: () => string[]): Offer[] {
  const open = openString(text, at);
  if (!open)
    return words(text, at);
  if (open.regex)
    return [];
  const typed = text.slice(open.start, at).replace(/\\(.)/g, "$1").toLowerCase();
  const rank = (n: string): number => {
    const i = n.toLowerCase().indexOf(typed);
    return i < 0 ? -1 : i === 0 ? 0 : 1;
  };
  const end = text.slice(at).match(/^(?:[^"\\]|\\.)*"/)?.[0].length ?? 0;
  return names().map((n) => ({ n, r: rank(n) })).filter((x) => x.r >= 0)
    .sort((a, b) => a.r - b.r || a.n.length - b.n.length || (a.n < b.n ? -1 : 1)).slice(0, OFFERS)
    .map(({ n }) => {
      const head = text.slice(0, open.start) + quoted(n) + '"';
      return { label: n, text: head + text.slice(at + end), at: head.length };
    });
}
