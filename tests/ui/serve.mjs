// SPDX-License-Identifier: Apache-2.0
/* `culprit server` itself on a free port, over a store in a folder of its own that goes with the tests. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { culprit } from "./page.mjs";
import { programs, stop } from "./programs.mjs";

const { folder, start, end } = programs("server");
export { folder, end as closeAll };

/** A real server on a free port, or on the one given. */
export async function serve(name, { port = 0, options = [] } = {}) {
  const process = start(culprit, ["server", "--source-roots", "/tmp", "--data-dir", join(folder, name), "--listen", `127.0.0.1:${port}`,
    "--otlp-grpc", "off", "--otlp-grpc-old", "off", "--otlp-http", "off", ...options], { stdio: ["ignore", "pipe", "inherit"] });
  const s = { process, port };
  for await (const line of createInterface(process.stdout)) {
    s.port = Number(/^api (\d+)/.exec(line)?.[1] ?? s.port);
    if (line === "ready")
      break;
  }
  assert.ok(s.port > 0, "it said its port");
  s.url = `http://127.0.0.1:${s.port}/`;
  /** Folded lines as one profile of a time; labels beside service.name as "name=value,...". */
  s.upload = async (service, lines, { token, from = Date.now() - 20000, to = Date.now(), labels = "" } = {}) => {
    const q = new URLSearchParams({ format: "folded", labels: `service.name=${service}${labels && "," + labels}`, from, to });
    const r = await fetch(`${s.url}api/v1/upload?${q}`, { method: "POST", body: lines.join("\n") + "\n",
      headers: token ? { Authorization: `Bearer ${token}` } : {} });
    assert.equal(r.status, 200, await r.text());
  };
  s.stop = (signal) => stop(process, signal);
  return s;
}

export const text = async (p, selector) => (await p.page.locator(selector).first().innerText()).replace(/\s+/g, " ");
