// SPDX-License-Identifier: Apache-2.0
/*
 * Reads what lib/format/html_write.c writes; doc/format/html.md is the contract. The bytes are
 * ours, but the page may have been cut short or edited, so every read is checked and ends in a
 * DataError that the page shows.
 */
import { buildTree, DataError, GROUP, INLINED, LINE_SAMPLED, NONE } from "./tree.ts";
import type { FrameTable, HotLines, Kind, Mapping, Meta, Profile, Samples, Tree } from "./tree.ts";

const MAGIC = "CULPRIT1";

class Reader {
  readonly bytes: Uint8Array;
  at: number;
  readonly end: number;

  constructor(bytes: Uint8Array, at = 0, end = bytes.length) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
  }

  u8(): number {
    if (this.at >= this.end)
      throw new DataError("the data ends early");
    return this.bytes[this.at++]!;
  }

  /** LEB128; exact up to 2^53, nearest value above. */
  varint(): number {
    let v = 0;
    let scale = 1;
    for (let i = 0; i < 10; i++) {
      const b = this.u8();
      v += (b & 0x7f) * scale;
      if (b < 0x80)
        return v;
      scale *= 128;
    }
    throw new DataError("a number in the data is too long");
  }

  zigzag(): number {
    const v = this.varint();
    return v % 2 === 0 ? v / 2 : -(v + 1) / 2;
  }

  count(): number {
    const n = this.varint();
    // Every element of every column takes a byte or more.
    if (n > this.end - this.at)
      throw new DataError("a count in the data is larger than the data");
    return n;
  }

  ids(n: number, limit: number): Uint32Array {
    const a = new Uint32Array(n);
    for (let i = 0; i < n; i++) {
      const v = this.varint();
      if (v >= limit)
        throw new DataError("an index in the data is out of range");
      a[i] = v;
    }
    return a;
  }

  raw(n: number): Uint8Array {
    if (n > this.end - this.at)
      throw new DataError("the data ends early");
    const a = this.bytes.subarray(this.at, this.at + n);
    this.at += n;
    return a;
  }
}

const UNSHOWABLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

/** Control and text-direction characters could make a name look like another: shown as escapes. */
export function showable(s: string): string {
  return s.replace(UNSHOWABLE, (c) => {
    const v = c.charCodeAt(0);
    return v < 256 ? "\\x" + v.toString(16).padStart(2, "0")
                   : "\\u" + v.toString(16).padStart(4, "0");
  });
}

function readStrings(r: Reader): string[] {
  const n = r.count();
  const len = new Uint32Array(n);
  let sum = 0;
  for (let i = 0; i < n; i++)
    sum += len[i] = r.varint();
  const blob = r.raw(sum);
  const decoder = new TextDecoder();
  const all = decoder.decode(blob);
  const out = new Array<string>(n);
  const ascii = all.length === sum;
  const clean = showable(all) === all;
  for (let i = 0, at = 0; i < n; at += len[i++]!) {
    const s = ascii ? all.slice(at, at + len[i]!)
                    : decoder.decode(blob.subarray(at, at + len[i]!));
    out[i] = clean ? s : showable(s);
  }
  return out;
}

function readFrames(r: Reader, strings: number, kinds: number, mappings: number): FrameTable {
  const n = r.count();
  const name = r.ids(n, strings);
  const kind = r.raw(n).slice();
  const flags = r.raw(n).slice();
  const file = r.ids(n, strings);
  const line = r.ids(n, NONE);
  const mapping = r.ids(n, mappings + 1);
  for (let i = 0; i < n; i++) {
    // A kind that a later culprit added reads as the first one, "unknown".
    if (kind[i]! >= kinds)
      kind[i] = 0;
    flags[i]! &= INLINED | GROUP | LINE_SAMPLED;
    mapping[i] = mapping[i] === 0 ? NONE : mapping[i]! - 1;
  }
  return { n, name, kind, flags, file, line, mapping };
}

function readHotLines(r: Reader, frames: number): HotLines {
  const line = r.ids(frames, NONE);
  const values = (): Float64Array => Float64Array.from(line, (l) => l > 0 ? r.zigzag() : 0);
  return { line, value: values(), total: values() };
}

function readTree(r: Reader, base: Reader | undefined, frames: number): Tree {
  const n = r.count();
  const frame = r.ids(n, frames);
  const depth = new Uint32Array(n);
  for (let i = 0, next = 0; i < n; i++) {
    const up = r.varint();
    if (up > next)
      throw new DataError("the call tree goes above its root");
    depth[i] = next - up;
    next = depth[i]! + 1;
  }
  const self = new Float64Array(n);
  for (let i = 0; i < n; i++)
    self[i] = r.zigzag();
  let baseSelf = null;
  if (base) {
    baseSelf = new Float64Array(n);
    for (let i = 0; i < n; i++)
      baseSelf[i] = base.zigzag();
  }
  return buildTree(frame, depth, self, baseSelf);
}

