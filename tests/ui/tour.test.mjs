// SPDX-License-Identifier: Apache-2.0
/*
 * Everything that the page shows, once, over `culprit up` with a program that really runs: two versions of it, of
 * which the second does what the first does not. What each view must say exactly is asked elsewhere, over known data.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { CHURN } from "./known.mjs";
import { cannot, culprit, openUrl, until } from "./page.mjs";
import { programs, saidUrl } from "./programs.mjs";

const skip = cannot() || (process.getuid() === 0 ? false : "needs root: it records all of the machine");
const { folder, start, end } = programs("tour");

/* Recursion, an inlined function, the kernel, a thread with a name of its own, and `extra` in version 2. */
const PROGRAM = `#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>
static char zeros[1 << 16];
${CHURN}__attribute__((noipa)) uint64_t fall(int n)
{
	return (n ? fall(n - 1) : churn(200000)) + 1;
}
__attribute__((noipa)) uint64_t extra(void)
{
	return churn(200000) + 1;
}
__attribute__((noipa)) uint64_t fetch(int fd)
{
	uint64_t n = 0;
	for (int i = 0; i < 400; i++)
		n += (uint64_t)read(fd, zeros, sizeof(zeros));
	return n;
}
static void *crush(void *arg)
{
	pthread_setname_np(pthread_self(), "crusher");
	for (volatile uint64_t h = 0;; usleep(10000))
		h += churn(1000000);
	return arg;
}
int main(int argc, char **argv)
{
	int fd = open("/dev/zero", O_RDONLY);
	pthread_t t;
	pthread_create(&t, NULL, crush, argv);
	for (volatile uint64_t h = 0;;)
		h += fall(6) + fetch(fd) + (argc > 1 ? extra() : 0);
}
`;

let url, range;
before(async () => {
  if (skip)
    return;
  writeFileSync(join(folder, "grinder.c"), PROGRAM);
  execFileSync("gcc", ["-g", "-O2", "-pthread", "-o", join(folder, "grinder"), join(folder, "grinder.c")]);
  for (const version of [1, 2])
    start(join(folder, "grinder"), version === 2 ? ["extra"] : [], { stdio: "ignore",
      env: { OTEL_SERVICE_NAME: "grinder", OTEL_RESOURCE_ATTRIBUTES: `service.version=${version}` } });
  const up = start(culprit, ["up", "--data-dir", join(folder, "data"), "--listen", "127.0.0.1:0", "--otlp-grpc", "off",
    "--otlp-grpc-old", "off", "--otlp-http", "off"], { stdio: ["ignore", "pipe", "inherit"] });
  url = await saidUrl(up);
  const q = new URLSearchParams({ format: "folded", query: '{service_name="grinder"}', type: "process_cpu:samples:count:cpu:nanoseconds" });
  const seen = (stacks, what) => stacks.split("\n").filter((line) => what.test(line)).reduce((n, line) => n + Number(/\d+$/.exec(line)), 0);
  await until("enough of the program", async () => {
    const stacks = await (await fetch(`${url}api/v1/export?${q}`)).text();
    return seen(stacks, /;extra;/) > 40 && seen(stacks, /;fetch;.*vfs_read/) > 40;
  }, 200);
  // What was recorded until now stays as it is.
  const now = Math.floor(Date.now() / 1000) * 1000;
  range = `from=${now - 240000}&to=${now}`;
});
after(end);

function it(name, body) {
  test(`tour: ${name}`, { skip, timeout: 300000 }, body);
}

