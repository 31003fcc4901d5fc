/* SPDX-License-Identifier: Apache-2.0 */
/* Lists points: what can be probed, by glob. */
#include <bpf/btf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/tracer/internal.h"
#include "agent/tracer/tracer.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "proc/proc.h"

#define MAX_LISTED 2000000
#define MAX_ARENA (1ULL << 30)

struct list {
	struct tracer_machine *m;
	const struct tracer_list_options *o;
	const char *whole; /* a glob for the whole text of a point; NULL: all */
	FILE *out;
	u32 n, n_of[TRACER_KIND_N + 1]; /* points, and by kind */
	struct strtab files;		/* of the process that have been listed */
};

/* ---- arguments ---- */

static void print_field(FILE *out, const struct trace_field *f)
{
	const char *bracket = strchr(f->type, '[');

	if (bracket && !f->is_data_loc && !strchr(bracket, ' '))
		fprintf(out, "    %.*s %s%s\n", (int)(bracket - f->type), f->type, f->name,
			bracket);
	else
		fprintf(out, "    %s %s\n", f->type, f->name);
}

static void print_fields(struct list *l, const struct trace_point *p)
{
	struct arena a = ARENA_INIT(1 << 20);
	struct trace_field *fields;
	u32 n;

	if (tracer_event_fields(p->parts[0], p->parts[1], &a, &fields, &n, NULL) == 0)
		for (u32 i = 0; i < n; i++)
			if (strncmp(fields[i].name, "common_", 7) != 0)
				print_field(l->out, &fields[i]);
	arena_deinit(&a);
}

static void write_type(void *arg, const char *format, va_list ap)
{
	vfprintf(arg, format, ap);
}

static void print_type(struct list *l, struct btf_dump *dump, u32 type, const char *name)
{
	LIBBPF_OPTS(btf_dump_emit_type_decl_opts, o, .field_name = name);

	fputs("    ", l->out);
	if (!type)
		fprintf(l->out, "void %s", name);
	else
		(void)btf_dump__emit_type_decl(dump, type, &o);
	fputc('\n', l->out);
}

static void print_arguments(struct list *l, const struct trace_point *p)
{
	const struct btf *btf = l->m->btf;
	s32 id = btf__find_by_name_kind(btf, p->parts[p->n_parts - 1], BTF_KIND_FUNC);
	const struct btf_type *t = id > 0 ? btf__type_by_id(btf, (u32)id) : NULL;
	const struct btf_type *proto = t ? btf__type_by_id(btf, t->type) : NULL;
	struct btf_dump *dump = btf_dump__new(btf, write_type, l->out, NULL);

	for (u32 i = 0; dump && proto && i < btf_vlen(proto); i++)
		print_type(l, dump, btf_params(proto)[i].type,
			   btf__str_by_offset(btf, btf_params(proto)[i].name_off));
	if (dump && proto && proto->type)
		print_type(l, dump, proto->type, "retval");
	btf_dump__free(dump);
}

/* "0.23 us", or why there is no such probe; "" if that is not asked for. */
static void cost_text(const struct list *l, enum tracer_kind kind, char *ret, size_t n)
{
	const struct tracer_cost *c = l->o->costs ? &l->o->costs[kind] : NULL;

	ret[0] = '\0';
	if (!c || kind == TRACER_KIND_N)
		return;
	if (c->refused[0])
		snprintf(ret, n, "refused: %s", c->refused);
	else if (c->least_ns)
		snprintf(ret, n, "%.1f or %.1f us, by the first instruction",
			 (double)c->least_ns / 1e3, (double)c->ns / 1e3);
	else
		snprintf(ret, n, "%.2f us", (double)c->ns / 1e3);
}

static void put_cost(struct json_writer *w, const struct list *l, enum tracer_kind kind)
{
	if (!l->o->costs || kind == TRACER_KIND_N)
		return;
	if (l->o->costs[kind].refused[0])
		json_put_text(w, "refused", l->o->costs[kind].refused);
	else
		json_put_u64(w, "event_ns", l->o->costs[kind].ns);
	if (l->o->costs[kind].least_ns)
		json_put_u64(w, "least_event_ns", l->o->costs[kind].least_ns);
}

