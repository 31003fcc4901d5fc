/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles of a type add up until its picture is due. After each one the folded files are written
 * again, with all since the last picture:
 *
 *	FLAME_DIR/TYPE/tmp_WHO			WHO: with multi_instance a pid, else "all"
 *	OUTPUT_DIR/TYPE/DAY/TIME-WHO.svg	every svg_period; then the folded files are removed
 *
 * A type whose profile grows above MAX_SAMPLES gets its picture early.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/stackprobe/stackprobe.h"
#include "base/log.h"
#include "base/map.h"
#include "base/vocab.h"
#include "format/format.h"

#define PREFIX "tmp_"
#define EVERYBODY "all"
#define RING_S (7 * 24 * 3600)
#define MAX_SAMPLES 500000

struct kept {
	struct profile *sum;	      /* owned; NULL: nothing since the last picture */
	time_t began;		      /* when the last picture was due */
	struct stackprobe_ring *ring; /* owned; NULL: not opened yet */
};

struct stackprobe_output {
	struct stackprobe_params params;
	bool canonical;
	struct kept types[STACKPROBE_N];
};

int stackprobe_output_create(const struct stackprobe_params *p, bool canonical,
			     struct stackprobe_output **ret)
{
	struct stackprobe_output *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->params = *p;
	o->canonical = canonical;
	*ret = o;
	return 0;
}

static void close_rings(struct stackprobe_output *o)
{
	for (u32 t = 0; t < STACKPROBE_N; t++) {
		stackprobe_ring_close(o->types[t].ring);
		o->types[t].ring = NULL;
	}
}

void stackprobe_output_destroy(struct stackprobe_output *o)
{
	if (!o)
		return;
	close_rings(o);
	for (u32 t = 0; t < STACKPROBE_N; t++)
		profile_destroy(o->types[t].sum);
	free(o);
}

static void flame_dir(const struct stackprobe_output *o, enum stackprobe_type t, struct str *ret)
{
	str_printf(ret, "%s/%s", o->params.flame_dir, stackprobe_type_name(t));
}

static void output_dir(const struct stackprobe_output *o, enum stackprobe_type t, struct str *ret)
{
	const char *dir = o->params.output_dir;

	str_printf(ret, "%s/%s", *dir ? dir : STACKPROBE_DEFAULT_OUTPUT_DIR,
		   stackprobe_type_name(t));
}

/* Folded files of processes, or of all, that are not of now. */
static void remove_folded(const struct stackprobe_output *o, enum stackprobe_type t)
{
	_cleanup_str_ struct str path = {};
	struct dirent *e;
	DIR *dir;

	flame_dir(o, t, &path);
	dir = opendir(str_get(&path));
	while (dir && (e = readdir(dir))) {
		const char *who = e->d_name + strlen(PREFIX);

		if (str_starts(e->d_name, PREFIX) &&
		    (!strcmp(who, EVERYBODY) || strspn(who, "0123456789") == strlen(who)))
			(void)unlinkat(dirfd(dir), e->d_name, 0);
	}
	if (dir)
		closedir(dir);
}

void stackprobe_output_change(struct stackprobe_output *o, const struct stackprobe_params *p)
{
	bool moves =
		strcmp(o->params.flame_dir, p->flame_dir) != 0 ||
		o->params.value[STACKPROBE_MULTI_INSTANCE] != p->value[STACKPROBE_MULTI_INSTANCE];

	for (u32 t = 0; t < STACKPROBE_N && moves; t++)
		if (o->types[t].sum)
			remove_folded(o, t);
	if (strcmp(o->params.output_dir, p->output_dir) != 0)
		close_rings(o);
	o->params = *p;
}

void stackprobe_output_begin(struct stackprobe_output *o, enum stackprobe_type t, time_t now)
{
	struct kept *k = &o->types[t];

	remove_folded(o, t);
	profile_destroy(k->sum);
	k->sum = NULL;
	k->began = now;
}

/* ---- the processes of a profile ---- */

struct of_process {
	u32 pid;
};

static bool is_of_process(void *arg, const struct profile *p, const struct profile_sample *s)
{
	const struct of_process *of = arg;

	return s->thread < p->threads.n && p->threads.data[s->thread].pid == of->pid;
}

/* Calls fn with the part of each process, or with all. */
static int each_part(struct stackprobe_output *o, enum stackprobe_type t,
		     int (*fn)(struct stackprobe_output *o, enum stackprobe_type t,
			       const struct profile *p, const char *who, void *arg),
		     void *arg)
{
	const struct profile *sum = o->types[t].sum;
	struct map pids = {};
	int r = 0;

	if (!o->params.value[STACKPROBE_MULTI_INSTANCE])
		return fn(o, t, sum, EVERYBODY, arg);
	for (size_t i = 0; i < sum->n_samples && r == 0; i++) {
		const struct profile_sample *s = profile_sample(sum, i);

		if (s->thread < sum->threads.n)
			r = map_put(&pids, sum->threads.data[s->thread].pid, 1);
	}
	map_foreach (&pids, slot) {
		_cleanup_profile_ struct profile *part = profile_create();
		struct of_process of = {(u32)slot->key};
		char who[16];

		if (r < 0)
			break;
		snprintf(who, sizeof(who), "%u", of.pid);
		r = part ? profile_merge_some(part, sum, is_of_process, &of, NULL) : -ENOMEM;
		if (r == 0)
			r = fn(o, t, part, who, arg);
	}
	map_deinit(&pids);
	return r;
}

