// SPDX-License-Identifier: Apache-2.0
/*
 * One flame graph: a scroll area with a canvas that stays in its window, pointer and keyboard.
 * The parent decides what is zoomed (props); this component animates the way there. It paints only
 * in requestAnimationFrame callbacks.
 */
import { Component, createRef } from "preact";
import type { Colouring, Theme } from "../draw/colour.ts";
import { Painter, ROW, rowAt, rowTop } from "../draw/paint.ts";
import type { Scene } from "../draw/paint.ts";
import { boxOf, Boxes, hit, layout } from "../model/layout.ts";
import type { Weights } from "../model/layout.ts";
import type { Matches } from "../model/search.ts";
import type { Profile, Tree } from "../model/tree.ts";

/** Frames narrower than this are folded with their neighbours; the second value is for the option to keep narrow ones. */
const MIN_PX = 2.5;
const KEPT_PX = 0.75;
export const ANIMATION_MS = 180;
const LONG_PRESS_MS = 500;

/** Siblings first … last; both are equal for a single frame. */
export interface Span {
  first: number;
  last: number;
}

export interface Spot extends Span {
  /** 0: a frame. Else the number of frames folded into the box. */
  folded: number;
}

/** The sum over all boxes of folded frames. */
export interface FoldedSum {
  frames: number;
  weight: number;
}

export interface Seek {
  node: number;
}

export interface Place {
  x: number;
  y: number;
}

interface Props {
  profile: Profile;
  tree: Tree;
  weights: Weights;
  colours: Colouring;
  theme: Theme;
  matches: Matches | null;
  icicle: boolean;
  narrow?: boolean;
  onFolded?: (f: FoldedSum) => void;
  zoom: Span;
  /** A node to scroll to, once for each new object. */
  seek?: Seek | null;
  /** Node with the keyboard's focus, -1 for none. */
  focus: number;
  /** Function ids by frame. The boxes of the function `linked` (-1: none) are outlined. */
  functionOf: Uint32Array;
  linked: number;
  label: string;
  onZoom: (s: Span) => void;
  onFocus: (node: number) => void;
  onHover: (s: Spot | null, at: Place, touch: boolean) => void;
  onMenu: (s: Spot, at: Place) => void;
}

function range(w: Weights, s: Span): [number, number] {
  return [w.start[s.first]!, w.start[s.last]! + w.total[s.last]!];
}

/** Adds up boxes of folded frames. None is below another, so nothing counts twice. */
function foldedSum(b: Boxes, weightOfPx: number): FoldedSum {
  const sum = { frames: 0, weight: 0 };
  for (let i = 0; i < b.n; i++)
    if (b.folded[i]! > 0) {
      sum.frames += b.folded[i]!;
      sum.weight += b.w[i]! * weightOfPx;
    }
  return sum;
}

export const calm = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;

export class Flame extends Component<Props> {
  private readonly scroller = createRef<HTMLDivElement>();
  private readonly spacer = createRef<HTMLDivElement>();
  private readonly canvas = createRef<HTMLCanvasElement>();
  private readonly overlay = createRef<HTMLCanvasElement>();
  private painter: Painter | null = null;
  private observer: ResizeObserver | null = null;
  private readonly shown = new Boxes();
  /** The inputs of the layout in `shown`. */
  private laid: readonly unknown[] = [];
  private v0 = 0;
  private v1 = 1;
  private from: [number, number] = [0, 1];
  private started = 0;
  private frame = 0;
  private rows = 1;
  private hovered: Spot | null = null;
  /** The last mouse event, to update the card when newer samples change the box under the mouse. */
  private mouse: PointerEvent | null = null;
  private lastTap: Spot | null = null;
  private pointer = "mouse";
  private press = 0;
  private held = false;
  private toBottom = true;
  /** Distance from the window's lower edge to the end of the scroll area, in a window of this height. */
  private floor = 0;
  private height = 0;

  override componentDidMount(): void {
    this.painter = new Painter(this.canvas.current!, this.overlay.current!);
    [this.v0, this.v1] = range(this.props.weights, this.props.zoom);
    this.from = [this.v0, this.v1];
    this.measure();
    this.observer = new ResizeObserver(() => this.measure());
    this.observer.observe(this.scroller.current!);
  }

