// SPDX-License-Identifier: Apache-2.0
/* The bar between the flame graph and the table: dragged by mouse or touch, moved by arrow keys; its place is remembered. */
import { useRef, useState } from "preact/hooks";
import { recall, remember } from "./remember.ts";

/** The table's part of the page in percent, beside the flame graph and below it; 0: as the style sheet has it. */
export interface Split {
  beside: number;
  below: number;
}

const STEP = 2;
const [LEAST, MOST] = [15, 80];

const part = (v: unknown): number => (typeof v === "number" && v >= LEAST && v <= MOST ? v : 0);

function read(): Split {
  try {
    const s = JSON.parse(recall("split")) as Partial<Split>;
    return { beside: part(s.beside), below: part(s.below) };
  } catch {
    return { beside: 0, below: 0 };
  }
}

export function useSplit(): [Split, (s: Split) => void] {
  const [split, set] = useState(read);
  return [split, (s) => {
    set(s);
    remember("split", JSON.stringify(s));
  }];
}

export function Splitter(p: { wide: boolean; split: Split; onSplit: (s: Split) => void }): preact.JSX.Element {
  const { wide } = p;
  const ref = useRef<HTMLDivElement>(null);
  const key = wide ? "beside" : "below";
  const put = (v: number): void => p.onSplit({ ...p.split, [key]: v === 0 ? 0 : Math.round(10 * Math.max(LEAST, Math.min(MOST, v))) / 10 });
  /** The table's part if it began at this place. */
  const at = (x: number, y: number): number => {
    const page = ref.current!.parentElement!.getBoundingClientRect();
    return 100 * (wide ? (page.right - x) / page.width : (page.bottom - y) / page.height);
  };
  const here = (): number => {
    const r = ref.current!.getBoundingClientRect();
    return at(r.right, r.bottom);
  };
  const onKey = (e: KeyboardEvent): void => {
    const [more, less] = wide ? ["ArrowLeft", "ArrowRight"] : ["ArrowUp", "ArrowDown"];
    const to = e.key === more ? here() + STEP : e.key === less ? here() - STEP : e.key === "Home" ? MOST : e.key === "End" ? LEAST : e.key === "Enter" ? 0 : null;
    if (to === null)
      return;
    e.preventDefault();
    e.stopPropagation();
    put(to);
  };
  return <div class="splitter" ref={ref} role="separator" tabIndex={0} aria-label="Size of the function table" aria-orientation={wide ? "vertical" : "horizontal"}
              aria-valuemin={LEAST} aria-valuemax={MOST} aria-valuenow={Math.round(p.split[key]) || 30}
              title="Drag to resize the table; double-click to reset" onKeyDown={onKey} onDblClick={() => put(0)}
              onPointerDown={(e) => e.currentTarget.setPointerCapture(e.pointerId)}
              onPointerMove={(e) => e.currentTarget.hasPointerCapture(e.pointerId) && put(at(e.clientX, e.clientY))} />;
}
