// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { AFTER, AT, BEFORE, HOSTILE, HOSTILE2, KNOWN, NARROW } from "./known.mjs";
import { cannot, close, convert, convertBytes, diff, open, until } from "./page.mjs";
import { pprof } from "./pprof.mjs";

const skip = cannot();
let known;
let narrow;

before(() => {
  if (skip)
    return;
  known = convert(KNOWN);
  narrow = convert(NARROW);
});
after(close);

function it(name, body) {
  test(name, { skip, timeout: 300000 }, body);
}

it("opens from disk: title, quality, picture and table", async () => {
  const p = await open(known, { hash: "#a=1" });
  const quality = await p.page.locator(".quality").innerText();
  assert.match(quality, /only 100 samples/);
  assert.doesNotMatch(quality, /none lost/, "nobody counted");
  assert.equal(await p.page.locator(".functions tbody tr[aria-rowindex]").count(), 16);
  assert.match(await p.page.locator(".flame-window").getAttribute("aria-label"), /100 samples/);
  await p.shot("start-light");
  await p.done();
});

it("the card: self, total, shares, interval, kind", async () => {
  const p = await open(known, { hash: "#t=0" });
  assert.match(await p.hover(AT.load), /^load native of view of all total 30 samples 30\.0 % 30\.0 % self 0 samples 0 % 0 % 95 % interval 21\.9 % – 39\.6 % of all/);
  assert.match(await p.hover(AT.draw_box), /draw_box .* total 50 samples 50\.0 % 50\.0 % self 40 samples 40\.0 % 40\.0 %/);
  assert.match(await p.hover(AT.blend), /^blend native inlined/);
  assert.match(await p.hover(AT.vfs_read), /^vfs_read kernel/);
  assert.match(await p.hover(AT.script), /^script jit/);
  assert.match(await p.hover(AT.truncated), /^\[truncated: stack memory not readable\] note/);
  assert.match(await p.hover(AT.web), /^web process or thread/);
  await p.hover(AT.draw_box);
  await p.shot("card-light");
  await p.page.mouse.move(400, 150);
  await p.page.waitForSelector(".card", { state: "detached" });
  await p.done();
});

it("zoom: by click, the way back by button, key, caller, crumb and history", async () => {
  const p = await open(known, { hash: "#t=0" });
  await p.click(AT.load);
  assert.deepEqual(await p.crumbs(), ["all", "app", "main", "load"]);
  await p.hash(/z=/);
  // load is as wide as the window now: parse is its first third.
  assert.match(await p.hover([0, 0.16]), /^load /, "in the first row");
  assert.match(await p.hover([1, 0.16]), /^parse .* total 10 samples 33\.3 % 10\.0 %/);
  await p.shot("zoom-light");
  await p.page.getByRole("button", { name: "Reset zoom" }).click();
  assert.deepEqual(await p.crumbs(), ["all"]);
  for (const key of ["Escape", "0"]) {
    await p.click(AT.load);
    await p.key(key);
    assert.deepEqual(await p.crumbs(), ["all"]);
  }
  await p.click(AT.load);
  await p.page.locator(".crumbs").getByRole("button", { name: "main" }).click();
  assert.deepEqual(await p.crumbs(), ["all", "app", "main"]);
  await p.page.goBack();
  assert.deepEqual(await p.crumbs(), ["all", "app", "main", "load"]);
  await p.page.locator(".crumbs").getByRole("button", { name: "app" }).click();
  assert.deepEqual(await p.crumbs(), ["all", "app"]);
  await p.click([1, 0.5]);
  assert.deepEqual(await p.crumbs(), ["all", "app", "main"]);
  await p.key("Backspace");
  assert.deepEqual(await p.crumbs(), ["all", "app"]);
  await p.done();
});

