// SPDX-License-Identifier: Apache-2.0
/* What threads waited for, as rows of tables by category, lock and peer, and as filters. */
import type { Filter } from "./address.ts";
import { without } from "./address.ts";
import type { Lines } from "./series.ts";
import type { Profile } from "./tree.ts";
import { WAIT_LABEL, waitNamed } from "./vocab.ts";
import type { Wait } from "./vocab.ts";
import { eachWait, ownFunction } from "./wakes.ts";
import type { Waited } from "./wakes.ts";

export interface WaitRow {
  /** As the server names it; "" for samples that do not tell. */
  name: string;
  /** Undefined for a name that is not in the table. */
  wait: Wait | undefined;
  value: number;
  share: number;
  /** The number of samples; -1: not known. */
  count: number;
}

function withShares<T extends { value: number; share: number }>(rows: T[], name: (r: T) => string): T[] {
  const all = rows.reduce((sum, r) => sum + r.value, 0);
  for (const r of rows)
    r.share = all > 0 ? r.value / all : 0;
  return rows.sort((a, b) => b.value - a.value || (name(a) < name(b) ? -1 : 1));
}

/** The categories, heaviest first; of an answer that is grouped by WAIT_LABEL. */
export function waitRows(l: Lines): WaitRow[] {
  const rows = l.lines.map((line) => {
    const name = line.labels[WAIT_LABEL] ?? "";
    const row: WaitRow = { name, wait: waitNamed(name), value: 0, share: 0, count: 0 };
    for (const [, v, n] of line.points) {
      row.value += v;
      row.count += n;
    }
    return row;
  });
  return withShares(rows, (r) => r.name);
}

/** The categories of a profile in a file, which does not tell how many waits there were. */
export function profileWaits(p: Profile): WaitRow[] {
  const rows = new Map<string, WaitRow>();
  eachWait(p, (w) => {
    const name = w.wait?.name ?? "";
    const row = rows.get(name) ?? { name, wait: w.wait, value: 0, share: 0, count: -1 };
    row.value += w.value;
    rows.set(name, row);
  });
  return withShares([...rows.values()], (r) => r.name);
}

/** Time that threads had nothing to do, apart from the other rows, whose shares are then of the rest. */
export function splitIdle(rows: WaitRow[], shown: boolean): { rows: WaitRow[]; idle: number } {
  const idle = rows.filter((r) => r.wait?.id === "IDLE").reduce((sum, r) => sum + r.value, 0);
  return { rows: shown || idle === 0 ? rows : withShares(rows.filter((r) => r.wait?.id !== "IDLE"), (r) => r.name), idle };
}

/** The chosen category, "" for all. */
export function waitOf(filters: Filter[]): string {
  return chosenOf(filters, WAIT_LABEL);
}

export function chosenOf(filters: Filter[], label: string): string {
  return filters.find((f) => f.label === label && !f.not)?.value ?? "";
}

/** The filters with only these values of their labels, or without these labels if they were chosen already. */
export function toggle(filters: Filter[], values: Record<string, string>): Filter[] {
  const all = Object.entries(values).filter(([, value]) => value !== "");
  const were = all.every(([label, value]) => chosenOf(filters, label) === value);
  const rest = Object.keys(values).reduce(without, filters);
  return were ? rest : [...rest, ...all.map(([label, value]) => ({ label, value, not: false }))];
}

/** The filters with only this category, or with all if it was chosen already. */
export function toggleWait(filters: Filter[], name: string): Filter[] {
  return toggle(filters, { [WAIT_LABEL]: name });
}

const IDLE = "idle";

/** The filters for samples without those of threads that have nothing to do, unless the reader asks for these. */
export function withoutIdle(filters: Filter[], hasWaits: boolean, idle: boolean): Filter[] {
  return !hasWaits || idle || filters.some((f) => f.label === WAIT_LABEL && f.value === IDLE) ? filters
    : [...filters, { label: WAIT_LABEL, value: IDLE, not: true }];
}

/* ---- by lock, by peer ---- */

export type ObjectLabel = "lock" | "peer";

/** A weight by name, heaviest first. */
export interface Part {
  name: string;
  value: number;
}

export interface ObjectRow {
  service: string;
  /** "" if it is not known, or several are one row. */
  process: string;
  /** The lock's address, or the peer's. */
  name: string;
  value: number;
  share: number;
  count: number;
  /** Names of the threads that waited; without ids some may be several threads. */
  threads: Part[];
  /** Ids of threads that had the lock. */
  owners: Part[];
  /** Functions that waited. */
  where: Part[];
  /** Who ended the waits; without --wakers empty. */
  wakers: Part[];
}

