/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a script is compiled to: maps, texts, and BPF instructions for each probe. lib/trace makes
 * it and knows nothing of how programs are loaded; agent/tracer loads, attaches, and prints.
 *
 * A value in a key, in a map or in a record of the ring begins at a multiple of 8 and takes
 * trace_type_room() bytes, a multiple of 8; integers are extended to 8 bytes. Unused bytes are 0,
 * so that keys can be compared.
 *
 * Maps by file descriptor: an instruction that loads a map has src_reg BPF_PSEUDO_MAP_FD and, as
 * imm, the number of a map in this file's sense (enum trace_fixed_map, or TRACE_MAPS_OWN + its
 * index in `maps`); whoever loads the program puts the descriptor in its place.
 */
#pragma once

#include <linux/bpf.h>

#include "abi/trace.h"
#include "base/diag.h"
#include "trace/ast.h"

/* ---- what the program stands on ---- */

enum trace_fixed_map {
	TRACE_MAP_RING,	   /* BPF_MAP_TYPE_RINGBUF: records below */
	TRACE_MAP_SCRATCH, /* array, CPUs * TRACE_LEVELS entries of trace_program.scratch_bytes */
	TRACE_MAP_STACKS,  /* array of struct trace_stacks (abi/trace.h), with the same index */
	TRACE_MAP_ENTER,   /* prog array: 0 begins to walk the stacks, 1 + code: second half of that
			    * code. Each program type has its own: the loader knows the type */
	TRACE_MAP_LOST,	   /* array, u64 per enum trace_loss and CPU: loss * CPUs + CPU */
	TRACE_MAPS_OWN,
};

enum trace_loss {
	TRACE_LOST_RING,   /* no room in the ring: output is missing */
	TRACE_LOST_MAP,	   /* no room in a map: a key was not entered */
	TRACE_LOST_NESTED, /* too many actions under way on a CPU: the event was not handled */
	TRACE_LOST_WALK,   /* a stack could not be taken */
	TRACE_LOST_MISSED, /* the kernel did not run a program: its CPU was running one */
	TRACE_LOSS_N
};

/* ---- records of the ring ---- */

enum trace_record_type {
	TRACE_RECORD_PRINTF = 1, /* index: formats. The arguments follow */
	TRACE_RECORD_PRINT,	 /* index: prints. Without `map`: the value follows */
	TRACE_RECORD_CLEAR,	 /* index: own map */
	TRACE_RECORD_ZERO,	 /* likewise */
	TRACE_RECORD_TIME,	 /* index: texts, a format of strftime() */
	TRACE_RECORD_JOIN,	 /* index: texts, the separator; {u64 n}, n texts of join_bytes */
	TRACE_RECORD_CAT,	 /* index: formats, of the path */
	TRACE_RECORD_EXIT,	 /* {u64 status} follows */
	TRACE_RECORD_ERROR,	 /* index: errors. {s64 result} of the helper follows */
	TRACE_RECORD_SYSTEM,	 /* index: formats, of the command. The arguments follow */
};

struct trace_record {
	__u16 type;
	__u16 probe; /* index of trace_program.probes */
	__u32 index;
	__u64 time_ns; /* CLOCK_MONOTONIC */
};
_Static_assert(sizeof(struct trace_record) == 16, "trace_record");

/* ---- a program ---- */

struct trace_map {
	const char *name; /* without @ */
	struct trace_at at;
	struct trace_type key; /* NONE: a single value. Several keys are a TUPLE */
	struct trace_type value;
	u32 key_bytes, value_bytes; /* of the BPF map; key_bytes 4 (an array of 1) if key is NONE */
	u32 max_entries;
	bool per_cpu;	  /* BPF_MAP_TYPE_PERCPU_HASH or _ARRAY */
	bool is_scalar;	  /* key is NONE */
	bool is_assigned; /* a statement sets it with =: its numbers are no counts */
	bool is_lru;	  /* a full map forgets the key that was used longest ago */
};

/* printf(): the format is checked against the types, so that printing cannot fail. */
struct trace_format {
	struct trace_text text;
	struct trace_type *arguments;
	u32 *offsets; /* in the record, after its head */
	u32 n, bytes;
	bool to_stderr; /* errorf() */
};

/* print(@map, top, divisor), print(value) */
struct trace_print {
	s32 map;		/* own map, -1: a value */
	struct trace_type type; /* of the value */
	u32 top;		/* 0: all */
	u64 divisor;		/* 0, 1: none */
};

/* How the action reads the arguments of the event. Depends on the provider. */
enum trace_context {
	TRACE_CONTEXT_NONE, /* BEGIN, END, interval: run by BPF_PROG_TEST_RUN of a raw tracepoint */
	TRACE_CONTEXT_REGISTERS,  /* kprobe, kretprobe, uprobe, uretprobe, usdt: struct pt_regs */
	TRACE_CONTEXT_TRACEPOINT, /* the record that tracefs describes */
	TRACE_CONTEXT_RAW,	  /* rawtracepoint: struct bpf_raw_tracepoint_args */
	TRACE_CONTEXT_BTF,	  /* fentry, fexit, tracepoint by BTF: u64 ctx[] */
	TRACE_CONTEXT_PERF,	  /* profile, hardware, software, watchpoint: bpf_perf_event_data */
	TRACE_CONTEXT_ITER,	  /* iter:NAME: struct bpf_iter__NAME */
};

