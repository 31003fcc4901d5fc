/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a page that culprit has written (doc/format/html.md): its call tree. A page has neither the
 * times of samples nor more sample types than the one that it shows.
 */
#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/quota.h"
#include "base/varint.h"
#include "base/vec.h"
#include "base/vocab.h"
#include "format/html.h"
#include "format/internal.h"

#define READ_LIMIT_BYTES (1ULL << 30)
#define MAX_DEPTH 65536
/*
 * A tree is small, and its paths written out may be huge. Frames of all stacks together, for each
 * byte of the page's data, and what small pages may have.
 */
#define FRAMES_PER_BYTE 16
#define FRAMES_AT_LEAST (1u << 20)

struct text {
	const char *data; /* not terminated */
	size_t n;
};

/* A row of FRAM. */
struct frame_row {
	struct text name, file;
	u32 line, mapping; /* index + 1 of MAPS; 0: none */
	u8 kind, flags;
};

struct html_reader {
	struct profile *p; /* owned */
	struct diag *diag;
	struct str body;
	vec(struct text) texts;
	vec(u32) kinds;	   /* of the file → enum frame_kind */
	vec(u32) mappings; /* → the profile's */
	vec(struct frame_row) frames;
	vec(u32) ids;  /* of each row of `frames`, in the profile; PROFILE_NONE: not added yet */
	vec(u32) path; /* the current path, root first: rows of `frames` */
	vec(u32) stack;
	u64 n_frames; /* of all stacks so far */
};

static void reader_deinit(struct html_reader *f)
{
	profile_destroy(f->p);
	str_deinit(&f->body);
	vec_deinit(&f->texts);
	vec_deinit(&f->kinds);
	vec_deinit(&f->mappings);
	vec_deinit(&f->frames);
	vec_deinit(&f->ids);
	vec_deinit(&f->path);
	vec_deinit(&f->stack);
}

static int bad(const struct html_reader *f, const char *what)
{
	return diag_set(f->diag, -EBADMSG, "html: %s", what);
}

/* ---- the element ---- */

static int unpack_base64(const struct html_reader *f, const u8 *data, size_t n, struct str *out)
{
	u32 bits = 0, have = 0;

	for (size_t i = 0; i < n && data[i] != '='; i++) {
		int digit = text_base64_digit((char)data[i]);

		if (digit < 0)
			return bad(f, "its data is not base64");
		bits = bits << 6 | (u32)digit;
		have += 6;
		if (have >= 8)
			str_putc(out, (char)(bits >> (have -= 8)));
	}
	return out->failed ? -ENOMEM : 0;
}

/* The page's own script may name the element, too: the data is the last one. */
static const u8 *find_element(const u8 *data, size_t n, size_t *ret_n)
{
	const size_t open_n = strlen(HTML_ELEMENT);
	const u8 *found = NULL, *at = data, *end;

	while ((at = memmem(at, n - (size_t)(at - data), HTML_ELEMENT, open_n)))
		found = at += open_n;
	end = found ? memchr(found, '<', n - (size_t)(found - data)) : NULL;
	if (!end)
		return NULL;
	*ret_n = (size_t)(end - found);
	return found;
}

static int unpack(struct html_reader *f, const u8 *data, size_t n)
{
	_cleanup_str_ struct str packed = {};
	size_t text_n;
	const u8 *text = find_element(data, n, &text_n);
	int r = text ? unpack_base64(f, text, text_n, &packed) : bad(f, "it has no profile");

	if (r == 0)
		r = zlib_inflate((const u8 *)packed.data, packed.n, READ_LIMIT_BYTES, &f->body,
				 f->diag);
	return r;
}

/* ---- sections ---- */

static int find_section(const struct html_reader *f, const char *tag, struct buf *ret)
{
	struct buf b = buf_of(f->body.data, f->body.n), head, part;
	u32 n;

	if (!buf_take(&b, strlen(HTML_MAGIC), &head) ||
	    memcmp(head.pos, HTML_MAGIC, strlen(HTML_MAGIC)) != 0)
		return bad(f, "its data is of another version of culprit");
	while (buf_take(&b, 4, &head) && buf_u32(&b, &n) && buf_take(&b, n, &part)) {
		if (memcmp(head.pos, tag, 4) != 0)
			continue;
		*ret = part;
		return 0;
	}
	return -ENOENT;
}

static int need_section(const struct html_reader *f, const char *tag, struct buf *ret)
{
	return find_section(f, tag, ret) == 0 ? 0 : bad(f, "its data is cut off");
}

