/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes pprof. The message is built in an arena and packed in one go.
 *
 * A location is an address: its own frame and, before it, the frames inlined there. Addresses are
 * those of the file (svma), so every mapping starts at 0; has_functions and its like are always
 * set, because what could not be named here must not be named by the reader from another file that
 * happens to have the same path.
 */
#include <errno.h>
#include <string.h>

#include "base/arena.h"
#include "base/vocab.h"
#include "format/internal.h"
#include "format/pprof.h"
#include "format/pprof.pb-c.h"

#define WRITE_LIMIT_BYTES (16ULL << 30)
#define PAGE 4096ULL
#define MAX_LABELS 6 /* of one sample */

struct out_mapping {
	u32 mapping;   /* of the profile, or PROFILE_NONE */
	char path[24]; /* then: of the kind, in brackets */
	u8 kind;
	u64 limit;
	u64 id; /* in the file */
};

struct pprof_writer {
	const struct profile *p;
	const struct profile_write_options *o;
	struct arena arena;
	struct strtab strings;
	struct str scratch;
	struct profile *locations; /* owned; its stacks are the locations' frames */
	vec(struct out_mapping) mappings;
	struct map mapping_ids; /* (mapping + 1) << 8 | kind → index in mappings */
	struct map functions;	/* id → 1 when used */
	vec(Pprof__Sample *) samples;
	vec(u32) frames; /* of the sample at hand, without those left out */
	Pprof__Profile out;
	bool failed; /* an allocation */
};

static void pprof_writer_deinit(struct pprof_writer *w)
{
	arena_deinit(&w->arena);
	strtab_deinit(&w->strings);
	str_deinit(&w->scratch);
	profile_destroy(w->locations);
	vec_deinit(&w->mappings);
	map_deinit(&w->mapping_ids);
	map_deinit(&w->functions);
	vec_deinit(&w->samples);
	vec_deinit(&w->frames);
}

/* Allocations that fail are remembered and looked at once per step. */
static void *get(struct pprof_writer *w, size_t n, size_t size)
{
	void *p = arena_calloc(&w->arena, n, size);

	w->failed |= !p;
	return p;
}

static s64 text(struct pprof_writer *w, const char *s)
{
	u32 id = 0;

	str_clear(&w->scratch);
	text_append_clean(&w->scratch, s, 0);
	if (w->scratch.failed ||
	    strtab_add(&w->strings, str_get(&w->scratch), w->scratch.n, &id) < 0)
		w->failed = true;
	return id;
}

static s64 string(struct pprof_writer *w, u32 id)
{
	return text(w, profile_string(w->p, id));
}

/* The id of the type's name in the file. */
static s64 type_name(struct pprof_writer *w, u32 name)
{
	return w->o->type_name ? text(w, w->o->type_name(profile_string(w->p, name)))
			       : string(w, name);
}

static Pprof__ValueType *value_type(struct pprof_writer *w, u32 name, u32 unit)
{
	Pprof__ValueType *t = get(w, 1, sizeof(*t));

	if (t) {
		pprof__value_type__init(t);
		t->type = type_name(w, name);
		t->unit = string(w, unit);
	}
	return t;
}

/* ---- mappings ---- */

static u64 mapping_key(const struct profile_frame *f)
{
	return ((u64)f->mapping + 1) << 8 | f->kind;
}

/* Frames of a kind that must survive need a mapping to say so, be it a made-up one. */
static bool needs_mapping(const struct profile_frame *f)
{
	return f->mapping != PROFILE_NONE || (f->kind != FRAME_NATIVE && f->kind != FRAME_UNKNOWN);
}

static int note_mapping(struct pprof_writer *w, const struct profile_frame *f)
{
	u64 *known = map_get(&w->mapping_ids, mapping_key(f)), limit;
	struct out_mapping m = {.mapping = f->mapping, .kind = f->kind};

	if (!needs_mapping(f))
		return 0;
	if (!known) {
		snprintf(m.path, sizeof(m.path), "[%s]", vocab_frame_kind(f->kind)->name);
		if (map_put(&w->mapping_ids, mapping_key(f), w->mappings.n) < 0 ||
		    vec_push(&w->mappings, m) < 0)
			return -ENOMEM;
		known = map_get(&w->mapping_ids, mapping_key(f));
	}
	limit = (f->address | (PAGE - 1)) == ~0ULL ? ~0ULL : (f->address | (PAGE - 1)) + 1;
	if (limit > w->mappings.data[*known].limit)
		w->mappings.data[*known].limit = limit;
	return 0;
}

static const char *mapping_path(const struct pprof_writer *w, const struct out_mapping *m)
{
	if (m->mapping < w->p->mappings.n)
		return profile_string(w->p, w->p->mappings.data[m->mapping].path);
	return m->path;
}