/*
 * One point with its action. Points with globs are resolved before compiling: each has a probe of
 * its own, but probes whose instructions are equal share a `code`.
 */
struct trace_compiled {
	struct trace_point *point; /* resolved: no globs */
	char *name;		   /* for the builtin `probe` */
	enum trace_context context;
	enum bpf_prog_type type;
	u32 code;     /* index of trace_program.codes */
	bool session; /* the program decides by what it returns whether the return is probed */
};

struct trace_code {
	struct bpf_insn *first;	 /* the action, or its first half */
	struct bpf_insn *second; /* or NULL: it uses no stacks */
	u32 n_first, n_second;
	u32 wants; /* TRACE_WANTS_…: which stacks it takes */
};

struct trace_program {
	struct arena arena;
	struct arena types; /* fields of tuples */
	struct btf
		*btf; /* owned: types of values; split from the target's, which must outlive it */
	vec(struct trace_map) maps;
	vec(struct trace_format) formats;
	vec(struct trace_print) prints;
	vec(struct trace_text) texts;
	vec(struct trace_text)
		errors; /* what a helper could not do, with the place in the script */
	vec(struct trace_compiled) probes;
	vec(struct trace_code) codes;
	u32 scratch_bytes;
	u32 join_bytes;
	/* config */
	bool missing_probes_warn, print_maps_on_exit;
	u32 stack_frames; /* 0: all */
};

/* ---- what the compiler asks ---- */

struct signature;

/* The fields of a tracepoint's record, as tracefs lists them. */
struct trace_field {
	const char *name;
	const char *type; /* as C has it: "char *", "u64", "char comm[16]" */
	u32 offset, bytes;
	bool is_signed, is_data_loc;
	u32 btf; /* of a pointer to a struct, 0: not known */
};

/* An argument of a USDT probe: which register, memory or constant. */
struct trace_usdt_argument {
	s8 bytes; /* negative: signed */
	u8 kind;  /* 0: constant, 1: register, 2: *(base + offset), 3: with + index * scale */
	u8 base, index, scale; /* offsets of registers in struct pt_regs, in words */
	s64 offset;	       /* or the constant */
};

/*
 * What the machine has. agent/trace answers from tracefs, BTF, /proc and files; tests answer from
 * tables. Functions return 0 or a negative errno, and set the diag then.
 */
struct trace_target {
	void *arg;
	const struct btf *btf; /* of vmlinux; NULL: none */
	u32 cpus;
	bool has_loop;	   /* bpf_loop() */
	bool has_task_btf; /* bpf_get_current_task_btf() */
	bool has_fetch;	   /* atomic instructions that return a value */
	bool has_ktime_boot;
	bool has_for_each;	  /* bpf_for_each_map_elem() */
	bool has_cookie;	  /* bpf_get_attach_cookie() */
	bool has_func_ip;	  /* bpf_get_func_ip() in kprobes */
	bool has_lookup_percpu;	  /* bpf_map_lookup_percpu_elem() */
	u16 machine;		  /* EM_X86_64 or EM_AARCH64 */
	bool is_in_pid_namespace; /* the caller's PID namespace is not the initial one */
	bool has_small_keys;	  /* keys of maps have at most 512 bytes: before Linux 5.16 or so */
	bool is_unsafe;		  /* the script may change what it looks at: system(), signal() */
	bool tells_errors;	  /* a read of memory that fails is told: TRACE_RECORD_ERROR */
	u64 code_page;
	/* Points that a glob stands for; the ones that cannot be probed are left out. */
	int (*expand)(void *arg, const struct trace_point *p, struct arena *a,
		      struct trace_point **ret, u32 *ret_n, struct diag *d);
	int (*fields)(void *arg, const struct trace_point *p, struct arena *a,
		      struct trace_field **ret, u32 *ret_n, struct diag *d);
	int (*usdt)(void *arg, const struct trace_point *p, struct arena *a,
		    struct trace_usdt_argument **ret, u32 *ret_n, struct diag *d);
	/*
	 * The parameters of the function at a uprobe or uretprobe, by DWARF. Borrowed as long as
	 * the target is. -ENOENT: the diag says why they are not known.
	 */
	int (*signature)(void *arg, const struct trace_point *p, const struct signature **ret,
			 struct diag *d);
	int (*symbol)(void *arg, const char *name, u64 *ret);			     /* kaddr() */
	int (*user_symbol)(void *arg, const char *path, const char *name, u64 *ret); /* uaddr() */
	int (*cgroup)(void *arg, const char *path, u64 *ret); /* cgroupid() */
};
