/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The self-contained page: the bundle of ui/ around a payload, which doc/format/html.md describes.
 *
 * The payload is base64 of a zlib stream, so whatever a function is called, nothing in it can end
 * the element that it stands in. What is hostile in a name is dealt with where it is shown.
 *
 * Only self values are written: totals are sums of them and cannot contradict.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/json.h"
#include "base/map.h"
#include "base/str.h"
#include "base/varint.h"
#include "base/vec.h"
#include "base/vocab.h"
#include "format/hot_lines.h"
#include "format/html.h"
#include "format/html_page.h"
#include "format/internal.h"

/* A row of the frame table; interned by its bytes, so there is no padding. */
struct html_frame {
	u32 name, file, line;
	u32 mapping; /* id + 1, 0 = none */
	u32 kind, flags;
};

struct html_mapping {
	u32 path, build_id;
};

struct payload {
	const struct profile *p;
	const struct profile_tree *tree;
	struct strtab strings;
	struct strtab frames;	/* struct html_frame; id 0 is strtab's own "" */
	struct strtab mappings; /* struct html_mapping; likewise */
	struct profile_hot_lines hot;
	vec(struct profile_hot_line) lines; /* by row of `frames` */
	struct str body;
};

static void payload_deinit(struct payload *w)
{
	strtab_deinit(&w->strings);
	strtab_deinit(&w->frames);
	strtab_deinit(&w->mappings);
	profile_hot_lines_deinit(&w->hot);
	vec_deinit(&w->lines);
	str_deinit(&w->body);
}

static int put_section(struct str *body, const char *tag, const struct str *content)
{
	u64 n = content->n;
	u8 head[8];

	if (content->failed)
		return -ENOMEM;
	if (n > UINT32_MAX)
		return -EFBIG;
	memcpy(head, tag, 4);
	for (int i = 0; i < 4; i++)
		head[4 + i] = (u8)(n >> (8 * i));
	str_append(body, head, sizeof(head));
	str_append(body, content->data, content->n);
	return body->failed ? -ENOMEM : 0;
}

static int add_text(struct payload *w, const char *s, u32 *ret)
{
	return strtab_add(&w->strings, s, strlen(s), ret);
}

/* ---- the frame table ---- */

static int add_mapping(struct payload *w, u32 mapping, u32 *ret)
{
	const struct profile_mapping *m;
	struct html_mapping row;
	int r;

	if (mapping >= w->p->mappings.n)
		return 0;
	m = &w->p->mappings.data[mapping];
	if (!*profile_string(w->p, m->path))
		return 0;
	r = add_text(w, profile_string(w->p, m->path), &row.path);
	if (r == 0)
		r = add_text(w, profile_string(w->p, m->build_id), &row.build_id);
	/* Interned ids start at 1, which is what "id + 1, 0 = none" asks for. */
	return r < 0 ? r : strtab_add(&w->mappings, (const char *)&row, sizeof(row), ret);
}

/* Where the function is: its first line, else a line of it that was hit. */
static int add_place(struct payload *w, const struct profile_frame *f, struct html_frame *row)
{
	const struct profile_function *fn;
	const char *file;

	if (f->function >= w->p->functions.n)
		return 0;
	fn = &w->p->functions.data[f->function];
	file = profile_string(w->p, fn->file);
	if (!*file)
		return 0;
	if (!row->line && fn->start_line) {
		row->line = fn->start_line;
	} else if (!row->line && f->line) {
		row->line = f->line;
		row->flags |= HTML_LINE_SAMPLED;
	}
	return add_text(w, file, &row->file);
}

/* Rows get ids one after the other: that of a new row is the next line's. */
static int add_line(struct payload *w, const struct profile_node *n, u32 row)
{
	const struct profile_hot_line *hot = profile_hot_lines_of(&w->hot, w->p, n->frame);

	if (row < w->lines.n)
		return 0;
	return vec_push(&w->lines, hot ? *hot : (struct profile_hot_line){});
}

