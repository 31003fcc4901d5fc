/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/heap.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pipeline/batch.h"
#include "agent/pipeline/processes.h"
#include "base/clock.h"
#include "base/log.h"

/* At the end of a period, all looks together, and one. Processes that were left out come first in
 * the next one. */
#define ROUND_MAX_NS 300000000ULL
#define LOOK_MAX_NS 100000000ULL
/* Looks before the end take one of so many parts of the time. The processes do not notice them. */
#define TICK_PARTS 10
#define MAX_ENDED 4096
#define TEXT_BYTES 256

struct base { /* of a site: what was counted before, as sampled */
	u64 allocs, bytes;
};

struct held {	      /* a site at the last look, as sampled */
	size_t first; /* of `words` */
	u32 n, base;  /* base: an index */
	bool is_cut;
	u64 allocs, alloc_bytes, live, live_bytes;
};

struct sites {
	vec(struct held) held;
	vec(u64) words;
};

struct heaped { /* an image of a process */
	u64 image;
	u32 pid;
	char comm[SAMPLE_COMM_BYTES];
	bool passes;	 /* the filters: of those other than by pid, only BPF knows */
	bool is_based;	 /* what it had when it began to count is known */
	bool late;	 /* there was no time for it in the last round */
	bool is_counted; /* it has ended, and was counted */
	u64 round;	 /* the last one in which it was read */
	u64 rate;
	struct map base_index; /* key of a site → bases */
	vec(struct base) bases;
	struct sites now;
	char text[TEXT_BYTES]; /* what was found, "": no runtime */
};

struct heaps {
	u32 source;
	bool all; /* no filter but that by pid */
	bool ticks;
	bool begun, stopped;
	u64 began_ns, tick_ns, round;
	struct map processes;	    /* image → struct heaped *, owned */
	vec(struct heaped *) ended; /* owned */
	struct heap_stats stats;
};

/* ---- life ---- */

int pipeline_heap_create(struct pipeline *p, const struct pipeline_options *o)
{
	const struct sampler_source *source;
	u32 i = 0;

	while ((source = sampler_source(p->sampler, i)) && strcmp(source->event, SAMPLER_HEAP) != 0)
		i++;
	if (!source)
		return 0;
	p->heaps = calloc(1, sizeof(*p->heaps));
	if (!p->heaps)
		return -ENOMEM;
	p->heaps->source = i;
	p->heaps->all = !o->sampler.n_comms && !o->sampler.n_cgroups && !o->sampler.n_uids;
	p->heaps->ticks = o->sampler.follow_forks;
	return 0;
}

static void sites_deinit(struct sites *s)
{
	vec_deinit(&s->held);
	vec_deinit(&s->words);
}

static void heaped_free(struct heaped *f)
{
	map_deinit(&f->base_index);
	vec_deinit(&f->bases);
	sites_deinit(&f->now);
	free(f);
}

void pipeline_heap_destroy(struct pipeline *p)
{
	struct heaps *h = p->heaps;

	if (!h)
		return;
	map_foreach (&h->processes, slot)
		heaped_free((struct heaped *)slot->value);
	map_deinit(&h->processes);
	vec_foreach (&h->ended, f)
		heaped_free(*f);
	vec_deinit(&h->ended);
	free(h);
	p->heaps = NULL;
}

/* ---- a look ---- */

struct looking {
	struct pipeline *pipeline;
	struct heaped *f;
	const struct procman_process *process;
	struct sites sites;
	int error;
};

static u64 word_of(const struct procman_process *proc, u64 avma)
{
	const struct procman_mapping *m = procman_process_find(proc, avma);
	u64 svma = m ? avma - m->bias : 0;

	if (!m || !m->binary->file_id || svma > WORD_SVMA_MASK)
		return WORD_RAW | avma;
	return (u64)m->binary->file_id << WORD_SVMA_BITS | svma;
}

/* The index of the site's base, which is added if it is new. */
static int find_base(struct heaped *f, u64 key, u32 *ret)
{
	const u64 *at = map_get(&f->base_index, key);
	int r;

	if (at) {
		*ret = (u32)*at;
		return 0;
	}
	r = vec_push(&f->bases, (struct base){});
	if (r == 0)
		r = map_put(&f->base_index, key, f->bases.n - 1);
	*ret = (u32)f->bases.n - 1;
	return r;
}

