// SPDX-License-Identifier: Apache-2.0
/* The cost of CPU time. Costs are proportional to time, so the factors of GET /api/v1/cost are enough for any value. */
import { number, object, text } from "./check.ts";
import { three } from "./text.ts";

export interface Factors {
  currency: string;
  /** Price of one CPU for an hour. */
  coreHour: number;
  /** Power of a busy CPU, overhead of the data centre, and emissions of the power. */
  watts: number;
  pue: number;
  gramsPerKwh: number;
}

export function readFactors(json: unknown): Factors {
  const f = object(object(json)["factors"]);
  return { currency: text(f["currency"]), coreHour: number(f["core_hour"]), watts: number(f["watts"]), pue: number(f["pue"]),
    gramsPerKwh: number(f["grams_per_kwh"]) };
}

const MONTH_HOURS = 730;

export interface Cost {
  money: number;
  /** Emissions, kg of CO2. */
  kg: number;
}

/** Extrapolates the cost of `ns` of CPU time in `ms` to a month. */
export function monthly(ns: number, ms: number, f: Factors): Cost {
  const cores = ms > 0 ? ns / 1e6 / ms : 0;
  return { money: cores * MONTH_HOURS * f.coreHour, kg: cores * MONTH_HOURS * f.watts * f.pue / 1000 * f.gramsPerKwh / 1000 };
}

function rounded(v: number): string {
  return v === 0 ? "0" : v < 0.01 ? "<0.01" : three(v);
}

export function costText(c: Cost, f: Factors): string {
  return `${rounded(c.money)} ${f.currency}`;
}

export function costHelp(c: Cost, f: Factors): string {
  return `A month at this rate: ${rounded(c.money)} ${f.currency} (${f.coreHour} per CPU hour), ${rounded(c.kg)} kg of CO₂ ` +
    `(${f.watts} W × ${f.pue}, ${f.gramsPerKwh} g/kWh). The server has options to change these factors (--core-hour-price …).`;
}
