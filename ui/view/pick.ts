// SPDX-License-Identifier: Apache-2.0
/* Choosing a stretch of cells that are in the order of time: by dragging, or with Shift and the arrow keys. */
import { useRef, useState } from "preact/hooks";

/** The cell where the choice began and the cell where it is now, in any order. */
export type Pick = [number, number];

interface Options {
  /** The number of cells. */
  n: number;
  at: (e: PointerEvent) => number;
  /** How far the arrow keys go. */
  keys: Record<string, number>;
  onPick: (p: Pick) => void;
  /** A click on one cell. */
  onClick?: (cell: number) => void;
}

export interface Picking {
  /** The cell under the pointer, or that of the keyboard; -1: none. */
  over: number;
  picked: Pick | null;
  on: {
    onKeyDown: (e: KeyboardEvent) => void;
    onBlur: () => void;
    onPointerDown: (e: PointerEvent) => void;
    onPointerMove: (e: PointerEvent) => void;
    onPointerUp: () => void;
    onPointerCancel: () => void;
    onPointerLeave: () => void;
  };
}

export const ARROWS: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };

export function usePick({ n, at, keys, onPick, onClick }: Options): Picking {
  const [over, setOver] = useState(-1);
  const [picked, setPicked] = useState<Pick | null>(null);
  const dragging = useRef(false);
  const stop = (): void => {
    dragging.current = false;
    setPicked(null);
  };
  return {
    over: over < n ? over : -1,
    picked,
    on: {
      onKeyDown: (e) => {
        const by = keys[e.key];
        if (n === 0 || e.ctrlKey || e.metaKey || e.altKey)
          return;
        if (by !== undefined) {
          const i = over < 0 && by > -Infinity ? n - 1 : Math.max(0, Math.min(n - 1, over + by));
          setPicked(e.shiftKey ? [picked?.[0] ?? Math.max(0, over), i] : null);
          setOver(i);
        } else if (e.key === "Enter" && over >= 0) {
          onPick(picked ?? [over, over]);
          setPicked(null);
        } else if (e.key === "Escape" && (picked || over >= 0)) {
          setPicked(null);
          setOver(-1);
        } else {
          return;
        }
        e.preventDefault();
        e.stopPropagation();
      },
      onBlur: () => setPicked(null),
      onPointerDown: (e) => {
        if (n === 0 || e.button !== 0)
          return;
        dragging.current = true;
        (e.currentTarget as HTMLElement).setPointerCapture(e.pointerId);
        setPicked([at(e), at(e)]);
      },
      onPointerMove: (e) => {
        if (n === 0)
          return;
        setOver(at(e));
        if (dragging.current && picked)
          setPicked([picked[0], at(e)]);
      },
      onPointerUp: () => {
        if (dragging.current && picked && picked[0] !== picked[1])
          onPick(picked);
        else if (dragging.current && picked)
          onClick?.(picked[0]);
        stop();
      },
      onPointerCancel: stop,
      onPointerLeave: () => dragging.current || setOver(-1),
    },
  };
}
