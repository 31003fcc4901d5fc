/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Perl 5.32 and later: its struct runtime_ops. The walker is bpf/unwind/perl.h;
 * doc/runtimes/perl.md says what is read and which source defines it.
 */
#include "agent/runtime/perl/perl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_runtime(const struct procman_binary *b)
{
	return perl_is_name(b->path) && perl_has_loop(b->elf);
}

static void perl_forget(void *learned)
{
	struct perl_learned *l = learned;

	if (l)
		free(l->libc);
	free(l);
}

static int perl_learn_binary(const struct procman_binary *b, struct runtime_binary *ret_bpf,
			     void **ret_learned, struct diag *reterr_diag)
{
	struct perl_learned *l = calloc(1, sizeof(*l));
	int r = -ENOMEM;

	if (l)
		l->libc = calloc(1, sizeof(*l->libc));
	if (l && l->libc)
		r = perl_learn(b->elf, l, reterr_diag);
	if (r < 0) {
		perl_forget(l);
		return r;
	}
	memcpy(ret_bpf->room, &l->bpf, sizeof(l->bpf));
	*ret_learned = l;
	return 0;
}

static int perl_attach(const struct runtime_target *t, const void *learned,
		       struct runtime_process *ret)
{
	const struct perl_learned *l = learned;
	struct perl_process p = {};
	bool failed = false;
	int r;

	/* perl_alloc() creates the key before it sets the first interpreter. */
	if (l->threaded && !runtime_u64(&t->memory, t->bias + l->interpreter, &failed))
		return -EAGAIN;
	r = runtime_attach_tls(t, &l->thread, l->libc, &p.interpreter);
	if (r < 0)
		return r;
	memcpy(ret->room, &p, sizeof(p));
	return 0;
}

static int perl_name_frame(const struct runtime_target *t, const void *learned, u64 address,
			   u64 where, struct runtime_names *ret)
{
	return perl_name(&t->memory, learned, t->bias, address, where, ret);
}

static bool perl_covers(const void *learned, const struct runtime_process *p, u64 avma)
{
	const struct perl_binary *b = &((const struct perl_learned *)learned)->bpf;

	return runtime_in_any(b->loops, b->n_loops, PERL_MAX_LOOPS, avma - p->bias);
}

static void perl_describe(const void *learned, char *ret, size_t n)
{
	const struct perl_learned *l = learned;

	snprintf(ret, n, "Perl 5.%u.%u, %s, kinds of contexts from PL_block_type", l->version,
		 l->subversion,
		 l->threaded ? "interpreter from PL_thr_key, its layout from Perl_cxinc"
			     : "without threads");
}

static void otel_version(const void *learned, char *ret, size_t n)
{
	const struct perl_learned *l = learned;

	snprintf(ret, n, "5.%u.%u", l->version, l->subversion);
}

static void perl_tell_missing(const struct runtime_target *t, const void *learned,
			      void (*line)(void *arg, const char *text), void *arg)
{
	const struct perl_learned *l = learned;
	u64 word;

	if (runtime_read(&t->memory, t->bias + l->bpf.loops[0].start, &word, sizeof(word)) < 0)
		line(arg, "names and lines: the memory of the process cannot be read");
	if (!l->bpf.docatch.end)
		line(arg, "an eval in code that Perl itself calls shifts the frames around it: "
			  "docatch() is not found");
	if (!l->bpf.compiling_end)
		line(arg, "file and line of code that is being compiled: PL_compiling is not known "
			  "in this build");
}

const struct runtime_ops runtime_perl = {
	.is_runtime = is_runtime,
	.learn = perl_learn_binary,
	.forget = perl_forget,
	.attach = perl_attach,
	.name = perl_name_frame,
	.covers = perl_covers,
	.describe = perl_describe,
	.otel_name = "perl",
	.otel_version = otel_version,
	.missing = perl_tell_missing,
	.walks_natively = true,
};
