// SPDX-License-Identifier: Apache-2.0
/* What threads waited for, as rows of a table, and as a filter. */
import type { Filter } from "./address.ts";
import { without } from "./address.ts";
import type { Lines } from "./series.ts";
import { WAIT_LABEL, waitNamed } from "./vocab.ts";
import type { Wait } from "./vocab.ts";

export interface WaitRow {
  /** As the server names it; "" for samples that do not tell. */
  name: string;
  /** Undefined for a name that is not in the table. */
  wait: Wait | undefined;
  value: number;
  share: number;
  /** The number of samples. */
  count: number;
}

/** The categories, heaviest first; of an answer that is grouped by WAIT_LABEL. */
export function waitRows(l: Lines): WaitRow[] {
  const rows = l.lines.map((line) => {
    const name = line.labels[WAIT_LABEL] ?? "";
    const row: WaitRow = { name, wait: waitNamed(name), value: 0, share: 0, count: 0 };
    for (const [, v, n] of line.points) {
      row.value += v;
      row.count += n;
    }
    return row;
  });
  const all = rows.reduce((sum, r) => sum + r.value, 0);
  for (const r of rows)
    r.share = all > 0 ? r.value / all : 0;
  return rows.sort((a, b) => b.value - a.value || (a.name < b.name ? -1 : 1));
}

/** The chosen category, "" for all. */
export function waitOf(filters: Filter[]): string {
  return filters.find((f) => f.label === WAIT_LABEL && !f.not)?.value ?? "";
}

/** The filters with only this category, or with all if it was chosen already. */
export function toggleWait(filters: Filter[], name: string): Filter[] {
  const rest = without(filters, WAIT_LABEL);
  return waitOf(filters) === name ? rest : [...rest, { label: WAIT_LABEL, value: name, not: false }];
}
