/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The syntax tree of a script in bpftrace's language. The parser makes it (parse.c) and expands
 * macros, #define and parameters in it (macro.c), so that none is left; check.c gives each
 * expression its type; emit.c only reads it. Expressions and blocks are nested TRACE_MAX_DEPTH deep
 * at most, so that whatever walks the tree may recurse.
 *
 * All nodes and texts are in the arena of their script, and live as long as it. Texts are
 * NUL-terminated UTF-8 or bytes as written; those of string literals are unescaped and may contain
 * NULs, hence the length.
 */
#pragma once

#include "base/arena.h"
#include "base/types.h"
#include "base/vec.h"

#define TRACE_MAX_DEPTH 400

/*
 * Where a node begins; of BINARY, TERNARY, FIELD, INDEX and postfix ++ where the operator is. Both
 * count from 1, columns in bytes. line 0: nowhere.
 */
struct trace_at {
	u32 line, column;
};

struct trace_text {
	const char *data;
	u32 n;
};

/* ---- types ---- */

enum trace_kind {
	TRACE_NONE, /* not known yet, or no value: a call such as printf() */
	TRACE_INT,
	TRACE_BOOL,
	TRACE_STRING,	 /* `bytes` with its NUL; shorter texts are padded with NULs */
	TRACE_BUFFER,	 /* {u64 length}, then `bytes` of room: buf() */
	TRACE_POINTER,	 /* to `btf`, or to `of` */
	TRACE_RECORD,	 /* a struct or union in memory, represented by its address: `btf` */
	TRACE_ARRAY,	 /* likewise; n elements `of` */
	TRACE_VALUES,	 /* n integers `of`, themselves: a cast to an array; `bytes` of all */
	TRACE_TUPLE,	 /* fields[n] */
	TRACE_KSTACK,	 /* u64 id; `n`: the most frames to print, 0: the default;
			  * `bytes`: enum trace_stack_mode */
	TRACE_USTACK,	 /* {u64 id, u64 pid}; likewise */
	TRACE_KSYM,	 /* u64 address */
	TRACE_USYM,	 /* {u64 address, u64 pid} */
	TRACE_INET,	 /* {u64 family, u8 address[16]} */
	TRACE_MAC,	 /* u8[6], padded to 8 */
	TRACE_USERNAME,	 /* u64 uid */
	TRACE_PROBE,	 /* u64: index into trace_program.probes */
	TRACE_TIME,	 /* {u64 ns since boot, u64 index of the format}: strftime() */
	TRACE_CGROUP,	 /* u64 id of a cgroup of v2: cgroup_path() */
	TRACE_ERROR,	 /* u64 errno: strerror() */
	TRACE_SIGNAL,	 /* u64 number: signal_name() */
	TRACE_SYSCALL,	 /* u64 number: syscall_name() */
	TRACE_TRACE_ID,	 /* u8[16], as W3C orders them; all zero: none */
	TRACE_SPAN_ID,	 /* u8[8], likewise */
	TRACE_OWNER,	 /* {u64 pid, char comm[16]}; `bytes`: enum trace_owner */
	TRACE_ENUM_NAME, /* u64 value, type `btf`: the cast (enum x) when it is printed */
	/* Values of maps only. All are arrays of u64 per CPU, and user space adds them up. */
	TRACE_COUNT,  /* n */
	TRACE_SUM,    /* sum */
	TRACE_MIN,    /* {value, is set} */
	TRACE_MAX,    /* likewise */
	TRACE_AVG,    /* {sum, n} */
	TRACE_STATS,  /* likewise */
	TRACE_HIST,   /* buckets as trace_hist_bucket() has them; `n`: bits of a bucket, 0 to 5 */
	TRACE_LHIST,  /* buckets: below, (high - low) / step, above */
	TRACE_SERIES, /* n intervals of `step` ns, TRACE_SERIES_WORDS words each; `bytes`: enum
		       * trace_series */
	TRACE_KIND_N
};

/* What an interval of tseries() keeps of its values. */
enum trace_series {
	TRACE_SERIES_LAST,
	TRACE_SERIES_AVG,
	TRACE_SERIES_MAX,
	TRACE_SERIES_MIN,
	TRACE_SERIES_SUM,
	TRACE_SERIES_N
};
/*
 * An interval is at its number % n: {its number + 1, value, how many, when the last one came}. 0:
 * it has none. Numbers count from the boot on.
 */
#define TRACE_SERIES_WORDS 4

/* What a process belongs to. */
enum trace_owner { TRACE_OWNER_SERVICE, TRACE_OWNER_CONTAINER, TRACE_OWNER_POD, TRACE_OWNER_N };

