/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory profile of a Go program (src/runtime/mprof.go). runtime.mbuckets heads a list of
 * buckets, one for each stack and size of object, which are never freed:
 *
 *	0 next   8 allnext   16 typ   24 hash   32 size   40 nstk   48 nstk return addresses
 *	then four times, for active and future[3]:
 *		allocs, frees, alloc_bytes, free_bytes	1.15 to 1.26
 *		allocs, frees				1.27: bytes follow from the size
 *
 * The collector adds future[cycle % 3] to
 * `active` when a cycle has ended; until it has done so, MemProfile() does, and here the two are
 * added up. If nothing was ever published, MemProfile() shows all that was counted.
 *
 * The stack is that of runtime.Callers(): a return address for each function, also for those that
 * were inlined. The address for a function with inlined calls is one past an instruction at the
 * call; the file's tables tell these apart, and they are left out, because the names of the
 * innermost address tell all of them.
 *
 * The program runs on while it is read. So all is read twice, until both times agree on what is
 * published and the cycle is the same before and after; a bucket is believed only if the hash in
 * it is that of its stack and size.
 */
#include "agent/runtime/go/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "runtime/go/lines.h"

#define SITES_MAX 1000000
#define BYTES_MAX (8u << 20) /* of memory, in one walk */
#define WINDOW (64u << 10)   /* that is read at once, if all of it is there */
#define PAGE 4096u
#define STACK_MAX 1024 /* maxProfStackDepth */
#define CUT_FROM 32    /* the lowest limit that a release has */
#define TRIES 6
#define CLOCK_EACH 256 /* sites between two looks at the clock */
#define INLINED_MAX 64
#define CALLS_MAX (1u << 18) /* addresses whose inlined calls are remembered */
#define MEM_PROFILE 1

struct header {
	u64 next, allnext, typ, hash, size, nstk;
};

struct counts {
	u64 allocs, frees, alloc_bytes, free_bytes;
};

struct site {
	u64 at, size;
	struct counts published, rest; /* `rest` is not published yet */
	size_t first;		       /* of `stacks` */
	u32 n;
};

/* What one walk has found; sites from the newest to the oldest. */
struct walk {
	vec(struct site) sites;
	vec(u64) stacks;
	u64 cycle;
	bool has_bytes; /* struct go_heap */
};

static void walk_deinit(struct walk *w)
{
	vec_deinit(&w->sites);
	vec_deinit(&w->stacks);
}
#define _cleanup_walk_ __attribute__((cleanup(walk_deinit)))

/* ---- memory ---- */

/* Memory that was read in windows, by page. */
struct pages {
	const struct runtime_memory *memory;
	struct map at; /* page → offset in `bytes` */
	u8 *bytes;     /* owned; room for BYTES_MAX */
	size_t n;
};

static int load_pages(struct pages *p, u64 address, u32 bytes)
{
	u64 from = address & ~(u64)(bytes - 1);
	int r;

	if (p->n + bytes > BYTES_MAX)
		return -E2BIG;
	r = runtime_read(p->memory, from, p->bytes + p->n, bytes);
	for (u32 i = 0; i < bytes && r == 0; i += PAGE)
		r = map_put(&p->at, from + i, p->n + i);
	if (r == 0)
		p->n += bytes;
	return r;
}

/* A borrowed page, until the next call. */
static int find_page(struct pages *p, u64 address, const u8 **ret)
{
	const u64 *at = map_get(&p->at, address & ~(u64)(PAGE - 1));
	int r = 0;

	if (!at) {
		r = load_pages(p, address, WINDOW);
		if (r == -EFAULT)
			r = load_pages(p, address, PAGE);
		at = map_get(&p->at, address & ~(u64)(PAGE - 1));
	}
	if (r < 0 || !at)
		return r < 0 ? r : -EFAULT;
	*ret = p->bytes + *at;
	return 0;
}

static int read_pages(struct pages *p, u64 address, void *to, size_t n)
{
	if (address + n < address || address > MAP_GONE_KEY - WINDOW)
		return -EFAULT;
	while (n) {
		size_t in = address % PAGE, part = MIN(n, PAGE - in);
		const u8 *page;
		int r = find_page(p, address, &page);

		if (r < 0)
			return r;
		memcpy(to, page + in, part);
		to = (u8 *)to + part;
		address += part;
		n -= part;
	}
	return 0;
}

