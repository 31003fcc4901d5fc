// SPDX-License-Identifier: Apache-2.0
/*
 * Paints boxes onto a canvas as large as the window of the scroll area, never as large as the
 * tree. Boxes are painted by colour (setting a fill style costs more than a rectangle), labels
 * after them. What the pointer or the keyboard is on goes to an overlay of its own, so that moving
 * the pointer repaints nothing else.
 */
import type { Boxes } from "../model/layout.ts";
import { holdsMatch } from "../model/search.ts";
import type { Matches } from "../model/search.ts";
import { COLLAPSED, GROUP, INLINED, nodeName } from "../model/tree.ts";
import type { Profile, Tree } from "../model/tree.ts";
import type { Colouring, Theme } from "./colour.ts";
import { TextWidths } from "./measure.ts";

export const ROW = 19;
const GAP = 1;
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif';
const MIN_LABEL = 22;

export interface Look {
  background: string;
  text: string;
  dimText: string;
  match: string;
  matchText: string;
  hatch: string;
  hatchBack: string;
  ring: string;
  border: string;
}

export const LOOKS: Record<Theme, Look> = {
  light: {
    background: "#ffffff", text: "#1c1f24", dimText: "rgba(28,31,36,.42)", match: "#c026d3",
    matchText: "#ffffff", hatch: "#9aa3b0", hatchBack: "#eef0f3", ring: "#111318", border: "#b9c0ca",
  },
  dark: {
    background: "#14171c", text: "#ffffff", dimText: "rgba(242,244,247,.42)", match: "#b344c6",
    matchText: "#ffffff", hatch: "#5d6674", hatchBack: "#22262d", ring: "#ffffff", border: "#4a525e",
  },
};

export interface Scene {
  profile: Profile;
  tree: Tree;
  boxes: Boxes;
  colours: Colouring;
  theme: Theme;
  matches: Matches | null;
  icicle: boolean;
  /** Rows in all; the canvas shows those from scrollTop. */
  rows: number;
}

export interface Viewport {
  width: number;
  height: number;
  scrollTop: number;
}

/** Top of a row in the scroll area. A flame graph shorter than the window stands on its floor. */
export function rowTop(row: number, s: { icicle: boolean; rows: number }, height: number): number {
  return s.icicle ? row * ROW : Math.max(s.rows * ROW, height) - (row + 1) * ROW;
}

export function rowAt(y: number, s: { icicle: boolean; rows: number }, height: number): number {
  return s.icicle ? Math.floor(y / ROW)
                  : Math.ceil((Math.max(s.rows * ROW, height) - y) / ROW) - 1;
}

/** One that hides what is behind it (`alpha` false) need not be mixed with that at each frame. */
function context(canvas: HTMLCanvasElement, alpha = true): CanvasRenderingContext2D {
  const ctx = canvas.getContext("2d", { alpha });
  if (!ctx)
    throw new Error("this browser has no canvas");
  return ctx;
}

export class Painter {
  private readonly ctx: CanvasRenderingContext2D;
  private readonly over: CanvasRenderingContext2D;
  private widths: TextWidths;
  private readonly hatches = new Map<string, CanvasPattern>();
  private view: Viewport = { width: 0, height: 0, scrollTop: 0 };
  private ratio = 1;
  private order = new Uint32Array(0);
  private styles = new Uint16Array(0);

  constructor(private readonly canvas: HTMLCanvasElement,
              private readonly overlay: HTMLCanvasElement) {
    this.ctx = context(canvas, false);
    this.over = context(overlay);
    this.ctx.font = FONT;
    this.widths = new TextWidths(this.ctx);
  }

  resize(width: number, height: number): void {
    const ratio = globalThis.devicePixelRatio || 1;
    if (width === this.view.width && height === this.view.height && ratio === this.ratio)
      return;
    this.ratio = ratio;
    this.view.width = width;
    this.view.height = height;
    for (const c of [this.canvas, this.overlay]) {
      c.width = Math.round(width * ratio);
      c.height = Math.round(height * ratio);
      c.style.width = `${width}px`;
      c.style.height = `${height}px`;
    }
    this.hatches.clear();
  }

