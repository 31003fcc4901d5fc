// SPDX-License-Identifier: Apache-2.0
/*
 * Why real servers are slow, as a reader of the page finds out: PostgreSQL whose clients all change one row, and nginx whose
 * upstream is slow (tests/live/waiting_servers.py), recorded by `culprit up`.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { cannot, culprit, openUrl, shareOf, top, until } from "./page.mjs";
import { programs, saidUrl } from "./programs.mjs";

let skip = cannot() || (process.getuid() === 0 ? false : "needs root: it records all of the machine");
const { folder, start, end } = programs("servers");
const OFF = "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds";
const ports = {};
let url, range;

const folded = async (service, more = {}) => {
  const q = new URLSearchParams({ format: "folded", type: OFF, query: `{service_name="${service}"}`, ...more });
  return await (await fetch(`${url}api/v1/export?${q}`)).text();
};

/** The seconds of the stacks that have all of these frames; such files count microseconds. */
async function seconds(service, ...frames) {
  const of = (await folded(service)).split("\n").filter((line) => frames.every((f) => line.includes(f)));
  return of.reduce((n, line) => n + Number(/\d+$/.exec(line)), 0) / 1e6;
}

before(async () => {
  if (skip)
    return;
  const servers = start("/usr/bin/python3", [join(top, "tests/live/waiting_servers.py")], { stdio: ["pipe", "pipe", "pipe"] });
  let said = "";
  servers.stderr.on("data", (text) => said += text);
  for await (const line of createInterface(servers.stdout)) {
    if (line === "ready")
      break;
    const [name, port] = line.split(" ");
    ports[name] = Number(port);
  }
  if (!ports.upstream) {
    skip = said.trim() || "the servers do not start";
    assert.match(skip, /^not installed/);
    return;
  }
  servers.stdout.resume();
  const up = start(culprit, ["up", "--data-dir", join(folder, "data"), "--listen", "127.0.0.1:0", "--otlp-grpc", "off",
    "--otlp-grpc-old", "off", "--otlp-http", "off", "--comm", "postgres,nginx,upstream"], { stdio: ["ignore", "pipe", "inherit"] });
  url = await saidUrl(up);
  await until("enough waits", async () => await seconds("postgres", "XactLockTableWait", "ProcLockWakeup") > 20 &&
    await seconds("nginx", "ngx_process_events_and_timers") > 8 && await seconds("upstream", "look_up") > 8, 200);
  const now = Math.floor(Date.now() / 1000) * 1000;
  range = `from=${now - 240000}&to=${now}`;
});
after(end);

function it(name, body) {
  test(`servers: ${name}`, { skip, timeout: 300000 }, async (t) => skip ? t.skip(skip) : body());
}

async function see(service, more = "") {
  const p = await openUrl(`${url}?service=${service}&type=${encodeURIComponent(OFF)}&${range}${more}`);
  p.settled = async () => {
    await p.page.waitForSelector('.live-page[aria-busy="false"]');
    await p.painted();
  };
  await p.settled();
  /** The share of what is shown, in %, that has a function in its stack. */
  p.share = async (name) => {
    const found = p.page.locator(".search output");
    const has = async () => /\d %/.test((await found.allInnerTexts()).join());
    // The answer to an earlier search must be gone.
    await p.page.getByLabel(/Search frames/).fill("");
    await until("nothing is searched", async () => !await has());
    await p.page.getByLabel(/Search frames/).fill(`^${name}$`);
    await until(`${name} is found`, has);
    await p.painted();
    return shareOf(await found.innerText());
  };
  p.legend = async () => Object.fromEntries((await p.page.locator(".legend li:not(.folding)").allInnerTexts()).map((t) => {
    const [, name, share] = /^(\S+)\s+([\d.,]+) %/.exec(t.replace(/\s+/g, " ").trim()) ?? [];
    return [name, parseFloat(share)];
  }));
  p.rows = () => p.page.locator(".waits tbody tr").evaluateAll((trs) => trs.map((tr) => [...tr.children].map((td) => td.innerText.replace(/\s+/g, " ").trim())));
  return p;
}

it("PostgreSQL: backends wait for the row, and the one that commits lets it go", async () => {
  const p = await see("postgres", `&stacks=${encodeURIComponent('fn="XactLockTableWait"')}`);
  // All of them wait in the lock manager, in the call of an update.
  for (const name of ["ProcSleep", "LockAcquireExtended", "standard_ExecutorRun"])
    assert.ok(await p.share(name) > 95, `${name}: ${await p.share(name)} %`);
  // Nothing of the profiler itself is in their stacks.
  assert.doesNotMatch(await folded("postgres"), /bpf_|traceiter/);
  // The owner: another backend, which commits and hands the lock on.
  for (const name of ["\\[woken by postgres\\]", "ProcLockWakeup", "CommitTransactionCommand"])
    assert.ok(await p.share(name) > 80, name);
  await p.shot("servers-row");
  await p.page.locator(".wait-bar").getByRole("button", { name: "who woke whom", exact: true }).click();
  await p.settled();
  const nodes = () => p.page.locator(".wakes .node").evaluateAll((all) => all.map((g) => g.getAttribute("aria-label")));
  await until("who woke whom", async () => (await nodes()).some((n) => /^postgres .*ended the waits/.test(n)));
  await p.shot("servers-row-wakers");
  await p.done();
});

it("nginx: the worker waits for the upstream's socket", async () => {
  const p = await see("nginx", "&waits=peer");
  const upstream = `127.0.0.1:${ports.upstream}`;
  const rows = await p.rows();
  const [first] = rows;
  assert.equal(first[0], upstream, JSON.stringify([ports, rows]));
  assert.ok(shareOf(first[2]) > 90, first.join());
  await p.shot("servers-peer");
  await p.page.locator(".waits button", { hasText: upstream }).click();
  await p.settled();
  assert.deepEqual(new URL(p.page.url()).searchParams.getAll("is"), [`peer=${upstream}`]);
  assert.ok(await p.share("ngx_process_events_and_timers") > 95);
  // The rest is time for which the worker waited for a CPU, on a machine that pgbench keeps busy.
  const of = await p.legend();
  assert.ok(of.poll > 50 && of.poll + (of.runnable ?? 0) > 98, JSON.stringify(of));
  await p.done();
});

it("the upstream: it sleeps, in the function of its requests", async () => {
  const p = await see("upstream", `&stacks=${encodeURIComponent('fn="Handler.look_up"')}`);
  const of = await p.legend();
  assert.ok(of.sleep > 50 && of.sleep + (of.runnable ?? 0) > 98, JSON.stringify(of));
  assert.ok(await p.share("ThreadingMixIn.process_request_thread") > 95);
  await p.done();
});
