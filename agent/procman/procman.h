/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tracks processes and the code that each has mapped, before it runs.
 *
 *	perf side-band events (fork, exec, mmap, exit), a ring per CPU ─┐
 *	/proc/PID/maps, once per process at start-up ───────────────────┼→ procman ─→ listeners
 *	/proc/PID/maps again, after lost events or when asked ──────────┘
 *
 * One thread owns a procman and all objects that it returns; nothing blocks except reading /proc
 * and the headers of new files. Typical use:
 *
 *	procman_create()            events are recorded from here on
 *	procman_listen()            adds a listener
 *	procman_scan()              reads the processes that exist already
 *	epoll on procman_fd():      procman_drain() → process_changed() of each listener …
 *
 * Objects and their lifetime. A process is one incarnation of a pid: a reused pid is another struct
 * procman_process; an exec changes the mappings of the same one. It is announced by
 * process_changed(), stays for exit_linger_ms after its exit, because its samples may still be in a
 * queue, and is released by process_gone(), exactly once. A binary is a file as it was when it was
 * first seen mapped: a file replaced or rewritten at the same path is another binary. It stays
 * while a process maps it or a reference exists, and for binary_linger_ms after that.
 *
 * Data about a process is keyed by procman_process.image, the number of a program in a process. A
 * fork, an exec and a reused pid each have a new number, and numbers are never reused, not even by
 * another procman of the same program. The other values that identify a process have one purpose
 * each: start_ticks shows that a pid in /proc was reused; start_stack with exec_id shows BPF
 * whether an entry is that of the current program (abi/sample.h).
 *
 * Changes that the kernel does not report: an munmap (a later mapping at the address replaces the
 * stale one), an mremap of code (procman_refresh() when samples are outside of all mappings), and a
 * process with CLONE_VM but without CLONE_THREAD or an exec (the same).
 *
 * The kernel is not asked for build-ids in its mmap events (since 5.12), because they replace
 * device and inode. A build-id is whatever a file claims: if it were the identity, a hostile file
 * with libc's build-id that is seen first would stand for libc in every process. The build-id here
 * is read from the opened file.
 */
#pragma once

#include "base/stat.h"
#include "base/types.h"
#include "elf/elf.h"

struct procman;
struct procman_process;
struct procman_binary;

enum procman_binary_kind {
	PROCMAN_FILE,	/* a file with a path */
	PROCMAN_MEMFD,	/* memfd_create(); an ELF file or generated code */
	PROCMAN_SHARED, /* other shared memory: SYSV shm, /dev/zero, huge pages */
	PROCMAN_ANON,	/* private anonymous memory of one process: a JIT's code */
	PROCMAN_VDSO,	/* of the kernel, one for all 64-bit processes */
	PROCMAN_OTHER,	/* other special memory of the kernel, such as [uprobes] */
};

struct procman_binary {
	/* From 1, below UNWIND_MAX_FILES. Reused when the binary is gone and all other ids have
	 * been used: together with first_seen_ns it identifies data that is kept longer than the
	 * binary. 0: generated code, or all ids are in use. */
	u32 file_id;
	enum procman_binary_kind kind;
	/* As the first process that mapped it saw it, without " (deleted)"; never NULL.
	 * PROCMAN_ANON: "//anon". The target controls these bytes: they may be anything but NUL. */
	const char *path; /* owned */
	bool deleted;	  /* it was deleted when it was first seen */
	/* As in /proc/PID/maps; stat() of the path may show another device. 0: no file. */
	u32 dev_major, dev_minor;
	u64 inode;
	u32 pid; /* PROCMAN_ANON: the process whose memory it is (for forked children: was) */
	/* Open as long as the binary lives, so that deleted files can be read. NULL: `error` is
	 * the reason: -ENOEXEC not ELF, -ENXIO not a regular file, -EIO on FUSE, -ESTALE
	 * already replaced, -ENOENT deleted, or errno of open(). Also NULL for PROCMAN_ANON,
	 * with error 0. */
	struct elf_file *elf; /* owned */
	int error;
	u64 first_seen_ns; /* CLOCK_MONOTONIC */
	void *user;	   /* for the caller, who releases it in binary_gone() */
};

/* Generated code: an address is meaningful in one process only, which also supplies the names. */
static inline bool procman_binary_is_jit(const struct procman_binary *b)
{
	return b->kind == PROCMAN_ANON ||
	       ((b->kind == PROCMAN_MEMFD || b->kind == PROCMAN_SHARED) && !b->elf);
}

struct procman_mapping {
	u64 start; /* avma, inclusive */
	u64 end;
	u64 foff; /* of start; PROCMAN_ANON: the avma */
	u64 bias; /* avma - svma; without an ELF file the svma is the file offset */
	struct procman_binary *binary; /* the set holds the reference */
};