static int add_frame(struct payload *w, const struct profile_node *n, u32 *ret)
{
	struct html_frame row = {
		.line = n->line,
		.kind = n->kind < FRAME_KIND_N ? n->kind : FRAME_UNKNOWN,
		.flags = (n->flags & PROFILE_FRAME_INLINED ? HTML_INLINED : 0) |
			 (n->level != PROFILE_LEVEL_FRAME ? HTML_GROUP : 0),
	};
	u32 id;
	int r = add_text(w, strtab_get(&w->tree->strings, n->name), &row.name);

	if (r == 0 && n->frame < w->p->frames.n) {
		const struct profile_frame *f = &w->p->frames.data[n->frame];

		r = add_mapping(w, f->mapping, &row.mapping);
		if (r == 0)
			r = add_place(w, f, &row);
	}
	if (r == 0)
		r = strtab_add(&w->frames, (const char *)&row, sizeof(row), &id);
	if (r < 0)
		return r;
	*ret = id - 1;
	return add_line(w, n, id - 1);
}

static struct html_frame frame_at(const struct payload *w, u32 i)
{
	struct html_frame row;

	memcpy(&row, strtab_get(&w->frames, i + 1), sizeof(row));
	return row;
}

/* ---- sections ---- */

static int put_strings(struct payload *w)
{
	_cleanup_str_ struct str s = {};

	varint_put(&s, w->strings.n);
	for (u32 i = 0; i < w->strings.n; i++)
		varint_put(&s, w->strings.lengths[i]);
	for (u32 i = 0; i < w->strings.n; i++)
		str_append(&s, strtab_get(&w->strings, i), w->strings.lengths[i]);
	return put_section(&w->body, "STRS", &s);
}

static int put_kinds(struct payload *w)
{
	_cleanup_str_ struct str s = {};
	u32 name = 0, help = 0;
	int r;

	varint_put(&s, FRAME_KIND_N);
	for (unsigned int k = 0; k < FRAME_KIND_N; k++) {
		r = add_text(w, vocab_frame_kind(k)->name, &name);
		if (r == 0)
			r = add_text(w, vocab_frame_kind(k)->help, &help);
		if (r < 0)
			return r;
		varint_put(&s, name);
		varint_put(&s, help);
	}
	return put_section(&w->body, "KIND", &s);
}

static int put_mappings(struct payload *w)
{
	_cleanup_str_ struct str s = {};

	varint_put(&s, w->mappings.n - 1);
	for (u32 i = 1; i < w->mappings.n; i++) {
		struct html_mapping row;

		memcpy(&row, strtab_get(&w->mappings, i), sizeof(row));
		varint_put(&s, row.path);
		varint_put(&s, row.build_id);
	}
	return put_section(&w->body, "MAPS", &s);
}

/* By column: alike values stand together, which is what deflate likes. */
static int put_frames(struct payload *w)
{
	_cleanup_str_ struct str s = {};
	u32 n = (u32)w->frames.n - 1;

	varint_put(&s, n);
	for (u32 i = 0; i < n; i++)
		varint_put(&s, frame_at(w, i).name);
	for (u32 i = 0; i < n; i++)
		str_putc(&s, (char)frame_at(w, i).kind);
	for (u32 i = 0; i < n; i++)
		str_putc(&s, (char)frame_at(w, i).flags);
	for (u32 i = 0; i < n; i++)
		varint_put(&s, frame_at(w, i).file);
	for (u32 i = 0; i < n; i++)
		varint_put(&s, frame_at(w, i).line);
	for (u32 i = 0; i < n; i++)
		varint_put(&s, frame_at(w, i).mapping);
	return put_section(&w->body, "FRAM", &s);
}

