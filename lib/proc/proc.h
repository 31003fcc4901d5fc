/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads facts about processes from /proc, and opens the files that they map.
 *
 * The processes are hostile and the reader is root: names are arbitrary bytes, only regular files
 * are opened, and nothing here blocks on a FIFO or device that a process has put in a file's place.
 * Functions named _parse take any bytes; unit tests and fuzzers call them directly.
 *
 * Functions that take a pid return -ESRCH when the process does not exist (any more), other
 * negative errno on failure. No function keeps state; all may be called from any thread.
 */
#pragma once

#include "base/str.h"
#include "base/types.h"

#include <sys/types.h>

/* ---- /proc/PID/maps ---- */

struct proc_mapping {
	u64 start; /* avma */
	u64 end;
	u64 offset;
	u32 prot; /* PROT_READ … */
	u32 dev_major, dev_minor;
	u64 inode;
	/*
	 * The path as the kernel shows it, without " (deleted)" and with newlines unescaped; "" for
	 * anonymous memory, "[vdso]" and the like for special memory. Borrowed until the callback
	 * returns. Cut at PROC_MAX_LINE.
	 */
	const char *path;
	bool deleted;
};

/* Bytes of a line. The path of a longer line is cut. */
#define PROC_MAX_LINE (1u << 20)

enum proc_maps_flags {
	PROC_MAPS_ALL = 1, /* not only executable mappings */
};

/* Returns 0 to continue; any other value ends the iteration and becomes its result. */
typedef int proc_mapping_fn(void *arg, const struct proc_mapping *m);

/*
 * Calls fn for each mapping in address order while it reads: memory use does not depend on the
 * number of lines. The kernel returns a consistent snapshot of one page of text at a time, so a
 * mapping that changes meanwhile may be seen twice or in two pieces. -ESRCH also for a process that
 * has released its memory (exiting, or a zombie).
 */
int proc_maps_read(u32 pid, u32 flags, proc_mapping_fn *fn, void *arg);
/*
 * Parses one line without its newline. line[n] must be writable: it becomes the end of ret->path,
 * which points into the line. -EINVAL when this is not a line of maps.
 */
int proc_maps_parse_line(char *line, size_t n, struct proc_mapping *ret);

/* ---- /proc/PID/smaps ---- */

/* What of a mapping is resident, in bytes. */
struct proc_memory {
	u64 start, end; /* avma */
	u32 dev_major, dev_minor;
	u64 rss;	    /* all that follow are parts of it */
	u64 anonymous;	    /* also copies of a file's pages */
	u64 anonymous_huge; /* of `anonymous`: mapped as huge pages */
	u64 shared_huge;    /* of shared memory: mapped as huge pages */
	u64 file_huge;	    /* of a file's pages: mapped as huge pages */
	bool hugetlb;	    /* of hugetlbfs: what it has is no part of Rss */
};

/* Returns 0 to continue; any other value ends the iteration and becomes its result. */
typedef int proc_memory_fn(void *arg, const struct proc_memory *m);

struct proc_memory_state { /* of proc_memory_line(); starts as zeros */
	struct proc_memory now;
	bool any;
};

/*
 * Calls fn for each mapping, in the order of addresses. The kernel holds a lock of the process
 * while it counts the pages of one mapping: 5 ms for a gigabyte of small pages.
 */
int proc_memory_read(u32 pid, proc_memory_fn *fn, void *arg);
/*
 * Takes one line without its newline; line[n] must be writable. 1: *ret is the mapping that ended
 * with the line before; 0: none has. Lines that say nothing of interest are skipped.
 */
int proc_memory_line(struct proc_memory_state *s, char *line, size_t n, struct proc_memory *ret);

/* ---- /proc/PID/stat, status, cgroup, ns ---- */

struct proc_stat {
	u32 pid;
	u32 ppid;
	char comm[16]; /* kernel threads: cut */
	char state;    /* 'R', 'Z' … */
	bool kthread;
	u32 n_threads;
	u64 cpu_ticks;	 /* CPU time of all its threads so far, in proc_ticks_per_s() */
	u64 start_ticks; /* since boot, in proc_ticks_per_s(); differs when a pid is reused */
	u64 start_stack; /* avma of the start of the main thread's stack; 0 = unknown */
};

/* -EINVAL when the text is not that of /proc/PID/stat. */
int proc_stat_read(u32 pid, struct proc_stat *ret);
int proc_stat_parse(const char *text, size_t n, struct proc_stat *ret);
/* What a thread was on a CPU, and waited for one, so far. -ENOENT: the kernel does not count it. */
int proc_schedstat_read(u32 pid, u32 tid, u64 *ret_cpu_ns, u64 *ret_delay_ns);
/* Units of the ticks of proc_stat per second. */
u32 proc_ticks_per_s(void);

/*
 * Returns a thread of the process that has not exited: `pid` itself, unless the leader is a zombie
 * whose other threads still run. /proc describes memory and files of such a process only under the
 * id of a living thread.
 */
int proc_living_thread(u32 pid, u32 *ret_tid);

struct proc_status {
	u32 tgid; /* differs from the given pid if that is a thread */
	u32 uid;  /* effective */
	u32 real_uid;
	u32 n_threads;
	u32 ns_pid; /* the pid in the innermost PID namespace */
	u64 caught; /* signals that it handles: signal n is bit n - 1 */
	/*
	 * The largest resident memory of the program that runs now; 0 for kernel threads. The
	 * ru_maxrss of getrusage() is at least that of the process before exec.
	 */
	u64 peak_bytes;
};

