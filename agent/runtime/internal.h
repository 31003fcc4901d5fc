/* SPDX-License-Identifier: Apache-2.0 */
/* The runtimes of processes as the files of agent/runtime itself see them. */
#pragma once

#include "agent/runtime/learn.h"
#include "agent/runtime/runtime.h"
#include "base/map.h"

/* A row of abi/tbl/runtime.tbl, by enum runtime_id. RUNTIME_NONE has no ops. */
struct runtime_row {
	const char *name;
	u8 kind; /* enum frame_kind of its frames */
	const struct runtime_ops *ops;
};
extern const struct runtime_row runtime_table[RUNTIME_N];

/* A runtime without a walker; the last has no ops. */
struct native_runtime {
	const char *name;
	const struct native_runtime_ops *ops;
};
extern const struct native_runtime native_runtimes[];

/* A binary that has been classified. */
struct known_binary {
	u32 runtime; /* RUNTIME_NONE: no runtime, or learning failed */
	u32 slot;    /* index in the BPF array */
	u32 claimed; /* result of is_runtime(), even if learning failed */
	const struct native_runtime_ops
		*native; /* or the native runtime of the binary; else NULL */
	void *tasks;	 /* what `native` has learned of its tasks; NULL: nothing */
	bool tasks_asked;
	void *heap; /* likewise of its memory profile */
	bool heap_asked;
	bool learning;
	bool gone; /* no process maps it any more; freed when the learner is done with it */
	u32 file_id;
	u32 n_asked;
	void *learned;
	struct diag why; /* why learning failed */
};

/* One runtime in one image of a process. */
struct attached {
	u64 image;
	u32 pid;
	u32 n_tries;
	bool done;
	bool again;	 /* attach() is still called, because it will find more */
	bool in_map;	 /* it is in BPF's map */
	int error;	 /* of the last attempt */
	u64 mappings_id; /* the process's mappings_id when it was attached */
	void *tasks;	 /* what runtime_task_ops.scan() keeps */
	const struct known_binary *binary;
	u32 file_id;
	struct runtime_process process;
};

struct runtimes {
	struct runtimes_options options;
	struct map binaries; /* file id → struct known_binary *, owned */
	struct map attached; /* image << 4 | runtime → struct attached *, owned */
	/* keys as above, of runtimes that have not started → pid << 32 | rounds until the next
	 * attempt */
	struct map waiting;
	/* struct known_binary *, owned: unmapped while the learner works on them */
	struct map gone;
	bool used[RUNTIME_MAX_BINARIES];
	u64 jits_of; /* the mappings_id that `jits` belongs to; 0: none */
	u32 jits[JIT_MEMORY_N];

	struct learner *learner;
	struct runtime_answers answers;
	struct runtimes_stats stats;
};

/* ---- runtime.c ---- */

/* The runtime in the image of a process, or NULL. Borrowed. */
struct attached *runtimes_attached(const struct runtimes *r, u64 image, u32 runtime);
/* Classifies a binary once. NULL: no memory. Borrowed until it is removed. */
struct known_binary *runtimes_binary(struct runtimes *r, const struct procman_binary *b);
/* Attaches to the runtimes that the process has mapped. */
void runtimes_follow(struct runtimes *r, const struct procman_process *p);

/* ---- tasks.c ---- */

/* Frees what looking at the tasks of a process keeps. */
void runtimes_drop_tasks(struct attached *a, u32 runtime);

/* ---- names.c ---- */

/* Bytes that the names of one period may take; their index may take half of it, twice to grow. */
u64 runtimes_names_limit(const struct runtimes *r);
