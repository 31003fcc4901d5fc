// SPDX-License-Identifier: Apache-2.0
/* Builtins and functions: arguments and types. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "trace/calls.h"
#include "trace/signature.h"

u32 compile_address(const char *text, u8 ret[16])
{
	if (inet_pton(AF_INET, text, ret) == 1)
		return 4;
	return inet_pton(AF_INET6, text, ret) == 1 ? 16 : 0;
}

/* ---- plain types ---- */

void check_u64(struct compiler *c, struct trace_expr *e)
{
	e->type = trace_type_int(8, false);
}

void check_s64(struct compiler *c, struct trace_expr *e)
{
	e->type = trace_type_int(8, true);
}

void check_u32(struct compiler *c, struct trace_expr *e)
{
	e->type = trace_type_int(4, false);
}

void check_bool(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){.kind = TRACE_BOOL, .bytes = 1};
}

void check_none(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){};
}

void check_comm(struct compiler *c, struct trace_expr *e)
{
	e->type = trace_type_string(16);
}

void check_probe(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){.kind = TRACE_PROBE};
}

void check_username(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){.kind = TRACE_USERNAME};
}

void check_unsupported(struct compiler *c, struct trace_expr *e)
{
	compile_fail(c, e->at, "%s() is not supported yet", e->text.data);
}

void check_constant_number(struct compiler *c, struct trace_expr *e)
{
	u32 which = trace_calls[e->symbol].number;

	e->type = trace_type_int(8, true);
	e->number = which ? c->types.max_string : c->target->cpus;
}

static bool need_number(struct compiler *c, struct trace_expr *e)
{
	if (e->type.kind == TRACE_NONE || trace_type_is_scalar(&e->type))
		return true;
	compile_fail(c, e->at, "a number is needed here, not a %s",
		     trace_type_text(&c->types, &e->type));
	return false;
}

static bool need_literal(struct compiler *c, struct trace_expr *e)
{
	if (e->kind == TRACE_EXPR_STRING)
		return true;
	compile_fail(c, e->at, "a text in quotes is needed here");
	return false;
}

static bool need_constant(struct compiler *c, struct trace_expr *e, s64 least, s64 most, s64 *ret)
{
	if (check_constant(e, ret) && *ret >= least && *ret <= most)
		return true;
	if (e->kind == TRACE_EXPR_UNARY && e->op == TRACE_OP_NEG && check_constant(e->a, ret)) {
		*ret = -*ret;
		if (*ret >= least && *ret <= most)
			return true;
	}
	compile_fail(c, e->at, "a number from %lld to %lld is needed here", (long long)least,
		     (long long)most);
	return false;
}

/* ---- the event ---- */

void check_args(struct compiler *c, struct trace_expr *e)
{
	struct diag why = {};

	e->type = (struct trace_type){.kind = TRACE_RECORD, .is_ctx = true};
	switch (c->facts.context) {
	case TRACE_CONTEXT_TRACEPOINT:
		return;
	case TRACE_CONTEXT_BTF:
	case TRACE_CONTEXT_RAW:
		if (c->facts.proto)
			return;
		compile_fail(c, e->at, "the arguments of %s are not in the kernel's BTF",
			     c->point->text);
		return;
	case TRACE_CONTEXT_REGISTERS:
		if (!c->facts.is_return && check_signature(c, &why))
			return;
		if (c->facts.is_user && c->facts.is_return) {
			compile_fail(c, e->at,
				     "args are gone when the function returns: keep them in a map");
			return;
		}
		break;
	default:
		break;
	}
	compile_fail(c, e->at, "%s has no args by name%s%s: use arg0 to arg9%s", c->point->text,
		     why.text[0] ? ", because " : "", why.text,
		     c->facts.is_user ? "" : ", or a fentry or tracepoint probe");
}

