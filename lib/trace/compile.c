// SPDX-License-Identifier: Apache-2.0
/* A script becomes a program: settings, points, types, then the code of each point. */
#include <bpf/btf.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "trace/compile.h"

#define PROGRAM_MAX_BYTES (256u << 20)
#define TYPES_MAX_BYTES (256u << 20)
#define MAX_PASSES 16
#define MAX_MAP_VALUE 32000 /* of a map per CPU: the kernel's limit is 32 KiB */

struct point_of {
	struct trace_probe *probe;
	struct trace_point *point;
};
typedef vec(struct point_of) points_of;

/* ---- settings ---- */

struct settings {
	u64 max_map_keys, max_probes;
};

static int number_setting(struct compiler *c, const struct trace_setting *s, u64 least, u64 most,
			  u64 *ret)
{
	u64 v;

	if (str_to_u64(s->value.data, 0, &v) < 0 || v < least || v > most) {
		compile_fail(c, s->at, "%s is a number from %llu to %llu", s->name,
			     (unsigned long long)least, (unsigned long long)most);
		return -EINVAL;
	}
	*ret = v;
	return 0;
}

/* bpftrace's names; those of things that culprit has no choice in are accepted. */
static void read_setting(struct compiler *c, const struct trace_setting *s, struct settings *set)
{
	static const char *const accepted[] = {"stack_mode",	     "cache_user_symbols",
					       "lazy_symbolication", "on_stack_limit",
					       "log_size",	     "perf_rb_pages",
					       "show_debug_info",    "str_trunc_trailer",
					       "unstable_macro",     "use_blazesym",
					       "cpp_demangle",	     "license",
					       "unstable_import",    "unstable_map_decl",
					       "unstable_tseries",   "max_type_res_iterations",
					       "max_bpf_progs",	     "max_ast_nodes",
					       "max_cat_bytes"};
	u64 n;

	if (str_same(s->name, "max_map_keys")) {
		number_setting(c, s, 1, 1 << 24, &set->max_map_keys);
	} else if (str_same(s->name, "max_probes")) {
		number_setting(c, s, 1, 100000, &set->max_probes);
	} else if (str_same(s->name, "max_strlen")) {
		if (number_setting(c, s, 1, 8192, &n) == 0)
			c->types.max_string = (u32)n;
	} else if (str_same(s->name, "missing_probes")) {
		c->program->missing_probes_warn = !str_same(s->value.data, "error");
	} else if (str_same(s->name, "print_maps_on_exit")) {
		c->program->print_maps_on_exit =
			!str_same(s->value.data, "0") && !str_same(s->value.data, "false");
	} else {
		for (size_t i = 0; i < ARRAY_SIZE(accepted); i++)
			if (str_same(s->name, accepted[i]))
				return;
		compile_fail(c, s->at, "there is no setting \"%s\"", s->name);
	}
}

/* ---- points ---- */

/* `is_needed`: the action has no other points. */
static int add_points(struct compiler *c, struct trace_probe *probe, struct trace_point *p,
		      bool is_needed, u64 max_probes, points_of *points)
{
	struct trace_point *expanded = p;
	struct diag d = {};
	u32 n = 1;
	int r = 0;

	if (c->target->expand)
		r = c->target->expand(c->target->arg, p, c->types.arena, &expanded, &n, &d);
	/* An action needs one of its points; kernels differ in which they have. */
	if (r == -ENOENT || (r == 0 && !n)) {
		if (is_needed && !c->program->missing_probes_warn)
			compile_fail(c, p->at, "%s",
				     d.text[0] ? d.text : "there is no such probe on this machine");
		return 0;
	}
	if (r < 0) {
		compile_fail(c, p->at, "%s", d.text[0] ? d.text : strerror(-r));
		return -EINVAL;
	}
	if (points->n + n > max_probes) {
		compile_fail(c, p->at,
			     "the script has more than %llu probes: the setting max_probes "
			     "allows more",
			     (unsigned long long)max_probes);
		return -EINVAL;
	}
	for (u32 i = 0; i < n; i++)
		if (vec_push(points, (struct point_of){probe, &expanded[i]}) < 0)
			return c->error = -ENOMEM;
	return 0;
}

static void resolve_points(struct compiler *c, u64 max_probes, points_of *points)
{
	vec_foreach (&c->script->probes, probe) {
		size_t before = points->n, n = probe->points.n;

		c->probe = probe;
		for (size_t i = 0; i < n && compile_ok(c); i++)
			add_points(c, probe, &probe->points.data[i],
				   i + 1 == n && points->n == before, max_probes, points);
	}
	if (compile_ok(c) && !points->n)
		c->error = diag_set(c->diag, -EINVAL,
				    "1:1: none of the script's probes exists on this machine");
}

/* Do two points of one action have the same types, whatever the action uses? */
static bool same_facts(const struct trace_point *a, const struct trace_point *b)
{
	return str_same(a->provider, b->provider) && !str_same(a->provider, "tracepoint") &&
	       !str_same(a->provider, "rawtracepoint") && !str_same(a->provider, "usdt") &&
	       !str_same(a->provider, "fentry") && !str_same(a->provider, "fexit");
}

/* ---- types ---- */

static bool check_all(struct compiler *c, const points_of *points)
{
	c->maps_changed = false;
	for (size_t i = 0; i < points->n && compile_ok(c); i++) {
		struct point_of *p = &points->data[i];

		if (i && p[-1].probe == p->probe && same_facts(p[-1].point, p->point))
			continue;
		check_point(c, p->probe, p->point);
	}
	return c->maps_changed;
}

