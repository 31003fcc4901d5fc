// SPDX-License-Identifier: Apache-2.0
/*
 * The views that are not the flame graph alone, as `culprit server` serves them over a store whose
 * every number is known: services, comparison, filters, predicates, charts, files, export, links.
 */
import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { AFTER, BEFORE, KNOWN } from "./known.mjs";
import { readTable } from "../../ui/vocab.mjs";
import { sendSamples } from "./otlp.mjs";
import { cannot, openUrl, until } from "./page.mjs";
import { pprof } from "./pprof.mjs";
import { closeAll, serve, text } from "./serve.mjs";

const skip = cannot();
const HOUR = 3600000;
/* Half a minute ago, in whole seconds, and an hour before that. */
const T = Math.floor(Date.now() / 60000) * 60000 - 60000;
const RANGE = `from=${T}&to=${T + 60000}`;
let s;

const times = (lines, n) => lines.map((l) => l.replace(/\d+$/, (k) => k * n));

before(async () => {
  if (skip)
    return;
  s = await serve("views");
  const up = (service, lines, at, labels) => s.upload(service, lines, { from: at, to: at + 1000, labels });
  await up("shop", times(AFTER, 2), T, "host.name=web-1,process.runtime.name=go,service.version=2");
  await up("shop", AFTER, T + 20000, "host.name=web-2,process.runtime.name=go,service.version=2");
  await up("shop", BEFORE, T - HOUR, "host.name=web-1,process.runtime.name=go,service.version=1");
  await up("db", times(KNOWN, 5), T + 10000, "host.name=web-1,thread.name=writer");
  await up("db", times(KNOWN, 5), T + 10000 - HOUR, "host.name=web-1");
  await up("old", KNOWN, T - HOUR);
});
after(async () => {
  await s?.stop();
  await closeAll();
});

function it(name, body) {
  test(`views: ${name}`, { skip, timeout: 300000 }, body);
}

async function see(search, options) {
  const p = await openUrl(`${s.url}?${search}`, options);
  p.settled = async () => {
    await p.page.waitForSelector('.live-page[aria-busy="false"]');
    await p.painted();
  };
  await p.settled();
  return p;
}

const params = (p) => new URL(p.page.url()).searchParams;
const table = (p) => p.page.locator(".services-page tbody tr").evaluateAll((trs) => trs.map((tr) =>
  [...tr.querySelectorAll("td")].map((td) => td.innerText.replace(/\s+/g, " ").trim())));

it("services: share, change against an hour ago, language, hosts; a click is its flame graph", async () => {
  const p = await see(`view=services&${RANGE}`);
  const rows = await table(p);
  assert.deepEqual(rows.map((r) => r[0]), ["shop", "db", "old"]);
  const [shop, db, old] = rows;
  // 3,000 samples of 3,500 in a minute, 1,000 in the minute an hour before.
  assert.deepEqual([shop[2], shop[3]], ["50.0 samples/s", "85.7 %"]);
  assert.match(shop[4], /^\+33\.3 samples\/s \+200 %$/);
  assert.deepEqual([shop[5], shop[6]], ["go", "2"]);
  assert.equal(db[4], "≈ same");
  assert.match(old[4], /^−1\.67 samples\/s −100 %$/);
  assert.deepEqual([old[3], db[6]], ["0 %", "web-1"]);
  await p.shot("services-light");
  await p.page.getByLabel("Filter services").fill("^d|old");
  assert.deepEqual((await table(p)).map((r) => r[0]), ["db", "old"]);
  await p.page.getByLabel("Filter services").fill("");
  await p.page.getByRole("button", { name: "Service", exact: true }).click();
  assert.deepEqual((await table(p)).map((r) => r[0]), ["db", "old", "shop"]);
  await p.page.locator(".services-page .pick", { hasText: "shop" }).click();
  await p.page.locator("h1", { hasText: /^shop$/ }).waitFor();
  assert.equal(params(p).get("service"), "shop");
  assert.equal(params(p).get("view"), null);
  await p.page.goBack();
  await p.page.locator(".services-page .pick").first().waitFor();
  await p.done();
});

