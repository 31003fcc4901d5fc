/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads OTLP profiles. The bytes are foreign: the message lies in an arena with a limit, and what
 * is made of it counts against the same limit, because a few indices can name many frames.
 *
 * A profile of the request is looked at as a whole before anything of it is kept, so that one is
 * taken or rejected and never half of it. What the dictionary holds is brought over when a sample
 * first needs it, once for each group: the profiles of one value type and period, which become
 * one.
 */
#include "otlp/otlp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "otlp/otlp_private.h"
#include "profile/internal.h"
#include "profile/pprof.h"

#define MAX_GROUPS 64	    /* distinct value types of one request */
#define MAX_TYPE_BYTES 256  /* of the name of one */
#define MAX_NAME_BYTES 4096 /* of processes and threads: the rest is cut off */
#define OLD_LAYOUT " (a sender older than opentelemetry-proto 1.10?)"

struct location {
	u32 first, n; /* in group.location_frames; n = 0: not brought over yet */
};

struct group {
	struct profile *p; /* owned */
	const char *type, *unit, *period_type, *period_unit;
	s64 period;
	u64 time_ns, end_ns;
	bool times_differ; /* of its profiles: then every sample gets a time */
	bool quality;	   /* somebody said it */
	s64 left;	   /* what values may still add up to */
	/* By index in the dictionary: id in p + 1, 0 = not brought over yet; owned. */
	u32 *strings, *mappings, *functions, *stacks;
	u8 *kinds; /* of mappings: enum frame_kind + 1 */
	struct location *locations;
	vec(u32) location_frames;
	const Otlp__Resource *resource; /* the last one, */
	u32 resource_id;		/* and what it is in p */
};

enum verdict { VERDICT_NONE, VERDICT_GOOD, VERDICT_BAD };

struct decoder {
	const Otlp__ExportProfilesServiceRequest *in;
	const Otlp__ProfilesDictionary *d;
	struct arena *arena;
	struct otlp_profiles *out;
	struct diag *diag; /* of the profile at hand */
	vec(struct group) groups;
	size_t group_bytes; /* what the tables of a group take */
	u64 used_bytes;	    /* without what the group at hand has in its profile */
	/* By index in the dictionary: enum verdict; in the arena. Nothing is looked at twice,
	 * however often it is named. */
	u8 *mapping_verdicts, *location_verdicts, *stack_verdicts;
	vec(u32) frames;
	/* Of the resource at hand. */
	const Otlp__Resource *resource;
	u32 pid;
	const char *comm;
};

static void group_deinit(struct group *g)
{
	profile_destroy(g->p);
	free(g->strings);
	free(g->mappings);
	free(g->functions);
	free(g->stacks);
	free(g->kinds);
	free(g->locations);
	vec_deinit(&g->location_frames);
}

static void decoder_deinit(struct decoder *d)
{
	vec_foreach (&d->groups, g)
		group_deinit(g);
	vec_deinit(&d->groups);
	vec_deinit(&d->frames);
}

/* ---- memory ---- */

static u64 profile_bytes(const struct profile *p)
{
	/* Arrays grow by half; an index has at most three slots of 8 bytes for an entry. */
	return p->strings.cap_bytes + p->strings.cap * 8 + p->strings.index_cap * 4 +
	       p->mappings.cap * (sizeof(struct profile_mapping) + 24) +
	       p->functions.cap * (sizeof(struct profile_function) + 24) +
	       p->frames.cap * (sizeof(struct profile_frame) + 24) +
	       p->stacks.cap * (sizeof(struct profile_stack) + 24) + p->stack_frames.cap * 4 +
	       p->threads.cap * (sizeof(struct profile_thread) + 24) +
	       p->labels.cap * sizeof(struct profile_label) +
	       p->resources.cap * (sizeof(struct profile_resource) + 24) +
	       p->cap_samples * (profile_sample_size(p) + 32);
}

static u64 group_bytes(const struct group *g)
{
	return profile_bytes(g->p) + g->location_frames.cap * sizeof(u32);
}

static int check_memory(struct decoder *d, const struct group *g, u64 more)
{
	if (d->used_bytes + group_bytes(g) + more <= d->arena->limit)
		return 0;
	return diag_set(d->diag, -E2BIG, "the request needs more than %" PRIu64 " bytes of memory",
			(uint64_t)d->arena->limit);
}

/* ---- attributes ---- */

