// SPDX-License-Identifier: Apache-2.0
/*
 * SkyWalking's agents as they are, for Python (PyPI) and Java (Maven Central), send to `culprit up`: a task from the page, the
 * request that the agent profiled, its spans and its calls with their times; a task of async-profiler and its profile.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createServer } from "node:net";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, it } from "node:test";
import { cannot, culprit, openUrl, top, until } from "./page.mjs";
import { programs, saidUrl, stop } from "./programs.mjs";

const skip = cannot() || (process.getuid() === 0 ? false : "needs root: it records all of the machine");
const { folder, start, end } = programs("skywalking");
let up, url, port;

/** What get_skywalking.py prints, or why the test cannot run. */
function fetched(...args) {
  const r = spawnSync("/usr/bin/python3", [join(top, "tests/server/get_skywalking.py"), ...args], { encoding: "utf8" });
  return { path: r.stdout.trim(), missing: r.status === 0 ? "" : r.stderr.trim() };
}

/** A program that prints its port and ends when its input does. */
async function service(program, args) {
  const p = start(program, args, { stdio: ["pipe", "pipe", "ignore"] });
  for await (const line of createInterface(p.stdout))
    if (/^\d+$/.test(line))
      return { p, buy: async () => (await fetch(`http://127.0.0.1:${line}/buy`)).arrayBuffer() };
  throw new Error("it ended without a port");
}

before(async () => {
  if (skip)
    return;
  const s = createServer().listen(0, "127.0.0.1");
  await once(s, "listening");
  ({ port } = s.address());
  s.close();
  up = start(culprit, ["up", "--data-dir", join(folder, "data"), "--listen", "127.0.0.1:0", "--otlp-grpc", "off", "--otlp-grpc-old", "off", "--otlp-http", "off",
    "--listen-skywalking", `127.0.0.1:${port}`], { stdio: ["ignore", "pipe", "inherit"] });
  url = (await saidUrl(up)).replace(/\/?$/, "/");
});
after(async () => {
  if (up)
    assert.equal(await stop(up), 0);
  await end();
});

const api = async (path, method = "GET", body = undefined) => (await fetch(`${url}api/v1/${path}`, { method,
  ...body ? { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } } : {} })).json();
const states = async (task) => (await api(`tasks/${task}`)).agents.filter((a) => a.host_id === "skywalking").map((a) => a.state).join();

