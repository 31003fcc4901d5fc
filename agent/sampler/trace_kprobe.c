/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks for kprobes, uprobes and USDT probes: the user half of bpf/prog/trace_kprobe.bpf.c. For
 * uprobes that are linked all programs have the attach type of such a link, because programs of a
 * prog array must have the same.
 */
#include <string.h>

#include "agent/probe/probe.h"
#include "agent/sampler/trace.h"
#include "trace_kprobe.skel.h"

SOURCE_SKELETON(trace_kprobe)

static int parse(const char *name, struct source *s, struct diag *reterr_diag)
{
	(void)s;
	(void)reterr_diag;
	return !strcmp(name, SAMPLER_TRACE_KPROBE) || !strcmp(name, SAMPLER_TRACE_UPROBE) ? 0
											  : -ENOENT;
}

static int open_sized(struct source *s)
{
	int r = trace_kprobe_open(s);
	struct bpf_program *p;

	if (r == 0)
		r = source_trace_size(s);
	if (r < 0 || strcmp(s->about.event, SAMPLER_TRACE_UPROBE) != 0)
		return r;
	bpf_object__for_each_program(p, s->object)
	{
		if (r == 0 && bpf_program__type(p) == BPF_PROG_TYPE_KPROBE)
			r = bpf_program__set_expected_attach_type(
				p, (enum bpf_attach_type)PROBE_UPROBE_MULTI);
	}
	return r;
}

static int load_joined(struct source *s)
{
	int r = trace_kprobe_load(s);

	return r < 0 ? r : source_trace_join(s);
}

const struct source_ops source_trace_kprobe = {
	.parse = parse,
	.open = open_sized,
	.load = load_joined,
	.destroy = trace_kprobe_destroy,
	.start = source_trace_start,
	.never_pauses = true,
};