/** The labels by which the server's answer is grouped. */
export const objectGroups = (label: ObjectLabel): string[] => ["service.name", "process.pid", label, "owner", "thread.name", "thread.id"];

function add(to: Map<string, number>, name: string, value: number): void {
  to.set(name, (to.get(name) ?? 0) + value);
}

function parts(m: Map<string, number> | undefined): Part[] {
  return [...m ?? []].map(([name, value]) => ({ name, value })).sort((a, b) => b.value - a.value || (a.name < b.name ? -1 : 1));
}

/** A thread's first samples are without its id: they join the rest if only one thread has the name. */
function joinThreads(threads: Map<string, number>): void {
  const ids = new Map<string, string[]>();
  for (const key of threads.keys()) {
    const [name, id] = key.split("\0");
    if (id !== undefined)
      ids.set(name!, [...ids.get(name!) ?? [], key]);
  }
  for (const [name, [key, ...more]] of ids)
    if (threads.has(name) && more.length === 0) {
      add(threads, key!, threads.get(name)!);
      threads.delete(name);
    }
}

interface Gathered {
  row: ObjectRow;
  threads: Map<string, number>;
  owners: Map<string, number>;
}

/**
 * Rows of an answer that is grouped by objectGroups(); `stacks` is the flame graph whose first level is the label. One
 * address in several services is several locks, but one in the flame graph: then the stacks tell nothing.
 */
export function objectRows(l: Lines, label: ObjectLabel, stacks: Profile,
                           each = (visit: (name: string, w: Waited) => void): void => eachWait(stacks, (w) => visit(w.groups[0] ?? "", w))): ObjectRow[] {
  const of = (line: Lines["lines"][number], name: string): string => line.labels[name] ?? "";
  // A thread that lives for a moment has no process; if there is only one, the thread is of it.
  const processes = new Map<string, Set<string>>();
  const place = (line: Lines["lines"][number]): string => JSON.stringify([of(line, "service.name"), of(line, label)]);
  for (const line of l.lines)
    if (of(line, "process.pid") !== "")
      processes.set(place(line), (processes.get(place(line)) ?? new Set()).add(of(line, "process.pid")));
  const rows = new Map<string, Gathered>();
  for (const line of l.lines) {
    const known = processes.get(place(line));
    const process = of(line, "process.pid") || (known?.size === 1 ? [...known][0]! : "");
    const key = place(line) + process;
    let g = rows.get(key);
    if (of(line, label) === "")
      continue;
    if (!g)
      rows.set(key, g = { threads: new Map(), owners: new Map(), row: { service: of(line, "service.name"), process, name: of(line, label),
        value: 0, share: 0, count: 0, threads: [], owners: [], where: [], wakers: [] } });
    for (const [, v, n] of line.points) {
      g.row.value += v;
      g.row.count += n;
      const id = of(line, "thread.id");
      add(g.threads, of(line, "thread.name") + (id && `\0${id}`), v);
      // What looks like an owner's id behind a word that is no mutex can be any number; nobody waits for himself.
      if (of(line, "owner") !== "" && of(line, "owner") !== id)
        add(g.owners, of(line, "owner"), v);
    }
  }
  const [where, wakers] = [new Map<string, Map<string, number>>(), new Map<string, Map<string, number>>()];
  const inner = (m: Map<string, Map<string, number>>, name: string): Map<string, number> => {
    let x = m.get(name);
    if (!x)
      m.set(name, x = new Map());
    return x;
  };
  each((name, w) => {
    add(inner(where, name), ownFunction(stacks, w.stack) || "not known", w.value);
    if (w.wakers.length > 0) {
      const [by] = w.wakers;
      const fn = ownFunction(stacks, by!.stack);
      add(inner(wakers, name), by!.name + (fn && `\0${fn}`), w.value);
    }
  });
  const services = new Map<string, Set<string>>();
  for (const { row } of rows.values())
    services.set(row.name, (services.get(row.name) ?? new Set()).add(row.service + "\0" + row.process));
  return withShares([...rows.values()].map(({ row, threads, owners }) => {
    joinThreads(threads);
    const alone = services.get(row.name)!.size === 1;
    return { ...row, threads: parts(threads), owners: parts(owners), where: alone ? parts(where.get(row.name)) : [],
      wakers: alone ? parts(wakers.get(row.name)) : [] };
  }), (r) => r.name);
}

/** Names of threads by id, of an answer that is grouped by thread.id and thread.name. */
export function threadNames(l: Lines): Map<string, string> {
  return new Map(l.lines.map((line) => [line.labels["thread.id"] ?? "", line.labels["thread.name"] ?? ""]));
}
