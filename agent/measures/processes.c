/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes run the binary of a measurement. Files are told apart by device and inode, so
 * that a path that names another file in each container is several binaries.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/measures/internal.h"
#include "base/cleanup.h"
#include "proc/proc.h"

#define MAX_PROCESSES 512

struct finding {
	struct measures_work *w;
	vec(struct measures_process) all; /* of the service */
	u32 pid;			  /* that is looked at */
	struct str exe;			  /* its executable, if no file was asked for */
	bool found;
};

static bool is_wanted(const struct measures_work *w, const char *service)
{
	return !strcmp(w->asked.service, "*") || !strcmp(w->asked.service, service);
}

static void note_process(void *arg, const struct identity_process *p, const char *service)
{
	struct finding *f = arg;
	struct measures_process new = {.pid = p->pid, .image = p->image};

	if (f->all.n >= MAX_PROCESSES || !is_wanted(f->w, service))
		return;
	/* Numbers of images grow: an older one is what the process ran before. */
	vec_foreach (&f->all, known)
		if (known->pid == p->pid) {
			known->image = MAX(known->image, p->image);
			return;
		}
	(void)vec_push(&f->all, new);
}

/* The path as the process sees it, or its last part; without either the executable. */
static bool names_file(const struct finding *f, const char *path)
{
	const char *wanted = f->w->asked.file;

	if (!*wanted)
		return !strcmp(str_get(&f->exe), path);
	return !strcmp(wanted, strchr(wanted, '/') ? path : profile_basename(path));
}

static struct measures_binary *find_binary(struct measures_work *w, u64 dev, u64 inode)
{
	vec_foreach (&w->binaries, b)
		if (b->dev == dev && b->inode == inode)
			return b;
	return NULL;
}

static int add_binary(struct finding *f, const struct proc_mapping *map, u64 dev)
{
	struct measures_binary new = {
		.dev = dev, .inode = map->inode, .fd = -1, .n_now = 1, .now_pid = f->pid};
	struct proc_file file;
	int r;

	if (f->w->binaries.n >= MEASURES_MAX_BINARIES)
		return 0;
	r = proc_open_mapped_file(f->pid, map, &file);
	if (r < 0)
		return r == -ENOMEM ? r : 0; /* another process may show it */
	new.fd = file.fd;
	r = vec_push(&f->w->binaries, new);
	if (r < 0)
		close(new.fd);
	return r;
}

static int note_mapping(void *arg, const struct proc_mapping *map)
{
	struct finding *f = arg;
	u64 dev = (u64)map->dev_major << 32 | map->dev_minor;
	struct measures_binary *b;

	if (!map->inode || map->path[0] != '/' || !names_file(f, map->path))
		return 0;
	f->found = true;
	b = find_binary(f->w, dev, map->inode);
	if (!b)
		return add_binary(f, map, dev);
	/* A binary has several mappings. */
	b->n_now += b->now_pid != f->pid;
	b->now_pid = f->pid;
	return 0;
}

static int look_at(struct finding *f, const struct measures_process *p)
{
	int r;

	f->pid = p->pid;
	f->found = false;
	str_clear(&f->exe);
	if (!f->w->asked.file[0] && proc_exe_read(p->pid, &f->exe) < 0)
		return 0; /* it has ended */
	r = proc_maps_read(p->pid, 0, note_mapping, f);
	if (r == -ENOMEM)
		return r;
	return f->found ? vec_push(&f->w->processes, *p) : 0;
}

static int look_at_kernel(struct finding *f, const struct measures_process *p)
{
	struct measures_work *w = f->w;
	int r = vec_push(&w->processes, *p);

	if (r == 0 && !w->binaries.n)
		r = vec_push(&w->binaries, (struct measures_binary){.fd = -1});
	if (r == 0) {
		w->binaries.data[0].n_now++;
		w->binaries.data[0].now_pid = p->pid;
	}
	return r;
}

/* One that several processes have run stays without a limit. */
static void choose_pid(struct measures_binary *b)
{
	u32 pid = b->n_now == 1 ? b->now_pid : 0;

	if (!b->n_now || b->pid == pid || (b->measure && !b->pid))
		return;
	b->is_stale = b->measure != NULL;
	b->pid = pid;
}

int measures_find(struct measures *m, struct measures_work *w)
{
	const bool kernel = !strcmp(w->asked.file, CONTROL_KERNEL);
	struct finding f = {.w = w};
	int r = 0;

	vec_clear(&w->processes);
	vec_foreach (&w->binaries, b)
		b->n_now = b->now_pid = 0;
	identities_each(m->options.identities, note_process, &f);
	vec_foreach (&f.all, p)
		if (r == 0)
			r = kernel ? look_at_kernel(&f, p) : look_at(&f, p);
	vec_foreach (&w->binaries, b)
		choose_pid(b);
	vec_deinit(&f.all);
	str_deinit(&f.exe);
	return r;
}