void check_ctx(struct compiler *c, struct trace_expr *e)
{
	char name[128];

	e->type = (struct trace_type){.kind = TRACE_POINTER};
	if (c->facts.context != TRACE_CONTEXT_ITER)
		return;
	snprintf(name, sizeof(name), "struct bpf_iter__%s", c->point->parts[0]);
	e->type.btf = trace_btf_find(&c->types, name);
	if (!e->type.btf)
		compile_fail(c, c->point->at, "the kernel's BTF has no %s", name);
}

void check_argument_number(struct compiler *c, struct trace_expr *e)
{
	u32 n = trace_calls[e->symbol].number;

	e->type = trace_type_int(8, false);
	e->number = n;
	switch (c->facts.context) {
	case TRACE_CONTEXT_REGISTERS:
		if (c->facts.is_return)
			compile_fail(c, e->at,
				     "%s is gone when the function returns: keep it in a map",
				     e->text.data);
		else if (str_same(c->point->provider, "usdt") && n >= c->facts.n_usdt)
			compile_fail(c, e->at, "%s has %u arguments", c->point->text,
				     c->facts.n_usdt);
		break;
	case TRACE_CONTEXT_RAW:
		break;
	case TRACE_CONTEXT_BTF:
		if (n >= check_params(c))
			compile_fail(c, e->at, "%s has %u arguments", c->point->text,
				     check_params(c));
		e->type = trace_type_of_btf(&c->types, check_param_type(c, n));
		break;
	default:
		compile_fail(c, e->at, "%s has no %s: use args.NAME", c->point->text, e->text.data);
	}
}

void check_stack_argument(struct compiler *c, struct trace_expr *e)
{
	e->type = trace_type_int(8, false);
	if (c->facts.context != TRACE_CONTEXT_REGISTERS || c->facts.is_return)
		compile_fail(c, e->at, "only kprobes and uprobes have %s", e->text.data);
}

/* A result that is no number is what the register has. */
static void check_result(struct compiler *c, struct trace_expr *e)
{
	const struct signature *s = c->facts.signature;
	u8 kind = s->types.data[s->result].kind;

	if (kind == SIGNATURE_NONE || kind == SIGNATURE_FLOAT || kind == SIGNATURE_RECORD ||
	    kind == SIGNATURE_ARRAY)
		return;
	e->type = trace_type_of_btf(&c->types,
				    trace_signature_btf(s->result, c->facts.signature_base));
	e->type.is_user = true;
}

void check_retval(struct compiler *c, struct trace_expr *e)
{
	struct diag ignored = {};

	e->type = trace_type_int(8, false);
	if (!c->facts.is_return) {
		compile_fail(c, e->at,
			     "retval is known in kretprobe, uretprobe and fexit, not in %s",
			     c->point->provider);
		return;
	}
	/* bpftrace shows it as a signed number in the kernel's return probes, too. */
	e->type.is_signed = true;
	if (check_signature(c, &ignored))
		check_result(c, e);
	if (c->facts.context == TRACE_CONTEXT_BTF) {
		e->type = trace_type_of_btf(&c->types, check_return_type(c));
		if (e->type.kind == TRACE_NONE)
			compile_fail(c, e->at, "%s returns nothing", c->point->text);
	}
}

void check_func(struct compiler *c, struct trace_expr *e)
{
	bool has_function = c->facts.context == TRACE_CONTEXT_REGISTERS ||
			    c->facts.context == TRACE_CONTEXT_BTF;

	e->type.kind = c->facts.is_user ? TRACE_USYM : TRACE_KSYM;
	if (!has_function)
		compile_fail(c, e->at, "%s is no function: use `probe`", c->point->text);
	if (c->facts.is_user && c->facts.is_return)
		compile_fail(c, e->at,
			     "func is not known in a uretprobe yet: keep it in a map at the "
			     "entry");
}

void check_reg(struct compiler *c, struct trace_expr *e)
{
	e->type = trace_type_int(8, false);
	if (!need_literal(c, e->list[0]))
		return;
	if (c->facts.context != TRACE_CONTEXT_REGISTERS && c->facts.context != TRACE_CONTEXT_PERF)
		compile_fail(c, e->at, "%s has no registers", c->point->text);
	if (register_offset(e->list[0]->text.data) < 0)
		compile_fail(c, e->list[0]->at, "this machine has no register \"%s\"",
			     e->list[0]->text.data);
}