static void lay_out_maps(struct compiler *c, u64 max_keys)
{
	c->zeros = (c->types.max_string + 7) / 8 * 8;
	vec_foreach (&c->program->maps, m) {
		const struct trace_type *v = &m->value;

		m->is_scalar = m->key.kind == TRACE_NONE;
		m->key_bytes = m->is_scalar ? 4 : trace_type_room(&m->key);
		m->value_bytes = trace_type_room(v);
		m->max_entries = m->is_scalar ? 1 : (u32)max_keys;
		m->per_cpu = trace_type_is_aggregation(v);
		vec_foreach (&c->script->maps, let)
			if (str_same(let->name, m->name) && !m->is_scalar) {
				if (let->max_entries && let->max_entries <= 1 << 24)
					m->max_entries = (u32)let->max_entries;
				m->is_lru = strstr(let->type, "lru") != NULL;
			}
		if (m->value_bytes > MAX_MAP_VALUE)
			compile_fail(c, m->at, "a value of @%s has %u bytes; %u is the limit",
				     m->name, m->value_bytes, MAX_MAP_VALUE);
		if (m->per_cpu || m->value.kind == TRACE_INT)
			c->zeros = MAX(c->zeros, m->value_bytes);
	}
}

static void infer(struct compiler *c, const points_of *points)
{
	bool changed = true;

	for (u32 pass = 0; changed && pass < MAX_PASSES && compile_ok(c); pass++)
		changed = check_all(c, points);
	if (changed && compile_ok(c))
		compile_fail(c, c->script->probes.data[0].at,
			     "the types of maps and variables cannot be found out");
}

/* ---- code ---- */

static void keep_point(struct compiler *c, const struct trace_point *p, u32 code)
{
	struct trace_compiled out = {
		.context = c->facts.context, .type = c->facts.type, .code = code};
	size_t n = strlen(p->text) + 1;

	out.point = arena_alloc(&c->program->arena, sizeof(*out.point));
	out.name = arena_alloc(&c->program->arena, n);
	if (!out.point || !out.name) {
		c->error = -ENOMEM;
		return;
	}
	*out.point = *p;
	memcpy(out.name, p->text, n);
	if (vec_push(&c->program->probes, out) < 0)
		c->error = -ENOMEM;
}

static void emit_points(struct compiler *c, const points_of *points)
{
	u32 code = 0;

	c->strict = true;
	for (size_t i = 0; i < points->n && compile_ok(c); i++) {
		struct point_of *p = &points->data[i];
		bool is_first = !i || p[-1].probe != p->probe;

		if (is_first)
			c->probe_base = (u32)c->program->probes.n;
		if (is_first || c->uses_point || !same_facts(p[-1].point, p->point)) {
			check_point(c, p->probe, p->point);
			if (!compile_ok(c))
				return;
			code = emit_point(c);
		}
		if (compile_ok(c))
			keep_point(c, p->point, code);
	}
}

static u64 boot_ns(void)
{
	struct timespec t = {};

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (u64)t.tv_sec * 1000000000 + (u64)t.tv_nsec;
}

static int compile(struct compiler *c)
{
	struct settings set = {.max_map_keys = 4096, .max_probes = 1024};
	points_of points = {};

	c->program->print_maps_on_exit = true;
	/* Room for two texts and more in a key. */
	if (c->target->has_small_keys)
		c->types.max_string = 200;
	vec_foreach (&c->script->settings, s)
		if (compile_ok(c))
			read_setting(c, s, &set);
	if (compile_ok(c))
		c->error = trace_types_define(&c->types, c->script, c->diag);
	if (compile_ok(c))
		resolve_points(c, set.max_probes, &points);
	if (compile_ok(c))
		infer(c, &points);
	if (compile_ok(c))
		lay_out_maps(c, set.max_map_keys);
	/* Texts of join() share the record, which is in the scratch. */
	c->program->join_bytes = MIN((c->types.max_string + 7) / 8 * 8, 1024u);
	if (compile_ok(c))
		emit_points(c, &points);
	c->program->scratch_bytes = SCRATCH_ZEROS + c->zeros + c->scratch_used;
	vec_deinit(&points);
	return c->error;
}

int trace_compile(struct trace_script *s, const struct trace_target *t, struct diag *d,
		  struct trace_program **ret)
{
	struct arena types = ARENA_INIT(TYPES_MAX_BYTES);
	struct diag own = {};
	struct compiler c = {.script = s, .target = t, .diag = d ? d : &own};
	int r;

	c.program = calloc(1, sizeof(*c.program));
	if (!c.program)
		return -ENOMEM;
	c.program->arena = (struct arena)ARENA_INIT(PROGRAM_MAX_BYTES);
	c.start_ns = boot_ns();
	r = trace_types_init(&c.types, t->btf, &types);
	if (r == 0)
		r = compile(&c);
	asm_deinit(&c.code);
	vec_foreach (&c.functions, f)
		asm_deinit(f);
	vec_deinit(&c.functions);
	vec_deinit(&c.variables);
	vec_deinit(&c.signatures);
	/* Values that are printed have types in it. */
	c.program->btf = c.types.all;
	/* Tuples in maps have their fields in this arena. */
	c.program->types = types;
	if (r < 0) {
		trace_program_destroy(c.program);
		return r;
	}
	*ret = c.program;
	return 0;
}

void trace_program_destroy(struct trace_program *p)
{
	if (!p)
		return;
	vec_deinit(&p->maps);
	vec_deinit(&p->formats);
	vec_deinit(&p->prints);
	vec_deinit(&p->texts);
	vec_deinit(&p->errors);
	vec_deinit(&p->probes);
	vec_deinit(&p->codes);
	btf__free(p->btf);
	arena_deinit(&p->types);
	arena_deinit(&p->arena);
	free(p);
}
