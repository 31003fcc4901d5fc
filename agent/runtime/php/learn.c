/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns from a binary of PHP: its version, the code of its interpreter's loop, and the offsets of
 * what the walker reads. The offsets are those that functions of PHP's API use, executed
 * symbolically: the functions return what the walker is looking for.
 *
 *	get_active_function_name()	executor_globals → frame → function → name → text
 *	get_active_class_name()		the same; function → class → name
 *	zend_get_executed_filename_ex()	function → file
 *	zend_get_executed_lineno()	frame → instruction → line, and the first instruction
 *	zend_generator_check_placeholder_frame()	generator → frame, generator → parent
 *	zend_fiber_switch_context()	executor_globals → the running context
 *	tsrm_get_ls_cache()		thread → its memory for PHP, in thread-safe builds
 *
 * Without thread-safety, executor_globals is a variable. With it, each thread's executor_globals
 * are in the thread's memory for PHP, at the offset that executor_globals_offset holds.
 *
 * The offsets in abi/runtime_php.h are the same in all versions so far; a binary in which they
 * differ is refused.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/runtime/binary.h"
#include "agent/runtime/php/php.h"
#include "base/str.h"
#include "disasm/exec.h"

#define MAX_LOOP_BYTES (4u << 20)
#define MAX_OFFSET 8192 /* offsets in PHP's structs are smaller */

static const char loop_name[] = "execute_ex";

bool php_is_name(const char *path)
{
	return strstr(runtime_file_name(path), "php");
}

bool php_has_loop(struct elf_file *elf)
{
	u64 svma;

	return runtime_symbol(elf, loop_name, &svma, NULL);
}

/* The header that every answer of a server with PHP has (main/SAPI.h). */
static int find_version(struct elf_file *elf, struct php_learned *l, struct diag *d)
{
	static const char mark[] = "X-Powered-By: PHP/";
	u32 major = 0, minor = 0;
	struct buf bytes;
	const char *at;
	size_t n = 0, left;

	if (elf_file_section(elf, ".rodata", NULL, &bytes) < 0 ||
	    !(at = memmem(bytes.pos, buf_left(&bytes), mark, sizeof(mark) - 1)))
		return diag_set(d, -ENOTSUP, "its version is not found");
	at += sizeof(mark) - 1;
	left = buf_left(&bytes) - (size_t)(at - (const char *)bytes.pos);
	while (n < left && n < sizeof(l->text) - 1 && at[n] > ' ' && at[n] < 0x7f) {
		l->text[n] = at[n];
		n++;
	}
	l->text[n] = 0;
	if (sscanf(l->text, "%2u.%2u", &major, &minor) != 2)
		return diag_set(d, -ENOTSUP, "its version \"%s\" is not understood", l->text);
	l->version = major << 8 | minor;
	return 0;
}

/* ---- offsets ---- */

/* What the functions tell. `symbol` numbers are of the run that is going on. */
struct reader {
	struct runtime_code code;
	struct php_learned *l;
	/* Offsets; ~0 until they are known. */
	u32 function, name, scope, text, class_name, previous, opline, line, opcodes, filename;
	u32 before_throw, object, generator_frame, generator_parent;
	u32 fiber;
	u32 current; /* current_execute_data, in executor_globals */
};

/* Whether a value is the offset of executor_globals, which a thread-safe build reads. */
static bool is_offset(const struct reader *r, const struct exec *x, const struct exec_term *term)
{
	const struct exec_symbol *s = &x->symbols[term->symbol];
	u64 address;

	return term->factor == 1 && s->kind == EXEC_LOAD && s->size == 8 &&
	       exec_is_constant(&s->at, &address) && address == r->l->globals;
}

/*
 * Whether the value is the address of a field of executor_globals. In a thread-safe build: the
 * result of tsrm_get_ls_cache(), or the variable of the thread that this function returns, + the
 * offset of executor_globals + the field's.
 */
