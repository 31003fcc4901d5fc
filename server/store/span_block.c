/* SPDX-License-Identifier: Apache-2.0 */
#include "server/store/span_block.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/varint.h"
#include "server/store/block.h"

#define VERSION 1
#define FILTER_BITS 10 /* for each trace; about one in a hundred other traces matches */
#define FILTER_PROBES 6

static int compare_u64(u64 a, u64 b)
{
	return a < b ? -1 : a > b;
}

int span_compare(const struct span *a, const struct span *b)
{
	int r = memcmp(a->trace_id, b->trace_id, sizeof(a->trace_id));

	if (!r)
		r = compare_u64(a->start_ns, b->start_ns);
	if (!r)
		r = memcmp(a->span_id, b->span_id, sizeof(a->span_id));
	/* In Zipkin a client span and its server span may have the same id. */
	return r ? r : a->kind - b->kind;
}

int link_compare(const struct store_link *a, const struct store_link *b)
{
	int r = memcmp(a->link.trace_id, b->link.trace_id, sizeof(a->link.trace_id));

	if (!r)
		r = memcmp(a->link.span_id, b->link.span_id, sizeof(a->link.span_id));
	if (!r)
		r = compare_u64(a->type, b->type);
	if (!r)
		r = compare_u64(a->series, b->series);
	if (!r)
		r = compare_u64(a->stack, b->stack);
	return r ? r : compare_u64(a->time_ms, b->time_ms);
}

/* ---- dictionaries of a part ---- */

/* Gives numbers to the strings, resources, stacks and series of a part. */
struct dictionary {
	const struct profile *p;
	struct map strings, resources; /* id in the profile → number */
	vec(u32) string_list, resource_list;
	struct map stacks, series; /* id in the store → number */
	vec(u64) stack_list, series_list;
	bool failed;
};

static void dictionary_deinit(struct dictionary *d)
{
	map_deinit(&d->strings);
	map_deinit(&d->resources);
	map_deinit(&d->stacks);
	map_deinit(&d->series);
	vec_deinit(&d->string_list);
	vec_deinit(&d->resource_list);
	vec_deinit(&d->stack_list);
	vec_deinit(&d->series_list);
}
#define _cleanup_dictionary_ __attribute__((cleanup(dictionary_deinit)))

