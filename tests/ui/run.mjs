// SPDX-License-Identifier: Apache-2.0
/*
 * make check-ui: installs playwright-core (no browser of its own) and runs the browser tests.
 *
 *	node tests/ui/run.mjs [--quick | NAME]	all, those that ./check runs, or the test of this name alone
 */
import { spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { install } from "../../ui/build.mjs";

const here = dirname(fileURLToPath(import.meta.url));
install(here);
const all = ["page", "live", "bugs", "server", "views", "waits", "servers", "traces", "tasks", "kept", "policies", "skywalking", "hostile", "up", "trial", "demo", "tour", "growth", "measure", "overtime", "mycode", "first", "answers", "walk"];
// They wait for the agents of others, for minutes.
const slow = ["skywalking"];
const quick = process.argv[2] === "--quick";
const name = quick ? undefined : process.argv[2];
// A test's name begins with that of its file.
const files = all.includes(name?.split(":")[0]) ? [name.split(":")[0]] : all.filter((t) => !(quick && slow.includes(t)));
const chosen = name === undefined ? [] : [`--test-name-pattern=/^${name.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")}$/`];
// Two files at a time: a browser waits much of its time.
const r = spawnSync(process.execPath, ["--test", "--test-concurrency=2", ...chosen, ...files.map((t) => join(here, `${t}.test.mjs`))], { stdio: "inherit" });
process.exit(r.status ?? 1);
