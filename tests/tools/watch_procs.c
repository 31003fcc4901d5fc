/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs procman, for tests and for people: prints each event of procman as a line of JSON, and
 * answers commands from standard input:
 *
 *	maps PID · find PID · refresh PID · stats · cost · quit
 *
 * usage: watch_procs [--quiet] [--linger-ms MS] [--ring-bytes N] [--wakeup-bytes N] [--no-events]
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "agent/procman/procman.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"

static const char *const kinds[] = {"file", "memfd", "shared", "anon", "vdso", "other"};

struct watcher {
	struct procman *pm;
	bool quiet;
	bool done;
	u64 n_changed, n_gone, n_binaries_gone;
	u64 slowest_ns; /* the largest CPU time of one drain since the last "stats" */
	char input[256];
	size_t n_input;
};

/* Prints the object and releases it. */
static void say(json_t *o)
{
	char *text = json_dumps(o, JSON_COMPACT);

	puts(text ? text : "{}");
	fflush(stdout);
	free(text);
	json_decref(o);
}

/* Bytes from a watched process need not be UTF-8. */
static json_t *text_json(const char *s)
{
	json_t *j = json_string(s);

	return j ? j : json_string("(not UTF-8)");
}

static json_t *process_json(const char *what, const struct procman_process *p)
{
	json_t *o = json_object();

	json_object_set_new(o, "what", json_string(what));
	json_object_set_new(o, "pid", json_integer(p->pid));
	json_object_set_new(o, "ppid", json_integer(p->ppid));
	json_object_set_new(o, "comm", text_json(p->comm));
	json_object_set_new(o, "alive", json_boolean(p->alive));
	json_object_set_new(o, "ended", json_boolean(p->ended));
	json_object_set_new(o, "kthread", json_boolean(p->kthread));
	json_object_set_new(o, "image", json_integer((json_int_t)p->image));
	json_object_set_new(o, "start_ticks", json_integer((json_int_t)p->start_ticks));
	json_object_set_new(o, "start_ns", json_integer((json_int_t)p->start_ns));
	json_object_set_new(o, "image_ns", json_integer((json_int_t)p->image_ns));
	json_object_set_new(o, "exit_ns", json_integer((json_int_t)p->exit_ns));
	json_object_set_new(o, "start_stack", json_integer((json_int_t)p->start_stack));
	json_object_set_new(o, "generation", json_integer((json_int_t)p->generation));
	json_object_set_new(o, "mappings_id", json_integer((json_int_t)p->mappings_id));
	json_object_set_new(o, "n", json_integer(p->n));
	return o;
}

static json_t *mapping_json(const struct procman_mapping *m)
{
	const struct procman_binary *b = m->binary;
	json_t *o = json_object();
	char build_id[2 * ELF_MAX_BUILD_ID + 1] = "";

	for (u32 i = 0; b->elf && i < b->elf->build_id_n; i++)
		snprintf(build_id + 2 * i, 3, "%02x", b->elf->build_id[i]);
	json_object_set_new(o, "start", json_integer((json_int_t)m->start));
	json_object_set_new(o, "end", json_integer((json_int_t)m->end));
	json_object_set_new(o, "foff", json_integer((json_int_t)m->foff));
	json_object_set_new(o, "bias", json_integer((json_int_t)m->bias));
	json_object_set_new(o, "file_id", json_integer(b->file_id));
	json_object_set_new(o, "code_of", json_integer(b->pid));
	json_object_set_new(o, "kind", json_string(kinds[b->kind]));
	json_object_set_new(o, "path", text_json(b->path));
	json_object_set_new(o, "deleted", json_boolean(b->deleted));
	json_object_set_new(o, "elf", json_boolean(b->elf != NULL));
	json_object_set_new(o, "jit", json_boolean(procman_binary_is_jit(b)));
	json_object_set_new(o, "error", json_string(b->error ? strerrorname_np(-b->error) : ""));
	json_object_set_new(o, "build_id", json_string(build_id));
	return o;
}

