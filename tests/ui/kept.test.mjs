// SPDX-License-Identifier: Apache-2.0
/*
 * All requests that a task kept, together, on the page of `culprit server`: their calls as one tree with owners of locks and
 * wakers, flame graphs, slow beside ordinary ones, and times by state. Spans, the agent and its samples are made by hand.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Agent } from "./asking.mjs";
import { hex, sendSamples, sendSpans } from "./otlp.mjs";
import { cannot, openUrl, until } from "./page.mjs";
import { closeAll, serve, text } from "./serve.mjs";

const skip = cannot();
const EVIL = "<img src=x onerror=alert(1)>";
const SLOW = [1, 2, 3, 4];
const ORDINARY = [11, 12, 13, 14, 15, 16];
let s, task, lonely, start;

const api = async (path, method = "GET", body = undefined) => (await fetch(`${s.url}api/v1/${path}`, { method,
  ...body ? { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } } : {} })).json();

/** An agent keeps requests, [number, ms, endpoint], of the task. */
async function keep(id, requests, at) {
  const agent = new Agent(s.url);
  await agent.ask([[id, "armed"]]);
  await sendSpans(s.url, "shop", requests.map(([n, ms, name]) => ({ trace: n, id: n, name, start: at, ms })));
  const keeps = (await agent.ask([[id, "armed"]])).filter((k) => k.task === id);
  await agent.ask([[id, "armed"]], keeps.map((k) => [k, "kept", 3]));
}

before(async () => {
  if (skip)
    return;
  s = await serve("kept");
  task = (await api("tasks", "POST", { service: "shop", endpoint: "GET /*", min_ms: 200, control: 1 })).id;
  start = Date.now();
  await keep(task, [...SLOW.map((n) => [n, 200 + n, n === 4 ? "GET /sell" : "GET /buy"]), ...ORDINARY.map((n) => [n, 40, "GET /buy"])], start);
  const of = (n, kept, thread = "worker", more = {}) => ({ task, kept, "thread.name": thread, ...more });
  const lock = { wait: "lock", lock: "0xa1", owner: "77", waker: "clerk", waker_pid: "70", waker_tid: "77" };
  await sendSamples(s.url, "shop", [
    ...SLOW.flatMap((n) => [[n, n, "futex;lock;reserve;buy;main", 150, start + 150, of(n, "slow", "worker", lock)],
      [n, n, "render;buy;main", 20, start + 10 * n, of(n, "slow")], [n, n, "render;buy;main", 5, start + 5, of(n, "slow", "helper")]]),
    ...ORDINARY.map((n) => [n, n, "render;buy;main", 30 + n % 3, start + n, of(n, "control")])], { reserve: ["/src/shop.c", 41], render: ["/src/view.c", 7] }, {}, "wall", "request");
  const time = (n, kept, state, ms) => [n, n, "", ms, start, { task, kept, state }];
  await sendSamples(s.url, "shop", [...SLOW.flatMap((n) => [time(n, "slow", "running", 30), time(n, "slow", "lock", 150 + n)]),
    ...ORDINARY.flatMap((n) => [time(n, "control", "running", 30 + n % 3), time(n, "control", "runnable", 2)])], {}, {}, "time", "request");
  // Another task, which keeps no others.
  lonely = (await api("tasks", "POST", { service: "shop", endpoint: `GET ${EVIL}`, min_ms: 0, control: 0 })).id;
  await keep(lonely, [[30, 300, `GET ${EVIL}`]], Date.now());
  await sendSamples(s.url, "shop", [[30, 30, `${EVIL};main`, 100, start, { task: lonely, kept: "slow", wait: "lock", owner: EVIL }]], { [EVIL]: [`/${EVIL}`, 3] }, {}, "wall", "request");
});
after(async () => {
  await s?.stop();
  await closeAll();
});

function it(name, body) {
  test(`kept: ${name}`, { skip, timeout: 300000 }, body);
}

async function see(search, options) {
  const p = await openUrl(`${s.url}?${search}`, options);
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  await p.painted();
  return p;
}

const params = (p) => new URL(p.page.url()).searchParams;
const said = async (p, section) => (await p.page.getByRole("region", { name: section, exact: true }).innerText()).replace(/\s+/g, " ");
const table = (scope) => scope.evaluateAll((trs) => trs.map((tr) => [...tr.cells].map((c) => c.innerText.replace(/\s+/g, " ").trim())));

