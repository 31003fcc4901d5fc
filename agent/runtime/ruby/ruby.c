/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ruby (MRI): its struct runtime_ops. The walker is bpf/unwind/ruby.h; doc/runtimes/ruby.md says
 * what is read and which source defines it.
 */
#include "agent/runtime/ruby/ruby.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/binary.h"
#include "base/str.h"

static bool is_runtime(const struct procman_binary *b)
{
	const char *base = runtime_file_name(b->path);
	u64 svma;

	return (str_starts(base, "libruby") || str_starts(base, "ruby")) &&
	       runtime_symbol(b->elf, "rb_errinfo", &svma, NULL);
}

static void ruby_forget(void *learned)
{
	struct ruby_learned *l = learned;

	if (l)
		free(l->libc);
	free(l);
}

static int ruby_learn_binary(const struct procman_binary *b, struct runtime_binary *ret_bpf,
			     void **ret_learned, struct diag *reterr_diag)
{
	struct ruby_learned *l = calloc(1, sizeof(*l));
	int r = -ENOMEM;

	if (l)
		l->libc = calloc(1, sizeof(*l->libc));
	if (l && l->libc)
		r = ruby_learn(b->elf, l, reterr_diag);
	if (r < 0) {
		ruby_forget(l);
		return r;
	}
	memcpy(ret_bpf->room, &l->bpf, sizeof(l->bpf));
	*ret_learned = l;
	return 0;
}

static int ruby_attach(const struct runtime_target *t, const void *learned,
		       struct runtime_process *ret)
{
	const struct ruby_learned *l = learned;
	struct ruby_process p = {};
	bool failed = false;
	int r;

	/* The thread's key is created together with the VM. */
	if (l->vm && !runtime_u64(&t->memory, t->bias + l->vm, &failed))
		return -EAGAIN;
	r = runtime_attach_tls(t, &l->thread, l->libc, &p.thread);
	if (r < 0)
		return r;
	memcpy(ret->room, &p, sizeof(p));
	return 0;
}

static int ruby_name_frame(const struct runtime_target *t, const void *learned, u64 address,
			   u64 where, struct runtime_names *ret)
{
	return ruby_name(&t->memory, learned, t->bias, address, where, ret);
}

static bool ruby_covers(const void *learned, const struct runtime_process *p, u64 avma)
{
	const struct ruby_binary *b = &((const struct ruby_learned *)learned)->bpf;

	return runtime_in_any(b->execs, b->n_execs, RUBY_MAX_RANGES, avma - p->bias);
}

static void ruby_describe(const void *learned, char *ret, size_t n)
{
	const struct ruby_learned *l = learned;

	snprintf(ret, n,
		 "Ruby %s, offsets from a table, interpreter by its table of instructions, "
		 "thread state from %s",
		 l->version, l->by_thread ? "ruby_native_thread_p" : "rb_errinfo");
}

static void otel_version(const void *learned, char *ret, size_t n)
{
	snprintf(ret, n, "%s", ((const struct ruby_learned *)learned)->version);
}

static void ruby_tell_missing(const struct runtime_target *t, const void *learned,
			      void (*line)(void *arg, const char *text), void *arg)
{
	const struct ruby_learned *l = learned;

	if (!l->symbols)
		line(arg, "names of methods in C: the table of symbols is not found");
	if (!l->bpf.n_callers)
		line(arg, "the order of methods in C among the native frames between two of them");
}

const struct runtime_ops runtime_ruby = {
	.is_runtime = is_runtime,
	.learn = ruby_learn_binary,
	.forget = ruby_forget,
	.attach = ruby_attach,
	.name = ruby_name_frame,
	.covers = ruby_covers,
	.describe = ruby_describe,
	.otel_name = "ruby",
	.otel_version = otel_version,
	.missing = ruby_tell_missing,
	.walks_natively = true,
	.jit_memory = 1u << JIT_MEMORY_ANON,
};
