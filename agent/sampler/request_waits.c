/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intervals of threads that carry a span: the user half of bpf/prog/request_waits.bpf.c and
 * request_kprobe.bpf.c.
 */
#include <bpf/btf.h>

#include "agent/probe/probe.h"
#include "agent/sampler/source.h"
#include "request_kprobe.skel.h"
#include "request_waits.skel.h"

SOURCE_SKELETON(request_waits)
SOURCE_SKELETON(request_kprobe)

static int open_waits(struct source *s)
{
	struct btf *btf = btf__load_vmlinux_btf();
	int r = probe_waits();

	s->has_prev_state = probe_switch_state(btf);
	btf__free(btf);
	if (r < 0)
		return r;
	source_find_code(s);
	return r == 0 ? request_waits_open(s) : request_kprobe_open(s);
}

static int load_waits(struct source *s)
{
	return source_is_kprobe(s) ? request_kprobe_load(s) : request_waits_load(s);
}

static void destroy_waits(struct source *s)
{
	if (!s->entry)
		return;
	if (source_is_kprobe(s))
		request_kprobe_destroy(s);
	else
		request_waits_destroy(s);
}

static int start_waits(struct source *s, struct diag *reterr_diag)
{
	/* From the end to the beginning of a wait, so that no wait is half seen. */
	static const char *const names[] = {"sample", "on_waking", "on_switch"};

	return source_follow_scheduler(s, names, ARRAY_SIZE(names), reterr_diag);
}

const struct source_ops source_request_waits = {
	.open = open_waits,
	.load = load_waits,
	.destroy = destroy_waits,
	.start = start_waits,
};