it("from the task to all of its requests: a flame graph, and the times by state of both groups", async () => {
  const p = await see(`view=tasks&task=${task}`);
  await p.page.getByRole("button", { name: "All together" }).click();
  await p.page.getByRole("region", { name: "Times by state" }).waitFor();
  assert.equal(params(p).get("kept"), "slow");
  await p.page.waitForSelector(".flame canvas");
  // 4 requests of 175 ms; their durations are 810 ms.
  assert.match(await text(p, ".quality"), /700 ms.*over 810 ms/);
  const rows = await table(p.page.getByRole("region", { name: "Times by state" }).locator("tbody tr"));
  assert.deepEqual(rows, [["duration", "203 ms", "202 ms", "204 ms", "204 ms", "40.0 ms", "40.0 ms", "40.0 ms", "40.0 ms"],
    ["running", "30.0 ms", "30.0 ms", "30.0 ms", "30.0 ms", "31.0 ms", "31.0 ms", "32.0 ms", "32.0 ms"],
    ["lock", "153 ms", "152 ms", "154 ms", "154 ms", "0 ns", "0 ns", "0 ns", "0 ns"],
    ["runnable", "0 ns", "0 ns", "0 ns", "0 ns", "2.00 ms", "2.00 ms", "2.00 ms", "2.00 ms"],
    ["in no thread", "20.0 ms", "20.0 ms", "20.0 ms", "20.0 ms", "7.00 ms", "7.00 ms", "8.00 ms", "8.00 ms"]]);
  assert.match(await said(p, "Times by state"), /4 slow requests, 203 ms each 6 ordinary requests, 40\.0 ms each/);
  // The bars compare: an ordinary request is a fifth of a slow one.
  const [slow, ordinary] = await p.page.locator(".times .whole").evaluateAll((bs) => bs.map((b) => b.getBoundingClientRect().width));
  assert.ok(Math.abs(ordinary / slow - 40 / 202.5) < 0.01, `${ordinary} of ${slow}`);
  await p.shot("kept-all-light");
  await p.page.getByRole("button", { name: "Ordinary", exact: true }).click();
  await until("of the ordinary ones", async () => /186 ms.*over 240 ms/.test(await text(p, ".quality")));
  await p.page.goBack();
  await until("of the slow ones", async () => /700 ms/.test(await text(p, ".quality")));
  await p.page.getByRole("button", { name: "‹ shop GET /*" }).click();
  await p.page.getByRole("region", { name: "Kept requests" }).waitFor();
  await p.done();
});

