// SPDX-License-Identifier: Apache-2.0
/* Bundles test/*.test.ts and runs them with node's own test runner: node test/run.mjs OUTDIR */
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { install } from "../build.mjs";
import { writeVocab } from "../vocab.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2], "ui-tests");
install(dirname(here));
writeVocab();
const esbuild = await import("esbuild");
mkdirSync(out, { recursive: true });
const tests = readdirSync(here).filter((f) => f.endsWith(".test.ts"));
await esbuild.build({
  entryPoints: tests.map((f) => join(here, f)), outdir: out, bundle: true, platform: "node", format: "esm",
  target: "node18", outExtension: { ".js": ".mjs" }, sourcemap: "inline", logLevel: "error",
});
const files = tests.map((f) => join(out, f.replace(/ts$/, "mjs")));
const r = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...files], { stdio: "inherit", cwd: here });
process.exit(r.status ?? 1);
