/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Language runtimes: which processes run one, what its walker in BPF needs to know about them, and
 * the names of the frames that the walker finds.
 *
 * A runtime is a folder here, NAME/, with a struct runtime_ops, and an entry in
 * abi/tbl/runtime.tbl. Offsets are learned once per binary; addresses are found in each process
 * that maps it.
 *
 * Everything that is read from a process is hostile: lengths and loops are bounded, and a pointer
 * is validated before it is followed. A name is read from the object's memory when the stack
 * arrives; if the object's cookie differs from the one that the walker saw, the frame is named
 * "[stale]".
 *
 * Only the reader's thread may call these functions, except runtime_ops.learn().
 */
#pragma once

#include "abi/runtime.h"
#include "abi/runtime_lock.h"
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

/*
 * Reads n bytes at an avma. -EFAULT: some of them cannot be read; -ESRCH: the process has exited.
 */
int runtime_read(const struct runtime_memory *m, u64 address, void *to, size_t n);
/*
 * Reads one value at an avma. On failure returns 0 and sets *failed, so that a chain of reads needs
 * only one check at its end.
 */
u64 runtime_u64(const struct runtime_memory *m, u64 address, bool *failed);
u32 runtime_u32(const struct runtime_memory *m, u64 address, bool *failed);

struct runtime_target {
	struct runtime_memory memory;
	const struct procman_process *process; /* borrowed during the call */
	/* the runtime's binary; borrowed during the call */
	struct elf_file *elf;
	u64 bias; /* avma - svma of the binary */
};

struct runtime_frame {
	const char *function; /* UTF-8, in the arena of the answer; never NULL */
	const char *file;     /* NULL: unknown */
	u32 line, column;     /* 0: unknown */
	u32 start_line;	      /* first line of the function; 0: unknown */
};

/* The functions of one physical frame, innermost inlined function first. */
struct runtime_names {
	struct arena *arena;
	/* Of a runtime with named_by_caller: the two words of its next frame; 0: there is none. */
	u64 caller, caller_where;
	u32 n;
	struct runtime_frame frames[RUNTIME_MAX_INLINED];
};

/* Memory, other than the segments of an ELF file, that can have code of a JIT. */
enum jit_memory {
	JIT_MEMORY_ANON,   /* private anonymous memory */
	JIT_MEMORY_SHARED, /* shared memory without a file, as of memfd_create() and /dev/zero */
	JIT_MEMORY_FILES,  /* files that are not ELF, and behind the segments of those that are */
	JIT_MEMORY_N
};

struct runtime_ops {
	/* Whether the binary contains this runtime. Cheap: it looks at the file's name and a
	 * symbol. */
	bool (*is_runtime)(const struct procman_binary *b);
	/* Learns the offsets of a binary, once. *ret_bpf is for the walker; *ret_learned is passed
	 * to the functions below as `learned` and freed with forget(). On failure the diag names
	 * the version and what is missing, for people. It runs in the learner's thread; of `b` only
	 * kind, path and elf are set, and elf belongs to that thread. */
	int (*learn)(const struct procman_binary *b, struct runtime_binary *ret_bpf,
		     void **ret_learned, struct diag *reterr_diag);
	void (*forget)(void *learned);
	/* Frees what name() keeps and can read again. May be NULL. */
	void (*trim)(void *learned);
	/* Fills ret->room for a process; the caller has set the other fields. -EAGAIN: the runtime
	 * has not started far enough; attach() will be called again. 1: the walker can begin, but
	 * attach() will be called again, because more will be known. */
	int (*attach)(const struct runtime_target *t, const void *learned,
		      struct runtime_process *ret);
	/* Fills ret->room with what tells the owners of the runtime's locks. 1: it may be known
	 * later, and attach() will be called again; -ENOTSUP: never. May be NULL. */
	int (*attach_locks)(const struct runtime_target *t, const void *learned,
			    struct runtime_lock *ret);
	/* Names a frame by the two words that the walker sent; texts go into ret->arena. -ESTALE:
	 * the object is not the one that the walker saw; -ENOMEM; other errors: it could not be
	 * read. */
	int (*name)(const struct runtime_target *t, const void *learned, u64 address, u64 where,
		    struct runtime_names *ret);
	/* Whether the walker handles the code at this avma: the interpreter's loop, or code of the
	 * JIT. */
	bool (*covers)(const void *learned, const struct runtime_process *p, u64 avma);
	/* Writes a line for `culprit doctor -p`: the version, and the origin of the offsets. */
	void (*describe)(const void *learned, char *ret, size_t n);
	/* process.runtime.name of OpenTelemetry's conventions, as OpenTelemetry's SDKs write it. */
	const char *otel_name;
	/* Writes process.runtime.version, "" if it is unknown. May be NULL. */
	void (*otel_version)(const void *learned, char *ret, size_t n);
	/* Passes to `line` what of this process the profile would omit or get wrong, one line each.
	 * May be NULL. May be slow: only `culprit doctor -p` calls it. */
	void (*missing)(const struct runtime_target *t, const void *learned,
			void (*line)(void *arg, const char *text), void *arg);
	/* Finds an option of the runtime of type bool by its name: the avma of its value. -ENOENT:
	 * there is none; other errors as attach(). NULL: it has no such options. */
	int (*flag)(const struct runtime_target *t, const void *learned, const char *name,
		    u64 *ret_avma);
	/* A frame's name depends on the next frame of the runtime as well. */
	bool named_by_caller;
	/* Rows or frame pointers also lead from each of its frames to the caller. */
	bool walks_natively;
	/* Where executable mappings have code of its JIT: bits by enum jit_memory. They are marked,
	 * too. */
	u32 jit_memory;
	/* The mappings of its own binary are not marked: rows lead through all of the code
	 * there. */
	bool native_text;
	/* A library for programs in any language. It does not make its process one of a runtime,
	 * and the memory of its JIT is what the JIT of no other runtime in the process claims.
	 * otel_name is NULL. */
	bool library;
	/* NULL: its tasks are threads, or are not seen. */
	const struct runtime_task_ops *tasks;
};

