// SPDX-License-Identifier: Apache-2.0
/*
 * What is shown over time, and lists, of a real server: 1,449 endpoints sorted and searched, parts
 * of a chart that add up, one scale for two charts, deploys and annotations, saved views.
 */
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { hex, sendSamples, sendSpans } from "./otlp.mjs";
import { cannot, openUrl, until } from "./page.mjs";
import { closeAll, serve } from "./serve.mjs";

const skip = cannot();
const T = Math.floor(Date.now() / 60000) * 60000 - 1200000;
const RANGE = `from=${T}&to=${T + 600000}`;
const N = 1449;
let s, chart, sources;

before(async () => {
  if (skip)
    return;
  s = await serve("overtime");
  const spans = Array.from({ length: N }, (_, i) => [0, 1].slice(0, i === N - 1 ? 1 : 2).map((k) => ({ trace: 1 + 2 * i + k, id: 1 + 2 * i + k,
    name: i === N - 1 ? "POST /slow<img src=x onerror=alert(1)>" : `GET /e/${i}`, start: T + i, ms: i === N - 1 ? 10000 : 1 + i % 400 }))).flat();
  for (let at = 0; at < spans.length; at += 1000)
    await sendSpans(s.url, "shop", spans.slice(at, at + 1000));
  // Cores by service: 12 of them, of which 7 have a part of their own; shop changes its version in the middle.
  for (let i = 0; i < 12; i++)
    for (const half of [0, 1])
      await s.upload(i === 0 ? "shop" : `service-${i}`, [`main;work ${(20 - i) * 100 * (half + 1)}`], { from: T + half * 300000, to: T + (half + 1) * 300000 - 1,
        labels: `service.version=${i === 0 && half ? "2.0" : "1.0"},thread.name=t${i}` });
  sources = mkdtempSync("/tmp/culprit-overtime-");
  chmodSync(sources, 0o755);
  writeFileSync(`${sources}/parse.c`, "/* <b>parses</b>\n   a line */\n#include <x.h>\n\nint parse(const char *s)\n{\n\treturn s[0] == \"<\" ? 0x1f : 7; // done\n}\n");
  chart = await serve("chart", { options: ["--source-links", `${sources}/=https://github.com/acme/shop/blob/main/{path}#L{line}`] });
  await sendSpans(chart.url, "shop", [{ trace: 9001, id: 9001, name: "GET /chart", start: T + 60000, ms: 200 }]);
  await sendSamples(chart.url, "shop", ["parse", "parse", "query", "parse", "render<b>"].map((f, i) => [9001, 9001, `${f};handle;main`, 20, T + 60020 + 20 * i + (i > 2 ? 60 : 0),
    { "thread.name": "worker" }]), { parse: [`${sources}/parse.c`, 7] });
});
after(async () => {
  await s?.stop();
  await chart?.stop();
  if (sources)
    rmSync(sources, { recursive: true });
  await closeAll();
});

function it(name, body) {
  test(`overtime: ${name}`, { skip, timeout: 300000 }, body);
}

async function see(of, search, options) {
  const p = await openUrl(`${of.url}?${search}`, options);
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  await p.painted();
  return p;
}

const region = (p, name) => p.page.getByRole("region", { name, exact: true });
const names = (p) => region(p, "Endpoints").locator("tbody td.c-name").allInnerTexts();
const text = async (p, selector) => (await p.page.locator(selector).first().innerText()).replace(/\s+/g, " ");
const both = async (name, of, search) => {
  for (const dark of [false, true])
    for (const [width, height] of [[1280, 800], [390, 844]]) {
      const p = await see(of, search, { dark, width, height });
      await p.shot(`overtime-${name}-${dark ? "dark" : "light"}-${width}`);
      await p.done();
    }
};