/* The hot line of each frame's function; no section if no sample has a line. */
static int put_lines(struct payload *w)
{
	_cleanup_str_ struct str s = {};
	bool any = false;

	vec_foreach (&w->lines, l)
		any |= l->line != 0;
	if (!any)
		return 0;
	vec_foreach (&w->lines, l)
		varint_put(&s, l->line);
	vec_foreach (&w->lines, l)
		if (l->line)
			varint_put_signed(&s, l->value);
	vec_foreach (&w->lines, l)
		if (l->line)
			varint_put_signed(&s, l->total);
	return put_section(&w->body, "LINE", &s);
}

/* Levels that are left before each node: 0 for the first child of the node before. */
static int put_depths(const struct profile_tree *t, struct str *s)
{
	_cleanup_free_ u32 *depth = calloc(t->nodes.n + 1, sizeof(u32));

	if (!depth)
		return -ENOMEM;
	varint_put(s, 0);
	for (size_t i = 1; i < t->nodes.n; i++) {
		depth[i] = depth[t->nodes.data[i].parent] + 1;
		varint_put(s, depth[i - 1] + 1 - depth[i]);
	}
	return 0;
}

static int put_tree(struct payload *w, const u32 *frame)
{
	const struct profile_tree *t = w->tree;
	_cleanup_str_ struct str s = {};
	int r;

	varint_put(&s, t->nodes.n);
	for (size_t i = 0; i < t->nodes.n; i++)
		varint_put(&s, frame[i]);
	r = put_depths(t, &s);
	if (r < 0)
		return r;
	for (size_t i = 0; i < t->nodes.n; i++)
		varint_put_signed(&s, t->nodes.data[i].self);
	return put_section(&w->body, "TREE", &s);
}

static int put_base(struct payload *w)
{
	_cleanup_str_ struct str s = {};

	if (!w->tree->has_base)
		return 0;
	for (size_t i = 0; i < w->tree->nodes.n; i++)
		varint_put_signed(&s, w->tree->nodes.data[i].base_self);
	return put_section(&w->body, "BASE", &s);
}

/* ---- samples of waits ---- */

/* Beyond this the page has the tree only. */
#define MAX_SAMPLES 200000

static int put_text(struct payload *w, struct str *s, const char *text)
{
	u32 id = 0;
	int r = add_text(w, text, &id);

	varint_put(s, id);
	return r;
}

/* What the page's tables and lanes tell apart; the category is in the tree. */
static int put_thread(struct payload *w, u32 thread, struct str *s)
{
	static const char *const names[] = {"lock", "owner", "peer"};
	const struct profile_thread *t = &w->p->threads.data[thread];
	int r = put_text(w, s, profile_string(w->p, t->comm));

	if (r == 0)
		r = put_text(w, s, profile_string(w->p, t->thread_name));
	varint_put(s, t->pid);
	varint_put(s, t->tid);
	for (size_t i = 0; i < ARRAY_SIZE(names) && r == 0; i++) {
		const char *value = profile_label(w->p, t->attributes, names[i]);

		r = put_text(w, s, value ? value : "");
	}
	return r;
}

static const u64 *leaf_of(const struct payload *w, const struct profile_sample *e)
{
	return e->thread < w->p->threads.n
		       ? map_get(&w->tree->leaves, profile_leaf_key(e->stack, e->thread))
		       : NULL;
}

/* A server's answer has a thread for each value of a label, which tells no more than the tree. */
static bool tells_threads(const struct profile *p)
{
	for (size_t i = 0; i < p->threads.n; i++)
		if (p->threads.data[i].tid)
			return true;
	return false;
}

