/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From samples to values. A sample that was drawn with the probability 1/w stands for w calls. If
 * it is of a window, it also stands for the time between windows: windows open at random times, so
 * that this is right on average, whatever the program does. The length of windows is the time for
 * which they were open, less that by which probes have slowed down the thread: one from which they
 * took C of all windows of length W has got as far as it would in W - C. That is of many windows:
 * of one window, W - C may be a small difference of two large times. A thread that waits for a
 * clock gets as far as in W, and probes cost what was measured, to within an error; so the scale is
 * known to within an interval. Where the interval is wide, the lower bound is told.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "agent/pipeline/alloc_ledger.h"
#include "agent/pipeline/batch.h"
#include "base/log.h"

/* An interval wider than that is told as its lower bound: others are within 1.25 of the value. */
#define WIDE 1.5
/* The part of a window in whose allocations unfreed objects are looked for. */
#define UNFREED_PART 0.9
/* Objects of a place after which the next one is expected to be freed, too. */
#define FREED_BEFORE 3
/* What one window tells of how far threads are slowed down. */
#define SLOWED_KEEP (1 - 1 / 32.0)
#define SLOWED_FORGOTTEN_NS 1000.0

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
}

static void draw(struct draws *d, u32 window, double value)
{
	if (d->window != window) {
		d->sum += d->here;
		d->squares += d->here * d->here;
		d->here = 0;
		d->window = window;
	}
	d->here += value;
}

static double draws_of(const struct draws *d)
{
	double sum = d->sum + d->here, squares = d->squares + d->here * d->here;

	return squares > 0 ? sum * sum / squares : 0;
}

/* ---- windows ---- */

static struct slowed *slowed_of(struct allocating *f, u32 tid)
{
	vec_foreach (&f->slowed, s)
		if (s->tid == tid)
			return s;
	return NULL;
}

static void note_slowed(struct allocating *f, const struct alloc_report *r)
{
	size_t n = 0;

	f->slowed_of_ns = f->slowed_of_ns * SLOWED_KEEP + (double)(r->end_ns - r->begin_ns);
	for (size_t i = 0; i < f->slowed.n; i++) {
		struct slowed s = f->slowed.data[i];

		s.traps_ns *= SLOWED_KEEP;
		s.walks_ns *= SLOWED_KEEP;
		if (s.traps_ns + s.walks_ns > SLOWED_FORGOTTEN_NS)
			f->slowed.data[n++] = s;
	}
	f->slowed.n = n;
	vec_foreach (&r->threads, t) {
		struct slowed *s = slowed_of(f, t->tid);

		if (s) {
			s->traps_ns += (double)t->traps_ns;
			s->walks_ns += (double)t->walks_ns;
		} else if (vec_push(&f->slowed, (struct slowed){t->tid, (double)t->traps_ns,
								(double)t->walks_ns}) < 0) {
			log_warn_rarely("out of memory: allocations seem to be fewer");
		}
	}
}

static struct bounded scale_of(struct allocating *f, const struct alloc_report *r, u32 tid)
{
	const struct slowed *s = slowed_of(f, tid);
	double length = (double)(r->end_ns - r->begin_ns), open = f->slowed_of_ns;
	double stands = length > 0 ? (double)r->stands_ns / length : 0;
	double traps = s ? s->traps_ns : 0, walks = s ? s->walks_ns : 0;
	double left = open - traps - walks, left_low = open - traps * r->high - walks;

	return (struct bounded){
		.value = stands * (left > 0 ? open / left : 1),
		.low = stands,
		.high = left_low > 0 ? stands * open / left_low : HUGE_VAL,
	};
}

/* `window` 0: each sample is a draw. */
static void add_unfreed(struct allocating *f, u32 owner, u32 window, u64 bytes,
			const struct bounded *scale)
{
	struct tally *t = tally_of(f, owner);

	if (!t)
		return;
	t->unfreed_samples++;
	draw(&t->unfreed_draws, window ? window : t->unfreed_samples, (double)bytes * scale->value);
	add_scaled(&t->unfreed, (double)bytes / UNFREED_PART, scale);
}

static bool lives(const struct pipeline *p, const struct waiting *w)
{
	return w->id && map_get(&p->alloc->objects, w->id);
}

/*
 * A thread that is preempted at the end of a window may hold an object that it is about to free. So
 * the last object of a place and thread does not count as unfreed if earlier ones of the window
 * have been freed there. Of a place that leaks some of its objects a few are missing then.
 */