it("services: what an earlier time would show is not known before anything was stored", async () => {
  const p = await see(`view=services&${RANGE}&ago=1d`);
  assert.deepEqual((await table(p)).map((r) => r[4]), ["–", "–"]);
  await p.done();
});

it("compare: the same an hour before, by function, absolute and normalised", async () => {
  const p = await see(`view=compare&service=shop&${RANGE}`);
  await p.page.waitForSelector(".flame canvas");
  assert.match(await text(p, ".quality"), /3,000 samples.*vs 1,000 samples before/);
  const change = async (name) => (await p.rows()).find((r) => r.name === name);
  // Three times the samples: absolute, all but "shrank" and "gone" grew.
  assert.equal((await change("new")).total, "40.0 %");
  assert.equal((await change("gone")).total, "0 %");
  await p.shot("compare-light");
  await p.page.getByRole("button", { name: "Normalised" }).click();
  await p.painted();
  assert.match((await change("steady")).change, /^0 %|^[+−]?0\.0/);
  assert.match((await change("shrank")).change, /^−40\.0 %$/);
  // Of something else at the same time: versions.
  await p.page.getByRole("combobox", { name: "Compared with" }).selectOption("0");
  await p.settled();
  assert.equal(params(p).get("ago"), "0s");
  assert.match(await text(p, ".quality"), /3,000 samples.*vs 3,000 samples before/);
  const link = p.page.url();
  await p.page.goBack();
  await p.settled();
  await until("an hour before again", async () => /1,000/.test(await text(p, ".quality")));
  await p.done();
  const q = await openUrl(link);
  await q.page.waitForSelector(".flame canvas");
  assert.match(await text(q, ".quality"), /vs 3,000 samples before/, "a link shows the same");
  await q.done();
});

it("compare: two values of a label, each side with filters of its own", async () => {
  const p = await see(`view=compare&service=shop&${RANGE}&is=host.name%3Dweb-1&ago=0s&base-is=host.name%3Dweb-2`);
  await p.page.waitForSelector(".flame canvas");
  assert.match(await text(p, ".quality"), /2,000 samples.*vs 1,000 samples before/);
  assert.match(await text(p, ".base-tools"), /host.name = web-2/);
  await p.page.getByRole("button", { name: "Same filters" }).click();
  await until("both of web-1", async () => /2,000 samples.*vs 2,000 samples before/.test(await text(p, ".quality")));
  const other = p.page.getByRole("combobox", { name: "Service on the other side" });
  assert.equal(await other.locator("option:checked").innerText(), "the same service");
  await other.selectOption({ label: "db" });
  await until("against another service", async () => /2,000 samples.*vs 500 samples before/.test(await text(p, ".quality")));
  assert.equal(params(p).get("base-service"), "db");
  await p.done();
});

it("filters: values with counts, one of them, all but one, first level, away again", async () => {
  const p = await see(RANGE);
  await p.key("m");
  await p.page.getByRole("button", { name: "host.name" }).click();
  const values = p.page.locator(".values li");
  await values.first().waitFor();
  assert.deepEqual((await values.allInnerTexts()).map((t) => t.replace(/\s+/g, " ").trim()), ["web-1 71.4 % ≠", "web-2 28.6 % ≠"]);
  await p.shot("filters-light");
  await values.nth(1).locator("button").first().click();
  await until("web-2 alone", async () => /1,000 samples/.test(await text(p, ".quality")));
  assert.deepEqual(params(p).getAll("is"), ["host.name=web-2"]);
  await values.nth(1).getByRole("button", { name: "Exclude web-2" }).click();
  await values.nth(1).locator("button").first().click();
  await p.page.getByLabel("Group flame graph by this label").check();
  await p.key("Escape");
  await p.page.getByRole("button", { name: /host.name = web-2/ }).click();
  await until("all but web-2 or all", async () => /samples/.test(await text(p, ".quality")));
  await p.page.getByRole("button", { name: /^grouped by host.name/ }).waitFor();
  assert.equal(params(p).get("group"), "host.name");
  await p.done();
  const q = await see(`${RANGE}&group=host.name`);
  // 2,500 of 3,500 are of the one, drawn first.
  assert.match(await q.hover([1, 0.3]), /^web-1.* total 2,500 samples 71.4 %/);
  assert.match(await q.hover([1, 0.9]), /^web-2.* total 1,000 samples 28.6 %/);
  await q.done();
  const n = await see(`${RANGE}&not=host.name%3Dweb-2`);
  assert.match(await text(n, ".quality"), /2,500 samples/);
  await n.done();
});

