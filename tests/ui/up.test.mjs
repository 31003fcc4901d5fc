// SPDX-License-Identifier: Apache-2.0
/* `culprit up`: from the command to the page of this machine, with a program on it whose name and cost are known. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { CHURN } from "./known.mjs";
import { cannot, culprit, openUrl, shareOf, until } from "./page.mjs";
import { programs, saidUrl, stop } from "./programs.mjs";

const skip = cannot() || (process.getuid() === 0 ? false : "needs root: it records all of the machine");
const { folder, start, end } = programs("up");
after(end);

const PROGRAM = `#include <stdint.h>
${CHURN}int main(void)
{
	volatile uint64_t h = 0;
	for (;;)
		h += churn(1000000);
}
`;

/** Any user may read it and its source: what the server shows of binaries and sources. */
function build() {
  const at = mkdtempSync("/tmp/culprit-up-program-");
  chmodSync(at, 0o755);
  writeFileSync(join(at, "mill.c"), PROGRAM);
  execFileSync("gcc", ["-g", "-O2", "-Wl,--build-id=sha1", "-o", join(at, "mill"), join(at, "mill.c")]);
  return at;
}

async function look(p, name) {
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  await p.shot(name);
}

/** From a frame to its lines and instructions, against what gcc and binutils say of the program. */
async function sourceAndAssembly(p, at) {
  await p.page.locator(".strip button", { hasText: "mill" }).click();
  await p.page.locator("h1", { hasText: /^mill$/ }).waitFor();
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  await p.page.locator(".search input").fill("^churn$");
  await until("it is there", async () => /matched\s*[1-9]/.test(await p.page.locator(".search output").innerText()));
  await p.page.locator(".search input").press("Enter");
  await until("it is in focus", async () => /^churn,/.test(await p.page.locator(".page > .spoken").innerText()));
  await p.page.locator(".search input").blur();
  await p.page.locator(".flame-window").focus();
  await p.key("o");
  const sheet = p.page.locator(".sheet-source");
  await sheet.locator("tr.hot").waitFor();
  assert.match((await sheet.locator("tr.hot .text-of").innerText()).trim(), /return \(h \^ i\) \* 0x9e|h = blend\(h, i\);/);
  assert.match(await sheet.locator(".quality").innerText(), /samples/);
  await p.shot("up-source-light");
  await sheet.getByRole("button", { name: "Close" }).click();
  await p.page.locator(".flame-window").focus();
  await p.key("a");
  await sheet.locator("tr.hot").waitFor();
  const shown = await sheet.locator("tbody tr:not(.gap)").evaluateAll((trs) => trs.map((tr) =>
    [...tr.querySelectorAll("td")].slice(2, 4).map((td) => td.innerText.trim())));
  const want = [...execFileSync("objdump", ["-d", "-M", "intel", "--no-show-raw-insn", "--disassemble=churn", join(at, "mill")], { encoding: "utf8" })
    .matchAll(/^ +([0-9a-f]+):\t(\S+)/gm)].map(([, a, m]) => [a, m]);
  const used = shown.map(([a, t]) => [a, t.split(" ")[0]]);
  // After the function there may be padding, which objdump shows as part of it.
  assert.deepEqual(used, want.slice(0, used.length));
  assert.ok(want.slice(used.length).every(([, m]) => /nop|data16|cs|xchg/.test(m)), "all but padding");
  assert.match(await sheet.locator(".quality").innerText(), /samples/);
  // Not of self: in some of them the kernel was at work.
  const sum = (await sheet.locator("tbody tr td:nth-child(2)").allInnerTexts()).reduce((n, t) => n + (parseFloat(t) || 0), 0);
  assert.ok(sum > 98 && sum < 102, `the instructions are all of it: ${sum}`);
  await p.shot("up-assembly-light");
  const link = p.page.url();
  await p.key("Escape");
  await sheet.waitFor({ state: "detached" });
  const q = await openUrl(link, { dark: true });
  await q.page.locator(".sheet-source tr.hot").waitFor();
  await q.shot("up-assembly-dark");
  await q.done();
}