struct procman_process {
	u32 pid;
	u32 ppid;	 /* the process that forked it; not updated when it is adopted */
	u64 image;	 /* the identity: see above; never 0 */
	u64 start_ns;	 /* CLOCK_MONOTONIC of the fork; from /proc with the precision of a tick */
	u64 image_ns;	 /* of the last exec, else of the fork */
	u64 seen_image;	 /* the last one of procman_see(); 0: none, or an exec had no event */
	u64 exit_ns;	 /* 0 while it lives */
	u64 start_ticks; /* as in /proc/PID/stat; 0: unknown, the process had exited */
	u64 start_stack; /* mm->start_stack; 0: unknown, also from an exec until it is read */
	u64 exec_id;	 /* as in struct process_entry (abi/sample.h) */
	char comm[16];
	bool kthread;
	bool alive;
	/* no thread runs any more; without `alive` other threads than the main one may run */
	bool ended;
	u64 generation; /* grows with each announced change */
	/* Executable mappings: sorted, not overlapping, adjacent ones of one file and bias merged.
	 * Borrowed until the next call of procman. Processes with the same mappings_id have the
	 * same mappings (a forked child and its parent, until one of them changes). */
	const struct procman_mapping *mappings;
	u32 n;
	u64 mappings_id;
	const struct procman_process
		*older; /* an earlier incarnation of the pid that is not gone yet */
};

/* The image at a time since the fork. One that was not seen is taken for that which came next. */
static inline u64 procman_image_at(const struct procman_process *p, u64 time_ns)
{
	return p->seen_image && time_ns < p->image_ns ? p->seen_image : p->image;
}

/* Whether it runs code of its own that can be sampled, and BPF can tell its image. */
static inline bool procman_can_be_sampled(const struct procman_process *p)
{
	return p->alive && !p->kthread && p->start_stack;
}

/*
 * Receives events of processes. Each event is passed to all listeners, in the order of
 * procman_listen(), before the next one; each function may be NULL. They may look up objects and
 * take references, but not scan, drain, refresh or destroy. The events of one process:
 *
 *	process_changed … [process_exec, process_changed …] … process_ended, process_gone
 *
 * Events of the pid's next process come only after this one has ended.
 */
struct procman_listener {
	/* The process is new, or has called exec, changed its name, mapped code, or its main thread
	 * has exited while others run. Called at most once per drain, and less often for a process
	 * whose changes are expensive (very many mappings): it waits ten times as long as the last
	 * announcement took, including these calls, at most a second. Not called for a process that
	 * procman_options.is_wanted() refuses. */
	void (*process_changed)(void *arg, const struct procman_process *p);
	/* Called while events are handled, before any other event of the new program: the image
	 * `before` has ended, and p->image is a new one, of which nothing else is known yet. */
	void (*process_exec)(void *arg, const struct procman_process *p, u64 before);
	/* All threads have exited. Samples of the process may still be in a queue. Also called for
	 * a process that started and exited between two drains. */
	void (*process_ended)(void *arg, const struct procman_process *p);
	/* The last event of the process. procman_find() of its pid still returns it, unless another
	 * process has the pid. */
	void (*process_gone)(void *arg, const struct procman_process *p);
	/* The binary has no references; it is closed and freed after this returns. */
	void (*binary_gone)(void *arg, struct procman_binary *b);
	/* CPUs came online or went offline since procman_create() or the last call: these are
	 * online now. procman_drain() calls it within 2 s; procman_create() does not. */
	void (*cpus_changed)(void *arg, const u32 *cpus, u32 n);
};
#define PROCMAN_MAX_LISTENERS 8

struct procman_options {    /* 0 = the default */
	u32 ring_bytes;	    /* of each CPU's event ring; a power of two; default 256 KiB */
	u32 wakeup_bytes;   /* procman_fd() becomes readable when this much is pending; default 1 */
	u32 exit_linger_ms; /* default 5000 */
	u32 binary_linger_ms; /* default 10000; open files keep a file system busy */
	u32 max_mappings;     /* executable ones of one process; default 262144 */
	u64 max_all_mappings; /* of all; beyond, a process keeps its first 1024. 0: any */
	bool no_events;	      /* read /proc only, without side-band events */
	bool polled;	      /* procman_drain() is called on a timer: only full rings wake */
	/* procman_learn_exec() is called after execs; /proc is read only if it is not */
	bool execs_told;
	/* Whether process_changed() is called for a process. NULL: for all. It may look up
	 * others. */
	bool (*is_wanted)(void *arg, const struct procman_process *p);
	void *arg;
};

