// SPDX-License-Identifier: Apache-2.0
/* Components whose script is loaded when they are shown for the first time. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

type Component<P> = (props: P) => JSX.Element | null;

/** A component that stands for the one that `find` takes from the script that `load` imports. */
export function late<M, P extends object>(load: () => Promise<M>, find: (script: M) => Component<P>): Component<P> {
  let loaded: Component<P> | null = null;
  return function Late(props: P) {
    const [state, set] = useState<"loading" | "loaded" | "failed">("loading");
    useEffect(() => {
      if (!loaded)
        load().then((script) => {
          loaded = find(script);
          set("loaded");
        }, () => set("failed"));
    }, []);
    const Loaded = loaded;
    if (Loaded)
      return <Loaded {...props} />;
    return state === "loading" ? <div class="nothing loading"><p>Loading…</p></div>
      : <div class="nothing" role="alert"><h2>This view could not be loaded</h2>
        <p>The server does not answer, or has a new version. <button class="text" onClick={() => location.reload()}>Reload the page</button></p></div>;
  };
}
