// SPDX-License-Identifier: Apache-2.0
/* What once did not hold, found by walking through the page as a new user would (issue 21): one test for each, over a real server. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { KNOWN } from "./known.mjs";
import { hex, sendSamples, sendSpans } from "./otlp.mjs";
import { cannot, openUrl, until } from "./page.mjs";
import { closeAll, serve, text } from "./serve.mjs";

const skip = cannot();
/* A minute ago, in whole seconds. */
const T = Math.floor(Date.now() / 1000) * 1000 - 70000;
const RANGE = `from=${T - 5000}&to=${T + 30000}`;
const EMPTY = `from=${T - 3600000}&to=${T - 3300000}`;
/* Eighty levels: more than any window here shows. */
const DEEP = Array.from({ length: 80 }, (_, i) => `level_${String(i).padStart(2, "0")}`);
/* Samples of CPU time with requests; and folded stacks, whose values are samples. */
let s, f;

before(async () => {
  if (skip)
    return;
  [s, f] = await Promise.all([serve("bugs"), serve("folded")]);
  const up = (service, lines) => f.upload(service, lines, { from: T, to: T + 1000, labels: "host.arch=x86,thread.name=worker" });
  await up("shop", KNOWN);
  await up("deep", [`${DEEP.join(";")};bottom_most 990`, "aside;needle 10"]);
  const request = (trace, start, ms, more = {}) => ({ trace, id: trace, name: "GET /buy", start, ms, attributes: { "http.route": "/buy", "http.request.method": "GET" }, ...more });
  await sendSpans(s.url, "web", [request(1, T, 4400), request(2, T + 500, 20)]);
  await sendSamples(s.url, "web", Array.from({ length: 300 }, (_, i) => [1, 1, "parse;handle;main", 10, T + 10 * i]), { parse: ["/tmp/none/shop.c", 28] });
  // A process that has nothing to do with any request.
  await sendSamples(s.url, "other", Array.from({ length: 50 }, (_, i) => [0, 0, "work;main", 10, T + 10 * i]));
});
after(async () => {
  await Promise.all([s?.stop(), f?.stop()]);
  await closeAll();
});

function it(name, body) {
  test(`bugs: ${name}`, { skip, timeout: 300000 }, body);
}

async function see(search, options, { url } = f) {
  const p = await openUrl(`${url}?${search}`, options);
  p.settled = async () => {
    await p.page.waitForSelector('.live-page[aria-busy="false"]');
    await p.painted();
  };
  await p.settled();
  return p;
}

const params = (p) => new URL(p.page.url()).searchParams;
const scrolled = (p) => p.page.locator(".flame").first().evaluate((e) => e.scrollTop);
/** The box of the flame graph that can be seen without scrolling. */
const visible = (p) => p.page.locator(".flame").first().evaluate((e) => {
  const r = e.getBoundingClientRect();
  return Math.min(r.bottom, innerHeight) - Math.max(r.top, 0);
});

/* ---- what is chosen is in sight ---- */

it("a function that is chosen in the table is scrolled to, and so is the first match of a search", async () => {
  const p = await see(`${RANGE}&service=deep`, { hash: "#t=1&i=1" });
  assert.equal(await scrolled(p), 0, "an icicle begins at its root");
  await p.page.getByPlaceholder("Filter functions").fill("bottom_most");
  await p.page.locator(".functions .pick", { hasText: "bottom_most" }).click();
  await p.painted();
  const far = await scrolled(p);
  assert.ok(far > 500, `${far}`);
  // The pointer at its row has the function's card.
  const at = await p.page.locator(".flame").boundingBox();
  const y = at.y + (81 * 19 + 9) - far;
  assert.ok(y > at.y && y < at.y + at.height, `${y} of ${JSON.stringify(at)}`);
  await p.page.mouse.move(at.x + 200, y);
  assert.match(await p.card(), /^bottom_most/);
  await p.shot("bugs-chosen-light");
  await p.page.getByLabel(/Search frames/).fill("level_0");
  await until("back at the top", async () => (await scrolled(p)) < 200);
  await p.page.getByLabel(/Search frames/).fill("level_79");
  await until("down again", async () => (await scrolled(p)) > 500);
  await p.done();
});

