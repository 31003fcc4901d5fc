/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binaries of all processes, found by device and inode, each opened once.
 *
 * Inode numbers are reused, so an inode number identifies a file only while something holds the
 * inode: the open file does. Files that could not be opened are told apart by the inode's
 * generation, if it is known. A file that is rewritten in place keeps all of these, but changes
 * size and mtime.
 */
#pragma once

#include "agent/procman/procman.h"
#include "base/map.h"
#include "base/vec.h"
#include "proc/proc.h"

struct binary {
	struct procman_binary pub; /* first, so that a pointer to it can be converted back */
	u32 refs;
	struct binaries *table; /* borrowed; outlives its binaries */
	struct binary *chain;	/* next binary with the same hash */
	u64 hash;
	/* owned: of a regular file that is not ELF; -1: pub.elf owns it, or there is none */
	int fd;
	u64 generation; /* 0: unknown */
	u64 size;
	s64 mtime_ns;
	u64 idle_ns; /* time at which refs became 0 */
	struct binary *idle_prev, *idle_next;
	struct binary *all_prev, *all_next;
};

struct binaries {
	struct map by_inode;		       /* hash → struct binary *, the first of a chain */
	struct map by_id;		       /* file_id → struct binary * */
	struct binary *idle_first, *idle_last; /* binaries without references, oldest first */
	struct binary *all;		       /* including hidden ones */
	u32 max_files, last_id;
	u64 n_anon; /* number so far */
	u64 vdso_bytes;
	struct binary *vdso;	     /* a reference; NULL: there is no vDSO */
	struct procman_stats *stats; /* borrowed */
};

/* Ids are below max_files. */
void binaries_init(struct binaries *t, u32 max_files, struct procman_stats *stats);
/* Calls `gone` for each remaining binary, even if it has references. */
void binaries_deinit(struct binaries *t, void (*gone)(void *arg, struct procman_binary *b),
		     void *arg);

/*
 * Returns the binary of a mapping of process `pid`, with a reference; not for private memory.
 * `generation` is that of the inode, 0: unknown. -ENOENT: code that is ignored, [vsyscall];
 * -ENOMEM.
 */
int binaries_find(struct binaries *t, u32 pid, const struct proc_mapping *m, u64 generation,
		  struct procman_binary **ret);
/* Creates a binary for the private memory of a process. */
int binaries_add_anon(struct binaries *t, u32 pid, struct procman_binary **ret);

/* Frees binaries that have had no references since `before_ns`. */
void binaries_expire(struct binaries *t, u64 before_ns,
		     void (*gone)(void *arg, struct procman_binary *b), void *arg);
/* When binaries_expire() is due next, if binaries linger for so long; ~0: never. */
u64 binaries_due_ns(const struct binaries *t, u64 linger_ns);

/* Returns avma - svma of a mapping that starts at `start` with file offset foff. */
u64 binary_bias(const struct procman_binary *b, u64 start, u64 foff);

/* Whether a mapping is private memory, for binaries_add_anon(). */
bool binary_is_anon(const struct proc_mapping *m);
