/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What goes through the ring buffer, and what user space tells the programs before loading them.
 *
 * BPF sends a stack once: a STACK record with the frames, unless BPF has sent a stack of that id
 * lately, then SAMPLE records that name the id. If BPF could not finish a user stack but the host
 * can (unknown process, unwind page not loaded), the stack comes as
 *
 *	STACK (the frames so far)   COPY, COPY, … (stack memory)   DEFERRED (sample and registers)
 *
 * in this order on one CPU. Records of other CPUs may come in between.
 *
 * BPF sends the attributes of a thread as it sends stacks: an ATTRIBUTES record once, then the id
 * in samples.
 */
#pragma once

#include <linux/types.h>

#include "abi/context.h"
#include "abi/unwind.h"
#include "abi/vocab.h"

#define SAMPLE_MAX_LEVELS 4 /* samples of a source that can be under way on a CPU at once */
#define SAMPLE_MAX_FRAMES 2048
#define SAMPLE_MAX_KERNEL_FRAMES 127
#define SAMPLE_COMM_BYTES 16
#define SAMPLE_COPY_BYTES 4096
#define SAMPLE_STACK_COPIES 64
#define SAMPLE_OTHER_COPIES 24
#define SAMPLE_MAX_COPIES (SAMPLE_STACK_COPIES + SAMPLE_OTHER_COPIES)

enum record_type {
	RECORD_SAMPLE = 1,
	RECORD_STACK,
	RECORD_COPY,
	RECORD_DEFERRED,
	RECORD_ATTRIBUTES,
	RECORD_EXEC,
	RECORD_ASLEEP,
	RECORD_LATER,
	RECORD_INTERVAL,
	RECORD_WAKER,
	RECORD_PAGES,
	RECORD_MOVED,
	RECORD_FREED,
};

/* What a thread was working for when it was sampled. */
struct sample_context {
	__u64 trace_id[2]; /* bytes in W3C's order; all zero: none */
	__u64 span_id;
	__u64 root_id;	  /* the local root span; 0: unknown */
	__u32 source;	  /* enum context_id */
	__u32 flags;	  /* flags of W3C's trace context */
	__u64 attributes; /* id of a set of attributes, 0: none */
};

enum record_flags {
	RECORD_KERNEL = 1, /* STACK: a kernel stack; frames are plain addresses */
};

/*
 * A word of a user stack: WORD_RAW | avma if the address is in no known file, else file id << 40 |
 * svma. The address of a caller is its return address - 1, which is inside the call.
 */
#define WORD_RAW (1ULL << 63)
#define WORD_SVMA_BITS 40
#define WORD_SVMA_MASK ((1ULL << WORD_SVMA_BITS) - 1)

struct record_stack {
	__u16 type;
	__u16 flags;
	__u16 n;
	__u16 stop; /* enum stop_reason */
	__u64 id;   /* never 0 */
	__u32 pid; /* a process that has this stack: the owner of the addresses in runtime frames */
	__u32 pad;
	/* __u64 frames[n] follow, leaf first; a runtime frame is two words (abi/runtime.h) */
};
_Static_assert(sizeof(struct record_stack) == 24, "record_stack");

#define SAMPLE_WAKES WAIT_N

/* What a thread waits for, as far as BPF can tell. Unused bytes are 0. */
enum wait_object_kind {
	WAIT_OBJECT_NONE,
	WAIT_OBJECT_LOCK,
	WAIT_OBJECT_INET,  /* a socket's peer */
	WAIT_OBJECT_INET6, /* likewise */
	/* What waits is a task of a runtime, not a thread. Of user space only. */
	WAIT_OBJECT_TASK,
	/* Not a wait: the pages that a fault has brought. In a batch, `port` is enum
	 * resident_note. */
	WAIT_OBJECT_PAGES,
	/* Not a wait: objects of a memory profile; `port` is enum heap_part. Of user space only. */
	WAIT_OBJECT_HEAP,
	/* Not a wait: an object that was allocated. `port`: it is followed until it is freed;
	 * `owner`: number of the window; `address`: its id, its avma. */
	WAIT_OBJECT_ALLOC,
};