it("search: matched share, nested matches once, of view, next and previous, bad expressions", async () => {
  const p = await open(known, { hash: "#t=0" });
  await p.key("/");
  await p.page.keyboard.type("^parse");
  const out = p.page.locator(".search output");
  assert.match(await out.innerText(), /^10\.0 % matched\s*1$/);
  const hit = await p.colour(AT.parse);
  assert.notDeepEqual(hit, await p.colour(AT.read_file));
  assert.deepEqual(hit, await p.colour(AT.parse_num));
  await p.page.getByLabel(/Search frames/).fill("memcpy|^read|blend");
  assert.match(await out.innerText(), /^40\.0 % matched\s*3$/);
  await p.shot("search-light");
  await p.page.getByLabel(/Search frames/).press("Escape");
  assert.equal(await p.page.getByLabel(/Search frames/).inputValue(), "");
  await p.key("/");
  await p.page.keyboard.type("memcpy|^read|blend");
  await p.page.getByLabel(/Search frames/).press("Enter");
  assert.match(await out.innerText(), /1 of 3$/);
  await p.page.locator(".flame-window").focus();
  const spoken = p.page.locator(".spoken");
  assert.match(await spoken.innerText(), /^read_file, level 4, total 20\.0 % of all/);
  await p.key("n");
  assert.match(await spoken.innerText(), /^blend,/);
  await p.key("n");
  assert.match(await spoken.innerText(), /^memcpy,/);
  await p.key("n");
  assert.match(await spoken.innerText(), /^read_file,/);
  await p.key("N");
  assert.match(await spoken.innerText(), /^memcpy,/);
  await p.click(AT.render);
  assert.match(await out.innerText(), /^33\.3 % of view, 40\.0 % of all/);
  // A match outside of the view is gone to.
  await p.key("n");
  assert.match(await spoken.innerText(), /^read_file,/);
  assert.deepEqual(await p.crumbs(), ["all"]);
  await p.page.getByLabel(/Search frames/).fill("(");
  assert.match(await out.innerText(), /not a regular expression/);
  await p.page.getByLabel(/Search frames/).fill("no such thing");
  assert.match(await out.innerText(), /^0 % matched\s*0$/);
  await p.page.locator(".flame-window").focus();
  await p.key("Control+f");
  assert.equal(await p.page.evaluate(() => document.activeElement.type), "search");
  await p.done();
});

it("keyboard: arrows, Enter, and what is said of the focused frame", async () => {
  const p = await open(known, { hash: "#t=0" });
  await p.page.locator(".flame-window").focus();
  const spoken = async (want) => assert.match(await p.page.locator(".spoken").innerText(), want);
  await p.key("ArrowUp");
  await spoken(/^all, level 0, total 100 %/);
  await p.key("ArrowUp", "ArrowUp", "ArrowUp");
  await spoken(/^render, level 3, total 60\.0 % of all, self 0 %, 95 % interval 50\.2 % – 69\.1 %/);
  await p.key("ArrowLeft");
  await spoken(/^load,/);
  await p.key("ArrowRight", "ArrowDown");
  await spoken(/^main,/);
  await p.key("ArrowUp");
  await p.shot("focus-light");
  await p.key("Enter");
  assert.deepEqual(await p.crumbs(), ["all", "app", "main", "render"]);
  await p.key("s");
  assert.match(await p.page.locator(".sandwich-head").innerText(), /render/);
  await p.key("Escape", "Escape");
  assert.deepEqual(await p.crumbs(), ["all"]);
  await p.done();
});

it("a lower window: the picture stands on its floor, and no word of its quality is cut off", async () => {
  const p = await open(convert(Array.from({ length: 60 }, (_, i) => `p;${Array.from({ length: i + 2 }, (_, k) => `f${k}`).join(";")} 9`)), { hash: "#t=0" });
  const bottom = () => p.page.locator(".flame").evaluate((e) => e.scrollHeight - e.clientHeight - e.scrollTop);
  for (const height of [720, 500, 390, 600]) {
    await p.page.setViewportSize({ width: 700, height });
    await p.painted();
    assert.ok(await bottom() <= 1, `at the bottom, ${height} px high`);
    const [has, shown] = await p.page.locator(".quality").evaluate((e) => [e.scrollWidth, e.clientWidth]);
    assert.ok(has <= shown, `${has} px in ${shown}`);
  }
  // The legend takes a second line while the browser has still to tell of having scrolled.
  await p.page.locator(".flame").evaluate((e) => {
    e.scrollTop = 0;
    e.scrollTop = e.scrollHeight;
    document.querySelector("footer").style.minHeight = "70px";
  });
  await p.painted();
  assert.ok(await bottom() <= 1, "above a higher legend");
  await p.page.locator(".flame").evaluate((e) => (e.scrollTop = 100));
  await p.painted();
  const was = await bottom();
  await p.page.setViewportSize({ width: 700, height: 450 });
  await p.painted();
  assert.ok(Math.abs(await bottom() - was) <= 1, "what stood on the window's lower edge stays there");
  await p.done();
});