/* ---- one walk ---- */

/* As stkbucket() makes it. */
static u64 hash_of(const u64 *stack, u32 n, u64 size)
{
	u64 h = 0;

	for (u32 i = 0; i <= n; i++) {
		h += i < n ? stack[i] : size;
		h += h << 10;
		h ^= h >> 6;
	}
	h += h << 3;
	return h ^ h >> 11;
}

/* Reads active and future[3] behind the stack. */
static int read_counts(struct pages *p, u64 at, u64 size, bool has_bytes, struct counts ret[4])
{
	u64 words[16];
	u32 each = has_bytes ? 4 : 2;
	int r = read_pages(p, at, words, 4 * each * sizeof(*words));

	for (u32 i = 0; i < 4 && r == 0; i++) {
		const u64 *w = &words[(size_t)i * each];

		ret[i] = (struct counts){w[0], w[1], has_bytes ? w[2] : w[0] * size,
					 has_bytes ? w[3] : w[1] * size};
	}
	return r;
}

static void add_counts(struct counts *to, const struct counts *c)
{
	to->allocs += c->allocs;
	to->frees += c->frees;
	to->alloc_bytes += c->alloc_bytes;
	to->free_bytes += c->free_bytes;
}

/* Reads a bucket into w->sites. */
static int read_site(struct pages *p, u64 at, struct walk *w, u64 *ret_next)
{
	struct site s = {.at = at, .first = w->stacks.n};
	struct counts c[4];
	struct header h;
	int r = at % 8 ? -EINVAL : read_pages(p, at, &h, sizeof(h));

	if (r < 0)
		return r;
	if (h.typ != MEM_PROFILE || h.nstk > STACK_MAX)
		return -EINVAL;
	s.n = (u32)h.nstk;
	s.size = h.size;
	r = vec_reserve(&w->stacks, w->stacks.n + s.n);
	if (r == 0)
		r = read_pages(p, at + sizeof(h), w->stacks.data + w->stacks.n, s.n * 8ULL);
	if (r == 0)
		r = read_counts(p, at + sizeof(h) + s.n * 8ULL, h.size, w->has_bytes, c);
	if (r < 0)
		return r;
	if (hash_of(w->stacks.data + s.first, s.n, h.size) != h.hash)
		return -EINVAL;
	s.published = c[0];
	for (u32 i = 0; i < 3; i++)
		add_counts(i == w->cycle % 3 ? &s.published : &s.rest, &c[1 + i]);
	r = vec_push(&w->sites, s);
	if (r == 0)
		w->stacks.n += s.n;
	*ret_next = h.allnext;
	return r;
}

/* The list may have become a ring: a second pointer waits at each power of two (Brent). */
static int walk_list(struct pages *p, u64 head, u64 until_ns, struct walk *w)
{
	u64 at = head, mark = 0;
	int r = 0;

	vec_clear(&w->sites);
	vec_clear(&w->stacks);
	map_clear(&p->at);
	p->n = 0;
	for (u32 n = 0; at && r == 0; n++) {
		if (at == mark)
			return -EINVAL;
		if (n >= SITES_MAX)
			return -E2BIG;
		if (n % CLOCK_EACH == 0 && clock_ns(CLOCK_MONOTONIC) > until_ns)
			return -ETIME;
		if ((n & (n - 1)) == 0)
			mark = at;
		r = read_site(p, at, w, &at);
	}
	return r;
}

static int read_cycle(const struct runtime_target *t, const struct go_heap *h, u32 *ret)
{
	return runtime_read(&t->memory, t->bias + h->cycle, ret, sizeof(*ret));
}

