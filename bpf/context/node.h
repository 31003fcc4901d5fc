/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * OpenTelemetry's record in Node.js. The trace and span belong not to the thread but to the
 * asynchronous context of the running JavaScript. V8 keeps the context as a Map from
 * AsyncLocalStorage objects to their values. A thread-local variable says where the Map is, and
 * which key is the publisher's.
 */
#pragma once

#define NODE_MAX_CHAIN 8
/* Fields of V8's heap objects; addresses of objects are odd. */
#define NODE_MAP_TABLE 24
#define NODE_TABLE_COUNTS 16

struct node_thread {
	__u64 slot; /* address of the pointer to the current context; 0: do not read it */
	__u64 key;  /* address of a handle to the AsyncLocalStorage object */
	__s32 hash; /* identity hash of the key */
	__u32 pad;
	__u64 undefined;
};

/*
 * V8's OrderedHashMap: these counts, the buckets' first entries, then the entries. Each number is
 * shifted left by 32.
 */
struct node_counts {
	__u64 n, deleted, n_buckets;
};

struct node_entry {
	__u64 key, value;
	__s64 next;
};

/* Bytes to read at once of a table, from the counts on: a whole table of up to eight entries. */
#define NODE_AHEAD 256
#define NODE_COUNTS_WORDS (sizeof(struct node_counts) / 8)
#define NODE_ENTRY_WORDS (sizeof(struct node_entry) / 8)

/* A word of the table. The first `have` words of the table are in the window. */
static __always_inline __u64 node_word(const struct scratch *s, __u64 table, __u32 have, __u32 i)
{
	return i < have ? s->window.words[walk_bound(i, WINDOW_WORDS - 1)]
			: context_word(table + (__u64)i * 8);
}

/* The value of the key in the map, or 0. */
static __always_inline __u64 node_find(struct scratch *s, __u64 map, const struct node_thread *t)
{
	__u64 table = context_word(map - 1 + NODE_MAP_TABLE) - 1 + NODE_TABLE_COUNTS;
	const struct node_counts *counts = (const struct node_counts *)s->window.words;
	__u64 key = context_word(t->key);
	__u32 have, n, at;
	__s64 i;

	have = context_bytes(s->window.words, NODE_AHEAD, sizeof(*counts), NODE_AHEAD, table) / 8;
	/* While V8 replaces a table, its count is no small integer. */
	if (!key || !have || (counts->n | counts->n_buckets) << 32)
		return 0;
	n = (__u32)(counts->n_buckets >> 32);
	if (!n || n & (n - 1))
		return 0;
	i = (__s64)node_word(s, table, have, NODE_COUNTS_WORDS + ((__u32)t->hash & (n - 1))) >> 32;
	for (__u64 k = 0; k < NODE_MAX_CHAIN && i >= 0; k++) {
		at = NODE_COUNTS_WORDS + n + (__u32)i * NODE_ENTRY_WORDS;
		if (node_word(s, table, have, at) == key)
			return node_word(s, table, have, at + 1);
		i = (__s64)node_word(s, table, have, at + 2) >> 32;
	}
	return 0;
}

static __always_inline bool node_context(struct scratch *s, struct context_process *p)
{
	__u64 at = context_tls(s, p, CONTEXT_NODE), map, wrapper;
	struct node_thread t;

	if (!at || bpf_probe_read_user(&t, sizeof(t), (const void *)at) < 0 || !t.slot)
		return false;
	map = context_word(t.slot);
	if (!(map & 1) || map == t.undefined)
		return false;
	wrapper = node_find(s, map, &t);
	if (!(wrapper & 1) || wrapper == t.undefined)
		return false;
	return otel_take(s, p, context_word(wrapper - 1 + p->node_record));
}
