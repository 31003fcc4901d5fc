// SPDX-License-Identifier: Apache-2.0
/*
 * Traces as `culprit server` has them, every number known: endpoints, requests, waterfall, pictures of a span, a trace and
 * an endpoint, from a frame to requests, and slow against fast down to the guilty line.
 */
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { sendSamples, sendSpans, hex } from "./otlp.mjs";
import { cannot, openUrl, until } from "./page.mjs";
import { closeAll, serve, text } from "./serve.mjs";

const skip = cannot();
/* A minute ago, in whole seconds; all of it within ten seconds. */
const T = Math.floor(Date.now() / 1000) * 1000 - 70000;
const RANGE = `from=${T - 5000}&to=${T + 30000}`;
const BUY = { "http.route": "/buy", "http.request.method": "GET", "user.name": "<img src=x onerror=alert(1)>" };
let s, sources;

/** One in 40 of these runs an expression that backtracks, for 300 ms more than the 20 to 30 that all take. */
function mail(n) {
  const spans = [], samples = [];
  for (let i = 0; i < n; i++) {
    const bad = i % 40 === 7;
    const start = T + i * 10;
    spans.push({ trace: 1000 + i, id: 1000 + i, name: "GET /mail", start, ms: 20 + i % 11 + (bad ? 300 : 0),
      attributes: { "http.route": "/mail", "http.request.method": "GET" } });
    samples.push([1000 + i, 1000 + i, "read;parse;handle;main", 10, start], [1000 + i, 1000 + i, "convert;parse;handle;main", 10, start]);
    for (let k = 0; bad && k < 30; k++)
      samples.push([1000 + i, 1000 + i, "step;match;regex;check_mail;handle;main", 10, start]);
  }
  return { spans, samples };
}

before(async () => {
  if (skip)
    return;
  sources = mkdtempSync("/tmp/culprit-traces-");
  chmodSync(sources, 0o755);
  writeFileSync(`${sources}/mail.py`, Array.from({ length: 40 }, (_, i) => (i === 11 ? "    return re.match(MAIL, address)" : `# ${i + 1}`)).join("\n") + "\n");
  s = await serve("traces");
  const buy = (trace, id, start, ms, more = {}) => ({ trace, id, name: "GET /buy", start, ms, attributes: BUY, ...more });
  await sendSpans(s.url, "shop", [buy(1, 10, T, 100), { trace: 1, id: 11, parent: 10, name: "call the cart", start: T + 10, ms: 50, kind: 3 },
    { trace: 2, id: 20, name: "GET /health", start: T + 500, ms: 10 }, buy(3, 30, T + 600, 300, { error: "out of <b>stock</b>" })]);
  await sendSpans(s.url, "cart", [{ trace: 1, id: 12, parent: 11, name: "add", start: T + 20, ms: 30 }]);
  await sendSamples(s.url, "shop", [[1, 10, "parse;handle;main", 30, T], [1, 11, "send;call;main", 7, T + 20], [2, 20, "parse;health;main", 2, T + 500],
    [3, 30, "match;handle;main", 200, T + 700], [0, 0, "idle;main", 1000, T + 800]]);
  await sendSamples(s.url, "cart", [[1, 12, "insert;add;main", 20, T + 30]]);
  const m = mail(400);
  await sendSpans(s.url, "post", m.spans);
  await sendSamples(s.url, "post", m.samples, { check_mail: [`${sources}/mail.py`, 12] });
});
after(async () => {
  await s?.stop();
  await closeAll();
  if (sources)
    rmSync(sources, { recursive: true });
});

function it(name, body) {
  test(`traces: ${name}`, { skip, timeout: 300000 }, body);
}

async function settled(p) {
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  await p.painted();
}

async function see(search, options) {
  const p = await openUrl(`${s.url}?${search}`, options);
  await settled(p);
  return p;
}

const params = (p) => new URL(p.page.url()).searchParams;
const rows = (p, section) => p.page.getByRole("region", { name: section, exact: true }).locator("tbody tr").evaluateAll((trs) => trs.map((tr) =>
  [...tr.querySelectorAll("td")].map((td) => td.innerText.replace(/\s+/g, " ").trim())));