test("culprit up: the page follows this machine, by service, to the function", { skip, timeout: 600000 }, async () => {
  // Two of one name and one of another, from the environment as OpenTelemetry has it.
  const busy = (name) => start("/usr/bin/python3", ["-c", "def spinning():\n    while True:\n        pass\nspinning()"],
    { stdio: "ignore", env: { ...process.env, OTEL_SERVICE_NAME: name } });
  const at = build();
  for (const name of ["till", "till", "shelf"])
    busy(name);
  start(join(at, "mill"), [], { stdio: "ignore", env: { OTEL_SERVICE_NAME: "mill", OTEL_RESOURCE_ATTRIBUTES: "service.version=7" } });
  const up = start(culprit, ["up", "--source-roots", at, "--data-dir", join(folder, "data"), "--listen", "127.0.0.1:0", "--otlp-grpc", "off",
    "--otlp-grpc-old", "off", "--otlp-http", "off"], { stdio: ["ignore", "pipe", "inherit"] });
  const began = Date.now();
  const p = await openUrl(`${await saidUrl(up)}?view=flame`);
  await p.page.waitForSelector(".flame canvas");
  console.log(`# first picture ${((Date.now() - began) / 1000).toFixed(1)} s after the command`);
  const till = p.page.locator(".strip button", { hasText: "till" });
  await till.waitFor();
  await p.page.locator(".strip button", { hasText: "shelf" }).waitFor();
  await till.click();
  await p.page.locator("h1", { hasText: /^till$/ }).waitFor();
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  // All that it does is this function; the interpreter's own first moments are the rest.
  await p.page.locator(".search input").fill("spinning");
  await until("its function", async () => shareOf(await p.page.locator(".search output b").innerText()) > 50);
  const samples = async () => Number(/([\d,]+) samples/.exec(await p.page.locator(".quality").innerText())[1].replace(/,/g, ""));
  const n = await samples();
  await until("more of them", async () => (await samples()) > n);
  assert.match(await p.page.locator(".search input").inputValue(), /spinning/);
  await look(p, "up-light");
  await sourceAndAssembly(p, at);
  await p.page.getByRole("button", { name: "Services", exact: true }).click();
  const row = (name) => p.page.locator(".services-page tbody tr", { has: p.page.getByRole("button", { name, exact: true }) });
  await row("till").waitFor();
  assert.match(await row("till").innerText(), /cpython/i, "its language");
  assert.match(await p.page.locator(".quality").innerText(), /samples.*(none lost|lost)/s);
  await look(p, "up-services-light");
  await p.page.getByLabel("Rows by label").selectOption("process.runtime.name");
  await row("cpython").getByRole("button", { name: "cpython", exact: true }).click();
  await p.page.getByRole("button", { name: /process.runtime.name = cpython/ }).waitFor();
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  await until("only what runs Python", async () => {
    const strip = await p.page.locator(".strip").innerText();
    return strip.includes("till") && !strip.includes("mill");
  });
  await p.page.getByRole("button", { name: /process.runtime.name = cpython/ }).click();
  for (const [chart, name] of [["Threads", "up-threads-light"], ["Sub-second", "up-heat-light"]]) {
    await p.page.getByRole("button", { name: chart, exact: true }).click();
    await p.page.waitForSelector(chart === "Threads" ? ".lane" : ".heat canvas");
    assert.match(await p.page.locator(".quality").innerText(), /samples/);
    await look(p, name);
  }
  await p.page.locator(".tabs button", { hasText: "Compare" }).click();
  await p.page.waitForSelector(".two-charts");
  await until("nothing an hour ago is said", async () => /no samples before/.test(await p.page.locator(".quality").innerText()));
  await p.page.getByRole("combobox", { name: "Compared with" }).selectOption("0");
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  await until("the same time is", async () => !/no samples before/.test(await p.page.locator(".quality").innerText()));
  await look(p, "up-compare-light");
  await p.page.locator(".tabs button", { hasText: "Agents" }).click();
  const host = p.page.locator(".services-page tbody tr").first();
  await host.waitFor();
  assert.match((await host.innerText()).replace(/\s+/g, " "), new RegExp(`^${hostname()} .* 19 Hz .* now$`));
  assert.match(await p.page.locator(".quality").innerText(), /samples/);
  await look(p, "up-agents-light");
  await p.done();
  const asked = Date.now();
  assert.equal(await stop(up), 0);
  assert.ok(Date.now() - asked < 10000, "SIGTERM ends it within ten seconds");
  rmSync(at, { recursive: true });
});
