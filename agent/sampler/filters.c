/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/filters.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

static struct bpf_map *map_of(struct bpf_object *object, const char *name)
{
	return bpf_object__find_map_by_name(object, name);
}

int filters_add_pid(struct bpf_object *object, u32 pid)
{
	return filters_choose_pid(object, pid, FILTER_PID_FAMILY);
}

int filters_choose_pid(struct bpf_object *object, u32 pid, enum filter_pid how)
{
	const struct bpf_map *map = map_of(object, "filter_pids");
	u64 value = how, old;

	/* An entry that a fork has made is removed when its process exits: it stays. */
	if (how == FILTER_PID_FAMILY &&
	    bpf_map__lookup_elem(map, &pid, sizeof(pid), &old, sizeof(old), 0) == 0 &&
	    old > FILTER_PID_ALONE)
		return 0;
	return bpf_map__update_elem(map, &pid, sizeof(pid), &value, sizeof(value), BPF_ANY);
}

void filters_drop_pid(struct bpf_object *object, u32 pid)
{
	(void)bpf_map__delete_elem(map_of(object, "filter_pids"), &pid, sizeof(pid), 0);
}

int sampler_open_cgroup(const char *path, struct diag *reterr_diag)
{
	/* Wherever the tree is mounted. */
	static const char *const roots[] = {"", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"};

	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		_cleanup_free_ char *full = NULL;
		_cleanup_free_ char *procs = NULL;
		int fd;

		if (asprintf(&full, "%s%s%s", roots[i], path[0] == '/' || !i ? "" : "/", path) <
			    0 ||
		    asprintf(&procs, "%s/cgroup.controllers", full) < 0)
			return -ENOMEM;
		if (access(procs, F_OK) < 0)
			continue;
		fd = open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0)
			return fd;
	}
	return diag_set(reterr_diag, -ENOENT,
			"no cgroup '%s' on the cgroup v2 tree; systemd-cgls lists them", path);
}

int filters_fill(struct bpf_object *object, const struct sampler_options *o,
		 struct diag *reterr_diag)
{
	u32 one = 1;
	int r = 0;

	if (o->n_comms > SAMPLER_MAX_FILTERS || o->n_uids > SAMPLER_MAX_FILTERS ||
	    o->n_cgroups > SAMPLER_MAX_FILTERS)
		return diag_set(reterr_diag, -E2BIG,
				"at most %d each of --comm, --uid and --cgroup",
				SAMPLER_MAX_FILTERS);
	for (u32 i = 0; i < o->n_pids && r == 0; i++)
		r = filters_add_pid(object, o->pids[i]);
	for (u32 i = 0; i < o->n_comms && r == 0; i++) {
		char key[SAMPLE_COMM_BYTES] = {};

		strncpy(key, o->comms[i], sizeof(key) - 1);
		r = bpf_map__update_elem(map_of(object, "filter_comms"), key, sizeof(key), &one,
					 sizeof(one), BPF_ANY);
	}
	for (u32 i = 0; i < o->n_uids && r == 0; i++)
		r = bpf_map__update_elem(map_of(object, "filter_uids"), &o->uids[i], sizeof(u32),
					 &one, sizeof(one), BPF_ANY);
	for (u32 i = 0; i < o->n_cgroups && r == 0; i++) {
		_cleanup_close_ int fd = sampler_open_cgroup(o->cgroups[i], reterr_diag);

		if (fd < 0)
			return fd;
		r = bpf_map__update_elem(map_of(object, "filter_cgroups"), &i, sizeof(i), &fd,
					 sizeof(fd), BPF_ANY);
	}
	return r < 0 ? diag_set(reterr_diag, r, "cannot fill the filters: %s", strerror(-r)) : 0;
}
