/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads sections, abbreviations, attributes, strings and references.
 *
 * Most time is spent on reading DIEs. Therefore an abbreviation is compiled into steps, in which
 * adjacent unused attributes of fixed size are a single skip.
 */
#include "symbol/dwarf.h"

#include <dwarf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ABBREVS (1U << 20)

struct step {
	s64 implicit;
	u16 form; /* 0 = skip `skip` bytes */
	u8 slot;  /* dw_slot, DW_A_NONE = skipped */
	u32 skip;
};

struct abbrev {
	u64 code;
	u32 first_step;
	u32 n_steps;
	u16 tag;
	bool children;
};

struct dw_abbrevs {
	vec(struct abbrev) list; /* sorted by code; mostly list[i].code == i + 1 */
	vec(struct step) steps;
};

/* ---- sections ---- */

static const char *const section_names[DW_SEC_N] = {
	[DW_INFO] = ".debug_info",
	[DW_ABBREV] = ".debug_abbrev",
	[DW_STR] = ".debug_str",
	[DW_LINE] = ".debug_line",
	[DW_LINE_STR] = ".debug_line_str",
	[DW_RANGES] = ".debug_ranges",
	[DW_RNGLISTS] = ".debug_rnglists",
	[DW_ADDR] = ".debug_addr",
	[DW_STR_OFFSETS] = ".debug_str_offsets",
	[DW_ARANGES] = ".debug_aranges",
	[DW_CU_INDEX] = ".debug_cu_index",
};

static const char *section_name(const struct dw_file *f, enum dw_sec sec, char name[40])
{
	snprintf(name, 40, "%s%s", section_names[sec], f->dwo && sec != DW_CU_INDEX ? ".dwo" : "");
	return name;
}

void dw_damaged(struct dw_file *f, enum dw_sec sec, u64 offset, const char *text)
{
	char name[40], full[64];

	snprintf(full, sizeof(full), "%s%s", section_name(f, sec, name),
		 f == f->dwarf->alt ? " of the dwz file" : "");
	elf_file_damaged(f->dwarf->main.elf, full, offset, text);
}

struct buf dw_section(struct dw_file *f, enum dw_sec sec)
{
	char name[40];

	if (f->sec_read[sec])
		return f->sec[sec];
	f->sec_read[sec] = true;
	f->sec[sec] = buf_of("", 0);
	(void)elf_file_section(f->elf, section_name(f, sec, name), NULL, &f->sec[sec]);
	return f->sec[sec];
}

struct buf dw_section_at(struct dw_file *f, enum dw_sec sec, u64 base, u64 offset)
{
	struct buf b = dw_section(f, sec);

	if (base + offset < base || !buf_skip(&b, base + offset))
		b.pos = b.end;
	return b;
}

/* ---- abbreviations ---- */

static u8 slot_of(u64 attribute)
{
	switch (attribute) {
	case DW_AT_sibling:
		return DW_A_SIBLING;
	case DW_AT_name:
		return DW_A_NAME;
	case DW_AT_linkage_name:
	case DW_AT_MIPS_linkage_name:
		return DW_A_LINKAGE_NAME;
	case DW_AT_low_pc:
		return DW_A_LOW_PC;
	case DW_AT_high_pc:
		return DW_A_HIGH_PC;
	case DW_AT_ranges:
		return DW_A_RANGES;
	case DW_AT_abstract_origin:
		return DW_A_ORIGIN;
	case DW_AT_specification:
		return DW_A_SPECIFICATION;
	case DW_AT_decl_line:
		return DW_A_DECL_LINE;
	case DW_AT_call_file:
		return DW_A_CALL_FILE;
	case DW_AT_call_line:
		return DW_A_CALL_LINE;
	case DW_AT_call_column:
		return DW_A_CALL_COLUMN;
	case DW_AT_stmt_list:
		return DW_A_STMT_LIST;
	case DW_AT_comp_dir:
		return DW_A_COMP_DIR;
	case DW_AT_language:
		return DW_A_LANGUAGE;
	case DW_AT_dwo_name:
	case DW_AT_GNU_dwo_name:
		return DW_A_DWO_NAME;
	case DW_AT_GNU_dwo_id:
		return DW_A_DWO_ID;
	case DW_AT_str_offsets_base:
		return DW_A_STR_OFFSETS_BASE;
	case DW_AT_addr_base:
	case DW_AT_GNU_addr_base:
		return DW_A_ADDR_BASE;
	case DW_AT_rnglists_base:
		return DW_A_RNGLISTS_BASE;
	case DW_AT_GNU_ranges_base:
		return DW_A_GNU_RANGES_BASE;
	default:
		return DW_A_NONE;
	}
}

