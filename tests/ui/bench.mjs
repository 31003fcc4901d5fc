// SPDX-License-Identifier: Apache-2.0
/*
 * Figures of the page: sizes, time to load, and how smooth it is with many nodes, from Chromium's own
 * trace. Prints a table and, with --json FILE, the same as JSON. Asserts nothing.
 *
 *	make && node tests/ui/bench.mjs [--nodes 100000,1000000] [--seconds 5]
 */
import { gzipSync } from "node:zlib";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
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
const { close, convert, launch, top } = await import("./page.mjs");
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

/** Zooms in and out, moves the pointer and scrolls for some seconds; the trace says what it took. */
async function smoothness(page, browser) {
  const box = await page.locator(".flame-window canvas").first().boundingBox();
  await browser.startTracing(page, { categories: ["devtools.timeline", "disabled-by-default-devtools.timeline.frame",
    "disabled-by-default-devtools.timeline", "devtools.timeline.frame"] });
  const end = Date.now() + 1000 * seconds;
  const rows = [5, 8, 11, 14];
  for (let k = 0; Date.now() < end; k++) {
    await page.mouse.move(box.x + box.width * (0.15 + 0.1 * (k % 7)), box.y + box.height - 19 * (rows[k % 4] + 0.5), { steps: 4 });
    await page.mouse.down();
    await page.mouse.up();
    await page.waitForTimeout(190);
    await page.keyboard.press("Escape");
    await page.waitForTimeout(190);
  }
  const trace = JSON.parse((await browser.stopTracing()).toString()).traceEvents;
  const work = trace.filter((e) => e.name === "FireAnimationFrame" && e.dur !== undefined).map((e) => e.dur / 1000);
  const drawn = trace.filter((e) => e.name === "DrawFrame").map((e) => e.ts / 1000).sort((a, b) => a - b);
  // Between two frames of one animation; longer gaps are pauses in which nothing was to be drawn.
  const gaps = drawn.slice(1).map((t, i) => t - drawn[i]).filter((g) => g < 100);
  const tasks = trace.filter((e) => e.name === "RunTask" && e.dur !== undefined).map((e) => e.dur / 1000);
  return {
    frames: drawn.length, fps: 1000 / (gaps.reduce((a, b) => a + b, 0) / gaps.length),
    gap_p50_ms: quantile(gaps, 0.5), gap_p95_ms: quantile(gaps, 0.95), script_p50_ms: quantile(work, 0.5),
    script_p95_ms: quantile(work, 0.95), script_max_ms: Math.max(...work), longest_task_ms: Math.max(0, ...tasks),
  };
}

async function measure(n) {
  const lines = linesFor(n);
  const path = convert(lines);
  const browser = await launch();
  const loads = [];
  let smooth, nodes;
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
    if (round === 2)
      smooth = await smoothness(page, browser);
    await context.close();
  }
  const p = fromFolded(lines);
  nodes = p.tree.n;
  return {
    nodes, file_bytes: statSync(path).size, load_first_paint_ms: quantile(loads.map((l) => l.first), 0.5),
    payload_ms: quantile(loads.map((l) => l.parse), 0.5), ...smooth, forms: n <= 200000 ? forms(p) : undefined,
  };
}

const page = readFileSync(join(top, "build/ui/page.html"));
const out = { page_bytes: page.length, page_gzip_bytes: gzipSync(page, { level: 9 }).length, runs: [] };
console.log(`page without data: ${out.page_bytes} bytes, ${out.page_gzip_bytes} gzipped`);
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
await close();
