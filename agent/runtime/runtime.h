/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Language runtimes: which processes run one, what its walker in BPF needs to know about them, and
 * the names of the frames that the walker finds.
 *
 * A runtime is a folder here, NAME/, with a struct runtime_ops, and an entry in
 * abi/tbl/runtime.tbl. Offsets are learned once for
 * each binary; addresses are found for each process that maps it.
 *
 * Everything that is read from a process is hostile: lengths and loops are bounded, and what was
 * read is checked before a pointer in it is followed. A name comes from the object's memory at the
 * time of naming; if the object's cookie is not the one that the walker saw, the frame is named
 * "[stale]".
 *
 * All functions belong to the reader's thread, but for runtime_ops.learn().
 */
#pragma once

#include "abi/runtime.h"
#include "abi/vocab.h"
#include "agent/procman/procman.h"
#include "base/arena.h"
#include "base/budget.h"
#include "base/diag.h"
#include "base/map.h"
#include "base/stat.h"
#include "base/types.h"
#include "base/vec.h"

#define RUNTIME_MAX_INLINED 64

/* The memory of a live process. */
struct runtime_memory {
	u32 pid;
};

/* Reads all n bytes at an avma. -EFAULT: not all can be read; -ESRCH: the process is gone. */
int runtime_read(const struct runtime_memory *m, u64 address, void *to, size_t n);
/*
 * Read one value at an avma. On failure they return 0 and set *failed, so that a chain of reads
 * needs one check at its end.
 */
u64 runtime_u64(const struct runtime_memory *m, u64 address, bool *failed);
u32 runtime_u32(const struct runtime_memory *m, u64 address, bool *failed);

struct runtime_target {
	struct runtime_memory memory;
	const struct procman_process *process; /* borrowed for the call */
	struct elf_file *elf;		       /* the runtime's binary; borrowed for the call */
	u64 bias;			       /* avma - svma of that binary */
};

struct runtime_frame {
	const char *function; /* UTF-8, in the arena of the answer; never NULL */
	const char *file;     /* NULL: not known */
	u32 line, column;     /* 0: not known */
	u32 start_line;	      /* of the function; 0: not known */
};

/* The functions that one physical frame stands for, innermost inlined function first. */
struct runtime_names {
	struct arena *arena;
	u32 n;
	struct runtime_frame frames[RUNTIME_MAX_INLINED];
};

struct runtime_ops {
	/* Does the binary hold this runtime? Cheap: goes by the file's name and a symbol. */
	bool (*is_runtime)(const struct procman_binary *b);
	/*
	 * Learns a binary's offsets, once: *ret_bpf is for the walker, *ret_learned is what the
	 * functions below get as `learned`; forget() frees it. On failure the diag says for people
	 * which version the binary is and what is missing. Runs in the learner's thread; of `b`
	 * only kind, path and elf are set, and elf is this thread's own.
	 */
	int (*learn)(const struct procman_binary *b, struct runtime_binary *ret_bpf,
		     void **ret_learned, struct diag *reterr_diag);
	void (*forget)(void *learned);
	/*
	 * Fills ret->room for a process; the other fields are set. -EAGAIN: the runtime has not
	 * started far enough to know its addresses; attach() is called again later.
	 */
	int (*attach)(const struct runtime_target *t, const void *learned,
		      struct runtime_process *ret);
	/*
	 * Names a frame from the two words that the walker sent; texts go into ret->arena. -ESTALE:
	 * the object is no longer the one that the walker saw; -ENOMEM; any other error: it could
	 * not be read.
	 */
	int (*name)(const struct runtime_target *t, const void *learned, u64 address, u64 where,
		    struct runtime_names *ret);
	/*
	 * Is the walker meant for the code at this avma: the interpreter's loop, or the JIT's code?
	 */
	bool (*covers)(const void *learned, const struct runtime_process *p, u64 avma);
	/* Writes one line for `culprit doctor -p`: version, and where the offsets come from. */
	void (*describe)(const void *learned, char *ret, size_t n);
	/* process.runtime.name of OpenTelemetry's conventions, as OpenTelemetry's SDKs write it. */
	const char *otel_name;
	/* Writes process.runtime.version, "" if it is not known. May be NULL. */
	void (*otel_version)(const void *learned, char *ret, size_t n);
	/*
	 * Passes to `line` what of a process would be missing or wrong, one line each. May be NULL.
	 * May be slow: only `culprit doctor -p` calls it.
	 */
	void (*missing)(const struct runtime_target *t, const void *learned,
			void (*line)(void *arg, const char *text), void *arg);
	/* Rows or frame pointers lead from each of its frames to the caller, too. */
	bool walks_natively;
	/* Its JIT writes code into private anonymous executable memory, which is marked, too. */
	bool marks_anonymous;
};

/* A runtime whose code unwind rows cover: nothing is learned of it, and no process is attached. */
struct native_runtime_ops {
	/* Cheap: by a section of b->elf, which is not NULL. */
	bool (*is_runtime)(const struct procman_binary *b);
	/*
	 * One line for `culprit doctor -p`: version, and what is known of the binary. -ENOENT: it
	 * is not of this runtime. Asked of every binary, also where is_runtime() says no.
	 */
	int (*describe)(struct elf_file *elf, char *ret, size_t n);
	/* process.runtime.name, and .version: false when the binary does not say. */
	const char *otel_name;
	bool (*otel_version)(struct elf_file *elf, char *ret, size_t n);
};

