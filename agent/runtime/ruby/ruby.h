/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the Ruby runtime: ruby.c has the runtime_ops, learn.c reads binaries,
 * code.c finds the interpreter's functions in them, name.c reads objects.
 */
#pragma once

#include "abi/runtime_ruby.h"
#include "agent/runtime/tls.h"

/* What differs between versions, in bytes; what does not is in abi/runtime_ruby.h and name.c. */
struct ruby_layout {
	u32 version;	    /* 0x0303 for 3.3 */
	u32 thread_context; /* rb_thread_t.ec, where the context is found by the thread's key */
	u32 errinfo;	    /* rb_execution_context_t.errinfo, which the code of rb_errinfo shows */
	u32 frame;	    /* size of rb_control_frame_t */
	u32 frame_jit;	    /* jit_return in it; 0: there is none */
	/* struct rb_iseq_constant_body */
	u32 lines, n_lines; /* insns_info.body, .size */
	u32 line_index;	    /* insns_info.succ_index_table */
	u32 parent, local;  /* parent_iseq, local_iseq */
	u32 line_bytes;	    /* size of struct iseq_insn_info_entry */
	u32 string;  /* data of a string that contains its bytes; 16: the length is in the flags */
	bool owners; /* backtraces name methods with their class */
};

struct ruby_learned {
	char version[16];
	struct ruby_layout layout;
	struct ruby_binary bpf;
	struct runtime_tls thread;
	u64 vm;			   /* svma of ruby_current_vm_ptr; 0: unknown */
	u64 symbols;		   /* svma of the table of symbols (rb_symbols_t) */
	bool by_thread;		   /* `thread` leads to the rb_thread_t */
	struct runtime_libc *libc; /* owned */
};

/* learn.c */
/* The offsets of a version, 0x0303 for 3.3; NULL: they are not known. */
const struct ruby_layout *ruby_layout(u32 version);
/* Learns from a binary. On failure the diag says what is missing. */
int ruby_learn(struct elf_file *elf, struct ruby_learned *ret, struct diag *reterr_diag);

/* code.c: finds the functions that the walker knows, and the table of symbols. */
int ruby_learn_code(struct elf_file *elf, struct ruby_learned *l, struct diag *reterr_diag);

/* name.c: names a frame as runtime_ops.name() does. */
int ruby_name(const struct runtime_memory *m, const struct ruby_learned *l, u64 bias, u64 address,
	      u64 where, struct runtime_names *ret);
