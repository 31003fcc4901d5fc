/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/trace.h"

#include "abi/trace.h"

int source_trace_size(struct source *s)
{
	int n_cpus = libbpf_num_possible_cpus();

	if (n_cpus < 0)
		return n_cpus;
	return bpf_map__set_max_entries(bpf_object__find_map_by_name(s->object, "trace_stacks"),
					(u32)n_cpus * TRACE_LEVELS);
}

int source_trace_join(struct source *s)
{
	const struct bpf_map *slots = bpf_object__find_map_by_name(s->object, "trace_slots");
	int fd = bpf_program__fd(s->entry);
	u32 begin = 0;

	return bpf_map__update_elem(slots, &begin, sizeof(begin), &fd, sizeof(fd), BPF_ANY);
}

int source_trace_start(struct source *s, struct diag *reterr_diag)
{
	(void)s;
	(void)reterr_diag;
	return 0;
}