/* ---- files ---- */

static int write_as(const struct stackprobe_output *o, enum stackprobe_type t,
		    const struct profile *p, const char *path, const char *format)
{
	const struct profile_write_options wo = {
		.gala = !o->canonical,
		.title = stackprobe_type_title(t),
		.tree = {.roots = PROFILE_ROOT_POD | PROFILE_ROOT_CONTAINER | PROFILE_ROOT_PROCESS},
	};
	struct diag d = {};
	int r = profile_write_file(p, path, profile_format_by_name(format), &wo, &d);

	if (r < 0)
		log_warn("%s: %s", path, d.text[0] ? d.text : strerror(-r));
	return r;
}

static int write_folded(struct stackprobe_output *o, enum stackprobe_type t,
			const struct profile *p, const char *who, void *arg)
{
	_cleanup_str_ struct str path = {};

	flame_dir(o, t, &path);
	str_printf(&path, "/" PREFIX "%s", who);
	return path.failed ? -ENOMEM : write_as(o, t, p, str_get(&path), "folded");
}

static int write_all_folded(struct stackprobe_output *o, enum stackprobe_type t)
{
	_cleanup_str_ struct str dir = {};
	int r;

	flame_dir(o, t, &dir);
	r = dir.failed ? -ENOMEM : stackprobe_make_dirs(str_get(&dir));
	if (r < 0)
		log_warn("%s: %s", str_get(&dir), strerror(-r));
	return r < 0 ? r : each_part(o, t, write_folded, NULL);
}

/* ---- pictures ---- */

static struct stackprobe_ring *ring_of(struct stackprobe_output *o, enum stackprobe_type t)
{
	_cleanup_str_ struct str dir = {};

	output_dir(o, t, &dir);
	if (!o->types[t].ring && !dir.failed)
		(void)stackprobe_ring_open(str_get(&dir), &o->types[t].ring);
	return o->types[t].ring;
}

static u32 ring_size(const struct stackprobe_output *o)
{
	s64 period = o->params.value[STACKPROBE_SVG_PERIOD];

	return (u32)((RING_S + period - 1) / period);
}

static int write_picture(struct stackprobe_output *o, enum stackprobe_type t,
			 const struct profile *p, const char *who, void *arg)
{
	struct stackprobe_ring *ring = ring_of(o, t);
	const time_t *now = arg;
	_cleanup_str_ struct str path = {};
	int r = ring ? stackprobe_ring_path(ring, *now, who, &path) : -ENOMEM;

	if (r < 0) {
		log_warn("no picture of %s: %s", stackprobe_type_name(t), strerror(-r));
		return r;
	}
	r = write_as(o, t, p, str_get(&path), "svg");
	return r < 0 ? r : stackprobe_ring_add(ring, str_get(&path), ring_size(o));
}

static void make_pictures(struct stackprobe_output *o, enum stackprobe_type t, time_t now)
{
	struct kept *k = &o->types[t];

	if (k->sum && k->sum->n_samples)
		(void)each_part(o, t, write_picture, &now);
	profile_destroy(k->sum);
	k->sum = NULL;
	k->began = now;
}

void stackprobe_output_tick(struct stackprobe_output *o, enum stackprobe_type t, time_t now,
			    time_t late_s)
{
	struct kept *k = &o->types[t];

	if (now >= k->began + o->params.value[STACKPROBE_SVG_PERIOD] + late_s ||
	    (k->sum && k->sum->n_samples > MAX_SAMPLES)) {
		make_pictures(o, t, now);
		remove_folded(o, t);
	}
	/* The clock was set back. */
	if (now < k->began)
		k->began = now;
}

static bool is_at_moment(const struct profile *p)
{
	enum sample_type type = profile_table_type(p, p->default_type);

	return vocab_sample_type(type)->adds == SAMPLE_ADDS_AT_MOMENT;
}

void stackprobe_output_add(struct stackprobe_output *o, enum stackprobe_type t,
			   const struct profile *p, time_t now)
{
	u64 end_ns = p->time_ns + p->duration_ns;
	struct kept *k = &o->types[t];
	struct diag d = {};

	/* What is live at the end of a period is not added to what was live before. */
	if (is_at_moment(p)) {
		profile_destroy(k->sum);
		k->sum = NULL;
	}
	if (!k->sum)
		k->sum = profile_create();
	if (!k->sum || profile_merge(k->sum, p, &d) < 0) {
		log_warn("samples of %s are lost: %s", stackprobe_type_name(t),
			 k->sum ? d.text : "out of memory");
		return;
	}
	k->sum->default_type = p->default_type;
	/* `wall` has two sources of one time. */
	if (k->sum->time_ns && end_ns > k->sum->time_ns)
		k->sum->duration_ns = end_ns - k->sum->time_ns;
	if (k->sum->n_samples)
		(void)write_all_folded(o, t);
	stackprobe_output_tick(o, t, now, 0);
}

void stackprobe_output_end(struct stackprobe_output *o, enum stackprobe_type t, time_t now)
{
	make_pictures(o, t, now);
}
