/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store behind struct profile: dense arrays, and one hash index per array to find an equal
 * entry. An index holds id and 32 bits of the hash only; content is compared in the array, so an
 * index never has to be touched when an array moves.
 *
 * Invariants:
 * 1. ids are positions in their array and never change;
 * 2. the absolute values of one type sum up to at most INT64_MAX over all samples, so no view that
 *    adds up samples can overflow;
 * 3. index->samples has every sample whose time is 0, by thread, stack and link, and no other.
 */
#include "profile/profile.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/quota.h"
#include "base/str.h"
#include "base/text.h"
#include "base/vocab.h"
#include "profile/writer.h"

struct intern_slot {
	u32 hash;
	u32 id_plus_1; /* 0 = empty */
};

struct intern {
	struct intern_slot *slots; /* owned */
	size_t cap;		   /* a power of two, or 0 */
	size_t n;
};

struct profile_index {
	struct intern mappings, functions, frames, resources, threads, links, stacks, samples;
	u64 abs_sum[PROFILE_MAX_TYPES]; /* invariant 2 */
};

static int intern_grow(struct intern *t)
{
	size_t cap = t->cap ? t->cap * 2 : 64;
	struct intern_slot *slots = calloc(cap, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < t->cap; i++) {
		size_t j = t->slots[i].hash & (cap - 1);

		if (!t->slots[i].id_plus_1)
			continue;
		while (slots[j].id_plus_1)
			j = (j + 1) & (cap - 1);
		slots[j] = t->slots[i];
	}
	free(t->slots);
	t->slots = slots;
	t->cap = cap;
	return 0;
}

typedef bool intern_equal_fn(const struct profile *p, u32 id, const void *key, size_t n);

/* The slot of the equal entry, or the empty slot for a new one; NULL when out of memory. */
static struct intern_slot *intern_find(struct intern *t, const struct profile *p, u32 hash,
				       const void *key, size_t n, intern_equal_fn *equal)
{
	if ((t->n + 1) * 3 > t->cap * 2 && intern_grow(t) < 0)
		return NULL;
	for (size_t i = hash & (t->cap - 1);; i = (i + 1) & (t->cap - 1)) {
		struct intern_slot *s = &t->slots[i];

		if (!s->id_plus_1 || (s->hash == hash && equal(p, s->id_plus_1 - 1, key, n)))
			return s;
	}
}

static void intern_set(struct intern *t, struct intern_slot *s, u32 hash, size_t id)
{
	*s = (struct intern_slot){.hash = hash, .id_plus_1 = (u32)id + 1};
	t->n++;
}

struct profile *profile_create(void)
{
	struct profile *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->index = calloc(1, sizeof(*p->index));
	if (!p->index || strtab_init(&p->strings) < 0 ||
	    profile_add_resource(p, NULL, 0, &(u32){0}) < 0 ||
	    profile_add_link(p, &(struct profile_link){}, &(u32){0}) < 0) {
		profile_destroy(p);
		return NULL;
	}
	return p;
}

void profile_destroy(struct profile *p)
{
	if (!p)
		return;
	if (p->index) {
		free(p->index->mappings.slots);
		free(p->index->functions.slots);
		free(p->index->frames.slots);
		free(p->index->resources.slots);
		free(p->index->threads.slots);
		free(p->index->links.slots);
		free(p->index->stacks.slots);
		free(p->index->samples.slots);
		free(p->index);
	}
	strtab_deinit(&p->strings);
	vec_deinit(&p->mappings);
	vec_deinit(&p->functions);
	vec_deinit(&p->frames);
	vec_deinit(&p->stacks);
	vec_deinit(&p->stack_frames);
	vec_deinit(&p->resources);
	vec_deinit(&p->labels);
	vec_deinit(&p->threads);
	vec_deinit(&p->links);
	free(p->samples);
	free(p);
}

int profile_add_string(struct profile *p, const char *s, size_t n, u32 *ret_id)
{
	return strtab_add(&p->strings, n ? s : "", n, ret_id);
}

/*
 * One add function per table. `size` is the part of the struct that is compared: not the padding at
 * the end of struct profile_frame, whose content is undefined.
 */
