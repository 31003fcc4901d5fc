/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * PHP's frames. Each call of the interpreter's loop is a native frame; code of the JIT runs in that
 * native frame. Before the walk unwinds it, the walker pushes the PHP frames that the call runs
 * (abi/runtime_php.h: a segment), so that C code between PHP code is in its place.
 *
 * Nothing in the loop's native frame says which segment is its own. But the first function of a
 * segment writes its result to a variable of the C code that has called it, and that variable is
 * above the loop's native frame and below the next one. The walker compares these addresses:
 *
 *	below this call of the loop	the segment's call has not begun: the next segment is ours
 *	above the next call of the loop	the segment was not this call's, which has just left its
 *					last function: the walk goes back to this call, without it
 *
 * PHP may have freed, or may be about to fill, anything that the walker reads: user space checks
 * each function by the cookie, and the walker follows a bounded number of pointers per call.
 */
#pragma once

#include "abi/runtime_php.h"
#include "bpf/unwind/runtime.h"

#define PHP_FRAMES_PER_CALL 8
#define PHP_MAX_DELEGATES 16 /* generators that wait for each other by `yield from` */
/* The kernel maps nothing else in so many bytes below the start of the main thread's stack. */
#define PHP_MAIN_STACK (64ULL << 20)

/* Registers that the code of the loop and of the JIT keeps (Zend/zend_execute.c). */
#if UNWIND_REG_FP == 6
#define PHP_REG_FRAME 14
#define PHP_REG_OPLINE 15
#define PHP_FIBER_FP PHP_FIBER_X86_FP
#define PHP_FIBER_PC PHP_FIBER_X86_PC
#define PHP_FIBER_SP PHP_FIBER_X86_SP
#else
#define PHP_REG_FRAME 27
#define PHP_REG_OPLINE 28
#define PHP_FIBER_FP PHP_FIBER_ARM_FP
#define PHP_FIBER_PC PHP_FIBER_ARM_PC
#define PHP_FIBER_SP PHP_FIBER_ARM_SP
#endif

struct php_walk {
	__u32 started; /* php_start() has run for this sample */
	__u32 inside;  /* the walker is inside a segment */
	__u32 empty;   /* the walk has gone back to this call of the loop: it has no segment */
	__u32 binary;  /* binary and bias are struct runtime_process's */
	__u64 bias;
	__u64 globals; /* executor_globals of the thread */
	__u64 frame;   /* the next frame of the list */
	__u64 leaf;    /* the frame whose current position is `opline`; 0: none */
	__u64 opline;
	__u64 last;   /* the frame that was pushed last */
	__u64 waits;  /* the generator that was resumed, while those that it waits for are pushed */
	__u64 result; /* where the first function of the last segment writes its result; or 0 */
	__u64 fiber;  /* the context whose stack the walk is on; 0: that of the running fiber */
	__u32 has_segment; /* the last call of the loop has a segment */
	__u32 pad;
};
_Static_assert(sizeof(struct php_walk) <= sizeof(struct runtime_walk), "php_walk");

/*
 * Copies of objects of the process, and the walk before the last segment; too large for the BPF
 * stack. One entry for each level.
 */
struct php_buffer {
	__u64 frame[PHP_FRAME_BYTES / 8];
	__u64 function[PHP_FUNCTION_WORDS];
	__u64 text[PHP_TEXT_WORDS];
	struct walk_regs regs;
	__u64 hash;
	__u64 first; /* the segment's first frame */
	__u64 last;
	__u64 waits;
	__u64 fiber;
	__u32 n;
	__u32 runtime_frames;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SAMPLE_LEVELS);
	__type(key, __u32);
	__type(value, struct php_buffer);
} php_buffers SEC(".maps");

/* The arguments of most functions here. */
struct php_env {
	struct scratch *s;
	struct php_buffer *f;
	struct php_walk *w;
	const struct php_binary *b;
};

/*
 * Finds the data of the walk in progress. Each global function starts with this, because the
 * verifier checks a global function on its own.
 */
static __always_inline bool php_env(struct php_env *ret)
{
	const struct runtime_binary *binary;
	__u32 level = scratch_level();

	ret->s = scratch_get();
	ret->f = bpf_map_lookup_elem(&php_buffers, &level);
	if (!ret->s || !ret->f)
		return false;
	ret->w = (struct php_walk *)&ret->s->runtime[RUNTIME_PHP];
	binary = bpf_map_lookup_elem(&runtime_binaries, &ret->w->binary);
	if (!binary)
		return false;
	ret->b = (const struct php_binary *)binary->room;
	return true;
}

