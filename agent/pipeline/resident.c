/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/resident.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/pipeline/batch.h"
#include "agent/pipeline/processes.h"
#include "agent/pipeline/resident_ledger.h"
#include "base/clock.h"
#include "base/log.h"

/* Pages that are followed, of all processes: 3 MiB of maps, at most twice that. */
#define MAX_PAGES (1U << 17)
/* At least so long between two looks at all processes only to find pages that are gone. */
#define PRUNE_NS 2000000000ULL
/* A larger page is one of hugetlbfs, which is no part of Rss. */
#define MAX_PAGES_AT_ONCE 8192

/* ---- life ---- */

int pipeline_resident_create(struct pipeline *p, const struct pipeline_options *o)
{
	const struct sampler_source *source;
	struct resident *r;
	u32 i = 0;

	while ((source = sampler_source(p->sampler, i)) &&
	       strcmp(source->event, SAMPLER_RESIDENT) != 0)
		i++;
	if (!source)
		return 0;
	r = p->resident = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->source = i;
	r->page_shift = (u32)__builtin_ctz((u32)getpagesize());
	r->all = !o->sampler.n_comms && !o->sampler.n_cgroups && !o->sampler.n_uids;
	r->ticks = o->sampler.follow_forks;
	r->max_pages = MAX_PAGES;
	r->below = RESIDENT_ALL;
	if (getrandom(&r->seed, sizeof(r->seed), GRND_NONBLOCK) != sizeof(r->seed))
		r->seed = clock_ns(CLOCK_MONOTONIC);
	sampler_follow_pages(p->sampler, r->seed, r->below);
	return owners_init(p, &r->owners);
}

void resident_free(struct resident *r, struct followed *f)
{
	r->n_pages -= f->pages.n;
	map_deinit(&f->pages);
	vec_deinit(&f->held);
	free(f);
}

void pipeline_resident_destroy(struct pipeline *p)
{
	struct resident *r = p->resident;

	if (!r)
		return;
	map_foreach (&r->processes, slot)
		resident_free(r, (struct followed *)slot->value);
	map_deinit(&r->processes);
	vec_foreach (&r->ended, f)
		resident_free(r, *f);
	vec_deinit(&r->ended);
	owners_deinit(p, &r->owners);
	free(r);
	p->resident = NULL;
}

/* ---- pages ---- */

/* Follows half of the pages. */
static void thin(struct pipeline *p)
{
	struct resident *r = p->resident;

	r->below /= 2;
	sampler_follow_pages(p->sampler, r->seed, r->below);
	map_foreach (&r->processes, slot) {
		struct followed *f = (struct followed *)slot->value;
		struct map fresh = {};

		map_foreach (&f->pages, page)
			if (resident_follows(r, page->key))
				(void)map_put(&fresh, page->key, page->value);
		r->n_pages -= f->pages.n;
		map_deinit(&f->pages);
		f->pages = fresh;
		r->n_pages += f->pages.n;
	}
}

/* First drops pages that are not resident any more; then follows fewer. */
static void make_room(struct pipeline *p)
{
	struct resident *r = p->resident;
	u64 now = clock_ns(CLOCK_MONOTONIC);

	if (!r->full)
		return;
	r->full = false;
	if (now - r->pruned_ns >= PRUNE_NS) {
		r->pruned_ns = now;
		map_foreach (&r->processes, slot)
			(void)resident_look_at(p, (struct followed *)slot->value);
	}
	while (r->n_pages > r->max_pages * 3 / 4 && r->below > 1)
		thin(p);
}

void resident_put(struct resident *r, struct followed *f, u64 page, u64 value)
{
	size_t before = f->pages.n;

	if (r->n_pages >= 2 * r->max_pages || map_put(&f->pages, page, value) < 0) {
		/* Better none than that of an earlier fault. */
		if (map_del(&f->pages, page, NULL))
			r->n_pages--;
		r->stats.unkept++;
		return;
	}
	r->n_pages += f->pages.n - before;
	r->full |= r->n_pages > r->max_pages;
}

