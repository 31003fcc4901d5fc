// SPDX-License-Identifier: Apache-2.0
/* Who calls a function (above, growing up from it) and what it calls (below, hanging from it). */
import { useMemo } from "preact/hooks";
import { colouring } from "../draw/colour.ts";
import type { Theme } from "../draw/colour.ts";
import type { FunctionIds } from "../model/functions.ts";
import { baseScale, weigh } from "../model/layout.ts";
import type { WidthBy } from "../model/layout.ts";
import { findMatches } from "../model/search.ts";
import type { ColourBy } from "../model/state.ts";
import { percent, value } from "../model/text.ts";
import { sandwich } from "../model/transform.ts";
import { nodeName, pathHashes } from "../model/tree.ts";
import type { Profile, Tree } from "../model/tree.ts";
import { Flame } from "./flame.tsx";
import type { Place, Spot } from "./flame.tsx";
import { useNode } from "./node.ts";

interface Props {
  profile: Profile;
  tree: Tree;
  ids: FunctionIds;
  name: string;
  theme: Theme;
  colourBy: ColourBy;
  normalise: boolean;
  widthBy: WidthBy;
  matchedFrames: Uint8Array | null;
  linked: number;
  onHover: (s: Spot | null, at: Place, touch: boolean, tree: Tree, withSelf: boolean) => void;
  onPick: (name: string) => void;
  onClose: () => void;
}

function Half(p: Props & { half: Tree; icicle: boolean; label: string }): preact.JSX.Element {
  const { profile, half } = p;
  const scale = baseScale(profile.tree, p.normalise);
  const weights = useMemo(() => weigh(half, p.widthBy, scale), [half, p.widthBy, scale]);
  const colours = useMemo(() => colouring(profile, half, p.theme, p.colourBy, p.normalise),
                          [profile, half, p.theme, p.colourBy, p.normalise]);
  const matches = useMemo(() => (p.matchedFrames ? findMatches(half, p.matchedFrames) : null),
                          [profile, half, p.matchedFrames]);
  const hashes = useMemo(() => pathHashes(profile, half), [profile, half]);
  const [first, setFirst] = useNode(hashes);
  const [last, setLast] = useNode(hashes);
  const [focus, setFocus] = useNode(hashes);
  const zoom = useMemo(() => last < first || first < 0 ? { first: 0, last: 0 } : { first, last }, [first, last]);
  return (
    <section aria-label={p.label}>
      <h3>{p.label}{half.n === 1 ? ": none" : ""}</h3>
      <Flame profile={profile} tree={half} weights={weights} colours={colours} theme={p.theme} matches={matches}
             icicle={p.icicle} zoom={zoom} focus={focus} label={p.label} functionOf={p.ids.of} linked={p.linked}
             onZoom={(s) => {
               setFirst(s.first);
               setLast(s.last);
             }} onFocus={setFocus}
             onHover={(s, at, touch) => p.onHover(s, at, touch, half, p.icicle)}
             onMenu={(s) => p.onPick(nodeName(profile, half, s.first))} />
    </section>
  );
}

export function SandwichView(p: Props): preact.JSX.Element {
  const { profile, tree, name } = p;
  const both = useMemo(() => sandwich(profile, tree, p.ids, name), [profile, tree, p.ids, name]);
  const total = both?.callees.total[0] ?? 0;
  return (
    <div class="sandwich">
      <div class="sandwich-head">
        <button class="reset" onClick={p.onClose} title="Back to the flame graph (Esc)">✕ Back</button>
        <h2 title={name}>{name}</h2>
        <span>{both ? `${value(total, profile.meta.unit, profile.meta.type)}, ${percent(total / (profile.tree.total[0]! || 1))} of all`
                    : "is not in this profile"}</span>
      </div>
      {both && <>
        <Half key={"^" + name} {...p} half={both.callers} icicle={false} label="Callers" />
        <Half key={"v" + name} {...p} half={both.callees} icicle={true} label="Callees" />
      </>}
    </div>
  );
}
