// SPDX-License-Identifier: Apache-2.0
/* Turns tables of abi/tbl into model/vocab.gen.ts, so that the page and the C code share one vocabulary. */
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const OUTPUT = join(here, "model/vocab.gen.ts");
const table = (name) => join(here, "../abi/tbl", name);

const lower = (word) => word.toLowerCase();
const flag = (n) => n !== "0";
/** Which macro a file calls, and what becomes of each argument: a property, and a conversion if the text does not do. */
const TABLES = [
  { file: table("sample_type.tbl"), macro: "SAMPLE_TYPE", constant: "SAMPLE_TYPES", type: "SampleType",
    columns: [["id"], ["name"], ["unit"], ["profile"], ["label"], ["rate"], ["adds", lower], ["isCpu", flag], ["help"]] },
  { file: table("unit.tbl"), macro: "UNIT", constant: "UNITS", type: "Unit", columns: [["id"], ["name"], ["perSecond", Number]] },
  { file: table("frame_kind.tbl"), macro: "FRAME_KIND", constant: "FRAME_KINDS", type: "FrameKind",
    columns: [null, ["name"], null, ["class", lower], null, ["hue", Number], ["chroma", (n) => Number(n) / 100], ["help"]] },
  { file: table("wait.tbl"), macro: "WAIT", constant: "WAITS", type: "Wait", columns: [["id"], ["name"], ["light"], ["dark"], ["help"]] },
  { file: table("owner.tbl"), macro: "OWNER", constant: "OWNERS", type: "OwnerRule", columns: [["what"], ["kind"], ["pattern"]] },
];

/** For build systems: what the generated file is made of. */
export const VOCAB_INPUTS = [fileURLToPath(import.meta.url), ...TABLES.map((t) => t.file)];

/** The rows MACRO(...) of a table, each a list of its arguments without quotes. */
export function readTable(text, macro) {
  const code = text.replace(/\/\*[\s\S]*?\*\//g, "");
  const call = new RegExp(`^${macro}\\((.*)\\)$`);
  return code.split("\n").filter((l) => l.trim() !== "").map((line) => {
    const inside = call.exec(line.trim())?.[1];
    const row = inside === undefined ? [] : inside.match(/"(?:[^"\\]|\\.)*"|[^",\s]+/g) ?? [];
    if (row.length === 0)
      throw new Error(`not a row of ${macro}: ${line}`);
    return row.map((a) => (a.startsWith('"') ? JSON.parse(a) : a));
  });
}

function constant({ file, macro, constant, type, columns }) {
  const rows = readTable(readFileSync(file, "utf8"), macro).map((row) => {
    if (row.length !== columns.length)
      throw new Error(`${relative(here, file)}: ${row[0]} has ${row.length} arguments, not ${columns.length}`);
    return Object.fromEntries(columns.flatMap((c, i) => (c ? [[c[0], c[1] ? c[1](row[i]) : row[i]]] : [])));
  });
  return `export const ${constant}: ${type}[] = [\n${rows.map((r) => `  ${JSON.stringify(r)},\n`).join("")}];\n`;
}

/** Writes model/vocab.gen.ts if it is not up to date. Parallel builds of one tree write the same text. */
export function writeVocab() {
  const text = "// SPDX-License-Identifier: Apache-2.0\n" +
    `/* Made by ui/vocab.mjs from ${TABLES.map((t) => relative(join(here, ".."), t.file)).join(", ")}. */\n` +
    `import type { ${TABLES.map((t) => t.type).sort().join(", ")} } from "./vocab.ts";\n\n` + TABLES.map(constant).join("\n");
  let old = "";
  try {
    old = readFileSync(OUTPUT, "utf8");
  } catch {
    // There is none yet.
  }
  if (old === text)
    return;
  const part = `${OUTPUT}.${process.pid}`;
  writeFileSync(part, text);
  renameSync(part, OUTPUT);
}
