/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The function_graph tracer by files of tracefs.
 *
 * Invariants: 1. the filter (set_graph_function, of which there is one for all instances) is set
 * before the tracer, which would otherwise trace every function of the kernel, and so is the
 * exception of this process, whose reading of the trace would be traced again. 2. Nothing that
 * somebody else has set is changed: then it fails with -EBUSY. 3. Whatever has been set is in
 * `undo`, newest last, and graph_stop() undoes it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/graph/graph.h"
#include "agent/probe/probe.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/str.h"

#define PREFIX "culprit-"
#define BUFFER_KB "4096" /* of each CPU */
#define MAX_UNDO 20
#define PATH_BYTES 128

struct change {
	char file[PATH_BYTES];
	char before[32]; /* "": the file is emptied */
};

struct graph_tracing {
	struct graph graph;
	char instance[32]; /* its name; "": the top level */
	struct change undo[MAX_UNDO];
	u32 n_undo;
	int pipe; /* trace_pipe, or -1 */
};

/* ---- files ---- */

static void path_of(const struct graph_tracing *t, const char *file, char ret[PATH_BYTES])
{
	if (t->instance[0])
		snprintf(ret, PATH_BYTES, "instances/%s/%s", t->instance, file);
	else
		snprintf(ret, PATH_BYTES, "%s", file);
}

static int read_file(const char *path, struct str *ret)
{
	_cleanup_close_ int fd = probe_open_tracefs(path, O_RDONLY);
	int r = fd < 0 ? fd : io_read_fd(fd, 1 << 16, ret);

	if (r == 0 && ret->n && ret->data[ret->n - 1] == '\n')
		ret->data[--ret->n] = '\0';
	return r;
}

static int write_file(const char *path, const char *text)
{
	_cleanup_close_ int fd = probe_open_tracefs(path, text[0] ? O_WRONLY : O_WRONLY | O_TRUNC);

	if (fd < 0)
		return fd;
	return !text[0] || write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -errno;
}

/* Writes a file, and keeps what it must become again. */
static int change(struct graph_tracing *t, const char *path, const char *text, const char *before)
{
	int r = t->n_undo < MAX_UNDO ? write_file(path, text) : -ENOSPC;

	if (r < 0)
		return r;
	snprintf(t->undo[t->n_undo].file, sizeof(t->undo[0].file), "%s", path);
	snprintf(t->undo[t->n_undo].before, sizeof(t->undo[0].before), "%s", before);
	t->n_undo++;
	return 0;
}

/* An option that a kernel lacks is one of which the output does not depend there. */
static void set_option(struct graph_tracing *t, const char *option, const char *value)
{
	_cleanup_str_ struct str before = {};
	char file[64], path[PATH_BYTES];

	snprintf(file, sizeof(file), "options/%s", option);
	path_of(t, file, path);
	if (read_file(path, &before) == 0 && strcmp(str_get(&before), value) != 0)
		(void)change(t, path, value, str_get(&before));
}

/* ---- instances ---- */

/* Those of processes that were killed would trace for ever. */
static void remove_stale(int instances)
{
	int copy = dup(instances);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		u64 pid;

		if (str_starts(e->d_name, PREFIX) &&
		    str_to_u64(e->d_name + strlen(PREFIX), 10, &pid) == 0 && pid > 0 &&
		    pid <= INT_MAX && kill((pid_t)pid, 0) < 0 && errno == ESRCH)
			(void)unlinkat(instances, e->d_name, AT_REMOVEDIR);
	}
	if (dir)
		closedir(dir);
	else if (copy >= 0)
		close(copy);
}

static void make_instance(struct graph_tracing *t)
{
	_cleanup_close_ int instances = probe_open_tracefs("instances", O_RDONLY | O_DIRECTORY);
	char name[32];

	if (instances < 0)
		return;
	remove_stale(instances);
	snprintf(name, sizeof(name), PREFIX "%d", (int)getpid());
	if (mkdirat(instances, name, 0700) == 0)
		memcpy(t->instance, name, sizeof(name));
}

