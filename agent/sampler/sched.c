/* SPDX-License-Identifier: Apache-2.0 */
/* Waits of threads: the user half of bpf/prog/sched.bpf.c and sched_kprobe.bpf.c. */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <string.h>

#include "agent/probe/probe.h"
#include "agent/sampler/source.h"
#include "base/log.h"
#include "sched.skel.h"
#include "sched_kprobe.skel.h"

SOURCE_SKELETON(sched)
SOURCE_SKELETON(sched_kprobe)

static int open_sched(struct source *s)
{
	struct btf *btf = btf__load_vmlinux_btf();
	bool has_exit =
		btf && btf__find_by_name_kind(btf, "btf_trace_sched_exit_tp", BTF_KIND_TYPEDEF) > 0;
	int r = has_exit ? sched_open(s) : sched_kprobe_open(s);

	s->has_prev_state = probe_switch_state(btf);
	if (has_exit)
		source_find_code(s);
	btf__free(btf);
	return r;
}

static int load_sched(struct source *s)
{
	return source_is_kprobe(s) ? sched_kprobe_load(s) : sched_load(s);
}

static void destroy_sched(struct source *s)
{
	if (!s->entry)
		return;
	if (source_is_kprobe(s))
		sched_kprobe_destroy(s);
	else
		sched_destroy(s);
}

static int start_sched(struct source *s, struct diag *reterr_diag)
{
	/* From the end to the beginning of a wait, so that no wait is half seen; `waker` runs after
	 * on_waking. */
	static const char *const with_wakers[] = {"sample", "on_waking", "waker", "on_switch"};
	static const char *const names[] = {"sample", "on_waking", "on_switch"};

	if (!s->wakers)
		return source_follow_scheduler(s, names, ARRAY_SIZE(names), reterr_diag);
	if (!bpf_object__find_program_by_name(s->object, "waker"))
		return diag_set(reterr_diag, -ENOTSUP,
				"this kernel has no tracepoint sched_exit_tp, without which "
				"--wakers does not work: leave it out");
	return source_follow_scheduler(s, with_wakers, ARRAY_SIZE(with_wakers), reterr_diag);
}

static int tell_sched(struct source *s)
{
	struct bpf_program *p = bpf_object__find_program_by_name(s->object, "asleep");
	struct bpf_link *link = bpf_program__attach_iter(p, NULL);
	int fd = link ? bpf_iter_create(bpf_link__fd(link)) : -1;
	int r = fd < 0 ? -errno : fd;

	bpf_link__destroy(link);
	return r;
}

const struct source_ops source_sched = {
	.open = open_sched,
	.load = load_sched,
	.destroy = destroy_sched,
	.start = start_sched,
	.tell = tell_sched,
	.tells_sleepers = true,
};
