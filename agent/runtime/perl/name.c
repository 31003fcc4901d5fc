/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the name of a sub and the position of a COP in a live process. All of this is memory of the
 * process: sizes are bounded, and the words that form the cookie must equal those that the walker
 * saw, or the memory holds another object.
 *
 * Layouts: sv.h, cv.h, gv.h, hv.h, cop.h of Perl's sources.
 */
#include <errno.h>
#include <string.h>

#include "agent/runtime/perl/perl.h"
#include "base/str.h"
#include "base/text.h"

#define MAX_TEXT 1024 /* bytes */
#define PIECE 64

/* SV */
#define SV_HAS_AUX 0x02000000 /* HV: SVf_OOK */
#define SV_GLOB_MASK 0xc000   /* SVp_POK | SVpgv_GP */
#define SV_GLOB 0x8000
#define SV_UTF8 0x20000000
#define SV_POK 0x0400
#define PV_LENGTH 0x10 /* in the body */
/* CV */
#define CV_LEXICAL 0x10000
/* GP */
#define GP_EGV 0x38
/* HV's body, and struct xpvhv_aux, which is in the body since 5.36, before that after the array */
#define HV_MAX 0x18
#define HV_AUX 0x20
#define AUX_NAME 0x00
#define AUX_NAME_COUNT 0x1c
#define AUX_IN_BODY 36
#define MAX_BUCKETS (1u << 30)
/* HEK */
#define HEK_LENGTH 0x04
#define HEK_KEY 0x08
#define HEK_UTF8 0x01

/* The process, and whether a read has failed. */
struct reader {
	const struct runtime_memory *m;
	const struct perl_learned *l;
	bool failed;
};

static u64 word_at(struct reader *r, u64 address)
{
	return runtime_u64(r->m, address, &r->failed);
}

static u32 half_at(struct reader *r, u64 address)
{
	return runtime_u32(r->m, address, &r->failed);
}

/* ---- texts ---- */

/* Appends bytes as UTF-8. Without the flag, each byte is a character of Latin-1. */
static int append_bytes(struct str *out, const u8 *bytes, size_t n, bool utf8)
{
	int r = 0;

	if (utf8)
		return str_append(out, bytes, n);
	for (size_t i = 0; i < n && r == 0; i++) {
		if (bytes[i] < 0x80) {
			r = str_putc(out, (char)bytes[i]);
		} else {
			r = str_putc(out, (char)(0xc0 | bytes[i] >> 6));
			if (r == 0)
				r = str_putc(out, (char)(0x80 | (bytes[i] & 0x3f)));
		}
	}
	return r;
}

/* Appends n bytes of the process; a long text is cut. */
static int append_text(struct reader *r, struct str *out, u64 at, u64 n, bool utf8)
{
	u8 bytes[MAX_TEXT];

	n = MIN(n, (u64)MAX_TEXT);
	if (n && runtime_read(r->m, at, bytes, n) < 0)
		return -EFAULT;
	return append_bytes(out, bytes, n, utf8);
}

/* Appends a text that ends with a zero. */
static int append_cstring(struct reader *r, struct str *out, u64 at)
{
	char piece[PIECE];
	int e = 0;

	for (size_t done = 0; done < MAX_TEXT && e == 0;) {
		/* A piece does not cross a page: the page after the text may be missing. */
		size_t n = PIECE - (at + done) % PIECE, length;

		if (runtime_read(r->m, at + done, piece, n) < 0)
			return -EFAULT;
		length = strnlen(piece, n);
		e = str_append(out, piece, length);
		if (length < n)
			break;
		done += n;
	}
	return e;
}

/* Appends a HEK's text without its first `skip` bytes. */
static int append_hek(struct reader *r, struct str *out, u64 hek, u32 skip)
{
	u32 length = half_at(r, hek + HEK_LENGTH);
	u8 flags = 0;

	if (r->failed || length > 1 << 24 || length < skip)
		return -EFAULT;
	if (runtime_read(r->m, hek + HEK_KEY + length + 1, &flags, 1) < 0)
		return -EFAULT;
	return append_text(r, out, hek + HEK_KEY + skip, length - skip, flags & HEK_UTF8);
}