static void remove_instance(struct graph_tracing *t)
{
	_cleanup_close_ int instances = probe_open_tracefs("instances", O_RDONLY | O_DIRECTORY);

	if (t->instance[0] && instances >= 0)
		(void)unlinkat(instances, t->instance, AT_REMOVEDIR);
	t->instance[0] = '\0';
}

/* ---- start ---- */

static bool has_text(const char *file, const char *text)
{
	_cleanup_str_ struct str content = {};

	return read_file(file, &content) == 0 && strcmp(str_get(&content), text) == 0;
}

static int check_kernel(struct diag *d)
{
	_cleanup_str_ struct str tracers = {};
	int r = read_file("available_tracers", &tracers);

	if (r < 0)
		return diag_set(d, r,
				"tracefs is not visible here: run as root, and `mount -t tracefs "
				"nodev /sys/kernel/tracing`");
	if (!strstr(str_get(&tracers), "function_graph"))
		return diag_set(d, -ENOTSUP,
				"this kernel has no function_graph tracer: it is built without "
				"CONFIG_FUNCTION_GRAPH_TRACER");
	return 0;
}

static int set_filter(struct graph_tracing *t, const char *function, struct diag *d)
{
	_cleanup_str_ struct str before = {};
	int r = read_file("set_graph_function", &before);

	if (r == 0 && before.n && before.data[0] != '#')
		return diag_set(d, -EBUSY,
				"somebody traces with function_graph already: "
				"/sys/kernel/tracing/set_graph_function is not empty");
	/* Text without a newline is looked at when the file is closed, which tells no error. */
	str_clear(&before);
	str_printf(&before, "%s\n", function);
	if (r == 0)
		r = change(t, "set_graph_function", str_get(&before), "");
	if (r == 0 && !has_text("set_graph_function", function))
		r = -EINVAL;
	return r < 0 ? diag_set(d, r,
				"the kernel has no function '%s' that can be traced; those that "
				"can are in /sys/kernel/tracing/available_filter_functions",
				function)
		     : 0;
}

/* Since 5.8. */
static int except_self(struct graph_tracing *t, struct diag *d)
{
	char path[PATH_BYTES], number[16];
	int r;

	snprintf(number, sizeof(number), "%d", (int)getpid());
	path_of(t, "set_ftrace_notrace_pid", path);
	r = has_text(path, "no pid") || has_text(path, "") ? change(t, path, number, "") : -EBUSY;
	return r < 0 ? diag_set(d, r, "set_ftrace_notrace_pid of tracefs cannot be set: %s",
				strerror(-r))
		     : 0;
}

/* "7 (expanded: 1408)" until somebody traces: it will be 7, or 1408, again. */
static void set_buffer(struct graph_tracing *t)
{
	_cleanup_str_ struct str before = {};
	char path[PATH_BYTES];

	path_of(t, "buffer_size_kb", path);
	if (read_file(path, &before) < 0 || !before.n)
		return;
	before.data[strcspn(before.data, " \n")] = '\0';
	(void)change(t, path, BUFFER_KB, before.data);
}

static int set_tracer(struct graph_tracing *t, struct diag *d)
{
	char path[PATH_BYTES];
	int r;

	path_of(t, "current_tracer", path);
	if (t->instance[0]) {
		r = change(t, path, "function_graph", "nop");
		if (r == 0)
			return 0;
		/* Instances of kernels before 6.11 cannot have this tracer. */
		remove_instance(t);
		r = except_self(t, d);
		if (r < 0)
			return r;
		set_buffer(t);
	}
	if (!has_text("current_tracer", "nop") || !has_text("set_event", ""))
		return diag_set(d, -EBUSY,
				"somebody uses ftrace: current_tracer is not nop, or events are "
				"enabled in /sys/kernel/tracing, and this kernel (before 6.11) has "
				"one function_graph tracer for all");
	r = change(t, "current_tracer", "function_graph", "nop");
	return r < 0 ? diag_set(d, r, "function_graph cannot be started: %s", strerror(-r)) : 0;
}