/* The first site, 0 if there is none yet. */
static int find_head(const struct runtime_target *t, const struct go_heap *h, struct pages *p,
		     u64 *ret)
{
	_cleanup_walk_ struct walk probe = {.has_bytes = h->has_bytes};
	u64 head, next;
	int r;

	*ret = 0;
	for (u32 i = 0; i < h->n_lists; i++) {
		r = runtime_read(&t->memory, t->bias + h->lists[i], &head, sizeof(head));
		if (r < 0)
			return r;
		if (head && h->n_lists > 1)
			r = read_site(p, head, &probe, &next);
		if (r == -ENOMEM || r == -ESRCH)
			return r;
		if (head && r == 0) {
			*ret = head;
			return 0;
		}
	}
	return 0;
}

/* ---- two walks that agree ---- */

static bool has_published(const struct walk *w)
{
	vec_foreach (&w->sites, s)
		if (s->published.allocs || s->published.frees)
			return true;
	return false;
}

/* Newer sites have nothing published yet. */
static bool agree(const struct walk *before, const struct walk *now)
{
	size_t newer = now->sites.n - before->sites.n;

	if (now->sites.n < before->sites.n || before->cycle != now->cycle)
		return false;
	for (size_t i = 0; i < before->sites.n; i++) {
		const struct site *a = &before->sites.data[i], *b = &now->sites.data[newer + i];

		if (a->at != b->at || memcmp(&a->published, &b->published, sizeof(a->published)))
			return false;
	}
	return true;
}

/* What MemProfile() would say. */
static int read_profile(const struct runtime_target *t, const struct go_heap *h, struct pages *p,
			u64 until_ns, struct walk *now)
{
	_cleanup_walk_ struct walk before = {};
	bool has_before = false;
	u32 cycle, after;
	u64 head;

	for (u32 i = 0; i < TRIES; i++) {
		struct walk swap;
		int r = read_cycle(t, h, &cycle);

		now->has_bytes = h->has_bytes;
		now->cycle = h->is_shifted ? cycle >> 1 : cycle;
		if (r == 0)
			r = find_head(t, h, p, &head);
		if (r == 0)
			r = walk_list(p, head, until_ns, now);
		if (r == 0)
			r = read_cycle(t, h, &after);
		if (r < 0)
			return r;
		if (after != cycle)
			continue;
		if (!has_published(now)) {
			vec_foreach (&now->sites, s)
				add_counts(&s->published, &s->rest);
			return 0;
		}
		if (has_before && agree(&before, now))
			return 0;
		swap = before;
		before = *now;
		*now = swap;
		has_before = true;
	}
	return -EAGAIN;
}

/* ---- stacks ---- */

/* The look at a process, and the tables of its file, which are read when they are needed. */
struct naming {
	const struct runtime_target *t;
	struct go_heap_known *known;
	struct elf_file *elf; /* owned, as `lines` */
	struct go_lines *lines;
	u64 calls[STACK_MAX];
};

static void naming_deinit(struct naming *n)
{
	if (n->lines)
		go_lines_close(n->lines);
	elf_file_destroy(n->elf);
}
#define _cleanup_naming_ __attribute__((cleanup(naming_deinit)))

/* A file of its own, so that the tables do not stay in memory. */
static int open_lines(struct naming *n)
{
	int r = n->elf ? 0 : n->t->elf ? elf_file_open_again(n->t->elf, &n->elf) : -ENOENT;

	return r < 0 ? r : go_lines_open(n->elf, &n->lines);
}

/* Where inlined functions around a call were called, innermost first; borrowed. */
static int find_inlined(struct naming *n, u64 svma, const u64 **ret, u32 *ret_n)
{
	struct go_heap_known *k = n->known;
	const u64 *at = map_get(&k->calls, svma);
	u64 found[INLINED_MAX];
	u32 count;
	int r = 0;

	if (!at) {
		r = n->lines ? 0 : open_lines(n);
		if (r < 0)
			return r;
		if (k->calls.n >= CALLS_MAX) {
			map_clear(&k->calls);
			vec_clear(&k->inlined);
		}
		count = go_lines_calls(n->lines, svma, INLINED_MAX, found);
		r = map_put(&k->calls, svma, k->inlined.n << 8 | count);
		for (u32 i = 0; i < count && r == 0; i++)
			r = vec_push(&k->inlined, found[i]);
		at = map_get(&k->calls, svma);
	}
	if (r < 0 || !at)
		return r < 0 ? r : -ENOMEM;
	*ret = k->inlined.data + (*at >> 8);
	*ret_n = *at & 0xff;
	return 0;
}

