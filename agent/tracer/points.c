/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From points as people write them to points without globs:
 *
 *	tracepoint:CATEGORY:NAME            rawtracepoint:NAME
 *	kprobe:FUNCTION[+N]                 fentry:[vmlinux:]FUNCTION
 *	uprobe:/PATH:FUNCTION[+N]           uprobe:/PATH:0xADDRESS (also of a line of source)
 *	usdt:/PATH:PROVIDER:NAME            and the address of the place
 *
 * Other kinds are checked where they are attached.
 */
#include <bpf/btf.h>
#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/tracer/internal.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/closest.h"
#include "base/str.h"
#include "symbol/symbol.h"

bool tracer_is_glob(const char *text)
{
	return strpbrk(text, "*?[") != NULL;
}

bool tracer_matches(const char *glob, const char *text)
{
	return !glob || !*glob || fnmatch(glob, text, 0) == 0;
}

static const char *copy(struct arena *a, const char *text)
{
	size_t n = strlen(text) + 1;
	char *p = arena_alloc(a, n);

	return p ? memcpy(p, text, n) : NULL;
}

int tracer_found_add(struct tracer_found *f, struct diag *d, const char *const *parts, u32 n)
{
	struct trace_point p = {.at = f->like->at, .provider = f->like->provider, .n_parts = n};
	_cleanup_str_ struct str text = {};

	if (f->points.n >= f->max)
		return diag_set(d, -E2BIG, "'%s' stands for more than %u probes: name fewer",
				f->like->text, f->max);
	str_puts(&text, p.provider);
	for (u32 i = 0; i < n; i++) {
		p.parts[i] = copy(f->arena, parts[i]);
		if (!p.parts[i])
			return -ENOMEM;
		str_printf(&text, ":%s", parts[i]);
	}
	p.text = copy(f->arena, str_get(&text));
	return p.text && !text.failed ? vec_push(&f->points, p) : -ENOMEM;
}

/* ---- tracepoints ---- */

struct listing {
	struct tracer_machine *m;
	struct tracer_found *found;
	struct diag *d;
	const char *first, *second; /* what the parts must match */
	bool by_btf;
};

static int match_event(void *arg, const char *category, const char *name)
{
	struct listing *l = arg;
	const char *parts[] = {category, name};

	if (!tracer_matches(l->first, category) || !tracer_matches(l->second, name))
		return 0;
	return tracer_found_add(l->found, l->d, parts, 2);
}

static int expand_tracepoint(struct tracer_machine *m, struct tracer_found *f, struct diag *d)
{
	const struct trace_point *p = f->like;
	struct listing l = {m, f, d, p->parts[0], p->parts[1], false};
	u64 id;

	if (p->n_parts != 2)
		return diag_set(d, -EINVAL, "a tracepoint is tracepoint:CATEGORY:NAME");
	if (tracer_is_glob(p->parts[0]) || tracer_is_glob(p->parts[1]))
		return tracer_events_list(match_event, &l, d);
	return tracer_event_id(p->parts[0], p->parts[1], &id, d) < 0
		       ? -ENOENT
		       : tracer_found_add(f, d, p->parts, 2);
}

/* The kernel's BTF has a type btf_trace_NAME for each. */
static int expand_raw(struct tracer_machine *m, struct tracer_found *f, struct diag *d)
{
	const char *glob = f->like->n_parts ? f->like->parts[f->like->n_parts - 1] : "";
	int r = 0;

	if (f->like->n_parts < 1 || f->like->n_parts > 2)
		return diag_set(d, -EINVAL, "a raw tracepoint is rawtracepoint:NAME");
	for (u32 i = 1; i < btf__type_cnt(m->btf) && r == 0; i++) {
		const struct btf_type *t = btf__type_by_id(m->btf, i);
		const char *name = btf__str_by_offset(m->btf, t->name_off);

		if (!btf_is_typedef(t) || !str_starts(name, "btf_trace_"))
			continue;
		name += strlen("btf_trace_");
		if (tracer_matches(glob, name))
			r = tracer_found_add(f, d, &name, 1);
	}
	return r;
}

