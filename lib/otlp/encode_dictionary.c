/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dictionary of OTLP profiles. Each table is a strtab of packed entries. Equal entries have
 * equal bytes, so the strtab keeps one. The index of an entry is its id in the strtab. Entry 0 is
 * the zero value, because a strtab begins with "" and the zero value packs to no bytes. An entry is
 * made when something first refers to it, so there are no orphans.
 *
 * Texts are cleaned first, as in every writer, and then compared.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "otlp/encoder.h"

#define PAGE 4096ULL

void otlp_dict_deinit(struct otlp_dict *d)
{
	struct strtab *tabs[] = {&d->strings,	 &d->mappings, &d->locations, &d->functions,
				 &d->attributes, &d->stacks,   &d->links,     &d->places};

	for (size_t i = 0; i < ARRAY_SIZE(tabs); i++)
		strtab_deinit(tabs[i]);
	arena_deinit(&d->arena);
	free(d->limits);
	free(d->stack_ids);
	free(d->function_ids);
	free(d->mapping_ids);
	vec_deinit(&d->place_ids);
	vec_deinit(&d->location_indices);
	str_deinit(&d->text);
}

static u64 page_behind(u64 address)
{
	u64 last = address | (PAGE - 1);

	return last == ~0ULL ? last : last + 1;
}

/* Addresses are svmas: a mapping begins at 0 and ends after the highest address of any frame. */
static void measure_mappings(struct otlp_dict *d)
{
	for (size_t i = 0; i < d->p->frames.n; i++) {
		const struct profile_frame *f = &d->p->frames.data[i];

		if (f->mapping < d->p->mappings.n)
			d->limits[f->mapping] = MAX(d->limits[f->mapping], page_behind(f->address));
	}
}

int otlp_dict_init(struct otlp_dict *d)
{
	struct strtab *tabs[] = {&d->strings,	 &d->mappings, &d->locations, &d->functions,
				 &d->attributes, &d->stacks,   &d->links,     &d->places};
	const struct profile *p = d->p;

	for (size_t i = 0; i < ARRAY_SIZE(tabs); i++)
		if (strtab_init(tabs[i]) < 0)
			return -ENOMEM;
	d->limits = calloc(p->mappings.n + 1, sizeof(*d->limits));
	d->stack_ids = calloc(p->stacks.n + 1, sizeof(*d->stack_ids));
	d->function_ids = calloc(p->functions.n + 1, sizeof(*d->function_ids));
	d->mapping_ids = calloc(p->mappings.n + 1, sizeof(*d->mapping_ids));
	if (!d->limits || !d->stack_ids || !d->function_ids || !d->mapping_ids ||
	    vec_push(&d->place_ids, 0) < 0) /* of the strtab's "" */
		return -ENOMEM;
	measure_mappings(d);
	return 0;
}

void *otlp_dict_alloc(struct otlp_dict *d, size_t n, size_t size)
{
	void *p = arena_calloc(&d->arena, n, size);

	d->failed |= !p;
	return p;
}

/* The clean form of a text; borrowed until the next call. */
static const char *clean(struct otlp_dict *d, const char *s)
{
	str_clear(&d->text);
	text_append_clean(&d->text, s, 0);
	d->failed |= d->text.failed;
	return str_get(&d->text);
}

char *otlp_dict_copy(struct otlp_dict *d, const char *s)
{
	const char *text = clean(d, s);
	char *copy = otlp_dict_alloc(d, 1, strlen(text) + 1);

	if (copy)
		memcpy(copy, text, strlen(text) + 1);
	return copy;
}

s32 otlp_dict_text(struct otlp_dict *d, const char *s)
{
	const char *t = clean(d, s);
	u32 id = 0;

	d->failed |= strtab_add(&d->strings, t, strlen(t), &id) < 0;
	return (s32)id;
}

s32 otlp_dict_string(struct otlp_dict *d, u32 id)
{
	return otlp_dict_text(d, profile_string(d->p, id));
}

u32 otlp_dict_intern(struct otlp_dict *d, struct strtab *table, const ProtobufCMessage *m)
{
	size_t n = protobuf_c_message_get_packed_size(m);
	_cleanup_free_ u8 *bytes = malloc(n + 1);
	u32 id = 0;

	if (!bytes || protobuf_c_message_pack(m, bytes) != n ||
	    strtab_add(table, (const char *)bytes, n, &id) < 0)
		d->failed = true;
	return id;
}

