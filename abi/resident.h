/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Which pages the ledger of resident memory follows: those whose address has a small hash. So BPF
 * sees each fault of a page that is followed, and user space finds the same pages in the page
 * table. Forked processes follow the pages that their parent does.
 */
#pragma once

#include <linux/types.h>

#define RESIDENT_ALL (1ULL << 32) /* of sampler_control.resident_below: each page is followed */

static inline __u64 resident_hash(__u64 seed, __u64 page)
{
	__u64 h = (page ^ seed) * 0x9e3779b97f4a7c15ULL;

	h = (h ^ h >> 32) * 0xd6e8feb86659fd93ULL;
	return h >> 32;
}

/* Memory as /proc/PID/smaps tells it apart. Their sum is Rss. */
enum resident_kind {
	RESIDENT_ANONYMOUS,
	RESIDENT_HUGE,	 /* mapped as huge pages, of all other kinds */
	RESIDENT_FILE,	 /* the page cache */
	RESIDENT_SHARED, /* shared memory: tmpfs, memfd, System V, shared anonymous */
	RESIDENT_KINDS
};

/* What is known of memory without a stack. */
enum resident_note {
	RESIDENT_STACK, /* it has one */
	RESIDENT_UNKNOWN,
	RESIDENT_BEFORE, /* it was there when the recording began */
	RESIDENT_MOVED,	 /* by mremap(); by whom it was brought is unknown */
	RESIDENT_NOTES
};
