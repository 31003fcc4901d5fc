/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Line tables. The line program of a unit is run once, into rows that are sorted within sequences.
 * A row that equals the previous one, and a row that is replaced by a later one at the same
 * address, are dropped: they cannot change an answer.
 */
#include "symbol/dwarf.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS (4U << 20)
/* The rows of one unit take at most one part in ROWS_SHARE of what may be kept of its file. */
#define ROWS_SHARE 2
#define MAX_FILES (1U << 20)
#define MAX_BACK 64

struct row {
	u32 offset; /* from the sequence's lo */
	u32 line;
	u32 file;
	u16 column;
	u16 pad;
};

struct sequence {
	u64 lo, hi;
	u32 first, n;
};

struct file_entry {
	const char *name; /* borrowed from the section */
	u64 dir;
};

struct dw_lines {
	vec(struct row) rows;
	vec(struct sequence) sequences; /* sorted by lo */
	vec(const char *) dirs;
	vec(struct file_entry) files;
	bool from_zero; /* version 5: directory 0 is the unit's, file 0 its primary one */
};

void dw_lines_free(struct dw_lines *l)
{
	if (!l)
		return;
	vec_deinit(&l->rows);
	vec_deinit(&l->sequences);
	vec_deinit(&l->dirs);
	vec_deinit(&l->files);
	free(l);
}
DEFINE_CLEANUP(lines, struct dw_lines *, dw_lines_free)

struct header {
	struct buf program;
	u8 offset_size;
	u8 min_inst;
	u8 is_stmt; /* at the beginning of a sequence */
	u8 line_range;
	s8 line_base;
	u8 opcode_base;
	u8 lengths[256];
};

/* ---- header ---- */

static int read_old_tables(struct buf *b, struct dw_lines *l)
{
	const char *text;

	while (buf_cstr(b, &text) && *text)
		if (l->dirs.n >= MAX_FILES || vec_push(&l->dirs, text) < 0)
			return -ENOMEM;
	while (buf_cstr(b, &text) && *text) {
		struct file_entry f = {.name = text};
		u64 skipped;

		if (!buf_uleb(b, &f.dir) || !buf_uleb(b, &skipped) || !buf_uleb(b, &skipped))
			return -EINVAL;
		if (l->files.n >= MAX_FILES || vec_push(&l->files, f) < 0)
			return -ENOMEM;
	}
	return 0;
}

/*
 * Reads one of the two tables of version 5: the format of its entries, their number, the entries.
 */
