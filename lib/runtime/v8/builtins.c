/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/v8/builtins.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define CHUNK (1u << 20)
#define MAX_STRIDE 32 /* bytes of an entry; seen: 8 (V8 7 and 8) to 28 (V8 11) */
#define MIN_BUILTINS 1000
#define MAX_BUILTINS 8192
#define MAX_TABLE (MAX_BUILTINS * MAX_STRIDE)
#define MAX_LENGTH (1u << 20)
#define MAX_GAP 64
#define ZAP 0xcc

/* The form of a table: the size of an entry, and the alignment of builtins. */
struct form {
	u32 stride, align;
};

static u32 word_at(const u8 *p)
{
	u32 v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Returns the offset of the next builtin: at least one byte is between the two. */
static u64 next_offset(u32 offset, u32 length, u32 align)
{
	return ((u64)offset + length + align) & ~(u64)(align - 1);
}

/* Returns the number of builtins that the table at p describes, in at most n bytes. */
static u32 count_entries(const u8 *p, size_t n, struct form f)
{
	u32 count = 0, offset = 0;

	while (((u64)count + 1) * f.stride <= n && count < MAX_BUILTINS) {
		const u8 *e = p + (u64)count * f.stride;
		u32 length = word_at(e + 4);

		if (word_at(e) != offset || !length || length > MAX_LENGTH)
			break;
		offset = (u32)next_offset(offset, length, f.align);
		count++;
	}
	return count;
}

static int take_table(const u8 *p, struct form f, u32 n, struct v8_builtins *b)
{
	free(b->list);
	b->list = calloc(n, sizeof(*b->list));
	if (!b->list)
		return -ENOMEM;
	b->n = n;
	for (u32 i = 0; i < n; i++)
		b->list[i] = (struct v8_builtin){word_at(p + (u64)i * f.stride),
						 word_at(p + (u64)i * f.stride + 4)};
	return 0;
}

/* Whether the code at `start` has filler bytes after each builtin. */
static bool code_agrees(struct elf_file *elf, const struct v8_builtins *b, u64 start)
{
	for (u32 i = 0; i + 1 < b->n; i++) {
		u32 end = b->list[i].offset + b->list[i].length, n = b->list[i + 1].offset - end;
		u8 gap[MAX_GAP];

		if (n > sizeof(gap) || elf_file_copy(elf, start + end, n, gap) != (ssize_t)n)
			return false;
		for (u32 j = 0; j < n; j++)
			if (gap[j] != ZAP)
				return false;
	}
	return true;
}

/* Tries each address in [from, to) where the code may begin, by the last byte of the first gap. */
static bool find_code_in(struct elf_file *elf, const struct v8_builtins *b, u64 from, u64 to,
			 u8 *bytes, u64 *ret)
{
	u32 first = b->list[1].offset - 1;

	for (u64 at = (from + 31) & ~31ULL; at < to; at += CHUNK) {
		ssize_t n = elf_file_copy(elf, at + first, MIN((u64)CHUNK, to - at), bytes);

		for (ssize_t i = 0; i < n; i += 32)
			if (bytes[i] == ZAP && code_agrees(elf, b, at + (u64)i)) {
				*ret = at + (u64)i;
				return true;
			}
	}
	return false;
}

static bool find_code(struct elf_file *elf, u8 *bytes, struct v8_builtins *b)
{
	const struct v8_builtin *last = &b->list[b->n - 1];

	for (u32 i = 0; i < elf->n_segments; i++) {
		const struct elf_segment *seg = &elf->segments[i];
		u64 n = (u64)last->offset + last->length;

		if (!(seg->flags & PF_X) || seg->filesz < n)
			continue;
		if (!find_code_in(elf, b, seg->svma, seg->svma + seg->filesz - n + 1, bytes,
				  &b->start))
			continue;
		b->end = b->start + n;
		return true;
	}
	return false;
}

/*
 * Returns the number of builtins in the table at p, of at most n bytes, and its form; 0: no table.
 */
static u32 table_at(const u8 *p, size_t n, struct form *ret)
{
	u32 length = word_at(p + 4), best = 0;
	struct form f;

	if (word_at(p) || !length || length > MAX_LENGTH)
		return 0;
	for (f.align = 32; f.align <= 64; f.align *= 2)
		for (f.stride = 8; f.stride <= MAX_STRIDE; f.stride += 4) {
			u32 count;

			if (word_at(p + f.stride) != next_offset(0, length, f.align))
				continue;
			count = count_entries(p, n, f);
			if (count <= best)
				continue;
			best = count;
			*ret = f;
		}
	return best;
}

/* 1: found; 0: the table is not in this segment. */
static int find_in(struct elf_file *elf, const struct elf_segment *seg, u8 *bytes, u8 *code,
		   struct v8_builtins *b)
{
	for (u64 at = 0; at < seg->filesz; at += CHUNK) {
		ssize_t n = elf_file_copy(elf, seg->svma + at, CHUNK + MAX_TABLE, bytes);

		for (ssize_t i = 0; i < CHUNK && i + MAX_STRIDE + 8 <= n; i += 4) {
			struct form f = {};
			u32 count = table_at(bytes + i, (size_t)(n - i), &f);

			if (count < MIN_BUILTINS)
				continue;
			if (take_table(bytes + i, f, count, b) < 0)
				return -ENOMEM;
			if (find_code(elf, code, b))
				return 1;
		}
	}
	return 0;
}

int v8_builtins_find(struct elf_file *elf, struct v8_builtins *ret)
{
	_cleanup_free_ u8 *bytes = malloc(CHUNK + MAX_TABLE), *code = malloc(CHUNK);
	struct v8_builtins b = {};
	int r = bytes && code ? 0 : -ENOMEM;

	/* Since 8.5 the table is in read-only data, before that in front of the code. */
	for (u32 pass = 0; pass < 2 && r == 0; pass++)
		for (u32 i = 0; i < elf->n_segments && r == 0; i++) {
			const struct elf_segment *seg = &elf->segments[i];

			if (!(seg->flags & PF_W) && !(seg->flags & PF_X) == !pass)
				r = find_in(elf, seg, bytes, code, &b);
		}
	if (r <= 0) {
		v8_builtins_deinit(&b);
		return r < 0 ? r : -ENOENT;
	}
	*ret = b;
	return 0;
}

void v8_builtins_deinit(struct v8_builtins *b)
{
	free(b->list);
	*b = (struct v8_builtins){};
}
