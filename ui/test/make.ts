// SPDX-License-Identifier: Apache-2.0
/*
 * Profiles for tests: from folded lines, or large ones by a seeded generator; and an encoder of the
 * payload written from doc/format/html.md, so that reader and format page check each other.
 */
import { deflateSync } from "node:zlib";
import { buildTree, GROUP, INLINED, NONE } from "../model/tree.ts";
import type { Profile } from "../model/tree.ts";
import { waitOfFrame } from "../model/vocab.ts";

const KINDS = ["unknown", "kernel", "native", "jit", "note", "wait"];

interface Node {
  name: string;
  kids: Map<string, Node>;
  self: number;
  base: number;
}

/**
 * "a;b;c 3" or, for a comparison, "a;b;c 3 5" (before, after). First level: processes. As in culprit's
 * own trees, siblings of one name are two only in user and kernel code.
 */
export function fromFolded(lines: string[]): Profile {
  const root: Node = { name: "all", kids: new Map(), self: 0, base: 0 };
  let diff = false;
  for (const line of lines) {
    const [, stack, a, b] = /^(.*?) (\d+)(?: (\d+))?$/.exec(line)!;
    let at = root;
    for (const name of stack === "" ? [] : stack!.split(";")) {
      const key = name.replace(/_\[[ij]\]$/, "");
      let k = at.kids.get(key);
      if (!k)
        at.kids.set(key, k = { name, kids: new Map(), self: 0, base: 0 });
      else if (key === name)
        k.name = name;
      at = k;
    }
    diff ||= b !== undefined;
    at.self += Number(b ?? a);
    at.base += b === undefined ? 0 : Number(a);
  }
  const strings = [""];
  const ids = new Map<string, number>([["", 0]]);
  const text = (s: string): number => {
    let i = ids.get(s);
    if (i === undefined)
      ids.set(s, i = strings.push(s) - 1);
    return i;
  };
  const frames: { name: number; kind: number; flags: number }[] = [];
  const known = new Map<string, number>();
  const frame: number[] = [];
  const depth: number[] = [];
  const self: number[] = [];
  const base: number[] = [];
  const walk = (n: Node, d: number): void => {
    const [, bare, suffix] = /^([^]*?)(_\[[kij]\])?$/.exec(n.name)!;
    const kind = suffix === "_[k]" ? 1 : suffix === "_[j]" ? 3 : /^\[(truncated|woken by )/.test(bare!) ? 4
      : waitOfFrame("wait", bare!) ? 5 : 2;
    const flags = (suffix === "_[i]" ? INLINED : 0) | (d < 2 ? GROUP : 0);
    const key = `${bare} ${kind} ${flags}`;
    let f = known.get(key);
    if (f === undefined)
      known.set(key, f = frames.push({ name: text(bare!), kind, flags }) - 1);
    frame.push(f);
    depth.push(d);
    self.push(n.self);
    base.push(n.base);
    for (const k of [...n.kids.keys()].sort())
      walk(n.kids.get(k)!, d + 1);
  };
  walk(root, 0);
  const n = frames.length;
  return {
    strings,
    kinds: KINDS.map((name) => ({ name, help: `help of ${name}` })),
    mappings: [],
    frames: {
      n, name: Uint32Array.from(frames, (f) => f.name), kind: Uint8Array.from(frames, (f) => f.kind),
      flags: Uint8Array.from(frames, (f) => f.flags), file: new Uint32Array(n),
      line: new Uint32Array(n), mapping: new Uint32Array(n).fill(NONE),
    },
    tree: buildTree(Uint32Array.from(frame), Uint32Array.from(depth), Float64Array.from(self),
                    diff ? Float64Array.from(base) : null),
    meta: {
      title: "test", generator: "test", type: "samples", unit: "count", timeMs: 0, durationNs: 0, hz: 0,
      quality: { samples: -1, lost: -1, truncated: -1, unknown: -1, frames: -1, userStacks: -1, limited: "" },
      baseTitle: "", baseSamples: -1, normalise: false,
    },
  };
}

/** mulberry32: the same numbers on every machine. */
export function random(seed: number): () => number {
  let a = seed;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** Folded lines of about `n` distinct stacks, in the shape that real profiles have. */
export function syntheticLines(n: number, seed = 1): string[] {
  const r = random(seed);
  const pick = <T>(a: T[]): T => a[Math.floor(r() * a.length)]!;
  const names = Array.from({ length: 900 }, (_, i) =>
    pick(["parse", "read", "hash", "encode", "poll", "lookup", "insert", "walk", "alloc", "copy", "scan", "emit"]) +
    pick(["_node", "_tuple", "Buffer", "_page", "Json", "_slot", "_entry", "Stream", "<std::string, int>"]) + `_${i}`);
  const kernel = ["do_syscall_64", "vfs_read", "ext4_file_read_iter", "copy_user", "tcp_sendmsg", "schedule",
    "finish_task_switch", "handle_mm_fault"];
  const processes = ["cc1plus", "nginx", "postgres", "redis-server", "node", "python3", "culprit", "kworker/u8:2"];
  const out = new Map<string, number>();
  const stacks: string[][] = processes.map((p) => [p, "_start", "__libc_start_main", "main"]);
  while (out.size < n) {
    // New stacks branch off from old ones, most of them near the leaf.
    const old = pick(stacks);
    const keep = Math.max(4, Math.floor(old.length * (0.35 + 0.65 * Math.sqrt(r()))));
    const s = old.slice(0, keep);
    for (let more = 1 + Math.floor(r() * 9); more > 0 && s.length < 90; more--)
      s.push(pick(names) + (r() < 0.14 ? "_[i]" : r() < 0.02 ? "_[j]" : ""));
    if (r() < 0.15)
      stacks.push(s);
    const leaf = r() < 0.18 ? [...s, "entry_SYSCALL_64_[k]", pick(kernel) + "_[k]", pick(kernel) + "_[k]"] : s;
    const key = leaf.join(";");
    out.set(key, (out.get(key) ?? 0) + 1 + Math.floor(6 * r() ** 4 / (0.05 + r())));
    if (stacks.length < 60)
      stacks.push(s);
  }
  return [...out].map(([k, v]) => `${k} ${v}`);
}

class Writer {
  readonly bytes: number[] = [];

  varint(v: number): this {
    for (; v >= 128; v = Math.floor(v / 128))
      this.bytes.push((v % 128) | 128);
    this.bytes.push(v);
    return this;
  }

  zigzag(v: number): this {
    return this.varint(v < 0 ? -2 * v - 1 : 2 * v);
  }

  raw(b: Iterable<number>): this {
    for (const x of b)
      this.bytes.push(x);
    return this;
  }
}

export function encodeBody(p: Profile): Uint8Array {
  const t = p.tree;
  const strings = [...p.strings];
  const id = (s: string): number => {
    const i = strings.indexOf(s);
    return i < 0 ? strings.push(s) - 1 : i;
  };
  const out = new Writer().raw(Buffer.from("CULPRIT1"));
  const section = (tag: string, w: Writer): void => {
    const n = w.bytes.length;
    out.raw(Buffer.from(tag)).raw([n & 255, (n >> 8) & 255, (n >> 16) & 255, n >>> 24]).raw(w.bytes);
  };
  const kinds = new Writer().varint(p.kinds.length);
  for (const k of p.kinds)
    kinds.varint(id(k.name)).varint(id(k.help));
  const maps = new Writer().varint(p.mappings.length);
  for (const m of p.mappings)
    maps.varint(id(m.path)).varint(id(m.buildId));
  const f = p.frames;
  const frames = new Writer().varint(f.n);
  f.name.forEach((v) => frames.varint(v));
  frames.raw(f.kind).raw(f.flags);
  f.file.forEach((v) => frames.varint(v));
  f.line.forEach((v) => frames.varint(v));
  f.mapping.forEach((v) => frames.varint(v === NONE ? 0 : v + 1));
  const tree = new Writer().varint(t.n);
  t.frame.forEach((v) => tree.varint(v));
  for (let i = 0; i < t.n; i++)
    tree.varint(i === 0 ? 0 : t.depth[i - 1]! + 1 - t.depth[i]!);
  t.self.forEach((v) => tree.zigzag(v));
  const meta = { title: id(p.meta.title), type: id(p.meta.type), unit: id(p.meta.unit), samples: 7 };
  section("META", new Writer().raw(Buffer.from(JSON.stringify(meta))));
  section("KIND", kinds);
  section("MAPS", maps);
  section("FRAM", frames);
  if (p.hot) {
    const { line, value, total } = p.hot;
    const w = new Writer();
    line.forEach((v) => w.varint(v));
    for (const column of [value, total])
      column.forEach((v, i) => line[i] && w.zigzag(v));
    section("LINE", w);
  }
  section("TREE", tree);
  if (t.base) {
    const b = new Writer();
    t.base.self.forEach((v) => b.zigzag(v));
    section("BASE", b);
  }
  if (p.samples) {
    const w = new Writer().varint(p.samples.threads.length);
    for (const e of p.samples.threads)
      w.varint(id(e.process)).varint(id(e.thread)).varint(e.pid).varint(e.tid).varint(id(e.lock)).varint(id(e.owner)).varint(id(e.peer));
    w.varint(p.samples.node.length);
    p.samples.node.forEach((node, i) => w.varint(node).varint(p.samples!.thread[i]!).zigzag(p.samples!.value[i]!).zigzag(p.samples!.us[i]! - (i ? p.samples!.us[i - 1]! : 0)));
    section("SMPL", w);
  }
  section("zzzz", new Writer().raw([1, 2, 3]));
  const strs = new Writer().varint(strings.length);
  const texts = strings.map((s) => Buffer.from(s));
  texts.forEach((b) => strs.varint(b.length));
  texts.forEach((b) => strs.raw(b));
  section("STRS", strs);
  return Uint8Array.from(out.bytes);
}

export function encodePayload(p: Profile): string {
  return deflateSync(encodeBody(p)).toString("base64");
}
