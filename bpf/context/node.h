/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * OpenTelemetry's record in Node.js: what the running JavaScript works for is not the thread's but
 * that of its asynchronous context, which V8 keeps as a Map from AsyncLocalStorage objects to their
 * values. A thread-local variable says where that is, and which of the keys is the publisher's.
 */
#pragma once

#define NODE_MAX_CHAIN 8
/* Fields of V8's heap objects; addresses of objects are odd. */
#define NODE_MAP_TABLE 24
#define NODE_TABLE_COUNTS 16
#define NODE_TABLE_BUCKETS 40

struct node_thread {
	__u64 slot; /* of the current context; 0: do not look */
	__u64 key;  /* of a handle to the AsyncLocalStorage object */
	__s32 hash; /* its identity hash */
	__u32 pad;
	__u64 undefined;
};

/* V8's OrderedHashMap: these, the buckets' first entries, then entries. Numbers are << 32. */
struct node_counts {
	__u64 n, deleted, n_buckets;
};

struct node_entry {
	__u64 key, value;
	__s64 next;
};

/* The value of the key in the map, or 0. */
static __always_inline __u64 node_find(__u64 map, const struct node_thread *t)
{
	__u64 table = context_word(map - 1 + NODE_MAP_TABLE) - 1, key = context_word(t->key), n, at;
	struct node_counts counts;
	struct node_entry e;
	__s64 i;

	/* While a table is made anew, its count is something else. */
	if (!key ||
	    bpf_probe_read_user(&counts, sizeof(counts), (void *)(table + NODE_TABLE_COUNTS)) < 0 ||
	    (counts.n | counts.n_buckets) << 32)
		return 0;
	n = counts.n_buckets >> 32;
	if (!n || n & (n - 1))
		return 0;
	at = table + NODE_TABLE_BUCKETS;
	i = (__s64)context_word(at + ((__u64)(__u32)t->hash & (n - 1)) * 8) >> 32;
	at += n * 8;
	for (int k = 0; k < NODE_MAX_CHAIN && i >= 0; k++) {
		if (bpf_probe_read_user(&e, sizeof(e), (void *)(at + (__u64)i * sizeof(e))) < 0)
			return 0;
		if (e.key == key)
			return e.value;
		i = e.next >> 32;
	}
	return 0;
}

static __always_inline bool node_context(struct scratch *s, const struct context_process *p)
{
	__u64 at = context_tls(s, p, CONTEXT_NODE), map, wrapper;
	struct node_thread t;

	if (!at || bpf_probe_read_user(&t, sizeof(t), (const void *)at) < 0 || !t.slot)
		return false;
	map = context_word(t.slot);
	if (!(map & 1) || map == t.undefined)
		return false;
	wrapper = node_find(map, &t);
	if (!(wrapper & 1) || wrapper == t.undefined)
		return false;
	return otel_take(s, context_word(wrapper - 1 + p->node_record));
}
