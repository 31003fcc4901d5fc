// SPDX-License-Identifier: Apache-2.0
/* A node to remember while the tree under it may be built anew, of newer samples. */
import { useMemo, useState } from "preact/hooks";
import { findPath, pathId } from "../model/tree.ts";

type Hashes = Parameters<typeof findPath>[0];

/** The node, or -1 while there is none or the tree does not have it; and how to set it. */
export function useNode(h: Hashes): [number, (node: number) => void] {
  const [id, set] = useState("");
  return [useMemo(() => findPath(h, id), [h, id]), (node) => set(node < 0 ? "" : pathId(h, node))];
}
