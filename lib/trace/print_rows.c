/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the entries of a map to rows: values are added up over CPUs, keys whose stacks or services
 * turned out to be equal are merged, and rows are sorted as bpftrace sorts them, by value or else
 * by key. Rows that are equal in that are sorted by key, so that the order is always the same.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "trace/print.h"

/* ---- values ---- */

static void put_word(u8 *value, u32 i, u64 word)
{
	memcpy(value + (size_t)i * 8, &word, sizeof(word));
}

/* Adds {value, is set} to another. */
static void add_extreme(const struct trace_type *t, u8 *sum, const u8 *more)
{
	u64 a = trace_word(sum, 0), b = trace_word(more, 0);
	bool less = t->is_signed ? (s64)b < (s64)a : b < a;

	if (!trace_word(more, 1))
		return;
	if (!trace_word(sum, 1) || (t->kind == TRACE_MIN ? less : !less))
		put_word(sum, 0, b);
	put_word(sum, 1, 1);
}

/*
 * Adds a value to another: of another CPU, or of an equal key. Numbers are added up, because a
 * script counts with them; of values of other types the last one stays.
 */
static void add_value(const struct trace_type *t, u8 *sum, const u8 *more, u32 room)
{
	switch (t->kind) {
	case TRACE_MIN:
	case TRACE_MAX:
		add_extreme(t, sum, more);
		break;
	case TRACE_SERIES:
		trace_series_add(t, sum, more);
		break;
	case TRACE_INT:
	case TRACE_COUNT:
	case TRACE_SUM:
	case TRACE_AVG:
	case TRACE_STATS:
	case TRACE_HIST:
	case TRACE_LHIST:
		for (u32 i = 0; i < room / 8; i++)
			put_word(sum, i, trace_word(sum, i) + trace_word(more, i));
		break;
	default:
		memcpy(sum, more, room);
	}
}

/* ---- keys ---- */

static void find_stack(const struct trace_names *n, const struct trace_type *t, u8 *key)
{
	u64 id = n->stack_id(n->arg, trace_word(key, 0));

	put_word(key, 0, id);
	if (n->want)
		n->want(n->arg, id, t->kind == TRACE_USTACK ? (u32)trace_word(key, 1) : 0);
}

static void find_owner(const struct trace_names *n, const struct trace_type *t, u8 *key)
{
	char comm[17] = "";

	memcpy(comm, key + 8, 16);
	put_word(key, 0, n->owner_id(n->arg, t->bytes, (u32)trace_word(key, 0), comm));
	memset(key + 8, 0, 16);
}

/*
 * Replaces what has several ids by one: ids of stacks by those of the whole stacks, and processes
 * by one of the same owner. Whether there are any.
 */
static bool unify(const struct trace_printer *p, const struct trace_type *t, u8 *key)
{
	const struct trace_names *n = &p->names;
	bool found = false;

	if ((t->kind == TRACE_KSTACK || t->kind == TRACE_USTACK) && n->stack_id) {
		find_stack(n, t, key);
		return true;
	}
	if (t->kind == TRACE_OWNER && n->owner_id) {
		find_owner(n, t, key);
		return true;
	}
	for (u32 i = 0; t->kind == TRACE_TUPLE && i < t->n; i++) {
		found |= unify(p, t->fields[i], key);
		key += trace_type_room(t->fields[i]);
	}
	return found;
}

static int compare_keys(const struct trace_type *t, const u8 *a, const u8 *b)
{
	int r = 0;

	switch (t->kind) {
	case TRACE_INT: {
		s64 x = (s64)trace_word(a, 0), y = (s64)trace_word(b, 0);

		return (x > y) - (x < y);
	}
	case TRACE_TUPLE:
		for (u32 i = 0; i < t->n && !r; i++) {
			u32 room = trace_type_room(t->fields[i]);

			r = compare_keys(t->fields[i], a, b);
			a += room;
			b += room;
		}
		return r;
	default:
		return memcmp(a, b, trace_type_room(t));
	}
}

/* ---- order ---- */

/* What a row is sorted by before its key: larger is later. 0: its key alone. */
static u64 rank_of(const struct trace_type *t, const u8 *value, u32 room)
{
	u64 rank = 0;

	switch (t->kind) {
	case TRACE_INT:
	case TRACE_COUNT:
	case TRACE_SUM:
	case TRACE_MIN:
	case TRACE_MAX:
		rank = trace_word(value, 0);
		break;
	case TRACE_AVG:
	case TRACE_STATS:
		rank = trace_value_average(t, value);
		break;
	case TRACE_HIST:
	case TRACE_LHIST:
		for (u32 i = 0; i < room / 8; i++)
			rank += trace_word(value, i);
		break;
	default:
		return 0;
	}
	return trace_value_is_signed(t) ? rank ^ 1ULL << 63 : rank;
}