  private hatch(line: string, back: string): CanvasPattern {
    const key = line + back;
    let p = this.hatches.get(key);
    if (!p) {
      const n = Math.max(4, Math.round(5 * this.ratio));
      const tile = document.createElement("canvas");
      tile.width = tile.height = n;
      const t = context(tile);
      t.fillStyle = back;
      t.fillRect(0, 0, n, n);
      t.strokeStyle = line;
      t.lineWidth = this.ratio;
      t.beginPath();
      for (const o of [-n, 0, n]) {
        t.moveTo(o - 1, n + 1);
        t.lineTo(o + n + 1, -1);
      }
      t.stroke();
      p = this.ctx.createPattern(tile, "repeat")!;
      this.hatches.set(key, p);
    }
    return p;
  }

  /**
   * A style is a number: palette index × 4 + 2 for "does not match while others do";
   * behind the palette: matches, then the folded boxes.
   */
  private style(s: Scene, i: number): number {
    const { boxes: b, matches: m, tree } = s;
    const node = b.node[i]!;
    const base = s.colours.palette.length * 4;
    if (b.folded[i]! > 0) {
      const hot = m !== null && holdsMatch(m, tree, node, b.last[i]!);
      return base + 4 + (hot ? 4 : 0);
    }
    if (m && (m.frames[tree.frame[node]!] || m.boxes?.[node]))
      return base;
    return s.colours.of[node]! * 4 + (m ? 2 : 0);
  }

  /** Visible boxes ordered by style, as indices in this.order; their number is returned. */
  private collect(s: Scene): number {
    const b = s.boxes;
    if (this.order.length < b.n) {
      this.order = new Uint32Array(b.node.length);
      this.styles = new Uint16Array(b.node.length);
    }
    const kinds = s.colours.palette.length * 4 + 12;
    const counts = new Uint32Array(kinds + 1);
    const { height, scrollTop } = this.view;
    let lo = Infinity;
    let hi = -1;
    for (const y of [scrollTop, scrollTop + height]) {
      const r = rowAt(y, s, height);
      lo = Math.min(lo, r - 1);
      hi = Math.max(hi, r + 1);
    }
    const hidden = kinds;
    for (let i = 0; i < b.n; i++) {
      const r = b.row[i]!;
      const st = r < lo || r > hi ? hidden : this.style(s, i);
      this.styles[i] = st;
      if (st !== hidden)
        counts[st + 1]!++;
    }
    for (let k = 1; k <= kinds; k++)
      counts[k]! += counts[k - 1]!;
    const n = counts[kinds]!;
    for (let i = 0; i < b.n; i++) {
      const st = this.styles[i]!;
      if (st !== hidden)
        this.order[counts[st]!++] = i;
    }
    return n;
  }

  paint(s: Scene, scrollTop: number): void {
    this.view.scrollTop = scrollTop;
    const { ctx, ratio } = this;
    const look = LOOKS[s.theme];
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.globalAlpha = 1;
    ctx.fillStyle = look.background;
    ctx.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const n = this.collect(s);
    this.boxes(s, n, look);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.labels(s, n, look);
  }

  /** In device pixels, so that edges are sharp at any ratio. */
  private boxes(s: Scene, n: number, look: Look): void {
    const { ctx, ratio, order, styles } = this;
    const b = s.boxes;
    const base = s.colours.palette.length * 4;
    const gap = Math.max(1, Math.round(GAP * ratio));
    const h = Math.round(ROW * ratio) - gap;
    const flags = s.profile.frames.flags;
    let current = -1;
    for (let k = 0; k < n; k++) {
      const i = order[k]!;
      const st = styles[i]!;
      if (st !== current) {
        current = st;
        this.use(s, st, base, look);
      }
      const x0 = Math.round(b.x[i]! * ratio);
      const x1 = Math.round((b.x[i]! + b.w[i]!) * ratio);
      const y = Math.round((rowTop(b.row[i]!, s, this.view.height) - this.view.scrollTop) * ratio);
      const w = Math.max(1, x1 - x0 - (x1 - x0 > 3 * gap ? gap : 0));
      ctx.fillRect(x0, y, w, h);
      // Told apart without colour as well: inlined frames have a line along their caller's side.
      if (w > 5 * ratio && b.folded[i] === 0 && flags[s.tree.frame[b.node[i]!]!]! & INLINED)
        this.inlinedMark(x0, s.icicle ? y : y + h - 2 * gap, w, 2 * gap, s.theme);
    }
    ctx.globalAlpha = 1;
  }

