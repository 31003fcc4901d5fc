// SPDX-License-Identifier: Apache-2.0
/*
 * The README's picture: what `culprit up` shows of three services in three languages. `make readme-picture`, as root.
 * WebP, because a PNG of text and boxes is three times as large.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { install } from "../../ui/build.mjs";

const here = dirname(fileURLToPath(import.meta.url));
install(here);
const { cannot, culprit, openUrl, top, until } = await import("./page.mjs");
const { programs, saidUrl } = await import("./programs.mjs");
const why = cannot() || (process.getuid() === 0 ? "" : "needs root: it records all of the machine");
if (why) {
  console.error(`readme-picture: ${why}`);
  process.exit(1);
}

const OUT = join(top, "doc/ui.webp");
const MOST = 150000;
const { folder, start, end } = programs("picture");

const SHOP = `
import json, re, threading
def parse(order): return json.loads(order)
def price(o): return sorted(o["items"], key=lambda i: (i["price"], i["name"]))
def render(o): return re.sub(r"[0-9]+", lambda m: f"<b>{m.group()}</b>", json.dumps(o))
ORDER = json.dumps({"items": [{"name": f"item {i * 7919 % 500}", "price": i * 31 % 97} for i in range(500)]})
def handle():
    order = parse(ORDER)
    order["items"] = price(order)
    return render(order)
def worker():
    while True: handle()
threading.Thread(target=worker, name="worker-1", daemon=True).start()
worker()
`;
const CHECKOUT = `
const crypto = require("crypto");
function sign(cart) { return crypto.createHash("sha256").update(JSON.stringify(cart)).digest("hex"); }
function total(cart) { return cart.map((c) => c.n * c.price).reduce((a, b) => a + b, 0); }
function fill(n) { return Array.from({ length: n }, (_, i) => ({ n: i % 5, price: (i * 7919) % 997, name: "item " + i })); }
function checkout() { const cart = fill(3000); return sign(cart) + total(cart); }
for (;;) checkout();
`;
const MILL = `#include <stdint.h>
#include <stdlib.h>
static int order(const void *a, const void *b) { uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b; return x < y ? -1 : x > y; }
static inline uint32_t blend(uint32_t h, uint32_t i) { return (h ^ i) * 16777619u; }
__attribute__((noipa)) void grind(uint32_t *v, uint32_t n, uint32_t h) { for (uint32_t i = 0; i < n; i++) v[i] = h = blend(h, i); }
__attribute__((noipa)) void sift(uint32_t *v, uint32_t n) { qsort(v, n, sizeof(*v), order); }
int main(void) { static uint32_t v[4000]; for (uint32_t h = 1;; h++) { for (int i = 0; i < 40; i++) grind(v, 4000, h); sift(v, 4000); } }
`;

function serviceOf(service, program, ...args) {
  start(program, args, { stdio: "ignore",
    env: { ...process.env, OTEL_SERVICE_NAME: service, OTEL_RESOURCE_ATTRIBUTES: "deployment.environment=production" } });
}

try {
  writeFileSync(join(folder, "mill.c"), MILL);
  execFileSync("gcc", ["-g", "-O2", "-o", join(folder, "mill"), join(folder, "mill.c")]);
  const up = start(culprit, ["up", "-F", "97", "--data-dir", join(folder, "store"), "--listen", "127.0.0.1:0", "--otlp-grpc", "off", "--otlp-grpc-old", "off",
    "--otlp-http", "off"], { stdio: ["ignore", "pipe", "inherit"] });
  const url = await saidUrl(up);
  serviceOf("shop", "/usr/bin/python3", "-c", SHOP);
  serviceOf("checkout", process.execPath, "-e", CHECKOUT);
  serviceOf("mill", join(folder, "mill"));
  const p = await openUrl(`${url}?last=1m&is=deployment.environment%3Dproduction`);
  const samples = async () => Number(/([\d,]+) samples/.exec(await p.page.locator(".quality").innerText().catch(() => ""))?.[1]?.replace(/,/g, "") ?? 0);
  await until("enough to see", async () => (await samples()) >= 1500);
  await p.page.waitForSelector('.live-page[aria-busy="false"]');
  await p.page.mouse.move(640, 715);
  await p.painted();
  const cdp = await p.context.newCDPSession(p.page);
  const { data } = await cdp.send("Page.captureScreenshot", { format: "webp", quality: 82 });
  await p.done();
  const bytes = Buffer.from(data, "base64");
  assert.ok(bytes.length < MOST, `${bytes.length} bytes are more than ${MOST}`);
  writeFileSync(OUT, bytes);
  console.log(`doc/ui.webp: ${statSync(OUT).size} bytes`);
} finally {
  await end();
}