it("calls of all requests as one tree: per request, for whom they waited, to a line; of one endpoint", async () => {
  const p = await see(`view=tasks&task=${task}&kept=slow`, { said: /status of 404/ });
  await p.page.getByRole("button", { name: "Calls", exact: true }).click();
  const grid = p.page.getByRole("treegrid");
  await grid.waitFor();
  const heads = () => grid.locator("thead th").allInnerTexts();
  assert.deepEqual(await heads(), ["4 requests", "Total", "Self", "Per request", "Samples", "Requests", "Lock owner", "Woken by", "Line"]);
  const plain = async () => (await table(grid.locator("tbody tr"))).map(([name, ...rest]) => [name.replace(/^[▾▸]\s*/, "").replace(/ \(among .*/, ""), ...rest]);
  const waited = ["thread 77", "clerk"];
  assert.deepEqual(await plain(), [["main", "700 ms", "0 ns", "175 ms", "12", "4", ...waited, ""], ["buy", "700 ms", "0 ns", "175 ms", "12", "4", ...waited, ""],
    ["reserve", "600 ms", "0 ns", "150 ms", "4", "4", ...waited, "shop.c:41"], ["lock", "600 ms", "0 ns", "150 ms", "4", "4", ...waited, ""],
    ["futex", "600 ms", "600 ms", "150 ms", "4", "4", ...waited, ""], ["render", "100 ms", "100 ms", "25.0 ms", "8", "4", "", "", "view.c:7"]]);
  assert.equal(await grid.locator("tr.hot").count(), 2);
  assert.match(await grid.locator("tr", { hasText: "futex" }).locator("td").nth(6).getAttribute("title"), /\(thread 77\) for 600 ms/);
  await p.shot("kept-all-calls-light");
  await p.page.getByLabel("Endpoint").selectOption("GET /sell");
  await until("of one endpoint", async () => (await plain())[0][1] === "175 ms");
  assert.equal(params(p).get("endpoint"), "GET /sell");
  await p.page.getByRole("button", { name: "Ordinary", exact: true }).click();
  await p.page.getByText("There are no samples of these requests").waitFor();
  await p.page.getByLabel("Endpoint").selectOption("");
  await until("the ordinary ones", async () => (await heads())[0] === "6 requests");
  assert.deepEqual((await plain()).map((r) => r.slice(0, 4)), [["main", "186 ms", "0 ns", "31.0 ms"], ["buy", "186 ms", "0 ns", "31.0 ms"], ["render", "186 ms", "186 ms", "31.0 ms"]]);
  await grid.getByRole("button", { name: "view.c:7" }).click();
  await p.page.locator(".sheet-source").waitFor();
  assert.deepEqual([params(p).get("source"), params(p).get("line")], ["/src/view.c", "7"]);
  await p.done();
  const q = await see(`view=tasks&task=${task}&kept=slow&calls=unbiased`, { dark: true });
  await q.page.getByRole("treegrid").waitFor();
  await q.shot("kept-all-calls-dark");
  await q.done();
});

it("slow beside ordinary requests: per request, with intervals, as a table and as one flame graph", async () => {
  const p = await see(`view=tasks&task=${task}&kept=slow`, { said: /status of 404/ });
  await p.page.getByRole("button", { name: "Difference", exact: true }).click();
  const section = p.page.getByRole("region", { name: "Slow vs ordinary" });
  await section.waitFor();
  await p.page.waitForSelector(".flame canvas");
  assert.match(await said(p, "Slow vs ordinary"), /4 slow requests \(201 ms–204 ms\), 175 ms .* each, 4 with samples ?6 ordinary requests \(40\.0 ms–40\.0 ms\), 31\.0 ms .* each/);
  const rows = await table(section.locator("tbody tr"));
  const row = (name) => rows.find((r) => r[3].split(" ")[0] === name);
  assert.match(rows[0][3], /^reserve shop\.c:41/, "the path that only slow requests take begins here");
  assert.deepEqual([row("reserve")[0], ...row("reserve").slice(4)], ["+150 ms", "150 ms", "0 ns", "100 %", "0 %"]);
  assert.match(row("render")[3], /^render view\.c:7/);
  assert.deepEqual([row("render")[0], ...row("render").slice(4)], ["−6.00 ms", "25.0 ms", "31.0 ms", "100 %", "100 %"]);
  assert.match(row("main")[0], /\+144 ms/);
  assert.match(await text(p, ".page .quality"), /vs ordinary requests.*175 ms.*over 203 ms/);
  await p.shot("kept-difference-light");
  await section.getByRole("button", { name: "shop.c:41" }).first().click();
  await p.page.locator(".sheet-source").waitFor();
  assert.deepEqual([params(p).get("source"), params(p).get("line")], ["/src/shop.c", "41"]);
  await p.done();
  const q = await see(`view=tasks&task=${task}&kept=difference`, { dark: true });
  await q.page.waitForSelector(".flame canvas");
  await q.shot("kept-difference-dark");
  await q.done();
});

it("without ordinary requests there is no verdict; nothing hostile runs", async () => {
  const p = await see(`view=tasks&task=${lonely}&kept=difference`);
  await p.page.getByText("1 slow request and no ordinary one to compare with").waitFor();
  assert.equal(await p.page.locator(".flame canvas").count(), 0);
  await p.page.getByRole("button", { name: "Ordinary", exact: true }).click();
  await p.page.getByText(/No ordinary request with\s+samples was kept yet/).waitFor();
  await p.page.getByRole("button", { name: "Slow", exact: true }).click();
  await p.page.getByRole("button", { name: "Calls", exact: true }).click();
  const grid = p.page.getByRole("treegrid");
  await grid.waitFor();
  assert.ok((await grid.innerText()).includes(EVIL));
  assert.match(await text(p, ".tasks-page"), /No agent has sent times by state for these requests/);
  await p.done();
});

it("the calls of one request: by thread, or all threads as one", async () => {
  const p = await see(`view=tasks&task=${task}&trace=${hex(1, 32)}&calls=unbiased`);
  const grid = p.page.getByRole("treegrid");
  await grid.first().waitFor();
  assert.deepEqual(await grid.evaluateAll((ts) => ts.map((t) => t.ariaLabel)), ["Calls of shop: worker", "Calls of shop: helper"]);
  await p.page.getByLabel(/merge\s+all threads/).check();
  await until("one tree", async () => (await grid.count()) === 1);
  assert.equal(params(p).get("whole"), "1");
  const main = (await table(grid.locator("tbody tr")))[0].slice(1);
  assert.deepEqual(main, ["175 ms", "0 ns", "3", "thread 77", "clerk", ""]);
  await p.done();
});

it("on a phone nothing is wider than the screen", async () => {
  for (const [search, name] of [["kept=slow", "all"], ["kept=slow&calls=unbiased", "all-calls"], ["kept=difference", "difference"]]) {
    const phone = await see(`view=tasks&task=${task}&${search}`, { width: 390, height: 844, touch: true });
    const wide = await phone.page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 390, `${search} is ${wide} px wide`);
    await phone.shot(`kept-${name}-phone`);
    await phone.done();
  }
});
