/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Labels. Some are ids of traces and spans: which names stand for what is in doc/context.md. The
 * others are attributes.
 */
#pragma once

#include "bpf/context/attributes.h"

#define LABEL_MAX_KEY 24
#define LABEL_MAX_VALUE 32

struct label_text {
	__u64 at, n;
};

enum label_name {
	LABEL_OTHER,
	LABEL_TRACE_HEX,
	LABEL_SPAN_HEX,
	LABEL_SPAN_DECIMAL,
	LABEL_ROOT_DECIMAL,
};

/* Eight characters as they are in memory. */
#define LABEL_WORD(a, b, c, d, e, f, g, h)                                                         \
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 |   \
	 (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)

static __always_inline enum label_name label_name(const struct label_text *key)
{
	__u64 w[LABEL_MAX_KEY / 8] = {};
	__u32 n = (__u32)key->n;

	/* Most labels are none of these, which shows without looking at them. */
	if (key->n != 7 && key->n != 8 && key->n != 10 && key->n != 12 && key->n != 18)
		return LABEL_OTHER;
	if (n > LABEL_MAX_KEY || bpf_probe_read_user(w, n, (const void *)key->at) < 0)
		return LABEL_OTHER;
	if (n == 8 && (w[0] == LABEL_WORD('t', 'r', 'a', 'c', 'e', '_', 'i', 'd') ||
		       w[0] == LABEL_WORD('t', 'r', 'a', 'c', 'e', ' ', 'i', 'd')))
		return LABEL_TRACE_HEX;
	if (n == 12 && w[0] == LABEL_WORD('o', 't', 'e', 'l', '.', 't', 'r', 'a') &&
	    w[1] == LABEL_WORD('c', 'e', 'i', 'd', 0, 0, 0, 0))
		return LABEL_TRACE_HEX;
	if (n == 7 && w[0] == LABEL_WORD('s', 'p', 'a', 'n', '_', 'i', 'd', 0))
		return LABEL_SPAN_HEX;
	if (n == 10 && w[0] == LABEL_WORD('p', 'r', 'o', 'f', 'i', 'l', 'e', '_') &&
	    w[1] == LABEL_WORD('i', 'd', 0, 0, 0, 0, 0, 0))
		return LABEL_SPAN_HEX;
	if (n == 7 && w[0] == LABEL_WORD('s', 'p', 'a', 'n', ' ', 'i', 'd', 0))
		return LABEL_SPAN_DECIMAL;
	if (n == 18 && w[0] == LABEL_WORD('l', 'o', 'c', 'a', 'l', ' ', 'r', 'o') &&
	    w[1] == LABEL_WORD('o', 't', ' ', 's', 'p', 'a', 'n', ' '))
		return LABEL_ROOT_DECIMAL;
	return LABEL_OTHER;
}

/*
 * Eight hex digits as they are in memory become four bytes, as they are in memory; all at once, as
 * the verifier would follow each way through a loop over them. `wrong` is set if one is none.
 */
static __always_inline __u32 label_hex(__u64 text, __u64 *wrong)
{
	const __u64 each = 0x0101010101010101ULL;
	__u64 letter = text >> 6 & each, digit = letter ^ each, low = text & 15 * each, v;

	*wrong |= text >> 7 & each;
	*wrong |= letter & text >> 4;
	*wrong |= digit & (~(text >> 4) | ~(text >> 5));
	/* Above '9' and 'f', and what is in front of 'a'. */
	*wrong |= (low + letter * 9 + digit * 6) >> 4 & each;
	*wrong |= letter & ~((low + 15 * each) >> 4);
	v = low + letter * 9;
	v = (v << 4 | v >> 8) & 0x00ff00ff00ff00ffULL;
	v = (v | v >> 8) & 0x0000ffff0000ffffULL;
	return (__u32)(v | v >> 16);
}

static __always_inline __u64 label_hex_word(const __u64 text[2], __u64 *wrong)
{
	return label_hex(text[0], wrong) | (__u64)label_hex(text[1], wrong) << 32;
}

/* A number as the bytes of an id: the highest first. 0: it is none. */
static __always_inline __u64 label_decimal(const __u8 *text, __u32 n)
{
	__u64 v = 0;

	for (__u32 i = 0; i < 20 && i < n; i++) {
		__u32 digit = (__u32)text[i] - '0';

		if (digit > 9)
			return 0;
		v = v * 10 + digit;
	}
	return __builtin_bswap64(v);
}

static __always_inline void label_keep(struct sample_context *c, enum label_name name,
				       const __u64 *text, __u32 n)
{
	__u64 wrong = 0, first = label_hex_word(text, &wrong), second;

	if (name == LABEL_TRACE_HEX && n == 32) {
		second = label_hex_word(text + 2, &wrong);
		c->trace_id[0] = wrong ? 0 : first;
		c->trace_id[1] = wrong ? 0 : second;
	} else if (name == LABEL_SPAN_HEX && n == 16) {
		c->span_id = wrong ? 0 : first;
	} else if (name == LABEL_SPAN_DECIMAL) {
		c->span_id = label_decimal((const __u8 *)text, n);
	} else if (name == LABEL_ROOT_DECIMAL) {
		c->root_id = label_decimal((const __u8 *)text, n);
	}
}

/*
 * Takes a label. A global function, as the next: the verifier looks at it once, and not for each
 * label that there may be.
 */
__noinline int label_take(__u64 key_at, __u64 key_n, __u64 value_at, __u64 value_n)
{
	struct label_text key = {key_at, key_n};
	enum label_name name = label_name(&key);
	struct scratch *s = scratch_get();
	__u64 text[LABEL_MAX_VALUE / 8] = {};
	__u32 n = (__u32)value_n;

	if (!s)
		return 0;
	if (name == LABEL_OTHER) {
		attributes_named(s, key_at, key_n, value_at, value_n);
		return 0;
	}
	if (value_n > LABEL_MAX_VALUE || !n)
		return 0;
	asm volatile("" : "+r"(n));
	if (n > LABEL_MAX_VALUE || bpf_probe_read_user(text, n, (const void *)value_at) < 0)
		return 0;
	label_keep(&s->out.sample.context, name, text, n);
	return 0;
}
