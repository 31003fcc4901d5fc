// SPDX-License-Identifier: Apache-2.0
/* What a point gives to its action: context, arguments, types of arguments. */
#include <bpf/btf.h>
#include <stdio.h>
#include <string.h>

#include "base/closest.h"
#include "trace/compile.h"
#include "trace/signature.h"

static const struct {
	const char *provider;
	enum trace_context context;
	enum bpf_prog_type type;
	bool is_return, is_user;
} providers[] = {
	{"BEGIN", TRACE_CONTEXT_NONE, BPF_PROG_TYPE_RAW_TRACEPOINT, false, false},
	{"END", TRACE_CONTEXT_NONE, BPF_PROG_TYPE_RAW_TRACEPOINT, false, false},
	{"interval", TRACE_CONTEXT_NONE, BPF_PROG_TYPE_RAW_TRACEPOINT, false, false},
	{"self", TRACE_CONTEXT_NONE, BPF_PROG_TYPE_RAW_TRACEPOINT, false, false},
	{"kprobe", TRACE_CONTEXT_REGISTERS, BPF_PROG_TYPE_KPROBE, false, false},
	{"kretprobe", TRACE_CONTEXT_REGISTERS, BPF_PROG_TYPE_KPROBE, true, false},
	{"uprobe", TRACE_CONTEXT_REGISTERS, BPF_PROG_TYPE_KPROBE, false, true},
	{"uretprobe", TRACE_CONTEXT_REGISTERS, BPF_PROG_TYPE_KPROBE, true, true},
	{"usdt", TRACE_CONTEXT_REGISTERS, BPF_PROG_TYPE_KPROBE, false, true},
	{"tracepoint", TRACE_CONTEXT_TRACEPOINT, BPF_PROG_TYPE_TRACEPOINT, false, false},
	{"rawtracepoint", TRACE_CONTEXT_RAW, BPF_PROG_TYPE_RAW_TRACEPOINT, false, false},
	{"fentry", TRACE_CONTEXT_BTF, BPF_PROG_TYPE_TRACING, false, false},
	{"fexit", TRACE_CONTEXT_BTF, BPF_PROG_TYPE_TRACING, true, false},
	{"profile", TRACE_CONTEXT_PERF, BPF_PROG_TYPE_PERF_EVENT, false, false},
	{"hardware", TRACE_CONTEXT_PERF, BPF_PROG_TYPE_PERF_EVENT, false, false},
	{"software", TRACE_CONTEXT_PERF, BPF_PROG_TYPE_PERF_EVENT, false, false},
	{"watchpoint", TRACE_CONTEXT_PERF, BPF_PROG_TYPE_PERF_EVENT, false, false},
	{"iter", TRACE_CONTEXT_ITER, BPF_PROG_TYPE_TRACING, false, false},
};

/* The function behind a fentry point or a raw tracepoint, in BTF. */
static u32 find_proto(struct compiler *c, const struct trace_point *p)
{
	const char *name = p->n_parts ? p->parts[p->n_parts - 1] : "";
	char tracepoint[160];
	const struct btf_type *t;
	s32 id;

	if (!c->types.kernel)
		return 0;
	if (c->facts.context == TRACE_CONTEXT_RAW) {
		/* typedef void (*btf_trace_NAME)(void *, …) */
		snprintf(tracepoint, sizeof(tracepoint), "btf_trace_%s", name);
		id = btf__find_by_name_kind(c->types.kernel, tracepoint, BTF_KIND_TYPEDEF);
		c->facts.skipped = 1;
	} else {
		id = btf__find_by_name_kind(c->types.kernel, name, BTF_KIND_FUNC);
	}
	for (u32 i = 0; id > 0 && i < 4; i++) {
		t = btf__type_by_id(c->types.kernel, (u32)id);
		if (t && btf_is_func_proto(t))
			return (u32)id;
		id = t ? (s32)t->type : 0;
	}
	return 0;
}

