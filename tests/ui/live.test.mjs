// SPDX-License-Identifier: Apache-2.0
/* The page that a server shows, in Chromium, against a server that can go wrong in every way. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { AT, KNOWN } from "./known.mjs";
import { CPU, WALL, Server } from "./live.mjs";
import { cannot, close, openUrl, until } from "./page.mjs";

const skip = cannot();
const HOSTILE = '<img src=x onerror=alert(1)> "} or {\u202e';
after(close);

function it(name, body) {
  test(name, { skip, timeout: 300000 }, body);
}

const renamed = (name, times = 1) => KNOWN.map((l) =>
  l.replace(/^[^;]+/, name).replace(/\d+$/, (n) => n * times));

function machine() {
  return {
    shop: { cores: () => 1.5, lines: renamed("shop", 3) },
    db: { cores: () => 0.5, lines: renamed("db") },
  };
}

/** Opens a server's page and waits for its picture. */
async function live(server, options = {}) {
  await server.start();
  const p = await openUrl(server.url + (options.search ?? "?view=flame"), options);
  p.chips = () => p.page.locator(".strip button").allInnerTexts()
    .then((all) => all.map((s) => s.replace(/\s+/g, " ").trim()));
  p.end = async () => {
    await p.done();
    await server.stop();
  };
  return p;
}

/** Two new rounds at once, and their pictures: there and back again. */
async function refresh(p, server) {
  const n = server.count("payload");
  for (let i = 0; i < 2; i++) {
    await p.page.getByRole("button", { name: "Live" }).click();
    await p.page.waitForSelector('.live-page[aria-busy="false"]');
  }
  assert.ok(server.count("payload") >= n + 2, "two more rounds");
  await p.painted();
}

const search = (p) => new URL(p.page.url()).searchParams;

it("opens on what runs now: services, shares, bars, picture, no request elsewhere", async () => {
  const s = new Server(machine());
  const p = await live(s, { width: 1280, height: 720 });
  assert.deepEqual(await p.chips(), ["All 2.00 cores", "shop 75.0 %", "db 25.0 %"]);
  assert.equal(await p.page.locator("h1").innerText(), "All services");
  assert.equal(await p.page.title(), "Flame graph – culprit");
  assert.match(await p.page.locator(".quality").innerText(), /400 samples/);
  assert.match(await p.page.locator(".chart").getAttribute("aria-label"), /^All services, CPU by time, last 5 min/);
  assert.match(await p.page.locator(".chart .most").innerText(), /^2\.\d\d cores$/);
  assert.equal(p.page.url(), `${s.url}?view=flame`, "nothing is in the address that is not chosen");
  const [ask] = s.asked.filter((a) => a.path === "/api/v1/payload");
  assert.equal(Number(ask.to) - Number(ask.from), 300000);
  assert.ok(Math.abs(Number(ask.to) - Date.now()) < 30000);
  assert.equal(ask.query, "{}");
  assert.equal(ask.type, CPU);
  assert.equal(ask.authorization, undefined);
  await p.shot("live-light");
  await p.end();
});

