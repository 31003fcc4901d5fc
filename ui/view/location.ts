// SPDX-License-Identifier: Apache-2.0
/*
 * The page's address in the browser. A change costs the browser 7 ms of CPU time and redraws the icon, and browsers
 * refuse more than a hundred changes in half a minute. So of replacements, which happen with each letter, the first is
 * written at once, and the last one after a moment without further ones.
 */
const QUIET_MS = 250;

let timer = 0;
let waiting: URL | null = null;

/** The current address, including a replacement that is not written yet. */
export function address(): URL {
  return waiting ?? new URL(location.href);
}

function rest(): void {
  timer = 0;
  if (waiting && waiting.href !== location.href)
    try {
      history.replaceState(history.state, "", waiting);
    } catch {
      // Some browsers refuse changes for files. The next entry has the state.
    }
  waiting = null;
}

function settle(): void {
  clearTimeout(timer);
  rest();
}

/** Replaces the current address, to which `url` is relative. */
export function replace(url: string): void {
  waiting = new URL(url, address());
  if (timer === 0)
    rest();
  clearTimeout(timer);
  timer = window.setTimeout(rest, QUIET_MS);
}

/** Makes a new entry in the history; `sheet`: that of a sheet over the page, which leave() takes back. */
export function enter(url: string, sheet = false): void {
  const to = new URL(url, address());
  settle();
  try {
    history.pushState(sheet ? { sheet } : null, "", to);
  } catch {
    location.hash = to.hash;
  }
}

/** Closes a sheet: back to the entry before it, so that "back" does not open the sheet again. One from a link has no such entry. */
export function leave(url: string): void {
  settle();
  if ((history.state as { sheet?: boolean } | null)?.sheet)
    history.back();
  else
    replace(url);
}

addEventListener("pagehide", settle);
// After "back", drop a waiting replacement, which was for the entry that was left.
addEventListener("popstate", () => {
  waiting = null;
});