/* ---- functions of the kernel ---- */

static int match_function(void *arg, const char *module, const char *name)
{
	struct listing *l = arg;
	const char *parts[] = {module, name};

	if (!tracer_matches(l->second, name) || !tracer_matches(l->first, module))
		return 0;
	if (!l->by_btf)
		return tracer_found_add(l->found, l->d, &name, 1);
	if (!tracer_machine_describes(l->m, name))
		return 0;
	return tracer_found_add(l->found, l->d, parts, 2);
}

static int expand_kernel(struct tracer_machine *m, struct tracer_found *f, struct diag *d)
{
	const struct trace_point *p = f->like;
	bool by_btf = p->provider[0] == 'f' || strstr(p->provider, "func");
	const char *name = p->n_parts ? p->parts[p->n_parts - 1] : "";
	const char *module = p->n_parts > 1 ? p->parts[0] : NULL;
	struct listing l = {m, f, d, module, name, by_btf};
	char plain[256];

	if (p->n_parts < 1 || p->n_parts > 2 || !*name)
		return diag_set(d, -EINVAL, "a probe of the kernel is %s:FUNCTION", p->provider);
	if (tracer_is_glob(name))
		return tracer_kernel_functions(match_function, &l, d);
	snprintf(plain, sizeof(plain), "%.*s", (int)strcspn(name, "+"), name);
	if (by_btf ? !tracer_machine_describes(m, plain) : !tracer_kernel_has(m, plain))
		return -ENOENT;
	return by_btf ? match_function(&l, module && !tracer_is_glob(module) ? module : "vmlinux",
				       name)
		      : tracer_found_add(f, d, &name, 1);
}

/* ---- functions of programs ---- */

bool tracer_is_demangled(const char *wanted, const char *name)
{
	_cleanup_free_ char *demangled = NULL;
	size_t n = strlen(wanted);

	if (name[0] != '_' || (name[1] != 'Z' && name[1] != 'R'))
		return false;
	demangled = symbol_demangle(name);
	if (!demangled)
		return false;
	if (tracer_is_glob(wanted))
		return tracer_matches(wanted, demangled);
	return strncmp(demangled, wanted, n) == 0 && (!demangled[n] || demangled[n] == '(');
}

static int add_function(struct tracer_found *f, const struct tracer_file *file, const char *name,
			struct diag *d)
{
	const char *parts[] = {file->path, name};

	return tracer_found_add(f, d, parts, 2);
}

static int add_matching(struct tracer_found *f, const struct tracer_file *file, const char *glob,
			bool demangled, struct diag *d)
{
	const char *last = "";
	int r = 0;

	for (size_t i = 0; i < file->functions.n && r == 0; i++) {
		const char *name = file->functions.data[i].name;

		if (strcmp(name, last) == 0 ||
		    !(demangled ? tracer_is_demangled(glob, name) : tracer_matches(glob, name)))
			continue;
		r = add_function(f, file, name, d);
		last = name;
	}
	return r;
}

static int no_function(const struct tracer_file *file, const char *name, struct diag *d)
{
	_cleanup_free_ const char **names = calloc(file->functions.n + 1, sizeof(*names));
	_cleanup_str_ struct str like = {};
	size_t n = 0;

	for (size_t i = 0; names && i < file->functions.n; i++)
		names[n++] = file->functions.data[i].name;
	if (n)
		(void)closest_append(&like, name, names, n, 80);
	return diag_set(d, -ENOENT, "%s has no function '%s'%s%s", file->path, name,
			n ? "; there are " : ": it has no symbols", str_get(&like));
}

