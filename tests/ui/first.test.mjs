// SPDX-License-Identifier: Apache-2.0
/*
 * The first minute, on known data: from the address that the server prints to the line that makes requests slow, and
 * from a slow request to where its time went; by mouse and by keyboard, actions counted.
 */
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { sendSamples, sendSpans, hex } from "./otlp.mjs";
import { cannot, openUrl, until } from "./page.mjs";
import { closeAll, serve, text } from "./serve.mjs";

const skip = cannot();
const T = Math.floor(Date.now() / 1000) * 1000 - 70000;
const RANGE = `from=${T - 5000}&to=${T + 30000}`;
const HOSTILE = "<img src=x onerror=alert(1)>";
let s, sources;

/** One in 40 of these runs an expression that backtracks, for 300 ms more than the 20 to 30 that all take. */
function mail(n) {
  const spans = [], samples = [];
  for (let i = 0; i < n; i++) {
    const bad = i % 40 === 7;
    const start = T + i * 10;
    spans.push({ trace: 1000 + i, id: 1000 + i, name: "GET /mail", start, ms: 20 + i % 11 + (bad ? 300 : 0) });
    samples.push([1000 + i, 1000 + i, "parse;handle;main", 20, start]);
    for (let k = 0; bad && k < 30; k++)
      samples.push([1000 + i, 1000 + i, "step;match;check_mail;handle;main", 10, start]);
  }
  return { spans, samples };
}

before(async () => {
  if (skip)
    return;
  sources = mkdtempSync("/tmp/culprit-first-");
  chmodSync(sources, 0o755);
  writeFileSync(`${sources}/mail.py`, Array.from({ length: 40 }, (_, i) => (i === 11 ? "    return re.match(MAIL, address)" : `# ${i + 1}`)).join("\n") + "\n");
  s = await serve("first", { options: ["--trace-links", "Jaeger=https://jaeger.example/trace/{trace} Grafana=https://grafana.example/explore?id={trace}&s={span}"] });
  const m = mail(400);
  await sendSpans(s.url, "post", m.spans);
  await sendSamples(s.url, "post", m.samples, { check_mail: [`${sources}/mail.py`, 12] });
  await sendSpans(s.url, HOSTILE, Array.from({ length: 340 }, (_, i) => ({ trace: 5000 + i, id: 5000 + i, name: HOSTILE, start: T + i, ms: 10, ...i < 100 ? { error: "no" } : {} })));
  await sendSamples(s.url, "culprit", [[0, 0, "sample;main", 40, T, { "culprit.self": "true" }]]);
  // A request of 4.42 s that used the CPU for 750 ms, and waited for a lock for 3.2 s and for the network for 0.3 s.
  await sendSpans(s.url, "shop", [{ trace: 7, id: 70, name: "GET /slow", start: T, ms: 4420, attributes: { "http.route": "/slow", "http.request.method": "GET", "user.name": HOSTILE } },
    { trace: 7, id: 71, parent: 70, name: "query", start: T + 100, ms: 3500, kind: 3 }]);
  await sendSamples(s.url, "shop", [[7, 70, "work;main", 750, T + 50]]);
  await sendSamples(s.url, "shop", [[7, 71, "take;main", 3200, T + 3400, "lock"], [7, 71, "read;main", 300, T + 3600, "network"]], {}, {}, "off_cpu");
});
after(async () => {
  await s?.stop();
  await closeAll();
  if (sources)
    rmSync(sources, { recursive: true });
});

function it(name, body) {
  test(`first: ${name}`, { skip, timeout: 300000 }, body);
}

async function see(search, options) {
  const p = await openUrl(search === "" ? s.url : `${s.url}?${search}`, { height: 800, ...options });
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  return p;
}

const params = (p) => new URL(p.page.url()).searchParams;
const all = async (p, selector) => (await p.page.locator(selector).allInnerTexts()).map((t) => t.replace(/\s+/g, " ").trim());

it("the address alone opens what is wrong now; each sentence has its base and its place", async () => {
  const p = await see("");
  const findings = p.page.locator(".finding");
  await findings.first().waitFor();
  const said = await all(p, ".finding");
  assert.equal(said.length, 2);
  assert.match(said[0], /^GET \/mail of post has a slow tail: p99 32\d ms, median 25\.0 ms, of 400 requests\. (100|99\.\d) % of the extra time is CPU time in check_mail, mail\.py:12\. Why slow\? →$/);
  assert.match(said[1], /^<img src=x onerror=alert\(1\)> of <img src=x onerror=alert\(1\)> fails: 100 of 340 requests \(29\.4 %\)\. Failed requests →$/);
  assert.match(await text(p, ".overview"), /^2 findings in the last 5 min .*Checked: slow requests, failed requests, locks\. No data for: CPU time against the same time before, memory that grows/);
  // Shares are of what is shown: culprit itself is in none of the sums.
  assert.match(await text(p, ".overview"), /culprit itself: .*, not in these sums/);
  const rows = await all(p, ".overview tbody tr");
  assert.ok(rows.some((r) => /^post 1 /.test(r)) && rows.some((r) => /^<img.* 1 – – 340 29\.4 %$/.test(r)) && !rows.some((r) => /^culprit/.test(r)), rows.join("|"));
  await p.shot("first-light");
  await p.page.getByRole("button", { name: "Include culprit" }).click();
  await until("culprit has a row", async () => (await all(p, ".overview tbody tr")).some((r) => /^culprit/.test(r)));
  assert.equal(params(p).get("self"), "1");
  await p.page.getByRole("button", { name: "Leave culprit out" }).click();
  await until("it has none", async () => !(await all(p, ".overview tbody tr")).some((r) => /^culprit/.test(r)));
  await p.done();
  for (const [name, options] of [["first-dark", { dark: true }], ["first-phone", { width: 390, height: 844, touch: true }], ["first-phone-dark", { width: 390, height: 844, touch: true, dark: true }]]) {
    const q = await see("", options);
    await q.page.locator(".finding").first().waitFor();
    assert.ok(await q.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "no sideways scrolling");
    await q.shot(name);
    await q.done();
  }
});

