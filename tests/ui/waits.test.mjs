// SPDX-License-Identifier: Apache-2.0
/* Waits on the page, as `culprit server` serves it over a store whose every number is known. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { readFileSync } from "node:fs";
import { readTable } from "../../ui/vocab.mjs";
import { sendSamples } from "./otlp.mjs";
import { cannot, openHtml, openUrl, top, until } from "./page.mjs";
import { closeAll, serve } from "./serve.mjs";

const skip = cannot();
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
  await sendThreads();
  await sendSamples(s.url, "db", many(4, (at) => [0, 0, "read;main", 500, at, "disk"]), {}, {}, "off_cpu");
});
/* Another time, with threads that are known for long: their ids are labels. */
const T2 = T - 600000;
const RANGE2 = `from=${T2}&to=${T2 + 60000}`;
const THREADS = { "worker-1": 101, "worker-2": 102, owner: 103, pool: 104 };
const who = (thread, more = {}) => ({ "thread.name": thread, "thread.id": THREADS[thread], "process.pid": 100, ...more });
const RELEASED = "run;pay;pthread_mutex_unlock;[woken by owner];futex_wait;pthread_mutex_lock;buy;main";

async function sendThreads() {
  await sendSamples(s.url, "pay", Object.keys(THREADS).map((t) => [0, 0, "main", 1, T2 - 60000, who(t, { wait: "lock" })]), {}, {}, "off_cpu");
  const lock = { wait: "lock", lock: "0xa1", owner: "103" };
  await sendSamples(s.url, "pay", [
    [0, 0, RELEASED, 10000, T2 + 20000, who("worker-1", lock)], [0, 0, RELEASED, 4000, T2 + 18000, who("worker-2", lock)],
    [0, 0, "[woken by an interrupt];syscall;ask;main", 2000, T2 + 30000, who("worker-1", { wait: "network", peer: "10.0.0.9:5432" })],
    [0, 0, "nap;pay;run", 3000, T2 + 16000, who("owner", { wait: "sleep", holds: "0xa1" })],
    [0, 0, "take;pool", 30000, T2 + 40000, who("pool", { wait: "idle" })]], {}, {}, "off_cpu");
  await sendSamples(s.url, "pay", [[0, 0, "spin;pay;run", 50, T2 + 17000, who("owner")]]);
}

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
const tab = async (p, name) => {
  await p.page.locator(".wait-bar").getByRole("button", { name, exact: true }).click();
  await p.settled();
};
const openTable = (p) => tab(p, "by category");

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
  assert.deepEqual(await legend(p), ["lock 50.0 %", "running 25.0 %", "network 12.5 %", "runnable 12.5 %"]);
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

/* ---- lanes ---- */

const PAY = `service=pay&type=${encodeURIComponent(OFF)}&${RANGE2}`;
const HEX = (c) => `#${c.map((v) => v.toString(16).padStart(2, "0")).join("")}`;
/** The colour of a thread's lane in the middle of the second `at`, at the share `up` of its height; "" for none. */
const laneColour = (p, thread, at, up = 0.5) => p.page.locator(".state-lanes .lane", { hasText: thread }).locator("canvas").evaluate((c, [s, y]) => {
  const d = c.getContext("2d").getImageData((s + 0.5) / 60 * c.width, (1 - y) * c.height, 1, 1).data;
  return d[3] === 0 ? [] : [...d.slice(0, 3)];
}, [at, up]).then((c) => (c.length ? HEX(c) : ""));
const laneNames = (p) => p.page.locator(".state-lanes button.n").allInnerTexts().then((all) => all.map((t) => t.replace(/\s+/g, " ").trim()));