/* The number of rows; each has `least` bytes at least. */
static bool get_count(struct buf *b, u64 least, u64 *ret)
{
	return varint_get(b, ret) && *ret <= buf_left(b) / least;
}

static bool get_text(const struct html_reader *f, struct buf *b, struct text *ret)
{
	u64 i;

	if (!varint_get(b, &i) || i >= f->texts.n)
		return false;
	*ret = f->texts.data[i];
	return true;
}

static bool read_texts(struct html_reader *f, struct buf b)
{
	struct buf part;
	u64 n, bytes;

	if (!get_count(&b, 1, &n))
		return false;
	for (u64 i = 0; i < n; i++)
		if (!varint_get(&b, &bytes) || vec_push(&f->texts, (struct text){.n = bytes}) < 0)
			return false;
	vec_foreach (&f->texts, t) {
		if (!buf_take(&b, t->n, &part))
			return false;
		t->data = (const char *)part.pos;
	}
	return f->texts.n > 0;
}

static u32 kind_by_name(const struct text *t)
{
	for (u32 k = 0; k < FRAME_KIND_N; k++) {
		const char *name = vocab_frame_kind(k)->name;

		if (strlen(name) == t->n && !memcmp(name, t->data, t->n))
			return k;
	}
	return FRAME_UNKNOWN;
}

static bool read_kinds(struct html_reader *f, struct buf b)
{
	struct text name, help;
	u64 n;

	if (!get_count(&b, 2, &n))
		return false;
	for (u64 i = 0; i < n; i++)
		if (!get_text(f, &b, &name) || !get_text(f, &b, &help) ||
		    vec_push(&f->kinds, kind_by_name(&name)) < 0)
			return false;
	return true;
}

static bool read_mappings(struct html_reader *f, struct buf b)
{
	struct text path, build_id;
	u64 n;

	if (!get_count(&b, 2, &n))
		return false;
	for (u64 i = 0; i < n; i++) {
		struct profile_mapping m = {};
		u32 id;

		if (!get_text(f, &b, &path) || !get_text(f, &b, &build_id) ||
		    profile_add_string(f->p, path.data, path.n, &m.path) < 0 ||
		    profile_add_string(f->p, build_id.data, build_id.n, &m.build_id) < 0 ||
		    profile_add_mapping(f->p, &m, &id) < 0 || vec_push(&f->mappings, id) < 0)
			return false;
	}
	return true;
}

static bool read_frames(struct html_reader *f, struct buf b)
{
	u64 n;

	if (!get_count(&b, 6, &n))
		return false;
	for (u64 i = 0; i < n; i++)
		if (vec_push(&f->frames, (struct frame_row){}) < 0 ||
		    vec_push(&f->ids, PROFILE_NONE) < 0)
			return false;
	vec_foreach (&f->frames, r)
		if (!get_text(f, &b, &r->name))
			return false;
	vec_foreach (&f->frames, r) {
		if (!buf_u8(&b, &r->kind))
			return false;
		r->kind = r->kind < f->kinds.n ? (u8)f->kinds.data[r->kind] : FRAME_UNKNOWN;
	}
	vec_foreach (&f->frames, r)
		if (!buf_u8(&b, &r->flags))
			return false;
	vec_foreach (&f->frames, r)
		if (!get_text(f, &b, &r->file))
			return false;
	vec_foreach (&f->frames, r)
		if (!varint_get_u32(&b, &r->line))
			return false;
	vec_foreach (&f->frames, r)
		if (!varint_get_u32(&b, &r->mapping) || r->mapping > f->mappings.n)
			return false;
	return true;
}

static int read_tables(struct html_reader *f)
{
	static const struct {
		const char *tag;
		bool (*read)(struct html_reader *f, struct buf b);
	} tables[] = {{"STRS", read_texts},
		      {"KIND", read_kinds},
		      {"MAPS", read_mappings},
		      {"FRAM", read_frames}};
	struct buf b;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(tables) && r == 0; i++) {
		r = need_section(f, tables[i].tag, &b);
		if (r == 0 && !tables[i].read(f, b))
			r = bad(f, "its data is damaged");
	}
	return r;
}

/* ---- what the page shows ---- */

static struct text text_of(const struct html_reader *f, const json_t *meta, const char *key)
{
	json_int_t i = json_integer_value(json_object_get(meta, key));

	return i > 0 && (u64)i < f->texts.n ? f->texts.data[i] : (struct text){"", 0};
}

static u64 number_of(const json_t *meta, const char *key)
{
	double v = json_number_value(json_object_get(meta, key));

	return v > 0 && v < 0x1p63 ? (u64)v : 0;
}

