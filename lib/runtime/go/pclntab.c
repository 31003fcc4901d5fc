/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/go/pclntab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define MAGIC_1_2 0xfffffffbu
#define MAGIC_1_16 0xfffffffau
#define MAGIC_1_18 0xfffffff0u
#define MAGIC_1_20 0xfffffff1u
#define MAX_FUNCS (16u << 20)
#define SEARCH_CHUNK (1u << 20)
#define GOEXIT_MAX 8
/* Longer names are none that matter here, and are not searched for their end. */
#define NAME_MAX_BYTES 128
/* Of files without section headers: how much is looked through, and how many magics are tried. */
#define SEARCH_MAX_BYTES (1ULL << 30)
#define SEARCH_MAX_TRIES 16

static const char *const section_names[] = {
	".gopclntab",
	".data.rel.ro.gopclntab",
	".pclntab",
};

static bool read_word(const struct buf *b, u64 at, u32 bytes, u64 *ret)
{
	struct buf copy = *b;
	u32 v;

	if (!buf_skip(&copy, at))
		return false;
	if (bytes == 8)
		return buf_u64(&copy, ret);
	if (!buf_u32(&copy, &v))
		return false;
	*ret = v;
	return true;
}

static u32 entry_bytes(const struct gotab *t)
{
	return t->v116 ? 8 : 4;
}

u64 gotab_start(const struct gotab *t, u32 i)
{
	u64 v = 0;

	(void)read_word(&t->functab, (u64)i * 2 * entry_bytes(t), entry_bytes(t), &v);
	return t->text + v;
}

u32 gotab_find(const struct gotab *t, u64 svma)
{
	u32 lo = 0, n = t->n;

	while (n > 1) {
		u32 half = n / 2;

		if (gotab_start(t, lo + half) <= svma)
			lo += half;
		n -= half;
	}
	return lo;
}

bool gotab_func(const struct gotab *t, u32 i, struct go_func *ret)
{
	u32 entry = entry_bytes(t);
	struct go_func f = {.name = ""};
	struct buf body = t->functab, name = t->names;
	u32 nameoff, flag_at;
	u64 off;

	if (!read_word(&t->functab, ((u64)i * 2 + 1) * entry, entry, &off) || off < t->functab_at ||
	    !buf_skip(&body, off - t->functab_at) || !buf_skip(&body, entry) ||
	    !buf_u32(&body, &nameoff) || !buf_skip(&body, 8) || !buf_u32(&body, &f.pcsp))
		return false;
	/* Behind pcsp: pcfile, pcln, npcdata, cuOffset, startLine from 1.20 on, funcID, flag. */
	flag_at = (t->v120 ? 20 : 16) + 1;
	if (!t->v115 && (!buf_skip(&body, flag_at) || !buf_u8(&body, &f.flag)))
		return false;
	if (buf_skip(&name, nameoff)) {
		name.end = name.pos + MIN(buf_left(&name), (size_t)NAME_MAX_BYTES);
		(void)buf_cstr(&name, &f.name);
	}
	f.start = gotab_start(t, i);
	f.end = gotab_start(t, i + 1);
	*ret = f;
	return f.end >= f.start;
}

bool gopcsp_init(const struct gotab *t, const struct go_func *f, struct gopcsp *ret)
{
	*ret = (struct gopcsp){.b = t->pctab, .pc = f->start, .value = -1, .quantum = t->quantum};
	return f->pcsp && buf_skip(&ret->b, f->pcsp);
}

bool gopcsp_next(struct gopcsp *p)
{
	u64 u, delta;

	if (!buf_uleb(&p->b, &u) || u > ~0u || (!u && p->started) || !buf_uleb(&p->b, &delta) ||
	    delta > ~0u)
		return false;
	p->started = true;
	p->value += u & 1 ? ~(s64)(u >> 1) : (s64)(u >> 1);
	p->pc += delta * p->quantum;
	return true;
}

