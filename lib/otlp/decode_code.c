/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies stacks from the dictionary into the profile of a group, with all that they refer to. Their
 * indices were checked before.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "otlp/decoder.h"

/* ---- strings ---- */

int otlp_add_text(struct profile *p, const char *s, u32 *ret_id)
{
	return profile_add_string(p, s, strlen(s), ret_id);
}

/* Cuts texts that a sample may repeat, because a short request could name them often. */
int otlp_add_name(struct profile *p, const char *s, u32 *ret_id)
{
	return profile_add_string(p, s, strnlen(s, OTLP_MAX_NAME_BYTES), ret_id);
}

/* Adds a string of the table; checks its index. */
static int add_string(struct otlp_decoder *d, struct otlp_group *g, s32 index, u32 *ret_id)
{
	u32 id;
	int r;

	if ((size_t)index >= d->d->n_string_table) {
		*ret_id = 0;
		return 0;
	}
	if (!g->strings[index]) {
		r = otlp_add_text(g->p, d->d->string_table[index], &id);
		if (r < 0)
			return r;
		g->strings[index] = id + 1;
	}
	*ret_id = g->strings[index] - 1;
	return 0;
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
	       p->links.cap * (sizeof(struct profile_link) + 24) +
	       p->labels.cap * sizeof(struct profile_label) +
	       p->resources.cap * (sizeof(struct profile_resource) + 24) +
	       p->cap_samples * (profile_sample_size(p) + 32);
}

u64 otlp_group_bytes(const struct otlp_group *g)
{
	return profile_bytes(g->p) + g->location_frames.cap * sizeof(u32);
}

int otlp_check_memory(struct otlp_decoder *d, const struct otlp_group *g, u64 more)
{
	if (d->used_bytes + otlp_group_bytes(g) + more <= d->arena->limit)
		return 0;
	return diag_set(d->diag, -E2BIG, "the request needs more than %" PRIu64 " bytes of memory",
			(uint64_t)d->arena->limit);
}

/* ---- code ---- */

u32 otlp_u32(s64 v)
{
	return v > 0 && v <= UINT32_MAX ? (u32)v : 0;
}

static int take_mapping(struct otlp_decoder *d, struct otlp_group *g, u32 index)
{
	const Otlp__Mapping *in = d->d->mapping_table[index];
	static const char *const keys[] = {OTLP_BUILD_ID_GNU, OTLP_BUILD_ID_GO};
	const char *path = otlp_string_at(d, in->filename_strindex), *build_id = "";
	struct profile_mapping m = {};
	char hash[96];
	u32 id;
	int r;

	if (g->mappings[index])
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(keys) && !*build_id; i++)
		build_id =
			otlp_find_text(d, in->attribute_indices, in->n_attribute_indices, keys[i]);
	if (!*build_id) {
		build_id = otlp_find_text(d, in->attribute_indices, in->n_attribute_indices,
					  OTLP_BUILD_ID_HTLHASH);
		snprintf(hash, sizeof(hash), "%s%.64s", PROFILE_HTLHASH, build_id);
		build_id = *build_id ? hash : "";
	}
	r = add_string(d, g, in->filename_strindex, &m.path);
	if (r == 0)
		r = otlp_add_name(g->p, build_id, &m.build_id);
	if (r == 0)
		r = profile_add_mapping(g->p, &m, &id);
	if (r < 0)
		return r;
	g->mappings[index] = id + 1;
	g->kinds[index] = (u8)(profile_kind_of_path(path) + 1);
	return 0;
}

#define NO_FUNCTION PROFILE_NONE /* in group.functions: nothing is left of its name */

static int take_function(struct otlp_decoder *d, struct otlp_group *g, u32 index)
{
	const Otlp__Function *in = d->d->function_table[index];
	struct profile_function f = {.start_line = otlp_u32(in->start_line)};
	_cleanup_str_ struct str name = {};
	u32 id;
	int r;

	r = add_string(d, g, in->name_strindex, &f.name);
	if (r == 0)
		r = add_string(d, g, in->system_name_strindex, &f.system_name);
	if (r == 0)
		r = add_string(d, g, in->filename_strindex, &f.file);
	f.name = f.name ? f.name : f.system_name;
	f.system_name = f.system_name ? f.system_name : f.name;
	text_append_clean(&name, profile_string(g->p, f.name), 0);
	if (r == 0 && !name.n) {
		g->functions[index] = NO_FUNCTION;
		return 0;
	}
	if (r == 0)
		r = profile_add_function(g->p, &f, &id);
	if (r == 0)
		g->functions[index] = id + 1;
	return r;
}