/* The number of a key; a new key gets the next one. */
#define NUMBER(d, kind, key)                                                                       \
	({                                                                                         \
		u64 *at_ = map_get(&(d)->kind##s, (key));                                          \
		u64 number_ = at_ ? *at_ : (d)->kind##_list.n;                                     \
		if (!at_ && (map_put(&(d)->kind##s, (key), number_) < 0 ||                         \
			     vec_push(&(d)->kind##_list, (key)) < 0))                              \
			(d)->failed = true;                                                        \
		number_;                                                                           \
	})

static u64 series_number(struct dictionary *d, u64 id)
{
	u64 *at = map_get(&d->series, id), n = d->series_list.n;

	if (at)
		return *at;
	if (map_put(&d->series, id, n) < 0 || vec_push(&d->series_list, id) < 0)
		d->failed = true;
	return n;
}

static void put_texts(const struct dictionary *d, struct str *out)
{
	varint_put(out, d->string_list.n);
	for (size_t i = 0; i < d->string_list.n; i++) {
		u32 id = d->string_list.data[i];

		varint_put(out, d->p->strings.lengths[id]);
		str_append(out, strtab_get(&d->p->strings, id), d->p->strings.lengths[id]);
	}
}

static void put_resources(struct dictionary *d, struct str *out)
{
	varint_put(out, d->resource_list.n);
	for (size_t i = 0; i < d->resource_list.n; i++) {
		const struct profile_resource *r = &d->p->resources.data[d->resource_list.data[i]];

		varint_put(out, r->n);
		for (u32 k = 0; k < r->n; k++) {
			varint_put(out, NUMBER(d, string, d->p->labels.data[r->first + k].name));
			varint_put(out, NUMBER(d, string, d->p->labels.data[r->first + k].value));
		}
	}
}

static void put_ids(const u64 *ids, size_t n, struct str *out)
{
	varint_put(out, n);
	str_append(out, ids, n * sizeof(*ids));
}

/* Ids in `into`, by number in the part. */
struct texts {
	vec(u32) strings, resources;
};

static void texts_deinit(struct texts *t)
{
	vec_deinit(&t->strings);
	vec_deinit(&t->resources);
}
#define _cleanup_texts_ __attribute__((cleanup(texts_deinit)))

static int get_texts(struct buf *b, struct profile *into, struct texts *t)
{
	u64 n, size;
	int r = varint_get(b, &n) && n <= buf_left(b) ? 0 : -EBADMSG;

	for (u64 i = 0; i < n && r == 0; i++) {
		struct buf text;
		u32 id = 0;

		if (!varint_get(b, &size) || !buf_take(b, size, &text))
			return -EBADMSG;
		r = profile_add_string(into, (const char *)text.pos, size, &id);
		if (r == 0)
			r = vec_push(&t->strings, id);
	}
	return r;
}

static bool get_text(struct buf *b, const struct texts *t, u32 *ret)
{
	u64 n;

	if (!varint_get(b, &n) || n >= t->strings.n)
		return false;
	*ret = t->strings.data[n];
	return true;
}

static int get_resources(struct buf *b, struct profile *into, struct texts *t)
{
	struct profile_label labels[PROFILE_MAX_LABELS];
	u64 n, n_labels;
	int r = varint_get(b, &n) && n <= buf_left(b) ? 0 : -EBADMSG;

	for (u64 i = 0; i < n && r == 0; i++) {
		u32 id = 0;

		if (!varint_get(b, &n_labels) || n_labels > ARRAY_SIZE(labels))
			return -EBADMSG;
		for (u64 k = 0; k < n_labels; k++)
			if (!get_text(b, t, &labels[k].name) || !get_text(b, t, &labels[k].value))
				return -EBADMSG;
		r = profile_add_resource(into, labels, n_labels, &id);
		if (r == 0)
			r = vec_push(&t->resources, id);
	}
	return r;
}

/* ---- columns ---- */

static int finish_part(struct str *columns, size_t n, u64 rows, int level, struct str *ret)
{
	_cleanup_str_ struct str all = {};
	int r;

	varint_put(&all, VERSION);
	varint_put(&all, rows);
	for (size_t i = 0; i < n; i++) {
		varint_put(&all, columns[i].n);
		str_append(&all, columns[i].data, columns[i].n);
		all.failed |= columns[i].failed;
	}
	r = all.failed ? -ENOMEM : all.n > BLOCK_MAX_BYTES ? -E2BIG : 0;
	return r < 0 ? r : block_compress(NULL, &all, level, ret);
}

static int open_part(const u8 *data, size_t n, u8 **ret_plain, struct buf *columns,
		     size_t n_columns, u64 *ret_rows)
{
	u64 version, size;
	size_t n_plain;
	struct buf b;
	int r = block_decompress(NULL, data, n, ret_plain, &n_plain);

	if (r < 0)
		return r;
	b = buf_of(*ret_plain, n_plain);
	if (!varint_get(&b, &version) || version != VERSION || !varint_get(&b, ret_rows) ||
	    *ret_rows > n_plain)
		return -EBADMSG;
	for (size_t i = 0; i < n_columns; i++)
		if (!varint_get(&b, &size) || !buf_take(&b, size, &columns[i]))
			return -EBADMSG;
	return 0;
}

static bool get_bytes(struct buf *b, u8 *ret, size_t n)
{
	if (buf_left(b) < n)
		return false;
	memcpy(ret, b->pos, n);
	b->pos += n;
	return true;
}

/* Adds a difference to the value before. */
static bool get_difference(struct buf *b, u64 *value)
{
	s64 difference;

	if (!varint_get_signed(b, &difference))
		return false;
	*value += (u64)difference;
	return true;
}

/* ---- spans ---- */

enum {
	S_TRACES,
	S_IDS,
	S_PARENTS,
	S_FLAGS,
	S_WEIGHTS,
	S_STARTS,
	S_DURATIONS,
	S_SERVICES,
	S_RESOURCES_OF,
	S_NAMES,
	S_ENDPOINTS,
	S_MESSAGES,
	S_TIDS,
	S_N_ATTRIBUTES,
	S_ATTRIBUTES,
	S_TEXTS,
	S_RESOURCES,
	S_N
};

#define FLAG_ROOT 0x20
#define FLAG_PARENT 0x40
#define FLAG_NEW_TRACE 0x80

static void put_span(struct str *c, struct dictionary *d, const struct spans *s,
		     const struct span *e, const struct span *before)
{
	bool fresh = !before || memcmp(before->trace_id, e->trace_id, sizeof(e->trace_id)) != 0;
	bool parent = span_has_parent(e);
	u8 flags = (u8)(e->kind | e->status << 3 | (e->flags & SPAN_ROOT ? FLAG_ROOT : 0) |
			(parent ? FLAG_PARENT : 0) | (fresh ? FLAG_NEW_TRACE : 0));

	if (fresh)
		str_append(&c[S_TRACES], e->trace_id, sizeof(e->trace_id));
	str_append(&c[S_IDS], e->span_id, sizeof(e->span_id));
	if (parent)
		str_append(&c[S_PARENTS], e->parent_id, sizeof(e->parent_id));
	str_append(&c[S_FLAGS], &flags, 1);
	str_append(&c[S_WEIGHTS], &e->weight, 1);
	varint_put_signed(&c[S_STARTS], (s64)(e->start_ns - (before ? before->start_ns : 0)));
	varint_put(&c[S_DURATIONS], e->duration_ns);
	varint_put(&c[S_SERVICES], NUMBER(d, string, e->service));
	varint_put(&c[S_RESOURCES_OF], NUMBER(d, resource, e->resource));
	varint_put(&c[S_NAMES], NUMBER(d, string, e->name));
	varint_put(&c[S_ENDPOINTS], NUMBER(d, string, e->endpoint));
	varint_put(&c[S_MESSAGES], NUMBER(d, string, e->message));
	varint_put(&c[S_TIDS], e->tid);
	varint_put(&c[S_N_ATTRIBUTES], e->n);
	for (u32 i = 0; i < e->n; i++) {
		const struct profile_label *l = &s->attributes.data[e->first + i];

		varint_put(&c[S_ATTRIBUTES], NUMBER(d, string, l->name));
		varint_put(&c[S_ATTRIBUTES], NUMBER(d, string, l->value));
	}
}

int span_part_encode(const struct spans *s, const u32 *order, size_t n, int level, struct str *ret)
{
	_cleanup_dictionary_ struct dictionary d = {.p = s->profile};
	struct str columns[S_N] = {};
	const struct span *before = NULL;
	int r;

	for (size_t i = 0; i < n; i++) {
		put_span(columns, &d, s, &s->spans.data[order[i]], before);
		before = &s->spans.data[order[i]];
	}
	put_resources(&d, &columns[S_RESOURCES]);
	put_texts(&d, &columns[S_TEXTS]);
	r = d.failed ? -ENOMEM : finish_part(columns, S_N, n, level, ret);
	for (size_t i = 0; i < S_N; i++)
		str_deinit(&columns[i]);
	return r;
}

static bool get_attributes(struct buf *c, const struct texts *t, struct spans *into, struct span *e)
{
	u64 n;

	if (!varint_get(&c[S_N_ATTRIBUTES], &n) || n > SPAN_MAX_ATTRIBUTES)
		return false;
	e->first = (u32)into->attributes.n;
	e->n = (u32)n;
	for (u64 i = 0; i < n; i++) {
		struct profile_label l;

		if (!get_text(&c[S_ATTRIBUTES], t, &l.name) ||
		    !get_text(&c[S_ATTRIBUTES], t, &l.value) || vec_push(&into->attributes, l) < 0)
			return false;
	}
	return true;
}

/* e: the span before, which becomes this one. */
static bool get_span(struct buf *c, const struct texts *t, struct spans *into, struct span *e)
{
	u64 resource, tid;
	u8 flags;

	if (!buf_u8(&c[S_FLAGS], &flags))
		return false;
	if (flags & FLAG_NEW_TRACE && !get_bytes(&c[S_TRACES], e->trace_id, sizeof(e->trace_id)))
		return false;
	memset(e->parent_id, 0, sizeof(e->parent_id));
	if (flags & FLAG_PARENT && !get_bytes(&c[S_PARENTS], e->parent_id, sizeof(e->parent_id)))
		return false;
	e->kind = flags & 7;
	e->status = flags >> 3 & 3;
	e->flags = flags & FLAG_ROOT ? SPAN_ROOT : 0;
	if (!get_bytes(&c[S_IDS], e->span_id, sizeof(e->span_id)) ||
	    !buf_u8(&c[S_WEIGHTS], &e->weight) || e->weight > 63 ||
	    !get_difference(&c[S_STARTS], &e->start_ns) ||
	    !varint_get(&c[S_DURATIONS], &e->duration_ns) ||
	    !get_text(&c[S_SERVICES], t, &e->service) ||
	    !varint_get(&c[S_RESOURCES_OF], &resource) || resource >= t->resources.n ||
	    !get_text(&c[S_NAMES], t, &e->name) || !get_text(&c[S_ENDPOINTS], t, &e->endpoint) ||
	    !get_text(&c[S_MESSAGES], t, &e->message) || !varint_get(&c[S_TIDS], &tid) ||
	    tid > UINT32_MAX)
		return false;
	e->resource = t->resources.data[resource];
	e->tid = (u32)tid;
	return get_attributes(c, t, into, e);
}

int span_part_decode(const u8 *data, size_t n, struct spans *into)
{
	_cleanup_free_ u8 *plain = NULL;
	_cleanup_texts_ struct texts t = {};
	struct buf columns[S_N];
	struct span e = {};
	u64 rows = 0;
	int r = open_part(data, n, &plain, columns, S_N, &rows);

	if (r == 0)
		r = get_texts(&columns[S_TEXTS], into->profile, &t);
	if (r == 0)
		r = get_resources(&columns[S_RESOURCES], into->profile, &t);
	for (u64 i = 0; i < rows && r == 0; i++) {
		if (!get_span(columns, &t, into, &e))
			return -EBADMSG;
		r = vec_push(&into->spans, e);
	}
	return r;
}

/* ---- links ---- */

enum {
	L_TRACES,
	L_SPANS,
	L_FLAGS,
	L_SERVICES,
	L_TYPES,
	L_SERIES_OF,
	L_STACKS_OF,
	L_TIMES,
	L_COUNTS,
	L_VALUES,
	L_TEXTS,
	L_SERIES,
	L_STACKS,
	L_N
};

#define FLAG_NEW_SPAN 1
#define FLAG_NEW_TRACE_OF_LINK 2

static void put_link(struct str *c, struct dictionary *d, const struct store_link *e,
		     const struct store_link *before)
{
	bool trace = !before || memcmp(before->link.trace_id, e->link.trace_id, 16) != 0;
	bool span = trace || memcmp(before->link.span_id, e->link.span_id, 8) != 0;
	u8 flags = (u8)((span ? FLAG_NEW_SPAN : 0) | (trace ? FLAG_NEW_TRACE_OF_LINK : 0));

	if (trace)
		str_append(&c[L_TRACES], e->link.trace_id, 16);
	if (span)
		str_append(&c[L_SPANS], e->link.span_id, 8);
	str_append(&c[L_FLAGS], &flags, 1);
	varint_put(&c[L_SERVICES], NUMBER(d, string, e->service));
	varint_put(&c[L_TYPES], NUMBER(d, string, e->type));
	varint_put(&c[L_SERIES_OF], series_number(d, e->series));
	varint_put(&c[L_STACKS_OF], NUMBER(d, stack, e->stack));
	varint_put_signed(&c[L_TIMES], (s64)(e->time_ms - (before ? before->time_ms : 0)));
	varint_put(&c[L_COUNTS], e->count);
	varint_put_signed(&c[L_VALUES], e->value);
}

int link_part_encode(const struct store_links *l, const u32 *order, size_t n, int level,
		     struct str *ret)
{
	_cleanup_dictionary_ struct dictionary d = {.p = l->profile};
	struct str columns[L_N] = {};
	const struct store_link *before = NULL;
	int r;

	for (size_t i = 0; i < n; i++) {
		put_link(columns, &d, &l->links.data[order[i]], before);
		before = &l->links.data[order[i]];
	}
	put_texts(&d, &columns[L_TEXTS]);
	put_ids(d.series_list.data, d.series_list.n, &columns[L_SERIES]);
	put_ids(d.stack_list.data, d.stack_list.n, &columns[L_STACKS]);
	r = d.failed ? -ENOMEM : finish_part(columns, L_N, n, level, ret);
	for (size_t i = 0; i < L_N; i++)
		str_deinit(&columns[i]);
	return r;
}

struct ids {
	struct buf at;
	u64 n;
};

static bool open_ids(struct buf *b, struct ids *ret)
{
	if (!varint_get(b, &ret->n) || ret->n != buf_left(b) / 8 || buf_left(b) % 8)
		return false;
	ret->at = *b;
	return true;
}

static bool get_id(struct buf *b, const struct ids *ids, u64 *ret)
{
	u64 n;

	if (!varint_get(b, &n) || n >= ids->n)
		return false;
	memcpy(ret, ids->at.pos + n * 8, sizeof(*ret));
	return true;
}

static bool get_link(struct buf *c, const struct texts *t, const struct ids *series,
		     const struct ids *stacks, struct store_link *e)
{
	u8 flags;

	if (!buf_u8(&c[L_FLAGS], &flags))
		return false;
	if (flags & FLAG_NEW_TRACE_OF_LINK && !get_bytes(&c[L_TRACES], e->link.trace_id, 16))
		return false;
	if (flags & FLAG_NEW_SPAN && !get_bytes(&c[L_SPANS], e->link.span_id, 8))
		return false;
	return get_text(&c[L_SERVICES], t, &e->service) && get_text(&c[L_TYPES], t, &e->type) &&
	       get_id(&c[L_SERIES_OF], series, &e->series) &&
	       get_id(&c[L_STACKS_OF], stacks, &e->stack) &&
	       get_difference(&c[L_TIMES], &e->time_ms) && varint_get(&c[L_COUNTS], &e->count) &&
	       varint_get_signed(&c[L_VALUES], &e->value);
}

int link_part_decode(const u8 *data, size_t n, struct store_links *into)
{
	_cleanup_free_ u8 *plain = NULL;
	_cleanup_texts_ struct texts t = {};
	struct ids series = {}, stacks = {};
	struct buf columns[L_N];
	struct store_link e = {};
	u64 rows = 0;
	int r = open_part(data, n, &plain, columns, L_N, &rows);

	if (r == 0)
		r = get_texts(&columns[L_TEXTS], into->profile, &t);
	if (r == 0 &&
	    (!open_ids(&columns[L_SERIES], &series) || !open_ids(&columns[L_STACKS], &stacks)))
		r = -EBADMSG;
	for (u64 i = 0; i < rows && r == 0; i++) {
		if (!get_link(columns, &t, &series, &stacks, &e))
			return -EBADMSG;
		r = vec_push(&into->links, e);
	}
	return r;
}

/* ---- the filter ---- */

int span_filter_init(struct span_filter *f, size_t n_traces)
{
	f->n = n_traces * FILTER_BITS / 8 + 8;
	f->bits = calloc(f->n, 1);
	return f->bits ? 0 : -ENOMEM;
}

void span_filter_deinit(struct span_filter *f)
{
	free(f->bits);
	*f = (struct span_filter){};
}

static u64 bit_of(u64 hash, u32 probe, size_t n)
{
	return (hash + probe * (hash >> 32 | 1)) % (n * 8);
}

void span_filter_add(struct span_filter *f, const u8 trace_id[16])
{
	u64 hash = hash_bytes(trace_id, 16);

	for (u32 i = 0; i < FILTER_PROBES; i++) {
		u64 bit = bit_of(hash, i, f->n);

		f->bits[bit / 8] |= (u8)(1 << bit % 8);
	}
}

bool span_filter_has(const u8 *bits, size_t n, const u8 trace_id[16])
{
	u64 hash = hash_bytes(trace_id, 16);

	for (u32 i = 0; n && i < FILTER_PROBES; i++) {
		u64 bit = bit_of(hash, i, n);

		if (!(bits[bit / 8] >> bit % 8 & 1))
			return false;
	}
	return n;
}
