// SPDX-License-Identifier: Apache-2.0
/* Reads parts of a JSON answer. A part of the wrong type is a DataError. */
import { DataError } from "./tree.ts";

export function object(v: unknown): Record<string, unknown> {
  if (typeof v !== "object" || v === null || Array.isArray(v))
    throw new DataError("the server's answer has an unexpected form");
  return v as Record<string, unknown>;
}

export function array(v: unknown): unknown[] {
  if (!Array.isArray(v))
    throw new DataError("the server's answer has an unexpected form");
  return v;
}

export function number(v: unknown): number {
  if (typeof v !== "number" || !Number.isFinite(v))
    throw new DataError("the server's answer has no number where one is expected");
  return v;
}

export function text(v: unknown): string {
  if (typeof v !== "string")
    throw new DataError("the server's answer has no text where one is expected");
  return v;
}