it("the slowest of 1,449 endpoints is found by a sort, and any by a search", async () => {
  const p = await see(s, `view=traces&${RANGE}`);
  const shown = async () => region(p, "Endpoints").locator(".filter .n").innerText();
  assert.equal(await shown(), "500 of 1,449");
  await region(p, "Endpoints").getByRole("button", { name: "p99" }).click();
  await until("the slowest first", async () => (await names(p))[0]?.startsWith("POST /slow<img"));
  assert.equal(await region(p, "Endpoints").locator('th[aria-sort="descending"]').innerText(), "p99 ↓");
  assert.equal(new URL(p.page.url()).searchParams.get("sort"), "-p99_ms");
  await region(p, "Endpoints").getByRole("button", { name: /^Requests( [↓↑])?$/ }).click();
  await region(p, "Endpoints").getByRole("button", { name: /^Requests( [↓↑])?$/ }).click();
  await until("the rarest first", async () => (await names(p))[0]?.startsWith("POST /slow"));
  const search = p.page.getByRole("searchbox", { name: "Search endpoints" });
  await search.fill("e/144");
  await until("nine match", async () => await shown() === "9 of 1,449");
  assert.ok((await names(p)).every((n) => n.startsWith("GET /e/144")));
  await search.fill("nothing has this");
  await until("none", async () => await shown() === "0 of 1,449");
  await search.fill("");
  await until("all again", async () => await shown() === "500 of 1,449");
  assert.equal(await region(p, "Requests").locator(".filter .n").innerText(), "200 of 2,897");
  await region(p, "Requests").getByRole("button", { name: "Took" }).click();
  await until("the quickest first", async () => (await region(p, "Requests").locator("tbody td").first().innerText()) === "1.00 ms");
  await p.done();
  await both("endpoints", s, `view=traces&${RANGE}&sort=-p99_ms`);
});

it("the parts of a stacked chart add up, and a click filters", async () => {
  const p = await see(s, `chart=stack&${RANGE}`);
  const legend = p.page.locator(".parts .legend li");
  const words = await legend.allInnerTexts();
  assert.equal(words.length, 8);
  assert.match(words[0], /^shop/);
  assert.match(words[7], /^5 others/);
  const shares = words.map((w) => parseFloat(/([\d.]+) %/.exec(w)[1]));
  assert.ok(Math.abs(shares.reduce((a, b) => a + b, 0) - 100) < 0.5, shares.join());
  // The highest bar is as high as that of the total.
  const top = async () => text(p, ".chart .most");
  const stacked = await top();
  await p.page.locator(".chart-by").getByRole("button", { name: "Total" }).click();
  await until("the total", async () => await p.page.locator(".chart .bars").count() === 1);
  assert.equal(await top(), stacked);
  await p.page.locator(".chart-by").getByRole("button", { name: "Stacked" }).click();
  await p.page.locator(".parts .legend button").first().click();
  await until("one service, by its threads", async () => (await legend.allInnerTexts()).join() === "t0 100 %");
  assert.equal(new URL(p.page.url()).searchParams.get("service"), "shop");
  await p.done();
  await both("stack", s, `chart=stack&${RANGE}`);
});

it("the charts of a comparison have one scale", async () => {
  const p = await see(s, `view=compare&from=${T + 300000}&to=${T + 600000}&base-from=${T}&base-to=${T + 300000}`);
  const high = await p.page.locator(".two-charts .bars").evaluateAll((paths) => paths.map((x) => x.getBBox().height));
  assert.equal(high.length, 2);
  assert.ok(Math.abs(high[0] / high[1] - 0.5) < 0.05, `half of the rate is half as high: ${high.join()}`);
  const tops = await p.page.locator(".two-charts .most").evaluateAll((all) => all.map((x) => x.lastChild.textContent.trim()));
  assert.equal(tops[0], tops[1]);
  await p.done();
  await both("compare", s, `view=compare&from=${T + 300000}&to=${T + 600000}&base-from=${T}&base-to=${T + 300000}`);
});