static void forget(struct resident *r, struct followed *f, u64 page)
{
	if (map_del(&f->pages, page, NULL))
		r->n_pages--;
}

/* ---- processes ---- */

static struct followed *followed_image(const struct resident *r, u64 image)
{
	const u64 *f = map_get(&r->processes, image);

	return f ? (struct followed *)*f : NULL;
}

/* Memory of the parent is the child's, too, until one of them writes to it. */
static bool inherit(struct pipeline *p, struct followed *f, const struct procman_process *proc)
{
	struct resident *r = p->resident;
	const struct procman_process *parent = procman_known(p->procman, proc->ppid);
	struct followed *of = parent ? followed_image(r, parent->image) : NULL;

	if (!of || proc->image_ns != proc->start_ns || parent->image_ns > proc->start_ns)
		return false;
	f->forked_ns = proc->start_ns;
	f->parent = of->image;
	of->last_fork_ns = MAX(of->last_fork_ns, proc->start_ns);
	map_foreach (&of->pages, page)
		resident_put(r, f, page->key, page->value);
	return true;
}

static struct followed *follow(struct pipeline *p, const struct procman_process *proc)
{
	struct resident *r = p->resident;
	struct followed *f = calloc(1, sizeof(*f));

	if (!f || map_put(&r->processes, proc->image, (u64)f) < 0) {
		free(f);
		return NULL;
	}
	f->image = proc->image;
	f->pid = proc->pid;
	if (inherit(p, f, proc) || !r->begun)
		return f;
	/* By other filters than pids, or chosen later, a process comes in that has run for long. */
	if (!r->all || p->choose || proc->image_ns < r->began_ns)
		(void)resident_mark_before(p, f);
	return f;
}

static void process_changed(void *arg, const struct procman_process *proc)
{
	struct pipeline *p = arg;

	if (p->resident && p->resident->all && procman_can_be_sampled(proc) &&
	    !followed_image(p->resident, proc->image))
		(void)follow(p, proc);
}

