/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline without BPF for tests: the ring, processes, tables, runtimes and contexts are made
 * here. The linker puts __wrap_NAME before NAME.
 */
#pragma once

#include <criterion/criterion.h>
#include <fcntl.h>
#include <unistd.h>

#include "agent/pipeline/batch.h"
#include "unwind/host.h"

#define PID 10
#define FRAME(n) (9ULL << WORD_SVMA_BITS | (n))
#define FRAME_OF_HOST FRAME(0x999)
#define KERNEL_FRAME 0xffffffff81000000
/* Drains of the ring by pipeline_take() if no walk is parked. */
enum { AT_END, WHILE_CLOSING, AFTER_EPOCH, N_DRAINS };

static struct pipeline p;

static struct {
	void (*arrives[N_DRAINS])(void); /* records that the n-th drain finds */
	u32 n_drains, n_drains_before_epoch;
	bool page_is_missing, loader_is_busy, page_comes;
	int page_fd; /* readable */
	u64 counters[SAMPLER_MAX_SOURCES][COUNTER_N];
	u64 limits[SAMPLER_MAX_SOURCES];
	u32 n_named, n_event_drains, n_seen, n_contexts_seen;
	bool no_room_for_names, is_fork_pending;
	bool refuses_to_see;
	u64 learned_exec_id;
	int jit_fd; /* what opening a file returns; 0: a new descriptor */
	u32 n_jit_opens;
} fake;

static struct sampler_source sources[] = {{.event = "cpu-clock"}, {.event = "page-faults"}};
static struct procman_process process;
static struct procman_binary binary = {.file_id = 1};

/* ---- what the pipeline asks of other parts ---- */

const struct sampler_source *__wrap_sampler_source(const struct sampler *s, u32 i);
u64 __wrap_sampler_counter(const struct sampler *s, u32 source, enum counter counter);
u64 __wrap_sampler_limit(const struct sampler *s, u32 source);
int __wrap_sampler_drain(struct sampler *s);
void __wrap_sampler_new_epoch(struct sampler *s);
void __wrap_sampler_stats(struct sampler *s, struct sampler_stats *ret);
struct procman_process *__wrap_procman_find(struct procman *pm, u32 pid);
struct procman_process *__wrap_procman_known(const struct procman *pm, u32 pid);
struct procman_process *__wrap_procman_find_at(struct procman *pm, u32 pid, u64 time_ns);
int __wrap_procman_drain(struct procman *pm);
void __wrap_procman_learn_exec(struct procman *pm, u32 pid, u64 time_ns, u64 start_stack,
			       u64 exec_id);
struct procman_binary *__wrap_procman_binary_of_id(const struct procman *pm, u32 file_id);
void __wrap_procman_get_stats(const struct procman *pm, struct procman_stats *ret);
u32 __wrap_sampler_take_walkers(struct sampler *s);
int __wrap_sampler_walkers_fd(const struct sampler *s);
int __wrap_tables_fd(const struct tables *t);
bool __wrap_tables_busy(const struct tables *t);
u32 __wrap_tables_take(struct tables *t, bool wait);
int __wrap_tables_slice_get(struct tables *t, const struct procman_process *proc,
			    struct slice **ret);
void __wrap_tables_slice_put(struct tables *t, struct slice *s);
u32 __wrap_tables_slice_line(const struct slice *s, u32 *ret_n);
u32 __wrap_tables_slice_file(const struct tables *t, const struct slice *s, u64 avma,
			     u64 *ret_svma);
int __wrap_tables_load_page(struct tables *t, struct procman_binary *b, u64 svma);
void __wrap_tables_stats(const struct tables *t, struct tables_stats *ret);
enum stop_reason __wrap_unwind_host_walk(const struct unwind_host *host, struct walk_regs *regs,
					 u32 slice, u32 n_mappings, u64 *frames, u32 max, u32 *n);
int __wrap_runtimes_name(struct runtimes *r, const struct procman_process *proc, u64 word,
			 u64 where, u32 *ret_id);
struct runtime_answers __wrap_runtimes_take_answers(struct runtimes *r);
void __wrap_runtimes_get_stats(const struct runtimes *r, struct runtimes_stats *ret);
void __wrap_contexts_see(struct contexts *c, const struct procman_process *proc);
u32 __wrap_contexts_attributes(struct contexts *c, const struct procman_process *proc,
			       const struct record_attributes *head, const u8 *bytes,
			       struct context_label ret[CONTEXT_MAX_ATTRIBUTES], bool *ret_partial);
void __wrap_contexts_get_stats(const struct contexts *c, struct contexts_stats *ret);
int __wrap_jitfile_open(enum jitfile which, const struct procman_process *proc);

const struct sampler_source *__wrap_sampler_source(const struct sampler *s, u32 i)
{
	(void)s;
	return i < ARRAY_SIZE(sources) ? &sources[i] : NULL;
}

u64 __wrap_sampler_counter(const struct sampler *s, u32 source, enum counter counter)
{
	(void)s;
	return fake.counters[source][counter];
}

u64 __wrap_sampler_limit(const struct sampler *s, u32 source)
{
	(void)s;
	return fake.limits[source];
}

int __wrap_sampler_drain(struct sampler *s)
{
	u32 i = fake.n_drains++;

	(void)s;
	if (i < N_DRAINS && fake.arrives[i])
		fake.arrives[i]();
	return 0;
}

void __wrap_sampler_new_epoch(struct sampler *s)
{
	(void)s;
	fake.n_drains_before_epoch = fake.n_drains;
}

