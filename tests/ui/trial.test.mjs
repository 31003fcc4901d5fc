// SPDX-License-Identifier: Apache-2.0
/*
 * A new user's first two minutes with `culprit up`, by what is seen and nothing else (roles and texts): the hottest
 * function of a service, the same an hour ago, a link for a colleague. The store has an hour's past, as it would.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, test } from "node:test";
import { cannot, culprit, openUrl, until } from "./page.mjs";
import { pprof } from "./pprof.mjs";
import { programs, saidUrl } from "./programs.mjs";

const skip = cannot() || (process.getuid() === 0 ? false : "needs root: it records all of the machine");
const { folder, start, end } = programs("trial");
after(end);

/* Sorts, and nothing else. */
const TILL = "import random\ndef price(n):\n    return sorted(random.random() for _ in range(n))\nwhile True:\n    price(20000)\n";

test("two minutes: hottest function, against an hour ago, a link", { skip, timeout: 240000 }, async () => {
  start("/usr/bin/python3", ["-c", TILL], { stdio: "ignore", env: { ...process.env, OTEL_SERVICE_NAME: "till" } });
  const up = start(culprit, ["up", "--data-dir", join(folder, "data"), "--listen", "127.0.0.1:0", "--otlp-grpc", "off", "--otlp-grpc-old", "off",
    "--otlp-http", "off"], { stdio: ["ignore", "pipe", "inherit"] });
  const url = await saidUrl(up);
  // 400 samples of CPU time; it must be within the five minutes of an hour ago until the end of this.
  const past = await fetch(`${url}api/v1/upload?${new URLSearchParams({ format: "pprof", labels: "service.name=till" })}`,
    { method: "POST", body: pprof("/src", Date.now() - 3620000) });
  assert.equal(past.status, 200, await past.text());

  const p = await openUrl(url);
  const began = Date.now();
  const see = p.page;
  // What runs here, and the hottest function of one of it.
  await see.getByRole("button", { name: "Services" }).first().click();
  await see.getByRole("button", { name: "till", exact: true }).click({ timeout: 90000 });
  await see.getByRole("heading", { name: "till", exact: true }).waitFor();
  const rows = see.getByRole("region", { name: "Functions" }).getByRole("row");
  await until("a table of functions", async () => (await rows.count()) > 3);
  const hottest = (await rows.nth(1).innerText()).replace(/\s+/g, " ");
  assert.match(hottest, /^[\d.]+ % [\d.]+ % /);
  await p.shot("trial-1-hottest");
  // The same, an hour ago.
  await see.getByRole("button", { name: "Compare" }).first().click();
  const quality = see.getByLabel("Quality of the profile");
  await until("both sides", async () => /samples.*vs 400 samples before/s.test(await quality.innerText()));
  assert.equal(await see.getByRole("combobox", { name: "Compared with" }).locator("option:checked").innerText(), "1 h before");
  // What went: it has no width here, and the page says so.
  await see.getByRole("button", { name: /is hidden at this width\. Show both/ }).click();
  await see.getByPlaceholder("Filter functions").fill("^work$");
  await until("what is gone is listed", async () => /work/.test(await rows.nth(1).innerText()));
  await p.shot("trial-2-compare");
  await see.getByPlaceholder("Filter functions").fill("");
  // A link, for somebody else on another day.
  // It says so for two seconds only.
  const said = see.getByRole("button", { name: "Link copied" }).waitFor();
  await see.getByRole("button", { name: "Copy link" }).click();
  await said;
  const link = await p.pasted(/^http/);
  const took = (Date.now() - began) / 1000;
  console.log(`# a new user's steps took ${took.toFixed(1)} s, of them the first samples`);
  assert.match(link, /from=\d+&to=\d+/, "of this time");
  const other = await openUrl(link);
  await other.page.getByRole("heading", { name: "till", exact: true }).waitFor();
  const theirs = other.page.getByLabel("Quality of the profile");
  await until("the other side too", async () => /vs 400 samples before/.test(await theirs.innerText()));
  assert.equal(await other.page.getByRole("button", { name: "Compare" }).first().getAttribute("aria-current"), "page");
  assert.equal(await other.page.getByLabel("Widths").inputValue(), "both");
  await other.shot("trial-3-link");
  // Of the last seconds some samples are still on their way; the other side and the view are what they were.
  const there = other.page.url();
  await other.page.reload();
  await until("the same again", async () => /vs 400 samples before/.test(await theirs.innerText()));
  assert.equal(other.page.url(), there);
  assert.equal(await other.page.getByLabel("Widths").inputValue(), "both");
  await other.done();
  await p.done();
});