/* The first mapping is shown as "the" file: a program goes before libraries and the kernel. */
static int mapping_rank(const struct pprof_writer *w, const struct out_mapping *m)
{
	const char *path = mapping_path(w, m);

	if (m->kind != FRAME_NATIVE || path[0] == '[')
		return 2;
	return strstr(path, ".so") != NULL;
}

static Pprof__Mapping *make_mapping(struct pprof_writer *w, const struct out_mapping *m)
{
	Pprof__Mapping *out = get(w, 1, sizeof(*out));

	if (!out)
		return NULL;
	pprof__mapping__init(out);
	out->id = m->id;
	out->memory_limit = m->limit;
	out->filename = text(w, mapping_path(w, m));
	if (m->mapping < w->p->mappings.n)
		out->build_id = string(w, w->p->mappings.data[m->mapping].build_id);
	out->has_functions = out->has_filenames = true;
	out->has_line_numbers = out->has_inline_frames = true;
	return out;
}

static void make_mappings(struct pprof_writer *w)
{
	struct str kinds = {};
	u64 id = 0;

	w->out.mapping = get(w, w->mappings.n, sizeof(*w->out.mapping));
	for (int rank = 0; rank < 3 && !w->failed; rank++) {
		vec_foreach (&w->mappings, m) {
			if (mapping_rank(w, m) != rank)
				continue;
			m->id = ++id;
			w->out.mapping[id - 1] = make_mapping(w, m);
			if (m->kind != profile_kind_of_path(mapping_path(w, m)))
				str_printf(&kinds, " %llu=%s", id, vocab_frame_kind(m->kind)->name);
		}
	}
	w->out.n_mapping = id;
	if (kinds.n && !w->failed) {
		struct str line = {};

		str_printf(&line, PPROF_COMMENT_KINDS "%s", kinds.data + 1);
		w->out.comment[w->out.n_comment++] = text(w, str_get(&line));
		w->failed |= line.failed;
		str_deinit(&line);
	}
	w->failed |= kinds.failed;
	str_deinit(&kinds);
}

/* ---- samples ---- */

static int collect_frames(struct pprof_writer *w, const struct profile_stack *s)
{
	int r = 0;

	vec_clear(&w->frames);
	for (u32 i = 0; i < s->n && r == 0; i++) {
		u32 id = w->p->stack_frames.data[s->first + i];
		const struct profile_frame *f = &w->p->frames.data[id];

		if (profile_frame_dropped(f, &w->o->tree))
			continue;
		r = vec_push(&w->frames, id);
		if (r == 0)
			r = note_mapping(w, f);
		if (r == 0 && f->function != PROFILE_NONE)
			r = map_put(&w->functions, f->function, 1);
	}
	return r;
}

/* How many frames from `at` on are one location. */
static size_t location_length(const struct pprof_writer *w, size_t at)
{
	const struct profile_frame *first = &w->p->frames.data[w->frames.data[at]];
	size_t i = at;

	while (w->p->frames.data[w->frames.data[i]].flags & PROFILE_FRAME_INLINED) {
		const struct profile_frame *next;

		/* A line is a function: what has none is a location of its own. */
		if (i + 1 >= w->frames.n || first->function == PROFILE_NONE)
			break;
		next = &w->p->frames.data[w->frames.data[i + 1]];
		if (next->address != first->address || next->mapping != first->mapping ||
		    next->kind != first->kind || next->function == PROFILE_NONE)
			break;
		i++;
	}
	return i - at + 1;
}

static void add_label(struct pprof_writer *w, Pprof__Sample *s, const char *key, const char *str,
		      u32 num)
{
	Pprof__Label *l;

	if (!*str && !num)
		return;
	l = get(w, 1, sizeof(*l));
	if (!l)
		return;
	pprof__label__init(l);
	l->key = text(w, key);
	if (*str)
		l->str = text(w, str);
	/* A name that cleaning leaves nothing of is still somebody's. */
	if (*str && !l->str)
		l->str = text(w, "[unknown]");
	l->num = num;
	s->label[s->n_label++] = l;
}

static void add_thread(struct pprof_writer *w, Pprof__Sample *s, const struct profile_thread *t)
{
	add_label(w, s, PPROF_LABEL_COMM, profile_string(w->p, t->comm), 0);
	add_label(w, s, PPROF_LABEL_THREAD, profile_string(w->p, t->thread_name), 0);
	add_label(w, s, PPROF_LABEL_PID, "", t->pid);
	add_label(w, s, PPROF_LABEL_TID, "", t->tid);
}

