// SPDX-License-Identifier: Apache-2.0
/*
 * "Measure this function", from the menu of a frame: of a function of the demo, whose slow argument the load generator
 * chooses; and what a hostile agent and an endless measurement look like.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { connect, createServer } from "node:net";
import { once } from "node:events";
import { join, resolve, dirname } from "node:path";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { cannot, culprit, openUrl, top, until } from "./page.mjs";
import { programs, saidUrl, stop } from "./programs.mjs";

const builds = resolve(dirname(dirname(culprit)));
const skip = cannot() || (process.getuid() === 0 ? "" : "needs root: it measures programs of this machine") ||
  (spawnSync("go", ["version"]).status === 0 ? false : "needs go: one of the services is in it");
const { start, end } = programs("measure");
const SLOW = /WHOLESALE = (\d+)/.exec(readFileSync(join(top, "demo/load.py"), "utf8"))[1];

/** One that the kernel gives to nobody else for a minute: a connection that was closed there waits. */
async function freePort() {
  const s = createServer((c) => c.end()).listen(0, "127.0.0.1");
  await once(s, "listening");
  const { port } = s.address();
  const c = connect(port, "127.0.0.1").resume();
  await once(c, "close");
  s.close();
  return port;
}

let demo, url;

before(async () => {
  if (skip)
    return;
  demo = start("/usr/bin/python3", [join(top, "demo/start"), builds, "--listen", "127.0.0.1:0", "--otlp-grpc", "off", "--otlp-grpc-old", "off",
    "--otlp-http", `127.0.0.1:${await freePort()}`], { stdio: ["ignore", "pipe", "inherit"] });
  url = await saidUrl(demo);
});

after(async () => {
  if (demo)
    await stop(demo);
  await end();
});

/** Opens the menu of the frame that a search finds. */
async function menuOf(p, name) {
  const see = p.page;
  await see.getByPlaceholder(/^Search/).fill(`^${name}$`);
  await until(`a sample of ${name}`, async () => {
    await see.waitForSelector('.live-page[aria-busy="false"]');
    return parseFloat(((await see.locator(".search output").allInnerTexts()).join() || "0").replace("<", "")) > 0;
  }, 120);
  await see.getByPlaceholder(/^Search/).press("Enter");
  await see.locator(".flame-window").focus();
  await p.key("ContextMenu");
  return see.getByRole("menu");
}

let id = "";

