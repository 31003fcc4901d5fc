// SPDX-License-Identifier: Apache-2.0
/* What is wrong now: GET /api/v1/overview. A finding is a sentence, its base included, and where it leads. */
import type { LiveState } from "./address.ts";
import { array, number, object, text } from "./check.ts";
import { perHour } from "./growth.ts";
import { showable } from "./payload.ts";
import { rate } from "./series.ts";
import { count, duration, percent, value } from "./text.ts";
import { shareText } from "./slow.ts";
import { NO_REQUEST } from "./traces.ts";
import type { Range } from "./times.ts";
import { sampleType, wholeTime } from "./vocab.ts";

export interface Sum {
  processes: number;
  value: number;
}

export interface OverviewService {
  name: string;
  value: number;
  /** null: the time before is not stored. */
  before: number | null;
  requests: number;
  errors: number;
}

/** One kind of finding has some of the numbers; others are 0. */
export interface Finding {
  kind: string;
  service: string;
  /** What is wrong. */
  says: string;
  /** Why: each with its line of code, file "" if that is not known. */
  why: { says: string; file: string; line: number }[];
  /** What the link says, and where it leads. */
  link: string;
  to: Partial<LiveState>;
}

export interface Overview extends Range {
  type: string;
  findings: Finding[];
  services: OverviewService[];
  /** So many there are; `services` may have fewer. */
  all: number;
  total: Sum;
  small: Sum;
  /** culprit itself, if it is left out. */
  self: Sum | null;
  checked: string[];
  notComputed: string[];
}

const ms = (v: number): string => duration(1e6 * v);
const sum = (json: unknown): Sum => ({ processes: number(object(json)["processes"]), value: number(object(json)["value"]) });

type Said = Pick<Finding, "says" | "link" | "to"> & { why?: Finding["why"] };

const at = (o: Record<string, unknown>): { file: string; line: number } => ({ file: text(o["file"] ?? ""), line: number(o["line"] ?? 0) });

function slow(o: Record<string, unknown>, service: string): Said {
  const endpoint = text(o["endpoint"]);
  const n = (k: string): number => number(o[k]);
  const why = array(o["causes"]).map((x) => {
    const c = object(x);
    return { says: `${shareText(1e6 * number(c["ms"]), 1e6 * n("extra_ms"))} is ${text(c["of"]) === "waiting" ? "waiting" : "CPU time"} in ${showable(text(c["name"]))}`, ...at(c) };
  });
  return { says: `${showable(endpoint)} of ${showable(service)} has a slow tail: p99 ${ms(n("p99_ms"))}, median ${ms(n("p50_ms"))}, of ${count(n("requests"))} requests`,
    why: why.length > 0 ? why : [{ says: "No function explains it with certainty", file: "", line: 0 }],
    link: "Why slow?", to: { view: "traces", service, requests: { ...NO_REQUEST, endpoint, show: "slow" } } };
}

function errors(o: Record<string, unknown>, service: string): Said {
  const endpoint = text(o["endpoint"]);
  const [failed, all] = [number(o["errors"]), number(o["requests"])];
  return { says: `${showable(endpoint)} of ${showable(service)} fails: ${count(failed)} of ${count(all)} requests (${percent(failed / all)})`,
    link: "Failed requests", to: { view: "traces", service, requests: { ...NO_REQUEST, endpoint, status: "error" } } };
}

function lock(o: Record<string, unknown>, service: string, types: string[]): Said {
  const name = text(o["lock"]);
  return { says: `${count(number(o["threads"]))} threads of ${showable(service)} waited for one lock, ${showable(name)}: ${ms(number(o["waited_ms"]))} together`,
    link: "Who waited, and for whom", to: { view: "flame", service, type: wholeTime(types)?.waits ?? "", waits: "lock", filters: [{ label: "lock", value: name, not: false }] } };
}

function growth(o: Record<string, unknown>, service: string): Said {
  const type = text(o["type"]);
  const t = sampleType(type);
  const h = (k: string): string => perHour(number(o[k]), t).replace("+", "");
  const where = o["where"] === undefined ? null : object(o["where"]);
  return { says: `Memory of ${showable(service)} grows by ${h("slope")} (95 % interval ${h("low")} to ${h("high")}), and has ${value(number(o["last"]), t.unit, t.name)} now`,
    why: where === null ? [] : [{ says: `${showable(text(where["name"]))} grows most`, ...at(where) }],
    link: "What grows", to: { view: "growth", service, type } };
}

function finding(json: unknown, r: Range, cpuType: string, types: string[]): Finding {
  const o = object(json);
  const kind = text(o["kind"]);
  const service = text(o["service"]);
  const t = sampleType(cpuType);
  const length = r.to - r.from;
  const cpu = (): Said => {
    const [now, then] = [number(o["value"]), number(o["before"])];
    return { says: `${showable(service)} takes ${rate(now, length, t)}, ${(now / then).toFixed(1)} times the ${rate(then, length, t)} of the ${duration(1e6 * length)} before`,
      link: "What changed", to: { view: "compare", service, type: cpuType, range: r, base: { ago: 0, range: { from: r.from - length, to: r.from }, service: null, filters: null } } };
  };
  const said = kind === "slow" ? slow(o, service) : kind === "errors" ? errors(o, service) : kind === "lock" ? lock(o, service, types)
    : kind === "growth" ? growth(o, service) : cpu();
  return { kind, service, says: said.says, why: said.why ?? [], link: said.link, to: said.to };
}

/** types: those that the server has. */
export function readOverview(json: unknown, types: string[]): Overview {
  const o = object(json);
  const r = { from: number(o["from"]), to: number(o["to"]) };
  const type = text(o["type"]);
  const texts = (k: string): string[] => array(o[k]).map(text);
  return { ...r, type, all: number(o["n_services"]), total: sum(o["all"]), small: sum(o["small"]), self: o["self"] === undefined ? null : sum(o["self"]),
    checked: texts("checked"), notComputed: texts("not_computed"), findings: array(o["findings"]).map((f) => finding(f, r, type, types)),
    services: array(o["services"]).map((x) => {
      const s = object(x);
      return { name: text(s["service"]), value: number(s["value"]), before: s["before"] === undefined ? null : number(s["before"]),
        requests: number(s["requests"]), errors: number(s["errors"]) };
    }) };
}

export function isEmpty(o: Overview): boolean {
  return o.services.length === 0 && o.small.processes === 0 && o.findings.length === 0;
}

/** What is looked for, by kind. */
export const CHECKS: [string, string][] = [["slow", "slow requests"], ["errors", "failed requests"], ["cpu", "CPU time against the same time before"],
  ["lock", "locks"], ["growth", "memory that grows"]];
