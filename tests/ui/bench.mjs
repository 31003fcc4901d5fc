// SPDX-License-Identifier: Apache-2.0
/*
 * Figures of the page: sizes, time to load, and how smooth it is with many nodes, from Chromium's own
 * trace. Prints a table and, with --json FILE, the same as JSON. Asserts nothing.
 *
 *	make && node tests/ui/bench.mjs [--nodes 100000,1000000] [--seconds 5]
 */
import { gzipSync } from "node:zlib";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { install } from "../../ui/build.mjs";

const option = (name, absent) => {
  const i = process.argv.indexOf(name);
  return i < 0 ? absent : process.argv[i + 1];
};
const sizes = option("--nodes", "100000,1000000").split(",").map(Number);
const seconds = Number(option("--seconds", "5"));

install(dirname(fileURLToPath(import.meta.url)));
// Only now, because they need what was installed.
const { convert, launch, top } = await import("./page.mjs");
const { closeAll, serve } = await import("./serve.mjs");
const esbuild = await import(pathToFileURL(join(top, "ui/node_modules/esbuild/lib/main.js")).href);
const bundled = join(tmpdir(), `culprit-bench-${process.pid}.mjs`);
await esbuild.build({ entryPoints: [join(top, "ui/test/forms.ts")], bundle: true, platform: "node", format: "esm",
  outfile: bundled, logLevel: "error" });
const { forms, syntheticLines, fromFolded } = await import(pathToFileURL(bundled).href);

/** Lines whose tree has about n nodes: the number of lines is found by trying. */
function linesFor(n) {
  let lines = Math.round(n / 4);
  for (let round = 0; round < 4; round++) {
    const got = fromFolded(syntheticLines(lines)).tree.n;
    if (Math.abs(got - n) < 0.03 * n)
      break;
    lines = Math.round(lines * (n / got));
  }
  return syntheticLines(lines);
}

const quantile = (a, q) => [...a].sort((x, y) => x - y)[Math.min(a.length - 1, Math.floor(q * a.length))] ?? 0;

const ROWS = [5, 8, 11, 14];
/** Between two zooms: the table has followed the first before the second begins. */
const PAUSE_MS = 300;

/** What a reader does, again and again; each returns when what it began has been drawn. */
const DOINGS = {
  zoom: async (page, box, k) => {
    await page.mouse.move(box.x + box.width * (0.15 + 0.1 * (k % 7)), box.y + box.height - 19 * (ROWS[k % 4] + 0.5), { steps: 4 });
    await page.mouse.down();
    await page.mouse.up();
    await page.waitForTimeout(PAUSE_MS);
    await page.keyboard.press("Escape");
    await page.waitForTimeout(PAUSE_MS);
  },
  // These two from within the page, a step in each frame: else the pace is that of the events that come from here.
  pan: (page) => page.evaluate(() => new Promise((done) => {
    const f = document.querySelector(".flame");
    let n = 0;
    const step = () => {
      f.scrollTop = (f.scrollHeight - f.clientHeight) * (0.5 + 0.5 * Math.cos(n / 10));
      if (++n < 120)
        requestAnimationFrame(step);
      else
        done();
    };
    requestAnimationFrame(step);
  })),
  search: (page) => page.evaluate(() => new Promise((done) => {
    const box = document.querySelector(".search input");
    const text = "allocate|parse|read_";
    let n = 0;
    const step = () => {
      box.value = text.slice(0, 1 + n % text.length);
      box.dispatchEvent(new Event("input", { bubbles: true }));
      if (++n < 120)
        requestAnimationFrame(step);
      else
        done();
    };
    requestAnimationFrame(step);
  })),
};

/**
 * CPU time (and not the time on the clock: others have the machine, too) between one drawn frame and the next, of the page's own
 * thread, which runs the script, lays out and draws the canvas, and of all other threads of the browser. Events nest, so what
 * counts are those that no other holds.
 */
