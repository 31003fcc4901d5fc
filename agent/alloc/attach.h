/* SPDX-License-Identifier: Apache-2.0 */
/* The probes in one file of one process. */
#pragma once

#include "agent/alloc/alloc.h"

struct bpf_link;

struct alloc_probes {
	int session; /* descriptor of a link; -1: none */
	vec(struct bpf_link *) links;
};
#define ALLOC_PROBES_NONE ((struct alloc_probes){.session = -1})

/* `fd` is that of the file. *ret is as before on failure. 0 or a negative errno. */
int alloc_attach(const struct alloc_programs *p, u32 pid, int fd, const struct alloc_sites *sites,
		 struct alloc_probes *ret);
/* Returns when no probe is hit any more. */
void alloc_detach(struct alloc_probes *p);
