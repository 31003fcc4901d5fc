/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names functions. A function has no name of its own: like debug.traceback(), culprit takes the
 * name that the caller's call instruction has for it, a global, a field, a local variable. All of
 * this is memory of the process: sizes are bounded, and the words that form the cookie must equal
 * those that the walker saw.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/lua/lua.h"
#include "agent/runtime/lua/text.h"
#include "base/cleanup.h"

#define MAX_CODE (1u << 20) /* instructions of a function */
#define MAX_BACK 1024	    /* instructions before a call that are searched for the name */
#define MAX_VARIABLES 4096
#define MAX_LINES (1u << 20)
#define PROTO_51_PROTOS 32    /* in a Proto of 5.1: the functions in it, */
#define PROTO_51_UPVALUES 112 /* and a byte: the number of its upvalues */
#define TYPE_STRING 4
#define TYPE_LONG_STRING 0x14

struct reader {
	const struct runtime_memory *m;
	const struct lua_learned *l;
	struct arena *arena;
};

/* A Proto, and where in it the current instruction is. */
struct place {
	u8 proto[LUA_PROTO_BYTES];
	u32 n; /* the instruction before the n-th is the current one; LUA_NO_POSITION: unknown */
};

static u64 proto_u64(const struct place *p, u32 off)
{
	u64 v = 0;

	if (off + 8 <= LUA_PROTO_BYTES)
		memcpy(&v, p->proto + off, 8);
	return v;
}

static u32 proto_u32(const struct place *p, u32 off)
{
	return (u32)proto_u64(p, off);
}

/* The number of the current instruction; false: it is unknown. */
static bool current(const struct reader *r, const struct place *p, u32 *ret)
{
	if (p->n == LUA_NO_POSITION || !p->n || p->n > proto_u32(p, r->l->bpf.proto_n_code))
		return false;
	*ret = p->n - 1;
	return true;
}

/* ---- texts ---- */

static int read_string(const struct reader *r, u64 at, const char **ret)
{
	u8 head[32];
	u64 n, text = at + r->l->objects.string_data;

	if (runtime_read(r->m, at, head, sizeof(head)) < 0)
		return -EFAULT;
	if ((head[8] & 0xf) != TYPE_STRING)
		return -ESTALE;
	memcpy(&n, head + 16, 8);
	if (r->l->version > 0x0501 && head[8] != TYPE_LONG_STRING)
		n = head[11];
	else if (r->l->version >= 0x0505)
		memcpy(&text, head + 24, 8);
	return lua_text(r->m, text, n, r->arena, ret);
}

/* The constant with an index, if it is a string. */
static int constant(const struct reader *r, const struct place *p, u32 index, const char **ret)
{
	u64 value[2];

	if (runtime_read(r->m, proto_u64(p, r->l->objects.proto_k) + 16ULL * index, value,
			 sizeof(value)) < 0)
		return -EFAULT;
	return (value[1] & 0xf) == TYPE_STRING ? read_string(r, value[0], ret) : -ENOENT;
}

static int upvalue(const struct reader *r, const struct place *p, u32 index, const char **ret)
{
	const struct lua_objects *o = &r->l->objects;
	bool failed = false;
	u64 name;

	if (index >= proto_u32(p, o->proto_n_upvalues))
		return -ENOENT;
	name = runtime_u64(r->m, proto_u64(p, o->proto_upvalues) + (u64)o->upvalue_bytes * index,
			   &failed);
	return failed || !name ? -ENOENT : read_string(r, name, ret);
}

