// SPDX-License-Identifier: Apache-2.0
/*
 * The page's address, as the browser shows it. Being told a new one costs the browser 7 ms of CPU and draws the icon
 * anew, and it refuses more than a hundred in half a minute; so of changes in place, which come letter by letter, the
 * first is written at once, and then the last when no more have come for a moment.
 */
const QUIET_MS = 250;

let timer = 0;
let waiting: URL | null = null;

/** What the address is, or is about to be. */
export function address(): URL {
  return waiting ?? new URL(location.href);
}

function rest(): void {
  timer = 0;
  if (waiting && waiting.href !== location.href)
    try {
      history.replaceState(null, "", waiting);
    } catch {
      // Some browsers refuse history for files. The next entry will tell.
    }
  waiting = null;
}

function settle(): void {
  clearTimeout(timer);
  rest();
}

/** Takes the place of the address that there is, to which `url` is relative. */
export function replace(url: string): void {
  waiting = new URL(url, address());
  if (timer === 0)
    rest();
  clearTimeout(timer);
  timer = window.setTimeout(rest, QUIET_MS);
}

/** A new entry of the history, which "back" leaves. */
export function enter(url: string): void {
  const to = new URL(url, address());
  settle();
  try {
    history.pushState(null, "", to);
  } catch {
    location.hash = to.hash;
  }
}

addEventListener("pagehide", settle);
// Who went back is elsewhere: what waited was of the entry that was left.
addEventListener("popstate", () => {
  waiting = null;
});