struct procman_stats {
	u64 processes; /* known now, including exited ones that linger */
	u64 mappings;  /* now; shared ones count once */
	u64 binaries;  /* now */
	u64 cpus;      /* with an event ring */
	u64 events;
	/* dropped by the kernel because a ring was full; each caused a rescan */
	u64 events_lost;
	u64 events_damaged; /* could not be parsed */
	u64 rescans;	    /* of all processes, because of lost events or a new CPU */
	u64 rescanned;	    /* processes read by rescans, and at the start */
	u64 refreshes;	    /* rescans of one process */
	u64 forks, execs, exits;
	u64 opened;	      /* files opened */
	u64 open_failed;      /* failed attempts to open a file */
	u64 mappings_dropped; /* omitted because of max_mappings */
	u64 file_ids;	      /* ids assigned so far */
	u64 file_ids_out;     /* files without an id, because all ids were in use */
	u64 out_of_memory;    /* times that something was omitted for lack of memory */
	u64 read_failed;      /* of /proc files of living processes */
	u64 bytes;	      /* that processes, mappings and open files take, approximately */
};

/*
 * -EACCES or -EPERM: no permission to open side-band events on every CPU (CAP_PERFMON). Raise
 * RLIMIT_NOFILE before: every known binary has a file descriptor, and so does each CPU.
 */
int procman_create(const struct procman_options *options, struct procman **ret);
/* Adds a listener, which is borrowed, as is `arg`, until procman_destroy(). -ENOSPC: too many. */
int procman_listen(struct procman *pm, const struct procman_listener *l, void *arg);
/*
 * Calls process_ended(), process_gone() and binary_gone() for everything. The caller must have
 * released its references.
 */
void procman_destroy(struct procman *pm);
DEFINE_CLEANUP(procman, struct procman *, procman_destroy)
#define _cleanup_procman_ _cleanup_(procman)

/* Reads all processes, also known ones, then calls process_changed() for each. */
int procman_scan(struct procman *pm);

/* Readable when procman_drain() has work. */
int procman_fd(const struct procman *pm);
/*
 * Handles all pending events of all CPUs, ordered by time, and other work that is due, then calls
 * process_changed() for each process that changed. Returns the number of events, or a negative
 * errno if this procman cannot continue.
 */
int procman_drain(struct procman *pm);

/*
 * Returns the latest incarnation of a process, even if it has exited. An unknown one is looked up
 * in /proc at once (and announced by the next procman_drain(), which is then due). NULL: there is
 * none. `pid` is that of a thread group.
 */
struct procman_process *procman_find(struct procman *pm, u32 pid);
/* As procman_find(), without looking in /proc. */
struct procman_process *procman_known(const struct procman *pm, u32 pid);
/* Returns the incarnation that lived at that time if it is known, else as procman_find(). */
struct procman_process *procman_find_at(struct procman *pm, u32 pid, u64 time_ns);
/*
 * Reads the mappings of a process again, for samples outside of all known mappings that no event
 * explains. At most once in 100 ms per process, less often for those with many mappings. 1: they
 * changed (announced by the next procman_drain()); 0: unchanged, or not read yet; -ESRCH: the
 * process has exited.
 */
int procman_refresh(struct procman *pm, struct procman_process *p);
/* The caller has found out about the current image what it wants to know. */
void procman_see(struct procman *pm, const struct procman_process *p);
/*
 * Sets start_stack to the value in a sample of the process, taken after its last exec, when all
 * events up to the sample have been drained. Announced by the next procman_drain().
 */
void procman_learn_image(struct procman *pm, struct procman_process *p, u64 start_stack);
/*
 * Sets start_stack and exec_id of the program that the process has been running since time_ns, when
 * all events up to then have been drained. If these did not include the exec, the exec becomes
 * known by this call.
 */
void procman_learn_exec(struct procman *pm, u32 pid, u64 time_ns, u64 start_stack, u64 exec_id);
/*
 * The next procman_drain() announces the process, which options.is_wanted() may have refused
 * before.
 */
void procman_announce(struct procman *pm, struct procman_process *p);
/* NULL: the address is in no executable mapping. */
const struct procman_mapping *procman_process_find(const struct procman_process *p, u64 avma);
/* Calls fn for all processes; a result other than 0 stops and is returned. */
int procman_each(struct procman *pm, int (*fn)(void *arg, struct procman_process *p), void *arg);

/* NULL: no binary has this id now. */
struct procman_binary *procman_binary_of_id(const struct procman *pm, u32 file_id);
/* References: a binary with a reference is neither closed nor gone. */
struct procman_binary *procman_binary_get(struct procman_binary *b);
void procman_binary_put(struct procman_binary *b);

void procman_get_stats(const struct procman *pm, struct procman_stats *ret);
extern const struct stat_field procman_stat_fields[];
