// SPDX-License-Identifier: Apache-2.0
/*
 * A name that is shortened where it matters least: first in its parameters, then in its namespaces;
 * a name without those in its middle. Only the display is cut; the text is complete.
 */
import { nameParts } from "../model/text.ts";

const TAIL = 14;

function Parts(p: { scope: string; own: string; rest: string }): preact.JSX.Element {
  return (
    <span class="name">
      <span class="front">{p.scope !== "" && <span class="scope">{p.scope}</span>}<span class="own">{p.own}</span></span>
      {p.rest !== "" && <span class="rest">{p.rest}</span>}
    </span>
  );
}

export function Name({ text }: { text: string }): preact.JSX.Element {
  const { scope, base, rest } = nameParts(text);
  if (scope !== "" || rest !== "")
    return <Parts scope={scope} own={base} rest={rest} />;
  if (text.length < 2 * TAIL)
    return <>{text}</>;
  // Do not cut between the halves of a surrogate pair.
  const at = text.length - TAIL - (/[\udc00-\udfff]/.test(text[text.length - TAIL]!) ? 1 : 0);
  return <Parts scope={text.slice(0, at)} own={text.slice(at)} rest="" />;
}