#define DEFINE_ADD(name, table, size)                                                              \
	static bool name##_equal(const struct profile *p, u32 id, const void *key, size_t n)       \
	{                                                                                          \
		return memcmp(&p->table.data[id], key, n) == 0;                                    \
	}                                                                                          \
	int profile_add_##name(struct profile *p, const struct profile_##name *e, u32 *ret_id)     \
	{                                                                                          \
		u32 hash = (u32)hash_bytes(e, size);                                               \
		struct intern *t = &p->index->table;                                               \
		struct intern_slot *s = intern_find(t, p, hash, e, size, name##_equal);            \
                                                                                                   \
		if (!s)                                                                            \
			return -ENOMEM;                                                            \
		if (!s->id_plus_1) {                                                               \
			if (p->table.n >= PROFILE_NONE - 1)                                        \
				return -E2BIG;                                                     \
			if (vec_push(&p->table, *e) < 0)                                           \
				return -ENOMEM;                                                    \
			intern_set(t, s, hash, p->table.n - 1);                                    \
		}                                                                                  \
		*ret_id = s->id_plus_1 - 1;                                                        \
		return 0;                                                                          \
	}

DEFINE_ADD(mapping, mappings, sizeof(struct profile_mapping))
DEFINE_ADD(function, functions, sizeof(struct profile_function))
DEFINE_ADD(frame, frames, offsetof(struct profile_frame, pad))
DEFINE_ADD(thread, threads, sizeof(struct profile_thread))
DEFINE_ADD(link, links, sizeof(struct profile_link))
_Static_assert(sizeof(struct profile_mapping) == 32, "no padding, or it would be hashed");
_Static_assert(sizeof(struct profile_function) == 16, "no padding, or it would be hashed");
_Static_assert(sizeof(struct profile_thread) == 24, "no padding, or it would be hashed");

static bool stack_equal(const struct profile *p, u32 id, const void *key, size_t n)
{
	const struct profile_stack *s = &p->stacks.data[id];

	return s->n == n && (!n || !memcmp(p->stack_frames.data + s->first, key, n * sizeof(u32)));
}

int profile_add_stack(struct profile *p, const u32 *frames, size_t n, u32 *ret_id)
{
	u32 hash = (u32)hash_bytes(frames, n * sizeof(*frames));
	struct intern *t = &p->index->stacks;
	struct intern_slot *s = intern_find(t, p, hash, frames, n, stack_equal);
	struct profile_stack stack = {.first = (u32)p->stack_frames.n, .n = (u32)n};
	int r = quota_check(NULL);

	if (r < 0)
		return r;
	if (!s)
		return -ENOMEM;
	if (!s->id_plus_1) {
		if (p->stacks.n >= PROFILE_NONE - 1 || p->stack_frames.n + n >= PROFILE_NONE)
			return -E2BIG;
		if (vec_reserve(&p->stack_frames, p->stack_frames.n + n) < 0 ||
		    vec_push(&p->stacks, stack) < 0)
			return -ENOMEM;
		if (n)
			memcpy(p->stack_frames.data + stack.first, frames, n * sizeof(*frames));
		p->stack_frames.n += n;
		intern_set(t, s, hash, p->stacks.n - 1);
	}
	*ret_id = s->id_plus_1 - 1;
	return 0;
}

int profile_add_note(struct profile *p, const char *text, u32 *ret_frame)
{
	struct profile_frame f = {.mapping = PROFILE_NONE, .kind = FRAME_NOTE};
	struct profile_function fn = {};
	int r = profile_add_string(p, text, strlen(text), &fn.name);

	fn.system_name = fn.name;
	if (r == 0)
		r = profile_add_function(p, &fn, &f.function);
	return r < 0 ? r : profile_add_frame(p, &f, ret_frame);
}

int profile_add_note_stack(struct profile *p, const char *text, u32 *ret_stack)
{
	u32 frame;
	int r = profile_add_note(p, text, &frame);

	return r < 0 ? r : profile_add_stack(p, &frame, 1, ret_stack);
}

static bool resource_equal(const struct profile *p, u32 id, const void *key, size_t n)
{
	const struct profile_resource *r = &p->resources.data[id];

	return r->n == n &&
	       (!n || !memcmp(p->labels.data + r->first, key, n * sizeof(struct profile_label)));
}

/* Inserts a label into n sorted ones. Returns their new number. */
static size_t put_label(const struct profile *p, struct profile_label *sorted, size_t n,
			struct profile_label l)
{
	const char *name = profile_string(p, l.name);
	size_t i = 0;

	while (i < n && strcmp(profile_string(p, sorted[i].name), name) < 0)
		i++;
	if (i < n && sorted[i].name == l.name) {
		sorted[i] = l;
		return n;
	}
	memmove(sorted + i + 1, sorted + i, (n - i) * sizeof(*sorted));
	sorted[i] = l;
	return n + 1;
}

int profile_add_resource(struct profile *p, const struct profile_label *labels, size_t n,
			 u32 *ret_id)
{
	struct profile_label sorted[PROFILE_MAX_LABELS];
	struct intern *t = &p->index->resources;
	struct profile_resource resource = {.first = (u32)p->labels.n};
	struct intern_slot *s;
	size_t m = 0;
	u32 hash;

	if (n > PROFILE_MAX_LABELS)
		return -E2BIG;
	for (size_t i = 0; i < n; i++)
		m = put_label(p, sorted, m, labels[i]);
	hash = (u32)hash_bytes(sorted, m * sizeof(*sorted));
	s = intern_find(t, p, hash, sorted, m, resource_equal);
	if (!s)
		return -ENOMEM;
	if (!s->id_plus_1) {
		if (p->resources.n >= PROFILE_NONE - 1 || p->labels.n + m >= PROFILE_NONE)
			return -E2BIG;
		resource.n = (u32)m;
		if (vec_reserve(&p->labels, p->labels.n + m) < 0 ||
		    vec_push(&p->resources, resource) < 0)
			return -ENOMEM;
		if (m)
			memcpy(p->labels.data + resource.first, sorted, m * sizeof(*sorted));
		p->labels.n += m;
		intern_set(t, s, hash, p->resources.n - 1);
	}
	*ret_id = s->id_plus_1 - 1;
	return 0;
}

const char *profile_label(const struct profile *p, u32 resource, const char *name)
{
	const struct profile_resource *r = &p->resources.data[resource];

	for (u32 i = 0; i < r->n; i++) {
		const struct profile_label *l = &p->labels.data[r->first + i];

		if (!strcmp(profile_string(p, l->name), name))
			return profile_string(p, l->value);
	}
	return NULL;
}

enum wait profile_wait(const struct profile *p, u32 thread)
{
	u32 attributes = thread < p->threads.n ? p->threads.data[thread].attributes : 0;
	const char *wait = attributes ? profile_label(p, attributes, PROFILE_WAIT) : NULL;

	return wait ? vocab_wait_by_name(wait, strlen(wait)) : WAIT_NONE;
}

bool profile_is_self(const struct profile *p, u32 thread)
{
	u32 attributes = thread < p->threads.n ? p->threads.data[thread].attributes : 0;
	const char *self = attributes ? profile_label(p, attributes, PROFILE_SELF) : NULL;

	return self && !strcmp(self, "true");
}

int profile_add_type(struct profile *p, const char *name, const char *unit)
{
	struct profile_type type = {};
	int r;

	if (p->n_samples)
		return -EBUSY;
	if (p->n_types >= PROFILE_MAX_TYPES)
		return -E2BIG;
	r = profile_add_string(p, name, strlen(name), &type.name);
	if (r == 0)
		r = profile_add_string(p, unit, strlen(unit), &type.unit);
	if (r == 0)
		p->types[p->n_types++] = type;
	return r;
}

int profile_add_table_type(struct profile *p, enum sample_type type)
{
	const struct vocab_sample_type *row = vocab_sample_type(type);
	int r = profile_add_type(p, row->name, row->unit);

	if (r < 0 || vocab_find_sample_type(NULL, row->name, row->unit) == type)
		return r;
	return profile_add_string(p, row->profile, strlen(row->profile),
				  &p->types[p->n_types - 1].group);
}

enum sample_type profile_table_type(const struct profile *p, u32 t)
{
	const struct profile_type *type = &p->types[t];

	return vocab_find_sample_type(type->group ? profile_string(p, type->group) : NULL,
				      profile_string(p, type->name), profile_string(p, type->unit));
}

u32 profile_find_type(const struct profile *p, enum sample_type type)
{
	for (u32 t = 0; t < p->n_types; t++)
		if (profile_table_type(p, t) == type)
			return t;
	return PROFILE_NONE;
}

size_t profile_sample_size(const struct profile *p)
{
	return sizeof(struct profile_sample) + p->n_types * sizeof(s64);
}

static struct profile_sample *sample_at(struct profile *p, size_t i)
{
	return (struct profile_sample *)(p->samples + i * profile_sample_size(p));
}

const struct profile_sample *profile_sample(const struct profile *p, size_t i)
{
	return (const struct profile_sample *)(p->samples + i * profile_sample_size(p));
}

/* Checks a sample against invariant 2, and counts it. */
static int account(struct profile *p, const s64 *values)
{
	u64 sum[PROFILE_MAX_TYPES];

	for (u32 i = 0; i < p->n_types; i++) {
		u64 abs = values[i] < 0 ? -(u64)values[i] : (u64)values[i];

		if (__builtin_add_overflow(p->index->abs_sum[i], abs, &sum[i]) ||
		    sum[i] > INT64_MAX)
			return -ERANGE;
	}
	memcpy(p->index->abs_sum, sum, p->n_types * sizeof(sum[0]));
	return 0;
}

static int append_sample(struct profile *p, const struct profile_sample *head, const s64 *values)
{
	void *samples = p->samples;
	struct profile_sample *s;
	int r = vec_grow_(&samples, &p->cap_samples, p->n_samples + 1, profile_sample_size(p));

	p->samples = samples;
	if (r < 0)
		return r;
	s = sample_at(p, p->n_samples++);
	*s = *head;
	memcpy(s->value, values, p->n_types * sizeof(s64));
	return 0;
}

static bool sample_equal(const struct profile *p, u32 id, const void *key, size_t n)
{
	return memcmp(profile_sample(p, id), key, n) == 0;
}

int profile_add_linked_sample(struct profile *p, u64 time_ns, u32 thread, u32 stack, u32 link,
			      const s64 *values)
{
	struct profile_sample head = {
		.time_ns = time_ns, .thread = thread, .stack = stack, .link = link};
	struct intern_slot *known = NULL;
	int r = quota_check(NULL);
	u32 hash = 0;

	if (r < 0)
		return r;
	if (!p->n_types || stack >= p->stacks.n || link >= p->links.n ||
	    (thread != PROFILE_NONE && thread >= p->threads.n))
		return -EINVAL;
	if (!time_ns) {
		hash = (u32)hash_bytes(&head, sizeof(head));
		known = intern_find(&p->index->samples, p, hash, &head, sizeof(head), sample_equal);
		if (!known)
			return -ENOMEM;
		if (!known->id_plus_1 && p->n_samples >= PROFILE_NONE - 1)
			return -E2BIG;
	}
	r = account(p, values);
	if (r < 0)
		return r;
	if (known && known->id_plus_1) {
		for (u32 i = 0; i < p->n_types; i++)
			sample_at(p, known->id_plus_1 - 1)->value[i] += values[i];
		return 0;
	}
	r = append_sample(p, &head, values);
	if (r == 0 && known)
		intern_set(&p->index->samples, known, hash, p->n_samples - 1);
	return r;
}

int profile_add_sample(struct profile *p, u64 time_ns, u32 thread, u32 stack, const s64 *values)
{
	return profile_add_linked_sample(p, time_ns, thread, stack, 0, values);
}

void profile_set_draws(struct profile *p, u64 draws)
{
	struct profile_sample *last =
		(void *)(p->samples + (p->n_samples - 1) * profile_sample_size(p));

	last->draws = (u32)MIN(draws, (u64)~0U);
}

void profile_drop_empty_types(struct profile *p)
{
	size_t from_size = profile_sample_size(p), to_size;
	u32 keep[PROFILE_MAX_TYPES], n = 0;

	for (u32 t = 0; t < p->n_types; t++)
		if (p->index->abs_sum[t] || (!n && t + 1 == p->n_types))
			keep[n++] = t;
	for (u32 t = 0; t < n; t++)
		p->types[t] = p->types[keep[t]];
	p->n_types = n;
	p->default_type = 0;
	to_size = profile_sample_size(p);
	for (size_t i = 0; i < p->n_samples; i++) {
		const struct profile_sample *from = (void *)(p->samples + i * from_size);
		struct profile_sample *to = (void *)(p->samples + i * to_size);
		s64 values[PROFILE_MAX_TYPES];

		for (u32 t = 0; t < n; t++)
			values[t] = from->value[keep[t]];
		memmove(to, from, sizeof(*to));
		memcpy(to->value, values, n * sizeof(values[0]));
	}
}

const char *profile_string(const struct profile *p, u32 id)
{
	return strtab_get(&p->strings, id);
}

/* Whether nothing is left of a name after cleaning: then it counts as no name. */
static bool is_blank(const char *name, struct str *scratch)
{
	if ((u8)name[0] > ' ' && (u8)name[0] < 0x7f)
		return false;
	str_clear(scratch);
	text_append_clean(scratch, name, 0);
	return !scratch->n;
}

const char *profile_frame_name(const struct profile *p, u32 frame, struct str *scratch)
{
	const struct profile_frame *f;
	const char *name = "", *path = "";

	if (frame >= p->frames.n)
		return "[unknown]";
	f = &p->frames.data[frame];
	if (f->function < p->functions.n)
		name = profile_string(p, p->functions.data[f->function].name);
	if (!is_blank(name, scratch))
		return name;
	if (f->mapping < p->mappings.n)
		path = profile_string(p, p->mappings.data[f->mapping].path);
	path = profile_basename(path);
	str_clear(scratch);
	text_append_clean(scratch, path, 0);
	/* A path that ends in '/', or is empty after cleaning, names no file. */
	if (!scratch->n || strchr(path, '/'))
		return "[unknown]";
	str_printf(scratch, "+0x%llx", f->address);
	return scratch->failed ? "[unknown]" : str_get(scratch);
}

const char *profile_basename(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* FRAME_KIND_N: it is none. */
static u32 kind_in_brackets(const char *path)
{
	size_t n = strlen(path);

	for (u32 k = 0; k < FRAME_KIND_N && path[0] == '['; k++) {
		const char *name = vocab_frame_kind(k)->name;

		if (n == strlen(name) + 2 && path[n - 1] == ']' && !memcmp(path + 1, name, n - 2))
			return k;
	}
	return FRAME_KIND_N;
}

u8 profile_kind_of_path(const char *path)
{
	const char *base = profile_basename(path);
	u32 kind;

	if (str_starts(path, "[kernel") || str_starts(path, "[guest.kernel") ||
	    !strcmp(base, "vmlinux") || str_ends(base, ".ko") || strstr(base, ".ko."))
		return FRAME_KERNEL;
	if (str_starts(base, "perf-") && str_ends(base, ".map"))
		return FRAME_JIT;
	kind = kind_in_brackets(path);
	return kind < FRAME_KIND_N ? (u8)kind : FRAME_NATIVE;
}

bool profile_path_is_kind(const char *path)
{
	return kind_in_brackets(path) < FRAME_KIND_N;
}

/* ---- merge ---- */

/* Ids of src → ids of dst. */
struct merge {
	struct profile *dst;
	const struct profile *src;
	u32 *strings, *mappings, *functions, *frames, *threads, *links, *stacks; /* owned */
	profile_keep *keep; /* NULL: all samples */
	void *arg;
	u8 *kept; /* owned; bool by stack of src; NULL: all */
};

static void merge_deinit(struct merge *m)
{
	free(m->strings);
	free(m->mappings);
	free(m->functions);
	free(m->frames);
	free(m->threads);
	free(m->links);
	free(m->stacks);
	free(m->kept);
}
#define _cleanup_merge_ __attribute__((cleanup(merge_deinit)))

static u32 translated(const u32 *ids, size_t n, u32 id)
{
	return id < n ? ids[id] : PROFILE_NONE;
}

static u32 translated_string(const struct merge *m, u32 id)
{
	return id < m->src->strings.n ? m->strings[id] : 0;
}

static int merge_strings(struct merge *m)
{
	const struct strtab *t = &m->src->strings;
	int r = 0;

	for (u32 i = 0; i < t->n && r == 0; i++)
		r = profile_add_string(m->dst, strtab_get(t, i), t->lengths[i], &m->strings[i]);
	return r;
}

static int merge_code(struct merge *m)
{
	const struct profile *src = m->src;
	int r = 0;

	for (size_t i = 0; i < src->mappings.n && r == 0; i++) {
		struct profile_mapping e = src->mappings.data[i];

		e.path = translated_string(m, e.path);
		e.build_id = translated_string(m, e.build_id);
		r = profile_add_mapping(m->dst, &e, &m->mappings[i]);
	}
	for (size_t i = 0; i < src->functions.n && r == 0; i++) {
		struct profile_function e = src->functions.data[i];

		e.name = translated_string(m, e.name);
		e.system_name = translated_string(m, e.system_name);
		e.file = translated_string(m, e.file);
		r = profile_add_function(m->dst, &e, &m->functions[i]);
	}
	for (size_t i = 0; i < src->frames.n && r == 0; i++) {
		struct profile_frame e = src->frames.data[i];

		e.mapping = translated(m->mappings, src->mappings.n, e.mapping);
		e.function = translated(m->functions, src->functions.n, e.function);
		r = profile_add_frame(m->dst, &e, &m->frames[i]);
	}
	return r;
}

static int merge_stacks(struct merge *m)
{
	const struct profile *src = m->src;
	vec(u32) ids = {};
	int r = 0;

	for (size_t i = 0; i < src->stacks.n && r == 0; i++) {
		const struct profile_stack *s = &src->stacks.data[i];

		if (m->kept && !m->kept[i])
			continue;
		vec_clear(&ids);
		r = vec_reserve(&ids, s->n);
		for (u32 j = 0; j < s->n && r == 0; j++)
			r = vec_push(&ids, m->frames[src->stack_frames.data[s->first + j]]);
		if (r == 0)
			r = profile_add_stack(m->dst, ids.data, ids.n, &m->stacks[i]);
	}
	vec_deinit(&ids);
	return r;
}

static int merge_resource(struct merge *m, u32 id, u32 *ret_id)
{
	const struct profile_resource *r = &m->src->resources.data[id];
	struct profile_label labels[PROFILE_MAX_LABELS];

	for (u32 i = 0; i < r->n; i++) {
		labels[i] = m->src->labels.data[r->first + i];
		labels[i].name = translated_string(m, labels[i].name);
		labels[i].value = translated_string(m, labels[i].value);
	}
	return profile_add_resource(m->dst, labels, r->n, ret_id);
}

static int merge_samples(struct merge *m)
{
	const struct profile *src = m->src;
	int r = 0;

	for (size_t i = 0; i < src->threads.n && r == 0; i++) {
		struct profile_thread e = src->threads.data[i];

		r = merge_resource(m, e.resource, &e.resource);
		if (r == 0)
			r = merge_resource(m, e.attributes, &e.attributes);
		if (r < 0)
			break;
		e.comm = translated_string(m, e.comm);
		e.thread_name = translated_string(m, e.thread_name);
		r = profile_add_thread(m->dst, &e, &m->threads[i]);
	}
	for (size_t i = 0; i < src->links.n && r == 0; i++)
		r = profile_add_link(m->dst, &src->links.data[i], &m->links[i]);
	for (size_t i = 0; i < src->n_samples && r == 0; i++) {
		const struct profile_sample *s = profile_sample(src, i);

		if (m->keep && !m->keep(m->arg, src, s))
			continue;
		r = profile_add_linked_sample(m->dst, s->time_ns,
					      translated(m->threads, src->threads.n, s->thread),
					      m->stacks[s->stack], m->links[s->link], s->value);
	}
	return r;
}

static int copy_string(struct profile *dst, const struct profile *src, u32 id, u32 *ret)
{
	const char *s = profile_string(src, id);

	return profile_add_string(dst, s, strlen(s), ret);
}

static int copy_type(struct profile *dst, const struct profile *src, u32 t)
{
	const struct profile_type *from = &src->types[t];
	struct profile_type *to = &dst->types[t];
	int r = profile_add_type(dst, profile_string(src, from->name),
				 profile_string(src, from->unit));

	if (r == 0)
		r = copy_string(dst, src, from->group, &to->group);
	if (r == 0)
		r = copy_string(dst, src, from->period_name, &to->period_name);
	return r < 0 ? r : copy_string(dst, src, from->period_unit, &to->period_unit);
}

static int merge_types(struct profile *dst, const struct profile *src, struct diag *reterr_diag)
{
	int r = 0;

	if (!dst->n_types && !dst->n_samples) {
		for (u32 i = 0; i < src->n_types && r == 0; i++)
			r = copy_type(dst, src, i);
		dst->default_type = src->default_type;
		return r;
	}
	if (dst->n_types != src->n_types)
		return diag_set(reterr_diag, -EINVAL,
				"profiles of %u and of %u value types do not add up", dst->n_types,
				src->n_types);
	for (u32 i = 0; i < src->n_types; i++) {
		const struct profile_type *a = &dst->types[i], *b = &src->types[i];

		if (strcmp(profile_string(dst, a->name), profile_string(src, b->name)) ||
		    strcmp(profile_string(dst, a->group), profile_string(src, b->group)) ||
		    strcmp(profile_string(dst, a->unit), profile_string(src, b->unit)))
			return diag_set(reterr_diag, -EINVAL,
					"values of %s in %s and of %s in %s do not add up",
					profile_string(dst, a->name), profile_string(dst, a->unit),
					profile_string(src, b->name), profile_string(src, b->unit));
	}
	return 0;
}

static void merge_head(struct merge *m)
{
	struct profile *dst = m->dst;
	const struct profile *src = m->src;

	if (src->time_ns && (!dst->time_ns || src->time_ns < dst->time_ns))
		dst->time_ns = src->time_ns;
	dst->duration_ns += src->duration_ns;
	if (dst->period_name && translated_string(m, src->period_name) == dst->period_name)
		dst->period = MAX(dst->period, src->period);
	if (!dst->period) {
		dst->period = src->period;
		dst->period_name = translated_string(m, src->period_name);
		dst->period_unit = translated_string(m, src->period_unit);
	}
	if (!dst->title)
		dst->title = translated_string(m, src->title);
	dst->quality.measured =
		src->quality.measured && (!dst->quality.samples || dst->quality.measured);
	dst->quality.samples += src->quality.samples;
	dst->quality.lost += src->quality.lost;
	dst->quality.truncated += src->quality.truncated;
	dst->quality.unknown += src->quality.unknown;
	dst->quality.frames += src->quality.frames;
	dst->quality.user_stacks += src->quality.user_stacks;
	dst->quality.self += src->quality.self;
	dst->quality.one_line |= src->quality.one_line;
}

/* Marks the stacks of the samples that are kept. */
static int mark_stacks(struct merge *m)
{
	if (!m->keep)
		return 0;
	m->kept = calloc(m->src->stacks.n + 1, 1);
	if (!m->kept)
		return -ENOMEM;
	for (size_t i = 0; i < m->src->n_samples; i++) {
		const struct profile_sample *s = profile_sample(m->src, i);

		m->kept[s->stack] |= m->keep(m->arg, m->src, s);
	}
	return 0;
}

int profile_merge(struct profile *dst, const struct profile *src, struct diag *reterr_diag)
{
	return profile_merge_some(dst, src, NULL, NULL, reterr_diag);
}

int profile_merge_some(struct profile *dst, const struct profile *src, profile_keep *keep,
		       void *arg, struct diag *reterr_diag)
{
	_cleanup_merge_ struct merge m = {
		.dst = dst,
		.src = src,
		.keep = keep,
		.arg = arg,
		.strings = calloc(src->strings.n + 1, sizeof(u32)),
		.mappings = calloc(src->mappings.n + 1, sizeof(u32)),
		.functions = calloc(src->functions.n + 1, sizeof(u32)),
		.frames = calloc(src->frames.n + 1, sizeof(u32)),
		.threads = calloc(src->threads.n + 1, sizeof(u32)),
		.links = calloc(src->links.n + 1, sizeof(u32)),
		.stacks = calloc(src->stacks.n + 1, sizeof(u32)),
	};
	int r;

	if (!m.strings || !m.mappings || !m.functions || !m.frames || !m.threads || !m.links ||
	    !m.stacks)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	r = merge_types(dst, src, reterr_diag);
	if (r < 0)
		return r;
	r = mark_stacks(&m);
	if (r == 0)
		r = merge_strings(&m);
	if (r == 0)
		r = merge_code(&m);
	if (r == 0)
		r = merge_stacks(&m);
	if (r == 0)
		r = merge_samples(&m);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot merge profiles: %s", strerror(-r));
	merge_head(&m);
	return 0;
}

/* ---- threads and groups (internal.h) ---- */

int profile_same_threads(const struct profile *p, u32 **ret)
{
	_cleanup_free_ u32 *same = calloc(p->threads.n + 1, sizeof(*same));
	struct map first = {};
	int r = same ? 0 : -ENOMEM;

	for (u32 i = 0; i < p->threads.n && r == 0; i++) {
		struct profile_thread t = p->threads.data[i], other;
		u64 key, *at;

		t.attributes = 0;
		key = hash_bytes(&t, sizeof(t)) >> 1;
		at = map_get(&first, key);
		same[i] = at ? (u32)*at : i;
		other = p->threads.data[same[i]];
		other.attributes = 0;
		/* Two hashes may be equal by chance. Then the thread is shown separately. */
		if (memcmp(&t, &other, sizeof(t)) != 0)
			same[i] = i;
		if (!at)
			r = map_put(&first, key, i);
	}
	map_deinit(&first);
	if (r == 0)
		*ret = take_ptr(same);
	return r;
}

void profile_groups_deinit(struct profile_groups *g)
{
	vec_deinit(&g->group);
	vec_deinit(&g->value);
	vec_deinit(&g->variance);
}

/* Of a sum of equal draws. */
static double variance_of(const struct profile *p, const struct profile_sample *s)
{
	double value = p->default_type < p->n_types ? (double)s->value[p->default_type] : 0;

	return s->draws ? value * value / s->draws : NAN;
}

/* Gives keys dense numbers, in the order of their first use. */
static int number_of(struct map *m, u64 key, u64 *ret)
{
	u64 *known = map_get(m, key);

	*ret = known ? *known : m->n;
	return known ? 0 : map_put(m, key, *ret);
}

int profile_groups_build(const struct profile *p, bool by_link, struct profile_groups *ret)
{
	struct profile_groups g = {.n_types = p->n_types};
	struct map who_ids = {}, group_ids = {};
	int r = 0;

	for (size_t i = 0; i < p->n_samples && r == 0; i++) {
		const struct profile_sample *s = profile_sample(p, i);
		struct profile_group group = {s->thread, s->stack, by_link ? s->link : 0};
		u64 who, at = 0;

		r = quota_check(NULL);
		if (r == 0)
			r = number_of(&who_ids, (u64)group.thread << 32 | group.link, &who);
		if (r == 0)
			r = number_of(&group_ids, who << 32 | group.stack, &at);
		if (r == 0 && at == g.group.n) {
			r = vec_push(&g.group, group);
			if (r == 0)
				r = vec_push(&g.variance, variance_of(p, s));
			for (u32 t = 0; t < p->n_types && r == 0; t++)
				r = vec_push(&g.value, s->value[t]);
			continue;
		}
		for (u32 t = 0; t < p->n_types && r == 0; t++)
			g.value.data[at * p->n_types + t] += s->value[t];
		if (r == 0)
			g.variance.data[at] += variance_of(p, s);
	}
	map_deinit(&who_ids);
	map_deinit(&group_ids);
	if (r < 0) {
		profile_groups_deinit(&g);
		return r;
	}
	*ret = g;
	return 0;
}
