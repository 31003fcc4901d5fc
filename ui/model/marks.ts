// SPDX-License-Identifier: Apache-2.0
/* Marks on charts: annotations that somebody added, and changes of services' versions. GET /api/v1/annotations, /api/v1/views. */
import type { Filter } from "./address.ts";
import { array, number, object, text } from "./check.ts";

export interface Mark {
  at: number;
  text: string;
  /** Of an annotation; "" for a change of version. */
  id: string;
  labels: Record<string, string>;
}

export interface SavedView {
  id: string;
  name: string;
  address: string;
}

export function readMarks(json: unknown): Mark[] {
  const o = object(json);
  return [
    ...array(o["annotations"]).map((x): Mark => {
      const a = object(x);
      return { at: number(a["time"]), text: text(a["text"]), id: text(a["id"]),
        labels: Object.fromEntries(Object.entries(object(a["labels"])).map(([k, v]) => [k, text(v)])) };
    }),
    ...array(o["deploys"]).map((x): Mark => {
      const d = object(x);
      const service = text(d["service"]);
      return { at: number(d["time"]), text: `${service}: first samples of version ${text(d["version"])}, before ${text(d["before"])}`, id: "",
        labels: { "service.name": service } };
    }),
  ].sort((a, b) => a.at - b.at);
}

/** Those that the selection does not contradict: a filter for another value of one of their labels. */
export function marksOf(marks: Mark[], service: string, filters: Filter[]): Mark[] {
  const all = service === "" ? filters : [...filters, { label: "service.name", value: service, not: false }];
  return marks.filter((m) => all.every((f) => m.labels[f.label] === undefined || (m.labels[f.label] === f.value) !== f.not));
}

export function readViews(json: unknown): SavedView[] {
  return array(object(json)["views"]).map((x) => {
    const v = object(x);
    return { id: text(v["id"]), name: text(v["name"]), address: text(v["address"]) };
  }).filter((v) => /^[?#]/.test(v.address));
}
