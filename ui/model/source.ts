// SPDX-License-Identifier: Apache-2.0
/* A source file with the values of its lines: GET /api/v1/source. */
import { array, number, object, text } from "./check.ts";

export interface SourceLine {
  line: number;
  self: number;
  total: number;
  /** null: not known. */
  text: string | null;
}

export interface SourceFile {
  file: string;
  type: string;
  unit: string;
  /** Of everything that was asked for. */
  all: number;
  self: number;
  total: number;
  /** Why there is no text, "" when there is. */
  why: string;
  /** The file in its repository, by version ("": not known); {line} stands for a line. */
  links: { version: string; url: string }[];
  /** All lines of the text; without one those that have values. */
  lines: SourceLine[];
  /** Values of no known line. */
  unknown: { self: number; total: number };
}

export function readSource(json: unknown): SourceFile {
  const o = object(json);
  const all = array(o["text"]).map(text);
  const values = new Map<number, [number, number]>();
  for (const l of array(o["lines"])) {
    const [line, self, total] = array(l).map(number) as [number, number, number];
    values.set(line, [self, total]);
  }
  const [self, total] = values.get(0) ?? [0, 0];
  values.delete(0);
  // A file that was changed since may have fewer lines.
  const lines: SourceLine[] = all.map((t, i) => {
    const [s, v] = values.get(i + 1) ?? [0, 0];
    return { line: i + 1, self: s, total: v, text: t };
  });
  for (const [line, [s, v]] of [...values].sort((a, b) => a[0] - b[0]))
    if (line > all.length)
      lines.push({ line, self: s, total: v, text: null });
  return {
    file: text(o["file"]), type: text(o["type"]), unit: text(o["unit"]), all: number(o["all"]), self: number(o["self"]),
    total: number(o["total"]), why: text(o["why"]), links: array(o["links"] ?? []).map((x) => ({ version: text(object(x)["version"]), url: text(object(x)["url"]) }))
      .filter((l) => /^https?:\/\//.test(l.url)), lines, unknown: { self, total },
  };
}

const indent = (text: string): number => text.length - text.trimStart().length;

/** Behind the last line of what begins at index `at`, by its indentation, which most languages are written with. */
function endOf(s: SourceFile, at: number): number {
  const own = indent(s.lines[at]!.text ?? "");
  for (let i = at + 1; i < s.lines.length; i++) {
    const t = s.lines[i]!.text;
    if (t === null || (t.trim() !== "" && indent(t) <= own && !/^\s*[{)\]]/.test(t)))
      return i;
  }
  return s.lines.length;
}

/**
 * Where a function begins is rarely what ran: its line that most goes through, with what that calls, else the next line that
 * ran. 0: the hottest of all.
 */
export function lookedAt(s: SourceFile, line: number): number {
  const at = line > 0 ? s.lines.findIndex((l) => l.line >= line) : -1;
  if (at < 0)
    return hottest(s);
  let own = -1;
  for (let i = at; i < endOf(s, at); i++)
    if (s.lines[i]!.total > (s.lines[own]?.total ?? 0))
      own = i;
  const next = s.lines.findIndex((l, i) => i >= at && l.total > 0);
  return own >= 0 ? own : next >= 0 ? next : hottest(s);
}

/** Index of the line in which most stacks end, else that most go through; -1 when there is none. */
export function hottest(s: SourceFile): number {
  let best = -1;
  s.lines.forEach((l, i) => {
    const b = s.lines[best];
    if (l.total > 0 && (!b || l.self > b.self || (l.self === b.self && l.total > b.total)))
      best = i;
  });
  return best;
}