/* The points of the returns of a function of Go. */
static int add_go_returns(struct tracer_found *f, const struct tracer_file *file,
			  const struct trace_point *p, struct diag *d)
{
	const struct tracer_function *fn = tracer_file_function(file, p->parts[1]);
	tracer_addresses returns = {};
	char where[4096 + 32];
	int r = fn ? tracer_go_returns(file, fn, &returns, d)
		   : diag_set(d, -ENOTSUP,
			      "returns of Go are probed by the function's name alone: Go moves "
			      "stacks, so that another probe of returns would crash the program");

	for (size_t i = 0; i < returns.n && r == 0; i++) {
		const char *parts[] = {file->path, where};

		snprintf(where, sizeof(where), "%s+%llu", p->parts[1], returns.data[i] - fn->svma);
		r = tracer_found_add(f, d, parts, 2);
		if (r < 0)
			break;
		f->points.data[f->points.n - 1].text = p->text;
		f->points.data[f->points.n - 1].is_return_insn = true;
		f->points.data[f->points.n - 1].is_place = true;
	}
	vec_deinit(&returns);
	return r;
}

/* Replaces the points from `first` on by those of their returns. */
static int split_returns(struct tracer_found *f, const struct tracer_file *file, size_t first,
			 struct diag *d)
{
	bool is_glob = tracer_is_glob(f->like->parts[f->like->n_parts - 1]);
	vec(struct trace_point) whole = {};
	int r = vec_reserve(&whole, f->points.n - first + 1);

	for (size_t i = first; i < f->points.n && r == 0; i++)
		r = vec_push(&whole, f->points.data[i]);
	f->points.n = first;
	vec_foreach (&whole, p) {
		if (r == 0)
			r = add_go_returns(f, file, p, d);
		if (r == -ENOTSUP && is_glob)
			r = 0;
	}
	vec_deinit(&whole);
	return r;
}

static int expand_in_file(struct tracer_machine *m, struct tracer_found *f, const char *path,
			  struct diag *d)
{
	const struct trace_point *p = f->like;
	const char *name = p->parts[p->n_parts - 1];
	bool returns = strcmp(p->provider, "uretprobe") == 0;
	struct tracer_file *file;
	char plain[4096];
	size_t before;
	int r = tracer_machine_file(m, path, d, &file);

	if (r < 0)
		return r;
	r = tracer_file_functions(file, d);
	if (r < 0)
		return r;
	before = f->points.n;
	if (name[0] >= '0' && name[0] <= '9')
		r = add_function(f, file, name, d);
	else if (tracer_is_glob(name))
		r = add_matching(f, file, name, p->n_parts == 3, d);
	snprintf(plain, sizeof(plain), "%.*s", (int)strcspn(name, "+"), name);
	if (r == 0 && f->points.n == before && tracer_file_function(file, plain))
		r = add_function(f, file, name, d);
	if (r == 0 && f->points.n == before)
		r = add_matching(f, file, name, true, d);
	if (r == 0 && f->points.n == before && !tracer_is_glob(name))
		return no_function(file, name, d);
	return r == 0 && returns && file->is_go ? split_returns(f, file, before, d) : r;
}

/* ---- lines of source: uprobe:PATH@FILE:LINE ---- */

/* Where the file of source begins; NULL: the point names no line. A path may have an @ itself. */
static const char *source_of(const struct trace_point *p)
{
	const char *at = p->n_parts == 2 ? strrchr(p->parts[0], '@') : NULL;
	u64 line;

	return at && at[1] && str_to_u64(p->parts[1], 10, &line) == 0 && line &&
			       access(p->parts[0], F_OK) < 0
		       ? at + 1
		       : NULL;
}

static int expand_line(struct tracer_machine *m, struct tracer_found *f, const char *path,
		       struct diag *d)
{
	const char *source = source_of(f->like);
	signature_places places = {};
	struct tracer_file *file;
	u64 line = 0;
	int r = strcmp(f->like->provider, "uprobe") == 0
			? tracer_machine_file(m, path, d, &file)
			: diag_set(d, -EINVAL, "a line of source is probed by a uprobe, not a %s",
				   f->like->provider);