/* NULL when there is no such string. */
static const char *string_at(const struct decoder *d, s64 index)
{
	/* What is unset may refer to a table that is not there. */
	if (index == 0 && !d->d->n_string_table)
		return "";
	return index >= 0 && (u64)index < d->d->n_string_table ? d->d->string_table[index] : NULL;
}

static const Otlp__KeyValueAndUnit *attribute_at(const struct decoder *d, s32 index)
{
	return index >= 0 && (size_t)index < d->d->n_attribute_table ? d->d->attribute_table[index]
								     : NULL;
}

/* The text of an attribute of this key, "" when it is not there or no text. Of the dictionary. */
static const char *find_text(const struct decoder *d, const s32 *indices, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++) {
		const Otlp__KeyValueAndUnit *a = attribute_at(d, indices[i]);
		const char *k = a ? string_at(d, a->key_strindex) : NULL, *v = NULL;

		if (!k || strcmp(k, key) || !a->value)
			continue;
		if (a->value->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE)
			v = a->value->string_value;
		else if (a->value->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE_STRINDEX)
			v = string_at(d, a->value->string_value_strindex);
		return v ? v : "";
	}
	return "";
}

static bool find_number(const struct decoder *d, const s32 *indices, size_t n, const char *key,
			u64 *ret)
{
	for (size_t i = 0; i < n; i++) {
		const Otlp__KeyValueAndUnit *a = attribute_at(d, indices[i]);
		const char *k = a ? string_at(d, a->key_strindex) : NULL;

		if (!k || strcmp(k, key) || !a->value ||
		    a->value->value_case != OTLP__ANY_VALUE__VALUE_INT_VALUE ||
		    a->value->int_value < 0)
			continue;
		*ret = (u64)a->value->int_value;
		return true;
	}
	return false;
}

static int add_text(struct profile *p, const char *s, u32 *ret_id)
{
	return profile_add_string(p, s, strlen(s), ret_id);
}

/* What a sample may repeat is short. */
static int add_name(struct profile *p, const char *s, u32 *ret_id)
{
	return profile_add_string(p, s, strnlen(s, MAX_NAME_BYTES), ret_id);
}

/* A string of the table, whose index is checked. */
static int add_string(struct decoder *d, struct group *g, s32 index, u32 *ret_id)
{
	u32 id;
	int r;

	if ((size_t)index >= d->d->n_string_table) {
		*ret_id = 0;
		return 0;
	}
	if (!g->strings[index]) {
		r = add_text(g->p, d->d->string_table[index], &id);
		if (r < 0)
			return r;
		g->strings[index] = id + 1;
	}
	*ret_id = g->strings[index] - 1;
	return 0;
}

/* ---- looking at a profile before it is taken ---- */

static int check_index(struct decoder *d, const char *what, s64 index, size_t n)
{
	if (index == 0 || (index > 0 && (u64)index < n))
		return 0;
	return diag_set(d->diag, -EBADMSG, "there is no %s %lld; there are %zu" OLD_LAYOUT, what,
			(long long)index, n);
}

static int check_indices(struct decoder *d, const char *what, const s32 *indices, size_t n_indices,
			 size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n_indices && r == 0; i++)
		r = check_index(d, what, indices[i], n);
	return r;
}

static int check_attributes(struct decoder *d, const s32 *indices, size_t n)
{
	int r = check_indices(d, "attribute", indices, n, d->d->n_attribute_table);

	for (size_t i = 0; i < n && r == 0; i++) {
		const Otlp__KeyValueAndUnit *a = attribute_at(d, indices[i]);

		if (a)
			r = check_index(d, "string", a->key_strindex, d->d->n_string_table);
	}
	return r;
}

static int check_function(struct decoder *d, s64 index)
{
	const Otlp__Function *f;
	int r = check_index(d, "function", index, d->d->n_function_table);

	if (r < 0 || !index)
		return r;
	f = d->d->function_table[index];
	r = check_index(d, "string", f->name_strindex, d->d->n_string_table);
	if (r == 0)
		r = check_index(d, "string", f->system_name_strindex, d->d->n_string_table);
	if (r == 0)
		r = check_index(d, "string", f->filename_strindex, d->d->n_string_table);
	return r;
}

typedef int check_fn(struct decoder *d, u32 index);

static int check_once(struct decoder *d, u8 *verdicts, const char *what, u32 index, check_fn *check)
{
	int r;

	if (verdicts[index] == VERDICT_GOOD)
		return 0;
	if (verdicts[index] == VERDICT_BAD)
		return diag_set(d->diag, -EBADMSG, "%s %u is wrong in itself", what, index);
	r = check(d, index);
	verdicts[index] = r < 0 ? VERDICT_BAD : VERDICT_GOOD;
	return r;
}