/* What it had is still known, should nothing else live at the end. */
static void end(struct pipeline *p, u64 image)
{
	struct resident *r = p->resident;
	struct followed *f;
	u64 v;

	if (!r || !map_del(&r->processes, image, &v))
		return;
	f = (struct followed *)v;
	r->n_pages -= f->pages.n;
	map_deinit(&f->pages);
	f->pages = (struct map){};
	if (!r->ticks || !f->held.n || f->round != r->round || vec_push(&r->ended, f) < 0)
		resident_free(r, f);
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

const struct procman_listener resident_listener = {
	.process_changed = process_changed,
	.process_exec = process_exec,
	.process_ended = process_ended,
	.process_gone = process_ended,
};

void resident_begin(struct pipeline *p)
{
	struct resident *r = p->resident;

	if (!r)
		return;
	map_foreach (&r->processes, slot) {
		(void)resident_mark_before(p, (struct followed *)slot->value);
		make_room(p);
	}
	r->begun = true;
	r->began_ns = clock_ns(CLOCK_MONOTONIC);
}

/* ---- faults ---- */

/* The process of a fault; NULL: it is unknown, or has ended. */
static struct followed *of_fault(struct pipeline *p, u32 pid, u64 time_ns)
{
	const struct procman_process *proc = processes_find_at(p, pid, time_ns);
	struct followed *f;

	if (!proc || proc->image_ns > time_ns)
		return NULL;
	f = followed_image(p->resident, proc->image);
	return f || !procman_can_be_sampled(proc) ? f : follow(p, proc);
}

static u64 stamp_of(u64 time_ns)
{
	return time_ns >> 12 & PAGE_STAMP_MASK;
}

/* Puts a value, or with `expected` replaces that value. */
static void put_page(struct resident *r, struct followed *f, u64 page, u64 value, u64 expected)
{
	const u64 *now = expected ? map_get(&f->pages, page) : NULL;

	if (resident_follows(r, page) && (!expected || (now && *now == expected)))
		resident_put(r, f, page, value);
}

/* A child that was forked after the fault has its pages, too, unless they are its own already. */
static void put_in_children(struct resident *r, const struct followed *parent, u64 page, u64 value,
			    u64 expected, u64 time_ns)
{
	map_foreach (&r->processes, slot) {
		struct followed *f = (struct followed *)slot->value;

		if (f->parent == parent->image && f->forked_ns > time_ns &&
		    (expected || !map_get(&f->pages, page)))
			put_page(r, f, page, value, expected);
	}
}

struct fault {
	u64 address, time_ns;
	u32 bits, shift;
};

static void put_fault(struct pipeline *p, u32 pid, const struct fault *t, u64 value, u64 expected)
{
	struct resident *r = p->resident;
	struct followed *f = of_fault(p, pid, t->time_ns);
	bool huge = t->shift > r->page_shift;
	u64 n = huge ? 1ULL << MIN(t->shift - r->page_shift, 32U) : 32;
	u64 first = t->address >> r->page_shift;

	if (!f || n > MAX_PAGES_AT_ONCE || t->shift < r->page_shift)
		return;
	for (u64 i = 0; i < n; i++) {
		if (!huge && !(t->bits >> i & 1))
			continue;
		put_page(r, f, first + i, value, expected);
		if (f->last_fork_ns > t->time_ns)
			put_in_children(r, f, first + i, value, expected, t->time_ns);
	}
}

static struct fault fault_of(const struct record_sample *s)
{
	return (struct fault){.address = s->object.address[0],
			      .time_ns = s->time_ns,
			      .bits = (u32)s->object.address[1],
			      .shift = s->object.owner};
}

/* Who owns the pages of a sample. */
static u32 owner_of(struct pipeline *p, const struct record_sample *s)
{
	struct resident *r = p->resident;
	u32 owner = 0;
	int e = owners_find(p, &r->owners, s, &owner);

	r->stats.unkept += e < 0 && e != -ENOENT;
	return e < 0 ? OWNER_NONE : owner + OWNER_FIRST;
}

void resident_take(struct pipeline *p, const struct record_sample *s)
{
	struct fault t = fault_of(s);
	u64 weight = MIN(MAX((u64)s->value, 1ULL), (u64)PAGE_WEIGHT_MAX);
	u64 pending = (u64)OWNER_PENDING << PAGE_OWNER_SHIFT | stamp_of(s->time_ns);

	if (p->resident)
		put_fault(p, s->pid, &t,
			  (u64)owner_of(p, s) << PAGE_OWNER_SHIFT | weight << PAGE_WEIGHT_SHIFT |
				  stamp_of(s->time_ns),
			  s->type == RECORD_SAMPLE ? 0 : pending);
}

void resident_expect(struct pipeline *p, const struct record_sample *s)
{
	struct fault t = fault_of(s);

	if (p->resident)
		put_fault(p, s->pid, &t,
			  (u64)OWNER_PENDING << PAGE_OWNER_SHIFT | stamp_of(s->time_ns), 0);
}

void resident_pages(struct pipeline *p, const struct record_pages *record)
{
	struct fault t = {record->address, record->time_ns, record->bits, record->shift};

	if (p->resident)
		put_fault(p, record->pid, &t, stamp_of(record->time_ns), 0);
}

/* ---- mremap ---- */

struct at {
	u64 offset, value;
};

static int compare_offsets(const void *pa, const void *pb)
{
	const struct at *a = pa, *b = pb;

	return (a->offset > b->offset) - (a->offset < b->offset);
}

/* The pages of [first, first + n) that are known, which are forgotten. */
static int take_range(struct resident *r, struct followed *f, u64 first, u64 n, void *ret_vec)
{
	vec(struct at) *taken = ret_vec;
	int e = 0;

	map_foreach (&f->pages, page)
		if (page->key - first < n && e == 0)
			e = vec_push(taken, (struct at){page->key - first, page->value});
	vec_foreach (taken, at)
		forget(r, f, first + at->offset);
	if (taken->n)
		qsort(taken->data, taken->n, sizeof(*taken->data), compare_offsets);
	return e;
}

/*
 * The pages have other addresses now, of which others are followed. If not all are, each is taken
 * to be what the nearest one is that was followed: a range that moves is mostly of one origin.
 */
static void put_range(struct resident *r, struct followed *f, u64 first, u64 n,
		      const struct at *taken, size_t n_taken)
{
	bool all = r->below >= RESIDENT_ALL;
	size_t k = 0;

	for (u64 i = 0; i < n; i++) {
		u64 value = (u64)OWNER_MOVED << PAGE_OWNER_SHIFT;

		if (!resident_follows(r, first + i))
			continue;
		while (k + 1 < n_taken &&
		       (all ? taken[k].offset < i : taken[k + 1].offset + taken[k].offset <= 2 * i))
			k++;
		if (n_taken && (!all || taken[k].offset == i))
			value = taken[k].value;
		else if (all)
			continue;
		resident_put(r, f, first + i, value);
	}
}

/* A larger range is not moved page by page; its memory is shown as unknown. */
#define MAX_MOVED (1ULL << 24)

void resident_moved(struct pipeline *p, const struct record_moved *record)
{
	struct resident *r = p->resident;
	struct followed *f = r ? of_fault(p, record->pid, record->time_ns) : NULL;
	u64 n = record->bytes >> (r ? r->page_shift : 0);
	vec(struct at) taken = {};

	if (!f || !n)
		return;
	if (take_range(r, f, record->from >> r->page_shift, n, &taken) == 0 && n <= MAX_MOVED)
		put_range(r, f, record->to >> r->page_shift, n, taken.data, taken.n);
	vec_deinit(&taken);
}

/* ---- rounds of looks ---- */

/* Looks before the end take one of so many parts of the time: they lock the address space. */
#define TICK_PARTS 50
/* At the end of a period. Processes that were looked at longest ago come first. */
#define COUNT_MAX_NS 300000000ULL

struct due {
	u64 image, looked_ns;
};

static int compare_due(const void *pa, const void *pb)
{
	const struct due *a = pa, *b = pb;

	return (a->looked_ns > b->looked_ns) - (a->looked_ns < b->looked_ns);
}

/*
 * Looks at a process, or leaves what it had at the last look if time is up. Returns whether
 * something is known of it. One that has just ended, but is not known to, is left as it is.
 */
static bool look(struct pipeline *p, u64 image, u64 until_ns)
{
	struct resident *r = p->resident;
	struct followed *f = followed_image(r, image);
	u64 now = clock_ns(CLOCK_MONOTONIC);

	if (!f)
		return false;
	if (now >= until_ns && f->held.n)
		r->stats.late++;
	else if (resident_look_at(p, f) == 0)
		f->looked_ns = now;
	else
		return false;
	f->round = r->round + 1;
	return true;
}

/* The ring is read in between, after which processes may be others. */
static void look_at_all(struct pipeline *p, u64 until_ns)
{
	struct resident *r = p->resident;
	const struct resident_round before = r->now;
	vec(struct due) due = {};
	u32 n = 0;

	map_foreach (&r->processes, slot)
		(void)vec_push(
			&due, (struct due){slot->key, ((struct followed *)slot->value)->looked_ns});
	if (due.n)
		qsort(due.data, due.n, sizeof(*due.data), compare_due);
	r->now = (struct resident_round){};
	vec_foreach (&due, d) {
		n += look(p, d->image, until_ns);
		(void)sampler_drain(p->sampler);
	}
	vec_deinit(&due);
	if (!n) {
		r->now = before;
		return;
	}
	r->round++;
	vec_foreach (&r->ended, f)
		resident_free(r, *f);
	vec_clear(&r->ended);
}

void resident_tick(struct pipeline *p)
{
	struct resident *r = p->resident;
	u64 now;

	if (!r || !r->begun || r->stopped)
		return;
	make_room(p);
	now = clock_ns(CLOCK_MONOTONIC);
	if (!r->ticks || now < r->tick_ns)
		return;
	look_at_all(p, ~0ULL);
	r->tick_ns = pipeline_next_look_ns(r->began_ns, now, TICK_PARTS);
}

void resident_stop(struct pipeline *p)
{
	struct resident *r = p->resident;

	if (!r || !r->begun)
		return;
	look_at_all(p, ~0ULL);
	r->stopped = true;
}

static void count_process(struct pipeline *p, const struct followed *f, u64 time_ns)
{
	if (f->round != p->resident->round)
		return;
	resident_count_process(p, f, time_ns);
	p->resident->stats.counted++;
}

/* Copies what living pages refer to. Their owners change at once, so a failure loses owners. */
static void tidy_stacks(struct pipeline *p)
{
	struct resident *r = p->resident;
	struct owners_tidying *t =
		owners_is_full(&r->owners) && !r->ticks ? owners_tidy_begin(p, &r->owners) : NULL;

	if (!t)
		return;
	map_foreach (&r->processes, slot) {
		struct followed *f = (struct followed *)slot->value;

		map_foreach (&f->pages, page) {
			u32 owner = page_owner(page->value), fresh;

			if (owner < OWNER_FIRST)
				continue;
			if (owners_tidy_owner(p, t, owner - OWNER_FIRST, &fresh) == 0) {
				owner = fresh + OWNER_FIRST;
			} else {
				owner = OWNER_NONE;
				r->stats.unkept++;
			}
			page->value = (u64)owner << PAGE_OWNER_SHIFT |
				      (page->value & ((1ULL << PAGE_OWNER_SHIFT) - 1));
		}
		vec_clear(&f->held);
	}
	owners_tidy_end(p, t);
}

void resident_count(struct pipeline *p, u64 time_ns)
{
	struct resident *r = p->resident;

	if (!r || !r->begun)
		return;
	make_room(p);
	if (!r->stopped)
		look_at_all(p, clock_ns(CLOCK_MONOTONIC) + COUNT_MAX_NS);
	r->stats.counted = 0;
	p->batch->counts[r->source].user_samples = 0;
	p->batch->counts[r->source].truncated = 0;
	map_foreach (&r->processes, slot)
		count_process(p, (const struct followed *)slot->value, time_ns);
	vec_foreach (&r->ended, f)
		count_process(p, *f, time_ns);
	owners_end_period(&r->owners);
	tidy_stacks(p);
}

void resident_get_stats(const struct pipeline *p, struct resident_stats *ret)
{
	const struct resident *r = p->resident;

	*ret = (struct resident_stats){};
	if (!r)
		return;
	*ret = r->stats;
	ret->processes = r->processes.n;
	ret->pages = r->n_pages;
	ret->one_of = RESIDENT_ALL / r->below;
	ret->known = r->now.known;
	ret->walked = r->now.walked;
	ret->effective =
		r->now.variance > 0 ? (u64)(r->now.bytes * r->now.bytes / r->now.variance) : 0;
}

#define COUNTER(member, help) STAT_COUNTER(struct resident_stats, member, help)
const struct stat_field resident_stat_fields[] = {
	STAT_GAUGE(struct resident_stats, processes,
		   "Processes whose resident memory is followed."),
	STAT_GAUGE(struct resident_stats, pages, "Pages that are followed."),
	STAT_GAUGE(struct resident_stats, one_of, "One of so many pages is followed."),
	STAT_GAUGE(struct resident_stats, known,
		   "Of these, resident pages with a fault since the recording began."),
	STAT_GAUGE(struct resident_stats, walked, "Of these, pages whose fault was walked."),
	STAT_GAUGE(struct resident_stats, effective,
		   "How many draws would split memory among stacks as exactly; 0: it is exact."),
	COUNTER(looks, "Looks at the resident memory of a process."),
	COUNTER(failed, "Of these, failed."),
	COUNTER(late, "Times that a process was counted by the look of an earlier period."),
	COUNTER(unkept, "Pages or stacks that had no room; their memory is shown as unknown."),
	COUNTER(ns, "Nanoseconds that looks have taken."),
	{},
};
