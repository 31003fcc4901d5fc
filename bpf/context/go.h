/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Labels that Go's runtime/pprof hangs on a goroutine. The goroutine is m.curg, never g itself,
 * which is the scheduler's while the thread is on its system stack.
 */
#pragma once

#include "bpf/context/label.h"

#define GO_G_M 48
#define GO_MAX_LABELS 16
#define GO_MAX_BUCKETS 16

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
		label_take(l.key.at, l.key.n, l.value.at, l.value.n);
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
			label_take(b->keys[i].at, b->keys[i].n, b->values[i].at, b->values[i].n);
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
