/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes there are, and what code each has mapped where, before it runs.
 *
 *	perf side-band events (fork, exec, mmap, exit), a ring per CPU ─┐
 *	/proc/PID/maps, once per process at start-up ───────────────────┼→ procman ─→ listeners
 *	/proc/PID/maps again, after lost events or when asked ──────────┘
 *
 * One thread owns a procman and everything it hands out; nothing blocks but reading /proc and the
 * headers of files never seen before. Typical use:
 *
 *	procman_create()            events are being recorded from here on
 *	procman_listen()            who is told
 *	procman_scan()              the processes that were there before
 *	epoll on procman_fd():      procman_drain() → process_changed() of each listener …
 *
 * Objects and how long they live. A process is one incarnation of a pid: a pid that is used again
 * is another struct procman_process, an exec is the same one with other mappings. It is announced
 * by process_changed(), stays for exit_linger_ms after its exit, because samples of it may still be
 * in a queue, and is taken back by process_gone(), exactly once. A binary is a file as it was when
 * it was first seen mapped: a file replaced or rewritten at the same path is another binary. It
 * stays while a process maps it or somebody holds a reference, and for binary_linger_ms after that.
 *
 * Whoever remembers something of a process keys it by procman_process.image: the number of one
 * program in one process. A fork, an exec and a reused pid have a new number each, and no number is
 * used again, not even by another procman of the same program. The other things that identify a
 * process serve one purpose each: start_ticks, by which /proc shows that a pid was reused, and
 * start_stack with exec_id, by which BPF finds out whose entry it has (abi/sample.h).
 *
 * What the kernel does not report, and what we do about it: an munmap (a later mapping at the
 * address replaces the stale one), an mremap of code (procman_refresh() when samples fall outside
 * all mappings), and a process with CLONE_VM but without CLONE_THREAD or an exec (the same).
 *
 * Why the kernel is not asked for build-ids in its mmap events (since 5.12): they come in place of
 * device and inode. A build-id is whatever a file claims; were it the identity, a hostile file with
 * libc's build-id that is seen first would speak for libc in every process. The build-id here is
 * read from the opened file.
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
	PROCMAN_MEMFD,	/* memfd_create(); an ELF file or code made at run time */
	PROCMAN_SHARED, /* other shared memory: SYSV shm, /dev/zero, huge pages */
	PROCMAN_ANON,	/* private anonymous memory of one process: a JIT's code */
	PROCMAN_VDSO,	/* the kernel's, one for all processes; 32-bit ones have none */
	PROCMAN_OTHER,	/* other special memory of the kernel, such as [uprobes] */
};

struct procman_binary {
	/*
	 * From 1, below UNWIND_MAX_FILES. Used again when the binary is gone and all others have
	 * been used: with first_seen_ns it tells apart what is kept longer than the binary lives.
	 * 0: code made at run time, or as many files are known as there are ids.
	 */
	u32 file_id;
	enum procman_binary_kind kind;
	/*
	 * As the first process that mapped it saw it, without " (deleted)"; never NULL.
	 * PROCMAN_ANON:
	 * "//anon". These are a target's bytes: they may hold anything but NUL.
	 */
	const char *path; /* owned */
	bool deleted;	  /* was, when first seen */
	/* As in /proc/PID/maps; stat() of the path may tell another device. 0 without a file. */
	u32 dev_major, dev_minor;
	u64 inode;
	u32 pid; /* PROCMAN_ANON: the process whose memory it is (was, for forked children) */
	/*
	 * Open as long as the binary lives, so that deleted files can be read. NULL with the reason
	 * in `error`: -ENOEXEC not ELF, -ENXIO not a regular file, -EIO on FUSE, -ESTALE replaced
	 * before we came, -ENOENT gone, or errno of open(). Also NULL for PROCMAN_ANON, error 0.
	 */
	struct elf_file *elf; /* owned */
	int error;
	u64 first_seen_ns; /* CLOCK_MONOTONIC */
	void *user;	   /* for the caller; released in binary_gone() */
};

/* Code made at run time: addresses mean something in one process only, names come from it. */
static inline bool procman_binary_is_jit(const struct procman_binary *b)
{
	return b->kind == PROCMAN_ANON ||
	       ((b->kind == PROCMAN_MEMFD || b->kind == PROCMAN_SHARED) && !b->elf);
}