static json_t *maps_json(const struct procman_process *p)
{
	json_t *o = process_json("maps", p), *list = json_array();

	for (u32 i = 0; i < p->n; i++)
		json_array_append_new(list, mapping_json(&p->mappings[i]));
	json_object_set_new(o, "mappings", list);
	return o;
}

static void process_changed(void *arg, const struct procman_process *p)
{
	struct watcher *w = arg;
	u32 opened = 0;
	json_t *o;

	w->n_changed++;
	if (w->quiet)
		return;
	for (u32 i = 0; i < p->n; i++)
		opened += p->mappings[i].binary->elf != NULL;
	o = process_json("changed", p);
	json_object_set_new(o, "opened", json_integer(opened));
	if (p->n)
		json_object_set_new(o, "first", text_json(p->mappings[0].binary->path));
	say(o);
}

static void process_exec(void *arg, const struct procman_process *p, u64 before)
{
	const struct watcher *w = arg;
	json_t *o;

	if (w->quiet)
		return;
	o = process_json("exec", p);
	json_object_set_new(o, "before", json_integer((json_int_t)before));
	say(o);
}

static void process_gone(void *arg, const struct procman_process *p)
{
	struct watcher *w = arg;
	json_t *o;

	w->n_gone++;
	if (w->quiet)
		return;
	o = process_json("gone", p);
	json_object_set_new(o, "latest", json_boolean(procman_find(w->pm, p->pid) == p));
	say(o);
}

static void binary_gone(void *arg, struct procman_binary *b)
{
	struct watcher *w = arg;
	json_t *o;

	w->n_binaries_gone++;
	if (w->quiet)
		return;
	o = json_object();
	json_object_set_new(o, "what", json_string("binary_gone"));
	json_object_set_new(o, "file_id", json_integer(b->file_id));
	json_object_set_new(o, "path", text_json(b->path));
	say(o);
}

static json_t *stats_json(struct watcher *w)
{
	struct procman_stats s;
	json_t *o = json_object();

	procman_get_stats(w->pm, &s);
	json_object_set_new(o, "what", json_string("stats"));
#define STAT(name) json_object_set_new(o, #name, json_integer((json_int_t)s.name))
	STAT(processes);
	STAT(mappings);
	STAT(binaries);
	STAT(cpus);
	STAT(events);
	STAT(events_lost);
	STAT(events_damaged);
	STAT(rescans);
	STAT(rescanned);
	STAT(refreshes);
	STAT(forks);
	STAT(execs);
	STAT(exits);
	STAT(opened);
	STAT(open_failed);
	STAT(mappings_dropped);
	STAT(file_ids);
	STAT(file_ids_out);
	STAT(out_of_memory);
	STAT(read_failed);
#undef STAT
	json_object_set_new(o, "slowest_drain_us", json_integer((json_int_t)w->slowest_ns / 1000));
	w->slowest_ns = 0;
	json_object_set_new(o, "changed", json_integer((json_int_t)w->n_changed));
	json_object_set_new(o, "gone", json_integer((json_int_t)w->n_gone));
	json_object_set_new(o, "binaries_gone", json_integer((json_int_t)w->n_binaries_gone));
	return o;
}

/* Returns the resources that this process has used so far. */
static json_t *cost_json(void)
{
	json_t *o = json_object();
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	json_object_set_new(o, "what", json_string("cost"));
	json_object_set_new(o, "user_us",
			    json_integer(u.ru_utime.tv_sec * 1000000 + u.ru_utime.tv_usec));
	json_object_set_new(o, "system_us",
			    json_integer(u.ru_stime.tv_sec * 1000000 + u.ru_stime.tv_usec));
	return o;
}

static void command(struct watcher *w, const char *line)
{
	struct procman_process *p;
	char verb[16] = "";
	unsigned int pid = 0;

	if (sscanf(line, "%15s %u", verb, &pid) < 1)
		return;
	if (!strcmp(verb, "quit")) {
		w->done = true;
	} else if (!strcmp(verb, "stats")) {
		say(stats_json(w));
	} else if (!strcmp(verb, "cost")) {
		say(cost_json());
	} else if (!(p = procman_find(w->pm, pid))) {
		say(json_pack("{s:s, s:i}", "what", "unknown", "pid", pid));
	} else if (!strcmp(verb, "maps")) {
		say(maps_json(p));
	} else if (!strcmp(verb, "find")) {
		say(process_json("found", p));
	} else if (!strcmp(verb, "refresh")) {
		int r = procman_refresh(w->pm, p);

		say(json_pack("{s:s, s:i, s:i}", "what", "refreshed", "pid", pid, "result", r));
	} else {
		say(json_pack("{s:s}", "what", "no such command"));
	}
}