static int add_type(struct html_reader *f, const json_t *meta)
{
	struct text name = text_of(f, meta, "type"), unit = text_of(f, meta, "unit");
	_cleanup_str_ struct str n = {}, u = {};

	str_append(&n, name.data, name.n);
	str_append(&u, unit.data, unit.n);
	return profile_add_type(f->p,
				n.n ? str_get(&n) : vocab_sample_type(SAMPLE_TYPE_SAMPLES)->name,
				u.n ? str_get(&u) : vocab_unit(UNIT_COUNT));
}

static int set_period(struct profile *p, double hz)
{
	const char *unit = vocab_unit(UNIT_NANOSECONDS), *name = "cpu";
	double period = (double)vocab_per_second(unit) / hz;

	if (!(hz > 0) || !(period >= 1 && period < 0x1p62))
		return 0;
	p->period = __builtin_llround(period);
	return profile_add_string(p, name, strlen(name), &p->period_name) < 0
		       ? -ENOMEM
		       : profile_add_string(p, unit, strlen(unit), &p->period_unit);
}

static int take_meta(struct html_reader *f, const json_t *meta)
{
	struct profile_quality *q = &f->p->quality;
	struct text title = text_of(f, meta, "title");
	int r = add_type(f, meta);

	f->p->time_ns = number_of(meta, "time_ms") % (UINT64_MAX / 1000000) * 1000000;
	f->p->duration_ns = number_of(meta, "duration_ns");
	*q = (struct profile_quality){
		.samples = number_of(meta, "samples"),
		.lost = number_of(meta, "lost"),
		.truncated = number_of(meta, "truncated"),
		.unknown = number_of(meta, "unknown"),
		.frames = number_of(meta, "frames"),
		.user_stacks = number_of(meta, "user_stacks"),
		.self = number_of(meta, "self"),
		.measured = json_object_get(meta, "lost") != NULL,
	};
	if (r == 0)
		r = profile_add_string(f->p, title.data, title.n, &f->p->title);
	return r < 0 ? r : set_period(f->p, json_number_value(json_object_get(meta, "hz")));
}

static int read_meta(struct html_reader *f)
{
	struct buf b;
	json_t *meta = NULL;
	int r = need_section(f, "META", &b);

	if (r == 0)
		r = json_read((const char *)b.pos, buf_left(&b), 0, &meta, f->diag);
	if (r < 0)
		return r;
	r = take_meta(f, meta);
	json_decref(meta);
	return r;
}

/* ---- the tree ---- */

static int add_function(struct html_reader *f, const struct frame_row *row,
			struct profile_frame *frame)
{
	struct profile_function fn = {};
	int r = profile_add_string(f->p, row->name.data, row->name.n, &fn.name);

	fn.system_name = fn.name;
	if (r == 0)
		r = profile_add_string(f->p, row->file.data, row->file.n, &fn.file);
	if (row->flags & HTML_LINE_SAMPLED) {
		frame->line = row->line;
		f->p->quality.one_line = true;
	} else {
		fn.start_line = row->line;
	}
	return r < 0 ? r : profile_add_function(f->p, &fn, &frame->function);
}

static int add_frame(struct html_reader *f, const struct frame_row *row, u32 *ret)
{
	static const char unknown[] = "[unknown]";
	struct profile_frame frame = {
		.mapping = row->mapping ? f->mappings.data[row->mapping - 1] : PROFILE_NONE,
		.function = PROFILE_NONE,
		.kind = row->kind,
		.flags = row->flags & HTML_INLINED ? PROFILE_FRAME_INLINED : 0};
	size_t path_n;
	int r = 0;

	if (row->mapping &&
	    profile_split_address(row->name.data, row->name.n, &path_n, &frame.address))
		;
	else if (row->name.n && (row->name.n != strlen(unknown) ||
				 memcmp(row->name.data, unknown, row->name.n) != 0))
		r = add_function(f, row, &frame);
	return r < 0 ? r : profile_add_frame(f->p, &frame, ret);
}

