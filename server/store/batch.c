/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a batch from a profile: content hashes instead of the profile's ids, and one row for each
 * (service, type, hour, stack, series, time).
 *
 * An id is the hash of these fields (of strings, the hashes, so that "ab","c" differs from
 * "a","bc"):
 *	function	name, system name, file, start line
 *	frame		kind, flags, path, build-id, address, function, line, column
 *	stack		the frames and their number
 *	series		labels sorted by name: the resource's, the thread's name and attributes
 *
 * The id of a named frame of the kernel or of a language runtime does not include the address: the
 * address changes with each boot or run, and the name identifies the frame.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "base/vocab.h"
#include "server/store/block.h"
#include "server/store/private.h"
#include "server/store/sort.h"
#include "server/store/store.h"

#define MAX_ATTRIBUTED 4096	 /* series of a batch; further ones get no attributes */
#define MAX_TIME_MS (1ULL << 42) /* the year 2109 */

u64 store_id(const void *data, size_t n)
{
	u64 id = hash_bytes(data, n);

	/* 0 means none, and a map cannot have the two largest. */
	return id - 1 < MAP_GONE_KEY - 1 ? id : 1;
}

bool store_frame_has_address(const struct profile_frame *f)
{
	return f->function == PROFILE_NONE || f->kind == FRAME_NATIVE || f->kind == FRAME_UNKNOWN;
}

u64 store_function_id(const struct store_function_key *k)
{
	return store_id(k, sizeof(*k));
}

u64 store_frame_id(const struct store_frame_key *k)
{
	return store_id(k, sizeof(*k));
}

u64 store_stack_id(const u64 *frames, size_t n)
{
	u64 parts[] = {n ? hash_bytes(frames, n * sizeof(*frames)) : 0, n};

	return store_id(parts, sizeof(parts));
}

static u64 string_hash(const struct profile *p, u32 id)
{
	return id < p->strings.n ? hash_bytes(strtab_get(&p->strings, id), p->strings.lengths[id])
				 : hash_bytes("", 0);
}

/* ---- ids ---- */

static int hash_strings(const struct profile *p, u64 **ret)
{
	u64 *hashes = calloc(p->strings.n + 1, sizeof(*hashes));

	if (!hashes)
		return -ENOMEM;
	for (u32 i = 0; i < p->strings.n; i++)
		hashes[i] = string_hash(p, i);
	*ret = hashes;
	return 0;
}

static void hash_functions(struct store_batch *b, const u64 *strings)
{
	const struct profile *p = b->profile;

	for (size_t i = 0; i < p->functions.n; i++) {
		const struct profile_function *f = &p->functions.data[i];
		struct store_function_key k = {.name = strings[f->name],
					       .system_name = strings[f->system_name],
					       .file = strings[f->file],
					       .start_line = f->start_line};

		b->functions[i] = store_function_id(&k);
	}
}

static void hash_frames(struct store_batch *b, const u64 *strings)
{
	const struct profile *p = b->profile;

	for (size_t i = 0; i < p->frames.n; i++) {
		const struct profile_frame *f = &p->frames.data[i];
		struct store_frame_key k = {
			.line = f->line, .column = f->column, .kind = f->kind, .flags = f->flags};

		if (f->mapping != PROFILE_NONE) {
			k.path = strings[p->mappings.data[f->mapping].path];
			k.build_id = strings[p->mappings.data[f->mapping].build_id];
		}
		if (f->function != PROFILE_NONE)
			k.function = b->functions[f->function];
		if (store_frame_has_address(f))
			k.address = f->address;
		b->frames[i] = store_frame_id(&k);
	}
}

static int hash_stacks(struct store_batch *b)
{
	const struct profile *p = b->profile;
	vec(u64) ids = {};
	int r = 0;

	for (size_t i = 0; i < p->stacks.n && r == 0; i++) {
		const struct profile_stack *s = &p->stacks.data[i];

		vec_clear(&ids);
		r = quota_check(NULL);
		if (r == 0)
			r = vec_reserve(&ids, s->n);
		if (r < 0)
			break;
		for (u32 j = 0; j < s->n; j++)
			ids.data[j] = b->frames[p->stack_frames.data[s->first + j]];
		b->stacks[i] = store_stack_id(ids.data, s->n);
	}
	vec_deinit(&ids);
	return r;
}

/* ---- series ---- */

static u32 label_id(const struct profile *p, u32 resource, const char *name)
{
	const struct profile_resource *r = &p->resources.data[resource];

	for (u32 i = 0; i < r->n; i++) {
		const struct profile_label *l = &p->labels.data[r->first + i];

		if (!strcmp(profile_string(p, l->name), name))
			return l->value;
	}
	return 0;
}

