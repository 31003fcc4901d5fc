// SPDX-License-Identifier: Apache-2.0
export function readTable(text: string, macro: string): string[][];
