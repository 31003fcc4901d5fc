/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads pprof, ours and everybody's. The bytes are foreign: every string index and id is checked
 * where it is used, and what protobuf-c allocates for them comes from an arena with a limit.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/pb.h"
#include "base/vocab.h"
#include "format/internal.h"
#include "format/pprof.h"
#include "format/pprof.pb-c.h"

/*
 * What protobuf-c may take: an empty message is 2 bytes in the file and over 60 here. Real files
 * stay under 16 bytes for each of theirs.
 */
#define MEMORY_BASE_BYTES (64ULL << 20)
#define MEMORY_PER_BYTE 16

struct location {
	u32 first, n; /* in pprof_reader.location_frames */
};

struct pprof_reader {
	const Pprof__Profile *in;
	struct profile *p; /* owned */
	struct diag *diag;
	vec(u32) strings;				    /* of the file → of the profile */
	struct map mapping_ids, function_ids, location_ids; /* of the file → index in the file */
	vec(u8) kinds;		      /* by index of mapping: enum frame_kind */
	vec(u32) mappings, functions; /* by index in the file → of the profile */
	vec(struct location) locations;
	vec(u32) location_frames;
	vec(u32) frames;  /* of the sample at hand */
	bool without_ids; /* see lacks_function_ids() */
};

static void pprof_reader_deinit(struct pprof_reader *f)
{
	profile_destroy(f->p);
	vec_deinit(&f->strings);
	map_deinit(&f->mapping_ids);
	map_deinit(&f->function_ids);
	map_deinit(&f->location_ids);
	vec_deinit(&f->kinds);
	vec_deinit(&f->mappings);
	vec_deinit(&f->functions);
	vec_deinit(&f->locations);
	vec_deinit(&f->location_frames);
	vec_deinit(&f->frames);
}

static int string(struct pprof_reader *f, s64 index, u32 *ret)
{
	if (index < 0 || (u64)index >= f->strings.n)
		return diag_set(f->diag, -EBADMSG, "pprof: no string %lld; there are %zu",
				(long long)index, f->strings.n);
	*ret = f->strings.data[index];
	return 0;
}

/* Keeps id → index; ids must be unique and not 0. */
static int put_id(struct pprof_reader *f, struct map *m, const char *what, u64 id, size_t index)
{
	if (id == 0 || id >= MAP_GONE_KEY)
		return diag_set(f->diag, -EBADMSG, "pprof: %s has the id %llu", what, id);
	if (map_get(m, id))
		return diag_set(f->diag, -EBADMSG, "pprof: two %ss have the id %llu", what, id);
	return map_put(m, id, index);
}

static int read_strings(struct pprof_reader *f)
{
	int r = 0;

	for (size_t i = 0; i < f->in->n_string_table && r == 0; i++) {
		const char *s = f->in->string_table[i];
		u32 id;

		r = profile_add_string(f->p, s, strlen(s), &id);
		if (r == 0)
			r = vec_push(&f->strings, id);
	}
	return r;
}

/* ---- comments ---- */

static const char *comment_after(const struct pprof_reader *f, size_t i, const char *prefix)
{
	s64 index = f->in->comment[i];
	const char *s;

	if (index < 0 || (u64)index >= f->in->n_string_table)
		return NULL;
	s = f->in->string_table[index];
	return str_starts(s, prefix) ? s + strlen(prefix) : NULL;
}

/* "3=kernel 5=jit" onto f->kinds. What is not understood is passed over, as all comments are. */
static void apply_kinds(struct pprof_reader *f, const char *s)
{
	while (*s) {
		unsigned long long id;
		char name[16];
		int used = 0;
		u64 *index;

		if (sscanf(s, "%llu=%15[a-z]%n", &id, name, &used) != 2 || !used)
			return;
		index = map_get(&f->mapping_ids, id);
		for (u8 k = 0; index && k < FRAME_KIND_N; k++)
			if (!strcmp(vocab_frame_kind(k)->name, name))
				f->kinds.data[*index] = k;
		s += used;
		s += strspn(s, " ");
	}
}