  override componentWillUnmount(): void {
    this.observer?.disconnect();
    cancelAnimationFrame(this.frame);
    this.onUp();
  }

  /** Where a frame is on the screen, for its menu. */
  private placeOf(node: number): Place {
    const s = this.scroller.current!;
    const r = s.getBoundingClientRect();
    const i = boxOf(this.props.tree, this.shown, node);
    return i < 0 ? { x: r.left, y: r.top } : { x: r.left + this.shown.x[i]!,
      y: r.top + rowTop(this.shown.row[i]!, this.scene(), s.clientHeight) - s.scrollTop + ROW };
  }

  /** The page renders when the pointer moves; the picture renders only when its data changed. */
  override shouldComponentUpdate(next: Props): boolean {
    const keys = Object.keys(next) as (keyof Props)[];
    return keys.some((k) => typeof next[k] !== "function" && next[k] !== this.props[k]);
  }

  override componentDidUpdate(old: Props): void {
    const p = this.props;
    if (old.linked !== p.linked && Object.keys(p).every((k) => k === "linked" ||
        typeof p[k as keyof Props] === "function" || old[k as keyof Props] === p[k as keyof Props])) {
      this.mark();
      return;
    }
    if (old.tree !== p.tree || old.weights !== p.weights) {
      [this.v0, this.v1] = range(p.weights, p.zoom);
      this.started = 0;
      this.hovered = null;
      this.measureRows();
      if (old.profile === p.profile) {
        this.reveal(p.zoom.first);
      } else {
        // With newer samples the picture keeps its position.
        this.lastTap = null;
        this.paint();
        if (this.mouse)
          this.onMove(this.mouse);
      }
    } else if (old.zoom.first !== p.zoom.first || old.zoom.last !== p.zoom.last) {
      this.from = [this.v0, this.v1];
      this.started = calm() ? 0 : performance.now();
      if (this.started === 0)
        [this.v0, this.v1] = range(p.weights, p.zoom);
      this.measureRows();
      this.reveal(p.zoom.first);
    }
    if (old.icicle !== p.icicle || old.narrow !== p.narrow) {
      this.toBottom = true;
      this.measureRows();
    }
    if (old.focus !== p.focus && p.focus >= 0)
      this.reveal(p.focus);
    if (p.seek && old.seek !== p.seek)
      this.reveal(p.seek.node);
    this.schedule();
  }

  /** The painted boxes, for tests and the frame-rate bench. */
  get boxes(): Boxes {
    return this.shown;
  }

  private measure(): void {
    const s = this.scroller.current!;
    if (s.clientWidth === 0)
      return;
    this.painter!.resize(s.clientWidth, s.clientHeight);
    this.measureRows();
    this.paint();
  }

  /** Counts the rows at the end of the animation, and sets the height of the scroll area. */
  private measureRows(): void {
    const s = this.scroller.current!;
    const [a, b] = range(this.props.weights, this.props.zoom);
    const { tree, weights } = this.props;
    const target = layout(tree, weights, a, b, s.clientWidth, this.minPx(), new Boxes(), this.top());
    let deepest = 0;
    for (let i = 0; i < target.n; i++)
      deepest = Math.max(deepest, target.row[i]!);
    this.props.onFolded?.(foldedSum(target, (b - a) / s.clientWidth));
    // The scroll position may have changed before its event arrives.
    this.look();
    this.rows = deepest + 1;
    this.spacer.current!.style.height = `${this.rows * ROW}px`;
    // A flame graph's root is at the bottom.
    if (this.toBottom)
      this.floor = 0;
    this.height = s.clientHeight;
    if (!this.props.icicle)
      s.scrollTop = s.scrollHeight - this.floor - s.clientHeight;
    else if (this.toBottom)
      s.scrollTop = 0;
    this.toBottom = false;
  }

  /** The zoomed frame is in the first row; its callers are in the breadcrumb. */
  private top(): number {
    return this.props.tree.depth[this.props.zoom.first]!;
  }

  private minPx(): number {
    return this.props.narrow ? KEPT_PX : MIN_PX;
  }

  private reveal(node: number): void {
    const s = this.scroller.current!;
    const y = rowTop(Math.max(0, this.props.tree.depth[node]! - this.top()), this.scene(), s.clientHeight);
    const margin = Math.min(3 * ROW, s.clientHeight / 4);
    if (y < s.scrollTop + margin)
      s.scrollTop = y - margin;
    else if (y + ROW > s.scrollTop + s.clientHeight - margin)
      s.scrollTop = y + ROW + margin - s.clientHeight;
  }