/* ---- attributes ---- */

static s32 attribute(struct otlp_dict *d, const char *key, Otlp__AnyValue *value)
{
	Otlp__KeyValueAndUnit a = OTLP__KEY_VALUE_AND_UNIT__INIT;

	a.key_strindex = otlp_dict_text(d, key);
	a.value = value;
	return (s32)otlp_dict_intern(d, &d->attributes, &a.base);
}

s32 otlp_dict_attribute(struct otlp_dict *d, const char *key, const char *value)
{
	Otlp__AnyValue v = OTLP__ANY_VALUE__INIT;

	v.value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
	v.string_value = otlp_dict_copy(d, value);
	return v.string_value ? attribute(d, key, &v) : 0;
}

s32 otlp_dict_number(struct otlp_dict *d, const char *key, s64 value)
{
	Otlp__AnyValue v = OTLP__ANY_VALUE__INIT;

	v.value_case = OTLP__ANY_VALUE__VALUE_INT_VALUE;
	v.int_value = value;
	return attribute(d, key, &v);
}

/* ---- code ---- */

static u32 make_mapping(struct otlp_dict *d, u32 id)
{
	const struct profile_mapping *m;
	Otlp__Mapping out = OTLP__MAPPING__INIT;
	s32 attributes[1];
	const char *build_id;

	if (id >= d->p->mappings.n)
		return 0;
	if (d->mapping_ids[id])
		return d->mapping_ids[id] - 1;
	m = &d->p->mappings.data[id];
	build_id = profile_string(d->p, m->build_id);
	out.memory_limit = d->limits[id];
	out.filename_strindex = otlp_dict_string(d, m->path);
	out.attribute_indices = attributes;
	if (str_starts(build_id, PROFILE_HTLHASH))
		attributes[out.n_attribute_indices++] = otlp_dict_attribute(
			d, OTLP_BUILD_ID_HTLHASH, build_id + strlen(PROFILE_HTLHASH));
	else if (*build_id)
		attributes[out.n_attribute_indices++] =
			otlp_dict_attribute(d, OTLP_BUILD_ID_GNU, build_id);
	d->mapping_ids[id] = otlp_dict_intern(d, &d->mappings, &out.base) + 1;
	return d->mapping_ids[id] - 1;
}

static s32 make_function(struct otlp_dict *d, u32 id)
{
	const struct profile_function *f;
	Otlp__Function out = OTLP__FUNCTION__INIT;

	if (id >= d->p->functions.n)
		return 0;
	if (!d->function_ids[id]) {
		f = &d->p->functions.data[id];
		out.name_strindex = otlp_dict_string(d, f->name);
		if (f->system_name != f->name)
			out.system_name_strindex = otlp_dict_string(d, f->system_name);
		out.filename_strindex = otlp_dict_string(d, f->file);
		out.start_line = f->start_line;
		d->function_ids[id] = otlp_dict_intern(d, &d->functions, &out.base) + 1;
	}
	return (s32)d->function_ids[id] - 1;
}

static const struct profile_frame *frame_at(const struct otlp_dict *d, u32 index)
{
	return &d->p->frames.data[d->p->stack_frames.data[index]];
}

/* Whether two frames are at the same address, so that one can be inlined into the other. */
static bool same_place(const struct profile_frame *a, const struct profile_frame *b)
{
	return a->address == b->address && a->mapping == b->mapping && a->kind == b->kind;
}

/*
 * How many of the n frames that begin at `first` form one location: inlined frames and the frame
 * that holds them.
 */
static u32 location_length(struct otlp_dict *d, u32 first, u32 n)
{
	const struct profile_frame *f = frame_at(d, first);
	u32 i = 0;

	while (frame_at(d, first + i)->flags & PROFILE_FRAME_INLINED) {
		/* A Line needs a function, so a frame without one is a location by itself. */
		if (i + 1 >= n || !make_function(d, f->function))
			break;
		if (!same_place(f, frame_at(d, first + i + 1)) ||
		    !make_function(d, frame_at(d, first + i + 1)->function))
			break;
		i++;
	}
	return i + 1;
}