it("from the address to the line: one action by mouse, and by keyboard", async () => {
  const p = await see("");
  await p.page.locator(".finding .pick").first().click();
  await p.page.locator(".sheet-source tr.hot").waitFor();
  assert.match(await p.page.locator(".sheet-source tr.hot .text-of").innerText(), /return re\.match\(MAIL, address\)/);
  await p.shot("first-line-light");
  await p.key("Escape");
  // Behind it is the comparison that says so.
  await p.page.getByRole("region", { name: "Why slow?" }).waitFor();
  await p.page.goBack();
  await p.done();
  const q = await see("");
  await q.page.locator(".finding").first().waitFor();
  await q.page.locator(".finding .pick").first().focus();
  await q.key("Enter");
  await q.page.locator(".sheet-source tr.hot").waitFor();
  await q.done();
});

it("why slow: a sentence, a row per call chain with its line, words of the field", async () => {
  const p = await see(`view=traces&${RANGE}&service=post&endpoint=GET%20%2Fmail&show=slow`);
  const slow = p.page.getByRole("region", { name: "Why slow?" });
  await slow.waitFor();
  const verdict = await text(p, ".verdict");
  assert.match(verdict, /^A slow request takes 32\d ms on average, a typical one 25\.0 ms: (299|30\d) ms more\. (100|99\.\d) % of the extra time is CPU time in check_mail, mail\.py:12\./);
  const rows = await all(p, ".slow tbody tr");
  // check_mail, match and step are one chain with one difference.
  assert.equal(rows.filter((r) => /check_mail|match|step/.test(r)).length, 1, rows.join("|"));
  assert.match(rows[0], /check_mail mail\.py:12.* \+2 in the same call chain/);
  assert.match(await text(p, ".traces-bar"), /Slow: above .*p95.* Typical: p25–p75/);
  await p.shot("why-slow-light");
  await slow.locator("tbody .place").first().click();
  await p.page.locator(".sheet-source tr.hot").waitFor();
  await p.done();
  const q = await see(`view=traces&${RANGE}&service=post&endpoint=GET%20%2Fmail&show=slow`, { dark: true });
  await q.page.locator(".verdict").waitFor();
  await q.shot("why-slow-dark");
  await q.done();
});

it("a request of 4.42 s: where the time went in two actions; its id, links to other tools, attributes", async () => {
  const p = await see(`view=traces&${RANGE}`);
  await p.page.getByRole("region", { name: "Requests", exact: true }).locator("tbody tr").filter({ hasText: "GET /slow" }).getByRole("button").first().click();
  await p.page.locator(".waterfall").waitFor();
  assert.match(await text(p, ".where-time"), /^CPU 750 ms and 3\.50 s of waiting in 4\.42 s: lock 3\.20 s, network 300 ms\. No samples for 170 ms/);
  assert.deepEqual(await all(p, ".waterfall .axis span"), ["0", "1.10 s", "2.21 s", "3.31 s", "4.42 s"]);
  assert.match(await text(p, ".trace-id"), new RegExp(hex(7, 32)));
  const links = await p.page.locator(".trace-id a").evaluateAll((as) => as.map((a) => [a.innerText, a.href, a.rel, a.target]));
  assert.deepEqual(links, [["Jaeger", `https://jaeger.example/trace/${hex(7, 32)}`, "noopener noreferrer", "_blank"],
    ["Grafana", `https://grafana.example/explore?id=${hex(7, 32)}&s=`, "noopener noreferrer", "_blank"]]);
  const [bar, number] = await p.page.locator(".waterfall tbody tr").first().evaluate((tr) => [tr.querySelector(".c-bar"), tr.querySelector(".num")].map((e) => e.offsetWidth));
  assert.ok(bar > 2 * number, `the bar has ${bar} px, a number ${number}`);
  await p.shot("request-light");
  // The span that waited.
  await p.page.getByRole("button", { name: "query" }).first().click();
  await until("its own time", async () => /3\.50 s of waiting in 3\.50 s/.test(await text(p, ".where-time")));
  await p.done();
  // The documented form of a link, without a time: it finds the trace whenever it was.
  for (const [name, options] of [["request-dark", { dark: true }], ["request-phone", { width: 390, height: 844, touch: true }]]) {
    const q = await see(`view=traces&trace=${hex(7, 32)}&last=1m`, options);
    assert.match(await text(q, ".where-time"), /^CPU 750 ms and 3\.50 s of waiting/);
    assert.ok(await q.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    await q.shot(name);
    await q.done();
  }
});
