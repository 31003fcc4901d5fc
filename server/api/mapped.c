/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds files that profiles name and that only some processes of this machine have under that name:
 * files of containers, and files that were replaced while they ran. It searches the mappings of
 * processes. The process that may read them searches: the agent's, of `culprit up`.
 *
 * As in public.c, every user must be able to open the file, here in the root of the process.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "proc/proc.h"
#include "server/api/internal.h"

#define MAX_TRIED 64 /* different files under one name */
#define MAX_MS 1000  /* time limit of a search */

struct search {
	const char *path;
	api_mapped_fn *fn;
	void *arg;
	u64 deadline_ns;
	u32 pid;
	u32 n_tried;
	struct {
		u64 inode;
		u32 dev_major, dev_minor;
	} tried[MAX_TRIED];
};

static bool is_new(struct search *s, const struct proc_mapping *m)
{
	for (u32 i = 0; i < s->n_tried; i++)
		if (s->tried[i].inode == m->inode && s->tried[i].dev_major == m->dev_major &&
		    s->tried[i].dev_minor == m->dev_minor)
			return false;
	if (s->n_tried == MAX_TRIED)
		return false;
	s->tried[s->n_tried].inode = m->inode;
	s->tried[s->n_tried].dev_major = m->dev_major;
	s->tried[s->n_tried++].dev_minor = m->dev_minor;
	return true;
}

static int on_mapping(void *arg, const struct proc_mapping *m)
{
	struct search *s = arg;
	struct proc_file file;
	struct stat st;
	int r;

	if (strcmp(m->path, s->path) != 0 || !is_new(s, m) || !proc_is_path_open(s->pid, m->path))
		return 0;
	r = proc_open_mapped_file(s->pid, m, &file);
	if (r < 0)
		return 0;
	if (fstat(file.fd, &st) < 0 || !(st.st_mode & S_IROTH)) {
		close(file.fd);
		return 0;
	}
	return s->fn(s->arg, file.fd);
}

static int on_process(void *arg, u32 pid)
{
	struct search *s = arg;
	int r;

	if (clock_ns(CLOCK_MONOTONIC) > s->deadline_ns)
		return -ETIME;
	s->pid = pid;
	r = proc_maps_read(pid, 0, on_mapping, s);
	/* Skip processes that have exited or that this server may not read. */
	return r == 1 || r == -ENOMEM ? r : 0;
}

int api_find_mapped(const char *path, api_mapped_fn *fn, void *arg)
{
	struct search s = {
		.path = path,
		.fn = fn,
		.arg = arg,
		.deadline_ns = clock_ns(CLOCK_MONOTONIC) + MAX_MS * 1000000ULL,
	};
	int r = proc_list(on_process, &s);

	return r == 1 ? 0 : r == -ENOMEM ? r : -ENOENT;
}