it("one service or all: by chip, key, sheet and address; back goes back", async () => {
  const services = machine();
  services[HOSTILE] = { cores: () => 0.1, lines: renamed("x") };
  const s = new Server(services);
  const p = await live(s);
  const title = p.page.locator("h1");
  await p.page.getByRole("button", { name: /^shop/ }).click();
  await until("the shop", async () => (await title.innerText()) === "shop" && /300 samples/.test(await p.page.locator(".quality").innerText()));
  assert.equal(search(p).get("service"), "shop");
  await until("asked", () => s.asked.some((a) => a.path === "/api/v1/payload" && a.query === '{service.name="shop"}'));
  assert.deepEqual((await p.chips()).slice(0, 2), ["All 2.10 cores", "shop 71.4 %"], "shares stay of all");
  await p.page.goBack();
  await until("all", async () => /500 samples/.test(await p.page.locator(".quality").innerText()));
  // The sheet: filter, Enter takes the first.
  await p.key("v");
  await p.page.getByLabel(/Filter services/).fill("^d");
  assert.match(await p.page.locator(".sheet-services .filter .n").innerText(), /1 of 3/);
  await p.shot("live-services-light");
  await p.page.getByLabel(/Filter services/).press("Enter");
  await until("the db", async () => (await title.innerText()) === "db" && /100 samples/.test(await p.page.locator(".quality").innerText()));
  // From the keyboard, along the strip.
  await p.page.locator(".strip button[aria-pressed=true]").focus();
  await p.key("ArrowRight");
  assert.match(await p.page.evaluate(() => document.activeElement.textContent), /^<img src=x.*\\u202e/);
  await p.key("Enter");
  await until("the hostile one", async () => (await title.innerText()).startsWith("<img src=x"));
  assert.equal(search(p).get("service"), HOSTILE);
  await until("asked", () => s.asked.some((a) => a.query === '{service.name="<img src=x onerror=alert(1)> \\"} or {\u202e"}'));
  assert.equal(await p.page.locator("img").count(), 0);
  const url = p.page.url();
  await p.page.goto("about:blank");
  await p.page.goto(url);
  await until("the same again", async () => (await title.innerText()).startsWith("<img src=x"));
  p.wrong.length = 0; // about:blank is elsewhere, as far as the watcher knows
  await p.end();
});

it("what arrives replaces the picture and nothing else: zoom, search, scroll, focus, card", async () => {
  const services = { app: { lines: KNOWN } };
  const deep = Array.from({ length: 80 }, (_, i) => `level_${i}`).join(";");
  services.app.lines = [...KNOWN, `app;main;${deep} 40`];
  for (let i = 0; i < 60; i++)
    services.app.lines.push(`app;main;render;many_${String(i).padStart(2, "0")} 1`);
  const s = new Server(services);
  const p = await live(s, { hash: "#t=1&a=1" });
  const flame = p.page.locator(".flame");
  const scroll = () => flame.evaluate((e) => [e.scrollHeight - e.scrollTop, e.scrollHeight]);
  await p.key("/");
  await p.page.keyboard.type("level_5.$");
  await p.page.getByLabel(/Search frames/).press("Enter");
  await p.page.locator(".flame-window").focus();
  await p.key("n", "Enter");
  const spoken = p.page.locator(".page > .spoken");
  assert.match(await spoken.innerText(), /^level_5\d,/);
  const focused = (await spoken.innerText()).split(",")[0];
  const rows = () => p.page.locator(".rows").evaluate((e) => e.scrollTop);
  await p.page.locator(".rows").evaluate((e) => (e.scrollTop = 150));
  assert.equal(await rows(), 150);
  await flame.evaluate((e) => (e.scrollTop = 300));
  const [fromBottom, tall] = await scroll();
  const hash = await p.hash();
  const crumbs = await p.crumbs();
  assert.ok(crumbs.length > 1, "zoomed");

  // New functions before and after in the alphabet, and deeper ones: all numbers of nodes change.
  services.app.lines = [...services.app.lines, "aaa;first;of;all 30", `app;main;${deep};deeper;deepest 5`, "app;main;zzz 9"];
  const n = s.count("payload");
  await until("the next round comes by itself", () => s.count("payload") > n);
  await until("it is shown", async () => /,?2\d\d samples|3\d\d samples/.test(await p.page.locator(".quality").innerText()) &&
    (await scroll())[1] > tall);
  await p.painted();
  assert.equal(await p.hash(), hash);
  assert.deepEqual(await p.crumbs(), crumbs);
  assert.equal((await spoken.innerText()).split(",")[0], focused);
  assert.match(await p.page.locator(".search output").innerText(), /of 1$/);
  assert.equal(await rows(), 150);
  const [now] = await scroll();
  assert.equal(now, fromBottom, "the same frames stay in sight");
  await p.end();
});