it("stacks: a predicate, completed by the names in the picture; a wrong one is said", async () => {
  const p = await see(`${RANGE}&service=db`, { said: /status of 400/ });
  const box = p.page.getByLabel("Only stacks with these frames");
  await box.click();
  await box.pressSequentially('fn="draw');
  await p.page.locator(".offers li", { hasText: "draw_box" }).waitFor();
  await box.press("ArrowDown");
  await box.press("Enter");
  assert.equal(await box.inputValue(), 'fn="draw_box"');
  await box.press("Enter");
  await until("what passes through it", async () => /250 samples/.test(await text(p, ".quality")));
  assert.equal(params(p).get("stacks"), 'fn="draw_box"');
  await box.fill('fn="draw_box" und');
  await box.press("Enter");
  await p.page.locator(".problem", { hasText: "That query is not valid" }).waitFor();
  await box.fill("");
  await until("all again", async () => /500 samples/.test(await text(p, ".quality")));
  await p.done();
});

it("charts: lanes by thread, a heat map from which a range is taken", async () => {
  const p = await see(`${RANGE}&service=db`);
  await p.key("g", "g", "g");
  await p.page.locator(".lane").first().waitFor();
  assert.match(await text(p, ".lanes"), /writer/);
  await p.shot("threads-light");
  await p.key("g");
  const heat = p.page.locator(".heat canvas");
  await heat.waitFor();
  await p.settled();
  const box = await heat.boundingBox();
  // All of it is in the eleventh second.
  const x = (second) => box.x + box.width * (second + 0.5) / 60;
  await p.page.mouse.move(x(10), box.y + 2);
  assert.match(await text(p, ".heat output"), /\.000: [\d,]+ samples\/s$/);
  await p.page.mouse.move(x(9), box.y + 2);
  await p.page.mouse.down();
  await p.page.mouse.move(x(11), box.y + box.height - 2, { steps: 4 });
  await p.shot("heat-light");
  await p.page.mouse.up();
  await until("the range", () => params(p).get("from") === String(T + 9000) && params(p).get("to") === String(T + 12000));
  await p.settled();
  assert.match(await text(p, ".quality"), /500 samples/);
  await p.done();
});

async function exported(p, what) {
  const saved = p.page.waitForEvent("download");
  await p.page.getByLabel("Export").selectOption(what);
  return readFileSync(await (await saved).path(), "utf8").trim();
}

const BOTH_FOLDED = ["p;gone 200 0", "p;grew 100 300", "p;new 0 400", "p;shrank 600 200", "p;steady 100 100"];