test("the demo: a function is measured from its frame, and the slow argument is found", { skip, timeout: 480000 }, async () => {
  const p = await openUrl(`${url}?service=stock`, { said: /status of 4/, height: 800 });
  const see = p.page;
  const menu = await menuOf(p, "pack_parcel");
  await p.shot("measure-menu");
  await menu.getByRole("menuitem", { name: "Measure this function" }).click();
  const dialog = see.getByRole("dialog", { name: "Measure pack_parcel in stock" });
  const value = (label) => dialog.getByLabel(label).inputValue();
  assert.deepEqual([await value("Service"), await value("For"), await value("Slow from"), await value("May cost")], ["stock", "30000", "", "1"]);
  assert.ok(await dialog.evaluate((d) => d.scrollWidth <= d.clientWidth), "the dialog does not scroll sideways");
  await p.shot("measure-dialog");
  await dialog.getByRole("button", { name: "Measure" }).click();
  const card = see.getByRole("dialog", { name: "pack_parcel in stock", exact: true });
  await card.waitFor();
  id = new URL(see.url()).searchParams.get("measure");
  assert.match(id, /^[0-9a-f]{8}$/);
  const calls = card.getByRole("region", { name: "Slow calls" });
  const first = calls.locator("tbody tr").first();
  const heads = async () => calls.locator("thead th").allInnerTexts();
  await until("a slow call is told, with its argument and its trace", async () =>
    (await heads().catch(() => [])).includes("items") && (await first.locator("td").nth((await heads()).indexOf("items")).innerText()) === SLOW &&
    await first.locator("button").count() > 0, 120);
  await p.shot("measure-card");
  // All slow calls have the argument that the load generator makes slow, and the fastest of all calls do not.
  await until("it has ended by itself", async () => /ended/.test(await card.innerText()), 120);
  const at = (await heads()).indexOf("items");
  const rows = await calls.locator("tbody tr").evaluateAll((trs, n) => trs.map((tr) => tr.querySelectorAll("td")[n].innerText), at);
  const slow = rows.filter((x) => x === SLOW).length;
  assert.ok(slow > 0, rows.join());
  assert.deepEqual(rows.slice(0, slow), Array(slow).fill(SLOW), "the slowest calls are those of the wholesaler");
  const m = await (await fetch(`${url}api/v1/measurements/${id}`)).json();
  assert.equal(m.hosts, 1);
  assert.equal(m.lost, 0);
  assert.ok(m.calls >= m.returned && m.returned > 50, JSON.stringify(m.latency));
  assert.equal(m.histogram.reduce((n, b) => n + b.calls, 0), m.returned);
  assert.ok(m.slow_calls[0].stack.includes("answer"), m.slow_calls[0].stack.join());
  // Its request: the trace has the span of the stock service.
  await first.locator("button").click();
  await see.getByRole("region", { name: "Trace" }).getByRole("button", { name: /parcel/ }).first().waitFor();
  assert.equal(new URL(see.url()).searchParams.get("trace"), m.slow_calls[0].trace_id);
  await p.shot("measure-trace");
  // The slow calls are samples of a type of their own.
  const types = (await (await fetch(`${url}api/v1/types`)).json()).types.map((t) => t.name);
  assert.ok(types.some((t) => t.startsWith("function:latency:")), types.join());
  await p.done();
});

test("the demo: what cannot be measured says why", { skip, timeout: 240000 }, async () => {
  const p = await openUrl(`${url}?service=shop`, { said: /status of 4/ });
  const menu = await menuOf(p, "render");
  const entry = menu.getByRole("menuitem", { name: "Measure this function" });
  assert.ok(await entry.isDisabled());
  assert.match(await menu.innerText(), /Python function: only functions of ELF files and of the kernel can be measured/);
  await p.shot("measure-why-not");
  await p.done();
});

test("the demo: the card in both themes, on a telephone, in the list of all, and stopped", { skip, timeout: 240000 }, async () => {
  for (const [name, options] of [["dark", { dark: true, height: 800 }], ["phone", { width: 390, height: 844, touch: true }], ["phone-dark", { width: 390, height: 844, touch: true, dark: true }]]) {
    const p = await openUrl(`${url}?measure=${id}`, { said: /status of 4/, ...options });
    await p.page.getByRole("dialog", { name: "pack_parcel in stock", exact: true }).getByRole("region", { name: "Slow calls" }).waitFor();
    const wide = await p.page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= (options.width ?? 1280), `${wide} px wide`);
    await p.shot(`measure-card-${name}`);
    await p.done();
  }
  const body = JSON.stringify({ service: "stock", function: "no such \"function\" { system(\"touch /tmp/x\") }", duration_ms: 600000 });
  const { id: second } = await (await fetch(`${url}api/v1/measurements`, { method: "POST", body, headers: { "Content-Type": "application/json" } })).json();
  const p = await openUrl(`${url}?view=tasks`, { said: /status of 4/ });
  const list = p.page.getByRole("region", { name: "Measurements" });
  await list.getByRole("button", { name: /pack_parcel in stock/ }).waitFor();
  await p.shot("measure-list");
  await list.getByRole("button", { name: /no such/ }).click();
  const card = p.page.getByRole("dialog", { name: /no such/ });
  await card.getByText(/cannot measure this function: .*has no function/).waitFor();
  await p.shot("measure-refused");
  await card.getByRole("button", { name: "Stop" }).click();
  await card.getByText("stopped").waitFor();
  assert.equal((await (await fetch(`${url}api/v1/measurements/${second}`)).json()).state, "stopped");
  await p.done();
});