/* True when the file says how good it is. */
static bool read_quality(struct pprof_reader *f)
{
	for (size_t i = 0; i < f->in->n_comment; i++) {
		const char *s = comment_after(f, i, PPROF_COMMENT_QUALITY);
		struct profile_quality q = {};

		if (s && sscanf(s, PPROF_QUALITY_FORMAT, &q.samples, &q.lost, &q.truncated,
				&q.unknown, &q.frames, &q.user_stacks, &q.self) >= 6) {
			q.measured = true;
			f->p->quality = q;
			return true;
		}
	}
	return false;
}

static int read_comments(struct pprof_reader *f)
{
	int r = 0;

	for (size_t i = 0; i < f->in->n_comment && r == 0; i++) {
		const char *kinds = comment_after(f, i, PPROF_COMMENT_KINDS);
		const char *title = comment_after(f, i, PPROF_COMMENT_TITLE);

		if (kinds)
			apply_kinds(f, kinds);
		if (title)
			r = profile_add_string(f->p, title, strlen(title), &f->p->title);
	}
	return r;
}

/* ---- code ---- */

static int read_mapping(struct pprof_reader *f, size_t i)
{
	const Pprof__Mapping *in = f->in->mapping[i];
	struct profile_mapping m = {};
	u32 id;
	int r = put_id(f, &f->mapping_ids, "mapping", in->id, i);

	if (r == 0)
		r = string(f, in->filename, &m.path);
	if (r == 0)
		r = string(f, in->build_id, &m.build_id);
	if (r == 0)
		r = profile_add_mapping(f->p, &m, &id);
	if (r == 0)
		r = vec_push(&f->mappings, id);
	if (r == 0)
		r = vec_push(&f->kinds, profile_kind_of_path(profile_string(f->p, m.path)));
	return r;
}

static u32 as_u32(s64 v)
{
	return v > 0 && v <= UINT32_MAX ? (u32)v : 0;
}

/*
 * Old versions of Pyroscope's client for .NET give functions no ids. Each location has a function
 * of its own there, which lines refer to by the id of the location.
 */
static bool lacks_function_ids(const Pprof__Profile *in)
{
	for (size_t i = 0; i < in->n_function; i++)
		if (in->function[i]->id)
			return false;
	return in->n_function && in->n_function == in->n_location;
}

static int read_function(struct pprof_reader *f, size_t i)
{
	const Pprof__Function *in = f->in->function[i];
	struct profile_function fn = {.start_line = as_u32(in->start_line)};
	u32 id;
	u64 own = f->without_ids ? f->in->location[i]->id : in->id;
	int r = put_id(f, &f->function_ids, "function", own, i);

	if (r == 0)
		r = string(f, in->name, &fn.name);
	if (r == 0)
		r = string(f, in->system_name, &fn.system_name);
	if (r == 0)
		r = string(f, in->filename, &fn.file);
	if (!fn.name)
		fn.name = fn.system_name;
	if (!fn.system_name)
		fn.system_name = fn.name;
	if (r == 0)
		r = profile_add_function(f->p, &fn, &id);
	return r < 0 ? r : vec_push(&f->functions, id);
}

/*
 * Addresses in the file, as far as they can be told: others write addresses of a process, which
 * mean nothing without their mapping's start.
 */
static void file_address(const Pprof__Mapping *m, struct profile_frame *f)
{
	if (!m || !m->memory_start || f->address < m->memory_start || f->address >= m->memory_limit)
		return;
	if (m->memory_start != m->file_offset)
		f->flags |= PROFILE_FRAME_OFFSET;
	f->address = f->address - m->memory_start + m->file_offset;
}

