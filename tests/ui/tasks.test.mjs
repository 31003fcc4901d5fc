// SPDX-License-Identifier: Apache-2.0
/*
 * Tasks on the page of `culprit server`: three clicks from an endpoint, an agent made by hand that keeps a request, its
 * time by state, its spans and its stacks; why there is no data; cancel, delete; what the server refuses.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { Agent } from "./asking.mjs";
import { hex, sendSamples, sendSpans } from "./otlp.mjs";
import { cannot, openUrl, until } from "./page.mjs";
import { closeAll, folder, serve, text } from "./serve.mjs";

const skip = cannot();
const EVIL = "<img src=x onerror=alert(1)>";
let s;

before(async () => {
  if (skip)
    return;
  s = await serve("tasks");
  const start = Date.now() - 60000;
  await sendSpans(s.url, "shop", Array.from({ length: 40 }, (_, i) => ({ trace: 100 + i, id: 100 + i, name: "GET /buy", start: start + 10 * i, ms: 21 + i })));
  await sendSpans(s.url, "shop", [{ trace: 200, id: 200, name: `GET ${EVIL}`, start, ms: 3 }]);
});
after(async () => {
  await s?.stop();
  await closeAll();
});

function it(name, body) {
  test(`tasks: ${name}`, { skip, timeout: 300000 }, body);
}

async function see(search, options) {
  const p = await openUrl(`${options?.url ?? s.url}?${search}`, options);
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  await p.painted();
  return p;
}

const params = (p) => new URL(p.page.url()).searchParams;
const rows = (p, section) => p.page.getByRole("region", { name: section, exact: true }).locator("tbody tr:not(.advice)").evaluateAll((trs) => trs.map((tr) =>
  [...tr.querySelectorAll("td")].map((td) => td.innerText.replace(/\s+/g, " ").trim())));
const said = async (p, section) => (await p.page.getByRole("region", { name: section, exact: true }).innerText()).replace(/\s+/g, " ");
const api = async (path, method = "GET", body = undefined) => (await fetch(`${s.url}api/v1/${path}`, { method,
  ...body ? { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } } : {} })).json();

let task, start;

it("from an endpoint to a task in three clicks, with sensible values; why it has no data yet", async () => {
  const p = await see("view=traces&last=15m");
  const row = p.page.getByRole("region", { name: "Endpoints" }).locator("tr", { hasText: "GET /buy" });
  await row.getByRole("button", { name: "GET /buy" }).click();
  await p.page.getByRole("region", { name: "Endpoints" }).waitFor({ state: "detached" });
  await p.page.getByRole("button", { name: "Profile slow requests" }).click();
  const dialog = p.page.getByRole("dialog", { name: "Profile slow requests" });
  const value = (label) => dialog.getByLabel(label).inputValue();
  assert.deepEqual([await value("Service"), await value("Endpoint"), await value("Keep"), await value("From")], ["shop", "GET /buy", "min", "58"]);
  assert.deepEqual([await value("Ordinary requests"), await value("For"), await value("A sample every"), await value("At most")], ["1", "300000", "10000", "100"]);
  await p.shot("task-dialog-light");
  await dialog.getByRole("button", { name: "Start" }).click();
  await p.page.getByRole("region", { name: "Task", exact: true }).waitFor();
  task = params(p).get("task");
  assert.match(task, /^[0-9a-f]{8}$/);
  assert.equal(params(p).get("view"), "tasks");
  assert.match(await said(p, "Task"), /shop GET \/buy running .*keeps from 58\.0 ms, 1 % of others.*no agent has asked this server for tasks/);
  assert.match(await said(p, "Kept requests"), /None yet/);
  const { spec } = await api(`tasks/${task}`);
  assert.deepEqual([spec.service, spec.endpoint, spec.min_ms, spec.control, spec.max_requests, spec.period_us], ["shop", "GET /buy", 58, 0.01, 100, 10000]);
  await p.done();
});

it("a kept request: in the list as soon as its agent has it, its time by state, its spans in colour, its stacks", async () => {
  const p = await see(`view=tasks&task=${task}`);
  const agent = new Agent(s.url);
  await agent.ask([[task, "armed"]]);
  start = Date.now();
  await sendSpans(s.url, "shop", [{ trace: 1, id: 10, name: "GET /buy", start, ms: 400 }, { trace: 1, id: 11, parent: 10, name: "find stock", start: start + 50, ms: 100, kind: 1 },
    { trace: 2, id: 20, name: "GET /buy", start, ms: 500, error: "sold out" }, { trace: 3, id: 30, name: "GET /health", start, ms: 900 }]);
  const keeps = await agent.ask([[task, "armed"]]);
  assert.deepEqual(keeps.map((k) => k.trace.at(-1)).sort(), [1, 2]);
  await sendSamples(s.url, "shop", [[1, 10, "futex;lock;reserve;buy;main", 250, start + 200, { task, wait: "lock" }], [1, 10, "render;buy;main", 30, start + 30, { task }],
    [1, 11, "query;stock;buy;main", 90, start + 60, { task }]], { reserve: ["/src/shop.c", 41] }, {}, "wall", "request");
  const time = (span, state, ms) => [1, span, "", ms, start, { task, state }];
  await sendSamples(s.url, "shop", [time(10, "running", 40), time(10, "lock", 250), time(10, "runnable", 8), time(10, "unknown", 2), time(11, "running", 60), time(11, "disk", 40)],
    {}, {}, "time", "request");
  await agent.ask([[task, "armed"]], keeps.filter((k) => k.trace.at(-1) === 1).map((k) => [k, "kept", 3]));
  // Without a click: the page asks again by itself.
  await until("both are there", async () => (await rows(p, "Kept requests")).some((r) => r[7] === "kept"));
  const found = (await rows(p, "Kept requests")).sort((a, b) => (a[1] < b[1] ? -1 : 1));
  assert.deepEqual(found.map((r) => [r[1], r[3], r[4], r[5], r[6], r[7]]), [["400 ms", "GET /buy", "", "slow", "web-1", "kept"],
    ["500 ms", "GET /buy", "failed", "slow", "", "waiting for its agent"]]);
  assert.match(await said(p, "Task"), /3 requests seen, 2 to the endpoint, 2 wanted, 1 kept, 0 ordinary ones kept; the slowest took 500 ms/);
  assert.equal(await p.page.getByRole("region", { name: "Kept requests" }).locator("tr", { hasText: "400 ms" }).locator(".state-bar b").count(), 5);
  await p.shot("task-light");
  await p.page.getByRole("region", { name: "Kept requests" }).locator("tr", { hasText: "400 ms" }).getByRole("button").click();
  await p.page.getByRole("region", { name: "Kept request", exact: true }).waitFor();
  assert.deepEqual([params(p).get("task"), params(p).get("trace")], [task, hex(1, 32)]);
  // What each part is, in numbers, and that the parts are the request's time.
  assert.match(await said(p, "Time by state"),
    /running 100 ms 25\.0 % lock 250 ms 62\.5 % Who held it\? disk 40\.0 ms 10\.0 % runnable 8\.00 ms 2\.0 % unknown 2\.00 ms 0\.5 % 2\.00 ms in an unknown state/);
  const widths = (selector) => p.page.locator(selector).evaluateAll((bs) => bs.map((b) => Math.round(1000 * b.getBoundingClientRect().width / b.parentElement.getBoundingClientRect().width) / 10));
  assert.deepEqual(await widths(".ledger .state-bar b"), [25, 62.5, 10, 2, 0.5]);
  // The request's own time is 300 of its 400 ms: the rest is its child's.
  const bars = await p.page.locator(".waterfall .span").evaluateAll((all) => all.map((b) => [...b.querySelectorAll(".state-bar b")].map((x) => parseFloat(x.style.width))));
  assert.deepEqual(bars, [[10, 62.5, 2, 0.5], [60, 40]]);
  assert.match(await said(p, "Trace"), /running 40\.0 ms, lock 250 ms, runnable 8\.00 ms, unknown 2\.00 ms/);
  await p.page.waitForSelector(".flame canvas");
  assert.match(await text(p, ".quality"), /370 ms.*over 400 ms/);
  await p.shot("kept-request-light");
  await p.page.getByRole("button", { name: "find stock" }).click();
  await until("the picture of this span", async () => /90\.0 ms/.test(await text(p, ".quality")));
  const link = p.page.url();
  await p.page.goBack();
  await until("of the request again", async () => /370 ms/.test(await text(p, ".quality")));
  await p.page.getByRole("button", { name: "‹ shop GET /buy" }).click();
  await p.page.getByRole("region", { name: "Kept requests" }).waitFor();
  await p.done();
  const q = await see(new URL(link).search.slice(1), { dark: true });
  await q.page.waitForSelector(".flame canvas");
  assert.equal(await q.page.locator(".waterfall tr.chosen").count(), 1);
  await q.shot("kept-request-dark");
  await q.done();
});

it("the calls of a kept request as a tree: total, self, samples; a span with and without its children; to a line", async () => {
  const p = await see(`view=tasks&task=${task}&trace=${hex(1, 32)}`, { said: /status of 404/ });
  await p.page.getByRole("button", { name: "Calls", exact: true }).click();
  const grid = p.page.getByRole("treegrid");
  await grid.first().waitFor();
  const calls = () => grid.locator("tbody tr").evaluateAll((trs) => trs.map((tr) => [tr.ariaLevel, ...[...tr.cells].map((td) => td.innerText.replace(/\s+/g, " ").trim()), tr.className]));
  // Each name has a button that opens and closes, and those marked say so.
  const plain = async () => (await calls()).map((r) => [r[0], r[1].replace(/^[▾▸]\s*/, "").replace(/ \(among .*/, ""), r[2], r[3], r[4], r[6]]);
  assert.deepEqual(await plain(), [["1", "main", "370 ms", "0 ns", "3", ""], ["2", "buy", "370 ms", "0 ns", "3", ""], ["3", "reserve", "250 ms", "0 ns", "1", ""],
    ["4", "lock", "250 ms", "0 ns", "1", ""], ["5", "futex", "250 ms", "250 ms", "1", "hot"], ["3", "stock", "90.0 ms", "0 ns", "1", ""],
    ["4", "query", "90.0 ms", "90.0 ms", "1", "hot"], ["3", "render", "30.0 ms", "30.0 ms", "1", "hot"]]);
  await p.shot("kept-calls-light");
  await grid.getByRole("button", { name: "Close reserve" }).press("Enter");
  assert.equal((await plain()).length, 6);
  assert.equal(await grid.locator("tr", { hasText: "reserve" }).getAttribute("aria-expanded"), "false");
  await p.page.getByLabel("Estimate").selectOption("skywalking");
  await until("in the address", () => params(p).get("calls") === "skywalking");
  await p.page.getByRole("button", { name: "find stock" }).click();
  await until("of this span", async () => (await plain()).map((r) => r[1]).join() === "main,buy,stock,query");
  await p.page.goBack();
  await until("of all", async () => (await plain()).some((r) => r[1] === "render"));
  await p.page.getByRole("button", { name: "GET /buy", exact: true }).click();
  await p.page.getByLabel(/include\s+child spans/).uncheck();
  await until("without its child", async () => (await plain()).every((r) => r[1] !== "query"));
  await grid.getByRole("button", { name: "shop.c:41" }).click();
  await p.page.locator(".sheet-source").waitFor();
  assert.deepEqual([params(p).get("source"), params(p).get("line")], ["/src/shop.c", "41"]);
  await p.done();
  const q = await see(`view=tasks&task=${task}&trace=${hex(1, 32)}&calls=unbiased`, { dark: true });
  await q.page.getByRole("treegrid").first().waitFor();
  await q.shot("kept-calls-dark");
  await q.done();
});

