/* SPDX-License-Identifier: Apache-2.0 */
/* The functions behind the rows of trace_calls: check_call.c, emit_call.c, emit_print.c. */
#pragma once

#include "trace/compile.h"

/* The bytes of what strcontains() looks for: its code and the verifier's work grow with them. */
#define STRCONTAINS_MAX 64
/* The bytes of an address of IPv4 or IPv6: 4 or 16; 0: the text is none. */
u32 compile_address(const char *text, u8 ret[16]);

/* check_call.c: most rows only have a type. */
call_check check_u64, check_s64, check_u32, check_u16, check_bool, check_none, check_comm,
	check_curtask, check_args, check_argument_number, check_stack_argument, check_retval,
	check_func, check_probe, check_username, check_kstack, check_ustack, check_trace_id,
	check_span_id, check_owner, check_clock, check_pid, check_str, check_buf, check_ntop,
	check_macaddr, check_bswap, check_symbol_name, check_ksym, check_usym, check_cgroup_path,
	check_cgroupid, check_strftime, check_named_number, check_pton, check_assert, check_signal,
	check_override, check_path, check_series, check_reg, check_strncmp, check_strcontains,
	check_pointer_kind, check_printf, check_cat, check_print, check_map_only, check_delete,
	check_has_key, check_time, check_join, check_exit, check_aggregate, check_hist, check_lhist,
	check_count, check_constant_number, check_unsupported, check_ctx, check_len, check_strlen,
	check_is_err, check_point_text;

call_emit emit_pid, emit_tid, emit_uid, emit_gid, emit_helper, emit_clock, emit_elapsed, emit_comm,
	emit_args, emit_argument_number, emit_stack_argument, emit_retval, emit_func, emit_probe,
	emit_task_number, emit_parent_comm, emit_kstack, emit_ustack, emit_trace_id, emit_span_id,
	emit_owner, emit_usermode, emit_ctx, emit_str, emit_buf, emit_ntop, emit_pton, emit_macaddr,
	emit_bswap, emit_first, emit_symbol_name, emit_usym, emit_strftime, emit_reg, emit_strncmp,
	emit_strcontains, emit_constant_number, emit_printf, emit_cat, emit_print, emit_map_record,
	emit_delete, emit_has_key, emit_time, emit_join, emit_exit, emit_assert, emit_system,
	emit_signal, emit_override, emit_path, emit_nothing, emit_len, emit_strlen, emit_is_err,
	emit_point_text;