static int read_location_frame(struct pprof_reader *f, const Pprof__Line *line,
			       struct profile_frame *frame)
{
	u64 *function;
	u32 id;
	int r;

	if (line && line->function_id) {
		function = map_get(&f->function_ids, line->function_id);
		if (!function)
			return diag_set(f->diag, -EBADMSG, "pprof: no function has the id %llu",
					(unsigned long long)line->function_id);
		frame->function = f->functions.data[*function];
		frame->line = as_u32(line->line);
		frame->column = as_u32(line->column);
	}
	r = profile_add_frame(f->p, frame, &id);
	return r < 0 ? r : vec_push(&f->location_frames, id);
}

/* Whether the mapping is no file, but tells the kind of code that has none. */
static bool is_made_up(const struct pprof_reader *f, u64 mapping)
{
	const struct profile_mapping *m = &f->p->mappings.data[f->mappings.data[mapping]];

	return profile_path_is_kind(profile_string(f->p, m->path));
}

static int read_location(struct pprof_reader *f, size_t i)
{
	const Pprof__Location *in = f->in->location[i];
	struct profile_frame base = {.mapping = PROFILE_NONE,
				     .function = PROFILE_NONE,
				     .address = in->address,
				     .kind = in->n_line ? FRAME_NATIVE : FRAME_UNKNOWN};
	struct location l = {.first = (u32)f->location_frames.n, .n = MAX((u32)in->n_line, 1u)};
	u64 *mapping = NULL;
	int r = put_id(f, &f->location_ids, "location", in->id, i);

	if (r < 0)
		return r;
	if (f->location_frames.n + in->n_line + 1 >= PROFILE_NONE)
		return -E2BIG;
	if (in->mapping_id) {
		mapping = map_get(&f->mapping_ids, in->mapping_id);
		if (!mapping)
			return diag_set(f->diag, -EBADMSG, "pprof: no mapping has the id %llu",
					(unsigned long long)in->mapping_id);
		base.kind = f->kinds.data[*mapping];
		if (base.kind == FRAME_KERNEL || !is_made_up(f, *mapping))
			base.mapping = f->mappings.data[*mapping];
		if (base.kind != FRAME_KERNEL)
			file_address(f->in->mapping[*mapping], &base);
	}
	if (!in->n_line)
		r = read_location_frame(f, NULL, &base);
	for (size_t k = 0; k < in->n_line && r == 0; k++) {
		struct profile_frame frame = base;

		frame.flags |= k + 1 < in->n_line ? PROFILE_FRAME_INLINED : 0;
		r = read_location_frame(f, in->line[k], &frame);
	}
	return r < 0 ? r : vec_push(&f->locations, l);
}

static int read_code(struct pprof_reader *f)
{
	int r = 0;

	for (size_t i = 0; i < f->in->n_mapping && r == 0; i++)
		r = read_mapping(f, i);
	if (r == 0)
		r = read_comments(f);
	f->without_ids = lacks_function_ids(f->in);
	for (size_t i = 0; i < f->in->n_function && r == 0; i++)
		r = read_function(f, i);
	for (size_t i = 0; i < f->in->n_location && r == 0; i++)
		r = read_location(f, i);
	return r;
}

/* ---- samples ---- */

bool pprof_label_is_ours(const char *key)
{
	static const char *const ours[] = {
		PPROF_LABEL_COMM,
		PPROF_LABEL_THREAD,
		PPROF_LABEL_PID,
		PPROF_LABEL_TID,
		PPROF_LABEL_TRACE,
		PPROF_LABEL_SPAN,
		/* Ids as other libraries call them. */
		"profile_id",
		"trace id",
		"span id",
		"local root span id",
	};

	for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
		if (!strcmp(key, ours[i]))
			return true;
	return false;
}