static int read_new_table(struct dw_unit *u, struct buf *b, struct dw_lines *l, bool dirs)
{
	u64 kinds[256], forms[256], count;
	u8 n_formats;

	if (!buf_u8(b, &n_formats))
		return -EINVAL;
	for (unsigned int i = 0; i < n_formats; i++)
		if (!buf_uleb(b, &kinds[i]) || !buf_uleb(b, &forms[i]) || forms[i] > 0xffff)
			return -EINVAL;
	if (!buf_uleb(b, &count) || count > MAX_FILES || (count && !n_formats))
		return -EINVAL;
	for (u64 k = 0; k < count; k++) {
		struct file_entry f = {};

		for (unsigned int i = 0; i < n_formats; i++) {
			struct dw_value v;

			if (!dw_step(u->file->dwarf))
				return -E2BIG;
			if (!dw_form_read(u, b, (u16)forms[i], 0, &v))
				return -EINVAL;
			if (kinds[i] == DW_LNCT_path)
				f.name = dw_string(u, &v);
			else if (kinds[i] == DW_LNCT_directory_index)
				f.dir = v.u;
		}
		if (dirs ? vec_push(&l->dirs, f.name) < 0 : vec_push(&l->files, f) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int read_header(struct dw_unit *u, struct buf from, struct header *h, struct dw_lines *l)
{
	u8 skipped, saved_size = u->offset_size;
	u64 length, header_length = 0;
	struct buf tables, b;
	u16 version;
	u32 w;
	int r;

	h->offset_size = 4;
	if (!buf_u32(&from, &w))
		return -EINVAL;
	length = w;
	if (w == 0xffffffff) {
		h->offset_size = 8;
		if (!buf_u64(&from, &length))
			return -EINVAL;
	}
	if (!buf_take(&from, length, &b) || !buf_u16(&b, &version) || version < 2 || version > 5)
		return -EINVAL;
	if (version == 5 && (!buf_u8(&b, &skipped) || !buf_u8(&b, &skipped)))
		return -EINVAL;
	if (h->offset_size == 8 ? !buf_u64(&b, &header_length) : !buf_u32(&b, &w))
		return -EINVAL;
	if (h->offset_size == 4)
		header_length = w;
	if (!buf_take(&b, header_length, &tables))
		return -EINVAL;
	h->program = b;
	if (!buf_u8(&tables, &h->min_inst) || (version >= 4 && !buf_u8(&tables, &skipped)) ||
	    !buf_u8(&tables, &h->is_stmt) || !buf_u8(&tables, (u8 *)&h->line_base) ||
	    !buf_u8(&tables, &h->line_range) || !buf_u8(&tables, &h->opcode_base) ||
	    !h->opcode_base)
		return -EINVAL;
	for (unsigned int i = 1; i < h->opcode_base; i++)
		if (!buf_u8(&tables, &h->lengths[i]))
			return -EINVAL;
	l->from_zero = version == 5;
	if (version < 5)
		return read_old_tables(&tables, l);
	/* Forms here use the offset size of the line table, not that of the unit. */
	u->offset_size = h->offset_size;
	r = read_new_table(u, &tables, l, true);
	if (r == 0)
		r = read_new_table(u, &tables, l, false);
	u->offset_size = saved_size;
	return r;
}

/* ---- program ---- */

/* Rows of one line of a file, instead of all rows. */
struct wanted {
	bool *files; /* of the unit's, by number */
	size_t n_files;
	u32 line, next;
	dw_places *places;
};

struct machine {
	struct dw_unit *unit;
	struct wanted *wanted; /* or NULL */
	struct dw_lines *lines;
	const struct header *h;
	u64 address;
	u64 file;
	u32 line;
	u64 column;
	bool is_stmt;
	bool open; /* a sequence has begun */
	u64 last;  /* address of the last row */
};

static void reset(struct machine *m)
{
	m->address = 0;
	m->file = 1;
	m->line = 1;
	m->column = 0;
	m->is_stmt = m->h->is_stmt;
	m->open = false;
}

static void end_sequence(struct machine *m, u64 address)
{
	struct sequence *s = m->open ? &m->lines->sequences.data[m->lines->sequences.n - 1] : NULL;
	const struct dwarf_host *host = &m->unit->file->dwarf->host;

	m->open = false;
	if (!s)
		return;
	s->hi = address;
	s->n = (u32)m->lines->rows.n - s->first;
	/* The linker discarded the code of this sequence. */
	if (s->hi <= s->lo || (host->is_code && !host->is_code(host->arg, s->lo))) {
		m->lines->rows.n = s->first;
		m->lines->sequences.n--;
	}
}

/* An opcode of one byte makes a row of 16 bytes, and a sequence of 32. */
static bool has_room(const struct machine *m)
{
	const struct dw_lines *l = m->lines;
	u64 max = m->unit->file->elf->max_memory / ROWS_SHARE;

	return l->rows.n < MAX_ROWS &&
	       (!max ||
		l->rows.n * sizeof(*l->rows.data) + l->sequences.n * sizeof(*l->sequences.data) <
			max);
}

static int add_place(struct machine *m)
{
	struct wanted *w = m->wanted;

	if (!m->is_stmt || m->file >= w->n_files || !w->files[m->file])
		return 0;
	if (m->line > w->line)
		w->next = MIN(w->next, m->line);
	if (m->line != w->line)
		return 0;
	return w->places->n < DW_MAX_PLACES ? vec_push(w->places, m->address) : -E2BIG;
}

static int add_row(struct machine *m)
{
	struct dw_lines *l = m->lines;
	struct row r = {.line = m->line,
			.file = (u32)MIN(m->file, (u64)0xffffffff),
			.column = (u16)MIN(m->column, (u64)0xffff)};
	struct sequence *s;
	struct row *last;

	if (m->wanted)
		return add_place(m);
	if (!has_room(m))
		return -E2BIG;
	s = m->open ? &l->sequences.data[l->sequences.n - 1] : NULL;
	if (s && (m->address < m->last || m->address - s->lo > 0xffffffff)) {
		end_sequence(m, m->last);
		s = NULL;
	}
	if (!s) {
		if (vec_push(&l->sequences,
			     (struct sequence){.lo = m->address, .first = (u32)l->rows.n}) < 0)
			return -ENOMEM;
		s = &l->sequences.data[l->sequences.n - 1];
		m->open = true;
	}
	m->last = m->address;
	r.offset = (u32)(m->address - s->lo);
	last = l->rows.n > s->first ? &l->rows.data[l->rows.n - 1] : NULL;
	if (last && last->offset == r.offset) {
		*last = r;
		return 0;
	}
	if (last && last->line == r.line && last->file == r.file && last->column == r.column)
		return 0;
	return vec_push(&l->rows, r);
}

static int run_extended(struct machine *m, struct buf *b)
{
	struct buf body;
	u64 length;
	u8 op;

	if (!buf_uleb(b, &length) || !buf_take(b, length, &body) || !buf_u8(&body, &op))
		return -EINVAL;
	switch (op) {
	case DW_LNE_end_sequence:
		end_sequence(m, m->address);
		reset(m);
		return 0;
	case DW_LNE_set_address:
		return buf_u64(&body, &m->address) ? 0 : -EINVAL;
	case DW_LNE_define_file: {
		struct file_entry f = {};

		if (!buf_cstr(&body, &f.name) || !buf_uleb(&body, &f.dir) ||
		    m->lines->files.n >= MAX_FILES)
			return -EINVAL;
		return vec_push(&m->lines->files, f);
	}
	default:
		return 0;
	}
}

static int run_standard(struct machine *m, struct buf *b, u8 op)
{
	const struct header *h = m->h;
	u64 v = 0;
	s64 delta;
	u16 half;

	switch (op) {
	case DW_LNS_copy:
		return add_row(m);
	case DW_LNS_advance_pc:
		if (!buf_uleb(b, &v))
			return -EINVAL;
		m->address += v * h->min_inst;
		return 0;
	case DW_LNS_advance_line:
		if (!buf_sleb(b, &delta))
			return -EINVAL;
		m->line = (u32)(m->line + (u64)delta);
		return 0;
	case DW_LNS_set_file:
		return buf_uleb(b, &m->file) ? 0 : -EINVAL;
	case DW_LNS_set_column:
		return buf_uleb(b, &m->column) ? 0 : -EINVAL;
	case DW_LNS_const_add_pc:
		if (!h->line_range)
			return -EINVAL;
		m->address += (u64)((255 - h->opcode_base) / h->line_range) * h->min_inst;
		return 0;
	case DW_LNS_fixed_advance_pc:
		if (!buf_u16(b, &half))
			return -EINVAL;
		m->address += half;
		return 0;
	case DW_LNS_negate_stmt:
		m->is_stmt = !m->is_stmt;
		return 0;
	case DW_LNS_set_basic_block:
	case DW_LNS_set_prologue_end:
	case DW_LNS_set_epilogue_begin:
		return 0;
	default:
		for (u8 i = 0; i < h->lengths[op]; i++)
			if (!buf_uleb(b, &v))
				return -EINVAL;
		return 0;
	}
}

static int run_program(struct machine *m)
{
	const struct header *h = m->h;
	struct buf b = h->program;
	u64 at = 0;
	int r = 0;

	reset(m);
	while (r == 0 && buf_left(&b)) {
		u8 op = *b.pos;

		at = buf_offset(&b);
		b.pos++;
		if (op >= h->opcode_base && !h->line_range) {
			r = -EINVAL;
		} else if (op >= h->opcode_base) {
			u8 adjusted = (u8)(op - h->opcode_base);

			m->address += (u64)(adjusted / h->line_range) * h->min_inst;
			m->line += (u32)(h->line_base + adjusted % h->line_range);
			r = add_row(m);
		} else if (op == 0) {
			r = run_extended(m, &b);
		} else {
			r = run_standard(m, &b, op);
		}
	}
	if (r == -EINVAL)
		dw_damaged(m->unit->file, DW_LINE, at, "a damaged instruction");
	/* A sequence without an end has no size and cannot be trusted. */
	end_sequence(m, 0);
	return r;
}

static int compare_sequences(const void *pa, const void *pb)
{
	const struct sequence *a = pa, *b = pb;

	return a->lo < b->lo ? -1 : a->lo > b->lo;
}

/*
 * Returns the unit's line table, read on first use; NULL: there is none. A damaged table ends
 * early.
 */
static struct dw_lines *lines_get(struct dw_unit *u)
{
	_cleanup_(lines) struct dw_lines *l = NULL;
	struct header h = {};
	u64 offset = u->stmt_list;
	struct buf b;
	int r;

	if (u->lines_read)
		return u->lines;
	u->lines_read = true;
	/* The table of a split unit has files only, and is at the start of its section. */
	if (offset == ~0ULL && u->skeleton)
		offset = 0;
	if (offset == ~0ULL)
		return NULL;
	l = calloc(1, sizeof(*l));
	b = dw_section_at(u->file, DW_LINE, u->base[DW_LINE], offset);
	r = l ? read_header(u, b, &h, l) : -ENOMEM;
	if (r == -EINVAL && (buf_left(&b) || u->stmt_list != ~0ULL))
		dw_damaged(u->file, DW_LINE, buf_offset(&b), "a damaged table's header");
	if (r < 0)
		return NULL;
	(void)run_program(&(struct machine){.unit = u, .lines = l, .h = &h});
	if (l->sequences.n)
		qsort(l->sequences.data, l->sequences.n, sizeof(*l->sequences.data),
		      compare_sequences);
	u->cache_bytes += l->rows.cap * sizeof(struct row) +
			  l->sequences.cap * sizeof(struct sequence) +
			  l->files.cap * sizeof(struct file_entry) + l->dirs.cap * sizeof(char *);
	u->file->dwarf->cache_bytes +=
		l->rows.cap * sizeof(struct row) + l->sequences.cap * sizeof(struct sequence) +
		l->files.cap * sizeof(struct file_entry) + l->dirs.cap * sizeof(char *);
	u->lines = take_ptr(l);
	return u->lines;
}

static const struct row *row_in(const struct dw_lines *l, const struct sequence *s, u64 pc)
{
	const struct row *rows = &l->rows.data[s->first];
	size_t lo = 0, hi = s->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (rows[mid].offset <= pc - s->lo)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? &rows[lo - 1] : NULL;
}

bool dw_line_find(struct dw_unit *u, u64 pc, struct dw_line *ret)
{
	struct dw_lines *l = lines_get(u->skeleton ? u->skeleton : u);
	size_t lo = 0, hi = l ? l->sequences.n : 0;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (l->sequences.data[mid].lo <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (size_t i = lo; i > 0 && lo - i < MAX_BACK; i--) {
		const struct sequence *s = &l->sequences.data[i - 1];
		const struct row *r = pc < s->hi ? row_in(l, s, pc) : NULL;

		if (!r)
			continue;
		*ret = (struct dw_line){.file = r->file, .line = r->line, .column = r->column};
		return true;
	}
	return false;
}

/* ---- files ---- */

static const char *join_path(struct dwarf *d, const char *const *parts, size_t n)
{
	size_t total = 1, at = 0;
	char *text;

	for (size_t i = 0; i < n; i++)
		total += strlen(parts[i]) + 1;
	if (total > 3 * 4096)
		return NULL;
	text = dw_scratch(d, total);
	if (!text)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(parts[i]);

		memcpy(text + at, parts[i], len);
		at += len;
		if (i + 1 < n && len && parts[i][len - 1] != '/')
			text[at++] = '/';
	}
	text[at] = 0;
	return text;
}

static const char *dir_name(const struct dw_lines *l, u64 index)
{
	if (!l->from_zero && index-- == 0)
		return NULL;
	return index < l->dirs.n ? l->dirs.data[index] : NULL;
}

const char *dw_file_path(struct dw_unit *u, u32 file)
{
	struct dw_lines *l = lines_get(u);
	const char *parts[3], *dir, *comp_dir = u->comp_dir;
	const struct file_entry *f;
	size_t n = 0;
	u64 index = file;

	if (!l && u->skeleton)
		return dw_file_path(u->skeleton, file);
	if (!l || (!l->from_zero && index-- == 0) || index >= l->files.n)
		return NULL;
	f = &l->files.data[index];
	if (!f->name || !*f->name)
		return NULL;
	if (!comp_dir && u->skeleton)
		comp_dir = u->skeleton->comp_dir;
	dir = dir_name(l, f->dir);
	if (f->name[0] != '/') {
		if ((!dir || dir[0] != '/') && comp_dir)
			parts[n++] = comp_dir;
		if (dir && *dir)
			parts[n++] = dir;
	}
	parts[n++] = f->name;
	return join_path(u->file->dwarf, parts, n);
}

/* ---- places of a line ---- */

/* Whether a path ends with `wanted`, from the beginning of a name on. */
static bool is_file(const char *path, const char *wanted)
{
	size_t n = strlen(path), w = strlen(wanted);

	return w <= n && strcmp(path + n - w, wanted) == 0 &&
	       (n == w || (wanted[0] != '/' && path[n - w - 1] == '/'));
}

/* Runs the unit's program again: rows at the address of another one are not kept in its table. */
static int run_for(struct dw_unit *u, struct wanted *w)
{
	_cleanup_(lines) struct dw_lines *l = calloc(1, sizeof(*l));
	struct header h = {};
	struct buf b = dw_section_at(u->file, DW_LINE, u->base[DW_LINE], u->stmt_list);
	int r = l ? read_header(u, b, &h, l) : -ENOMEM;

	if (r == 0)
		r = run_program(&(struct machine){.unit = u, .lines = l, .h = &h, .wanted = w});
	return r == -EINVAL ? 0 : r;
}

int dw_line_places(struct dw_unit *u, const char *file, u32 line, dw_places *ret, u32 *ret_next)
{
	struct dw_lines *l = u->stmt_list == ~0ULL ? NULL : lines_get(u);
	struct wanted w = {.line = line, .next = *ret_next, .places = ret};
	bool any = false;
	int r = 0;

	if (!l)
		return 0;
	w.n_files = l->files.n + 1;
	w.files = calloc(w.n_files, sizeof(*w.files));
	for (u32 f = 0; w.files && f < w.n_files; f++) {
		const char *path;

		u->file->dwarf->scratch_n = 0;
		path = dw_file_path(u, f);
		w.files[f] = path && is_file(path, file);
		any |= w.files[f];
	}
	if (any)
		r = run_for(u, &w);
	*ret_next = w.next;
	r = w.files ? r : -ENOMEM;
	free(w.files);
	return r;
}