struct sorting {
	const struct trace_rows *rows;
	const struct trace_type *key;
	const u64 *ranks;
};

static int compare_rows(const void *pa, const void *pb, void *arg)
{
	const struct sorting *s = arg;
	u32 a = *(const u32 *)pa, b = *(const u32 *)pb;

	if (s->ranks[a] != s->ranks[b])
		return s->ranks[a] < s->ranks[b] ? -1 : 1;
	if (s->key->kind == TRACE_NONE)
		return 0;
	return compare_keys(s->key, s->rows->keys + (size_t)a * s->rows->key_bytes,
			    s->rows->keys + (size_t)b * s->rows->key_bytes);
}

static int sort_rows(struct trace_rows *r, const struct trace_map *m)
{
	_cleanup_free_ u64 *ranks = calloc(r->n + 1, sizeof(*ranks));
	struct sorting s = {.rows = r, .key = &m->key, .ranks = ranks};

	if (!ranks)
		return -ENOMEM;
	for (size_t i = 0; i < r->n; i++) {
		ranks[i] = rank_of(&m->value, r->values + i * r->value_room, r->value_room);
		r->order[i] = (u32)i;
	}
	qsort_r(r->order, r->n, sizeof(*r->order), compare_rows, &s);
	return 0;
}

/* ---- rows ---- */

void trace_rows_deinit(struct trace_rows *r)
{
	free(r->keys);
	free(r->values);
	free(r->order);
}

/* The row with this key, which is behind the rows so far; they may be merged. -1: out of memory. */
static s64 row_of(struct trace_rows *r, struct map *index, const u8 *key, bool may_be_known)
{
	u64 hash = hash_bytes(key, r->key_bytes);
	const u64 *at;

	for (; may_be_known && (at = map_get(index, hash)); hash++)
		if (!memcmp(r->keys + *at * r->key_bytes, key, r->key_bytes))
			return (s64)*at;
	if (may_be_known && map_put(index, hash, r->n) < 0)
		return -1;
	return (s64)r->n++;
}

static int take_entries(struct trace_rows *r, const struct trace_printer *p,
			const struct trace_map *m, const struct trace_entries *e)
{
	u32 cpus = m->per_cpu ? p->cpus : 1, stride = (m->value_bytes + 7) / 8 * 8;
	struct map index = {};
	int result = 0;

	for (size_t i = 0; i < e->n && result == 0; i++) {
		u8 *key = r->keys + r->n * r->key_bytes;
		const u8 *values = e->values + i * stride * cpus;
		s64 row;

		memcpy(key, e->keys + i * m->key_bytes, r->key_bytes);
		row = row_of(r, &index, key, unify(p, &m->key, key));
		/* What a script sets is not added up: one of the values stays. */
		if (row >= 0 && m->is_assigned && m->value.kind == TRACE_INT)
			memset(r->values + (size_t)row * r->value_room, 0, r->value_room);
		if (row < 0)
			result = -ENOMEM;
		for (u32 c = 0; c < cpus && row >= 0; c++)
			add_value(&m->value, r->values + (size_t)row * r->value_room,
				  values + (size_t)c * stride, r->value_room);
	}
	map_deinit(&index);
	return result;
}

int trace_rows_init(struct trace_rows *r, const struct trace_printer *p, const struct trace_map *m,
		    const struct trace_entries *e)
{
	u32 key_room = m->key.kind == TRACE_NONE ? 0 : trace_type_room(&m->key);
	int ret;

	*r = (struct trace_rows){.key_bytes = m->key_bytes,
				 .value_room = trace_type_room(&m->value)};
	/* Whoever made the map and its types must agree. */
	if (key_room > m->key_bytes || r->value_room > (m->value_bytes + 7) / 8 * 8)
		return -EBADMSG;
	r->keys = calloc(e->n + 1, MAX(r->key_bytes, 1u));
	r->values = calloc(e->n + 1, MAX(r->value_room, 1u));
	r->order = calloc(e->n + 1, sizeof(*r->order));
	ret = r->keys && r->values && r->order ? take_entries(r, p, m, e) : -ENOMEM;
	return ret < 0 ? ret : sort_rows(r, m);
}
