/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts about processes out of /proc, and the files that they map.
 *
 * The processes are hostile and we are root: names are bytes that mean nothing until they were
 * checked, files are opened only when they are regular, and nothing here blocks on a FIFO or
 * device that a target has put in the way. Texts are parsed by functions of their own (the _parse
 * ones), which take any bytes: unit tests and fuzzers feed them.
 *
 * Every function that takes a pid returns -ESRCH when there is no such process (any more).
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
	 * As the kernel shows it, without " (deleted)", newlines unescaped; "" for anonymous
	 * memory,
	 * "[vdso]" and the like for special memory. Borrowed until the callback returns. Longer
	 * than PROC_MAX_LINE: cut.
	 */
	const char *path;
	bool deleted;
};

/* Longer lines keep their mapping, but lose the end of their path. */
#define PROC_MAX_LINE (1u << 20)

enum proc_maps_flags {
	PROC_MAPS_ALL = 1, /* not only executable mappings */
};

/* Not 0: stop, and return this. */
typedef int proc_mapping_fn(void *arg, const struct proc_mapping *m);

/*
 * Calls fn for each mapping, in address order, reading as it goes: memory is bounded however many
 * lines there are, and lines that are not asked for cost a glance. The kernel gives a consistent
 * picture of a page of text at a time: a mapping that changes meanwhile may be seen twice or in two
 * pieces. -ESRCH also for a process that has let go of its memory (exiting, a zombie).
 */
int proc_maps_read(u32 pid, u32 flags, proc_mapping_fn *fn, void *arg);
/*
 * One line without its newline, line[n] writable: it becomes the end of ret->path, which points
 * into the line. -EINVAL when it is not a line of maps.
 */
int proc_maps_parse_line(char *line, size_t n, struct proc_mapping *ret);

/* ---- /proc/PID/stat, status, cgroup, ns ---- */

struct proc_stat {
	u32 pid;
	u32 ppid;
	char comm[16]; /* kernel threads: cut */
	char state;    /* 'R', 'Z' … */
	bool kthread;
	u32 n_threads;
	u64 start_ticks; /* since boot, in proc_ticks_per_s(); tells a reused pid apart */
	u64 start_stack; /* avma where the stack of the main thread began; 0 = not known */
};

int proc_stat_read(u32 pid, struct proc_stat *ret);
int proc_stat_parse(const char *text, size_t n, struct proc_stat *ret);
u32 proc_ticks_per_s(void);

/*
 * A thread of the process that has not exited: itself, unless the leader is a zombie whose other
 * threads run on. What /proc/PID says of memory and files it then says under that thread's id only.
 */
int proc_living_thread(u32 pid, u32 *ret_tid);

struct proc_status {
	u32 tgid; /* differs from the pid asked for when that is a thread */
	u32 uid;  /* effective */
	u32 n_threads;
	u32 ns_pid; /* the pid in the innermost pid namespace */
};

int proc_status_read(u32 pid, struct proc_status *ret);
int proc_status_parse(const char *text, size_t n, struct proc_status *ret);

/*
 * The path in the cgroup file system: of the unified hierarchy when the process is in a group
 * there, else (hybrid and v1) of the first of perf_event, cpu, memory, pids, systemd that has one;
 * "/" when it is in none.
 */
int proc_cgroup_read(u32 pid, struct str *ret_path);
int proc_cgroup_parse(const char *text, size_t n, struct str *ret_path);

/* What a cgroup's path says of the container or unit that it is of; "" where it says nothing. */
struct proc_cgroup_owner {
	char container_id[65]; /* 64 hex digits; of ECS and the like 32 and a number */
	char pod_uid[37];      /* with dashes */
	char unit[128];	       /* systemd's, without ".service" */
};

void proc_cgroup_describe(const char *path, struct proc_cgroup_owner *ret);

/*
 * The values of some variables in the environment that a process was started with (it may have
 * overwritten it since). names[i] without '='; values[i] stays empty when it is not there. At most
 * PROC_MAX_ENVIRON bytes are looked at. -ENODATA: it has none, or its exec is not through yet.
 */
#define PROC_MAX_ENVIRON (256u << 10)
int proc_environ_read(u32 pid, const char *const *names, size_t n, struct str *ret_values);
void proc_environ_parse(const char *text, size_t n_text, const char *const *names, size_t n,
			struct str *ret_values);
/* Path of the executable as its process sees it, without " (deleted)". */
int proc_exe_read(u32 pid, struct str *ret_path);

struct proc_namespaces { /* inode numbers; 0 = not known */
	u64 mnt, pid, user, net, cgroup;
};

int proc_namespaces_read(u32 pid, struct proc_namespaces *ret);

/* ---- all processes ---- */

/* Calls fn with each thread group leader's pid; not 0: stop, and return this. */
int proc_list(int (*fn)(void *arg, u32 pid), void *arg);

/* "0-3,8,10-11" as in /sys/devices/system/cpu/online; -EINVAL, also for numbers from `max` on. */
int proc_cpulist_parse(const char *text, size_t n, u32 max, int (*fn)(void *arg, u32 cpu),
		       void *arg);
int proc_cpus_online(int (*fn)(void *arg, u32 cpu), void *arg);

/* ---- the file behind a mapping ---- */

/*
 * The file system type in a line of /proc/PID/mountinfo, cut to fit, if the line is about this
 * device.
 */
bool proc_mountinfo_type(const char *line, u32 dev_major, u32 dev_minor, char *ret_type,
			 size_t cap);

enum proc_file_origin {
	PROC_FILE_MAP_FILES, /* the mapped file itself, whatever its path says today */
	PROC_FILE_TARGET,    /* by path in the target's root, same device and inode */
	PROC_FILE_HOST,	     /* by path in our root, same device and inode */
};

struct proc_file {
	int fd; /* O_RDONLY, given to the caller */
	enum proc_file_origin origin;
	u64 size;
	s64 mtime_ns;
};

/*
 * Opens the file that process `pid` maps at m->start … m->end: through /proc/PID/map_files; by path
 * under /proc/PID/root, not leaving it; and by path in our own root, for a process that is gone.
 * What was opened by path must have the inode of the mapping, and its device too unless the file
 * system is one that shows other device numbers in maps than in stat (overlayfs, btrfs).
 *
 * Only regular files are ever opened: their kind is looked at through O_PATH before. -ENXIO for
 * anything else, -ESTALE when only other files have that path now, -EIO for files on FUSE, where a
 * hostile or dead server would block us for as long as it likes.
 */
int proc_open_mapped_file(u32 pid, const struct proc_mapping *m, struct proc_file *ret);
/*
 * Whether all folders on the way to a path, as maps shows it, let every user through: in the
 * process's root, and by what the kernel has at hand. (A file that was deleted keeps its folders.)
 */
bool proc_is_path_open(u32 pid, const char *path);
