/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds a function that somebody names without saying where it is: in a program, in the libraries
 * of a process, in the kernel.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/tracer/internal.h"
#include "agent/tracer/tracer.h"
#include "base/cleanup.h"
#include "base/closest.h"
#include "proc/proc.h"

#define MAX_LIBRARIES 512
#define SHOWN_BYTES 100

struct finding {
	const struct tracer_wanted *wanted;
	struct diag *d;
	vec(char *) files;	 /* owned: mapped by the process, as culprit opens them */
	vec(const char *) names; /* owned texts: of all functions, to find the closest */
	bool is_library;	 /* libraries are searched now */
	struct tracer_function_place *to;
};

/* "libc" of "libc:malloc"; "" of "ns::f". The rest is at *ret_rest. */
static void split_place(const char *name, char *ret, size_t n, const char **ret_rest)
{
	const char *colon = name;

	ret[0] = '\0';
	*ret_rest = name;
	for (; (colon = strchr(colon, ':')) && colon[1] == ':'; colon += 2)
		;
	if (!colon)
		return;
	snprintf(ret, n, "%.*s", (int)(colon - name), name);
	*ret_rest = colon + 1;
}

static int found(struct finding *f, const char *path, const char *function)
{
	f->to->path = path ? strdup(path) : NULL;
	f->to->function = strdup(function);
	return f->to->function && (f->to->path || !path) ? 0 : -ENOMEM;
}

static int ambiguous(struct finding *f, const char *name, const char *const *list, size_t n)
{
	_cleanup_str_ struct str text = {};

	(void)closest_append(&text, name, list, n, 200);
	return diag_set(f->d, -EINVAL, "'%s' may be %zu functions: name one of %s", name, n,
			str_get(&text));
}

/* The only function whose demangled name is `name`. -ENOENT; -EINVAL: there are several. */
static int find_demangled(struct finding *f, const struct tracer_file *file, const char *name)
{
	_cleanup_free_ const char **list = calloc(file->functions.n + 1, sizeof(*list));
	size_t n = 0;

	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < file->functions.n; i++) {
		const char *have = file->functions.data[i].name;

		if (tracer_is_demangled(name, have) && (!n || strcmp(list[n - 1], have) != 0))
			list[n++] = have;
	}
	if (n > 1)
		return ambiguous(f, name, list, n);
	return n ? found(f, file->path, list[0]) : -ENOENT;
}

static int keep_names(struct finding *f, const struct tracer_file *file)
{
	int r = 0;

	for (size_t i = 0; i < file->functions.n && r == 0; i++) {
		char *copy = strdup(file->functions.data[i].name);

		r = copy ? vec_push(&f->names, copy) : -ENOMEM;
		if (r < 0)
			free(copy);
	}
	return r;
}

/* -ENOENT: the file has no such function, or is no program. */
static int find_in_file(struct finding *f, const char *path, const char *name)
{
	struct tracer_file *file;
	int r = tracer_file_open(path, f->d, &file);

	if (r < 0)
		return r == -ENOMEM ? r : -ENOENT;
	r = tracer_file_functions(file, f->d);
	if (r == 0 && tracer_file_function(file, name))
		r = found(f, path, name);
	else if (r == 0)
		r = find_demangled(f, file, name);
	/* Those of libraries are too many. */
	if (r == -ENOENT && !f->is_library && keep_names(f, file) < 0)
		r = -ENOMEM;
	tracer_file_destroy(file);
	return r;
}

static int add_file(void *arg, const struct proc_mapping *m)
{
	struct finding *f = arg;
	_cleanup_free_ char *path = NULL;
	int r;

	if (m->path[0] != '/' || f->files.n >= MAX_LIBRARIES ||
	    tracer_find_program(m->path, f->wanted->pid, NULL, &path) < 0)
		return 0;
	vec_foreach (&f->files, have)
		if (strcmp(*have, path) == 0)
			return 0;
	r = vec_push(&f->files, path);
	if (r == 0)
		path = NULL;
	return r;
}

/* A process that does not run its program yet is a copy of this one. */
static bool is_culprit(const struct finding *f, const char *path)
{
	struct stat mine, its;

	return f->wanted->program && stat("/proc/self/exe", &mine) == 0 && stat(path, &its) == 0 &&
	       mine.st_ino == its.st_ino && mine.st_dev == its.st_dev;
}