/* ---- the thread ---- */

void check_pid(struct compiler *c, struct trace_expr *e)
{
	e->type = trace_type_int(4, false);
	if (e->kind == TRACE_EXPR_CALL && e->n_list &&
	    (e->list[0]->kind != TRACE_EXPR_NAME || (!str_same(e->list[0]->text.data, "init") &&
						     !str_same(e->list[0]->text.data, "curr_ns"))))
		compile_fail(c, e->at, "%s() takes curr_ns or init", e->text.data);
	else if (e->kind == TRACE_EXPR_CALL && e->n_list && c->target->is_in_pid_namespace &&
		 str_same(e->list[0]->text.data, "curr_ns"))
		compile_fail(c, e->at,
			     "%s(curr_ns) is known only in the initial PID namespace; run culprit "
			     "on the host",
			     e->text.data);
}

void check_curtask(struct compiler *c, struct trace_expr *e)
{
	u32 id = trace_btf_find(&c->types, "struct task_struct");

	e->type = id ? (struct trace_type){.kind = TRACE_POINTER, .btf = id}
		     : trace_type_int(8, false);
}

static void check_stack(struct compiler *c, struct trace_expr *e, enum trace_kind kind)
{
	u32 mode = TRACE_STACK_NAMES;
	s64 n = 0;

	for (u32 i = 0; e->kind == TRACE_EXPR_CALL && i < e->n_list; i++) {
		struct trace_expr *a = e->list[i];
		bool is_mode =
			a->kind == TRACE_EXPR_NAME &&
			(str_same(a->text.data, "perf") || str_same(a->text.data, "raw") ||
			 str_same(a->text.data, "bpftrace") || str_same(a->text.data, "build_id"));

		if (!is_mode && !need_constant(c, a, 1, 1024, &n))
			return;
		if (is_mode)
			mode = str_same(a->text.data, "perf")	    ? TRACE_STACK_PERF
			       : str_same(a->text.data, "bpftrace") ? TRACE_STACK_NAMES
								    : TRACE_STACK_RAW;
	}
	e->type = (struct trace_type){.kind = kind, .n = (u32)n, .bytes = mode};
	if (c->is_predicate)
		compile_fail(c, e->at, "a predicate cannot use stacks");
}

void check_kstack(struct compiler *c, struct trace_expr *e)
{
	check_stack(c, e, TRACE_KSTACK);
}

void check_ustack(struct compiler *c, struct trace_expr *e)
{
	check_stack(c, e, TRACE_USTACK);
}

static void check_span(struct compiler *c, struct trace_expr *e, enum trace_kind kind)
{
	e->type = (struct trace_type){.kind = kind};
	if (c->is_predicate)
		compile_fail(c, e->at, "a predicate cannot use spans: write if (spanid) { … }");
}

void check_trace_id(struct compiler *c, struct trace_expr *e)
{
	check_span(c, e, TRACE_TRACE_ID);
}

void check_span_id(struct compiler *c, struct trace_expr *e)
{
	check_span(c, e, TRACE_SPAN_ID);
}

void check_owner(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){.kind = TRACE_OWNER,
				      .bytes = (u32)trace_calls[e->symbol].number};
}

void check_clock(struct compiler *c, struct trace_expr *e)
{
	const char *mode =
		e->kind == TRACE_EXPR_CALL && e->n_list && e->list[0]->kind == TRACE_EXPR_NAME
			? e->list[0]->text.data
			: "boot";

	e->type = trace_type_int(8, false);
	e->number = str_same(mode, "monotonic") ? HELPER_KTIME
		    : str_same(mode, "tai")	? HELPER_KTIME_TAI
						: HELPER_KTIME_BOOT;
	if (e->number == HELPER_KTIME_BOOT && !str_same(mode, "boot"))
		compile_fail(c, e->at, "nsecs() takes boot, monotonic or tai");
	if (e->number == HELPER_KTIME_BOOT && !c->target->has_ktime_boot)
		e->number = HELPER_KTIME;
}

