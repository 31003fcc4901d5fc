// SPDX-License-Identifier: Apache-2.0
/* A row of a table that opens something wherever it is clicked. Its button is for the keyboard; a click on it is one on the row. */

export function opens(act: () => void): { class: string; onClick: () => void } {
  return { class: "opens", onClick: () => {
    // The end of a drag that marks text is no choice.
    if (getSelection()?.isCollapsed !== false)
      act();
  } };
}
