/* SPDX-License-Identifier: Apache-2.0 */
/* PHP: what the runtimes need to know about it (agent/runtime/runtime.h). */
#include "agent/runtime/php/php.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "proc/proc.h"

#define PHP_MAX_GLOBALS (16u << 20) /* bytes of a thread's memory for PHP */

static bool is_runtime(const struct procman_binary *b)
{
	return php_is_name(b->path) && php_has_loop(b->elf);
}

static void forget(void *learned)
{
	struct php_learned *l = learned;

	if (!l)
		return;
	php_cache_destroy(l->cache);
	free(l->libc);
	free(l);
}

static void trim(void *learned)
{
	php_cache_clear(((struct php_learned *)learned)->cache);
}

static int learn(const struct procman_binary *b, struct runtime_binary *ret_bpf, void **ret_learned,
		 struct diag *reterr_diag)
{
	struct php_learned *l = calloc(1, sizeof(*l));
	int r = -ENOMEM;

	if (l) {
		l->cache = php_cache_create();
		l->libc = calloc(1, sizeof(*l->libc));
	}
	if (l && l->cache && l->libc)
		r = php_learn(b->elf, l, reterr_diag);
	if (r < 0) {
		forget(l);
		return r;
	}
	memcpy(ret_bpf->room, &l->bpf, sizeof(l->bpf));
	*ret_learned = l;
	return 0;
}

/*
 * OPcache keeps compiled code in the shared memory of its cache, and makes a part of this memory
 * executable by mprotect(), without an event of the kernel (ext/opcache/jit/zend_jit.c).
 */
static int note_jit(void *arg, const struct proc_mapping *m)
{
	struct runtime_process *p = arg;

	if (!(m->prot & PROT_EXEC) || strcmp(m->path, "/dev/zero") != 0)
		return 0;
	if (!p->reserved[0].end)
		p->reserved[0].start = m->start;
	p->reserved[0].end = m->end;
	return 0;
}

/*
 * Each thread of a thread-safe build has its own executor_globals. Whether a script has run yet is
 * not known then, so attach() looks for the JIT again and again.
 */
static int attach_threads(const struct runtime_target *t, const struct php_learned *l,
			  struct runtime_process *ret)
{
	bool failed = false;
	struct php_process p = {.globals = runtime_u64(&t->memory, t->bias + l->globals, &failed)};
	int r;

	if (failed || !p.globals)
		return -EAGAIN;
	if (p.globals > PHP_MAX_GLOBALS || p.globals & 7)
		return -EINVAL;
	r = runtime_attach_tls(t, &l->memory, l->libc, &p.memory);
	if (r < 0)
		return r;
	memcpy(ret->room, &p, sizeof(p));
	(void)proc_maps_read(t->memory.pid, 0, note_jit, ret);
	return !ret->reserved[0].end;
}

static int attach(const struct runtime_target *t, const void *learned, struct runtime_process *ret)
{
	const struct php_learned *l = learned;
	const struct php_process p = {.globals = t->bias + l->globals};
	bool failed = false;

	if (l->memory.kind)
		return attach_threads(t, l, ret);
	memcpy(ret->room, &p, sizeof(p));
	(void)proc_maps_read(t->memory.pid, 0, note_jit, ret);
	/* The JIT is set up before the first script runs, and never later. */
	return !ret->reserved[0].end &&
	       !runtime_u64(&t->memory, p.globals + l->bpf.current, &failed) && !failed;
}

static int name(const struct runtime_target *t, const void *learned, u64 address, u64 where,
		struct runtime_names *ret)
{
	const struct php_learned *l = learned;
	int r;

	if (php_cache_get(l->cache, t->process->image, where, ret))
		return 0;
	r = php_name(&t->memory, l, address, where, ret);
	if (r == 0)
		php_cache_put(l->cache, t->process->image, where, ret);
	return r;
}

static bool covers(const void *learned, const struct runtime_process *p, u64 avma)
{
	const struct php_binary *b = &((const struct php_learned *)learned)->bpf;

	return runtime_in_any(b->loops, b->n_loops, PHP_MAX_LOOPS, avma - p->bias) ||
	       (avma >= p->reserved[0].start && avma < p->reserved[0].end);
}

static void describe(const void *learned, char *ret, size_t n)
{
	const struct php_learned *l = learned;

	snprintf(ret, n, "PHP %s%s, offsets from its code", l->text,
		 l->memory.kind ? " (thread-safe)" : "");
}

static void otel_version(const void *learned, char *ret, size_t n)
{
	const struct php_learned *l = learned;

	snprintf(ret, n, "%s", l->text);
}

const struct runtime_ops runtime_php = {
	.is_runtime = is_runtime,
	.learn = learn,
	.forget = forget,
	.trim = trim,
	.attach = attach,
	.name = name,
	.covers = covers,
	.describe = describe,
	.otel_name = "php",
	.otel_version = otel_version,
	.walks_natively = true,
	.jit_memory = 1u << JIT_MEMORY_SHARED,
};
