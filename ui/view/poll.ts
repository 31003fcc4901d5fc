// SPDX-License-Identifier: Apache-2.0
/*
 * What the served page shows of a state, and keeps showing: asks the server, in live mode again
 * and again, one round at a time. A part that came stays until a newer one is there; what the last
 * round ended in stands beside it.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { refreshMs } from "../model/address.ts";
import type { LiveState } from "../model/address.ts";
import { DataError } from "../model/tree.ts";
import { sampleType, valueType } from "../model/vocab.ts";
import type { SampleType } from "../model/vocab.ts";
import { ask } from "./ask.ts";
import type { View } from "./ask.ts";
import { GoneError, RefusedError, TokenError } from "./source.ts";
import type { Source } from "./source.ts";

export interface Problem {
  kind: "token" | "gone" | "refused";
  text: string;
  /** When it began, by the server's clock as last known. */
  since: number;
}

export interface Poll {
  view: View | null;
  problem: Problem | null;
  /** A round of a state that is not shown yet is under way. */
  busy: boolean;
  /** Starts a round now. */
  again: () => void;
}

function problemOf(e: unknown, since: number): Problem {
  if (e instanceof TokenError)
    return { kind: "token", text: e.message, since };
  if (e instanceof GoneError)
    return { kind: "gone", text: e.message, since };
  if (e instanceof RefusedError || e instanceof DataError)
    return { kind: "refused", text: e.message, since };
  throw e;
}

/** After the wait, and not while nobody looks. */
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
  // The round that was ended last, by what it was of.
  const [ended, setEnded] = useState("");
  const since = useRef(0);
  // A sheet over the picture asks for itself.
  const key = JSON.stringify({ ...state, source: "", line: 0, code: null, find: "", sort: "" });
  const round = `${nth} ${key}`;
  const idle = state.view === "files";
  useEffect(() => {
    const abort = new AbortController();
    const { signal } = abort;
    const run = async (): Promise<void> => {
      if (idle)
        return;
      for (;;) {
        const started = Date.now();
        let wait = state.range ? 0 : refreshMs(state.last);
        try {
          const next = await ask(source, state, signal);
          if (signal.aborted)
            return;
          since.current = 0;
          setView(next);
          setProblem(null);
          // Whoever has just started it waits for the first samples, and need not wait for us.
          if (next.first === 0)
            wait = 1000;
        } catch (e) {
          if (signal.aborted)
            return;
          since.current ||= source.now();
          const what = problemOf(e, since.current);
          setProblem(what);
          // A token or a better question comes from the reader; a server may come back by itself.
          wait = what.kind === "gone" ? 5000 : what.kind === "token" ? 0 : wait;
        }
        setEnded(round);
        if (wait === 0)
          return;
        // A server that takes long is not asked all the time.
        await rest(Math.max(wait - (Date.now() - started), 3 * (Date.now() - started), 1000), signal);
        if (signal.aborted)
          return;
      }
    };
    void run();
    return () => abort.abort();
  }, [source, key, nth]);
  // From the moment that something else is asked for, and not from when it is asked.
  return { view, problem, busy: !idle && ended !== round, again: () => setNth((n) => n + 1) };
}

export function typeOf(v: View | null): SampleType {
  const part = v?.part;
  const meta = part && "profile" in part ? part.profile?.meta : undefined;
  return v?.type ? sampleType(v.type) : valueType(meta?.type ?? "", meta?.unit ?? "");
}