static void mark_in_flight(const struct pipeline *p, struct allocating *f, u32 window)
{
	vec_foreach (&f->waiting, w) {
		u32 freed = 0;
		bool is_last = w->window == window && lives(p, w);

		for (size_t i = 0; i < f->waiting.n && is_last; i++) {
			const struct waiting *other = &f->waiting.data[i];

			if (other == w || other->window != window || other->owner != w->owner ||
			    other->tid != w->tid)
				continue;
			is_last = other->time_ns <= w->time_ns;
			freed += other->id && !lives(p, other);
		}
		w->in_flight = is_last && freed >= FREED_BEFORE;
	}
}

static void count_waiting(struct pipeline *p, struct allocating *f, const struct waiting *w,
			  const struct alloc_report *r, bool late)
{
	u64 watched = (u64)((double)(r->end_ns - r->begin_ns) * UNFREED_PART);
	struct bounded scale = scale_of(f, r, w->tid);
	struct tally *t = tally_of(f, w->owner);

	if (t) {
		double value = (double)w->bytes * scale.value;

		t->windows_samples++;
		draw(&t->draws, w->window, value);
		draw(&f->draws, w->window, value);
		t->windows_objects += (double)w->objects * scale.value;
		add_scaled(&t->windows, (double)w->bytes, &scale);
	}
	if (w->id && map_get(&p->alloc->objects, w->id)) {
		if (!late && !w->in_flight && w->time_ns <= r->begin_ns + watched)
			add_unfreed(f, w->owner, w->window, w->bytes << p->alloc->keep, &scale);
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
	note_slowed(f, r);
	f->until_ns = MAX(f->until_ns, r->end_ns);
	mark_in_flight(p, f, r->number);
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

static bool is_bound(const struct bounded *b)
{
	return b->high > WIDE * b->low;
}

/* What is told of a value that is known to within bounds. */
static double told_value(const struct bounded *b)
{
	return is_bound(b) ? b->low : b->value;
}

static const char *estimate_of(const struct bounded *b, bool sampled)
{
	return is_bound(b) ? "at least" : b->value > 0 ? "windows" : sampled ? "sampled" : "exact";
}

static u64 draws_told(const struct draws *d, u32 samples)
{
	return samples ? MAX((u64)llround(MIN(draws_of(d), (double)samples)), 1ULL) : 0;
}

static void count_unfreed(struct pipeline *p, const struct allocating *f, const struct tally *t,
			  double rest, u64 time_ns)
{
	struct counted c = {
		.source = p->alloc->unfreed_source,
		.owner = t->owner,
		.samples = draws_told(&t->unfreed_draws, t->unfreed_samples),
		.value = (f->windowed ? told_value(&t->unfreed) : t->unfreed.value) *
			 (f->windowed ? rest : 1),
		.estimate = f->windowed ? estimate_of(&t->unfreed, true) : "sampled",
	};

	if (t->unfreed_samples)
		count(p, f, &c, time_ns);
}

static void count_tally(struct pipeline *p, const struct allocating *f, const struct tally *t,
			double rest, u64 time_ns)
{
	double bytes = told_value(&t->windows);
	double share = t->windows.value > 0 ? bytes / t->windows.value : 1;
	struct counted c = {
		.source = p->alloc->source,
		.owner = t->owner,
		.samples = t->samples + draws_told(&t->draws, t->windows_samples),
		.value = t->space + bytes * rest,
		.second = t->objects + t->windows_objects * share * rest,
		.estimate = estimate_of(&t->windows, t->sampled),
	};

	if (c.samples)
		count(p, f, &c, time_ns);
	count_unfreed(p, f, t, rest, time_ns);
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
			add_unfreed(f, o->owner, 0, o->bytes, &(struct bounded){keep, keep, keep});
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

/*
 * Bounds of all that the process has allocated, as multiples of what is told: of how far probes
 * have slowed it down, and of the draw of windows, two standard deviations.
 */
static void tell(struct alloc *a, const struct allocating *f)
{
	double n = draws_of(&f->draws), error = n > 0 ? 2 / sqrt(n) : 0;
	struct pipeline_alloc_told *t;
	struct bounded sum = {};
	double told = 0;

	if (a->stats.n_told == PIPELINE_ALLOC_TOLD || !f->tallies.n)
		return;
	vec_foreach (&f->tallies, tally) {
		const struct bounded *w = &tally->windows;

		told += tally->space + told_value(w);
		sum.low += tally->space + w->low * MAX(1 - error, 0);
		sum.high += tally->space + w->high * (1 + error);
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
	double rest = remainder_scale(p->alloc, f, time_ns);

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
	f->draws = (struct draws){};
}