#define RUNTIME(id, name, ...) extern const struct runtime_ops runtime_##name;
#define NATIVE_RUNTIME(name, ...) extern const struct native_runtime_ops native_runtime_##name;
#include "abi/tbl/runtime.tbl"
#undef RUNTIME

/* ---- for the pipeline ---- */

struct runtimes;

struct runtimes_options {
	/* BPF maps, borrowed; -1: nothing is walked, only described. */
	int binaries_fd;  /* struct runtime_binary by index */
	int processes_fd; /* struct runtime_process by struct runtime_key */
	/* Called when a binary whose mappings were marked could not be learned. May be NULL. */
	void (*unmark)(void *arg, u32 file_id);
	void *arg;
	struct budget *budget; /* borrowed, or NULL; a binary that does not fit is not learned */
};

int runtimes_create(const struct runtimes_options *o, struct runtimes **ret);
void runtimes_destroy(struct runtimes *r);
/* The runtime that a mapping is to be marked with; RUNTIME_NONE for most. */
u32 runtimes_of_mapping(struct runtimes *r, const struct procman_process *p,
			const struct procman_mapping *m);
/*
 * Attaches the runtimes of a process that is new or has changed. A binary that is seen for the
 * first time is learned by another thread: when runtimes_fd() becomes readable, call
 * runtimes_take(), and runtimes_retry() attaches the processes that wait for the binary.
 */
void runtimes_update_process(struct runtimes *r, const struct procman_process *p);
int runtimes_fd(const struct runtimes *r);
/* Is any binary being learned? */
bool runtimes_busy(const struct runtimes *r);
/* Takes over what the learner has finished; with `wait` it waits for all that is under way. Returns
 * the number of binaries. */
u32 runtimes_take(struct runtimes *r, bool wait);
/* Does the process run any of the runtimes, native ones too, as far as is known? */
bool runtimes_in_process(struct runtimes *r, const struct procman_process *p);
/* The runtime of a process in the terms of OpenTelemetry's conventions. */
struct runtime_identity {
	const char *name; /* static */
	char version[64]; /* "": not known, or not yet */
};
/* False: the process has no runtime, as far as is known. */
bool runtimes_identify(struct runtimes *r, const struct procman_process *p,
		       struct runtime_identity *ret);
/* Attaches again where it was too early before. Call it periodically. */
void runtimes_retry(struct runtimes *r, struct procman *pm);
/* The process has exited: BPF forgets it. Its last frames can still be named. */
void runtimes_end_process(struct runtimes *r, const struct procman_process *p);
void runtimes_remove_process(struct runtimes *r, const struct procman_process *p);
void runtimes_remove_binary(struct runtimes *r, const struct procman_binary *b);
/* Would the runtime's walker take over at this avma? */
bool runtimes_cover(struct runtimes *r, const struct procman_process *p, u32 runtime, u64 avma);
/*
 * Names a runtime frame of a live process; p is NULL for one that is not known any more. *ret_id is
 * for runtime_answers_get(). A frame that cannot be named gets a note in place of its name. Returns
 * 1 if the note says that names have reached their share of the memory limit, or that there is no
 * memory: a stack with it lacks a name. Negative: not even the note could be stored.
 */
int runtimes_name(struct runtimes *r, const struct procman_process *p, u64 word, u64 where,
		  u32 *ret_id);
/*
 * Makes a frame that stands for unread frames of a runtime, for a walk that passes them by rows
 * because its walker cannot run. -ENOTSUP: rows do not lead through this runtime's frames.
 */
int runtimes_note(struct runtimes *r, u32 runtime, u64 *ret_frame);
struct runtimes_stats {
	u64 attached; /* processes and runtimes in them that BPF walks, now */
	u64 no_room;  /* times that a process had no room in BPF's map */
	u64 unnamed;  /* frames that had a note in place of their name for want of memory */
	/* By enum runtime_id: binaries of which nothing could be learned; processes whose state
	 * was not found; frames that were not what the walker saw any more, or not readable. */
	u64 learn_failed[RUNTIME_N], attach_failed[RUNTIME_N], stale[RUNTIME_N];
};

void runtimes_get_stats(const struct runtimes *r, struct runtimes_stats *ret);
extern const struct stat_field runtimes_stat_fields[];
/* Passes what `culprit doctor -p` says of a process to `line`: a line for each runtime in it. */
void runtimes_describe(struct runtimes *r, const struct procman_process *p,
		       void (*line)(void *arg, const char *text), void *arg);

/* The names of one frame. */
struct runtime_answer {
	u32 first, n; /* into frames of the answers */
	u8 kind;      /* enum frame_kind */
};

/* All names that runtimes_name() made since runtimes_take_answers(), by id. */
struct runtime_answers {
	struct arena arena; /* texts */
	vec(struct runtime_frame) frames;
	vec(struct runtime_answer) answers;
	struct map index; /* hash of process, word and where → answers */
	bool full;	  /* what is not named yet gets a note */
};

/* Borrowed from `a`. NULL: there is no such id. */
const struct runtime_answer *runtime_answers_get(const struct runtime_answers *a, u32 id);
/*
 * Moves all answers to the caller. Ids that were given before belong to them; new ones start at 0.
 */
struct runtime_answers runtimes_take_answers(struct runtimes *r);
void runtime_answers_deinit(struct runtime_answers *a);
