/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/alloc/attach.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/probe/probe.h"
#include "base/cleanup.h"

static u64 cookie_of(const struct alloc_site *s)
{
	return s->function | (s->stepped ? ALLOC_COOKIE_STEPPED : 0);
}

static int attach_session(const struct alloc_programs *p, u32 pid, const char *path,
			  const struct alloc_sites *sites, struct alloc_probes *ret)
{
	u64 offsets[ALLOC_MAX_SITES], cookies[ALLOC_MAX_SITES];
	const struct probe_uprobes u = {
		.program = bpf_program__fd(p->session),
		.attach_type = PROBE_UPROBE_SESSION,
		.path = path,
		.offsets = offsets,
		.cookies = cookies,
		.n = sites->n,
		.pid = pid,
	};
	int fd;

	for (u32 i = 0; i < sites->n; i++) {
		offsets[i] = sites->site[i].foff;
		cookies[i] = cookie_of(&sites->site[i]);
	}
	fd = probe_link_uprobes(&u);
	if (fd < 0)
		return fd;
	ret->session = fd;
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
