/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind/code_starts.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/map.h"
#include "runtime/v8/builtins.h"

#define SCAN_CHUNK (1u << 20)
/* In files with up to this much code, all code is searched for calls once: 1 ms per MiB. */
#define SCAN_MAX_BYTES (64ULL << 20)
#define MAX_SYMBOLS (8u << 20)
#define MAX_BACK 16
/* Bytes before an address that may be read. */
#define BEFORE_X86 32
#define PROLOGUE_ARM64 10 /* instructions */

struct named {
	u64 hash; /* hash of the name without ".cold" */
	u64 start;
	bool cold;
};
typedef vec(struct named) named_list;

static bool symbol_at(struct buf *syms, const struct buf *names, Elf64_Sym *ret_sym,
		      const char **ret_name)
{
	struct buf b = *names;

	if (buf_left(syms) < sizeof(*ret_sym))
		return false;
	memcpy(ret_sym, syms->pos, sizeof(*ret_sym));
	syms->pos += sizeof(*ret_sym);
	if (!buf_skip(&b, ret_sym->st_name) || !buf_cstr(&b, ret_name))
		*ret_name = "";
	return true;
}

/* Adds the functions of a symbol table. Returns their number, or -ENOMEM. */
static int read_symbols(struct code_starts *x, struct elf_file *f, bool dynamic, u64 lo, u64 hi,
			named_list *named)
{
	struct buf syms, names;
	size_t before = x->symbols.n;
	const char *name;
	Elf64_Sym sym;

	if (elf_file_section(f, dynamic ? ".dynsym" : ".symtab", NULL, &syms) < 0 ||
	    elf_file_section(f, dynamic ? ".dynstr" : ".strtab", NULL, &names) < 0)
		return 0;
	while (symbol_at(&syms, &names, &sym, &name) && x->symbols.n < MAX_SYMBOLS) {
		unsigned int type = ELF64_ST_TYPE(sym.st_info);
		struct code_symbol s = {.start = sym.st_value};
		const char *cold = strstr(name, ".cold");
		struct named n = {.start = s.start, .cold = cold != NULL};

		if (sym.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_GNU_IFUNC) ||
		    s.start < lo || s.start >= hi)
			continue;
		s.end = s.start + MIN(sym.st_size, hi - s.start);
		/* ~0: a cold part whose function is unknown yet */
		s.parent = cold ? ~0u : 0;
		n.hash = hash_bytes(name, cold ? (size_t)(cold - name) : strlen(name));
		x->v8 |= !strncmp(name, "_ZN2v8", 6);
		x->v8_builtins |= !strncmp(name, "Builtins_", 9);
		if (vec_push(&x->symbols, s) < 0 || vec_push(named, n) < 0)
			return -ENOMEM;
	}
	return (int)(x->symbols.n - before);
}

static int compare_symbols(const void *pa, const void *pb)
{
	const struct code_symbol *a = pa, *b = pb;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return (a->end < b->end) - (a->end > b->end);
}

static int compare_named(const void *pa, const void *pb)
{
	const struct named *a = pa, *b = pb;

	if (a->hash != b->hash)
		return a->hash < b->hash ? -1 : 1;
	if (a->cold != b->cold)
		return a->cold ? 1 : -1;
	return (a->start > b->start) - (a->start < b->start);
}

