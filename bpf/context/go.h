/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Labels that Go's runtime/pprof hangs on a goroutine, as far as they are ids of traces and spans:
 * which names stand for what is in doc/context.md. The goroutine is m.curg, never g itself, which
 * is the scheduler's while the thread is on its system stack.
 */
#pragma once

#define GO_G_M 48
#define GO_MAX_LABELS 16
#define GO_MAX_BUCKETS 16
#define GO_MAX_KEY 24
#define GO_MAX_VALUE 32

struct go_string {
	__u64 at, n;
};

struct go_label {
	struct go_string key, value;
};

/* runtime.hmap, and a bucket of map[string]string: up to 1.23. */
struct go_map {
	__u64 n;
	__u8 flags, log2_buckets;
	__u16 n_overflow;
	__u32 seed;
	__u64 buckets;
};

#define GO_BUCKET_SLOTS 8
struct go_bucket {
	__u8 hashes[GO_BUCKET_SLOTS]; /* the lowest few: the slot is empty */
	struct go_string keys[GO_BUCKET_SLOTS], values[GO_BUCKET_SLOTS];
	__u64 overflow;
};
#define GO_LEAST_HASH 5

enum go_name {
	GO_OTHER,
	GO_TRACE_HEX,
	GO_SPAN_HEX,
	GO_SPAN_DECIMAL,
	GO_ROOT_DECIMAL,
};

/* Eight characters as they are in memory. */
#define GO_WORD(a, b, c, d, e, f, g, h)                                                            \
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 |   \
	 (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)

static __always_inline enum go_name go_name(const struct go_string *key)
{
	__u64 w[GO_MAX_KEY / 8] = {};
	__u32 n = (__u32)key->n;

	/* Most labels are none of these, which shows without looking at them. */
	if (key->n != 7 && key->n != 8 && key->n != 10 && key->n != 12 && key->n != 18)
		return GO_OTHER;
	if (n > GO_MAX_KEY || bpf_probe_read_user(w, n, (const void *)key->at) < 0)
		return GO_OTHER;
	if (n == 8 && (w[0] == GO_WORD('t', 'r', 'a', 'c', 'e', '_', 'i', 'd') ||
		       w[0] == GO_WORD('t', 'r', 'a', 'c', 'e', ' ', 'i', 'd')))
		return GO_TRACE_HEX;
	if (n == 12 && w[0] == GO_WORD('o', 't', 'e', 'l', '.', 't', 'r', 'a') &&
	    w[1] == GO_WORD('c', 'e', 'i', 'd', 0, 0, 0, 0))
		return GO_TRACE_HEX;
	if (n == 7 && w[0] == GO_WORD('s', 'p', 'a', 'n', '_', 'i', 'd', 0))
		return GO_SPAN_HEX;
	if (n == 10 && w[0] == GO_WORD('p', 'r', 'o', 'f', 'i', 'l', 'e', '_') &&
	    w[1] == GO_WORD('i', 'd', 0, 0, 0, 0, 0, 0))
		return GO_SPAN_HEX;
	if (n == 7 && w[0] == GO_WORD('s', 'p', 'a', 'n', ' ', 'i', 'd', 0))
		return GO_SPAN_DECIMAL;
	if (n == 18 && w[0] == GO_WORD('l', 'o', 'c', 'a', 'l', ' ', 'r', 'o') &&
	    w[1] == GO_WORD('o', 't', ' ', 's', 'p', 'a', 'n', ' '))
		return GO_ROOT_DECIMAL;
	return GO_OTHER;
}

/*
 * Eight hex digits as they are in memory become four bytes, as they are in memory; all at once, as
 * the verifier would follow each way through a loop over them. `wrong` is set if one is none.
 */
static __always_inline __u32 go_hex(__u64 text, __u64 *wrong)
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

static __always_inline __u64 go_hex_word(const __u64 text[2], __u64 *wrong)
{
	return go_hex(text[0], wrong) | (__u64)go_hex(text[1], wrong) << 32;
}

/* A number as the bytes of an id: the highest first. 0: it is none. */
static __always_inline __u64 go_decimal(const __u8 *text, __u32 n)
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