/* The local variable in a register. Names of variables that the compiler makes begin with "(". */
static int variable(const struct reader *r, const struct place *p, u32 pc, u32 reg,
		    const char **ret)
{
	struct {
		u64 name;
		u32 start, end;
	} * all;
	_cleanup_free_ void *memory = NULL;
	u32 n = MIN(proto_u32(p, r->l->objects.proto_n_variables), (u32)MAX_VARIABLES);
	const char *name;
	int e;

	if (!n)
		return -ENOENT;
	memory = all = malloc(n * sizeof(*all));
	if (!all)
		return -ENOMEM;
	if (runtime_read(r->m, proto_u64(p, r->l->objects.proto_variables), all, n * sizeof(*all)) <
	    0)
		return -EFAULT;
	for (u32 i = 0; i < n && all[i].start <= pc; i++) {
		if (pc >= all[i].end || reg--)
			continue;
		e = read_string(r, all[i].name, &name);
		if (e == 0 && *name == '(')
			e = -ENOENT;
		if (e == 0)
			*ret = name;
		return e;
	}
	return -ENOENT;
}

/* ---- instructions ---- */

struct insn {
	u32 op, a, b, c, bx;
	bool k; /* C is the number of a constant */
};

static struct insn decode(const struct lua_ops *ops, u32 word)
{
	struct insn i;

	if (ops->wide) {
		i = (struct insn){.op = word & 127,
				  .a = word >> 7 & 255,
				  .b = word >> 16 & 255,
				  .c = word >> 24,
				  .k = word >> 15 & 1};
		return i;
	}
	i = (struct insn){.op = word & 63,
			  .a = word >> 6 & 255,
			  .b = word >> 23,
			  .c = word >> 14 & 511,
			  .bx = word >> 14};
	i.k = i.c & 256;
	i.c &= 255;
	return i;
}

static bool has(const u64 set[2], u32 op)
{
	return set[op / 64 & 1] >> (op % 64) & 1;
}

/* The key of an instruction that reads a table. */
static int key_of(const struct reader *r, const struct place *p, const struct insn *i,
		  const char **ret)
{
	const struct lua_ops *ops = r->l->ops;

	if (r->l->version == 0x0501 && i->op == ops->get_global)
		return constant(r, p, i->bx, ret);
	if (i->k || i->op == ops->get_field || (ops->wide && i->op == ops->get_global))
		return constant(r, p, i->c, ret);
	return -ENOENT;
}

/* The target of a jump; 0: the instruction is no jump. */
static s64 jump_target(const struct lua_ops *ops, u32 word, u32 pc)
{
	if ((word & (ops->wide ? 127 : 63)) != ops->jump)
		return 0;
	return (s64)pc + 1 +
	       (ops->wide ? (s64)(word >> 7) - 0xffffff : (s64)(word >> 14) - 0x1ffff);
}

/*
 * Whether a jump passes instruction `set` and leads to a place before `pc`: the register that `set`
 * writes may have another value at pc. `code` begins with `from`.
 */
static bool is_conditional(const struct lua_ops *ops, const u32 *code, u32 from, u32 set, u32 pc)
{
	for (u32 i = from; i < set; i++) {
		s64 to = jump_target(ops, code[i - from], i);

		if (to > set && to <= pc)
			return true;
	}
	return false;
}

/*
 * 5.1 has words that are no instructions: one for each upvalue of a function that is made, and the
 * operand of a long list. Replaces them by instructions that write nothing.
 */
static void hide_operands(const struct reader *r, const struct place *p, u32 *code, u32 n)
{
	const struct lua_ops *ops = r->l->ops;
	const u32 none = ops->jump | 0x1ffffu << 14; /* a jump to the next instruction */

	for (u32 i = 0; i < n; i++) {
		struct insn insn = decode(ops, code[i]);
		bool failed = false;
		u8 operands = 0;
		u64 proto;

		if (insn.op == ops->set_list)
			operands = !insn.c && !insn.k;
		if (insn.op == ops->closure) {
			proto = runtime_u64(r->m, proto_u64(p, PROTO_51_PROTOS) + 8ULL * insn.bx,
					    &failed);
			if (failed ||
			    runtime_read(r->m, proto + PROTO_51_UPVALUES, &operands, 1) < 0)
				operands = 0;
		}
		while (operands-- && i + 1 < n)
			code[++i] = none;
	}
}

