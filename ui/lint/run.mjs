// SPDX-License-Identifier: Apache-2.0
/* npm run lint: ESLint over ui and tests/ui. It is a package of its own, because a build needs no linter. */
import { spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { install } from "../build.mjs";

const here = dirname(fileURLToPath(import.meta.url));
install(here);
const r = spawnSync(process.execPath, [join(here, "node_modules/eslint/bin/eslint.js"), "--config", join(here, "eslint.config.mjs"),
  "--max-warnings=0", "ui", "tests/ui"], { cwd: join(here, "../.."), stdio: "inherit" });
process.exit(r.status ?? 1);