static int put_samples(struct payload *w)
{
	const struct profile *p = w->p;
	u32 type = p->default_type < p->n_types ? p->default_type : 0;
	_cleanup_str_ struct str s = {};
	u64 n = 0, last_us = 0;
	int r = 0;

	for (size_t i = 0; i < p->n_samples && w->tree->leaves.n; i++)
		n += leaf_of(w, profile_sample(p, i)) != NULL;
	if (!n || n > MAX_SAMPLES || w->tree->has_base)
		return 0;
	varint_put(&s, p->threads.n);
	for (u32 i = 0; i < p->threads.n && r == 0; i++)
		r = put_thread(w, i, &s);
	varint_put(&s, n);
	for (size_t i = 0; i < p->n_samples && r == 0; i++) {
		const struct profile_sample *e = profile_sample(p, i);
		const u64 *node = leaf_of(w, e);

		if (!node)
			continue;
		varint_put(&s, *node);
		varint_put(&s, e->thread);
		varint_put_signed(&s, e->value[type]);
		varint_put_signed(&s, (s64)(e->time_ns / 1000 - last_us));
		last_us = e->time_ns / 1000;
	}
	return r < 0 ? r : put_section(&w->body, "SMPL", &s);
}

static void put_quality(struct json_writer *j, const struct profile_quality *q)
{
	/* lost = 0 is known only if the recorder counted lost samples. */
	if (q->measured || q->lost)
		json_put_u64(j, "lost", q->lost);
	if (q->measured || q->truncated)
		json_put_u64(j, "truncated", q->truncated);
	if (q->samples)
		json_put_u64(j, "samples", q->samples);
	if (q->frames) {
		json_put_u64(j, "unknown", q->unknown);
		json_put_u64(j, "frames", q->frames);
	}
	if (q->user_stacks)
		json_put_u64(j, "user_stacks", q->user_stacks);
	if (q->self)
		json_put_u64(j, "self", q->self);
}

/* The names of what stands for others, on either side. */
static int add_limited(struct payload *w, const struct profile *base, u32 *ret)
{
	u32 limited = w->p->quality.limited | (base ? base->quality.limited : 0);
	_cleanup_str_ struct str s = {};

	for (size_t i = 0; i < ARRAY_SIZE(profile_stand_ins); i++)
		if (limited & 1u << i)
			str_printf(&s, "%s%s", s.n ? ", " : "", profile_stand_ins[i]);
	return s.failed ? -ENOMEM : add_text(w, str_get(&s), ret);
}

/* JSON of numbers only; texts are ids of strings. */
static int put_meta(struct payload *w, const struct profile_write_options *o)
{
	const struct profile *p = w->p;
	u32 type = p->default_type < p->n_types ? p->default_type : 0;
	u32 title = 0, generator = 0, name = 0, unit = 0, base_title = 0, limited = 0;
	_cleanup_str_ struct str s = {};
	struct json_writer j = {.out = &s};
	u64 per_second;
	int r = add_text(w, o->title ? o->title : profile_string(p, p->title), &title);

	if (r == 0)
		r = add_text(w, "culprit " CULPRIT_VERSION, &generator);
	if (r == 0 && p->n_types)
		r = add_text(w, profile_string(p, p->types[type].name), &name);
	if (r == 0 && p->n_types)
		r = add_text(w, profile_string(p, p->types[type].unit), &unit);
	if (r == 0 && o->base)
		r = add_text(w, profile_string(o->base, o->base->title), &base_title);
	if (r == 0)
		r = add_limited(w, o->base, &limited);
	if (r < 0)
		return r;
	json_open_object(&j, NULL);
	json_put_u64(&j, "title", title);
	json_put_u64(&j, "generator", generator);
	json_put_u64(&j, "type", name);
	json_put_u64(&j, "unit", unit);
	if (p->time_ns)
		json_put_u64(&j, "time_ms", p->time_ns / 1000000);
	if (p->duration_ns)
		json_put_u64(&j, "duration_ns", p->duration_ns);
	per_second = vocab_per_second(profile_string(p, p->period_unit));
	if (p->period > 0 && !strcmp(profile_string(p, p->period_name),
				     vocab_sample_type(SAMPLE_TYPE_OFF_CPU)->name))
		json_put_u64(&j, "floor_ns", (u64)p->period);
	else if (p->period > 0 && per_second)
		json_put_fixed(&j, "hz", (double)per_second / (double)p->period, 3);
	put_quality(&j, &p->quality);
	if (limited)
		json_put_u64(&j, "limited", limited);
	if (o->base) {
		json_put_u64(&j, "base_title", base_title);
		json_put_u64(&j, "base_samples", o->base->quality.samples);
		json_put_u64(&j, "normalize", o->normalize);
	}
	json_close(&j);
	return put_section(&w->body, "META", &s);
}