/* -EINVAL when the text lacks one of the fields. */
int proc_status_read(u32 pid, struct proc_status *ret);
int proc_status_parse(const char *text, size_t n, struct proc_status *ret);

/*
 * The path in the cgroup file system. Of the hierarchies whose path names a container or pod, else
 * of all that the process has a group in, it is that of the unified one, else (hybrid and v1) the
 * first of perf_event, cpu, memory, pids, systemd; "/" if there is none. (Engines that do not know
 * the unified hierarchy leave their containers' processes in the engine's own group there.)
 */
int proc_cgroup_read(u32 pid, struct str *ret_path);
int proc_cgroup_parse(const char *text, size_t n, struct str *ret_path);
/* The path in the unified hierarchy. -ENOENT: the kernel has none. */
int proc_cgroup_unified_read(u32 pid, struct str *ret_path);
int proc_cgroup_unified_parse(const char *text, size_t n, struct str *ret_path);

/*
 * The container or unit that a cgroup's path names; "" for what the path does not contain. Of
 * containers in containers it is the innermost.
 */
struct proc_cgroup_owner {
	char container_id[65]; /* 64 hex digits; on ECS and similar 32 digits and a number */
	/* Of LXC, Incus and systemd-nspawn, which have names and no ids; unescaped, any bytes. */
	char container_name[128];
	char pod_uid[37];	   /* with dashes */
	char pod_container_id[65]; /* the pod's container that the innermost one is in */
	char unit[128];		   /* systemd's, without ".service" */
	/*
	 * What may have made the path up, so that the host's files on a container of this id tell
	 * nothing of it: a container around the innermost one, or the user of user-UID.slice.
	 */
	bool nested;
	u32 user; /* or 0 */
};

/* Parses the path of a cgroup; never fails. */
void proc_cgroup_describe(const char *path, struct proc_cgroup_owner *ret);

/*
 * The values of some variables in the environment that a process was started with (the process may
 * have overwritten that memory). names[i] has no '='; values[i] stays empty if the variable is not
 * set. Reads at most PROC_MAX_ENVIRON bytes. -ENODATA: the process has no environment, or its exec
 * has not finished.
 */
#define PROC_MAX_ENVIRON (256u << 10)
int proc_environ_read(u32 pid, const char *const *names, size_t n, struct str *ret_values);
void proc_environ_parse(const char *text, size_t n_text, const char *const *names, size_t n,
			struct str *ret_values);
/* Path of the executable as the process sees it, without " (deleted)". */
int proc_exe_read(u32 pid, struct str *ret_path);

struct proc_namespaces { /* inode numbers; 0 = unknown */
	u64 mnt, pid, user, net, cgroup;
};

/* Leaves 0 for namespaces that cannot be read. */
int proc_namespaces_read(u32 pid, struct proc_namespaces *ret);

/* ---- all processes ---- */

/*
 * Calls fn with the pid of each thread group leader. fn returns 0 to continue; any other value ends
 * the iteration and becomes its result.
 */
int proc_list(int (*fn)(void *arg, u32 pid), void *arg);

/*
 * Parses "0-3,8,10-11" as in /sys/devices/system/cpu/online and calls fn for each number, with the
 * same rule for its result. -EINVAL, also for numbers of `max` and above.
 */
int proc_cpulist_parse(const char *text, size_t n, u32 max, int (*fn)(void *arg, u32 cpu),
		       void *arg);
/* Calls fn for each CPU that is online now. */
int proc_cpus_online(int (*fn)(void *arg, u32 cpu), void *arg);

/*
 * Opens a path as the process sees it, without leaving its root by links. `flags` as of open();
 * O_CLOEXEC is added. A negative errno.
 */
int proc_open_in_root(u32 pid, const char *path, int flags);

/* ---- the file behind a mapping ---- */

/*
 * Returns true if a line of /proc/PID/mountinfo is about this device, with its file system type,
 * cut to `cap` bytes.
 */
bool proc_mountinfo_type(const char *line, u32 dev_major, u32 dev_minor, char *ret_type,
			 size_t cap);
/* The same of the first such line of the process's file. */
bool proc_device_type(u32 pid, u32 dev_major, u32 dev_minor, char *ret_type, size_t cap);

enum proc_file_origin {
	PROC_FILE_MAP_FILES, /* the mapped file itself, whatever is at its path now */
	PROC_FILE_TARGET,    /* by path in the process's root, with the same device and inode */
	PROC_FILE_HOST,	     /* by path in culprit's root, with the same device and inode */
};

struct proc_file {
	int fd; /* O_RDONLY; owned by the caller */
	enum proc_file_origin origin;
	u64 size;
	s64 mtime_ns;
};

/*
 * Opens the file that process `pid` maps at m->start ... m->end: through /proc/PID/map_files; else
 * by path under /proc/PID/root, without leaving that root; else, for a process that has ended, by
 * path in culprit's own root. A file opened by path must have the inode of the mapping, and its
 * device too, unless the file system is one whose device numbers in maps and stat differ
 * (overlayfs, btrfs).
 *
 * Only regular files are opened: their type is checked through O_PATH first. -ENXIO for other
 * types, -ESTALE if the path now names another file, -EIO for files on FUSE, where a hostile or
 * dead server could block the caller forever.
 */
int proc_open_mapped_file(u32 pid, const struct proc_mapping *m, struct proc_file *ret);
/*
 * Whether all directories of a path, as maps shows it, are searchable by every user: in the
 * process's root, according to what the kernel has cached. (The directories of a deleted file still
 * count.)
 */
bool proc_is_path_open(u32 pid, const char *path);
