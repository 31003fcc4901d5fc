// SPDX-License-Identifier: Apache-2.0
/* Remembers a node across trees, which are rebuilt from newer samples. */
import { useMemo, useState } from "preact/hooks";
import { findPath, pathId } from "../model/tree.ts";

type Hashes = Parameters<typeof findPath>[0];

/** Returns the node (-1: none, or the tree lacks it) and a function that sets it. */
export function useNode(h: Hashes): [number, (node: number) => void] {
  const [id, set] = useState("");
  return [useMemo(() => findPath(h, id), [h, id]), (node) => set(node < 0 ? "" : pathId(h, node))];
}
