/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From samples to values. A sample that was drawn with the probability 1/w stands for w calls. If
 * it is of a window, it also stands for the time between windows, and for what its thread would
 * have done in the time that probes took from it: a thread from which they took `cost` of a window
 * of length W has got as far as it would in W - cost, so that its calls count W / (W - cost).
 * Probes cost what was measured, to within an error; so the scale is known to within an interval.
 * Where probes take nearly all of the window, the interval is wide, and the lower bound is told.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "agent/pipeline/alloc_ledger.h"
#include "agent/pipeline/batch.h"
#include "base/log.h"

/* An interval wider than that is told as its lower bound. */
#define WIDE 4.0
/* The part of a window in whose allocations unfreed objects are looked for. */
#define UNFREED_PART 0.9
/* Fewer windows with calls do not stand for a period. */
#define FEW_WINDOWS 10

static struct tally *tally_of(struct allocating *f, u32 owner)
{
	const u64 *at = map_get(&f->by_owner, owner);

	if (at)
		return &f->tallies.data[*at];
	if (vec_push(&f->tallies, (struct tally){.owner = owner}) < 0 ||
	    map_put(&f->by_owner, owner, f->tallies.n - 1) < 0) {
		log_warn_rarely("out of memory: allocations seem to be fewer");
		return NULL;
	}
	return &f->tallies.data[f->tallies.n - 1];
}

/* ---- samples ---- */

void alloc_add(struct allocating *f, u32 owner, const struct object *o)
{
	struct tally *t = tally_of(f, owner);

	if (!t)
		return;
	t->samples++;
	t->sampled |= o->objects > 1;
	t->space += (double)o->bytes;
	t->objects += (double)o->objects;
}

static void add_scaled(struct bounded *to, double bytes, const struct bounded *scale)
{
	to->value += bytes * scale->value;
	to->low += bytes * scale->low;
	to->high += bytes * scale->high;
	to->seen += bytes;
}

/* ---- windows ---- */

static struct bounded scale_of(const struct alloc_report *r, u32 tid)
{
	double length = (double)(r->end_ns - r->begin_ns);
	double stands = length > 0 ? (double)r->stands_ns / length : 0;
	double traps = 0, walks = 0, left, left_low, left_high;

	vec_foreach (&r->threads, t)
		if (t->tid == tid) {
			traps = (double)t->traps_ns;
			walks = (double)t->walks_ns;
		}
	left = length - traps - walks;
	left_low = length - traps * r->high - walks;
	left_high = length - traps * r->low - walks;
	return (struct bounded){
		.value = stands * (left > 0 ? length / left : 1),
		.low = stands * (left_high > 0 ? length / left_high : 1),
		.high = left_low > 0 ? stands * length / left_low : HUGE_VAL,
	};
}

static void add_unfreed(struct allocating *f, u32 owner, u64 bytes, const struct bounded *scale)
{
	struct tally *t = tally_of(f, owner);

	if (!t)
		return;
	t->unfreed_samples++;
	add_scaled(&t->unfreed, (double)bytes / UNFREED_PART, scale);
}

static void count_waiting(struct pipeline *p, struct allocating *f, const struct waiting *w,
			  const struct alloc_report *r, bool late)
{
	u64 watched = (u64)((double)(r->end_ns - r->begin_ns) * UNFREED_PART);
	struct bounded scale = scale_of(r, w->tid);
	struct tally *t = tally_of(f, w->owner);

	if (t) {
		t->samples++;
		t->windows_objects += (double)w->objects * scale.value;
		add_scaled(&t->windows, (double)w->bytes, &scale);
	}
	if (w->id && map_get(&p->alloc->objects, w->id)) {
		if (!late && w->time_ns <= r->begin_ns + watched)
			add_unfreed(f, w->owner, w->bytes << p->alloc->keep, &scale);
		alloc_drop_object(p, w->id);
	}
}

