/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/PID/smaps: for each mapping its line of /proc/PID/maps, and then lines such as
 *
 *	Rss:                 124 kB
 *	VmFlags: rd wr mr mw me ac sd
 *
 * No line of the second kind begins with an address, because its name ends in a colon.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "proc/internal.h"

static const struct {
	const char *name;
	size_t at;
} fields[] = {
	{"Rss:", offsetof(struct proc_memory, rss)},
	{"Anonymous:", offsetof(struct proc_memory, anonymous)},
	{"AnonHugePages:", offsetof(struct proc_memory, anonymous_huge)},
	{"ShmemPmdMapped:", offsetof(struct proc_memory, shared_huge)},
	{"FilePmdMapped:", offsetof(struct proc_memory, file_huge)},
};

static bool begins(const char *line, const char *name)
{
	return strncmp(line, name, strlen(name)) == 0;
}

static void take_field(struct proc_memory *m, const char *line)
{
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (begins(line, fields[i].name)) {
			u64 kib = strtoull(line + strlen(fields[i].name), NULL, 10);

			*(u64 *)((char *)m + fields[i].at) = MIN(kib, ~0ULL >> 10) << 10;
		}
	if (begins(line, "VmFlags:"))
		m->hugetlb = strstr(line, " ht") != NULL;
}

int proc_memory_line(struct proc_memory_state *s, char *line, size_t n, struct proc_memory *ret)
{
	struct proc_mapping m;
	const char *end = memchr(line, ' ', n), *colon = memchr(line, ':', n);

	line[n] = '\0';
	/* The first word of a field ends in a colon; that of a mapping is a range. */
	if (colon && (!end || colon < end)) {
		take_field(&s->now, line);
		return 0;
	}
	if (proc_maps_parse_line(line, n, &m) < 0)
		return 0;
	if (s->any)
		*ret = s->now;
	s->now = (struct proc_memory){
		.start = m.start, .end = m.end, .dev_major = m.dev_major, .dev_minor = m.dev_minor};
	n = s->any;
	s->any = true;
	return (int)n;
}

struct memory_reader {
	struct proc_memory_state state;
	proc_memory_fn *fn;
	void *arg;
};

static int memory_line(void *arg, char *line, size_t n)
{
	struct memory_reader *rd = arg;
	struct proc_memory m;

	return proc_memory_line(&rd->state, line, n, &m) ? rd->fn(rd->arg, &m) : 0;
}

int proc_memory_read(u32 pid, proc_memory_fn *fn, void *arg)
{
	struct memory_reader rd = {.fn = fn, .arg = arg};
	_cleanup_close_ int fd = -1;
	char name[32];
	int r;

	snprintf(name, sizeof(name), "/proc/%u/smaps", pid);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	r = proc_lines_read(fd, memory_line, &rd);
	return r == 0 && rd.state.any ? fn(arg, &rd.state.now) : r;
}