it("icicle: the root is on top, keys turn with it, and the picture follows", async () => {
  const p = await open(known, { hash: "#t=0" });
  await p.key("i");
  assert.equal(await p.page.getByRole("button", { name: "Icicle" }).getAttribute("aria-pressed"), "true");
  const c = await p.page.locator(".flame-window canvas").first().boundingBox();
  await p.page.mouse.move(c.x + 0.15 * c.width, c.y + 3.5 * 19);
  assert.match(await p.card(), /^load /);
  await p.page.locator(".flame-window").focus();
  await p.key("ArrowDown", "ArrowDown");
  assert.match(await p.page.locator(".spoken").innerText(), /^app,/);
  await p.hash(/i=1/);
  await p.shot("icicle-light");
  await p.done();
});

it("table: numbers, sorting, filter, click searches, and it follows the zoom", async () => {
  const p = await open(known, { hash: "#a=1" });
  const by = async (name) => (await p.rows()).find((r) => r.name === name);
  assert.deepEqual((await p.rows()).slice(0, 2).map((r) => r.name), ["draw_box", "vfs_read"]);
  assert.deepEqual(await by("parse"), { name: "parse", self: "0 %", total: "10.0 %", change: undefined, hit: false });
  assert.deepEqual(await by("draw_box"), { name: "draw_box", self: "40.0 %", total: "50.0 %", change: undefined, hit: false });
  await p.page.getByRole("columnheader", { name: /Total/ }).getByRole("button").click();
  assert.equal((await p.rows())[0].name, "main");
  assert.equal(await p.page.getByRole("columnheader", { name: /Total/ }).getAttribute("aria-sort"), "descending");
  await p.page.getByRole("columnheader", { name: /Function/ }).getByRole("button").click();
  const names = (await p.rows()).map((r) => r.name);
  assert.deepEqual(names, [...names].sort());
  await p.page.getByLabel(/Filter functions/).fill("^(read|load)");
  assert.deepEqual((await p.rows()).map((r) => r.name), ["load", "read_file"]);
  await p.page.getByLabel(/Filter functions/).fill("[");
  assert.match(await p.page.locator(".functions").innerText(), /not a regular expression/);
  await p.page.getByLabel(/Filter functions/).fill("");
  await p.page.getByRole("button", { name: "memcpy", exact: true }).click();
  assert.equal(await p.page.getByLabel(/Search frames/).inputValue(), "^memcpy$");
  assert.ok((await by("memcpy")).hit);
  // The picture and the table point at each other.
  await p.hover(AT.blend);
  assert.equal(await p.page.locator(".functions tr.over .pick").textContent(), "blend");
  const inked = () => p.page.evaluate(() => {
    const c = document.querySelector(".flame-window .overlay");
    return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.filter((v) => v > 0).length;
  });
  await p.page.mouse.move(300, 150);
  await p.painted();
  // The chosen function has the keyboard's ring.
  const ring = await inked();
  assert.ok(ring > 0);
  await p.page.locator(".functions tr", { hasText: "draw_box" }).hover();
  await p.painted();
  assert.ok(await inked() > ring);
  await p.click(AT.load);
  assert.deepEqual(await by("vfs_read"), { name: "vfs_read", self: "66.7 %", total: "66.7 %", change: undefined, hit: false });
  assert.equal(await by("render"), undefined);
  await p.key("t");
  assert.equal(await p.page.locator(".functions").count(), 0);
  await p.done();
});