/* Moves a text to the arena, as one line of valid UTF-8. */
static int take_text(struct str *text, struct arena *arena, const char **ret)
{
	char *copy = arena_alloc(arena, text->n + 1);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, str_get(text), text->n + 1);
	text_clean(copy);
	*ret = copy;
	return 0;
}

/* ---- names ---- */

/* Appends a package's name; __ANON__ if it has none any more, as Perl does. */
static int append_package(struct reader *r, struct str *out, u64 stash)
{
	u64 body, aux, name = 0, max;

	if (stash && half_at(r, stash + PERL_SV_FLAGS) & SV_HAS_AUX) {
		body = word_at(r, stash + PERL_SV_BODY);
		aux = body + HV_AUX;
		if (r->l->version < AUX_IN_BODY) {
			max = word_at(r, body + HV_MAX);
			if (max > MAX_BUCKETS)
				return -EFAULT;
			aux = word_at(r, stash + PERL_SV_VALUE) + 8 * (max + 1);
		}
		name = word_at(r, aux + AUX_NAME);
		if (name && half_at(r, aux + AUX_NAME_COUNT))
			name = word_at(r, name);
	}
	if (r->failed)
		return -EFAULT;
	return name ? append_hek(r, out, name, 0) : str_puts(out, "__ANON__");
}

static int append_qualified(struct reader *r, struct str *out, u64 stash, u64 hek)
{
	int e = append_package(r, out, stash);

	if (e == 0)
		e = str_puts(out, "::");
	return e == 0 ? append_hek(r, out, hek, 0) : e;
}

static bool is_glob(struct reader *r, u64 gv)
{
	return (half_at(r, gv + PERL_SV_FLAGS) & SV_GLOB_MASK) == SV_GLOB;
}

/* A sub whose name is that of a GV; `words` are the GV's name and package. */
static int append_glob(struct reader *r, struct str *out, u64 gv, const u64 words[2])
{
	u64 egv = is_glob(r, gv) ? word_at(r, word_at(r, gv + PERL_SV_VALUE) + GP_EGV) : 0;
	u64 body;

	if (r->failed)
		return -EFAULT;
	if (!egv || egv == gv)
		return append_qualified(r, out, words[1], words[0]);
	body = word_at(r, egv + PERL_SV_BODY);
	return append_qualified(r, out, word_at(r, body + PERL_GV_STASH),
				word_at(r, body + PERL_GV_NAME));
}

static int append_named(struct reader *r, struct str *out, u64 cv, const u64 words[2])
{
	u32 flags = half_at(r, word_at(r, cv + PERL_SV_BODY) + PERL_CV_FLAGS);

	if (r->failed)
		return -EFAULT;
	return flags & CV_LEXICAL ? append_hek(r, out, words[0], 0)
				  : append_qualified(r, out, words[1], words[0]);
}

static int append_require(struct reader *r, struct str *out, u64 sv, const u64 words[2])
{
	u32 flags = sv ? half_at(r, sv + PERL_SV_FLAGS) : 0;
	u64 length = flags & SV_POK ? word_at(r, words[0] + PV_LENGTH) : 0;
	int e = str_puts(out, length ? "require " : "require");

	if (r->failed)
		return -EFAULT;
	return e == 0 ? append_text(r, out, words[1], length, flags & SV_UTF8) : e;
}

static int append_name(struct reader *r, struct str *out, u32 kind, u64 what, const u64 words[2])
{
	static const char *const fixed[] = {
		[PERL_MAIN] = "(main program)", [PERL_UNNAMED] = "(unknown)",
		[PERL_EVAL] = "eval {...}",	[PERL_TEXT] = "eval '...'",
		[PERL_SORT] = "sort {...}",	[PERL_DEFER] = "defer {...}",
		[PERL_RE] = "(?{...})",
	};

	switch (kind) {
	case PERL_SUB:
		return append_glob(r, out, what, words);
	case PERL_NAMED:
		return append_named(r, out, what, words);
	case PERL_REQUIRE:
		return append_require(r, out, what, words);
	default:
		return kind < ARRAY_SIZE(fixed) && fixed[kind] ? str_puts(out, fixed[kind])
							       : -EINVAL;
	}
}