static u8 type_slot_of(u64 attribute)
{
	switch (attribute) {
	case DW_AT_type:
		return DW_A_TYPE;
	case DW_AT_byte_size:
		return DW_A_BYTE_SIZE;
	case DW_AT_encoding:
		return DW_A_ENCODING;
	case DW_AT_data_member_location:
		return DW_A_MEMBER_LOCATION;
	case DW_AT_bit_size:
		return DW_A_BIT_SIZE;
	case DW_AT_data_bit_offset:
		return DW_A_DATA_BIT_OFFSET;
	case DW_AT_upper_bound:
		return DW_A_UPPER_BOUND;
	case DW_AT_count:
		return DW_A_COUNT;
	case DW_AT_const_value:
		return DW_A_CONST_VALUE;
	case DW_AT_declaration:
		return DW_A_DECLARATION;
	case DW_AT_external:
		return DW_A_EXTERNAL;
	case DW_AT_variable_parameter:
		return DW_A_VARIABLE_PARAMETER;
	case DW_AT_calling_convention:
		return DW_A_CALLING_CONVENTION;
	default:
		return DW_A_NONE;
	}
}

/* Bytes of a form that always has the same size, or -1. */
static int fixed_size(const struct dw_unit *u, u16 form)
{
	switch (form) {
	case DW_FORM_flag_present:
	case DW_FORM_implicit_const:
		return 0;
	case DW_FORM_data1:
	case DW_FORM_flag:
	case DW_FORM_ref1:
	case DW_FORM_strx1:
	case DW_FORM_addrx1:
		return 1;
	case DW_FORM_data2:
	case DW_FORM_ref2:
	case DW_FORM_strx2:
	case DW_FORM_addrx2:
		return 2;
	case DW_FORM_strx3:
	case DW_FORM_addrx3:
		return 3;
	case DW_FORM_data4:
	case DW_FORM_ref4:
	case DW_FORM_ref_sup4:
	case DW_FORM_strx4:
	case DW_FORM_addrx4:
		return 4;
	case DW_FORM_addr:
	case DW_FORM_data8:
	case DW_FORM_ref8:
	case DW_FORM_ref_sig8:
	case DW_FORM_ref_sup8:
		return 8;
	case DW_FORM_data16:
		return 16;
	case DW_FORM_strp:
	case DW_FORM_line_strp:
	case DW_FORM_sec_offset:
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_strp_alt:
	case DW_FORM_GNU_ref_alt:
		return u->offset_size;
	case DW_FORM_ref_addr:
		return u->version <= 2 ? 8 : u->offset_size;
	default:
		return -1;
	}
}

static int add_step(struct dw_unit *u, struct dw_abbrevs *a, struct abbrev *owner, u64 attribute,
		    u64 form, s64 implicit)
{
	struct step s = {.form = (u16)form, .slot = slot_of(attribute), .implicit = implicit};
	int size;

	if (form > 0xffff || form == 0)
		return -EINVAL;
	if (s.slot == DW_A_NONE && u->file->dwarf->with_types)
		s.slot = type_slot_of(attribute);
	size = fixed_size(u, s.form);
	if (s.slot == DW_A_NONE && size >= 0) {
		struct step *last = owner->n_steps ? &a->steps.data[a->steps.n - 1] : NULL;

		if (last && !last->form) {
			last->skip += (u32)size;
			return 0;
		}
		s.form = 0;
		s.skip = (u32)size;
	}
	owner->n_steps++;
	return vec_push(&a->steps, s);
}