static __always_inline void go_keep(struct sample_context *c, enum go_name name, const __u64 *text,
				    __u32 n)
{
	__u64 wrong = 0, first = go_hex_word(text, &wrong), second;

	if (name == GO_TRACE_HEX && n == 32) {
		second = go_hex_word(text + 2, &wrong);
		c->trace_id[0] = wrong ? 0 : first;
		c->trace_id[1] = wrong ? 0 : second;
	} else if (name == GO_SPAN_HEX && n == 16) {
		c->span_id = wrong ? 0 : first;
	} else if (name == GO_SPAN_DECIMAL) {
		c->span_id = go_decimal((const __u8 *)text, n);
	} else if (name == GO_ROOT_DECIMAL) {
		c->root_id = go_decimal((const __u8 *)text, n);
	}
}

/*
 * Takes a label that is an id. A global function, as the next: the verifier looks at it once, and
 * not for each label that there may be.
 */
__noinline int go_take(__u64 key_at, __u64 key_n, __u64 value_at, __u64 value_n)
{
	struct go_string key = {key_at, key_n};
	enum go_name name = go_name(&key);
	struct scratch *s = scratch_get();
	__u64 text[GO_MAX_VALUE / 8] = {};
	__u32 n = (__u32)value_n;

	if (!s || name == GO_OTHER || value_n > GO_MAX_VALUE || !n)
		return 0;
	asm volatile("" : "+r"(n));
	if (n > GO_MAX_VALUE || bpf_probe_read_user(text, n, (const void *)value_at) < 0)
		return 0;
	go_keep(&s->out.sample.context, name, text, n);
	return 0;
}

/* A slice of labels: 1.24 and later. */
static __always_inline void go_list(__u64 labels)
{
	struct go_string list; /* its capacity does not matter */
	struct go_label l;

	if (bpf_probe_read_user(&list, sizeof(list), (const void *)labels) < 0)
		return;
	for (__u32 i = 0; i < GO_MAX_LABELS && i < list.n; i++) {
		if (bpf_probe_read_user(&l, sizeof(l), (const void *)(list.at + i * sizeof(l))) < 0)
			return;
		go_take(l.key.at, l.key.n, l.value.at, l.value.n);
	}
}

/* A bucket is read to where the walk will have its window on the stack. */
_Static_assert(sizeof(struct go_bucket) <= WINDOW_WORDS * 8, "go_bucket");

__noinline int go_take_bucket(__u64 at)
{
	struct scratch *s = scratch_get();
	struct go_bucket *b;

	if (!s)
		return 0;
	b = (struct go_bucket *)s->window.words;
	b->overflow = 0;
	if (bpf_probe_read_user(b, sizeof(*b), (const void *)at) < 0)
		return 0;
	for (__u32 i = 0; i < GO_BUCKET_SLOTS; i++)
		if (b->hashes[i] >= GO_LEAST_HASH)
			go_take(b->keys[i].at, b->keys[i].n, b->values[i].at, b->values[i].n);
	return 0;
}

/* A map from strings to strings: up to 1.23. */
static __always_inline void go_buckets(struct scratch *s, __u64 labels)
{
	const struct go_bucket *b = (const struct go_bucket *)s->window.words;
	__u64 at, bucket = 0;
	struct go_map m;

	if (bpf_probe_read_user(&m, sizeof(m), (const void *)context_word(labels)) < 0 ||
	    m.log2_buckets > 3)
		return;
	at = m.buckets;
	for (__u32 i = 0; i < GO_MAX_BUCKETS && at; i++) {
		go_take_bucket(at);
		at = b->overflow;
		if (!at && ++bucket < 1ULL << (m.log2_buckets & 3))
			at = m.buckets + bucket * sizeof(*b);
	}
}

static __always_inline __u64 go_g(const struct scratch *s, const struct context_go *go)
{
#if defined(__TARGET_ARCH_arm64)
	return s->walk.regs.full ? s->walk.regs.r[28] : 0;
#else
	return context_word(s->walk.regs.tls + (__u64)go->g_tls);
#endif
}

static __always_inline bool go_context(struct scratch *s, const struct context_process *p)
{
	const struct sample_context *c = &s->out.sample.context;
	__u64 g = go_g(s, &p->go), m, curg, labels;

	m = g ? context_word(g + GO_G_M) : 0;
	curg = m ? context_word(m + p->go.m_curg) : 0;
	/* In C code the register is anything. */
	labels = curg && context_word(curg + GO_G_M) == m ? context_word(curg + p->go.g_labels) : 0;
	if (!labels)
		return false;
	if (p->go.is_list)
		go_list(labels);
	else
		go_buckets(s, labels);
	return c->trace_id[0] || c->trace_id[1] || c->span_id;
}
