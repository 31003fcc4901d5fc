// SPDX-License-Identifier: Apache-2.0
/* The page as `culprit server` itself serves it, over its own store: numbers that are known, all the way. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { AT, KNOWN } from "./known.mjs";
import { cannot, openUrl } from "./page.mjs";
import { closeAll, folder, serve, text } from "./serve.mjs";

const skip = cannot();
after(closeAll);

test("the real server: from nothing to the picture, its services, newer samples, kill -9 and back", { skip, timeout: 600000 }, async () => {
  const s = await serve("a");
  const p = await openUrl(`${s.url}?view=flame`, { hash: "#t=0", said: /Failed to load resource/ });
  assert.match(await text(p, ".nothing"), /Waiting for the first samples/);
  await s.upload("shop", KNOWN);
  await s.upload("db", KNOWN.map((l) => l.replace(/\d+$/, (n) => 3 * n)));
  // By itself, without a reload.
  await p.page.waitForSelector(".flame canvas");
  // A round may come between the two, also between its own questions.
  await p.page.locator(".strip button", { hasText: "db 75.0 %" }).waitFor();
  await p.page.locator(".quality", { hasText: /^400 samples/ }).waitFor();
  assert.match(await text(p, ".strip"), /^All .* db 75\.0 % shop 25\.0 %$/);
  assert.match(await text(p, ".quality"), /^400 samples/);
  await p.page.locator(".strip button", { hasText: "shop" }).click();
  await p.page.locator(".quality", { hasText: "only 100 samples" }).waitFor();
  // One level more than in the file: the service.
  await p.painted();
  assert.match(await p.hover([AT.load[0], AT.load[1]]), / total 30 samples 30\.0 % 30\.0 %/);
  await p.shot("server-light");
  await s.upload("shop", KNOWN);
  await p.page.locator(".quality", { hasText: "200 samples" }).waitFor();
  await s.stop("SIGKILL");
  await p.page.locator(".problem", { hasText: "No answer since" }).waitFor();
  assert.match(await text(p, ".quality"), /^200 samples/, "the last picture stays");
  const again = await serve("a", { port: s.port });
  await p.page.locator(".problem").waitFor({ state: "detached" });
  assert.match(await text(p, ".quality"), /^200 samples/, "what was acknowledged is there");
  await p.done();
  assert.equal(await again.stop(), 0);
});

test("the real server: the page needs no token, its data do", { skip, timeout: 300000 }, async () => {
  const tokens = join(folder, "tokens");
  writeFileSync(tokens, "read reads-what-is-there\nwrite writes-what-is-new\n", { mode: 0o600 });
  const s = await serve("b", { options: ["--token-file", tokens] });
  await s.upload("shop", KNOWN, { token: "writes-what-is-new" });
  const p = await openUrl(`${s.url}?view=flame`, { said: /status of 40[13]/ });
  assert.match(await text(p, ".token"), /needs a token/);
  await p.page.locator(".token input").fill("writes-what-is-new");
  await p.page.locator(".token input").press("Enter");
  await p.page.locator(".token", { hasText: "does not permit reading" }).waitFor();
  await p.page.locator(".token input").fill("reads-what-is-there");
  await p.page.locator(".token input").press("Enter");
  await p.page.waitForSelector(".flame canvas");
  assert.match(await text(p, ".quality"), /only 100 samples/);
  await p.done();
  // A body of whoever is not known is not taken, whatever the path.
  for (const path of ["", "healthz", "api/v1/payload"])
    assert.equal((await fetch(s.url + path, { method: "POST", body: "x".repeat(10000) })).status, 401);
  assert.equal((await fetch(s.url + "api/v1/payload")).status, 401);
  assert.equal(await s.stop(), 0);
});

test("the real server: the page's headers, unchanged is 304, with and without gzip", { skip, timeout: 300000 }, async () => {
  const s = await serve("c");
  const plain = await fetch(s.url, { headers: { "Accept-Encoding": "identity" } });
  assert.equal(plain.headers.get("content-encoding"), null);
  const html = await plain.text();
  const packed = await fetch(s.url);
  assert.equal(packed.headers.get("content-encoding"), "gzip");
  assert.equal(await packed.text(), html);
  const csp = packed.headers.get("content-security-policy");
  assert.match(csp, /^default-src 'none'; script-src 'self'; style-src 'sha256-[^']+'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'$/);
  assert.ok(html.includes(csp.replace(/; frame-ancestors.*/, "")), "the page says the same");
  const etag = packed.headers.get("etag");
  const same = await fetch(s.url, { headers: { "If-None-Match": `"other", ${etag}` } });
  assert.equal(same.status, 304);
  assert.equal((await fetch(s.url, { headers: { "If-None-Match": '"other"' } })).status, 200);
  const body = await fetch(`${s.url}api/v1/payload`);
  assert.equal(Buffer.from(await body.arrayBuffer()).subarray(0, 8).toString(), "CULPRIT1");
  for (const bad of ["query=%7B", "from=9&to=3", "max_stacks=0", "from=x"])
    assert.equal((await fetch(`${s.url}api/v1/payload?${bad}`)).status, 400, bad);
  assert.equal(await s.stop(), 0);
});
