// SPDX-License-Identifier: Apache-2.0
/*
 * The page: one profile, one state (in location.hash), everything else computed from the two.
 * Zooming and transforms are entries of the browser's history, so "back" goes back.
 *
 * A newer profile may take the place of the one that is shown. Node numbers mean nothing in it, so
 * whatever must outlive it (zoom, the frame of the keyboard, the match) is held by pathId().
 */
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { colouring, showsWaits } from "../draw/colour.ts";
import type { Theme } from "../draw/colour.ts";
import type { CodeOf, Filter, WaitView } from "../model/address.ts";
import { whyNotMeasured } from "../model/measurements.ts";
import type { FunctionOf } from "../model/measurements.ts";
import type { Factors } from "../model/cost.ts";
import { functionIds, hotLine } from "../model/functions.ts";
import { baseScale, weigh } from "../model/layout.ts";
import type { WidthBy } from "../model/layout.ts";
import { exactly, findMatches, matchedWeight, matcher, matchFrames, nextMatch, widestMatch } from "../model/search.ts";
import { decodeState, encodeState } from "../model/state.ts";
import type { ColourBy, Panes, ViewState } from "../model/state.ts";
import { samplesPerValue } from "../model/stats.ts";
import type { Losses } from "../model/stats.ts";
import { count, percent, value } from "../model/text.ts";
import { applyTransform, invert, narrowGroups, withoutGroups, withoutPaths } from "../model/transform.ts";
import type { Transform } from "../model/transform.ts";
import { foldChains, isChain } from "../model/chains.ts";
import { collapseOthers, hiddenMatches, insideOf, mineByWeight, ownersOf, parseRules, selfWithHidden, weightOfMatches, withBoxes } from "../model/mine.ts";
import { COLLAPSED, findPath, frameName, GROUP, heaviestFirst, INLINED, NONE, nodeName, pathHashes, pathId, pathOf } from "../model/tree.ts";
import type { Profile, Samples, Tree } from "../model/tree.ts";
import { frameKind, valueType, WAIT_LABEL, waitOfFrame } from "../model/vocab.ts";
import { eachSample, hasTimes, sampleLanes, sampleLines, sampleRange, selectSamples } from "../model/samples.ts";
import { rangeText } from "../model/times.ts";
import { chosenOf, objectRows, profileWaits, splitIdle, toggle, waitOf } from "../model/waits.ts";
import { readWakes, wokenBy } from "../model/wakes.ts";
import { Crumbs, Legend, Quality } from "./bar.tsx";
import { Card, interval } from "./card.tsx";
import type { CardProps } from "./card.tsx";
import { copy } from "./copy.ts";
import { ANIMATION_MS, calm, Flame } from "./flame.tsx";
import type { FoldedSum, Place, Seek, Span, Spot } from "./flame.tsx";
import { Help } from "./help.tsx";
import { enter, replace } from "./location.ts";
import type { Keys } from "./help.tsx";
import { LaneView } from "./lanes.tsx";
import { Menu } from "./menu.tsx";
import { MineTools } from "./mine.tsx";
import { recall, recallTheme, remember } from "./remember.ts";
import type { Item } from "./menu.tsx";
import { useNode } from "./node.ts";
import { SandwichView } from "./sandwich.tsx";
import { Splitter, useSplit } from "./splitter.tsx";
import { FunctionList } from "./table.tsx";
import { WaitPanel } from "./waits.tsx";
import type { Waits } from "./waits.tsx";

const WIDE = "(min-width: 1000px)";
const ALL: Span = { first: 0, last: 0 };

interface Props {
  profile: Profile;
  /** The profile is a file's: the page has all that is known of it. */
  file?: boolean;
  /** Replaces the text for a file without samples. */
  nothing?: preact.JSX.Element;
  /** Keys of the surrounding page, for the sheet of keys. */
  keys?: Keys;
  /** Show a source file, or the instructions of a function. Only the page of a server has these. */
  onSource?: (file: string, line: number) => void;
  onCode?: (code: CodeOf) => void;
  /** Shows only one category of waits, or again all. */
  onWait?: (name: string) => void;
  /** Shows the requests that run a function. */
  onRequests?: (name: string) => void;
  /** Measures a function on all hosts that run it. */
  onMeasure?: (of: FunctionOf) => void;
  /** Losses that agents report, if they are known apart from the profile. */
  losses?: Losses | null | undefined;
  /** The cost of CPU time, if it is known. */
  factors?: Factors | null;
}

interface Hover {
  /** The profile to which the spot's node numbers belong. */
  profile: Profile;
  spot: Spot;
  at: Place;
  touch: boolean;
  /** The tree of the spot; the two halves of a sandwich have trees of their own. */
  tree: Tree;
  zoom: Span;
  withSelf: boolean;
}

function useMedia(query: string): boolean {
  const [on, set] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const m = matchMedia(query);
    const change = (): void => set(m.matches);
    m.addEventListener("change", change);
    return () => m.removeEventListener("change", change);
  }, [query]);
  return on;
}

/** The length of the picture's animation, and one or two frames more. */
const ARRIVED_MS = ANIMATION_MS + 40;