async function see(search = "", options) {
  const p = await openUrl(`${url}?${search}`, options);
  p.settled = async () => {
    await p.page.waitForSelector('.live-page[aria-busy="false"]');
    await p.painted();
  };
  p.params = () => new URL(p.page.url()).searchParams;
  p.quality = () => p.page.locator(".quality").innerText();
  p.search = p.page.getByLabel(/Search frames/);
  /** Puts the focus of the keyboard on a frame of this function. */
  p.focus = async (name) => {
    await p.search.fill(`^${name}$`);
    await p.search.press("Enter");
    await p.page.locator(".flame-window").focus();
    await until(`${name} is in focus`, async () => (await p.page.locator(".page > .spoken").innerText()).startsWith(`${name},`));
    await p.search.fill("");
    await p.page.locator(".flame-window").focus();
  };
  await p.settled();
  return p;
}

const grinder = (more = "") => `service=grinder&${range}${more}`;

it("services: share, languages, hosts, search; a click is the flame graph", async () => {
  const p = await see(`view=services&${range}`);
  await p.page.getByLabel("Filter services").fill("^grinder$");
  const row = p.page.locator(".services-page tbody tr");
  await until("one row", async () => (await row.count()) === 1);
  assert.match(await row.innerText(), /grinder[\s\S]*\d %[\s\S]*/);
  assert.match(await p.quality(), /samples.*lost/s);
  await p.shot("tour-services");
  await row.getByRole("button", { name: "grinder", exact: true }).click();
  await p.page.locator("h1", { hasText: /^grinder$/ }).waitFor();
  await p.done();
});

it("flame graph: kinds, card, zoom and back, search, next and previous", async () => {
  const p = await see(grinder());
  const legend = await p.page.locator(".legend").innerText();
  assert.ok(["native", "kernel", "inlined"].every((kind) => legend.includes(kind)), legend);
  assert.match(await p.hover([1, 0.5]), /^grinder .* total [\d.,]+ (m?s|min) .*100 % .* 95 % interval/);
  await p.shot("tour-card");
  await p.focus("fetch");
  await p.key("Enter");
  assert.equal((await p.crumbs()).at(-1), "fetch");
  await p.shot("tour-zoom");
  await p.page.getByRole("button", { name: "Reset zoom" }).click();
  assert.deepEqual(await p.crumbs(), ["all"]);
  await p.search.fill("^(churn|extra)$");
  const found = p.page.locator(".search output");
  await until("its share", async () => parseFloat(await found.innerText()) > 40);
  await p.search.press("Enter");
  assert.match(await found.innerText(), /1 of \d+$/);
  await p.page.locator(".flame-window").focus();
  await p.key("n");
  assert.match(await found.innerText(), /2 of \d+$/);
  await p.key("N");
  assert.match(await found.innerText(), /1 of \d+$/);
  await p.shot("tour-search");
  await p.done();
});

it("flame graph: focus, drop, hide, fold, collapse and merge, each by its key, and back", async () => {
  const p = await see(grinder("") + "#t=0");
  for (const [key, kind] of [["F", "focus"], ["D", "drop"], ["H", "hide"], ["E", "fold"], ["R", "collapse"]]) {
    await p.focus("fall");
    await p.key(key);
    await p.hash(new RegExp(`x=${kind}:fall`));
    await p.shot(`tour-${kind}`);
    await p.page.goBack();
    await until(`without ${kind}`, async () => !p.page.url().includes(`${kind}`));
  }
  await p.focus("fall");
  await p.key("M");
  await p.page.getByRole("button", { name: /recursion merged/ }).click();
  await p.done();
});