/* Leaves out the addresses of functions that the innermost one's names tell. */
static int find_calls(struct naming *n, const u64 *stack, u32 n_stack, struct runtime_site *s)
{
	const u64 *inlined = NULL;
	u32 left = 0;

	s->n_calls = 0;
	for (u32 i = 0; i < n_stack; i++) {
		u64 svma = stack[i] - 1 - n->t->bias;
		u32 k = 0;
		int r;

		while (k < left && inlined[k] != svma)
			k++;
		if (k < left) {
			inlined += k + 1;
			left -= k + 1;
			continue;
		}
		r = svma < MAP_GONE_KEY ? find_inlined(n, svma, &inlined, &left) : -EINVAL;
		if (r < 0)
			return r;
		n->calls[s->n_calls++] = stack[i] - 1;
	}
	s->calls = n->calls;
	return 0;
}

static bool is_root(const struct naming *n, u64 return_address)
{
	const struct go_range *goexit = &n->known->at.goexit;
	u64 svma = return_address - 1 - n->t->bias;

	return svma >= goexit->start && svma < goexit->end;
}

/* Halfway through an update, and was so twice. */
static bool is_torn(const struct site *s)
{
	const struct counts *c = &s->published;

	return c->frees > c->allocs || c->free_bytes > c->alloc_bytes ||
	       c->alloc_bytes != c->allocs * s->size;
}

static int tell_sites(struct naming *n, const struct walk *w, struct runtime_heap_look *l)
{
	int r = 0;

	vec_foreach (&w->sites, s) {
		l->n_torn += is_torn(s);
		l->n_sites += !is_torn(s) && s->published.allocs;
	}
	vec_foreach (&w->sites, s) {
		const u64 *stack = w->stacks.data + s->first;
		struct runtime_site site = {
			.key = s->at,
			.allocs = s->published.allocs,
			.alloc_bytes = s->published.alloc_bytes,
			.frees = s->published.frees,
			.free_bytes = s->published.free_bytes,
			.is_cut = s->n >= CUT_FROM && !is_root(n, stack[s->n - 1]),
		};

		if (is_torn(s) || !s->published.allocs)
			continue;
		r = find_calls(n, stack, s->n, &site);
		if (r < 0)
			return r;
		l->site(l->arg, l, &site);
	}
	return 0;
}

/* ---- ops ---- */

static int learn(struct elf_file *elf, void **ret)
{
	_cleanup_elf_file_ struct elf_file *own = NULL;
	struct go_heap_known *k = calloc(1, sizeof(*k));
	int r = k ? elf_file_open_again(elf, &own) : -ENOMEM;

	if (r == 0)
		r = go_heap_find(own, &k->at);
	if (r < 0)
		free(k);
	else
		*ret = k;
	return r;
}

static void forget(void *learned)
{
	struct go_heap_known *k = learned;

	map_deinit(&k->calls);
	vec_deinit(&k->inlined);
	free(k);
}

static int look(const struct runtime_target *t, void *learned, struct runtime_heap_look *l)
{
	struct go_heap_known *k = learned;
	_cleanup_naming_ struct naming n = {.t = t, .known = k};
	_cleanup_walk_ struct walk now = {};
	struct pages p = {.memory = &t->memory};
	s64 rate;
	int r = runtime_read(&t->memory, t->bias + k->at.rate, &rate, sizeof(rate));

	if (r < 0)
		return r;
	/* The linker turns the profile off if nothing can read it, and programs may. Sites from
	 * before would say little. */
	if (rate <= 0)
		return -ENODATA;
	p.bytes = malloc(BYTES_MAX);
	if (!p.bytes)
		return -ENOMEM;
	r = read_profile(t, &k->at, &p, l->until_ns, &now);
	l->bytes += p.n;
	map_deinit(&p.at);
	free(p.bytes);
	if (r < 0)
		return r;
	l->rate = (u64)rate;
	return tell_sites(&n, &now, l);
}

const struct runtime_heap_ops go_heap_ops = {
	.learn = learn,
	.forget = forget,
	.look = look,
};
