// SPDX-License-Identifier: Apache-2.0
/* To the clipboard; the old way where the new one is not allowed (pages without HTTPS, some file pages). */

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