/*
 * A task of a runtime that waits, while no thread runs it: a goroutine, a virtual thread. It has a
 * copy of its stack for rows to unwind, or its frames.
 */
struct runtime_task {
	u64 id;
	u64 pc, sp, fp; /* where it goes on; pc is a return address */
	/* Its stack from `low` on, at most RUNTIME_TASK_BYTES; both are multiples of
	 * RUNTIME_TASK_PAGE. Borrowed. */
	u64 low;
	const u8 *stack;
	u32 n;
	/* Its frames, in words as BPF's walkers send them; n_words is 0 if there is a stack.
	 * Borrowed. */
	const u64 *words;
	u32 n_words;
	u32 stop; /* enum stop_reason: why the frames end */
};
#define RUNTIME_TASK_PAGE 4096
#define RUNTIME_TASK_BYTES (16 * RUNTIME_TASK_PAGE)

/*
 * A look at the tasks of a process. `max` of them are drawn, each with the same probability, so
 * that a drawn one stands for n_tasks / n_drawn.
 */
struct runtime_scan {
	u32 max;
	u64 until_ns; /* CLOCK_MONOTONIC: gives up then */
	u64 *random;  /* state of the random numbers */
	u8 *stack;    /* room for RUNTIME_TASK_BYTES */
	void (*task)(void *arg, const struct runtime_scan *s, const struct runtime_task *task);
	void *arg;
	/* Results; the first two are set before the first task. */
	u32 n_tasks, n_drawn;
	u32 n_unread; /* drawn and not read: changed meanwhile, damaged, or after until_ns */
};

struct runtime_task_ops {
	enum task kind;
	/* Of a native runtime; else runtime_ops.learn() learns for its tasks, too. Reads the file
	 * only; up to 30 ms. -ENOTSUP: where its tasks are is unknown. */
	int (*learn)(struct elf_file *elf, void **ret);
	void (*forget)(void *learned);
	/* `process` is what attach() has filled; NULL for a native runtime. *state is NULL at
	 * first, and kept for the image of the process, until drop(). -EBUSY: tasks cannot be
	 * read at this moment; -EAGAIN: not yet; -ENOTSUP: never. */
	int (*scan)(const struct runtime_target *t, const void *learned,
		    const struct runtime_process *process, void **state, struct runtime_scan *s);
	void (*drop)(void *state); /* NULL: it keeps no state */
	/* Whether code at an svma of the binary is the runtime's own; NULL: frames do not tell. */
	bool (*is_own)(const void *learned, u64 svma);
};

/*
 * A site of a memory profile that a runtime keeps of its own accord: a stack that allocates, with
 * the sampled allocations since the process began, as they are counted, not yet scaled.
 */
struct runtime_site {
	u64 key; /* tells it from the others of the process, for as long as that lives */
	u64 allocs, alloc_bytes, frees, free_bytes;
	/* avmas inside of the calls, leaf first, one for each function that was not inlined.
	 * Borrowed. */
	const u64 *calls;
	u32 n_calls;
	bool is_cut; /* the runtime keeps no more frames */
};

/* A look at the memory profile of a process. */
struct runtime_heap_look {
	u64 until_ns; /* CLOCK_MONOTONIC: gives up then */
	/* Called when all has been read, once a site. */
	void (*site)(void *arg, const struct runtime_heap_look *l, const struct runtime_site *s);
	void *arg;
	/* Results, set before the first site. */
	u64 rate;   /* one sample per so many bytes on average; 1: each allocation is one */
	u32 n_torn; /* sites that were left out, because they changed while they were read */
	u32 n_sites;
	u64 bytes; /* that were read */
};

