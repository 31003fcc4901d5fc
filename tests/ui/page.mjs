// SPDX-License-Identifier: Apache-2.0
/* Pages in Debian's Chromium: made by culprit from folded text, opened from disk. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

export const here = dirname(fileURLToPath(import.meta.url));
export const top = resolve(here, "../..");
export const culprit = resolve(process.env.CULPRIT ?? join(top, "build/cli/culprit"));
const program = process.env.CHROMIUM ?? "/usr/bin/chromium";
export const ROW = 19;

/** Why the browser tests cannot run here, or false. */
export function cannot() {
  if (!existsSync(program))
    return `${program} is not there: apt-get install chromium`;
  if (!existsSync(culprit))
    return `${culprit} is not there: make`;
  return false;
}

const folder = mkdtempSync(join(tmpdir(), "culprit-ui-"));
export const artefacts = join(top, "tests/artefacts/ui");
mkdirSync(artefacts, { recursive: true });
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

function run(...args) {
  const r = spawnSync(culprit, args, { encoding: "utf8" });
  assert.equal(r.status, 0, `culprit ${args.join(" ")}: ${r.stderr}`);
}

let made = 0;

function folded(lines) {
  const path = join(folder, `${++made}.folded`);
  writeFileSync(path, lines.join("\n") + "\n");
  return path;
}

/** Path of a page made from folded lines. */
export function convert(lines) {
  const out = join(folder, `${++made}.html`);
  run("convert", folded(lines), out);
  return out;
}

/** Path of a page made from the bytes of a profile in another format. */
export function convertBytes(data, ending) {
  const from = join(folder, `${++made}${ending}`);
  const out = join(folder, `${++made}.html`);
  writeFileSync(from, data);
  run("convert", from, out);
  return out;
}

export function diff(before, after, ...options) {
  const out = join(folder, `${++made}.html`);
  run("diff", folded(before), folded(after), "-o", out, ...options);
  return out;
}

export const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];

/** A browser that starts from a slow disk; what a page does in a moment, on a machine that is busy with others. */
const START_MS = 180000;
const PATIENCE_MS = Number(process.env.PATIENCE_MS ?? 120000);
let browser;

export async function launch() {
  browser ??= await chromium.launch({ executablePath: program, args: FLAGS, timeout: START_MS });
  return browser;
}

export async function close() {
  await browser?.close();
}

/**
 * Opens a page and watches it: whatever it says on the console, throws, asks a dialog for or fetches
 * is a failure, looked at by done().
 */
export async function open(path, options = {}) {
  return openUrl(pathToFileURL(path).href, options);
}

/** The same of the text of a page. */
export async function openHtml(html, options = {}) {
  const path = join(folder, `${++made}.html`);
  writeFileSync(path, html);
  return open(path, options);
}

/** The same of a server's page: requests to it are as they should be. */
export async function openUrl(url, { hash = "", width = 1280, height = 720, dark = false, touch = false, said = null } = {}) {
  const context = await (await launch()).newContext({
    viewport: { width, height }, colorScheme: dark ? "dark" : "light", hasTouch: touch, reducedMotion: "reduce",
  });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const wrong = [];
  // Chromium's advice on our own colour(); and what a test expects to be said.
  page.on("console", (m) => m.text().includes("willReadFrequently") || said?.test(m.text()) || wrong.push(`console: ${m.text()}`));
  page.on("pageerror", (e) => wrong.push(`error: ${e.stack}`));
  page.on("dialog", (d) => {
    wrong.push(`dialog: ${d.message()}`);
    void d.dismiss();
  });
  page.on("request", (r) => {
    if (!r.url().startsWith(url.replace(/\?.*/, "")) && !r.url().startsWith("data:"))
      wrong.push(`request: ${r.url()}`);
  });
  await page.goto(url + hash);
  await page.waitForSelector(":is(canvas, .boot, .nothing:not(.loading), .sandwich, .token, .services-page, .traces-page, .growth, .table-alone .functions):visible");
  return new Page(page, context, wrong);
}

/** Waits for a condition; the page's own policy forbids waitForFunction(), which evaluates text. */
export async function until(what, condition, seconds = PATIENCE_MS / 1000) {
  const end = Date.now() + 1000 * seconds;
  do {
    if (await condition())
      return;
    await new Promise((r) => setTimeout(r, 50));
  } while (Date.now() < end);
  assert.fail(`not in ${seconds} s: ${what}`);
}

/** The number of a share as the page writes it: "97.1 %", ">99.99 %". */
export const shareOf = (text) => parseFloat(text.trim().replace(",", ".").replace(/^[<>]/, ""));

export class Page {
  constructor(page, context, wrong) {
    Object.assign(this, { page, context, wrong });
  }

  async done() {
    await this.context.close();
    assert.deepEqual(this.wrong, []);
  }

  /** The middle of a box, given its row and its share of the width, in a flame or icicle layout. */
  async point([row, share]) {
    const c = await this.page.locator(".flame-window canvas").first().boundingBox();
    const icicle = await this.page.getByRole("button", { name: "Icicle" }).getAttribute("aria-pressed") === "true";
    return [c.x + share * c.width, icicle ? c.y + (row + 0.5) * ROW : c.y + c.height - (row + 0.5) * ROW];
  }

  async hover(at) {
    await this.page.mouse.move(...(await this.point(at)));
    await this.painted();
    return this.card();
  }

  async card() {
    await this.page.waitForSelector(".card");
    return (await this.page.locator(".card").innerText()).replace(/\s+/g, " ");
  }

  async click(at, options) {
    await this.page.mouse.click(...(await this.point(at)), options);
    await this.painted();
  }

  async key(...keys) {
    for (const k of keys)
      await this.page.keyboard.press(k);
    await this.painted();
  }

  /** After the next two frames everything that was asked for is on the screen. */
  async painted() {
    await this.page.evaluate(() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r))));
  }

  async colour(at) {
    const [x, y] = await this.point(at);
    return this.page.evaluate(([px, py]) => {
      const c = document.querySelector(".flame-window canvas");
      const r = c.getBoundingClientRect();
      const k = devicePixelRatio;
      return [...c.getContext("2d").getImageData((px - r.x) * k, (py - r.y) * k, 1, 1).data.slice(0, 3)];
    }, [x, y - 7]);
  }

  async crumbs() {
    return (await this.page.locator(".crumbs li button, .crumbs li > span").allTextContents()).map((s) => s.trim());
  }

  async rows() {
    return this.page.locator(".functions tbody tr[aria-rowindex]").evaluateAll((trs) => trs.map((tr) => ({
      name: tr.querySelector(".pick").textContent, self: tr.querySelector(".c-self").textContent.trim(),
      total: tr.querySelector(".c-total").textContent.trim(), change: tr.querySelector(".c-change")?.textContent.trim(),
      hit: tr.classList.contains("hit"),
    })));
  }

  /** What was copied, as the search box gets it; a copy takes a moment, so it is pasted until it is this. */
  async pasted(want) {
    const box = this.page.getByLabel(/Search frames/);
    let text;
    await until(`${want} is copied`, async () => {
      await box.fill("");
      await this.key("Control+v");
      return want.test(text = await box.inputValue());
    });
    await box.fill("");
    return text;
  }

  /** What the address says of the picture; it follows what is typed a moment later. */
  async hash(like = /^/) {
    let hash;
    await until(`the address has ${like}`, () => like.test(hash = decodeURIComponent(new URL(this.page.url()).hash.replace(/\+/g, " "))));
    return hash;
  }

  async shot(name) {
    await this.painted();
    await this.page.screenshot({ path: join(artefacts, `${name}.png`) });
  }
}
