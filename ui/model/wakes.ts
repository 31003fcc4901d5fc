// SPDX-License-Identifier: Apache-2.0
/*
 * What the stacks of waits tell besides the category: the function that waits, and who ended the wait. The path to a wait is
 * groups, the waiter's stack, and for each known waker (the waker of that one comes last) a note "[woken by NAME]" and its
 * stack from its leaf on; then the category.
 */
import { PLUMBING_FILES, RUNTIME_FILES } from "./owner.ts";
import { base } from "./text.ts";
import { frameName, GROUP, NONE } from "./tree.ts";
import type { Profile } from "./tree.ts";
import { frameKind, waitOfFrame } from "./vocab.ts";
import type { Wait } from "./vocab.ts";

export interface Waited {
  /** Names of the groups: the process, the thread, or the value of a label. */
  groups: string[];
  /** Frame ids, from the root on. */
  stack: number[];
  /** The nearest first; a stack is from its root on, too. */
  wakers: { name: string; stack: number[] }[];
  wait: Wait | undefined;
  value: number;
}

/** The name of the note that leads from a wait to its waker. */
export function wokenBy(name: string): string {
  return `[woken by ${name}]`;
}

/** Calls `visit` for each path that has a value. */
export function eachWait(p: Profile, visit: (w: Waited, node: number) => void): void {
  const { tree, frames } = p;
  const woken = new Map<number, string>();
  const waits = new Map<number, Wait>();
  for (let f = 0; f < frames.n; f++) {
    const kind = p.kinds[frames.kind[f]!]?.name ?? "";
    const name = frameName(p, f);
    const wait = waitOfFrame(kind, name);
    const [, by] = frameKind(kind)?.class === "note" ? /^\[woken by (.*)\]$/.exec(name) ?? [] : [];
    if (wait)
      waits.set(f, wait);
    if (by !== undefined)
      woken.set(f, by);
  }
  const path: number[] = [];
  for (let i = 1; i < tree.n; i++) {
    path.length = tree.depth[i]! - 1;
    path.push(tree.frame[i]!);
    if (tree.self[i]! <= 0)
      continue;
    const w: Waited = { groups: [], stack: [], wakers: [], wait: undefined, value: tree.self[i]! };
    for (const f of path) {
      const by = woken.get(f);
      const wait = waits.get(f);
      if (wait)
        w.wait = wait;
      else if (by !== undefined)
        w.wakers.push({ name: by, stack: [] });
      else if (frames.flags[f]! & GROUP)
        w.groups.push(frameName(p, f));
      else if (w.wakers.length > 0)
        w.wakers[w.wakers.length - 1]!.stack.unshift(f);
      else
        w.stack.push(f);
    }
    visit(w, i);
  }
}

/** Functions of runtimes and libraries that do nothing but lock, wait and wake. */
const PLUMBING = /^(_*pthread_|_*lll_|_*futex(_|$)|_*sem_|syscall|clone3?$|start_thread|std::(__1::)?(mutex|condition_variable|unique_lock|lock_guard|thread)|__gthread|PyThread_|PyMutex_|_PyMutex|_PySemaphore|take_gil|drop_gil|runtime\.|internal\/|sync\.|sync\/|syscall\.|poll\.|java\.util\.concurrent\.locks\.|jdk\.internal\.|java\.lang\.Object\.wait|sun\.|Unsafe|parking_lot|std::sys|std::sync|core::|tokio::park)/;

/** The innermost function of a stack that is the program's own; "" if there is none. */
export function ownFunction(p: Profile, stack: number[]): string {
  const { frames } = p;
  const kindClass = (f: number): string => frameKind(p.kinds[frames.kind[f]!]?.name ?? "")?.class ?? "unknown";
  const managed = stack.some((f) => kindClass(f) === "managed");
  let any = "";
  for (let i = stack.length - 1; i >= 0; i--) {
    const f = stack[i]!;
    const kind = kindClass(f);
    const m = frames.mapping[f]!;
    const file = m === NONE ? "" : base(p.mappings[m]!.path);
    const name = frameName(p, f);
    if (kind === "kernel" || kind === "note" || kind === "unknown")
      continue;
    any ||= name;
    if (!PLUMBING.test(name) && !(kind === "native" && (PLUMBING_FILES.test(file) || (managed && RUNTIME_FILES.test(file)))))
      return name;
  }
  return any;
}

/* ---- the graph ---- */

export interface WakeNode {
  /** 0: threads that waited, 1: who woke them, 2: who woke those … */
  layer: number;
  /** Of a thread; of several, what their names have in common. */
  name: string;
  /** How many names it stands for. */
  names: number;
  /** thread: one name; pool: names that differ in a number; rest: those with little. */
  kind: "thread" | "pool" | "rest";
  value: number;
  /** In the layer, from 0. */
  at: number;
}

export interface WakeEdge {
  /** Indices of nodes: `by` woke `who`. */
  by: number;
  who: number;
  value: number;
  /** What the most of it was waited for. */
  wait: Wait | undefined;
}

export interface WakeGraph {
  nodes: WakeNode[];
  edges: WakeEdge[];
  layers: number;
}

