// SPDX-License-Identifier: Apache-2.0
/* Policies on the page of `culprit server`: add one, see what it did, go to the task that it added and its cause, delete. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { sendSpans } from "./otlp.mjs";
import { cannot, openUrl, until } from "./page.mjs";
import { closeAll, serve } from "./serve.mjs";

const skip = cannot();
const EVIL = "<img src=x onerror=alert(1)>";
let s;

before(async () => {
  if (!skip)
    s = await serve("policies");
});
after(async () => {
  await s?.stop();
  await closeAll();
});

const api = async (path) => (await fetch(`${s.url}api/v1/${path}`)).json();

async function see(search) {
  const p = await openUrl(`${s.url}?${search}`, { said: /status of 400/ });
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  await p.painted();
  return p;
}

test("policies: added on the page, it adds a task, which tells the cause", { skip, timeout: 300000 }, async () => {
  const p = await see("view=tasks");
  const policies = p.page.getByRole("region", { name: "Policies" });
  await policies.getByRole("button", { name: "New policy" }).click();
  const form = policies.getByRole("form", { name: "New policy" });
  await form.getByLabel("Service").fill("shop");
  await form.getByLabel("Fires by").selectOption("latency");
  await form.getByLabel("from").fill("100");
  for (const [label, value] of [["in", "2"], ["of windows", "1"]])
    await form.getByLabel(label, { exact: true }).fill(value);
  await form.getByRole("button", { name: "Add" }).click();
  // Two of one window is nothing that can be.
  await form.getByRole("alert").filter({ hasText: "count and of" }).waitFor();
  await form.getByLabel("in", { exact: true }).fill("1");
  await form.getByLabel("of s", { exact: true }).fill("1");
  await form.getByRole("button", { name: "Add" }).click();
  await form.waitFor({ state: "detached" });
  const row = policies.locator("tbody tr");
  await row.filter({ hasText: "latency of an endpoint from 100 ms, 1 of 1 windows of 1 s" }).waitFor();
  const [{ id, spec }] = (await api("policies")).policies;
  assert.deepEqual([spec.service, spec.cause, spec.threshold, spec.endpoint, spec.window_ms], ["shop", "latency", 100, "", 1000]);
  const start = Date.now() - 500;
  await sendSpans(s.url, "shop", Array.from({ length: 20 }, (_, i) => ({ trace: 1 + i, id: 1 + i, name: `GET ${EVIL}`, start, ms: 300 })));
  await until("a task", async () => (await api("tasks")).tasks.length === 1);
  await p.page.reload();
  await row.getByRole("button", { name: /^\d\d:\d\d/ }).click();
  const task = p.page.getByRole("region", { name: "Task", exact: true });
  await task.waitFor();
  const said = await task.innerText();
  assert.ok(said.includes(`Added by policy ${id}: 20 requests to GET ${EVIL} of shop took on average 300.000 ms, and at least 100.000 ms within 1 s`), said);
  await p.page.getByRole("button", { name: "All tasks" }).click();
  await row.getByRole("button", { name: "Delete" }).click();
  await row.getByRole("button", { name: "Really delete" }).click();
  await row.waitFor({ state: "detached" });
  assert.equal((await api("policies")).policies.length, 0);
  assert.equal((await api("tasks")).tasks.length, 1);
  await p.done();
});