static int read_abbrev(struct dw_unit *u, struct buf *b, u64 code, struct dw_abbrevs *a)
{
	struct abbrev n = {.code = code, .first_step = (u32)a->steps.n};
	u8 children;
	u64 tag;

	if (!buf_uleb(b, &tag) || tag > 0xffff || !tag || !buf_u8(b, &children))
		return -EINVAL;
	n.tag = (u16)tag;
	n.children = children != 0;
	for (;;) {
		u64 attribute, form;
		s64 implicit = 0;
		int r;

		if (!buf_uleb(b, &attribute) || !buf_uleb(b, &form))
			return -EINVAL;
		if (!attribute && !form)
			break;
		if (form == DW_FORM_implicit_const && !buf_sleb(b, &implicit))
			return -EINVAL;
		r = add_step(u, a, &n, attribute, form, implicit);
		if (r < 0)
			return r;
	}
	return vec_push(&a->list, n);
}

static int compare_abbrevs(const void *pa, const void *pb)
{
	const struct abbrev *a = pa, *b = pb;

	return a->code < b->code ? -1 : a->code > b->code;
}

static void abbrevs_free(struct dw_abbrevs *a)
{
	if (!a)
		return;
	vec_deinit(&a->list);
	vec_deinit(&a->steps);
	free(a);
}
DEFINE_CLEANUP(abbrevs, struct dw_abbrevs *, abbrevs_free)

void dw_abbrevs_free_all(struct dw_file *f)
{
	map_foreach (&f->abbrevs, s)
		abbrevs_free((struct dw_abbrevs *)(uintptr_t)s->value);
	map_deinit(&f->abbrevs);
}

static int read_abbrevs(struct dw_unit *u, struct buf b, struct dw_abbrevs *a)
{
	bool sorted = true;

	while (a->list.n < MAX_ABBREVS) {
		u64 code;
		int r;

		/* A table at the end of the section may lack its final 0. */
		if (!buf_uleb(&b, &code) || !code)
			break;
		if (a->list.n && a->list.data[a->list.n - 1].code >= code)
			sorted = false;
		r = read_abbrev(u, &b, code, a);
		if (r == -EINVAL)
			dw_damaged(u->file, DW_ABBREV, buf_offset(&b), "a damaged abbreviation");
		if (r < 0)
			return r;
	}
	if (!sorted)
		qsort(a->list.data, a->list.n, sizeof(*a->list.data), compare_abbrevs);
	if (a->list.n)
		return 0;
	dw_damaged(u->file, DW_ABBREV, buf_offset(&b), "no abbreviations");
	return -EINVAL;
}

/* Sets u->abbrevs. Units with the same table share it. */
int dw_abbrevs_get(struct dw_unit *u, u64 offset)
{
	_cleanup_(abbrevs) struct dw_abbrevs *a = NULL;
	u64 key =
		(u->base[DW_ABBREV] + offset) << 4 | (u->offset_size == 8) << 3 | (u->version & 7);
	const u64 *known = map_get(&u->file->abbrevs, key);
	int r;

	if (known) {
		u->abbrevs = (const struct dw_abbrevs *)(uintptr_t)*known;
		return 0;
	}
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	r = read_abbrevs(u, dw_section_at(u->file, DW_ABBREV, u->base[DW_ABBREV], offset), a);
	if (r < 0)
		return r;
	if (key >= MAP_GONE_KEY)
		return -EINVAL;
	r = map_put(&u->file->abbrevs, key, (u64)(uintptr_t)a);
	if (r == 0)
		u->abbrevs = take_ptr(a);
	return r;
}

static const struct abbrev *find_abbrev(const struct dw_abbrevs *a, u64 code)
{
	size_t lo = 0, hi = a->list.n;

	if (code - 1 < hi && a->list.data[code - 1].code == code)
		return &a->list.data[code - 1];
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (a->list.data[mid].code < code)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < a->list.n && a->list.data[lo].code == code ? &a->list.data[lo] : NULL;
}