it("endpoints and requests: how often, how long, at what cost; filters; one is its trace", async () => {
  const p = await see(`view=traces&${RANGE}`);
  const all = await rows(p, "Endpoints");
  assert.deepEqual(all.map((r) => r[0]).sort(), ["GET /buy", "GET /health", "GET /mail", "add"]);
  const buy = all.find((r) => r[0] === "GET /buy");
  // Service, requests, failed, median, 95 %, 99 %, slowest.
  assert.deepEqual([buy[1], buy[2], buy[3], buy[4], buy[7]], ["shop", "2", "50.0 %", "100 ms", "300 ms"]);
  assert.match(await text(p, ".quality"), /samples.*losses unknown/);
  await p.shot("traces-light");
  await p.page.getByLabel("Status", { exact: true }).selectOption("error");
  await until("the one that failed", async () => (await rows(p, "Requests")).length === 1);
  assert.deepEqual((await rows(p, "Requests"))[0].slice(0, 5), ["300 ms", "", "GET /buy", "shop", "failed"]);
  assert.equal(params(p).get("status"), "error");
  await p.page.getByLabel("Status", { exact: true }).selectOption("");
  await p.page.getByLabel("at least ms").fill("90");
  await p.page.getByLabel("at least ms").press("Tab");
  await p.page.getByRole("button", { name: "GET /buy", exact: true }).click();
  await until("two of them, the slowest first", async () => (await rows(p, "Requests")).map((r) => r[0]).join() === "300 ms,100 ms");
  assert.deepEqual([params(p).get("service"), params(p).get("endpoint")], ["shop", "GET /buy"]);
  await p.page.getByRole("button", { name: "100 ms", exact: true }).click();
  await p.page.locator(".waterfall").waitFor();
  assert.equal(params(p).get("trace"), hex(1, 32));
  await p.page.goBack();
  await p.page.getByRole("button", { name: "100 ms", exact: true }).waitFor();
  await p.done();
});

it("what is being typed stays when a round ends", async () => {
  const p = await see("view=traces&last=15m");
  let rounds = 0;
  p.page.on("response", (r) => rounds += /endpoints/.test(r.url()));
  const least = p.page.getByLabel("at least ms");
  await least.pressSequentially("90");
  await until("two rounds", () => rounds > 1);
  assert.equal(await least.inputValue(), "90");
  await least.press("Enter");
  await until("it is taken", () => params(p).get("min") === "90");
  await p.page.goBack();
  await until("it is not", async () => (await least.inputValue()) === "");
  await p.done();
});

it("a trace: its spans below each other, what was sampled in each, its picture across services", async () => {
  const p = await see(`view=traces&${RANGE}&trace=${hex(1, 32)}`);
  await p.page.waitForSelector(".flame canvas");
  const spans = await rows(p, "Trace");
  assert.deepEqual(spans.map((r) => [r[0], r[2], r[3], r[4]]), [["GET /buy shop", "100 ms", "30.0 ms", "57.0 ms"],
    ["call the cart shop", "50.0 ms", "7.00 ms", "27.0 ms"], ["add cart", "30.0 ms", "20.0 ms", "20.0 ms"]]);
  const left = await p.page.locator(".waterfall .span").evaluateAll((bs) => bs.map((b) => [parseFloat(b.style.left), parseFloat(/[\d.]+%/.exec(b.style.width)[0])]));
  assert.deepEqual(left, [[0, 100], [10, 50], [20, 30]], "where and how long, in shares of the trace");
  // Services are the first level: cart's 20 ms and shop's 37.
  assert.match(await p.hover([1, 0.17]), /^cart .* total 20\.0 ms 35\.1 %/);
  await p.shot("trace-light");
  await p.page.getByRole("button", { name: "call the cart" }).first().click();
  await until("with what it called", async () => /^27\.0 ms|27\.0 ms CPU/.test(await text(p, ".quality")));
  assert.match(await text(p, ".facts"), /kind client/);
  await p.page.getByLabel(/include\s+child spans/).uncheck();
  await until("itself alone", async () => /7\.00 ms CPU/.test(await text(p, ".quality")));
  assert.deepEqual([params(p).get("span"), params(p).get("only")], [hex(11, 16), "1"]);
  await p.page.getByRole("button", { name: "call the cart ✕" }).click();
  await until("all of it", async () => /57\.0 ms CPU/.test(await text(p, ".quality")));
  await p.done();
  const q = await see(`view=traces&${RANGE}&trace=${hex(3, 32)}&span=${hex(30, 16)}`, { dark: true });
  assert.match(await text(q, ".facts"), /error: out of <b>stock<\/b>.*user\.name <img src=x onerror=alert\(1\)>/);
  await q.shot("trace-dark");
  await q.done();
});

