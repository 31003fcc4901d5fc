/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/alloc.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/pipeline/alloc_ledger.h"
#include "agent/pipeline/batch.h"
#include "agent/pipeline/processes.h"
#include "base/clock.h"
#include "base/log.h"

/* How often processes that do not pass the filters are looked at again. */
#define LOOK_NS 1000000000ULL

/* ---- life ---- */

int pipeline_alloc_create(struct pipeline *p, const struct pipeline_options *o,
			  struct diag *reterr_diag)
{
	const struct pipeline_batch *b = p->batch;
	struct alloc_options options = {.budget = o->sampler.budget};
	struct alloc *a;
	u32 i = 0;
	int r;

	if (sampler_alloc(p->sampler, &options.programs) < 0)
		return 0;
	while (strcmp(sampler_source(p->sampler, i)->event, SAMPLER_ALLOC) != 0)
		i++;
	if (b->n_sources != b->n_sampled + 2)
		return diag_set(reterr_diag, -EINVAL, "at most %d events beside '%s'",
				SAMPLER_MAX_SOURCES - 3, SAMPLER_ALLOC);
	a = p->alloc = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->source = i;
	a->live_source = b->n_sampled;
	a->unfreed_source = b->n_sampled + 1;
	a->options = options;
	a->began_ns = clock_ns(CLOCK_MONOTONIC);
	if (owners_init(p, &a->owners) < 0)
		return -ENOMEM;
	r = passing_init(&a->passing, &o->sampler, reterr_diag);
	return r < 0 ? r : allocs_create(&a->options, reterr_diag, &a->allocs);
}

static void allocating_free(struct allocating *f)
{
	vec_deinit(&f->tallies);
	map_deinit(&f->by_owner);
	vec_deinit(&f->waiting);
	vec_deinit(&f->slowed);
	for (u32 i = 0; i < MIN(f->n_reports, (u32)KEPT_REPORTS); i++)
		alloc_report_deinit(&f->reports[i]);
	free(f);
}

void pipeline_alloc_destroy(struct pipeline *p)
{
	struct alloc *a = p->alloc;

	if (!a)
		return;
	allocs_destroy(a->allocs);
	map_foreach (&a->processes, slot)
		allocating_free((struct allocating *)slot->value);
	map_deinit(&a->processes);
	map_foreach (&a->objects, slot)
		free((struct object *)slot->value);
	map_deinit(&a->objects);
	map_foreach (&a->sites, slot)
		free((struct alloc_sites *)slot->value);
	map_deinit(&a->sites);
	map_deinit(&a->parts);
	map_deinit(&a->refused);
	passing_deinit(&a->passing);
	owners_deinit(p, &a->owners);
	free(a);
	p->alloc = NULL;
}

/* ---- processes ---- */

static struct allocating *find(const struct alloc *a, u64 image)
{
	const u64 *f = map_get(&a->processes, image);

	return f ? (struct allocating *)*f : NULL;
}

static struct allocating *find_or_add(struct alloc *a, const struct procman_process *proc)
{
	struct allocating *f = find(a, proc->image);

	if (f)
		return f;
	f = calloc(1, sizeof(*f));
	if (!f || map_put(&a->processes, proc->image, (u64)f) < 0) {
		free(f);
		return NULL;
	}
	f->image = proc->image;
	f->pid = proc->pid;
	f->always = true;
	return f;
}

/* What is known of a file; NULL: it has no allocator. */
static const struct alloc_sites *sites_of(struct alloc *a, const struct procman_binary *b)
{
	const u64 *known = map_get(&a->sites, b->file_id);
	struct alloc_sites *sites;

	if (known)
		return (const struct alloc_sites *)*known;
	sites = calloc(1, sizeof(*sites));
	if (!sites)
		return NULL;
	alloc_find_sites(b->elf, strstr(b->path, ".so") != NULL, sites);
	if (!sites->n) {
		free(sites);
		sites = NULL;
	}
	if (map_put(&a->sites, b->file_id, (u64)sites) < 0) {
		free(sites);
		return NULL;
	}
	return sites;
}

/* The dynamic linker has an allocator for its own start, which is of no concern. */
static bool is_linker(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	return strncmp(name, "ld-linux", 8) == 0 || strncmp(name, "ld-2", 4) == 0;
}