/* Reads the two words that identify an object. */
static void read_identity(struct reader *r, u32 kind, u64 what, u64 ret[2])
{
	u64 body;

	if (!what || (kind != PERL_SUB && kind != PERL_NAMED && kind != PERL_REQUIRE))
		return;
	body = word_at(r, what + PERL_SV_BODY);
	if (kind == PERL_REQUIRE) {
		ret[0] = body;
		ret[1] = word_at(r, what + PERL_SV_VALUE);
		return;
	}
	ret[0] = word_at(r, body + (kind == PERL_NAMED ? PERL_CV_GV : PERL_GV_NAME));
	ret[1] = word_at(r, body + (kind == PERL_NAMED ? PERL_CV_STASH : PERL_GV_STASH));
}

/* ---- positions ---- */

struct position {
	u32 line;
	u64 file;
};

/* The COP of a frame; 0: none. */
static u64 cop_of(struct reader *r, u64 bias, u64 address, u64 where)
{
	u64 base = bias;

	if (!(address & PERL_COMPILING))
		return (where & PERL_POINTER_MASK) << 3;
	if (r->l->threaded)
		base = word_at(r, bias + r->l->interpreter);
	return base + r->l->bpf.compiling;
}

static void read_position(struct reader *r, u64 cop, struct position *ret)
{
	bool failed = r->failed;

	ret->line = half_at(r, cop + PERL_COP_LINE);
	ret->file = word_at(r, cop + PERL_COP_FILE);
	if (r->failed)
		*ret = (struct position){};
	r->failed = failed;
}

/* With threads a COP has its file's name, without a GV that is named "_<FILE". */
static int append_file(struct reader *r, struct str *out, u64 file)
{
	u64 name;

	if (r->l->threaded)
		return append_cstring(r, out, file);
	name = word_at(r, word_at(r, file + PERL_SV_BODY) + PERL_GV_NAME);
	return r->failed ? -EFAULT : append_hek(r, out, name, 2);
}

int perl_name(const struct runtime_memory *m, const struct perl_learned *l, u64 bias, u64 address,
	      u64 where, struct runtime_names *ret)
{
	struct reader r = {.m = m, .l = l};
	u32 kind = address >> PERL_POINTER_BITS & 15;
	u64 what = (address & PERL_POINTER_MASK) << 3, words[2] = {}, cop;
	u32 cookie =
		(u32)(address >> 50) << PERL_COOKIE_LOW_BITS | (u32)(where >> PERL_POINTER_BITS);
	u32 differs;
	_cleanup_str_ struct str name = {}, file = {};
	struct runtime_frame f = {};
	struct position at = {};
	int e;

	read_identity(&r, kind, what, words);
	cop = cop_of(&r, bias, address, where);
	if (r.failed)
		return -EFAULT;
	if (cop)
		read_position(&r, cop, &at);
	differs = cookie ^
		  perl_cookie(words[0], words[1], address & PERL_COMPILING ? 0 : at.line, at.file);
	if (differs & PERL_POSITION_MASK)
		at = (struct position){};
	if (differs & ~PERL_POSITION_MASK) {
		if (kind != PERL_REQUIRE)
			return -ESTALE;
		what = 0; /* without the file's name */
	}
	e = append_name(&r, &name, kind, what, words);
	if (e == 0)
		e = take_text(&name, ret->arena, &f.function);
	if (e < 0)
		return e;
	if (at.file && append_file(&r, &file, at.file) == 0 &&
	    take_text(&file, ret->arena, &f.file) == 0)
		f.line = address & PERL_COMPILING ? (u32)where : at.line;
	if (f.line > INT32_MAX)
		f.line = 0;
	ret->n = 1;
	ret->frames[0] = f;
	return 0;
}
