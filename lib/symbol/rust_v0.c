/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Validates a Rust v0 name without printing it, to keep names away from libiberty on which it would
 * hang: libiberty counts the lifetimes of a binder for<'a, 'b …> one by one, up to 2^48, and after
 * an error it prints nothing, so that its caller cannot stop it
 * (_RNvXNvXCs_1aINtXC1aFFGFFFFFFFF_ZFFFINo, found by tests/fuzz/fuzz_demangle.c).
 *
 * A name that this accepts takes libiberty the same number of steps. There is one function per
 * nonterminal of RFC 2603; each returns false for everything that it does not know.
 */
#include "symbol/rust_v0.h"

#include <ctype.h>
#include <string.h>

#define MAX_STEPS 20000U
#define MAX_DEPTH 200U
#define MAX_BINDER 64U

struct v0 {
	const char *text; /* the text after _R, from which back references count */
	size_t n, at;
	u32 steps, depth;
};

static bool read_type(struct v0 *v);
static bool read_path(struct v0 *v);

static char peek(const struct v0 *v)
{
	return v->at < v->n ? v->text[v->at] : 0;
}

static bool eat(struct v0 *v, char c)
{
	if (!c || peek(v) != c)
		return false;
	v->at++;
	return true;
}

/* Reads digits of base 62 and `_`; an empty number is 0, others are their value plus one. */
static bool read_62(struct v0 *v, u64 *ret)
{
	u64 x = 0;

	if (eat(v, '_')) {
		*ret = 0;
		return true;
	}
	for (;;) {
		char c = peek(v);
		u64 d;

		if (c >= '0' && c <= '9')
			d = (u64)(c - '0');
		else if (c >= 'a' && c <= 'z')
			d = (u64)(c - 'a') + 10;
		else if (c >= 'A' && c <= 'Z')
			d = (u64)(c - 'A') + 36;
		else
			break;
		/* Crate disambiguators use all 64 bits; nothing else needs as many. */
		if (__builtin_mul_overflow(x, 62, &x) || __builtin_add_overflow(x, d, &x))
			x = ~0ULL - 1;
		v->at++;
	}
	*ret = x + 1;
	return eat(v, '_');
}

static bool read_tagged_62(struct v0 *v, char tag, u64 max)
{
	u64 x;

	return !eat(v, tag) || (read_62(v, &x) && x <= max);
}

static bool read_plain_identifier(struct v0 *v)
{
	size_t n = 0;

	(void)eat(v, 'u');
	if (!isdigit((unsigned char)peek(v)))
		return false;
	if (!eat(v, '0'))
		while (isdigit((unsigned char)peek(v)) && n < v->n)
			n = n * 10 + (size_t)(v->text[v->at++] - '0');
	(void)eat(v, '_');
	if (n > v->n - v->at)
		return false;
	v->at += n;
	return true;
}

static bool read_identifier(struct v0 *v)
{
	return read_tagged_62(v, 's', ~0ULL) && read_plain_identifier(v);
}

/* `B` and the offset at which reading continues, which must be smaller. */
static bool read_backref(struct v0 *v, bool (*read)(struct v0 *v))
{
	size_t start = v->at - 1, after;
	u64 target;
	bool ok;

	if (!read_62(v, &target) || target >= start)
		return false;
	after = v->at;
	v->at = (size_t)target;
	ok = read(v);
	v->at = after;
	return ok;
}

static bool read_const(struct v0 *v)
{
	bool ok = false;

	if (++v->steps > MAX_STEPS || ++v->depth > MAX_DEPTH)
		return false;
	if (eat(v, 'B')) {
		ok = read_backref(v, read_const);
	} else if (eat(v, 'p')) {
		ok = true;
	} else if (peek(v) && strchr("abcehijlmnostxy", peek(v))) {
		v->at++;
		(void)eat(v, 'n');
		while (isdigit((unsigned char)peek(v)) || (peek(v) >= 'a' && peek(v) <= 'f'))
			v->at++;
		ok = eat(v, '_');
	}
	v->depth--;
	return ok;
}