struct trace_type {
	enum trace_kind kind;
	u32 bytes;	/* INT: 1, 2, 4, 8; STRING, BUFFER: room; ENUM_NAME: of the enum; see the
			 * kinds */
	bool is_signed; /* INT, SUM, MIN, MAX, AVG, STATS */
	bool is_user;	/* POINTER, RECORD, ARRAY: the memory is the process's */
	bool is_ctx;	/* RECORD: the record of a tracepoint; POINTER: arguments by BTF, which the
			 * verifier lets a program read directly */
	u32 n;		/* ARRAY, VALUES, TUPLE: elements; see the kinds */
	u32 btf;	/* id in the BTF of the program's target; 0: none */
	const struct trace_type *of;	  /* POINTER without btf, ARRAY, VALUES */
	const struct trace_type **fields; /* TUPLE */
	const char **names;		  /* TUPLE: of the fields of a record, or NULL */
	s64 low, high, step;		  /* LHIST; step: SERIES */
};

/* ---- expressions ---- */

enum trace_expr_kind {
	TRACE_EXPR_NUMBER,    /* number; is_unsigned: above the largest s64. text: see PARAMETER */
	TRACE_EXPR_STRING,    /* text */
	TRACE_EXPR_BOOL,      /* number: 0 or 1 */
	TRACE_EXPR_NAME,      /* text: a builtin (pid, nsecs, args …), a constant of an enum */
	TRACE_EXPR_PARAMETER, /* never in a finished tree: the parser puts a NUMBER or a STRING in
			       * the place of $1 (a NUMBER that was a parameter has its text), and
			       * a STRING in that of $1 and $1 + n as first argument of str() */
	TRACE_EXPR_VARIABLE,  /* $x: text without the $ */
	TRACE_EXPR_MAP,	      /* @x, @x[a, b]: text without the @, may be ""; list: the keys */
	TRACE_EXPR_CALL,      /* text(list) */
	TRACE_EXPR_UNARY,     /* op a: - ! ~ * & (prefix), ++ -- (op is_postfix or prefix) */
	TRACE_EXPR_BINARY,    /* a op b */
	TRACE_EXPR_TERNARY,   /* a ? b : c; without b: a ?: c */
	TRACE_EXPR_FIELD,     /* a.text and a->text; of tuples: text is the index */
	TRACE_EXPR_INDEX,     /* a[b] */
	TRACE_EXPR_CAST,      /* (type_name) a */
	TRACE_EXPR_SIZEOF,    /* sizeof(type_name), or sizeof(a) with a */
	TRACE_EXPR_OFFSETOF,  /* offsetof(type_name, text), text may be a.b; or of a's type */
	TRACE_EXPR_TUPLE,     /* (list) with a comma */
	TRACE_EXPR_NAMED_TUPLE, /* (a = 1, b = 2): list, names */
	TRACE_EXPR_IF,		/* `if` and `else` with values: a, block, otherwise */
	TRACE_EXPR_BLOCK,	/* { statements; value }: block, its last statement is the value, or
				* has none */
	TRACE_EXPR_TYPE,	/* a type as an argument: typeof(struct x), typeof($x): type_name */
};

/* Operators of UNARY, BINARY and compound ASSIGN. */
enum trace_op {
	TRACE_OP_NONE,
	TRACE_OP_ADD,
	TRACE_OP_SUB,
	TRACE_OP_MUL,
	TRACE_OP_DIV,
	TRACE_OP_MOD,
	TRACE_OP_AND,
	TRACE_OP_OR,
	TRACE_OP_XOR,
	TRACE_OP_SHL,
	TRACE_OP_SHR,
	TRACE_OP_LAND,
	TRACE_OP_LOR,
	TRACE_OP_EQ,
	TRACE_OP_NE,
	TRACE_OP_LT,
	TRACE_OP_LE,
	TRACE_OP_GT,
	TRACE_OP_GE,
	TRACE_OP_NEG,
	TRACE_OP_NOT,
	TRACE_OP_INVERT,
	TRACE_OP_DEREF,
	TRACE_OP_ADDRESS,
	TRACE_OP_INCREMENT,
	TRACE_OP_DECREMENT,
};

struct trace_expr;
struct trace_block;

typedef vec(struct trace_expr *) trace_exprs;

/*
 * A type as written: `struct sock *`, `uint8`, `char[16]`, `int32 *`. Exactly one of name, of and
 * type_of is set; `pointers` * come after it, and then [elements].
 */
