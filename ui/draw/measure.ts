// SPDX-License-Identifier: Apache-2.0
/*
 * Widths of texts without asking the browser each time: ASCII letters are measured once and added
 * up (kerning is ignored; it makes texts shorter, never longer), other characters on first sight.
 */
import { cutMiddle, shorter } from "../model/text.ts";

export class TextWidths {
  private readonly ctx: CanvasRenderingContext2D;
  private readonly known = new Map<string, number>();
  private readonly ascii = new Float32Array(128);
  private sums = new Float32Array(256);
  private readonly forms = new Map<string, { text: string; width: number }[]>();
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

  of(s: string): number {
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
    return sums[n]!;
  }

  /**
   * The name as it fits into `max` pixels: whole, without parameters, without namespaces, and at
   * last cut in its middle; "" when nothing fits.
   */
  fit(name: string, max: number): string {
    let forms = this.forms.get(name);
    if (!forms) {
      forms = shorter(name).map((text) => ({ text, width: this.of(text) }));
      // Bounded: a page that lives long must not keep every name that it ever showed.
      if (this.forms.size > 20000)
        this.forms.clear();
      this.forms.set(name, forms);
    }
    return this.first(forms, max);
  }

  /** The same for what is no function's name: whole or cut in its middle. */
  fitPlain(text: string, max: number): string {
    return this.first([{ text, width: this.of(text) }], max);
  }

  private first(forms: { text: string; width: number }[], max: number): string {
    for (const f of forms)
      if (f.width <= max)
        return f.text;
    const last = forms[forms.length - 1]!.text;
    this.of(last);
    const sums = this.sums;
    const cut = cutMiddle(last, max, (i) => sums[i]!, this.dots);
    // A letter or two and dots name nothing.
    return cut.length < 5 ? "" : cut;
  }
}