it("who scrolls while newer samples come is not taken back", async () => {
  const deep = (n) => `app;main;${Array.from({ length: n }, (_, i) => `level_${i}`).join(";")}`;
  const services = { app: { lines: [...KNOWN, `${deep(80)} 40`] } };
  const s = new Server(services);
  const p = await live(s, { hash: "#t=0&a=1" });
  // All the time, and so between the two: what is in sight is this far from the floor, or the picture moved it.
  await p.page.evaluate(() => {
    const e = document.querySelector(".flame");
    const floor = () => e.scrollHeight - e.scrollTop;
    let n = 0, was = floor();
    window.moved = [];
    setInterval(() => {
      if (floor() !== was)
        window.moved.push([was, floor()]);
      e.scrollTop = 200 + n++ % 20;
      was = floor();
    }, 1);
  });
  const tall = () => p.page.evaluate(() => document.querySelector(".flame").scrollHeight);
  for (const levels of [90, 100]) {
    const before = await tall();
    services.app.lines = [...KNOWN, `${deep(levels)} 40`];
    await until("it is shown", async () => await tall() > before);
  }
  assert.deepEqual(await p.page.evaluate(() => window.moved), []);
  await p.end();
});

it("the card under a pointer that rests tells of the new picture", async () => {
  const services = { app: { lines: KNOWN } };
  const s = new Server(services);
  const p = await live(s, { hash: "#t=0" });
  assert.match(await p.hover(AT.load), /^load .* total 30 samples/);
  services.app.lines = KNOWN.map((l) => l.replace(/\d+$/, (n) => 2 * n));
  const n = s.count("payload");
  await until("a round", () => s.count("payload") > n);
  await until("the new card", async () => /^load .* total 60 samples/.test(await p.card()));
  // A menu is of what it was opened on: it holds the picture until it is closed.
  await p.click(AT.load, { button: "right" });
  services.app.lines = ["app;other 500"];
  const m = s.count("payload");
  await until("a round", () => s.count("payload") > m + 1);
  assert.match(await p.page.locator(".quality").innerText(), /200 samples/);
  await p.page.getByRole("menuitem", { name: "Zoom in" }).click();
  await p.painted();
  assert.match(await p.page.locator(".quality").innerText(), /500 samples/);
  // load is not there any more; its caller's caller is all that is left of the way to it.
  assert.deepEqual(await p.crumbs(), ["all", "app"]);
  services.app.lines = KNOWN;
  await until("load again", async () => (await p.crumbs()).join() === "all,app,main,load");
  await p.end();
});

it("rows under a pointer keep their places while newer samples come: services, functions, the sheet of services", async () => {
  const services = machine();
  const s = new Server(services);
  const p = await live(s, { search: "?view=services" });
  const texts = (selector) => p.page.locator(selector).allInnerTexts();
  const rows = () => texts(".services-page .c-name .pick");
  await until("both", async () => (await rows()).length === 2);
  assert.deepEqual(await rows(), ["shop", "db"]);
  await p.page.locator(".services-page tbody tr").nth(1).hover();
  services.db.cores = () => 5;
  services.queue = { cores: () => 20, lines: renamed("queue") };
  await until("a third", async () => (await rows()).length === 3);
  assert.deepEqual(await rows(), ["shop", "db", "queue"], "what is new comes last");
  // What the reader asks for is done all the same.
  await p.page.locator(".services-page thead").getByRole("button", { name: "Service", exact: true }).focus();
  await p.page.keyboard.press("Enter");
  assert.deepEqual(await rows(), ["db", "queue", "shop"]);
  await p.page.keyboard.press("Enter");
  assert.deepEqual(await rows(), ["shop", "queue", "db"]);
  await p.page.locator(".services-page thead").getByRole("button", { name: "CPU" }).click();
  assert.deepEqual(await rows(), ["queue", "db", "shop"]);

  await p.key("2");
  await p.page.waitForSelector(".flame canvas");
  await p.key("v");
  const sheet = () => texts(".sheet-services .list .n").then((all) => all.slice(1));
  assert.deepEqual(await sheet(), ["queue", "db", "shop"]);
  services.shop.cores = () => 90;
  const share = () => p.page.locator(".sheet-services .list li", { hasText: "shop" }).locator(".s").last().innerText();
  await until("shop has most", async () => parseInt(await share(), 10) > 50);
  assert.deepEqual(await sheet(), ["queue", "db", "shop"], "Enter in the filter takes the first");
  await p.key("Escape");

  const functions = () => texts(".functions .c-name .pick").then((all) => all.slice(0, 2));
  services.shop.lines = ["shop;main;alpha 60", "shop;main;beta 40"];
  services.db.lines = services.queue.lines = ["x;main;alpha 1"];
  await until("these", async () => /102 samples/.test(await p.page.locator(".quality").innerText()));
  assert.deepEqual(await functions(), ["alpha", "beta"]);
  await p.page.locator(".functions tbody tr").first().hover();
  services.shop.lines = ["shop;main;alpha 60", "shop;main;beta 400", "shop;aaa 100"];
  await until("more", async () => /562 samples/.test(await p.page.locator(".quality").innerText()));
  assert.deepEqual(await functions(), ["alpha", "beta"]);
  await p.page.locator(".functions .filter").hover();
  await until("their order", async () => (await functions()).join() === "beta,aaa");
  await p.end();
});

