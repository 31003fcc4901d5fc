/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks for raw tracepoints and actions that user space runs: half of bpf/prog/trace_raw.bpf.c. */
#include "agent/sampler/trace.h"
#include "trace_raw.skel.h"

SOURCE_SKELETON(trace_raw)
SOURCE_TRACE(trace_raw)
