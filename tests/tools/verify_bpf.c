/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_bpf [NAME]: loads each BPF program alone (or only those whose name contains NAME),
 * configured for this kernel. Prints how many instructions the verifier has processed, of at most a
 * million, and the end of the verifier's log for a refused program. Programs whose helpers the
 * kernel lacks are left out. Besides the programs of sources it loads the walkers in programs of
 * other types, which sources may have one day (bpf/test).
 */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "abi/sample.h"
#include "agent/probe/probe.h"
#include "alloc.skel.h"
#include "base/cleanup.h"
#include "block.skel.h"
#include "faults.skel.h"
#include "follow.skel.h"
#include "kprobe.skel.h"
#include "perf.skel.h"
#include "raw_tracepoint.skel.h"
#include "request_clock.skel.h"
#include "request_kprobe.skel.h"
#include "request_waits.skel.h"
#include "resident.skel.h"
#include "sched.skel.h"
#include "sched_kprobe.skel.h"
#include "sleeper.skel.h"
#include "trace_kprobe.skel.h"
#include "trace_perf.skel.h"
#include "trace_raw.skel.h"
#include "trace_tracepoint.skel.h"
#include "tracepoint.skel.h"
#include "uprobe.skel.h"

#define MAX_PROGRAMS 64
/* include/linux/bpf_verifier.h */
#define VERIFIER_STATS 4 /* BPF_LOG_STATS */
#define VERIFIER_ALL 2	 /* BPF_LOG_LEVEL2 */
#define LAST_WORDS 3000

static const struct {
	const char *name;
	const void *(*bytes)(size_t *n);
	/* Skip it on kernels without bpf_loop(): they are too old for it, or their verifier loses
	 * track of bounds. */
	bool needs_loop;
	int (*needs)(void); /* a probe, or NULL */
} objects[] = {
	{"perf", perf_bpf__elf_bytes},
	{"tracepoint", tracepoint_bpf__elf_bytes},
	{"follow", follow_bpf__elf_bytes},
	{"raw_tracepoint", raw_tracepoint_bpf__elf_bytes},
	{"sched_kprobe", sched_kprobe_bpf__elf_bytes},
	{"sched", sched_bpf__elf_bytes, true},
	{"request_clock", request_clock_bpf__elf_bytes},
	{"request_kprobe", request_kprobe_bpf__elf_bytes},
	{"request_waits", request_waits_bpf__elf_bytes, true},
	{"faults", faults_bpf__elf_bytes},
	{"resident", resident_bpf__elf_bytes},
	{"alloc", alloc_bpf__elf_bytes, true},
	{"block", block_bpf__elf_bytes},
	{"kprobe", kprobe_bpf__elf_bytes},
	{"uprobe", uprobe_bpf__elf_bytes, true},
	{"trace_kprobe", trace_kprobe_bpf__elf_bytes, true},
	{"trace_tracepoint", trace_tracepoint_bpf__elf_bytes},
	{"trace_raw", trace_raw_bpf__elf_bytes},
	{"trace_perf", trace_perf_bpf__elf_bytes},
	{"sleeper", sleeper_bpf__elf_bytes, true, probe_sleepers},
};

static int quiet(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	return 0;
}

static struct bpf_object *open_object(size_t i)
{
	size_t n = 0;
	const void *bytes = objects[i].bytes(&n);

	return bpf_object__open_mem(bytes, n, NULL);
}

/* Finds the object's `config` by its BTF; NULL: the object has none. */
static struct sampler_config *config_of(struct bpf_object *object)
{
	const struct btf *btf = bpf_object__btf(object);
	s32 id = btf__find_by_name_kind(btf, ".rodata", BTF_KIND_DATASEC);
	const struct btf_type *section = id > 0 ? btf__type_by_id(btf, (u32)id) : NULL;
	const struct btf_var_secinfo *var = section ? btf_var_secinfos(section) : NULL;
	struct bpf_map *map;

	bpf_object__for_each_map(map, object)
	{
		size_t size = 0;
		u8 *data = strstr(bpf_map__name(map), ".rodata")
				   ? (u8 *)bpf_map__initial_value(map, &size)
				   : NULL;

		for (u32 i = 0; data && section && i < btf_vlen(section); i++) {
			const struct btf_type *t = btf__type_by_id(btf, var[i].type);

			if (!strcmp(btf__name_by_offset(btf, t->name_off), "config"))
				return (struct sampler_config *)(data + var[i].offset);
		}
	}
	return NULL;
}