it("dark and light: as the system says, and by hand", async () => {
  for (const dark of [false, true]) {
    const p = await open(known, { dark, hash: "#t=0" });
    const theme = () => p.page.evaluate(() => document.documentElement.dataset.theme);
    const back = async () => (await p.colour([20, 0.5])).reduce((a, b) => a + b) / 3;
    assert.equal(await theme(), dark ? "dark" : "light");
    assert.ok(dark ? (await back()) < 60 : (await back()) > 240);
    await p.key("d");
    assert.equal(await theme(), dark ? "light" : "dark");
    assert.ok(dark ? (await back()) > 240 : (await back()) < 60);
    await p.page.reload();
    await p.page.waitForSelector("canvas");
    assert.equal(await theme(), dark ? "light" : "dark");
    await p.done();
  }
  const p = await open(known, { dark: true });
  await p.hover(AT.draw_box);
  await p.shot("card-dark");
  await p.done();
});

it("help", async () => {
  const p = await open(known, { dark: true });
  await p.key("?");
  assert.match(await p.page.getByRole("dialog").innerText(), /next and previous match/);
  await p.shot("help-dark");
  await p.key("Escape");
  assert.equal(await p.page.getByRole("dialog").count(), 0);
  await p.page.getByRole("button", { name: "Help", exact: true }).click();
  await p.page.getByRole("button", { name: "Close" }).click();
  assert.equal(await p.page.getByRole("dialog").count(), 0);
  await p.done();
});

it("hostile names are text everywhere, and do not reach the markup", async () => {
  const raw = readFileSync(known, "utf8");
  assert.ok(!raw.includes("onerror") && !raw.includes("alert(2)"));
  const p = await open(known);
  const scripts = await p.page.locator("script").count();
  assert.match(await p.hover([3, 0.925]), new RegExp(`^${HOSTILE.replace(/[()]/g, "\\$&")} native`));
  await p.click([4, 0.925]);
  assert.deepEqual((await p.crumbs()).slice(-2), [HOSTILE, HOSTILE2]);
  assert.ok((await p.rows()).some((r) => r.name === HOSTILE2));
  await p.page.locator(".pick", { hasText: HOSTILE2 }).click();
  assert.equal(await p.page.locator("img").count(), 0);
  assert.equal(await p.page.locator("script").count(), scripts);
  await p.shot("hostile-light");
  await p.done();
});

it("narrow frames: a hatched box says how many and how much, and opens", async () => {
  const p = await open(narrow, { hash: "#t=0", width: 800 });
  const text = await p.hover([3, 0.2]);
  assert.match(text, /^800 narrow frames too narrow to draw click to zoom in of view of all total 400 samples 40\.0 % 40\.0 %/);
  assert.match(text, /and 397 more$/);
  await p.shot("folded-light");
  await p.click([3, 0.2]);
  assert.deepEqual(await p.crumbs(), ["all", "p", "main", "400 narrow frames"]);
  // 800 pixels for 400 frames: still too narrow, but the next click is on one of fewer.
  const again = await p.hover([0, 0.5]);
  assert.match(again, /folded|tiny_/);
  await p.page.reload();
  await p.page.waitForSelector("canvas");
  assert.deepEqual(await p.crumbs(), ["all", "p", "main", "400 narrow frames"]);
  // A search finds what is folded, and n goes there.
  await p.key("0", "/");
  await p.page.keyboard.type("tiny_123");
  assert.match(await p.page.locator(".search output").innerText(), /^0\.1 % matched/);
  await p.page.keyboard.press("Enter");
  await p.painted();
  assert.equal((await p.crumbs()).at(-1), "tiny_123");
  await p.done();
});

