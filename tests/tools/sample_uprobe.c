/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample_uprobe PID FILE SYMBOL: loads bpf/test/uprobe.bpf.c beside the running `culprit record`
 * PID, over the maps that sources share, and attaches it to a function. Its samples go to culprit's
 * ring as samples of culprit's own source; no stack is handed to the host, because the copies of
 * two sources would mix. Prints "ready" once it is attached; when standard input ends, it detaches
 * and prints each counter with its value, and as "preempting" how many samples began while another
 * one was under way on their CPU.
 */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/runtime.h"
#include "abi/sample.h"
#include "base/cleanup.h"
#include "base/types.h"
#include "uprobe.skel.h"

static int quiet(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	return 0;
}

/* Returns the id of the map to which the process's descriptor refers; 0: not a map. */
static u32 map_id(const char *pid, const char *fd)
{
	char path[300], line[128];
	_cleanup_fclose_ FILE *f = NULL;
	u32 id = 0;

	snprintf(path, sizeof(path), "/proc/%s/fdinfo/%s", pid, fd);
	f = fopen(path, "re");
	while (f && !id && fgets(line, sizeof(line), f))
		if (sscanf(line, "map_id: %u", &id) != 1)
			id = 0;
	return id;
}

/* Replaces the object's maps by the process's maps of the same names, except those of a sample. */
static int share_maps(struct bpf_object *object, const char *pid)
{
	char path[64];
	struct dirent *e;
	int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		u32 id = map_id(pid, e->d_name);
		_cleanup_close_ int fd = id ? bpf_map_get_fd_by_id(id) : -1;
		struct bpf_map_info info = {};
		u32 size = sizeof(info);
		struct bpf_map *map;

		if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &size) < 0)
			continue;
		/* The kernel cuts names to 15 bytes. */
		bpf_object__for_each_map(
			map,
			object) if (!strncmp(bpf_map__name(map), info.name, BPF_OBJ_NAME_LEN - 1) &&
				    bpf_map__type(map) != BPF_MAP_TYPE_PROG_ARRAY &&
				    bpf_map__type(map) != BPF_MAP_TYPE_PERCPU_ARRAY &&
				    !bpf_map__is_internal(map) &&
				    strcmp(info.name, "scratch") != 0 &&
				    bpf_map__reuse_fd(map, fd) == 0) n++;
	}
	if (dir)
		closedir(dir);
	return n;
}

static int join_programs(struct uprobe_bpf *u)
{
	const struct bpf_program *programs[RUNTIME_N + 1] = {
		[RUNTIME_NONE] = u->progs.walk_native,
#define RUNTIME(id, name, ...) [RUNTIME_##id] = u->progs.walk_##name,
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
		[RUNTIME_N] = u->progs.finish,
	};

	for (u32 i = 0; i <= RUNTIME_N; i++) {
		int fd = bpf_program__fd(programs[i]);

		if (bpf_map__update_elem(u->maps.walkers, &i, sizeof(i), &fd, sizeof(fd), 0) < 0)
			return -errno;
	}
	return 0;
}

static int load(struct uprobe_bpf *u, const char *pid)
{
	struct sampler_config *c = (struct sampler_config *)&u->rodata->config;
	u32 n_cpus = (u32)libbpf_num_possible_cpus();

	c->has_task_btf = c->user_stacks = 1;
	c->ring_bytes = 1 << 22;
	bpf_map__set_max_entries(u->maps.scratch, n_cpus * bpf_map__max_entries(u->maps.scratch));
	bpf_program__set_autoload(u->progs.step_native, false);
#define RUNTIME(id, name, ...) bpf_program__set_autoload(u->progs.step_##name, false);
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
	if (!share_maps(u->obj, pid))
		return -ESRCH;
	return uprobe_bpf__load(u);
}

/* Prints the counters, summed over the CPUs' states; each state begins with its counters. */
static int print_counters(struct uprobe_bpf *u)
{
	static const char *const names[COUNTER_N] = {
#define COUNTER(id, name, ...) [COUNTER_##id] = name,
#include "abi/tbl/counter.tbl"
#undef COUNTER
	};
	size_t bytes = bpf_map__value_size(u->maps.scratch);
	_cleanup_free_ u64 *state = malloc(bytes);
	u32 levels = bpf_map__max_entries(u->maps.scratch) / (u32)libbpf_num_possible_cpus();
	u64 sum[COUNTER_N] = {}, preempting = 0;

	for (u32 i = 0; state && i < bpf_map__max_entries(u->maps.scratch); i++) {
		if (bpf_map__lookup_elem(u->maps.scratch, &i, sizeof(i), state, bytes, 0) < 0)
			return -errno;
		for (u32 k = 0; k < COUNTER_N; k++)
			sum[k] += state[k];
		preempting += i % levels ? state[COUNTER_SAMPLES] : 0;
	}
	for (u32 k = 0; k < COUNTER_N; k++)
		printf("%s %llu\n", names[k], sum[k]);
	printf("preempting %llu\n", preempting);
	return 0;
}

static int sample_until_told(struct uprobe_bpf *u, const char *file, const char *symbol)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .func_name = symbol);
	struct bpf_link *link =
		bpf_program__attach_uprobe_opts(u->progs.sample, -1, file, 0, &opts);

	if (!link)
		return -errno;
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	bpf_link__destroy(link);
	return print_counters(u);
}

int main(int argc, char **argv)
{
	struct uprobe_bpf *u;
	int r;

	if (argc != 4) {
		fprintf(stderr, "sample_uprobe PID FILE SYMBOL\n");
		return 2;
	}
	libbpf_set_print(quiet);
	u = uprobe_bpf__open();
	r = u ? load(u, argv[1]) : -errno;
	if (r == 0)
		r = join_programs(u);
	if (r == 0)
		r = sample_until_told(u, argv[2], argv[3]);
	uprobe_bpf__destroy(u);
	if (r < 0)
		fprintf(stderr, "sample_uprobe: %s\n", strerror(-r));
	return r < 0 ? 1 : 0;
}