/* ---- values ---- */

void check_str(struct compiler *c, struct trace_expr *e)
{
	struct trace_expr *a = e->list[0];
	s64 n = c->types.max_string;

	e->type = trace_type_string(c->types.max_string);
	if (a->type.kind == TRACE_NONE)
		return;
	if (a->type.kind == TRACE_STRING)
		e->type = a->type;
	else if (!need_number(c, a))
		return;
	if (e->n_list > 1 && check_constant(e->list[1], &n) && n >= 0 && n < e->type.bytes)
		e->type.bytes = (u32)MAX(n, 1);
	else if (e->n_list > 1)
		need_number(c, e->list[1]);
}

void check_buf(struct compiler *c, struct trace_expr *e)
{
	const struct trace_type *a = &e->list[0]->type;
	s64 n = c->types.max_string;

	e->type = (struct trace_type){.kind = TRACE_BUFFER, .bytes = c->types.max_string};
	if (a->kind == TRACE_NONE)
		return;
	if (a->kind == TRACE_STRING)
		n = a->bytes;
	else if (a->kind == TRACE_ARRAY && e->n_list == 1)
		n = (s64)a->n * MAX(a->of ? a->of->bytes : 1, 1u);
	else if (!need_number(c, e->list[0]))
		return;
	if (e->n_list > 1 && check_constant(e->list[1], &n) && n < 0)
		n = 0;
	e->type.bytes = (u32)MIN(n, (s64)c->types.max_string);
}

void check_path(struct compiler *c, struct trace_expr *e)
{
	const struct trace_type *a = &e->list[0]->type;
	s64 n = c->types.max_string;

	if (e->n_list > 1 && !need_constant(c, e->list[1], 1, c->types.max_string, &n))
		return;
	e->type = trace_type_string((u32)n);
	if (a->kind == TRACE_NONE)
		return;
	if ((a->kind != TRACE_RECORD && a->kind != TRACE_POINTER) ||
	    !str_same(trace_btf_name(&c->types, trace_btf_plain(&c->types, a->btf)), "path"))
		compile_fail(c, e->list[0]->at,
			     "path() takes a struct path, as args.file.f_path is, not a %s",
			     trace_type_text(&c->types, a));
}

void check_ntop(struct compiler *c, struct trace_expr *e)
{
	struct trace_type *a = &e->list[e->n_list - 1]->type;

	e->type = (struct trace_type){.kind = TRACE_INET};
	if (a->kind == TRACE_NONE)
		return;
	if (a->kind == TRACE_ARRAY && a->n != 4 && a->n != 16)
		compile_fail(c, e->at, "an address has 4 or 16 bytes, not %u", a->n);
	else if (a->kind == TRACE_STRING && a->bytes != 4 && a->bytes != 16)
		compile_fail(c, e->at, "an address has 4 or 16 bytes, not %u", a->bytes);
	else if (a->kind != TRACE_STRING)
		need_number(c, e->list[e->n_list - 1]);
}

void check_pton(struct compiler *c, struct trace_expr *e)
{
	u8 bytes[16];

	e->type = trace_type_string(4);
	if (!need_literal(c, e->list[0]))
		return;
	e->type.bytes = compile_address(e->list[0]->text.data, bytes);
	if (!e->type.bytes)
		compile_fail(c, e->list[0]->at, "\"%s\" is no address of IPv4 or IPv6",
			     e->list[0]->text.data);
}

void check_macaddr(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){.kind = TRACE_MAC};
	if (e->list[0]->type.kind != TRACE_STRING)
		need_number(c, e->list[0]);
}

void check_bswap(struct compiler *c, struct trace_expr *e)
{
	if (!need_number(c, e->list[0]) || e->list[0]->type.kind == TRACE_NONE)
		return;
	if (e->list[0]->type.kind != TRACE_INT)
		compile_fail(c, e->at, "bswap() takes an integer, not a %s",
			     trace_type_text(&c->types, &e->list[0]->type));
	e->type = trace_type_int(e->list[0]->type.bytes, false);
}