/* The name of what a register holds before instruction `pc`; `code` begins with `from`. */
static int register_name(const struct reader *r, const struct place *p, const u32 *code, u32 from,
			 u32 pc, u32 reg, const char **ret)
{
	const struct lua_ops *ops = r->l->ops;
	int e = variable(r, p, pc, reg, ret);

	if (e != -ENOENT)
		return e;
	for (u32 end = pc; pc-- > from;) {
		struct insn i = decode(ops, code[pc - from]);

		if (has(ops->writes_from, i.op) ? reg < i.a : !has(ops->writes, i.op) || reg != i.a)
			continue;
		if (is_conditional(ops, code, from, pc, end))
			return -ENOENT;
		/* A method call writes the function and the object. */
		if (i.op == ops->self && i.a == reg)
			return key_of(r, p, &i, ret);
		if (i.op == ops->move) {
			reg = i.b;
			end = pc;
			e = variable(r, p, pc, reg, ret);
			if (e != -ENOENT)
				return e;
			continue;
		}
		if (i.op == ops->get_upvalue)
			return upvalue(r, p, i.b, ret);
		if (i.op == ops->get_global || i.op == ops->get_table || i.op == ops->get_field)
			return key_of(r, p, &i, ret);
		return -ENOENT;
	}
	return -ENOENT;
}

static int event_name(const struct lua_ops *ops, const struct insn *i, const char **ret)
{
	/* ltm.h of 5.4, from TM_ADD on */
	static const char *const binary[] = {"__add", "__sub",	"__mul",  "__mod",
					     "__pow", "__div",	"__idiv", "__band",
					     "__bor", "__bxor", "__shl",  "__shr"};

	for (const struct lua_event *e = ops->events; e->from != 255; e++) {
		if (i->op < e->from || i->op > e->to)
			continue;
		if (!e->name && (i->c < 6 || i->c - 6 >= ARRAY_SIZE(binary)))
			return -ENOENT;
		*ret = e->name ? e->name : binary[i->c - 6];
		return 0;
	}
	return -ENOENT;
}

/* The name that the current instruction has for the function that it calls. -ENOENT: none. */
static int callee(const struct reader *r, const struct place *p, const char **ret)
{
	const struct lua_ops *ops = r->l->ops;
	u32 code[MAX_BACK + 1], pc, from;
	struct insn call;

	if (!current(r, p, &pc))
		return -ENOENT;
	from = pc > MAX_BACK ? pc - MAX_BACK : 0;
	if (runtime_read(r->m, proto_u64(p, r->l->bpf.proto_code) + 4ULL * from, code,
			 4 * (size_t)(pc - from + 1)) < 0)
		return -EFAULT;
	call = decode(ops, code[pc - from]);
	if (ops->closure)
		hide_operands(r, p, code, pc - from);
	if (call.op == ops->call || call.op == ops->tail_call)
		return register_name(r, p, code, from, pc, call.a, ret);
	if (call.op == ops->iterate) {
		*ret = "for iterator";
		return 0;
	}
	return event_name(ops, &call, ret);
}

/* ---- lines ---- */

#define NO_DIFFERENCE (-128)

u32 lua_line_of_differences(const s8 *by, u32 n_by, const struct lua_line_at *table, u32 n_table,
			    u32 first, u32 pc)
{
	s64 line = first;
	u32 from = 0;

	if (pc >= n_by)
		return 0;
	for (u32 i = 0; i < n_table && table[i].pc >= 0 && (u32)table[i].pc <= pc; i++) {
		line = table[i].line;
		from = (u32)table[i].pc + 1;
	}
	for (u32 i = from; i <= pc; i++)
		if (by[i] != NO_DIFFERENCE)
			line += by[i];
	return line > 0 && line <= INT32_MAX ? (u32)line : 0;
}

