// SPDX-License-Identifier: Apache-2.0
/*
 * Widths of texts without asking the browser each time: ASCII letters are measured once and added
 * up (kerning is ignored; it makes texts shorter, never longer), other characters on first sight.
 */
import { cutMiddle } from "../model/text.ts";

export class TextWidths {
  private readonly ctx: CanvasRenderingContext2D;
  private readonly known = new Map<string, number>();
  private readonly ascii = new Float32Array(128);
  private sums = new Float32Array(256);
  readonly dots: number;

  constructor(ctx: CanvasRenderingContext2D) {
    this.ctx = ctx;
    for (let c = 32; c < 127; c++)
      this.ascii[c] = ctx.measureText(String.fromCharCode(c)).width;
    this.dots = ctx.measureText("…").width;
  }

  private other(ch: string): number {
    let w = this.known.get(ch);
    if (w === undefined)
      this.known.set(ch, w = this.ctx.measureText(ch).width);
    return w;
  }

  /** The text cut in its middle to `max` pixels; "" when nothing useful fits. */
  fit(s: string, max: number): string {
    // No letter is wider than 1.2 em in practice; a short text in a wide box needs no sums.
    const n = s.length;
    if (n > this.sums.length - 1)
      this.sums = new Float32Array(2 * n);
    const sums = this.sums;
    sums[0] = 0;
    for (let i = 0; i < n; i++) {
      const c = s.charCodeAt(i);
      let w;
      if (c < 128) {
        w = this.ascii[c]!;
      } else if (c >= 0xd800 && c < 0xdc00 && i + 1 < n) {
        w = this.other(s.slice(i, i + 2));
      } else if (c >= 0xdc00 && c < 0xe000 && i > 0) {
        w = 0;
      } else {
        w = this.other(s[i]!);
      }
      sums[i + 1] = sums[i]! + w;
    }
    return cutMiddle(s, max, (i) => sums[i]!, this.dots);
  }
}