struct wait_object {
	__u16 kind;
	__u16 port;	  /* INET: the peer's; TASK: enum task */
	__u32 owner;	  /* LOCK: the thread that held the lock when the wait began; 0: unknown */
	__u64 address[2]; /* LOCK: avma of the lock; INET: 4 or 16 bytes;
			   * TASK: its number, or 0; PAGES: as `address` and `bits` of
			   * struct record_pages, with `shift` in `owner` */
};
_Static_assert(sizeof(struct wait_object) == 24, "wait_object");

struct record_sample {
	__u16 type;
	__u16 source; /* sampler_config.source of the program that sent it */
	__u32 cpu;
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 pid;     /* thread group */
	__u32 tid;
	__u64 kernel_stack; /* id; 0: no kernel stack, say because the thread was in user mode */
	__u64 user_stack;   /* id; 0: kernel thread, or user stacks are off */
	__s64 value; /* what the sample stands for, in the unit of the source's sample type */
	char comm[SAMPLE_COMM_BYTES]; /* the thread's name */
	__u64 start_stack;	      /* mm->start_stack, which identifies the process image */
	__u64 event_attributes;	      /* id of the set of the event's attributes; 0: none */
	struct sample_context context;
	/*
	 * For a wait: `value` is the time until what it waited for happened, `queued` the time from
	 * then on until it ran again, in nanoseconds.
	 */
	__s64 queued;
	__u32 wait; /* enum wait; SAMPLE_WAKES: the thread wakes `woken_tid`, and `value` is 0 */
	__u32 woken_tid;
	__u64 woken_ns; /* when what was waited for happened; 0: unknown */
	struct wait_object object;
	__s64 bytes; /* the second value of a source that has one */
	__u64 later; /* id of the record_later that completes the values; 0: they are complete */
	/*
	 * avma of a lock that the thread holds and for which others wait, 0: none is known; and the
	 * parts of `value` and `queued` in which they did.
	 */
	__u64 holds;
	__s64 held_value;
	__s64 held_queued;
};
_Static_assert(sizeof(struct record_sample) == 216, "record_sample");

/* What an event has come to that was not over when it was sampled: adds to the sample's values. */
struct record_later {
	__u16 type;
	__u16 source;
	__u32 pad;
	__u64 id; /* of record_sample.later */
	__s64 value;
	__s64 bytes;
};
_Static_assert(sizeof(struct record_later) == 32, "record_later");

/* ---- requests that are kept after they have ended (bpf/prog/request_waits.h) ---- */

enum armed_flags {
	ARMED_ON_CPU = 1,  /* samples of running threads */
	ARMED_OFF_CPU = 2, /* stacks of waits */
};

/* A process whose threads are followed while they carry a span; the key is the thread group id. */
struct armed_process {
	__u64 armed_ns; /* CLOCK_MONOTONIC; what was known of its threads before does not count */
	__u64 floor_ns; /* waits of at least this length are walked */
	__u32 ticks;	/* of the clock for each sample, at least 1 */
	__u32 flags;	/* enum armed_flags */
};
_Static_assert(sizeof(struct armed_process) == 24, "armed_process");

/* Short times of a thread, laid end to end, with points on the line: bpf/lib/line.h. */
struct thread_line {
	__u64 rest_ns;	/* since the last point */
	__u64 point_ns; /* until the next one; 0: not drawn yet */
};

/* What a thread of an armed process does; the key is its id. */
struct armed_thread {
	__u64 start_time; /* of the thread: its tid may be another's by now */
	__u64 armed_ns;	  /* as its process's when the entry was made */
	__u64 ran_ns;	  /* when it began to run last; 0: that was not heard */
	__u64 left_ns;	  /* when it left its CPU */
	__u64 woken_ns;	  /* when it became runnable; 0: not since it left its CPU */
	__u32 state;	  /* as struct thread of bpf/lib/threads.h */
	__u32 number;	  /* of the last interval */
	__u8 running;
	__u8 told_span; /* its last interval had a span */
	__u8 has_waker; /* of the wake-up at woken_ns the next three are known */
	__u8 no_socket; /* it waits in a system call that no packet ends */
	__u8 pad[4];
	__u32 waker_pid, waker_tid; /* 0: an interrupt */
	char waker[SAMPLE_COMM_BYTES];
	__u64 lock;   /* avma of the lock for which it waits; 0: unknown */
	__u32 owner;  /* tid of the thread that held it when the wait began; 0: unknown */
	__u32 own_id; /* by which its process knows it; 0: not read yet */
	struct thread_line waits;
	/* An interval that was not heard to end, and is sent with the next one; now 0: none. */
	struct {
		__u64 ran_ns, left_ns, woken_ns, now_ns;
	} missed;
};
_Static_assert(sizeof(struct armed_thread) == 144, "armed_thread");