static void probe_mapping(struct alloc *a, const struct procman_process *proc,
			  const struct procman_mapping *m)
{
	u64 key = hash_u64(proc->image ^ hash_u64(m->binary->file_id)) >> 1;
	const struct alloc_sites *sites;
	int r;

	if (!m->binary->elf || !m->binary->file_id || map_get(&a->parts, key) ||
	    is_linker(m->binary->path))
		return;
	if (map_put(&a->parts, key, proc->image) < 0)
		return;
	sites = sites_of(a, m->binary);
	if (!sites)
		return;
	r = allocs_add(a->allocs, proc->pid, proc->image, m->binary->elf->fd, m->bias, sites);
	if (r < 0)
		log_warn_rarely("allocations of process %u are not recorded: %s", proc->pid,
				strerror(-r));
	else
		(void)find_or_add(a, proc);
}

static void process_changed(void *arg, const struct procman_process *proc)
{
	struct pipeline *p = arg;
	struct alloc *a = p->alloc;

	if (!a || a->stopped || !proc->alive || proc->kthread || proc->pid == (u32)getpid())
		return;
	/* What was probed once is still known if it does not pass any more. */
	if (!find(a, proc->image) && !passing_now(&a->passing, proc->pid, proc->comm)) {
		if (passing_changes(&a->passing))
			(void)map_put(&a->refused, proc->image, proc->pid);
		return;
	}
	(void)map_del(&a->refused, proc->image, NULL);
	for (u32 i = 0; i < proc->n; i++)
		probe_mapping(a, proc, &proc->mappings[i]);
}

/* Users and cgroups of processes change without an event. */
static void look_at_refused(struct pipeline *p)
{
	struct alloc *a = p->alloc;
	u64 now = clock_ns(CLOCK_MONOTONIC);
	vec(struct procman_process *) pass = {};

	if (now < a->looked_ns + LOOK_NS || !a->refused.n)
		return;
	map_foreach (&a->refused, slot) {
		struct procman_process *proc = procman_known(p->procman, (u32)slot->value);

		if (proc && proc->image == slot->key &&
		    passing_now(&a->passing, proc->pid, proc->comm))
			(void)vec_push(&pass, proc);
	}
	vec_foreach (&pass, proc)
		process_changed(p, *proc);
	vec_deinit(&pass);
	a->looked_ns = clock_ns(CLOCK_MONOTONIC);
}

static void drop_objects(struct pipeline *p, u64 image)
{
	vec(u64) ids = {};

	map_foreach (&p->alloc->objects, slot)
		if (!image || ((struct object *)slot->value)->image == image)
			(void)vec_push(&ids, slot->key);
	vec_foreach (&ids, id)
		alloc_drop_object(p, *id);
	vec_deinit(&ids);
}

/* What it has allocated counts for the period. `keep`: also what lived at its end. */
static void end(struct pipeline *p, u64 image, bool keep)
{
	struct alloc *a = p->alloc;
	struct allocating *f = a ? find(a, image) : NULL;
	vec(u64) ids = {};

	if (a)
		(void)map_del(&a->refused, image, NULL);
	if (!f || f->ended)
		return;
	f->ended = true;
	f->end_ns = clock_ns(CLOCK_MONOTONIC);
	allocs_remove(a->allocs, image);
	if (!keep)
		drop_objects(p, image);
	map_foreach (&a->parts, slot)
		if (slot->value == image)
			(void)vec_push(&ids, slot->key);
	vec_foreach (&ids, id)
		(void)map_del(&a->parts, *id, NULL);
	vec_deinit(&ids);
}

static void process_exec(void *arg, const struct procman_process *proc, u64 before)
{
	(void)proc;
	end(arg, before, false);
}

/* Of a command that is recorded until it ends, what it has not freed is shown. */
static void process_ended(void *arg, const struct procman_process *proc)
{
	const struct pipeline *p = arg;

	end(arg, proc->image, p->follow);
}

static void binary_gone(void *arg, struct procman_binary *b)
{
	const struct pipeline *p = arg;
	u64 sites;

	if (p->alloc && map_del(&p->alloc->sites, b->file_id, &sites))
		free((struct alloc_sites *)sites);
}

const struct procman_listener alloc_listener = {
	.process_changed = process_changed,
	.process_exec = process_exec,
	.process_ended = process_ended,
	.process_gone = process_ended,
	.binary_gone = binary_gone,
};

/* ---- objects ---- */

void alloc_forget_object(struct pipeline *p, u64 id)
{
	u64 o;

	if (map_del(&p->alloc->objects, id, &o))
		free((struct object *)o);
}