static size_t index_of(const struct code_starts *x, u64 pc)
{
	size_t lo = 0, hi = x->symbols.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (x->symbols.data[mid].start <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo; /* 1 + the index of the last symbol with start <= pc */
}

/* Links each function to its cold part if each name occurs once. */
static void join_cold_parts(struct code_starts *x, named_list *named)
{
	struct named *n = named->data;

	if (named->n)
		qsort(n, named->n, sizeof(*n), compare_named);
	for (size_t i = 1; i < named->n; i++) {
		size_t f, c;

		if (!n[i].cold || n[i - 1].cold || n[i].hash != n[i - 1].hash ||
		    (i > 1 && n[i - 2].hash == n[i].hash) ||
		    (i + 1 < named->n && n[i + 1].hash == n[i].hash))
			continue;
		f = index_of(x, n[i - 1].start);
		c = index_of(x, n[i].start);
		x->symbols.data[c - 1].parent = (u32)f;
		x->symbols.data[f - 1].cold = (u32)c;
	}
}

static void sort_symbols(struct code_starts *x)
{
	size_t out = 0;

	if (!x->symbols.n)
		return;
	qsort(x->symbols.data, x->symbols.n, sizeof(*x->symbols.data), compare_symbols);
	for (size_t i = 0; i < x->symbols.n; i++)
		if (!out || x->symbols.data[out - 1].start != x->symbols.data[i].start)
			x->symbols.data[out++] = x->symbols.data[i];
	x->symbols.n = out;
}

static int compare_addresses(const void *pa, const void *pb)
{
	const u64 *a = pa, *b = pb;

	return (*a > *b) - (*a < *b);
}

static void sort_addresses(code_addresses *a)
{
	size_t out = 0;

	if (!a->n)
		return;
	qsort(a->data, a->n, sizeof(*a->data), compare_addresses);
	for (size_t i = 0; i < a->n; i++)
		if (!out || a->data[out - 1] != a->data[i])
			a->data[out++] = a->data[i];
	a->n = out;
}

static int add_call(code_addresses *calls, u64 target, u64 lo, u64 hi)
{
	return target >= lo && target < hi ? vec_push(calls, target) : 0;
}

static int scan_calls(u16 e_machine, const u8 *code, size_t n, u64 svma, u64 lo, u64 hi,
		      code_addresses *calls)
{
	int r = 0;

	if (e_machine == EM_X86_64) {
		const u8 *p = code;

		while (r == 0 && (p = memchr(p, 0xe8, n - (size_t)(p - code)))) {
			s32 rel;

			if ((size_t)(p - code) + 5 > n)
				break;
			memcpy(&rel, p + 1, 4);
			p++;
			r = add_call(calls, svma + (u64)(p - code) + 4 + (u64)(s64)rel, lo, hi);
		}
		return r;
	}
	for (size_t i = 0; r == 0 && i + 4 <= n; i += 4) {
		u32 w;

		memcpy(&w, code + i, 4);
		if (w >> 26 == 0x25) /* bl */
			r = add_call(calls, svma + i + (u64)((s64)((u64)w << 38) >> 36), lo, hi);
	}
	return r;
}

/*
 * Keeps addresses that two calls lead to, or that are aligned: bytes that only look like a call
 * rarely lead to such an address.
 */
static void keep_believable(code_addresses *a)
{
	size_t out = 0;

	if (!a->n)
		return;
	qsort(a->data, a->n, sizeof(*a->data), compare_addresses);
	for (size_t i = 0, next; i < a->n; i = next) {
		for (next = i; next < a->n && a->data[next] == a->data[i]; next++)
			;
		if (next - i > 1 || !(a->data[i] & 15))
			a->data[out++] = a->data[i];
	}
	a->n = out;
}

static int read_calls(struct code_starts *x, struct elf_file *elf, u64 lo, u64 hi)
{
	_cleanup_free_ u8 *code = malloc(SCAN_CHUNK + 8);
	code_addresses calls = {};
	int r = code ? 0 : -ENOMEM;

	for (u64 at = lo & ~3ULL; r == 0 && hi - lo <= SCAN_MAX_BYTES && at < hi;
	     at += SCAN_CHUNK) {
		ssize_t n = elf_file_copy(elf, at, SCAN_CHUNK + 8, code);

		if (n > 0)
			r = scan_calls(elf->machine, code, (size_t)n, at, lo, hi, &calls);
	}
	keep_believable(&calls);
	x->calls.data = calls.data;
	x->calls.n = calls.n;
	x->calls.cap = calls.cap;
	return r;
}

/* Adds V8's builtins if the symbols omit them. Builtins call each other through a table. */
static int read_builtins(struct code_starts *x, struct elf_file *elf, u64 lo, u64 hi)
{
	struct v8_builtins b = {};
	int r = v8_builtins_find(elf, &b);

	if (r < 0)
		return r == -ENOMEM ? r : 0;
	for (u32 i = 0; i < b.n && r == 0; i++) {
		struct code_symbol s = {.start = b.start + b.list[i].offset};

		s.end = s.start + b.list[i].length;
		if (s.start >= lo && s.end <= hi)
			r = vec_push(&x->symbols, s);
	}
	v8_builtins_deinit(&b);
	return r;
}

int code_starts_read(struct code_starts *x, struct elf_file *elf, struct elf_file *mini, u64 lo,
		     u64 hi, bool scan)
{
	named_list named = {};
	int n = read_symbols(x, elf, false, lo, hi, &named), r = n;

	if (r == 0 && mini)
		r = n = read_symbols(x, mini, false, lo, hi, &named);
	if (r >= 0)
		r = read_symbols(x, elf, true, lo, hi, &named);
	x->all_symbols = n > 0;
	if (r >= 0 && x->v8 && !x->v8_builtins)
		r = read_builtins(x, elf, lo, hi);
	sort_symbols(x);
	if (r >= 0) {
		join_cold_parts(x, &named);
		r = x->all_symbols || !scan ? 0 : read_calls(x, elf, lo, hi);
	}
	vec_deinit(&named);
	return r;
}

void code_starts_deinit(struct code_starts *x)
{
	vec_deinit(&x->symbols);
	vec_deinit(&x->calls);
}

const struct code_symbol *code_starts_find(const struct code_starts *x, u64 pc)
{
	size_t i = index_of(x, pc);

	for (u32 back = 0; i > 0 && back < MAX_BACK; i--, back++)
		if (x->symbols.data[i - 1].end > pc)
			return &x->symbols.data[i - 1];
	return NULL;
}

void code_starts_around(const struct code_starts *x, u64 pc, u64 *ret_start, u64 *ret_floor,
			u64 *ret_next)
{
	size_t i = index_of(x, pc);

	*ret_next = i < x->symbols.n ? x->symbols.data[i].start : ~0ULL;
	*ret_start = *ret_floor = 0;
	for (u32 back = 0; i > 0 && back < MAX_BACK; i--, back++) {
		const struct code_symbol *s = &x->symbols.data[i - 1];

		if (s->end == s->start && !s->parent)
			*ret_start = MAX(*ret_start, s->start);
		*ret_floor = MAX(*ret_floor, s->end);
	}
}

/* ---- prologues ---- */

/* Whether the byte before p is a ret, and not an operand byte of a move or the like. */
static bool is_ret_x86(const u8 *p)
{
	static const u8 with_operands[] = {0x01, 0x03, 0x09, 0x0b, 0x21, 0x23, 0x29, 0x2b,
					   0x31, 0x33, 0x39, 0x3b, 0x63, 0x84, 0x85, 0x86,
					   0x87, 0x88, 0x89, 0x8a, 0x8b, 0xaf, 0xb6, 0xb7,
					   0xbe, 0xbf, 0xc1, 0x83, 0xd1, 0xd3, 0xf7, 0xff};

	return p[-1] == 0xc3 && !memchr(with_operands, p[-2], sizeof(with_operands));
}

/* Whether the byte before p is the last one of a nop that assemblers pad with. */
static bool is_nop_x86(const u8 *p)
{
	static const u8 lengths[] = {3, 4, 5, 7, 8};

	if (p[-1] == 0x90)
		return true;
	for (size_t i = 0; p[-1] == 0 && i < ARRAY_SIZE(lengths); i++)
		if (p[-lengths[i]] == 0x0f && p[1 - lengths[i]] == 0x1f)
			return true;
	return false;
}

/*
 * Whether code ends before p, so that control certainly or possibly does not reach p, as after a
 * call. An int3 is judged by the bytes before it, because 0xcccccccd is a common operand.
 */
enum end { NO_END, AFTER_END, AFTER_INT3 };

static enum end end_x86(const u8 *p)
{
	const u8 *from = p;

	while (p[-1] == 0xcc && from - p < 16)
		p--;
	/* A single int3 after a call may be the trap of a call that does not return. */
	if (from - p == 1 && (p[-5] == 0xe8 || (p[-2] == 0xff && p[-1] >> 6 == 3)))
		return NO_END;
	if (is_ret_x86(p) || p[-5] == 0xe9 || p[-5] == 0xe8 || p[-2] == 0xeb || is_nop_x86(p) ||
	    (p[-2] == 0x0f && p[-1] == 0x0b) || /* ud2 */
	    (p[-4] == 0x0f && p[-3] == 0xb9) || /* ud1, whose operand is the reason */
	    (p[-6] == 0xff && p[-5] == 0x25) || /* jmp through memory, or a register */
	    (p < from && p[-2] == 0xff && (p[-1] & 0xf8) == 0xe0) ||
	    from - p >= 5) /* longer than an operand */
		return p < from ? AFTER_INT3 : AFTER_END;
	return NO_END;
}

static bool begins_x86(const u8 *p, const u8 *end, bool aligned)
{
	enum end before = end_x86(p);

	if (aligned && before == AFTER_INT3 && p[0] != 0xcc)
		return true;
	if (end - p >= 4 && !memcmp(p, "\xf3\x0f\x1e\xfa", 4))
		p += 4;
	if (end - p >= 4 && !memcmp(p, "\x55\x48\x89\xe5", 4))
		return aligned || before != NO_END;
	if (!aligned || before == NO_END)
		return false;
	/* A push of a callee-saved register. */
	if (p < end && (p[0] == 0x53 || p[0] == 0x55))
		return true;
	return end - p >= 2 && p[0] == 0x41 && p[1] >= 0x54 && p[1] <= 0x57;
}

static int scan_x86(struct buf code, u64 svma, code_addresses *ret)
{
	size_t n = buf_left(&code);
	int r = 0;

	for (size_t i = BEFORE_X86; r == 0 && i < n; i++) {
		const u8 *p = code.pos + i;
		bool aligned = !((svma + i) & 15);

		if ((aligned || *p == 0x55 || *p == 0xf3) && begins_x86(p, code.end, aligned))
			r = vec_push(ret, svma + i);
	}
	return r;
}

static bool ends_arm64(const u8 *p, size_t before)
{
	u32 w;

	if (before < 4)
		return false;
	memcpy(&w, p - 4, 4);
	return !w || w == 0xd503201f || (w & 0xfffffc1f) == 0xd65f0000 || w >> 26 == 5 ||
	       w >> 26 == 0x25 || (w & 0xfffffc1f) == 0xd61f0000 || (w & 0xffe0001f) == 0xd4200000;
}

static bool is_branch_arm64(u32 w)
{
	return (w >> 26 & 7) == 5;
}

/*
 * Returns the start of the straight-line code that leads to p, or NULL: compilers put a few other
 * instructions before the prologue.
 */
static const u8 *line_start_arm64(const u8 *p, const u8 *first)
{
	for (u32 i = 0; i < PROLOGUE_ARM64 && p - first >= 4; i++, p -= 4) {
		u32 w;

		if (ends_arm64(p, (size_t)(p - first)))
			return p;
		memcpy(&w, p - 4, 4);
		if (is_branch_arm64(w))
			return NULL;
	}
	return NULL;
}

static int scan_arm64(struct buf code, u64 svma, code_addresses *ret)
{
	size_t n = buf_left(&code);
	int r = 0;

	for (size_t i = 0; r == 0 && i + 8 <= n; i += 4) {
		const u8 *start;
		u32 w[2];

		memcpy(w, code.pos + i, 8);
		/* stp x29, x30, [sp, #-N]!; or sub sp, sp, #N and stp x29, x30, [sp, #M] */
		if ((w[0] & 0xffc07fff) != 0xa9807bfd &&
		    !((w[0] & 0xff8003ff) == 0xd10003ff && (w[1] & 0xffc07fff) == 0xa9007bfd))
			continue;
		start = line_start_arm64(code.pos + i, code.pos);
		if (start)
			r = vec_push(ret, svma + (u64)(start - code.pos));
	}
	return r;
}

int code_starts_scan(const struct code_starts *x, u16 e_machine, struct buf code, u64 svma,
		     code_addresses *ret)
{
	bool x86 = e_machine == EM_X86_64;
	size_t lo = 0, hi = x->calls.n;
	int r = x86 ? scan_x86(code, svma, ret) : scan_arm64(code, svma, ret);

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (x->calls.data[mid] < svma)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; r == 0 && lo < x->calls.n; lo++) {
		size_t at = x->calls.data[lo] - svma;

		if (at >= buf_left(&code))
			break;
		if (x86 ? at >= BEFORE_X86 && end_x86(code.pos + at) != NO_END
			: ends_arm64(code.pos + at, at))
			r = vec_push(ret, svma + at);
	}
	sort_addresses(ret);
	return r;
}