static u32 line_54(const struct reader *r, const struct place *p, u32 first, u32 pc)
{
	const struct lua_objects *o = &r->l->objects;
	u32 n_table = proto_u32(p, o->proto_n_abs_lines), n = pc + 1;
	_cleanup_free_ s8 *by = NULL;
	_cleanup_free_ struct lua_line_at *table = NULL;

	if (n > MAX_LINES || n_table > MAX_LINES)
		return 0;
	by = malloc(n);
	table = calloc(n_table + 1, sizeof(*table));
	if (!by || !table || runtime_read(r->m, proto_u64(p, o->proto_lines), by, n) < 0 ||
	    (n_table && runtime_read(r->m, proto_u64(p, o->proto_abs_lines), table,
				     n_table * sizeof(*table)) < 0))
		return 0;
	return lua_line_of_differences(by, n, table, n_table, first, pc);
}

static u32 line_of(const struct reader *r, const struct place *p, u32 first)
{
	u64 lines = proto_u64(p, r->l->objects.proto_lines);
	bool failed = false;
	u32 pc, line;

	/* A program whose debug information is stripped has no lines. */
	if (!current(r, p, &pc) || !lines)
		return 0;
	if (r->l->version >= 0x0504)
		return line_54(r, p, first, pc);
	line = runtime_u32(r->m, lines + 4ULL * pc, &failed);
	return failed || line > INT32_MAX ? 0 : line;
}

/* ---- frames ---- */

/* Reads the function of a frame, and checks that it is the one that the walker saw. */
static int read_place(const struct reader *r, u64 address, u64 where, struct place *ret)
{
	const struct lua_binary *b = &r->l->bpf;
	u64 lines;

	if (runtime_read(r->m, address, ret->proto, sizeof(ret->proto)) < 0)
		return -EFAULT;
	ret->n = (u32)where;
	lines = proto_u64(ret, b->proto_lines);
	if (where >> LUA_COOKIE_SHIFT !=
	    lua_cookie(proto_u64(ret, b->proto_source), lines, proto_u32(ret, b->proto_n_code)) >>
		    LUA_COOKIE_SHIFT)
		return -ESTALE;
	return proto_u32(ret, b->proto_n_code) <= MAX_CODE && (u32)lines <= INT32_MAX ? 0 : -ESTALE;
}

static int name_lua(const struct reader *r, const struct place *p, struct runtime_frame *f)
{
	const char *chunk = "=?";
	u64 source = proto_u64(p, r->l->bpf.proto_source);
	int e = source ? read_string(r, source, &chunk) : 0;

	if (e < 0)
		return e;
	f->start_line = proto_u32(p, r->l->bpf.proto_lines);
	f->line = line_of(r, p, f->start_line);
	f->file = lua_file(chunk, r->arena);
	if (f->file && !f->function)
		f->function = lua_unnamed(f->file, f->start_line, r->arena);
	return f->function ? 0 : -ENOMEM;
}

int lua_name(const struct runtime_memory *m, const struct lua_learned *l, u64 address, u64 where,
	     struct runtime_names *ret)
{
	struct reader r = {m, l, ret->arena};
	struct runtime_frame f = {};
	struct place place, caller;
	int e = 0;

	if (where & LUA_NAMED && ret->caller &&
	    (ret->caller_where >> LUA_KIND_SHIFT & LUA_KIND_MASK) == LUA_LUA &&
	    read_place(&r, ret->caller, ret->caller_where, &caller) == 0 &&
	    callee(&r, &caller, &f.function) == -ENOMEM)
		return -ENOMEM;
	if ((where >> LUA_KIND_SHIFT & LUA_KIND_MASK) == LUA_C) {
		f.file = "[C]";
		if (!f.function)
			f.function = "?";
	} else {
		e = read_place(&r, address, where, &place);
		if (e == 0)
			e = name_lua(&r, &place, &f);
	}
	ret->frames[0] = f;
	ret->n = e == 0;
	return e;
}