for (const dark of [false, true])
  it(`lanes of threads: what each did, second by second, ${dark ? "dark" : "light"}`, async () => {
    const p = await see(`${PAY}&chart=threads`, { dark });
    const of = (name) => COLOURS[name][dark ? "dark" : "light"];
    // Who waited longest first; a thread without work waited for nothing.
    assert.deepEqual(await laneNames(p), ["worker-1 101", "worker-2 102", "owner 103", "pool 104"]);
    // The times are those of the waits, which are stored with their ends.
    for (const [thread, at, state] of [["worker-1", 9, ""], ["worker-1", 10, "lock"], ["worker-1", 15, "lock"], ["worker-1", 19, "lock"], ["worker-1", 21, ""],
      ["worker-1", 28, "network"], ["worker-1", 29, "network"], ["worker-1", 31, ""], ["worker-2", 13, ""], ["worker-2", 14, "lock"], ["owner", 13, "sleep"],
      ["owner", 15, "sleep"], ["pool", 20, ""]])
      assert.equal(await laneColour(p, thread, at), state && of(state), `${thread} ${at}`);
    // It ran for a twentieth of that second, which is less than a whole row of pixels.
    const ran = await laneColour(p, "owner", 16, 0.02);
    const far = [1, 3, 5].map((i) => Math.abs(parseInt(ran.slice(i, i + 2), 16) - parseInt(of("running").slice(i, i + 2), 16)));
    assert.ok(Math.max(...far) <= 3, ran);
    assert.equal(await laneColour(p, "owner", 16, 0.5), "");
    await p.shot(`lanes-${dark ? "dark" : "light"}`);
    // What is hidden is said, and shown if it is asked for.
    const idle = p.page.getByRole("button", { name: "30.0 s of idle threads hidden" });
    await idle.click();
    await until("idle threads are shown", async () => params(p).get("idle") === "1" && await laneColour(p, "pool", 20) === of("idle"));
    await until("in the flame graph, too", async () => /49\.0 s Waiting/.test(await quality(p)));
    await p.page.getByRole("button", { name: "30.0 s of idle threads shown" }).click();
    await until("they are hidden again", async () => /19\.0 s Waiting/.test(await quality(p)));
    await p.done();
  });

it("a stretch of a lane is the thread's flame graph of that time", async () => {
  const p = await see(`${PAY}&chart=threads`);
  const strip = await p.page.locator(".state-lanes .lane", { hasText: "worker-1" }).locator("canvas").boundingBox();
  const x = (second) => strip.x + (second + 0.5) / 60 * strip.width;
  await p.page.mouse.move(x(11), strip.y + 8);
  await p.painted();
  assert.match(await p.page.locator(".strip-of output").innerText(), /lock 100 %/);
  await p.page.mouse.down();
  await p.page.mouse.move(x(13), strip.y + 8);
  await p.page.mouse.up();
  await p.settled();
  // Up to the end of the wait that goes on: its sample is there.
  assert.deepEqual([Number(params(p).get("from")), Number(params(p).get("to"))], [T2 + 11000, T2 + 20001]);
  assert.deepEqual(params(p).getAll("is"), ["thread.name=worker-1"]);
  await until("the sum is the thread's", async () => /10\.0 s Waiting/.test(await quality(p)));
  assert.deepEqual(await legend(p), ["lock 100 %"]);
  // The others are still there.
  assert.deepEqual((await laneNames(p)).slice(0, 2), ["worker-1 101", "worker-2 102"]);
  await p.page.goBack();
  await until("all threads are back", async () => /19\.0 s Waiting/.test(await quality(p)));
  await p.done();
});

