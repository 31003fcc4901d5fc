/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/procman/mapping.h"

#include "base/cleanup.h"

static void set_start(struct procman_mapping *m, u64 start)
{
	m->foff += start - m->start;
	m->start = start;
}

static bool is_continued_by(const struct procman_mapping *a, const struct procman_mapping *b)
{
	return a->end == b->start && a->binary == b->binary && a->bias == b->bias &&
	       a->foff + (a->end - a->start) == b->foff;
}

struct mapping_set *mapping_set_get(struct mapping_set *s)
{
	if (s)
		s->refs++;
	return s;
}

void mapping_set_put(struct mapping_set *s)
{
	if (!s || --s->refs)
		return;
	overlay_deinit(&s->m);
	free(s);
}

/* Returns the index of the first mapping that ends after avma. */
static size_t first_behind(const struct procman_mapping *m, size_t n, u64 avma)
{
	size_t low = 0;

	while (n) {
		size_t half = n / 2;

		if (m[low + half].end <= avma) {
			low += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return low;
}

const struct procman_mapping *mapping_find(const struct procman_mapping *m, u32 n, u64 avma)
{
	size_t i = first_behind(m, n, avma);

	return i < n && m[i].start <= avma ? &m[i] : NULL;
}

static int overlay_append(overlay *o, struct procman_mapping m)
{
	struct procman_mapping *last = o->n ? &o->data[o->n - 1] : NULL;
	int r;

	if (last && is_continued_by(last, &m)) {
		last->end = m.end;
		procman_binary_put(m.binary);
		return 0;
	}
	r = vec_push(o, m);
	if (r < 0)
		procman_binary_put(m.binary);
	return r;
}

/*
 * Computes what remains of the mappings [i, j) once m is inserted, including m. Returns the number
 * of pieces.
 */
static size_t cut_out(const overlay *o, size_t i, size_t j, const struct procman_mapping *m,
		      struct procman_mapping *ret_pieces)
{
	struct procman_mapping right = {};
	size_t n = 0;

	for (size_t k = i; k < j; k++) {
		const struct procman_mapping *old = &o->data[k];

		if (old->start < m->start) {
			ret_pieces[n] = *old;
			ret_pieces[n++].end = m->start;
			procman_binary_get(old->binary);
		}
		if (old->end > m->end) {
			right = *old;
			set_start(&right, m->end);
			procman_binary_get(old->binary);
		}
	}
	for (size_t k = i; k < j; k++)
		procman_binary_put(o->data[k].binary);
	ret_pieces[n++] = *m;
	if (right.binary)
		ret_pieces[n++] = right;
	return n;
}

/*
 * Inserts a mapping:
 *
 *	o    ┌──a──┐ ┌─b─┐ ┌───c───┐          i = a, j = after c
 *	m        └───────────┘
 *	new  ┌─a─┐┌────m────┐┌─c─┐            at most two pieces remain
 *
 * Neighbours on both sides are merged with m if they are continuous.
 */
int overlay_add(overlay *o, struct procman_mapping m)
{
	struct procman_mapping pieces[5];
	overlay fitted = {.data = pieces, .cap = ARRAY_SIZE(pieces)};
	struct procman_mapping cut[5];
	size_t i, j, n = 0;

	if (!o->n || o->data[o->n - 1].end <= m.start)
		return overlay_append(o, m);
	if (vec_reserve(o, o->n + 2) < 0) {
		procman_binary_put(m.binary);
		return -ENOMEM;
	}
	i = first_behind(o->data, o->n, m.start);
	for (j = i; j < o->n && o->data[j].start < m.end; j++)
		;
	if (i > 0 && o->data[i - 1].end == m.start)
		cut[n++] = o->data[--i];
	n += cut_out(o, i + n, j, &m, &cut[n]);
	if (j < o->n && o->data[j].start == m.end)
		cut[n++] = o->data[j++];
	for (size_t k = 0; k < n; k++)
		overlay_append(&fitted, cut[k]);
	memmove(&o->data[i + fitted.n], &o->data[j], (o->n - j) * sizeof(*o->data));
	memcpy(&o->data[i], pieces, fitted.n * sizeof(*o->data));
	o->n = o->n - (j - i) + fitted.n;
	return 0;
}

void overlay_clear(overlay *o)
{
	vec_foreach (o, m)
		procman_binary_put(m->binary);
	vec_clear(o);
	/* Do not keep the memory that the start-up scan of a large process needed. */
	if (o->cap > OVERLAY_MAX)
		vec_deinit(o);
}

void overlay_deinit(overlay *o)
{
	overlay_clear(o);
	vec_deinit(o);
}

struct output {
	overlay m; /* has room for the largest possible result */
	u32 max;
	u64 dropped;
};

static void append_mapping(struct output *out, const struct procman_mapping *m)
{
	size_t n = out->m.n;

	if (n && is_continued_by(&out->m.data[n - 1], m)) {
		out->m.data[n - 1].end = m->end;
		return;
	}
	if (n == out->max) {
		out->dropped++;
		return;
	}
	out->m.data[out->m.n++] = *m;
	procman_binary_get(m->binary);
}

static void lay_over(const struct mapping_set *base, const overlay *o, struct output *out)
{
	size_t n = base ? base->m.n : 0, i = 0, k = 0;
	struct procman_mapping b = {};

	if (n)
		b = base->m.data[0];
	while (i < n || k < o->n) {
		/* The next mapping of the overlay, or one at the end of the address space. */
		struct procman_mapping over = {.start = ~0ULL, .end = ~0ULL};

		if (k < o->n)
			over = o->data[k];
		if (i < n && b.end <= over.start) {
			append_mapping(out, &b);
		} else if (i == n || over.end <= b.start) {
			append_mapping(out, &over);
			k++;
			continue;
		} else {
			if (b.start < over.start) {
				struct procman_mapping left = b;

				left.end = over.start;
				append_mapping(out, &left);
				set_start(&b, over.start);
			}
			if (b.end > over.end) {
				set_start(&b, over.end);
				continue;
			}
		}
		if (++i < n)
			b = base->m.data[i];
	}
}

bool mapping_set_same(const struct mapping_set *a, const struct mapping_set *b)
{
	size_t n = a ? a->m.n : 0;

	if (n != (b ? b->m.n : 0))
		return false;
	for (size_t i = 0; i < n; i++) {
		const struct procman_mapping *x = &a->m.data[i], *y = &b->m.data[i];

		if (x->start != y->start || x->end != y->end || x->foff != y->foff ||
		    x->bias != y->bias || x->binary != y->binary)
			return false;
	}
	return true;
}

/* Takes ownership of the array. */
static int set_create(overlay *m, u64 id, struct mapping_set **ret)
{
	struct mapping_set *s = calloc(1, sizeof(*s));
	struct procman_mapping *shrunk;

	if (!s) {
		overlay_deinit(m);
		return -ENOMEM;
	}
	shrunk = m->n ? reallocarray(m->data, m->n, sizeof(*m->data)) : NULL;
	if (shrunk) {
		m->data = shrunk;
		m->cap = m->n;
	}
	s->refs = 1;
	s->id = id;
	s->m.data = take_ptr(m->data);
	s->m.n = m->n;
	s->m.cap = m->cap;
	*ret = s;
	return 0;
}

int mapping_set_apply(struct mapping_set *base, const overlay *o, u64 id, u32 max,
		      struct mapping_set **ret, u64 *dropped)
{
	struct output out = {.max = max};
	struct mapping_set *s;
	int r;

	if (!o->n) {
		*ret = mapping_set_get(base);
		return 0;
	}
	/* Each mapping of the overlay adds at most itself and one more piece. */
	if (vec_reserve(&out.m, o->n * 2 + (base ? base->m.n : 0)) < 0)
		return -ENOMEM;
	lay_over(base, o, &out);
	*dropped += out.dropped;
	r = set_create(&out.m, id, &s);
	if (r < 0)
		return r;
	if (mapping_set_same(base, s)) {
		mapping_set_put(s);
		s = mapping_set_get(base);
	}
	*ret = s;
	return 0;
}

/* Whether the mapping changes nothing: an mprotect() of a part, or one that was read from /proc. */
static bool is_known(const struct mapping_set *s, const struct procman_mapping *m)
{
	const struct procman_mapping *old = mapping_find(s->m.data, (u32)s->m.n, m->start);

	return old && old->end >= m->end && old->binary == m->binary && old->bias == m->bias &&
	       old->foff + (m->start - old->start) == m->foff;
}

bool mapping_set_change(struct mapping_set *s, const overlay *o, u64 id, u32 max)
{
	if (!s || s->refs > 1 || o->n > CHANGES_MAX || s->m.n + 2 * o->n > max ||
	    vec_reserve(&s->m, s->m.n + 2 * o->n) < 0)
		return false;
	for (size_t i = 0; i < o->n; i++) {
		if (is_known(s, &o->data[i]))
			continue;
		procman_binary_get(o->data[i].binary);
		overlay_add(&s->m, o->data[i]);
		s->id = id;
	}
	return true;
}

int mapping_set_replace_anon(const struct mapping_set *base, struct procman_binary *to, u64 id,
			     struct mapping_set **ret)
{
	overlay m = {};

	if (vec_reserve(&m, base->m.n) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < base->m.n; i++) {
		m.data[m.n] = base->m.data[i];
		if (m.data[m.n].binary->kind == PROCMAN_ANON)
			m.data[m.n].binary = to;
		procman_binary_get(m.data[m.n++].binary);
	}
	return set_create(&m, id, ret);
}
