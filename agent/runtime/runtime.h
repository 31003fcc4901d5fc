/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Language runtimes: which processes run one, what its walker in BPF has to know of them, and what
 * the frames are called that the walker finds.
 *
 * A runtime is a folder here, NAME/, with a struct runtime_ops, and an entry in
 * abi/tbl/runtime.tbl. What is learned splits in two: of a binary (offsets, found once) and of a
 * process that maps it.
 *
 * Everything that is read from a process is hostile: lengths and loops are bounded, pointers are
 * read and never followed without a check of what was read. A name comes from what the object says
 * now; its cookie must be the one that the walker saw, or the frame is named "[stale]".
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

/* The memory of a living process. */
struct runtime_memory {
	u32 pid;
};

/* All n bytes or -EFAULT; -ESRCH when the process is gone. */
int runtime_read(const struct runtime_memory *m, u64 address, void *to, size_t n);
/* Fixed-size reads: 0 on failure sets *failed, and a chain of them is checked once at its end. */
u64 runtime_u64(const struct runtime_memory *m, u64 address, bool *failed);
u32 runtime_u32(const struct runtime_memory *m, u64 address, bool *failed);

struct runtime_target {
	struct runtime_memory memory;
	const struct procman_process *process; /* borrowed for the call */
	struct elf_file *elf;		       /* of the runtime's binary */
	u64 bias;			       /* avma - svma of it */
};

struct runtime_frame {
	const char *function; /* in the arena of the answer, UTF-8; never NULL */
	const char *file;     /* NULL: not known */
	u32 line, column;     /* 0: not known */
	u32 start_line;	      /* of the function; 0: not known */
};

/* One physical frame: what it stands for, innermost inlined function first. */
struct runtime_names {
	struct arena *arena;
	u32 n;
	struct runtime_frame frames[RUNTIME_MAX_INLINED];
};

struct runtime_ops {
	/* Cheap: by the file's name and a symbol. */
	bool (*is_runtime)(const struct procman_binary *b);
	/*
	 * Learns offsets, once per binary: what BPF gets, and what the functions below get as
	 * `learned`. Negative with a reason for people: which version it is and what is missing.
	 * Runs in another thread than all the others; of `b` only path and elf, its own, are set.
	 */
	int (*learn)(const struct procman_binary *b, struct runtime_binary *ret_bpf,
		     void **ret_learned, struct diag *reterr_diag);
	void (*forget)(void *learned);
	/*
	 * Fills ret->room for a process; the rest is filled already. -EAGAIN: it has not started
	 * so far that its addresses are known; asked again later.
	 */
	int (*attach)(const struct runtime_target *t, const void *learned,
		      struct runtime_process *ret);
	/*
	 * Names a frame from the two words that the walker sent. -ESTALE: the object is not the one
	 * that was seen; anything else that is negative: it could not be read.
	 */
	int (*name)(const struct runtime_target *t, const void *learned, u64 address, u64 where,
		    struct runtime_names *ret);
	/* Is this code that its walker is for: the interpreter's loop, or the JIT's? */
	bool (*covers)(const void *learned, const struct runtime_process *p, u64 avma);
	/* One line for `culprit doctor -p`: version, and where the offsets come from. */
	void (*describe)(const void *learned, char *ret, size_t n);
	/* process.runtime.name and .version of OpenTelemetry's conventions, as its own SDKs say. */
	const char *otel_name;
	/* Empty: not known. May be NULL. */
	void (*otel_version)(const void *learned, char *ret, size_t n);
	/*
	 * What of a process would not be shown, or not right: a line each. May be NULL; reads what
	 * it needs, as only `culprit doctor -p` asks.
	 */
	void (*missing)(const struct runtime_target *t, const void *learned,
			void (*line)(void *arg, const char *text), void *arg);
	/* Do rows or frame pointers lead from each of its frames to the caller, too? */
	bool walks_natively;
	/* Does its JIT write code into private anonymous executable memory? That is marked, too. */
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
	/* A binary whose mappings were marked could not be learned. May be NULL. */
	void (*unmark)(void *arg, u32 file_id);
	void *arg;
	struct budget *budget; /* borrowed, or NULL: what has no room in it is not learned */
};

