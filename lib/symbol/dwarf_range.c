/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the address ranges of a DIE: low_pc and high_pc, .debug_ranges, .debug_rnglists. */
#include "symbol/dwarf.h"

#include <dwarf.h>
#include <errno.h>

/* Returns the unit whose low_pc a DIE's ranges are relative to: the skeleton of a split unit. */
static struct dw_unit *address_unit(struct dw_unit *u)
{
	return u->skeleton ? u->skeleton : u;
}

static int old_ranges(struct dw_unit *u, u64 offset, dw_range_fn *fn, void *arg)
{
	struct dw_unit *owner = address_unit(u);
	u64 base = owner->low_pc;
	struct buf b;

	if (u->skeleton)
		offset += owner->ranges_base;
	b = dw_section_at(owner->file, DW_RANGES, 0, offset);
	for (;;) {
		u64 lo, hi;
		int r;

		if (!buf_u64(&b, &lo) || !buf_u64(&b, &hi)) {
			dw_damaged(owner->file, DW_RANGES, buf_offset(&b), "ranges without end");
			return -EINVAL;
		}
		if (!dw_step(u->file->dwarf))
			return -EINVAL;
		if (!lo && !hi)
			return 0;
		if (lo == ~0ULL) {
			base = hi;
			continue;
		}
		r = lo < hi ? fn(arg, base + lo, base + hi) : 0;
		if (r != 0)
			return r;
	}
}

static bool indexed_address(struct dw_unit *u, struct buf *b, u64 *ret)
{
	struct dw_value v = {.form = DW_FORM_addrx};

	return buf_uleb(b, &v.u) && dw_address(u, &v, ret);
}

/* 1 = a range, 0 = no range, 2 = the end. */
static int read_rnglist_entry(struct dw_unit *u, struct buf *b, u64 *base, u64 *lo, u64 *hi)
{
	u8 kind;

	if (!buf_u8(b, &kind))
		return -EINVAL;
	switch (kind) {
	case DW_RLE_end_of_list:
		return 2;
	case DW_RLE_base_addressx:
		return indexed_address(u, b, base) ? 0 : -EINVAL;
	case DW_RLE_base_address:
		return buf_u64(b, base) ? 0 : -EINVAL;
	case DW_RLE_startx_endx:
		return indexed_address(u, b, lo) && indexed_address(u, b, hi) ? 1 : -EINVAL;
	case DW_RLE_startx_length:
		if (!indexed_address(u, b, lo) || !buf_uleb(b, hi))
			return -EINVAL;
		*hi += *lo;
		return 1;
	case DW_RLE_offset_pair:
		if (!buf_uleb(b, lo) || !buf_uleb(b, hi))
			return -EINVAL;
		*lo += *base;
		*hi += *base;
		return 1;
	case DW_RLE_start_end:
		return buf_u64(b, lo) && buf_u64(b, hi) ? 1 : -EINVAL;
	case DW_RLE_start_length:
		if (!buf_u64(b, lo) || !buf_uleb(b, hi))
			return -EINVAL;
		*hi += *lo;
		return 1;
	default:
		return -EINVAL;
	}
}

static int rnglists(struct dw_unit *u, const struct dw_value *v, dw_range_fn *fn, void *arg)
{
	u64 base = address_unit(u)->low_pc, section = u->base[DW_RNGLISTS], offset = v->u;
	struct buf b;

	if (v->form == DW_FORM_rnglistx) {
		u64 relative = 0;
		u32 w;

		if (v->u > 0xffffffff)
			return -EINVAL;
		b = dw_section_at(u->file, DW_RNGLISTS, section,
				  u->rnglists_base + v->u * u->offset_size);
		if (u->offset_size == 8 ? !buf_u64(&b, &relative) : !buf_u32(&b, &w))
			return -EINVAL;
		if (u->offset_size == 4)
			relative = w;
		offset = u->rnglists_base + relative;
	}
	b = dw_section_at(u->file, DW_RNGLISTS, section, offset);
	for (;;) {
		u64 lo, hi, at = buf_offset(&b);
		int r = read_rnglist_entry(u, &b, &base, &lo, &hi);

		if (r < 0)
			dw_damaged(u->file, DW_RNGLISTS, at, "a damaged range");
		if (r < 0 || !dw_step(u->file->dwarf))
			return -EINVAL;
		if (r == 2)
			return 0;
		if (r == 1 && lo < hi) {
			r = fn(arg, lo, hi);
			if (r != 0)
				return r;
		}
	}
}

int dw_ranges(struct dw_unit *u, const struct dw_die *d, dw_range_fn *fn, void *arg)
{
	u64 lo, hi;

	if (dw_has(d, DW_A_RANGES))
		return u->version == 5 ? rnglists(u, &d->v[DW_A_RANGES], fn, arg)
				       : old_ranges(u, d->v[DW_A_RANGES].u, fn, arg);
	if (!dw_has(d, DW_A_LOW_PC) || !dw_has(d, DW_A_HIGH_PC) ||
	    !dw_address(u, &d->v[DW_A_LOW_PC], &lo))
		return 0;
	if (!dw_address(u, &d->v[DW_A_HIGH_PC], &hi))
		hi = lo + d->v[DW_A_HIGH_PC].u;
	return lo < hi ? fn(arg, lo, hi) : 0;
}

static int covers(void *arg, u64 lo, u64 hi)
{
	u64 pc = *(u64 *)arg;

	return pc >= lo && pc < hi;
}

bool dw_covers(struct dw_unit *u, const struct dw_die *d, u64 pc)
{
	return dw_ranges(u, d, covers, &pc) > 0;
}