/*
 * A thread ran from ran_ns to left_ns, was blocked until woken_ns, and then waited for a CPU until
 * now_ns. Then, as when it left its CPU, it worked for the span. The intervals of a thread follow
 * each other, except those without a span: of these only the first is sent. `number` grows by one
 * with each that was sent or lost.
 */
struct record_interval {
	__u16 type;
	__u16 source;
	__u32 wait; /* enum wait: why it was blocked */
	__u32 pid;
	__u32 tid;
	__u64 ran_ns; /* 0: unknown */
	__u64 left_ns;
	__u64 woken_ns;
	__u64 now_ns;
	__u64 trace_id[2]; /* all zero: it has no span */
	__u64 span_id;
	__u32 number;
	__u32 pad;
};
_Static_assert(sizeof(struct record_interval) == 80, "record_interval");

/* Who ended the wait of the sample that follows on this CPU. */
struct record_waker {
	__u16 type;
	__u16 source;
	__u32 woken_tid;
	__u64 woken_ns; /* as in the sample */
	__u32 pid, tid; /* 0: an interrupt */
	char comm[SAMPLE_COMM_BYTES];
};
_Static_assert(sizeof(struct record_waker) == 40, "record_waker");

/*
 * A fault has brought pages that are followed (abi/resident.h), and is no sample. What a sample of
 * the source "resident" says about its pages is the same, in its `object`.
 */
struct record_pages {
	__u16 type;
	__u16 source;
	__u32 pid;
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 address; /* avma of the first page of the window */
	__u32 bits;    /* pages of the window that are new; not all of them are followed */
	__u32 shift;   /* log2 of the bytes of a page: that of a huge page may be 21 */
};
_Static_assert(sizeof(struct record_pages) == 32, "record_pages");

/* mremap() has moved the pages of a range. */
struct record_moved {
	__u16 type;
	__u16 source;
	__u32 pid;
	__u64 time_ns;
	__u64 from, to; /* avma */
	__u64 bytes;
};
_Static_assert(sizeof(struct record_moved) == 40, "record_moved");

/* A sampled object has been freed (abi/alloc.h). */
struct record_freed {
	__u16 type;
	__u16 source;
	__u32 pid;
	__u64 id;
};
_Static_assert(sizeof(struct record_freed) == 16, "record_freed");

/* Layout of the bytes of an attribute set. No attribute is split; a text may be any bytes. */
enum attributes_form {
	ATTRIBUTES_NUMBERED, /* {u8 name, u8 n, text}: the process names each number (OTEP 4947) */
	ATTRIBUTES_NAMED,    /* {u8 n_name, u8 n | ATTRIBUTE_CUT, name, text} */
	/*
	 * {u8 index in sampler_config.fields, u8 n | ATTRIBUTE_CUT, bytes}.
	 * Cut, with n 0: the field was not readable.
	 */
	ATTRIBUTES_FIELDS,
};
#define ATTRIBUTE_CUT 0x80	 /* the process's text is longer */
#define ATTRIBUTE_MAX_NAME 63	 /* NAMED: bytes */
#define ATTRIBUTE_MAX_TEXT 127	 /* NAMED: bytes */
#define ATTRIBUTES_MAX_BYTES 704 /* OTEP 4947 has 612 at most */

