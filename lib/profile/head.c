/* SPDX-License-Identifier: Apache-2.0 */
/* The levels above the frames of a stack: pod, container, process and thread, as options say. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "profile/writer.h"

#define SHORT_ID 12 /* digits of a container's id, as engines abbreviate them */

static const struct {
	const char *name; /* in an option */
	u32 bit;
} roots[] = {
	{"pod", PROFILE_ROOT_POD},
	{"container", PROFILE_ROOT_CONTAINER},
	{"process", PROFILE_ROOT_PROCESS},
};

static u32 root_of_name(const char *name, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(roots); i++)
		if (strlen(roots[i].name) == n && !memcmp(roots[i].name, name, n))
			return roots[i].bit;
	return 0;
}

int profile_roots_parse(const char *list, u32 *ret, struct diag *reterr_diag)
{
	u32 all = 0;

	for (const char *at = list; at;) {
		size_t n = strcspn(at, ",");
		u32 bit = root_of_name(at, n);

		if (!bit)
			return diag_set(reterr_diag, -EINVAL,
					"--roots takes pod, container and process, separated by "
					"commas, not '%s'",
					list);
		all |= bit;
		at = at[n] ? at + n + 1 : NULL;
	}
	*ret = all;
	return 0;
}

void profile_head_deinit(struct profile_head *h)
{
	for (size_t i = 0; i < ARRAY_SIZE(h->name); i++)
		str_deinit(&h->name[i]);
}

static struct str *add_level(struct profile_head *h, enum profile_level level)
{
	struct str *name = &h->name[h->n];

	str_clear(name);
	h->level[h->n++] = level;
	return name;
}

/* A label of the process, or where the format tells it there, of what its thread did. */
static const char *label_of(const struct profile *p, const struct profile_thread *t,
			    const char *name)
{
	const char *value = profile_label(p, t->resource, name);

	if (!value || !*value)
		value = profile_label(p, t->attributes, name);
	return value && *value ? value : NULL;
}

static void add_root(struct profile_head *h, enum profile_level level, const char *prefix,
		     const char *value)
{
	struct str *name;

	if (!value)
		return;
	name = add_level(h, level);
	str_puts(name, prefix);
	text_append_clean(name, value, 0);
}

static void add_pod(struct profile_head *h, const struct profile *p, const struct profile_thread *t)
{
	const char *pod = label_of(p, t, "k8s.pod.name");

	add_root(h, PROFILE_LEVEL_POD, PROFILE_PREFIX_POD,
		 pod ? pod : label_of(p, t, "k8s.pod.uid"));
}

static void add_container(struct profile_head *h, const struct profile *p,
			  const struct profile_thread *t)
{
	/* An engine's own name of a pod's container repeats the pod's name. */
	const char *container = label_of(p, t, "k8s.container.name");
	const char *id = label_of(p, t, "container.id");
	char short_id[SHORT_ID + 1];

	if (!container)
		container = label_of(p, t, "container.name");
	if (!container && id) {
		snprintf(short_id, sizeof(short_id), "%s", id);
		container = short_id;
	}
	add_root(h, PROFILE_LEVEL_CONTAINER, PROFILE_PREFIX_CONTAINER, container);
}

static void add_process(struct profile_head *h, const struct profile *p,
			const struct profile_thread *t, const struct profile_tree_options *o)
{
	const char *comm = profile_string(p, t->comm);
	struct str *name;
	size_t begin;

	if (!*comm && !t->pid)
		return;
	name = add_level(h, PROFILE_LEVEL_PROCESS);
	if (o->roots & PROFILE_ROOT_PROCESS && t->pid)
		str_printf(name, PROFILE_PREFIX_PID, t->pid);
	begin = name->n;
	text_append_clean(name, comm, 0);
	if (name->n == begin)
		str_puts(name, "[unknown]");
	if (o->pids && t->pid && !(o->roots & PROFILE_ROOT_PROCESS))
		str_printf(name, "-%u", t->pid);
}

void profile_head_set(struct profile_head *h, const struct profile *p, u32 thread,
		      const struct profile_tree_options *o)
{
	const struct profile_thread *t;
	const char *name;

	h->n = 0;
	if (thread >= p->threads.n)
		return;
	t = &p->threads.data[thread];
	name = profile_string(p, t->thread_name);
	if (o->roots & PROFILE_ROOT_POD)
		add_pod(h, p, t);
	if (o->roots & PROFILE_ROOT_CONTAINER)
		add_container(h, p, t);
	if (!o->no_process || o->roots & PROFILE_ROOT_PROCESS)
		add_process(h, p, t, o);
	if (o->threads && *name)
		str_puts(add_level(h, PROFILE_LEVEL_THREAD), name);
}