it("comparison: red grew, blue shrank, what is gone is told, absolute and normalised", async () => {
  const page = diff(BEFORE, AFTER);
  const p = await open(page, { hash: "#t=0" });
  // After: grew 0–30, new 30–70, shrank 70–90, steady 90–100 %.
  const [grew, shrank, steady] = [await p.colour([2, 0.15]), await p.colour([2, 0.8]), await p.colour([2, 0.95])];
  assert.ok(grew[0] > grew[2] + 40, `grew is red: ${grew}`);
  assert.ok(shrank[2] > shrank[0] + 40, `shrank is blue: ${shrank}`);
  assert.ok(Math.max(...steady) - Math.min(...steady) < 12, `steady is neutral: ${steady}`);
  assert.match(await p.hover([2, 0.15]), /before 100 samples 10\.0 % of before change \+200 samples \(\+200 %\) beyond chance/);
  assert.match(await p.hover([2, 0.5]), /before 0 samples 0 % of before change \+400 samples \(new\)/);
  assert.match(await p.page.locator("footer").innerText(), /20\.0 % of the earlier profile is hidden at this width/);
  await p.shot("diff-light");
  await p.page.locator(".unseen").click();
  // Both: gone 0–10, grew 10–30, new 30–50, shrank 50–90, steady 90–100 %.
  assert.match(await p.hover([2, 0.05]), /^gone .* change −200 samples \(gone\)/);
  await p.page.getByLabel("Widths").selectOption("before");
  await p.painted();
  assert.match(await p.hover([2, 0.1]), /^gone /);
  await p.key("t");
  const rows = await p.rows();
  assert.equal(rows.find((r) => r.name === "shrank").change, "−40.0 %");
  await p.shot("diff-table-light");
  await p.done();
  // Twice as many samples with the same shares: nothing changed when normalised, all grew when not.
  const twice = diff(BEFORE, BEFORE.map((l) => l.replace(/\d+$/, (n) => String(2 * n))));
  const q = await open(twice, { hash: "#t=0", dark: true });
  assert.ok((await q.colour([2, 0.5]))[0] > (await q.colour([2, 0.5]))[2] + 30);
  await q.page.getByRole("button", { name: "Normalised" }).click();
  const c = await q.colour([2, 0.5]);
  assert.ok(Math.max(...c) - Math.min(...c) < 12, `${c}`);
  await q.shot("diff-dark");
  await q.done();
});

it("a difference that chance makes is not coloured", async () => {
  const p = await open(diff(["p;a 3", "p;b 997"], ["p;a 6", "p;b 994"]), { hash: "#t=0&w=both" });
  const c = await p.colour([2, 0.002]);
  assert.ok(Math.max(...c) - Math.min(...c) < 12, `${c}`);
  assert.match(await p.hover([2, 0.002]), /could be chance/);
  await p.done();
});

it("a frame's menu: focus, hide, merge, callers and callees", async () => {
  const p = await open(known, { hash: "#t=0" });
  const menu = async (at, item) => {
    await p.click(at, { button: "right" });
    await p.page.getByRole("menuitem", { name: item }).click();
    await p.painted();
  };
  await p.click(AT.main, { button: "right" });
  await p.shot("menu-light");
  await p.key("Escape");
  assert.equal(await p.page.getByRole("menu").count(), 0);
  await menu(AT.memcpy, /Copy stack/);
  assert.equal(await p.pasted(/^memcpy/), "memcpy draw_box render main app", "one line a frame, leaf first");
  await menu(AT.main, /Hide/);
  assert.match(await p.hover([2, 0.15]), /^load .* 30 samples 30\.0 %/);
  await p.page.getByRole("button", { name: /hidden: main/ }).click();
  await menu(AT.load, /Only stacks from/);
  assert.match(await p.hover([1, 0.5]), /^load .* total 30 samples 100 % 30\.0 %/);
  await p.hash(/x=focus:load/);
  await p.page.goBack();
  await menu(AT.load, /Merge all/);
  assert.match(await p.hover([5, 0.05]), /^parse_num/);
  await p.page.getByRole("button", { name: /recursion merged/ }).click();
  await menu(AT.parse2, /Callers and callees/);
  assert.match(await p.page.locator(".sandwich-head").innerText(), /parse\s+10 samples, 10\.0 % of all/);
  await p.shot("sandwich-light");
  // In the tree of callers "self" would be a lie.
  const c = await p.page.locator(".sandwich canvas").first().boundingBox();
  await p.page.mouse.move(c.x + 100, c.y + c.height - 1.5 * 19);
  assert.match(await p.card(), /^load .* total 10 samples 100 % 10\.0 % 95 %/);
  await p.page.getByRole("button", { name: "Back" }).click();
  assert.equal(await p.page.locator(".sandwich").count(), 0);
  await p.done();
});

