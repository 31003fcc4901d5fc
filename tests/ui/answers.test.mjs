// SPDX-License-Identifier: Apache-2.0
/*
 * Answers in the flame graph of a real server: the hottest line on hover, chains of own functions as
 * one box, and a chart by the function that ran, whose parts add up.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Server } from "./live.mjs";
import { hex, sendSamples, sendSpans } from "./otlp.mjs";
import { cannot, convert, culprit, open, openUrl, until } from "./page.mjs";
import { programs } from "./programs.mjs";
import { closeAll, serve, text } from "./serve.mjs";

const skip = cannot();
const asRoot = skip || (process.getuid() === 0 ? false : "needs root: it records a program");
const T = Math.floor(Date.now() / 60000) * 60000 - 1200000;
const RANGE = `from=${T}&to=${T + 600000}`;
const HOSTILE = "<img src=x onerror=alert(1)>";
const { folder, start, end } = programs("answers");
let s;

before(async () => {
  if (skip)
    return;
  s = await serve("answers");
  // 60 of 80 ms are in line 28, below two callers; a stack with the line twice counts once.
  const files = { check: ["/srv/check.py", 0], handle: ["/srv/app.py", 0], other: ["/srv/app.py", 0], main: ["/srv/app.py", 0] };
  await sendSamples(s.url, "hot", [[0, 0, "check@28;handle@7;main@3", 30, T + 1000], [0, 0, "check@28;check@28;other@9;main@3", 30, T + 2000],
    [0, 0, "check@31;handle@7;main@3", 20, T + 3000], [0, 0, "handle@8;main@3", 20, T + 4000]], files);
  // 12 functions run, of which 7 have a part of their own; f0 twice as much in the second half.
  const names = Array.from({ length: 12 }, (_, i) => i === 3 ? HOSTILE : `f${i}`);
  await sendSamples(s.url, "leaves", [0, 1].flatMap((half) => names.map((name, i) => [0, 0, `${name};work;main`, (20 - i) * 100 * (i === 0 ? half + 1 : 1), T + half * 300000 + 1000 * i])));
  await sendSpans(s.url, "shop", [{ trace: 5, id: 50, name: "GET /pay", start: T, ms: 400 }, { trace: 5, id: 51, parent: 50, name: "charge", start: T + 100, ms: 200, kind: 3, error: "no card",
    events: [[0, "retry", { attempt: "2" }], [150, "exception", { "exception.type": "ValueError", "exception.message": HOSTILE }]] }]);
});
after(async () => {
  await s?.stop();
  await closeAll();
  await end();
});

function it(name, body, why = skip) {
  test(`answers: ${name}`, { skip: why, timeout: 300000 }, body);
}

async function see(search, options) {
  const p = await openUrl(`${s.url}?view=flame&${search}`, { height: 800, ...options });
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  await p.painted();
  return p;
}

/** Hovers over the rows of the picture until the card has the text. */
async function cardOf(p, like, share = 0.1) {
  for (let row = 0; row < 12; row++) {
    const card = await p.hover([row, share]).catch(() => "");
    if (like.test(card))
      return card;
  }
  assert.fail(`no card has ${like}`);
}

it("the card of a frame has its hottest line, with its base; also by keyboard, and in a comparison", async () => {
  for (const dark of [false, true]) {
    const p = await see(`service=hot&${RANGE}`, { dark });
    const card = await cardOf(p, /^check /);
    assert.match(card, /\/srv\/check\.py hottest line check\.py:28: 75\.0 % of this function’s 80\.0 ms in the whole profile/);
    assert.doesNotMatch(card, /one of the lines hit/);
    await p.shot(`answers-line-${dark ? "dark" : "light"}`);
    await p.done();
  }
  const p = await see(`service=hot&${RANGE}#t=0`);
  const canvas = p.page.locator(".flame-window");
  await canvas.focus();
  await p.key("ArrowUp", "ArrowUp", "ArrowUp");
  assert.match(await p.page.locator(".spoken").last().innerText(), /^main, .*hottest line app\.py:3$/);
  await p.done();
  const q = await openUrl(`${s.url}?view=compare&service=hot&from=${T + 2500}&to=${T + 600000}&base-from=${T}&base-to=${T + 2500}`, { height: 800 });
  await q.page.waitForSelector('.live-page[aria-busy="false"]');
  assert.match(await cardOf(q, /^check /), /hottest line check\.py:31: 100 % of this function’s 20\.0 ms in the whole profile after/);
  await q.done();
  const phone = await see(`service=hot&${RANGE}`, { width: 390, touch: true, dark: true });
  const at = await phone.point([4, 0.1]);
  await phone.page.touchscreen.tap(...at);
  assert.match(await phone.card(), /hottest line/);
  await phone.shot("answers-line-phone-dark");
  await phone.done();
});

it("the page that record writes has hottest lines", async () => {
  const script = join(folder, "shop.py");
  writeFileSync(script, "def check(n):\n    x = 0\n    for i in range(n):\n        x += sum(range(3000))\n    return x\ndef serve():\n    while True:\n        check(1000)\nserve()\n");
  const shop = start("/usr/bin/python3", [script], { stdio: "ignore" });
  const out = join(folder, "shop.html");
  await until("recorded", () => spawnSync(culprit, ["record", "--force", "-p", String(shop.pid), "-d", "2", "-o", out]).status === 0);
  shop.kill("SIGKILL");
  const p = await open(out, { height: 800 });
  assert.match(await cardOf(p, /^check /, 0.3), /shop\.py:1 hottest line shop\.py:4: (9\d\.\d|100) % of this function’s \d+ samples in the whole profile/);
  await p.done();
}, asRoot);

