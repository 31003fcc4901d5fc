// SPDX-License-Identifier: Apache-2.0
/* Types of tracepoints' fields, and names of types. */
#include <stdio.h>
#include <string.h>

#include "trace/types.h"

struct trace_type trace_type_int(u32 bytes, bool is_signed)
{
	return (struct trace_type){.kind = TRACE_INT, .bytes = bytes, .is_signed = is_signed};
}

struct trace_type trace_type_string(u32 bytes)
{
	return (struct trace_type){.kind = TRACE_STRING, .bytes = bytes};
}

struct trace_type compile_shown(const struct trace_type *t)
{
	struct trace_type shown = *t;

	if (t->kind == TRACE_INT && t->btf)
		shown.kind = TRACE_ENUM_NAME;
	return shown;
}

bool trace_type_is_aggregation(const struct trace_type *t)
{
	return t->kind >= TRACE_COUNT && t->kind < TRACE_KIND_N;
}

bool trace_type_is_memory(const struct trace_type *t)
{
	return t->kind == TRACE_RECORD || t->kind == TRACE_ARRAY;
}

bool trace_type_is_scalar(const struct trace_type *t)
{
	switch (t->kind) {
	case TRACE_INT:
	case TRACE_BOOL:
	case TRACE_POINTER:
	case TRACE_RECORD:
	case TRACE_ARRAY:
	case TRACE_KSTACK:
	case TRACE_KSYM:
	case TRACE_USERNAME:
	case TRACE_PROBE:
	case TRACE_CGROUP:
	case TRACE_ERROR:
	case TRACE_SIGNAL:
	case TRACE_SYSCALL:
	case TRACE_SPAN_ID:
	case TRACE_ENUM_NAME:
		return true;
	default:
		return false;
	}
}

bool trace_names_same(const struct trace_type *a, const struct trace_type *b)
{
	if (!a->names || !b->names)
		return a->names == b->names;
	for (u32 i = 0; i < a->n; i++)
		if (!str_same(a->names[i], b->names[i]))
			return false;
	return true;
}

bool trace_type_same(const struct trace_type *a, const struct trace_type *b)
{
	if (a->kind != b->kind || a->bytes != b->bytes || a->is_signed != b->is_signed ||
	    a->is_user != b->is_user || a->is_ctx != b->is_ctx || a->n != b->n ||
	    a->btf != b->btf || a->low != b->low || a->high != b->high || a->step != b->step)
		return false;
	if (a->kind == TRACE_TUPLE && !trace_names_same(a, b))
		return false;
	for (u32 i = 0; a->kind == TRACE_TUPLE && i < a->n; i++)
		if (!trace_type_same(a->fields[i], b->fields[i]))
			return false;
	return true;
}

static const char *const kind_names[TRACE_KIND_N] = {[TRACE_NONE] = "no value",
						     [TRACE_BOOL] = "bool",
						     [TRACE_STRING] = "string",
						     [TRACE_BUFFER] = "buffer",
						     [TRACE_TUPLE] = "tuple",
						     [TRACE_KSTACK] = "kernel stack",
						     [TRACE_USTACK] = "user stack",
						     [TRACE_KSYM] = "kernel symbol",
						     [TRACE_USYM] = "user symbol",
						     [TRACE_INET] = "network address",
						     [TRACE_MAC] = "MAC address",
						     [TRACE_USERNAME] = "user name",
						     [TRACE_PROBE] = "probe name",
						     [TRACE_TIME] = "time",
						     [TRACE_CGROUP] = "cgroup path",
						     [TRACE_ERROR] = "error name",
						     [TRACE_SIGNAL] = "signal name",
						     [TRACE_SYSCALL] = "system call name",
						     [TRACE_TRACE_ID] = "trace id",
						     [TRACE_SPAN_ID] = "span id",
						     [TRACE_OWNER] =
							     "name of a service or container",
						     [TRACE_ENUM_NAME] = "enum",
						     [TRACE_COUNT] = "count()",
						     [TRACE_SUM] = "sum()",
						     [TRACE_MIN] = "min()",
						     [TRACE_MAX] = "max()",
						     [TRACE_AVG] = "avg()",
						     [TRACE_STATS] = "stats()",
						     [TRACE_HIST] = "hist()",
						     [TRACE_LHIST] = "lhist()",
						     [TRACE_SERIES] = "tseries()"};

const char *trace_type_text(const struct trace_types *t, const struct trace_type *type)
{
	static _Thread_local char text[4][96];
	static _Thread_local u32 next;
	char *s = text[next++ % 4];

	switch (type->kind) {
	case TRACE_INT:
		snprintf(s, sizeof(text[0]), "%sint%u", type->is_signed ? "" : "u",
			 type->bytes * 8);
		break;
	case TRACE_POINTER: {
		struct trace_type to = trace_type_of_btf(t, type->btf);

		snprintf(s, sizeof(text[0]), "%s%s *", to.kind == TRACE_RECORD ? "struct " : "",
			 trace_btf_name(t, trace_btf_plain(t, type->btf)));
		break;
	}
	case TRACE_RECORD:
		snprintf(s, sizeof(text[0]), "struct %s", trace_btf_name(t, type->btf));
		break;
	case TRACE_ARRAY:
	case TRACE_VALUES:
		snprintf(s, sizeof(text[0]), "array of %u", type->n);
		break;
	default:
		snprintf(s, sizeof(text[0]), "%s", kind_names[type->kind]);
	}
	return s;
}

/* The type before the name: tracefs has "char comm[16]" split into type and name by its reader. */
struct trace_type trace_type_of_field(struct trace_types *t, const struct trace_field *f,
				      bool is_user)
{
	bool is_char = str_starts(f->type, "char") || str_starts(f->type, "const char") ||
		       strstr(f->type, " char");
	struct trace_type type = {}, *of;

	if (f->is_data_loc && is_char)
		return trace_type_string(t->max_string);
	if (strchr(f->type, '*') && !strchr(f->type, '[')) {
		u32 id = trace_btf_find(t, f->type);

		if (!id && !f->btf)
			id = trace_btf_pointer(t, 0);
		type = trace_type_of_btf(t, f->btf ? f->btf : id);
		type.is_user = is_user;
		return type;
	}
	if (strchr(f->type, '[') || f->is_data_loc) {
		if (is_char && f->bytes)
			return trace_type_string(f->bytes);
		of = arena_calloc(t->arena, 1, sizeof(*of));
		if (!of)
			return type;
		*of = trace_type_int(1, false);
		return (struct trace_type){.kind = TRACE_ARRAY,
					   .n = f->is_data_loc ? 0 : f->bytes,
					   .btf = trace_btf_find(t, "uint8"),
					   .of = of};
	}
	type = trace_type_int(f->bytes, f->is_signed);
	if (f->bytes != 1 && f->bytes != 2 && f->bytes != 4 && f->bytes != 8)
		type = (struct trace_type){};
	return type;
}