function readMeta(json: string, strings: string[]): Meta {
  let o: Record<string, unknown>;
  try {
    o = JSON.parse(json) as Record<string, unknown>;
  } catch {
    throw new DataError("the description of the profile is damaged");
  }
  const num = (key: string, absent: number): number => {
    const v = o[key];
    return typeof v === "number" && Number.isFinite(v) ? v : absent;
  };
  const str = (key: string): string => strings[num(key, -1)] ?? "";
  return {
    title: str("title"),
    generator: str("generator"),
    type: str("type"),
    unit: str("unit"),
    timeMs: num("time_ms", 0),
    durationNs: num("duration_ns", 0),
    hz: num("hz", 0),
    quality: {
      samples: num("samples", -1),
      lost: num("lost", -1),
      truncated: num("truncated", -1),
      unknown: num("unknown", -1),
      frames: num("frames", -1),
      userStacks: num("user_stacks", -1),
      limited: str("limited"),
    },
    baseTitle: str("base_title"),
    baseSamples: num("base_samples", -1),
    normalise: num("normalize", 0) === 1,
  };
}

function readMappings(r: Reader, strings: string[]): Mapping[] {
  const n = r.count();
  const out: Mapping[] = [];
  for (let i = 0; i < n; i++) {
    const [path, id] = r.ids(2, strings.length);
    out.push({ path: strings[path!]!, buildId: strings[id!]! });
  }
  return out;
}

function readKinds(r: Reader, strings: string[]): Kind[] {
  const n = r.count();
  const out: Kind[] = [];
  for (let i = 0; i < n; i++) {
    const [name, help] = r.ids(2, strings.length);
    out.push({ name: strings[name!]!, help: strings[help!]! });
  }
  return out;
}

function readSamples(r: Reader, strings: string[], nodes: number): Samples {
  const str = (): string => strings[r.ids(1, strings.length)[0]!]!;
  const threads = Array.from({ length: r.count() }, () => ({ process: str(), thread: str(), pid: r.varint(), tid: r.varint(), lock: str(), owner: str(), peer: str() }));
  const n = r.count();
  const s: Samples = { threads, node: new Uint32Array(n), thread: new Uint32Array(n), value: new Float64Array(n), us: new Float64Array(n) };
  for (let i = 0, us = 0; i < n; i++) {
    s.node[i] = r.ids(1, nodes)[0]!;
    s.thread[i] = r.ids(1, threads.length)[0]!;
    s.value[i] = r.zigzag();
    s.us[i] = us += r.zigzag();
  }
  return s;
}

/** Parses the inflated body. */
export function parseBody(bytes: Uint8Array): Profile {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < MAGIC.length || new TextDecoder().decode(bytes.subarray(0, 8)) !== MAGIC)
    throw new DataError("this is not a profile that this page can read");
  const sections = new Map<string, Reader>();
  for (let at = MAGIC.length; at < bytes.length;) {
    if (bytes.length - at < 8)
      throw new DataError("the data ends early");
    const tag = String.fromCharCode(...bytes.subarray(at, at + 4));
    const n = view.getUint32(at + 4, true);
    at += 8;
    if (n > bytes.length - at)
      throw new DataError(`the section ${tag} ends early`);
    sections.set(tag, new Reader(bytes, at, at + n));
    at += n;
  }
  const need = (tag: string): Reader => {
    const r = sections.get(tag);
    if (!r)
      throw new DataError(`the section ${tag} is missing`);
    return r;
  };
  const strings = readStrings(need("STRS"));
  const kinds = readKinds(need("KIND"), strings);
  const mappings = readMappings(need("MAPS"), strings);
  const frames = readFrames(need("FRAM"), strings.length, kinds.length, mappings.length);
  const tree = readTree(need("TREE"), sections.get("BASE"), frames.n);
  const m = need("META");
  const meta = readMeta(new TextDecoder().decode(m.raw(m.end - m.at)), strings);
  // The root stands for everything whatever its frame says.
  frames.flags[tree.frame[0]!]! |= GROUP;
  const samples = sections.get("SMPL");
  const lines = sections.get("LINE");
  return { strings, kinds, mappings, frames, tree, meta, hot: lines ? readHotLines(lines, frames.n) : null, ...samples ? { samples: readSamples(samples, strings, tree.n) } : {} };
}

/** Base64 text of a zlib stream, as it stands in the page, to a profile. */
export async function readPayload(text: string): Promise<Profile> {
  let packed: Uint8Array<ArrayBuffer>;
  try {
    const bin = atob(text.trim());
    packed = new Uint8Array(bin.length);
    for (let i = 0; i < bin.length; i++)
      packed[i] = bin.charCodeAt(i);
  } catch {
    throw new DataError("the data in this page is damaged");
  }
  if (typeof DecompressionStream === "undefined")
    throw new DataError("this browser is too old: it has no DecompressionStream (Chromium 80, Firefox 113, Safari 16.4)");
  let body: ArrayBuffer;
  try {
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    body = await new Response(stream).arrayBuffer();
  } catch {
    throw new DataError("the data in this page is damaged or was cut short");
  }
  return parseBody(new Uint8Array(body));
}