static int check_mapping(struct decoder *d, u32 index)
{
	const Otlp__Mapping *m = d->d->mapping_table[index];
	int r = check_index(d, "string", m->filename_strindex, d->d->n_string_table);

	return r < 0 ? r : check_attributes(d, m->attribute_indices, m->n_attribute_indices);
}

static int check_location(struct decoder *d, u32 index)
{
	const Otlp__Location *l = d->d->location_table[index];
	int r = check_index(d, "mapping", l->mapping_index, d->d->n_mapping_table);

	if (r == 0)
		r = check_attributes(d, l->attribute_indices, l->n_attribute_indices);
	if (r == 0 && l->mapping_index)
		r = check_once(d, d->mapping_verdicts, "mapping", (u32)l->mapping_index,
			       check_mapping);
	for (size_t i = 0; i < l->n_lines && r == 0; i++)
		r = check_function(d, l->lines[i]->function_index);
	return r;
}

static int check_stack(struct decoder *d, u32 index)
{
	const Otlp__Stack *s = d->d->stack_table[index];
	int r = check_indices(d, "location", s->location_indices, s->n_location_indices,
			      d->d->n_location_table);

	for (size_t i = 0; i < s->n_location_indices && r == 0; i++)
		if ((size_t)s->location_indices[i] < d->d->n_location_table)
			r = check_once(d, d->location_verdicts, "location",
				       (u32)s->location_indices[i], check_location);
	return r;
}

static int check_values(struct decoder *d, const Otlp__Sample *s, u64 *left)
{
	size_t n = s->n_values, times = s->n_timestamps_unix_nano;
	u64 sum = 0;

	if (!n && !times)
		return diag_set(d->diag, -EBADMSG,
				"a sample has neither values nor times" OLD_LAYOUT);
	if (n && times && n != times)
		return diag_set(d->diag, -EBADMSG, "a sample has %zu values for %zu times", n,
				times);
	if (!times && n > 1)
		return diag_set(d->diag, -EBADMSG, "a sample has %zu values and no times", n);
	for (size_t i = 0; i < n; i++) {
		u64 abs = s->values[i] < 0 ? -(u64)s->values[i] : (u64)s->values[i];

		if (__builtin_add_overflow(sum, abs, &sum))
			sum = UINT64_MAX;
	}
	if (!n)
		sum = times;
	if (sum > *left)
		return diag_set(d->diag, -ERANGE, "values add up to more than 63 bits");
	*left -= sum;
	return 0;
}

static int check_value_type(struct decoder *d, const Otlp__ValueType *t)
{
	int r = t ? check_index(d, "string", t->type_strindex, d->d->n_string_table) : 0;

	return t && r == 0 ? check_index(d, "string", t->unit_strindex, d->d->n_string_table) : r;
}

static int check_profile(struct decoder *d, const struct group *g, const Otlp__Profile *in,
			 s64 *ret_left)
{
	u64 left = (u64)g->left;
	int r = check_attributes(d, in->attribute_indices, in->n_attribute_indices);

	for (size_t i = 0; i < in->n_samples && r == 0; i++) {
		const Otlp__Sample *s = in->samples[i];

		r = check_values(d, s, &left);
		if (r == 0)
			r = check_attributes(d, s->attribute_indices, s->n_attribute_indices);
		if (r == 0)
			r = check_index(d, "link", s->link_index, d->d->n_link_table);
		if (r == 0)
			r = check_index(d, "stack", s->stack_index, d->d->n_stack_table);
		if (r == 0 && (size_t)s->stack_index < d->d->n_stack_table)
			r = check_once(d, d->stack_verdicts, "stack", (u32)s->stack_index,
				       check_stack);
	}
	if (r == 0)
		*ret_left = (s64)left;
	return r;
}

/* ---- code ---- */

static u32 as_u32(s64 v)
{
	return v > 0 && v <= UINT32_MAX ? (u32)v : 0;
}

