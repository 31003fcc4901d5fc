// SPDX-License-Identifier: Apache-2.0
/* Only one's own code: of a real Python program, of C without paths, and of libraries alone. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { KNOWN } from "./known.mjs";
import { cannot, close, convert, convertBytes, culprit, open, until } from "./page.mjs";
import { pprof } from "./pprof.mjs";
import { programs } from "./programs.mjs";

const skip = cannot();
const asRoot = skip || (process.getuid() === 0 ? false : "needs root: it records a program");
const { folder, start, end } = programs("mycode");
after(async () => {
  await end();
  await close();
});

const SHOP = `import json, re, threading
COUPON = re.compile(r"^(([a-z]+)-?)+$")
def check_coupon(text):
    return COUPON.match(text) is not None
def render(items):
    return json.dumps(items, indent=1)
def checkout():
    check_coupon("aaaaaaaaaaaaaaaa1")
    return render([{"price": i} for i in range(2000)])
def serve():
    while True:
        checkout()
threading.Thread(target=serve).start()
`;

/** Names of the boxes that are painted, by row. */
async function rows(p, from = 0) {
  const names = [];
  for (let row = from; row < from + 12; row++) {
    const [x, y] = await p.point([row, 0.3]);
    await p.page.mouse.move(x, y);
    await p.painted();
    names.push(await p.page.locator(".card h2").innerText({ timeout: 500 }).catch(() => ""));
  }
  return names;
}

test("a Python program at 1280×800: its own functions without zooming, and x shows all", { skip: asRoot, timeout: 240000 }, async () => {
  const script = join(folder, "shop.py");
  writeFileSync(script, SHOP);
  const shop = start("/usr/bin/python3", [script], { stdio: "ignore" });
  const out = join(folder, "shop.html");
  await until("recorded", () => {
    const r = spawnSync(culprit, ["record", "-p", String(shop.pid), "-d", "3", "-o", out], { encoding: "utf8" });
    return r.status === 0;
  });
  shop.kill("SIGKILL");
  for (const dark of [false, true]) {
    const p = await open(out, { width: 1280, height: 800, dark });
    const names = await rows(p);
    for (const own of ["serve", "checkout", "check_coupon"])
      assert.ok(names.includes(own), `${own} in ${names.join(", ")}`);
    assert.ok(names.some((n) => /^\d+ \S+ frames$/.test(n)), names.join(", "));
    const total = await p.hover([0, 0.5]);
    await p.shot(`mycode-python-${dark ? "dark" : "light"}`);
    const table = await p.rows();
    assert.ok(table.some((r) => r.name === "check_coupon" && parseFloat(r.self) > 5), "with the hidden frames that it calls");
    assert.ok(!table.some((r) => /^_PyEval|^clone3|^JSONEncoder/.test(r.name)), table.map((r) => r.name).join());
    assert.match(await p.page.locator(".filter .n").innerText(), /of your functions/);
    await p.key("x");
    await p.hash(/a=1/);
    assert.equal(await p.hover([0, 0.5]), total, "the same in all");
    assert.match((await rows(p)).join(), /clone3|start_thread|python/);
    assert.match(await p.page.locator(".filter .n").innerText(), /functions$/);
    await p.shot(`mycode-all-${dark ? "dark" : "light"}`);
    await p.done();
  }
  const phone = await open(out, { width: 390, height: 844, touch: true });
  await phone.shot("mycode-phone-light");
  await phone.done();
});

test("C without paths is as it was; the reader's words hide and show, in the address and remembered", { skip, timeout: 120000 }, async () => {
  const page = convert(KNOWN);
  const p = await open(page, { hash: "#t=0" });
  assert.match(await p.hover([3, 0.15]), /^load native/);
  await p.page.getByRole("button", { name: "What is my code" }).click();
  await p.page.getByLabel(/that are mine/).fill("-render -draw -memcpy -blend");
  await p.page.getByRole("button", { name: "Apply" }).click();
  await p.hash(/own=-render/);
  assert.match(await p.hover([3, 0.6]), /^4 render frames|^\d+ \S+ frames not your code/);
  assert.match(await p.card(), /total 60 samples 60(\.0)? % 60(\.0)? %.*includes self time of 4 hidden frames, most in draw_box \(40(\.0)? % of all\)/);
  assert.match(await p.hover([2, 0.45]), /^main .* self 0 samples 0 % 0 % self, hidden 60 samples 60(\.0)? % 60(\.0)? %/);
  // Search finds what is hidden, weighs it right and says so.
  await p.key("/");
  await p.page.keyboard.type("memcpy");
  const search = p.page.locator(".search");
  assert.match(await search.innerText(), /10(\.0)? % matched\s*1\s+1 hidden/);
  await p.page.keyboard.press("Enter");
  assert.match(await p.page.locator(".spoken").innerText(), /^4 \S+ frames, level 3/);
  await p.page.getByRole("button", { name: "1 hidden" }).click();
  assert.match(await p.hover([5, 0.45]), /^memcpy /);
  await p.page.reload();
  await p.page.waitForSelector("canvas");
  assert.match(await p.hover([5, 0.45]), /^memcpy /, "all frames, by the address");
  await p.done();
});