static bool is_global(const struct reader *r, const struct exec *x, const struct exec_value *v,
		      u32 *ret_offset)
{
	u64 offset = v->constant;
	u32 n = 0;

	if (r->l->memory.kind) {
		if (!v->known || v->n != 2)
			return false;
		for (u32 i = 0; i < v->n; i++)
			n += is_offset(r, x, &v->terms[i]);
		if (n != 1)
			return false;
	} else if (exec_is_constant(v, &offset)) {
		offset -= r->l->globals;
	} else {
		return false;
	}
	if (offset >= MAX_OFFSET)
		return false;
	*ret_offset = (u32)offset;
	return true;
}

/* Whether the value is `size` bytes at another value + an offset. */
static bool is_field(const struct exec *x, const struct exec_value *v, u8 size,
		     struct exec_value *ret_of, u32 *ret_offset)
{
	struct exec_value at;

	if (!exec_is_load(x, v, size, &at) || !at.n || at.constant >= MAX_OFFSET)
		return false;
	*ret_offset = (u32)at.constant;
	*ret_of = at;
	ret_of->constant = 0;
	return true;
}

/* Whether the value is a frame of the list: the current one, or one that a frame leads to. */
static bool is_frame(struct reader *r, const struct exec *x, const struct exec_value *v)
{
	struct exec_value at, of;
	u32 offset;

	if (!exec_is_load(x, v, 8, &at))
		return false;
	if (is_global(r, x, &at, &offset))
		return offset == r->current;
	if (!is_field(x, v, 8, &of, &offset) || offset == r->function || !is_frame(r, x, &of))
		return false;
	r->previous = offset;
	return true;
}

/* Whether the value is the function of a frame. */
static bool is_function(struct reader *r, const struct exec *x, const struct exec_value *v)
{
	struct exec_value of;
	u32 offset;

	return is_field(x, v, 8, &of, &offset) && offset == r->function && is_frame(r, x, &of);
}

/* Text of a zend_string: the string + an offset. */
static bool is_text(struct reader *r, const struct exec_value *v, struct exec_value *ret_string)
{
	if (!v->known || v->n != 1 || !v->constant || v->constant >= MAX_OFFSET)
		return false;
	r->text = (u32)v->constant;
	*ret_string = *v;
	ret_string->constant = 0;
	return true;
}

static bool on_function_name(void *arg, const struct exec *x, enum exec_event event,
			     const struct exec_value *v)
{
	struct exec_value string, function, frame, at;
	struct reader *r = arg;
	u32 offset;

	if (event != EXEC_RETURNS || !is_text(r, v, &string) ||
	    !is_field(x, &string, 8, &function, &r->name) ||
	    !is_field(x, &function, 8, &frame, &offset) || !exec_is_load(x, &frame, 8, &at) ||
	    !is_global(r, x, &at, &r->current))
		return false;
	r->function = offset;
	return true;
}

static bool on_class_name(void *arg, const struct exec *x, enum exec_event event,
			  const struct exec_value *v)
{
	struct exec_value string, class, function;
	struct reader *r = arg;

	return event == EXEC_RETURNS && is_text(r, v, &string) &&
	       is_field(x, &string, 8, &class, &r->class_name) &&
	       is_field(x, &class, 8, &function, &r->scope) && is_function(r, x, &function);
}

static bool on_filename(void *arg, const struct exec *x, enum exec_event event,
			const struct exec_value *v)
{
	struct exec_value function;
	struct reader *r = arg;
	u32 offset;

	if (event != EXEC_RETURNS || !is_field(x, v, 8, &function, &offset) ||
	    !is_function(r, x, &function))
		return false;
	r->filename = offset;
	return false;
}

static bool on_line(void *arg, const struct exec *x, enum exec_event event,
		    const struct exec_value *v)
{
	struct exec_value opline, of, at;
	struct reader *r = arg;
	u32 line, offset;

	if (event != EXEC_RETURNS || !is_field(x, v, 4, &opline, &line) ||
	    !exec_is_load(x, &opline, 8, &at))
		return false;
	if (is_global(r, x, &at, &offset)) {
		r->before_throw = offset;
		return false;
	}
	if (!is_field(x, &opline, 8, &of, &offset))
		return false;
	if (is_frame(r, x, &of)) {
		r->opline = offset;
		r->line = line;
	} else if (is_function(r, x, &of)) {
		r->opcodes = offset;
	}
	return false;
}