/* ---- values ---- */

static bool read_offset(const struct dw_unit *u, struct buf *b, u64 *ret)
{
	u32 w;

	if (u->offset_size == 8)
		return buf_u64(b, ret);
	if (!buf_u32(b, &w))
		return false;
	*ret = w;
	return true;
}

static bool read_fixed(struct buf *b, unsigned int n, u64 *ret)
{
	u64 v = 0;

	if (buf_left(b) < n)
		return false;
	memcpy(&v, b->pos, n);
	b->pos += n;
	*ret = v;
	return true;
}

static bool skip_block(struct buf *b, u16 form)
{
	u64 n;

	switch (form) {
	case DW_FORM_block1:
		return read_fixed(b, 1, &n) && buf_skip(b, n);
	case DW_FORM_block2:
		return read_fixed(b, 2, &n) && buf_skip(b, n);
	case DW_FORM_block4:
		return read_fixed(b, 4, &n) && buf_skip(b, n);
	default:
		return buf_uleb(b, &n) && buf_skip(b, n);
	}
}

static bool read_variable(struct dw_unit *u, struct buf *b, u16 form, struct dw_value *ret)
{
	const char *text;
	u64 indirect;

	switch (form) {
	case DW_FORM_udata:
	case DW_FORM_addrx:
	case DW_FORM_strx:
	case DW_FORM_rnglistx:
	case DW_FORM_loclistx:
	case DW_FORM_GNU_addr_index:
	case DW_FORM_GNU_str_index:
		return buf_uleb(b, &ret->u);
	case DW_FORM_ref_udata:
		if (!buf_uleb(b, &ret->u))
			return false;
		ret->u += u->offset;
		return true;
	case DW_FORM_sdata:
		return buf_sleb(b, (s64 *)&ret->u);
	case DW_FORM_string:
		if (!buf_cstr(b, &text))
			return false;
		ret->u = (u64)(uintptr_t)text;
		return true;
	case DW_FORM_block:
	case DW_FORM_block1:
	case DW_FORM_block2:
	case DW_FORM_block4:
	case DW_FORM_exprloc:
		ret->u = 0;
		return skip_block(b, form);
	case DW_FORM_indirect:
		if (!buf_uleb(b, &indirect) || indirect > 0xffff || indirect == DW_FORM_indirect ||
		    indirect == DW_FORM_implicit_const)
			return false;
		return dw_form_read(u, b, (u16)indirect, 0, ret);
	default:
		return false;
	}
}

bool dw_form_read(struct dw_unit *u, struct buf *b, u16 form, s64 implicit, struct dw_value *ret)
{
	int n = fixed_size(u, form);

	ret->form = form;
	if (n < 0)
		return read_variable(u, b, form, ret);
	switch (form) {
	case DW_FORM_implicit_const:
		ret->u = (u64)implicit;
		return true;
	case DW_FORM_flag_present:
		ret->u = 1;
		return true;
	case DW_FORM_data16:
		ret->u = 0;
		return buf_skip(b, 16);
	default:
		if (!read_fixed(b, (unsigned int)n, &ret->u))
			return false;
	}
	if (form == DW_FORM_ref1 || form == DW_FORM_ref2 || form == DW_FORM_ref4 ||
	    form == DW_FORM_ref8)
		ret->u += u->offset;
	return true;
}

static bool parse_die(struct dw_unit *u, u64 offset, struct dw_die *ret)
{
	struct buf info = dw_section(u->file, DW_INFO), b;
	const struct abbrev *a;
	u64 code;

	b = (struct buf){.pos = info.pos + offset, .end = info.pos + u->end, .start = info.start};
	if (!buf_uleb(&b, &code))
		return false;
	ret->offset = offset;
	ret->has = 0;
	ret->tag = 0;
	ret->children = false;
	if (code) {
		a = find_abbrev(u->abbrevs, code);
		if (!a)
			return false;
		ret->tag = a->tag;
		ret->children = a->children;
		for (u32 i = 0; i < a->n_steps; i++) {
			const struct step *s = &u->abbrevs->steps.data[a->first_step + i];
			struct dw_value skipped, *v;

			if (!s->form) {
				if (!buf_skip(&b, s->skip))
					return false;
				continue;
			}
			v = s->slot == DW_A_NONE ? &skipped : &ret->v[s->slot];
			if (!dw_form_read(u, &b, s->form, s->implicit, v))
				return false;
			if (s->slot != DW_A_NONE)
				ret->has |= 1ULL << s->slot;
		}
	}
	ret->next = (u64)(b.pos - info.pos);
	return true;
}

