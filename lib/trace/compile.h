/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What check*.c and emit*.c share: the state of one compilation.
 *
 * Checking repeats over the whole script until the types of maps and variables no longer change,
 * because a map can be read in the text before the statement that says its type. Then each point is
 * checked once more and emitted at once: the types in the tree are those of the current point.
 *
 * The first error stays in `error` and the diag, and everything returns early from then on.
 */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "trace/asm.h"
#include "trace/types.h"

/* A value in memory: at R10 (the stack) or R7 (the scratch) plus `off`. */
struct place {
	u8 base;
	s16 off;
};

struct variable {
	const char *name;
	struct trace_type type;
	bool is_declared; /* let $x: type */
	bool is_live;	  /* its block has not ended */
	bool is_whole;	  /* its room and value last for the whole action */
	u32 depth;	  /* of its block */
	struct place place;
};

/* What a point is probed for. */
struct point_facts {
	enum trace_context context;
	enum bpf_prog_type type;
	bool is_return;		    /* kretprobe, uretprobe, fexit */
	bool is_user;		    /* pointers in its arguments are of the process */
	struct trace_field *fields; /* of a tracepoint */
	u32 n_fields;
	struct trace_usdt_argument *usdt;
	u32 n_usdt;
	const struct signature *signature; /* of a program's function, once it is needed */
	u32 signature_base;		   /* of its types */
	u32 proto;			   /* BTF: of the function, or of the tracepoint */
	u32 skipped;			   /* parameters of proto that the script does not see */
};

struct compiler;
/* Checks a call and sets its type; the arguments have been checked unless the row says RAW. */
typedef void call_check(struct compiler *c, struct trace_expr *e);
/* Leaves a number in R0, or another value at *to. */
typedef void call_emit(struct compiler *c, struct trace_expr *e, const struct place *to);

#define CALL_RAW 1	 /* the arguments are not values: maps, names, types */
#define CALL_AGGREGATE 2 /* only as @x = f() */
#define CALL_UNSAFE 4	 /* needs --unsafe */
#define CALL_NAME 8	 /* may stand without parentheses: pid, nsecs */
struct call {
	const char *name;
	u8 min, max; /* number of arguments */
	u8 flags;
	call_check *check;
	call_emit *emit;
	u32 number; /* for rows that share functions */
};
extern const struct call trace_calls[];
const struct call *trace_call_find(const char *name);
int trace_call_names(const char **names, u32 max);

struct loop {
	u32 on_break, on_continue;
	struct loop *outer;
};

struct compiler {
	struct trace_script *script;
	const struct trace_target *target;
	struct trace_program *program;
	struct trace_types types;
	struct diag *diag;
	int error;

	/* The current point. */
	struct trace_probe *probe;
	struct trace_point *point;
	struct point_facts facts;
	vec(struct variable) variables; /* in the order of their first assignment */
	u32 next_variable;		/* of this pass */
	u32 depth;			/* of blocks */
	bool changed;			/* a type has changed in this pass */
	bool maps_changed;		/* a type of a map has */
	bool strict;			/* types must be known now */
	bool uses_point;		/* the code depends on the point itself */
	vec(struct known_signature {
		const struct signature *signature;
		u32 base;
	}) signatures;	/* whose types have been added */
	u32 probe_base; /* number of the action's first point in the program */
	u32 wants;	/* TRACE_WANTS_KERNEL and _USER */
	bool is_predicate;

	/* Emitting. */
	struct asm_code code;
	struct trace_at at;		  /* of the innermost expression, for emit_told() */
	u32 on_exit;			  /* label: releases what is taken, and returns */
	u32 stack, scratch, scratch_used; /* bytes in use now; the most of the program */
	bool uses_scratch;
	bool has_functions; /* the action has loops whose bodies are functions */
	u8 frame;	    /* the action's own stack: R10, or R9 in the body of such a loop */
	u32 function_depth;
	vec(struct asm_code) functions;
	u32 zeros; /* bytes at SCRATCH_ZEROS that stay 0 */
	struct loop *loop;
	u64 start_ns; /* CLOCK_BOOTTIME: for `elapsed` */
};

