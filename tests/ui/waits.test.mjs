// SPDX-License-Identifier: Apache-2.0
/* Waits on the page, as `culprit server` serves it over a store whose every number is known. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { readFileSync } from "node:fs";
import { readTable } from "../../ui/vocab.mjs";
import { sendSamples } from "./otlp.mjs";
import { cannot, openUrl, top, until } from "./page.mjs";
import { closeAll, serve } from "./serve.mjs";

const skip = cannot() || false;
/* Half a minute ago, in whole seconds. */
const T = Math.floor(Date.now() / 60000) * 60000 - 60000;
const RANGE = `from=${T}&to=${T + 60000}`;
const OFF = "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds";
const COLOURS = Object.fromEntries(readTable(readFileSync(`${top}/abi/tbl/wait.tbl`, "utf8"), "WAIT").map((r) => [r[1], { light: r[2], dark: r[3] }]));
let s;

before(async () => {
  if (skip)
    return;
  s = await serve("waits");
  const many = (n, row) => Array.from({ length: n }, (_, i) => row(T + 1000 * i));
  await sendSamples(s.url, "shop", many(20, (at) => [0, 0, "work;main", 300, at]));
  await sendSamples(s.url, "shop", [
    ...many(12, (at) => [0, 0, "futex;buy;main", 1000, at, "lock"]), ...many(6, (at) => [0, 0, "recv;buy;main", 500, at, "network"]),
    ...many(3, (at) => [0, 0, "recv;buy;main", 1000, at, "runnable"])], {}, {}, "off_cpu");
  await sendSamples(s.url, "db", many(4, (at) => [0, 0, "read;main", 500, at, "disk"]), {}, {}, "off_cpu");
});
after(async () => {
  await s?.stop();
  await closeAll();
});

function it(name, body) {
  test(`waits: ${name}`, { skip, timeout: 300000 }, body);
}

async function see(search, options) {
  const p = await openUrl(`${s.url}?${search}`, options);
  p.settled = async () => {
    await p.page.waitForSelector('.live-page[aria-busy="false"]');
    await p.painted();
  };
  await p.settled();
  return p;
}

const params = (p) => new URL(p.page.url()).searchParams;
const pressed = (p) => p.page.locator(".switch button[aria-pressed=true]").allInnerTexts();
const quality = async (p) => (await p.page.locator(".top .quality").innerText()).replace(/\s+/g, " ");
const legend = async (p) => (await p.page.locator(".legend li:not(.folding)").allInnerTexts()).map((t) => t.replace(/\s+/g, " ").trim());
const choose = async (p, name) => {
  await p.page.locator(".switch").getByRole("button", { name, exact: true }).click();
  await until(`${name} is shown`, async () => (await pressed(p))[0] === name);
  await p.settled();
};
const rows = async (p) => (await p.page.locator(".waits tbody tr").evaluateAll((trs) => trs.map((tr) =>
  [...tr.children].map((td) => td.innerText.replace(/\s+/g, " ").trim()))));
const openTable = (p) => p.page.locator(".of-waits summary").click();

it("CPU, waiting, and both in one flame graph", async () => {
  const p = await see(`service=shop&${RANGE}`);
  assert.deepEqual(await pressed(p), ["CPU"]);
  assert.match(await quality(p), /6\.00 s CPU/);
  assert.equal(await p.page.locator(".of-waits").count(), 0);
  await choose(p, "Waiting");
  assert.equal(params(p).get("type"), OFF);
  assert.match(await quality(p), /18\.0 s Waiting/);
  assert.deepEqual(await legend(p), ["lock 66.7 %", "network 16.7 %", "runnable 16.7 %"]);
  await p.shot("waiting-light");
  await choose(p, "Wall");
  assert.match(await quality(p), /24\.0 s Wall clock/);
  assert.deepEqual(await legend(p), ["lock 50 %", "running 25 %", "network 12.5 %", "runnable 12.5 %"]);
  // The link has it, and opens it again.
  const again = await see(params(p).toString());
  assert.deepEqual(await pressed(again), ["Wall"]);
  assert.match(await quality(again), /24\.0 s Wall clock/);
  await choose(p, "CPU");
  assert.match(await quality(p), /6\.00 s CPU/);
  await p.done();
  await again.done();
});

it("a table of categories: time, share, number; a click filters, another shows all", async () => {
  const p = await see(`service=shop&type=${encodeURIComponent(OFF)}&${RANGE}`);
  await openTable(p);
  const all = [["lock", "12.0 s", "66.7 %", "12", "0.20 threads"], ["network", "3.00 s", "16.7 %", "6", "0.05 threads"],
    ["runnable", "3.00 s", "16.7 %", "3", "0.05 threads"]];
  assert.deepEqual(await rows(p), all);
  await p.page.locator(".waits button", { hasText: "network" }).click();
  await p.settled();
  assert.deepEqual(params(p).getAll("is"), ["wait=network"]);
  await until("the sum is another", async () => /3\.00 s Waiting/.test(await quality(p)));
  // The table keeps the others, to choose from.
  assert.deepEqual(await rows(p), all);
  assert.deepEqual(await legend(p), ["network 100 %"]);
  await p.page.locator(".waits button", { hasText: "network" }).click();
  await until("the sum is another", async () => /18\.0 s Waiting/.test(await quality(p)));
  assert.deepEqual(params(p).getAll("is"), []);
  await p.done();
});

it("of all services, and of another one", async () => {
  const p = await see(`type=${encodeURIComponent(OFF)}&${RANGE}`);
  await openTable(p);
  assert.deepEqual((await rows(p)).map((r) => r.slice(0, 2)), [["lock", "12.0 s"], ["network", "3.00 s"], ["runnable", "3.00 s"], ["disk", "2.00 s"]]);
  const db = await see(`service=db&type=${encodeURIComponent(OFF)}&${RANGE}`);
  await openTable(db);
  assert.deepEqual(await rows(db), [["disk", "2.00 s", "100 %", "4", "0.03 threads"]]);
  await p.done();
  await db.done();
});

it("a click on the legend filters, running as well", async () => {
  const p = await see(`service=shop&${RANGE}`);
  await choose(p, "Wall");
  await p.page.locator(".legend .wait button", { hasText: "running" }).click();
  await until("the sum is another", async () => /6\.00 s Wall/.test(await quality(p)));
  assert.deepEqual(params(p).getAll("is"), ["wait=running"]);
  await p.page.locator(".legend .wait button", { hasText: "running" }).click();
  await until("the sum is another", async () => /24\.0 s Wall/.test(await quality(p)));
  await p.done();
});

for (const dark of [false, true])
  it(`the flame graph has the categories' colours, ${dark ? "dark" : "light"}`, async () => {
    const p = await see(`service=shop&type=${encodeURIComponent(OFF)}&${RANGE}`, { dark });
    const drawn = await p.page.locator(".legend .wait").evaluateAll((lis) => lis.map((li) =>
      [li.innerText.split(/\s/)[0], getComputedStyle(li.querySelector("i")).backgroundColor]));
    const rgb = (css) => `rgb(${[1, 3, 5].map((i) => parseInt(css.slice(i, i + 2), 16)).join(", ")})`;
    assert.deepEqual(drawn, ["lock", "network", "runnable"].map((n) => [n, rgb(COLOURS[n][dark ? "dark" : "light"])]));
    await p.shot(`waiting-colours-${dark ? "dark" : "light"}`);
    await p.done();
  });
