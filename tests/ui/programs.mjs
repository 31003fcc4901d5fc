// SPDX-License-Identifier: Apache-2.0
/* Programs that a test starts, and a folder for them: nothing of either stays. */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { close } from "./page.mjs";

/** For the top of a test file. */
export function programs(name) {
  const folder = mkdtempSync(join(tmpdir(), `culprit-${name}-`));
  const running = new Set();
  after(async () => {
    await close();
    for (const r of running)
      r.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });
  function start(program, args, options) {
    const p = spawn(program, args, options);
    running.add(p);
    return p;
  }
  return { folder, start, running };
}