static bool read_generic_arg(struct v0 *v)
{
	u64 x;

	if (eat(v, 'L'))
		return read_62(v, &x);
	return eat(v, 'K') ? read_const(v) : read_type(v);
}

/* Reads items until an E. */
static bool read_list(struct v0 *v, bool (*read)(struct v0 *v))
{
	while (!eat(v, 'E'))
		if (v->at >= v->n || !read(v))
			return false;
	return true;
}

static bool read_fn(struct v0 *v)
{
	if (!read_tagged_62(v, 'G', MAX_BINDER))
		return false;
	(void)eat(v, 'U');
	if (eat(v, 'K') && !eat(v, 'C') && !read_plain_identifier(v))
		return false;
	return read_list(v, read_type) && read_type(v);
}

static bool read_dyn_trait(struct v0 *v)
{
	if (!read_path(v))
		return false;
	while (eat(v, 'p'))
		if (!read_plain_identifier(v) || !read_type(v))
			return false;
	return true;
}

static bool read_dyn(struct v0 *v)
{
	u64 x;

	return read_tagged_62(v, 'G', MAX_BINDER) && read_list(v, read_dyn_trait) && eat(v, 'L') &&
	       read_62(v, &x);
}

static bool read_type_inside(struct v0 *v)
{
	char c = peek(v);

	if (c && strchr("abcdefhijlmnopstuvxyz", c)) {
		v->at++;
		return true;
	}
	if (c && strchr("CMXYNI", c))
		return read_path(v);
	v->at++;
	switch (c) {
	case 'A':
		return read_type(v) && read_const(v);
	case 'S':
	case 'P':
	case 'O':
		return read_type(v);
	case 'R':
	case 'Q':
		return read_tagged_62(v, 'L', ~0ULL) && read_type(v);
	case 'T':
		return read_list(v, read_type);
	case 'F':
		return read_fn(v);
	case 'D':
		return read_dyn(v);
	case 'B':
		return read_backref(v, read_type);
	default:
		return false;
	}
}

static bool read_type(struct v0 *v)
{
	bool ok;

	if (++v->steps > MAX_STEPS || ++v->depth > MAX_DEPTH)
		return false;
	ok = read_type_inside(v);
	v->depth--;
	return ok;
}

static bool read_path_inside(struct v0 *v)
{
	char c = peek(v);

	v->at++;
	switch (c) {
	case 'C':
		return read_identifier(v);
	case 'M':
	case 'X':
		return read_tagged_62(v, 's', ~0ULL) && read_path(v) && read_type(v) &&
		       (c == 'M' || read_path(v));
	case 'Y':
		return read_type(v) && read_path(v);
	case 'N':
		if (!isalpha((unsigned char)peek(v)))
			return false;
		v->at++;
		return read_path(v) && read_identifier(v);
	case 'I':
		return read_path(v) && read_list(v, read_generic_arg);
	case 'B':
		return read_backref(v, read_path);
	default:
		return false;
	}
}

static bool read_path(struct v0 *v)
{
	bool ok;

	if (++v->steps > MAX_STEPS || ++v->depth > MAX_DEPTH)
		return false;
	ok = read_path_inside(v);
	v->depth--;
	return ok;
}

bool rust_v0_is_harmless(const char *name)
{
	struct v0 v = {.text = name + 2};
	const char *suffix;

	if (name[0] != '_' || name[1] != 'R')
		return false;
	suffix = strpbrk(v.text, ".$");
	v.n = suffix ? (size_t)(suffix - v.text) : strlen(v.text);
	if (!read_path(&v))
		return false;
	/* The crate in which a generic was instantiated. */
	return v.at == v.n || (read_path(&v) && v.at == v.n);
}
