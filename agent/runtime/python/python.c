/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPython 3.6 and later: its struct runtime_ops. The walker is bpf/unwind/python.h;
 * doc/runtimes/python.md says what is read and which source defines it.
 */
#include "agent/runtime/python/python.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

static bool is_runtime(const struct procman_binary *b)
{
	return python_is_name(b->path) && python_has_loop(b->elf);
}

static void python_forget(void *learned)
{
	struct python_learned *l = learned;

	if (l)
		free(l->libc);
	free(l);
}

static int python_learn_binary(const struct procman_binary *b, struct runtime_binary *ret_bpf,
			       void **ret_learned, struct diag *reterr_diag)
{
	struct python_learned *l = calloc(1, sizeof(*l));
	int r = -ENOMEM;

	if (l)
		l->libc = calloc(1, sizeof(*l->libc));
	if (l && l->libc)
		r = python_learn(b->elf, b->path, l, reterr_diag);
	if (r < 0) {
		python_forget(l);
		return r;
	}
	memcpy(ret_bpf->room, &l->bpf, sizeof(l->bpf));
	*ret_learned = l;
	return 0;
}

static int python_attach(const struct runtime_target *t, const void *learned,
			 struct runtime_process *ret)
{
	const struct python_learned *l = learned;
	struct python_process p = {};
	int r;

	r = python_attach_thread(t, l, &l->bound, &p.bound);
	if (r == 0)
		r = python_attach_thread(t, l, &l->current, &p.current);
	if (r < 0)
		return r;
	memcpy(ret->room, &p, sizeof(p));
	return 0;
}

static int python_attach_locks(const struct runtime_target *t, const void *learned,
			       struct runtime_lock *ret)
{
	struct python_lock p = {};
	int r = python_attach_gil(t, learned, &p);

	memcpy(ret->room, &p, sizeof(p));
	return r;
}

static int python_name_frame(const struct runtime_target *t, const void *learned, u64 address,
			     u64 where, struct runtime_names *ret)
{
	return python_name(&t->memory, learned, address, where, ret);
}

static bool python_covers(const void *learned, const struct runtime_process *p, u64 avma)
{
	const struct python_binary *b = &((const struct python_learned *)learned)->bpf;
	u64 svma = avma - p->bias;

	return b->shape == PYTHON_TAIL ||
	       runtime_in_any(b->loops, b->n_loops, PYTHON_MAX_RANGES, svma);
}

static void python_describe(const void *learned, char *ret, size_t n)
{
	const struct python_learned *l = learned;

	snprintf(ret, n,
		 "CPython %u.%u%s, offsets from %s, thread state from %s%s%s, interpreters from %s",
		 l->version >> 8, l->version & 0xff, l->free_threaded ? " free-threaded" : "",
		 l->published ? "_Py_DebugOffsets" : "a table",
		 l->current.kind ? "_PyThreadState_GetCurrent" : "",
		 l->current.kind && l->bound.kind ? " and " : "",
		 l->bound.kind ? "PyGILState_GetThisThreadState" : "",
		 l->bpf.interpreters ? "PyInterpreterState_Head" : "nowhere");
}

static void otel_version(const void *learned, char *ret, size_t n)
{
	const struct python_learned *l = learned;

	snprintf(ret, n, "%u.%u", l->version >> 8, l->version & 0xff);
}

#define MAX_ENVIRONMENT 65536

/* Whether the process was started with PYTHON_JIT=1. */
static bool jit_is_on(u32 pid)
{
	static const char on[] = "\0PYTHON_JIT=1";
	_cleanup_free_ char *text = malloc(MAX_ENVIRONMENT + 1);
	_cleanup_close_ int fd = -1;
	char path[64];
	ssize_t n = 0, got = 1;

	if (!text)
		return false;
	snprintf(path, sizeof(path), "/proc/%u/environ", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	text[0] = 0;
	while (fd >= 0 && got > 0 && n < MAX_ENVIRONMENT) {
		got = read(fd, text + 1 + n, (size_t)(MAX_ENVIRONMENT - n));
		n += got > 0 ? got : 0;
	}
	return memmem(text, (size_t)n + 1, on, sizeof(on));
}

static void python_tell_missing(const struct runtime_target *t, const void *learned,
				void (*line)(void *arg, const char *text), void *arg)
{
	const struct python_learned *l = learned;
	u64 word;

	if (l->runtime && runtime_read(&t->memory, t->bias + l->runtime, &word, 8) < 0)
		line(arg, "names and lines: the memory of the process cannot be read");
	/* Since 3.15 code of the JIT keeps frame pointers, and walks pass through it. */
	if (l->jit && l->version < 0x030f)
		line(arg, jit_is_on(t->memory.pid)
				  ? "JIT build, and PYTHON_JIT is set: stacks through code that "
				    "it has made end there"
				  : "JIT build: nothing while it is off; with PYTHON_JIT=1, stacks "
				    "through code that it has made end there");
	if (l->bpf.shape == PYTHON_TAIL)
		line(arg, "tail calls: functions of single instructions are shown as native "
			  "frames");
	if (!l->bpf.interpreters || l->bpf.shape == PYTHON_TAIL)
		line(arg, "in threads that run another interpreter than the one that they were "
			  "made for, frames of one of the two");
	if (!l->bound.kind)
		line(arg, "frames of threads that have released the GIL");
}

const struct runtime_ops runtime_python = {
	.is_runtime = is_runtime,
	.learn = python_learn_binary,
	.forget = python_forget,
	.attach = python_attach,
	.attach_locks = python_attach_locks,
	.name = python_name_frame,
	.covers = python_covers,
	.describe = python_describe,
	.otel_name = "cpython",
	.otel_version = otel_version,
	.missing = python_tell_missing,
	.walks_natively = true,
};
