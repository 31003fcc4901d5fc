/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at processes, and counts what they found. Of each kind of memory smaps tells the bytes, and
 * the pages that are followed tell whose they are:
 *
 *	bytes of a note  = bytes of the kind × its pages / pages of the kind
 *	bytes of a stack = bytes with a known fault × weight of its faults / weight of all
 *
 * Each is rounded so that the sum stays what smaps says. If all pages are followed and each fault
 * was walked, both are exact; else n pages of a stack estimate its share to within 1/√n.
 */
#include <errno.h>
#include <string.h>

#include "agent/pipeline/batch.h"
#include "agent/pipeline/processes.h"
#include "agent/pipeline/resident_ledger.h"
#include "agent/pipeline/resident_look.h"
#include "base/clock.h"
#include "base/log.h"

/* Pages of an owner, and the sum of their weights, in one word. */
#define WEIGHT_BITS 36
#define ONE_PAGE (1ULL << WEIGHT_BITS)
#define WEIGHT_MASK (ONE_PAGE - 1)

struct counting {
	struct resident *r;
	struct followed *f;
	struct map resident; /* the pages of f that are resident */
	struct map owners;   /* owner << 8 | kind → pages and weight */
	int error;
	u64 notes[RESIDENT_KINDS][RESIDENT_NOTES]; /* pages; [RESIDENT_STACK]: with a known fault */
	u64 weights[RESIDENT_KINDS];
	double variances[RESIDENT_KINDS]; /* of `weights`, if each page had a fault of its own */
	u64 walked[RESIDENT_KINDS];	  /* pages whose last fault was walked */
	u64 faults[RESIDENT_KINDS];	  /* that brought these */
	struct map stamps;		  /* of these faults */
};

static void take_page(void *arg, u64 page, enum resident_kind kind)
{
	struct counting *c = arg;
	const u64 *known = map_get(&c->f->pages, page);
	u64 *sum, weight;
	size_t stamps;

	if (!known) {
		c->notes[kind][RESIDENT_UNKNOWN]++;
		return;
	}
	/* The same page twice: the mapping was moved during the look. */
	if (map_get(&c->resident, page))
		return;
	if (c->error == 0)
		c->error = map_put(&c->resident, page, *known);
	switch (page_owner(*known)) {
	case OWNER_BEFORE:
		c->notes[kind][RESIDENT_BEFORE]++;
		return;
	case OWNER_MOVED:
		c->notes[kind][RESIDENT_MOVED]++;
		return;
	case OWNER_NONE:
	case OWNER_PENDING:
		c->notes[kind][RESIDENT_STACK]++;
		return;
	default:
		break;
	}
	weight = page_weight(*known);
	c->notes[kind][RESIDENT_STACK]++;
	c->weights[kind] += weight;
	c->variances[kind] += (double)(weight * (weight - 1));
	c->walked[kind]++;
	stamps = c->stamps.n;
	if (c->error == 0)
		c->error = map_put(&c->stamps, (u64)kind << 32 | (*known & PAGE_STAMP_MASK), 1);
	c->faults[kind] += c->stamps.n - stamps;
	sum = map_get(&c->owners, (u64)page_owner(*known) << 8 | kind);
	if (sum)
		*sum += ONE_PAGE + weight;
	else if (c->error == 0)
		c->error =
			map_put(&c->owners, (u64)page_owner(*known) << 8 | kind, ONE_PAGE + weight);
}
_Static_assert((u64)PAGE_WEIGHT_MAX << 24 <= WEIGHT_MASK, "16 million pages of an owner");

/* Divides a sum by parts, so that what the parts get adds up to it. */
struct division {
	u64 sum, total; /* of the parts */
	u64 so_far;
};

static u64 share(struct division *d, u64 part)
{
	u64 before, after;

	if (!d->total)
		return 0;
	before = (u64)((unsigned __int128)d->sum * d->so_far / d->total);
	d->so_far += part;
	after = (u64)((unsigned __int128)d->sum * d->so_far / d->total);
	return after - before;
}

static int hold(struct followed *f, u32 owner, u32 kind, u32 note, u64 bytes, u64 pages)
{
	struct held h = {owner, (u8)kind, (u8)note, bytes, pages};

	return bytes ? vec_push(&f->held, h) : 0;
}

/* What of a kind has a known fault, by stack. */
static int hold_stacks(struct counting *c, u32 kind, u64 bytes)
{
	struct division d = {.sum = bytes, .total = c->weights[kind]};
	int r = 0;

	if (!d.total) /* no fault of this kind was walked */
		return hold(c->f, 0, kind, RESIDENT_UNKNOWN, bytes, c->notes[kind][RESIDENT_STACK]);
	map_foreach (&c->owners, slot)
		if ((slot->key & 0xff) == kind && r == 0)
			r = hold(c->f, (u32)(slot->key >> 8), kind, RESIDENT_STACK,
				 share(&d, slot->value & WEIGHT_MASK), slot->value >> WEIGHT_BITS);
	return r;
}

static int hold_kind(struct counting *c, u32 kind, u64 bytes)
{
	struct division d = {.sum = bytes};
	int r = 0;

	for (u32 note = 0; note < RESIDENT_NOTES; note++)
		d.total += c->notes[kind][note];
	if (!d.total)
		return hold(c->f, 0, kind, RESIDENT_UNKNOWN, bytes, 0);
	for (u32 note = 0; note < RESIDENT_NOTES && r == 0; note++) {
		u64 part = share(&d, c->notes[kind][note]);

		r = note == RESIDENT_STACK ? hold_stacks(c, kind, part)
					   : hold(c->f, 0, kind, note, part, c->notes[kind][note]);
	}
	return r;
}

