/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How to find the JavaThread of a thread, for the owners of monitors. No table of HotSpot tells it:
 * a thread keeps it in a thread-local variable, or (8) as the value of a key of pthreads. So the
 * place is measured: it is where all Java threads that the process has now keep their own
 * JavaThread. BPF checks each JavaThread by the id of the thread.
 */
#include <elf.h>
#include <errno.h>

#include "agent/runtime/hotspot/hotspot.h"

#define MEASURED_THREADS 16U
/* The first threads, main and those of the VM, differ in what else glibc knows of them. */
#define MIN_THREADS 3U
#define MAX_MODULES 64
#define SEARCHED_WORDS 16 /* of a module's thread-local variables */
/* Where glibc's struct pthread has the values of the first 32 keys, and some bytes around. */
#define KEYS_FROM 512
#define KEYS_TO 1536

struct java_thread {
	u64 thread, tp; /* avma of the JavaThread, thread pointer */
};

static bool has_monitors(const struct hotspot_vm *vm, const struct hotspot_offsets *o,
			 const struct runtime_target *t)
{
	static const enum hotspot_field needed[] = {
		HF_THREAD_PENDING, HF_THREAD_OS, HF_OS_ID, HF_OS_PTHREAD, HF_MONITOR_OWNER,
	};

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		if (!hotspot_has(o, needed[i]))
			return false;
	if (vm->statics[HS_THREADS])
		return t->elf->machine == EM_X86_64 && hotspot_has(o, HF_LIST_LENGTH) &&
		       hotspot_has(o, HF_LIST_THREADS);
	return t->elf->machine == EM_X86_64 && vm->statics[HS_FIRST_THREAD] &&
	       hotspot_has(o, HF_THREAD_NEXT);
}

/* Whether the thread has begun: its OSThread knows its pthread, whose first word is its address. */
static bool read_thread(const struct hotspot_offsets *o, const struct runtime_target *t, u64 thread,
			struct java_thread *ret)
{
	const struct runtime_memory *m = &t->memory;
	bool failed = false;
	u64 os = runtime_u64(m, thread + o->of[HF_THREAD_OS], &failed);
	u64 tp = runtime_u64(m, os + o->of[HF_OS_PTHREAD], &failed);
	u32 id = runtime_u32(m, os + o->of[HF_OS_ID], &failed);

	if (failed || !id || !tp || runtime_u64(m, tp, &failed) != tp || failed)
		return false;
	*ret = (struct java_thread){thread, tp};
	return true;
}

/* The Java threads, at most MEASURED_THREADS; their number. */
static u32 read_threads(const struct hotspot_vm *vm, const struct hotspot_offsets *o,
			const struct runtime_target *t, struct java_thread *ret)
{
	bool list = vm->statics[HS_THREADS], failed = false;
	u64 at = vm->statics[list ? HS_THREADS : HS_FIRST_THREAD] + t->bias, threads = 0;
	u32 n = 0, length = MEASURED_THREADS;

	at = runtime_u64(&t->memory, at, &failed);
	if (list && !failed && at) {
		length = runtime_u32(&t->memory, at + o->of[HF_LIST_LENGTH], &failed);
		threads = runtime_u64(&t->memory, at + o->of[HF_LIST_THREADS], &failed);
	}
	for (u32 i = 0; i < MIN(length, MEASURED_THREADS) && !failed && at; i++) {
		u64 thread = list ? runtime_u64(&t->memory, threads + 8ULL * i, &failed) : at;

		if (!failed && read_thread(o, t, thread, &ret[n]))
			n++;
		if (!list && !failed)
			at = runtime_u64(&t->memory, at + o->of[HF_THREAD_NEXT], &failed);
	}
	return n;
}

static bool leads_to(const struct runtime_target *t, const struct runtime_chain *c,
		     const struct java_thread *j)
{
	bool failed = false;
	u64 p = j->tp;

	for (u32 i = 0; i < c->n && !failed; i++)
		p = runtime_u64(&t->memory, p + (u64)c->off[i], &failed);
	return !failed && p == j->thread;
}

/* A thread that begins may not have stored its JavaThread yet. */
static bool leads_most(const struct runtime_target *t, const struct runtime_chain *c,
		       const struct java_thread *threads, u32 n)
{
	u32 n_led = 0;

	for (u32 i = 0; i < n; i++)
		n_led += leads_to(t, c, &threads[i]);
	return n_led >= MIN_THREADS && n_led + 1 >= n;
}

/* Tries each word from the chain's last offset on that is the last thread's JavaThread. */
static bool search(const struct runtime_target *t, struct runtime_chain *c,
		   const struct java_thread *threads, u32 n)
{
	const struct java_thread *oldest = &threads[n - 1];
	u64 at = oldest->tp, words[SEARCHED_WORDS];
	s64 *last = &c->off[c->n - 1];
	bool failed = false;

	for (u32 i = 0; i + 1 < c->n && !failed; i++)
		at = runtime_u64(&t->memory, at + (u64)c->off[i], &failed);
	if (failed || runtime_read(&t->memory, at + (u64)*last, words, sizeof(words)) < 0)
		return false;
	for (u32 i = 0; i < SEARCHED_WORDS; i++, *last += 8)
		if (words[i] == oldest->thread && leads_most(t, c, threads, n))
			return true;
	return false;
}

static bool measure(const struct runtime_target *t, const struct java_thread *threads, u32 n,
		    struct runtime_chain *ret)
{
	/* glibc's vector of modules is the second word of a thread; its entries have 16 bytes. */
	for (s64 module = 1; module <= MAX_MODULES; module++) {
		*ret = (struct runtime_chain){.n = 3, .off = {8, 16 * module, 0}};
		if (search(t, ret, threads, n))
			return true;
	}
	for (s64 at = KEYS_FROM; at < KEYS_TO; at += (s64)sizeof(u64) * SEARCHED_WORDS) {
		*ret = (struct runtime_chain){.n = 1, .off = {at}};
		if (search(t, ret, threads, n))
			return true;
	}
	return false;
}

int hotspot_attach_monitors(const struct hotspot_vm *vm, const struct hotspot_offsets *o,
			    const struct runtime_target *t, struct hotspot_lock *p)
{
	struct java_thread threads[MEASURED_THREADS];
	u32 n;

	if (!has_monitors(vm, o, t))
		return -ENOTSUP;
	n = read_threads(vm, o, t, threads);
	if (n < MIN_THREADS)
		return 1;
	if (!measure(t, threads, n, &p->thread))
		return -ENOTSUP;
	p->thread_os = (u16)o->of[HF_THREAD_OS];
	p->os_id = (u16)o->of[HF_OS_ID];
	p->monitor_owner = (u16)o->of[HF_MONITOR_OWNER];
	if (hotspot_has(o, HF_THREAD_OWNER_ID))
		p->owner_id = (u16)o->of[HF_THREAD_OWNER_ID];
	if (hotspot_has(o, HF_STACK_BASE) && hotspot_has(o, HF_STACK_SIZE)) {
		p->stack_base = (u16)o->of[HF_STACK_BASE];
		p->stack_size = (u16)o->of[HF_STACK_SIZE];
	}
	if (vm->statics[HS_THREADS]) {
		p->threads = vm->statics[HS_THREADS] + t->bias;
		p->list_length = (u16)o->of[HF_LIST_LENGTH];
		p->list_threads = (u16)o->of[HF_LIST_THREADS];
	}
	p->thread_pending = (u16)o->of[HF_THREAD_PENDING];
	return 0;
}