void alloc_report(struct pipeline *p, struct allocating *f, struct alloc_report *r)
{
	struct alloc_report *kept = &f->reports[f->n_reports % KEPT_REPORTS];
	size_t n = 0;

	f->windowed = true;
	log_debug(
		"window %u of process %u: %.1f ms stand for %.1f ms; probes took %.1f ms of %zu threads, "
		"walks %.1f ms",
		r->number, r->pid, (double)(r->end_ns - r->begin_ns) / 1e6,
		(double)r->stands_ns / 1e6,
		r->threads.n ? (double)r->threads.data[0].traps_ns / 1e6 : 0, r->threads.n,
		r->threads.n ? (double)r->threads.data[0].walks_ns / 1e6 : 0);
	f->covered_ns += r->stands_ns;
	f->probed_ns += r->end_ns - r->begin_ns;
	f->n_hit += r->threads.n > 0;
	f->until_ns = MAX(f->until_ns, r->end_ns);
	for (size_t i = 0; i < f->waiting.n; i++) {
		struct waiting w = f->waiting.data[i];

		if (w.window == r->number)
			count_waiting(p, f, &w, r, false);
		else
			f->waiting.data[n++] = w;
	}
	f->waiting.n = n;
	if (f->n_reports >= KEPT_REPORTS)
		alloc_report_deinit(kept);
	*kept = *r;
	*r = (struct alloc_report){};
	f->n_reports++;
}

void alloc_wait(struct pipeline *p, struct allocating *f, const struct waiting *w)
{
	for (u32 i = 0; i < MIN(f->n_reports, (u32)KEPT_REPORTS); i++)
		if (f->reports[i].number == w->window) {
			count_waiting(p, f, w, &f->reports[i], true);
			return;
		}
	if (vec_push(&f->waiting, *w) < 0)
		log_warn_rarely("out of memory: allocations seem to be fewer");
}

/* ---- periods ---- */

struct counted {
	u32 source, owner;
	u64 samples;
	double value, second;
	const char *estimate;
};

static void count(struct pipeline *p, const struct allocating *f, const struct counted *c,
		  u64 time_ns)
{
	struct alloc *a = p->alloc;
	static const struct owner none = {};
	const struct owner *o = c->owner == OWNER_UNKNOWN ? &none : &a->owners.all.data[c->owner];
	struct pipeline_entry e = {
		.key = {.pid = f->pid,
			.image = f->image,
			.kernel_stack = owners_stack(p, &a->owners, o->kernel_stack),
			.user_stack = owners_stack(p, &a->owners, o->user_stack),
			.source = c->source,
			.event_attributes =
				batch_attribute(p->batch, f->pid, "estimate", c->estimate)},
		.count = c->samples,
		.value = llround(c->value),
		.bytes = llround(c->second),
		.first_ns = time_ns,
	};

	(void)batch_count_state(p, &e, f->comm, a->source);
}

/* Windows stand for the time until they close; what passed since is as they were. */
static double remainder_scale(const struct alloc *a, const struct allocating *f, u64 time_ns)
{
	u64 end = f->end_ns ? MIN(f->end_ns, time_ns) : time_ns;
	bool last = a->stopped || f->ended;

	if (!last || f->always || !f->covered_ns || end <= f->until_ns)
		return 1;
	return 1 + (double)(end - f->until_ns) / (double)f->covered_ns;
}

/*
 * Few windows cannot stand for the time between them: a program that allocates in bursts may have
 * most of them elsewhere. Then only what was seen is told.
 */
static bool has_few(const struct allocating *f)
{
	return f->n_hit < FEW_WINDOWS;
}

static bool is_bound(const struct allocating *f, const struct bounded *b)
{
	return b->value > 0 && (has_few(f) || b->high > WIDE * b->low);
}

/* What is told of a value that is known to within bounds. */
static double told_value(const struct allocating *f, const struct bounded *b)
{
	if (!is_bound(f, b))
		return b->value;
	return has_few(f) ? b->seen : b->low;
}

static const char *estimate_of(const struct allocating *f, const struct bounded *b, bool sampled)
{
	return is_bound(f, b) ? "at least"
	       : b->value > 0 ? "windows"
	       : sampled      ? "sampled"
			      : "exact";
}

