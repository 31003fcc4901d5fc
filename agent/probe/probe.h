/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The features of this machine. Each is found out by trying it: a program is loaded, a map is
 * created, an event is opened, and closed again. Kernel versions are shown, never compared.
 */
#pragma once

#include "base/diag.h"
#include "base/types.h"

struct probe_features {
	/* BPF, all asked for the program type perf_event */
	bool bpf_loop;	       /* loop of any length; else bounded loops and tail calls */
	bool current_task_btf; /* bpf_get_current_task_btf() */
	bool task_pt_regs;     /* bpf_task_pt_regs() */
	bool hash_on_demand;   /* hash maps whose entries are allocated when they are made */
	bool ringbuf;
	bool mmapable_array;
	bool array_of_mmapable; /* array-of-maps whose inner maps are mmapable arrays */

	/* perf events, on the first online CPU for all processes */
	bool cpu_clock;
	bool cycles;		/* hardware counter of CPU cycles */
	bool sideband;		/* dummy event with mmap2, comm, task and clockid */
	bool sideband_build_id; /* build-ids in mmap2 records */

	/* /proc */
	bool kallsyms;	/* addresses of kernel symbols are shown */
	bool map_files; /* mapped files can be opened by address, deleted ones too */
};

/*
 * Whether profiling can work at all: 0, or a negative errno with one line that says what to do.
 *	-EPERM    capabilities are missing (the line names them), or a container forbids it
 *	-ENOTSUP  the kernel lacks BPF, BTF or perf events
 */
int probe_require(struct diag *reterr_diag);

/*
 * Fails as probe_require() does. Takes about 10 ms, and 120 ms more where the kernel's code has not
 * been read before; the answer holds until reboot.
 */
int probe_features(struct probe_features *ret, struct diag *reterr_diag);
/*
 * Whether perf_event_open() needs CAP_SYS_ADMIN: kernels of Debian and Ubuntu do not accept
 * CAP_PERFMON when kernel.perf_event_paranoid is above 2, and it is above 2 by default.
 */
bool probe_wants_admin(void);
/*
 * Whether this process may open perf events of uprobes, for which the kernel wants CAP_SYS_ADMIN.
 * Without it, they are linked (probe_link_uprobes()), which takes CAP_PERFMON.
 */
bool probe_may_open_uprobes(void);
/*
 * Whether waits of threads can be sampled: 0; 1: but not who ends them; -ENOENT, or another
 * negative errno.
 */
int probe_waits(void);
/*
 * Whether BPF programs that user space runs can read the memory of any thread, as long as that
 * takes: from Linux 6.10 on. 0 or a negative errno. Reads the kernel's BTF: 50 ms. Any thread.
 */
int probe_sleepers(void);
/*
 * Whether a BPF program that a function's begin runs can decide whether its return is probed: since
 * Linux 6.13. Reads the kernel's BTF. Any thread.
 */
bool probe_uprobe_sessions(void);
/* Hash maps whose entries are allocated when they are made: 0 or a negative errno. Any thread. */
int probe_hash_on_demand(void);
/* Values of enum bpf_attach_type: since Linux 6.6 and 6.13. */
#define PROBE_UPROBE_MULTI 48
#define PROBE_UPROBE_SESSION 57
/* Uprobes in one file that run one program. */
struct probe_uprobes {
	int program;
	u32 attach_type; /* as the program was loaded */
	const char *path;
	const u64 *offsets;	       /* in the file */
	const u64 *reference_counters; /* likewise, of semaphores; or NULL */
	const u64 *cookies;
	u32 n;
	u32 pid; /* 0: all processes */
	bool returns;
};
/* The descriptor of a link, or a negative errno. Any thread. */
int probe_link_uprobes(const struct probe_uprobes *u);
/*
 * Opens a file of tracefs, "events/sched/sched_switch/id". -ENOENT: it does not exist; -ENOTSUP:
 * tracefs is not visible here. Any thread.
 */
int probe_open_tracefs(const char *file, int flags);
/*
 * Whether the tracepoint sched_switch tells the state of the thread that leaves (Linux 5.18, commit
 * fa2c3254d7cf). `btf` is the kernel's, or NULL.
 */
struct btf;
bool probe_switch_state(const struct btf *btf);
/* A function of the kernel itself, found by its name. */
struct probe_function {
	const char *name;
	u64 start, end; /* 0: the kernel has none, or hides it */
};
/* Fills `start` and `end` of each. Reads all symbols of the kernel: 50 ms. */
int probe_functions(struct probe_function *f, u32 n);
/* The kernel's name of finish_task_switch(), to which compilers may add a suffix; or -ENOENT. */
int probe_resumed_function(char *ret, size_t n);

enum probe_status {
	PROBE_OK,
	PROBE_LIMITED, /* culprit works, with less */
	PROBE_MISSING, /* culprit record does not work */
	PROBE_STATUS_N
};

/* One line of `culprit doctor`; texts are borrowed for the call. */
struct probe_line {
	enum probe_status status;
	const char *name;
	const char *text;   /* what was found */
	const char *advice; /* what to do about it, "" when there is nothing */
};

struct probe_report_options {
	const char *debuginfod_urls; /* the user's $DEBUGINFOD_URLS, or NULL */
};

/* Calls `line` once for each thing that was looked at. Returns the worst status. */
enum probe_status probe_report(const struct probe_report_options *options,
			       void (*line)(void *arg, const struct probe_line *line), void *arg);