void check_symbol_name(struct compiler *c, struct trace_expr *e)
{
	const struct trace_target *t = c->target;
	bool is_user = trace_calls[e->symbol].number;
	u64 at = 0;
	int r = -ENOENT;

	e->type = trace_type_int(8, false);
	if (!need_literal(c, e->list[0]))
		return;
	if (is_user && c->point->n_parts && t->user_symbol)
		r = t->user_symbol(t->arg, c->point->parts[0], e->list[0]->text.data, &at);
	else if (!is_user && t->symbol)
		r = t->symbol(t->arg, e->list[0]->text.data, &at);
	if (r < 0)
		compile_fail(c, e->at, "there is no symbol \"%s\"", e->list[0]->text.data);
	e->number = (s64)at;
	if (is_user)
		c->uses_point = true;
}

void check_ksym(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){.kind = TRACE_KSYM};
	need_number(c, e->list[0]);
}

void check_usym(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){.kind = TRACE_USYM};
	need_number(c, e->list[0]);
}

void check_cgroup_path(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){.kind = TRACE_CGROUP};
	need_number(c, e->list[0]);
}

void check_cgroupid(struct compiler *c, struct trace_expr *e)
{
	u64 id = 0;

	e->type = trace_type_int(8, false);
	if (!need_literal(c, e->list[0]))
		return;
	if (!c->target->cgroup || c->target->cgroup(c->target->arg, e->list[0]->text.data, &id) < 0)
		compile_fail(c, e->at, "there is no cgroup \"%s\"", e->list[0]->text.data);
	e->number = (s64)id;
}

void check_strftime(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){.kind = TRACE_TIME};
	if (need_literal(c, e->list[0]))
		need_number(c, e->list[1]);
}

/* The row's number is the kind of name. */
void check_named_number(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){.kind = (enum trace_kind)trace_calls[e->symbol].number};
	need_number(c, e->list[0]);
}

static void need_string(struct compiler *c, struct trace_expr *e)
{
	if (e->type.kind != TRACE_STRING && e->type.kind != TRACE_NONE)
		compile_fail(c, e->at, "a text is needed here, not a %s",
			     trace_type_text(&c->types, &e->type));
}

void check_strncmp(struct compiler *c, struct trace_expr *e)
{
	e->type = trace_type_int(8, false);
	need_string(c, e->list[0]);
	need_string(c, e->list[1]);
	need_constant(c, e->list[2], 0, 4096, &e->number);
}

void check_strcontains(struct compiler *c, struct trace_expr *e)
{
	const struct trace_expr *what = e->list[1];
	u32 n = what->kind == TRACE_EXPR_STRING ? what->text.n : what->type.bytes;

	check_bool(c, e);
	need_string(c, e->list[0]);
	need_string(c, e->list[1]);
	if (c->strict && compile_ok(c) && n > STRCONTAINS_MAX)
		compile_fail(c, what->at,
			     "strcontains() looks for a text of %u bytes at most, this has room "
			     "for %u: str(p, %u) shortens it",
			     STRCONTAINS_MAX, n, STRCONTAINS_MAX);
}

void check_pointer_kind(struct compiler *c, struct trace_expr *e)
{
	if (!need_number(c, e->list[0]))
		return;
	e->type = e->list[0]->type;
	e->type.is_user = trace_calls[e->symbol].number;
}

void check_strlen(struct compiler *c, struct trace_expr *e)
{
	check_u64(c, e);
	need_string(c, e->list[0]);
}

void check_is_err(struct compiler *c, struct trace_expr *e)
{
	check_bool(c, e);
	need_number(c, e->list[0]);
}

/* Parts of the point's text. */
void check_point_text(struct compiler *c, struct trace_expr *e)
{
	e->type = trace_type_string(32);
}

/* ---- output ---- */