/* Everything but the address that entries count from. */
static int parse_header(struct buf tab, struct gotab *t, u64 *ret_text)
{
	struct buf b = tab;
	u64 word[8], n_words;
	u32 magic;
	u16 zero;
	u8 ptr_size;

	if (!buf_u32(&b, &magic))
		return -ENOENT;
	t->v115 = magic == MAGIC_1_2;
	t->v116 = magic == MAGIC_1_16 || t->v115;
	t->v120 = magic == MAGIC_1_20;
	if (!t->v116 && !t->v120 && magic != MAGIC_1_18)
		return -ENOENT;
	if (!buf_u16(&b, &zero) || zero || !buf_u8(&b, &t->quantum) || !buf_u8(&b, &ptr_size) ||
	    (t->quantum != 1 && t->quantum != 4) || ptr_size != 8)
		return -ENOENT;
	n_words = t->v115 ? 1 : t->v116 ? 7 : 8;
	for (u32 i = 0; i < n_words; i++)
		if (!buf_u64(&b, &word[i]))
			return -EINVAL;
	if (!word[0] || word[0] > MAX_FUNCS)
		return -EINVAL;
	t->n = (u32)word[0];
	*ret_text = t->v116 ? 0 : word[2];
	/* Each part reaches as far as the whole: their ends are not told. */
	t->names = t->pctab = t->functab = tab;
	if (t->v115) {
		t->functab = b;
		t->functab_at = (u8)(b.pos - tab.pos);
		return ((u64)t->n * 2 + 1) * entry_bytes(t) > buf_left(&b) ? -EINVAL : 0;
	}
	if (!buf_skip(&t->names, word[n_words - 5]) || !buf_skip(&t->pctab, word[n_words - 2]) ||
	    !buf_skip(&t->functab, word[n_words - 1]) ||
	    ((u64)t->n * 2 + 1) * entry_bytes(t) > buf_left(&t->functab))
		return -EINVAL;
	return 0;
}

static bool sorted_within(const struct gotab *t, u64 exec_lo, u64 exec_hi)
{
	u64 last = gotab_start(t, 0);

	if (last < exec_lo)
		return false;
	for (u32 i = 1; i <= t->n; i++) {
		u64 start = gotab_start(t, i);

		if (start < last || start > exec_hi)
			return false;
		last = start;
	}
	return true;
}

/*
 * The first bytes of runtime.goexit, whose call to goexit1 says how far apart the two are, as the
 * table does: bytes that are there at the address where they must be prove where the text is.
 * The address itself is in the header up to 1.25 only, and there only when it is not relocated.
 */
static u32 goexit_bytes(const struct elf_file *elf, s64 distance, u8 ret[static GOEXIT_MAX])
{
	u32 insn[2];
	s32 rel;

	if (elf->machine == EM_X86_64) {
		rel = (s32)(distance - 6);
		memcpy(ret, "\x90\xe8", 2); /* nop; call goexit1 */
		memcpy(ret + 2, &rel, 4);
		return 6;
	}
	insn[0] = 0xaa0003e0; /* mov x0, x0; bl goexit1 */
	insn[1] = 0x94000000 | ((u32)((distance - 4) / 4) & 0x03ffffff);
	memcpy(ret, insn, 8);
	return 8;
}

/* Offsets of the functions of that name; wrappers have the same one. At most max. */
static u32 offsets_of(const struct gotab *t, const char *name, u64 *ret, u32 max)
{
	u32 n = 0;

	for (u32 i = 0; i < t->n && n < max; i++) {
		struct go_func f;

		if (gotab_func(t, i, &f) && !strcmp(f.name, name))
			ret[n++] = f.start - t->text;
	}
	return n;
}

struct goexit {
	u64 offset;
	u32 n;
	u8 bytes[GOEXIT_MAX];
};

static bool text_is(struct elf_file *elf, const struct goexit *g, u64 text)
{
	u8 have[GOEXIT_MAX];

	return elf_file_copy(elf, text + g->offset, g->n, have) == (ssize_t)g->n &&
	       !memcmp(have, g->bytes, g->n);
}

/* Looks through all code for goexit's bytes. */
static bool search_text(struct elf_file *elf, const struct goexit *g, u64 lo, u64 hi, u64 *ret)
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