struct trace_type_name {
	struct trace_at at;
	const char
		*name; /* "struct sock", "uint64", "string", "enum x". C's names of integers became
			    * ours: "unsigned int" is "uint32". "char" stays */
	const struct trace_type_name *of; /* (int32[4]*: pointers 1, of int32[4]) */
	struct trace_expr *type_of;	  /* typeof(expression) */
	u32 pointers;			  /* number of * */
	bool is_array;
	u32 elements; /* of the array, or the size in string[64]; 0: [], as many as the value has */
};

struct trace_expr {
	enum trace_expr_kind kind;
	enum trace_op op;
	bool is_postfix;
	bool is_arrow;	  /* FIELD */
	bool is_unsigned; /* NUMBER */
	bool is_comptime; /* `comptime` stood before it: its value must be known before it runs */
	struct trace_at at;
	struct trace_text text;
	s64 number;
	struct trace_expr *a, *b, *c;
	struct trace_expr **list; /* n_list */
	u32 n_list;
	const char **names; /* NAMED_TUPLE: n_list */
	struct trace_type_name *type_name;
	struct trace_block *block, *otherwise;
	/* Set by check.c */
	struct trace_type type;
	u32 symbol; /* VARIABLE, MAP, NAME, CALL: which, as check.h says */
};

/* ---- statements ---- */

enum trace_statement_kind {
	TRACE_STATEMENT_EXPR,	   /* value */
	TRACE_STATEMENT_ASSIGN,	   /* target op= value; op NONE: = */
	TRACE_STATEMENT_LET,	   /* let target: type_name = value; both optional */
	TRACE_STATEMENT_IF,	   /* value, body, otherwise */
	TRACE_STATEMENT_WHILE,	   /* value, body */
	TRACE_STATEMENT_UNROLL,	   /* value: times; body */
	TRACE_STATEMENT_FOR_MAP,   /* for target : value (a MAP without keys) body */
	TRACE_STATEMENT_FOR_RANGE, /* for target : value .. end body */
	TRACE_STATEMENT_BREAK,
	TRACE_STATEMENT_CONTINUE,
	TRACE_STATEMENT_RETURN, /* value or NULL */
	TRACE_STATEMENT_BLOCK,	/* body */
};

struct trace_statement {
	enum trace_statement_kind kind;
	enum trace_op op;
	struct trace_at at;
	struct trace_expr *target, *value, *end;
	struct trace_type_name *type_name;
	struct trace_block *body, *otherwise;
	struct trace_statement *next;
	u32 symbol; /* of check.c */
};

struct trace_block {
	struct trace_at at;
	struct trace_statement *first; /* or NULL: empty */
};

/* ---- the script ---- */

/*
 * An attach point as written, in parts between colons; quotes are removed, and a part may contain
 * colons if it was quoted. `provider` is the full name: "k" has become "kprobe", and "begin" and
 * "end" "BEGIN" and "END".
 */
#define TRACE_POINT_PARTS 4
struct trace_point {
	struct trace_at at;
	const char *text; /* as written, without spaces around it */
	const char *provider;
	const char *parts[TRACE_POINT_PARTS]; /* after the provider */
	u32 n_parts;
	bool is_return_insn; /* uretprobe at an instruction that returns: FUNCTION+OFFSET */
	bool is_place;	     /* one of several of a point, whose name they share */
};

/* Attach points with one action. */
struct trace_probe {
	struct trace_at at;
	vec(struct trace_point) points;
	struct trace_expr *predicate; /* or NULL */
	struct trace_block *body;
};

/* A member of a struct that the script defines in C. */
struct trace_member {
	struct trace_at at;
	const char *name;
	struct trace_type_name type;
	u32 bits; /* of a bit field; 0: none */
};

struct trace_struct {
	struct trace_at at;
	const char *name; /* "struct x", "union x", or "enum x" */
	bool is_union, is_enum, is_packed;
	vec(struct trace_member) members;
	/* enum: names and values */
	vec(struct trace_constant {
		const char *name;
		s64 value;
	}) constants;
};

/* config = { name = value; } */
struct trace_setting {
	struct trace_at at;
	const char *name;
	struct trace_text value; /* numbers as text */
};

/* let @name = lruhash(100); */
struct trace_map_declaration {
	struct trace_at at;
	const char *name; /* without the @ */
	const char *type; /* "hash", "lruhash", "percpuhash", "percpulruhash" */
	u64 max_entries;
};

struct trace_script {
	const char *file; /* for errors; "": given with -e. Borrowed */
	const char *text; /* the source, for the line that an error shows. Borrowed */
	size_t n_text;
	struct arena arena;
	vec(struct trace_probe) probes;
	vec(struct trace_struct) structs;
	vec(struct trace_setting) settings;
	vec(struct trace_map_declaration) maps;
	vec(const char *)
		headers; /* of #include, as written: <linux/sched.h>. Nothing reads them */
};
