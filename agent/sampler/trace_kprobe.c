/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks for kprobes, uprobes and USDT probes: the user half of bpf/prog/trace_kprobe.bpf.c. */
#include "agent/sampler/trace.h"
#include "trace_kprobe.skel.h"

SOURCE_SKELETON(trace_kprobe)
SOURCE_TRACE(trace_kprobe)