static __always_inline __u64 php_function_word(const struct php_buffer *f, __u32 off)
{
	return f->function[walk_bound(off / 8, PHP_FUNCTION_WORDS - 1)];
}

/* Starts the walker at a sample's first frame in PHP; false: the process is unknown. */
__noinline int php_start(void)
{
	const struct runtime_process *process;
	const struct php_process *own;
	struct scratch *s = scratch_get();
	struct php_env e;
	__u64 memory;

	process = s ? runtime_process(s, RUNTIME_PHP) : NULL;
	if (!process)
		return false;
	e.w = (struct php_walk *)runtime_state(s, RUNTIME_PHP);
	e.w->binary = process->binary;
	e.w->bias = process->bias;
	if (!php_env(&e))
		return false;
	e.w->started = 1;
	own = (const struct php_process *)process->room;
	e.w->globals = own->globals;
	if (own->memory.n) {
		memory = runtime_follow(&own->memory, s->first.tls);
		if (!memory)
			return false; /* not a thread of PHP */
		e.w->globals += memory;
	}
	e.w->frame = runtime_word(e.w->globals + e.b->current);
	if (s->first.full && s->first.r[PHP_REG_FRAME] == e.w->frame) {
		e.w->leaf = e.w->frame;
		e.w->opline = s->first.r[PHP_REG_OPLINE];
	}
	return true;
}

/* The line and the code of an instruction: line | code << 32. */
static __always_inline __u64 php_op(const struct php_env *e, __u64 opline)
{
	__u64 op = runtime_word(opline + PHP_OP_LINE);

	if ((op >> 32 & 0xff) == PHP_OP_EXCEPTION && e->b->before_throw)
		op = runtime_word(runtime_word(e->w->globals + e->b->before_throw) + PHP_OP_LINE);
	return op;
}

/* The line of an instruction, if it is a line of the function in e->f; else 0. */
static __always_inline __u32 php_line(const struct php_env *e, __u64 op)
{
	__u64 lines = php_function_word(e->f, e->b->filename + 8);

	return (__u32)op >= (__u32)lines && (__u32)op <= lines >> 32 ? (__u32)op : 0;
}

/*
 * The instruction at which the frame in e->f is; `at` is the frame's address. The frame has the
 * last instruction that may have called something.
 */
static __always_inline __u64 php_position(const struct php_env *e, __u64 at)
{
	__u64 off = e->w->opline - php_function_word(e->f, e->b->opcodes);

	if (at == e->w->leaf && off < PHP_OP_BYTES << 20 && !(off % PHP_OP_BYTES) &&
	    php_line(e, php_op(e, e->w->opline)))
		return e->w->opline;
	return e->f->frame[PHP_FRAME_OPLINE / 8];
}

/* How the code of a file came to run: by the statement at which its caller is. */
static __always_inline __u32 php_code_kind(const struct php_env *e)
{
	__u64 caller = e->f->frame[PHP_FRAME_PREVIOUS / 8];
	__u64 opline = caller ? runtime_word(caller + PHP_FRAME_OPLINE) : 0;
	__u64 code = opline ? runtime_word(opline + PHP_OP_LINE) >> 32 : 0;
	__u32 how = opline ? (__u32)runtime_word(opline + PHP_OP_EXTENDED) : 0;

	if ((code & 0xff) != PHP_OP_INCLUDE)
		return PHP_MAIN;
	return how == 1 << 1   ? PHP_INCLUDE
	       : how == 1 << 2 ? PHP_INCLUDE_ONCE
	       : how == 1 << 3 ? PHP_REQUIRE
	       : how == 1 << 4 ? PHP_REQUIRE_ONCE
			       : PHP_MAIN;
}

/* What identifies a string (php_text_id()); 0: it cannot be read. */
__noinline __u64 php_string_id(__u64 string)
{
	__u64 head[2], from = 0; /* hash and length */
	struct php_env e;
	__u32 n;

	if (!string || !php_env(&e) ||
	    bpf_probe_read_user(head, sizeof(head), (const void *)(string + PHP_STRING_HASH)) < 0)
		return 0;
	if (head[0])
		return head[0];
	__builtin_memset(e.f->text, 0, sizeof(e.f->text));
	n = sizeof(e.f->text);
	if (head[1] < sizeof(e.f->text))
		n = (__u32)head[1];
	else
		from = head[1] - sizeof(e.f->text);
	n = walk_bound(n, 2 * sizeof(e.f->text) - 1);
	if (n > sizeof(e.f->text) ||
	    bpf_probe_read_user(e.f->text, n, (const void *)(string + PHP_STRING_BYTES + from)) < 0)
		return 0;
	return php_text_id(0, head[1], e.f->text);
}