bool dw_die_read(struct dw_unit *u, u64 offset, struct dw_die *ret)
{
	if (offset < u->dies || offset >= u->end || !dw_step(u->file->dwarf))
		return false;
	if (parse_die(u, offset, ret))
		return true;
	dw_damaged(u->file, DW_INFO, offset, "a damaged DIE");
	return false;
}

/* ---- what values mean ---- */

static const char *string_at(struct dw_file *f, enum dw_sec sec, u64 offset)
{
	struct buf b = dw_section_at(f, sec, 0, offset);
	const char *text;

	if (buf_cstr(&b, &text))
		return text;
	dw_damaged(f, sec, offset, "no string");
	return NULL;
}

static const char *string_by_index(struct dw_unit *u, u64 index)
{
	struct buf b;
	u64 offset;

	if (index > 0xffffffff)
		return NULL;
	b = dw_section_at(u->file, DW_STR_OFFSETS, u->base[DW_STR_OFFSETS],
			  u->str_offsets_base + index * u->offset_size);
	return read_offset(u, &b, &offset) ? string_at(u->file, DW_STR, offset) : NULL;
}

const char *dw_string(struct dw_unit *u, const struct dw_value *v)
{
	switch (v->form) {
	case DW_FORM_string:
		return (const char *)(uintptr_t)v->u;
	case DW_FORM_strp:
		return string_at(u->file, DW_STR, v->u);
	case DW_FORM_line_strp:
		return string_at(u->file, DW_LINE_STR, v->u);
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_strp_alt:
		return dw_alt(u->file->dwarf) ? string_at(dw_alt(u->file->dwarf), DW_STR, v->u)
					      : NULL;
	case DW_FORM_strx:
	case DW_FORM_strx1:
	case DW_FORM_strx2:
	case DW_FORM_strx3:
	case DW_FORM_strx4:
	case DW_FORM_GNU_str_index:
		return string_by_index(u, v->u);
	default:
		return NULL;
	}
}

bool dw_address(struct dw_unit *u, const struct dw_value *v, u64 *ret)
{
	struct dw_unit *owner = u->skeleton ? u->skeleton : u;
	struct buf b;

	switch (v->form) {
	case DW_FORM_addr:
		*ret = v->u;
		return true;
	case DW_FORM_addrx:
	case DW_FORM_addrx1:
	case DW_FORM_addrx2:
	case DW_FORM_addrx3:
	case DW_FORM_addrx4:
	case DW_FORM_GNU_addr_index:
		if (v->u > 0xffffffff)
			return false;
		b = dw_section_at(owner->file, DW_ADDR, owner->addr_base, v->u * 8);
		return buf_u64(&b, ret);
	default:
		return false;
	}
}

struct dw_unit *dw_follow(struct dw_unit *u, const struct dw_value *v, u64 *ret_offset)
{
	struct dw_file *f = u->file;

	*ret_offset = v->u;
	switch (v->form) {
	case DW_FORM_ref1:
	case DW_FORM_ref2:
	case DW_FORM_ref4:
	case DW_FORM_ref8:
	case DW_FORM_ref_udata:
		return u;
	case DW_FORM_ref_addr:
		break;
	case DW_FORM_GNU_ref_alt:
	case DW_FORM_ref_sup4:
	case DW_FORM_ref_sup8:
		f = dw_alt(f->dwarf);
		break;
	default:
		return NULL;
	}
	return f ? dw_unit_of_die(f, v->u) : NULL;
}