  private scene(): Scene {
    const { profile, tree, colours, theme, matches, icicle } = this.props;
    return { profile, tree, boxes: this.shown, colours, theme, matches, icicle, rows: this.rows };
  }

  private schedule(): void {
    if (this.frame === 0)
      this.frame = requestAnimationFrame((now) => {
        this.frame = 0;
        this.step(now);
      });
  }

  private step(now: number): void {
    const [a, b] = range(this.props.weights, this.props.zoom);
    const t = this.started ? Math.min(1, Math.max(0, (now - this.started) / ANIMATION_MS)) : 1;
    if (t >= 1) {
      this.started = 0;
      this.v0 = a;
      this.v1 = b;
    } else {
      const e = 1 - (1 - t) ** 3;
      this.v0 = this.from[0] + (a - this.from[0]) * e;
      this.v1 = this.from[1] + (b - this.from[1]) * e;
      this.schedule();
    }
    this.paint();
  }

  private paint(): void {
    const s = this.scroller.current;
    if (!s || !this.painter)
      return;
    const { tree, weights } = this.props;
    // Scrolling and searching do not change the layout.
    const of = [tree, weights, this.v0, this.v1, s.clientWidth, this.minPx()] as const;
    const top = this.top();
    if (top !== this.laid[of.length] || of.some((x, i) => x !== this.laid[i])) {
      layout(...of, this.shown, top);
      this.laid = [...of, top];
    }
    this.painter.paint(this.scene(), s.scrollTop);
    this.mark();
  }

  private mark(): void {
    const { tree, focus } = this.props;
    const hover = this.hovered ? boxOf(tree, this.shown, this.hovered.first) : -1;
    const { functionOf, linked } = this.props;
    const linkedBoxes = [];
    for (let i = 0; linked >= 0 && i < this.shown.n; i++)
      if (!this.shown.folded[i] && functionOf[tree.frame[this.shown.node[i]!]!] === linked)
        linkedBoxes.push(i);
    this.painter!.mark(this.scene(), hover, focus >= 0 ? boxOf(tree, this.shown, focus) : -1, linkedBoxes);
  }

  private spotAt(e: MouseEvent): Spot | null {
    const s = this.scroller.current!;
    const r = s.getBoundingClientRect();
    const row = rowAt(e.clientY - r.top + s.scrollTop, this.scene(), s.clientHeight);
    const i = hit(this.shown, row, e.clientX - r.left);
    if (i < 0)
      return null;
    return { first: this.shown.node[i]!, last: this.shown.last[i]!, folded: this.shown.folded[i]! };
  }

  private readonly onMove = (e: PointerEvent): void => {
    if (e.pointerType === "touch")
      return;
    this.mouse = e;
    const spot = this.spotAt(e);
    const same = spot?.first === this.hovered?.first && spot?.last === this.hovered?.last;
    this.hovered = spot;
    this.canvas.current!.style.cursor = spot ? "pointer" : "default";
    this.props.onHover(spot, { x: e.clientX, y: e.clientY }, false);
    if (!same)
      this.mark();
  };

  private readonly onLeave = (): void => {
    this.hovered = this.mouse = null;
    this.props.onHover(null, { x: 0, y: 0 }, false);
    this.mark();
  };

  private readonly onDown = (e: PointerEvent): void => {
    this.pointer = e.pointerType;
    const spot = e.pointerType === "touch" ? this.spotAt(e) : null;
    this.held = false;
    if (spot && !spot.folded)
      this.press = window.setTimeout(() => {
        this.held = true;
        this.props.onMenu(spot, { x: e.clientX, y: e.clientY });
      }, LONG_PRESS_MS);
  };

  private readonly onUp = (): void => clearTimeout(this.press);

  /** The click after a long press would choose what the menu has below the finger. */
  private readonly onTouchEnd = (e: TouchEvent): void => {
    if (this.held)
      e.preventDefault();
  };