struct runtime_heap_ops {
	/* Reads the file only; up to 30 ms. -ENOTSUP: where the profile is is unknown. */
	int (*learn)(struct elf_file *elf, void **ret);
	void (*forget)(void *learned);
	/* -ENODATA: the program keeps no profile; -E2BIG: it is larger than may be read;
	 * -EAGAIN: it changed all the time; -EINVAL: it is not what was expected; -ETIME;
	 * -ESRCH. */
	int (*look)(const struct runtime_target *t, void *learned, struct runtime_heap_look *l);
};

/* Numbers for draws; not for secrets. */
u64 runtime_random(u64 *state);

/* A runtime whose code is unwound by rows only: nothing is learned, no process is attached. */
struct native_runtime_ops {
	/* Cheap: looks for a section of b->elf, which is not NULL. */
	bool (*is_runtime)(const struct procman_binary *b);
	/* Writes a line for `culprit doctor -p`: the version, and what is known of the binary.
	 * -ENOENT: the binary is not of this runtime. Called for every binary, regardless of
	 * is_runtime(). */
	int (*describe)(struct elf_file *elf, char *ret, size_t n);
	/* process.runtime.name, and .version; false: the binary does not contain its version. */
	const char *otel_name;
	bool (*otel_version)(struct elf_file *elf, char *ret, size_t n);
	/* NULL: its tasks are threads, or are not seen. */
	const struct runtime_task_ops *tasks;
	const struct runtime_heap_ops *heap; /* NULL: it keeps no memory profile */
};

#define RUNTIME(id, name, ...) extern const struct runtime_ops runtime_##name;
#define NATIVE_RUNTIME(name, ...) extern const struct native_runtime_ops native_runtime_##name;
#include "abi/tbl/runtime.tbl"
#undef RUNTIME

/* ---- for the pipeline ---- */

struct runtimes;

struct runtimes_options {
	/* BPF maps, borrowed; -1: describe only. */
	int binaries_fd;  /* struct runtime_binary by index */
	int processes_fd; /* struct runtime_process by struct runtime_key */
	int locks_fd;	  /* struct runtime_lock, likewise */
	/* Called when learning a binary whose mappings are marked has failed. May be NULL. */
	void (*unmark)(void *arg, u32 file_id);
	void *arg;
	struct budget *budget; /* borrowed, or NULL; a binary that exceeds it is not learned */
};

/*
 * Starts the learner. Maps and budget of the options are borrowed until runtimes_destroy(). A
 * negative errno.
 */
int runtimes_create(const struct runtimes_options *o, struct runtimes **ret);
void runtimes_destroy(struct runtimes *r);
/* Returns the runtime that a mapping must be marked with; RUNTIME_NONE for most. */
u32 runtimes_of_mapping(struct runtimes *r, const struct procman_process *p,
			const struct procman_mapping *m);
/*
 * Attaches the runtimes of processes that are new or have changed, and forgets those that are gone;
 * `arg` is the runtimes. A process that has ended is removed from BPF's map; its last frames can
 * still be named. Another thread learns a binary that is new: when runtimes_fd() becomes readable,
 * call runtimes_take(), then runtimes_retry() attaches the processes that wait for the binary.
 */
extern const struct procman_listener runtimes_listener;
int runtimes_fd(const struct runtimes *r);
/* Whether the learner has work. */
bool runtimes_busy(const struct runtimes *r);
/* Takes the learner's results; with `wait`, waits for all jobs. Returns the number of binaries. */
u32 runtimes_take(struct runtimes *r, bool wait);
/*
 * The runtimes that BPF walks in some process, or will when they are learned: bits by enum
 * runtime_id.
 */
u32 runtimes_claimed(const struct runtimes *r);
/* Whether the process is known to run a runtime, native or not. */
bool runtimes_in_process(struct runtimes *r, const struct procman_process *p);
/* The runtime of a process, in terms of OpenTelemetry's conventions. */
struct runtime_identity {
	const char *name; /* static */
	char version[64]; /* "": not known yet, or never */
};
/*
 * Finds an option of type bool of the process's runtime, such as a flag of a JVM: the avma of its
 * value. -ESRCH: the process has no runtime with options, or has ended; -EAGAIN: not yet; -ENOENT
 * and -ENOTSUP: never.
 */
int runtimes_flag(struct runtimes *r, const struct procman_process *p, const char *name,
		  u64 *ret_avma);
/* False: no runtime of the process is known. */
bool runtimes_identify(struct runtimes *r, const struct procman_process *p,
		       struct runtime_identity *ret);
