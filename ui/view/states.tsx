// SPDX-License-Identifier: Apache-2.0
/* Time by state: a bar of parts in the colours of waits, and the parts as text. */
import { showable } from "../model/payload.ts";
import { sumMs } from "../model/tasks.ts";
import type { State } from "../model/tasks.ts";
import { duration } from "../model/text.ts";

/** Of a state that is in no table: what the agent does not know. */
const UNKNOWN = { light: "#c7c7c7", dark: "#3d4048" };

export const stateColour = (s: State, dark: boolean): string => (s.wait ?? UNKNOWN)[dark ? "dark" : "light"];
export const stateText = (s: State): string => `${showable(s.name)} ${duration(1e6 * s.ms)}`;
export const statesText = (states: State[]): string => states.map(stateText).join(", ");

/** Parts of a whole, whose rest stays empty. */
export function StateBar(p: { states: State[]; whole: number; dark: boolean }): preact.JSX.Element {
  const whole = Math.max(p.whole, sumMs(p.states));
  return <span class="state-bar" title={statesText(p.states)} aria-hidden="true">{p.states.map((s) =>
    <b key={s.name} style={{ width: `${100 * s.ms / whole}%`, background: stateColour(s, p.dark) }} />)}</span>;
}