static int take_mapping(struct decoder *d, struct group *g, u32 index)
{
	const Otlp__Mapping *in = d->d->mapping_table[index];
	static const char *const keys[] = {OTLP_BUILD_ID_GNU, OTLP_BUILD_ID_GO,
					   OTLP_BUILD_ID_HTLHASH};
	const char *path = string_at(d, in->filename_strindex), *build_id = "";
	struct profile_mapping m = {};
	u32 id;
	int r;

	if (g->mappings[index])
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(keys) && !*build_id; i++)
		build_id = find_text(d, in->attribute_indices, in->n_attribute_indices, keys[i]);
	r = add_string(d, g, in->filename_strindex, &m.path);
	if (r == 0)
		r = add_name(g->p, build_id, &m.build_id);
	if (r == 0)
		r = profile_add_mapping(g->p, &m, &id);
	if (r < 0)
		return r;
	g->mappings[index] = id + 1;
	g->kinds[index] = (u8)(pprof_kind_of_path(path) + 1);
	return 0;
}

static int take_function(struct decoder *d, struct group *g, u32 index)
{
	const Otlp__Function *in = d->d->function_table[index];
	struct profile_function f = {.start_line = as_u32(in->start_line)};
	u32 id;
	int r;

	if (g->functions[index])
		return 0;
	r = add_string(d, g, in->name_strindex, &f.name);
	if (r == 0)
		r = add_string(d, g, in->system_name_strindex, &f.system_name);
	if (r == 0)
		r = add_string(d, g, in->filename_strindex, &f.file);
	f.name = f.name ? f.name : f.system_name;
	f.system_name = f.system_name ? f.system_name : f.name;
	if (r == 0)
		r = profile_add_function(g->p, &f, &id);
	if (r == 0)
		g->functions[index] = id + 1;
	return r;
}

/* As in pprof: an address inside its mapping is one of a process and brought to the file's. */
static u64 file_address(const Otlp__Mapping *m, u8 kind, u64 address)
{
	if (kind == FRAME_KERNEL || !m->memory_start || address < m->memory_start ||
	    address >= m->memory_limit)
		return address;
	return address - m->memory_start + m->file_offset;
}

static int location_base(struct decoder *d, struct group *g, const Otlp__Location *in,
			 struct profile_frame *ret)
{
	const char *type =
		find_text(d, in->attribute_indices, in->n_attribute_indices, OTLP_FRAME_TYPE);
	u8 kind = otlp_frame_kind(type);
	struct profile_frame f = {
		.mapping = PROFILE_NONE, .function = PROFILE_NONE, .address = in->address};
	int r = 0;

	f.kind = in->n_lines || in->mapping_index ? FRAME_NATIVE : FRAME_UNKNOWN;
	if (in->mapping_index) {
		u32 index = (u32)in->mapping_index;

		r = take_mapping(d, g, index);
		if (r < 0)
			return r;
		f.mapping = g->mappings[index] - 1;
		f.kind = (u8)(g->kinds[index] - 1);
		f.address = file_address(d->d->mapping_table[index],
					 kind < FRAME_KIND_N ? kind : f.kind, in->address);
	}
	if (kind < FRAME_KIND_N)
		f.kind = kind;
	*ret = f;
	return 0;
}

static int take_location(struct decoder *d, struct group *g, u32 index)
{
	const Otlp__Location *in = d->d->location_table[index];
	struct location l = {.first = (u32)g->location_frames.n, .n = MAX((u32)in->n_lines, 1u)};
	struct profile_frame base, f;
	int r;

	if (g->locations[index].n)
		return 0;
	if (g->location_frames.n + in->n_lines + 1 >= PROFILE_NONE)
		return -E2BIG;
	r = location_base(d, g, in, &base);
	for (u32 i = 0; i < l.n && r == 0; i++) {
		const Otlp__Line *line = in->n_lines ? in->lines[i] : NULL;
		u32 id;

		f = base;
		f.flags = i + 1 < l.n ? PROFILE_FRAME_INLINED : 0;
		if (line && line->function_index) {
			r = take_function(d, g, (u32)line->function_index);
			f.function = r < 0 ? 0 : g->functions[line->function_index] - 1;
			f.line = as_u32(line->line);
			f.column = as_u32(line->column);
		}
		if (r == 0)
			r = profile_add_frame(g->p, &f, &id);
		if (r == 0)
			r = vec_push(&g->location_frames, id);
	}
	if (r == 0)
		g->locations[index] = l;
	return r;
}