void __wrap_sampler_stats(struct sampler *s, struct sampler_stats *ret)
{
	(void)s;
	*ret = (struct sampler_stats){};
}

struct procman_process *__wrap_procman_find(struct procman *pm, u32 pid)
{
	(void)pm;
	return pid == PID && !fake.is_fork_pending ? &process : NULL;
}

struct procman_process *__wrap_procman_known(const struct procman *pm, u32 pid)
{
	(void)pm;
	return pid == PID ? &process : NULL;
}

struct procman_process *__wrap_procman_find_at(struct procman *pm, u32 pid, u64 time_ns)
{
	(void)time_ns;
	return __wrap_procman_find(pm, pid);
}

int __wrap_procman_drain(struct procman *pm)
{
	(void)pm;
	fake.n_event_drains++;
	fake.is_fork_pending = false;
	return 0;
}

void __wrap_procman_learn_exec(struct procman *pm, u32 pid, u64 time_ns, u64 start_stack,
			       u64 exec_id)
{
	(void)pm;
	cr_expect_eq(pid, PID);
	process.image++;
	process.image_ns = time_ns;
	process.start_stack = start_stack;
	fake.learned_exec_id = exec_id;
}

struct procman_binary *__wrap_procman_binary_of_id(const struct procman *pm, u32 file_id)
{
	(void)pm;
	return file_id == binary.file_id ? &binary : NULL;
}

void __wrap_procman_get_stats(const struct procman *pm, struct procman_stats *ret)
{
	(void)pm;
	*ret = (struct procman_stats){};
}

int __wrap_tables_fd(const struct tables *t)
{
	(void)t;
	return fake.page_fd;
}

u32 __wrap_sampler_take_walkers(struct sampler *s)
{
	(void)s;
	return 0;
}

int __wrap_sampler_walkers_fd(const struct sampler *s)
{
	(void)s;
	return -1;
}

bool __wrap_tables_busy(const struct tables *t)
{
	(void)t;
	return fake.loader_is_busy;
}

u32 __wrap_tables_take(struct tables *t, bool wait)
{
	(void)t;
	(void)wait;
	fake.page_is_missing &= !fake.page_comes;
	return 1;
}

int __wrap_tables_slice_get(struct tables *t, const struct procman_process *proc,
			    struct slice **ret)
{
	(void)t;
	(void)proc;
	*ret = (struct slice *)&fake;
	return 0;
}

void __wrap_tables_slice_put(struct tables *t, struct slice *s)
{
	(void)t;
	(void)s;
}

u32 __wrap_tables_slice_line(const struct slice *s, u32 *ret_n)
{
	(void)s;
	*ret_n = 1;
	return 1;
}

u32 __wrap_tables_slice_file(const struct tables *t, const struct slice *s, u64 avma, u64 *ret_svma)
{
	(void)t;
	(void)s;
	*ret_svma = avma;
	return binary.file_id;
}

int __wrap_tables_load_page(struct tables *t, struct procman_binary *b, u64 svma)
{
	(void)t;
	(void)b;
	(void)svma;
	return -EALREADY;
}

void __wrap_tables_stats(const struct tables *t, struct tables_stats *ret)
{
	(void)t;
	*ret = (struct tables_stats){};
}

enum stop_reason __wrap_unwind_host_walk(const struct unwind_host *host, struct walk_regs *regs,
					 u32 slice, u32 n_mappings, u64 *frames, u32 max, u32 *n)
{
	(void)regs;
	(void)slice;
	(void)n_mappings;
	(void)max;
	if (fake.page_is_missing) {
		(void)host->missing(host->arg, 0x1000);
		return STOP_NOT_LOADED;
	}
	frames[(*n)++] = FRAME_OF_HOST;
	return STOP_COMPLETE;
}

int __wrap_runtimes_name(struct runtimes *r, const struct procman_process *proc, u64 word,
			 u64 where, u32 *ret_id)
{
	(void)r;
	(void)word;
	(void)where;
	cr_expect_eq(proc, &process);
	*ret_id = fake.n_named++;
	return fake.no_room_for_names;
}

struct runtime_answers __wrap_runtimes_take_answers(struct runtimes *r)
{
	(void)r;
	return (struct runtime_answers){};
}

void __wrap_runtimes_get_stats(const struct runtimes *r, struct runtimes_stats *ret)
{
	(void)r;
	*ret = (struct runtimes_stats){};
}

void __wrap_contexts_see(struct contexts *c, const struct procman_process *proc)
{
	(void)c;
	(void)proc;
	fake.n_contexts_seen++;
}

u32 __wrap_contexts_attributes(struct contexts *c, const struct procman_process *proc,
			       const struct record_attributes *head, const u8 *bytes,
			       struct context_label ret[CONTEXT_MAX_ATTRIBUTES], bool *ret_partial)
{
	(void)c;
	(void)proc;
	(void)head;
	ret[0] = (struct context_label){.name = "user", .value = (const char *)bytes};
	*ret_partial = false;
	return 1;
}

void __wrap_contexts_get_stats(const struct contexts *c, struct contexts_stats *ret)
{
	(void)c;
	*ret = (struct contexts_stats){};
}

int __wrap_jitfile_open(enum jitfile which, const struct procman_process *proc)
{
	(void)which;
	(void)proc;
	fake.n_jit_opens++;
	return fake.jit_fd ? fake.jit_fd : open("/dev/null", O_RDONLY | O_CLOEXEC);
}
