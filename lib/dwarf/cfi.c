/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the sections, CIEs and FDEs of call frame information; cfi_run.c interprets their programs.
 * Layout: DWARF 5 section 6.4, and for .eh_frame the LSB Core specification, "Exception Frames".
 *
 *	entry   length u32 (0xffffffff: u64 follows)  id  body …
 *	CIE     id = 0 (.eh_frame) or all ones (.debug_frame)
 *	FDE     id = distance back to the CIE from the id field (.eh_frame), or its section offset
 */
#include "dwarf/cfi.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "dwarf/cfi_private.h"

/*
 * A CIE that falls out of the cache is parsed again, so a hostile section could make the reader
 * parse one long CIE for each of many FDEs. These limits bound that. Compilers write 5 letters and
 * 20 bytes.
 */
#define MAX_AUGMENTATION 16
#define MAX_CIE_PROGRAM 4096
#define PE_OMIT 0xff
#define PE_INDIRECT 0x80

static const struct cfi_machine machine_x86_64 = {
	.fp = 6, .sp = 7, .ra = 16, .bx = 3, .n_regs = 16};
/* siginfo (128 bytes) precedes the ucontext: struct rt_sigframe in arch/arm64/kernel/signal.c. */
static const struct cfi_machine machine_aarch64 = {
	.fp = 29,
	.sp = 31,
	.ra = 30,
	.bx = 0xff,
	.n_regs = 32,
	.link_register = true,
	.signal_to_ucontext = 128,
};

const struct cfi_machine *cfi_machine_of(u16 e_machine)
{
	return e_machine == EM_X86_64	 ? &machine_x86_64
	       : e_machine == EM_AARCH64 ? &machine_aarch64
					 : NULL;
}

static bool pointer_value(struct buf *b, u8 format, u64 *ret)
{
	u16 v2;
	u32 v4;
	s64 sleb;

	switch (format) {
	case 0x00: /* absptr */
	case 0x04: /* udata8 */
	case 0x0c: /* sdata8 */
		return buf_u64(b, ret);
	case 0x01:
		return buf_uleb(b, ret);
	case 0x02:
	case 0x0a:
		if (!buf_u16(b, &v2))
			return false;
		*ret = format == 0x02 ? v2 : (u64)(s64)(s16)v2;
		return true;
	case 0x03:
	case 0x0b:
		if (!buf_u32(b, &v4))
			return false;
		*ret = format == 0x03 ? v4 : (u64)(s64)(s32)v4;
		return true;
	case 0x09:
		if (!buf_sleb(b, &sleb))
			return false;
		*ret = (u64)sleb;
		return true;
	default:
		return false;
	}
}

bool cfi_pointer(struct buf *b, u8 encoding, u64 at, u64 base, u64 *ret_value)
{
	struct buf copy = *b;
	u64 v;

	if (encoding == PE_OMIT || encoding & PE_INDIRECT ||
	    !pointer_value(&copy, encoding & 0x0f, &v))
		return false;
	switch (encoding & 0x70) {
	case 0x00:
		break;
	case 0x10: /* pcrel */
		v += at;
		break;
	case 0x30: /* datarel */
		v += base;
		break;
	default: /* textrel, funcrel, aligned: no linker writes them for these machines */
		return false;
	}
	*b = copy;
	*ret_value = v;
	return true;
}

int cfi_table_init(struct cfi_table *t, struct buf bytes, u64 svma, bool eh, u16 e_machine)
{
	*t = (struct cfi_table){
		.bytes = bytes,
		.svma = svma,
		.eh = eh,
		.machine = cfi_machine_of(e_machine),
	};
	for (int i = 0; i < CFI_CIE_CACHE; i++)
		t->cies[i].offset = ~0ULL;
	return t->machine ? 0 : -ENOTSUP;
}

void cfi_damaged(const struct cfi_table *t, u64 offset, const char *text)
{
	if (t->elf)
		elf_file_damaged(t->elf, t->eh ? ".eh_frame" : ".debug_frame", offset, text);
}

struct entry {
	struct buf body; /* what follows the id */
	u64 id;
	u64 id_offset;
	u64 end; /* section offset of the next entry */
	bool is_cie;
};

enum entry_result { ENTRY_OK, ENTRY_ZERO, ENTRY_BAD };

static enum entry_result entry_at(const struct cfi_table *t, u64 offset, struct entry *ret)
{
	struct buf b = t->bytes;
	u32 length32, id32;
	u64 length;
	bool dwarf64;

	if (!buf_skip(&b, offset) || !buf_u32(&b, &length32))
		return ENTRY_BAD;
	if (length32 == 0)
		return ENTRY_ZERO;
	length = length32;
	dwarf64 = length32 == 0xffffffff;
	if (dwarf64 && !buf_u64(&b, &length))
		return ENTRY_BAD;
	if ((!dwarf64 && length32 >= 0xfffffff0) || !buf_take(&b, length, &ret->body))
		return ENTRY_BAD;
	ret->end = (u64)(b.pos - t->bytes.pos);
	ret->id_offset = (u64)(ret->body.pos - t->bytes.pos);
	if (dwarf64 && !t->eh) {
		if (!buf_u64(&ret->body, &ret->id))
			return ENTRY_BAD;
		ret->is_cie = ret->id == ~0ULL;
		return ENTRY_OK;
	}
	if (!buf_u32(&ret->body, &id32))
		return ENTRY_BAD;
	ret->id = id32;
	ret->is_cie = t->eh ? id32 == 0 : id32 == 0xffffffff;
	return ENTRY_OK;
}