/*
 * Adds to the round how exact the split of a process's memory among stacks is. A page whose fault
 * was walked with the probability 1/w, and that stands for w, adds w (w - 1) to the variance of the
 * sum; pages that came by one fault add it together.
 */
static void add_variance(struct counting *c, const struct resident_look *l)
{
	struct resident_round *now = &c->r->now;

	for (u32 kind = 0; kind < RESIDENT_KINDS; kind++) {
		double weight = (double)c->weights[kind], bytes = (double)l->bytes[kind];
		u64 pages = 0;

		for (u32 note = 0; note < RESIDENT_NOTES; note++)
			pages += c->notes[kind][note];
		now->known += c->notes[kind][RESIDENT_STACK];
		now->walked += c->walked[kind];
		if (weight <= 0)
			continue;
		bytes *= (double)c->notes[kind][RESIDENT_STACK] / (double)pages;
		now->bytes += bytes;
		now->variance += bytes * bytes * c->variances[kind] / (weight * weight) *
				 (double)c->walked[kind] / (double)c->faults[kind];
	}
}

int resident_look_at(struct pipeline *p, struct followed *f)
{
	struct resident *r = p->resident;
	const struct procman_process *proc = procman_known(p->procman, f->pid);
	struct counting c = {.r = r, .f = f};
	struct resident_look l = {
		.pid = f->pid, .seed = r->seed, .below = r->below, .page = take_page, .arg = &c};
	u64 begin = clock_ns(CLOCK_MONOTONIC);
	int e = proc && proc->image == f->image && proc->alive ? resident_look(&l) : -ESRCH;

	e = e == 0 ? c.error : e;
	if (e == 0) {
		memcpy(f->comm, proc->comm, sizeof(f->comm));
		r->n_pages -= f->pages.n;
		map_deinit(&f->pages);
		f->pages = c.resident;
		r->n_pages += f->pages.n;
		c.resident = (struct map){};
		vec_clear(&f->held);
	}
	for (u32 kind = 0; kind < RESIDENT_KINDS && e == 0; kind++) {
		e = hold_kind(&c, kind, l.bytes[kind]);
		if (e == 0)
			e = hold(f, 0, kind, RESIDENT_UNKNOWN, l.unseen_bytes[kind], 0);
	}
	if (e == 0)
		add_variance(&c, &l);
	map_deinit(&c.resident);
	map_deinit(&c.owners);
	map_deinit(&c.stamps);
	r->stats.looks++;
	r->stats.failed += e < 0 && e != -ESRCH;
	r->stats.ns += clock_ns(CLOCK_MONOTONIC) - begin;
	return e;
}

/* ---- before ---- */

static void mark_page(void *arg, u64 page, enum resident_kind kind)
{
	struct counting *c = arg;

	(void)kind;
	if (!map_get(&c->f->pages, page))
		resident_put(c->r, c->f, page, (u64)OWNER_BEFORE << PAGE_OWNER_SHIFT);
}

int resident_mark_before(struct pipeline *p, struct followed *f)
{
	struct resident *r = p->resident;
	struct counting c = {.r = r, .f = f};
	struct resident_look l = {
		.pid = f->pid, .seed = r->seed, .below = r->below, .page = mark_page, .arg = &c};

	return resident_look(&l);
}

/* ---- counting ---- */

static const char *const kind_names[RESIDENT_KINDS] = {
	[RESIDENT_ANONYMOUS] = "anonymous",
	[RESIDENT_HUGE] = "huge",
	[RESIDENT_FILE] = "file",
	[RESIDENT_SHARED] = "shared",
};

static void count_held(struct pipeline *p, const struct followed *f, const struct held *h,
		       u64 time_ns)
{
	struct resident *r = p->resident;
	const struct owner none = {},
			   *o = h->owner ? &r->owners.all.data[h->owner - OWNER_FIRST] : &none;
	struct pipeline_entry e = {
		.key = {.pid = f->pid,
			.image = f->image,
			.kernel_stack = owners_stack(p, &r->owners, o->kernel_stack),
			.user_stack = owners_stack(p, &r->owners, o->user_stack),
			.source = r->source,
			.event_attributes =
				batch_attribute(p->batch, f->pid, "memory", kind_names[h->kind]),
			.object = {.kind = WAIT_OBJECT_PAGES, .port = h->note}},
		.count = MAX(h->pages, 1ULL),
		.value = (s64)h->bytes,
		.first_ns = time_ns,
	};

	(void)batch_count_state(p, &e, f->comm, r->source);
}

static bool has_raw(const struct pipeline *p, const struct followed *f)
{
	const struct resident *r = p->resident;

	for (size_t i = 0; i < f->held.n; i++) {
		u32 owner = f->held.data[i].owner;

		if (owner &&
		    owners_is_raw(&r->owners, r->owners.all.data[owner - OWNER_FIRST].user_stack))
			return true;
	}
	return false;
}

void resident_count_process(struct pipeline *p, const struct followed *f, u64 time_ns)
{
	const struct procman_process *proc = procman_known(p->procman, f->pid);

	for (size_t i = 0; i < f->held.n; i++)
		count_held(p, f, &f->held.data[i], time_ns);
	if (!proc || proc->image != f->image)
		return;
	processes_see(p, f->pid, proc);
	if (has_raw(p, f))
		processes_hold_jit_files(p, proc);
}