static int take_stack(struct decoder *d, struct group *g, s32 index, u32 *ret_id)
{
	const Otlp__Stack *in = NULL;
	int r = 0;

	if ((size_t)index < d->d->n_stack_table) {
		if (g->stacks[index]) {
			*ret_id = g->stacks[index] - 1;
			return 0;
		}
		in = d->d->stack_table[index];
	}
	vec_clear(&d->frames);
	for (size_t i = 0; in && i < in->n_location_indices && r == 0; i++) {
		u32 location = (u32)in->location_indices[i];
		const struct location *l;

		/* Location 0 without a table: nothing is known of it. */
		if (location >= d->d->n_location_table)
			continue;
		r = take_location(d, g, location);
		if (r < 0)
			break;
		l = &g->locations[location];
		/* Here, in the profile, and as much again for growing. */
		r = check_memory(d, g, (d->frames.n + l->n) * sizeof(u32) * 3);
		if (r == 0)
			r = vec_reserve(&d->frames, d->frames.n + l->n);
		if (r < 0)
			break;
		memcpy(d->frames.data + d->frames.n, g->location_frames.data + l->first,
		       l->n * sizeof(u32));
		d->frames.n += l->n;
	}
	if (r == 0)
		r = profile_add_stack(g->p, d->frames.data, d->frames.n, ret_id);
	if (r == 0 && in)
		g->stacks[index] = *ret_id + 1;
	return r;
}

/* ---- resources and threads ---- */

/* The text of a value as a label has it; borrowed, or in `scratch`. */
static const char *value_text(const struct decoder *d, const Otlp__AnyValue *v, struct str *scratch)
{
	const char *s;

	str_clear(scratch);
	switch (v ? v->value_case : OTLP__ANY_VALUE__VALUE__NOT_SET) {
	case OTLP__ANY_VALUE__VALUE_STRING_VALUE:
		return v->string_value;
	case OTLP__ANY_VALUE__VALUE_STRING_VALUE_STRINDEX:
		s = string_at(d, v->string_value_strindex);
		return s ? s : "";
	default:
		if (v)
			otlp_any_text(v, scratch);
		return str_get(scratch);
	}
}

static const char *key_text(const struct decoder *d, const Otlp__KeyValue *kv)
{
	const char *s = kv->key;

	if (!*s && kv->key_strindex)
		s = string_at(d, kv->key_strindex);
	return s ? s : "";
}

/* What of the resource is the process and not a label. */
static void read_process(struct decoder *d, const Otlp__Resource *r)
{
	const char *comm = NULL, *executable = NULL;

	d->resource = r;
	d->pid = 0;
	for (size_t i = 0; r && i < r->n_attributes; i++) {
		const Otlp__KeyValue *kv = r->attributes[i];
		const char *key = key_text(d, kv);
		const Otlp__AnyValue *v = kv->value;
		bool is_text = v && v->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE;

		if (!strcmp(key, OTLP_PID) && v &&
		    v->value_case == OTLP__ANY_VALUE__VALUE_INT_VALUE)
			d->pid = as_u32(v->int_value);
		else if (!strcmp(key, OTLP_COMM) && is_text)
			comm = v->string_value;
		else if (!strcmp(key, OTLP_EXECUTABLE) && is_text)
			executable = v->string_value;
	}
	d->comm = comm ? comm : executable ? executable : "";
}

static bool is_label(const struct decoder *d, const Otlp__KeyValue *kv)
{
	const char *key = key_text(d, kv);

	if (!strcmp(key, OTLP_PID))
		return !d->pid;
	if (!strcmp(key, OTLP_EXECUTABLE))
		return kv->value && (kv->value->value_case != OTLP__ANY_VALUE__VALUE_STRING_VALUE ||
				     strcmp(kv->value->string_value, d->comm) != 0);
	return *key && strcmp(key, OTLP_COMM) != 0;
}

static int take_resource(struct decoder *d, struct group *g, u32 *ret_id)
{
	struct profile_label labels[PROFILE_MAX_LABELS];
	_cleanup_str_ struct str scratch = {};
	size_t n = 0;
	int r = 0;

	if (g->resource && g->resource == d->resource) {
		*ret_id = g->resource_id;
		return 0;
	}
	for (size_t i = 0; d->resource && i < d->resource->n_attributes && r == 0; i++) {
		const Otlp__KeyValue *kv = d->resource->attributes[i];

		/* As many as OpenTelemetry's own SDKs keep. */
		if (n == PROFILE_MAX_LABELS)
			break;
		if (!is_label(d, kv))
			continue;
		r = add_text(g->p, key_text(d, kv), &labels[n].name);
		if (r == 0)
			r = add_text(g->p, value_text(d, kv->value, &scratch), &labels[n].value);
		n++;
	}
	if (r == 0)
		r = profile_add_resource(g->p, labels, n, &g->resource_id);
	if (r < 0)
		return r;
	g->resource = d->resource;
	*ret_id = g->resource_id;
	return 0;
}