/* The function of a line; PROFILE_NONE if it has none. */
static int line_function(struct otlp_decoder *d, struct otlp_group *g, const Otlp__Line *line,
			 u32 *ret_id)
{
	u32 index = (u32)line->function_index;
	int r = index && !g->functions[index] ? take_function(d, g, index) : 0;

	if (r == 0)
		*ret_id = !index || g->functions[index] == NO_FUNCTION ? PROFILE_NONE
								       : g->functions[index] - 1;
	return r;
}

/* Programs that can be anywhere are put above, on x86-64 and arm64; those below are where their
 * files say. */
#define ANYWHERE_START (1ULL << 36)

/*
 * As in pprof: an address inside its mapping is one of a process and brought to the file's. Not so
 * where process and file say the same, as for a program with a fixed place, and for OpenTelemetry's
 * profiler, whose mappings begin where the file says.
 */
static void file_address(const Otlp__Mapping *m, u8 kind, struct profile_frame *f)
{
	if (kind == FRAME_KERNEL || m->memory_start < ANYWHERE_START ||
	    f->address < m->memory_start || f->address >= m->memory_limit)
		return;
	f->address = f->address - m->memory_start + m->file_offset;
	f->flags |= PROFILE_FRAME_OFFSET;
}

static int location_base(struct otlp_decoder *d, struct otlp_group *g, const Otlp__Location *in,
			 struct profile_frame *ret)
{
	const char *type =
		otlp_find_text(d, in->attribute_indices, in->n_attribute_indices, OTLP_FRAME_TYPE);
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
		file_address(d->d->mapping_table[index], kind < FRAME_KIND_N ? kind : f.kind, &f);
	}
	if (kind < FRAME_KIND_N)
		f.kind = kind;
	*ret = f;
	return 0;
}

/* Frame i of a location: inlined if it and the next one are functions. */
static int take_line(struct otlp_decoder *d, struct otlp_group *g, const Otlp__Location *in, u32 i,
		     struct profile_frame f)
{
	u32 next = PROFILE_NONE, id;
	int r = 0;

	if (i < in->n_lines)
		r = line_function(d, g, in->lines[i], &f.function);
	if (r == 0 && i + 1 < in->n_lines)
		r = line_function(d, g, in->lines[i + 1], &next);
	if (r < 0)
		return r;
	if (f.function != PROFILE_NONE) {
		f.flags |= next != PROFILE_NONE ? PROFILE_FRAME_INLINED : 0;
		f.line = otlp_u32(in->lines[i]->line);
		f.column = otlp_u32(in->lines[i]->column);
	}
	r = profile_add_frame(g->p, &f, &id);
	return r < 0 ? r : vec_push(&g->location_frames, id);
}

static int take_location(struct otlp_decoder *d, struct otlp_group *g, u32 index)
{
	const Otlp__Location *in = d->d->location_table[index];
	struct otlp_location l = {.first = (u32)g->location_frames.n,
				  .n = MAX((u32)in->n_lines, 1u)};
	struct profile_frame base;
	int r;

	if (g->locations[index].n)
		return 0;
	if (g->location_frames.n + in->n_lines + 1 >= PROFILE_NONE)
		return -E2BIG;
	r = location_base(d, g, in, &base);
	for (u32 i = 0; i < l.n && r == 0; i++)
		r = take_line(d, g, in, i, base);
	if (r == 0)
		g->locations[index] = l;
	return r;
}

int otlp_take_stack(struct otlp_decoder *d, struct otlp_group *g, s32 index, u32 *ret_id)
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
		const struct otlp_location *l;

		/* Location 0 without a table: an unknown frame. */
		if (location >= d->d->n_location_table)
			continue;
		r = take_location(d, g, location);
		if (r < 0)
			break;
		l = &g->locations[location];
		/* Here, in the profile, and as much again for growing. */
		r = otlp_check_memory(d, g, (d->frames.n + l->n) * sizeof(u32) * 3);
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