/** The zoomed part, once the animation has ended: rendering the table is slow and would interrupt the animation. */
function useArrived(tree: Tree, zoom: Span): Span {
  const [arrived, set] = useState({ tree, zoom });
  useEffect(() => {
    const timer = setTimeout(() => set({ tree, zoom }), ARRIVED_MS);
    return () => clearTimeout(timer);
  }, [tree, zoom]);
  return calm() || arrived.tree !== tree ? zoom : arrived.zoom;
}

/** The state, in step with location.hash both ways. */
function useHash(): [ViewState, (change: Partial<ViewState>, entry?: boolean) => void] {
  const [state, set] = useState(() => decodeState(location.hash));
  const current = useRef(state);
  useEffect(() => {
    const read = (): void => set(current.current = decodeState(location.hash));
    addEventListener("popstate", read);
    addEventListener("hashchange", read);
    return () => {
      removeEventListener("popstate", read);
      removeEventListener("hashchange", read);
    };
  }, []);
  const change = useCallback((c: Partial<ViewState>, entry = false) => {
    const next = { ...current.current, ...c };
    current.current = next;
    set(next);
    (entry ? enter : replace)("#" + encodeState(next));
  }, []);
  return [state, change];
}

const FILE_LANES = 60;

/** What a file tells of its waits. */
function fileViews(p: Profile, times: boolean): WaitView[] {
  const has = (label: "lock" | "peer"): boolean => p.samples?.threads.some((t) => t[label] !== "") ?? false;
  return [...times ? ["threads" as const] : [], "category", ...has("lock") ? ["lock" as const] : [], ...has("peer") ? ["peer" as const] : [], "wakers"];
}

function sampleThreads(s: Samples): Map<string, string> {
  return new Map(s.threads.map((t) => [String(t.tid), t.thread]));
}

/** The profile without the paths to waits for work. */
function withoutIdlePaths(p: Profile): Profile {
  const idle = (f: number): boolean => waitOfFrame(p.kinds[p.frames.kind[f]!]?.name ?? "", frameName(p, f))?.id === "IDLE";
  return p.tree.frame.some(idle) ? { ...p, hot: null, tree: withoutPaths(p, p.tree, functionIds(p), idle) } : p;
}

/** The category that a transform keeps alone, as a filter. */
function keptWaits(transforms: Transform[]): Filter[] {
  const kept = transforms.find((t) => t.op === "keep" && t.name !== undefined && waitOfFrame("wait", t.name));
  return kept ? [{ label: WAIT_LABEL, value: waitOfFrame("wait", kept.name!)!.name, not: false }] : [];
}