static void add_attributes(struct pprof_writer *w, Pprof__Sample *s, u32 attributes)
{
	const struct profile_resource *r = &w->p->resources.data[attributes];

	for (u32 i = 0; i < r->n; i++) {
		const struct profile_label *l = &w->p->labels.data[r->first + i];
		const char *name = profile_string(w->p, l->name);

		if (*name && !pprof_label_is_ours(name))
			add_label(w, s, name, profile_string(w->p, l->value), 0);
	}
}

static void add_link(struct pprof_writer *w, Pprof__Sample *s, const struct profile_link *l)
{
	char trace[2 * sizeof(l->trace_id) + 1], span[2 * sizeof(l->span_id) + 1];

	text_hex(l->trace_id, sizeof(l->trace_id), trace);
	text_hex(l->span_id, sizeof(l->span_id), span);
	add_label(w, s, PPROF_LABEL_TRACE, trace, 0);
	add_label(w, s, PPROF_LABEL_SPAN, span, 0);
}

/* What roots are made of, if there are to be some: other attributes of a process have no place. */
static void add_roots(struct pprof_writer *w, Pprof__Sample *s, u32 resource)
{
	const struct profile_resource *r = &w->p->resources.data[resource];

	for (u32 i = 0; i < r->n && w->o->tree.roots; i++) {
		const struct profile_label *l = &w->p->labels.data[r->first + i];
		const char *name = profile_string(w->p, l->name);

		if (str_starts(name, "k8s.") || str_starts(name, "container."))
			add_label(w, s, name, profile_string(w->p, l->value), 0);
	}
}

static void add_labels(struct pprof_writer *w, Pprof__Sample *s, const struct profile_group *g)
{
	const struct profile_thread *t =
		g->thread < w->p->threads.n ? &w->p->threads.data[g->thread] : NULL;
	u32 n = t ? w->p->resources.data[t->attributes].n + w->p->resources.data[t->resource].n : 0;

	s->label = get(w, MAX_LABELS + n, sizeof(*s->label));
	if (s->label && t) {
		add_thread(w, s, t);
		add_attributes(w, s, t->attributes);
		add_roots(w, s, t->resource);
	}
	if (s->label && g->link)
		add_link(w, s, &w->p->links.data[g->link]);
}

static int add_sample(struct pprof_writer *w, const struct profile_group *g, const s64 *values)
{
	Pprof__Sample *s = get(w, 1, sizeof(*s));
	int r = collect_frames(w, &w->p->stacks.data[g->stack]);

	if (!s || r < 0)
		return -ENOMEM;
	pprof__sample__init(s);
	s->location_id = get(w, w->frames.n, sizeof(*s->location_id));
	s->value = get(w, w->p->n_types, sizeof(*s->value));
	add_labels(w, s, g);
	if (w->failed)
		return -ENOMEM;
	for (size_t i = 0; i < w->frames.n;) {
		size_t n = location_length(w, i);
		u32 id;

		r = profile_add_stack(w->locations, w->frames.data + i, n, &id);
		if (r < 0)
			return r;
		s->location_id[s->n_location_id++] = (u64)id + 1;
		i += n;
	}
	s->n_value = w->p->n_types;
	for (u32 t = 0; t < w->p->n_types; t++)
		s->value[t] = values[t];
	return vec_push(&w->samples, s);
}

static int add_samples(struct pprof_writer *w)
{
	_cleanup_groups_ struct profile_groups g = {};
	int r = profile_groups_build(w->p, true, &g);

	for (size_t i = 0; i < g.group.n && r == 0; i++)
		r = add_sample(w, &g.group.data[i], g.value.data + i * g.n_types);
	w->out.n_sample = w->samples.n;
	w->out.sample = w->samples.data;
	return r;
}

/* ---- code ---- */

static void make_functions(struct pprof_writer *w)
{
	w->out.function = get(w, w->functions.n, sizeof(*w->out.function));
	for (u32 id = 0; id < w->p->functions.n && !w->failed; id++) {
		const struct profile_function *f = &w->p->functions.data[id];
		Pprof__Function *out;

		if (!map_get(&w->functions, id))
			continue;
		out = get(w, 1, sizeof(*out));
		if (!out)
			return;
		pprof__function__init(out);
		out->id = (u64)id + 1;
		out->name = string(w, f->name);
		/* Equal names would make pprof take the name for a mangled one and cut it. */
		if (f->system_name != f->name)
			out->system_name = string(w, f->system_name);
		out->filename = string(w, f->file);
		out->start_line = f->start_line;
		w->out.function[w->out.n_function++] = out;
	}
}

static void add_line(struct pprof_writer *w, Pprof__Location *l, const struct profile_frame *f)
{
	Pprof__Line *line;

	if (f->function == PROFILE_NONE)
		return;
	line = get(w, 1, sizeof(*line));
	if (!line)
		return;
	pprof__line__init(line);
	line->function_id = (u64)f->function + 1;
	line->line = f->line;
	line->column = f->column;
	l->line[l->n_line++] = line;
}