static int take_thread(struct decoder *d, struct group *g, u32 resource, const Otlp__Sample *s,
		       u32 *ret_id)
{
	const s32 *a = s->attribute_indices;
	size_t n = s->n_attribute_indices;
	struct profile_thread t = {.pid = d->pid, .resource = resource};
	const char *comm = d->comm;
	u64 number;
	int r;

	if (find_number(d, a, n, OTLP_THREAD_ID, &number))
		t.tid = as_u32((s64)number);
	/* Where some senders have the process. */
	if (!t.pid && find_number(d, a, n, OTLP_PID, &number))
		t.pid = as_u32((s64)number);
	if (!*comm)
		comm = find_text(d, a, n, OTLP_EXECUTABLE);
	r = add_name(g->p, comm, &t.comm);
	if (r == 0)
		r = add_name(g->p, find_text(d, a, n, OTLP_THREAD_NAME), &t.thread_name);
	if (r < 0)
		return r;
	if (!t.pid && !t.tid && !t.comm && !t.thread_name && !t.resource) {
		*ret_id = PROFILE_NONE;
		return 0;
	}
	return profile_add_thread(g->p, &t, ret_id);
}

/* ---- samples ---- */

static int take_sample(struct decoder *d, struct group *g, u32 resource, const Otlp__Profile *in,
		       const Otlp__Sample *s)
{
	u64 untimed = g->times_differ ? in->time_unix_nano : 0;
	u32 thread, stack;
	int r = take_thread(d, g, resource, s, &thread);

	if (r == 0)
		r = take_stack(d, g, s->stack_index, &stack);
	if (r == 0 && !s->n_timestamps_unix_nano) {
		s64 value = s->values[0];

		return profile_add_sample(g->p, untimed, thread, stack, &value);
	}
	for (size_t i = 0; i < s->n_timestamps_unix_nano && r == 0; i++) {
		s64 value = s->n_values ? s->values[i] : 1;

		r = profile_add_sample(g->p, s->timestamps_unix_nano[i], thread, stack, &value);
	}
	return r;
}

static void take_quality(struct decoder *d, struct group *g, const Otlp__Profile *in)
{
	static const struct otlp_quality_field fields[] = OTLP_QUALITY_FIELDS;

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		u8 *at = (u8 *)&g->p->quality + fields[i].offset;
		u64 more, v;

		if (!find_number(d, in->attribute_indices, in->n_attribute_indices, fields[i].name,
				 &more))
			continue;
		memcpy(&v, at, sizeof(v));
		if (__builtin_add_overflow(v, more, &v))
			v = UINT64_MAX;
		memcpy(at, &v, sizeof(v));
		g->p->quality.measured = true;
	}
}

static int take_profile(struct decoder *d, struct group *g, const Otlp__Profile *in)
{
	const char *title =
		find_text(d, in->attribute_indices, in->n_attribute_indices, OTLP_TITLE);
	u32 resource;
	int r;

	d->used_bytes = d->arena->used + d->groups.n * d->group_bytes;
	vec_foreach (&d->groups, other)
		d->used_bytes += other == g ? 0 : group_bytes(other);
	r = take_resource(d, g, &resource);
	for (size_t i = 0; i < in->n_samples && r == 0; i++) {
		r = take_sample(d, g, resource, in, in->samples[i]);
		if (r == 0)
			r = check_memory(d, g, 0);
	}
	if (r == 0 && *title && !g->p->title)
		r = add_text(g->p, title, &g->p->title);
	if (r == 0)
		take_quality(d, g, in);
	return r;
}

/* ---- groups ---- */

struct group_key {
	const char *type, *unit, *period_type, *period_unit;
	s64 period;
};

static int read_key(struct decoder *d, const Otlp__Profile *in, struct group_key *ret)
{
	struct group_key k = {.period_type = "", .period_unit = "", .period = in->period};
	int r = check_value_type(d, in->sample_type);

	if (r == 0)
		r = check_value_type(d, in->period_type);
	if (r < 0)
		return r;
	if (!in->sample_type || !*string_at(d, in->sample_type->type_strindex))
		return diag_set(d->diag, -EBADMSG, "a profile has no sample type" OLD_LAYOUT);
	k.type = string_at(d, in->sample_type->type_strindex);
	k.unit = string_at(d, in->sample_type->unit_strindex);
	if (in->period_type) {
		k.period_type = string_at(d, in->period_type->type_strindex);
		k.period_unit = string_at(d, in->period_type->unit_strindex);
	}
	if (strnlen(k.type, MAX_TYPE_BYTES + 1) > MAX_TYPE_BYTES ||
	    strnlen(k.unit, MAX_TYPE_BYTES + 1) > MAX_TYPE_BYTES ||
	    strnlen(k.period_type, MAX_TYPE_BYTES + 1) > MAX_TYPE_BYTES ||
	    strnlen(k.period_unit, MAX_TYPE_BYTES + 1) > MAX_TYPE_BYTES)
		return diag_set(d->diag, -EBADMSG, "a sample type's name is longer than %d bytes",
				MAX_TYPE_BYTES);
	*ret = k;
	return 0;
}

