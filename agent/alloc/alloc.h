/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes in the functions of allocators, opened and closed within a budget.
 *
 *	allocators.c  which functions of a file allocate and free
 *	prologue.c    where in a function a probe costs least
 *	attach.c      probes in one process
 *	calibrate.c   what a probe costs on this machine
 *	windows.c     the thread that opens and closes probes on time
 *
 * A process whose calls fit into the budget is probed all the time. Others are probed in windows;
 * each window ends with a report, which says how far the probes have slowed down each thread, and
 * for how long the window stands.
 *
 * The owner's thread calls all functions but alloc_find_sites(), which any thread may call.
 */
#pragma once

#include "abi/alloc.h"
#include "base/diag.h"
#include "base/stat.h"
#include "base/types.h"
#include "base/vec.h"
#include "elf/elf.h"

struct bpf_program;

/* BPF_TRACE_UPROBE_SESSION of linux/bpf.h, which older headers lack. */
#define ALLOC_UPROBE_SESSION 57
/* Percent of the time of each process. */
#define ALLOC_DEFAULT_BUDGET 1.0

/* The programs of bpf/prog/alloc.bpf.c; borrowed. */
struct alloc_programs {
	const struct bpf_program *session; /* or NULL: this kernel has none; then the next ones */
	const struct bpf_program *begins[ALLOC_FUNCTIONS];
	const struct bpf_program *ends;
	int processes, threads, objects; /* descriptors of maps */
	bool all;			 /* each call is walked, whatever that takes */
};

/* ---- which functions ---- */

struct alloc_site { /* a function of an allocator */
	u64 svma, size;
	u64 foff;     /* of the probe, which may be some instructions behind the begin */
	u8 function;  /* enum alloc_function */
	bool stepped; /* the kernel steps the instruction, and does not emulate it */
};

#define ALLOC_MAX_SITES 64
struct alloc_sites {
	struct alloc_site site[ALLOC_MAX_SITES];
	u32 n;
};

/*
 * The functions of the allocator in a file. `is_library`: only exported symbols count. Fills *ret
 * with none if the file has no allocator, or cannot be read.
 */
void alloc_find_sites(struct elf_file *elf, bool is_library, struct alloc_sites *ret);

/* ---- the thread ---- */

struct allocs;

struct alloc_options {
	struct alloc_programs programs;
	double budget; /* percent; 0: the default */
};

struct alloc_thread_cost { /* what probes have taken of a thread's time in a window */
	u32 tid;
	u64 traps_ns; /* with the time that it waited for a CPU; right to within .low and .high */
	u64 walks_ns;
};

/*
 * A window is over, or (number 0) a process was probed all the time until end_ns, or (`always`) is
 * probed all the time again from begin_ns on.
 */
struct alloc_report {
	u64 image;
	u32 pid;
	u32 number;
	bool always;
	u64 begin_ns, end_ns; /* CLOCK_MONOTONIC */
	u64 stands_ns;	      /* for which it stands */
	double low, high;     /* bounds of traps_ns, as multiples of it */
	vec(struct alloc_thread_cost) threads;
};

void alloc_report_deinit(struct alloc_report *r);

struct alloc_stats {
	u64 processes;	/* with an allocator that is known */
	u64 continuous; /* of these, probed all the time */
	u64 windows, failed;
	u64 emulated_ns, stepped_ns, return_ns; /* what a probe costs */
	u64 attach_ns, detach_ns;		/* the longest so far */
};
extern const struct stat_field alloc_stat_fields[];

/* Measures what probes cost, and starts the thread. The programs are loaded. */
int allocs_create(const struct alloc_options *o, struct diag *reterr_diag, struct allocs **ret);
/* Removes all probes. */
void allocs_destroy(struct allocs *a);
DEFINE_CLEANUP(allocs, struct allocs *, allocs_destroy)
/*
 * The process has a file with an allocator mapped; `fd` is duplicated. `bias`: avma - svma. Adds to
 * what was added before.
 */
int allocs_add(struct allocs *a, u32 pid, u64 image, int fd, u64 bias,
	       const struct alloc_sites *sites);
/* The image has ended, or is not wanted any more. */
void allocs_remove(struct allocs *a, u64 image);
/* The next report. False: there is none yet. The caller deinits it. */
bool allocs_take(struct allocs *a, struct alloc_report *ret);
/* Closes all windows early and reports them, for at most as long as that takes. */
void allocs_close_windows(struct allocs *a);
/* Removes all probes, with a report of what was open. */
void allocs_stop(struct allocs *a);
void allocs_get_stats(struct allocs *a, struct alloc_stats *ret);
