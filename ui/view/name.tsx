// SPDX-License-Identifier: Apache-2.0
/* A name that gives way in its middle: its end tells the function, its start the namespace. */

const TAIL = 14;

export function Name({ text }: { text: string }): preact.JSX.Element {
  if (text.length < 2 * TAIL)
    return <>{text}</>;
  // Between characters, not between the halves of one.
  const at = text.length - TAIL - (/[\udc00-\udfff]/.test(text[text.length - TAIL]!) ? 1 : 0);
  return <span class="name"><span>{text.slice(0, at)}</span><span>{text.slice(at)}</span></span>;
}