it("the sheet of labels stays as it is while newer samples come", async () => {
  const s = new Server(machine());
  const p = await live(s);
  await p.key("m");
  const first = p.page.locator(".sheet-filters .values button").first();
  await first.waitFor();
  const handle = await first.elementHandle();
  const n = s.count("payload");
  await until("two rounds", () => s.count("payload") > n + 1);
  assert.equal(await handle.evaluate((e) => e.isConnected), true);
  assert.equal(s.asked.filter((a) => a.path === "/api/v1/labels").length, 1);
  await p.end();
});

it("hold and follow: the address has the range, nothing is asked while it is held", async () => {
  const s = new Server(machine());
  const p = await live(s);
  const follow = p.page.getByRole("button", { name: "Live" });
  assert.equal(await follow.getAttribute("aria-pressed"), "true");
  await p.key("l");
  await until("held", async () => (await follow.getAttribute("aria-pressed")) === "false");
  const q = search(p);
  assert.equal(Number(q.get("to")) - Number(q.get("from")), 300000);
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  const n = s.asked.length;
  await new Promise((r) => setTimeout(r, 6500));
  assert.equal(s.asked.length, n);
  await p.shot("live-held-light");
  await p.key("[");
  await until("earlier", () => Number(search(p).get("from")) === Number(q.get("from")) - 150000);
  await p.key("]");
  await until("later", () => search(p).get("from") === q.get("from"));
  await p.key("-");
  await until("twice", () => Number(search(p).get("to")) - Number(search(p).get("from")) === 600000);
  await p.key("l");
  await until("follows", async () => (await follow.getAttribute("aria-pressed")) === "true");
  assert.equal(search(p).get("from"), null);
  await p.page.getByLabel("Time", { exact: true }).selectOption("3600");
  assert.equal(search(p).get("last"), "1h");
  await until("an hour", () => s.asked.some((a) => a.path === "/api/v1/payload" && a.to - a.from === 3600000));
  await p.end();
});