struct procman_mapping {
	u64 start; /* avma, inclusive */
	u64 end;
	u64 foff; /* of start; for ANON the avma */
	u64 bias; /* avma - svma; without an ELF file svma is the file offset */
	struct procman_binary *binary; /* a reference of the set's */
};

struct procman_process {
	u32 pid;
	u32 ppid;	 /* who forked it; not updated when it is adopted */
	u64 image;	 /* the identity: see above; never 0 */
	u64 start_ns;	 /* CLOCK_MONOTONIC of the fork; of one found in /proc a tick's precision */
	u64 image_ns;	 /* of the last exec, else of the fork */
	u64 exit_ns;	 /* 0 while it lives */
	u64 start_ticks; /* as in /proc/PID/stat; 0 when it was gone before we looked */
	u64 start_stack; /* mm->start_stack; 0 as above, and from an exec until it is known */
	u64 exec_id;	 /* as in struct process_entry (abi/sample.h) */
	char comm[16];
	bool kthread;
	bool alive;
	bool ended;	/* no thread of it runs any more; not alive may be its main thread alone */
	u64 generation; /* grows with each announced change */
	/*
	 * Executable mappings, sorted, not overlapping, neighbours of one file and one bias merged.
	 * Borrowed until the next procman call. Processes with the same mappings_id have the very
	 * same mappings (a forked child and its parent, until one of them changes).
	 */
	const struct procman_mapping *mappings;
	u32 n;
	u64 mappings_id;
	const struct procman_process *older; /* an earlier incarnation of the pid, not yet gone */
};

/* Does it run code of its own by which it can be sampled, and can BPF tell its image? */
static inline bool procman_can_be_sampled(const struct procman_process *p)
{
	return p->alive && !p->kthread && p->start_stack;
}

/*
 * Who is told of processes. Each call goes to all listeners in the order of procman_listen(),
 * before the next one is made; each function may be NULL. They may look things up and take
 * references, but not scan, drain, refresh or destroy. Of one process:
 *
 *	process_changed … [process_exec, process_changed …] … process_ended, process_gone
 *
 * The pid's next process is told of only when this one has ended.
 */
struct procman_listener {
	/*
	 * New, exec'ed, renamed, mapped something; the main thread exited, and others run. At most
	 * once per drain, and less often for a process whose changes are dear (very many mappings):
	 * such a one waits ten times as long as the last time took, these calls included, at most a
	 * second. Not for a process that procman_options.is_wanted() refuses.
	 */
	void (*process_changed)(void *arg, const struct procman_process *p);
	/*
	 * Told while events are handled, before anything else of the new program: the image
	 * `before` runs no more, and p->image is a new one, of which nothing else is known yet.
	 */
	void (*process_exec)(void *arg, const struct procman_process *p, u64 before);
	/*
	 * No thread of it runs any more. Samples of it may still be in a queue. Also for a process
	 * that came and went between two drains.
	 */
	void (*process_ended)(void *arg, const struct procman_process *p);
	/*
	 * The last that is heard of it. procman_find() of its pid still gives it, unless the pid is
	 * another process's by now.
	 */
	void (*process_gone)(void *arg, const struct procman_process *p);
	/* Nobody refers to it any more; it is closed and freed after this returns. */
	void (*binary_gone)(void *arg, struct procman_binary *b);
	/*
	 * CPUs came or went since procman_create() or the last call: these are online now. Called
	 * by procman_drain(), within 2 s; not called by procman_create().
	 */
	void (*cpus_changed)(void *arg, const u32 *cpus, u32 n);
};
#define PROCMAN_MAX_LISTENERS 8

struct procman_options {      /* 0 = the default */
	u32 ring_bytes;	      /* of each CPU's event ring, a power of two; 256 KiB */
	u32 wakeup_bytes;     /* procman_fd() becomes readable when so much is pending; 1 */
	u32 exit_linger_ms;   /* 5000 */
	u32 binary_linger_ms; /* 10000; their files keep a file system busy as long */
	u32 max_mappings;     /* executable ones of one process; 262144 */
	u64 max_all_mappings; /* of all; beyond, a process keeps its first 1024. 0: any */
	bool no_events;	      /* /proc only: no side-band, scan and find as ever */
	bool execs_told;      /* by procman_learn_exec(): /proc is read only if that stays away */
	/* NULL: all are. A process may look up others in it. */
	bool (*is_wanted)(void *arg, const struct procman_process *p);
	void *arg;
};