static int make_body(struct payload *w, const struct profile_write_options *o)
{
	size_t n = w->tree->nodes.n;
	_cleanup_free_ u32 *frame = calloc(n + 1, sizeof(u32));
	int r = frame ? 0 : -ENOMEM;

	for (size_t i = 0; i < n && r == 0; i++)
		r = add_frame(w, &w->tree->nodes.data[i], &frame[i]);
	if (r < 0)
		return r;
	str_puts(&w->body, HTML_MAGIC);
	r = put_meta(w, o);
	if (r == 0)
		r = put_kinds(w);
	if (r == 0)
		r = put_mappings(w);
	if (r == 0)
		r = put_frames(w);
	if (r == 0)
		r = put_lines(w);
	if (r == 0)
		r = put_tree(w, frame);
	if (r == 0)
		r = put_base(w);
	if (r == 0)
		r = put_samples(w);
	/* Last, because the others add to them. */
	return r < 0 ? r : put_strings(w);
}

/* ---- packing ---- */

static int put_packed(struct str *out, const struct str *body, bool base64)
{
	uLongf n = compressBound(body->n);
	_cleanup_free_ u8 *packed = malloc(n);

	if (!packed)
		return -ENOMEM;
	if (compress2(packed, &n, (const Bytef *)body->data, body->n, 6) != Z_OK)
		return -ENOMEM;
	if (base64)
		text_append_base64(out, packed, n);
	else
		str_append(out, packed, n);
	return out->failed ? -ENOMEM : 0;
}

enum pack { PACK_NOT, PACK_ZLIB, PACK_BASE64 };

static int put_payload(const struct profile *p, const struct profile_write_options *o,
		       enum pack pack, struct str *out, struct diag *reterr_diag)
{
	__attribute__((cleanup(payload_deinit))) struct payload w = {.p = p};
	_cleanup_profile_tree_ struct profile_tree *tree = NULL;
	struct profile_write_options raw = *o;
	int r;

	/* The page scales the other side itself, and back. */
	raw.normalize = false;
	raw.tree.leaves = !o->base && profile_has_waits(p) && tells_threads(p);
	r = profile_tree_for_writer(p, &raw, &tree);
	if (r < 0)
		return r;
	w.tree = tree;
	r = strtab_init(&w.strings);
	if (r == 0)
		r = strtab_init(&w.frames);
	if (r == 0)
		r = strtab_init(&w.mappings);
	if (r == 0)
		r = profile_hot_lines_build(p, &w.hot);
	if (r == 0)
		r = make_body(&w, o);
	if (r == -EFBIG)
		return diag_set(reterr_diag, r, "the call tree is too large for one page");
	if (r < 0)
		return r;
	if (pack != PACK_NOT)
		return put_packed(out, &w.body, pack == PACK_BASE64);
	str_append(out, w.body.data, w.body.n);
	return out->failed ? -ENOMEM : 0;
}

int profile_write_payload(const struct profile *p, const struct profile_write_options *o, bool zlib,
			  struct str *out, struct diag *reterr_diag)
{
	return put_payload(p, o, zlib ? PACK_ZLIB : PACK_NOT, out, reterr_diag);
}

int html_write(const struct profile *p, const struct profile_write_options *o, struct str *out,
	       struct diag *reterr_diag)
{
	int r;

	str_append(out, html_page_head, html_page_head_n);
	r = put_payload(p, o, PACK_BASE64, out, reterr_diag);
	str_append(out, html_page_tail, html_page_tail_n);
	return r < 0 ? r : out->failed ? -ENOMEM : 0;
}