it("the chart: dragging chooses a range, the keyboard too; custom times", async () => {
  const s = new Server(machine());
  const p = await live(s);
  const chart = p.page.locator(".chart");
  const box = await chart.boundingBox();
  await p.page.mouse.move(box.x + box.width * 0.25, box.y + 20);
  assert.match(await chart.locator("output").innerText(), /^\d\d:\d\d:\d\d +2\.00 cores$/);
  await p.page.mouse.down();
  await p.page.mouse.move(box.x + box.width * 0.4, box.y + 20);
  await p.page.mouse.move(box.x + box.width * 0.5, box.y + 20);
  assert.match(await chart.locator("output").innerText(), / – .*: 2\.00 cores$/);
  await p.shot("live-drag-light");
  await p.page.mouse.up();
  await until("a quarter", () => Math.abs(search(p).get("to") - search(p).get("from") - 75000) <= 4000);
  const from = search(p).get("from");
  await until("asked", () => s.asked.some((a) => a.path === "/api/v1/payload" && a.from === from));
  await p.page.goBack();
  assert.equal(search(p).get("from"), null);
  // Bars are of two seconds again, and not of what was chosen.
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  // A click is no range.
  await p.page.mouse.click(box.x + 300, box.y + 20);
  assert.equal(search(p).get("from"), null);
  await chart.focus();
  await p.key("End", "ArrowLeft", "ArrowLeft", "Shift+ArrowLeft", "Shift+ArrowLeft", "Shift+ArrowLeft");
  await p.key("Enter");
  await until("four bars", () => search(p).get("to") - search(p).get("from") === 8000);
  await p.page.getByLabel("Time", { exact: true }).selectOption("custom");
  await p.page.getByLabel("From").fill("2026-01-02T03:04:05");
  await p.page.getByLabel("To").fill("2026-01-02T03:04:01");
  assert.match(await p.page.locator(".sheet-range").innerText(), /end must be after/);
  assert.ok(await p.page.getByRole("button", { name: "Show", exact: true }).isDisabled());
  await p.page.getByLabel("To").fill("2026-01-02T04:04:05");
  await p.page.getByRole("button", { name: "Show", exact: true }).click();
  assert.equal(search(p).get("from"), String(new Date("2026-01-02T03:04:05").getTime()));
  assert.equal(search(p).get("to") - search(p).get("from"), 3600000);
  await p.end();
});

it("several types: the picture and the bars are of the one chosen", async () => {
  const s = new Server(machine());
  s.types = [WALL, CPU];
  const p = await live(s);
  const type = p.page.getByLabel("Type");
  assert.deepEqual(await type.locator("option").allInnerTexts(), ["CPU", "Wall clock"]);
  assert.equal(await type.inputValue(), CPU);
  await type.selectOption(WALL);
  await until("asked", () => ["payload", "series"].every((path) =>
    s.asked.some((a) => a.path === `/api/v1/${path}` && a.type === WALL)));
  assert.equal(search(p).get("type"), WALL);
  await until("threads", async () => /threads/.test(await p.page.locator(".chart .most").innerText()));
  await p.end();
});

it("nothing stored, nothing in the range, nothing of the service: says what to do", async () => {
  const s = new Server(machine());
  s.blank = true;
  const p = await live(s);
  assert.match(await p.page.locator(".nothing").innerText(), /Waiting for the first samples[^]*culprit up[^]*refreshes\s+automatically/);
  await p.shot("live-blank-light");
  s.blank = false;
  await p.page.waitForSelector(".flame canvas");
  await p.end();
  const q = await live(new Server(machine()), { search: "?service=gone" });
  assert.match(await q.page.locator(".nothing").innerText(), /No samples of gone in the last 5 min/);
  await q.shot("live-empty-light");
  await q.page.getByRole("button", { name: "Last 15 min" }).click();
  assert.equal(search(q).get("last"), "15m");
  await q.page.locator(".nothing").getByRole("button", { name: "All services" }).click();
  await q.page.waitForSelector(".flame canvas");
  await q.end();
});

it("the server goes and comes: the last picture stays, and since when is said", async () => {
  const s = new Server(machine());
  const p = await live(s, { said: /Failed to load resource/ });
  await s.stop();
  const problem = p.page.locator(".problem");
  await problem.waitFor();
  assert.match(await problem.innerText(), /No answer since \d\d:\d\d:\d\d\. Showing data from \d\d:\d\d:\d\d\. Retrying…/);
  assert.ok(await p.page.locator(".flame canvas").first().isVisible());
  assert.match(await p.page.locator(".quality").innerText(), /400 samples/);
  await p.shot("live-gone-light");
  await s.start();
  await problem.waitFor({ state: "detached" });
  // Half-way: the connection breaks, then it is overloaded.
  s.gone = true;
  await problem.waitFor();
  s.gone = false;
  await problem.waitFor({ state: "detached" });
  s.refuse = [503, "too much at once"];
  await problem.waitFor();
  assert.match(await problem.innerText(), /No answer \(503: too much at once\) since/);
  s.refuse = null;
  await problem.waitFor({ state: "detached" });
  s.refuse = [400, 'bad "selector" <b>'];
  await problem.waitFor();
  assert.match(await problem.innerText(), /That query is not valid: bad "selector" <b>\. Showing data/);
  s.refuse = null;
  await p.page.getByRole("button", { name: "Try now" }).click();
  await problem.waitFor({ state: "detached" });
  s.damaged = true;
  await problem.waitFor();
  assert.match(await problem.innerText(), /Some of the data stored for this time range cannot be read/);
  s.damaged = false;
  s.health = "disk full: free some";
  await p.page.getByText("The server cannot store new data: disk full: free some").waitFor();
  await p.end();
});

