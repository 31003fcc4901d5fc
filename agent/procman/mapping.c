/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/procman/mapping.h"

static void set_start(struct procman_mapping *m, u64 start)
{
	m->foff += start - m->start;
	m->start = start;
}

static bool continues(const struct procman_mapping *a, const struct procman_mapping *b)
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
	for (u32 i = 0; i < s->n; i++)
		procman_binary_put(s->m[i].binary);
	free(s);
}

/* The index of the first mapping that ends behind avma. */
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

	if (last && continues(last, &m)) {
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
 *	o    ┌──a──┐ ┌─b─┐ ┌───c───┐          i = a, j = behind c
 *	m        └───────────┘
 *	new  ┌─a─┐┌────m────┐┌─c─┐            at most two pieces stay
 */
int overlay_add(overlay *o, struct procman_mapping m)
{
	struct procman_mapping pieces[3];
	size_t i, j, n = 0;
	bool split;

	if (!o->n || o->data[o->n - 1].end <= m.start)
		return overlay_append(o, m);
	if (vec_reserve(o, o->n + 2) < 0) {
		procman_binary_put(m.binary);
		return -ENOMEM;
	}
	i = first_behind(o->data, o->n, m.start);
	for (j = i; j < o->n && o->data[j].start < m.end; j++)
		;
	split = j == i + 1 && o->data[i].start < m.start && o->data[i].end > m.end;
	if (split)
		procman_binary_get(o->data[i].binary);
	for (size_t k = i; k < j; k++) {
		struct procman_mapping old = o->data[k];

		if (old.start >= m.start && old.end <= m.end) {
			procman_binary_put(old.binary);
			continue;
		}
		if (old.start < m.start) {
			pieces[n] = old;
			pieces[n++].end = m.start;
		}
		if (old.end > m.end) {
			/* The last, so that m stands before it. */
			pieces[2] = old;
			set_start(&pieces[2], m.end);
		}
	}
	pieces[n++] = m;
	if (j > i && o->data[j - 1].end > m.end)
		pieces[n++] = pieces[2];
	memmove(&o->data[i + n], &o->data[j], (o->n - j) * sizeof(*o->data));
	memcpy(&o->data[i], pieces, n * sizeof(*o->data));
	o->n = o->n - (j - i) + n;
	return 0;
}

void overlay_clear(overlay *o)
{
	vec_foreach (o, m)
		procman_binary_put(m->binary);
	vec_clear(o);
	/* What a start-up scan of a big process needed is not kept for the next small batch. */
	if (o->cap > OVERLAY_MAX)
		vec_deinit(o);
}

void overlay_deinit(overlay *o)
{
	overlay_clear(o);
	vec_deinit(o);
}

/* One reference for each mapping in the array, taken when it is emitted. */
struct output {
	struct mapping_set *set;
	u32 max;
	u64 dropped;
};

static void emit(struct output *out, const struct procman_mapping *m)
{
	struct mapping_set *s = out->set;

	if (s->n && continues(&s->m[s->n - 1], m)) {
		s->m[s->n - 1].end = m->end;
		return;
	}
	if (s->n == out->max) {
		out->dropped++;
		return;
	}
	s->m[s->n] = *m;
	procman_binary_get(m->binary);
	s->n++;
}

static void lay_over(const struct mapping_set *base, const overlay *o, struct output *out)
{
	u32 n = base ? base->n : 0, i = 0;
	struct procman_mapping b = {};
	size_t k = 0;

	if (n)
		b = base->m[0];
	while (i < n || k < o->n) {
		const struct procman_mapping *over = k < o->n ? &o->data[k] : NULL;

		if (i < n && (!over || b.end <= over->start)) {
			emit(out, &b);
		} else if (i == n || over->end <= b.start) {
			emit(out, over);
			k++;
			continue;
		} else {
			if (b.start < over->start) {
				struct procman_mapping left = b;

				left.end = over->start;
				emit(out, &left);
				set_start(&b, over->start);
			}
			if (b.end > over->end) {
				set_start(&b, over->end);
				continue;
			}
		}
		if (++i < n)
			b = base->m[i];
	}
}

bool mapping_set_same(const struct mapping_set *a, const struct mapping_set *b)
{
	u32 n = a ? a->n : 0;

	if (n != (b ? b->n : 0))
		return false;
	for (u32 i = 0; i < n; i++) {
		const struct procman_mapping *x = &a->m[i], *y = &b->m[i];

		if (x->start != y->start || x->end != y->end || x->foff != y->foff ||
		    x->bias != y->bias || x->binary != y->binary)
			return false;
	}
	return true;
}

static struct mapping_set *set_alloc(size_t n)
{
	struct mapping_set *s = malloc(sizeof(*s) + n * sizeof(s->m[0]));

	if (s)
		*s = (struct mapping_set){.refs = 1};
	return s;
}

int mapping_set_apply(struct mapping_set *base, const overlay *o, u64 id, u32 max,
		      struct mapping_set **ret, u64 *dropped)
{
	struct output out = {.max = max};
	struct mapping_set *shrunk;
	size_t room = o->n * 2 + 1;

	if (!o->n) {
		*ret = mapping_set_get(base);
		return 0;
	}
	/* Each mapping laid over the base makes at most itself and one piece more. */
	room += base ? base->n : 0;
	out.set = set_alloc(room);
	if (!out.set)
		return -ENOMEM;
	out.set->id = id;
	lay_over(base, o, &out);
	*dropped += out.dropped;
	if (mapping_set_same(base, out.set)) {
		mapping_set_put(out.set);
		*ret = mapping_set_get(base);
		return 0;
	}
	shrunk = realloc(out.set, sizeof(*shrunk) + out.set->n * sizeof(shrunk->m[0]));
	*ret = shrunk ? shrunk : out.set;
	return 0;
}

int mapping_set_replace_anon(const struct mapping_set *base, struct procman_binary *to, u64 id,
			     struct mapping_set **ret)
{
	struct mapping_set *s = set_alloc(base->n);

	if (!s)
		return -ENOMEM;
	s->id = id;
	for (u32 i = 0; i < base->n; i++) {
		struct procman_mapping m = base->m[i];

		if (m.binary->kind == PROCMAN_ANON)
			m.binary = to;
		procman_binary_get(m.binary);
		s->m[s->n++] = m;
	}
	*ret = s;
	return 0;
}