/** A task in three clicks from the endpoint; the agent runs it; the page shows the request, its spans and its calls. */
async function profileOnPage(name, app, [slowly, quickly], shot) {
  await until("a request is there", async () => {
    await app.buy();
    return (await api(`traces?service=${name}`)).traces.length > 0;
  });
  const p = await openUrl(`${url}?view=traces&last=15m`, { said: /status of 4/ });
  const see = p.page;
  const row = see.getByRole("region", { name: "Endpoints" }).getByRole("row").filter({ hasText: "/buy" }).filter({ hasText: name });
  await row.getByRole("button", { name: "/buy" }).click();
  await see.getByRole("region", { name: "Endpoints" }).waitFor({ state: "detached" });
  await see.getByRole("button", { name: "Profile slow requests" }).click();
  const dialog = see.getByRole("dialog", { name: "Profile slow requests" });
  assert.deepEqual([await dialog.getByLabel("Service").inputValue(), await dialog.getByLabel("Endpoint").inputValue()], [name, "/buy"]);
  await dialog.getByLabel("From").fill("0");
  await dialog.getByLabel("Ordinary requests").fill("0");
  await dialog.getByRole("button", { name: "Start" }).click();
  await see.getByRole("region", { name: "Task", exact: true }).waitFor();
  const task = new URL(see.url()).searchParams.get("task");
  await until("the agent has the task", async () => await states(task) === "armed");
  // Snapshots come every half second, and on a busy machine the agent misses many.
  const rows = see.getByRole("region", { name: "Kept requests" }).locator("tbody tr");
  let kept, trace;
  await until("a request is kept", async () => {
    await app.buy();
    kept = (await api(`tasks/${task}/requests`)).requests;
    for (const q of kept.filter((q) => q.outcome === "kept")) {
      const { groups } = await api(`requests/${q.trace_id}/analysis?task=${task}&lines=false`);
      const of = (fn) => groups.flatMap((g) => g.rows).filter((r) => r.function === fn).reduce((sum, r) => sum + r.total_ns / 1e6, 0);
      trace ??= of(slowly) >= 300 && of(quickly) >= 100 ? q.trace_id : undefined;
    }
    return trace !== undefined;
  });
  await until("the page has the same requests", async () => {
    kept = (await api(`tasks/${task}/requests`)).requests;
    return await rows.count() === kept.length;
  });
  await p.shot(`skywalking-task-${shot}`);
  await rows.nth(kept.findIndex((q) => q.trace_id === trace)).getByRole("button").first().click();
  await see.getByRole("region", { name: "Kept request", exact: true }).waitFor();
  assert.match(await see.getByRole("region", { name: "Trace" }).innerText(), /\/buy/);
  await see.locator(".flame canvas").first().waitFor();
  assert.match(await see.getByRole("region", { name: "Time by state" }).innerText(), /SkyWalking's agents send snapshots, and no time by state/);
  await p.shot(`skywalking-request-${shot}`);
  await see.getByRole("button", { name: "Calls", exact: true }).click();
  await see.getByRole("treegrid").first().waitFor();
  const calls = await see.getByRole("treegrid").locator("tbody tr").evaluateAll((trs) => trs.map((tr) => [...tr.cells].map((td) => td.innerText.replace(/\s+/g, " ").trim())));
  const ms = (text) => parseFloat(text.replace(/,/g, "")) * { ns: 1e-6, "µs": 1e-3, ms: 1, s: 1e3 }[text.split(" ")[1]];
  const of = (fn) => calls.filter((c) => c[0].replace(/^[▾▸]\s*/, "").replace(/ \(among.*/, "") === fn).reduce((sum, c) => sum + ms(c[1]), 0);
  assert.equal(new URL(see.url()).searchParams.get("trace"), trace);
  const took = kept.find((q) => q.trace_id === trace).duration_ms;
  const found = { slowly: of(slowly), quickly: of(quickly), missed: of("[not sampled]") };
  console.log(`# ${name}: of ${took} ms ${JSON.stringify(found)}`);
  // 600 ms and 200 ms; an agent on a busy machine begins late.
  assert.ok(found.slowly + found.missed >= 540 && found.slowly >= 300 && found.quickly >= 100, JSON.stringify({ found, calls }));
  assert.ok(found.slowly + found.quickly + found.missed <= took + 1, `they are parts of the ${took} ms`);
  await p.shot(`skywalking-calls-${shot}`);
  await see.goto(`${url}?view=tasks&task=${task}`);
  await see.getByRole("region", { name: "Task", exact: true }).waitFor();
  await p.done();
  await api(`tasks/${task}/cancel`, "POST");
}

// Both wait for agents most of the time.
describe("skywalking", { concurrency: true }, () => {
  it("skywalking: a task of an agent for Python, from the endpoint to the calls of a request", { skip, timeout: 600000 }, async (t) => {
    const { path, missing } = fetched("python");
    if (missing)
      return t.skip(missing);
    const app = await service(path, [join(top, "tests/server/skywalking_app.py"), `127.0.0.1:${port}`, "till", "1"]);
    await profileOnPage("till", app, ["slowly", "quickly"], "python");
    app.p.stdin.end();
  });

  it("skywalking: the same of an agent for Java, and a task of async-profiler", { skip, timeout: 600000 }, async (t) => {
    const at = join(folder, "java");
    mkdirSync(at);
    const { missing } = fetched("java", at);
    if (missing)
      return t.skip(missing);
    const settings = { "agent.service_name": "shop", "agent.instance_name": "shop-1", "collector.backend_service": `127.0.0.1:${port}`,
      "collector.get_profile_task_interval": 1, "collector.heartbeat_period": 1, "logging.output": "CONSOLE" };
    const app = await service("java", ["-Xmx128m", ...Object.entries(settings).map(([k, v]) => `-Dskywalking.${k}=${v}`),
      `-javaagent:${at}/agent/skywalking-agent.jar`, "-cp", `${at}/shop`, "Shop"]);
    await profileOnPage("shop", app, ["Shop.slowly", "Shop.quickly"], "java");
    const { id } = await api("tasks", "POST", { service: "shop", kind: "async-profiler", events: "cpu,alloc", duration_ms: 5000 });
    await until("the agent has the task", async () => await states(id) === "armed");
    const p = await openUrl(`${url}?view=tasks`, { said: /status of 4/ });
    await p.page.getByRole("button", { name: "async-profiler: cpu,alloc" }).click();
    await p.page.getByRole("region", { name: "Task", exact: true }).waitFor();
    await until("the agent has delivered", async () => {
      await app.buy();
      return await states(id) !== "armed";
    });
    assert.equal(await states(id), "ended", JSON.stringify(await api(`tasks/${id}`)));
    await until("the page says so", async () => /has stopped|samples in/.test(await p.page.getByRole("region", { name: "Task", exact: true }).innerText()));
    await p.shot("skywalking-async-task");
    await p.page.getByRole("button", { name: "Show the profiles" }).click();
    await p.page.locator(".flame canvas").first().waitFor();
    await p.page.locator(".search input").fill("Shop.slowly");
    // A JVM that has just started compiles much, and on a busy machine the service gets little of a CPU.
    await until("its function", async () => parseFloat(await p.page.locator(".search output b").innerText()) > 3);
    await p.shot("skywalking-async-profile");
    await p.done();
    app.p.stdin.end();
  });
});