it("gone from the start: says so, and begins when it can", async () => {
  const s = new Server(machine());
  s.gone = true;
  await s.start();
  const p = await openUrl(`${s.url}?view=flame`, { said: /Failed to load resource/ });
  assert.match(await p.page.locator(".problem").innerText(), /No answer since/);
  s.gone = false;
  await p.page.getByRole("button", { name: "Try now" }).click();
  await p.page.waitForSelector(".flame canvas");
  await p.done();
  await s.stop();
});

it("a token: asked for, sent, kept for the tab and not in the address", async () => {
  const s = new Server(machine());
  s.token = "let-me-in";
  const p = await live(s, { said: /status of 401/ });
  assert.match(await p.page.locator(".token").innerText(), /This server needs a token/);
  await p.shot("live-token-light");
  await p.page.locator(".token input").fill("wrong");
  await p.page.getByRole("button", { name: "Continue" }).click();
  await until("refused", async () => /does not accept this token/.test(await p.page.locator(".token").innerText()));
  await p.page.locator(".token input").fill("let-me-in");
  await p.page.locator(".token input").press("Enter");
  await p.page.waitForSelector(".flame canvas");
  assert.ok(!p.page.url().includes("let-me-in"));
  await p.page.reload();
  await p.page.waitForSelector(".flame canvas");
  assert.equal(await p.page.locator(".token").count(), 0);
  assert.equal(s.asked.at(-1).authorization, "Bearer let-me-in");
  await p.end();
});

it("rates are of the time since there are samples", async () => {
  const begun = Date.now() - 60000;
  const s = new Server({ app: { cores: (t) => (t < begun ? 0 : 2), lines: KNOWN } });
  s.first = begun;
  const p = await live(s);
  const [, cores] = /^All (\d\.\d\d) cores/.exec((await p.chips())[0]);
  // 2 cores since a minute, told in whole seconds; 0.4 over the five minutes.
  assert.ok(Math.abs(cores - 2) < 0.1, cores);
  assert.match(await p.page.locator(".quality").innerText(), /over (6\d\.\d s|1\.\d\d min)/);
  await p.end();
});

it("another clock than the server's: ranges are by the server's", async () => {
  const s = new Server(machine());
  s.skew = -3 * 3600 * 1000;
  const p = await live(s);
  const [ask] = s.asked.filter((a) => a.path === "/api/v1/payload");
  assert.ok(Math.abs(Number(ask.to) - (Date.now() + s.skew)) < 30000, "the first one already");
  await p.end();
});

it("a slow answer is no other clock", async () => {
  const s = new Server(machine());
  let answered = 0;
  // Its Date is of when it was asked.
  s.slow = new Promise((r) => setTimeout(r, 4000)).then(() => (answered = Date.now()));
  const p = await live(s);
  const [ask] = s.asked.filter((a) => a.path === "/api/v1/payload");
  assert.ok(Number(ask.to) >= answered, `asked for what was ${answered - ask.to} ms before the answer`);
  await p.end();
});