void alloc_drop_object(struct pipeline *p, u64 id)
{
	struct alloc *a = p->alloc;
	const u64 *o = map_get(&a->objects, id);
	const struct object *object = o ? (const struct object *)*o : NULL;
	struct alloc_object_key key = {};
	struct alloc_object now;

	if (!object)
		return;
	key.address = object->address;
	key.pid = object->pid;
	/* Another object may be there by now. */
	if (bpf_map_lookup_elem(a->options.programs.objects, &key, &now) == 0 && now.id == id)
		(void)bpf_map_delete_elem(a->options.programs.objects, &key);
	alloc_forget_object(p, id);
}

static struct object object_of(const struct record_sample *s, u64 image)
{
	return (struct object){
		.image = image,
		.address = s->object.address[1],
		.time_ns = s->time_ns,
		.bytes = (u64)s->value,
		.objects = MAX((u64)s->bytes, 1ULL),
		.owner = OWNER_UNKNOWN,
		.window = s->object.owner,
		.pid = s->pid,
	};
}

/* Follows half of the objects, which stand for the others. */
static void thin(struct pipeline *p)
{
	struct alloc *a = p->alloc;
	vec(u64) ids = {};

	sampler_follow_objects(p->sampler, ++a->keep);
	map_foreach (&a->objects, slot)
		if (!alloc_keeps(slot->key, a->keep))
			(void)vec_push(&ids, slot->key);
	vec_foreach (&ids, id)
		alloc_drop_object(p, *id);
	vec_deinit(&ids);
}

static void enter(struct pipeline *p, u64 id, const struct object *o)
{
	struct alloc *a = p->alloc;
	struct object *copy;

	while (a->objects.n >= ALLOC_MAX_OBJECTS * 3 / 4 && a->keep < ALLOC_MAX_KEEP)
		thin(p);
	/* It was sampled before. */
	if (!alloc_keeps(id, a->keep))
		return;
	copy = malloc(sizeof(*copy));
	if (!copy || map_put(&a->objects, id, (u64)copy) < 0) {
		free(copy);
		a->stats.unkept++;
		return;
	}
	*copy = *o;
}

/* The process of a sample; NULL: it is unknown, or has ended. */
static struct allocating *of_sample(struct pipeline *p, const struct record_sample *s,
				    const struct procman_process **ret_proc)
{
	const struct procman_process *proc = processes_find_at(p, s->pid, s->time_ns);
	struct allocating *f;

	if (!proc || proc->image_ns > s->time_ns)
		return NULL;
	f = find_or_add(p->alloc, proc);
	if (f)
		memcpy(f->comm, proc->comm, sizeof(f->comm));
	*ret_proc = proc;
	return f;
}

void alloc_expect(struct pipeline *p, const struct record_sample *s)
{
	const struct procman_process *proc;
	struct allocating *f = p->alloc ? of_sample(p, s, &proc) : NULL;
	struct object o;

	if (!f || !s->object.port || s->time_ns < p->alloc->began_ns)
		return;
	o = object_of(s, f->image);
	enter(p, s->object.address[0], &o);
}

void alloc_take(struct pipeline *p, const struct record_sample *s)
{
	struct alloc *a = p->alloc;
	const struct procman_process *proc;
	struct allocating *f = a ? of_sample(p, s, &proc) : NULL;
	u64 id = s->object.port ? s->object.address[0] : 0;
	struct object o;
	u64 *known;

	if (!f || s->time_ns < a->began_ns)
		return;
	processes_see(p, s->pid, proc);
	o = object_of(s, f->image);
	if (owners_find(p, &a->owners, s, &o.owner) < 0) {
		o.owner = OWNER_UNKNOWN;
		a->stats.unkept++;
	} else if (owners_is_raw(&a->owners, a->owners.all.data[o.owner].user_stack)) {
		processes_hold_jit_files(p, proc);
	}
	known = id ? map_get(&a->objects, id) : NULL;
	if (known)
		((struct object *)*known)->owner = o.owner;
	else if (id && s->type == RECORD_SAMPLE && !f->ended)
		enter(p, id, &o);
	if (!o.window) {
		alloc_add(f, o.owner, &o);
		return;
	}
	alloc_wait(p, f,
		   &(struct waiting){.window = o.window,
				     .owner = o.owner,
				     .tid = s->tid,
				     .bytes = o.bytes,
				     .objects = o.objects,
				     .time_ns = o.time_ns,
				     .id = id});
}

void alloc_freed(struct pipeline *p, const struct record_freed *record)
{
	if (p->alloc)
		alloc_forget_object(p, record->id);
}

/* ---- windows ---- */

