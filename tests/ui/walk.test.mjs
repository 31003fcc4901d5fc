// SPDX-License-Identifier: Apache-2.0
/*
 * From the first page to the line that makes requests slow, and from a request of 4 s to where its
 * time went: by keyboard alone, by touch alone and by mouse alone, with the actions counted.
 */
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { sendSamples, sendSpans } from "./otlp.mjs";
import { cannot, openUrl, until } from "./page.mjs";
import { closeAll, serve, text } from "./serve.mjs";

const skip = cannot();
const T = Math.floor(Date.now() / 1000) * 1000 - 70000;
const LINE = "    return re.match(MAIL, address)";
let s, sources;

before(async () => {
  if (skip)
    return;
  sources = mkdtempSync("/tmp/culprit-walk-");
  chmodSync(sources, 0o755);
  writeFileSync(`${sources}/mail.py`, Array.from({ length: 40 }, (_, i) => (i === 11 ? LINE : `# ${i + 1}`)).join("\n") + "\n");
  s = await serve("walk");
  const spans = [], samples = [];
  for (let i = 0; i < 400; i++) {
    const bad = i % 40 === 7;
    const start = T + i * 10;
    spans.push({ trace: 1000 + i, id: 1000 + i, name: "GET /mail", start, ms: 20 + i % 11 + (bad ? 300 : 0) });
    samples.push([1000 + i, 1000 + i, "parse;handle;main", 20, start]);
    for (let k = 0; bad && k < 30; k++)
      samples.push([1000 + i, 1000 + i, "step;match;check_mail;handle;main", 10, start]);
  }
  await sendSpans(s.url, "post", spans);
  await sendSamples(s.url, "post", samples, { check_mail: [`${sources}/mail.py`, 12] });
  await sendSpans(s.url, "shop", [{ trace: 7, id: 70, name: "GET /slow", start: T, ms: 4420 }]);
  await sendSamples(s.url, "shop", [[7, 70, "work;main", 750, T + 50]]);
  await sendSamples(s.url, "shop", [[7, 70, "take;main", 3200, T + 3400, "lock"], [7, 70, "read;main", 300, T + 3600, "network"]], {}, {}, "off_cpu");
});
after(async () => {
  await s?.stop();
  await closeAll();
  if (sources)
    rmSync(sources, { recursive: true });
});

/** One action of each kind of input; `like` is what a mouse or a finger aims at, `key` what a keyboard has for it. */
const INPUTS = {
  mouse: { options: {}, act: (p, find) => find(p.page).click() },
  touch: { options: { width: 390, height: 800, touch: true }, act: (p, find) => find(p.page).tap() },
  keyboard: { options: {}, act: (p, _, key) => p.page.keyboard.press(key) },
};

for (const [input, { options, act }] of Object.entries(INPUTS)) {
  const walk = async (dark, steps, arrived, most) => {
    const p = await openUrl(s.url, { height: 800, dark, ...options });
    await p.page.waitForSelector('.live-page[aria-busy="false"]');
    await p.page.locator(".finding").first().waitFor();
    let actions = 0;
    for (const [ready, find, key] of steps) {
      await ready(p.page).waitFor();
      await act(p, find, key);
      actions++;
    }
    await arrived(p);
    assert.ok(actions <= most, `${actions} actions`);
    assert.ok(await p.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "no sideways scrolling");
    return p;
  };
  const finding = (page) => page.locator(".finding .pick").first();
  const traces = (page) => page.getByRole("button", { name: "Traces", exact: true }).or(page.getByRole("link", { name: "Traces", exact: true })).first();
  const slowest = (page) => page.getByRole("region", { name: "Requests", exact: true }).locator("tbody tr .pick").first();

  test(`walk: from the first page to the line by ${input} alone`, { skip, timeout: 300000 }, async () => {
    for (const dark of [false, true]) {
      const p = await walk(dark, [[finding, finding, "o"]], async ({ page }) => {
        await page.locator(".sheet-source tr.hot").waitFor();
        assert.equal(await page.locator(".sheet-source tr.hot .text-of").innerText(), LINE);
        assert.ok(await page.locator(".sheet-source tr.hot").evaluate((tr) => {
          const r = tr.getBoundingClientRect();
          return r.top >= 0 && r.bottom <= innerHeight;
        }), "the line is on the screen");
      }, 3);
      await p.shot(`walk-line-${input}-${dark ? "dark" : "light"}`);
      await p.done();
    }
  });

  test(`walk: from a request of 4 s to where its time went by ${input} alone`, { skip, timeout: 300000 }, async () => {
    for (const dark of [false, true]) {
      const p = await walk(dark, [[traces, traces, "5"], [slowest, slowest, "o"]], async (page) => {
        await until("where the time went", async () => await page.page.locator(".where-time").count() === 1);
        assert.match(await text(page, ".where-time"), /^CPU 750 ms and 3\.50 s of waiting in 4\.42 s: lock 3\.20 s, network 300 ms\. No samples for 170 ms/);
        assert.ok(await page.page.locator(".where-time").evaluate((e) => e.getBoundingClientRect().bottom <= innerHeight), "it is on the screen");
      }, 2);
      await p.shot(`walk-request-${input}-${dark ? "dark" : "light"}`);
      await p.done();
    }
  });
}
