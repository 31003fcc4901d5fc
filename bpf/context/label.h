/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Labels. Some labels are ids of traces and spans: doc/context.md says which names stand for which
 * ids. The other labels are attributes.
 */
#pragma once

#include "bpf/context/attributes.h"

#define LABEL_MAX 16
/* Bytes to read at once for a name: the helper copies fewer than 64 bytes by words. */
#define LABEL_AHEAD 56

struct label {
	__u64 key, key_n, value, value_n;
};

/* Eight characters in memory order. */
#define LABEL_WORD(a, b, c, d, e, f, g, h)                                                         \
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 |   \
	 (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)

/*
 * `id` if `differs` is 0, else 0. Branchless: the verifier would follow each branch for each label.
 */
static __always_inline __u32 label_same(__u64 differs, enum label_id id)
{
	__u64 same;

	differs |= -differs;
	asm volatile("" : "+r"(differs));
	same = (differs >> 63) - 1;
	asm volatile("" : "+r"(same));
	return (__u32)same & id;
}

/* The id that a name of `n` bytes stands for. The bytes after the name's end are arbitrary. */
static __always_inline enum label_id label_id(const __u64 *w, __u32 n)
{
	const __u64 span_id = LABEL_WORD(0, 's', 'p', 'a', 'n', '_', 'i', 'd');
	const __u64 span_id2 = LABEL_WORD(0, 's', 'p', 'a', 'n', ' ', 'i', 'd');
	const __u64 trace_id = LABEL_WORD('t', 'r', 'a', 'c', 'e', '_', 'i', 'd');
	const __u64 trace_id2 = LABEL_WORD('t', 'r', 'a', 'c', 'e', ' ', 'i', 'd');
	const __u64 otel_tra = LABEL_WORD('o', 't', 'e', 'l', '.', 't', 'r', 'a');
	const __u32 ceid = LABEL_WORD('c', 'e', 'i', 'd', 0, 0, 0, 0);
	const __u64 profile = LABEL_WORD('p', 'r', 'o', 'f', 'i', 'l', 'e', '_');
	const __u64 local_ro = LABEL_WORD('l', 'o', 'c', 'a', 'l', ' ', 'r', 'o');
	const __u64 ot_span = LABEL_WORD('o', 't', ' ', 's', 'p', 'a', 'n', ' ');
	const __u16 id = LABEL_WORD('i', 'd', 0, 0, 0, 0, 0, 0);

	return label_same((n ^ 7) | (w[0] << 8 ^ span_id), LABEL_SPAN_HEX) |
	       label_same((n ^ 7) | (w[0] << 8 ^ span_id2), LABEL_SPAN_DECIMAL) |
	       label_same((n ^ 8) | (w[0] ^ trace_id), LABEL_TRACE) |
	       label_same((n ^ 8) | (w[0] ^ trace_id2), LABEL_TRACE) |
	       label_same((n ^ 10) | (w[0] ^ profile) | (__u16)(w[1] ^ id), LABEL_SPAN_HEX) |
	       label_same((n ^ 12) | (w[0] ^ otel_tra) | (__u32)(w[1] ^ ceid), LABEL_TRACE) |
	       label_same((n ^ 18) | (w[0] ^ local_ro) | (w[1] ^ ot_span) | (__u16)(w[2] ^ id),
			  LABEL_ROOT);
}

/*
 * Converts eight hex digits in memory order to four bytes in memory order. All digits at once,
 * because the verifier would follow each path through a loop. Sets `wrong` if a character is no hex
 * digit.
 */
