// SPDX-License-Identifier: Apache-2.0
/* An agent made by hand: it asks a server for tasks, byte by byte (proto/control.proto), and reports what a test says. */
import assert from "node:assert/strict";

const STATES = ["", "queued", "armed", "absent", "silent", "refused", "ended"];
const OUTCOMES = ["", "kept", "partly", "evicted"];

function varint(n) {
  const out = [];
  for (let v = BigInt(n); ; v >>= 7n) {
    if (v < 128n)
      return Buffer.from([...out, Number(v)]);
    out.push(Number(v & 127n) | 128);
  }
}

function field(number, value) {
  if (typeof value === "number" || typeof value === "bigint")
    return Buffer.concat([varint(number << 3), varint(value)]);
  const bytes = Buffer.from(value);
  return Buffer.concat([varint(number << 3 | 2), varint(bytes.length), bytes]);
}

const message = (fields) => Buffer.concat(fields.map(([n, v]) => field(n, v)));

/** number → values: numbers of any length as BigInt, else bytes. */
function decode(bytes) {
  const out = new Map();
  let at = 0;
  const read = () => {
    let v = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const b = bytes[at++];
      v |= BigInt(b & 127) << shift;
      if (b < 128)
        return v;
    }
  };
  while (at < bytes.length) {
    const key = Number(read());
    let value;
    if ((key & 7) === 0)
      value = read();
    else if ((key & 7) === 1) {
      value = bytes.readBigUInt64LE(at);
      at += 8;
    } else {
      const n = Number(read());
      value = bytes.subarray(at, at += n);
    }
    out.set(key >> 3, [...out.get(key >> 3) ?? [], value]);
  }
  return out;
}

export class Agent {
  cursor = 0n;

  constructor(url, host = "web-1") {
    this.url = url;
    this.host = host;
  }

  /** reports: [[task, state, processes, publishing]]; outcomes: [[keep, outcome, samples]]. Returns what is to be kept. */
  async ask(reports = [], outcomes = []) {
    const body = message([[1, this.host], [2, `id-${this.host}`], [3, "test"], [4, 1], [5, this.cursor],
      ...reports.map(([task, state, processes = 1, publishing = 1]) =>
        [6, message([[1, task], [2, 1], [3, STATES.indexOf(state)], [5, processes], [6, publishing]])]),
      ...outcomes.map(([k, outcome, samples]) => [7, message([[1, k.task], [2, k.trace], [3, k.span], [4, OUTCOMES.indexOf(outcome)], [5, samples]])])]);
    const r = await fetch(`${this.url}culprit.control.v1.Control/Sync`, { method: "POST", headers: { "Content-Type": "application/x-protobuf" }, body });
    const answer = Buffer.from(await r.arrayBuffer());
    assert.equal(r.status, 200, answer.toString());
    const all = decode(answer);
    this.cursor = all.get(1)?.[0] ?? 0n;
    return (all.get(4) ?? []).map((bytes) => {
      const k = decode(bytes);
      return { task: k.get(1)[0].toString(), trace: k.get(2)[0], span: k.get(3)[0] };
    });
  }
}