it("flame graph: callers and callees, copies, colours, narrow frames, icicle, inverted, table", async () => {
  const p = await see(grinder());
  await p.page.getByPlaceholder("Filter functions").fill("^churn$");
  await p.page.getByRole("button", { name: "Callers and callees of churn" }).click();
  assert.match(await p.page.locator(".sandwich-head").innerText(), /churn\s+[\d.]+ (m?s|min), [\d.]+ % of all/);
  await p.shot("tour-sandwich");
  await p.page.getByRole("button", { name: "Back" }).click();
  await p.page.getByPlaceholder("Filter functions").fill("");
  for (const [item, want] of [["Copy name", /^grinder$/], ["Copy link to this frame", /^http:.*service=grinder/], ["Copy stack", /^grinder$/]]) {
    await p.click([1, 0.5], { button: "right" });
    await p.page.getByRole("menuitem", { name: item }).click();
    await p.pasted(want);
  }
  const colours = p.page.getByLabel("Colours", { exact: true }).first();
  for (const by of await colours.locator("option").evaluateAll((o) => o.map((x) => x.value))) {
    await colours.selectOption(by);
    await p.shot(`tour-colours-${by}`);
  }
  const folding = p.page.locator(".folding");
  await p.page.locator(".flame-window").focus();
  await p.key("k");
  assert.match(await folding.innerText(), /no frames hidden/);
  for (const [key, button] of [["i", "Icicle"], ["r", "Inverted"]]) {
    await p.key(key);
    assert.equal(await p.page.getByRole("button", { name: button }).getAttribute("aria-pressed"), "true");
    await p.shot(`tour-${button.toLowerCase()}`);
    await p.key(key);
  }
  await p.key("t", "t");
  assert.equal(await p.page.locator(".flame-window").isVisible(), false);
  assert.match((await p.rows())[0].name, /^(churn|blend)$/, "the hottest first");
  await p.shot("tour-table");
  await p.done();
});

it("timeline: dragged, by thread, by the sub-second, live", async () => {
  const p = await see("service=grinder&last=5m");
  const live = p.page.getByRole("button", { name: "Live" });
  const samples = async () => Number(/([\d,]+) samples/.exec(await p.quality())[1].replace(/,/g, ""));
  const n = await samples();
  // More, or fewer: what leaves the five minutes may be more than what enters them.
  await until("it follows", async () => (await samples()) !== n);
  await p.key("l");
  await until("held", async () => (await live.getAttribute("aria-pressed")) === "false");
  await p.settled();
  const box = await p.page.locator(".chart").boundingBox();
  // What is newest stays in.
  const drag = async (b) => {
    await p.page.mouse.move(b.x + b.width * 0.4, b.y + b.height / 2);
    await p.page.mouse.down();
    await p.page.mouse.move(b.x + b.width - 2, b.y + b.height / 2, { steps: 4 });
    await p.shot("tour-drag");
    await p.page.mouse.up();
  };
  const length = () => p.params().get("to") - p.params().get("from");
  const all = length();
  await drag(box);
  await until("less", () => length() < all);
  await p.settled();
  // Total, stacked, functions, threads.
  await p.key("g", "g", "g");
  await p.page.locator(".lane", { hasText: "crusher" }).waitFor();
  await p.shot("tour-threads");
  await p.key("g");
  await p.page.locator(".heat canvas").waitFor();
  await p.settled();
  const some = length();
  await drag(await p.page.locator(".heat canvas").boundingBox());
  await until("less still", () => length() < some);
  await p.shot("tour-heat");
  await p.done();
});

it("compare: two versions, absolute and normalised; what is new is beyond chance", async () => {
  const p = await see(`view=compare&${grinder("&ago=0s&is=service.version%3D2&base-is=service.version%3D1")}`);
  await p.page.waitForSelector(".flame canvas");
  const change = async () => (await p.rows()).find((r) => r.name === "extra")?.change;
  await p.page.getByPlaceholder("Filter functions").fill("^extra$");
  await until("what only one has", async () => /^\+[\d.]+ %$/.test(await change() ?? ""));
  assert.match(await p.quality(), /samples.*vs/s);
  await p.shot("tour-compare");
  await p.page.getByRole("button", { name: "Normalised" }).click();
  await p.painted();
  assert.match(await change(), /^\+[\d.]+ %$/);
  await p.shot("tour-compare-absolute");
  await p.done();
});