/* Of several libraries the one that is no dynamic linker; else the user must say which. */
static int find_in_libraries(struct finding *f, const char *name)
{
	_cleanup_free_ const char **list = NULL;
	struct tracer_function_place first = {}, *to = f->to;
	size_t n = 0;
	int r = proc_maps_read(f->wanted->pid, 0, add_file, f);

	list = calloc(f->files.n + 1, sizeof(*list));
	if (r < 0 || !list)
		return r < 0 ? r : -ENOMEM;
	for (size_t i = 0; i < f->files.n && (r == 0 || r == -ENOENT); i++) {
		struct tracer_function_place place = {};

		if (strstr(f->files.data[i], "/ld-linux") || is_culprit(f, f->files.data[i]))
			continue;
		f->to = &place;
		f->is_library = true;
		r = find_in_file(f, f->files.data[i], name);
		f->to = to;
		if (r != 0)
			continue;
		list[n++] = f->files.data[i];
		if (n == 1)
			first = place;
		else
			tracer_function_place_deinit(&place);
	}
	if (n == 1) {
		*to = first;
		return 0;
	}
	tracer_function_place_deinit(&first);
	if (n > 1) {
		_cleanup_str_ struct str text = {};

		(void)closest_append(&text, name, list, n, 200);
		return diag_set(f->d, -EINVAL, "'%s' is in %s: name the file too, as in %s:%s",
				name, str_get(&text), list[0], name);
	}
	return r < 0 ? r : -ENOENT;
}

static int find_in_process(struct finding *f, const char *name)
{
	_cleanup_free_ char *program = NULL;
	char exe[64];
	int r;

	snprintf(exe, sizeof(exe), "/proc/%u/exe", f->wanted->pid);
	if (f->wanted->program) {
		r = tracer_find_program(f->wanted->program, 0, f->d, &program);
		if (r < 0)
			return r == -ENOENT ? -EINVAL : r;
	}
	r = find_in_file(f, program ? program : exe, name);
	return r == -ENOENT ? find_in_libraries(f, name) : r;
}

static int find_in_kernel(struct finding *f, const char *name)
{
	struct tracer_machine *m;
	int r = tracer_machine_create(0, f->d, &m);

	if (r < 0)
		return r;
	r = tracer_kernel_has(m, name) ? found(f, NULL, name) : -ENOENT;
	tracer_machine_destroy(m);
	return r;
}

static int find_named_place(struct finding *f, const char *place, const char *name)
{
	_cleanup_free_ char *path = NULL;
	int r;

	if (strcmp(place, "kernel") == 0)
		return find_in_kernel(f, name);
	r = tracer_find_program(place, f->wanted->pid, f->d, &path);
	return r < 0 ? r : find_in_file(f, path, name);
}

static int not_found(struct finding *f, const char *place, const char *name)
{
	_cleanup_str_ struct str text = {};
	const char *where = place[0]	     ? place
			    : f->wanted->pid ? "the process, its libraries and the kernel"
					     : "the kernel";

	if (f->names.n)
		(void)closest_append(&text, name, f->names.data, f->names.n, SHOWN_BYTES);
	if (!place[0] && !f->wanted->pid)
		return diag_set(f->d, -ENOENT,
				"the kernel has no function '%s'; for one of a program add -p PID, "
				"-c COMMAND or --binary PATH",
				name);
	return diag_set(f->d, -ENOENT, "there is no function '%s' in %s%s%s", name, where,
			text.n ? "; there are " : ": no file there has symbols", str_get(&text));
}

int tracer_find_function(const struct tracer_wanted *w, struct diag *reterr_diag,
			 struct tracer_function_place *ret)
{
	struct tracer_function_place place = {};
	struct finding f = {.wanted = w, .d = reterr_diag, .to = &place};
	char where[4096];
	const char *name;
	int r = -ENOENT;

	split_place(w->name, where, sizeof(where), &name);
	if (!where[0] && w->binary)
		snprintf(where, sizeof(where), "%s", w->binary);
	if (where[0])
		r = find_named_place(&f, where, name);
	else if (w->pid)
		r = find_in_process(&f, name);
	if (r == -ENOENT && !where[0])
		r = find_in_kernel(&f, name);
	if (r == -ENOENT && (!where[0] || f.names.n || strcmp(where, "kernel") == 0))
		r = not_found(&f, where, name);
	vec_foreach (&f.files, file)
		free(*file);
	vec_deinit(&f.files);
	vec_foreach (&f.names, text)
		free((void *)*text);
	vec_deinit(&f.names);
	if (r < 0) {
		tracer_function_place_deinit(&place);
		return r;
	}
	*ret = place;
	return 0;
}

void tracer_function_place_deinit(struct tracer_function_place *p)
{
	free(p->path);
	free(p->function);
	*p = (struct tracer_function_place){};
}
