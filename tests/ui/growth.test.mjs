// SPDX-License-Identifier: Apache-2.0
/* Growth: `culprit up --resident` and a program of which one function leaks beside others that take and release more. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { cannot, culprit, openUrl, until } from "./page.mjs";
import { programs, saidUrl } from "./programs.mjs";

const skip = cannot() || (process.getuid() === 0 ? false : "needs root: it records all of the machine");
const { folder, start, end } = programs("growth");
after(end);

/** cache_put() leaks, and the program says how much; beside it a buffer that comes and goes, and one that fills and is emptied. */
const PROGRAM = `#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#define NOINLINE __attribute__((noinline))
static struct entry { struct entry *next; char data[52 * 1024 - 32]; } *cache;
static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}
static NOINLINE void cache_put(void) {
	struct entry *e = malloc(sizeof(*e));
	memset(e->data, 1, sizeof(e->data));
	e->next = cache;
	cache = e;
}
static NOINLINE void churn(unsigned round)
{
	size_t n = (4 + round * 2654435761u % 8) << 20;
	char *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(at, 1, n);
	nap();
	munmap(at, n);
}
static NOINLINE void collect(unsigned round)
{
	static char *heap;
	if (!heap)
		heap = mmap(NULL, 30 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (round % 93 == 0)
		madvise(heap, 30 << 20, MADV_DONTNEED);
	memset(heap + (round % 93) * (30 << 20) / 93, 1, (30 << 20) / 93);
}
int main(void)
{
	for (unsigned i = 0;; i++) {
		cache_put();
		printf("%zu\\n", (i + 1) * sizeof(struct entry));
		fflush(stdout);
		collect(i);
		churn(i);
	}
}
`;

/** Any user may read it and its source: what the server shows of binaries and sources. */
function build() {
  const at = mkdtempSync("/tmp/culprit-growth-program-");
  chmodSync(at, 0o755);
  writeFileSync(join(at, "shop.c"), PROGRAM);
  execFileSync("gcc", ["-g", "-O2", "-fno-builtin-malloc", "-o", join(at, "shop"), join(at, "shop.c")]);
  return at;
}

/** "+1.78 GiB/h" in bytes per second. */
function perSecond(text) {
  const [, sign, n, unit] = /([+−]?)([\d.,]+) (B|KiB|MiB|GiB)/.exec(text);
  return (sign === "−" ? -1 : 1) * Number(n.replace(/,/g, "")) * { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 }[unit] / 3600;
}

async function settled(p) {
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
}

async function open(url, options) {
  const p = await openUrl(url, options);
  await p.page.waitForSelector(".growth tbody tr");
  await settled(p);
  return p;
}