static void print_json(struct list *l, const struct trace_point *p, enum tracer_kind kind)
{
	_cleanup_str_ struct str text = {};
	struct json_writer w = {.out = &text};

	json_open_object(&w, NULL);
	json_put_text(&w, "probe", p->text);
	put_cost(&w, l, kind);
	json_close(&w);
	fprintf(l->out, "%s\n", str_get(&text));
}

static void print_point(struct list *l, const struct trace_point *p)
{
	enum tracer_kind kind;
	char cost[256];

	if (l->whole && !tracer_matches(l->whole, p->text))
		return;
	kind = tracer_kind_of(p->provider);
	l->n++;
	l->n_of[kind]++;
	if (l->o->kinds)
		return;
	if (l->o->json) {
		print_json(l, p, kind);
		return;
	}
	cost_text(l, kind, cost, sizeof(cost));
	if (cost[0])
		fprintf(l->out, "%-56s %s\n", p->text, cost);
	else
		fprintf(l->out, "%s\n", p->text);
	if (!l->o->arguments)
		return;
	if (strcmp(p->provider, "tracepoint") == 0)
		print_fields(l, p);
	else if (strcmp(p->provider, "fentry") == 0 || strcmp(p->provider, "fexit") == 0)
		print_arguments(l, p);
}

/* ---- kinds ---- */

struct events {
	struct list *l;
	const char *provider, *glob;
};

static int print_event(void *arg, const char *provider, const char *name)
{
	struct events *e = arg;
	struct trace_point p = {.provider = provider};
	char text[128];

	if (strcmp(provider, e->provider) != 0 || !tracer_matches(e->glob, name))
		return 0;
	snprintf(text, sizeof(text), "%s:%s:", provider, name);
	p.text = text;
	print_point(e->l, &p);
	return 0;
}

/* Lists the points of one kind. `parts` are globs. */
static int list_kind(struct list *l, const char *provider, const char *const *parts, u32 n,
		     struct diag *d)
{
	struct trace_point p = {.provider = provider, .n_parts = n, .text = provider}, *found;
	struct events e = {l, provider, n ? parts[0] : NULL};
	struct arena a = ARENA_INIT(MAX_ARENA);
	u32 n_found = 0;
	int r;

	if (strcmp(provider, "hardware") == 0 || strcmp(provider, "software") == 0)
		return tracer_events_each(print_event, &e);
	for (u32 i = 0; i < n; i++)
		p.parts[i] = parts[i];
	r = tracer_expand(l->m, &p, &a, &found, &n_found, d);
	for (u32 i = 0; i < n_found; i++)
		print_point(l, &found[i]);
	arena_deinit(&a);
	return r;
}

/* The kinds that can be listed without a program, and globs for all of them. */
static const struct {
	const char *provider;
	const char *parts[2];
	u32 n;
} kinds[] = {
	{"fentry", {"*"}, 1},	{"hardware", {"*"}, 1},	       {"kprobe", {"*"}, 1},
	{"software", {"*"}, 1}, {"tracepoint", {"*", "*"}, 2}, {"rawtracepoint", {"*"}, 1},
};

/* Functions and USDT probes of each file that the process has mapped as code. */
static int list_file(void *arg, const struct proc_mapping *m)
{
	struct list *l = arg;
	const char *parts[] = {m->path, "*", "*"};
	struct diag ignored = {};
	u32 id;

	if (!m->path || m->path[0] != '/' || !(m->prot & PROT_EXEC) ||
	    strtab_find(&l->files, m->path, strlen(m->path), &id) ||
	    strtab_add(&l->files, m->path, strlen(m->path), &id) < 0)
		return 0;
	(void)list_kind(l, "uprobe", parts, 2, &ignored);
	(void)list_kind(l, "usdt", parts, 3, &ignored);
	return 0;
}

/* Points of all kinds whose whole text matches. */
static int list_all(struct list *l)
{
	struct diag ignored = {};
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		(void)list_kind(l, kinds[i].provider, kinds[i].parts, kinds[i].n, &ignored);
	if (!l->o->pid)
		return 0;
	r = strtab_init(&l->files);
	if (r == 0)
		r = proc_maps_read(l->o->pid, 0, list_file, l);
	strtab_deinit(&l->files);
	return r < 0 ? r : 0;
}