static bool find_text(struct elf_file *elf, const struct gotab *t, u64 header_text, u64 lo, u64 hi,
		      u64 *ret)
{
	struct elf_section text = {};
	u64 exits[2], targets[4];
	u32 n_exits = offsets_of(t, "runtime.goexit", exits, ARRAY_SIZE(exits));
	u32 n_targets = offsets_of(t, "runtime.goexit1", targets, ARRAY_SIZE(targets));

	(void)elf_file_section(elf, ".text", &text, NULL);
	for (u32 i = 0; i < n_exits * n_targets; i++) {
		struct goexit g = {.offset = exits[i / n_targets]};

		g.n = goexit_bytes(elf, (s64)(targets[i % n_targets] - g.offset), g.bytes);
		if (header_text && text_is(elf, &g, header_text))
			*ret = header_text;
		else if (text.svma && text_is(elf, &g, text.svma))
			*ret = text.svma;
		else if (!search_text(elf, &g, lo, hi, ret))
			continue;
		return true;
	}
	/* A plugin has no goexit of its own. */
	*ret = header_text;
	return header_text != 0;
}

static int open_at(struct elf_file *elf, struct buf tab, u64 svma, u64 lo, u64 hi,
		   struct gotab *ret)
{
	struct gotab t = {};
	u64 header_text;
	int r = parse_header(tab, &t, &header_text);

	if (r < 0)
		return r;
	/* In a PIE its addresses are relocations. */
	if (t.v116 && elf->type == ET_DYN) {
		r = elf_file_relocated(elf, svma, buf_left(&tab), &tab);
		if (r == 0)
			r = parse_header(tab, &t, &header_text);
		if (r < 0)
			return r;
	}
	if (!t.v116 && !find_text(elf, &t, header_text, lo, hi, &t.text))
		return -EINVAL;
	if (!sorted_within(&t, lo, hi))
		return -EINVAL;
	*ret = t;
	return 0;
}

/* Without section headers: the magic, 8-aligned, in a segment that is not code. */
static int search_segment(struct elf_file *elf, const struct elf_segment *seg, u64 lo, u64 hi,
			  struct gotab *ret)
{
	_cleanup_free_ u8 *bytes = malloc(SEARCH_CHUNK);
	u64 end = MIN(seg->filesz, SEARCH_MAX_BYTES);
	u32 tries = 0;

	for (u64 at = 0; bytes && at < end && tries < SEARCH_MAX_TRIES; at += SEARCH_CHUNK) {
		ssize_t n = elf_file_copy(elf, seg->svma + at, SEARCH_CHUNK, bytes);

		if (n <= 0)
			break;

		for (ssize_t i = 0; i + 8 <= n && tries < SEARCH_MAX_TRIES; i += 8) {
			struct gotab t;
			struct buf tab;
			u64 head, header_text, from = at + (u64)i;

			memcpy(&head, bytes + i, 8);
			if ((head & 0xff00ffffffffff00ULL) != 0x08000000ffffff00ULL ||
			    parse_header(buf_of(bytes + i, (size_t)(n - i)), &t, &header_text) ==
				    -ENOENT)
				continue;
			tries++;
			if (elf_file_bytes(elf, seg->svma + from, seg->filesz - from, &tab) == 0 &&
			    open_at(elf, tab, seg->svma + from, lo, hi, ret) == 0)
				return 0;
		}
	}
	return -ENOENT;
}

int gotab_open(struct elf_file *elf, u64 exec_lo, u64 exec_hi, struct gotab *ret)
{
	struct elf_section s;
	struct buf tab;

	for (size_t i = 0; i < ARRAY_SIZE(section_names); i++)
		if (elf_file_section(elf, section_names[i], &s, &tab) == 0)
			return open_at(elf, tab, s.svma, exec_lo, exec_hi, ret);
	/* In a PIE that the system's linker made it lies in .data.rel.ro, among other things. */
	if (elf_file_section(elf, ".text", NULL, NULL) == 0 &&
	    elf_file_section(elf, ".note.go.buildid", NULL, NULL) < 0)
		return -ENOENT;
	for (u32 i = 0; i < elf->n_segments; i++)
		if (!(elf->segments[i].flags & PF_X) &&
		    search_segment(elf, &elf->segments[i], exec_lo, exec_hi, ret) == 0)
			return 0;
	return -ENOENT;
}