/* Live objects of a process that is not probed all the time any more are unknown. */
static void become_windowed(struct pipeline *p, struct allocating *f, const struct alloc_report *r)
{
	alloc_count_unfreed(p, f, r->end_ns);
	f->windowed = true;
	f->always = false;
	f->until_ns = r->end_ns;
	drop_objects(p, f->image);
}

static void become_always(struct allocating *f, const struct alloc_report *r)
{
	f->always = true;
	f->always_ns = r->begin_ns;
}

void alloc_tick(struct pipeline *p)
{
	struct alloc *a = p->alloc;
	struct alloc_report r;
	vec(struct alloc_report) taken = {};

	if (a)
		look_at_refused(p);
	while (a && allocs_take(a->allocs, &r))
		if (vec_push(&taken, r) < 0)
			alloc_report_deinit(&r);
	if (taken.n)
		(void)sampler_drain(p->sampler); /* the samples of these windows */
	vec_foreach (&taken, t) {
		struct allocating *f = find(a, t->image);

		if (f && t->number)
			alloc_report(p, f, t);
		else if (f && t->always)
			become_always(f, t);
		else if (f)
			become_windowed(p, f, t);
		alloc_report_deinit(t);
	}
	vec_deinit(&taken);
}

/* ---- periods ---- */

void alloc_begin(struct pipeline *p)
{
	struct alloc *a = p->alloc;

	if (!a)
		return;
	a->began_ns = clock_ns(CLOCK_MONOTONIC);
	drop_objects(p, 0);
	map_foreach (&a->processes, slot) {
		struct allocating *f = (struct allocating *)slot->value;

		vec_clear(&f->tallies);
		map_clear(&f->by_owner);
		f->covered_ns = f->probed_ns = 0;
		f->until_ns = MAX(f->until_ns, a->began_ns);
	}
}

void alloc_stop(struct pipeline *p)
{
	struct alloc *a = p->alloc;

	if (!a)
		return;
	allocs_stop(a->allocs);
	a->stopped = true;
	alloc_tick(p);
}

/* Owners to which nothing refers are dropped, if they are many. */
static void tidy_stacks(struct pipeline *p)
{
	struct alloc *a = p->alloc;
	struct owners_tidying *t =
		owners_is_full(&a->owners) ? owners_tidy_begin(p, &a->owners) : NULL;

	if (!t)
		return;
	map_foreach (&a->objects, slot) {
		struct object *o = (struct object *)slot->value;

		if (o->owner != OWNER_UNKNOWN && owners_tidy_owner(p, t, o->owner, &o->owner) < 0)
			o->owner = OWNER_UNKNOWN;
	}
	map_foreach (&a->processes, slot) {
		struct allocating *f = (struct allocating *)slot->value;

		vec_foreach (&f->waiting, w)
			if (w->owner != OWNER_UNKNOWN &&
			    owners_tidy_owner(p, t, w->owner, &w->owner) < 0)
				w->owner = OWNER_UNKNOWN;
	}
	owners_tidy_end(p, t);
}

static void forget_ended(struct alloc *a)
{
	vec(u64) images = {};
	u64 f;

	map_foreach (&a->processes, slot)
		if (((struct allocating *)slot->value)->ended)
			(void)vec_push(&images, slot->key);
	vec_foreach (&images, image)
		if (map_del(&a->processes, *image, &f))
			allocating_free((struct allocating *)f);
	vec_deinit(&images);
}

void alloc_count(struct pipeline *p, u64 time_ns)
{
	struct alloc *a = p->alloc;

	if (!a)
		return;
	if (!a->stopped)
		allocs_close_windows(a->allocs);
	alloc_tick(p);
	a->stats.n_told = 0;
	map_foreach (&a->processes, slot)
		alloc_count_process(p, (struct allocating *)slot->value, time_ns);
	forget_ended(a);
	owners_end_period(&a->owners);
	tidy_stacks(p);
	a->began_ns = time_ns;
}

void alloc_get_stats(const struct pipeline *p, struct pipeline_alloc_stats *ret)
{
	*ret = (struct pipeline_alloc_stats){};
	if (!p->alloc)
		return;
	*ret = p->alloc->stats;
	ret->objects = p->alloc->objects.n;
	if (p->alloc->allocs)
		allocs_get_stats(p->alloc->allocs, &ret->probes);
}

#define GAUGE(member, help) STAT_GAUGE(struct pipeline_alloc_stats, member, help)
const struct stat_field pipeline_alloc_stat_fields[] = {
	GAUGE(objects, "Sampled objects that live."),
	STAT_COUNTER(struct pipeline_alloc_stats, unkept,
		     "Objects or stacks of objects that had no room."),
	{},
};