it("files: dropped, named, exported, compared, and what is no profile is said", async () => {
  const p = await see("view=files", { said: /status of 400/ });
  assert.match(await text(p, ".nothing"), /Drop a profile here/);
  const choose = (...files) => p.page.getByLabel("Profiles", { exact: true }).setInputFiles(
    files.map(([name, lines]) => ({ name, mimeType: "text/plain", buffer: Buffer.from(lines.join("\n") + "\n") })));
  const asked = [];
  p.page.on("request", (r) => asked.push(r.url()));
  await choose(["before.folded", BEFORE]);
  await p.page.waitForSelector(".flame canvas");
  assert.match(await text(p, "h1"), /before\.folded/);
  assert.match(await text(p, ".quality"), /1,000 samples/);
  const saved = p.page.waitForEvent("download");
  await p.page.getByLabel("Export").selectOption("folded");
  const file = await saved;
  assert.equal(file.suggestedFilename(), "before.folded");
  assert.deepEqual(readFileSync(await file.path(), "utf8").trim().split("\n").sort(), [...BEFORE].sort());
  await choose(["after.folded", AFTER]);
  await until("both", async () => /vs .*of before\.folded/.test(await text(p, ".quality")));
  assert.equal((await p.rows()).find((r) => r.name === "new").change, "+40.0 %");
  await p.shot("files-light");
  assert.deepEqual((await exported(p, "both folded")).split("\n"), BOTH_FOLDED);
  assert.deepEqual((await exported(p, "before folded")).split("\n").sort(), [...BEFORE].sort());
  assert.match(await exported(p, "both html"), /culprit-data/);
  await choose(["hostile<img src=x onerror=alert(1)>.bin", ["\u0000\u0001 nothing"]]);
  await p.page.locator(".files-bar [role=alert]", { hasText: "hostile<img" }).waitFor();
  assert.ok(asked.every((u) => u.includes("/api/v1/convert")), "nothing is stored, nothing else asked");
  await p.done();
  const stored = await (await fetch(`${s.url}api/v1/label-values?label=service.name&from=${T - 2 * HOUR}`)).json();
  assert.deepEqual(stored.values.map((v) => v.name), ["db", "old", "shop"]);
});

it("files: one that comes while another is read goes behind it", async () => {
  const p = await see("view=files");
  let release;
  const held = new Promise((r) => (release = r));
  await p.page.route(/convert\?name=first/, async (r) => {
    await held;
    await r.continue();
  });
  for (const [name, lines] of [["first", BEFORE], ["second", AFTER]])
    await p.page.getByLabel("Profiles", { exact: true }).setInputFiles({ name: `${name}.folded`, mimeType: "text/plain",
      buffer: Buffer.from(lines.join("\n") + "\n") });
  release();
  await until("both", async () => /vs .*of first\.folded/.test(await text(p, ".quality")));
  assert.match(await text(p, "h1"), /second\.folded/);
  await p.done();
});

it("export: a comparison, of both sides or of one, by amounts or by shares", async () => {
  const p = await see(`view=compare&${RANGE}&service=shop&is=host.name%3Dweb-2&base-is=host.name%3Dweb-1`);
  await p.page.waitForSelector(".flame canvas");
  const shares = (text) => Object.fromEntries(text.split("\n").map((l) => /;?(\w+) (\d+(?: \d+)?)$/.exec(l).slice(1)));
  const after = shares(await exported(p, "after folded"));
  const before = shares(await exported(p, "before folded"));
  assert.ok(after.new && before.gone && !after.gone && !before.new, JSON.stringify({ after, before }));
  const both = shares(await exported(p, "both folded"));
  for (const name of new Set([...Object.keys(after), ...Object.keys(before)]))
    assert.equal(both[name], `${before[name] ?? 0} ${after[name] ?? 0}`, name);
  assert.match(await exported(p, "both svg"), /Differential flame graph/);
  assert.match(await exported(p, "before speedscope"), /speedscope/);
  assert.deepEqual(await p.page.getByLabel("Export").locator("optgroup").evaluateAll((g) => g.map((x) => x.label)),
    ["Both sides", "After only", "Before only"]);
  await p.page.getByRole("button", { name: "Normalised" }).click();
  const sum = (o, i) => Object.values(o).reduce((n, v) => n + Number(v.split(" ")[i]), 0);
  const scaled = shares(await exported(p, "both folded"));
  assert.ok(Math.abs(sum(scaled, 0) - sum(scaled, 1)) <= Object.keys(scaled).length, "of one total");
  await p.done();
});

it("export: what is shown, in each format, read again", async () => {
  const p = await see(`${RANGE}&service=shop&is=host.name%3Dweb-2`);
  for (const [format, check] of [["html", /culprit-data/], ["svg", /<svg/], ["folded", /;grew 300/], ["speedscope", /speedscope/],
    ["firefox", /"meta"/], ["pprof", null]]) {
    const saved = p.page.waitForEvent("download");
    await p.page.getByLabel("Export").selectOption(format);
    const bytes = readFileSync(await (await saved).path());
    if (check)
      assert.match(bytes.toString(), check, format);
    else
      assert.deepEqual([...bytes.subarray(0, 2)], [0x1f, 0x8b], "gzip");
  }
  await p.done();
});