export function App(p: Props): preact.JSX.Element {
  const [state, change] = useHash();
  const inFile = p.file === true && p.profile.tree.base === null;
  // The menu of a node of the flame graph, or (node -1) of a row's function.
  const [menu, setMenu] = useState<{ frame: number; node: number; at: Place } | null>(null);
  const [hover, setHover] = useState<Hover | null>(null);
  // The profile under an open menu or card stays until it is closed.
  const held = useRef(p.profile);
  if (!menu && !hover?.touch)
    held.current = p.profile;
  const whole = held.current;
  const onlyKey = JSON.stringify([state.only, state.range]);
  const chosen = useMemo(() => inFile && (state.only.length > 0 || state.range) ? { ...whole, hot: null, tree: selectSamples(whole, state.only, state.range) } : whole,
                         [whole, inFile, onlyKey]);
  // A server leaves out the time of idle threads; in a file the page does.
  const plain = useMemo(() => inFile && !state.idle ? withoutIdlePaths(chosen) : chosen, [chosen, inFile, state.idle]);
  const isMine = state.mine ?? recall("all") !== "1";
  const rules = state.own ?? recall("own");
  const owners = useMemo(() => isMine ? ownersOf(plain, parseRules(rules)) : null, [plain, isMine, rules]);
  const profile = useMemo(() => owners?.divides ? withBoxes(plain, owners) : plain, [plain, owners]);
  const ofWaits = useMemo((): Waits | null => {
    if (!inFile || !showsWaits(whole))
      return null;
    const label = state.waits === "lock" || state.waits === "peer" ? state.waits : null;
    return { ...splitIdle(profileWaits(whole), state.idle), wakes: state.waits === "wakers" ? readWakes(whole, state.idle) : null,
      objects: label && whole.samples ? { label, names: sampleThreads(whole.samples), held: new Set<string>(),
        rows: objectRows(sampleLines(whole.samples, label), label, whole, (visit) => eachSample(whole, label, visit)) } : null };
  }, [whole, inFile, state.idle, state.waits]);
  const times = useMemo(() => inFile && whole.samples && hasTimes(whole) ? sampleRange(whole.samples) : null, [whole, inFile]);
  const within = state.range ?? times;
  const lanes = useMemo(() => times && state.waits === "threads" ? sampleLanes(whole, within!, state.lane, FILE_LANES) : null,
                        [whole, times, state.waits, state.lane, JSON.stringify(within)]);
  const systemDark = useMedia("(prefers-color-scheme: dark)");
  const wide = useMedia(WIDE);
  const theme: Theme = state.theme ?? recallTheme() ?? (systemDark ? "dark" : "light");
  const turnTheme = (): void => {
    const next = theme === "dark" ? "light" : "dark";
    remember("theme", next);
    change({ theme: next });
  };
  const diff = profile.tree.base !== null;
  const waits = useMemo(() => showsWaits(profile), [profile]);
  const colourBy: ColourBy = (state.colour === "wait" && !waits ? null : state.colour) ?? (diff ? "diff" : waits ? "wait" : "kind");
  const [split, setSplit] = useSplit();
  const panes: Panes = state.panes ?? (wide ? "both" : "picture");
  const table = panes !== "picture";
  const { meta } = profile;
  const normalise = state.normalise ?? meta.normalise;

  useLayoutEffect(() => {
    document.documentElement.dataset["theme"] = theme;
  }, [theme]);

  const ids = useMemo(() => functionIds(profile), [profile]);
  const transformKey = JSON.stringify(state.transforms);
  // The tree of the table. The picture may show it inverted.
  const groups = useMemo(() => narrowGroups(profile), [profile]);
  const isMerged = groups > 0 && !state.groups;
  const upright = useMemo(() => state.transforms.reduce((t, x) => applyTransform(profile, t, ids, x), isMerged ? withoutGroups(profile, profile.tree, ids) : profile.tree),
                          [profile, ids, transformKey, isMerged]);
  const mine = useMemo(() => {
    const m = owners?.divides ? collapseOthers(profile, upright, ids, owners) : null;
    return m && state.byWeight ? mineByWeight(m) : m;
  }, [profile, upright, ids, owners, state.byWeight]);
  const search = useMemo(() => matcher(state.search), [state.search]);
  const badSearch = search !== null && "error" in search ? search.error : "";
  const matchedFrames = useMemo(() => (search && !badSearch ? matchFrames(profile, search) : null), [profile, search]);
  const chained = useMemo(() => mine && !state.inverted ? foldChains(profile, mine, matchedFrames) : null, [profile, mine, state.inverted, matchedFrames]);
  const drawn = chained ?? mine;
  const tree = useMemo(() => {
    const t = state.inverted ? invert(profile, mine?.tree ?? upright, ids) : drawn?.tree ?? upright;
    return state.byWeight && t !== drawn?.tree ? heaviestFirst(t).tree : t;
  }, [profile, upright, mine, drawn, ids, state.inverted, state.byWeight]);
  // The number of a node, or of the first of a box, in the tree of the table.
  const inTable = (node: number): number => chained ? chained.from[node]! : node;
  // The table lists the functions of chains, too, and an own function with the hidden frames that it calls.
  const tableTree = useMemo(() => mine ? selfWithHidden(mine) : state.inverted ? upright : tree, [mine, upright, tree, state.inverted]);
  const scale = baseScale(profile.tree, normalise);
  const weights = useMemo(() => weigh(tree, state.widthBy, scale), [tree, state.widthBy, scale]);
  // Of chains the hashes of their functions: newer samples, or a search, may show these one by one.
  const hashes = useMemo(() => {
    const h = pathHashes(profile, chained ? mine!.tree : tree);
    return chained ? { lo: Uint32Array.from(chained.from, (i) => h.lo[i]!), hi: Uint32Array.from(chained.from, (i) => h.hi[i]!) } : h;
  }, [profile, tree]);
  const colours = useMemo(() => colouring(profile, tree, theme, colourBy, normalise),
                          [profile, tree, theme, colourBy, normalise]);
  const inBoxes = useMemo(() => drawn && matchedFrames ? hiddenMatches(drawn, upright, matchedFrames) : null, [drawn, upright, matchedFrames]);
  const matches = useMemo(() => (matchedFrames ? findMatches(tree, matchedFrames, state.inverted ? null : inBoxes?.boxes) : null),
                          [profile, tree, matchedFrames, inBoxes]);

  // The path from the root to the zoomed frame. If newer samples lack the frame, its caller is zoomed.
  const trail = useRef<string[]>([]);
  const zoom = useMemo((): Span => {
    if (!state.zoom)
      return ALL;
    const [a, b] = state.zoom.split("~");
    let first = findPath(hashes, a!);
    const last = b ? findPath(hashes, b) : first;
    if (first >= 0 && last >= first && tree.parent[first] === tree.parent[last] &&
        weights.start[last]! + weights.total[last]! > weights.start[first]!) {
      trail.current = pathOf(tree, first).map((i) => pathId(hashes, i));
      return { first, last };
    }
    for (let i = trail.current.indexOf(a!); --i > 0;)
      if ((first = findPath(hashes, trail.current[i]!)) > 0 && weights.total[first]! > 0)
        return { first, last: first };
    return ALL;
  }, [state.zoom, hashes, tree, weights]);

  // The boxes' own frames are behind all others, and no row is of them.
  const ownFrames = useMemo(() => owners && Uint16Array.from({ length: profile.frames.n }, (_, f) => owners.of[f] ?? 1), [owners, profile]);
  const ownCount = useMemo(() => {
    const n = { own: 0, others: 0 };
    if (owners)
      for (let i = 0; i < ids.n; i++) {
        const o = owners.of[ids.frame[i]!];
        n.own += o === 0 ? 1 : 0;
        n.others += o !== undefined && o > 1 ? 1 : 0;
      }
    return n;
  }, [owners, ids]);

  const arrived = useArrived(tree, zoom);
  const tableZoom = useMemo(() => state.inverted ? ALL : { first: inTable(arrived.first), last: inTable(arrived.last) }, [arrived, chained, state.inverted]);

  const [focus, setFocus] = useNode(hashes);
  // The function of the table's row under the pointer, and that of the box under the pointer.
  const [linked, setLinked] = useState(-1);
  useLayoutEffect(() => setLinked(-1), [table, tree]);
  const over = hover?.profile === profile && !hover.spot.folded ? ids.of[hover.tree.frame[hover.spot.first]!]! : -1;
  const [help, setHelp] = useState(false);
  const [folded, setFolded] = useState<FoldedSum>({ frames: 0, weight: 0 });
  const [match, setMatch] = useNode(hashes);
  useLayoutEffect(() => setMatch(-1), [state.search, transformKey, state.inverted]);
  const searchBox = useRef<HTMLInputElement>(null);

  const onZoom = useCallback((s: Span) => {
    // Newer samples, which an open menu delays, may lack the frame.
    trail.current = pathOf(tree, s.first).map((i) => pathId(hashes, i));
    const id = s.first === 0 ? "" : pathId(hashes, s.first) + (s.last === s.first ? "" : "~" + pathId(hashes, s.last));
    setHover(null);
    change({ zoom: id }, true);
  }, [tree, hashes, change]);

  const goTo = useCallback((next: number) => {
    if (next < 0)
      return;
    setMatch(next);
    setFocus(next);
    // Zoom to a match that is outside of the zoomed part, or too narrow to see there.
    const outside = weights.start[next]! < weights.start[zoom.first]! ||
      weights.start[next]! >= weights.start[zoom.last]! + weights.total[zoom.last]!;
    const v = outside ? ALL : zoom;
    const width = weights.start[v.last]! + weights.total[v.last]! - weights.start[v.first]!;
    if (weights.total[next]! / width < 0.01)
      onZoom({ first: next, last: next });
    else if (outside)
      onZoom(ALL);
  }, [weights, zoom, hashes, onZoom]);
  const step = (by: 1 | -1): void => {
    if (matches)
      goTo(nextMatch(matches, weights, match, by));
  };
  // A new search scrolls to its widest match; a function that was chosen in the table is also zoomed to where it can be seen.
  const [seek, setSeek] = useState<Seek | null>(null);
  const searched = useRef({ text: "", chosen: false });
  useLayoutEffect(() => {
    const { text, chosen: isChosen } = searched.current;
    searched.current = { text: state.search, chosen: false };
    if (!matches || text === state.search)
      return;
    const inView = widestMatch(matches, weights, weights.start[zoom.first]!, weights.start[zoom.last]! + weights.total[zoom.last]!);
    if (isChosen)
      goTo(inView >= 0 ? inView : widestMatch(matches, weights, 0, weights.total[0]!));
    else if (inView >= 0)
      setSeek({ node: inView });
  }, [matches]);
  const pick = (name: string): void => {
    searched.current.chosen = true;
    change({ search: state.search === exactly(name) ? "" : exactly(name) });
  };

  // The function that keys and the menu are about: that of the focused frame, else of the row that was chosen last.
  const [picked, setPicked] = useState<{ frame: number; profile: Profile } | null>(null);
  const isChainBox = (node: number): boolean => chained !== null && isChain(profile, chained, node);
  const current = focus > 0 ? isChainBox(focus) ? -1 : tree.frame[focus]! : picked?.profile === profile ? picked.frame : -1;
  const isBox = (f: number): boolean => (profile.frames.flags[f]! & COLLAPSED) !== 0;
  const transform = (op: Transform["op"], f: number): void => isBox(f) ? undefined
    : change({ zoom: "", transforms: [...state.transforms, op === "merge" ? { op } : { op, name: frameName(profile, f) }] }, true);
  const fileOf = (f: number): string => profile.strings[profile.frames.file[f]!] ?? "";
  const openSource = (f: number): void => {
    if (fileOf(f) !== "")
      p.onSource?.(fileOf(f), hotLine(profile, f)?.line ?? profile.frames.line[f]!);
  };
  /** Code that was made at run time has no file; its kind is sent instead, and the server explains why it has no code. */
  const codeOf = (f: number): CodeOf | null => {
    const kind = profile.kinds[profile.frames.kind[f]!]?.name ?? "";
    const m = profile.frames.mapping[f]!;
    if (profile.frames.flags[f]! & (GROUP | COLLAPSED) || frameKind(kind)?.class === "note" || kind === "")
      return null;
    const { path, buildId } = m === NONE ? { path: "", buildId: "" } : profile.mappings[m]!;
    return { name: frameName(profile, f), file: path || `[${kind}]`, buildId };
  };
  const openCode = (f: number): void => {
    const code = codeOf(f);
    if (code)
      p.onCode?.(code);
  };
  /** The menu's entry; none for what is no function. */
  const measuring = (f: number): Item[] => {
    const code = p.onMeasure ? codeOf(f) : null;
    return code ? [["Measure this function", () => p.onMeasure!({ function: code.name, file: code.file }), undefined,
      whyNotMeasured(profile.kinds[profile.frames.kind[f]!]?.name ?? "", code.name, code.file, (profile.frames.flags[f]! & INLINED) !== 0)]] : [];
  };
  const keeps = (name: string): boolean => state.transforms.some((t) => t.op === "keep" && t.name === name);
  /** Only whole paths through the frame, or again all. */
  const keep = (name: string): void => change({ zoom: "", transforms: keeps(name) ? state.transforms.filter((t) => t.op !== "keep" || t.name !== name)
    : [...state.transforms, { op: "keep", name }] }, true);
  const only = (filters: Filter[], range = state.range): void => change({ only: filters, range, zoom: "" }, true);
  const onWait = p.onWait ?? ((name: string): void => keep(`[${name}]`));
  const turn = (): void => change({ inverted: !state.inverted, zoom: "" }, true);
  const showMine = (on: boolean): void => {
    remember("all", on ? "0" : "1");
    setHover(null);
    change({ mine: on, zoom: "" }, true);
  };
  const openMenu = (frame: number, node: number, at: Place): void => {
    setHover(null);
    setMenu({ frame, node, at });
  };
  /** By the keyboard: of the row in hand, else of the focused frame, which is also the match that was gone to. */
  const menuByKey = (target: HTMLElement): boolean => {
    const row = target.closest<HTMLElement>("tr[data-frame]");
    const r = row?.getBoundingClientRect();
    if (row && r)
      openMenu(Number(row.dataset["frame"]), -1, { x: r.left + 80, y: r.bottom });
    else if (focus >= 0)
      document.querySelector(".flame-window")?.dispatchEvent(new MouseEvent("contextmenu", { cancelable: true }));
    return row !== null || focus >= 0;
  };
  const nextPanes = (): void => change({ panes: panes === "both" ? "picture" : panes === "picture" ? "table" : "both" });

  const openSandwich = useCallback((name: string) => change({ sandwich: name }, true), [change]);

  const onKey = (e: KeyboardEvent): void => {
    const target = e.target as HTMLElement;
    const typing = target.matches("input, select, textarea");
    if ((e.key === "f" && (e.ctrlKey || e.metaKey)) || (e.key === "/" && !typing)) {
      // A second Ctrl-F opens the browser's own search.
      if (document.activeElement === searchBox.current)
        return;
      e.preventDefault();
      searchBox.current?.focus();
      searchBox.current?.select();
      return;
    }
    // A dialog over the page has its own keys.
    if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]"))
      return;
    if (e.key === "ContextMenu" || (e.key === "F10" && e.shiftKey)) {
      if (menuByKey(target))
        e.preventDefault();
      return;
    }
    if (e.key === "Escape") {
      if (menu) {
        setMenu(null);
      } else if (typing) {
        target.blur();
        if (target === searchBox.current)
          change({ search: "" });
      } else if (state.sandwich) {
        change({ sandwich: "" }, true);
      } else {
        setFocus(-1);
        setHover(null);
        onZoom(ALL);
      }
      return;
    }
    if (typing)
      return;
    switch (e.key) {
    case "0": onZoom(ALL); break;
    case "n": step(1); break;
    case "N": step(-1); break;
    case "i": change({ icicle: !state.icicle }); break;
    case "t": nextPanes(); break;
    case "r": turn(); break;
    case "k": change({ narrow: !state.narrow }); break;
    case "d": turnTheme(); break;
    case "c": nextColour(); break;
    case "s": if (current >= 0 && !isBox(current)) openSandwich(frameName(profile, current)); break;
    case "o": if (current >= 0) openSource(current); break;
    case "a": if (current >= 0) openCode(current); break;
    case "F": if (current >= 0) transform("focus", current); break;
    case "D": if (current >= 0) transform("drop", current); break;
    case "H": if (current >= 0) transform("hide", current); break;
    case "E": if (current >= 0) transform("fold", current); break;
    case "R": if (current >= 0) transform("collapse", current); break;
    case "M": transform("merge", 0); break;
    case "x": showMine(!isMine); break;
    case "w": change({ byWeight: !state.byWeight }); break;
    case "?": setHelp(true); break;
    case "Backspace":
      if (zoom.first > 0)
        onZoom({ first: tree.parent[zoom.first]!, last: tree.parent[zoom.first]! });
      break;
    default: return;
    }
    e.preventDefault();
  };
  /** The menu's entries for a place in the picture, and for a function wherever it was chosen. */
  const ofNode = (node: number): Item[] => [
    ["Zoom in", () => onZoom({ first: node, last: node }), "Enter"],
    ["Copy link to this frame", () => void copy(location.href.replace(/#.*/, "") + "#" + encodeState({ ...state, theme: null, zoom: pathId(hashes, node) }))],
    ["Copy stack", () => void copy(pathOf(tree, node).slice(1).reverse().map((i) => nodeName(profile, tree, i)).join("\n"))],
  ];
  const ofFunction = (f: number): Item[] => {
    const name = frameName(profile, f);
    return [
      ["Search for this function", () => change({ search: exactly(name) })],
      ["Callers and callees", () => openSandwich(name), "s"],
      ...p.onSource && fileOf(f) !== "" ? [["Source lines", () => openSource(f), "o"] as Item] : [],
      ...p.onCode && codeOf(f) ? [["Instructions", () => openCode(f), "a"] as Item] : [],
      ...p.onRequests ? [["Requests that run this function", () => p.onRequests!(name)] as Item] : [],
      ...measuring(f),
      ["Only stacks from this function on", () => transform("focus", f), "F"],
      ["Only stacks with this function", () => transform("keep", f)],
      ["Exclude stacks with this function", () => transform("drop", f), "D"],
      ["Hide this function", () => transform("hide", f), "H"],
      ["Merge callees into this function", () => transform("fold", f), "E"],
      ["Collapse recursion of this function", () => transform("collapse", f), "R"],
      ["Merge all direct recursion", () => transform("merge", f), "M"],
      ["Copy name", () => void copy(name)],
    ];
  };
  const ofHidden = (node: number): Pick<CardProps, "inHidden" | "inside" | "chain"> => isChainBox(node)
    ? { chain: Array.from(mine!.tree.frame.subarray(inTable(node), inTable(node) + tree.folded![node]!), (f) => frameName(profile, f)) } : {
      inHidden: drawn!.hidden[node] ? 0 : tableTree.self[inTable(node)]! - tree.self[node]!,
      inside: isBox(tree.frame[node]!) ? insideOf(drawn!, upright, ids, node).map(([f, v]) => [frameName(profile, f), v]) : null,
    };
  const colourings: [ColourBy, string][] = [["kind", "by kind"], ["package", "by binary"], ["name", "by function"]];
  if (waits)
    colourings.unshift(["wait", "by wait"]);
  if (diff)
    colourings.unshift(["diff", "by change"]);
  const nextColour = (): void => {
    const at = colourings.findIndex(([c]) => c === colourBy);
    change({ colour: colourings[(at + 1) % colourings.length]![0] });
  };
  // A layout effect runs before the next key event; an effect would run after the next paint.
  useLayoutEffect(() => {
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  });

  const v0 = weights.start[zoom.first]!;
  const v1 = weights.start[zoom.last]! + weights.total[zoom.last]!;
  // A box that holds a match is heavier than the match: the share is that of the stacks.
  const uncut = useMemo(() => mine ? weigh(upright, state.widthBy, scale).self : null, [mine, upright, state.widthBy, scale]);
  const matchedIn = (first: number, last: number): number => !matches || !matchedFrames ? 0
    : drawn && uncut && (!state.inverted || first === 0) ? weightOfMatches(drawn, upright, matchedFrames, uncut, state.inverted ? 0 : first, state.inverted ? 0 : last)
      : matchedWeight(matches, weights, weights.start[first]!, weights.start[last]! + weights.total[last]!);
  const matched = matches && v1 > v0 ? matchedIn(zoom.first, zoom.last) / (v1 - v0) : 0;
  const matchedAll = matches && zoom.first !== 0 && weights.total[0]! > 0 ? matchedIn(0, 0) / weights.total[0]! : 0;
  const nth = matches && match >= 0 ? matches.top.indexOf(match) + 1 : 0;
  const k = samplesPerValue(meta, profile.tree);
  // Of a state it is the number of reports.
  const samples = k > 0 ? profile.tree.total[0]! * k : valueType(meta.type, meta.unit).adds === "at_moment" ? -1 : meta.quality.samples;

  const spoken = focus < 0 ? "" : [
    nodeName(profile, tree, focus), `level ${tree.depth[focus]}`,
    `total ${percent(tree.total[focus]! / (profile.tree.total[0]! || 1))} of all`,
    state.inverted ? "" : `self ${percent(tree.self[focus]! / (profile.tree.total[0]! || 1))}`,
    k > 0 ? `95 % interval ${interval(profile, tree, tree.total[focus]!)}` : "",
    hotLine(profile, tree.frame[focus]!) ? `hottest line ${hotLine(profile, tree.frame[focus]!)!.place}` : "",
  ].filter((s) => s !== "").join(", ");
  const counts = valueType(meta.type, meta.unit).help || meta.type;
  const empty = profile.tree.total[0] === 0 && (profile.tree.base?.total[0] ?? 0) === 0;

  // With widths by one side, nodes of the other side only are not in the picture: say how much they are.
  let unseen = 0;
  if (tree.base && state.widthBy !== "both") {
    const [mine, other] = state.widthBy === "after" ? [tree.total, tree.base.self] : [tree.base.total, tree.self];
    for (let i = 0; i < tree.n; i++)
      if (mine[i] === 0)
        unseen += other[i]!;
    unseen /= (state.widthBy === "after" ? tree.base.total[0]! : tree.total[0]!) || 1;
  }

  return (
    <div class={panes === "both" ? "page with-table" : panes === "table" ? "page table-alone" : "page"}
         style={{ "--beside": split.beside ? `${split.beside}%` : null, "--below": split.below ? `${split.below}%` : null }}>
      <header class="top">
        <div class="title">
          <h1 title={meta.title}><span class="mark" aria-hidden="true" />{meta.title || "culprit"}</h1>
          <Quality profile={profile} samples={samples} losses={p.losses} />
        </div>
        <div class="tools">
          <div class={badSearch ? "search bad" : "search"} role="search">
            <input ref={searchBox} type="search" value={state.search} placeholder="Search  ( / )" spellcheck={false}
                   autocomplete="off" aria-label="Search frames by regular expression" aria-invalid={badSearch !== ""}
                   onInput={(e) => change({ search: e.currentTarget.value })}
                   onKeyDown={(e) => {
                     if (e.key === "Enter") {
                       e.preventDefault();
                       step(e.shiftKey ? -1 : 1);
                     }
                   }} />
            {state.search !== "" && <output title={badSearch || undefined}>
              {badSearch ? "not a regular expression" : <>
                <b>{percent(matched)}</b>{zoom.first !== 0 ? ` of view, ${percent(matchedAll)} of all` : " matched"}
                <span class="nth">{nth > 0 ? `${nth} of ` : ""}{count(matches?.top.length ?? 0)}</span></>}
            </output>}
            {inBoxes && inBoxes.n > 0 && <button class="shown-all" title="These matches are in boxes of frames that are not your code. Click to show all frames (x)"
                                                 onClick={() => showMine(false)}>{count(inBoxes.n)} hidden</button>}
            {matches && matches.top.length > 0 && <>
              <button class="icon" aria-label="Previous match" title="Previous match (N)" onClick={() => step(-1)}>‹</button>
              <button class="icon" aria-label="Next match" title="Next match (n)" onClick={() => step(1)}>›</button></>}
          </div>
          {diff && <select aria-label="Widths" title="The profile that sets the widths of frames" value={state.widthBy}
                           onChange={(e) => change({ widthBy: e.currentTarget.value as WidthBy })}>
            <option value="after">width: after</option><option value="before">width: before</option>
            <option value="both">width: both</option></select>}
          {diff && <button class="text" aria-pressed={normalise} title="Compare shares of each profile instead of amounts"
                           onClick={() => change({ normalise: !normalise })}>Normalised</button>}
          <select aria-label="Colours" title="Colours (c)" value={colourBy}
                  onChange={(e) => change({ colour: e.currentTarget.value as ColourBy })}>
            {colourings.map(([c, label]) => <option key={c} value={c}>colours {label}</option>)}</select>
          <MineTools on={isMine} rules={rules} n={owners ? ownCount : null} onMine={showMine} onRules={(own) => {
            remember("own", own);
            change({ own, zoom: "" }, true);
          }} />
          <button class="text" aria-pressed={state.byWeight} title="Siblings by weight, the heaviest first; else by name (w)"
                  onClick={() => change({ byWeight: !state.byWeight })}>By weight</button>
          <button class="text" aria-pressed={state.icicle} title="Root on top (i)"
                  onClick={() => change({ icicle: !state.icicle })}>Icicle</button>
          <button class="text" aria-pressed={state.inverted} title="Leaves first, with their callers (r)"
                  onClick={turn}>Inverted</button>
          <button class="text" aria-pressed={table} title="Function table: beside the flame graph, hidden, or alone (t)"
                  onClick={nextPanes}>{panes === "table" ? "Table alone" : "Table"}</button>
          <button class="icon" aria-label={theme === "dark" ? "Light colours" : "Dark colours"} title="Dark or light (d)"
                  onClick={turnTheme}>{theme === "dark" ? "☀" : "☾"}</button>
          <button class="icon" aria-label="Help" title="Keys (?)" onClick={() => setHelp(true)}>?</button>
        </div>
        {ofWaits && <div class="file-waits"><WaitPanel waits={ofWaits} view={state.waits} views={fileViews(whole, times !== null)}
          onView={(v) => change({ waits: v })} showIdle={state.idle} onIdle={(idle) => change({ idle, zoom: "" }, true)}
          filters={[...keptWaits(state.transforms), ...state.only]} type={valueType(meta.type, meta.unit)} ms={0} dark={theme === "dark"} onChoose={onWait}
          onObject={(r) => only(toggle(state.only, { [ofWaits.objects!.label]: r.name, "process.pid": r.process }))}
          onOwner={(id) => only(toggle(state.only.filter((f) => f.label === "thread.id"), { "thread.id": id }))}
          isWake={(layer, name) => keeps(layer === 0 ? name : wokenBy(name))} onWake={(layer, name) => keep(layer === 0 ? name : wokenBy(name))}>
          {lanes && within && <LaneView lanes={lanes} range={within} now={within.to} idle={state.idle} dark={theme === "dark"} wait={waitOf(keptWaits(state.transforms))}
            find={state.lane} onFind={(lane) => change({ lane })} label={meta.title || "the profile"} isChosen={(l) => l.id !== "" && chosenOf(state.only, "thread.id") === l.id}
            onLane={(l, range) => only(l.id === "" || (range && chosenOf(state.only, "thread.id") === l.id) ? state.only : toggle(state.only, { "thread.id": l.id }),
                                       range ? { from: Math.floor(range.from), to: Math.ceil(range.to) } : state.range)} />}
        </WaitPanel>
        {(state.only.length > 0 || state.range) && <p class="file-only">{state.only.map((f) => <button key={f.label} class="transform" title="Remove this filter"
          onClick={() => only(state.only.filter((x) => x !== f))}>{f.label} = {f.value} ✕</button>)}
          {state.range && <button class="transform" title="All of the time" onClick={() => only(state.only, null)}>{rangeText(state.range, state.range.to)} ✕</button>}</p>}
        </div>}
      </header>
      {state.sandwich === "" &&
        <Crumbs profile={profile} tree={tree} zoom={zoom} groups={groups} isMerged={isMerged} onGroups={(g) => change({ groups: g, zoom: "" }, true)} transforms={state.transforms} onZoom={onZoom}
                onTransforms={(transforms) => change({ transforms, zoom: "" }, true)} />}
      <main class="main">
        {empty ? p.nothing ?? <div class="nothing"><h2>No samples</h2>
          <p>{counts ? `This profile measures ${counts}. None was recorded.` : "Nothing was recorded."} Record for
            longer (<code>-d</code>), or check the filters.</p></div>
        : state.sandwich !== ""
          ? <SandwichView profile={profile} tree={upright} ids={ids} name={state.sandwich} theme={theme} colourBy={colourBy}
                          normalise={normalise} matchedFrames={matchedFrames} onHover={(spot, at, touch, t, withSelf) =>
                            setHover(spot ? { profile, spot, at, touch, tree: t, zoom: ALL, withSelf } : null)}
                          widthBy={state.widthBy} linked={linked}
                          onPick={openSandwich} onClose={() => change({ sandwich: "" }, true)} />
          : tree.total[0] === 0 && !diff
            ? <div class="nothing"><h2>No stacks left</h2><p>No stack in this profile matches all of the choices above.</p>
              <button class="text" onClick={() => change({ transforms: [] }, true)}>Show all stacks</button></div>
            : <Flame seek={seek} profile={profile} tree={tree} weights={weights} colours={colours} theme={theme} matches={matches}
                     icicle={state.icicle} narrow={state.narrow} onFolded={setFolded} zoom={zoom} focus={focus} functionOf={ids.of} linked={linked} onZoom={onZoom} onFocus={setFocus}
                     label={`Flame graph of ${meta.title || "a profile"}, ${value(profile.tree.total[0]!, meta.unit, meta.type)}. Arrow keys move, Enter zooms; the table of functions (t) has the same as text.`}
                     onHover={(spot, at, touch) => setHover(spot ? { profile, spot, at, touch, tree, zoom, withSelf: !state.inverted } : null)}
                     onMenu={(spot, at) => openMenu(tree.frame[spot.first]!, spot.first, at)} />}
        <footer>
          <Legend colours={colours} onWait={onWait} folded={folded} total={v1 - v0} narrow={state.narrow}
                  onNarrow={() => change({ narrow: !state.narrow })} />
          {unseen > 0 && <button class="unseen" onClick={() => change({ widthBy: "both" })}>
            {percent(unseen)} of the {state.widthBy === "after" ? "earlier" : "later"} profile is hidden at this width. Show both</button>}
        </footer>
      </main>
      {panes === "both" && <Splitter wide={wide} split={split} onSplit={setSplit} />}
      {table && <FunctionList profile={profile} tree={tableTree} own={mine && owners ? ownFrames : null} onAll={() => showMine(false)}
                              onMenu={(f, at) => openMenu(f, -1, at)} ids={ids} zoom={tableZoom} sort={state.sort}
                              alone={panes === "table"} descending={state.descending} filter={state.filter} normalise={normalise}
                              matched={matchedFrames} over={over} onOver={setLinked} onSort={(sort, descending) => change({ sort, descending })}
                              onFilter={(filter) => change({ filter })} onSandwich={openSandwich}
                              onPick={(name, frame) => {
                                setPicked({ frame, profile });
                                setFocus(-1);
                                pick(name);
                              }} />}
      {hover?.profile === profile && !menu && <Card profile={profile} tree={hover.tree} all={profile.tree.total[0]!} zoom={hover.zoom}
                               normalise={normalise} factors={p.factors ?? null} withSelf={hover.withSelf}
                               {...drawn && hover.tree === drawn.tree && !hover.spot.folded ? ofHidden(hover.spot.first) : {}} spot={hover.spot} at={hover.at} sheet={hover.touch} />}
      {menu && <Menu at={menu.at} name={menu.node < 0 ? frameName(profile, menu.frame) : nodeName(profile, tree, menu.node)} onClose={() => setMenu(null)}
                     items={[...menu.node < 0 ? [] : ofNode(menu.node), ...isBox(menu.frame) || (menu.node >= 0 && isChainBox(menu.node)) ? [["Show all frames", () => showMine(false), "x"] as Item] : ofFunction(menu.frame)]} />}
      {help && <Help diff={diff} more={p.keys} onClose={() => setHelp(false)} />}
      <div class="spoken" role="status" aria-live="polite">{spoken}</div>
    </div>
  );
}
