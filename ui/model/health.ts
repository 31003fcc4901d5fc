// SPDX-License-Identifier: Apache-2.0
/* What GET /api/v1/health says about the store and the server, in words for the page. */
import { array, number, object, text } from "./check.ts";
import { count } from "./text.ts";
import { clock, day } from "./times.ts";
import type { Range } from "./times.ts";

/** Returns what the reader of this range should know; "": nothing. Damage concerns answers, which say so themselves. */
export function healthText(json: unknown, range: Range): string {
  const o = object(json);
  const status = text(o["status"]);
  if (status !== "ok" && status !== "damaged")
    return `The server cannot store new data: ${status}`;
  const limits: [number, string, string][] = [[number(o["evicted_to"]), "Samples", "--max-size"], [number(o["spans_evicted_to"]), "Spans", "--spans-max-size"]];
  return limits.filter(([to]) => to > range.from).map(([to, what, option]) =>
    `${what} up to ${day(to)} ${clock(to, false)} were deleted, because the store has reached ${option}.`).join(" ");
}

/** Returns what was refused, stopped or deleted since the server started, the latest first. */
export function eventTexts(json: unknown): string[] {
  const events = array(object(json)["events"]).map((e) => {
    const x = object(e);
    return { text: text(x["text"]), count: number(x["count"]), last: number(x["last"]) };
  });
  return events.sort((a, b) => b.last - a.last).map((e) => `${count(e.count)} ${e.text}; the last at ${day(e.last)} ${clock(e.last, false)}.`);
}