/* Layout of a scratch: u64 users, then zeros, then room that is handed out. */
#define SCRATCH_ZEROS 8
#define SCRATCH_MAX 30000
/* The stack: a key of the compiler's own, the address of the struct trace_stacks, then room. */
#define SLOT_KEY (-8)
#define SLOT_STACKS (-16)
/* For the bodies of loops that are functions: context, scratch, and whether one said `return`. */
#define SLOT_CONTEXT (-24)
#define SLOT_SCRATCH (-32)
#define SLOT_LEFT (-40)
#define STACK_FIRST 40
#define STACK_MAX 480	     /* of 512 bytes */
#define STACK_MAX_SHARED 384 /* with functions, which take 32 bytes each */
#define MAX_FUNCTION_DEPTH 3

/* Sets the error "LINE:COL: text", unless there is one. */
void compile_fail(struct compiler *c, struct trace_at at, const char *fmt, ...)
	CULPRIT_PRINTF(3, 4);
bool compile_ok(const struct compiler *c);

/* ---- check.c ---- */
void check_expr(struct compiler *c, struct trace_expr *e);
void check_block(struct compiler *c, struct trace_block *b);
/* Makes *into hold `from` as well: the longer string, the wider integer. False: it cannot. */
bool check_merge(struct compiler *c, struct trace_type *into, const struct trace_type *from);
/* The same for the key or value of a map. */
bool check_merge_map(struct compiler *c, struct trace_type *into, const struct trace_type *from);
/* The map of a MAP expression: a new one the first time. */
struct trace_map *check_map(struct compiler *c, struct trace_expr *e);
/* Merges the key of an expression, or of list[0 to n-1]. */
void check_key(struct compiler *c, struct trace_expr *map, struct trace_expr **list, u32 n);
/* The number that an expression is, if that is known now. */
bool check_constant(const struct trace_expr *e, s64 *ret);
/* The block that runs if the condition is constant, at *ret; may be NULL. */
bool check_branch(const struct trace_statement *s, struct trace_block **ret);
void check_assign_map(struct compiler *c, struct trace_statement *s);
/* The variable of that name in the current blocks, or NULL. */
struct variable *check_variable(struct compiler *c, const char *name);
/* What a value becomes in a variable or a map: an aggregation becomes a number. */
struct trace_type check_value(const struct trace_type *t);

/* ---- check_point.c ---- */
void check_point(struct compiler *c, struct trace_probe *probe, struct trace_point *point);
/* Sets compiler.facts for the point, and resets variables. */
void check_enter(struct compiler *c, struct trace_probe *probe, struct trace_point *point);
/* args.x: sets type and symbol. */
void check_argument(struct compiler *c, struct trace_expr *e);
/*
 * Finds facts.signature of a function of a program. False: it is not known; the diag says why.
 */
bool check_signature(struct compiler *c, struct diag *d);
u32 check_param_type(const struct compiler *c, u32 index); /* BTF id of a parameter; 0: none */
u32 check_params(const struct compiler *c);
u32 check_return_type(const struct compiler *c);

/* ---- emit.c ---- */
struct mark {
	u32 stack, scratch;
};
struct mark emit_mark(const struct compiler *c);
void emit_reset(struct compiler *c, struct mark m);
struct place emit_room(struct compiler *c, u32 bytes);
void emit_address(struct compiler *c, u8 reg, struct place p); /* reg = its address */
void emit_load(struct compiler *c, u8 reg, struct place p);
void emit_store(struct compiler *c, struct place p, u8 reg);
void emit_zero(struct compiler *c, struct place p, u32 bytes);
struct place place_at(struct place p, u32 off);
/* Copies a multiple of 8 bytes. Clobbers R1 to R5. */
void emit_copy(struct compiler *c, struct place to, u8 base, s16 off, u32 bytes);
/* Copies a value into one of a wider type, see check_merge(). */
void emit_copy_as(struct compiler *c, struct place to, const struct trace_type *to_type,
		  struct place from, const struct trace_type *from_type);
void emit_block(struct compiler *c, struct trace_block *b);
/* One more event of the kind was lost. Clobbers R0 to R5. */
void emit_lost(struct compiler *c, enum trace_loss loss);
/* The code of the point, as an index of program.codes. */
u32 emit_point(struct compiler *c);

