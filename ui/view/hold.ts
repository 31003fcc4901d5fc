// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps rows in their places while the reader is about to choose one: while the pointer or the
 * keyboard's focus is on the rows, newer values keep the old order, and new rows come last.
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
 * `of` is the data of the rows, `asked` is the reader's request. Rows keep their order only for newer data and
 * the same request. The handlers are for the element that contains the rows.
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
    // The focus after a click does not count: the reader has already chosen.
    onFocusCapture: (e) => (e.target as Element).matches(":focus-visible") && setInside(true),
    onBlurCapture: () => setInside(false),
  }];
}