/* Each conversion of the format takes one argument of a fitting type. */
static void check_format(struct compiler *c, struct trace_expr *e)
{
	struct trace_type types[64];
	struct diag d = {};
	u32 n = MIN(e->n_list - 1, (u32)ARRAY_SIZE(types));

	for (u32 i = 0; i < n; i++) {
		if (e->list[i + 1]->type.kind == TRACE_NONE)
			return;
		types[i] = compile_shown(&e->list[i + 1]->type);
	}
	if (trace_format_check(&e->list[0]->text, types, n, &d) < 0)
		compile_fail(c, e->list[0]->at, "%s", d.text);
}

void check_printf(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){};
	if (!need_literal(c, e->list[0]))
		return;
	for (u32 i = 1; i < e->n_list; i++)
		if (c->strict && e->list[i]->type.kind == TRACE_NONE)
			compile_fail(c, e->list[i]->at, "this has no value to show");
		else if (trace_type_is_memory(&e->list[i]->type))
			compile_fail(c, e->list[i]->at, "printf() cannot show a %s",
				     trace_type_text(&c->types, &e->list[i]->type));
	check_format(c, e);
}

void check_cat(struct compiler *c, struct trace_expr *e)
{
	check_printf(c, e);
}

void check_print(struct compiler *c, struct trace_expr *e)
{
	struct trace_expr *a = e->list[0];
	s64 n;

	e->type = (struct trace_type){};
	if (a->kind == TRACE_EXPR_MAP && !a->n_list) {
		check_map(c, a);
		for (u32 i = 1; i < e->n_list; i++)
			need_constant(c, e->list[i], 0, INT32_MAX, &n);
		return;
	}
	if (e->n_list > 1)
		compile_fail(c, e->at, "only a map has a top and a divisor");
	check_expr(c, a);
	if (c->strict && compile_ok(c) &&
	    (a->type.kind == TRACE_NONE || trace_type_is_memory(&a->type)))
		compile_fail(c, a->at, "print() cannot show a %s",
			     trace_type_text(&c->types, &a->type));
}

void check_time(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){};
	if (e->n_list)
		need_literal(c, e->list[0]);
}

void check_join(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){};
	if (need_number(c, e->list[0]) && e->n_list > 1)
		need_literal(c, e->list[1]);
}

void check_exit(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){};
	if (e->n_list)
		need_number(c, e->list[0]);
}

void check_assert(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){};
	need_string(c, e->list[1]);
}

/* ---- what changes the machine ---- */

/* "SIGKILL", "KILL" or a number. */
static void check_signal_name(struct compiler *c, struct trace_expr *e)
{
	const char *name = e->text.data + (str_starts(e->text.data, "SIG") ? 3 : 0), *known;

	for (int i = 1; i < SIGRTMIN; i++) {
		known = sigabbrev_np(i);
		if (!known || !str_same(known, name))
			continue;
		e->kind = TRACE_EXPR_NUMBER;
		e->number = i;
		e->type = trace_type_int(8, true);
		return;
	}
	compile_fail(c, e->at, "there is no signal \"%s\"", e->text.data);
}

void check_signal(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){};
	if (c->facts.context == TRACE_CONTEXT_NONE || c->facts.context == TRACE_CONTEXT_ITER)
		compile_fail(c, e->at, "%s() sends to the thread of an event; %s has none",
			     e->text.data, c->point->text);
	else if (e->list[0]->kind == TRACE_EXPR_STRING)
		check_signal_name(c, e->list[0]);
	else
		need_number(c, e->list[0]);
}

void check_override(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){};
	need_number(c, e->list[0]);
	if (!str_same(c->point->provider, "kprobe"))
		compile_fail(c, e->at, "override() works in a kprobe only, not in %s",
			     c->point->text);
}

/* ---- maps ---- */

static bool need_map(struct compiler *c, struct trace_expr *e, const char *what)
{
	if (e->kind == TRACE_EXPR_MAP)
		return check_map(c, e) != NULL;
	compile_fail(c, e->at, "%s() takes a map, as in %s(@x)", what, what);
	return false;
}

