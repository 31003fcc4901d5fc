/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/alloc/attach.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

/* The part of union bpf_attr for BPF_LINK_CREATE that headers before Linux 6.6 lack. */
struct link_uprobes {
	u32 program, target, attach_type, flags;
	u64 path;
	u64 offsets, reference_counters, cookies;
	u32 n, multi_flags, pid, pad;
};

static u64 cookie_of(const struct alloc_site *s)
{
	return s->function | (s->stepped ? ALLOC_COOKIE_STEPPED : 0);
}

static int attach_session(const struct alloc_programs *p, u32 pid, const char *path,
			  const struct alloc_sites *sites, struct alloc_probes *ret)
{
	u64 offsets[ALLOC_MAX_SITES], cookies[ALLOC_MAX_SITES];
	struct link_uprobes attr = {
		.program = (u32)bpf_program__fd(p->session),
		.attach_type = ALLOC_UPROBE_SESSION,
		.path = (u64)path,
		.offsets = (u64)offsets,
		.cookies = (u64)cookies,
		.n = sites->n,
		.pid = pid,
	};
	long fd;

	for (u32 i = 0; i < sites->n; i++) {
		offsets[i] = sites->site[i].foff;
		cookies[i] = cookie_of(&sites->site[i]);
	}
	fd = syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));
	if (fd < 0)
		return -errno;
	ret->session = (int)fd;
	return 0;
}

static int attach_one(const struct bpf_program *program, bool returns, u32 pid, const char *path,
		      u64 foff, struct alloc_probes *ret)
{
	struct bpf_link *link =
		bpf_program__attach_uprobe(program, returns, (pid_t)pid, path, foff);
	int r;

	if (!link)
		return -errno;
	r = vec_push(&ret->links, link);
	if (r < 0)
		bpf_link__destroy(link);
	return r;
}

/* Returns first, and frees before allocations: no object is entered whose free is not seen. */
static int attach_each(const struct alloc_programs *p, u32 pid, const char *path,
		       const struct alloc_sites *sites, struct alloc_probes *ret)
{
	int r = 0;

	for (u32 i = 0; i < sites->n && r == 0; i++)
		if (sites->site[i].function != ALLOC_FREE)
			r = attach_one(p->ends, true, pid, path, sites->site[i].foff, ret);
	for (u32 i = 0; i < sites->n && r == 0; i++)
		r = attach_one(p->begins[sites->site[i].function], false, pid, path,
			       sites->site[i].foff, ret);
	return r;
}

int alloc_attach(const struct alloc_programs *p, u32 pid, int fd, const struct alloc_sites *sites,
		 struct alloc_probes *ret)
{
	struct alloc_probes probes = ALLOC_PROBES_NONE;
	char path[64];
	int r;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = p->session ? attach_session(p, pid, path, sites, &probes)
		       : attach_each(p, pid, path, sites, &probes);
	if (r < 0)
		alloc_detach(&probes);
	else
		*ret = probes;
	return r;
}

void alloc_detach(struct alloc_probes *p)
{
	vec_foreach (&p->links, link)
		bpf_link__destroy(*link);
	vec_deinit(&p->links);
	if (p->session >= 0)
		close(p->session);
	p->session = -1;
}
