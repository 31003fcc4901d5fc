// SPDX-License-Identifier: Apache-2.0
/*
 * Requests to the page's server, with the token; the server's clock; and three kinds of errors: the
 * server requires a token, does not answer, or refuses.
 */
import { DataError } from "../model/tree.ts";
import { sumOf } from "../model/vocab.ts";

const KEY = "culprit-token";
/** A difference up to this counts as none. */
const SAME_MS = 1000;

/** 401, or 403 for a token that may not read. */
export class TokenError extends Error {}
/** There was no answer, or an answer that asks to retry later. */
export class GoneError extends Error {}
/** The server refused the request. */
export class RefusedError extends Error {
  constructor(readonly status: number, said: string, method: string) {
    super((status === 400 ? method === "GET" ? "That query is not valid" : "Not accepted" : status === 404 ? "Not found" : `The server refused the request (${status})`) + (said && `: ${said}`));
  }
}

/** The paths that take the parameter `also`. */
const SUMS = new Set(["slow", "series", "heatmap", "lanes", "flamegraph", "payload", "export", "source", "assembly"]);

export type Parameters = Record<string, string | number>;

export class Source {
  /** The server's clock minus this browser's, which may be on another machine. */
  private skew = 0;
  /** When the stored samples begin, ms; 0: not known yet, or nothing is stored. */
  first = 0;
  /** The token, if sessionStorage is forbidden; lost when the page closes. */
  private kept = "";

  get token(): string {
    try {
      return sessionStorage.getItem(KEY) ?? this.kept;
    } catch {
      return this.kept;
    }
  }

  set token(t: string) {
    this.kept = t;
    try {
      if (t === "")
        sessionStorage.removeItem(KEY);
      else
        sessionStorage.setItem(KEY, t);
    } catch {
      // The member `kept` has the token.
    }
  }

  /** Returns the time of the server's clock, ms since the epoch. */
  now(): number {
    return Date.now() + this.skew;
  }

  /**
   * The Date header has whole seconds and was written at some time between request and answer, which may be far
   * apart on a busy machine. So keep the known difference, or none, as long as the header allows it.
   */
  private compare(date: number, sent: number): void {
    const [least, most] = [date - Date.now() - SAME_MS, date + 1000 - sent + SAME_MS];
    const fits = (skew: number): boolean => skew >= least && skew <= most;
    if (!Number.isNaN(date) && !fits(this.skew))
      this.skew = fits(0) ? 0 : (least + most) / 2;
  }

  private async ask(path: string, parameters: Parameters, signal: AbortSignal, body: Blob | null,
                    method = body ? "POST" : "GET"): Promise<Response> {
    const [name, more] = path.split("?");
    const q = new URLSearchParams(more);
    for (const [k, v] of Object.entries(parameters))
      if (v !== "")
        q.set(k, String(v));
    // A sum of types; for what has no sums the first of them.
    const sum = sumOf(q.get("type") ?? "");
    if (sum)
      q.set("type", sum[0]);
    if (sum && SUMS.has(name!))
      q.set("also", sum[1]);
    const text = q.toString();
    const headers: Record<string, string> = this.token ? { Authorization: `Bearer ${this.token}` } : {};
    if (body)
      headers["Content-Type"] = body.type || "application/octet-stream";
    const sent = Date.now();
    let r: Response;
    try {
      r = await fetch(`/api/v1/${name}${text ? "?" + text : ""}`, {
        method, body, headers, signal, cache: "no-store", redirect: "error" });
    } catch (e) {
      if (signal.aborted)
        throw e;
      throw new GoneError("No answer");
    }
    this.compare(Date.parse(r.headers.get("Date") ?? ""), sent);
    if (r.ok)
      return r;
    if (r.status === 401)
      throw new TokenError(this.token ? "The server does not accept this token" : "This server needs a token");
    const said = await this.said(r);
    if (r.status === 403 && this.token)
      throw new TokenError(`This token does not permit reading${said && `: ${said}`}`);
    if (r.status === 429 || r.status >= 500)
      throw new GoneError(`No answer (${r.status}${said && `: ${said}`})`);
    throw new RefusedError(r.status, said, method);
  }

  private async said(r: Response): Promise<string> {
    try {
      const text = (await r.text()).trim();
      let line = text;
      try {
        line = String((JSON.parse(text) as Record<string, unknown>)["message"] ?? text);
      } catch {
        // Not JSON: use the text itself.
      }
      return /^\s*</.test(line) ? "" : line.slice(0, 300);
    } catch {
      return "";
    }
  }

  async json(path: string, parameters: Parameters, signal: AbortSignal, body: Blob | null = null): Promise<unknown> {
    const r = await this.ask(path, parameters, signal, body);
    const text = await this.body(r.text(), signal);
    try {
      return JSON.parse(text);
    } catch {
      throw new DataError("the server's answer is not JSON");
    }
  }

  /** Changes something on the server. Returns why it was refused, or the answer. */
  async send(method: "POST" | "DELETE", path: string, body: object | null): Promise<{ said: string; answer: unknown }> {
    try {
      const r = await this.ask(path, {}, new AbortController().signal, body && new Blob([JSON.stringify(body)], { type: "application/json" }), method);
      return { said: "", answer: await r.json() };
    } catch (e) {
      // A token that may read only is not asked for again: the page goes on with it.
      if (e instanceof TokenError && this.token)
        return { said: "This token does not permit changes. Changes need a token with the role admin (annotations and saved views: write)", answer: null };
      return { said: e instanceof Error ? e.message : String(e), answer: null };
    }
  }

  async bytes(path: string, parameters: Parameters, signal: AbortSignal, body: Blob | null = null): Promise<Uint8Array> {
    const r = await this.ask(path, parameters, signal, body);
    return new Uint8Array(await this.body(r.arrayBuffer(), signal));
  }

  private async body<T>(reading: Promise<T>, signal: AbortSignal): Promise<T> {
    try {
      return await reading;
    } catch (e) {
      if (signal.aborted)
        throw e;
      throw new GoneError("No complete answer: the server closed the connection");
    }
  }
}