it("a function too narrow to see is zoomed to when it is chosen in the table", async () => {
  const p = await see(`${RANGE}`, { hash: "#t=1" });
  await p.page.getByPlaceholder("Filter functions").fill("^needle$");
  await p.page.locator(".functions .pick", { hasText: "needle" }).click();
  await until("zoomed", async () => (await p.crumbs()).includes("needle"));
  await p.done();
});

it("newer samples do not scroll the flame graph to a match again", async () => {
  const p = await see("service=deep&last=5m", { hash: "#t=0&i=1&q=level_70" });
  await until("at the match", async () => (await scrolled(p)) > 500);
  await p.page.locator(".flame").evaluate((e) => e.scrollTo(0, 0));
  const asked = p.page.waitForResponse((r) => r.url().includes("/payload"));
  await f.upload("deep", ["aside;needle 1"], { from: T, to: T + 1000 });
  await asked;
  await p.painted();
  await p.painted();
  assert.equal(await scrolled(p), 0);
  await p.done();
});

/* ---- stacks by a word ---- */

it("a plain word in Stacks finds functions that contain it, in a link, too; a wrong predicate has a way back", async () => {
  const p = await see(`${RANGE}&service=shop`, { said: /status of 400/ });
  const box = p.page.getByLabel("Only stacks with these frames");
  await box.fill("RENDER".toLowerCase());
  await box.press("Enter");
  await until("60 of 100", async () => /60 samples/.test(await text(p, ".quality")));
  assert.equal(params(p).get("stacks"), 'fn~"(?i)render"');
  await p.done();
  const q = await see(`${RANGE}&service=shop&stacks=render`);
  assert.match(await text(q, ".quality"), /60 samples/);
  await q.done();
  const wrong = await openUrl(`${f.url}?${RANGE}&stacks=${encodeURIComponent("fn=render")}`, { said: /status of 400/ });
  assert.match(await text(wrong, ".problem"), /^That query is not valid: .* Try now$/);
  assert.match(await text(wrong, ".nothing"), /Nothing to show/);
  await wrong.page.getByRole("button", { name: "Remove all filters" }).click();
  await wrong.page.waitForSelector(".flame canvas");
  await wrong.done();
});

/* ---- what is not there ---- */

it("an expired link to a trace or a task says so, and leads on", async () => {
  const p = await openUrl(`${s.url}?view=traces&${RANGE}&trace=${"0".repeat(31)}9`, { said: /status of 404/ });
  assert.match(await text(p, ".nothing"), /^This trace is not stored .*--max-age/);
  assert.equal(await p.page.locator(".problem").count(), 0);
  await p.shot("bugs-expired-light");
  await p.page.getByRole("button", { name: "All requests" }).click();
  await p.page.getByRole("region", { name: "Requests" }).waitFor();
  // From a list, too: what was shown before is not what the link asks for.
  await p.page.evaluate((t) => history.pushState(null, "", `?view=traces&trace=${t}`), "0".repeat(31) + "9");
  await p.page.evaluate(() => dispatchEvent(new PopStateEvent("popstate")));
  await p.page.getByText("This trace is not stored").waitFor();
  await p.done();
  const t = await openUrl(`${s.url}?view=tasks&task=00000000`, { said: /status of 404/ });
  assert.match(await text(t, ".nothing"), /^This task is not stored/);
  await t.page.getByRole("button", { name: "All tasks" }).click();
  await t.page.getByText("No tasks").waitFor();
  await t.done();
});

it("a wrong address is a page with a link home for a browser, and JSON for a program", async () => {
  const p = await openUrl(s.url);
  p.wrong.length = 0;
  const r = await p.page.goto(`${s.url}no/such/page`);
  assert.equal(r.status(), 404);
  assert.equal(await p.page.title(), "Page not found – culprit");
  await p.page.getByRole("link", { name: "Open culprit" }).click();
  await p.page.waitForSelector(".tabs");
  await p.context.close();
  for (const [path, headers] of [["no/such/page", {}], ["api/v1/nothing", { Accept: "text/html" }]]) {
    const answer = await fetch(s.url + path, { headers });
    assert.equal(answer.status, 404);
    assert.equal((await answer.json()).code, "not_found");
  }
});