it("a thread is found by its name; by keyboard", async () => {
  const p = await see(`${PAY}&chart=threads`);
  await p.page.getByLabel("Find a thread by name or id").fill("ker-2");
  await until("one is found", async () => (await laneNames(p)).join() === "worker-2 102");
  assert.equal(params(p).get("lane"), "ker-2");
  await p.page.getByLabel("Find a thread by name or id").fill("nobody");
  await until("it says that there is none", async () => /No thread of 4 matches/.test(await p.page.locator(".state-lanes").innerText()));
  const q = await see(`${PAY}&chart=threads&lane=owner`);
  const lane = q.page.locator(".strip-of");
  assert.match(await lane.getAttribute("aria-label"), /^owner: running 50\.0 ms, sleep 3\.00 s\./);
  await lane.focus();
  await q.key("Home", ...Array(13).fill("ArrowRight"), "Shift+ArrowRight", "Enter");
  await until("the thread's time is shown", async () => /3\.00 s Waiting/.test(await quality(q)));
  assert.deepEqual([params(q).get("from"), params(q).getAll("is")], [String(T2 + 13000), ["thread.name=owner"]]);
  await p.done();
  await q.done();
});

/* ---- tables by lock and peer ---- */

const cells = (p) => p.page.locator(".waits tbody tr").evaluateAll((trs) => trs.map((tr) => [...tr.children].map((td) => td.innerText.replace(/\s+/g, " ").trim())));

it("a table of locks: who waits, who has it, in which function, who released it", async () => {
  const p = await see(PAY);
  await tab(p, "by lock");
  assert.equal(params(p).get("waits"), "lock");
  assert.deepEqual(await cells(p), [["0xa1", "14.0 s", "100 %", "2", "2 worker-1 +1", "owner while held", "buy", "owner in pay"]]);
  await p.shot("locks");
  await p.page.locator(".waits button", { hasText: "0xa1" }).click();
  await until("only the lock is shown", async () => /14\.0 s Waiting/.test(await quality(p)));
  assert.deepEqual(params(p).getAll("is"), ["lock=0xa1"]);
  // What threads did that had the lock while others waited.
  await p.page.locator(".waits td button", { hasText: "while held" }).click();
  await until("only the time with the lock is shown", async () => /3\.00 s Wall clock/.test(await quality(p)));
  assert.deepEqual(params(p).getAll("is"), ["holds=0xa1"]);
  assert.deepEqual((await cells(p)).map((r) => r[0]), ["0xa1"]);
  // What the owner did in all of the time: it slept, and ran.
  await p.page.locator(".waits td button", { hasText: /^owner$/ }).click();
  await until("only the owner is shown", async () => /3\.05 s Wall clock/.test(await quality(p)));
  assert.deepEqual([params(p).getAll("is"), params(p).get("type")], [["thread.id=103"], `process_cpu:cpu:nanoseconds:cpu:nanoseconds+${OFF}`]);
  assert.deepEqual(await legend(p), ["sleep 98.4 %", "running 1.6 %"]);
  await p.done();
});

it("a table of peers, and what there is not", async () => {
  const p = await see(`${PAY}&waits=peer`);
  assert.deepEqual(await cells(p), [["10.0.0.9:5432", "2.00 s", "100 %", "1", "1 worker-1", "ask", "an interrupt"]]);
  await p.page.locator(".waits button", { hasText: "10.0.0.9" }).click();
  await until("only the peer is shown", async () => /2\.00 s Waiting/.test(await quality(p)));
  await p.done();
  const shop = await see(`service=shop&type=${encodeURIComponent(OFF)}&${RANGE}&waits=lock`);
  assert.match(await shop.page.locator(".of-waits .none").innerText(), /their samples do not name them/);
  await tab(shop, "who woke whom");
  assert.match(await shop.page.locator(".of-waits .none").innerText(), /is unknown.*--wakers/);
  await shop.done();
  const db = await see(`service=db&type=${encodeURIComponent(OFF)}&${RANGE}&waits=lock`);
  assert.match(await db.page.locator(".of-waits .none").innerText(), /No thread waited for a lock/);
  await db.done();
});

/* ---- who woke whom ---- */