/* Attaches processes whose runtime had not started before. Call it periodically. */
void runtimes_retry(struct runtimes *r, struct procman *pm);
/*
 * Whether the process runs a runtime whose waiting tasks can be read, or whether that will be known
 * later. Learns the binary of a native runtime.
 */
bool runtimes_have_tasks(struct runtimes *r, const struct procman_process *p, enum task *ret_kind);
/*
 * -ENOENT: there is no such runtime; -EAGAIN: it is not attached yet; errors of
 * runtime_task_ops.scan().
 */
int runtimes_scan(struct runtimes *r, const struct procman_process *p, struct runtime_scan *s);
/* Whether all words of a task's stack are the runtime's own code: the program has none there. */
bool runtimes_task_is_own(struct runtimes *r, const struct procman_process *p, const u64 *words,
			  u32 n);
/*
 * Looks at the memory profile that the runtime of a process keeps. -ENOENT: no such runtime is
 * known in it; -ENOTSUP, or errors of runtime_heap_ops.look().
 */
int runtimes_heap(struct runtimes *r, const struct procman_process *p, struct runtime_heap_look *l);
/*
 * Writes what runtimes_heap() has found, for people: "go: …". `result` is what it returned. False:
 * the process has no runtime.
 */
bool runtimes_heap_say(struct runtimes *r, const struct procman_process *p, int result,
		       const struct runtime_heap_look *l, char *ret, size_t n);
/* Frees what names were read from, as memory is short. */
void runtimes_trim(struct runtimes *r);
/* Whether the runtime's walker handles this avma. */
bool runtimes_cover(struct runtimes *r, const struct procman_process *p, u32 runtime, u64 avma);
/*
 * Names the runtime frame in the first two of n words of a stack; p is NULL if the process is
 * unknown. *ret_id is for runtime_answers_get(). A frame that cannot be named gets a note as its
 * name. Returns 1 if it got a note because names have reached their share of the memory limit, or
 * because of a lack of memory. Negative: not even the note could be stored.
 */
int runtimes_name(struct runtimes *r, const struct procman_process *p, const u64 *words, u32 n,
		  u32 *ret_id);
/*
 * Creates the frame that replaces unread frames of a runtime in a host walk, which passes them by
 * rows because it cannot run the walker. -ENOTSUP: rows do not lead through this runtime's frames.
 */
int runtimes_note(struct runtimes *r, u32 runtime, u64 *ret_frame);
struct runtimes_stats {
	u64 attached; /* pairs of process and runtime that BPF walks now */
	u64 no_room;  /* times that BPF's map had no room for a process */
	u64 unnamed;  /* frames that got a note for lack of memory */
	/* By enum runtime_id: binaries that could not be learned; processes whose runtime could not
	 * be attached; frames whose object had changed or could not be read. */
	u64 learn_failed[RUNTIME_N], attach_failed[RUNTIME_N], stale[RUNTIME_N];
};

void runtimes_get_stats(const struct runtimes *r, struct runtimes_stats *ret);
extern const struct stat_field runtimes_stat_fields[];
/* Passes the lines of `culprit doctor -p` about a process to `line`: one for each runtime in it. */
void runtimes_describe(struct runtimes *r, const struct procman_process *p,
		       void (*line)(void *arg, const char *text), void *arg);

/* The names of one frame. */
struct runtime_answer {
	u32 first, n; /* range of `frames` in the answers */
	u8 kind;      /* enum frame_kind */
};

/* All names made by runtimes_name() since the last runtimes_take_answers(), by id. */
struct runtime_answers {
	struct arena arena; /* texts */
	vec(struct runtime_frame) frames;
	vec(struct runtime_answer) answers;
	struct map index; /* hash of process, word and where → answers */
	bool full;	  /* no more names fit: further frames get a note */
};

/* Borrowed from `a`. NULL: there is no such id. */
const struct runtime_answer *runtime_answers_get(const struct runtime_answers *a, u32 id);
/* Moves all answers to the caller. Ids returned so far belong to them; new ids start at 0. */
struct runtime_answers runtimes_take_answers(struct runtimes *r);
void runtime_answers_deinit(struct runtime_answers *a);
/*
 * Copies an answer of other answers, unless `to` has one that says the same. -ENOENT: there is none
 * with the id; -ENOMEM: no memory, or `to` is full.
 */
int runtime_answers_copy(struct runtime_answers *to, const struct runtime_answers *from, u32 id,
			 u32 *ret_id);
/* The answers that runtimes_take_answers() would return. Borrowed until then. */
struct runtime_answers *runtimes_answers(struct runtimes *r);
/* Empty answers with room for as much as those of a period. */
struct runtime_answers runtimes_new_answers(const struct runtimes *r);