/** Waits by who ended them. */
export interface Wakes {
  /** The thread that waited, who woke it, who woke that one … */
  chains: { names: string[]; wait: Wait | undefined; value: number }[];
  /** Time of the waits whose waker is known, and of all. */
  known: number;
  all: number;
  /** The longest chain, with the thread that waited. */
  longest: number;
}

const MOST_NODES = 9;
/** Threads of one pool are one node if there are so many. */
const POOL = 3;
/** Who ends waits and is no thread, by the name in the stacks. */
export const NO_THREAD = new Map([["an interrupt", "interrupt"], ["a timer", "timer"]]);

/** Waits that nobody was seen to end are in `all` only; for a CPU a thread waits without that anybody has to do something. */
export function readWakes(p: Profile, idle: boolean): Wakes {
  const chains = new Map<string, Wakes["chains"][number]>();
  let [known, all] = [0, 0];
  eachWait(p, (w) => {
    if (w.wait?.id === "RUNNING" || w.wait?.id === "RUNNABLE" || (w.wait?.id === "IDLE" && !idle))
      return;
    all += w.value;
    if (w.wakers.length === 0)
      return;
    known += w.value;
    const names = [w.groups[w.groups.length - 1] ?? "", ...w.wakers.map((x) => x.name)];
    const key = JSON.stringify([names, w.wait?.name]);
    const c = chains.get(key);
    if (c)
      c.value += w.value;
    else
      chains.set(key, { names, wait: w.wait, value: w.value });
  });
  const list = [...chains.values()];
  return { chains: list, known, all, longest: Math.max(0, ...list.map((c) => c.names.length)) };
}

/** "worker-3" and "worker-4" are of one pool. */
function poolOf(name: string): string {
  return name.replace(/\d+/g, "*");
}

/** The nodes of a layer by name. `open`: pools whose threads are apart. */
function layerNodes(sum: Map<string, number>, layer: number, open: Set<string>): Map<string, WakeNode> {
  const pools = new Map<string, number>();
  for (const name of sum.keys())
    pools.set(poolOf(name), (pools.get(poolOf(name)) ?? 0) + 1);
  const of = new Map<string, WakeNode>();
  const nodes = new Map<string, WakeNode>();
  const put = (name: string, key: string, kind: WakeNode["kind"], value: number, names: number): void => {
    const node = nodes.get(key) ?? { layer, name: kind === "thread" ? name : key, names: 0, kind, value: 0, at: 0 };
    node.value += value;
    node.names += names;
    nodes.set(key, node);
    of.set(name, node);
  };
  for (const [name, value] of sum) {
    const pool = poolOf(name);
    if (pools.get(pool)! >= POOL && pool !== name && !open.has(pool))
      put(name, pool, "pool", value, 1);
    else
      put(name, name, "thread", value, 1);
  }
  const list = [...nodes.values()].sort((a, b) => b.value - a.value || (a.name < b.name ? -1 : 1));
  const small = new Set(list.length <= MOST_NODES ? [] : list.slice(MOST_NODES - 1));
  const rest: WakeNode = { layer, name: "", names: 0, kind: "rest", value: 0, at: MOST_NODES - 1 };
  list.forEach((n, at) => n.at = at);
  for (const n of small) {
    rest.value += n.value;
    rest.names += n.names;
  }
  for (const [name, node] of of)
    if (small.has(node))
      of.set(name, rest);
  return of;
}

/** Who woke whom, in at most so many layers. */
export function wakeGraph(w: Wakes, open: Set<string>, most: number): WakeGraph {
  const sums: Map<string, number>[] = [];
  const chains = w.chains.map((c) => ({ ...c, names: c.names.slice(0, most) }));
  for (const c of chains)
    c.names.forEach((name, layer) => {
      const sum = sums[layer] ??= new Map<string, number>();
      sum.set(name, (sum.get(name) ?? 0) + c.value);
    });
  const layers = sums.map((sum, layer) => layerNodes(sum, layer, open));
  const nodes = layers.flatMap((of) => [...new Set(of.values())].sort((a, b) => a.at - b.at));
  const index = new Map(nodes.map((n, i) => [n, i]));
  const edges = new Map<string, WakeEdge & { waits: Map<Wait | undefined, number> }>();
  for (const c of chains)
    for (let i = 0; i + 1 < c.names.length; i++) {
      const [who, by] = [index.get(layers[i]!.get(c.names[i]!)!)!, index.get(layers[i + 1]!.get(c.names[i + 1]!)!)!];
      const key = `${by} ${who}`;
      let e = edges.get(key);
      if (!e)
        edges.set(key, e = { by, who, value: 0, wait: undefined, waits: new Map() });
      e.value += c.value;
      e.waits.set(c.wait, (e.waits.get(c.wait) ?? 0) + c.value);
      if (e.waits.get(c.wait)! >= (e.waits.get(e.wait) ?? 0))
        e.wait = c.wait;
    }
  return { nodes, layers: sums.length,
    edges: [...edges.values()].sort((a, b) => nodes[a.who]!.layer - nodes[b.who]!.layer || b.value - a.value) };
}
