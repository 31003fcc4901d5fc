// SPDX-License-Identifier: Apache-2.0
/* What GET /api/v1/health says about the store, in words for the page. */
import { number, object, text } from "./check.ts";
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