it("a frame's menu and its keys: fold what is called, collapse recursion, a link to the frame", async () => {
  const p = await open(known, { hash: "#t=0" });
  await p.page.locator(".flame-window").focus();
  await p.click(AT.load, { button: "right" });
  const link = p.page.getByRole("menuitem", { name: "Copy link to this frame" });
  assert.equal(await p.page.getByRole("menuitem", { name: "Merge callees into this function" }).getAttribute("aria-keyshortcuts"), "E");
  await link.click();
  const copied = await p.pasted(/#/);
  assert.deepEqual(await p.crumbs(), ["all"], "it was copied, not gone to");
  const q = await open(known, { hash: new URL(copied).hash });
  assert.deepEqual(await q.crumbs(), ["all", "app", "main", "load"]);
  await q.done();
  await p.page.locator(".flame-window").focus();
  // all, app, main, render; to its left is load.
  await p.key("ArrowUp", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowLeft", "E");
  await p.hash(/x=fold:load/);
  assert.match(await p.hover(AT.load), /^load .* total 30 samples 30\.0 % 30\.0 % self 30 samples/);
  await p.page.getByRole("button", { name: "callees merged into load" }).click();
  await p.key("Escape");
  await p.page.locator(".flame-window").focus();
  await p.key("ArrowUp", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowLeft", "ArrowUp", "ArrowLeft");
  assert.match(await p.page.locator(".spoken").innerText(), /^parse, level 4/);
  await p.key("R");
  assert.match(await p.hover([5, 0.05]), /^parse_num/);
  assert.match(await p.page.locator(".crumbs").innerText(), /recursion collapsed: parse/);
  await p.shot("collapsed-light");
  await p.done();
});

it("inverted: what ran at the root, who called it above; the table stays, zoom too", async () => {
  const p = await open(known);
  await p.key("r");
  await p.hash(/v=1/);
  assert.equal(await p.page.getByRole("button", { name: "Inverted" }).getAttribute("aria-pressed"), "true");
  // Leaves by name: (img's child) script.., blend 10, draw_box 40, ...: the first level is the table's self.
  assert.match(await p.hover([1, 0.3]), /^draw_box .* total 40 samples 40\.0 % 40\.0 % 95 % interval/);
  assert.match(await p.hover([2, 0.3]), /^render .* total 40 samples/);
  assert.equal((await p.rows())[0].name, "draw_box");
  await p.click([1, 0.3]);
  assert.deepEqual(await p.crumbs(), ["all", "draw_box"]);
  await p.shot("inverted-light");
  await p.page.reload();
  await p.page.waitForSelector("canvas");
  assert.deepEqual(await p.crumbs(), ["all", "draw_box"]);
  await p.key("r");
  assert.deepEqual(await p.crumbs(), ["all"]);
  await p.done();
});

it("picture and table: side by side, the picture alone, the table alone", async () => {
  const p = await open(known);
  const there = async () => [await p.page.locator(".flame-window").isVisible(), await p.page.locator(".functions").isVisible()];
  assert.deepEqual(await there(), [true, true]);
  await p.key("t");
  assert.deepEqual(await there(), [true, false]);
  await p.key("t");
  assert.deepEqual(await there(), [false, true]);
  await p.hash(/t=2/);
  assert.ok((await p.page.locator(".functions").boundingBox()).width > 1200);
  await p.shot("table-light");
  await p.page.getByRole("button", { name: "Table alone" }).click();
  assert.deepEqual(await there(), [true, true]);
  await p.done();
  const q = await open(diff(BEFORE, AFTER), { hash: "#t=2" });
  const cells = (name) => q.page.locator(".functions tbody tr", { hasText: name }).locator("td").allInnerTexts();
  const [, total, before, amount, points, chance] = (await cells("grew")).map((t) => t.trim());
  assert.deepEqual([total, before, amount, points, chance], ["30.0 %", "100 samples", "+200 samples", "+20.0 %", "beyond chance"]);
  assert.equal((await cells("steady"))[5].trim(), "", "no change is neither");
  await q.shot("table-diff-light");
  await q.done();
  const r = await open(diff(["p;a 3", "p;b 997"], ["p;a 6", "p;b 994"]));
  assert.match((await r.rows()).find((x) => x.name === "a").change, /^≈ \+0\.3 %$/);
  await r.done();
});

it("narrow frames: how much is folded is said, and they can be kept", async () => {
  const p = await open(narrow, { hash: "#t=0", width: 1280 });
  const said = p.page.locator(".folding");
  // 400 of one sample with a leaf each, of 1,000.
  assert.match(await said.innerText(), /^800 narrow frames hidden, 40\.0 %$/);
  await p.key("k");
  assert.match(await said.innerText(), /^no frames hidden$/);
  await p.hash(/k=1/);
  assert.match(await p.hover([3, 0.2]), /^tiny_/);
  await p.shot("narrow-kept-light");
  await said.getByRole("button").click();
  assert.match(await said.innerText(), /^800 narrow frames hidden, 40\.0 %$/);
  await p.done();
});

it("colours: by binary and by function, with a legend", async () => {
  const p = await open(known, { hash: "#t=0" });
  const legend = () => p.page.locator(".legend").innerText();
  assert.match(await legend(), /native/);
  assert.match(await legend(), /kernel/);
  assert.match(await legend(), /inlined/);
  assert.match(await legend(), /jit/);
  const kinds = await Promise.all([AT.draw_box, AT.vfs_read, AT.script, AT.blend, AT.truncated].map((a) => p.colour(a)));
  assert.equal(new Set(kinds.map(String)).size, 5, `kinds are told apart: ${kinds.join(" | ")}`);
  await p.page.getByLabel("Colours", { exact: true }).first().selectOption("name");
  await p.hash(/c=name/);
  assert.deepEqual(await p.colour(AT.parse), await p.colour(AT.parse2));
  await p.done();
});

it("a phone: everything within its width, tap tells, second tap zooms", async () => {
  const p = await open(known, { width: 390, height: 844, touch: true });
  const wide = await p.page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 390, `${wide} wide`);
  const tap = async (at) => {
    await p.page.touchscreen.tap(...(await p.point(at)));
    await p.painted();
  };
  await tap(AT.load);
  assert.match(await p.card(), /^load /);
  assert.deepEqual(await p.crumbs(), ["all"]);
  await p.shot("phone-light");
  await tap(AT.load);
  assert.deepEqual(await p.crumbs(), ["all", "app", "main", "load"]);
  await p.page.getByRole("button", { name: "Table" }).tap();
  assert.ok((await p.rows()).length > 0);
  await p.shot("phone-table-light");
  await p.done();
});

it("a page that was cut short or edited says so", async () => {
  const text = readFileSync(known, "utf8");
  const from = text.indexOf(">", text.lastIndexOf("culprit-data\"")) + 1;
  for (const [what, damaged] of [["cut", text.slice(0, from + 200)], ["empty", text.slice(0, from) + "</script>"],
    ["edited", text.slice(0, from) + text.slice(from).replace(/.{9}/, "AAAAAAAAA")]]) {
    const path = known.replace(/\.html$/, `-${what}.html`);
    writeFileSync(path, damaged);
    const p = await open(path);
    assert.match(await p.page.getByRole("alert").innerText(), /cannot be shown: .*(damaged|cut short)/, what);
    await p.done();
  }
});

it("an empty profile says what to do", async () => {
  const p = await open(convert(["p 0"]));
  assert.match(await p.page.locator(".nothing").innerText(), /Record for longer/);
  await p.done();
});

it("the whole state is in the address", async () => {
  const p = await open(known, { hash: "#q=parse&i=1&m=dark&t=0&c=name&s=name&f=x" });
  assert.equal(await p.page.getByLabel(/Search frames/).inputValue(), "parse");
  assert.equal(await p.page.evaluate(() => document.documentElement.dataset.theme), "dark");
  await p.click(AT.load);
  await p.page.reload();
  await p.page.waitForSelector("canvas");
  assert.deepEqual(await p.crumbs(), ["all", "app", "main", "load"]);
  await p.hash(/q=parse/);
  await p.done();
});

it("files, lines, binaries, build-ids and units, as pprof has them", async () => {
  const p = await open(convertBytes(pprof(), ".pb.gz"), { hash: "#t=0&a=1" });
  assert.match(await p.page.locator(".quality").innerText(), /400 samples.*4\.00 s CPU.*over 4\.00 s/);
  // app;main;[work;fast | libfoo.so.1+0x…]: children by name, libfoo first.
  const main = await p.hover([2, 0.5]);
  assert.match(main, /^main native \/opt\/app\/bin\/app/);
  assert.match(main, /\/src\/main\.c:10 hottest line main\.c:14: 100 % of this function.s 4\.00 s in the whole profile build-id 0123456789abcdef/);
  assert.match(main, /total 4\.00 s 100 % 100 % self 0 ns 0 % 0 % samples 400/);
  const foo = await p.hover([3, 0.3]);
  assert.match(foo, /^libfoo\.so\.1\+0x1234 \w+ \/usr\/lib\/libfoo\.so\.1/);
  assert.match(foo, /total 3\.00 s 75\.0 % 75\.0 % .* samples 300 95 % interval 70\.5 % – 79\.0 % of all/);
  const fast = await p.hover([4, 0.9]);
  assert.match(fast, /^fast native inlined/);
  assert.match(fast, /\/src\/fast\.h hottest line fast\.h:7: 100 % of this function.s 1\.00 s/);
  await p.page.getByLabel("Colours", { exact: true }).first().selectOption("package");
  assert.match(await p.page.locator(".legend").innerText(), /libfoo\.so\.1/);
  assert.notDeepEqual(await p.colour([3, 0.3]), await p.colour([2, 0.5]));
  await p.hover([3, 0.3]);
  await p.shot("pprof-light");
  await p.done();
});

it("deep stacks: opens at the root, goes where one looks, keeps the place", async () => {
  const stack = (n) => ["p", ...Array.from({ length: n }, (_, i) => `f${String(i).padStart(3, "0")}`)].join(";");
  const p = await open(convert([`${stack(400)} 700`, `${stack(10)};side 300`]), { hash: "#t=0" });
  const scroll = () => p.page.locator(".flame").evaluate((e) => [e.scrollTop, e.scrollHeight - e.clientHeight]);
  const [at, most] = await scroll();
  assert.ok(most > 5000 && Math.abs(at - most) < 2, `${at} of ${most}: the root is at the bottom`);
  assert.match(await p.hover([0, 0.5]), /^all /);
  // Wheel up: what is under the pointer is painted there.
  await p.page.mouse.wheel(0, -1900);
  await until("scrolled", async () => Math.abs((await scroll())[0] - (most - 1900)) < 2);
  await p.painted();
  assert.match(await p.hover([20, 0.3]), /^f118 /);
  await p.shot("deep-light");
  // A match that is out of sight is scrolled to.
  await p.key("/");
  await p.page.keyboard.type("f390");
  await p.page.keyboard.press("Enter");
  await p.painted();
  assert.ok((await scroll())[0] < 400);
  await p.page.locator(".flame-window").focus();
  await p.key("Enter");
  assert.equal((await p.crumbs()).at(-1), "f390");
  await p.key("Escape", "i");
  assert.equal((await scroll())[0], 0, "with the root on top the view starts at the top");
  await p.key("i");
  const [end, last] = await scroll();
  assert.ok(Math.abs(end - last) < 2);
  await p.done();
});
