// SPDX-License-Identifier: Apache-2.0
/* Views and sheets of the served page that live.tsx loads when the first of them is opened. */
export { AgentTable } from "./agents.tsx";
export { AssemblySheet } from "./assembly.tsx";
export { Files } from "./files.tsx";
export { FlameChart } from "./flamechart.tsx";
export { GrowthView, NoMemory } from "./growth.tsx";
export { MeasureCard, MeasureDialog } from "./measure.tsx";
export { Notes } from "./notes.tsx";
export { SourceCode } from "./sourcecode.tsx";
export { TaskDialog, Tasks } from "./tasks.tsx";