static bool on_generator(void *arg, const struct exec *x, enum exec_event event,
			 const struct exec_value *v)
{
	struct exec_value generator, of;
	struct reader *r = arg;
	u32 frame, offset, object;

	if (event != EXEC_RETURNS || !is_field(x, v, 8, &generator, &frame) ||
	    !is_field(x, &generator, 8, &of, &offset))
		return false;
	if (of.n == 1 && exec_factor(x, &of, EXEC_ARG, NULL) == 1) {
		r->object = offset;
		r->generator_frame = frame;
	} else if (is_field(x, &of, 8, &of, &object) && of.n == 1 &&
		   exec_factor(x, &of, EXEC_ARG, NULL) == 1) {
		r->generator_parent = offset;
	}
	return false;
}

/* It tells observers of the running context, which is the first argument. */
static bool on_fiber(void *arg, const struct exec *x, enum exec_event event,
		     const struct exec_value *v)
{
	struct reader *r = arg;
	struct exec_value at;

	return event == EXEC_CALLS && exec_is_load(x, v, 8, &at) && is_global(r, x, &at, &r->fiber);
}

static void run(struct reader *r, const char *name,
		bool (*event)(void *arg, const struct exec *x, enum exec_event event,
			      const struct exec_value *value))
{
	struct exec_program p = {
		.code = runtime_code_at, .constant = runtime_constant_at, .event = event, .arg = r};
	u64 at;

	if (runtime_symbol(r->code.elf, name, &at, NULL))
		(void)exec_run(&p, r->code.elf->machine, at);
}

/* The offset of the first instruction: before 8.0 no function of the API shows it. */
static u32 opcodes_of_version(u32 version)
{
	return version == 0x0704 ? 72 : 0;
}

static void take_generators(const struct reader *r, struct php_binary *b)
{
	if (r->object != PHP_FRAME_THIS || r->generator_frame == ~0u ||
	    r->generator_parent == ~0u ||
	    !runtime_symbol(r->code.elf, "zend_ce_generator", &b->generator_class, NULL))
		return;
	b->generator_frame = r->generator_frame;
	b->generator_parent = r->generator_parent;
}

/* sizeof(zend_fiber_context), which `caller` of zend_fiber follows (Zend/zend_fibers.h). */
static u32 fiber_caller_of_version(u32 version)
{
	return version == 0x0801 ? 88 : version > 0x0801 && version <= 0x0805 ? 104 : 0;
}

static void take_fibers(const struct reader *r, struct php_binary *b)
{
	if (r->fiber == ~0u || !runtime_symbol_range(r->code.elf, "make_fcontext", &b->fiber_end))
		return;
	b->fiber = r->fiber;
	b->fiber_caller = fiber_caller_of_version(r->l->version);
}

static int find_offsets(struct elf_file *elf, struct php_learned *l, struct diag *d)
{
	struct php_binary *b = &l->bpf;
	struct reader r;

	memset(&r, 0xff, sizeof(r));
	r.code.elf = elf;
	r.l = l;
	run(&r, "get_active_function_name", on_function_name);
	if (r.current == ~0u)
		return diag_set(d, -ENOTSUP,
				"PHP %s: the code of get_active_function_name is not understood",
				l->text);
	run(&r, "get_active_class_name", on_class_name);
	run(&r, "zend_get_executed_filename_ex", on_filename);
	run(&r, "zend_get_executed_lineno", on_line);
	run(&r, "zend_generator_check_placeholder_frame", on_generator);
	if (r.function != PHP_FRAME_FUNCTION || r.name != PHP_FUNCTION_NAME ||
	    r.scope != PHP_FUNCTION_SCOPE || r.previous != PHP_FRAME_PREVIOUS ||
	    r.opline != PHP_FRAME_OPLINE || r.line != PHP_OP_LINE || r.class_name == ~0u ||
	    r.text != PHP_STRING_BYTES)
		return diag_set(d, -ENOTSUP, "PHP %s: the layout of its frames is not known",
				l->text);
	if (r.opcodes == ~0u)
		r.opcodes = opcodes_of_version(l->version);
	if (r.filename % 8 || r.filename > PHP_FUNCTION_BYTES - 16 || !r.opcodes || r.opcodes % 8 ||
	    r.opcodes > PHP_FUNCTION_BYTES - 8)
		return diag_set(d, -ENOTSUP, "PHP %s: the layout of its functions is not known",
				l->text);
	b->current = r.current;
	b->before_throw = r.before_throw == ~0u ? 0 : r.before_throw;
	b->filename = r.filename;
	b->opcodes = r.opcodes;
	l->class_name = r.class_name;
	l->string_text = r.text;
	take_generators(&r, b);
	(void)runtime_symbol(elf, "zend_flf_functions", &b->frameless, NULL);
	run(&r, "zend_fiber_switch_context", on_fiber);
	take_fibers(&r, b);
	return 0;
}

