// SPDX-License-Identifier: Apache-2.0
/*
 * Whose code a frame is, by abi/tbl/owner.tbl. A path decides where it is known, a name only where none is.
 * server/api/own.c does the same; tests/owners.tbl has cases for both.
 */
import { base } from "./text.ts";
import { frameKind } from "./vocab.ts";
import { OWNERS } from "./vocab.gen.ts";

/** Labels of frames that are not own, besides names of libraries. */
export const RUNTIME = "runtime";
export const KERNEL = "kernel";

const rules = (what: string): RegExp[] => OWNERS.filter((o) => o.what === what).map((o) => new RegExp(o.pattern));
const rule = (what: string): RegExp => rules(what)[0]!;
const START = rule("START");
/** Names of binaries whose functions are how one waits, and not who waits or why. */
export const PLUMBING_FILES = rule("PLUMBING");
/** Names of interpreters, below whose functions are those of the program. */
export const RUNTIME_FILES = rule("RUNTIME");
const SOURCE = rule("SOURCE");
const BUILD = rule("BUILD");
const LIBRARIES = rules("LIBRARY");
const NAMES = new Map(OWNERS.filter((o) => o.what === "NAME").map((o) => [o.kind, new RegExp(o.pattern)]));

/** The library of a path; "" for none. */
export function libraryOf(path: string): string {
  for (const r of LIBRARIES) {
    const found = r.exec(path);
    if (found)
      return found[1]!.replace(/\.(py|rb|js|pm|so.*)$/, "");
  }
  return "";
}

/** "" the reader's own, null what is never hidden (a note), else KERNEL, RUNTIME or the name of a library. binary: a path, or a name alone. */
export function ownerByTable(kind: string, name: string, file: string, binary: string): string | null {
  const kindClass = frameKind(kind)?.class ?? "native";
  if (kindClass === "note")
    return null;
  if (kindClass === "kernel")
    return KERNEL;
  const program = base(binary);
  const shared = /\.so\b/.test(binary);
  if (kindClass === "unknown" || START.test(name) || PLUMBING_FILES.test(program) || RUNTIME_FILES.test(program) || SOURCE.test(file) ||
      (shared && program === binary && BUILD.test(file)))
    return RUNTIME;
  // A program may be anywhere; a shared object in a folder of the system is a library.
  const library = shared || /packages\/|node_modules\//.test(binary) ? libraryOf(binary) : "";
  if (library !== "")
    return library;
  const names = NAMES.get(kind);
  if (file.includes("/") || (file !== "" && !names))
    return libraryOf(file);
  const known = names?.exec(name);
  if (known && (kind !== "native" || file === "" || file.endsWith(".go")))
    return known[1] ?? RUNTIME;
  // Functions of these that have no source are built in.
  return file === "" && (kind === "javascript" || kind === "ruby" || kind === "php") ? RUNTIME : "";
}