/* Process and thread of the current path. Returns the number of its nodes that are none. */
static int add_thread(struct html_reader *f, size_t *ret_first, u32 *ret)
{
	struct profile_thread t;
	_cleanup_str_ struct str head = {};
	struct text thread = {};
	bool has_process = false;
	size_t i = 1;
	int r;

	for (; i < f->path.n; i++) {
		const struct frame_row *row = &f->frames.data[f->path.data[i]];

		if (!(row->flags & HTML_GROUP))
			break;
		if (has_process)
			thread = row->name;
		else
			str_printf(&head, "%s%.*s", head.n ? ";" : "", (int)row->name.n,
				   row->name.data);
		has_process |= !profile_root_prefix(row->name.data, row->name.n);
	}
	*ret_first = i;
	*ret = PROFILE_NONE;
	if (!head.n)
		return 0;
	r = profile_add_head_text(f->p, head.data, head.n, ret);
	if (r < 0 || !thread.n)
		return r;
	t = f->p->threads.data[*ret];
	r = profile_add_string(f->p, thread.data, thread.n, &t.thread_name);
	return r < 0 ? r : profile_add_thread(f->p, &t, ret);
}

/* Adds the current path with a value of its own. */
static int add_path(struct html_reader *f, s64 value)
{
	u32 thread, stack;
	size_t first = 0;
	int r = quota_check(f->diag);

	f->n_frames += f->path.n;
	if (f->n_frames > FRAMES_AT_LEAST + FRAMES_PER_BYTE * (u64)f->body.n)
		return diag_set(f->diag, -EFBIG, "html: its stacks are too deep for its size");
	if (r == 0)
		r = add_thread(f, &first, &thread);
	vec_clear(&f->stack);
	for (size_t i = f->path.n; i > first && r == 0; i--) {
		u32 *id = &f->ids.data[f->path.data[i - 1]];

		if (*id == PROFILE_NONE)
			r = add_frame(f, &f->frames.data[f->path.data[i - 1]], id);
		if (r == 0)
			r = vec_push(&f->stack, *id);
	}
	if (r == 0)
		r = profile_add_stack(f->p, f->stack.data, f->stack.n, &stack);
	if (r == 0)
		r = profile_add_sample(f->p, 0, thread, stack, &value);
	return r == -ERANGE ? bad(f, "its values add up to more than 63 bits") : r;
}

static int read_tree(struct html_reader *f)
{
	struct buf rows, ups, selves;
	u64 n, skipped, up;
	s64 self;
	int r = need_section(f, "TREE", &rows);

	if (r < 0)
		return r;
	if (!get_count(&rows, 3, &n))
		return bad(f, "its tree is damaged");
	ups = rows;
	for (u64 i = 0; i < n; i++)
		if (!varint_get(&ups, &skipped))
			return bad(f, "its tree is damaged");
	selves = ups;
	for (u64 i = 0; i < n; i++)
		if (!varint_get(&selves, &skipped))
			return bad(f, "its tree is damaged");
	for (u64 i = 0; i < n && r == 0; i++) {
		u64 row;

		if (!varint_get(&rows, &row) || !varint_get(&ups, &up) ||
		    !varint_get_signed(&selves, &self) || row >= f->frames.n || up > f->path.n ||
		    f->path.n - up > MAX_DEPTH)
			return bad(f, "its tree is damaged");
		f->path.n -= up;
		r = vec_push(&f->path, (u32)row);
		if (r == 0 && self)
			r = add_path(f, self);
	}
	return r;
}

static int read_body(struct html_reader *f)
{
	struct buf base;
	int r = 0;

	if (find_section(f, "BASE", &base) == 0)
		return bad(f, "it is a comparison: give the two profiles themselves");
	r = read_tables(f);
	if (r == 0)
		r = read_meta(f);
	if (r == 0)
		r = read_tree(f);
	if (r == 0 && !f->p->quality.samples)
		profile_derive_quality(f->p);
	return r;
}

int html_read_body(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(reader_deinit))) struct html_reader f = {.p = profile_create(),
									.diag = reterr_diag};
	int r = f.p ? str_append(&f.body, data, n) : -ENOMEM;

	if (r == 0)
		r = read_body(&f);
	if (r == 0)
		*ret = take_ptr(f.p);
	return r;
}

int html_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag)
{
	__attribute__((cleanup(reader_deinit))) struct html_reader f = {.p = profile_create(),
									.diag = reterr_diag};
	int r;

	if (!f.p)
		return -ENOMEM;
	if (n > READ_LIMIT_BYTES)
		return diag_set(reterr_diag, -EFBIG, "html: more than %llu MiB",
				READ_LIMIT_BYTES >> 20);
	r = unpack(&f, data, n);
	if (r == 0)
		r = read_body(&f);
	if (r == 0)
		*ret = take_ptr(f.p);
	return r;
}

int html_probe(const u8 *data, size_t n)
{
	size_t element_n;

	if (!data || profile_first_char(data, n) != '<')
		return 0;
	return find_element(data, n, &element_n) ? 90 : 0;
}