/* ---- the loop ---- */

struct sweep {
	struct php_binary *b;
	struct runtime_away away;
};

/* Finds the jumps out of the loop, and its first jump to an instruction's code. */
static bool sweep_insn(void *arg, u64 svma, const u8 *bytes, const struct disasm_insn *insn)
{
	struct sweep *s = arg;

	runtime_note_away(&s->away, &s->b->loops[0], insn);
	if (insn->flow == DISASM_INDIRECT && !s->b->jit_pc)
		s->b->jit_pc = svma + insn->length;
	return false;
}

static int find_loop(struct elf_file *elf, struct php_learned *l, struct diag *d)
{
	struct php_binary *b = &l->bpf;
	struct sweep s = {.b = b};
	int r;

	if (!runtime_symbol_range(elf, loop_name, &b->loops[0]) ||
	    b->loops[0].end - b->loops[0].start > MAX_LOOP_BYTES)
		return diag_set(d, -ENOTSUP, "%s is not among its symbols", loop_name);
	r = runtime_sweep(elf, &b->loops[0], sweep_insn, &s);
	if (r < 0)
		return diag_set(d, r, "the code of %s cannot be read", loop_name);
	b->n_loops = runtime_add_parts(elf, &s.away, b->loops, PHP_MAX_LOOPS);
	return 0;
}

/* ---- executor_globals ---- */

struct memory_reader {
	struct runtime_code code;
	struct runtime_tls tls;
};

static bool on_memory(void *arg, const struct exec *x, enum exec_event event,
		      const struct exec_value *v)
{
	struct memory_reader *r = arg;

	return event == EXEC_CALLS ? runtime_is_key(x, v, &r->tls) : runtime_is_tls(x, v, &r->tls);
}

static int find_globals(struct elf_file *elf, struct php_learned *l, struct diag *d)
{
	struct memory_reader r = {.code.elf = elf};
	struct exec_program p = {.code = runtime_code_at,
				 .constant = runtime_constant_at,
				 .event = on_memory,
				 .arg = &r};
	u64 at;

	if (runtime_symbol(elf, "executor_globals", &l->globals, NULL))
		return 0;
	if (!runtime_symbol(elf, "executor_globals_offset", &l->globals, NULL) ||
	    !runtime_symbol(elf, "tsrm_get_ls_cache", &at, NULL))
		return diag_set(d, -ENOTSUP, "PHP %s: executor_globals is not among its symbols",
				l->text);
	if (exec_run(&p, elf->machine, at) < 0 || !r.tls.kind)
		return diag_set(d, -ENOTSUP,
				"PHP %s: the code of tsrm_get_ls_cache is not understood", l->text);
	l->memory = r.tls;
	return 0;
}

int php_learn(struct elf_file *elf, struct php_learned *ret, struct diag *reterr_diag)
{
	int r = find_version(elf, ret, reterr_diag);

	if (r < 0)
		return r;
	r = find_globals(elf, ret, reterr_diag);
	if (r == 0)
		r = find_offsets(elf, ret, reterr_diag);
	return r < 0 ? r : find_loop(elf, ret, reterr_diag);
}
