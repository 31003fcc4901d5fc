// SPDX-License-Identifier: Apache-2.0
/* `./run demo` as a reader walks it: from the list of requests to the line that one purchase in a hundred waits for. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { connect, createServer } from "node:net";
import { once } from "node:events";
import { join, resolve, dirname } from "node:path";
import { after, test } from "node:test";
import { cannot, culprit, openUrl, top } from "./page.mjs";
import { programs, saidUrl, stop } from "./programs.mjs";

const builds = resolve(dirname(dirname(culprit)));
const skip = cannot() || (process.getuid() === 0 ? "" : "needs root: it records all of the machine") ||
  (spawnSync("go", ["version"]).status === 0 ? false : "needs go: one of the services is in it");
const { start, end } = programs("demo");
after(end);

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

test("the demo: slow purchases, against the others, down to the line", { skip, timeout: 480000 }, async () => {
  const demo = start("/usr/bin/python3", [join(top, "demo/start"), builds, "--listen", "127.0.0.1:0", "--otlp-grpc", "off", "--otlp-grpc-old", "off",
    "--otlp-http", `127.0.0.1:${await freePort()}`], { stdio: ["ignore", "pipe", "inherit"] });
  const p = await openUrl(await saidUrl(demo), { said: /status of 4/ });
  const see = p.page;
  await see.getByRole("button", { name: "Traces" }).click();
  const row = see.getByRole("region", { name: "Endpoints" }).getByRole("row").filter({ hasText: "/checkout" });
  await row.getByRole("button", { name: "Slow against fast" }).click({ timeout: 120000 });
  const first = see.getByRole("region", { name: "Slow against fast" }).getByRole("row").nth(1);
  // Until enough of them were slow: the interval does not reach zero any more.
  const began = Date.now();
  for (;;) {
    const told = await first.innerText({ timeout: 60000 }).catch(() => "");
    const [, low] = /\t?\s*(-?[\d.]+) ([µmn]?s) – /.exec(told) ?? [];
    if (/check_coupon/.test(told) && Number(low) > 0)
      break;
    assert.ok(Date.now() - began < 300000, `the guilty function is not first: ${told}`);
    await new Promise((r) => setTimeout(r, 500));
  }
  console.log(`# guilty after ${((Date.now() - began) / 1000).toFixed(0)} s: ${(await first.innerText()).replace(/\s+/g, " ")}`);
  await p.shot("demo-slow");
  // It stays there, also when what it calls has a sample from elsewhere.
  for (let i = 0; i < 20; i++) {
    assert.match(await first.innerText(), /check_coupon/);
    await new Promise((r) => setTimeout(r, 500));
  }
  await see.getByRole("region", { name: "Slow against fast" }).getByRole("button", { name: "check_coupon" }).first().click();
  await see.getByRole("region", { name: "Slow against fast" }).waitFor({ state: "detached" });
  await see.locator(".search output b").waitFor();
  await see.getByPlaceholder(/^Search/).press("Enter");
  await see.locator(".flame-window").focus();
  await p.key("o");
  await see.locator(".sheet-source tr.hot").waitFor();
  assert.match(await see.locator(".sheet-source tr.hot").innerText(), /COUPON\.(full)?match/);
  await p.shot("demo-line");
  await p.key("Escape");
  // And the slowest request as a waterfall.
  await see.getByRole("button", { name: "Requests", exact: true }).click();
  await see.getByRole("region", { name: "Requests" }).getByRole("row").nth(1).getByRole("button").click();
  await see.getByRole("region", { name: "Trace" }).getByRole("button", { name: /checkout/ }).first().waitFor();
  await p.shot("demo-trace");
  await p.done();
  await stop(demo);
});