static int limit_to(struct graph_tracing *t, u32 pid, struct diag *d)
{
	char path[PATH_BYTES], number[16];
	int r;

	if (!pid)
		return 0;
	snprintf(number, sizeof(number), "%u", pid);
	set_option(t, "function-fork", "1");
	path_of(t, "set_ftrace_pid", path);
	r = change(t, path, number, "");
	return r < 0 ? diag_set(d, r, "process %u cannot be traced: %s", pid, strerror(-r)) : 0;
}

/* The options of the tracer exist once it is the current one. */
static void set_options(struct graph_tracing *t)
{
	static const char *const on[] = {"funcgraph-proc", "funcgraph-cpu", "funcgraph-duration"};
	static const char *const off[] = {"funcgraph-overhead", "funcgraph-abstime",
					  "funcgraph-irqs", "funcgraph-args", "funcgraph-retval"};

	for (size_t i = 0; i < ARRAY_SIZE(on); i++)
		set_option(t, on[i], "1");
	for (size_t i = 0; i < ARRAY_SIZE(off); i++)
		set_option(t, off[i], "0");
}

static int start(struct graph_tracing *t, const char *function, u32 pid, struct diag *d)
{
	char path[PATH_BYTES];
	int r = check_kernel(d);

	if (r == 0)
		r = set_filter(t, function, d);
	if (r < 0)
		return r;
	make_instance(t);
	r = except_self(t, d);
	if (r < 0)
		return r;
	set_buffer(t);
	r = set_tracer(t, d);
	if (r == 0)
		r = limit_to(t, pid, d);
	if (r < 0)
		return r;
	set_options(t);
	path_of(t, "trace_pipe", path);
	t->pipe = probe_open_tracefs(path, O_RDONLY | O_NONBLOCK);
	return t->pipe < 0
		       ? diag_set(d, t->pipe, "trace_pipe cannot be read: %s", strerror(-t->pipe))
		       : 0;
}

int graph_start(const char *function, u32 pid, struct diag *reterr_diag, struct graph_tracing **ret)
{
	struct graph_tracing *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	t->pipe = -1;
	r = graph_init(&t->graph, function);
	if (r == 0)
		r = start(t, function, pid, reterr_diag);
	if (r < 0) {
		graph_destroy(t);
		return r;
	}
	*ret = t;
	return 0;
}

/* ---- reading ---- */

/* Ends after a second of text, so that the caller can look at its clock. */
static int read_pipe(struct graph_tracing *t)
{
	char text[65536];
	ssize_t n = 1;
	int r = 0;

	for (int i = 0; i < 256 && n > 0 && r == 0; i++) {
		n = read(t->pipe, text, sizeof(text));
		if (n > 0)
			r = graph_feed(&t->graph, text, (size_t)n);
	}
	return r;
}

int graph_poll(struct graph_tracing *t, int wait_ms)
{
	struct pollfd p = {.fd = t->pipe, .events = POLLIN};

	(void)poll(&p, 1, wait_ms);
	return read_pipe(t);
}

/* The tracer goes first, so that what it has written can be read; then the rest is undone. */
void graph_stop(struct graph_tracing *t)
{
	char path[PATH_BYTES];

	path_of(t, "tracing_on", path);
	if (t->pipe >= 0) {
		(void)write_file(path, "0");
		(void)read_pipe(t);
		graph_finish(&t->graph);
		close(t->pipe);
		t->pipe = -1;
		if (!t->instance[0])
			(void)write_file(path, "1");
	}
	while (t->n_undo) {
		t->n_undo--;
		(void)write_file(t->undo[t->n_undo].file, t->undo[t->n_undo].before);
	}
	remove_instance(t);
}

const struct graph *graph_of(const struct graph_tracing *t)
{
	return &t->graph;
}

void graph_destroy(struct graph_tracing *t)
{
	if (!t)
		return;
	graph_stop(t);
	graph_deinit(&t->graph);
	free(t);
}