int runtimes_create(const struct runtimes_options *o, struct runtimes **ret);
void runtimes_destroy(struct runtimes *r);
/* The runtime of a mapping: what tables mark it with, RUNTIME_NONE for most. */
u32 runtimes_of_mapping(struct runtimes *r, const struct procman_process *p,
			const struct procman_mapping *m);
/*
 * A process is new or has changed: attaches what is not attached yet. A binary that is seen for the
 * first time is learned by another thread: runtimes_take() has it when runtimes_fd() is readable,
 * and runtimes_retry() attaches the processes that wait for it.
 */
void runtimes_update_process(struct runtimes *r, const struct procman_process *p);
int runtimes_fd(const struct runtimes *r);
/* Is any binary being learned? */
bool runtimes_busy(const struct runtimes *r);
/* How many binaries were learned of; with `wait` all that are under way. */
u32 runtimes_take(struct runtimes *r, bool wait);
/* Does the process run any of the runtimes, native ones too, as far as is known? */
bool runtimes_in_process(struct runtimes *r, const struct procman_process *p);
/* Which runtime a process is one of, by OpenTelemetry's conventions. */
struct runtime_identity {
	const char *name; /* static */
	char version[64]; /* empty: not known, or not yet */
};
/* False: none, as far as is known. */
bool runtimes_identify(struct runtimes *r, const struct procman_process *p,
		       struct runtime_identity *ret);
/* Tries again what was too early; call it now and then. */
void runtimes_retry(struct runtimes *r, struct procman *pm);
/* Nothing of it runs any more: BPF forgets it. What its last frames are called is still known. */
void runtimes_end_process(struct runtimes *r, const struct procman_process *p);
void runtimes_remove_process(struct runtimes *r, const struct procman_process *p);
void runtimes_remove_binary(struct runtimes *r, const struct procman_binary *b);
/* Would the walker of the runtime take over at this address? */
bool runtimes_cover(struct runtimes *r, const struct procman_process *p, u32 runtime, u64 avma);
/*
 * Names a runtime frame of a living process (NULL: of one that is not known any more); the id of
 * its names, for runtime_answers_get(). A frame that cannot be named has a note in place of its
 * name. 1: the note says that names have reached their share of the memory limit, or that there is
 * no memory; a stack with it lacks a name. Negative: not even the note could be kept.
 */
int runtimes_name(struct runtimes *r, const struct procman_process *p, u64 word, u64 where,
		  u32 *ret_id);
/*
 * A frame that says that here are frames of the runtime which could not be read, for a walk that
 * goes on behind them without its walker. -ENOTSUP: it cannot.
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
/* What `culprit doctor -p` says of a process: a line for each runtime in it. */
void runtimes_describe(struct runtimes *r, const struct procman_process *p,
		       void (*line)(void *arg, const char *text), void *arg);

/* One frame's. */
struct runtime_answer {
	u32 first, n; /* into frames of the answers */
	u8 kind;      /* enum frame_kind */
};

/* The names that were asked for, by id. */
struct runtime_answers {
	struct arena arena; /* texts */
	vec(struct runtime_frame) frames;
	vec(struct runtime_answer) answers;
	struct map index; /* hash of process, word and where → answers */
	bool full;	  /* what is not named yet gets a note */
};

/* NULL for an id that was never given. Borrowed. */
const struct runtime_answer *runtime_answers_get(const struct runtime_answers *a, u32 id);
/* Gives all answers away, and begins anew; the ids were of these. */
struct runtime_answers runtimes_take_answers(struct runtimes *r);
void runtime_answers_deinit(struct runtime_answers *a);
