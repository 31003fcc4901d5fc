// SPDX-License-Identifier: Apache-2.0
/* Ranges of time: steps in them, moving them, and how people read and write them. */

export interface Range {
  /** ms since the epoch, half-open. */
  from: number;
  to: number;
}

export const LASTS: [number, string][] = [
  [60, "1 min"], [300, "5 min"], [900, "15 min"], [3600, "1 h"], [21600, "6 h"], [86400, "1 d"], [604800, "7 d"],
];

const SECONDS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86400 };
const LONGEST_S = 400 * 86400;

/** "5m" of 300. */
export function encodeSpan(s: number): string {
  for (const unit of ["d", "h", "m"])
    if (s > 0 && s % SECONDS[unit]! === 0)
      return s / SECONDS[unit]! + unit;
  return s + "s";
}

/** Seconds, or 0 for what is no span. */
export function decodeSpan(text: string): number {
  const [, n, unit] = /^(\d{1,7})([smhd])$/.exec(text) ?? [];
  const s = n === undefined ? 0 : Number(n) * SECONDS[unit!]!;
  return s <= LONGEST_S ? s : 0;
}

/** Moved by a share of itself, not beyond now. */
export function moved(r: Range, by: number, now: number): Range {
  const d = Math.min(Math.round((r.to - r.from) * by), Math.max(0, Math.floor(now) - r.to));
  return { from: Math.max(0, r.from + d), to: r.to + d };
}

/** Twice as long around its middle, not beyond now. */
export function wider(r: Range, now: number): Range {
  const n = Math.min(r.to - r.from, LONGEST_S * 500);
  const to = Math.min(r.to + Math.round(n / 2), Math.max(r.to, Math.floor(now)));
  return { from: Math.max(0, to - 2 * n), to };
}

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800];

/** ms of the finest step that gives no more bars than asked for. */
export function stepFor(r: Range, most: number): number {
  const s = (r.to - r.from) / 1000 / Math.max(1, most);
  return (STEPS_S.find((x) => x >= s) ?? 4 * 604800) * 1000;
}

/** Whole steps: bars of a picture that moves on keep their places. */
export function aligned(r: Range, step: number): Range {
  return { from: Math.floor(r.from / step) * step, to: Math.ceil(r.to / step) * step };
}

const two = (n: number): string => String(n).padStart(2, "0");

export function clock(ms: number, seconds = true): string {
  const d = new Date(ms);
  return `${two(d.getHours())}:${two(d.getMinutes())}` + (seconds ? ":" + two(d.getSeconds()) : "");
}

export function day(ms: number): string {
  const d = new Date(ms);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
}

/** The range; the day where it is not today, or not the same at both ends. */
export function rangeText(r: Range, now: number): string {
  const today = day(now);
  const from = day(r.from) === today && day(r.to) === today ? clock(r.from) : `${day(r.from)} ${clock(r.from)}`;
  return `${from} – ${day(r.to) === day(r.from) ? clock(r.to) : `${day(r.to)} ${clock(r.to)}`}`;
}

export function lastText(s: number): string {
  return LASTS.find(([n]) => n === s)?.[1] ?? encodeSpan(s);
}

/** For <input type="datetime-local" step="1">. */
export function localInput(ms: number): string {
  return `${day(ms)}T${clock(ms)}`;
}

/** Times for an axis: whole steps of local time, at most n of them. */
export function ticks(r: Range, n: number): { at: number; label: string }[] {
  const step = stepFor(r, n);
  const zone = new Date(r.from).getTimezoneOffset() * 60000;
  const out = [];
  for (let at = Math.ceil((r.from - zone) / step) * step + zone; at < r.to; at += step)
    out.push({ at, label: step >= 86400000 || clock(at, false) === "00:00" && r.to - r.from > 86400000
      ? day(at).slice(5) : clock(at, step < 60000) });
  return out;
}
