// SPDX-License-Identifier: Apache-2.0
/*
 * `./run demo` as a reader walks it: from the list of requests to the line that one purchase in a hundred waits for, and from
 * an endpoint whose requests are slow at times to the line that has the lock which they wait for.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { connect, createServer } from "node:net";
import { once } from "node:events";
import { join, resolve, dirname } from "node:path";
import { after, before, test } from "node:test";
import { cannot, culprit, openUrl, top, until } from "./page.mjs";
import { programs, saidUrl, stop } from "./programs.mjs";

const builds = resolve(dirname(dirname(culprit)));
const skip = cannot() || (process.getuid() === 0 ? "" : "needs root: it records all of the machine") ||
  (spawnSync("go", ["version"]).status === 0 ? false : "needs go: one of the services is in it");
const { start, end } = programs("demo");

/** One that the kernel gives to nobody else for a minute: a connection that was closed there waits. */
async function freePort() {
  const s = createServer((c) => c.end()).listen(0, "127.0.0.1");
  await once(s, "listening");
  const { port } = s.address();
  const c = connect(port, "127.0.0.1").resume();
  await once(c, "close");
  s.close();
  return port;
}

let demo, url;

before(async () => {
  if (skip)
    return;
  demo = start("/usr/bin/python3", [join(top, "demo/start"), builds, "--listen", "127.0.0.1:0", "--otlp-grpc", "off", "--otlp-grpc-old", "off", "--source-roots", join(top, "demo"),
    "--otlp-http", `127.0.0.1:${await freePort()}`], { stdio: ["ignore", "pipe", "inherit"] });
  url = await saidUrl(demo);
});

test("the demo: from the address to the line in one action, and why", { skip, timeout: 480000 }, async () => {
  const p = await openUrl(url, { said: /status of 4/, height: 800 });
  const see = p.page;
  // By itself, as soon as enough purchases were slow for the interval of the difference not to reach zero.
  const began = Date.now();
  const finding = see.locator(".finding", { hasText: "GET /checkout" }).filter({ hasText: "check_coupon" });
  await finding.waitFor({ timeout: 300000 });
  console.log(`# guilty after ${((Date.now() - began) / 1000).toFixed(0)} s: ${(await finding.innerText()).replace(/\s+/g, " ")}`);
  await p.shot("demo-first");
  // Processes that nobody named are one row.
  const services = await see.locator(".overview tbody tr").allInnerTexts();
  assert.ok(["shop", "prices", "stock"].every((name) => services.some((row) => row.startsWith(name))), services.join("|"));
  await finding.locator(".pick", { hasText: "shop.py:27" }).click();
  await see.locator(".sheet-source tr.hot").waitFor();
  assert.match(await see.locator(".sheet-source tr.hot").innerText(), /COUPON\.(full)?match/);
  await p.shot("demo-line");
  await p.key("Escape");
  // It is first, with its line, also when what it calls has a sample from elsewhere.
  const why = see.getByRole("region", { name: "Why slow?" });
  for (let i = 0; i < 20; i++) {
    assert.match(await why.getByRole("row").nth(1).innerText(), /check_coupon\s+shop\.py:27/);
    await new Promise((r) => setTimeout(r, 500));
  }
  assert.match(await why.locator(".verdict").innerText(), /A slow request takes .* more.* in check_coupon, shop\.py:27/s);
  await p.shot("demo-slow");
  // And the slowest request as a waterfall.
  await see.getByRole("button", { name: "Requests", exact: true }).click();
  await see.getByRole("region", { name: "Requests" }).getByRole("row").nth(1).getByRole("button").click();
  await see.getByRole("region", { name: "Trace" }).getByRole("button", { name: /checkout/ }).first().waitFor();
  await p.shot("demo-trace");
  await p.done();
});

test("the demo: requests that wait, down to the line that has the lock", { skip, timeout: 480000 }, async () => {
  const p = await openUrl(`${url}?view=traces&last=15m`, { said: /status of 4/ });
  const see = p.page;
  // Three clicks from the endpoint to a task.
  const row = see.getByRole("region", { name: "Endpoints" }).getByRole("row").filter({ hasText: "GET /stock" });
  await row.getByRole("button", { name: "GET /stock" }).click({ timeout: 120000 });
  await see.getByRole("button", { name: "Profile slow requests" }).click();
  const dialog = see.getByRole("dialog", { name: "Profile slow requests" });
  await dialog.getByLabel("From").fill("200");
  await dialog.getByRole("button", { name: "Start" }).click();
  // Within 20 s somebody takes the inventory; a request that waits then is kept, and waited for a lock most of the time.
  // Others are slow because the machine is busy.
  const rows = see.getByRole("region", { name: "Kept requests" }).locator("tbody tr");
  let at = -1;
  await until("a request that waited for the lock is kept", async () => {
    at = await rows.locator(".state-bar").evaluateAll((bars) => bars.findIndex((bar) => bar.title.split(", ").some((part, i) =>
      part.startsWith("lock ") && parseFloat(bar.children[i].style.width) > 60)));
    return at >= 0;
  }, 180);
  await rows.nth(at).getByRole("button").first().click();
  const one = see.getByRole("region", { name: "Kept request", exact: true });
  await one.getByRole("button", { name: "Who held it?" }).waitFor();
  await p.shot("demo-kept");
  // Who had it, and in which line: two clicks.
  await one.getByRole("button", { name: "Who held it?" }).click();
  const held = see.locator(".waits td button", { hasText: "while held" }).first();
  const settled = () => see.waitForSelector('.live-page[aria-busy="false"]');
  await until("the samples of the owner are stored", async () => {
    await settled();
    if (await held.count() > 0) {
      if (await held.getAttribute("aria-pressed") !== "true")
        await held.click();
      await settled();
      await see.getByPlaceholder(/^Search/).fill("take_inventory");
      await new Promise((r) => setTimeout(r, 1000));
      if (parseFloat((await see.locator(".search output").allInnerTexts()).join().replace(",", ".")) > 0)
        return true;
    }
    await new Promise((r) => setTimeout(r, 2000));
    await see.reload();
    return false;
  }, 90);
  await see.getByPlaceholder(/^Search/).press("Enter");
  await see.locator(".flame-window").focus();
  await p.key("o");
  await see.locator(".sheet-source tr.hot").waitFor();
  assert.match(await see.locator(".sheet-source").innerText(), /sum \+= count_shelf\(i\)/);
  await p.shot("demo-owner");
  await p.done();
});

after(async () => {
  if (demo)
    await stop(demo);
  await end();
});
