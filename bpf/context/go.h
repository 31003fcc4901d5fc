/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Labels that Go's runtime/pprof attaches to a goroutine. The goroutine is m.curg; g is the
 * scheduler's while the thread is on the system stack.
 */
#pragma once

#include "bpf/context/label.h"

#define GO_G_M 48
#define GO_G_SELF 72   /* g.sched.g */
#define GO_G_BYTES 320 /* bytes of a g from g.m on; g.labels is among them in all releases */
#define GO_MAX_BUCKETS 16

struct go_string {
	__u64 at, n;
};

#define GO_LABEL_WORDS 4 /* words of a label: its name, its value */

/* runtime.hmap and a bucket of map[string]string: up to Go 1.23. */
struct go_map {
	__u64 n;
	__u8 flags, log2_buckets;
	__u16 n_overflow;
	__u32 seed;
	__u64 buckets;
};

#define GO_BUCKET_SLOTS 8
struct go_bucket {
	__u8 hashes[GO_BUCKET_SLOTS]; /* values below GO_LEAST_HASH: the slot is empty */
	struct go_string keys[GO_BUCKET_SLOTS], values[GO_BUCKET_SLOTS];
	__u64 overflow;
};
#define GO_LEAST_HASH 5

/*
 * Where in the window go_take_bucket() reads a bucket, so that texts are at the even words that
 * labels_take() expects.
 */
#define GO_BUCKET_AT 1
#define GO_BUCKET_KEYS (GO_BUCKET_AT + offsetof(struct go_bucket, keys) / 8)
#define GO_BUCKET_VALUES (GO_BUCKET_AT + offsetof(struct go_bucket, values) / 8)
_Static_assert(sizeof(struct go_bucket) + GO_BUCKET_AT * 8 <= WINDOW_WORDS * 8, "go_bucket");
_Static_assert(LABEL_MAX *GO_LABEL_WORDS <= WINDOW_WORDS, "LABEL_MAX");

/* Takes the labels of a slice: Go 1.24 and later. */
static __always_inline void go_list(struct scratch *s, __u64 labels)
{
	struct go_string list; /* without the capacity */
	__u32 n;

	if (bpf_probe_read_user(&list, sizeof(list), (const void *)labels) < 0)
		return;
	n = list.n < LABEL_MAX ? (__u32)list.n : LABEL_MAX;
	if (n && context_words(s, n * GO_LABEL_WORDS, list.at))
		labels_take(0, n, GO_LABEL_WORDS, 2);
}

/* Branchless over the slots: the verifier would follow each combination of full and empty slots. */
static __always_inline bool go_take_bucket(struct scratch *s, struct go_bucket *b, __u64 at)
{
	if (bpf_probe_read_user(b, sizeof(*b), (const void *)at) < 0)
		return false;
	for (__u64 i = 0; i < GO_BUCKET_SLOTS; i++)
		b->keys[i].at *= (b->hashes[i] + 256u - GO_LEAST_HASH) >> 8;
	labels_take(GO_BUCKET_KEYS, GO_BUCKET_SLOTS, 2, GO_BUCKET_VALUES - GO_BUCKET_KEYS);
	return true;
}

/*
 * Takes the labels of a map from strings to strings: up to Go 1.23. A global function, so that the
 * verifier checks it once. The bucket's number is in memory, because the verifier would follow each
 * value of it in a register.
 */
__noinline int go_buckets(__u64 labels)
{
	struct scratch *s = scratch_get();
	struct go_bucket *b;
	struct go_map m;
	__u64 at;

	if (!s || bpf_probe_read_user(&m, sizeof(m), (const void *)context_word(labels)) < 0 ||
	    m.log2_buckets > 3)
		return 0;
	b = (struct go_bucket *)(s->window.words + GO_BUCKET_AT);
	s->gathered.bucket = 0;
	at = m.buckets;
	for (__u64 i = 0; i < GO_MAX_BUCKETS && at; i++) {
		at = go_take_bucket(s, b, at) ? b->overflow : 0;
		if (!at && ++s->gathered.bucket < 1u << (m.log2_buckets & 3))
			at = m.buckets + s->gathered.bucket * sizeof(*b);
	}
	return 0;
}

static __always_inline __u64 go_g(const struct scratch *s, const struct context_go *go)
{
#if defined(__TARGET_ARCH_arm64)
	return s->walk.regs.full ? s->walk.regs.r[28] : 0;
#else
	return context_word(s->walk.regs.tls + (__u64)go->g_tls);
#endif
}

/* Reads g from g.m to g.labels into the window. */
static __always_inline bool go_read_g(struct scratch *s, const struct context_go *go, __u64 g)
{
	__u32 last = go->g_labels - GO_G_M;

	return g && last < GO_G_BYTES && context_words(s, last / 8 + 1, g + GO_G_M);
}

static __always_inline __u64 go_field(const struct scratch *s, __u32 at)
{
	return s->window.words[walk_bound((at - GO_G_M) / 8, WINDOW_WORDS - 1)];
}

/*
 * The labels of the goroutine that the thread runs, or 0. If g is a goroutine, the labels are g's.
 * The g of a scheduler or of a signal handler has no id: then the goroutine is m.curg. On arm64 the
 * goroutine is always m.curg, because the register of g may hold anything in C code.
 */
static __always_inline __u64 go_find_labels(struct scratch *s, const struct context_go *go)
{
	__u64 g = go_g(s, go), m, curg;

	if (!go_read_g(s, go, g))
		return 0;
#if !defined(__TARGET_ARCH_arm64)
	if (go_field(s, GO_G_SELF) == g && go_field(s, go->g_id))
		return go_field(s, go->g_labels);
#endif
	m = go_field(s, GO_G_M);
	curg = context_word(m + go->m_curg);
	if (curg != g && !go_read_g(s, go, curg))
		return 0;
	return go_field(s, GO_G_M) == m ? go_field(s, go->g_labels) : 0;
}

static __always_inline bool go_context(struct scratch *s, const struct context_process *p)
{
	const struct sample_context *c = &s->out.sample.context;
	__u64 labels = go_find_labels(s, &p->go);

	if (!labels)
		return false;
	s->gathered.fixed = p->go.fixed;
	s->gathered.n_fixed = s->walk.mappings_id ? p->go.n_fixed : 0;
	if (p->go.is_list)
		go_list(s, labels);
	else
		go_buckets(labels);
	return c->trace_id[0] || c->trace_id[1] || c->span_id;
}
