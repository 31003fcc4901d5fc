/* SPDX-License-Identifier: Apache-2.0 */
/* Waits of threads: the user half of bpf/prog/sched.bpf.c and sched_kprobe.bpf.c. */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/sampler/source.h"
#include "base/cleanup.h"
#include "sched.skel.h"
#include "sched_kprobe.skel.h"

/* 0.5 % of a CPU, in ns of 10 ms. */
#define BUDGET_NS 50000

SOURCE_SKELETON(sched)
SOURCE_SKELETON(sched_kprobe)

static int parse(const char *name, struct source *s, struct diag *reterr_diag)
{
	(void)reterr_diag;
	return strcmp(name, s->row->name) == 0 ? 0 : -ENOENT;
}

/* Whether sched_switch has a fourth argument (Linux 5.18, commit fa2c3254d7cf). */
static bool has_prev_state(const struct btf *btf)
{
	s32 id = btf ? btf__find_by_name_kind(btf, "btf_trace_sched_switch", BTF_KIND_TYPEDEF) : 0;
	const struct btf_type *t = id > 0 ? btf__type_by_id(btf, (u32)id) : NULL;

	t = t ? btf__type_by_id(btf, t->type) : NULL; /* a pointer to a function */
	t = t && btf_is_ptr(t) ? btf__type_by_id(btf, t->type) : NULL;
	return t && btf_is_func_proto(t) && btf_vlen(t) == 5; /* the first is the probe's own */
}

/* Whether `s` is sched_kprobe. */
static bool is_old(const struct source *s)
{
	return bpf_program__type(s->entry) == BPF_PROG_TYPE_KPROBE;
}

static int open_sched(struct source *s)
{
	struct btf *btf = btf__load_vmlinux_btf();
	bool has_exit =
		btf && btf__find_by_name_kind(btf, "btf_trace_sched_exit_tp", BTF_KIND_TYPEDEF) > 0;
	int r = has_exit ? sched_open(s) : sched_kprobe_open(s);

	if (r == 0) {
		s->budget_ns = BUDGET_NS;
		s->has_prev_state = has_prev_state(btf);
	}
	btf__free(btf);
	return r;
}

static int load_sched(struct source *s)
{
	return is_old(s) ? sched_kprobe_load(s) : sched_load(s);
}

static void destroy_sched(struct source *s)
{
	if (!s->entry)
		return;
	if (is_old(s))
		sched_kprobe_destroy(s);
	else
		sched_destroy(s);
}

/* The kernel's name of finish_task_switch(), to which compilers may add a suffix. */
static int resumed_function(char *ret, size_t n)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/kallsyms", "re");
	char line[256], name[64];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s %*1[tT] %63s", name) == 1 &&
		    !strncmp(name, "finish_task_switch", 18) && (!name[18] || name[18] == '.')) {
			snprintf(ret, n, "%s", name);
			return 0;
		}
	return -ENOENT;
}

static struct bpf_link *attach(const struct source *s, struct bpf_program *program)
{
	char name[64];

	if (program != s->entry || !is_old(s))
		return bpf_program__attach(program);
	errno = ENOENT;
	return resumed_function(name, sizeof(name)) < 0
		       ? NULL
		       : bpf_program__attach_kprobe(program, false, name);
}

static int start_sched(struct source *s, struct diag *reterr_diag)
{
	/* From the end to the beginning of a wait, so that no wait is half seen; `waker` runs after
	 * on_waking. */
	static const char *const names[] = {"sample", "on_waking", "waker", "on_switch"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct bpf_program *p = bpf_object__find_program_by_name(s->object, names[i]);
		struct bpf_link *link;
		int r;

		if (!strcmp(names[i], "waker") && !s->wakers)
			continue;
		if (!p)
			return diag_set(
				reterr_diag, -ENOTSUP,
				"this kernel has no tracepoint sched_exit_tp, without which "
				"--wakers does not work: leave it out");
		link = attach(s, p);
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

static int end_sched(struct source *s)
{
	struct bpf_program *p = bpf_object__find_program_by_name(s->object, "asleep");
	struct bpf_link *link = bpf_program__attach_iter(p, NULL);
	int fd = link ? bpf_iter_create(bpf_link__fd(link)) : -1;
	int r = fd < 0 ? -errno : fd;

	bpf_link__destroy(link);
	return r;
}

const struct source_ops source_sched = {
	.parse = parse,
	.open = open_sched,
	.load = load_sched,
	.destroy = destroy_sched,
	.start = start_sched,
	.end = end_sched,
};
