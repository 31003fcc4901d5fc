/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binaries of all processes, found by device and inode, each opened once.
 *
 * An inode number is used again when its file is gone, so it is an identity only as long as
 * something holds the inode: the open file does. What could not be opened is held apart by the
 * inode's generation where both are known. A file rewritten in place keeps all of these; its size
 * and mtime tell.
 */
#pragma once

#include "agent/procman/procman.h"
#include "base/map.h"
#include "base/vec.h"
#include "proc/proc.h"

struct binary {
	struct procman_binary pub; /* first: the public pointer is ours */
	u32 refs;
	struct binaries *table; /* borrowed; it outlives its binaries */
	struct binary *chain;	/* others of the same hash */
	u64 hash;
	int fd; /* owned: of a regular file that is not ELF; -1 when pub.elf has it, or none */
	u64 generation; /* 0 = not known */
	u64 size;
	s64 mtime_ns;
	u64 idle_ns; /* since when refs is 0 */
	struct binary *idle_prev, *idle_next;
	struct binary *all_prev, *all_next;
};

struct binaries {
	struct map by_inode;		       /* hash → struct binary *, the first of a chain */
	struct map by_id;		       /* file_id → struct binary * */
	struct binary *idle_first, *idle_last; /* no references, oldest first */
	struct binary *all;		       /* also those that are found no more */
	u32 max_files, last_id;
	u64 n_anon; /* so far */
	u64 vdso_bytes;
	struct binary *vdso;	     /* a reference of ours; NULL when we have none */
	struct procman_stats *stats; /* borrowed */
};

/* Ids are below max_files. */
void binaries_init(struct binaries *t, u32 max_files, struct procman_stats *stats);
/* gone is called for each that is left, whoever still refers to it. */
void binaries_deinit(struct binaries *t, void (*gone)(void *arg, struct procman_binary *b),
		     void *arg);

/*
 * The binary behind a mapping of process `pid` that is not private memory, with a reference.
 * `generation` is the inode's, 0 when not known. -ENOENT: code that is of no interest, [vsyscall].
 * -ENOMEM.
 */
int binaries_find(struct binaries *t, u32 pid, const struct proc_mapping *m, u64 generation,
		  struct procman_binary **ret);
/* A new one for the private memory of a process. */
int binaries_add_anon(struct binaries *t, u32 pid, struct procman_binary **ret);

/* Frees those without references since `before_ns` or longer. */
void binaries_expire(struct binaries *t, u64 before_ns,
		     void (*gone)(void *arg, struct procman_binary *b), void *arg);
/* When the next is due to be looked at, given how long they linger; ~0: never. */
u64 binaries_due_ns(const struct binaries *t, u64 linger_ns);

/* avma - svma of a mapping that starts at `start` with file offset foff. */
u64 binary_bias(const struct procman_binary *b, u64 start, u64 foff);

/* Private memory: the kind for which binaries_add_anon() is meant. */
bool binary_is_anon(const struct proc_mapping *m);