it("an endpoint over a range: its picture, and from a frame to the requests that run it", async () => {
  const p = await see(`view=traces&${RANGE}&service=shop&endpoint=${encodeURIComponent("GET /buy")}`);
  await p.page.getByRole("button", { name: "Flame graph", exact: true }).last().click();
  await p.page.waitForSelector(".flame canvas");
  // 30 and 200 of its own; what its child called is of the trace, not of the request to the shop.
  assert.match(await text(p, ".quality"), /23[07]\.?0? ms CPU|237 ms CPU|230 ms CPU/);
  await p.page.locator(".flame-window").focus();
  const at = (await p.rows()).find((r) => r.name === "parse");
  assert.ok(at, "the other endpoint's parse is not meant, this one's is");
  await p.page.locator(".search input").fill("^parse$");
  await until("found", async () => /1/.test(await text(p, ".nth")));
  await p.page.locator(".search input").press("Enter");
  await p.page.locator(".flame-window").focus();
  await p.key("ContextMenu");
  await p.page.getByRole("menuitem", { name: "Requests that run this function" }).click();
  await p.page.getByRole("region", { name: "Endpoints" }).waitFor();
  await until("by endpoint", async () => (await rows(p, "Endpoints")).length > 0);
  assert.match(params(p).get("stacks"), /^fn="parse"$/);
  const found = await rows(p, "Endpoints");
  assert.deepEqual(found.map((r) => [r[0], r[3]]).filter(([e]) => e === "GET /buy"), [["GET /buy", "1"]], "one of two requests runs it");
  await p.shot("traces-that-run-light");
  await p.done();
});

it("why slow: the guilty function first, with its interval, and on to its line", async () => {
  const p = await see(`view=traces&${RANGE}`);
  const row = p.page.getByRole("region", { name: "Endpoints" }).locator("tr", { hasText: "GET /mail" });
  await row.getByRole("button", { name: "Why slow?" }).click();
  await p.page.locator(".slow tbody tr").first().waitFor();
  const [first, ...others] = await rows(p, "Why slow?");
  assert.match(first[3], /^check_mail/);
  assert.match(first[0], /^\+\d/);
  assert.equal(first[7], "0 %", "no typical request runs it");
  // What check_mail calls has the same difference: one row.
  assert.match(first[3], /^check_mail mail\.py:12.*\+3 in the same call chain$/);
  assert.ok(!others.some((r) => /^regex/.test(r[3])));
  assert.match(await text(p, ".slow .quality"), /slow requests \(.*–.*\), .* CPU each, [\d,]+ with samples.* typical requests \(.*\), .* with samples/);
  assert.doesNotMatch(await text(p, ".slow .quality"), /left out/);
  // The differential picture below: what only slow requests take is red.
  await p.page.waitForSelector(".flame canvas");
  assert.equal(await p.page.locator('select[aria-label="Colours"]').inputValue(), "diff");
  await p.shot("slow-light");
  await p.page.getByRole("button", { name: "check_mail" }).first().click();
  await p.page.locator(".slow").waitFor({ state: "detached" });
  await settled(p);
  await until("it is searched for", async () => /^\^check_mail\$$/.test(await p.page.locator(".search input").inputValue()));
  await until("found", async () => /matched/.test(await text(p, ".search output")));
  await p.page.locator(".search input").press("Enter");
  await p.page.locator(".flame-window").focus();
  await p.key("o");
  await p.page.locator(".sheet-source tr.hot").waitFor();
  assert.match(await p.page.locator(".sheet-source tr.hot .text-of").innerText(), /return re\.match\(MAIL, address\)/);
  await p.shot("slow-line-light");
  const link = p.page.url();
  await p.done();
  const q = await see(new URL(link).search.slice(1));
  await q.page.locator(".sheet-source tr.hot").waitFor();
  await q.done();
});

it("nothing to show is said: no requests, too few to compare, no such trace; phone", async () => {
  const p = await see(`view=traces&from=${T - 900000}&to=${T - 800000}`);
  assert.match(await text(p, ".nothing"), /No requests in this time.*OTEL_EXPORTER_OTLP_ENDPOINT/);
  await p.done();
  const q = await see(`view=traces&${RANGE}&service=shop&endpoint=${encodeURIComponent("GET /buy")}&show=slow`);
  assert.match(await text(q, ".nothing"), /Not enough requests to compare/);
  await q.done();
  await sendSpans(s.url, "alone", Array.from({ length: 7 }, (_, i) => ({ trace: 900 + i, id: 900 + i, name: "GET /alone", start: T, ms: 10 + i })));
  const o = await see(`view=traces&${RANGE}&service=alone&endpoint=${encodeURIComponent("GET /alone")}&show=slow`);
  assert.match(await text(o, ".nothing"), /7 requests left out: their cost is unknown/);
  await o.done();
  const r = await see(`view=traces&${RANGE}&trace=${hex(77, 32)}`, { said: /status of 404/ });
  await r.page.getByText("This trace is not stored").waitFor();
  await r.done();
  for (const search of [`view=traces&${RANGE}`, `view=traces&${RANGE}&trace=${hex(1, 32)}`, `view=traces&${RANGE}&service=post&endpoint=GET%20%2Fmail&show=slow`]) {
    const phone = await see(search, { width: 390, height: 844, touch: true });
    const wide = await phone.page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 390, `${search} is ${wide} px wide`);
    await phone.shot(`phone-traces-${search.includes("trace=") ? "one" : search.includes("slow") ? "slow" : "all"}`);
    await phone.done();
  }
});