	(void)str_to_u64(f->like->parts[1], 10, &line);
	if (r == 0)
		r = tracer_file_functions(file, d);
	if (r == 0)
		r = tracer_file_line(file, source, (u32)MIN(line, (u64)UINT32_MAX), &places, d);
	for (size_t i = 0; i < places.n && r == 0; i++) {
		char where[24];
		const char *parts[] = {file->path, where};

		/* Code that the linker has left out. */
		if (!tracer_file_at(file, places.data[i]))
			continue;
		snprintf(where, sizeof(where), "0x%llx", places.data[i]);
		r = tracer_found_add(f, d, parts, 2);
		if (r < 0)
			break;
		f->points.data[f->points.n - 1].text = f->like->text;
		f->points.data[f->points.n - 1].is_place = true;
	}
	vec_deinit(&places);
	return r == -ENOENT ? diag_set(d, -EINVAL, "%s", d->text) : r;
}

/* ---- USDT ---- */

static int expand_usdt_in(struct tracer_machine *m, struct tracer_found *f, const char *path,
			  struct diag *d)
{
	const struct trace_point *p = f->like;
	const char *provider = p->n_parts > 2 ? p->parts[1] : NULL;
	const char *name = p->parts[p->n_parts - 1];
	struct tracer_file *file;
	int r = tracer_machine_file(m, path, d, &file);

	if (r == 0)
		r = tracer_file_usdt(file, d);
	if (r < 0)
		return r;
	for (size_t i = 0; i < file->usdt.n && r == 0; i++) {
		const struct usdt_probe *u = &file->usdt.data[i];
		char where[24];
		const char *parts[] = {file->path, u->provider, u->name, where};

		if (!tracer_matches(provider, u->provider) || !tracer_matches(name, u->name))
			continue;
		snprintf(where, sizeof(where), "0x%llx", u->svma);
		r = tracer_found_add(f, d, parts, 4);
		/* The address is for us only. */
		if (r == 0) {
			struct trace_point *last = &f->points.data[f->points.n - 1];

			((char *)last->text)[strlen(last->text) - strlen(where) - 1] = '\0';
		}
	}
	return r;
}

/* ---- files ---- */

typedef int expand_fn(struct tracer_machine *m, struct tracer_found *f, const char *path,
		      struct diag *d);

/* All that a glob of paths stands for; what is no ELF file is left out. */
static int expand_paths(struct tracer_machine *m, struct tracer_found *f, const char *pattern,
			expand_fn *fn, struct diag *d)
{
	glob_t paths = {};
	int r = 0;

	if (glob(pattern, GLOB_NOSORT, NULL, &paths) != 0)
		return 0;
	for (size_t i = 0; i < paths.gl_pathc && r != -ENOMEM && r != -E2BIG; i++) {
		_cleanup_free_ char *path = NULL;
		struct diag ignored = {};

		if (tracer_find_program(paths.gl_pathv[i], 0, NULL, &path) < 0)
			continue;
		r = fn(m, f, path, &ignored);
		if (r == -ENOMEM || r == -E2BIG)
			(void)diag_set(d, r, "%s", ignored.text);
	}
	globfree(&paths);
	return r == -ENOMEM || r == -E2BIG ? r : 0;
}

static int expand_files(struct tracer_machine *m, struct tracer_found *f, struct diag *d)
{
	const struct trace_point *p = f->like;
	bool is_usdt = strcmp(p->provider, "usdt") == 0;
	const char *source = is_usdt ? NULL : source_of(p);
	expand_fn *fn = is_usdt ? expand_usdt_in : source ? expand_line : expand_in_file;
	_cleanup_free_ char *path = NULL;
	char exe[64], before[4096];
	const char *name = p->parts[0];
	int r;

	if (p->n_parts < 2 || p->n_parts > 3)
		return diag_set(d, -EINVAL,
				is_usdt ? "a USDT probe is usdt:PATH:PROVIDER:NAME"
					: "a probe of a program is uprobe:PATH:FUNCTION");
	if (source) {
		snprintf(before, sizeof(before), "%.*s", (int)(source - 1 - name), name);
		name = before;
	}
	/* usdt::NAME and usdt:*:NAME: the program of -p */
	if (m->pid && (!*name || strcmp(name, "*") == 0)) {
		snprintf(exe, sizeof(exe), "/proc/%u/exe", m->pid);
		name = exe;
	}
	if (tracer_is_glob(name))
		return expand_paths(m, f, name, fn, d);
	r = name == exe ? ((path = strdup(exe)) ? 0 : -ENOMEM)
			: tracer_find_program(name, m->pid, d, &path);
	return r < 0 ? r : fn(m, f, path, d);
}

