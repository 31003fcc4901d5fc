// SPDX-License-Identifier: Apache-2.0
/* The chart above the picture: the total, its parts, a lane for each thread name, or a heat map. */
import { CHARTS } from "../model/address.ts";
import type { ChartBy } from "../model/address.ts";
import type { Mark } from "../model/marks.ts";
import { peak } from "../model/series.ts";
import { showable } from "../model/payload.ts";
import { count } from "../model/text.ts";
import type { Range } from "../model/times.ts";
import type { SampleType } from "../model/vocab.ts";
import type { Timeline as Data } from "./ask.ts";
import { Chart } from "./chart.tsx";
import { HeatMap } from "./heat.tsx";
import { LaneView } from "./lanes.tsx";
import type { LaneProps } from "./lanes.tsx";
import { StackView } from "./stack.tsx";

const WORD: Record<ChartBy, string> = { bars: "Total", stack: "Stacked", function: "Functions", threads: "Threads", heat: "Sub-second" };

interface Props {
  data: Data | null;
  by: ChartBy;
  range: Range;
  type: SampleType;
  label: string;
  now: number;
  marks: Mark[];
  onBy: (by: ChartBy) => void;
  onSelect: (r: Range) => void;
  /** Only this value of the label. */
  onLabel: (label: string, value: string) => void;
  /** Of lanes of states. */
  lanes: LaneProps;
  /** The server has no waits at all. */
  noWaits: boolean;
}

export function Timeline(p: Props): preact.JSX.Element {
  const { data, range, type, now, onSelect } = p;
  const { dark } = p.lanes;
  // Lanes have one scale: what is twice as much is twice as high.
  const most = data?.by === "threads" ? Math.max(...data.lanes.map((l) => peak(l.bars, type))) : 0;
  return (
    <div class={`timeline ${p.by}${data?.by === "lanes" ? " states" : ""}`}>
      <div class="chart-by" role="group" aria-label="Chart (g)">
        {CHARTS.filter((by) => by !== "function" || type.adds === "over_time").map((by) => <button key={by} aria-pressed={by === p.by} onClick={() => p.onBy(by)}>{WORD[by]}</button>)}
      </div>
      {data?.by === "heat" ? <HeatMap heat={data.heat} dark={dark} type={type} now={now} onSelect={onSelect} label={p.label} />
      : data?.by === "stack" ? <StackView stack={data.stack} marks={p.marks} dark={dark} range={range} type={type} now={now} onSelect={onSelect} label={p.label}
                                          onChoose={(name) => p.onLabel(data.stack.by, name)} />
      : data?.by === "lanes" ? <LaneView {...p.lanes} lanes={data.lanes} range={range} now={now} label={p.label} />
      : data?.by === "threads" ? <div class="lanes">
        {data.lanes.map((l) => <div class="lane" key={l.name}>
          <span class="n" title={showable(l.name)}>{l.name === "" ? <i>no name</i> : showable(l.name)}</span>
          <Chart bars={l.bars} range={range} type={type} now={now} onSelect={onSelect} axis={false} most={most}
                 label={`${p.label}, thread ${showable(l.name)}`} /></div>)}
        {data.more > 0 && <p class="soft">{count(data.more)} threads with fewer samples are not shown.</p>}
        {p.noWaits && <p class="soft">No agent sent waits in this time range (<code>--off-cpu</code>), so only CPU time is shown.</p>}
        {data.lanes.length === 0 && <p class="soft">No samples of threads in this time range.</p>}
      </div>
      : <Chart bars={data?.bars ?? null} range={range} type={type} now={now} onSelect={onSelect} label={p.label} marks={p.marks} />}
    </div>
  );
}
