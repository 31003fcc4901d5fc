// SPDX-License-Identifier: Apache-2.0
/* What a reader has set for all views, in localStorage, which a browser may refuse. A link that says otherwise wins. */
import type { Theme } from "../draw/colour.ts";

const PREFIX = "culprit-";

export function recall(key: string): string {
  try {
    return localStorage.getItem(PREFIX + key) ?? "";
  } catch {
    return "";
  }
}

export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(PREFIX + key, value);
  } catch {
    // It holds until the page closes.
  }
}

/** The remembered theme; null: that of the system. */
export function recallTheme(): Theme | null {
  const t = recall("theme");
  return t === "dark" || t === "light" ? t : null;
}