struct procman_stats {
	u64 processes; /* known now, exited ones that linger included */
	u64 mappings;  /* now; shared ones count once */
	u64 binaries;  /* now */
	u64 cpus;      /* with an event ring */
	u64 events;
	u64 events_lost;    /* dropped by the kernel, a ring being full; each led to a rescan */
	u64 events_damaged; /* that could not be parsed */
	u64 rescans;	    /* of all processes, because of lost events or a new CPU */
	u64 rescanned;	    /* processes that were read for these, and at the start */
	u64 refreshes;	    /* of one process */
	u64 forks, execs, exits;
	u64 opened;	      /* files opened */
	u64 open_failed;      /* files that should have been, each failure */
	u64 mappings_dropped; /* beyond max_mappings */
	u64 file_ids;	      /* given out */
	u64 file_ids_out;     /* files that got none, as all were in use */
	u64 out_of_memory;    /* times something was left out for want of memory */
	u64 read_failed;      /* of /proc files of living processes */
};

/*
 * -EACCES or -EPERM: no right to open side-band events on every CPU (CAP_PERFMON). Raise
 * RLIMIT_NOFILE before: every known binary keeps a file descriptor, and each CPU one.
 */
int procman_create(const struct procman_options *options, struct procman **ret);
/* From now on it is told; borrowed, as `arg`, until procman_destroy(). -ENOSPC: too many. */
int procman_listen(struct procman *pm, const struct procman_listener *l, void *arg);
/*
 * Calls process_ended(), process_gone() and binary_gone() for everything. References taken must
 * have been put.
 */
void procman_destroy(struct procman *pm);
DEFINE_CLEANUP(procman, struct procman *, procman_destroy)
#define _cleanup_procman_ _cleanup_(procman)

/* All processes that there are, then process_changed() for each; what is known is read again. */
int procman_scan(struct procman *pm);

/* Readable when procman_drain() has something to do. */
int procman_fd(const struct procman *pm);
/*
 * Handles all pending events, over all CPUs in the order of time, and whatever else is due, then
 * calls process_changed() for each process that changed. The number of events, or a negative errno
 * when nothing more can be expected of this procman.
 */
int procman_drain(struct procman *pm);

/*
 * The latest incarnation of a process, also when it has exited; one that is not known is looked up
 * in /proc at once (and announced by the next procman_drain(), which is due then). NULL when there
 * is none. `pid` is a thread group's.
 */
struct procman_process *procman_find(struct procman *pm, u32 pid);
/* The same without a look in /proc. */
struct procman_process *procman_known(const struct procman *pm, u32 pid);
/* The incarnation that lived at the time given, if it is known; else as above. */
struct procman_process *procman_find_at(struct procman *pm, u32 pid, u64 time_ns);
/*
 * Reads the mappings of a process again: for samples outside of all that is known, which the kernel
 * does not explain by an event. At most once in 100 ms per process, longer for those with many
 * mappings. 1 when they changed (announced by the next procman_drain()), 0 when not or not yet,
 * -ESRCH when it is gone.
 */
int procman_refresh(struct procman *pm, struct procman_process *p);
/*
 * What a sample of the process, taken after its last exec and with all events up to it drained,
 * says that start_stack is. Announced by the next procman_drain().
 */
void procman_learn_image(struct procman *pm, struct procman_process *p, u64 start_stack);
/*
 * The same and exec_id, of the program that the process has been running since time_ns, with all
 * events up to then drained. If these did not tell of the exec, it becomes known by this.
 */
void procman_learn_exec(struct procman *pm, u32 pid, u64 time_ns, u64 start_stack, u64 exec_id);
/* NULL: in no executable mapping. */
const struct procman_mapping *procman_process_find(const struct procman_process *p, u64 avma);
/* All processes; not 0: stop, and return this. */
int procman_each(struct procman *pm, int (*fn)(void *arg, struct procman_process *p), void *arg);

/* NULL when the id was never given out or the binary is gone. */
struct procman_binary *procman_binary_of_id(const struct procman *pm, u32 file_id);
/* References: a binary that is held is neither closed nor gone. */
struct procman_binary *procman_binary_get(struct procman_binary *b);
void procman_binary_put(struct procman_binary *b);

void procman_get_stats(const struct procman *pm, struct procman_stats *ret);
extern const struct stat_field procman_stat_fields[];