static s32 make_new_location(struct otlp_dict *d, u32 first, u32 n)
{
	const struct profile_frame *f = frame_at(d, first);
	Otlp__Location out = OTLP__LOCATION__INIT;
	Otlp__Line *lines = otlp_dict_alloc(d, n, sizeof(*lines));
	s32 type = otlp_dict_attribute(d, OTLP_FRAME_TYPE, otlp_frame_type(f->kind));

	out.lines = otlp_dict_alloc(d, n, sizeof(*out.lines));
	if (!lines || !out.lines)
		return 0;
	out.mapping_index = (s32)make_mapping(d, f->mapping);
	out.address = f->address;
	out.n_attribute_indices = 1;
	out.attribute_indices = &type;
	for (u32 i = 0; i < n; i++) {
		f = frame_at(d, first + i);
		otlp__line__init(&lines[i]);
		lines[i].function_index = make_function(d, f->function);
		if (!lines[i].function_index)
			continue;
		lines[i].line = f->line;
		lines[i].column = f->column;
		out.lines[out.n_lines++] = &lines[i];
	}
	return (s32)otlp_dict_intern(d, &d->locations, &out.base);
}

/* Remember packed frames: packing a frame again for each of its stacks took most of the time. */
static s32 make_location(struct otlp_dict *d, u32 first, u32 n)
{
	const u32 *frames = &d->p->stack_frames.data[first];
	u32 id = 0;
	s32 location;

	if (strtab_add(&d->places, (const char *)frames, n * sizeof(*frames), &id) < 0) {
		d->failed = true;
		return 0;
	}
	if (id < d->place_ids.n)
		return d->place_ids.data[id];
	location = make_new_location(d, first, n);
	d->failed |= vec_push(&d->place_ids, location) < 0;
	return location;
}

u32 otlp_dict_stack(struct otlp_dict *d, u32 id)
{
	const struct profile_stack *s = &d->p->stacks.data[id];
	Otlp__Stack out = OTLP__STACK__INIT;

	if (d->stack_ids[id])
		return d->stack_ids[id] - 1;
	vec_clear(&d->location_indices);
	for (u32 i = 0; i < s->n && !d->failed;) {
		u32 n = location_length(d, s->first + i, s->n - i);

		d->failed |= vec_push(&d->location_indices, make_location(d, s->first + i, n)) < 0;
		i += n;
	}
	out.n_location_indices = d->location_indices.n;
	out.location_indices = d->location_indices.data;
	d->stack_ids[id] = otlp_dict_intern(d, &d->stacks, &out.base) + 1;
	return d->stack_ids[id] - 1;
}

/* Entry 0 is the empty message, because receivers would take ids of zeros for real ids. */
u32 otlp_dict_link(struct otlp_dict *d, u32 id)
{
	const struct profile_link *l = &d->p->links.data[id];
	Otlp__Link out = OTLP__LINK__INIT;

	if (!id)
		return 0;
	out.trace_id = (ProtobufCBinaryData){sizeof(l->trace_id), (u8 *)l->trace_id};
	out.span_id = (ProtobufCBinaryData){sizeof(l->span_id), (u8 *)l->span_id};
	return otlp_dict_intern(d, &d->links, &out.base);
}

static ProtobufCBinaryData *table(struct otlp_dict *d, const struct strtab *t, size_t *ret_n)
{
	ProtobufCBinaryData *out = otlp_dict_alloc(d, t->n, sizeof(*out));

	if (!out)
		return NULL;
	for (size_t i = 0; i < t->n; i++) {
		out[i].len = t->lengths[i];
		out[i].data = (u8 *)t->bytes + t->offsets[i];
	}
	*ret_n = t->n;
	return out;
}

void otlp_dict_write(struct otlp_dict *d, Otlp__PackedDictionary *out)
{
	out->mapping_table = table(d, &d->mappings, &out->n_mapping_table);
	out->location_table = table(d, &d->locations, &out->n_location_table);
	out->function_table = table(d, &d->functions, &out->n_function_table);
	out->string_table = table(d, &d->strings, &out->n_string_table);
	out->attribute_table = table(d, &d->attributes, &out->n_attribute_table);
	out->stack_table = table(d, &d->stacks, &out->n_stack_table);
	out->link_table = table(d, &d->links, &out->n_link_table);
}