/* Pushes a frame of the function whose head is at `head`. False: the stack is full. */
static __always_inline bool php_push_words(const struct php_env *e, __u64 function,
					   const __u64 *head, __u64 file, __u32 kind, __u32 line)
{
	__u64 name = head[PHP_FUNCTION_NAME / 8];
	__u64 cookie = php_cookie(name, head[PHP_FUNCTION_SCOPE / 8], file, php_string_id(name),
				  php_string_id(file));

	return runtime_push(e->s, RUNTIME_PHP, function,
			    cookie << 32 | kind << PHP_KIND_SHIFT | (line & PHP_LINE_MASK));
}

/* Pushes the function of C code that an instruction calls without a frame. */
static __always_inline bool php_push_frameless(const struct php_env *e, __u64 opline, __u64 op)
{
	__u64 function = runtime_word(e->w->bias + e->b->frameless);
	__u64 head[PHP_FUNCTION_HEAD / 8];
	__u32 code = op >> 32 & 0xff;

	if (code < PHP_OP_FRAMELESS || code >= PHP_OP_FRAMELESS_END || !function)
		return true;
	function =
		runtime_word(function + 8 * (__u64)(__u32)runtime_word(opline + PHP_OP_EXTENDED));
	if (!function || bpf_probe_read_user(head, sizeof(head), (const void *)function) < 0)
		return true;
	return php_push_words(e, function, head, 0, PHP_NO_FILE, 0);
}

/*
 * Pushes the frame at `at`, which is in e->f->frame. Returns the type of its function; 0: it has
 * none, and nothing was pushed; negative: the stack is full, or memory cannot be read.
 */
static __always_inline int php_push(const struct php_env *e, __u64 at)
{
	struct php_buffer *f = e->f;
	__u64 function = f->frame[PHP_FRAME_FUNCTION / 8], opline, op;
	__u32 kind = 0, line = 0;
	__u8 type;

	if (bpf_probe_read_user(f->function, PHP_FUNCTION_BYTES, (const void *)function) < 0) {
		/* The function of C code may be the last object of a page. */
		if (bpf_probe_read_user(f->function, PHP_FUNCTION_HEAD, (const void *)function) < 0)
			return -STOP_BAD_READ;
		kind = PHP_NO_FILE;
	}
	type = (__u8)f->function[0];
	if (type == PHP_FUNCTION_INTERNAL && f->function[PHP_FUNCTION_NAME / 8])
		return php_push_words(e, function, f->function, 0, PHP_NO_FILE, 0)
			       ? PHP_FUNCTION_INTERNAL
			       : -STOP_TOO_DEEP;
	if (type != PHP_FUNCTION_USER && type != PHP_FUNCTION_EVAL)
		return 0;
	if (!kind) {
		opline = php_position(e, at);
		op = php_op(e, opline);
		line = php_line(e, op);
		if (e->b->frameless && line && !php_push_frameless(e, opline, op))
			return -STOP_TOO_DEEP;
	}
	if (type == PHP_FUNCTION_EVAL)
		kind |= PHP_EVAL;
	else if (f->frame[PHP_FRAME_INFO / 8] & PHP_CALL_CODE)
		kind |= php_code_kind(e);
	if (!php_push_words(e, function, f->function,
			    kind & PHP_NO_FILE ? 0 : php_function_word(f, e->b->filename), kind,
			    line))
		return -STOP_TOO_DEEP;
	e->w->last = at;
	return type;
}

static __always_inline bool php_read_frame(const struct php_env *e, __u64 at)
{
	return bpf_probe_read_user(e->f->frame, sizeof(e->f->frame), (const void *)at) == 0;
}

/*
 * Pushes one of the generators that wait by `yield from`: the one whose parent was pushed last. The
 * last is the one that was resumed. Returns WALK_GO or a stop reason.
 */