/* ---- emit_loop.c ---- */
void emit_while(struct compiler *c, struct trace_statement *s);
void emit_unroll(struct compiler *c, struct trace_statement *s);
void emit_for_range(struct compiler *c, struct trace_statement *s);
void emit_for_map(struct compiler *c, struct trace_statement *s);
void emit_jump_out(struct compiler *c, struct trace_statement *s);
/* Does the body become a function that bpf_loop() calls? */
bool emit_range_is_called(const struct compiler *c, const struct trace_statement *s);

/* ---- emit_expr.c ---- */
/* The bytes of what a pointer points to, or of an array's element. */
u32 emit_step(struct compiler *c, const struct trace_type *t);
/* R0 = R0 / R1 or R0 % R1 */
void emit_divide(struct compiler *c, bool is_signed, bool is_modulo);
void emit_scalar(struct compiler *c, struct trace_expr *e); /* in R0 */
/* Writes a value of any kind, as the type `as` (NULL: its own). */
void emit_to(struct compiler *c, struct trace_expr *e, const struct trace_type *as,
	     struct place to);
/* The place of a value of a kind that is no scalar. */
struct place emit_memory(struct compiler *c, struct trace_expr *e);
/* Jumps to the label if the value is not `truth`; falls through otherwise. */
void emit_condition(struct compiler *c, struct trace_expr *e, bool truth, u32 to);
/* R0 = the value of `type` at the address in R0. */
void emit_read(struct compiler *c, const struct trace_type *type, bool is_user);
/* The text at the address in R0 becomes a string of `bytes` at `to`. */
void emit_read_string(struct compiler *c, bool is_user, u32 bytes, struct place to);
/* Reads `bytes` at the address in R0 to `to`. */
void emit_read_bytes(struct compiler *c, bool is_user, u32 bytes, struct place to);
/* emit_told() behind a helper that reads memory. */
void emit_told_read(struct compiler *c, bool is_user);
/* R0 = curtask->a->b …; the last member is a number. */
void emit_task_member(struct compiler *c, struct trace_at at, const char *const *names, u32 n);
void emit_argument(struct compiler *c, struct trace_expr *e, const struct place *to);
/* R0 = word n of the arguments that are on the stack at the entry of a function. */
void emit_argument_on_stack(struct compiler *c, u32 n);
/* R0 = a register of the context. */
void emit_register(struct compiler *c, s32 off);

/* ---- emit_map.c ---- */
/* R0 = the address of the value, or 0. */
void emit_map_lookup(struct compiler *c, struct trace_expr *e);
struct place emit_map_key(struct compiler *c, struct trace_map *m, struct trace_expr **list, u32 n);
/* R0 = the values of all CPUs of an aggregation in one number. Clobbers R8. */
void emit_gather(struct compiler *c, struct trace_expr *e, struct place key);
void emit_map_read(struct compiler *c, struct trace_expr *e, const struct place *to);
void emit_map_assign(struct compiler *c, struct trace_statement *s);
void emit_map_increment(struct compiler *c, struct trace_expr *e);
void emit_aggregate(struct compiler *c, struct trace_expr *map, struct trace_expr *call);

/* ---- emit_call.c, emit_print.c ---- */
void emit_string_literal(struct compiler *c, const struct trace_text *t, u32 bytes,
			 struct place to);
/* Room of a record with its head: the payload is behind. */
struct place emit_record(struct compiler *c, enum trace_record_type type, u32 index, u32 bytes);
void emit_send(struct compiler *c, struct place record, u32 bytes);
/*
 * Behind a helper that may fail: tells a negative R0 with the place in the script, if the target
 * wants that. R0 stays; R1 to R5 are clobbered.
 */
void emit_told(struct compiler *c, const char *what);
u32 compile_text(struct compiler *c, struct trace_text t);

/* ---- registers.c: of the machine that this is compiled for ---- */
s32 register_offset(const char *name); /* in struct pt_regs; negative: there is none */
s32 register_argument(u32 n);	       /* arg0 …; negative: on the stack */
s32 register_return(void);
s32 register_ip(void);
s32 register_sp(void);
u32 register_bytes(void); /* of struct pt_regs in a perf event's context */
