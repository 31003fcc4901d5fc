// SPDX-License-Identifier: Apache-2.0
/* A pprof file with everything that folded text cannot say; written from the field numbers. */
import { gzipSync } from "node:zlib";

function varint(n) {
  const out = [];
  let v = BigInt(n);
  for (; v > 127n; v >>= 7n)
    out.push(Number(v & 127n) | 128);
  return [...out, Number(v)];
}

const number = (field, v) => [...varint(field << 3), ...varint(v)];
const bytes = (field, b) => [...varint((field << 3) | 2), ...varint(b.length), ...b];
const packed = (field, list) => bytes(field, list.flatMap((v) => varint(v)));

/**
 * Nanoseconds of CPU time in app: main (main.c, starts at line 10) calls work (work.c:200) with fast inlined
 * into it, and a libfoo function without a name. 400 samples of 10 ms. The files are in `folder`.
 */
export function pprof(folder = "/src", ms = 1_700_000_000_000) {
  const strings = [""];
  const s = (text) => (strings.includes(text) ? strings.indexOf(text) : strings.push(text) - 1);
  const type = (field, name, unit) => bytes(field, [...number(1, s(name)), ...number(2, s(unit))]);
  const mapping = (id, start, file, build) => bytes(3, [...number(1, id), ...number(2, start), ...number(3, start + 0x10000),
    ...number(5, s(file)), ...number(6, s(build))]);
  const location = (id, map, address, lines) => bytes(4, [...number(1, id), ...number(2, map), ...number(3, address),
    ...lines.flatMap(([f, l]) => bytes(4, [...number(1, f), ...number(2, l)]))]);
  const fn = (id, name, file, start) => bytes(5, [...number(1, id), ...number(2, s(name)), ...number(3, s(name)),
    ...number(4, s(file)), ...number(5, start)]);
  const sample = (locations, count) => bytes(2, [...packed(1, locations), ...packed(2, [count, count * 10_000_000]),
    ...bytes(3, [...number(1, s("comm")), ...number(2, s("app"))])]);
  const out = [
    ...type(1, "samples", "count"), ...type(1, "cpu", "nanoseconds"),
    ...sample([2, 1], 100), ...sample([3, 1], 300),
    ...mapping(1, 0x400000, "/opt/app/bin/app", "0123456789abcdef"), ...mapping(2, 0x7f0000000000, "/usr/lib/libfoo.so.1", "fedcba98"),
    ...location(1, 1, 0x400100, [[1, 14]]), ...location(2, 1, 0x400200, [[3, 7], [2, 205]]),
    ...location(3, 2, 0x7f0000001234, []),
    ...fn(1, "main", `${folder}/main.c`, 10), ...fn(2, "work", `${folder}/work.c`, 200), ...fn(3, "fast", "/src/fast.h", 0),
    ...number(9, BigInt(ms) * 1_000_000n), ...number(10, 4_000_000_000n), ...type(11, "cpu", "nanoseconds"), ...number(12, 10_000_000),
    ...number(14, s("cpu")),
  ];
  const table = strings.flatMap((t) => bytes(6, [...Buffer.from(t)]));
  return gzipSync(Uint8Array.from([...out, ...table]));
}