/* Other programs' labels, but for those that are numbers. */
static int read_attributes(struct pprof_reader *f, const Pprof__Sample *s, u32 *ret_id)
{
	struct profile_label labels[PROFILE_MAX_LABELS];
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; i < s->n_label && n < PROFILE_MAX_LABELS && r == 0; i++) {
		const Pprof__Label *l = s->label[i];

		r = string(f, l->key, &labels[n].name);
		if (r == 0)
			r = string(f, l->str, &labels[n].value);
		n += r == 0 && labels[n].name && labels[n].value &&
		     !pprof_label_is_ours(profile_string(f->p, labels[n].name));
	}
	return r < 0 || !n ? r : profile_add_resource(f->p, labels, n, ret_id);
}

static int read_thread(struct pprof_reader *f, const Pprof__Sample *s, u32 *ret_thread)
{
	struct profile_thread t = {};
	bool any = false;
	int r = read_attributes(f, s, &t.attributes);

	for (size_t i = 0; i < s->n_label && r == 0; i++) {
		const Pprof__Label *l = s->label[i];
		const char *key;
		u32 id = 0;

		r = string(f, l->key, &id);
		if (r < 0)
			break;
		key = profile_string(f->p, id);
		if (!strcmp(key, PPROF_LABEL_COMM))
			r = string(f, l->str, &t.comm);
		else if (!strcmp(key, PPROF_LABEL_THREAD))
			r = string(f, l->str, &t.thread_name);
		else if (!strcmp(key, PPROF_LABEL_PID))
			t.pid = as_u32(l->num);
		else if (!strcmp(key, PPROF_LABEL_TID))
			t.tid = as_u32(l->num);
	}
	if (r < 0)
		return r;
	any = t.comm || t.thread_name || t.pid || t.tid || t.attributes;
	if (!any) {
		*ret_thread = PROFILE_NONE;
		return 0;
	}
	return profile_add_thread(f->p, &t, ret_thread);
}

/* What is no id in hex is some other program's label. */
static int read_link(struct pprof_reader *f, const Pprof__Sample *s, u32 *ret_link)
{
	struct profile_link link = {};
	int r = 0;

	for (size_t i = 0; i < s->n_label && r == 0; i++) {
		const Pprof__Label *l = s->label[i];
		u32 key = 0, id = 0;
		bool is_trace;

		r = string(f, l->key, &key);
		if (r < 0)
			break;
		is_trace = !strcmp(profile_string(f->p, key), PPROF_LABEL_TRACE);
		if (!is_trace && strcmp(profile_string(f->p, key), PPROF_LABEL_SPAN) != 0)
			continue;
		r = string(f, l->str, &id);
		if (r == 0 && is_trace)
			text_unhex(profile_string(f->p, id), sizeof(link.trace_id), link.trace_id);
		else if (r == 0)
			text_unhex(profile_string(f->p, id), sizeof(link.span_id), link.span_id);
	}
	return r < 0 ? r : profile_add_link(f->p, &link, ret_link);
}

static int read_sample(struct pprof_reader *f, const Pprof__Sample *s)
{
	u32 thread, stack, link;
	int r;

	if (s->n_value != f->p->n_types)
		return diag_set(f->diag, -EBADMSG, "pprof: a sample has %zu values for %u types",
				s->n_value, f->p->n_types);
	vec_clear(&f->frames);
	for (size_t i = 0; i < s->n_location_id; i++) {
		u64 *known = map_get(&f->location_ids, s->location_id[i]);
		const struct location *l;

		if (!known)
			return diag_set(f->diag, -EBADMSG, "pprof: no location has the id %llu",
					(unsigned long long)s->location_id[i]);
		l = &f->locations.data[*known];
		if (vec_reserve(&f->frames, f->frames.n + l->n) < 0)
			return -ENOMEM;
		memcpy(f->frames.data + f->frames.n, f->location_frames.data + l->first,
		       l->n * sizeof(u32));
		f->frames.n += l->n;
	}
	r = read_thread(f, s, &thread);
	if (r == 0)
		r = read_link(f, s, &link);
	if (r == 0)
		r = profile_add_stack(f->p, f->frames.data, f->frames.n, &stack);
	if (r == 0)
		r = profile_add_linked_sample(f->p, 0, thread, stack, link, (const s64 *)s->value);
	if (r == -ERANGE)
		return diag_set(f->diag, r, "pprof: values add up to more than 63 bits");
	return r;
}

