/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intervals of threads that carry a span: the user half of bpf/prog/request_waits.bpf.c and
 * request_kprobe.bpf.c.
 */
#include <bpf/btf.h>
#include <errno.h>
#include <string.h>

#include "agent/probe/probe.h"
#include "agent/sampler/source.h"
#include "request_kprobe.skel.h"
#include "request_waits.skel.h"

SOURCE_SKELETON(request_waits)
SOURCE_SKELETON(request_kprobe)

static int parse(const char *name, struct source *s, struct diag *reterr_diag)
{
	(void)reterr_diag;
	return strcmp(name, s->row->name) == 0 ? 0 : -ENOENT;
}

/* Whether `s` is request_kprobe. */
static bool is_old(const struct source *s)
{
	return bpf_program__type(s->entry) == BPF_PROG_TYPE_KPROBE;
}

static int open_waits(struct source *s)
{
	struct btf *btf = btf__load_vmlinux_btf();
	int r = probe_waits();

	s->has_prev_state = probe_switch_state(btf);
	btf__free(btf);
	if (r < 0)
		return r;
	return r == 0 ? request_waits_open(s) : request_kprobe_open(s);
}

static int load_waits(struct source *s)
{
	return is_old(s) ? request_kprobe_load(s) : request_waits_load(s);
}

static void destroy_waits(struct source *s)
{
	if (!s->entry)
		return;
	if (is_old(s))
		request_kprobe_destroy(s);
	else
		request_waits_destroy(s);
}

static struct bpf_link *attach(const struct source *s, struct bpf_program *program)
{
	char name[64];

	if (program != s->entry || !is_old(s))
		return bpf_program__attach(program);
	errno = ENOENT;
	return probe_resumed_function(name, sizeof(name)) < 0
		       ? NULL
		       : bpf_program__attach_kprobe(program, false, name);
}

static int start_waits(struct source *s, struct diag *reterr_diag)
{
	/* From the end to the beginning of a wait, so that no wait is half seen. */
	static const char *const names[] = {"sample", "on_waking", "on_switch"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct bpf_program *p = bpf_object__find_program_by_name(s->object, names[i]);
		struct bpf_link *link = attach(s, p);
		int r;

		if (!link)
			return diag_set(reterr_diag, -errno,
					"cannot follow the scheduler (%s): %s; waits need kprobes "
					"(CONFIG_KPROBES) or a newer kernel",
					bpf_program__section_name(p), strerror(errno));
		r = source_attach(s, -1, -1, link);
		if (r < 0) {
			bpf_link__destroy(link);
			return r;
		}
	}
	return 0;
}

const struct source_ops source_request_waits = {
	.parse = parse,
	.open = open_waits,
	.load = load_waits,
	.destroy = destroy_waits,
	.start = start_waits,
};