void check_map_only(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){};
	if (need_map(c, e->list[0], e->text.data) && e->list[0]->n_list)
		compile_fail(c, e->at, "%s() takes a whole map, without a key", e->text.data);
}

void check_delete(struct compiler *c, struct trace_expr *e)
{
	struct trace_expr *m = e->list[0];

	check_bool(c, e);
	if (!need_map(c, m, "delete"))
		return;
	if (m->n_list && e->n_list > 1)
		compile_fail(c, e->at, "the key is given twice");
	else if (m->n_list)
		check_key(c, m, m->list, m->n_list);
	else
		check_key(c, m, e->list + 1, e->n_list - 1);
}

void check_has_key(struct compiler *c, struct trace_expr *e)
{
	check_bool(c, e);
	if (need_map(c, e->list[0], "has_key"))
		check_key(c, e->list[0], e->list + 1, e->n_list - 1);
}

void check_len(struct compiler *c, struct trace_expr *e)
{
	check_s64(c, e);
	if (!need_map(c, e->list[0], "len"))
		return;
	c->has_functions = true;
	if (check_map(c, e->list[0])->is_scalar || e->list[0]->n_list)
		compile_fail(c, e->at, "len() takes a map with keys, without a key");
}

void check_count(struct compiler *c, struct trace_expr *e)
{
	e->type = (struct trace_type){.kind = TRACE_COUNT};
}

void check_aggregate(struct compiler *c, struct trace_expr *e)
{
	if (need_number(c, e->list[0]) && e->list[0]->type.kind != TRACE_NONE)
		e->type =
			(struct trace_type){.kind = (enum trace_kind)trace_calls[e->symbol].number,
					    .is_signed = e->list[0]->type.is_signed};
}

void check_hist(struct compiler *c, struct trace_expr *e)
{
	s64 bits = 0;

	if (e->n_list > 1 && !need_constant(c, e->list[1], 0, 5, &bits))
		return;
	need_number(c, e->list[0]);
	e->type = (struct trace_type){.kind = TRACE_HIST, .n = (u32)bits};
}

void check_lhist(struct compiler *c, struct trace_expr *e)
{
	s64 low, high, step;

	need_number(c, e->list[0]);
	if (!need_constant(c, e->list[1], INT32_MIN * 1024ll, INT32_MAX * 1024ll, &low) ||
	    !need_constant(c, e->list[2], INT32_MIN * 1024ll, INT32_MAX * 1024ll, &high) ||
	    !need_constant(c, e->list[3], 1, INT32_MAX * 1024ll, &step))
		return;
	if (high <= low)
		compile_fail(c, e->at, "the upper end of lhist() must be above the lower one");
	else if ((high - low) / step > 1000)
		compile_fail(c, e->at, "lhist() would have %lld buckets; 1000 is the limit",
			     (long long)((high - low) / step));
	else
		e->type = (struct trace_type){
			.kind = TRACE_LHIST, .low = low, .high = high, .step = step};
}

void check_series(struct compiler *c, struct trace_expr *e)
{
	static const char *const names[TRACE_SERIES_N] = {"", "avg", "max", "min", "sum"};
	const char *name = "";
	u32 how = 0;
	s64 step, n;

	need_number(c, e->list[0]);
	if (!need_constant(c, e->list[1], 1, 86400000000000, &step) ||
	    !need_constant(c, e->list[2], 1, 900, &n))
		return;
	if (e->n_list > 3) {
		if (!need_literal(c, e->list[3]))
			return;
		name = e->list[3]->text.data;
	}
	while (how < TRACE_SERIES_N && !str_same(names[how], name))
		how++;
	if (how == TRACE_SERIES_N)
		compile_fail(c, e->list[3]->at,
			     "tseries() keeps \"avg\", \"max\", \"min\" or \"sum\"");
	else if (e->list[0]->type.kind != TRACE_NONE)
		e->type = (struct trace_type){.kind = TRACE_SERIES,
					      .is_signed = e->list[0]->type.is_signed,
					      .n = (u32)n,
					      .bytes = how,
					      .step = step};
}