static int compare_label_names(const void *a, const void *b)
{
	const struct store_label *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/*
 * Adds a thread's attributes to n labels; they cannot replace labels. Returns how many there are.
 */
static size_t add_attributes(const struct profile *p, u32 attributes, struct store_label *ret,
			     size_t n)
{
	const struct profile_resource *r = &p->resources.data[attributes];
	size_t n_before = n;

	for (u32 i = 0; i < r->n && n < STORE_MAX_LABELS; i++) {
		const struct profile_label *l = &p->labels.data[r->first + i];
		const char *name = profile_string(p, l->name);
		bool known = !strcmp(name, STORE_SERVICE_LABEL) ||
			     !strcmp(name, STORE_THREAD_LABEL) || !l->value;

		for (size_t j = 0; j < n_before && !known; j++)
			known = !strcmp(ret[j].name, name);
		if (!known)
			ret[n++] = (struct store_label){name, profile_string(p, l->value)};
	}
	return n;
}

size_t store_series_labels(const struct profile *p, const struct store_series *s,
			   struct store_label ret[STORE_MAX_LABELS])
{
	const struct profile_resource *r = &p->resources.data[s->resource];
	bool has_service = false;
	size_t n = 0;

	for (u32 i = 0; i < r->n; i++) {
		const struct profile_label *l = &p->labels.data[r->first + i];
		const char *name = profile_string(p, l->name);

		bool service = !strcmp(name, STORE_SERVICE_LABEL);

		/* Leave room for service.name and thread.name. */
		if (!strcmp(name, STORE_THREAD_LABEL) || (!service && n >= STORE_MAX_LABELS - 2))
			continue;
		has_service |= service;
		ret[n++] = (struct store_label){name, profile_string(p, l->value)};
	}
	if (!has_service && s->service)
		ret[n++] = (struct store_label){STORE_SERVICE_LABEL, profile_string(p, s->service)};
	if (s->thread_name)
		ret[n++] =
			(struct store_label){STORE_THREAD_LABEL, profile_string(p, s->thread_name)};
	n = add_attributes(p, s->attributes, ret, n);
	qsort(ret, n, sizeof(*ret), compare_label_names);
	return n;
}

u64 store_series_id(const struct store_label *labels, size_t n)
{
	u64 hashes[2 * STORE_MAX_LABELS];

	for (size_t i = 0; i < n; i++) {
		hashes[2 * i] = hash_bytes(labels[i].name, strlen(labels[i].name));
		hashes[2 * i + 1] = hash_bytes(labels[i].value, strlen(labels[i].value));
	}
	return n ? store_id(hashes, 2 * n * sizeof(*hashes)) : 1;
}

/* The position of a thread's series; adds a new series. */
static int series_of(struct store_batch *b, struct map *known, const struct profile_thread *t,
		     u32 *ret)
{
	struct store_label labels[STORE_MAX_LABELS];
	struct store_series s = {};
	u64 *at;
	int r;

	if (t) {
		s.resource = t->resource;
		s.service = label_id(b->profile, t->resource, STORE_SERVICE_LABEL);
		s.thread_name = label_id(b->profile, t->resource, STORE_THREAD_LABEL);
		if (!s.service)
			s.service = t->comm;
		if (t->thread_name)
			s.thread_name = t->thread_name;
		/*
		 * Each set of attributes is a series: senders with ids in attributes would make
		 * millions.
		 */
		if (b->series.n < MAX_ATTRIBUTED)
			s.attributes = t->attributes;
	}
	s.id = store_series_id(labels, store_series_labels(b->profile, &s, labels));
	at = map_get(known, s.id);
	if (at) {
		*ret = (u32)*at;
		return 0;
	}
	r = map_put(known, s.id, b->series.n);
	if (r == 0)
		r = vec_push(&b->series, s);
	*ret = (u32)b->series.n - 1;
	return r;
}

/* ret: series by thread id, and at the end the series of samples without a thread. */
static int make_series(struct store_batch *b, u32 **ret)
{
	const struct profile *p = b->profile;
	_cleanup_free_ u32 *series = calloc(p->threads.n + 1, sizeof(*series));
	struct map known = {};
	int r = series ? 0 : -ENOMEM;
	bool alone = false;

	for (size_t i = 0; i < p->n_samples && !alone; i++)
		alone = profile_sample(p, i)->thread == PROFILE_NONE;
	for (size_t i = 0; i < p->threads.n && r == 0; i++) {
		r = quota_check(NULL);
		if (r == 0)
			r = series_of(b, &known, &p->threads.data[i], &series[i]);
	}
	if (r == 0 && alone)
		r = series_of(b, &known, NULL, &series[p->threads.n]);
	map_deinit(&known);
	if (r == 0)
		*ret = take_ptr(series);
	return r;
}

/* ---- types ---- */

/*
 * The first part of a type's name. Counts of samples belong to what the profile measures: for page
 * faults the counts are in "page_faults", as the number of faults is.
 */
static const char *group_of_type(const struct profile *p, u32 t)
{
	struct vocab_value_type types[PROFILE_MAX_TYPES + 1];
	const char *period = profile_string(p, p->period_name);
	size_t n = 0;

	if (p->types[t].group)
		return profile_string(p, p->types[t].group);
	/* Where several groups have a type of the name, the period tells which is meant. */
	if (vocab_find_sample_type(period, profile_string(p, p->types[t].name),
				   profile_string(p, p->types[t].unit)) < SAMPLE_TYPE_N)
		return period;
	types[n++] = (struct vocab_value_type){profile_string(p, p->types[t].name),
					       profile_string(p, p->types[t].unit)};
	if (strcmp(types[0].name, vocab_sample_type(SAMPLE_TYPE_SAMPLES)->name) != 0)
		return vocab_profile_group(types, n);
	types[0] = (struct vocab_value_type){profile_string(p, p->period_name),
					     profile_string(p, p->period_unit)};
	for (u32 i = 0; i < p->n_types; i++)
		types[n++] = (struct vocab_value_type){profile_string(p, p->types[i].name),
						       profile_string(p, p->types[i].unit)};
	return vocab_profile_group(types, n);
}

static int make_type(struct store_batch *b, u32 t, const char *name, struct diag *reterr_diag)
{
	const struct profile *p = b->profile;
	const struct profile_type *type = &p->types[t];
	const char *part[5] = {
		name && *name ? name : group_of_type(p, t),
		profile_string(p, type->name),
		profile_string(p, type->unit),
		profile_string(p, type->period_name ? type->period_name : p->period_name),
		profile_string(p, type->period_name ? type->period_unit : p->period_unit),
	};
	char *out = b->types[t];
	size_t n = 0;

	if (!*part[3]) {
		part[3] = part[1];
		part[4] = part[2];
	}
	for (size_t i = 0; i < ARRAY_SIZE(part); i++) {
		size_t length = strlen(part[i]);

		if (n + length + 1 >= STORE_TYPE_BYTES)
			return diag_set(reterr_diag, -EINVAL, "the type's name is too long: %.80s",
					part[i]);
		/* A colon in a name would make another type of it. */
		for (size_t j = 0; j < length; j++)
			out[n++] = part[i][j] == ':' ? '_' : part[i][j];
		out[n++] = i + 1 < ARRAY_SIZE(part) ? ':' : '\0';
	}
	return 0;
}

struct gather {
	struct store_batch *b;
	const u32 *series;
	u32 counted;		       /* type that counts samples, or PROFILE_NONE */
	bool state[PROFILE_MAX_TYPES]; /* by type: store_type_is_state() */
	vec(struct sort_key) keys;
	vec(struct store_sample) samples;
};

static u32 count_of(const struct gather *g, const struct profile_sample *s, u32 type)
{
	const struct profile *p = g->b->profile;
	u32 counted = g->counted;
	s64 count = 1;

	if (g->state[type])
		return 1;
	if (counted != PROFILE_NONE)
		count = s->value[counted];
	else if (p->period > 0 && p->types[type].name == p->period_name)
		count = s->value[type] / p->period;
	return count < 1 ? 1 : (u32)MIN(count, (s64)UINT32_MAX);
}

/* ---- samples ---- */

static int take_link(struct store_batch *b, const struct profile_sample *s,
		     const struct store_sample *e)
{
	struct store_link l = {.link = b->profile->links.data[s->link],
			       .series = b->series.data[e->series].id,
			       .stack = b->stacks[e->stack],
			       .time_ms = e->time_ms,
			       .count = e->count,
			       .value = e->value};
	const char *service = profile_string(b->profile, b->series.data[e->series].service);
	int r = b->links.profile ? 0 : store_links_init(&b->links);

	if (r == 0)
		r = profile_add_string(b->links.profile, service, strlen(service), &l.service);
	if (r == 0)
		r = profile_add_string(b->links.profile, b->types[e->type],
				       strlen(b->types[e->type]), &l.type);
	return r < 0 ? r : vec_push(&b->links.links, l);
}

static int take_sample(struct gather *g, const struct profile_sample *s)
{
	const struct profile *p = g->b->profile;
	u64 time_ms = (s->time_ns ? s->time_ns : p->time_ns) / 1000000;
	u32 at = g->series[s->thread == PROFILE_NONE ? p->threads.n : s->thread];

	if (time_ms >= MAX_TIME_MS)
		return -ERANGE;
	for (u32 t = 0; t < p->n_types; t++) {
		struct store_sample e = {.type = t,
					 .series = at,
					 .stack = s->stack,
					 .time_ms = time_ms,
					 .value = s->value[t]};
		struct sort_key k = {
			.a = (u64)g->b->series.data[at].service << 26 | (u64)t << 21 |
			     time_ms / BLOCK_HOUR_MS,
			.b = (u64)s->stack << 32 | at,
			.c = (u32)(time_ms % BLOCK_HOUR_MS),
			.index = (u32)g->samples.n,
		};

		if (!e.value)
			continue;
		e.count = count_of(g, s, t);
		if (vec_push(&g->samples, e) < 0 || vec_push(&g->keys, k) < 0 ||
		    (s->link && take_link(g->b, s, &e) < 0))
			return -ENOMEM;
	}
	return 0;
}

static bool same_place(const struct store_sample *a, const struct store_sample *b)
{
	return a->type == b->type && a->series == b->series && a->stack == b->stack &&
	       a->time_ms == b->time_ms;
}

/* Sorts the samples and adds up equal ones. */
static int order_samples(struct gather *g)
{
	struct store_batch *b = g->b;
	int r = sort_keys(g->keys.data, g->keys.n);

	if (r == 0)
		r = vec_reserve(&b->samples, g->samples.n);
	if (r < 0)
		return r;
	vec_foreach (&g->keys, k) {
		const struct store_sample *s = &g->samples.data[k->index];
		struct store_sample *last =
			b->samples.n ? &b->samples.data[b->samples.n - 1] : NULL;

		if (last && same_place(last, s)) {
			last->value += s->value; /* cannot overflow: profile.c, invariant 2 */
			/* The count of a state is the number of profiles with the stack. */
			if (!g->state[s->type])
				last->count =
					(u32)MIN((u64)last->count + s->count, (u64)UINT32_MAX);
		} else {
			b->samples.data[b->samples.n++] = *s;
		}
	}
	return 0;
}

static int make_samples(struct store_batch *b, const u32 *series, struct diag *reterr_diag)
{
	const struct profile *p = b->profile;
	struct gather g = {
		.b = b, .series = series, .counted = profile_find_type(p, SAMPLE_TYPE_SAMPLES)};
	int r = 0;

	for (u32 t = 0; t < p->n_types; t++)
		g.state[t] = store_type_is_state(b->types[t]);
	for (size_t i = 0; i < p->n_samples && r == 0; i++) {
		const struct profile_sample *s = profile_sample(p, i);

		r = quota_check(reterr_diag);
		if (r == 0 && !s->time_ns && !p->time_ns)
			r = diag_set(reterr_diag, -EINVAL,
				     "the profile has samples without a time");
		else if (r == 0)
			r = take_sample(&g, s);
		if (r == -ERANGE)
			diag_set(reterr_diag, -EINVAL, "the profile has a sample from after 2109");
	}
	if (r == 0)
		r = order_samples(&g);
	if (r == 0)
		store_links_order(&b->links);
	vec_deinit(&g.keys);
	vec_deinit(&g.samples);
	return r;
}

int store_batch_init(struct store_batch *ret, const struct profile *p, const char *name,
		     struct diag *reterr_diag)
{
	struct store_batch b = {.profile = p, .n_types = p->n_types};
	_cleanup_free_ u64 *strings = NULL;
	_cleanup_free_ u32 *series = NULL;
	int r = p->n_types ? 0 : diag_set(reterr_diag, -EINVAL, "the profile has no value types");

	b.functions = calloc(p->functions.n + 1, sizeof(u64));
	b.frames = calloc(p->frames.n + 1, sizeof(u64));
	b.stacks = calloc(p->stacks.n + 1, sizeof(u64));
	if (r == 0 && (!b.functions || !b.frames || !b.stacks))
		r = -ENOMEM;
	for (u32 t = 0; t < p->n_types && r == 0; t++)
		r = make_type(&b, t, name, reterr_diag);
	if (r == 0)
		r = hash_strings(p, &strings);
	if (r == 0) {
		hash_functions(&b, strings);
		hash_frames(&b, strings);
		r = hash_stacks(&b);
	}
	if (r == 0)
		r = make_series(&b, &series);
	if (r == 0)
		r = make_samples(&b, series, reterr_diag);
	if (r < 0) {
		store_batch_deinit(&b);
		return r == -ERANGE ? -EINVAL
				    : diag_set(reterr_diag, r, "cannot store the profile: %s",
					       strerror(-r));
	}
	*ret = b;
	return 0;
}

void store_batch_deinit(struct store_batch *b)
{
	free(b->functions);
	free(b->frames);
	free(b->stacks);
	vec_deinit(&b->series);
	vec_deinit(&b->samples);
	store_links_deinit(&b->links);
	*b = (struct store_batch){};
}
