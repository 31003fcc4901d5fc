/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the unit and the function of an address, and the functions inlined there.
 *
 * The index of units is built once from the ranges in the units' root DIEs. .debug_aranges is used
 * only for units without ranges, because clang writes no such section and its content may be
 * incomplete.
 */
#include "symbol/dwarf.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define QUERY_BUDGET (16ULL << 20)
#define INDEX_BUDGET (256ULL << 20)
#define INDEX_ABBREVS 64 /* tables of abbreviations that are kept while units are indexed */
#define MAX_RANGES (32U << 20)
#define MAX_SCOPES 512
#define MAX_TRIES 64
#define CACHE_BUDGET (48U << 20)
#define SCRATCH_BYTES (512U << 10)

char *dw_scratch(struct dwarf *d, size_t n)
{
	char *p;

	if (n > SCRATCH_BYTES - d->scratch_n)
		return NULL;
	if (!d->scratch) {
		d->scratch = malloc(SCRATCH_BYTES);
		if (!d->scratch)
			return NULL;
	}
	p = d->scratch + d->scratch_n;
	d->scratch_n += n;
	return p;
}

/* ---- the index of units ---- */

struct index_builder {
	struct dwarf *d;
	u32 unit;
	u32 n;
};

static bool is_code(const struct dwarf *d, u64 svma)
{
	return !d->host.is_code || d->host.is_code(d->host.arg, svma);
}

static int add_range(void *arg, u64 lo, u64 hi)
{
	struct index_builder *b = arg;
	struct dwarf *d = b->d;
	struct dw_cu_range *last = d->index.n ? &d->index.data[d->index.n - 1] : NULL;

	b->n++;
	if (!is_code(d, lo))
		return 0;
	if (last && last->unit == b->unit && last->hi == lo) {
		last->hi = hi;
		return 0;
	}
	if (d->index.n >= MAX_RANGES)
		return -E2BIG;
	return vec_push(&d->index, (struct dw_cu_range){.lo = lo, .hi = hi, .unit = b->unit});
}

static bool find_unit(const struct dwarf *d, u64 offset, u32 *ret)
{
	size_t lo = 0, hi = d->main.units.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (d->main.units.data[mid].offset < offset)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == d->main.units.n || d->main.units.data[lo].offset != offset)
		return false;
	*ret = (u32)lo;
	return true;
}

/* Adds the ranges in .debug_aranges of the units in `wanted` (one bit per unit). */
static int index_aranges(struct dwarf *d, const u8 *wanted)
{
	struct buf b = dw_section(&d->main, DW_ARANGES), set;

	for (;;) {
		struct index_builder builder = {.d = d};
		struct buf start = b;
		u64 unit_offset, lo, n;
		u32 length, offset;
		u16 version;
		size_t at;

		/* 64-bit DWARF is not supported here. */
		if (!buf_u32(&b, &length) || length >= 0xfffffff0 || !buf_take(&b, length, &set))
			return 0;
		if (!buf_u16(&set, &version) || !buf_u32(&set, &offset) || !buf_skip(&set, 2))
			return 0;
		unit_offset = offset;
		at = (size_t)(set.pos - start.pos);
		if (!buf_skip(&set, -at & 15))
			continue;
		if (!find_unit(d, unit_offset, &builder.unit) ||
		    !(wanted[builder.unit / 8] >> (builder.unit % 8) & 1))
			continue;
		while (buf_u64(&set, &lo) && buf_u64(&set, &n) && (lo || n)) {
			int r = n && lo + n > lo ? add_range(&builder, lo, lo + n) : 0;

			if (r < 0)
				return r;
		}
	}
}

static int compare_cu_ranges(const void *pa, const void *pb)
{
	const struct dw_cu_range *a = pa, *b = pb;

	return a->lo < b->lo ? -1 : a->lo > b->lo;
}

/* Returns true if the unit has content but no ranges. */
static bool index_unit(struct dwarf *d, u32 index, int *r)
{
	struct dw_unit_slot *s = &d->main.units.data[index];
	struct index_builder b = {.d = d, .unit = index};
	struct dw_unit *u = dw_unit_get(&d->main, index);
	bool rangeless;

	if (!u)
		return false;
	rangeless = u->root.tag == DW_TAG_compile_unit && !dw_has(&u->root, DW_A_LOW_PC) &&
		    !dw_has(&u->root, DW_A_RANGES) && (u->root.children || u->dwo_name);
	if (u->root.tag == DW_TAG_compile_unit || u->root.tag == DW_TAG_skeleton_unit)
		*r = dw_ranges(u, &u->root, add_range, &b);
	/* Damaged ranges of one unit do not affect the others. */
	if (*r != -ENOMEM)
		*r = 0;
	free(u);
	s->unit = NULL;
	return rangeless;
}

