/* SPDX-License-Identifier: Apache-2.0 */
/* A machine for the compiler of the tracing language, from tables: no kernel, no files. */
#pragma once

#include <bpf/btf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "trace/trace.h"

/* The types that kernel code has: a task, and a function with two arguments. */
static struct btf *fixture_btf(void)
{
	struct btf *b = btf__new_empty();
	int n = btf__add_int(b, "int", 4, BTF_INT_SIGNED);
	int c = btf__add_int(b, "char", 1, BTF_INT_SIGNED | BTF_INT_CHAR);
	int u = btf__add_int(b, "long unsigned int", 8, 0);
	int text = btf__add_array(b, n, c, 16);
	int task, pointer, proto;

	task = btf__add_struct(b, "task_struct", 40);
	btf__add_field(b, "pid", n, 0, 0);
	btf__add_field(b, "tgid", n, 32, 0);
	btf__add_field(b, "comm", text, 64, 0);
	btf__add_field(b, "real_parent", task + 1, 192, 0);
	btf__add_field(b, "group_leader", task + 1, 256, 0);
	pointer = btf__add_ptr(b, task);
	btf__add_typedef(b, "u64", u);
	btf__add_enum(b, "color", 4);
	btf__add_enum_value(b, "RED", 1);
	proto = btf__add_func_proto(b, n);
	btf__add_func_param(b, "task", pointer);
	btf__add_func_param(b, "size", u);
	btf__add_func(b, "look", BTF_FUNC_GLOBAL, proto);
	return b;
}

/* A glob stands for two points, anything else for itself. */
static int fixture_expand(void *arg, const struct trace_point *p, struct arena *a,
			  struct trace_point **ret, u32 *ret_n, struct diag *d)
{
	bool glob = p->n_parts && strchr(p->parts[p->n_parts - 1], '*');
	struct trace_point *points = arena_calloc(a, 2, sizeof(*points));

	(void)arg;
	if (!points)
		return -ENOMEM;
	if (p->n_parts && strcmp(p->parts[0], "absent") == 0)
		return diag_set(d, -ENOENT, "there is no probe '%s'", p->text);
	for (u32 i = 0; i < 2; i++) {
		points[i] = *p;
		if (glob)
			points[i].parts[p->n_parts - 1] = i ? "look" : "find";
	}
	*ret = points;
	*ret_n = glob ? 2 : 1;
	return 0;
}

static int fixture_fields(void *arg, const struct trace_point *p, struct arena *a,
			  struct trace_field **ret, u32 *ret_n, struct diag *d)
{
	static const struct trace_field fields[] = {
		{.name = "id", .type = "long", .offset = 8, .bytes = 8, .is_signed = true},
		{.name = "filename", .type = "const char *", .offset = 16, .bytes = 8},
		{.name = "comm", .type = "char[16]", .offset = 24, .bytes = 16},
		{.name = "name",
		 .type = "__data_loc char[]",
		 .offset = 40,
		 .bytes = 4,
		 .is_data_loc = true},
		{.name = "dev", .type = "dev_t", .offset = 44, .bytes = 4},
	};
	struct trace_field *copy = arena_alloc(a, sizeof(fields));

	(void)arg;
	(void)p;
	(void)d;
	if (!copy)
		return -ENOMEM;
	memcpy(copy, fields, sizeof(fields));
	*ret = copy;
	*ret_n = ARRAY_SIZE(fields);
	return 0;
}

static int fixture_usdt(void *arg, const struct trace_point *p, struct arena *a,
			struct trace_usdt_argument **ret, u32 *ret_n, struct diag *d)
{
	static const struct trace_usdt_argument arguments[] = {
		{.bytes = 8, .kind = 1, .base = 14},
		{.bytes = -4, .kind = 2, .base = 4, .offset = -20},
		{.bytes = 4, .kind = 0, .offset = 7},
		{.bytes = 8, .kind = 3, .base = 12, .index = 11, .scale = 8, .offset = 16},
	};
	struct trace_usdt_argument *copy = arena_alloc(a, sizeof(arguments));

	(void)arg;
	(void)p;
	(void)d;
	if (!copy)
		return -ENOMEM;
	memcpy(copy, arguments, sizeof(arguments));
	*ret = copy;
	*ret_n = ARRAY_SIZE(arguments);
	return 0;
}

static int fixture_symbol(void *arg, const char *name, u64 *ret)
{
	(void)arg;
	*ret = 0xffffffff81000000;
	return strcmp(name, "absent") == 0 ? -ENOENT : 0;
}

static int fixture_user_symbol(void *arg, const char *path, const char *name, u64 *ret)
{
	(void)path;
	return fixture_symbol(arg, name, ret);
}

static int fixture_cgroup(void *arg, const char *path, u64 *ret)
{
	return fixture_symbol(arg, path, ret);
}

/* `features`: bits of what the kernel has, so that old and new ones are both compiled for. */
static struct trace_target fixture_target(const struct btf *btf, u32 features)
{
	return (struct trace_target){
		.btf = btf,
		.cpus = 2,
		.has_loop = features & 1,
		.has_task_btf = features & 2,
		.has_fetch = features & 4,
		.has_ktime_boot = features & 8,
		.has_for_each = features & 16,
		.has_cookie = features & 32,
		.has_func_ip = features & 64,
		.has_lookup_percpu = features & 128,
		.expand = fixture_expand,
		.fields = fixture_fields,
		.usdt = fixture_usdt,
		.symbol = fixture_symbol,
		.user_symbol = fixture_user_symbol,
		.cgroup = fixture_cgroup,
	};
}
