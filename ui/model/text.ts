// SPDX-License-Identifier: Apache-2.0
/* Numbers and names as people read them. */
import { nanoseconds, unitId, valueType } from "./vocab.ts";

export const MINUS = "−";

/**
 * A share in percent: one decimal, two below 0.1 %, none from 100 % on, so that columns line up. Never 0 for what is
 * there, never 100 for what is not all.
 */
export function percent(share: number): string {
  const v = 100 * share;
  if (!(v > 0))
    return v < 0 ? MINUS + percent(-share) : "0 %";
  if (v < 0.01)
    return "<0.01 %";
  if (v >= 99.95)
    return v < 100 ? ">99.9 %" : `${count(v)} %`;
  return `${v.toFixed(v < 0.095 ? 2 : 1)} %`;
}

// toLocaleString() would make one of these for each number: 50 µs.
const GROUPED = new Intl.NumberFormat("en-US");

export function count(v: number): string {
  const n = Math.round(v);
  return n < 0 ? MINUS + GROUPED.format(-n) : GROUPED.format(n);
}

/** Three digits: 1.23, 12.3, 123. */
export function three(v: number): string {
  return v < 9.995 ? v.toFixed(2) : v < 99.95 ? v.toFixed(1) : count(v);
}

function scaled(v: number, units: [number, string][]): string {
  if (v < 0)
    return MINUS + scaled(-v, units);
  const [size, name] = units.find(([s]) => v >= s) ?? [0, units[units.length - 1]![1]];
  return `${size > 1 ? three(v / size) : count(v)} ${name}`;
}

export function duration(ns: number): string {
  return scaled(ns, [[3.6e12, "h"], [6e10, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]);
}

/** A value with its unit as the profile names it. */
export function value(v: number, unit: string, type = ""): string {
  const ns = nanoseconds(unit);
  if (ns > 0)
    return duration(v * ns);
  switch (unitId(unit)) {
  case "BYTES":
    return scaled(v, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]);
  case "COUNT":
    return `${count(v)} ${valueType(type, unit).rate}`.trim();
  default:
    return unit ? `${count(v)} ${unit}` : count(v);
  }
}

export function signed(text: string, v: number): string {
  return v > 0 ? "+" + text : text;
}

/** "1 sample", "1,234 samples" */
export function plural(n: number, what: string, many = what + "s"): string {
  return `${count(n)} ${Math.round(n) === 1 ? what : many}`;
}

/** The last part of a path. */
export function base(path: string): string {
  const i = path.lastIndexOf("/");
  return i < 0 ? path : path.slice(i + 1);
}

const DOTS = "…";

/**
 * Cuts a name in its middle so that it fits: the end of a name tells the function, its start the
 * namespace. `widths(i)` is the width of the first i UTF-16 units. Gives "" when not even a letter
 * and the dots fit.
 */
export function cutMiddle(s: string, max: number, widths: (n: number) => number,
                          dots: number): string {
  const all = widths(s.length);
  if (all <= max)
    return s;
  const room = max - dots;
  if (room <= 0)
    return "";
  // The end tells more, but a name is known by its first letter.
  const head = Math.max(room * 0.45, Math.min(room, widths(1)));
  let lo = 0;
  let hi = s.length;
  while (lo < hi) {
    const mid = (lo + hi + 1) >> 1;
    if (widths(mid) <= head)
      lo = mid;
    else
      hi = mid - 1;
  }
  let a = lo;
  const rest = room - widths(a);
  lo = a;
  hi = s.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (all - widths(mid) <= rest)
      hi = mid;
    else
      lo = mid + 1;
  }
  let b = lo;
  // Never between the two halves of a surrogate pair.
  if (a > 0 && isHigh(s.charCodeAt(a - 1)))
    a--;
  if (b < s.length && isLow(s.charCodeAt(b)))
    b++;
  if (a === 0 && b >= s.length)
    return "";
  return s.slice(0, a) + DOTS + s.slice(b);
}