/* ---- head ---- */

static int read_type(struct pprof_reader *f, const Pprof__ValueType *t, struct profile_type *ret)
{
	int r = string(f, t->type, &ret->name);

	return r < 0 ? r : string(f, t->unit, &ret->unit);
}

static int read_head(struct pprof_reader *f)
{
	const Pprof__Profile *in = f->in;
	struct profile *p = f->p;
	struct profile_type period = {};
	int r = 0;

	if (!in->n_sample_type)
		return diag_set(f->diag, -EBADMSG, "pprof: has no sample type");
	if (in->n_sample_type > PROFILE_MAX_TYPES)
		return diag_set(f->diag, -E2BIG, "pprof: %zu sample types; at most %d can be read",
				in->n_sample_type, PROFILE_MAX_TYPES);
	for (size_t i = 0; i < in->n_sample_type && r == 0; i++) {
		r = read_type(f, in->sample_type[i], &p->types[i]);
		p->n_types++;
	}
	/* What pprof itself does: the last one, unless the file names another. */
	p->default_type = p->n_types - 1;
	for (u32 i = 0; i < p->n_types && r == 0; i++)
		if (in->default_sample_type && in->sample_type[i]->type == in->default_sample_type)
			p->default_type = i;
	if (r == 0 && in->period_type)
		r = read_type(f, in->period_type, &period);
	p->period_name = period.name;
	p->period_unit = period.unit;
	p->period = in->period;
	p->time_ns = (u64)MAX(in->time_nanos, (int64_t)0);
	p->duration_ns = (u64)MAX(in->duration_nanos, (int64_t)0);
	return r;
}

static int read_all(struct pprof_reader *f)
{
	int r = read_strings(f);

	if (r == 0)
		r = read_head(f);
	if (r == 0)
		r = read_code(f);
	for (size_t i = 0; i < f->in->n_sample && r == 0; i++)
		r = read_sample(f, f->in->sample[i]);
	if (r == 0 && !read_quality(f))
		profile_derive_quality(f->p);
	return r;
}

int pprof_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena arena =
		ARENA_INIT(MEMORY_BASE_BYTES + MEMORY_PER_BYTE * (u64)n);
	__attribute__((cleanup(pprof_reader_deinit))) struct pprof_reader f = {
		.p = profile_create(),
		.diag = reterr_diag,
	};
	ProtobufCMessage *m = NULL;
	int r;

	if (!f.p)
		return -ENOMEM;
	r = pb_unpack(&pprof__profile__descriptor, "pprof data", data, n, &arena, &m, reterr_diag);
	if (r < 0)
		return r;
	f.in = (const Pprof__Profile *)m;
	r = read_all(&f);
	if (r < 0)
		return r;
	*ret = take_ptr(f.p);
	return 0;
}

/* The fields of the top level with the types they must have, for as far as the first ones go. */
int pprof_probe(const u8 *data, size_t n)
{
	struct buf b = buf_of(data, n);
	int fields = 0;

	while (buf_left(&b) && fields < 8) {
		u64 key, value, field;

		if (!buf_uleb(&b, &key) || !buf_uleb(&b, &value))
			return 0;
		field = key >> 3;
		if (field < 1 || field > 15)
			return 0;
		if ((key & 7) == 2
			    ? (field > 6 && field != 11 && field != 13) || !buf_skip(&b, value)
			    : (key & 7) != 0 || field < 7)
			return 0;
		fields++;
	}
	return fields ? 70 : 0;
}
