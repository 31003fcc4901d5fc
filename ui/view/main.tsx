// SPDX-License-Identifier: Apache-2.0
/* Starts the self-contained page: finds the payload, and shows the profile or an error. */
import { render } from "preact";
import { readPayload } from "../model/payload.ts";
import { DataError } from "../model/tree.ts";
import { App } from "./app.tsx";
import "./style.css";

function fail(root: HTMLElement, text: string): void {
  render(
    <div class="boot" role="alert">
      <h1>culprit</h1>
      <p>This flame graph cannot be shown: {text}.</p>
    </div>, root);
}

async function boot(): Promise<void> {
  const root = document.getElementById("app")!;
  const data = document.getElementById("culprit-data");
  try {
    if (!data)
      throw new DataError("the page has no data: the file was cut short");
    const from = performance.now();
    const profile = await readPayload(data.textContent ?? "");
    // For the browser's performance panel and tests/ui/bench.mjs.
    performance.measure("payload", { start: from });
    // The text may be large and is not needed any more.
    data.remove();
    if (profile.meta.title)
      document.title = `${profile.meta.title} – culprit`;
    render(<App file profile={profile} />, root);
  } catch (e) {
    fail(root, e instanceof Error ? e.message : String(e));
    if (!(e instanceof DataError))
      throw e;
  }
}

if (document.readyState === "loading")
  document.addEventListener("DOMContentLoaded", () => void boot());
else
  void boot();