bool cfi_next(const struct cfi_table *t, u64 *offset, u64 *ret_fde)
{
	for (;;) {
		u64 at = *offset;
		struct entry e;

		switch (entry_at(t, at, &e)) {
		case ENTRY_BAD:
			if (at != buf_left(&t->bytes)) /* the end without a terminator */
				cfi_damaged(t, at, "an entry of impossible length");
			return false;
		case ENTRY_ZERO:
			/* ld keeps the terminators of its input files in the middle of the
			 * section. */
			if (t->stop_at_zero)
				return false;
			*offset = at + 4;
			break;
		case ENTRY_OK:
			*offset = e.end;
			if (!e.is_cie) {
				*ret_fde = at;
				return true;
			}
		}
	}
}

static bool parse_augmentation(const char *letters, struct buf data, struct cfi_cie *cie)
{
	for (const char *c = letters; *c; c++) {
		u8 encoding;
		u64 ignored;

		switch (*c) {
		case 'R':
			if (!buf_u8(&data, &cie->fde_encoding))
				return false;
			break;
		case 'P':
			if (!buf_u8(&data, &encoding) ||
			    !pointer_value(&data, encoding & 0x0f, &ignored))
				return false;
			break;
		case 'L':
			if (!buf_skip(&data, 1))
				return false;
			break;
		case 'S':
			cie->signal_frame = true;
			break;
		case 'B': /* arm64: return addresses are signed with the B key */
		case 'G': /* arm64: memory tagging */
			break;
		default:
			return false;
		}
	}
	return true;
}

/*
 * Parses a CIE from its version to the end of its augmentation. The rest of `body` is the program.
 */
static int parse_cie(const struct cfi_table *t, struct buf *body, struct cfi_cie *cie)
{
	u8 version, address_size, segment_size, ra8;
	const char *augmentation;
	struct buf letters, data = {};
	u64 ra, n;

	if (!buf_u8(body, &version))
		return -EINVAL;
	letters = buf_of(body->pos, MIN(buf_left(body), (size_t)MAX_AUGMENTATION + 1));
	if (!buf_cstr(&letters, &augmentation))
		return -ENOTSUP;
	body->pos = letters.pos;
	if (version != 1 && version != 3 && version != 4)
		return -ENOTSUP;
	if (version == 4) {
		if (!buf_u8(body, &address_size) || !buf_u8(body, &segment_size))
			return -EINVAL;
		if (address_size != 8 || segment_size)
			return -ENOTSUP;
	}
	if (!buf_uleb(body, &cie->code_align) || !buf_sleb(body, &cie->data_align))
		return -EINVAL;
	if (version == 1) {
		if (!buf_u8(body, &ra8))
			return -EINVAL;
		ra = ra8;
	} else if (!buf_uleb(body, &ra)) {
		return -EINVAL;
	}
	if (ra != t->machine->ra)
		return -ENOTSUP;
	if (!*augmentation)
		return 0;
	if (*augmentation != 'z')
		return -ENOTSUP;
	cie->has_augmentation = true;
	if (!buf_uleb(body, &n) || !buf_take(body, n, &data))
		return -EINVAL;
	return parse_augmentation(augmentation + 1, data, cie) ? 0 : -ENOTSUP;
}

/* Returns the CIE at a section offset; parses it into the cache if it is not there. */
static const struct cfi_cie *cie_at(struct cfi_table *t, u64 offset)
{
	struct cfi_cie *cie = &t->cies[(offset >> 2) * 0x9e3779b1u >> 27 & (CFI_CIE_CACHE - 1)];
	struct entry e;
	int r = -EINVAL;

	if (cie->offset == offset)
		return cie;
	*cie = (struct cfi_cie){.offset = offset, .damaged = true};
	if (entry_at(t, offset, &e) == ENTRY_OK && e.is_cie)
		r = parse_cie(t, &e.body, cie);
	if (r < 0 || buf_left(&e.body) > MAX_CIE_PROGRAM)
		cfi_damaged(t, offset, r == -EINVAL ? "a damaged CIE" : "a CIE of unknown form");
	else
		cie->damaged = !cfi_initial_state(t, cie, e.body);
	return cie;
}

static int read_fde(struct cfi_table *t, u64 offset, struct cfi_fde *ret)
{
	struct cfi_fde fde = {};
	struct entry e;
	struct buf b;
	u64 at, n;

	if (entry_at(t, offset, &e) != ENTRY_OK || e.is_cie || (t->eh && e.id > e.id_offset))
		return -EINVAL;
	fde.cie = cie_at(t, t->eh ? e.id_offset - e.id : e.id);
	if (fde.cie->damaged)
		return -ENOTSUP;
	b = e.body;
	at = t->svma + (u64)(b.pos - t->bytes.pos);
	if (!cfi_pointer(&b, fde.cie->fde_encoding, at, 0, &fde.start) ||
	    !pointer_value(&b, fde.cie->fde_encoding & 0x0f, &n))
		return -EINVAL;
	if (n > ~0ULL - fde.start)
		return -EINVAL;
	fde.end = fde.start + n;
	if (fde.cie->has_augmentation && (!buf_uleb(&b, &n) || !buf_skip(&b, n)))
		return -EINVAL;
	fde.program = b;
	fde.program_svma = t->svma + (u64)(b.pos - t->bytes.pos);
	*ret = fde;
	return 0;
}

int cfi_fde_at(struct cfi_table *t, u64 offset, struct cfi_fde *ret)
{
	int r = read_fde(t, offset, ret);

	if (r == -EINVAL)
		cfi_damaged(t, offset, "a damaged FDE");
	return r;
}