function isHigh(c: number): boolean {
  return c >= 0xd800 && c < 0xdc00;
}

function isLow(c: number): boolean {
  return c >= 0xdc00 && c < 0xe000;
}

export interface NameParts {
  /** Return type, namespaces, classes, package path: "std::vector<int>::". */
  scope: string;
  /** What the function is called: "push_back", with its own template arguments. */
  base: string;
  /** Parameters and what follows them: "(int const&) const". */
  rest: string;
}

const QUALIFIERS = [" const", " volatile", " noexcept"];

/**
 * Length without what may follow the parameters: " const", " &", " [clone .cold]", " (.isra.0)". By hand,
 * because names are hostile and a regular expression that repeats choices is not linear.
 */
function withoutQualifiers(s: string): number {
  let end = s.length;
  for (;;) {
    const word = QUALIFIERS.find((q) => s.endsWith(q, end));
    if (word) {
      end -= word.length;
    } else if (s[end - 1] === "&") {
      end -= s[end - 2] === " " ? 2 : 1;
    } else if (s[end - 1] === "]" || (s[end - 1] === ")" && s.lastIndexOf("(.", end) === s.lastIndexOf("(", end))) {
      const open = s.lastIndexOf(s[end - 1] === "]" ? "[" : "(", end);
      if (open < 1 || s[open - 1] !== " ")
        return end;
      end = open - 1;
    } else {
      return end;
    }
  }
}

/** Where the bracket that is closed at `end` was opened, or -1. */
function opened(s: string, end: number): number {
  let depth = 0;
  for (let i = end; i >= 0; i--) {
    if (s[i] === ")")
      depth++;
    else if (s[i] === "(" && --depth === 0)
      return i;
  }
  return -1;
}

/**
 * Takes a demangled C++ or Rust name, or a path-like one (Go), apart so that the parts can be left
 * out in the order in which they matter least. scope + base + rest is always the whole name; a name
 * of another kind is all base.
 */
export function nameParts(name: string): NameParts {
  let rest = "";
  const tail = withoutQualifiers(name);
  if (tail > 0 && name[tail - 1] === ")") {
    const at = opened(name, tail - 1);
    const before = name.slice(0, Math.max(at, 0));
    // "operator()" is a name; "(anonymous namespace)" and "{lambda(int)#1}" do not end in ")" here.
    if (at > 0 && !/(^|\W)operator$/.test(before) && !/(::|[\s.])$/.test(before))
      rest = name.slice(at);
  }
  const head = name.slice(0, name.length - rest.length);
  const operator = /(^|[\s:])operator(?!\w)/.exec(head);
  const end = operator ? operator.index + operator[1]!.length : head.length;
  let depth = 0;
  let from = 0;
  let slash = 0;
  for (let i = 0; i < end; i++) {
    const c = head[i]!;
    if (c === "<" || c === "(" || c === "[" || c === "{")
      depth++;
    else if ((c === ">" && head[i - 1] !== "-") || c === ")" || c === "]" || c === "}")
      depth--;
    else if (depth === 0 && (c === " " || (c === ":" && head[i - 1] === ":")) && i + 1 < head.length)
      from = i + 1;
    else if (depth === 0 && c === "/" && i + 1 < head.length)
      slash = i + 1;
  }
  if (from === 0 && !operator)
    from = slash;
  // Brackets that do not match are no name that we know.
  if (depth !== 0)
    return { scope: "", base: name, rest: "" };
  return { scope: head.slice(0, from), base: head.slice(from), rest };
}

/** The name, and ever shorter ways to say it. */
export function shorter(name: string): string[] {
  const { scope, base: own, rest } = nameParts(name);
  const forms = [name];
  if (rest !== "")
    forms.push(scope + own);
  if (scope !== "")
    forms.push(own);
  const bare = /^[\w~$]{3,}(?=<.*>$)/.exec(own);
  if (bare)
    forms.push(bare[0]);
  return forms;
}