it("deploys and annotations are on the chart; views and annotations are saved for all", async () => {
  const p = await see(s, `service=shop&${RANGE}`);
  assert.equal(await p.page.locator(".chart .mark.deploy").count(), 1);
  await p.page.getByRole("button", { name: "Saved" }).click();
  await p.page.getByLabel("Name of the view").fill("<b>Shop</b>");
  await p.page.getByRole("button", { name: "Save this view" }).click();
  await p.page.getByRole("link", { name: "<b>Shop</b>" }).waitFor();
  await p.page.getByLabel("What happened").fill("cache <i>emptied</i>");
  const at = new Date(T + 121000 - new Date(T).getTimezoneOffset() * 60000).toISOString().slice(0, 19);
  await p.page.getByLabel("Time", { exact: true }).last().fill(at);
  await p.page.getByRole("button", { name: "Add", exact: true }).click();
  await p.page.locator(".sheet-notes").getByText("cache <i>emptied</i>").waitFor();
  await p.shot("overtime-saved");
  await p.page.keyboard.press("Escape");
  await until("two marks", async () => await p.page.locator(".chart .mark").count() === 2);
  const chart = p.page.locator(".timeline .chart");
  const box = await chart.boundingBox();
  await p.page.mouse.move(box.x + box.width * 0.2, box.y + 20);
  await until("what happened", async () => /cache <i>emptied<\/i>/.test(await chart.locator("output").innerText()));
  await p.page.mouse.move(box.x + box.width * 0.5 + 2, box.y + 20);
  await until("the deploy", async () => /shop: first samples of version 2\.0, before 1\.0/.test(await chart.locator("output").innerText()));
  // The annotation is of this service: another does not show it.
  const other = await see(s, `service=service-1&${RANGE}`);
  assert.equal(await other.page.locator(".chart .mark").count(), 0);
  await other.page.getByRole("button", { name: "Saved" }).click();
  await other.page.getByRole("link", { name: "<b>Shop</b>" }).click();
  await other.page.locator(".chart .mark.deploy").waitFor();
  assert.equal(new URL(other.page.url()).searchParams.get("service"), "shop");
  await other.done();
  await p.page.getByRole("button", { name: "Saved" }).click();
  for (const what of ["<b>Shop</b>", "cache <i>emptied</i>"])
    await p.page.getByRole("button", { name: `Remove ${what}` }).click();
  await until("nothing is left", async () => await p.page.locator(".sheet-notes li").count() === 0);
  await p.done();
});

it("the heat map has axes and a scale", async () => {
  const p = await see(s, `chart=heat&${RANGE}`);
  assert.match(await text(p, ".heat-scale"), /^0 .*[1-9].* samples\/s$/);
  await p.done();
  await both("heat", s, `chart=heat&${RANGE}`);
});

it("a request in the order of time: what ran twice is there twice, and gaps are told", async () => {
  const search = `view=traces&${RANGE}&trace=${hex(9001, 32)}`;
  const p = await see(chart, search);
  await p.page.getByRole("button", { name: "In order of time" }).click();
  const lane = p.page.getByRole("region", { name: "Thread worker" });
  await lane.waitFor();
  assert.match(await lane.locator("h3").innerText(), /shop · worker 10 samples, 100 ms; 60\.0 ms between samples not known/);
  const canvas = lane.locator("canvas");
  await canvas.focus();
  const said = async () => (await lane.locator(".flame-said").innerText()).replace(/\s+/g, " ");
  const walked = [];
  for (const key of ["ArrowRight", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"]) {
    await p.page.keyboard.press(key);
    walked.push((await said()).replace(/ms from.*/, "ms"));
  }
  assert.deepEqual(walked, ["main 60.0 ms", "handle 60.0 ms", "parse 40.0 ms", "query 20.0 ms", "parse 20.0 ms", "render<b> 20.0 ms"]);
  await p.page.keyboard.press("Enter");
  await p.page.getByRole("button", { name: "Whole request" }).waitFor();
  await p.page.keyboard.press("Escape");
  await until("the whole request", async () => await p.page.getByRole("button", { name: "Whole request" }).count() === 0);
  await p.page.keyboard.press("ArrowLeft");
  await lane.getByRole("button", { name: `${sources}/parse.c:7` }).click();
  const sheet = p.page.locator(".sheet-source");
  await sheet.locator(".s-comment").first().waitFor();
  assert.deepEqual(await sheet.locator("tr.hot .text-of span").allInnerTexts(), ["return", "0", '"<"', "0x1f", "7", "// done"]);
  assert.equal(await sheet.locator("tbody tr .text-of").first().innerText(), "/* <b>parses</b>");
  assert.equal(await sheet.getByRole("link", { name: "open" }).getAttribute("href"), "https://github.com/acme/shop/blob/main/parse.c#L7");
  await p.shot("overtime-source-light");
  await p.page.keyboard.press("Escape");
  await p.done();
  await both("chart", chart, `${search}&show=chart`);
});