test("a program of libraries alone is not empty", { skip, timeout: 120000 }, async () => {
  const p = await open(convert(["p;_start;__libc_start_main;start_thread 5"]), { hash: "#t=0" });
  assert.match(await p.hover([4, 0.5]), /^start_thread /);
  await p.done();
  const q = await open(convertBytes(pprof(), ".pb.gz"), { hash: "#t=0" });
  assert.match(await q.hover([3, 0.3]), /^libfoo\.so\.1\+0x1234/, "a box never stands for one frame");
  await q.done();
});

test("a zoomed frame is in the first row, its callers are crumbs", { skip, timeout: 120000 }, async () => {
  const deep = ["p", ...Array.from({ length: 30 }, (_, i) => `f${i}`)].join(";");
  const p = await open(convert([`${deep} 7`, "p;side 3"]), { hash: "#t=0" });
  await p.key("/");
  await p.page.keyboard.type("^f28$");
  await p.page.keyboard.press("Enter");
  await p.page.locator(".flame-window").focus();
  await p.key("Enter");
  assert.match(await p.hover([0, 0.5]), /^f28 /);
  assert.match(await p.hover([1, 0.5]), /^f29 /);
  const crumbs = await p.crumbs();
  assert.equal(crumbs.length, 31, crumbs.join());
  await p.shot("mycode-zoom-light");
  await p.page.locator(".crumbs").getByRole("button", { name: "f20", exact: true }).click();
  assert.match(await p.hover([0, 0.5]), /^f20 /);
  await p.done();
});

test("one menu for a frame, a row and a match, by mouse, keyboard and touch", { skip, timeout: 120000 }, async () => {
  const p = await open(convert(KNOWN));
  const menu = p.page.getByRole("menu");
  const items = async () => {
    const all = await menu.getByRole("menuitem").allInnerTexts();
    await p.key("Escape");
    return all.map((t) => t.trim()).filter((t) => /Callers|Search|Hide|Copy name/.test(t));
  };
  await p.click([3, 0.6], { button: "right" });
  assert.equal(await menu.getAttribute("aria-label"), "render");
  const want = await items();
  assert.equal(want.length, 4);
  await p.page.locator(".functions tr", { hasText: "memcpy" }).click({ button: "right" });
  assert.equal(await menu.getAttribute("aria-label"), "memcpy");
  assert.deepEqual(await items(), want);
  // Keyboard: a row, a match, a frame.
  await p.page.getByRole("button", { name: "draw_box", exact: true }).focus();
  await p.key("Shift+F10");
  assert.equal(await menu.getAttribute("aria-label"), "draw_box");
  assert.deepEqual(await items(), want);
  await p.key("/");
  await p.page.keyboard.type("blend");
  await p.page.keyboard.press("Enter");
  await p.painted();
  await p.key("Shift+F10");
  assert.equal(await menu.getAttribute("aria-label"), "blend");
  await items();
  await p.page.locator(".flame-window").focus();
  await p.key("ArrowDown");
  await p.key("Shift+F10");
  assert.equal(await menu.getAttribute("aria-label"), "render");
  await items();
  // The function that was chosen in the table has the keys.
  await p.page.getByRole("button", { name: "memcpy", exact: true }).click();
  await p.key("s");
  assert.match(await p.page.locator(".sandwich-head").innerText(), /memcpy/);
  await p.done();
  const t = await open(convert(KNOWN), { width: 390, height: 844, touch: true, hash: "#t=0" });
  const [x, y] = await t.point([3, 0.6]);
  const cdp = await t.context.newCDPSession(t.page);
  await cdp.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: [{ x, y }] });
  await t.page.getByRole("menu").waitFor();
  await cdp.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
  assert.equal(await t.page.getByRole("menu").getAttribute("aria-label"), "render");
  await t.shot("mycode-menu-phone-light");
  await t.done();
});

test("siblings by weight or by name", { skip, timeout: 120000 }, async () => {
  const p = await open(convert(["p;a 1", "p;b 9"]), { hash: "#t=0" });
  assert.match(await p.hover([1, 0.02]), /^p /);
  assert.match(await p.hover([2, 0.02]), /^a /);
  await p.key("w");
  await p.hash(/o=w/);
  assert.match(await p.hover([2, 0.02]), /^b /);
  await p.done();
});