it("source: lines of a file that any user may read, by menu and key; back closes it", async () => {
  const sources = mkdtempSync("/tmp/culprit-source-");
  chmodSync(sources, 0o755);
  const lines = Array.from({ length: 220 }, (_, i) => `line <b>${i + 1}</b>`);
  writeFileSync(`${sources}/work.c`, lines.join("\n") + "\n");
  const q = new URLSearchParams({ format: "pprof", labels: "service.name=lined" });
  const up = await fetch(`${s.url}api/v1/upload?${q}`, { method: "POST", body: pprof(sources, T - HOUR / 2) });
  assert.equal(up.status, 200, await up.text());
  // The file says its own time, where the other tests do not look.
  const p = await see(`service=lined&from=${T - HOUR / 2}&to=${T - HOUR / 2 + 5000}`);
  await p.page.waitForSelector(".flame canvas");
  await p.page.locator(".search input").fill("^work$");
  await p.page.locator(".search input").press("Enter");
  await p.page.keyboard.press("Escape");
  await p.page.locator(".flame-window").focus();
  await p.key("o");
  await p.page.locator(".sheet-source tr.hot").waitFor();
  assert.match(await text(p, ".sheet-source"), /25\.0 % of the total runs through this file, 0 % in the file itself/);
  assert.match((await p.page.locator(".sheet-source tr.hot").innerText()).replace(/\s+/g, " ").trim(), /^25\.0 % 205 line <b>205<\/b>$/);
  await p.shot("source-light");
  assert.equal(params(p).get("source"), `${sources}/work.c`);
  await p.page.goBack();
  await p.page.locator(".sheet-source").waitFor({ state: "detached" });
  await p.done();
  rmSync(sources, { recursive: true });
});

async function ingest(name, from, lines) {
  const q = new URLSearchParams({ name, format: "folded", from: from / 1000, until: from / 1000 + 10 });
  const r = await fetch(`${s.url}ingest?${q}`, { method: "POST", body: lines.join("\n") + "\n" });
  assert.equal(r.status, 200, await r.text());
}

it("live memory: a state is its mean, however long the range and however often it was sent", async () => {
  const at = T - HOUR / 6;
  for (const [second, mib] of [[0, 2], [10, 4], [20, 6]])
    await ingest("hoarder.inuse_space", at + 1000 * second, [`main;cache ${mib * 2 ** 20}`]);
  const p = await see(`service=hoarder&from=${at}&to=${at + 60000}`);
  await p.page.waitForSelector(".flame canvas");
  assert.match(await text(p, ".services"), /All 4\.00 MiB/);
  assert.match(await text(p, ".chart .most"), /^6\.00 MiB$/, "a bar of one second");
  await p.done();
  const q = await see(`view=services&from=${at}&to=${at + 60000}`);
  assert.match((await q.page.locator(".services-page th").allInnerTexts()).join("|"), /\|Live memory ↓\|Share\|Change/);
  assert.deepEqual((await table(q)).map((r) => [r[0], r[2]]), [["hoarder", "4.00 MiB"]]);
  await q.done();
});

