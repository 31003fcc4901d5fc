// SPDX-License-Identifier: Apache-2.0
/*
 * Builds the two pages: installs the locked npm packages when they are not there, makes model/vocab.gen.ts,
 * bundles the TypeScript, and writes
 *
 *	page.html, page.c	what lib/format/html_write.c fills in: the word @PAYLOAD@ stands
 *				where the base64 text of a profile goes
 *	live.c, live/		what server/api/page.c serves: live.html and the scripts that it
 *				loads, some of them when a view is opened for the first time; in
 *				live.c they are gzip, with the header that says what the page may do
 *
 *	node build.mjs --install | --out DIR [--depfile FILE]
 *
 * --install leaves what tsc and the linter need, and builds nothing.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { VOCAB_INPUTS, writeVocab } from "./vocab.mjs";

const here = dirname(fileURLToPath(import.meta.url));

function die(text) {
  console.error(`ui: ${text}`);
  process.exit(1);
}

function alive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (e) {
    return e.code === "EPERM";
  }
}

/** Takes the lock file, or says that another living build has it. */
function take(gate) {
  try {
    writeFileSync(gate, String(process.pid), { flag: "wx" });
    return true;
  } catch (e) {
    if (e.code !== "EEXIST")
      die(`cannot write ${gate}: ${e.code}`);
  }
  try {
    const pid = Number(readFileSync(gate, "utf8"));
    // An empty file is one that is being written.
    if (pid > 0 && !alive(pid))
      rmSync(gate, { force: true });
  } catch {
    // Its owner has just let it go.
  }
  return false;
}

/** Why npm ci failed, in one line; "" when it did not. */
function npmCi(folder) {
  const r = spawnSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
                      { cwd: folder, encoding: "utf8" });
  if (r.error)
    return "npm not found: apt-get install npm";
  if (r.status === 0)
    return "";
  const why = (r.stderr + r.stdout).trim().split("\n").find((l) => /npm (error|ERR!)/.test(l)) ?? `exit status ${r.status}`;
  return `npm ci failed in ${folder}: is the registry reachable (npm config get registry)? ${why}`;
}

/** npm ci in a folder, once per content of its lock; two builds of one tree take turns. */
export function install(folder) {
  const lock = readFileSync(join(folder, "package-lock.json"), "utf8");
  const stamp = join(folder, "node_modules", ".culprit-lock");
  const fresh = () => existsSync(stamp) && readFileSync(stamp, "utf8") === lock;
  const gate = join(folder, ".npm-lock");
  for (let waited = 0; !fresh(); waited++) {
    if (take(gate)) {
      const failed = npmCi(folder);
      if (!failed)
        writeFileSync(stamp, lock);
      rmSync(gate, { force: true });
      if (failed)
        die(failed);
    } else {
      if (waited > 600)
        die(`another build holds ${gate}`);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500);
    }
  }
}

async function bundle(entry, options) {
  const esbuild = await import("esbuild");
  const r = await esbuild.build({
    entryPoints: [join(here, entry)], ...options,
    outdir: "out", bundle: true, minify: true, write: false,
    target: ["chrome105", "firefox113", "safari16.4"], legalComments: "none", charset: "utf8",
    jsx: "automatic", jsxImportSource: "preact", logLevel: "silent",
    metafile: true, absWorkingDir: here,
    tsconfigRaw: { compilerOptions: { useDefineForClassFields: true } },
  }).catch((e) => die(e.errors?.map((x) => `${x.location?.file}:${x.location?.line}: ${x.text}`).join("\n") ?? e.message));
  const css = r.outputFiles.find((f) => f.path.endsWith(".css")).text.trim();
  if (/<\/style/i.test(css))
    die("the styles would end their own element");
  const outputs = Object.entries(r.metafile.outputs).map(([path, o]) => ({ ...o, name: basename(path) }));
  const entryOutput = outputs.find((o) => o.entryPoint === entry);
  return {
    css, scripts: r.outputFiles.filter((f) => f.path.endsWith(".js")).map((f) => ({ name: basename(f.path), text: f.text.trim() })),
    entry: entryOutput.name,
    // What the entry imports before it runs.
    first: entryOutput.imports.filter((i) => i.kind === "import-statement").map((i) => basename(i.path)),
    inputs: Object.keys(r.metafile.inputs).map((f) => join(here, f)),
  };
}

const ICON = "data:image/svg+xml," + encodeURIComponent(
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect y="9" width="16" height="6" rx="1" fill="#dc2626"/>' +
  '<rect y="1" width="7" height="6" rx="1" fill="#f59e0b"/><rect x="9" y="1" width="7" height="6" rx="1" fill="#ea580c"/></svg>');

const hash = (s) => `'sha256-${createHash("sha256").update(s, "utf8").digest("base64")}'`;

