/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's side-band records that procman uses. */
#pragma once

#include "base/types.h"

enum sideband_type {
	SIDEBAND_IGNORED, /* a type that is not used */
	SIDEBAND_FORK,	  /* of a process or thread */
	SIDEBAND_EXIT,	  /* of a thread */
	SIDEBAND_COMM,
	SIDEBAND_MMAP,
	SIDEBAND_LOST,
};

struct sideband {
	enum sideband_type type;
	u64 time_ns;
	u32 pid, tid;	/* fork: those of the child */
	u32 ppid, ptid; /* fork: those of the caller */
	bool exec;	/* comm: the name changed because of an exec */
	u64 lost;	/* number of lost records */
	/* mmap */
	u64 start, end, foff;
	u32 dev_major, dev_minor;
	u64 inode, inode_generation;
	u32 prot;
	const char *name; /* mmap, comm: borrowed from the bytes */
};

/*
 * Parses one whole record, as ring.c requests it (sample_id holds only the time), from its header
 * on. -EINVAL: it is damaged.
 */
int sideband_parse(const void *bytes, size_t n, struct sideband *ret);

/*
 * Finds the next record, by its header and time only. False: the rest is damaged, or the end was
 * reached (*pos == n).
 */
bool sideband_next(const u8 *bytes, size_t n, size_t *pos, size_t *ret_n, u64 *ret_time_ns);