it("page faults: their label and rate, and no cost; CPU time has one", async () => {
  const [faults, cpu] = [T - HOUR / 4, T - HOUR / 8];
  for (const [name, from] of [["faulty.page_faults", faults], ["busy.cpu", cpu]])
    await ingest(name, from, ["main;read 300", "main;grow 120"]);
  const p = await see(`service=faulty&from=${faults}&to=${faults + 60000}`);
  await p.page.waitForSelector(".flame canvas");
  const type = p.page.getByLabel("Type");
  assert.deepEqual(await type.locator("option").allInnerTexts(), ["Page faults", "Samples (Page faults)"]);
  assert.equal(await type.locator("option:checked").innerText(), "Page faults");
  assert.match(await text(p, ".quality"), /420 faults/);
  assert.match(await text(p, ".services"), /All 7\.00 faults\/s/);
  const card = await p.hover([1, 0.3]);
  assert.match(card, / total 420 faults 100 %/);
  assert.doesNotMatch(card, /cost\/month/);
  await p.page.getByRole("button", { name: "Sub-second" }).click();
  const heat = p.page.locator(".chart.heat");
  await heat.waitFor();
  assert.match(await heat.getAttribute("aria-label"), /, Page faults by time, /);
  await p.settled();
  const box = await heat.locator("canvas").boundingBox();
  await p.page.mouse.move(box.x + 1, box.y + 1);
  // All of them, in the first 50 ms.
  assert.match(await text(p, ".heat output"), /\.000: 8,400 faults\/s$/);
  await p.done();
  const heads = async (at) => {
    const q = await see(`view=services&from=${at}&to=${at + 60000}`);
    const found = await q.page.locator(".services-page th").allInnerTexts();
    const rows = await table(q);
    await q.done();
    return { found, rows };
  };
  const of = await heads(faults);
  assert.match(of.found.join("|"), /\|Page faults ↓\|Share\|Change/);
  assert.deepEqual(of.rows.map((r) => [r[0], r[2]]), [["faulty", "7.00 faults/s"]]);
  assert.match((await heads(cpu)).found.join("|"), /\|CPU ↓\|Share\|Cost\/month\|Change/);
});

it("agents: none yet, and how to have one", async () => {
  const p = await see("view=agents");
  assert.match(await text(p, ".nothing"), /No agents yet.*culprit agent --collection-agent/);
  await p.done();
});

it("keyboard and phone: every view by its number, readable on a small screen, dark", async () => {
  const p = await see(RANGE, { width: 390, height: 800, touch: true, dark: true });
  for (const [key, selector] of [["3", ".services-page"], ["4", ".two-charts"], ["5", ".traces-page"], ["6", ".tasks-page"], ["7", "text=No agents yet"], ["8", ".files"], ["9", ".growth-none"], ["1", ".overview"], ["2", ".timeline"]]) {
    await p.key(key);
    await p.page.waitForSelector(selector);
    const wide = await p.page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 390, `${selector} is ${wide} px wide`);
    await p.shot(`phone-dark-${key}`);
  }
  await p.done();
});

it("agents: each row of the tables of counters and drops, with its sentence; what is sampled, and how often", async () => {
  const rows = (name, macro) => readTable(readFileSync(new URL(`../../abi/tbl/${name}.tbl`, import.meta.url), "utf8"), macro);
  const losses = Object.fromEntries(rows("counter_loss", "COUNTER_LOSS").map(([id, name]) => [id, name]));
  const said = (help) => `${help[0].toUpperCase()}${help.slice(1)}.`;
  const report = { "host.name": "web-9", "culprit.agent.version": "1", "culprit.agent.samples": 100000, "culprit.agent.dropped_samples": 700,
    "culprit.agent.rate.cpu-clock": 19, "culprit.agent.period.page-faults": 100 };
  const expected = [];
  for (const [, name, unit, loss, help] of rows("counter", "COUNTER")) {
    report[`culprit.agent.${losses[loss]}.${name}`] = 10 + expected.length;
    expected.push(`${10 + expected.length} ${unit}${loss === "NONE" ? "" : ` ${losses[loss]}`} (${name}). ${said(help)}`);
  }
  for (const [, name, help] of rows("export_drop", "EXPORT_DROP")) {
    report[`culprit.agent.dropped.${name}`] = 10 + expected.length;
    expected.push(`${10 + expected.length} profiles dropped (${name}). ${said(help)}`);
  }
  assert.ok(expected.length > 15);
  await sendSamples(s.url, "reported", [[0, 0, "main", 10, Date.now() - 1000]], {}, report);
  const p = await see("view=agents");
  await p.page.locator(".advice summary").click();
  assert.deepEqual((await p.page.locator(".advice p.soft").allInnerTexts()).sort(), [...expected].sort());
  assert.match((await table(p))[0].join("|"), /^web-9\|.*\|Page faults 1 in 100, CPU 19 Hz\|/);
  assert.match(await text(p, ".services-page .quality"), /99,300 samples/);
  await p.shot("agents-light");
  await p.done();
});
