// SPDX-License-Identifier: Apache-2.0
/* Programs that are started for a test, and a folder for them: nothing of either stays after end(). */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { close } from "./page.mjs";

/** What they take to end by themselves; culprit says that it needs ten seconds at most. */
const PATIENCE_MS = 15000;

/** Ends one that is asked to, and those that it started with it; its status, null when it had to be killed. */
export async function stop(program, signal = "SIGTERM") {
  if (program.exitCode !== null || program.signalCode !== null)
    return program.exitCode;
  const over = once(program, "exit");
  program.kill(signal);
  const late = setTimeout(() => program.kill("SIGKILL"), PATIENCE_MS);
  const [code] = await over;
  clearTimeout(late);
  return code;
}

/** The first address that a program says. */
export async function saidUrl(program) {
  for await (const line of createInterface(program.stdout)) {
    const url = /http:\/\/\S+/.exec(line)?.[0];
    if (url)
      return url;
  }
  throw new Error("it ended without an address");
}

export function programs(name) {
  const folder = mkdtempSync(join(tmpdir(), `culprit-${name}-`));
  /* The server of `culprit up` is another user, who enters it; `culprit server` has to be told of root. */
  chmodSync(folder, 0o755);
  process.env.CULPRIT_ALLOW_ROOT = "yes";
  if (!(statSync("/").mode & 1)) // as in tests/live/conftest.py
    process.env.CULPRIT_USER = "root";
  const all = [];
  const start = (program, args, options) => {
    const p = spawn(program, args, options);
    all.push(p);
    return p;
  };
  /** For after(), and the browser with it. */
  const end = async () => {
    await close();
    await Promise.all(all.map((p) => stop(p)));
    rmSync(folder, { recursive: true, force: true });
  };
  return { folder, start, end };
}