static int init_group(struct decoder *d, struct group *g, const struct group_key *k)
{
	const Otlp__ProfilesDictionary *t = d->d;
	struct profile *p = g->p = profile_create();
	int r;

	g->type = k->type;
	g->unit = k->unit;
	g->period_type = k->period_type;
	g->period_unit = k->period_unit;
	g->period = k->period;
	g->left = INT64_MAX;
	g->strings = calloc(t->n_string_table + 1, sizeof(u32));
	g->mappings = calloc(t->n_mapping_table + 1, sizeof(u32));
	g->functions = calloc(t->n_function_table + 1, sizeof(u32));
	g->stacks = calloc(t->n_stack_table + 1, sizeof(u32));
	g->kinds = calloc(t->n_mapping_table + 1, 1);
	g->locations = calloc(t->n_location_table + 1, sizeof(struct location));
	if (!p || !g->strings || !g->mappings || !g->functions || !g->stacks || !g->kinds ||
	    !g->locations)
		return -ENOMEM;
	r = profile_add_type(p, k->type, k->unit);
	if (r == 0)
		r = add_text(p, k->period_type, &p->period_name);
	if (r == 0)
		r = add_text(p, k->period_unit, &p->period_unit);
	p->period = k->period;
	return r;
}

static struct group *find_group(struct decoder *d, const struct group_key *k)
{
	vec_foreach (&d->groups, g)
		if (!strcmp(g->type, k->type) && !strcmp(g->unit, k->unit) &&
		    !strcmp(g->period_type, k->period_type) &&
		    !strcmp(g->period_unit, k->period_unit) && g->period == k->period)
			return g;
	return NULL;
}

static int get_group(struct decoder *d, const Otlp__Profile *in, struct group **ret)
{
	struct group_key k;
	struct group *g;
	int r = read_key(d, in, &k);

	if (r < 0)
		return r;
	g = find_group(d, &k);
	if (!g) {
		if (d->groups.n == MAX_GROUPS)
			return diag_set(d->diag, -EBADMSG,
					"more than %d value types in one request", MAX_GROUPS);
		if (d->arena->used + (d->groups.n + 1) * d->group_bytes > d->arena->limit)
			return -E2BIG;
		r = vec_push(&d->groups, (struct group){});
		if (r < 0)
			return r;
		g = &d->groups.data[d->groups.n - 1];
		r = init_group(d, g, &k);
		if (r < 0)
			return r;
	}
	*ret = g;
	return 0;
}

static u64 end_of(const Otlp__Profile *in)
{
	u64 end;

	return __builtin_add_overflow(in->time_unix_nano, in->duration_nano, &end) ? UINT64_MAX
										   : end;
}

/* The time of the group, before any sample is taken. */
static void note_time(struct group *g, const Otlp__Profile *in)
{
	if (!in->time_unix_nano)
		return;
	if (g->time_ns && g->time_ns != in->time_unix_nano)
		g->times_differ = true;
	if (!g->time_ns || in->time_unix_nano < g->time_ns)
		g->time_ns = in->time_unix_nano;
	g->end_ns = MAX(g->end_ns, end_of(in));
}

/* ---- the request ---- */

typedef int profile_fn(struct decoder *d, const Otlp__Profile *in);

/* An error that is the profile's own; others are the machine's and end the request. */
static bool is_own_error(int r)
{
	return r == -EBADMSG || r == -ERANGE;
}

static int first_pass(struct decoder *d, const Otlp__Profile *in)
{
	struct diag *outer = d->diag, later = {};
	struct group *g;
	int r;

	/* The second pass says what is wrong. */
	d->diag = &later;
	r = get_group(d, in, &g);
	d->diag = outer;
	if (r == 0)
		note_time(g, in);
	return is_own_error(r) ? 0 : r;
}

