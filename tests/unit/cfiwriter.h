/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes .eh_frame and .debug_frame sections entry by entry:
 *
 *	struct cfiw w = {.eh = true, .svma = 0x21000};
 *	size_t cie = cfiw_cie(&w, "zR", "\x0c\x07\x08\x90\x01", 5);
 *	cfiw_fde(&w, cie, 0x1000, 0x40, "\x41\x0e\x10", 3);
 */
#pragma once

#include "base/str.h"

struct cfiw {
	bool eh;
	bool dwarf64;
	u8 version; /* 0 = 1 */
	u64 svma;
	u8 code_align; /* 0 = 1 */
	u8 data_align; /* one byte of sleb128; 0 = 0x78, -8 */
	u8 ra;	       /* 0 = 16 */
	struct str out;
	size_t length_at, body_at;
};

static inline void cfiw_begin(struct cfiw *w)
{
	if (w->dwarf64)
		str_append(&w->out, "\xff\xff\xff\xff", 4);
	w->length_at = w->out.n;
	str_append(&w->out, "\0\0\0\0\0\0\0", w->dwarf64 ? 8 : 4);
	w->body_at = w->out.n;
}

static inline void cfiw_end(struct cfiw *w)
{
	u64 n;

	while (w->out.n % 8)
		str_putc(&w->out, 0);
	n = w->out.n - w->body_at;
	memcpy(w->out.data + w->length_at, &n, w->dwarf64 ? 8 : 4);
}

static inline void cfiw_id(struct cfiw *w, u64 id)
{
	str_append(&w->out, &id, w->dwarf64 && !w->eh ? 8 : 4);
}

/* Returns the CIE's offset. Its FDEs have pcrel sdata4 pointers if it has an 'R', else absolute. */
static inline size_t cfiw_cie(struct cfiw *w, const char *augmentation, const void *program,
			      size_t n)
{
	size_t at = w->out.n;
	u8 version = w->version ? w->version : 1;

	cfiw_begin(w);
	cfiw_id(w, w->eh ? 0 : ~0ULL);
	str_putc(&w->out, (char)version);
	str_append(&w->out, augmentation, strlen(augmentation) + 1);
	if (version == 4)
		str_append(&w->out, "\x08", 2);
	str_putc(&w->out, (char)(w->code_align ? w->code_align : 1));
	str_putc(&w->out, (char)(w->data_align ? w->data_align : 0x78));
	str_putc(&w->out, (char)(w->ra ? w->ra : 16));
	if (*augmentation == 'z') {
		struct str data = {};

		for (const char *c = augmentation + 1; *c; c++) {
			if (*c == 'R' || *c == 'L')
				str_putc(&data, 0x1b);
			if (*c == 'P')
				str_append(&data, "\x9b\1\2\3\4", 5);
		}
		str_putc(&w->out, (char)data.n);
		str_append(&w->out, str_get(&data), data.n);
		str_deinit(&data);
	}
	str_append(&w->out, program, n);
	cfiw_end(w);
	return at;
}

static inline size_t cfiw_fde(struct cfiw *w, size_t cie, u64 start, u64 length,
			      const void *program, size_t n)
{
	size_t at = w->out.n;

	cfiw_begin(w);
	cfiw_id(w, w->eh ? w->body_at - cie : cie);
	if (w->eh) {
		s32 rel = (s32)(start - (w->svma + w->out.n));
		u32 n32 = (u32)length;

		str_append(&w->out, &rel, 4);
		str_append(&w->out, &n32, 4);
		str_putc(&w->out, 0);
	} else {
		str_append(&w->out, &start, 8);
		str_append(&w->out, &length, 8);
	}
	str_append(&w->out, program, n);
	cfiw_end(w);
	return at;
}