static void make_locations(struct pprof_writer *w)
{
	size_t n = w->locations->stacks.n;

	w->out.location = get(w, n, sizeof(*w->out.location));
	for (size_t i = 0; i < n && !w->failed; i++) {
		const struct profile_stack *s = &w->locations->stacks.data[i];
		const u32 *ids = w->locations->stack_frames.data + s->first;
		const struct profile_frame *f = &w->p->frames.data[ids[0]];
		Pprof__Location *l = get(w, 1, sizeof(*l));
		u64 *mapping = map_get(&w->mapping_ids, mapping_key(f));

		if (!l)
			return;
		pprof__location__init(l);
		l->id = i + 1;
		l->mapping_id = mapping ? w->mappings.data[*mapping].id : 0;
		l->address = f->address;
		l->line = get(w, s->n, sizeof(*l->line));
		for (u32 k = 0; k < s->n && !w->failed; k++)
			add_line(w, l, &w->p->frames.data[ids[k]]);
		w->out.location[w->out.n_location++] = l;
	}
}

/* ---- head ---- */

static void make_comments(struct pprof_writer *w)
{
	const struct profile_quality *q = &w->p->quality;
	const char *title = w->o->title ? w->o->title : profile_string(w->p, w->p->title);
	struct str line = {};

	w->out.comment = get(w, 3, sizeof(*w->out.comment));
	if (w->failed)
		return;
	/* What was only derived from the samples a reader derives again. */
	if (q->measured) {
		str_printf(&line, PPROF_COMMENT_QUALITY PPROF_QUALITY_FORMAT, q->samples, q->lost,
			   q->truncated, q->unknown, q->frames, q->user_stacks, q->self);
		w->out.comment[w->out.n_comment++] = text(w, str_get(&line));
	}
	if (*title) {
		str_clear(&line);
		str_printf(&line, PPROF_COMMENT_TITLE "%s", title);
		w->out.comment[w->out.n_comment++] = text(w, str_get(&line));
	}
	w->failed |= line.failed;
	str_deinit(&line);
}

static void make_head(struct pprof_writer *w)
{
	const struct profile *p = w->p;
	u32 type = p->default_type < p->n_types ? p->default_type : 0;

	w->out.sample_type = get(w, PROFILE_MAX_TYPES, sizeof(*w->out.sample_type));
	if (w->failed)
		return;
	for (u32 i = 0; i < p->n_types; i++)
		w->out.sample_type[w->out.n_sample_type++] =
			value_type(w, p->types[i].name, p->types[i].unit);
	if (p->n_types)
		w->out.default_sample_type = type_name(w, p->types[type].name);
	w->out.time_nanos = (s64)p->time_ns;
	w->out.duration_nanos = (s64)p->duration_ns;
	if (p->period_name)
		w->out.period_type = value_type(w, p->period_name, p->period_unit);
	w->out.period = p->period;
	make_comments(w);
}

/* Last of all: by now every string is known. */
static void make_strings(struct pprof_writer *w)
{
	w->out.string_table = get(w, w->strings.n, sizeof(*w->out.string_table));
	if (w->failed)
		return;
	for (size_t i = 0; i < w->strings.n; i++)
		w->out.string_table[i] = (char *)strtab_get(&w->strings, (u32)i);
	w->out.n_string_table = w->strings.n;
}

static int pack(struct pprof_writer *w, struct str *out)
{
	size_t n = pprof__profile__get_packed_size(&w->out);
	_cleanup_free_ u8 *bytes = malloc(n ? n : 1);

	if (!bytes)
		return -ENOMEM;
	pprof__profile__pack(&w->out, bytes);
	return gzip_deflate(bytes, n, out);
}

int pprof_write(const struct profile *p, const struct profile_write_options *o, struct str *out,
		struct diag *reterr_diag)
{
	__attribute__((cleanup(pprof_writer_deinit))) struct pprof_writer w = {
		.p = p,
		.o = o,
		.arena = ARENA_INIT(WRITE_LIMIT_BYTES),
		.locations = profile_create(),
		.out = PPROF__PROFILE__INIT,
	};
	int r = strtab_init(&w.strings);

	if (o->base)
		return diag_set(reterr_diag, -ENOTSUP, "pprof cannot hold a diff");
	if (r < 0 || !w.locations)
		return -ENOMEM;
	make_head(&w);
	r = add_samples(&w);
	if (r < 0)
		return r;
	if (!w.failed)
		make_mappings(&w);
	if (!w.failed)
		make_functions(&w);
	if (!w.failed)
		make_locations(&w);
	if (!w.failed)
		make_strings(&w);
	return w.failed ? -ENOMEM : pack(&w, out);
}