it("another task's samples of the same request are not counted", async () => {
  const other = (await api("tasks", "POST", { service: "shop", endpoint: "GET /buy" })).id;
  await sendSpans(s.url, "shop", [{ trace: 5, id: 50, name: "GET /buy", start: Date.now(), ms: 100 }]);
  for (const [id, ms] of [[task, 60], [other, 70]]) {
    await sendSamples(s.url, "shop", [[5, 50, "buy;main", ms, Date.now(), { task: id }]], {}, {}, "wall", "request");
    await sendSamples(s.url, "shop", [[5, 50, "", ms, Date.now(), { task: id, state: "running" }]], {}, {}, "time", "request");
  }
  const p = await see(`view=tasks&task=${other}&trace=${hex(5, 32)}`);
  await p.page.waitForSelector(".flame canvas");
  assert.match(await said(p, "Time by state"), /running 70\.0 ms 70\.0 % 30\.0 ms in no thread of the request/);
  assert.match(await text(p, ".quality"), /70\.0 ms/);
  await p.done();
  await api(`tasks/${other}`, "DELETE");
});

it("all tasks: counts, cancel, delete in two clicks; by keyboard; nothing hostile runs", async () => {
  await api("tasks", "POST", { service: EVIL, endpoint: `*${EVIL}*`, errors: true });
  const p = await see("view=tasks");
  const row = (name) => p.page.getByRole("region", { name: "Tasks", exact: true }).locator("tr", { hasText: name });
  const mine = async () => (await rows(p, "Tasks")).find((r) => r[1] === "GET /buy shop");
  assert.deepEqual((await mine()).slice(0, 8), ["running", "GET /buy shop", "from 58.0 ms, 1 % of others", "4", "3", "3", "1", "0"]);
  await p.shot("tasks-light");
  await row("GET /buy").getByRole("button", { name: "Cancel" }).press("Enter");
  await until("it is cancelled", async () => (await mine())[0] === "cancelled");
  assert.equal(await row("GET /buy").getByRole("button", { name: "Cancel" }).count(), 0);
  await row(EVIL).getByRole("button", { name: "Delete" }).click();
  assert.equal((await rows(p, "Tasks")).length, 2, "the first click asks");
  await row(EVIL).getByRole("button", { name: "Really delete" }).click();
  await until("it is deleted", async () => (await rows(p, "Tasks")).length === 1);
  assert.equal((await api("tasks")).tasks.length, 1);
  await row("GET /buy").getByRole("button", { name: "GET /buy" }).click();
  await p.page.getByRole("region", { name: "Task", exact: true }).waitFor();
  await p.page.getByText("Log of this task").click();
  assert.match(await said(p, "Task"), /cancelled/);
  await p.page.getByRole("button", { name: "‹ All tasks" }).click();
  await p.page.getByRole("region", { name: "Tasks", exact: true }).waitFor();
  await p.done();
  const q = await see(`view=tasks&task=${task}`, { dark: true });
  await q.shot("task-dark");
  await q.done();
  for (const search of ["view=tasks", `view=tasks&task=${task}`, `view=tasks&task=${task}&trace=${hex(1, 32)}`]) {
    const phone = await see(search, { width: 390, height: 844, touch: true });
    const wide = await phone.page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 390, `${search} is ${wide} px wide`);
    await phone.done();
  }
});