/* ---- history and memory ---- */

it("back after closing the source does not open it again; forward and a link do", async () => {
  const p = await see(`view=traces&${RANGE}&trace=${hex(1, 32)}`, { hash: "#t=0" }, s);
  const length = () => p.page.evaluate(() => history.length);
  const before = await length();
  await p.page.mouse.move(0, 0);
  await p.click([4, 0.5]);
  await p.key("o");
  const sheet = p.page.locator(".sheet-source");
  await sheet.waitFor();
  const link = p.page.url();
  assert.match(link, /source=/);
  await p.key("Escape");
  await sheet.waitFor({ state: "detached" });
  await until("the address", () => !/source=/.test(p.page.url()));
  await p.page.goBack();
  await p.painted();
  await p.painted();
  assert.equal(await sheet.count(), 0);
  assert.ok(await length() <= before + 2);
  await p.done();
  // Closing what a link opened has no entry to go back to.
  const q = await openUrl(link);
  await q.page.locator(".sheet-source").waitFor();
  await q.key("Escape");
  await q.page.locator(".sheet-source").waitFor({ state: "detached" });
  await until("the address", () => !/source=/.test(q.page.url()));
  assert.match(q.page.url(), /trace=/);
  await q.done();
});

it("the theme is remembered; a link that says otherwise wins, and a copied link says nothing", async () => {
  const p = await see(RANGE);
  const theme = () => p.page.evaluate(() => document.documentElement.dataset.theme);
  assert.equal(await theme(), "light");
  await p.key("d");
  assert.equal(await theme(), "dark");
  await p.page.evaluate(() => {
    navigator.clipboard.writeText = async (t) => void (window.copied = t);
  });
  await p.page.getByRole("button", { name: "Copy link" }).click();
  await until("copied", () => p.page.evaluate(() => /from=/.test(window.copied)));
  assert.doesNotMatch(await p.page.evaluate(() => window.copied), /[#&]m=/);
  await p.page.goto(f.url);
  await p.page.waitForSelector(".overview");
  assert.equal(await theme(), "dark");
  await p.page.goto("about:blank");
  await p.page.goto(`${f.url}?${RANGE}#m=light`);
  await p.page.waitForSelector(".flame canvas");
  assert.equal(await theme(), "light");
  await p.context.close();
});

it("without localStorage the page works, and forgets", async () => {
  const p = await see(RANGE);
  await p.context.addInitScript(() => Object.defineProperty(window, "localStorage", { get: () => {
    throw new DOMException("no", "SecurityError");
  } }));
  await p.page.reload();
  await p.page.waitForSelector(".flame canvas");
  await p.key("d");
  assert.equal(await p.page.evaluate(() => document.documentElement.dataset.theme), "dark");
  await p.done();
});

it("the bar between flame graph and table: by mouse, keyboard and touch; remembered", async () => {
  const p = await see(RANGE, { hash: "#t=1" });
  const bar = p.page.getByRole("separator", { name: "Size of the function table" });
  const table = async () => (await p.page.locator(".functions").boundingBox()).width / 1280;
  const b = await bar.boundingBox();
  await p.page.mouse.move(b.x + 2, b.y + 100);
  await p.page.mouse.down();
  await p.page.mouse.move(640, b.y + 120, { steps: 3 });
  await p.page.mouse.up();
  await p.painted();
  assert.ok(Math.abs(await table() - 0.5) < 0.01, `${await table()}`);
  await p.page.mouse.move(900, b.y + 120);
  await p.painted();
  assert.ok(Math.abs(await table() - 0.5) < 0.01, "only while it is dragged");
  await bar.focus();
  await p.key("ArrowRight", "ArrowRight");
  assert.ok(Math.abs(await table() - 0.46) < 0.01, `${await table()}`);
  assert.equal(await bar.getAttribute("aria-valuenow"), "46");
  await p.shot("bugs-splitter-light");
  await p.page.reload();
  await p.page.waitForSelector(".flame canvas");
  assert.ok(Math.abs(await table() - 0.46) < 0.01, "after a reload");
  await bar.dblclick();
  await p.painted();
  assert.ok(await table() < 0.35, "as at first");
  // Below the flame graph on a narrow window, by touch.
  await p.page.setViewportSize({ width: 700, height: 900 });
  await p.painted();
  const heights = async () => (await p.page.locator(".functions").boundingBox()).height;
  const tall = await heights();
  assert.equal(await bar.getAttribute("aria-orientation"), "horizontal");
  const c = await bar.boundingBox();
  const cdp = await p.context.newCDPSession(p.page);
  const touch = (type, y) => cdp.send("Input.dispatchTouchEvent", { type, touchPoints: type === "touchEnd" ? [] : [{ x: 350, y }] });
  await touch("touchStart", c.y + 5);
  await touch("touchMove", c.y - 60);
  await touch("touchMove", c.y - 95);
  await touch("touchEnd");
  await p.painted();
  assert.ok(Math.abs(await heights() - tall - 100) < 12, `${tall} ${await heights()}`);
  await p.done();
});

/* ---- small screens ---- */

for (const [name, width, height, least] of [["a phone", 390, 844, 400], ["a small phone", 320, 568, 200], ["a phone in landscape", 844, 390, 150], ["a low window", 500, 300, 0]])
  it(`${name} shows the flame graph, and scrolls to all of it`, async () => {
    for (const dark of [false, true]) {
      const p = await see(RANGE, { width, height, dark, touch: true, hash: "#t=0" });
      assert.ok(await visible(p) >= least, `${await visible(p)} px`);
      await p.shot(`bugs-${width}x${height}-${dark ? "dark" : "light"}`);
      // All of it, after a scroll: at least ten rows.
      await p.page.locator("footer").first().scrollIntoViewIfNeeded();
      assert.ok(await visible(p) >= 190, `${await visible(p)} px after a scroll`);
      assert.equal(await p.page.evaluate(() => document.documentElement.scrollWidth), width, "nothing is wider than the screen");
      await p.done();
    }
  });

it("the header leaves three quarters of a laptop's screen", async () => {
  const p = await see(RANGE, { width: 1280, height: 800 });
  assert.ok((await p.page.locator(".flame").boundingBox()).y <= 200);
  await p.done();
});

/* ---- requests ---- */

it("any place in a row of requests opens its trace", async () => {
  const p = await see(`view=traces&${RANGE}`, {}, s);
  const row = p.page.getByRole("region", { name: "Requests" }).getByRole("row").nth(1);
  await row.getByText("GET /buy").click();
  await p.page.getByRole("region", { name: "Trace" }).waitFor();
  assert.equal(params(p).get("trace"), hex(1, 32));
  await p.page.goBack();
  await p.page.getByRole("region", { name: "Requests" }).waitFor();
  await row.getByRole("button").focus();
  await p.key("Enter");
  await p.page.getByRole("region", { name: "Trace" }).waitFor();
  await p.done();
});

it("a trace is of its own length, an empty range of all of it", async () => {
  const p = await see(`view=traces&${RANGE}&trace=${hex(1, 32)}`, {}, s);
  assert.match(await text(p, ".page .quality"), /over 4\.40 s/);
  await p.done();
  const q = await see(`${EMPTY}`);
  assert.match(await text(q, ".page .quality"), /over 5\.00 min/);
  await q.done();
});

it("quality above the lists is that of the services in them", async () => {
  const p = await see(`view=traces&${RANGE}`, {}, s);
  assert.match(await text(p, ".lists > .quality"), /^300 samples/, "without the 50 of another service");
  await p.done();
});

/* ---- words and numbers ---- */

it("one sample is one sample", async () => {
  await f.upload("single", ["main;work 1"], { from: T, to: T + 1000 });
  const p = await see(`${RANGE}&service=single`);
  assert.match(await text(p, ".quality"), /only 1 sample(?!s)/);
  await p.done();
});

it("each view has a title of its own, and an icon", async () => {
  const p = await see(`${RANGE}&service=shop`);
  assert.equal(await p.page.title(), "shop – Flame graph – culprit");
  for (const [key, title] of [["3", "shop – Services – culprit"], ["5", "shop – Traces – culprit"], ["7", "Agents – culprit"]]) {
    await p.key(key);
    assert.equal(await p.page.title(), title);
  }
  const icon = await p.page.locator('link[rel="icon"]').getAttribute("href");
  const loads = await p.page.evaluate((src) => new Promise((done) => {
    const i = new Image();
    i.onload = () => done(i.naturalWidth > 0);
    i.onerror = () => done(false);
    i.src = src;
  }), icon);
  assert.ok(loads, "the page's policy permits it");
  await p.done();
});

it("v chooses a service in every view", async () => {
  const p = await see(`view=services&${RANGE}`);
  await p.key("v");
  assert.equal(await p.page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Filter services (regular expression)");
  await p.page.evaluate(() => document.activeElement.blur());
  await p.key("5", "v");
  assert.equal(params(p).get("view"), "services");
  await p.key("2");
  await p.page.waitForSelector(".flame canvas");
  assert.equal(await p.page.locator("dialog").count(), 0, "nothing was left open");
  await p.key("v");
  await p.page.locator(".sheet-services").waitFor();
  await p.done();
});

it("help says where callers are", async () => {
  const p = await see(RANGE);
  await p.key("?");
  const help = await text(p, ".help");
  assert.match(help, /Click a frame to zoom; its callers are in the row above the graph/);
  assert.doesNotMatch(help, /faded one above/);
  await p.done();
});

it("filters open with a label that tells something, and say what each button does", async () => {
  const p = await see(`${RANGE}&service=shop`);
  await p.key("m");
  const sheet = p.page.locator(".sheet-filters");
  await sheet.getByText("worker").waitFor();
  assert.equal(await sheet.locator('.names [aria-pressed="true"]').innerText(), "thread.name");
  assert.equal(await sheet.getByRole("button", { name: "Exclude worker" }).getAttribute("title"), "Exclude thread.name = worker");
  await p.key("Escape");
  const wider = p.page.getByRole("button", { name: "Zoom out" });
  assert.match(await wider.getAttribute("title"), /^Zoom out \(2×\)/);
  await wider.click();
  assert.equal(params(p).get("to") - params(p).get("from"), 70000);
  await p.done();
});

it("normalised is a toggle whose text stays", async () => {
  const p = await see(`view=compare&${RANGE}&service=shop&ago=0s&base-service=deep`);
  const toggle = p.page.getByRole("button", { name: "Normalised" });
  await toggle.waitFor();
  const states = [];
  for (let i = 0; i < 2; i++) {
    states.push([await toggle.innerText(), await toggle.getAttribute("aria-pressed")]);
    await toggle.click();
    await p.painted();
  }
  assert.deepEqual(states, [["Normalised", "false"], ["Normalised", "true"]]);
  await p.done();
});

/* ---- many services ---- */

it("five hundred services are one flame graph, which says that they are merged, and shows each on demand", async () => {
  const many = await serve("many");
  const each = (i) => many.upload(`service-${String(i).padStart(3, "0")}`, ["main;handle;shared 6", `main;handle;own_${i % 7} 4`], { from: T, to: T + 1000 });
  for (let i = 0; i < 500; i += 20)
    await Promise.all(Array.from({ length: 20 }, (_, k) => each(i + k)));
  const p = await openUrl(`${many.url}?${RANGE}`, { hash: "#t=0" });
  // The first frame of folded stacks is the process, which the server does not show.
  assert.match(await p.hover([1, 0.5]), /^handle .* total 5,000 samples 100 %/);
  assert.match(await p.hover([2, 0.8]), /^shared .* total 3,000 samples 60\.0 %/);
  const merged = p.page.getByRole("button", { name: /^500 narrow groups merged/ });
  await p.shot("bugs-many-light");
  await merged.click();
  await p.painted();
  assert.match(await p.hover([1, 0.5]), /^service-2\d\d process or thread/);
  await p.page.getByRole("button", { name: /^500 narrow groups drawn/ }).click();
  await p.painted();
  assert.match(await p.hover([1, 0.5]), /^handle/);
  await p.done();
  assert.equal(await many.stop(), 0);
});
