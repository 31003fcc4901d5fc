/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the headers of units, the values needed to read the rest of a unit, and locates the other
 * half of a split unit (a .dwo, or its part of a .dwp).
 */
#include "symbol/dwarf.h"

#include <dwarf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_UNITS (4U << 20)
#define MAX_DWOS 4096U

static bool read_length(struct buf *b, u64 *ret_length, u8 *ret_offset_size)
{
	u32 w;

	if (!buf_u32(b, &w))
		return false;
	*ret_offset_size = 4;
	*ret_length = w;
	if (w < 0xfffffff0)
		return true;
	*ret_offset_size = 8;
	return w == 0xffffffff && buf_u64(b, ret_length);
}

static bool read_sized(struct buf *b, u8 size, u64 *ret)
{
	u32 w;

	if (size == 8)
		return buf_u64(b, ret);
	if (!buf_u32(b, &w))
		return false;
	*ret = w;
	return true;
}

/* Lists the units of .debug_info; damage ends the list. */
int dw_units_read(struct dw_file *f)
{
	struct buf info = dw_section(f, DW_INFO), b = info;

	if (f->units_read)
		return 0;
	f->units_read = true;
	while (buf_left(&b) && f->units.n < MAX_UNITS) {
		struct dw_unit_slot s = {.offset = (u64)(b.pos - info.pos)};
		u8 offset_size;
		u64 length;

		if (!read_length(&b, &length, &offset_size) || !buf_skip(&b, length)) {
			dw_damaged(f, DW_INFO, s.offset, "a unit of impossible length");
			break;
		}
		s.end = (u64)(b.pos - info.pos);
		if (length && vec_push(&f->units, s) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Reads the header; false for a unit that is not supported. */
static bool read_header(struct dw_unit *u, struct buf b, u64 *ret_abbrev)
{
	const u8 *start = b.pos;
	u8 type = DW_UT_compile, address_size;
	u16 version;
	u64 length;

	if (!read_length(&b, &length, &u->offset_size) || !buf_u16(&b, &version) || version < 2 ||
	    version > 5)
		return false;
	u->version = (u8)version;
	if (version == 5) {
		if (!buf_u8(&b, &type) || !buf_u8(&b, &address_size) ||
		    !read_sized(&b, u->offset_size, ret_abbrev))
			return false;
		if ((type == DW_UT_skeleton || type == DW_UT_split_compile) &&
		    !buf_u64(&b, &u->dwo_id))
			return false;
		if ((type == DW_UT_type || type == DW_UT_split_type) &&
		    !buf_skip(&b, 8 + u->offset_size))
			return false;
	} else if (!read_sized(&b, u->offset_size, ret_abbrev) || !buf_u8(&b, &address_size)) {
		return false;
	}
	u->dies = u->offset + (u64)(b.pos - start);
	return address_size == 8;
}

/* Sets *to if the root DIE has the attribute. */
static void root_value(const struct dw_unit *u, enum dw_slot slot, u64 *to)
{
	if (dw_has(&u->root, slot))
		*to = u->root.v[slot].u;
}

static const char *root_string(struct dw_unit *u, enum dw_slot slot)
{
	return dw_has(&u->root, slot) ? dw_string(u, &u->root.v[slot]) : NULL;
}

static void read_root(struct dw_unit *u)
{
	u64 language = 0;

	u->stmt_list = ~0ULL;
	if (u->version == 5) {
		/*
		 * The start of the tables, after their headers, unless the root DIE has another
		 * base.
		 */
		u->str_offsets_base = u->offset_size == 8 ? 16 : 8;
		u->rnglists_base = u->offset_size == 8 ? 20 : 12;
	}
	root_value(u, DW_A_STR_OFFSETS_BASE, &u->str_offsets_base);
	root_value(u, DW_A_ADDR_BASE, &u->addr_base);
	root_value(u, DW_A_RNGLISTS_BASE, &u->rnglists_base);
	root_value(u, DW_A_GNU_RANGES_BASE, &u->ranges_base);
	root_value(u, DW_A_STMT_LIST, &u->stmt_list);
	root_value(u, DW_A_LANGUAGE, &language);
	root_value(u, DW_A_DWO_ID, &u->dwo_id);
	u->language = (u16)language;
	u->name = root_string(u, DW_A_NAME);
	u->comp_dir = root_string(u, DW_A_COMP_DIR);
	u->dwo_name = root_string(u, DW_A_DWO_NAME);
	if (dw_has(&u->root, DW_A_LOW_PC))
		(void)dw_address(u, &u->root.v[DW_A_LOW_PC], &u->low_pc);
}

void dw_unit_forget(struct dw_unit *u)
{
	free(u->funcs);
	free(u->funcs_max_hi);
	dw_lines_free(u->lines);
	u->funcs = NULL;
	u->funcs_max_hi = NULL;
	u->lines = NULL;
	u->n_funcs = 0;
	u->funcs_read = u->lines_read = false;
	u->file->dwarf->cache_bytes -= u->cache_bytes;
	u->cache_bytes = 0;
}

static void unit_free(struct dw_unit *u)
{
	if (!u)
		return;
	unit_free(u->split);
	dw_unit_forget(u);
	free(u);
}
DEFINE_CLEANUP(unit, struct dw_unit *, unit_free)

/* Reads the unit at [offset, end) of the file's .debug_info. `base` is NULL except in a .dwp. */
static struct dw_unit *unit_read(struct dw_file *f, u64 offset, u64 end, const u64 *base,
				 struct dw_unit *skeleton)
{
	_cleanup_(unit) struct dw_unit *u = calloc(1, sizeof(*u));
	struct buf info = dw_section(f, DW_INFO);
	u64 abbrev;

	if (!u)
		return NULL;
	*u = (struct dw_unit){.file = f, .offset = offset, .end = end, .skeleton = skeleton};
	if (end > buf_left(&info) || offset >= end)
		return NULL;
	if (base)
		memcpy(u->base, base, sizeof(u->base));
	if (!read_header(u,
			 (struct buf){.pos = info.pos + offset,
				      .end = info.pos + end,
				      .start = info.start},
			 &abbrev)) {
		dw_damaged(f, DW_INFO, offset, "a damaged unit, or one of unknown form");
		return NULL;
	}
	if (dw_abbrevs_get(u, abbrev) < 0 || !dw_die_read(u, u->dies, &u->root) || !u->root.tag)
		return NULL;
	read_root(u);
	return take_ptr(u);
}

struct dw_unit *dw_unit_get(struct dw_file *f, size_t index)
{
	struct dw_unit_slot *s = &f->units.data[index];

	if (!s->unit)
		s->unit = unit_read(f, s->offset, s->end, NULL, NULL);
	if (s->unit)
		s->unit->used = ++f->dwarf->clock;
	return s->unit;
}

struct dw_unit *dw_unit_of_die(struct dw_file *f, u64 offset)
{
	size_t lo = 0, hi;

	if (dw_units_read(f) < 0)
		return NULL;
	for (hi = f->units.n; lo < hi;) {
		size_t mid = lo + (hi - lo) / 2;

		if (f->units.data[mid].offset <= offset)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && offset < f->units.data[lo - 1].end ? dw_unit_get(f, lo - 1) : NULL;
}

void dw_file_deinit(struct dw_file *f)
{
	vec_foreach (&f->units, s)
		unit_free(s->unit);
	vec_deinit(&f->units);
	dw_abbrevs_free_all(f);
	if (f->own_elf)
		elf_file_destroy(f->elf);
}

static struct dw_file *file_create(struct dwarf *d, struct elf_file *elf, bool dwo)
{
	struct dw_file *f = calloc(1, sizeof(*f));

	if (!f) {
		elf_file_destroy(elf);
		return NULL;
	}
	f->dwarf = d;
	f->elf = elf;
	f->own_elf = true;
	f->dwo = dwo;
	return f;
}

struct dw_file *dw_alt(struct dwarf *d)
{
	struct elf_file *elf;

	if (!d->alt_tried) {
		d->alt_tried = true;
		if (d->host.open_alt && d->host.open_alt(d->host.arg, d->main.elf, &elf) == 0)
			d->alt = file_create(d, elf, false);
	}
	return d->alt;
}

/* ---- split units ---- */

/* DW_SECT_* of version 5, and of the GNU version 2 that came before. */
static int section_of_index(u32 version, u32 id)
{
	switch (id) {
	case 1:
		return DW_INFO;
	case 3:
		return DW_ABBREV;
	case 4:
		return DW_LINE;
	case 6:
		return DW_STR_OFFSETS;
	case 8:
		return version == 5 ? DW_RNGLISTS : -1;
	default:
		return -1;
	}
}

/*
 * .debug_cu_index: version · columns N · units U · slots S · S × id u64 · S × row u32 ·
 * N × section u32 · U × N × offset u32 · U × N × size u32. Rows count from 1, S is a power of two.
 */
struct cu_index {
	u32 version, columns, units, slots;
	struct buf ids, rows, sections, offsets, sizes;
};

static bool read_cu_index(struct buf b, struct cu_index *ret)
{
	struct cu_index x;

	if (!buf_u32(&b, &x.version) || !buf_u32(&b, &x.columns) || !buf_u32(&b, &x.units) ||
	    !buf_u32(&b, &x.slots))
		return false;
	x.version &= 0xffff; /* in version 5 this field has 16 bits and is padded */
	if ((x.version != 5 && x.version != 2) || x.columns > 16 || !x.slots ||
	    (x.slots & (x.slots - 1)))
		return false;
	if (!buf_take(&b, (u64)x.slots * 8, &x.ids) || !buf_take(&b, (u64)x.slots * 4, &x.rows) ||
	    !buf_take(&b, (u64)x.columns * 4, &x.sections) ||
	    !buf_take(&b, (u64)x.units * x.columns * 4, &x.offsets) ||
	    !buf_take(&b, (u64)x.units * x.columns * 4, &x.sizes))
		return false;
	*ret = x;
	return true;
}

static u32 u32_at(struct buf b, u64 index)
{
	u32 v;

	return buf_skip(&b, index * 4) && buf_u32(&b, &v) ? v : 0;
}

static u64 u64_at(struct buf b, u64 index)
{
	u64 v;

	return buf_skip(&b, index * 8) && buf_u64(&b, &v) ? v : 0;
}

/* Returns the row of an id, from 1 on; 0: there is none. */
static u32 find_row(const struct cu_index *x, u64 id)
{
	u64 mask = x->slots - 1, slot = id & mask, stride = ((id >> 32) & mask) | 1;

	for (u32 i = 0; i < x->slots; i++, slot = (slot + stride) & mask) {
		u32 row = u32_at(x->rows, slot);

		if (!row)
			return 0;
		if (u64_at(x->ids, slot) == id)
			return row <= x->units ? row : 0;
	}
	return 0;
}

static struct dw_unit *unit_in_package(struct dw_file *f, struct dw_unit *skeleton)
{
	u64 base[DW_SEC_N] = {}, start = 0, size = 0;
	struct cu_index x;
	u32 row;

	if (!read_cu_index(dw_section(f, DW_CU_INDEX), &x)) {
		dw_damaged(f, DW_CU_INDEX, 0, "a damaged index, or one of unknown form");
		return NULL;
	}
	row = find_row(&x, skeleton->dwo_id);
	if (!row)
		return NULL;
	for (u32 c = 0; c < x.columns; c++) {
		u64 cell = (u64)(row - 1) * x.columns + c;
		int sec = section_of_index(x.version, u32_at(x.sections, c));

		if (sec == DW_INFO) {
			start = u32_at(x.offsets, cell);
			size = u32_at(x.sizes, cell);
		} else if (sec >= 0) {
			base[sec] = u32_at(x.offsets, cell);
		}
	}
	return unit_read(f, start, start + size, base, skeleton);
}

static struct dw_unit *unit_in_dwo(struct dw_file *f, struct dw_unit *skeleton)
{
	if (dw_units_read(f) < 0)
		return NULL;
	vec_foreach (&f->units, s) {
		struct dw_unit *u = unit_read(f, s->offset, s->end, NULL, skeleton);

		if (u && u->dwo_id == skeleton->dwo_id && u->root.tag == DW_TAG_compile_unit)
			return u;
		unit_free(u);
	}
	return NULL;
}

static struct dw_file *open_dwo(struct dwarf *d, struct dw_unit *skeleton)
{
	u64 hash =
		hash_bytes(skeleton->dwo_name, strlen(skeleton->dwo_name)) ^
		(skeleton->comp_dir ? hash_bytes(skeleton->comp_dir, strlen(skeleton->comp_dir)) * 3
				    : 0);
	struct elf_file *elf;
	struct dw_file *f;

	vec_foreach (&d->dwos, known)
		if ((*known)->dwo_name_hash == hash)
			return *known;
	if (d->dwos.n >= MAX_DWOS || !d->host.open_dwo ||
	    d->host.open_dwo(d->host.arg, skeleton->comp_dir, skeleton->dwo_name, &elf) < 0)
		return NULL;
	f = file_create(d, elf, true);
	if (!f)
		return NULL;
	f->dwo_name_hash = hash;
	if (vec_push(&d->dwos, f) < 0) {
		dw_file_deinit(f);
		free(f);
		return NULL;
	}
	return f;
}

static struct dw_unit *find_split(struct dw_unit *u)
{
	struct dwarf *d = u->file->dwarf;
	struct dw_unit *split = NULL;
	struct dw_file *f;
	struct elf_file *elf;

	if (!d->dwp_tried) {
		d->dwp_tried = true;
		if (d->host.open_dwp && d->host.open_dwp(d->host.arg, &elf) == 0)
			d->dwp = file_create(d, elf, true);
	}
	if (d->dwp)
		split = unit_in_package(d->dwp, u);
	if (split)
		return split;
	f = open_dwo(d, u);
	return f ? unit_in_dwo(f, u) : NULL;
}

struct dw_unit *dw_unit_full(struct dw_unit *u)
{
	if (u->skeleton || !u->dwo_name || !u->dwo_id)
		return u;
	if (!u->split_tried) {
		u->split_tried = true;
		u->split = find_split(u);
	}
	if (u->split)
		u->split->used = ++u->file->dwarf->clock;
	return u->split ? u->split : u;
}
