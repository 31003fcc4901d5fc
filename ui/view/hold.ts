// SPDX-License-Identifier: Apache-2.0
/*
 * Rows that somebody is about to choose from do not change places: while a pointer is on them, or
 * the keyboard, newer values come in the order of before, and what is new comes last.
 */
import { useMemo, useRef, useState } from "preact/hooks";
import { keepOrder } from "../model/series.ts";

interface Handlers {
  onPointerEnter: () => void;
  onPointerLeave: () => void;
  onFocusCapture: (e: FocusEvent) => void;
  onBlurCapture: () => void;
}

/**
 * `of` is the data that the rows are of, `asked` what the reader asked for: other rows of the same data,
 * or asked for in another way, are in their own order. The handlers are for the rows' element.
 */
export function useHold<T>(rows: ArrayLike<T>, of: unknown, asked: string, name: (row: T) => string): [ArrayLike<T>, Handlers] {
  const [inside, setInside] = useState(false);
  const last = useRef({ rows, shown: rows, of, asked, name });
  const shown = useMemo(() => {
    const l = last.current;
    const next = !inside || asked !== l.asked ? rows : rows === l.rows ? l.shown
      : of === l.of ? rows : keepOrder(rows, name, l.shown, l.name);
    last.current = { rows, shown: next, of, asked, name };
    return next;
  }, [rows, asked, inside]);
  return [shown, {
    onPointerEnter: () => setInside(true),
    onPointerLeave: () => setInside(false),
    // Of a click the focus stays behind, which is not about to choose.
    onFocusCapture: (e) => (e.target as Element).matches(":focus-visible") && setInside(true),
    onBlurCapture: () => setInside(false),
  }];
}
