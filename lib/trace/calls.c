// SPDX-License-Identifier: Apache-2.0
/*
 * Builtins and functions of the language, one row each. A new one is a row, what checks its
 * arguments, and what emits it.
 */
#include "trace/calls.h"

#include <string.h>

#define VALUE(name, check, emit, number)                                                           \
	{                                                                                          \
		name, 0, 0, CALL_NAME, check, emit, number                                         \
	}
#define ARG(n) VALUE("arg" #n, check_argument_number, emit_argument_number, n)
#define SARG(n) VALUE("sarg" #n, check_stack_argument, emit_stack_argument, n)

const struct call trace_calls[] = {
	/* the event */
	VALUE("args", check_args, emit_args, 0),
	VALUE("ctx", check_ctx, emit_ctx, 0),
	VALUE("func", check_func, emit_func, 0),
	VALUE("probe", check_probe, emit_probe, 0),
	VALUE("retval", check_retval, emit_retval, 0),
	ARG(0),
	ARG(1),
	ARG(2),
	ARG(3),
	ARG(4),
	ARG(5),
	ARG(6),
	ARG(7),
	ARG(8),
	ARG(9),
	SARG(0),
	SARG(1),
	SARG(2),
	SARG(3),
	SARG(4),
	SARG(5),
	SARG(6),
	SARG(7),
	SARG(8),
	SARG(9),
	VALUE("probetype", check_point_text, emit_point_text, 1),
	{"reg", 1, 1, 0, check_reg, emit_reg, 0},
	/* the thread */
	{"pid", 0, 1, CALL_NAME | CALL_RAW, check_pid, emit_pid, 0},
	{"tid", 0, 1, CALL_NAME | CALL_RAW, check_pid, emit_tid, 0},
	VALUE("uid", check_u32, emit_uid, 0),
	VALUE("gid", check_u32, emit_gid, 0),
	VALUE("username", check_username, emit_uid, 0),
	VALUE("comm", check_comm, emit_comm, 0),
	VALUE("curtask", check_curtask, emit_helper, HELPER_TASK),
	VALUE("ppid", check_u32, emit_task_number, 0),
	VALUE("pcomm", check_comm, emit_parent_comm, 0),
	VALUE("cgroup", check_u64, emit_helper, HELPER_CGROUP),
	VALUE("usermode", check_bool, emit_usermode, 0),
	{"kstack", 0, 2, CALL_NAME | CALL_RAW, check_kstack, emit_kstack, 0},
	{"ustack", 0, 2, CALL_NAME | CALL_RAW, check_ustack, emit_ustack, 0},
	VALUE("traceid", check_trace_id, emit_trace_id, 0),
	VALUE("spanid", check_span_id, emit_span_id, 0),
	VALUE("service", check_owner, emit_owner, TRACE_OWNER_SERVICE),
	VALUE("container", check_owner, emit_owner, TRACE_OWNER_CONTAINER),
	VALUE("pod", check_owner, emit_owner, TRACE_OWNER_POD),
	/* the machine */
	VALUE("cpu", check_u32, emit_helper, HELPER_CPU),
	VALUE("numaid", check_u32, emit_helper, HELPER_NUMA_NODE),
	VALUE("rand", check_u32, emit_helper, HELPER_RANDOM),
	VALUE("jiffies", check_u64, emit_helper, HELPER_JIFFIES),
	VALUE("elapsed", check_u64, emit_elapsed, 0),
	VALUE("ncpus", check_constant_number, emit_constant_number, 0),
	VALUE("default_str_length", check_constant_number, emit_constant_number, 1),
	{"nsecs", 0, 1, CALL_NAME | CALL_RAW, check_clock, emit_clock, 0},
	/* values */
	{"str", 1, 2, 0, check_str, emit_str, 0},
	{"kstr", 1, 2, 0, check_str, emit_str, 1},
	{"ustr", 1, 2, 0, check_str, emit_str, 2},
	{"buf", 1, 2, 0, check_buf, emit_buf, 0},
	{"path", 1, 2, 0, check_path, emit_path, 0},
	{"ntop", 1, 2, 0, check_ntop, emit_ntop, 0},
	{"pton", 1, 1, 0, check_pton, emit_pton, 0},
	{"macaddr", 1, 1, 0, check_macaddr, emit_macaddr, 0},
	{"bswap", 1, 1, 0, check_bswap, emit_bswap, 0},
	{"kaddr", 1, 1, 0, check_symbol_name, emit_symbol_name, 0},
	{"uaddr", 1, 1, 0, check_symbol_name, emit_symbol_name, 1},
	{"cgroupid", 1, 1, 0, check_cgroupid, emit_constant_number, 2},
	{"cgroup_path", 1, 2, 0, check_cgroup_path, emit_first, 0},
	{"ksym", 1, 1, 0, check_ksym, emit_first, 0},
	{"usym", 1, 1, 0, check_usym, emit_usym, 0},
	{"strerror", 1, 1, 0, check_named_number, emit_first, TRACE_ERROR},
	{"signal_name", 1, 1, 0, check_named_number, emit_first, TRACE_SIGNAL},
	{"syscall_name", 1, 1, 0, check_named_number, emit_first, TRACE_SYSCALL},
	{"strftime", 2, 2, 0, check_strftime, emit_strftime, 0},
	{"strlen", 1, 1, 0, check_strlen, emit_strlen, 0},
	{"is_err", 1, 1, 0, check_is_err, emit_is_err, 0},
	{"strncmp", 3, 3, 0, check_strncmp, emit_strncmp, 0},
	{"strcontains", 2, 2, 0, check_strcontains, emit_strcontains, 0},
	{"kptr", 1, 1, 0, check_pointer_kind, emit_first, 0},
	{"uptr", 1, 1, 0, check_pointer_kind, emit_first, 1},
	/* output */
	{"printf", 1, 64, 0, check_printf, emit_printf, 0},
	{"errorf", 1, 64, 0, check_printf, emit_printf, 1},
	{"warnf", 1, 64, 0, check_printf, emit_printf, 1},
	{"print", 1, 3, CALL_RAW, check_print, emit_print, 0},
	{"cat", 1, 16, 0, check_cat, emit_cat, 0},
	{"time", 0, 1, CALL_RAW, check_time, emit_time, 0},
	{"join", 1, 2, 0, check_join, emit_join, 0},
	{"exit", 0, 1, 0, check_exit, emit_exit, 0},
	{"assert", 2, 2, 0, check_assert, emit_assert, 0},
	/* what changes the machine */
	{"system", 1, 64, CALL_UNSAFE, check_printf, emit_system, 0},
	{"signal", 1, 1, CALL_UNSAFE, check_signal, emit_signal, HELPER_SEND_SIGNAL},
	{"signal_thread", 1, 1, CALL_UNSAFE, check_signal, emit_signal, HELPER_SEND_SIGNAL_THREAD},
	{"override", 1, 1, CALL_UNSAFE, check_override, emit_override, 0},
	/* maps */
	{"clear", 1, 1, CALL_RAW, check_map_only, emit_map_record, TRACE_RECORD_CLEAR},
	{"zero", 1, 1, CALL_RAW, check_map_only, emit_map_record, TRACE_RECORD_ZERO},
	{"delete", 1, 16, CALL_RAW, check_delete, emit_delete, 0},
	{"len", 1, 1, CALL_RAW, check_len, emit_len, 0},
	{"has_key", 2, 16, CALL_RAW, check_has_key, emit_has_key, 0},
	{"count", 0, 0, CALL_AGGREGATE, check_count, emit_nothing, TRACE_COUNT},
	{"sum", 1, 1, CALL_AGGREGATE, check_aggregate, emit_nothing, TRACE_SUM},
	{"min", 1, 1, CALL_AGGREGATE, check_aggregate, emit_nothing, TRACE_MIN},
	{"max", 1, 1, CALL_AGGREGATE, check_aggregate, emit_nothing, TRACE_MAX},
	{"avg", 1, 1, CALL_AGGREGATE, check_aggregate, emit_nothing, TRACE_AVG},
	{"stats", 1, 1, CALL_AGGREGATE, check_aggregate, emit_nothing, TRACE_STATS},
	{"hist", 1, 2, CALL_AGGREGATE, check_hist, emit_nothing, 0},
	{"lhist", 4, 4, CALL_AGGREGATE, check_lhist, emit_nothing, 0},
	{"tseries", 3, 4, CALL_AGGREGATE, check_series, emit_nothing, 0},
	/* not here */
	{"write_user", 0, 8, CALL_RAW, check_unsupported, emit_nothing, 0},
	{"skboutput", 0, 8, CALL_RAW, check_unsupported, emit_nothing, 0},
	{"unwatch", 1, 1, CALL_RAW, check_unsupported, emit_nothing, 0},
	{"socket_cookie", 1, 1, CALL_RAW, check_unsupported, emit_nothing, 0},
	{},
};

/* bpftrace's own library has builtins under names of their own, too. */
const struct call *trace_call_find(const char *name)
{
	if (str_starts(name, "__builtin_"))
		name += strlen("__builtin_");
	for (const struct call *f = trace_calls; f->name; f++)
		if (str_same(f->name, name))
			return f;
	return NULL;
}

int trace_call_names(const char **names, u32 max)
{
	u32 n = 0;

	for (const struct call *f = trace_calls; f->name && n < max; f++)
		names[n++] = f->name;
	return (int)n;
}
