/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What snoopers ask about a process: its command line, and its container. Both are read when they
 * are asked for, and once in a choice.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/stackprobe/stackprobe.h"
#include "base/cleanup.h"

#define MAX_CMDLINE 4096

struct stackprobe_matcher {
	struct identities *identities; /* borrowed */
	u32 own_pid;
	/* Of the process that is being asked about. */
	u32 pid;
	bool has_cmdline, has_container;
	struct str cmdline;
	struct identity_container container;
};

int stackprobe_matcher_create(struct identities *identities, struct stackprobe_matcher **ret)
{
	struct stackprobe_matcher *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->identities = identities;
	m->own_pid = (u32)getpid();
	*ret = m;
	return 0;
}

void stackprobe_matcher_destroy(struct stackprobe_matcher *m)
{
	if (!m)
		return;
	str_deinit(&m->cmdline);
	free(m);
}

/* The first MAX_CMDLINE bytes; a space ends each argument. */
static const char *cmdline_of(void *arg)
{
	struct stackprobe_matcher *m = arg;
	_cleanup_close_ int fd = -1;
	char path[64], part[1024];
	ssize_t n;

	if (m->has_cmdline)
		return str_get(&m->cmdline);
	m->has_cmdline = true;
	str_clear(&m->cmdline);
	snprintf(path, sizeof(path), "/proc/%u/cmdline", m->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && m->cmdline.n < MAX_CMDLINE && (n = read(fd, part, sizeof(part))) > 0)
		str_append(&m->cmdline, part, (size_t)n);
	for (size_t i = 0; i < m->cmdline.n; i++)
		if (!m->cmdline.data[i])
			m->cmdline.data[i] = ' ';
	return str_get(&m->cmdline);
}

static const struct identity_container *container_of_process(void *arg)
{
	struct stackprobe_matcher *m = arg;

	if (!m->has_container)
		identities_container(m->identities, m->pid, &m->container);
	m->has_container = true;
	return &m->container;
}

enum pipeline_choice stackprobe_matcher_choose(struct stackprobe_matcher *m,
					       struct stackprobe_snoopers *s,
					       const struct procman_process *p)
{
	const struct stackprobe_process asked = {
		.pid = p->pid,
		.comm = p->comm,
		.is_own = p->pid == m->own_pid || p->ppid == m->own_pid,
		.cmdline = cmdline_of,
		.container = container_of_process,
		.arg = m,
	};

	m->pid = p->pid;
	m->has_cmdline = m->has_container = false;
	return stackprobe_choose(s, &asked);
}
