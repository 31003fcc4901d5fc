// SPDX-License-Identifier: Apache-2.0
/*
 * Names, labels, files and predicates of an enemy, through the real server: they are text wherever they are shown, no
 * request leaves, nothing runs, and nothing of it turns, hides or reaches beyond its own text.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { cannot, openUrl, until } from "./page.mjs";
import { closeAll, serve, text } from "./serve.mjs";

const skip = cannot();
const NAMES = {
  markup: "<img src=x onerror=alert(1)>", script: "</script><script>alert(2)</script>", template: "${alert(3)}{{4}}",
  ansi: "\u001b[31mred\u001b]0;title\u0007", turned: "gpj.\u202egnp.exe", isolated: "a\u2066b\u2069c",
  url: "javascript:alert(5)", quoted: `a"b'c\\d`, wide: "\u{1f9e8}".repeat(40), long: "n".repeat(70000), spaces: "a\u2028b\u2029c",
};
/** What may never be in the document's text: it would turn or hide what stands around it. */
const INVISIBLE = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/;
const T = Math.floor(Date.now() / 60000) * 60000 - 60000;
const RANGE = `from=${T}&to=${T + 60000}`;
let s;

before(async () => {
  if (skip)
    return;
  s = await serve("hostile");
  // Speedscope, because its JSON can say every character; labels by OTLP's JSON would be the same.
  const frames = Object.values(NAMES).map((name) => ({ name, file: `/src/${name.slice(0, 200)}`, line: 1 }));
  const body = JSON.stringify({ $schema: "https://www.speedscope.app/file-format-schema.json", shared: { frames },
    profiles: [{ type: "sampled", name: NAMES.markup, unit: "none", startValue: 0, endValue: 400,
      samples: frames.map((_, i) => [i]), weights: frames.map(() => 40) }] });
  const nul = await fetch(`${s.url}api/v1/upload`, { method: "POST", body: body.replace("red", "\\u0000") });
  assert.equal(nul.status, 400, "a NUL is in no JSON");
  for (const [key, value] of [["service.name", NAMES.markup], ["service.name", NAMES.turned], ["service.name", NAMES.ansi],
    ["service.name", NAMES.quoted], ["host.name", NAMES.script]]) {
    const labels = `${key === "service.name" ? "" : "service.name=plain,"}${key}=${value.replace(/,/g, " ")}`;
    const q = new URLSearchParams({ labels, from: T + 1000, to: T + 2000, name: `${NAMES.markup}.json` });
    const r = await fetch(`${s.url}api/v1/upload?${q}`, { method: "POST", body });
    assert.equal(r.status, 200, await r.text());
  }
});
after(async () => {
  await s?.stop();
  await closeAll();
});

/** Nothing of the enemy became anything but text; p.done() adds: no dialog, no request elsewhere, no error. */
async function harmless(p, where) {
  const found = await p.page.evaluate(() => ({
    elements: document.querySelectorAll("img, iframe, object, embed, svg script, a[href^='javascript']").length,
    scripts: document.scripts.length, handlers: [...document.querySelectorAll("*")].filter((e) =>
      [...e.attributes].some((a) => a.name.startsWith("on"))).length,
    texts: document.body.innerText + document.title, titles: [...document.querySelectorAll("[title], [aria-label]")].map((e) =>
      (e.getAttribute("title") ?? "") + (e.getAttribute("aria-label") ?? "")).join("\n"),
  }));
  assert.deepEqual([found.elements, found.scripts, found.handlers], [0, 1, 0], where);
  assert.ok(!INVISIBLE.test(found.texts), `${where}: ${JSON.stringify(found.texts.match(INVISIBLE))}`);
  assert.ok(!INVISIBLE.test(found.titles), `${where}, titles: ${JSON.stringify(found.titles.match(INVISIBLE))}`);
  const wide = await p.page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 1280, `${where} is ${wide} px wide`);
}

async function see(search) {
  const p = await openUrl(`${s.url}?${search}`, { said: /status of 4/ });
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  await p.painted();
  return p;
}