function cpuByFrame(trace, drawn) {
  const names = new Map(trace.filter((e) => e.name === "thread_name").map((e) => [`${e.pid} ${e.tid}`, e.args.name]));
  const threads = new Map();
  for (const e of trace)
    if (e.ph === "X" && e.tdur !== undefined) {
      const id = `${e.pid} ${e.tid}`;
      if (!threads.has(id))
        threads.set(id, []);
      threads.get(id).push(e);
    }
  const page = new Array(Math.max(0, drawn.length - 1)).fill(0);
  let others = 0;
  for (const [id, events] of threads) {
    let end = 0;
    let frame = 0;
    for (const e of events.sort((a, b) => a.ts - b.ts || b.dur - a.dur)) {
      if (e.ts < end)
        continue;
      end = e.ts + e.dur;
      while (frame < page.length && e.ts / 1000 >= drawn[frame + 1])
        frame++;
      if (names.get(id) !== "CrRendererMain")
        others += e.tdur / 1000;
      else if (frame < page.length && e.ts / 1000 >= drawn[0])
        page[frame] += e.tdur / 1000;
    }
  }
  return { page, others: others / Math.max(1, drawn.length) };
}

/** Does one of them for some seconds; the trace says what it took. */
async function smoothness(page, browser, doing) {
  const box = await page.locator(".flame-window canvas").first().boundingBox();
  await browser.startTracing(page, { categories: ["devtools.timeline", "disabled-by-default-devtools.timeline.frame",
    "disabled-by-default-devtools.timeline", "devtools.timeline.frame", "toplevel"] });
  const end = Date.now() + 1000 * seconds;
  for (let k = 0; Date.now() < end; k++)
    await DOINGS[doing](page, box, k);
  const trace = JSON.parse((await browser.stopTracing()).toString()).traceEvents;
  const work = trace.filter((e) => e.name === "FireAnimationFrame" && e.dur !== undefined).map((e) => e.dur / 1000);
  const drawn = trace.filter((e) => e.name === "DrawFrame").map((e) => e.ts / 1000).sort((a, b) => a - b);
  // Between two frames of one animation: the first asked for another. What follows its last is a pause of the reader's.
  const asked = trace.filter((e) => e.name === "RequestAnimationFrame").map((e) => e.ts / 1000);
  const goesOn = drawn.map((t, i) => asked.some((a) => a > (drawn[i - 1] ?? 0) && a <= t));
  const gaps = drawn.slice(1).map((t, i) => t - drawn[i]).filter((_, i) => goesOn[i]);
  const cpu = cpuByFrame(trace, drawn);
  const tasks = trace.filter((e) => e.name === "RunTask" && e.dur !== undefined).map((e) => e.dur / 1000);
  return {
    frames: drawn.length, fps: gaps.length ? 1000 / (gaps.reduce((a, b) => a + b, 0) / gaps.length) : 0,
    cpu_p50_ms: quantile(cpu.page, 0.5), cpu_p95_ms: quantile(cpu.page, 0.95), cpu_mean_ms: cpu.page.reduce((a, b) => a + b, 0) / cpu.page.length,
    cpu_others_ms: cpu.others, gap_p50_ms: quantile(gaps, 0.5), gap_p95_ms: quantile(gaps, 0.95), script_p50_ms: quantile(work, 0.5),
    script_p95_ms: quantile(work, 0.95), script_max_ms: Math.max(0, ...work), longest_task_ms: Math.max(0, ...tasks),
  };
}