static void read_commands(struct watcher *w)
{
	ssize_t n = read(STDIN_FILENO, w->input + w->n_input, sizeof(w->input) - 1 - w->n_input);
	char *nl;

	if (n <= 0) {
		w->done = true;
		return;
	}
	w->n_input += (size_t)n;
	w->input[w->n_input] = '\0';
	while (!w->done && (nl = strchr(w->input, '\n'))) {
		*nl = '\0';
		/* Process all events from before the command. */
		procman_drain(w->pm);
		command(w, w->input);
		w->n_input -= (size_t)(nl + 1 - w->input);
		memmove(w->input, nl + 1, w->n_input + 1);
	}
}

static int drain(struct watcher *w)
{
	u64 begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	int r = procman_drain(w->pm);

	w->slowest_ns = MAX(w->slowest_ns, clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin);
	return r;
}

static int watch(struct watcher *w)
{
	struct pollfd fds[] = {{.fd = procman_fd(w->pm), .events = POLLIN},
			       {.fd = STDIN_FILENO, .events = POLLIN}};
	int r = 0;

	while (!w->done && r >= 0) {
		if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
			return -errno;
		if (fds[0].revents)
			r = drain(w);
		if (r >= 0 && fds[1].revents)
			read_commands(w);
	}
	return r;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int usage(void)
{
	fputs("usage: watch_procs [--quiet] [--linger-ms MS] [--ring-bytes N] [--wakeup-bytes N] "
	      "[--no-events]\n",
	      stderr);
	return 2;
}

static bool parse(int argc, char **argv, struct watcher *w, struct procman_options *options)
{
	static const struct option longs[] = {
		{"quiet", no_argument, NULL, 'q'},
		{"linger-ms", required_argument, NULL, 'l'},
		{"ring-bytes", required_argument, NULL, 'r'},
		{"wakeup-bytes", required_argument, NULL, 'w'},
		{"no-events", no_argument, NULL, 'n'},
		{},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		u64 v = 0;

		if (optarg && str_to_u64(optarg, 10, &v) < 0)
			return false;
		if (c == 'q')
			w->quiet = true;
		else if (c == 'l')
			options->exit_linger_ms = options->binary_linger_ms = (u32)v;
		else if (c == 'r')
			options->ring_bytes = (u32)v;
		else if (c == 'w')
			options->wakeup_bytes = (u32)v;
		else if (c == 'n')
			options->no_events = true;
		else
			return false;
	}
	return optind == argc;
}

int main(int argc, char **argv)
{
	static const struct procman_listener listener = {
		.process_changed = process_changed,
		.process_exec = process_exec,
		.process_ended = process_changed,
		.process_gone = process_gone,
		.binary_gone = binary_gone,
	};
	struct procman_options options = {};
	struct watcher w = {};
	struct rlimit files;
	double begin;
	json_t *o;
	int r;

	if (!parse(argc, argv, &w, &options))
		return usage();
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	r = procman_create(&options, &w.pm);
	if (r == 0)
		r = procman_listen(w.pm, &listener, &w);
	if (r < 0) {
		fprintf(stderr, "watch_procs: %s\n", strerror(-r));
		return 1;
	}
	begin = seconds();
	r = procman_scan(w.pm);
	o = stats_json(&w);
	json_object_set_new(o, "what", json_string("ready"));
	json_object_set_new(o, "scan_ms", json_real((seconds() - begin) * 1e3));
	say(o);
	if (r == 0)
		r = watch(&w);
	procman_destroy(w.pm);
	if (r < 0)
		fprintf(stderr, "watch_procs: %s\n", strerror(-r));
	return r < 0;
}