  private inlinedMark(x: number, y: number, w: number, h: number, theme: Theme): void {
    const { ctx } = this;
    const fill = ctx.fillStyle;
    ctx.fillStyle = theme === "dark" ? "rgba(255,255,255,.28)" : "rgba(90,60,0,.30)";
    ctx.fillRect(x, y, w, h);
    ctx.fillStyle = fill;
  }

  private use(s: Scene, st: number, base: number, look: Look): void {
    const { ctx } = this;
    if (st >= base + 8)
      ctx.fillStyle = this.hatch(look.match, look.hatchBack);
    else if (st >= base + 4)
      ctx.fillStyle = this.hatch(look.hatch, look.hatchBack);
    else if (st >= base)
      ctx.fillStyle = look.match;
    else
      ctx.fillStyle = s.colours.palette[st >> 2]!;
    ctx.globalAlpha = st < base && st & 2 ? 0.35 : 1;
  }

  private label(s: Scene, i: number, max: number): string {
    const n = s.boxes.folded[i]!;
    if (n > 0) {
      const words = `${n} frames`;
      return this.widths.of(words) <= max ? words : this.widths.of(String(n)) <= max ? String(n) : "";
    }
    const frame = s.tree.frame[s.boxes.node[i]!]!;
    const name = nodeName(s.profile, s.tree, s.boxes.node[i]!);
    // "kworker/0:1" is no path.
    return s.profile.frames.flags[frame]! & (GROUP | COLLAPSED) ? this.widths.fitPlain(name, max) : this.widths.fit(name, max);
  }

  private labels(s: Scene, n: number, look: Look): void {
    const { ctx, order, styles, widths } = this;
    const b = s.boxes;
    const base = s.colours.palette.length * 4;
    ctx.font = FONT;
    ctx.textBaseline = "middle";
    let current = "";
    for (let k = 0; k < n; k++) {
      const i = order[k]!;
      const w = b.w[i]!;
      if (w < MIN_LABEL)
        continue;
      const st = styles[i]!;
      const cut = this.label(s, i, w - 7);
      if (cut === "")
        continue;
      const y = rowTop(b.row[i]!, s, this.view.height) - this.view.scrollTop;
      if (b.folded[i]! > 0) {
        // Letters are not readable on hatching.
        ctx.fillStyle = current = look.hatchBack;
        ctx.fillRect(b.x[i]! + 2, y + 2, Math.min(w - 4, widths.of(cut) + 4), ROW - GAP - 4);
      }
      const dim = st < base && (st & 3) !== 0;
      const colour = st >= base && st < base + 4 ? look.matchText : dim ? look.dimText : look.text;
      if (colour !== current)
        ctx.fillStyle = current = colour;
      ctx.fillText(cut, b.x[i]! + 4, y + (ROW - GAP) / 2 + 0.5);
    }
  }

  /** Outlines: the box under the pointer, the one with the keyboard's focus, those of a table row. */
  mark(s: Scene, hovered: number, focused: number, linked: number[]): void {
    const { over, ratio } = this;
    // What marks nothing need not be mixed with the picture.
    const nothing = hovered < 0 && focused < 0 && linked.length === 0;
    if (nothing && this.overlay.hidden)
      return;
    over.setTransform(1, 0, 0, 1, 0, 0);
    over.clearRect(0, 0, this.overlay.width, this.overlay.height);
    this.overlay.hidden = nothing;
    if (nothing)
      return;
    over.setTransform(ratio, 0, 0, ratio, 0, 0);
    const look = LOOKS[s.theme];
    const box = (i: number, width: number): void => {
      if (i < 0 || i >= s.boxes.n)
        return;
      const y = rowTop(s.boxes.row[i]!, s, this.view.height) - this.view.scrollTop;
      const x = s.boxes.x[i]!;
      over.strokeStyle = look.ring;
      over.lineWidth = width;
      over.strokeRect(x + width / 2 - 0.5, y + width / 2 - 0.5,
                      Math.max(1, s.boxes.w[i]! - width), ROW - GAP - width + 1);
    };
    for (const i of linked)
      box(i, 2);
    if (hovered >= 0 && hovered !== focused) {
      over.globalAlpha = 0.75;
      box(hovered, 1.5);
      over.globalAlpha = 1;
    }
    box(focused, 2.5);
  }
}
