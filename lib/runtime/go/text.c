/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds runtime.text. Since 1.18 entries of the functab are relative to it. The header contains the
 * address up to 1.25 only, and only if it is not a relocation.
 *
 * The proof: runtime.goexit begins with a call of goexit1, and the table gives the distance between
 * the two. If these bytes are where goexit must be, the address is right.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "runtime/go/pclntab.h"

#define SEARCH_CHUNK (1u << 20)
#define SEARCH_MAX_BYTES (1ULL << 30)
#define GOEXIT_MAX 8

struct goexit {
	u64 offset; /* from runtime.text */
	u32 n;
	u8 bytes[GOEXIT_MAX];
};

/* `target` is the offset of goexit1 from runtime.text. */
static struct goexit goexit_of(u16 machine, u64 offset, u64 target)
{
	struct goexit g = {.offset = offset};
	s64 distance = (s64)(target - offset);
	u32 insn[2];
	s32 rel;

	if (machine == EM_X86_64) {
		rel = (s32)(distance - 6);
		memcpy(g.bytes, "\x90\xe8", 2); /* nop; call goexit1 */
		memcpy(g.bytes + 2, &rel, 4);
		g.n = 6;
	} else {
		insn[0] = 0xaa0003e0; /* mov x0, x0; bl goexit1 */
		insn[1] = 0x94000000 | ((u32)((distance - 4) / 4) & 0x03ffffff);
		memcpy(g.bytes, insn, 8);
		g.n = 8;
	}
	return g;
}

/*
 * Returns the offsets from runtime.text of functions of a name, at most max: wrappers have the same
 * name.
 */
static u32 offsets_of(const struct pclntab *t, const char *name, u64 *ret, u32 max)
{
	u32 n = 0;

	for (u32 i = 0; i < t->n && n < max; i++) {
		struct go_func f;

		if (pclntab_func(t, i, &f) && !strcmp(pclntab_short_name(t, f.name), name))
			ret[n++] = f.start - t->text;
	}
	return n;
}

static bool is_at_text(struct elf_file *elf, const struct goexit *g, u64 text)
{
	u8 have[GOEXIT_MAX];

	return text && elf_file_copy(elf, text + g->offset, g->n, have) == (ssize_t)g->n &&
	       !memcmp(have, g->bytes, g->n);
}

/* Searches all code for goexit's bytes. */
static bool search_code(struct elf_file *elf, const struct goexit *g, u64 lo, u64 hi, u64 *ret)
{
	_cleanup_free_ u8 *code = malloc(SEARCH_CHUNK + GOEXIT_MAX);

	hi = MIN(hi, lo + SEARCH_MAX_BYTES);
	for (u64 at = lo; code && at < hi; at += SEARCH_CHUNK) {
		ssize_t n = elf_file_copy(elf, at, SEARCH_CHUNK + g->n - 1, code);
		u8 *hit = n > 0 ? memmem(code, (size_t)n, g->bytes, g->n) : NULL;

		if (hit && at + (u64)(hit - code) >= g->offset) {
			*ret = at + (u64)(hit - code) - g->offset;
			return true;
		}
	}
	return false;
}

static bool prove_text(const struct pclntab *t, u64 lo, u64 hi, u64 *ret)
{
	struct elf_section section = {};
	u64 exits[2], targets[4];
	u32 n_exits = offsets_of(t, "runtime.goexit", exits, ARRAY_SIZE(exits));
	u32 n_targets = offsets_of(t, "runtime.goexit1", targets, ARRAY_SIZE(targets));

	(void)elf_file_section(t->elf, ".text", &section, NULL);
	for (u32 i = 0; i < n_exits * n_targets; i++) {
		struct goexit g =
			goexit_of(t->elf->machine, exits[i / n_targets], targets[i % n_targets]);

		if (is_at_text(t->elf, &g, t->text))
			*ret = t->text;
		else if (is_at_text(t->elf, &g, section.svma))
			*ret = section.svma;
		else if (!search_code(t->elf, &g, lo, hi, ret))
			continue;
		return true;
	}
	return false;
}

/* Returns the range of svmas that contains all code of a file. */
static void find_code(const struct elf_file *elf, u64 *ret_lo, u64 *ret_hi)
{
	*ret_lo = ~0ULL;
	*ret_hi = 0;
	for (u32 i = 0; i < elf->n_segments; i++)
		if (elf->segments[i].flags & PF_X) {
			*ret_lo = MIN(*ret_lo, elf->segments[i].svma);
			*ret_hi = MAX(*ret_hi, elf->segments[i].svma + elf->segments[i].memsz);
		}
}

int pclntab_open_with_text(struct elf_file *elf, struct pclntab *ret)
{
	struct pclntab t;
	u64 lo, hi;
	int r = pclntab_open(elf, &t);

	if (r < 0)
		return r;
	find_code(elf, &lo, &hi);
	/* A plugin may have no goexit of its own: then the header's value is used. */
	if (t.version >= GO_1_18 && !prove_text(&t, lo, hi, &t.text) && !t.text)
		return -EINVAL;
	/* Entries are sorted, so checking the first and the last is enough. */
	if (pclntab_start(&t, 0) < lo || pclntab_start(&t, t.n) > hi)
		return -EINVAL;
	*ret = t;
	return 0;
}