static void print_kind(struct list *l, enum tracer_kind kind)
{
	_cleanup_str_ struct str text = {};
	struct json_writer w = {.out = &text};
	char cost[256];

	if (l->o->json) {
		json_open_object(&w, NULL);
		json_put_text(&w, "kind", tracer_kind_name(kind));
		json_put_u64(&w, "probes", l->n_of[kind]);
		put_cost(&w, l, kind);
		json_close(&w);
		fprintf(l->out, "%s\n", str_get(&text));
		return;
	}
	cost_text(l, kind, cost, sizeof(cost));
	if (!l->o->pid && (kind == TRACER_UPROBE || kind == TRACER_URETPROBE))
		fprintf(l->out, "%-14s %8s  %s\n", tracer_kind_name(kind), "-p PID", cost);
	else
		fprintf(l->out, "%-14s %8u  %s\n", tracer_kind_name(kind), l->n_of[kind], cost);
}

static void print_kinds(struct list *l)
{
	/* Each function can be probed at its return, too. */
	l->n_of[TRACER_KRETPROBE] = l->n_of[TRACER_KPROBE];
	l->n_of[TRACER_FEXIT] = l->n_of[TRACER_FENTRY];
	l->n_of[TRACER_URETPROBE] = l->n_of[TRACER_UPROBE];
	if (!l->o->json)
		fprintf(l->out, "%-14s %8s  %s\n", "kind", "probes", "an event costs");
	for (u32 i = 0; i < TRACER_KIND_N; i++)
		print_kind(l, (enum tracer_kind)i);
}

/* Full names of kinds, and their short ones. */
static const char *full_provider(const char *name)
{
	static const struct {
		const char *brief, *full;
	} names[] = {{"t", "tracepoint"}, {"rt", "rawtracepoint"},
		     {"k", "kprobe"},	  {"kr", "kretprobe"},
		     {"f", "fentry"},	  {"fr", "fexit"},
		     {"kfunc", "fentry"}, {"kretfunc", "fexit"},
		     {"u", "uprobe"},	  {"ur", "uretprobe"},
		     {"U", "usdt"},	  {"h", "hardware"},
		     {"s", "software"},	  {"raw_tracepoint", "rawtracepoint"}};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(name, names[i].brief) == 0)
			return names[i].full;
	return name;
}

static int list_points(struct list *l, char *glob, struct diag *d)
{
	const char *parts[TRACE_POINT_PARTS];
	char *provider = glob, *next = strchr(glob, ':');
	u32 n = 0;

	while (next && n < TRACE_POINT_PARTS) {
		*next++ = '\0';
		parts[n++] = next;
		next = strchr(next, ':');
	}
	/* "uprobe:/bin/bash" and "usdt:/bin/bash:*" */
	provider = (char *)full_provider(provider);
	if (n == 1 && (provider[0] == 'u' || strcmp(provider, "tracepoint") == 0))
		parts[n++] = "*";
	if (n && !parts[n - 1][0])
		parts[n - 1] = "*";
	return list_kind(l, provider, parts, n, d);
}

int tracer_list(const struct tracer_list_options *o, struct diag *reterr_diag)
{
	struct list l = {.o = o, .out = o->out};
	_cleanup_free_ char *text = strdup(o->glob);
	struct tracer_machine *m;
	int r;

	if (!text)
		return -ENOMEM;
	r = tracer_machine_create(o->pid, reterr_diag, &m);
	if (r < 0)
		return r;
	m->max_points = MAX_LISTED;
	l.m = m;
	if (!strchr(o->glob, ':') || o->glob[0] == '*') {
		l.whole = o->glob[0] ? o->glob : NULL;
		r = list_all(&l);
	} else {
		r = list_points(&l, text, reterr_diag);
	}
	tracer_machine_destroy(m);
	if (r == 0 && o->kinds)
		print_kinds(&l);
	return r < 0 ? r : (int)l.n;
}
