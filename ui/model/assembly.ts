// SPDX-License-Identifier: Apache-2.0
/* The instructions of a function with the values of each: GET /api/v1/assembly. */
import { array, number, object, text } from "./check.ts";

export interface Instruction {
  /** The address in the file (svma). */
  address: number;
  /** Bytes; 0: length and text are unknown. */
  length: number;
  self: number;
  total: number;
  text: string;
  /** Source position of the samples at the instruction; "" and 0 if unknown. */
  file: string;
  line: number;
  /** Instructions between this one and the previous one are left out. */
  gap: boolean;
}

export interface Assembly {
  file: string;
  function: string;
  type: string;
  unit: string;
  all: number;
  self: number;
  total: number;
  why: string;
  instructions: Instruction[];
  /** Index of the instruction with the largest self value, or else total; -1: none has values. */
  hottest: number;
}

export function readAssembly(json: unknown): Assembly {
  const o = object(json);
  const instructions: Instruction[] = [];
  let hottest = -1;
  for (const x of array(o["instructions"])) {
    const [address, length, self, total, line] = [0, 1, 2, 3, 6].map((i) => number(array(x)[i])) as [number, number, number, number, number];
    const before = instructions[instructions.length - 1];
    const best = instructions[hottest];
    if (total > 0 && (!best || self > best.self || (self === best.self && total > best.total)))
      hottest = instructions.length;
    instructions.push({ address, length, self, total, text: text(array(x)[4]), file: text(array(x)[5]), line,
      gap: before !== undefined && before.address + before.length !== address });
  }
  return { file: text(o["file"]), function: text(o["function"]), type: text(o["type"]), unit: text(o["unit"]), all: number(o["all"]),
    self: number(o["self"]), total: number(o["total"]), why: text(o["why"]), instructions, hottest };
}