static int build_index(struct dwarf *d)
{
	_cleanup_free_ u8 *rangeless = NULL;
	bool any = false;
	u64 max_hi = 0;
	int r;

	d->indexed = true;
	d->budget = INDEX_BUDGET;
	r = dw_units_read(&d->main);
	if (r < 0)
		return r;
	rangeless = calloc(d->main.units.n / 8 + 1, 1);
	if (!rangeless)
		return -ENOMEM;
	for (u32 i = 0; i < d->main.units.n && r == 0; i++) {
		if (index_unit(d, i, &r)) {
			rangeless[i / 8] |= (u8)(1 << (i % 8));
			any = true;
		}
		/* No unit is open, and most have a table of their own. */
		if (d->main.abbrevs.n > INDEX_ABBREVS || i + 1 == d->main.units.n)
			dw_abbrevs_free_all(&d->main);
	}
	if (r == 0 && any)
		r = index_aranges(d, rangeless);
	if (r < 0)
		return r;
	if (d->index.n)
		qsort(d->index.data, d->index.n, sizeof(*d->index.data), compare_cu_ranges);
	vec_foreach (&d->index, c) {
		max_hi = MAX(max_hi, c->hi);
		c->max_hi = max_hi;
	}
	return 0;
}

/* ---- the functions of a unit ---- */

struct func_builder {
	struct dwarf *d;
	vec(struct dw_func) list;
	u64 die;
};

static int add_func(void *arg, u64 lo, u64 hi)
{
	struct func_builder *b = arg;

	if (!is_code(b->d, lo))
		return 0;
	return vec_push(&b->list, (struct dw_func){lo, hi, b->die});
}

static int compare_funcs(const void *pa, const void *pb)
{
	const struct dw_func *a = pa, *b = pb;

	if (a->lo != b->lo)
		return a->lo < b->lo ? -1 : 1;
	return a->hi > b->hi ? -1 : a->hi < b->hi; /* the smaller one last: it is looked up first */
}

static int keep_funcs(struct dw_unit *u, struct func_builder *b)
{
	u64 max_hi = 0;
	size_t bytes;

	if (!b->list.n)
		return 0;
	qsort(b->list.data, b->list.n, sizeof(*b->list.data), compare_funcs);
	u->funcs_max_hi = reallocarray(NULL, b->list.n, sizeof(u64));
	if (!u->funcs_max_hi)
		return -ENOMEM;
	for (size_t i = 0; i < b->list.n; i++) {
		max_hi = MAX(max_hi, b->list.data[i].hi);
		u->funcs_max_hi[i] = max_hi;
	}
	bytes = b->list.cap * sizeof(struct dw_func) + b->list.n * sizeof(u64);
	u->n_funcs = b->list.n;
	u->funcs = b->list.data;
	b->list.data = NULL;
	u->cache_bytes += bytes;
	u->file->dwarf->cache_bytes += bytes;
	return 0;
}

/* Reads every DIE in file order; nesting does not matter here. */
static int read_funcs(struct dw_unit *u)
{
	struct dwarf *d = u->file->dwarf;
	struct func_builder b = {.d = d};
	u64 offset = u->root.next;
	struct dw_die die;
	int r = 0;

	u->funcs_read = true;
	d->budget += u->end - u->dies;
	while (offset < u->end && dw_die_read(u, offset, &die)) {
		offset = die.next;
		if (die.tag != DW_TAG_subprogram)
			continue;
		b.die = die.offset;
		r = dw_ranges(u, &die, add_func, &b);
		if (r == -ENOMEM)
			break;
	}
	r = r == -ENOMEM ? r : keep_funcs(u, &b);
	vec_deinit(&b.list);
	return r;
}

