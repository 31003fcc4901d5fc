// SPDX-License-Identifier: Apache-2.0
/* make check-ui: installs playwright-core (no browser of its own) and runs the browser tests. */
import { spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { install } from "../../ui/build.mjs";

const here = dirname(fileURLToPath(import.meta.url));
install(here);
// Two files at a time: a browser waits much of its time.
const r = spawnSync(process.execPath, ["--test", "--test-concurrency=2", ...["page", "live", "server", "views", "traces", "hostile", "up", "trial", "demo", "tour"].map((t) => join(here, `${t}.test.mjs`))], { stdio: "inherit" });
process.exit(r.status ?? 1);