test("hostile names, labels and titles: every view", { skip, timeout: 600000 }, async () => {
  for (const [view, wait] of [["", ".flame canvas"], ["view=services", ".services-page .pick"], ["view=services&by=host.name", ".services-page .pick"],
    ["view=compare&ago=0s", ".flame canvas"], ["chart=threads", ".lanes"], ["group=host.name", ".flame canvas"]]) {
    const p = await see(`${view}&${RANGE}`);
    await p.page.waitForSelector(wait);
    await harmless(p, view || "flame");
    await p.shot(`hostile-${view.replace(/\W+/g, "-") || "flame"}`);
    await p.done();
  }
});

test("hostile names: picture, card, menu, table, sandwich, source, search", { skip, timeout: 600000 }, async () => {
  const p = await see(`${RANGE}&service=${encodeURIComponent(NAMES.quoted)}`);
  await p.page.waitForSelector(".flame canvas");
  assert.equal((await p.rows()).length, Object.keys(NAMES).length);
  for (let i = 0; i < 12; i++) {
    const at = [2, (i + 0.5) / 12];
    await p.hover(at);
    await harmless(p, `card ${i}`);
    await p.click(at, { button: "right" });
    await harmless(p, `menu ${i}`);
    await p.key("Escape");
  }
  await p.click([2, 0.04]);
  await harmless(p, "crumbs");
  await p.page.locator(".both").first().click({ force: true });
  await p.page.waitForSelector(".sandwich");
  await harmless(p, "sandwich");
  await p.key("Escape", "0");
  await p.click([2, 0.5], { button: "right" });
  await p.page.getByRole("menuitem", { name: "Source lines" }).click();
  await p.page.locator(".sheet-source").waitFor();
  await harmless(p, "source");
  await p.done();
});

test("hostile addresses and predicates: what they ask for is refused or nothing, in words", { skip, timeout: 600000 }, async () => {
  for (const search of [`service=${encodeURIComponent(NAMES.script)}`, `stacks=${encodeURIComponent('fn="<img src=x onerror=alert(1)>" under (')}`,
    `is=${encodeURIComponent(`host.name=${NAMES.markup}`)}`, `type=${encodeURIComponent(NAMES.markup)}`, `source=${encodeURIComponent("/etc/shadow")}`,
    `fn=${encodeURIComponent(NAMES.markup)}&binary=/etc/shadow&build=${encodeURIComponent(NAMES.script)}`, `view=${encodeURIComponent(NAMES.markup)}`,
    `by=${encodeURIComponent(NAMES.markup)}&view=services`, `find=${encodeURIComponent("(".repeat(5000))}&view=services`]) {
    const p = await see(`${RANGE}&${search}`);
    await harmless(p, search.slice(0, 80));
    if (search.includes("shadow")) {
      await p.page.locator(".sheet-source p").first().waitFor();
      assert.ok(!/root:/.test(await text(p, ".sheet-source")));
    }
    await p.done();
  }
  const p = await openUrl(`${s.url}?${RANGE}#fn=${encodeURIComponent(NAMES.script)}&q=${encodeURIComponent(NAMES.markup)}&x=hide:${encodeURIComponent(NAMES.markup)}&c=evil`);
  await harmless(p, "hash");
  await p.done();
});

test("hostile uploads: names of files, and what is in them", { skip, timeout: 600000 }, async () => {
  const p = await see("view=files");
  const input = p.page.getByLabel("Profiles", { exact: true });
  const name = `${NAMES.markup.replace("/", "")}.folded`;
  await input.setInputFiles({ name, mimeType: "text/plain", buffer: Buffer.from(`main;${NAMES.markup} 3\nmain;${NAMES.turned} 4\nmain;\u001b[31mred 5\n`) });
  await p.page.waitForSelector(".flame canvas");
  assert.match(await text(p, "h1"), /<img src=x onerror=alert\(1\)>/);
  await harmless(p, "file");
  await input.setInputFiles({ name: "nul.folded", mimeType: "text/plain", buffer: Buffer.from("main;be\u0000fore 2\n") });
  await until("it is said", async () => (await p.page.locator(".files-bar [role=alert]").count()) > 0 || /nul/.test(await text(p, ".files-bar")));
  await harmless(p, "NUL in a file");
  await input.setInputFiles({ name: "evil.html", mimeType: "text/html", buffer: Buffer.from("<script>alert(1)</script>") });
  await until("it is said", async () => (await p.page.locator(".files-bar [role=alert]").count()) > 0 || /evil/.test(await text(p, ".files-bar")));
  await harmless(p, "refused file");
  await p.done();
});