it("filters: values of a label, a predicate with completion; the address has them", async () => {
  const p = await see(grinder());
  await p.key("m");
  await p.page.getByRole("button", { name: "service.version" }).click();
  const values = p.page.locator(".values li");
  await until("both versions", async () => (await values.count()) === 2);
  await p.shot("tour-filters");
  await values.filter({ hasText: /^2/ }).locator("button").first().click();
  await until("in the address", () => p.params().getAll("is").includes("service.version=2"));
  await p.key("Escape");
  await p.settled();
  const box = p.page.getByLabel("Only stacks with these frames");
  await box.click();
  await box.pressSequentially('fn="ext');
  await p.page.locator(".offers li", { hasText: "extra" }).waitFor();
  await box.press("ArrowDown");
  await box.press("Enter");
  await box.press("Enter");
  await until("the predicate", () => p.params().get("stacks") === 'fn="extra"');
  await p.settled();
  await p.shot("tour-predicate");
  const link = p.page.url();
  await p.page.goBack();
  await until("without it", () => p.params().get("stacks") === null);
  await p.page.goForward();
  await until("with it again", () => p.params().get("stacks") === 'fn="extra"');
  await p.done();
  const q = await openUrl(link);
  await q.page.waitForSelector(".flame canvas");
  assert.deepEqual(new Set((await q.rows()).map((r) => r.name).filter((x) => ["fall", "extra"].includes(x))), new Set(["extra"]));
  await q.done();
});

it("agents: this one, its cost and its losses; files: exported, dropped and compared", async () => {
  const p = await see("view=agents");
  const row = p.page.locator(".services-page tbody tr").first();
  assert.match((await row.innerText()).replace(/\s+/g, " "), new RegExp(`^${hostname()} .* 19 Hz [\\d.]+ % [\\d.]+ MiB `));
  // Each counter of abi/tbl/counter.tbl that counted something, with its sentence.
  const counters = p.page.locator(".services-page .advice details").first();
  await counters.locator("summary").click();
  assert.match(await counters.innerText(), /[\d,]+ samples \(samples\)\. Sample records sent\./);
  await p.shot("tour-agents");
  await p.done();
  const q = await see(grinder());
  const saved = {};
  for (const format of ["html", "svg", "pprof", "folded", "speedscope", "firefox"]) {
    const download = q.page.waitForEvent("download");
    await q.page.getByLabel("Export").selectOption(format);
    saved[format] = readFileSync(await (await download).path());
    assert.ok(format === "pprof" ? saved[format][0] === 0x1f : saved[format].includes("extra") || format === "html", format);
  }
  await q.done();
  const r = await see("view=files");
  const files = ["grinder", "again"].map((name) => ({ name: `${name}.folded`, mimeType: "text/plain", buffer: saved.folded }));
  await r.page.getByLabel("Profiles", { exact: true }).setInputFiles(files[0]);
  await r.page.waitForSelector(".flame canvas");
  await r.page.getByLabel("Profiles", { exact: true }).setInputFiles(files[1]);
  await until("both", async () => /vs .*of grinder\.folded/.test(await r.quality()));
  await r.shot("tour-files");
  await r.done();
});

it("help, dark, a phone: every view fits and says its quality", async () => {
  const p = await see(grinder(), { dark: true });
  await p.key("?");
  assert.match(await p.page.getByRole("dialog").innerText(), /next and previous match/);
  await p.shot("tour-help-dark");
  await p.key("Escape");
  await p.shot("tour-dark");
  await p.done();
  const q = await see(grinder(), { width: 390, height: 800, touch: true });
  for (const [key, selector] of [["3", ".services-page"], ["4", ".two-charts"], ["2", ".timeline"]]) {
    await q.key(key);
    await q.page.waitForSelector(selector);
    await q.settled();
    assert.ok(await q.page.evaluate(() => document.documentElement.scrollWidth) <= 390, selector);
    assert.match(await q.quality(), /samples/);
    await q.shot(`tour-phone-${key}`);
  }
  await q.done();
});