static void on_site(void *arg, const struct runtime_heap_look *look, const struct runtime_site *s)
{
	struct looking *l = arg;
	struct heaped *f = l->f;
	struct held h = {
		.first = l->sites.words.n,
		.n = s->n_calls,
		.is_cut = s->is_cut,
		.allocs = s->allocs,
		.alloc_bytes = s->alloc_bytes,
		.live = s->allocs - s->frees,
		.live_bytes = s->alloc_bytes - s->free_bytes,
	};

	(void)look;
	for (u32 i = 0; i < s->n_calls && l->error == 0; i++)
		l->error = vec_push(&l->sites.words, word_of(l->process, s->calls[i]));
	if (l->error == 0)
		l->error = find_base(f, s->key, &h.base);
	if (l->error == 0)
		l->error = vec_push(&l->sites.held, h);
}

/*
 * 0: its sites are in f->now. What is known of one that has ended, though procman does not know it
 * yet, stays.
 */
static int look_at(struct pipeline *p, struct heaped *f, u64 until_ns)
{
	struct heaps *h = p->heaps;
	u64 begin = clock_ns(CLOCK_MONOTONIC);
	struct looking l = {.pipeline = p, .f = f, .process = procman_known(p->procman, f->pid)};
	struct runtime_heap_look look = {
		.until_ns = MIN(until_ns, begin + LOOK_MAX_NS), .site = on_site, .arg = &l};
	int r;

	if (!l.process || l.process->image != f->image || !l.process->alive)
		return -ESRCH;
	r = runtimes_heap(p->runtimes, l.process, &look);
	r = r == 0 ? l.error : r;
	if (r == -ESRCH) {
		sites_deinit(&l.sites);
		return r;
	}
	sites_deinit(&f->now);
	if (r == 0)
		f->now = l.sites;
	else
		sites_deinit(&l.sites);
	if (!runtimes_heap_say(p->runtimes, l.process, r, &look, f->text, TEXT_BYTES))
		f->text[0] = '\0';
	memcpy(f->comm, l.process->comm, sizeof(f->comm));
	f->rate = look.rate;
	h->stats.looks += r != -ENOENT;
	h->stats.failed += r < 0 && r != -ENOENT && r != -ENODATA;
	h->stats.torn += look.n_torn;
	h->stats.bytes += look.bytes;
	h->stats.ns += clock_ns(CLOCK_MONOTONIC) - begin;
	return r;
}

/* What was allocated so far does not count. */
static void set_base(struct pipeline *p, struct heaped *f)
{
	int r = look_at(p, f, ~0ULL);

	f->is_based = r == 0 || r == -ENODATA;
	vec_foreach (&f->now.held, s)
		f->bases.data[s->base] = (struct base){s->allocs, s->alloc_bytes};
	f->now.held.n = 0;
}

/* ---- processes ---- */

static struct heaped *heaped_image(const struct heaps *h, u64 image)
{
	const u64 *f = map_get(&h->processes, image);

	return f ? (struct heaped *)*f : NULL;
}

static void process_changed(void *arg, const struct procman_process *proc)
{
	struct pipeline *p = arg;
	struct heaps *h = p->heaps;
	struct heaped *f;

	if (!h || heaped_image(h, proc->image) || !procman_can_be_sampled(proc))
		return;
	f = calloc(1, sizeof(*f));
	if (!f || map_put(&h->processes, proc->image, (u64)f) < 0) {
		free(f);
		return;
	}
	f->image = proc->image;
	f->pid = proc->pid;
	f->passes = h->all;
	if (!h->begun)
		return;
	/* What a forked process had counts for its parent. */
	if (proc->image_ns >= h->began_ns && proc->image_ns != proc->start_ns)
		f->is_based = true;
	else
		set_base(p, f);
}

void heap_see(struct pipeline *p, const struct procman_process *proc)
{
	struct heaped *f =
		p->heaps && !p->heaps->all && proc ? heaped_image(p->heaps, proc->image) : NULL;

	if (f)
		f->passes = true;
}

/* ---- rounds of looks ---- */

static bool look(struct pipeline *p, u64 image, u64 until_ns)
{
	struct heaped *f = heaped_image(p->heaps, image);
	int r;

	if (!f || !f->passes)
		return false;
	f->late = clock_ns(CLOCK_MONOTONIC) >= until_ns;
	if (f->late) {
		f->now.held.n = 0;
		return false;
	}
	if (!f->is_based) {
		set_base(p, f);
		return false;
	}
	r = look_at(p, f, until_ns);
	if (r < 0)
		return false;
	f->round = p->heaps->round + 1;
	/* It may have ended when it is counted. */
	if (p->heaps->ticks)
		processes_see(p, f->pid, procman_known(p->procman, f->pid));
	return true;
}