test("growth: from the tab to the line that leaks, and what grew between two times", { skip, timeout: 600000 }, async () => {
  const at = build();
  after(() => rmSync(at, { recursive: true, force: true }));
  const shop = start(join(at, "shop"), [], { stdio: ["ignore", "pipe", "inherit"], env: { OTEL_SERVICE_NAME: "leaky-shop" } });
  const leaked = [];
  createInterface(shop.stdout).on("line", (line) => leaked.push([Date.now() / 1000, Number(line)]));
  const up = start(culprit, ["up", "--resident", "--source-roots", at, "--data-dir", join(folder, "data"), "--listen", "127.0.0.1:0", "--otlp-grpc", "off",
    "--otlp-grpc-old", "off", "--otlp-http", "off"], { stdio: ["ignore", "pipe", "inherit"] });
  const url = await saidUrl(up);
  const p = await openUrl(`${url}?view=flame`);
  await p.page.waitForSelector(".flame canvas");

  // The first action: the tab. The second: the service. The verdict names the line.
  await p.page.getByRole("button", { name: "Growth", exact: true }).click();
  await p.page.locator(".strip button", { hasText: "leaky-shop" }).click();
  await until("there is a verdict", async () => /Not enough data|grows|No certain|shrinks/.test(await p.page.locator(".growth h1").innerText()));
  const first = p.page.locator(".growth tbody tr").first();
  // If it does not come, the log tells what the page said instead.
  const say = setTimeout(async () => console.log(`# after 100 s: ${await p.page.locator(".growth").innerText()}`), 100000);
  await until("the leak is first", async () => (await first.count()) > 0 && /cache_put[^]*only grows|only grows[^]*cache_put/.test(await first.innerText()), 240);
  clearTimeout(say);
  // A minute more, so that the interval is one of many periods.
  await until("enough periods", async () => Number(/(\d+) periods/.exec(await p.page.locator(".growth .quality").innerText())?.[1]) >= 16);
  await settled(p);
  const said = await p.page.locator(".growth h1").innerText();
  console.log(`# ${said}`);
  const cells = await first.locator("td").allInnerTexts();
  console.log(`# ${cells.join(" | ")}`);
  const slope = perSecond(cells[0]);
  const [low, high] = cells[1].split(" to ").map(perSecond);
  assert.ok(low <= slope && slope <= high, cells[1]);
  // The first page of an entry is touched by malloc(), in another line than the others. The machine is not equally fast all the time.
  const periods = Number(/(\d+) periods/.exec(await p.page.locator(".growth .quality").innerText())[1]);
  const [t1, b1] = leaked[leaked.length - 1];
  const [t0, b0] = leaked.find(([t]) => t >= t1 - periods * 5) ?? leaked[0];
  const truth = (b1 - b0) / (t1 - t0);
  const rows = await p.page.locator(".growth tbody tr", { hasText: "cache_put shop.c" }).locator("td:first-child").allInnerTexts();
  const found = rows.map(perSecond).reduce((x, y) => x + y);
  console.log(`# leaked ${Math.round(truth)} B/s, found ${Math.round(found)}, of it ${Math.round(slope)} (${Math.round(low)} to ${Math.round(high)}) in one line`);
  assert.ok(Math.abs(found / truth - 1) < 0.15, `${found} of ${truth}`);
  assert.match(cells[4], /cache_put shop\.c:1[2345]/);
  assert.match(said, /cache_put \(shop\.c:1[2345]\)/);
  for (const name of ["churn", "collect"])
    for (const row of await p.page.locator(".growth tbody tr", { hasText: new RegExp(`^[^]*\t${name}`) }).allInnerTexts())
      assert.ok(!row.includes("only grows"), row);
  await p.shot("growth-light");
  const link = p.page.url();

  // The third: the source.
  await first.locator(".pick.line").click();
  const sheet = p.page.locator(".sheet-source");
  await sheet.locator("tr.hot").waitFor();
  await p.shot("growth-source-light");
  await p.page.goto(link);
  await p.page.waitForSelector(".growth tbody tr");

  // The flame graph of its stacks.
  await p.page.locator(".growth tbody tr").first().locator(".pick").first().click();
  await p.page.waitForSelector(".flame canvas");
  assert.match(await p.page.getByLabel("Only stacks with these frames").inputValue(), /fn="cache_put"/);
  await p.page.goto(link);
  await p.page.waitForSelector(".growth tbody tr");
  await settled(p);

  // Two times on the chart, by keyboard.
  await p.page.locator(".growth .chart").focus();
  for (const key of ["End", "ArrowLeft", "ArrowLeft"])
    await p.page.keyboard.press(key);
  for (let i = 0; i < 12; i++)
    await p.page.keyboard.press("Shift+ArrowLeft");
  await p.page.keyboard.press("Enter");
  const between = p.page.getByRole("button", { name: /^Growth between/ });
  await between.waitFor();
  await until("it has the focus", () => between.evaluate((b) => document.activeElement === b));
  await p.shot("growth-picked-light");
  await p.page.keyboard.press("Enter");
  await p.page.waitForSelector(".two-charts");
  await p.page.waitForSelector(".flame canvas");
  await settled(p);
  await p.page.locator("h1", { hasText: /shop: growth between \d\d:\d\d:\d\d and \d\d:\d\d:\d\d/ }).waitFor();
  await p.page.locator(".search input").fill("^cache_put$");
  await until("it is there", async () => /matched\s*[1-9]/.test(await p.page.locator(".search output").innerText()));
  await p.shot("growth-between-light");
  await p.done();

  const dark = await open(link, { dark: true });
  await dark.shot("growth-dark");
  await dark.done();
  const phone = await open(link, { width: 390, height: 844, touch: true });
  await phone.shot("growth-phone");
  assert.ok(await phone.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing is beyond the screen");
  await phone.done();
});
