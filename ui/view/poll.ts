// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps the served page up to date with its state: asks the server, in live mode again and again,
 * one round at a time. Data stays until newer data arrives; the error of the last round is shown
 * beside it.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { refreshMs } from "../model/address.ts";
import type { LiveState } from "../model/address.ts";
import { DataError } from "../model/tree.ts";
import { sampleType, valueType } from "../model/vocab.ts";
import type { SampleType } from "../model/vocab.ts";
import { ask } from "./ask.ts";
import type { KeptMarks, View } from "./ask.ts";
import { GoneError, RefusedError, TokenError } from "./source.ts";
import type { Source } from "./source.ts";

export interface Problem {
  kind: "token" | "gone" | "refused";
  text: string;
  /** The status of a refusal; 0: there is none. */
  status: number;
  /** When the problem began, by the server's clock. */
  since: number;
}

export interface Poll {
  view: View | null;
  problem: Problem | null;
  /** A round for a state that is not shown yet is under way. */
  busy: boolean;
  /** Starts a round now. */
  again: () => void;
}

function problemOf(e: unknown, since: number): Problem {
  if (e instanceof TokenError)
    return { kind: "token", text: e.message, status: 0, since };
  if (e instanceof GoneError)
    return { kind: "gone", text: e.message, status: 0, since };
  if (e instanceof RefusedError || e instanceof DataError)
    return { kind: "refused", text: e.message, status: e instanceof RefusedError ? e.status : 0, since };
  throw e;
}

/** Waits for `ms`, and until the page is visible. */
function rest(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      late = true;
      look();
    }, ms);
    let late = false;
    const look = (): void => {
      if (signal.aborted || (late && !document.hidden)) {
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", look);
        signal.removeEventListener("abort", look);
        resolve();
      }
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
  });
}

export function usePoll(source: Source, state: LiveState): Poll {
  const [view, setView] = useState<View | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [nth, setNth] = useState(0);
  // The state of the round that ended last.
  const [ended, setEnded] = useState("");
  const since = useRef(0);
  // A sheet over the picture sends its own requests.
  const key = JSON.stringify({ ...state, source: "", line: 0, code: null, measure: "", ...state.view === "traces" ? {} : { find: "", sort: "" } });
  const round = `${nth} ${key}`;
  const idle = state.view === "files";
  useEffect(() => {
    const abort = new AbortController();
    const { signal } = abort;
    const kept: KeptMarks = { at: 0, type: "", marks: [] };
    const run = async (): Promise<void> => {
      if (idle)
        return;
      for (;;) {
        const started = Date.now();
        let wait = state.range ? 0 : refreshMs(state.last);
        try {
          const next = await ask(source, state, signal, kept);
          if (signal.aborted)
            return;
          since.current = 0;
          setView(next);
          setProblem(null);
          // Tasks have no range of time; an opened request whose profile is here does not change.
          if (state.view === "tasks")
            wait = next.part.of === "tasks" && next.part.profile ? 0 : 5000;
          // A new server has no samples yet: ask again soon.
          if (next.first === 0)
            wait = 1000;
        } catch (e) {
          if (signal.aborted)
            return;
          since.current ||= source.now();
          const what = problemOf(e, since.current);
          setProblem(what);
          // Only the reader can give a token or change a request, but a server may return by itself.
          wait = what.kind === "gone" ? 5000 : what.kind === "token" ? 0 : wait;
        }
        setEnded(round);
        if (wait === 0)
          return;
        // Ask a slow server less often.
        await rest(Math.max(wait - (Date.now() - started), 3 * (Date.now() - started), 1000), signal);
        if (signal.aborted)
          return;
      }
    };
    void run();
    return () => abort.abort();
  }, [source, key, nth]);
  // busy is true from the change of the state on, not only from the start of the round.
  return { view, problem, busy: !idle && ended !== round, again: () => setNth((n) => n + 1) };
}

export function typeOf(v: View | null): SampleType {
  const part = v?.part;
  const meta = part && "profile" in part ? part.profile?.meta : undefined;
  return v?.type ? sampleType(v.type) : valueType(meta?.type ?? "", meta?.unit ?? "");
}