static void count_tally(struct pipeline *p, const struct allocating *f, const struct tally *t,
			double rest, u64 time_ns)
{
	const struct alloc *a = p->alloc;
	double bytes = told_value(f, &t->windows);
	double share = t->windows.value > 0 ? bytes / t->windows.value : 1;
	struct counted c = {
		.source = a->source,
		.owner = t->owner,
		.samples = t->samples,
		.value = t->space + bytes * rest,
		.second = t->objects + t->windows_objects * share * rest,
		.estimate = estimate_of(f, &t->windows, t->sampled),
	};

	if (t->samples)
		count(p, f, &c, time_ns);
	if (!t->unfreed_samples)
		return;
	c = (struct counted){
		.source = a->unfreed_source,
		.owner = t->owner,
		.samples = t->unfreed_samples,
		.value = (f->windowed ? told_value(f, &t->unfreed) : t->unfreed.value) *
			 (f->windowed ? rest : 1),
		.estimate = f->windowed ? estimate_of(f, &t->unfreed, true) : "sampled",
	};
	count(p, f, &c, time_ns);
}

void alloc_count_unfreed(struct pipeline *p, struct allocating *f, u64 end_ns)
{
	const struct alloc *a = p->alloc;
	u64 begin_ns = MAX(a->began_ns, f->always_ns);
	u64 watched = begin_ns + (u64)((double)(end_ns - begin_ns) * UNFREED_PART);
	double keep = (double)(1ULL << a->keep);

	map_foreach (&a->objects, slot) {
		const struct object *o = (const struct object *)slot->value;

		if (o->image == f->image && !o->window && o->time_ns >= begin_ns &&
		    o->time_ns <= watched)
			add_unfreed(f, o->owner, o->bytes, &(struct bounded){keep, keep, keep, 0});
	}
}

/* What lives of a process that is probed all the time. */
static void count_live(struct pipeline *p, struct allocating *f, u64 time_ns)
{
	struct alloc *a = p->alloc;
	struct allocating live = {};
	double keep = (double)(1ULL << a->keep);

	map_foreach (&a->objects, slot) {
		const struct object *o = (const struct object *)slot->value;

		if (o->image == f->image && !o->window)
			alloc_add(&live, o->owner, o);
	}
	vec_foreach (&live.tallies, t) {
		struct counted c = {
			.source = a->live_source,
			.owner = t->owner,
			.samples = t->samples,
			.value = t->space * keep,
			.second = t->objects * keep,
			.estimate = t->sampled || a->keep ? "sampled" : "exact",
		};

		count(p, f, &c, time_ns);
	}
	vec_deinit(&live.tallies);
	map_deinit(&live.by_owner);
}

/* Bounds of all that the process has allocated, as multiples of what is told. */
static void tell(struct alloc *a, const struct allocating *f)
{
	struct bounded sum = {};
	double told = 0;
	struct pipeline_alloc_told *t;

	if (a->stats.n_told == PIPELINE_ALLOC_TOLD || !f->tallies.n)
		return;
	vec_foreach (&f->tallies, tally) {
		told += tally->space + told_value(f, &tally->windows);
		sum.low += tally->space + (has_few(f) ? tally->windows.seen : tally->windows.low);
		sum.high +=
			tally->space + (f->windowed && has_few(f) ? HUGE_VAL : tally->windows.high);
	}
	t = &a->stats.told[a->stats.n_told++];
	*t = (struct pipeline_alloc_told){
		.pid = f->pid,
		.windowed = f->windowed,
		.coverage = f->covered_ns ? (double)f->probed_ns / (double)f->covered_ns : 1,
		.low = told > 0 ? sum.low / told : 1,
		.high = told > 0 ? sum.high / told : 1,
	};
	memcpy(t->comm, f->comm, sizeof(t->comm));
}

void alloc_count_process(struct pipeline *p, struct allocating *f, u64 time_ns)
{
	double rest = has_few(f) ? 1 : remainder_scale(p->alloc, f, time_ns);

	if (f->always && !f->ended)
		alloc_count_unfreed(p, f, time_ns);
	if (!f->windowed && (!f->ended || p->follow))
		count_live(p, f, time_ns);
	vec_foreach (&f->tallies, t)
		count_tally(p, f, t, rest, time_ns);
	tell(p->alloc, f);
	vec_clear(&f->tallies);
	map_clear(&f->by_owner);
	f->covered_ns = f->probed_ns = 0;
	f->n_hit = 0;
}