__noinline int php_delegate(void)
{
	struct php_env e;
	__u64 generator, parent, at;
	int r;

	if (!php_env(&e))
		return STOP_UNSUPPORTED;
	generator = e.w->waits;
	for (__u64 i = 0; i < PHP_MAX_DELEGATES; i++) {
		parent = runtime_word(generator + e.b->generator_parent);
		if (!parent)
			break;
		if (runtime_word(parent + e.b->generator_frame) != e.w->last) {
			generator = parent;
			continue;
		}
		if (generator == e.w->waits)
			e.w->waits = 0;
		at = runtime_word(generator + e.b->generator_frame);
		if (!at || !php_read_frame(&e, at))
			break;
		r = php_push(&e, at);
		return r < 0 ? -r : WALK_GO;
	}
	e.w->waits = 0;
	return WALK_GO;
}

/* Whether the frame in e->f stands for a generator that waits for another one. */
static __always_inline bool php_is_waiting(const struct php_env *e)
{
	const struct php_binary *b = e->b;
	__u64 object = e->f->frame[PHP_FRAME_THIS / 8];

	if ((e->f->frame[PHP_FRAME_INFO / 8] & 0xff) != PHP_IS_OBJECT || !b->generator_parent)
		return false;
	return runtime_word(object + PHP_OBJECT_CLASS) ==
	       runtime_word(e->w->bias + b->generator_class);
}

/*
 * Whether the loop runs the generator whose frame is in e->f, and not the code that `yield from`
 * calls of an iterator that is no generator. A generator's frame has the generator in the place of
 * its result.
 */
static __always_inline bool php_generator_runs(const struct php_env *e)
{
	__u64 generator = e->f->frame[PHP_FRAME_RESULT / 8];

	return !e->b->generator_parent ||
	       !(runtime_word(generator + e->b->generator_parent - 8) & 0xff);
}

/* Elsewhere the heap may be near, and an address in it looks like one on the stack. */
static __always_inline bool php_on_main_stack(const struct php_env *e, __u64 address)
{
	return e->s->out.sample.start_stack - address < PHP_MAIN_STACK;
}

/*
 * Pushes w->frame and moves to the next frame of the list. WALK_GO: the segment goes on;
 * RUNTIME_NATIVE: the segment has ended; else a stop reason.
 */
static __always_inline int php_one(const struct php_env *e)
{
	struct php_buffer *f = e->f;
	struct php_walk *w = e->w;
	__u64 at = w->frame, result;
	int type = 0;

	if (!at)
		return RUNTIME_NATIVE;
	if (!php_read_frame(e, at))
		return STOP_BAD_READ;
	if (f->frame[PHP_FRAME_FUNCTION / 8])
		type = php_push(e, at);
	else if (php_is_waiting(e))
		w->waits = f->frame[PHP_FRAME_THIS / 8];
	if (type < 0)
		return -type;
	w->frame = f->frame[PHP_FRAME_PREVIOUS / 8];
	if (type <= PHP_FUNCTION_INTERNAL || !(f->frame[PHP_FRAME_INFO / 8] & PHP_CALL_TOP))
		return WALK_GO;
	w->result = 0;
	if (f->function[0] >> 32 & PHP_IS_GENERATOR)
		return php_generator_runs(e) ? RUNTIME_NATIVE : WALK_GO;
	result = f->frame[PHP_FRAME_RESULT / 8];
	w->result = php_on_main_stack(e, result) ? result : 0;
	return w->result && result >= e->s->first.sp && result < e->s->walk.regs.sp
		       ? WALK_GO
		       : RUNTIME_NATIVE;
}

/* Remembers the walk before a segment. */
static __always_inline void php_save(const struct php_env *e)
{
	e->f->regs = e->s->walk.regs;
	e->f->hash = e->s->walk.hash;
	e->f->n = e->s->walk.n;
	e->f->runtime_frames = e->s->runtime_frames;
	e->f->first = e->w->frame;
	e->f->last = e->w->last;
	e->f->waits = e->w->waits;
	e->f->fiber = e->w->fiber;
}

/*
 * Whether the last segment belongs to this call of the loop, or to one that has called it, and not
 * to the call before. A script's own code has no result; it is the end of the list.
 */
static __always_inline bool php_is_later(const struct php_env *e)
{
	__u64 sp = e->s->walk.regs.sp;
	bool later = e->w->result ? e->w->result >= sp && php_on_main_stack(e, sp)
				  : e->w->has_segment && !e->w->frame;

	return later && e->s->runtimes == 1U << RUNTIME_PHP;
}

