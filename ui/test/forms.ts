// SPDX-License-Identifier: Apache-2.0
/* The forms of payload that were compared before one was chosen; see tests/ui/bench.mjs. */
import { deflateSync, inflateSync } from "node:zlib";
import { parseBody } from "../model/payload.ts";
import { buildTree } from "../model/tree.ts";
import type { Profile } from "../model/tree.ts";
import { encodeBody } from "./make.ts";

export { fromFolded, syntheticLines } from "./make.ts";

interface Form {
  name: string;
  bytes: number;
  ms: number;
}

function timed(name: string, text: string, read: (text: string) => unknown): Form {
  const times: number[] = [];
  for (let round = 0; round < 5; round++) {
    const t = performance.now();
    read(text);
    times.push(performance.now() - t);
  }
  times.sort((a, b) => a - b);
  return { name, bytes: text.length, ms: times[2]! };
}

const b64 = (b: Uint8Array): string => Buffer.from(b).toString("base64");
const unb64 = (s: string): Uint8Array => Uint8Array.from(Buffer.from(s, "base64"));

function jsonText(p: Profile): string {
  const t = p.tree;
  const f = p.frames;
  const a = (x: ArrayLike<number>): number[] => Array.from(x);
  // As JSON would have to stand in a script element.
  return JSON.stringify({ s: p.strings, n: a(f.name), k: a(f.kind), g: a(f.flags), f: a(t.frame), d: a(t.depth), v: a(t.self) })
    .replace(/</g, "\\u003c");
}

function fromJson(text: string): unknown {
  const o = JSON.parse(text) as { f: number[]; d: number[]; v: number[] };
  return buildTree(Uint32Array.from(o.f), Uint32Array.from(o.d), Float64Array.from(o.v), null);
}

/** Fixed-width little-endian columns. */
function wide(p: Profile): Uint8Array {
  const t = p.tree;
  const strings = Buffer.from(p.strings.join("\0"));
  return Buffer.concat([strings, p.frames.name, p.frames.kind, p.frames.flags, t.frame, Uint16Array.from(t.depth), t.self]
    .map((a) => Buffer.from(a.buffer, a.byteOffset, a.byteLength)));
}

function fromWide(p: Profile, b: Uint8Array): unknown {
  const n = p.tree.n;
  const end = b.length;
  // A Buffer's slice() would be a view with an offset.
  const copy = Uint8Array.from(b);
  const self = new Float64Array(copy.slice(end - 8 * n).buffer);
  const depth = Uint32Array.from(new Uint16Array(copy.slice(end - 10 * n, end - 8 * n).buffer));
  const frame = new Uint32Array(copy.slice(end - 14 * n, end - 10 * n).buffer);
  const strings = new TextDecoder().decode(copy.subarray(0, end - 14 * n - 6 * p.frames.n)).split("\0");
  return [strings, buildTree(frame, depth, self, null)];
}

export function forms(p: Profile): Form[] {
  const body = encodeBody(p);
  const json = jsonText(p);
  return [
    timed("JSON", json, fromJson),
    timed("JSON, deflated, base64", b64(deflateSync(json)), (s) => fromJson(Buffer.from(inflateSync(unb64(s))).toString())),
    timed("fixed columns, base64", b64(wide(p)), (s) => fromWide(p, unb64(s))),
    timed("fixed columns, deflated, base64", b64(deflateSync(wide(p))), (s) => fromWide(p, inflateSync(unb64(s)))),
    timed("varint columns, base64", b64(body), (s) => parseBody(unb64(s))),
    timed("varint columns, deflated, base64", b64(deflateSync(body)), (s) => parseBody(inflateSync(unb64(s)))),
  ];
}
