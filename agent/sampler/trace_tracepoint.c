/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks for tracepoints of tracefs: the user half of bpf/prog/trace_tracepoint.bpf.c. */
#include "agent/sampler/trace.h"
#include "trace_tracepoint.skel.h"

SOURCE_SKELETON(trace_tracepoint)
SOURCE_TRACE(trace_tracepoint)