it("who woke whom: threads, time, and a click", async () => {
  const p = await see(`${PAY}&waits=wakers`);
  const nodes = async () => (await p.page.locator(".wakes .node").evaluateAll((all) => all.map((g) => g.getAttribute("aria-label"))));
  assert.deepEqual(await nodes(), ["worker-1 waited, 12.0 s", "worker-2 waited, 4.00 s", "owner ended the waits, 14.0 s", "interrupt ended the waits, 2.00 s"]);
  // The sleeper's waker is not known.
  assert.match(await p.page.locator(".wakes").innerText(), /Who ended the wait is known for 84\.2 % of the waiting time \(16\.0 s of 19\.0 s\)/);
  await p.page.locator(".wakes summary").click();
  assert.deepEqual(await cells(p), [["worker-1", "owner", "1", "10.0 s", "52.6 %", "lock"], ["worker-2", "owner", "1", "4.00 s", "21.1 %", "lock"],
    ["worker-1", "interrupt", "1", "2.00 s", "10.5 %", "network"]]);
  await p.shot("wakers");
  await p.page.locator(".wakes .node", { hasText: "owner" }).click();
  await until("only what the owner ended is shown", async () => /14\.0 s Waiting/.test(await quality(p)));
  assert.equal(params(p).get("stacks"), 'fn="[woken by owner]"');
  await p.page.locator(".wakes .node", { hasText: "worker-2" }).focus();
  await p.key("Enter");
  await until("of one thread", async () => /4\.00 s Waiting/.test(await quality(p)));
  assert.deepEqual(params(p).getAll("is"), ["thread.name=worker-2"]);
  await p.done();
});

it("all of it fits on a phone", async () => {
  for (const waits of ["lock", "wakers", "category"]) {
    const p = await see(`${PAY}&chart=threads&waits=${waits}`, { width: 390, height: 844 });
    assert.ok(await p.page.evaluate(() => document.scrollingElement.scrollWidth) <= 390, waits);
    const strip = await p.page.locator(".strip-of canvas").first().boundingBox();
    assert.ok(strip.width > 120 && strip.x + strip.width <= 390, `${strip.width}`);
    // The flame graph has room, if one scrolls there.
    assert.ok((await p.page.locator(".live-page").boundingBox()).height >= 290);
    await p.shot(`waits-phone-${waits}`);
    await p.done();
  }
});

it("in a file: categories, who woke whom, and idle threads apart", async () => {
  const r = await fetch(`${s.url}api/v1/export?format=html&type=${encodeURIComponent(OFF)}&from=${T2}&to=${T2 + 60000}&query=${encodeURIComponent('{service.name="pay"}')}`);
  const p = await openHtml(await r.text());
  assert.match(await quality(p), /19\.0 s Waiting/);
  await p.page.getByRole("button", { name: "by category" }).click();
  assert.deepEqual((await cells(p)), [["lock", "14.0 s", "73.7 %"], ["sleep", "3.00 s", "15.8 %"], ["network", "2.00 s", "10.5 %"]]);
  await p.page.locator(".waits button", { hasText: "network" }).click();
  await p.painted();
  assert.deepEqual(await legend(p), ["network 100 %"]);
  await p.page.locator(".waits button", { hasText: "network" }).click();
  await p.page.getByRole("button", { name: "30.0 s of idle threads hidden" }).click();
  await until("idle threads are shown", async () => /49\.0 s Waiting/.test(await quality(p)));
  assert.match(await p.hash(/idle/), /idle=1&?|waits=category/);
  await p.page.getByRole("button", { name: "who woke whom" }).click();
  assert.deepEqual(await p.page.locator(".wakes .node").evaluateAll((all) => all.map((g) => g.getAttribute("aria-label"))),
                   ["pay waited, 16.0 s", "owner ended the waits, 14.0 s", "interrupt ended the waits, 2.00 s"]);
  await p.page.locator(".wakes .node", { hasText: "owner" }).click();
  await until("only what the owner ended", async () => (await legend(p)).join() === "lock 100 %");
  await p.shot("waits-file");
  await p.done();
});