static void configure(struct bpf_object *object, const struct probe_features *f)
{
	static struct btf *kernel;
	struct sampler_config *c = config_of(object);
	struct bpf_map *states = bpf_object__find_map_by_name(object, "scratch");

	if (c) {
		c->has_task_btf = f->task_pt_regs && f->current_task_btf;
		c->thread_size = 16384;
		c->page_shift = 12;
		c->kernel_stacks = c->user_stacks = 1;
		c->filter_pids = c->filter_comms = c->filter_uids = c->filter_cgroups = 1;
		c->skip_kthreads = 1;
		c->defer_per_tick = 40;
		c->ring_bytes = 1 << 22;
		c->budget_ns = 50000;
		c->wakers = c->whole_time = 1;
		if (!kernel)
			kernel = btf__load_vmlinux_btf();
		c->has_prev_state = probe_switch_state(kernel);
		for (u32 i = 0; i < ARRAY_SIZE(c->code); i++) {
			c->code[i][0] = 0xffffffff81000000;
			c->code[i][1] = 0xffffffff82200000;
		}
	}
	if (states)
		bpf_map__set_max_entries(states, (u32)libbpf_num_possible_cpus() *
							 bpf_map__max_entries(states));
}

/* Returns the number of processed instructions, or a negative errno. */
static int verify(size_t object_index, const char *name, const struct probe_features *f, u32 level)
{
	static char log[64 << 20];
	struct bpf_object *object = open_object(object_index);
	struct bpf_program *p;
	const char *at;
	int r, n = -EINVAL;

	if (!object)
		return -ENOMEM;
	configure(object, f);
	bpf_object__for_each_program(p, object)
	{
		bool wanted = !strcmp(bpf_program__name(p), name);

		bpf_program__set_autoload(p, wanted);
		if (!wanted)
			continue;
		bpf_program__set_log_level(p, level);
		bpf_program__set_log_buf(p, log, sizeof(log));
	}
	log[0] = '\0';
	r = bpf_object__load(object);
	/* The total begins a line; newer kernels print the numbers of each function before it. */
	at = strstr(log, "\nprocessed ");
	if (r == 0 && at)
		(void)sscanf(at, " processed %d", &n);
	/* The log ends with the reason, unless a log of all states was too long for its buffer. */
	if (r < 0 || level == VERIFIER_ALL)
		fprintf(stderr, "%s\n", log + MAX(strlen(log), (size_t)LAST_WORDS) - LAST_WORDS);
	bpf_object__close(object);
	return r < 0 ? r : n;
}

/* Returns 0, or 1 when the kernel refuses one of the object's programs. */
static int verify_object(size_t i, const char *wanted, const struct probe_features *f)
{
	struct bpf_object *object = open_object(i);
	struct bpf_program *p;
	int status = 0;

	if (!object)
		return 1;
	bpf_object__for_each_program(p, object)
	{
		const char *name = bpf_program__name(p);
		char full[128];
		int n;

		snprintf(full, sizeof(full), "%s/%s", objects[i].name, name);
		if (wanted && !strstr(full, wanted))
			continue;
		if (!f->bpf_loop && !strncmp(name, "walk_", 5))
			continue;
		n = verify(i, name, f, VERIFIER_STATS);
		if (n < 0) {
			status = 1;
			(void)verify(i, name, f, VERIFIER_ALL);
		}
		printf("%s %d\n", full, n);
		fflush(stdout);
	}
	bpf_object__close(object);
	return status;
}

int main(int argc, char **argv)
{
	struct probe_features features;
	struct diag diag = {};
	int status = 0;

	libbpf_set_print(quiet);
	if (probe_features(&features, &diag) < 0) {
		fprintf(stderr, "verify_bpf: %s\n", diag.text);
		return 1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(objects); i++)
		if ((features.bpf_loop || !objects[i].needs_loop) &&
		    (!objects[i].needs || objects[i].needs() == 0))
			status |= verify_object(i, argc > 1 ? argv[1] : NULL, &features);
	return status;
}