/* ---- iterators of the kernel's objects ---- */

static int expand_iterator(struct tracer_machine *m, struct tracer_found *f, struct diag *d)
{
	const struct trace_point *p = f->like;
	char function[128];

	if (p->n_parts != 1)
		return diag_set(d, -EINVAL, "an iterator is iter:NAME; it cannot be pinned");
	snprintf(function, sizeof(function), "bpf_iter_%s", p->parts[0]);
	return tracer_machine_describes(m, function) ? tracer_found_add(f, d, p->parts, 1)
						     : -ENOENT;
}

/* ---- all ---- */

static int expand_itself(struct tracer_machine *m, struct tracer_found *f, struct diag *d)
{
	(void)m;
	(void)d;
	return vec_push(&f->points, *f->like);
}

static const struct {
	const char *provider;
	int (*expand)(struct tracer_machine *m, struct tracer_found *f, struct diag *d);
} expansions[] = {
	{"tracepoint", expand_tracepoint},
	{"rawtracepoint", expand_raw},
	{"kprobe", expand_kernel},
	{"kretprobe", expand_kernel},
	{"fentry", expand_kernel},
	{"fexit", expand_kernel},
	{"kfunc", expand_kernel},
	{"kretfunc", expand_kernel},
	{"uprobe", expand_files},
	{"uretprobe", expand_files},
	{"usdt", expand_files},
	{"BEGIN", expand_itself},
	{"END", expand_itself},
	{"self", expand_itself},
	{"interval", expand_itself},
	{"profile", expand_itself},
	{"hardware", expand_itself},
	{"software", expand_itself},
	{"watchpoint", expand_itself},
	{"iter", expand_iterator},
};

static int no_provider(const struct trace_point *p, struct diag *d)
{
	const char *names[ARRAY_SIZE(expansions)];
	_cleanup_str_ struct str like = {};

	for (size_t i = 0; i < ARRAY_SIZE(expansions); i++)
		names[i] = expansions[i].provider;
	(void)closest_append(&like, p->provider, names, ARRAY_SIZE(names), 160);
	return diag_set(d, -EINVAL, "no kind of probe '%s'; there are %s", p->provider,
			str_get(&like));
}

int tracer_expand(void *arg, const struct trace_point *p, struct arena *a, struct trace_point **ret,
		  u32 *ret_n, struct diag *d)
{
	struct tracer_machine *m = arg;
	struct tracer_found found = {.arena = a, .like = p, .max = m->max_points - m->n_points};
	struct trace_point *copies = NULL;
	int r = -ENODEV;

	for (size_t i = 0; i < ARRAY_SIZE(expansions) && r == -ENODEV; i++)
		if (strcmp(p->provider, expansions[i].provider) == 0)
			r = expansions[i].expand(m, &found, d);
	if (r == -ENODEV)
		r = no_provider(p, d);
	if (r == -ENOENT || (r == 0 && !found.points.n)) {
		r = diag_set(d, -ENOENT, "there is no probe '%s'", p->text);
		str_printf(&m->missing, "culprit: there is no probe '%s'\n", p->text);
	}
	if (r == 0)
		copies = arena_calloc(a, found.points.n, sizeof(*copies));
	if (r == 0 && !copies)
		r = -ENOMEM;
	if (r == 0) {
		memcpy(copies, found.points.data, found.points.n * sizeof(*copies));
		m->n_points += (u32)found.points.n;
		*ret = copies;
		*ret_n = (u32)found.points.n;
	}
	vec_deinit(&found.points);
	return r;
}

/* ---- places ---- */