static __always_inline __u32 label_hex(__u64 text, __u64 *wrong)
{
	const __u64 each = 0x0101010101010101ULL;
	__u64 letter = text >> 6 & each, digit = letter ^ each, low = text & 15 * each, v;

	*wrong |= text >> 7 & each;
	*wrong |= letter & text >> 4;
	*wrong |= digit & (~(text >> 4) | ~(text >> 5));
	/* Characters above '9' and 'f', and the character before 'a'. */
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

/* A decimal number as the bytes of an id, most significant byte first; 0: the text is no number. */
static __always_inline __u64 label_decimal(const __u8 *text, __u32 n)
{
	__u64 v = 0;

	for (__u64 i = 0; i < 20 && i < n; i++) {
		__u32 digit = (__u32)text[i] - '0';

		if (digit > 9)
			return 0;
		v = v * 10 + digit;
	}
	return __builtin_bswap64(v);
}

/* Reads the text of the last label that stands for `id`. Returns its length; 0: there is none. */
static __always_inline __u32 label_id_text(struct scratch *s, enum label_id id)
{
	const struct text_at *t = &s->gathered.ids[id];
	__u32 n = (__u32)t->n, most = sizeof(s->gathered.id);

	return t->n && t->n <= most && context_bytes(s->gathered.id, most, n, most, t->at) ? n : 0;
}

/*
 * Converts the texts of the ids, once for all labels, because this code is long for the verifier.
 */
static __always_inline void label_keep_ids(struct scratch *s)
{
	struct sample_context *c = &s->out.sample.context;
	const __u64 *text = s->gathered.id;
	__u64 wrong = 0, first, second;

	if (label_id_text(s, LABEL_TRACE) == 32) {
		first = label_hex_word(text, &wrong);
		second = label_hex_word(text + 2, &wrong);
		c->trace_id[0] = wrong ? 0 : first;
		c->trace_id[1] = wrong ? 0 : second;
	}
	wrong = 0;
	if (label_id_text(s, LABEL_SPAN_HEX) == 16) {
		first = label_hex_word(text, &wrong);
		c->span_id = wrong ? 0 : first;
	}
	for (__u64 id = LABEL_SPAN_DECIMAL; id <= LABEL_ROOT; id++) {
		__u32 n = label_id_text(s, id);

		if (!n)
			continue;
		first = label_decimal((const __u8 *)text, n);
		if (id == LABEL_ROOT)
			c->root_id = first;
		else
			c->span_id = first;
	}
}

/*
 * A text from memory that does not change as long as the process has these mappings, from the cache
 * of such texts; NULL: the text is elsewhere. Most names are such texts, and BPF reads them again
 * and again.
 */
static __always_inline const __u64 *label_fixed(struct scratch *s, __u64 at, __u32 n)
{
	__u64 id = s->walk.mappings_id, differs;
	struct fixed_text *t;

	if (at - s->gathered.fixed >= s->gathered.n_fixed || n > sizeof(t->text))
		return NULL;
	t = &s->texts[walk_bound(walk_mix(at, id) >> 32, FIXED_TEXTS - 1)];
	differs = (t->at ^ at) | (t->n ^ n) | (t->mappings_id ^ id);
	asm volatile("" : "+r"(differs));
	if (!differs)
		return t->text;
	t->n = 0;
	if (!context_bytes(t->text, sizeof(t->text), n, LABEL_AHEAD, at))
		return NULL;
	t->at = at;
	t->n = n;
	t->mappings_id = id;
	return t->text;
}

/* Reads a text to `to`, which has room for the longest text; false: the text is unreadable. */
static __always_inline bool label_text(struct scratch *s, void *to, __u32 room, __u32 n, __u64 at)
{
	const __u64 *fixed = label_fixed(s, at, n);

	if (fixed)
		__builtin_memcpy(to, fixed, sizeof(s->texts[0].text));
	return fixed || context_bytes(to, room, n, LABEL_AHEAD, at);
}

/* Adds an attribute, whose name is in g->name already. */
static __always_inline void label_attribute(struct scratch *s, const struct label *l)
{
	struct gathered *g = &s->gathered;
	__u32 at = g->n, n = (__u32)l->key_n, m = ATTRIBUTE_MAX_TEXT;
	__u8 *to;

	/* Another publisher's attributes are in `bytes`. */
	if (at && g->form != ATTRIBUTES_NAMED)
		return;
	if (at > ATTRIBUTES_LAST) {
		g->left_out++;
		return;
	}
	if (l->value_n < m)
		m = (__u32)l->value_n;
	/*
	 * Masks that change nothing, but tell the verifier the bounds; asm keeps the compiler from
	 * removing them.
	 */
	asm volatile("" : "+r"(at), "+r"(n), "+r"(m));
	at &= ATTRIBUTES_LAST;
	n &= ATTRIBUTE_MAX_NAME;
	m &= ATTRIBUTE_MAX_TEXT;
	to = g->bytes + at;
	to[0] = (__u8)n;
	to[1] = (__u8)(m | (l->value_n > ATTRIBUTE_MAX_TEXT ? ATTRIBUTE_CUT : 0));
	__builtin_memcpy(to + 2, g->name, sizeof(g->name));
	if (m && !label_text(s, to + 2 + n, ATTRIBUTE_MAX_TEXT, m, l->value)) {
		g->left_out++;
		return;
	}
	g->form = ATTRIBUTES_NAMED;
	g->n = (__u16)(at + 2 + n + m);
}

static __always_inline void label_take(struct scratch *s, const struct label *l)
{
	struct gathered *g = &s->gathered;
	__u32 id;

	if (!l->key_n || l->key_n > ATTRIBUTE_MAX_NAME ||
	    !label_text(s, g->name, sizeof(g->name), (__u32)l->key_n, l->key)) {
		g->left_out++;
		return;
	}
	id = walk_bound(label_id(g->name, (__u32)l->key_n), LABEL_IDS - 1);
	if (!id) {
		label_attribute(s, l);
		return;
	}
	g->ids[id].at = l->value;
	g->ids[id].n = l->value_n;
}

/*
 * Takes labels from the window: pairs of a text's address and length. The address is first if the
 * index is even, the length if the index is odd. A global function, so that the verifier checks it
 * once.
 */
__noinline int labels_take(__u32 first, __u32 n, __u32 stride, __u32 to_value)
{
	struct scratch *s = scratch_get();

	if (!s)
		return 0;
	__builtin_memset(s->gathered.ids, 0, sizeof(s->gathered.ids));
	for (__u64 i = 0; i < LABEL_MAX && i < n; i++) {
		const __u64 *words = s->window.words;
		__u32 key = first + i * stride, value = key + to_value;
		struct label l = {
			.key = words[walk_bound(key, WINDOW_WORDS - 1)],
			.key_n = words[walk_bound(key ^ 1, WINDOW_WORDS - 1)],
			.value = words[walk_bound(value, WINDOW_WORDS - 1)],
			.value_n = words[walk_bound(value ^ 1, WINDOW_WORDS - 1)],
		};

		if (l.key)
			label_take(s, &l);
	}
	label_keep_ids(s);
	return 0;
}
