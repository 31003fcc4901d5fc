// SPDX-License-Identifier: Apache-2.0
// node speedscope.mjs SPEEDSCOPE FILE: reads a profile with speedscope's own importers, bundled by esbuild from its
// sources, and prints it as folded text: one line a stack, root first, with its weight.
import {createRequire} from "node:module";
import {readFileSync, writeFileSync, existsSync} from "node:fs";
import {join} from "node:path";

const [folder, file] = process.argv.slice(2);
const ui = join(import.meta.dirname, "../../ui");
const bundle = join(folder, "importers.cjs");
if (!existsSync(bundle)) {
  const entry = `
    export {importFromChromeTimeline, importFromChromeCPUProfile, importFromOldV8CPUProfile} from "./src/import/chrome";
    export {importFromLinuxPerf} from "./src/import/linux-tools-perf";
    export {importFromBGFlameGraph} from "./src/import/bg-flamegraph";
    export {importFromCallgrind} from "./src/import/callgrind";
    export {importSpeedscopeProfiles} from "./src/lib/file-format";`;
  const {build} = createRequire(join(ui, "package.json"))("esbuild");
  await build({stdin: {contents: entry, resolveDir: folder, loader: "ts"}, bundle: true, platform: "node", format: "cjs",
    outfile: bundle, external: ["pako", "uint8array-json-parser", "*.wasm"], logLevel: "error", tsconfigRaw: {}});
}
const speedscope = createRequire(bundle)(bundle);
const text = readFileSync(file, "utf8");
const lines = {splitLines: () => text.split("\n").map((l) => l.replace(/\r$/, "")), firstChunk: () => text.slice(0, 4096)};

// The importers report oddities on the console, which is where the answer goes.
console.log = console.warn = () => {};

function read() {
  if (!/^\s*[[{]/.test(text))
    return /events:/.test(text) ? speedscope.importFromCallgrind(lines, file)
      : speedscope.importFromLinuxPerf(lines) ?? speedscope.importFromBGFlameGraph(lines);
  const json = JSON.parse(text);
  if (Array.isArray(json) || json.traceEvents)
    return speedscope.importFromChromeTimeline(json.traceEvents ?? json, file);
  if (json.head)
    return speedscope.importFromOldV8CPUProfile(json);
  if (json.nodes)
    return speedscope.importFromChromeCPUProfile(json);
  return speedscope.importSpeedscopeProfiles(json);
}

const out = [];
const got = read();
for (const profile of got.profiles ?? [got]) {
  const stack = [];
  const scale = {seconds: 1e9, milliseconds: 1e6, microseconds: 1e3}[profile.getWeightUnit()] ?? 1; // to nanoseconds
  const visit = (node) => {
    if (node.getSelfWeight() > 0)
      out.push(`${stack.join(";")} ${node.getSelfWeight() * scale}`);
    for (const child of node.children) {
      stack.push(child.frame.name.replaceAll(";", ":").replaceAll("\n", " "));
      visit(child);
      stack.pop();
    }
  };
  visit(profile.getGroupedCalltreeRoot());
}
writeFileSync(1, out.join("\n") + "\n");