it("a new task by hand: what the server refuses is said in the dialog, which stays; Escape closes it", async () => {
  const p = await see("view=tasks", { said: /status of 400/ });
  await p.page.getByRole("button", { name: "New task" }).click();
  const dialog = p.page.getByRole("dialog", { name: "Profile slow requests" });
  await dialog.getByLabel("Service").fill("cart");
  await dialog.getByLabel("Endpoint").fill("~GET (");
  await dialog.getByLabel("Endpoint").press("Enter");
  await dialog.getByRole("alert").waitFor();
  assert.match(await dialog.getByRole("alert").innerText(), /^Not accepted: /);
  await dialog.getByLabel("Endpoint").fill("~GET /.*");
  await dialog.getByLabel("Keep").selectOption("percentile");
  await dialog.getByLabel("Above percentile").selectOption("95");
  await dialog.getByLabel("Also failed requests").check();
  await dialog.getByRole("combobox", { name: /^For/ }).selectOption("0");
  await dialog.getByRole("button", { name: "Start" }).click();
  await p.page.getByRole("region", { name: "Task", exact: true }).waitFor();
  assert.match(await said(p, "Task"), /keeps above p95, errors, 1 % of others.*until cancelled.*no span of the service cart has arrived/);
  const { spec } = await api(`tasks/${params(p).get("task")}`);
  assert.deepEqual([spec.endpoint, spec.min_ms, spec.percentile, spec.errors, spec.duration_ms], ["~GET /.*", null, 95, true, 0]);
  await p.page.getByRole("button", { name: "‹ All tasks" }).click();
  await p.page.getByRole("button", { name: "New task" }).click();
  await dialog.waitFor();
  await p.key("Escape");
  await dialog.waitFor({ state: "detached" });
  await p.done();
});

it("a token that may read only sees tasks, and is told that it cannot change them", async () => {
  const [read, admin] = ["r".repeat(20), "a".repeat(20)];
  writeFileSync(`${folder}/tokens.txt`, `read ${read}\nadmin ${admin}\n`, { mode: 0o600 });
  const guarded = await serve("tokens", { options: ["--token-file", `${folder}/tokens.txt`] });
  const p = await openUrl(`${guarded.url}?view=tasks`, { said: /status of 40[13]/ });
  await p.page.getByRole("textbox", { name: "Token" }).fill(read);
  await p.page.getByRole("textbox", { name: "Token" }).press("Enter");
  await p.page.getByRole("button", { name: "New task" }).click();
  const dialog = p.page.getByRole("dialog", { name: "Profile slow requests" });
  await dialog.getByLabel("Service").fill("shop");
  await dialog.getByRole("button", { name: "Start" }).click();
  assert.match(await dialog.getByRole("alert").innerText(), /role admin/);
  await p.done();
  await guarded.stop();
});
