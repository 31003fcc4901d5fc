// SPDX-License-Identifier: Apache-2.0
/* Spans and samples that belong to them, as OTLP's JSON, to a server. */
import assert from "node:assert/strict";

export const hex = (n, digits) => n.toString(16).padStart(digits, "0");
const text = (key, value) => ({ key, value: { stringValue: value } });

async function post(url, body) {
  const r = await fetch(url, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const answer = await r.text();
  assert.equal(r.status, 200, answer);
  assert.equal(answer, "{}");
}

/** spans: [{ trace, id, parent, name, start, ms, kind, error, attributes, events: [[ms since the start, name, attributes]] }], numbers for ids; times in ms. */
export async function sendSpans(url, service, spans) {
  const one = (s) => ({
    traceId: hex(s.trace, 32), spanId: hex(s.id, 16), name: s.name, kind: s.kind ?? 2, startTimeUnixNano: `${Math.round(s.start * 1000)}000`,
    endTimeUnixNano: `${Math.round((s.start + s.ms) * 1000)}000`, ...s.parent ? { parentSpanId: hex(s.parent, 16) } : {},
    ...s.error ? { status: { code: 2, message: s.error } } : {}, attributes: Object.entries(s.attributes ?? {}).map(([k, v]) => text(k, v)),
    events: (s.events ?? []).map(([at, name, attributes = {}]) => ({ timeUnixNano: `${Math.round((s.start + at) * 1000)}000`, name, attributes: Object.entries(attributes).map(([k, v]) => text(k, v)) })),
  });
  await post(`${url}v1/traces`, { resourceSpans: [{ resource: { attributes: [text("service.name", service)] }, scopeSpans: [{ spans: spans.map(one) }] }] });
}

/**
 * samples: [[trace, span (0: none), "leaf;...;root", ms, time, what was waited for, or attributes of the sample by name]], a frame with its line: "check@28"; files: function → [file, line]; report: labels of
 * the agent; kind: the type; period: the name of its period, else it has none unless it is CPU time.
 */
export async function sendSamples(url, service, samples, files = {}, report = {}, kind = "cpu", period = kind === "cpu" ? "cpu" : "") {
  const strings = [""], links = [{}], functions = [""], stacks = ["[]"];
  const index = (table, value) => (table.includes(value) ? table.indexOf(value) : table.push(value) - 1);
  const known = ["{}"];
  // The second is that of frames that are no code.
  const attributesOf = ["", JSON.stringify(["profile.frame.type", "note"])];
  const rows = samples.map(([trace, span, frames, ms, at, wait]) => {
    const link = trace ? { traceId: hex(trace, 32), spanId: hex(span, 16) } : {};
    const key = JSON.stringify(link);
    let linkIndex = known.indexOf(key);
    if (linkIndex < 0) {
      linkIndex = known.push(key) - 1;
      links.push(link);
    }
    return { stackIndex: index(stacks, JSON.stringify(frames.split(";").filter((f) => f).map((f) => index(functions, f)))), linkIndex,
      attributeIndices: Object.entries(typeof wait === "object" ? wait : wait ? { wait } : {}).map((a) => index(attributesOf, JSON.stringify(a))), values: [String(ms * 1e6)], timestampsUnixNano: [`${at}000000`] };
  });
  const [cpu, ns] = [index(strings, kind), index(strings, "nanoseconds")];
  const type = { typeStrindex: cpu, unitStrindex: ns };
  const of = period && { period: "10000000", periodType: { typeStrindex: index(strings, period), unitStrindex: ns } };
  const attributes = attributesOf.map((a) => {
    const [key, value] = a ? JSON.parse(a) : [];
    return a ? { keyStrindex: index(strings, key), value: typeof value === "number" ? { intValue: String(value) } : { stringValue: value } } : {};
  });
  const parts = functions.map((f) => /^(.*?)(?:@(\d+))?$/s.exec(f));
  const table = parts.map(([, f]) => ({ nameStrindex: index(strings, f), filenameStrindex: index(strings, files[f]?.[0] ?? "") }));
  await post(`${url}v1development/profiles`, {
    resourceProfiles: [{ resource: { attributes: [text("service.name", service)] }, scopeProfiles: [{
      scope: { attributes: Object.entries(report).map(([k, v]) => text(k, String(v))) }, profiles: [{
      sampleType: type, samples: rows, ...of || {}, timeUnixNano: `${samples[0][4]}000000` }] }] }],
    dictionary: { mappingTable: [{}], attributeTable: attributes, linkTable: links, stackTable: stacks.map((s) => ({ locationIndices: JSON.parse(s) })),
      locationTable: parts.map(([, f, line], i) => (i ? { lines: [{ functionIndex: i, line: line ?? String(files[f]?.[1] ?? 0) }],
        ...f.startsWith("[woken by ") ? { attributeIndices: [1] } : {} } : {})),
      functionTable: table, stringTable: strings },
  });
}