  private readonly onClick = (e: MouseEvent): void => {
    // The end of a long press, which opened the menu.
    if (this.held)
      return;
    const spot = this.spotAt(e);
    if (!spot) {
      this.lastTap = null;
      this.props.onHover(null, { x: 0, y: 0 }, true);
      return;
    }
    // Touch has no hover: the first tap shows the card, the second zooms.
    if (this.pointer === "touch") {
      const again = this.lastTap?.first === spot.first && this.lastTap.last === spot.last;
      this.lastTap = spot;
      if (!again) {
        this.hovered = spot;
        this.props.onHover(spot, { x: e.clientX, y: e.clientY }, true);
        this.mark();
        return;
      }
    }
    this.props.onFocus(spot.folded ? -1 : spot.first);
    this.props.onZoom({ first: spot.first, last: spot.last });
  };

  private readonly onContext = (e: MouseEvent): void => {
    // A long press has its own timer. An event from the keyboard has no position: use that of the focused frame.
    const f = this.props.focus;
    const isKey = e.button !== 2;
    if (isKey || this.pointer === "touch") {
      e.preventDefault();
      if (isKey && f >= 0)
        this.props.onMenu({ first: f, last: f, folded: 0 }, this.placeOf(f));
      return;
    }
    const spot = this.spotAt(e);
    if (spot && !spot.folded) {
      e.preventDefault();
      this.props.onMenu(spot, { x: e.clientX, y: e.clientY });
    }
  };

  private readonly onKey = (e: KeyboardEvent): void => {
    if (e.ctrlKey || e.metaKey || e.altKey)
      return;
    const { tree, focus, zoom } = this.props;
    const at = focus >= 0 ? focus : zoom.first;
    const { icicle } = this.props;
    let to = -1;
    switch (e.key) {
    case "ArrowUp":
      to = focus < 0 ? at : icicle ? this.parentOf(at) : this.childOf(at);
      break;
    case "ArrowDown":
      to = focus < 0 ? at : icicle ? this.childOf(at) : this.parentOf(at);
      break;
    case "ArrowLeft":
      to = focus < 0 ? at : this.beside(at, -1);
      break;
    case "ArrowRight":
      to = focus < 0 ? at : this.beside(at, 1);
      break;
    case "Enter":
      if (focus >= 0)
        this.props.onZoom({ first: focus, last: focus });
      e.preventDefault();
      return;
    default:
      return;
    }
    e.preventDefault();
    if (to >= 0 && to < tree.n)
      this.props.onFocus(to);
  };

  private parentOf(node: number): number {
    return this.props.tree.depth[node]! <= this.top() ? -1 : this.props.tree.parent[node]!;
  }

  /** Returns the widest child. */
  private childOf(node: number): number {
    const { tree, weights } = this.props;
    let best = -1;
    let most = 0;
    for (let c = node + 1; c <= node + tree.below[node]!; c += tree.below[c]! + 1)
      if (weights.total[c]! > most) {
        most = weights.total[c]!;
        best = c;
      }
    return best;
  }

  /** Returns the next box in the same row; a folded box counts as its first frame. */
  private beside(node: number, step: 1 | -1): number {
    const { tree } = this.props;
    const b = this.shown;
    const at = boxOf(tree, b, node);
    if (at < 0)
      return -1;
    for (let i = at + step; i >= 0 && i < b.n; i += step)
      if (b.row[i] === b.row[at])
        return b.node[i]!;
    return -1;
  }

  private look(): void {
    const s = this.scroller.current!;
    // Ignore a window that was not measured yet.
    if (s.clientHeight === this.height)
      this.floor = s.scrollHeight - s.scrollTop - s.clientHeight;
  }

  private readonly onScroll = (): void => {
    this.look();
    this.schedule();
  };

  render(): preact.JSX.Element {
    return (
      <div class="flame" ref={this.scroller} onScroll={this.onScroll}>
        <div class="flame-space" ref={this.spacer}>
          <div class="flame-window" tabIndex={0} role="application" aria-roledescription="flame graph"
               aria-label={this.props.label} onKeyDown={this.onKey} onPointerMove={this.onMove}
               onPointerLeave={this.onLeave} onPointerDown={this.onDown} onPointerUp={this.onUp} onTouchEnd={this.onTouchEnd} onPointerCancel={this.onUp} onClick={this.onClick}
               onContextMenu={this.onContext}>
            <canvas ref={this.canvas} />
            <canvas class="overlay" ref={this.overlay} />
          </div>
        </div>
      </div>
    );
  }
}
