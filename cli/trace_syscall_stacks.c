/* SPDX-License-Identifier: Apache-2.0 */
/*
 * culprit trace --syscalls --stacks: a script that counts system calls by name and stack.
 *
 * Threads are followed as bpf/prog/syscalls.bpf.c follows them: a new one is known before its first
 * instruction, and forgotten when it ends. Calls of 32-bit programs have other numbers: they are
 * counted apart, because their names would be wrong.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/syscalls/syscalls.h"
#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/trace_syscalls.h"

/* TS_COMPAT and TIF_32BIT, as in bpf/prog/syscalls.bpf.c. */
#if defined(__x86_64__)
#define IS_COMPAT "(curtask.thread_info.status & 2)"
#else
#define IS_COMPAT "(curtask.thread_info.flags & (1 << 22))"
#endif

/* Which threads are followed: the predicate, and what keeps @follow. */
static void put_follow(const struct trace_syscalls_target *t, struct str *who, struct str *out)
{
	if (!t->pid) {
		str_printf(who, "pid != %d", getpid());
		return;
	}
	if (t->command) {
		str_puts(who, "@follow[tid]");
		str_printf(out,
			   "tracepoint:sched:sched_process_exec /pid == %u/ "
			   "{ @follow[tid] = 1; }\n",
			   t->pid);
	} else {
		str_printf(who, "(pid == %u || @follow[tid])", t->pid);
	}
	str_printf(out,
		   "tracepoint:sched:sched_process_fork /%s/ { @follow[args.child_pid] = 1; }\n"
		   "tracepoint:sched:sched_process_exit { delete(@follow, tid); }\n",
		   str_get(who));
}

/* The calls of --only as keys of @only. */
static int put_only(const char *only, struct str *out, struct diag *d)
{
	struct syscalls_table *table = NULL;
	int r = syscalls_table_create(&table);

	if (r == 0)
		r = syscalls_table_choose(table, only, d);
	str_puts(out, "BEGIN {");
	for (u32 slot = 0; slot < SYSCALLS_UNKNOWN && r == 0; slot++)
		if (syscalls_table_plan(table, slot)->wanted)
			str_printf(out, " @only[%u] = 1;", slot);
	str_puts(out, " }\n");
	syscalls_table_destroy(table);
	return r;
}

/* Calls that are counted when they return: those that fail, or take long. */
static void put_returned(const struct trace_syscalls_arguments *a,
			 const struct trace_syscalls_target *t, const char *which, struct str *out)
{
	str_printf(out,
		   "tracepoint:raw_syscalls:sys_enter /%s/ { @begin[tid] = nsecs; }\n"
		   "tracepoint:raw_syscalls:sys_exit /%s && @begin[tid]",
		   which, which);
	if (a->errors)
		str_puts(out, " && args.ret < 0 && args.ret > -4096");
	if (t->slower_s > 0)
		str_printf(out, " && nsecs - @begin[tid] >= %llu", (u64)(t->slower_s * 1e9));
	str_puts(out, "/ { @[syscall_name(args.id), ustack] = count(); }\n"
		      "tracepoint:sched:sched_process_exit { delete(@begin, tid); }\n");
}

int trace_syscalls_script(const struct trace_syscalls_arguments *a,
			  const struct trace_syscalls_target *t, struct str *out, struct diag *d)
{
	_cleanup_str_ struct str who = {}, which = {};
	int r = 0;

	str_puts(out, "config = { max_map_keys = 65536 }\n");
	put_follow(t, &who, out);
	str_printf(&which, "%s && !" IS_COMPAT, str_get(&who));
	if (a->only) {
		r = put_only(a->only, out, d);
		str_puts(&which, " && @only[args.id]");
	}
	if (a->errors || t->slower_s > 0)
		put_returned(a, t, str_get(&which), out);
	else
		str_printf(out,
			   "tracepoint:raw_syscalls:sys_enter /%s/ "
			   "{ @[syscall_name(args.id), ustack] = count(); }\n",
			   str_get(&which));
	str_printf(out,
		   "tracepoint:raw_syscalls:sys_enter /%s && " IS_COMPAT "/ "
		   "{ @" TRACE_SYSCALLS_COMPAT " = count(); }\n",
		   str_get(&who));
	if (t->seconds)
		str_printf(out, "interval:s:%llu { exit(); }\n", t->seconds);
	return out->failed ? -ENOMEM : r;
}