/* Goes back to the call of the loop before the last segment, which has none. */
__noinline int php_go_back(void)
{
	struct php_env e;

	if (!php_env(&e))
		return STOP_UNSUPPORTED;
	e.s->walk.regs = e.f->regs;
	e.s->walk.hash = e.f->hash;
	e.s->walk.n = e.f->n;
	e.s->runtime_frames = e.f->runtime_frames;
	e.w->frame = e.f->first;
	e.w->last = e.f->last;
	e.w->waits = e.f->waits;
	e.w->fiber = e.f->fiber;
	e.w->result = 0;
	e.w->has_segment = 0;
	e.w->empty = 1;
	return RUNTIME_AGAIN;
}

/* Pushes the segment of a call of the loop, or as much of it as one call may push. */
__noinline int php_segment(void)
{
	struct php_env e;
	int r;

	if (!php_env(&e))
		return STOP_UNSUPPORTED;
	for (__u64 i = 0; i < PHP_FRAMES_PER_CALL; i++) {
		r = e.w->waits ? php_delegate() : php_one(&e);
		if (r != WALK_GO)
			return r;
	}
	return RUNTIME_AGAIN;
}

/*
 * The call of the loop whose last function is being left has taken that function off the list, but
 * has it in a register.
 */
static __always_inline void php_begin(const struct php_env *e)
{
	__u64 frame = e->s->walk.regs.r[PHP_REG_FRAME];

	if (e->s->walk.regs.exact && e->s->walk.regs.full && e->w->frame && frame != e->w->frame &&
	    runtime_word(frame + PHP_FRAME_PREVIOUS) == e->w->frame)
		e->w->frame = frame;
	php_save(e);
	e->w->has_segment = e->w->frame != 0;
	e->w->inside = 1;
	e->w->result = 0;
}

/* Moves to the native frame of the loop, in which code of the JIT runs. */
static __always_inline int php_own(const struct php_env *e, bool jit)
{
	struct walk_regs *regs = &e->s->walk.regs;

	if (!runtime_push_own(e->s, RUNTIME_PHP))
		return STOP_TOO_DEEP;
	if (jit) {
		if (!e->b->jit_pc)
			return STOP_UNSUPPORTED;
		regs->pc = e->w->bias + e->b->jit_pc;
		regs->sp += e->b->jit_stack;
		regs->exact = 0;
		regs->full = 0;
	}
	return RUNTIME_NATIVE;
}

static __always_inline int php_call(const struct php_env *e, bool jit)
{
	struct php_walk *w = e->w;
	int r;

	if (w->empty) {
		w->empty = 0;
		return php_own(e, jit);
	}
	if (!w->inside) {
		if (php_is_later(e))
			return php_go_back();
		php_begin(e);
	}
	r = php_segment();
	if (r != RUNTIME_NATIVE)
		return r;
	w->inside = 0;
	return php_own(e, jit);
}

/*
 * At the end of a fiber's stack: moves to the function that has resumed the fiber, on the stack of
 * another context.
 */
__noinline int php_fiber(void)
{
	struct php_env e;
	__u64 at;

	if (!php_env(&e) || !e.b->fiber_caller)
		return RUNTIME_NATIVE;
	if (!e.w->fiber)
		e.w->fiber = runtime_word(e.w->globals + e.b->fiber);
	e.w->fiber = e.w->fiber ? runtime_word(e.w->fiber + e.b->fiber_caller) : 0;
	at = e.w->fiber ? runtime_word(e.w->fiber) : 0;
	if (!at)
		return RUNTIME_NATIVE;
	return runtime_return(e.s, runtime_word(at + PHP_FIBER_PC), at + PHP_FIBER_SP,
			      runtime_word(at + PHP_FIBER_FP));
}

__noinline int php_walk(void)
{
	struct scratch *s = scratch_get();
	struct php_env e;
	__u64 svma;
	bool jit;

	if (!s)
		return RUNTIME_NATIVE;
	if (!((struct php_walk *)runtime_state(s, RUNTIME_PHP))->started && !php_start())
		return RUNTIME_NATIVE;
	if (!php_env(&e))
		return RUNTIME_NATIVE;
	jit = s->walk.mapping.file & UNWIND_MAPPING_FP;
	svma = walk_pc(&s->walk.regs) - e.w->bias;
	if (jit || runtime_in_any(e.b->loops, e.b->n_loops, PHP_MAX_LOOPS, svma))
		return php_call(&e, jit);
	if (svma >= e.b->fiber_end.start && svma < e.b->fiber_end.end && !s->walk.regs.exact)
		return php_fiber();
	return RUNTIME_NATIVE;
}