struct record_attributes {
	__u16 type;
	__u16 form; /* enum attributes_form */
	__u16 n;
	__u16 left_out; /* attributes that had no room or were unreadable */
	__u32 pid;
	__u32 source; /* sampler_config.source of the program that sent it */
	__u64 id; /* never 0; equal for equal bytes of one process image; FIELDS: and one source */
		  /* __u8 bytes[n] follow */
};
_Static_assert(sizeof(struct record_attributes) == 24, "record_attributes");

/* A process has called exec and is about to run the new program. */
struct record_exec {
	__u16 type;
	__u16 pad;
	__u32 pid;
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 start_stack;
	__u64 exec_id; /* start_stack and exec_id as in struct process_entry */
};
_Static_assert(sizeof(struct record_exec) == 32, "record_exec");

struct record_copy {
	__u16 type;
	__u16 index; /* 0 starts a new copy of this source and level on this CPU */
	__u8 source;
	__u8 level; /* below SAMPLE_MAX_LEVELS */
	__u16 cpu;
	__u64 address; /* avma of data[0] */
	__u8 data[SAMPLE_COPY_BYTES];
};

/* The registers between two steps of a walk. */
struct walk_regs {
	__u64 pc, sp, fp;
	__u64 tls;		/* the thread pointer; 0: not known */
	__u64 r[UNWIND_N_REGS]; /* by DWARF number; valid if `full` */
	__u32 full;		/* r[] holds this frame's registers */
	__u32 exact;		/* pc is an instruction, not a return address */
	__u32 bx;      /* r[UNWIND_REG_BX] is this frame's, even if the other registers are not */
	__u32 newborn; /* the thread has not returned from clone yet: no caller */
};

/* RECORD_ASLEEP: a thread that sleeps; n_copies is 0, because its memory is still there. */
struct record_deferred {
	struct record_sample sample; /* type RECORD_DEFERRED or RECORD_ASLEEP */
	struct walk_regs regs;
	__u16 n_copies;
	__u16 level; /* of its copies */
	__u32 stop;  /* why BPF stopped: enum stop_reason */
	/* ASLEEP: which thread it is, and how often it had left its CPU by then. */
	__u64 start_time, switches;
};

/* The walk of a thread that sleeps, which user space runs (bpf/prog/sleeper.bpf.c). */
struct sleeper_walk {
	struct walk_regs regs;	    /* those of the record; afterwards where the walk stopped */
	__u64 start_time, switches; /* of the record, as the next three */
	__u64 start_stack;
	__u32 pid, tid;
	__u32 next; /* the program that goes on: enum runtime_id; RUNTIME_N: it is over */
	__u32 stop; /* enum stop_reason */
	__u32 woke; /* the thread did not sleep all the time: there are no frames */
	__u32 n;
	__u64 id; /* of the stack */
	__u64 frames[SAMPLE_MAX_FRAMES];
};

/*
 * A process as BPF knows it; the key is the thread group id. start_stack and exec_id identify the
 * process image: where they differ from the sampled task's, BPF treats the process as unknown.
 * start_stack alone identifies the image only while addresses are randomised. exec_id is exact, but
 * user space learns exec_id only from record_exec.
 */
struct process_entry {
	__u64 start_stack; /* as in record_sample */
	__u64 exec_id;	   /* task_struct.self_exec_id, which each exec increments; 0: unknown */
	__u64 image;	   /* procman's number of the image; other maps refer to the image by it */
	__u64 mappings_id; /* changes with every change of the slice; never reused; 0: n is 0 */
	__u32 slice;	   /* line of struct unwind_mapping [n] */
	__u32 n;
	__u32 context; /* index of its struct context_process; 0: it publishes no context */
	__u32 pad;
};

/* How BPF reads a field of an event from the event's record, which tracefs describes. */
enum field_kind {
	FIELD_NUMBER,	      /* `size` bytes */
	FIELD_TEXT,	      /* an array of characters in the record */
	FIELD_TEXT_AT,	      /* __data_loc: u32; low half: the text's offset in the record */
	FIELD_TEXT_BEHIND,    /* __rel_loc: u32; low half: offset from the u32's end */
	FIELD_TEXT_OF_USER,   /* a pointer to a text in the process's memory */
	FIELD_TEXT_OF_KERNEL, /* a pointer to a text in the kernel's memory */
};