async function measure(n) {
  const lines = linesFor(n);
  const path = convert(lines);
  const browser = await launch();
  const loads = [];
  const smooth = {};
  for (let round = 0; round < 3; round++) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 720 } });
    const page = await context.newPage();
    await page.goto(pathToFileURL(path).href);
    await page.waitForSelector("canvas", { timeout: 120000 });
    const t = await page.evaluate(() => new Promise((done) => {
      const canvas = performance.now();
      requestAnimationFrame(() => requestAnimationFrame(() => done({
        first: performance.getEntriesByType("paint").find((e) => e.name === "first-contentful-paint")?.startTime ?? 0,
        canvas, parse: performance.getEntriesByType("measure").find((e) => e.name === "payload")?.duration ?? 0,
      })));
    }));
    loads.push(t);
    for (const doing of round === 2 ? Object.keys(DOINGS) : []) {
      // Low enough for something to be out of sight.
      await page.setViewportSize({ width: 1280, height: doing === "pan" ? 380 : 720 });
      for (const [k, v] of Object.entries(await smoothness(page, browser, doing)))
        smooth[`${doing}_${k}`] = v;
      await page.keyboard.press("Escape");
      await page.keyboard.press("0");
    }
    await context.close();
  }
  const p = fromFolded(lines);
  return {
    nodes: p.tree.n, file_bytes: statSync(path).size, load_first_paint_ms: quantile(loads.map((l) => l.first), 0.5),
    payload_ms: quantile(loads.map((l) => l.parse), 0.5), ...smooth, forms: n <= 200000 ? forms(p) : undefined,
  };
}

/** From the address to the first paint of what `culprit server` shows, on loopback; and to its picture. */
async function served() {
  const s = await serve("bench");
  await s.upload("shop", syntheticLines(5000));
  const browser = await launch();
  const rounds = [];
  for (let round = 0; round < 5; round++) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 720 } });
    const page = await context.newPage();
    await page.goto(`${s.url}?view=flame`);
    await page.waitForSelector(".flame canvas", { timeout: 120000 });
    rounds.push(await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done({
      first: performance.getEntriesByType("paint").find((e) => e.name === "first-contentful-paint")?.startTime ?? 0,
      picture: performance.now() }))))));
    await context.close();
  }
  await s.stop();
  return { served_first_paint_ms: quantile(rounds.map((r) => r.first), 0.5), served_picture_ms: quantile(rounds.map((r) => r.picture), 0.5) };
}

const sizeOf = (folder, files) => files.map((name) => readFileSync(join(top, "build/ui", folder, name)))
  .reduce(([n, zipped], bytes) => [n + bytes.length, zipped + gzipSync(bytes, { level: 9 }).length], [0, 0]);
const [page_bytes, page_gzip_bytes] = sizeOf("", ["page.html"]);
// What a browser loads at first: views that are opened rarely have a script of their own.
const [live_bytes, live_gzip_bytes] = sizeOf("live", readdirSync(join(top, "build/ui/live")).filter((name) => /^(live|chunk)[-.]/.test(name)));
const out = { load: loadavg(), page_bytes, page_gzip_bytes, live_bytes, live_gzip_bytes, ...await served(), runs: [] };
console.log(`load ${out.load.map((l) => l.toFixed(1)).join(" ")}`);
console.log(`page without data: ${page_bytes} bytes, ${page_gzip_bytes} gzipped; the server's: ${live_bytes}, ${live_gzip_bytes} gzipped`);
console.log(`served on loopback: first paint ${out.served_first_paint_ms.toFixed(0)} ms, picture ${out.served_picture_ms.toFixed(0)} ms`);
for (const n of sizes) {
  const r = await measure(n);
  out.runs.push(r);
  console.log(`\n${r.nodes} nodes, file ${(r.file_bytes / 1e6).toFixed(2)} MB`);
  for (const [k, v] of Object.entries(r))
    if (typeof v === "number" && k !== "nodes" && k !== "file_bytes")
      console.log(`  ${k.padEnd(22)} ${v.toFixed(1)}`);
  for (const f of r.forms ?? [])
    console.log(`  form ${f.name.padEnd(34)} ${(f.bytes / 1e6).toFixed(2).padStart(6)} MB in the page, read in ${f.ms.toFixed(0)} ms`);
}
const json = option("--json");
if (json)
  writeFileSync(json, JSON.stringify(out, null, 2));
await closeAll();