static void load_facts(struct compiler *c)
{
	const struct trace_target *t = c->target;
	struct trace_point *p = c->point;
	struct diag d = {};
	int r = 0;

	if (c->facts.context == TRACE_CONTEXT_TRACEPOINT && t->fields)
		r = t->fields(t->arg, p, c->types.arena, &c->facts.fields, &c->facts.n_fields, &d);
	if (str_same(p->provider, "usdt") && t->usdt)
		r = t->usdt(t->arg, p, c->types.arena, &c->facts.usdt, &c->facts.n_usdt, &d);
	if (r < 0)
		compile_fail(c, p->at, "%s: %s", p->text, d.text[0] ? d.text : strerror(-r));
	if (c->facts.context == TRACE_CONTEXT_BTF || c->facts.context == TRACE_CONTEXT_RAW)
		c->facts.proto = find_proto(c, p);
}

void check_enter(struct compiler *c, struct trace_probe *probe, struct trace_point *point)
{
	c->probe = probe;
	c->point = point;
	c->facts = (struct point_facts){};
	c->next_variable = 0;
	c->has_functions = false;
	vec_clear(&c->variables);
	for (size_t i = 0; i < ARRAY_SIZE(providers); i++) {
		if (!str_same(providers[i].provider, point->provider))
			continue;
		c->facts.context = providers[i].context;
		c->facts.type = providers[i].type;
		c->facts.is_return = providers[i].is_return;
		c->facts.is_user = providers[i].is_user;
		if (str_same(point->provider, "tracepoint") && point->n_parts &&
		    str_same(point->parts[0], "syscalls"))
			c->facts.is_user = true;
		load_facts(c);
		return;
	}
	compile_fail(c, point->at, "probes of the kind \"%s\" are not supported", point->provider);
}

/* Types of variables may follow from later statements, hence the repetition. */
void check_point(struct compiler *c, struct trace_probe *probe, struct trace_point *point)
{
	check_enter(c, probe, point);
	for (u32 pass = 0; pass < 10 && compile_ok(c); pass++) {
		c->changed = false;
		c->next_variable = 0;
		c->depth = 0;
		vec_foreach (&c->variables, v)
			v->is_live = false;
		c->is_predicate = true;
		if (probe->predicate)
			check_expr(c, probe->predicate);
		c->is_predicate = false;
		if (compile_ok(c) && probe->body)
			check_block(c, probe->body);
		if (!c->changed)
			break;
	}
}

/* ---- arguments ---- */

u32 check_params(const struct compiler *c)
{
	const struct btf_type *t =
		c->facts.proto ? btf__type_by_id(c->types.kernel, c->facts.proto) : NULL;

	return t ? btf_vlen(t) : 0;
}

u32 check_param_type(const struct compiler *c, u32 index)
{
	const struct btf_type *t =
		c->facts.proto ? btf__type_by_id(c->types.kernel, c->facts.proto) : NULL;

	return t && index < btf_vlen(t) ? btf_params(t)[index].type : 0;
}

u32 check_return_type(const struct compiler *c)
{
	const struct btf_type *t =
		c->facts.proto ? btf__type_by_id(c->types.kernel, c->facts.proto) : NULL;

	return t ? t->type : 0;
}

static void no_argument(struct compiler *c, struct trace_expr *e, const char *const *names,
			size_t n)
{
	_cleanup_str_ struct str there = {};

	if (!n) {
		compile_fail(c, e->at, "%s has no arguments that are known here", c->point->text);
		return;
	}
	closest_append(&there, e->text.data, names, n, 100);
	compile_fail(c, e->at, "%s has no argument \"%s\"; it has %s", c->point->text, e->text.data,
		     str_get(&there));
}

