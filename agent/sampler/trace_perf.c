/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks for perf events: the user half of bpf/prog/trace_perf.bpf.c. */
#include "agent/sampler/trace.h"
#include "trace_perf.skel.h"

SOURCE_SKELETON(trace_perf)
SOURCE_TRACE(trace_perf)