struct sampler_field {
	__u16 offset; /* in the record */
	__u16 size;   /* NUMBER: 1, 2, 4 or 8; TEXT: bytes of the array */
	__u32 kind;   /* enum field_kind */
};

#define SAMPLER_MAX_FIELDS 8 /* of a source */

/* What the kernel's block layer has. */
enum block_has {
	BLOCK_HAS_STARTS = 1, /* block_io_start and block_io_done: since Linux 6.5 */
	BLOCK_HAS_QUEUE = 2,  /* the queue is the first argument of its events: before Linux 5.11 */
};

/* User space sets the configuration before loading; the programs only read it. */
enum kernel_code {
	CODE_INTERRUPT,	   /* what the CPU enters at an interrupt */
	CODE_BACKLOG,	   /* receives what this machine sends to itself */
	CODE_AFTER_SENDER, /* does at once what the current thread has left to do */
	CODE_ANY,	   /* all code of the kernel is in it */
	KERNEL_CODE_N
};

/* Values of the map filter_pids that are no start time. */
enum filter_pid {
	FILTER_PID_FAMILY = 1, /* its children are chosen, too */
	FILTER_PID_ALONE = 2,
};

struct sampler_config {
	__u32 has_task_btf; /* the kernel has bpf_get_current_task_btf() and bpf_task_pt_regs() */
	__u32 thread_size;  /* bytes of a kernel stack; for kernels without task BTF */
	__u32 kernel_stacks;
	__u32 user_stacks;
	__u32 filter_pids; /* 0 or 1: the filter is on; the same for comms and uids */
	__u32 filter_comms;
	__u32 filter_uids;
	__u32 filter_cgroups; /* number of cgroups in the filter; 0: the filter is off */
	__u32 defer_per_tick; /* most DEFERRED records that a CPU sends in 100 ms */
	__u32 ring_bytes;
	__u32 has_obi;	     /* the map obi_spans is OBI's map */
	__u32 source;	     /* the recording's source that these programs serve */
	__u32 skip_kthreads; /* drop events of kernel threads */
	__u32 whole_time; /* a clock's sample stands for what its thread has run since the last */
	__u32 has_prev_state; /* sched_switch tells the state: since Linux 5.18 */
	__u32 wakers;	      /* walk the stacks of those that wake others, too */
	__u32 has_threads;    /* a source follows the scheduler: the map `threads` is kept */
	__u32 n_fields;	      /* fields of the event that become attributes of samples */
	__u32 page_shift;     /* log2 of the size of a page */
	__u32 block;	      /* block-io: bits of enum block_has */
	__u32 own_state;      /* the state of the programs that user space runs */
	__u64 budget_ns;      /* time that walks may take in 10 ms on a CPU */
	__u64 pac_mask;	      /* arm64: the bits that pointer authentication uses */
	__u64 period;	      /* take one of so many events; 0: as many as the budget allows */
	/* First and last address + 1 of code of the kernel, by enum kernel_code; 0: unknown. */
	__u64 code[KERNEL_CODE_N][2];
	struct sampler_field fields[SAMPLER_MAX_FIELDS];
};

/* What user space may change while the programs run. All sources share one. */
struct sampler_control {
	__u64 epoch;	 /* changed when user space forgot the stacks: BPF sends all again */
	__u32 context_n; /* processes that publish contexts, plus 1 for OBI; 0: BPF reads none */
	__u32 no_hurry;	 /* user space reads on a timer: an exec does not wake it */
	__u64 began_ns, ended_ns; /* what is recorded; CLOCK_MONOTONIC; 0: not yet */
	/* Which pages are followed: those with a resident_hash() below `resident_below`. */
	__u64 resident_seed, resident_below;
	/* Sampled objects are followed whose id >> 1 has this many zeros at its end. */
	__u64 alloc_keep;
};

#define SAMPLER_MAX_SOURCES 8 /* sources of a recording */
#define SAMPLER_SEEN_SLOTS (1u << 16)
#define SAMPLER_MAX_FILTERS 16 /* values of --comm, --uid and --cgroup each */