static void check_field_of_record(struct compiler *c, struct trace_expr *e)
{
	const char *names[64];
	u32 n = 0;

	for (u32 i = 0; i < c->facts.n_fields; i++) {
		struct trace_field *f = &c->facts.fields[i];

		if (str_same(f->name, e->text.data)) {
			e->symbol = i;
			e->type = trace_type_of_field(&c->types, f, c->facts.is_user);
			if (e->type.kind == TRACE_NONE)
				compile_fail(c, e->at,
					     "the type \"%s\" of this field is not supported",
					     f->type);
			e->type.is_ctx = trace_type_is_memory(&e->type);
			return;
		}
		if (n < ARRAY_SIZE(names))
			names[n++] = f->name;
	}
	no_argument(c, e, names, n);
}

bool check_signature(struct compiler *c, struct diag *d)
{
	const struct trace_target *t = c->target;
	struct known_signature known = {};

	if (c->facts.signature)
		return true;
	if (!c->facts.is_user || c->facts.context != TRACE_CONTEXT_REGISTERS || !t->signature ||
	    str_same(c->point->provider, "usdt") ||
	    t->signature(t->arg, c->point, &known.signature, d) < 0)
		return false;
	vec_foreach (&c->signatures, k)
		if (k->signature == known.signature)
			known.base = k->base;
	if (!known.base && (trace_signature_add(&c->types, known.signature, &known.base) < 0 ||
			    vec_push(&c->signatures, known) < 0)) {
		(void)diag_set(d, -EINVAL, "its types cannot be shown");
		return false;
	}
	c->facts.signature = known.signature;
	c->facts.signature_base = known.base;
	return true;
}

static void check_parameter(struct compiler *c, struct trace_expr *e)
{
	const struct signature *s = c->facts.signature;
	struct trace_parameter_place place;
	const char *names[64];
	u32 n = 0;

	for (u32 i = 0; i < s->parameters.n; i++) {
		const struct signature_parameter *p = &s->parameters.data[i];

		if (!str_same(p->name, e->text.data)) {
			if (p->name[0] && n < ARRAY_SIZE(names))
				names[n++] = p->name;
			continue;
		}
		place = trace_parameter_place(s, c->target->machine, i);
		if (place.is_go_string)
			compile_fail(
				c, e->at,
				"\"%s\" is a string of Go: write str(reg(\"%s\"), reg(\"%s\") + 1)",
				p->name, trace_go_register(c->target->machine, place.n),
				trace_go_register(c->target->machine, place.n + 1));
		else if (place.kind == TRACE_PLACE_NONE)
			compile_fail(c, e->at, "\"%s\" cannot be read: %s", p->name, place.why);
		e->symbol = i;
		e->type = trace_type_of_btf(&c->types,
					    trace_signature_btf(p->type, c->facts.signature_base));
		/* Maps and functions of Go are addresses. */
		if (e->type.kind == TRACE_NONE)
			e->type = trace_type_int(8, false);
		e->type.is_user = true;
		return;
	}
	no_argument(c, e, names, n);
}

void check_argument(struct compiler *c, struct trace_expr *e)
{
	const struct btf_type *t =
		c->facts.proto ? btf__type_by_id(c->types.kernel, c->facts.proto) : NULL;
	const char *names[16];
	u32 n = 0;

	if (c->facts.context == TRACE_CONTEXT_TRACEPOINT) {
		check_field_of_record(c, e);
		return;
	}
	if (c->facts.signature) {
		check_parameter(c, e);
		return;
	}
	for (u32 i = c->facts.skipped; t && i < btf_vlen(t); i++) {
		const char *name = btf__name_by_offset(c->types.kernel, btf_params(t)[i].name_off);

		if (str_same(name, e->text.data)) {
			e->symbol = i;
			e->type = trace_type_of_btf(&c->types, btf_params(t)[i].type);
			return;
		}
		if (name && *name && n < ARRAY_SIZE(names))
			names[n++] = name;
	}
	no_argument(c, e, names, n);
}