const CHAIN = ["p;clone3;start_thread;serve;route;parse;check;store 60", "p;clone3;start_thread;serve;route;parse;check;render 40"];

it("a chain of own functions is its first, a box and its last; a search and x show all", async () => {
  for (const dark of [false, true]) {
    const p = await open(convert(CHAIN), { height: 800, dark });
    assert.match(await p.hover([3, 0.5]), /^serve /);
    assert.match(await p.hover([4, 0.5]), /^2 own frames your code x shows all frames .*total 100 samples 100 % 100 % .*functions that call only one another: route → parse$/);
    assert.match(await p.hover([5, 0.5]), /^check /);
    await p.shot(`answers-chain-${dark ? "dark" : "light"}`);
    // The table has every function, with its own numbers.
    const rows = await p.rows();
    assert.ok(["route", "parse", "check", "serve"].every((n) => rows.some((r) => r.name === n && r.total === "100 %")), JSON.stringify(rows));
    await p.done();
  }
  const p = await open(convert(CHAIN), { height: 800 });
  // Zoomed below the box, it stays zoomed when the box opens.
  await p.click([5, 0.5]);
  const zoomed = await p.hash(/z=/);
  await p.key("/");
  await p.page.keyboard.type("parse");
  await p.hash(/q=parse/);
  await p.painted();
  assert.match(await p.page.locator(".search output").innerText(), /100 %/);
  assert.equal(await p.page.locator(".search .shown-all").count(), 0, "no match is hidden");
  assert.equal((await p.hash(/q=/)).match(/z=[^&]*/)[0], zoomed.match(/z=[^&]*/)[0]);
  assert.deepEqual((await p.crumbs()).slice(-4), ["serve", "route", "parse", "check"]);
  await p.key("Escape", "Escape", "x");
  await p.hash(/a=1/);
  assert.match(await p.hover([5, 0.5]), /^parse |^route /);
  await p.done();
  // A click in the table finds a function that was in the box.
  const q = await open(convert(CHAIN), { height: 800 });
  await q.page.locator(".functions .pick", { hasText: /^route$/ }).click();
  await until("it is drawn", async () => /^route /.test(await q.hover([4, 0.5])));
  await q.done();
});

it("a chart by function: its parts add up to the total, a click chooses what ran itself", async () => {
  for (const [dark, width] of [[false, 1280], [true, 1280], [false, 390], [true, 390]]) {
    const p = await see(`service=leaves&chart=function&${RANGE}`, { dark, width });
    await p.shot(`answers-functions-${dark ? "dark" : "light"}-${width}`);
    await p.done();
  }
  const p = await see(`service=leaves&chart=function&${RANGE}`);
  const words = await p.page.locator(".parts .legend li").allInnerTexts();
  assert.equal(words.length, 8);
  assert.match(words[0], /^f0 /);
  assert.ok(words.some((w) => w.startsWith(HOSTILE)));
  assert.match(words[7], /^5 others/);
  const shares = words.map((w) => parseFloat(/([\d.]+) %/.exec(w)[1]));
  assert.ok(Math.abs(shares.reduce((a, b) => a + b, 0) - 100) < 0.5, shares.join());
  const most = () => text(p, ".chart .most");
  const stacked = await most();
  await p.page.locator(".chart-by").getByRole("button", { name: "Total" }).click();
  await until("the total", async () => await p.page.locator(".chart .bars").count() === 1);
  assert.equal(await most(), stacked);
  await p.key("g", "g");
  await until("by function again", async () => await p.page.locator(".parts .legend li").count() === 8);
  await p.page.locator(".parts .legend button", { hasText: HOSTILE }).click();
  await until("it alone", async () => (await p.page.locator(".parts .legend li").allInnerTexts()).join() === `${HOSTILE} 100 %`);
  assert.equal(new URL(p.page.url()).searchParams.get("stacks"), `leaf="${HOSTILE}"`);
  await p.done();
});

it("annotations are asked for once a minute, not with each refresh", async () => {
  const fake = await new Server({ shop: { lines: ["shop;main;work 5"] } }).start();
  const p = await openUrl(`${fake.url}?view=flame&last=1m`);
  await until("two refreshes", () => fake.count("payload") >= 3);
  assert.equal(fake.count("annotations"), 1);
  await p.done();
  await fake.stop();
});

it("events of a span stand on the time axis, with their text", async () => {
  for (const [dark, width] of [[false, 1280], [true, 1280], [false, 390], [true, 390]]) {
    const p = await openUrl(`${s.url}?view=traces&${RANGE}&trace=${hex(5, 32)}`, { height: 800, dark, width });
    const row = p.page.locator(".waterfall tbody tr").nth(1);
    await row.locator(".event").first().waitFor();
    // At 100 and 250 of 400 ms.
    const at = await row.locator(".event").evaluateAll((all) => all.map((e) => (e.getBoundingClientRect().x + 1 - e.parentElement.getBoundingClientRect().x) / e.parentElement.clientWidth));
    assert.ok(Math.abs(at[0] - 0.25) < 0.01 && Math.abs(at[1] - 0.625) < 0.01, at.join());
    assert.equal(await row.locator(".event.failed").getAttribute("title"), `150 ms: exception ValueError: ${HOSTILE}`);
    await row.locator(".pick").click();
    await until("told", async () => (await p.page.getByRole("list", { name: "Events" }).locator("li").allInnerTexts()).map((t) => t.replace(/\s+/g, " ")).join("|") ===
      `0 ns after its start retry attempt=2|150 ms after its start exception ValueError: ${HOSTILE}`);
    await p.shot(`answers-events-${dark ? "dark" : "light"}-${width}`);
    await p.done();
  }
});
