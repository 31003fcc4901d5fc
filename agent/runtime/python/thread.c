/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds where a thread keeps its Python state. The code of two functions shows it:
 *
 *	PyGILState_GetThisThreadState	the thread's own state, whether or not it holds the GIL:
 *					pthread_getspecific() of a key in _PyRuntime
 *	_PyThreadState_GetCurrent	(3.12 on) the running state: thread-local storage
 *
 * The states of all interpreters form lists, whose offsets four functions show in the same way. The
 * last one of the list leads to the GIL.
 */
#include <errno.h>

#include "agent/runtime/binary.h"
#include "agent/runtime/python/python.h"

#define MAX_OFFSET (1u << 20) /* offsets in an interpreter's state are smaller */

/* ---- symbolic execution ---- */

struct reader {
	struct runtime_code code;
	struct runtime_tls *tls;
	u64 runtime, runtime_end;
};

/*
 * The argument of the call leads to the key: Py_tss_t is {int is_initialized, key}
 * (Include/pythread.h).
 */
static bool on_event(void *arg, const struct exec *x, enum exec_event event,
		     const struct exec_value *value)
{
	struct reader *r = arg;
	struct exec_value at;
	u64 address;

	if (event == EXEC_RETURNS) {
		if (!r->tls->kind)
			(void)runtime_is_tls(x, value, r->tls);
		return false;
	}
	if (exec_is_load(x, value, 4, &at) && exec_is_constant(&at, &address)) {
		*r->tls = (struct runtime_tls){.kind = RUNTIME_TLS_KEY, .slot = address};
		return true;
	}
	if (r->runtime && exec_is_constant(value, &address) && address >= r->runtime &&
	    address < r->runtime_end)
		*r->tls = (struct runtime_tls){.kind = RUNTIME_TLS_KEY, .slot = address + 4};
	return false;
}

/* ---- all states ---- */

/* A function that returns one load: from a fixed address, or from its argument + an offset. */
struct accessor {
	struct reader reader;
	bool of_argument, known;
	u64 at;
};

static bool on_accessor(void *arg, const struct exec *x, enum exec_event event,
			const struct exec_value *value)
{
	struct accessor *a = container_of((struct reader *)arg, struct accessor, reader);
	struct exec_value at;

	if (event != EXEC_RETURNS || !exec_is_load(x, value, 8, &at) || at.n != a->of_argument ||
	    (at.n && exec_factor(x, &at, EXEC_ARG, NULL) != 1))
		return false;
	a->at = at.constant;
	a->known = true;
	return true;
}

static bool read_accessor(struct elf_file *elf, const char *name, bool of_argument, u64 *ret)
{
	struct accessor a = {.reader.code.elf = elf, .of_argument = of_argument};
	struct exec_program p = {.code = runtime_code_at,
				 .constant = runtime_constant_at,
				 .event = on_accessor,
				 .arg = &a.reader};
	u64 at;

	if (!runtime_symbol(elf, name, &at, NULL) || exec_run(&p, elf->machine, at) < 0 ||
	    !a.known || (of_argument && a.at > MAX_OFFSET))
		return false;
	*ret = a.at;
	return true;
}

/* Without these offsets, a thread is walked with only the state that it names itself. */
static void learn_states(struct elf_file *elf, struct python_binary *b)
{
	u64 head, next, threads, thread;

	if (!read_accessor(elf, "PyInterpreterState_Head", false, &head) ||
	    !read_accessor(elf, "PyInterpreterState_Next", true, &next) ||
	    !read_accessor(elf, "PyInterpreterState_ThreadHead", true, &threads) ||
	    !read_accessor(elf, "PyThreadState_Next", true, &thread))
		return;
	b->interpreters = head;
	b->interpreter_next = (u32)next;
	b->interpreter_threads = (u32)threads;
	b->thread_next = (u32)thread;
}

/* ---- the thread's own state ---- */

int python_learn_thread(struct elf_file *elf, struct python_learned *l, struct diag *reterr_diag)
{
	struct reader r = {.code.elf = elf};
	struct exec_program p = {.code = runtime_code_at,
				 .constant = runtime_constant_at,
				 .event = on_event,
				 .arg = &r};
	u64 at, size = 0;
	int e = 0;

	if (runtime_symbol(elf, "_PyRuntime", &r.runtime, &size))
		r.runtime_end = r.runtime + size;
	r.tls = &l->bound;
	if (runtime_symbol(elf, "PyGILState_GetThisThreadState", &at, NULL))
		e = exec_run(&p, elf->machine, at);
	r.runtime = 0;
	r.tls = &l->current;
	if (e == 0 && runtime_symbol(elf, "_PyThreadState_GetCurrent", &at, NULL))
		e = exec_run(&p, elf->machine, at);
	if (e < 0)
		return diag_set(reterr_diag, e, "code of this machine is not understood yet");
	if (l->current.kind == RUNTIME_TLS_KEY)
		l->current.kind = RUNTIME_TLS_NONE;
	if (!l->bound.kind && !l->current.kind)
		return diag_set(reterr_diag, -ENOTSUP,
				"Python %u.%u: the code of PyGILState_GetThisThreadState is not "
				"understood",
				l->version >> 8, l->version & 0xff);
	learn_states(elf, &l->bpf);
	return 0;
}

/* ---- processes ---- */

/*
 * Whether the process has created its key: to 3.6 an int that is -1 until then; later a struct
 * whose first word says so.
 */
static bool has_key(const struct runtime_target *t, const struct python_learned *l,
		    const struct runtime_tls *tls)
{
	u32 words[2];

	if (runtime_read(&t->memory, t->bias + tls->slot - 4, words, sizeof(words)) < 0)
		return false;
	return l->version >= 0x0307 ? words[0] : words[1] != ~0u;
}

int python_attach_thread(const struct runtime_target *t, const struct python_learned *l,
			 const struct runtime_tls *tls, struct runtime_chain *ret)
{
	if (tls->kind == RUNTIME_TLS_KEY && !has_key(t, l, tls))
		return -EAGAIN;
	return runtime_attach_tls(t, tls, l->libc, ret);
}

/* ---- the GIL ---- */

#define MAX_INTERPRETERS 256

/* The main interpreter, which was made first and is the last of the list; 0: there is none yet. */
static u64 main_interpreter(const struct runtime_target *t, const struct python_binary *b)
{
	bool failed = false;
	u64 at = runtime_u64(&t->memory, t->bias + b->interpreters, &failed), next = at;

	for (u32 i = 0; i < MAX_INTERPRETERS && next && !failed; i++) {
		at = next;
		next = runtime_u64(&t->memory, at + b->interpreter_next, &failed);
	}
	return failed || next ? 0 : at;
}

int python_attach_gil(const struct runtime_target *t, const struct python_learned *l,
		      struct python_lock *ret)
{
	const struct python_gil *g = &l->gil;
	bool failed = false;
	u64 gil = 0, interpreter;

	if (g->of_runtime && l->runtime) {
		gil = t->bias + l->runtime + g->of_runtime;
	} else if (g->of_interpreter && l->bpf.interpreters) {
		interpreter = main_interpreter(t, &l->bpf);
		if (interpreter)
			gil = runtime_u64(&t->memory, interpreter + g->of_interpreter, &failed);
		if (failed || !gil)
			return 1;
	}
	if (!gil)
		return -ENOTSUP;
	ret->gil = gil;
	ret->gil_holder = g->holder;
	ret->gil_locked = g->locked;
	ret->gil_cond = g->cond;
	ret->thread_native = g->thread_native;
	ret->thread_id = g->thread_id;
	return 0;
}
