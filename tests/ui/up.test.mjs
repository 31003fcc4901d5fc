// SPDX-License-Identifier: Apache-2.0
/* `culprit up`: from the command to the page of this machine, with a program on it whose name and cost are known. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { cannot, close, culprit, openUrl, until } from "./page.mjs";

const skip = cannot() || (process.getuid() === 0 ? false : "needs root: it records all of the machine");
const folder = mkdtempSync(join(tmpdir(), "culprit-up-"));
const running = new Set();
after(async () => {
  await close();
  for (const r of running)
    r.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

function start(program, args, options) {
  const p = spawn(program, args, options);
  running.add(p);
  return p;
}

test("culprit up: the page follows this machine, by service, to the function", { skip, timeout: 180000 }, async () => {
  // Two of one name and one of another, from the environment as OpenTelemetry has it.
  const busy = (name) => start("/usr/bin/python3", ["-c", "def spinning():\n    while True:\n        pass\nspinning()"],
    { stdio: "ignore", env: { ...process.env, OTEL_SERVICE_NAME: name } });
  const workloads = [busy("till"), busy("till"), busy("shelf")];
  const up = start(culprit, ["up", "--data-dir", folder, "--listen", "127.0.0.1:0", "--otlp-grpc", "off",
    "--otlp-grpc-old", "off", "--otlp-http", "off"], { stdio: ["ignore", "pipe", "inherit"] });
  const began = Date.now();
  let url;
  for await (const line of createInterface(up.stdout))
    if ((url = /http:\/\/\S+/.exec(line)?.[0]))
      break;
  const p = await openUrl(url);
  await p.page.waitForSelector(".flame canvas", { timeout: 60000 });
  console.log(`# first picture ${((Date.now() - began) / 1000).toFixed(1)} s after the command`);
  const till = p.page.locator(".strip button", { hasText: "till" });
  await till.waitFor({ timeout: 60000 });
  await p.page.locator(".strip button", { hasText: "shelf" }).waitFor({ timeout: 60000 });
  await till.click();
  await p.page.locator("h1", { hasText: /^till$/ }).waitFor();
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  // All that it does is this function; the interpreter's own first moments are the rest.
  await p.page.locator(".search input").fill("spinning");
  await until("its function", async () => parseFloat(await p.page.locator(".search output b").innerText()) > 50);
  const samples = async () => Number(/([\d,]+) samples/.exec(await p.page.locator(".quality").innerText())[1].replace(/,/g, ""));
  const n = await samples();
  await until("more of them", async () => (await samples()) > n);
  assert.match(await p.page.locator(".search input").inputValue(), /spinning/);
  await p.shot("up-light");
  await p.page.locator(".tabs button", { hasText: "Agents" }).click();
  const host = p.page.locator(".services-page tbody tr").first();
  await host.waitFor();
  assert.match((await host.innerText()).replace(/\s+/g, " "), new RegExp(`^${hostname()} .* 20 Hz .* now$`));
  await p.shot("up-agents-light");
  await p.done();
  const over = once(up, "exit");
  const asked = Date.now();
  up.kill("SIGTERM");
  const [code] = await over;
  running.delete(up);
  assert.equal(code, 0);
  assert.ok(Date.now() - asked < 10000, "SIGTERM ends it within ten seconds");
  for (const w of workloads)
    w.kill("SIGKILL");
});