static int second_pass(struct decoder *d, const Otlp__Profile *in)
{
	struct diag why = {}, *outer = d->diag;
	struct group *g;
	s64 left;
	int r;

	d->diag = &why;
	r = get_group(d, in, &g);
	if (r == 0)
		r = check_profile(d, g, in, &left);
	if (r == 0) {
		g->left = left;
		r = take_profile(d, g, in);
	}
	d->diag = outer;
	if (is_own_error(r)) {
		if (!d->out->rejected++)
			d->out->why = why;
		return 0;
	}
	return r < 0 && why.text[0] ? diag_set(outer, r, "%s", why.text) : r;
}

static int each_profile(struct decoder *d, profile_fn *fn)
{
	int r = 0;

	for (size_t i = 0; i < d->in->n_resource_profiles && r == 0; i++) {
		const Otlp__ResourceProfiles *rp = d->in->resource_profiles[i];

		read_process(d, rp->resource);
		for (size_t j = 0; j < rp->n_scope_profiles && r == 0; j++)
			for (size_t k = 0; k < rp->scope_profiles[j]->n_profiles && r == 0; k++)
				r = fn(d, rp->scope_profiles[j]->profiles[k]);
	}
	return r;
}

static int hand_over(struct decoder *d)
{
	int r = vec_reserve(&d->out->profiles, d->groups.n);

	if (r < 0)
		return r;
	vec_foreach (&d->groups, g) {
		struct profile_quality *q = &g->p->quality;

		g->p->time_ns = g->time_ns;
		g->p->duration_ns = g->end_ns - g->time_ns;
		if (!q->measured)
			profile_derive_quality(g->p);
		/* A group of rejected profiles only. */
		if (!g->p->n_samples && !q->measured)
			continue;
		r = vec_push(&d->out->profiles, take_ptr(g->p));
		if (r < 0)
			return r;
	}
	return 0;
}

int otlp_decode_request(const Otlp__ExportProfilesServiceRequest *in, struct arena *arena,
			struct otlp_profiles *ret, struct diag *reterr_diag)
{
	static const Otlp__ProfilesDictionary empty = OTLP__PROFILES_DICTIONARY__INIT;
	struct otlp_profiles out = {};
	__attribute__((cleanup(decoder_deinit))) struct decoder d = {
		.in = in,
		.d = in->dictionary ? in->dictionary : &empty,
		.arena = arena,
		.out = &out,
		.diag = reterr_diag,
	};
	int r;

	d.mapping_verdicts = arena_calloc(arena, d.d->n_mapping_table + 1, 1);
	d.location_verdicts = arena_calloc(arena, d.d->n_location_table + 1, 1);
	d.stack_verdicts = arena_calloc(arena, d.d->n_stack_table + 1, 1);
	if (!d.mapping_verdicts || !d.location_verdicts || !d.stack_verdicts)
		return diag_set(reterr_diag, -E2BIG, "the request needs too much memory");
	d.group_bytes = d.d->n_string_table * 4 + d.d->n_mapping_table * 5 +
			d.d->n_function_table * 4 + d.d->n_stack_table * 4 +
			d.d->n_location_table * sizeof(struct location);
	r = each_profile(&d, first_pass);
	if (r == 0)
		r = each_profile(&d, second_pass);
	if (r == 0)
		r = hand_over(&d);
	if (r < 0) {
		otlp_profiles_deinit(&out);
		return diag_set(reterr_diag, r, "cannot read the request: %s", strerror(-r));
	}
	*ret = out;
	return 0;
}

static void *arena_alloc_cb(void *arena, size_t n)
{
	return arena_alloc(arena, n);
}

static void arena_free_cb(void *arena, void *p)
{
}

ProtobufCAllocator otlp_allocator(struct arena *arena)
{
	return (ProtobufCAllocator){arena_alloc_cb, arena_free_cb, arena};
}

int otlp_profiles_decode(const u8 *data, size_t n, size_t max_bytes, struct otlp_profiles *ret,
			 struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT(max_bytes);
	ProtobufCAllocator allocator = otlp_allocator(&arena);
	Otlp__ExportProfilesServiceRequest *in;

	in = otlp__export_profiles_service_request__unpack(&allocator, n, data);
	if (!in)
		return diag_set(reterr_diag, -EBADMSG,
				"not an OTLP profiles request" OLD_LAYOUT
				", or one that needs more than %zu bytes of memory",
				max_bytes);
	return otlp_decode_request(in, &arena, ret, reterr_diag);
}

void otlp_profiles_deinit(struct otlp_profiles *p)
{
	vec_foreach (&p->profiles, profile)
		profile_destroy(*profile);
	vec_deinit(&p->profiles);
}