it("a slow answer to an old question does not replace the new one", async () => {
  const s = new Server(machine());
  const p = await live(s);
  let release;
  s.held = { promise: new Promise((r) => (release = r)) };
  const busy = () => p.page.locator(".live-page").getAttribute("aria-busy");
  assert.equal(await busy(), "false");
  // Before anything is painted, and so before anything is asked.
  assert.equal(await p.page.evaluate(async () => {
    [...document.querySelectorAll(".strip button")].find((b) => b.textContent.startsWith("shop")).click();
    for (let i = 0; i < 5; i++)
      await null;
    return document.querySelector(".live-page").getAttribute("aria-busy");
  }), "true");
  await until("shop is asked for", () => s.asked.some((a) => a.path === "/api/v1/payload" && /shop/.test(a.query)));
  assert.equal(await busy(), "true");
  await p.page.getByRole("button", { name: /^db/ }).click();
  await until("db is asked for", () => s.asked.some((a) => a.path === "/api/v1/payload" && /db/.test(a.query)));
  s.held = null;
  release();
  await until("db", async () => /100 samples/.test(await p.page.locator(".quality").innerText()));
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  assert.match(await p.page.locator(".quality").innerText(), /100 samples/);
  await p.end();
});

it("keys: the sheet has those of the bar too; sandwich and transforms outlive a refresh", async () => {
  const s = new Server({ app: { lines: KNOWN } });
  const p = await live(s, { hash: "#t=1" });
  await p.key("?");
  assert.match(await p.page.locator("dialog.help").innerText(), /back to live, or pause/);
  await p.key("l");
  assert.equal(search(p).get("from"), null, "not while the sheet is open");
  await p.key("Escape");
  await p.page.locator(".flame-window").focus();
  await p.key("ArrowUp", "ArrowUp", "ArrowUp", "ArrowUp", "s");
  const head = p.page.locator(".sandwich-head h2");
  const name = await head.innerText();
  await refresh(p, s);
  assert.equal(await head.innerText(), name);
  await p.end();
});

it("what is typed right behind a key, before the next painting, goes where that key led", async () => {
  const s = new Server(machine());
  const p = await live(s);
  const fast = (...keys) => Promise.all(keys.map((k) => p.page.keyboard.press(k)));
  const theme = await p.page.evaluate(() => document.documentElement.dataset.theme);
  await fast("v", "d");
  const filter = p.page.getByLabel(/Filter services/);
  assert.equal(await filter.inputValue(), "d");
  assert.equal(await p.page.evaluate(() => document.documentElement.dataset.theme), theme);
  // The first empties the box.
  await p.key("Escape", "Escape");
  await filter.waitFor({ state: "detached" });
  await fast("?", "l");
  await p.page.locator("dialog.help").waitFor();
  assert.equal(search(p).get("from"), null);
  await p.key("Escape");
  await p.page.locator("dialog.help").waitFor({ state: "detached" });
  const stacks = p.page.getByLabel("Only stacks with these frames");
  await stacks.fill("fn=\"x\"");
  await fast("Enter", "z");
  await until("asked", () => s.asked.some((a) => a.stacks === "fn=\"x\""));
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  assert.equal(await stacks.inputValue(), "fn=\"x\"z");
  await p.end();
});

for (const [name, options] of [["live-dark", { dark: true }], ["live-phone-light", { width: 390, height: 844, touch: true }],
  ["live-phone-dark", { width: 390, height: 844, touch: true, dark: true }]])
  it(`looks: ${name}`, async () => {
    const services = machine();
    for (const [i, n] of ["nginx", "postgres", "systemd-journald.service", "kworker", "redis-server", "cron", "sshd",
      "containerd", "dockerd", "chronyd", "rsyslogd", "java", "node"].entries())
      services[n] = { cores: (t) => (1 + Math.sin(t / 30000 + i)) / (i + 3), lines: renamed(n) };
    const s = new Server(services);
    const p = await live(s, options);
    assert.equal(await p.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, "nothing sticks out");
    assert.equal(await p.page.evaluate(() => document.querySelector(".page").getBoundingClientRect().bottom), options.height ?? 720);
    const flame = await p.page.locator(".flame").boundingBox();
    assert.ok(flame.height > 250, `the picture has ${flame.height} px`);
    await p.shot(name);
    await p.end();
  });