/* The innermost function at pc. */
static const struct dw_func *find_func(struct dw_unit *u, u64 pc)
{
	size_t lo = 0, hi;

	if (!u->funcs_read && read_funcs(u) < 0)
		return NULL;
	for (hi = u->n_funcs; lo < hi;) {
		size_t mid = lo + (hi - lo) / 2;

		if (u->funcs[mid].lo <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (size_t i = lo; i > 0 && u->funcs_max_hi[i - 1] > pc && dw_step(u->file->dwarf); i--)
		if (u->funcs[i - 1].hi > pc)
			return &u->funcs[i - 1];
	return NULL;
}

/* ---- what is inlined ---- */

struct scopes {
	struct dw_die dies[MAX_SCOPES]; /* the function, then inlined ones, innermost last */
	u32 n;
};

static bool has_addresses(const struct dw_die *d)
{
	return dw_has(d, DW_A_RANGES) || dw_has(d, DW_A_LOW_PC);
}

/* In one step if the DIE has a sibling attribute. */
bool dw_skip_children(struct dw_unit *u, const struct dw_die *d, u64 *offset)
{
	struct dw_die child;
	u32 depth = 1;

	*offset = d->next;
	if (!d->children)
		return true;
	if (dw_has(d, DW_A_SIBLING) && d->v[DW_A_SIBLING].u > d->offset) {
		*offset = d->v[DW_A_SIBLING].u;
		return true;
	}
	while (depth) {
		if (!dw_die_read(u, *offset, &child))
			return false;
		*offset = child.next;
		if (!child.tag)
			depth--;
		else if (child.children)
			depth++;
	}
	return true;
}

/*
 * Descends from a function through the scopes that contain pc, and through scopes without
 * addresses. It ends where the innermost scope that contains pc ends, because adjacent scopes do
 * not overlap.
 */
static void find_inlines(struct dw_unit *u, u64 pc, struct scopes *s)
{
	u64 offset = s->dies[0].next;
	u32 depth = 1, floor = 1;
	struct dw_die d;

	if (!s->dies[0].children)
		return;
	while (depth >= floor && dw_die_read(u, offset, &d)) {
		offset = d.next;
		if (!d.tag) {
			depth--;
			continue;
		}
		if (d.tag == DW_TAG_subprogram || (has_addresses(&d) && !dw_covers(u, &d, pc))) {
			if (!dw_skip_children(u, &d, &offset))
				return;
			continue;
		}
		if (d.tag == DW_TAG_inlined_subroutine && has_addresses(&d)) {
			if (s->n == MAX_SCOPES)
				return;
			s->dies[s->n++] = d;
		}
		if (d.children)
			depth++;
		if (has_addresses(&d) && d.tag != DW_TAG_label) {
			if (!d.children)
				return;
			floor = depth;
		}
	}
}

static void fill_chain(struct dw_unit *u, struct scopes *s, u64 pc, bool inlines, bool lines,
		       struct dwarf_chain *ret)
{
	struct dw_line at = {};

	ret->n = 0;
	if (lines)
		(void)dw_line_find(u, pc, &at);
	for (u32 i = s->n; i-- > 0;) {
		const struct dw_die *d = &s->dies[i];
		struct dwarf_frame *f = &ret->frames[ret->n];
		/* A chain that is too long loses its middle. */
		bool keep = i == 0 || (inlines && ret->n + 1 < DW_MAX_CHAIN);

		if (keep) {
			*f = (struct dwarf_frame){.line = at.line, .column = at.column};
			f->inlined = i > 0;
			/* The line table is that of the skeleton; call sites are in the split
			 * unit. */
			if (at.line)
				f->file = dw_file_path(
					i + 1 == s->n && u->skeleton ? u->skeleton : u, at.file);
			dw_name(u, d, f);
			ret->n++;
		}
		at = (struct dw_line){};
		if (lines && dw_has(d, DW_A_CALL_LINE))
			at.line = (u32)d->v[DW_A_CALL_LINE].u;
		if (lines && dw_has(d, DW_A_CALL_FILE))
			at.file = (u32)d->v[DW_A_CALL_FILE].u;
		if (lines && dw_has(d, DW_A_CALL_COLUMN))
			at.column = (u32)d->v[DW_A_CALL_COLUMN].u;
	}
}

static int lookup_in_unit(struct dw_unit *skeleton, u64 pc, bool inlines, bool lines,
			  struct dwarf_chain *ret)
{
	struct dw_unit *u = dw_unit_full(skeleton);
	const struct dw_func *f = find_func(u, pc);
	struct scopes *s;
	int r = -ENOENT;

	ret->incomplete = u == skeleton && u->dwo_name;
	if (!f)
		return -ENOENT;
	s = malloc(sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->n = 1;
	if (dw_die_read(u, f->die, &s->dies[0])) {
		find_inlines(u, pc, s);
		fill_chain(u, s, pc, inlines, lines, ret);
		ret->frames[ret->n - 1].low = f->lo;
		r = 0;
	}
	free(s);
	return r;
}

/* Finds only the line: for assembly, or for a unit whose split half is missing. */
static int line_in_unit(struct dw_unit *u, u64 pc, struct dwarf_chain *ret)
{
	struct dw_line at;

	if (!dw_line_find(u, pc, &at) || !at.line)
		return -ENOENT;
	ret->n = 1;
	ret->frames[0] = (struct dwarf_frame){.line = at.line, .column = at.column};
	ret->frames[0].file = dw_file_path(u, at.file);
	return 0;
}

/* Drops the caches of the least recently used units. */
static void keep_budget(struct dwarf *d)
{
	while (d->cache_bytes > CACHE_BUDGET) {
		struct dw_unit *oldest = NULL;

		vec_foreach (&d->main.units, s) {
			struct dw_unit *u = s->unit;

			if (u && u->cache_bytes && (!oldest || u->used < oldest->used))
				oldest = u;
			u = u ? u->split : NULL;
			if (u && u->cache_bytes && (!oldest || u->used < oldest->used))
				oldest = u;
		}
		if (!oldest)
			return;
		dw_unit_forget(oldest);
	}
}

static int lookup_range(struct dwarf *d, const struct dw_cu_range *c, u64 svma, bool inlines,
			bool lines, bool line_only, struct dwarf_chain *ret)
{
	struct dw_unit *u = svma < c->hi ? dw_unit_get(&d->main, c->unit) : NULL;

	if (!u)
		return -ENOENT;
	return line_only ? line_in_unit(u, svma, ret)
			 : lookup_in_unit(u, svma, inlines, lines, ret);
}

/* Begins a query. *ret: the number of ranges of units that begin at svma or before. */
static int begin_query(struct dwarf *d, u64 svma, size_t *ret)
{
	size_t lo = 0, hi;
	int r = d->indexed ? 0 : build_index(d);

	if (r < 0)
		return r;
	keep_budget(d);
	d->budget = QUERY_BUDGET;
	for (hi = d->index.n; lo < hi;) {
		size_t mid = lo + (hi - lo) / 2;

		if (d->index.data[mid].lo <= svma)
			lo = mid + 1;
		else
			hi = mid;
	}
	*ret = lo;
	return 0;
}

int dwarf_function(struct dwarf *d, u64 svma, struct dw_unit **ret_unit, struct dw_die *ret)
{
	size_t lo;
	int r = begin_query(d, svma, &lo);

	if (r < 0)
		return r;
	for (size_t i = lo, n = 0; i > 0 && d->index.data[i - 1].max_hi > svma && n < MAX_TRIES;
	     i--, n++) {
		const struct dw_cu_range *c = &d->index.data[i - 1];
		struct dw_unit *u = svma < c->hi ? dw_unit_get(&d->main, c->unit) : NULL;
		const struct dw_func *f;

		u = u ? dw_unit_full(u) : NULL;
		f = u ? find_func(u, svma) : NULL;
		if (f && f->lo == svma && dw_die_read(u, f->die, ret)) {
			*ret_unit = u;
			return 0;
		}
	}
	return -ENOENT;
}

int dwarf_lookup(struct dwarf *d, u64 svma, bool inlines, bool lines, struct dwarf_chain *ret)
{
	size_t lo;
	int r;

	d->scratch_n = 0;
	ret->incomplete = false;
	r = begin_query(d, svma, &lo);
	if (r < 0)
		return r;
	r = -ENOENT;
	for (int line_only = 0; line_only <= lines && r == -ENOENT; line_only++)
		for (size_t i = lo, n = 0;
		     i > 0 && d->index.data[i - 1].max_hi > svma && n < MAX_TRIES && r == -ENOENT;
		     i--, n++)
			r = lookup_range(d, &d->index.data[i - 1], svma, inlines, lines, line_only,
					 ret);
	return r;
}

size_t dwarf_memory(const struct dwarf *d)
{
	size_t n = d->cache_bytes + d->index.cap * sizeof(*d->index.data) +
		   d->main.units.cap * sizeof(*d->main.units.data);

	for (size_t i = 0; i < d->dwos.n; i++)
		n += d->dwos.data[i]->elf->size;
	return n;
}

int dwarf_open(struct elf_file *elf, const struct dwarf_host *host, struct dwarf **ret)
{
	struct dwarf *d = calloc(1, sizeof(*d));
	struct buf info;

	if (!d)
		return -ENOMEM;
	d->host = *host;
	d->main.dwarf = d;
	d->main.elf = elf;
	info = dw_section(&d->main, DW_INFO);
	if (!buf_left(&info)) {
		dwarf_close(d);
		return -ENOENT;
	}
	*ret = d;
	return 0;
}

void dwarf_close(struct dwarf *d)
{
	if (!d)
		return;
	dw_file_deinit(&d->main); /* first, because it contains the split units */
	vec_foreach (&d->dwos, f) {
		dw_file_deinit(*f);
		free(*f);
	}
	vec_deinit(&d->dwos);
	if (d->dwp)
		dw_file_deinit(d->dwp);
	if (d->alt)
		dw_file_deinit(d->alt);
	free(d->dwp);
	free(d->alt);
	vec_deinit(&d->index);
	free(d->scratch);
	free(d);
}