/** What a page may do: only its own scripts and these styles run, and nothing is loaded from elsewhere. */
function policy(css, scripts, more) {
  return `default-src 'none'; script-src ${scripts}; style-src ${hash(css)}; img-src data:; ${more}` +
    "base-uri 'none'; form-action 'none'";
}

function page({ css, csp, noscript, script, data = "" }) {
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${csp}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="culprit">
<meta name="color-scheme" content="light dark">
<title>culprit</title>
<link rel="icon" href="${ICON}">
<style>${css}</style>
</head>
<body>
<div id="app"><noscript>${noscript}</noscript></div>
${script}
${data}</body>
</html>
`;
}

const PAYLOAD = '<script id="culprit-data" type="application/x-culprit">@PAYLOAD@</script>\n';

function array(name, b) {
  const lines = [];
  for (let i = 0; i < b.length; i += 24)
    lines.push("\t" + [...b.subarray(i, i + 24)].join(",") + ",");
  return `const unsigned char ${name}[] = {\n${lines.join("\n")}\n};\nconst size_t ${name}_n = ${b.length};\n`;
}

function htmlPage(b) {
  const [{ text }] = b.scripts;
  if (/<\/script|<!--/i.test(text))
    die("the script would end its own element");
  return page({ css: b.css, csp: policy(b.css, hash(text), ""), script: `<script>${text}</script>`, data: PAYLOAD,
    noscript: "This flame graph is drawn by a script in this file; nothing is loaded from elsewhere. Please allow it to run." });
}

function cArray(html) {
  const [head, tail, more] = html.split("@PAYLOAD@");
  if (tail === undefined || more !== undefined)
    die("the page must hold @PAYLOAD@ exactly once");
  return "/* Made by ui/build.mjs. */\n#include \"format/html_page.h\"\n\n" +
    array("html_page_head", Buffer.from(head, "utf8")) + "\n" + array("html_page_tail", Buffer.from(tail, "utf8"));
}

const LIVE_CSP = (b) => policy(b.css, "'self'", "connect-src 'self'; ");

/** The served page and its scripts. The page is the first. */
function liveFiles(b) {
  const preload = b.first.map((name) => `<link rel="modulepreload" href="ui/${name}">\n`).join("");
  const html = page({ css: b.css, csp: LIVE_CSP(b), script: `${preload}<script type="module" src="ui/${b.entry}"></script>`,
    noscript: "This page is drawn by its scripts; nothing is loaded from other servers. Please allow them to run." });
  return [{ name: "live.html", text: html }, ...b.scripts];
}

function liveArray(files, csp) {
  const one = ({ name, text }, i) => {
    const plain = Buffer.from(text, "utf8");
    const tag = createHash("sha256").update(plain).digest("hex").slice(0, 20);
    return { c: array(`file_${i}`, gzipSync(plain, { level: 9 })).replace(/^const unsigned/, "static const unsigned").replace(/\nconst size_t.*\n$/, "\n"),
      row: `\t{"${name}", "\\"${tag}\\"", file_${i}, sizeof(file_${i}), ${plain.length}},` };
  };
  const all = files.map(one);
  return `/* Made by ui/build.mjs. */\n#include "server/api/live_page.h"\n\n${all.map((f) => f.c).join("\n")}
const struct live_file live_files[] = {\n${all.map((f) => f.row).join("\n")}\n};\nconst size_t live_files_n = ${all.length};
const char live_page_csp[] = "${csp}";\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  install(here);
  writeVocab();
  const argument = (name) => process.argv.includes(name) ? process.argv[process.argv.indexOf(name) + 1] : null;
  const out = argument("--out");
  if (out) {
    const b = await bundle("view/main.tsx", { format: "iife" });
    const html = htmlPage(b);
    writeFileSync(join(out, "page.html"), html);
    writeFileSync(join(out, "page.c"), cArray(html));
    const l = await bundle("view/live.tsx", { format: "esm", splitting: true, entryNames: "[name]-[hash]", chunkNames: "[name]-[hash]" });
    const files = liveFiles(l);
    rmSync(join(out, "live"), { recursive: true, force: true });
    mkdirSync(join(out, "live"));
    for (const f of files)
      writeFileSync(join(out, "live", f.name), f.text);
    // Who may show the page in a frame can only be said by a header.
    writeFileSync(join(out, "live.c"), liveArray(files, LIVE_CSP(l) + "; frame-ancestors 'none'"));
    const deps = argument("--depfile");
    if (deps)
      writeFileSync(deps, `${join(out, "page.c")}: ${[...new Set([...VOCAB_INPUTS, ...b.inputs, ...l.inputs])].map((f) => f.replace(/ /g, "\\ ")).join(" ")}\n`);
  }
}
