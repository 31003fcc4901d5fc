/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of a function as expressions of the language. */
#include <bpf/btf.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/tracer/internal.h"
#include "agent/tracer/tracer.h"
#include "base/cleanup.h"
#include "trace/signature.h"

/* str() counts the NUL that the text does not have. */
#define GO_TEXT "str(reg(\"%s\"), reg(\"%s\") + 1)"

/* A name that may stand behind "args.". */
static bool is_plain(const char *name)
{
	for (const char *c = name; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '_')
			return false;
	return *name && !isdigit((unsigned char)*name) &&
	       strlen(name) < TRACER_PARAMETER_BYTES - sizeof("str(args.)");
}

static bool is_text(const struct signature *s, u32 type)
{
	const struct signature_type *t = &s->types.data[type];

	return t->kind == SIGNATURE_POINTER && s->types.data[t->to].kind == SIGNATURE_CHAR;
}

static void add(struct tracer_description *d, const char *name, bool text)
{
	struct tracer_parameter *p = &d->parameters[d->n++];

	snprintf(p->name, sizeof(p->name), "%s", name);
	snprintf(p->expression, sizeof(p->expression), text ? "str(args.%s)" : "args.%s", name);
}

static void add_go_string(struct tracer_description *d, u16 machine, const char *name, u32 first)
{
	struct tracer_parameter *p = &d->parameters[d->n++];

	snprintf(p->name, sizeof(p->name), "%s", name);
	snprintf(p->expression, sizeof(p->expression), GO_TEXT, trace_go_register(machine, first),
		 trace_go_register(machine, first + 1));
}

static bool is_go_string(const struct signature_type *t)
{
	return t->kind == SIGNATURE_RECORD && strcmp(t->name, "string") == 0 && t->bytes == 16;
}

static void describe_result(const struct signature *s, u16 machine, bool is_go,
			    struct tracer_description *d)
{
	const struct signature_type *t = &s->types.data[s->result];
	const char *what = "";

	if (is_go && is_go_string(t)) {
		snprintf(d->result, sizeof(d->result), GO_TEXT, trace_go_register(machine, 0),
			 trace_go_register(machine, 1));
		return;
	}
	if (t->kind >= SIGNATURE_INT && t->kind <= SIGNATURE_POINTER && t->kind != SIGNATURE_FLOAT)
		what = !is_go && is_text(s, s->result) ? "str(retval)" : "retval";
	snprintf(d->result, sizeof(d->result), "%s", what);
}

static void describe_signature(const struct signature *s, u16 machine, bool is_go,
			       struct tracer_description *d)
{
	for (u32 i = 0; i < s->parameters.n && d->n < TRACER_MAX_PARAMETERS; i++) {
		const struct signature_parameter *p = &s->parameters.data[i];
		struct trace_parameter_place place = trace_parameter_place(s, machine, i);

		if (place.kind == TRACE_PLACE_NONE || !is_plain(p->name))
			continue;
		if (place.is_go_string)
			add_go_string(d, machine, p->name, place.n);
		else
			add(d, p->name, !is_go && is_text(s, p->type));
	}
	describe_result(s, machine, is_go, d);
	d->is_known = true;
}

static int describe_in_file(const struct tracer_function_place *place, struct tracer_description *d,
			    struct diag *diag)
{
	const struct tracer_function *fn;
	const struct signature *s;
	struct tracer_file *f;
	struct diag ignored = {};
	int r = tracer_file_open(place->path, diag, &f);

	if (r < 0)
		return r;
	d->is_go = f->is_go;
	r = tracer_file_functions(f, diag);
	fn = r == 0 ? tracer_file_function(f, place->function) : NULL;
	if (fn && tracer_file_signature(f, fn, &s, &ignored) == 0)
		describe_signature(s, f->elf->machine, f->is_go, d);
	tracer_file_destroy(f);
	return r;
}

static bool is_kernel_text(const struct btf *b, u32 type)
{
	s32 to = btf__resolve_type(b, type) > 0 ? btf__resolve_type(b, type) : 0;
	const struct btf_type *t = btf__type_by_id(b, (u32)to);

	if (!t || !btf_is_ptr(t))
		return false;
	to = btf__resolve_type(b, t->type);
	t = to > 0 ? btf__type_by_id(b, (u32)to) : NULL;
	return t && btf_is_int(t) && t->size == 1 && btf_int_encoding(t) != BTF_INT_BOOL &&
	       strcmp(btf__name_by_offset(b, t->name_off), "char") == 0;
}

static bool is_kernel_number(const struct btf *b, u32 type)
{
	s32 id = btf__resolve_type(b, type);
	const struct btf_type *t = id > 0 ? btf__type_by_id(b, (u32)id) : NULL;

	return t && (btf_is_int(t) || btf_is_any_enum(t) || btf_is_ptr(t)) &&
	       (btf_is_ptr(t) || t->size <= 8);
}

static void describe_by_btf(const struct btf *b, const char *function, struct tracer_description *d)
{
	s32 id = btf__find_by_name_kind(b, function, BTF_KIND_FUNC);
	const struct btf_type *t = id > 0 ? btf__type_by_id(b, (u32)id) : NULL;

	t = t ? btf__type_by_id(b, t->type) : NULL;
	if (!t || !btf_is_func_proto(t))
		return;
	d->is_known = true;
	for (u32 i = 0; i < btf_vlen(t) && d->n < TRACER_MAX_PARAMETERS; i++) {
		const char *name = btf__name_by_offset(b, btf_params(t)[i].name_off);

		if (is_plain(name) && is_kernel_number(b, btf_params(t)[i].type))
			add(d, name, is_kernel_text(b, btf_params(t)[i].type));
	}
	if (t->type && is_kernel_number(b, t->type))
		snprintf(d->result, sizeof(d->result), "retval");
}

int tracer_describe(const struct tracer_function_place *place, struct diag *reterr_diag,
		    struct tracer_description *ret)
{
	struct btf *b;

	*ret = (struct tracer_description){};
	if (place->path)
		return describe_in_file(place, ret, reterr_diag);
	b = btf__load_vmlinux_btf();
	if (b)
		describe_by_btf(b, place->function, ret);
	btf__free(b);
	return 0;
}
