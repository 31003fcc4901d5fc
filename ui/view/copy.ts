// SPDX-License-Identifier: Apache-2.0
/* Copies text to the clipboard; by the old API if the new one is not allowed (without HTTPS, some file pages). */

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "spoken";
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