int tracer_find_usdt(struct tracer_machine *m, const struct trace_point *p,
		     const struct usdt_probe **ret, struct diag *d)
{
	struct tracer_file *f;
	u64 svma = 0;
	int r = tracer_machine_file(m, p->parts[0], d, &f);

	if (r == 0)
		r = tracer_file_usdt(f, d);
	if (r < 0)
		return r;
	if (p->n_parts == 4)
		(void)str_to_u64(p->parts[3], 0, &svma);
	vec_foreach (&f->usdt, u)
		if (p->n_parts == 4 && u->svma == svma && strcmp(u->name, p->parts[2]) == 0 &&
		    strcmp(u->provider, p->parts[1]) == 0) {
			*ret = u;
			return 0;
		}
	return diag_set(d, -ENOENT, "there is no probe '%s'", p->text);
}

/* Where a byte of data is in the file; semaphores are in writable segments. */
static int data_offset(const struct tracer_file *f, u64 svma, u64 *ret)
{
	for (u32 i = 0; i < f->elf->n_segments; i++) {
		const struct elf_segment *s = &f->elf->segments[i];

		if (svma >= s->svma && svma - s->svma < s->memsz) {
			*ret = s->foff + (svma - s->svma);
			return 0;
		}
	}
	return -EINVAL;
}

static int function_place(struct tracer_file *f, const char *text, u64 *ret, struct diag *d)
{
	const char *plus = strchr(text, '+');
	const struct tracer_function *fn;
	u64 offset = 0, svma;
	char name[4096];
	int r;

	if (text[0] >= '0' && text[0] <= '9') {
		if (str_to_u64(text, 0, &svma) < 0)
			return diag_set(d, -EINVAL, "'%s' is not an address", text);
		fn = tracer_file_at(f, svma);
		if (!fn)
			return diag_set(d, -EINVAL,
					"address %s of %s is in no function whose size "
					"is known: whether an instruction begins there "
					"cannot be checked",
					text, f->path);
	} else {
		snprintf(name, sizeof(name), "%.*s", (int)(plus ? plus - text : (long)strlen(text)),
			 text);
		fn = tracer_file_function(f, name);
		if (!fn)
			return no_function(f, name, d);
		if (plus && str_to_u64(plus + 1, 0, &offset) < 0)
			return diag_set(d, -EINVAL, "'%s' is not an offset", plus + 1);
		svma = f->is_go && !plus ? tracer_go_entry(f, fn) : fn->svma + offset;
	}
	r = tracer_file_check(f, fn, svma, d);
	if (r == 0 && tracer_file_offset(f, svma, ret) < 0)
		r = diag_set(d, -EINVAL, "%s is not in code of %s", text, f->path);
	return r;
}

const struct tracer_function *tracer_point_function(struct tracer_file *f,
						    const struct trace_point *p)
{
	const struct tracer_function *fn;
	char name[4096];
	u64 svma;

	snprintf(name, sizeof(name), "%s", p->parts[1]);
	if (p->is_return_insn)
		*strchrnul(name, '+') = '\0';
	if (name[0] < '0' || name[0] > '9')
		return tracer_file_function(f, name);
	if (str_to_u64(name, 0, &svma) < 0)
		return NULL;
	fn = tracer_file_at(f, svma);
	return fn && fn->svma == svma ? fn : NULL;
}

int tracer_find_place(struct tracer_machine *m, const struct trace_point *p,
		      struct tracer_place *ret, struct diag *d)
{
	struct tracer_place place = {};
	const struct usdt_probe *u;
	struct tracer_file *f;
	int r = tracer_machine_file(m, p->parts[0], d, &f);

	if (r < 0)
		return r;
	place.path = f->path;
	if (strcmp(p->provider, "usdt") != 0) {
		r = tracer_file_functions(f, d);
		if (r == 0)
			r = function_place(f, p->parts[1], &place.foff, d);
	} else {
		r = tracer_find_usdt(m, p, &u, d);
		if (r == 0 &&
		    (tracer_file_offset(f, u->svma, &place.foff) < 0 ||
		     (u->semaphore && data_offset(f, u->semaphore, &place.semaphore) < 0)))
			r = diag_set(d, -EINVAL, "'%s' is at an address that is not in the file",
				     p->text);
	}
	if (r == 0)
		*ret = place;
	return r;
}
