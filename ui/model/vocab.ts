// SPDX-License-Identifier: Apache-2.0
/*
 * What values, kinds of frames and waits mean, by the tables in abi/tbl. Nothing else in the page knows a type or a kind
 * by name. What is not in the tables is shown under its own name.
 */
import { FRAME_KINDS, SAMPLE_TYPES, UNITS, WAITS } from "./vocab.gen.ts";

export interface SampleType {
  /** Of the row in the table; "" for a type without one. */
  id: string;
  name: string;
  unit: string;
  /** The group, first part of "process_cpu:cpu:nanoseconds:cpu:nanoseconds". */
  profile: string;
  /** As people read it: "Page faults". */
  label: string;
  /** What a value per time counts: "cores", "faults"; of a count without a row its own name; else "". */
  rate: string;
  /** A state ("at_moment") has no rate, and several of them no sum. */
  adds: "over_time" | "at_moment";
  /** Time on a CPU, which costs money. */
  isCpu: boolean;
  help: string;
}

export interface Unit {
  id: string;
  name: string;
  /** 0 for what is not time. */
  perSecond: number;
}

export interface FrameKind {
  name: string;
  /** What several kinds have in common. */
  class: "unknown" | "kernel" | "native" | "managed" | "note";
  /** Degrees in OKLCH, and the part of the usual chroma. */
  hue: number;
  chroma: number;
  help: string;
}

export interface Wait {
  id: string;
  /** The value of the label WAIT_LABEL. */
  name: string;
  /** Colours of the two themes. */
  light: string;
  dark: string;
  help: string;
}

/** What is of runtimes and libraries; owner.ts says how these are applied. */
export interface OwnerRule {
  what: string;
  kind: string;
  pattern: string;
}

const unitOf = (name: string): Unit | undefined => UNITS.find((u) => u.name === name);

/** Of the row in the table; "" for a unit without one. */
export function unitId(unit: string): string {
  return unitOf(unit)?.id ?? "";
}

/** Values of a unit in a second; 0 for what is not time. */
export function perSecond(unit: string): number {
  return unitOf(unit)?.perSecond ?? 0;
}

/** Nanoseconds of a unit of time; 0 for any other unit. */
export function nanoseconds(unit: string): number {
  const n = perSecond(unit);
  return n > 0 ? 1e9 / n : 0;
}

/** Units of time are one unit, and some profilers give samples the unit "samples" instead of "count". */
function hasUnit(t: SampleType, unit: string): boolean {
  return t.unit === unit || (perSecond(t.unit) > 0 && perSecond(unit) > 0) || (unitId(t.unit) === "COUNT" && unit === t.name);
}

function find(name: string, unit: string, profile: string | null): SampleType | undefined {
  return SAMPLE_TYPES.find((t) => t.name === name && hasUnit(t, unit) && (profile === null || t.profile === profile));
}

/** By what a profile says of its values; the unit stays the profile's. Clients may name the group as they like. */
export function valueType(name: string, unit: string, profile = ""): SampleType {
  const known = find(name, unit, profile) ?? find(name, unit, null);
  return known ? { ...known, unit, profile: profile || known.profile }
    : { id: "", name, unit, profile, label: name, rate: unitId(unit) === "COUNT" ? name : "", adds: "over_time", isCpu: false, help: "" };
}

/** The name under which a server stores what culprit's agents record of a type. */
export function nameOfType(id: string): string {
  const { profile, name, unit } = SAMPLE_TYPES.find((t) => t.id === id)!;
  return [profile, name, unit, name, unit].join(":");
}

/** Two types whose values the server adds: CPU time and waits are the whole time of threads. */
export function sumOf(type: string): [type: string, also: string] | null {
  const [a, b, ...more] = type.split("+");
  return a && b && more.length === 0 && a.includes(":") && b.includes(":") ? [a, b] : null;
}

/** Whether it has the stacks of kept requests; of a type that is stored under another group of its name, the period tells. */
export function isOfKept(type: string): boolean {
  const t = SAMPLE_TYPES.find((x) => x.id === "REQUEST_WALL")!;
  const [, name, , period] = type.split(":");
  return sampleType(type).id === t.id || (name === t.name && period === t.profile);
}

/** CPU time, waits and both, of the types that a server has; null without waits. */
export function wholeTime(types: string[]): { cpu: string; waits: string; both: string } | null {
  const waits = types.find((t) => sampleType(t).id === "OFF_CPU");
  const cpu = types.find((t) => sampleType(t).id === "CPU" && sampleType(t).unit === sampleType(waits ?? "").unit);
  return cpu && waits ? { cpu, waits, both: `${cpu}+${waits}` } : null;
}

/** Whether samples tell what their thread waited for. */
export function hasWaits(t: SampleType): boolean {
  return t.id === "OFF_CPU" || t.id === "WALL";
}

/** Of "process_cpu:cpu:nanoseconds:cpu:nanoseconds", or of a sum of two. */
export function sampleType(type: string): SampleType {
  const sum = sumOf(type);
  if (sum)
    return { ...SAMPLE_TYPES.find((t) => t.id === "WALL")!, unit: sampleType(sum[0]).unit };
  const [profile = "", name, unit, period, periodUnit] = type.split(":");
  const t = valueType(name || profile, unit ?? "", profile);
  if (!countsSamples(t) || find(t.name, t.unit, profile))
    return t;
  // Samples of something other than the usual.
  const of = find(period ?? "", periodUnit ?? "", profile)?.label ?? profile;
  return { ...t, label: of ? `${t.label} (${of})` : t.label };
}

/** Each value is as many samples. */
export function countsSamples(t: SampleType): boolean {
  return t.id === "SAMPLES" || t.id === "AFTER";
}

/** The label of a sample with what its thread waited for. */
export const WAIT_LABEL = "wait";
/** The label of a sample with the lock that its thread had while others waited for it. */
export const HOLDS_LABEL = "holds";

const WAIT_BY_NAME = new Map(WAITS.filter((w) => w.name !== "").map((w) => [w.name, w]));

/** Running at the bottom of a stack, waits for work at its top. */
export const WAIT_ORDER: readonly Wait[] = WAITS.filter((w) => w.name !== "");

/** Undefined for what is not in the table. */
export function waitNamed(name: string): Wait | undefined {
  return WAIT_BY_NAME.get(name);
}

/** The leaf "[lock]" of a stack; undefined for code, whatever it is called. */
export function waitOfFrame(kind: string, name: string): Wait | undefined {
  return kind === "wait" && /^\[.*\]$/.test(name) ? waitNamed(name.slice(1, -1)) : undefined;
}

const KINDS = new Map(FRAME_KINDS.map((k) => [k.name, k]));

/** Undefined for a kind that is not in the table. */
export function frameKind(name: string): FrameKind | undefined {
  return KINDS.get(name);
}
