// SPDX-License-Identifier: Apache-2.0
/*
 * A small server for the page that `culprit up` shows: it serves the built page and answers as the
 * API does (server/api/views.c), with pictures that culprit itself wrote. Tests say what there is and what goes
 * wrong; everything that was asked is kept in `asked`.
 */
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join, resolve } from "node:path";
import { gzipSync, inflateSync } from "node:zlib";
import { convert, top } from "./page.mjs";

const built = resolve(process.env.CULPRIT ? dirname(dirname(process.env.CULPRIT)) : join(top, "build"));

export const CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
export const WALL = "wall:wall:nanoseconds:wall:nanoseconds";

/** The body that the page reads, out of a page that culprit wrote. */
export function payload(lines) {
  const [, text] = /<script id="culprit-data" type="application\/x-culprit">([^<]*)</.exec(readFileSync(convert(lines), "utf8"));
  return inflateSync(Buffer.from(text, "base64"));
}

/** fn(service) → cores; each service's payload by name, "" for all. */
export class Server {
  asked = [];
  token = "";
  gone = false;
  refuse = null;
  damaged = false;
  health = "ok";
  /** What happened to the server. */
  events = [];
  blank = false;
  /** Hold all statistics until it is kept. */
  slow = null;
  skew = 0;
  /** When what is stored begins. */
  first = 1;
  types = [CPU];
  /** Hold all payloads until release() is called. */
  held = null;

  constructor(services) {
    this.services = services; // name → { cores(ms), lines: [] }
    this.bodies = new Map();
  }

  body(name) {
    const lines = name === "" ? Object.values(this.services).flatMap((s) => s.lines) : this.services[name]?.lines ?? [];
    if (lines.length === 0)
      return payloadOfNothing();
    const key = lines.join("\n");
    if (!this.bodies.has(key))
      this.bodies.set(key, payload(lines));
    return this.bodies.get(key);
  }

  async start() {
    this.server = createServer((q, r) => void this.answer(q, r));
    await new Promise((done) => this.server.listen(this.port ?? 0, "127.0.0.1", done));
    // A test that fails does not come to stop().
    this.server.unref();
    this.port = this.server.address().port;
    this.url = `http://127.0.0.1:${this.port}/`;
    return this;
  }

  async stop() {
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  async answer(q, r) {
    const url = new URL(q.url, this.url);
    const p = Object.fromEntries(url.searchParams);
    r.setHeader("Date", new Date(Date.now() + this.skew).toUTCString());
    const [, script] = /^\/(?:ui\/([^/]+))?$/.exec(url.pathname) ?? [];
    if (script !== undefined || url.pathname === "/") {
      r.setHeader("Content-Type", `text/${script ? "javascript" : "html"}; charset=utf-8`);
      r.end(readFileSync(join(built, "ui/live", script ?? "live.html")));
      return;
    }
    this.asked.push({ path: url.pathname, ...p, authorization: q.headers.authorization });
    if (this.gone) {
      q.socket.destroy();
      return;
    }
    if (this.token && q.headers.authorization !== `Bearer ${this.token}`) {
      r.writeHead(401).end("token");
      return;
    }
    if (this.refuse) {
      r.writeHead(this.refuse[0], { "Content-Type": "application/json" }).end(JSON.stringify({ code: "x", message: this.refuse[1] }));
      return;
    }
    if (this.held && url.pathname.endsWith("/payload"))
      await this.held.promise;
    const [from, to] = [Number(p.from), Number(p.to)];
    const [, service] = /^\{service\.name="((?:[^"\\]|\\.)*)"\}$/.exec(p.query ?? "") ?? [];
    const chosen = service?.replace(/\\(.)/g, "$1") ?? "";
    const names = Object.keys(this.blank ? {} : this.services);
    const has = (n) => chosen === "" || n === chosen;
    switch (url.pathname) {
    case "/api/v1/stats":
      await this.slow;
      return this.json(r, { store: { rows: names.length ? 7 : 0, first: this.first } });
    case "/api/v1/types":
      return this.json(r, { types: names.length ? this.types.map((name) => ({ name, series: 1, last: to })) : [] });
    case "/api/v1/labels":
      return this.json(r, { labels: [{ name: "host.name" }] });
    case "/api/v1/label-values":
      return this.json(r, { values: names.map((name) => ({ name, series: 1, last: to })) });
    case "/api/v1/series": {
      const step = Number(p.step);
      const line = (members) => {
        const points = [];
        for (let t = from; t < to; t += step) {
          let v = 0;
          for (const n of members)
            v += this.sum(this.services[n], t, Math.min(to, t + step));
          if (v > 0)
            points.push([t, v, Math.ceil(v / 5e7)]);
        }
        return points;
      };
      const by = url.searchParams.getAll("group_by");
      const series = by.length ? names.filter(has).map((n) => ({ labels: Object.fromEntries(by.map((l) => [l, n])), points: line([n]) }))
        : [{ labels: {}, points: line(names.filter(has)) }];
      return this.json(r, { from, to, step, series, damaged: this.damaged });
    }
    case "/api/v1/flamegraph":
      return this.json(r, { quality: { samples: 1, truncated: 0, unknown_frames: 0, frames: 1, limited: [] } });
    case "/api/v1/cost":
      return this.json(r, { factors: { currency: "USD", core_hour: 0.04, watts: 3.5, pue: 1.5, grams_per_kwh: 450 } });
    case "/api/v1/health":
      return this.json(r, { status: this.health, evicted_to: 0, spans_evicted_to: 0, events: this.events });
    case "/api/v1/annotations":
      return this.json(r, { from, to, annotations: [], deploys: [], step: 1000, damaged: false });
    case "/api/v1/agents":
      return this.json(r, { version: "1", agents: [] });
    case "/api/v1/payload": {
      const bytes = this.blank ? payloadOfNothing() : this.body(chosen);
      r.writeHead(200, { "Content-Type": "application/x-culprit", "Content-Encoding": "gzip" }).end(gzipSync(bytes));
      return;
    }
    default:
      r.writeHead(404).end();
    }
  }

  /** ns of CPU between two times, by seconds. */
  sum(s, from, to) {
    let v = 0;
    const end = Math.min(to, Date.now() + this.skew);
    for (let t = from; t < end; t += 1000)
      v += (s.cores?.(t) ?? 1) * Math.min(1000, end - t) * 1e6;
    return v;
  }

  json(r, o) {
    r.writeHead(200, { "Content-Type": "application/json" });
    r.end(JSON.stringify(o));
  }

  count(path) {
    return this.asked.filter((a) => a.path === `/api/v1/${path}`).length;
  }
}

let nothing;

function payloadOfNothing() {
  return nothing ??= payload(["x 0"]);
}