/* The ring is read in between, after which processes may be others. */
static void look_at_all(struct pipeline *p, u64 until_ns)
{
	struct heaps *h = p->heaps;
	vec(u64) images = {};
	u32 n = 0;

	for (int late = 1; late >= 0; late--)
		map_foreach (&h->processes, slot)
			if (((const struct heaped *)slot->value)->late == late)
				(void)vec_push(&images, slot->key);
	vec_foreach (&images, image) {
		n += look(p, *image, until_ns);
		(void)sampler_drain(p->sampler);
	}
	vec_deinit(&images);
	h->round += n > 0;
}

void heap_begin(struct pipeline *p)
{
	struct heaps *h = p->heaps;

	if (!h)
		return;
	h->began_ns = clock_ns(CLOCK_MONOTONIC);
	h->begun = true;
	/* The first look at each sets what does not count. */
	look_at_all(p, ~0ULL);
}

void heap_tick(struct pipeline *p)
{
	struct heaps *h = p->heaps;
	u64 now;

	if (!h || !h->ticks || !h->begun || h->stopped)
		return;
	now = clock_ns(CLOCK_MONOTONIC);
	if (now < h->tick_ns)
		return;
	look_at_all(p, ~0ULL);
	h->tick_ns = pipeline_next_look_ns(h->began_ns, now, TICK_PARTS);
}

void heap_stop(struct pipeline *p)
{
	struct heaps *h = p->heaps;

	if (!h || !h->begun)
		return;
	look_at_all(p, ~0ULL);
	h->stopped = true;
}

/* ---- counting ---- */

/*
 * What sampled allocations stand for. With one sample per `rate` bytes on average, an object of s
 * bytes is sampled with the probability 1 − e^(−s/rate). Computed as Go's runtime/pprof does, so
 * that the numbers are the same.
 */
static void scale(u64 count, u64 bytes, u64 rate, s64 *ret_count, s64 *ret_bytes)
{
	double factor = 1;

	*ret_count = *ret_bytes = 0;
	if (!count || !bytes)
		return;
	if (rate > 1)
		factor = 1 / (1 - exp(-((double)bytes / (double)count) / (double)rate));
	/* What is in memory may be anything. */
	if ((double)count * factor < 1e15 && (double)bytes * factor < 1e18) {
		*ret_count = (s64)((double)count * factor);
		*ret_bytes = (s64)((double)bytes * factor);
	}
}

static int add_stack(struct pipeline *p, const struct heaped *f, const struct held *s, u64 *ret)
{
	const u64 *words = f->now.words.data + s->first;
	u64 key[2] = {hash_bytes(words, s->n * sizeof(*words)), s->is_cut};

	*ret = hash_bytes(key, sizeof(key)) >> 1 | 1;
	return batch_add_stack(p->batch, p->procman, *ret, words, s->n,
			       s->is_cut ? STOP_TOO_DEEP : STOP_COMPLETE, false);
}

struct counted { /* of a stack */
	u64 stack;
	bool is_cut;
	u64 time_ns;
};

static void count_part(struct pipeline *p, const struct heaped *f, const struct counted *of,
		       enum heap_part part, s64 objects, s64 bytes)
{
	struct pipeline_counts *counts = &p->batch->counts[p->heaps->source];
	struct pipeline_entry e = {
		.key = {.pid = f->pid,
			.image = f->image,
			.user_stack = of->stack,
			.source = p->heaps->source,
			.object = {.kind = WAIT_OBJECT_HEAP, .port = (u16)part}},
		.count = 1,
		.value = objects,
		.bytes = bytes,
		.first_ns = of->time_ns,
	};

	if (!objects && !bytes)
		return;
	if (batch_count_state(p, &e, f->comm, p->heaps->source))
		counts->stops[of->is_cut ? STOP_TOO_DEEP : STOP_COMPLETE]++;
}

static void count_site(struct pipeline *p, struct heaped *f, const struct held *s, bool live,
		       u64 time_ns)
{
	struct base *base = &f->bases.data[s->base];
	struct counted of = {.is_cut = s->is_cut, .time_ns = time_ns};
	s64 objects, bytes, before, before_bytes;

	if (add_stack(p, f, s, &of.stack) < 0) {
		p->heaps->stats.unkept++;
		return;
	}
	scale(s->live, s->live_bytes, f->rate, &objects, &bytes);
	if (live)
		count_part(p, f, &of, HEAP_LIVE, objects, bytes);
	/* Less than before: the base is what was not published yet. */
	if (s->allocs <= base->allocs || s->alloc_bytes < base->bytes)
		return;
	scale(s->allocs, s->alloc_bytes, f->rate, &objects, &bytes);
	scale(base->allocs, base->bytes, f->rate, &before, &before_bytes);
	count_part(p, f, &of, HEAP_ALLOCATED, objects - before, bytes - before_bytes);
	*base = (struct base){s->allocs, s->alloc_bytes};
}

