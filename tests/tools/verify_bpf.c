/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_bpf [NAME]: loads each BPF program apart (or those whose name contains NAME) as for this
 * kernel, and prints how many instructions the verifier has read of it, of the million that it
 * reads; of what it refuses also its last words. What the kernel has no helper for is left out.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "abi/sample.h"
#include "agent/probe/probe.h"
#include "base/cleanup.h"
#include "oncpu.skel.h"

#define MAX_PROGRAMS 64
/* include/linux/bpf_verifier.h */
#define VERIFIER_STATS 4 /* BPF_LOG_STATS */
#define VERIFIER_ALL 2	 /* BPF_LOG_LEVEL2 */
#define LAST_WORDS 3000

static int quiet(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	return 0;
}

/* Instructions read, or a negative errno. */
static int verify(const char *name, const struct probe_features *f, u32 level)
{
	static char log[64 << 20];
	struct oncpu_bpf *skel = oncpu_bpf__open();
	struct sampler_config *c;
	struct bpf_program *p;
	const char *at;
	int r, n = -EINVAL;

	if (!skel)
		return -ENOMEM;
	c = (struct sampler_config *)&skel->rodata->config;
	c->has_task_btf = f->task_pt_regs && f->current_task_btf;
	c->thread_size = 16384;
	c->kernel_stacks = c->user_stacks = 1;
	c->filter_pids = c->filter_comms = c->filter_uids = c->filter_cgroups = 1;
	c->defer_per_tick = 40;
	c->ring_bytes = 1 << 22;
	bpf_map__set_max_entries(skel->maps.scratch, (u32)libbpf_num_possible_cpus());
	bpf_object__for_each_program(p, skel->obj)
	{
		bool wanted = !strcmp(bpf_program__name(p), name);

		bpf_program__set_autoload(p, wanted);
		if (!wanted)
			continue;
		bpf_program__set_log_level(p, level);
		bpf_program__set_log_buf(p, log, sizeof(log));
	}
	log[0] = '\0';
	r = oncpu_bpf__load(skel);
	/* A line of its own; newer kernels say before it how many of each function. */
	at = strstr(log, "\nprocessed ");
	if (r == 0 && at)
		(void)sscanf(at, " processed %d", &n);
	if (level == VERIFIER_ALL)
		fprintf(stderr, "%s\n", log + MAX(strlen(log), (size_t)LAST_WORDS) - LAST_WORDS);
	oncpu_bpf__destroy(skel);
	return r < 0 ? r : n;
}

int main(int argc, char **argv)
{
	struct oncpu_bpf *skel = oncpu_bpf__open();
	const char *names[MAX_PROGRAMS];
	struct probe_features features;
	struct diag diag = {};
	struct bpf_program *p;
	int n, n_names = 0, status = 0;

	libbpf_set_print(quiet);
	if (!skel || probe_features(&features, &diag) < 0) {
		fprintf(stderr, "verify_bpf: %s\n", diag.text);
		return 1;
	}
	bpf_object__for_each_program(p, skel->obj) if (n_names < MAX_PROGRAMS) names[n_names++] =
		bpf_program__name(p);
	for (int i = 0; i < n_names; i++) {
		if (argc > 1 && !strstr(names[i], argv[1]))
			continue;
		if (!features.bpf_loop && !strncmp(names[i], "walk_", 5))
			continue;
		n = verify(names[i], &features, VERIFIER_STATS);
		if (n < 0) {
			status = 1;
			(void)verify(names[i], &features, VERIFIER_ALL);
		}
		printf("%s %d\n", names[i], n);
	}
	oncpu_bpf__destroy(skel);
	return status;
}
