/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's side-band records, as far as we use them. */
#pragma once

#include "base/types.h"

enum sideband_type {
	SIDEBAND_IGNORED, /* a type we have no use for */
	SIDEBAND_FORK,	  /* also of threads */
	SIDEBAND_EXIT,	  /* of a thread */
	SIDEBAND_COMM,
	SIDEBAND_MMAP,
	SIDEBAND_LOST,
};

struct sideband {
	enum sideband_type type;
	u64 time_ns;
	u32 pid, tid;	/* fork: of the child */
	u32 ppid, ptid; /* fork: who called it */
	bool exec;	/* comm: because of an exec */
	u64 lost;	/* lost: how many */
	/* mmap */
	u64 start, end, foff;
	u32 dev_major, dev_minor;
	u64 inode, inode_generation;
	u32 prot;
	const char *name; /* mmap, comm: borrowed from the bytes */
};

/*
 * One whole record, as asked for by ring.c (sample_id holds the time alone), starting with its
 * header. -EINVAL when it is damaged.
 */
int sideband_parse(const void *bytes, size_t n, struct sideband *ret);

/*
 * Cuts the next record off, looking only at its header and its time; false when the rest is
 * damaged, or at the end (*pos == n).
 */
bool sideband_next(const u8 *bytes, size_t n, size_t *pos, size_t *ret_n, u64 *ret_time_ns);