static void count_sites(struct pipeline *p, struct heaped *f, bool live, u64 time_ns)
{
	struct heaps *h = p->heaps;

	h->stats.sites += f->now.held.n;
	vec_foreach (&f->now.held, s)
		count_site(p, f, s, live, time_ns);
}

static void count_process(struct pipeline *p, struct heaped *f, u64 time_ns)
{
	const struct procman_process *proc = procman_known(p->procman, f->pid);

	p->heaps->stats.counted += f->now.held.n > 0;
	count_sites(p, f, f->round == p->heaps->round, time_ns);
	if (f->now.held.n && proc && proc->image == f->image)
		processes_see(p, f->pid, proc);
	sites_deinit(&f->now);
}

/*
 * What lived at the end of those that have ended counts only if nothing was read later. Those that
 * were counted before are known only for what pipeline_heap_say() tells.
 */
static void count_ended(struct pipeline *p, u64 time_ns)
{
	struct heaps *h = p->heaps;
	size_t n = 0;

	vec_foreach (&h->ended, f) {
		if ((*f)->is_counted) {
			heaped_free(*f);
			continue;
		}
		if ((*f)->round == h->round)
			count_sites(p, *f, true, time_ns);
		(*f)->is_counted = true;
		h->ended.data[n++] = *f;
	}
	h->ended.n = n;
}

void heap_count(struct pipeline *p, u64 time_ns)
{
	struct heaps *h = p->heaps;

	if (!h || !h->begun)
		return;
	if (!h->stopped)
		look_at_all(p, clock_ns(CLOCK_MONOTONIC) + ROUND_MAX_NS);
	/* With ticks, those that have ended were counted meanwhile. */
	if (!h->ticks)
		h->stats.counted = h->stats.sites = 0;
	map_foreach (&h->processes, slot)
		count_process(p, (struct heaped *)slot->value, time_ns);
	count_ended(p, time_ns);
}

/* ---- ends ---- */

static void end(struct pipeline *p, u64 image)
{
	struct heaps *h = p->heaps;
	struct heaped *f;
	u64 v;

	if (!h || !map_del(&h->processes, image, &v))
		return;
	f = (struct heaped *)v;
	/* Its files are open now, and may be closed when the recording ends. */
	if (h->ticks && f->now.held.n) {
		h->stats.counted++;
		count_sites(p, f, false, clock_ns(CLOCK_MONOTONIC));
	}
	if (!h->ticks || !f->now.held.n || h->ended.n >= MAX_ENDED || vec_push(&h->ended, f) < 0)
		heaped_free(f);
}

static void process_exec(void *arg, const struct procman_process *proc, u64 before)
{
	(void)proc;
	end(arg, before);
}

static void process_ended(void *arg, const struct procman_process *proc)
{
	end(arg, proc->image);
}

const struct procman_listener heap_listener = {
	.process_changed = process_changed,
	.process_exec = process_exec,
	.process_ended = process_ended,
	.process_gone = process_ended,
};

/* ---- what was found ---- */

void pipeline_heap_say(struct pipeline *p,
		       void (*say)(void *arg, u32 pid, const char *comm, const char *text),
		       void *arg)
{
	struct heaps *h = p->heaps;

	if (!h)
		return;
	map_foreach (&h->processes, slot) {
		const struct heaped *f = (const struct heaped *)slot->value;

		if (f->text[0])
			say(arg, f->pid, f->comm, f->text);
	}
	vec_foreach (&h->ended, f)
		if ((*f)->text[0])
			say(arg, (*f)->pid, (*f)->comm, (*f)->text);
}

void heap_get_stats(const struct pipeline *p, struct heap_stats *ret)
{
	*ret = (struct heap_stats){};
	if (!p->heaps)
		return;
	*ret = p->heaps->stats;
	ret->processes = p->heaps->processes.n;
}

#define COUNTER(member, help) STAT_COUNTER(struct heap_stats, member, help)
const struct stat_field heap_stat_fields[] = {
	STAT_GAUGE(struct heap_stats, processes,
		   "Processes in which memory profiles are looked for."),
	STAT_GAUGE(struct heap_stats, counted,
		   "Of these, processes that had one in the last period."),
	STAT_GAUGE(struct heap_stats, sites, "Stacks with allocations that these had."),
	COUNTER(looks, "Looks at processes of a runtime that keeps memory profiles."),
	COUNTER(failed, "Of these, failed."),
	COUNTER(torn, "Sites that were left out, because they changed while they were read."),
	COUNTER(unkept, "Sites that were left out, because the period had reached its limit."),
	COUNTER(bytes, "Bytes that were read from processes."),
	COUNTER(ns, "Nanoseconds that looks have taken."),
	{},
};
