/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/tracer/tracer.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "agent/tracer/attach.h"
#include "agent/tracer/budget.h"
#include "agent/tracer/internal.h"
#include "agent/tracer/load.h"
#include "agent/tracer/maps.h"
#include "agent/tracer/names.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

struct tracer_session {
	struct tracer_session_options o;
	struct tracer_machine *machine; /* owned */
	struct trace_script *script;	/* owned */
	struct trace_program *program;	/* owned */
	struct tracer_loaded loaded;
	struct tracer_attached attached;
	struct tracer_budget budget;
	struct ring_buffer *ring; /* owned */
	u32 n_taken;		  /* records since consume() began */
	int epoll;
	vec(int) timers;	    /* owned: timerfds of attached.timers, in this order */
	struct tracer_names *names; /* owned */
	struct trace_printer printer;
	struct str text, error_text; /* what is printed next */
	bool has_loaded, exits, ends;
	bool is_over;	 /* no event will come: the script has iterators only */
	bool has_more;	 /* records have arrived that are not printed yet */
	bool is_in_line; /* what was printed last did not end with a newline */
	u64 n_damaged;	 /* records that could not be printed */
	int status;
	int failed; /* printing has failed with this errno */
};

#define EPOLL_RING (~0ULL)
/*
 * Records that are printed before timers and the end are looked at: a probe on what prints, or more
 * events than can be printed, would never let go.
 */
#define MAX_TAKEN 4096

static bool ignores_missing(const struct trace_script *script)
{
	vec_foreach (&script->settings, s)
		if (strcmp(s->name, "missing_probes") == 0 && str_same(s->value.data, "ignore"))
			return true;
	return false;
}

int tracer_session_create(const struct tracer_session_options *o, struct diag *reterr_diag,
			  struct tracer_session **ret)
{
	struct tracer_session *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->o = *o;
	s->epoll = -1;
	s->budget.stats = -1;
	r = trace_parse(o->file, o->text, o->n, o->parameters, reterr_diag, &s->script);
	if (r == 0)
		r = tracer_machine_create(o->pid, reterr_diag, &s->machine);
	if (r == 0) {
		s->machine->target.is_unsafe = o->unsafe;
		s->machine->target.tells_errors = o->tells_errors;
		r = trace_compile(s->script, &s->machine->target, reterr_diag, &s->program);
	}
	if (r == 0 && !s->program->probes.n)
		r = diag_set(reterr_diag, -EINVAL, "the script has no probes");
	if (r == 0)
		r = tracer_names_create(s->program->btf, &s->names);
	if (r < 0) {
		tracer_session_destroy(s);
		return r;
	}
	if (!o->no_warnings && !ignores_missing(s->script))
		fputs(str_get(&s->machine->missing), stderr);
	s->printer = (struct trace_printer){
		.program = s->program,
		.names = {.arg = s->names,
			  .stack = tracer_name_stack,
			  .stack_id = tracer_stack_id,
			  .want = tracer_want_stack,
			  .kernel_symbol = tracer_name_kernel,
			  .user_symbol = tracer_name_user,
			  .cgroup = tracer_name_cgroup,
			  .owner = tracer_name_owner,
			  .owner_id = tracer_owner_id,
			  .enumerator = tracer_name_enumerator,
			  .system_call = tracer_name_system_call},
		.json = o->json,
		.cpus = s->machine->target.cpus,
		.boot_ns = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_BOOTTIME),
	};
	*ret = s;
	return 0;
}

u64 tracer_session_stack_types(const struct tracer_session *s)
{
	u64 types = 0;

	vec_foreach (&s->program->probes, p)
		if (s->program->codes.data[p->code].second)
			types |= 1ULL << p->type;
	return types;
}

bool tracer_session_links_uprobes(const struct tracer_session *s)
{
	vec_foreach (&s->program->probes, p)
		if (p->type == BPF_PROG_TYPE_KPROBE && p->point->provider[0] == 'k')
			return false;
	return s->machine->links_uprobes;
}

bool tracer_session_wants_user(const struct tracer_session *s)
{
	vec_foreach (&s->program->codes, c)
		if (c->second && c->wants & (TRACE_WANTS_USER | TRACE_WANTS_SPAN))
			return true;
	return false;
}

u32 tracer_session_probes(const struct tracer_session *s)
{
	return (u32)(s->program->probes.n - s->attached.missing.n);
}

/* ---- output ---- */

static void write_out(struct tracer_session *s)
{
	if (s->text.n)
		s->is_in_line = s->text.data[s->text.n - 1] != '\n';
	if (s->text.n && s->o.out && fwrite(s->text.data, 1, s->text.n, s->o.out) != s->text.n &&
	    !s->failed)
		s->failed = errno ? errno : EIO;
	if (s->error_text.n)
		fwrite(s->error_text.data, 1, s->error_text.n, stderr);
	str_clear(&s->text);
	str_clear(&s->error_text);
}

static void flush(struct tracer_session *s)
{
	if (s->o.out && fflush(s->o.out) != 0 && !s->failed)
		s->failed = errno;
}

static int print_map(struct tracer_session *s, u32 map, const struct trace_print *print)
{
	const struct trace_map *m = &s->program->maps.data[map];
	struct tracer_entries e = {};
	int r = tracer_entries_read(s->loaded.own.data[map], m, s->printer.cpus, &e);
	const struct trace_entries entries = {e.keys.data, e.values.data, e.n};

	if (r == 0)
		r = trace_print_map(&s->printer, map, &entries, print, &s->text);
	/* A map at the end begins a line, whatever END has printed. */
	if (!print && s->is_in_line && s->text.n && !s->o.json)
		fputc('\n', s->o.out);
	tracer_entries_deinit(&e);
	write_out(s);
	return r;
}

int tracer_session_profile_map(const struct tracer_session *s, u32 *ret_map,
			       struct diag *reterr_diag)
{
	const struct trace_map *found = NULL;

	vec_foreach (&s->program->maps, m) {
		if (!trace_map_is_profile(m))
			continue;
		if (found)
			return diag_set(
				reterr_diag, -EINVAL,
				"a flame graph shows one map, but @%s and @%s are by stacks",
				found->name, m->name);
		found = m;
	}
	if (!found)
		return diag_set(reterr_diag, -EINVAL,
				"a flame graph needs a map of counts or sums by stacks, such as "
				"@[ustack] = count()");
	*ret_map = (u32)(found - s->program->maps.data);
	return 0;
}

int tracer_session_profile(struct tracer_session *s, struct profile **ret, struct diag *reterr_diag)
{
	struct tracer_entries e = {};
	u32 map;
	int r = tracer_session_profile_map(s, &map, reterr_diag);

	if (r < 0)
		return r;
	r = tracer_entries_read(s->loaded.own.data[map], &s->program->maps.data[map],
				s->printer.cpus, &e);
	if (r == 0)
		r = trace_map_profile(&s->printer, map,
				      &(struct trace_entries){e.keys.data, e.values.data, e.n}, ret,
				      reterr_diag);
	tracer_entries_deinit(&e);
	return r < 0 ? diag_set(reterr_diag, r, "cannot read the map: %s", strerror(-r)) : 0;
}

static int map_of(const struct tracer_session *s, const char *name)
{
	for (u32 i = 0; i < s->program->maps.n; i++)
		if (str_same(s->program->maps.data[i].name, name))
			return (int)i;
	return -ENOENT;
}

int tracer_session_read(struct tracer_session *s, const char *map, u64 *ret, u32 n)
{
	struct tracer_entries e = {};
	int i = map_of(s, map), r;
	const struct trace_map *m = i < 0 ? NULL : &s->program->maps.data[i];

	if (!m || !m->is_scalar)
		return -ENOENT;
	r = tracer_entries_read(s->loaded.own.data[i], m, s->printer.cpus, &e);
	if (r == 0)
		r = trace_map_words(&s->printer, (u32)i,
				    &(struct trace_entries){e.keys.data, e.values.data, e.n}, ret,
				    n);
	tracer_entries_deinit(&e);
	return r;
}

int tracer_session_clear(struct tracer_session *s, const char *map)
{
	int i = map_of(s, map);

	return i < 0 ? i
		     : tracer_map_clear(s->loaded.own.data[i], &s->program->maps.data[i],
					s->printer.cpus);
}

void tracer_session_text(const struct tracer_session *s, const struct trace_type *t,
			 const u8 *value, struct str *out)
{
	trace_value_text(&s->printer, t, value, 1, out);
}

/* Gives a printf() to whoever takes the values. False: it is another record. */
static bool give_values(struct tracer_session *s, const void *data, size_t n)
{
	const struct trace_record *head = data;
	const struct trace_format *f;

	if (!s->o.take || n < sizeof(*head) || head->type != TRACE_RECORD_PRINTF ||
	    head->index >= s->program->formats.n)
		return false;
	f = &s->program->formats.data[head->index];
	if (n - sizeof(*head) < f->bytes)
		return false;
	s->o.take(s->o.arg, f, (const u8 *)(head + 1));
	return true;
}

static void run_command(struct tracer_session *s, const char *command)
{
	_cleanup_str_ struct str output = {};
	struct diag d = {};

	flush(s);
	if (tracer_run_command(command, &output, &d) < 0)
		str_printf(&s->error_text, "culprit: %s\n", d.text);
	trace_print_system(&s->printer, str_get(&output), &s->text);
}

/* Does what a record asks for. */
static int serve(struct tracer_session *s, const struct trace_request *q)
{
	const struct trace_map *m;
	int fd;

	if (!q->type)
		return 0;
	if (q->type == TRACE_RECORD_EXIT) {
		s->status = (int)q->status;
		s->exits = true;
		return 0;
	}
	if (q->type == TRACE_RECORD_SYSTEM) {
		run_command(s, str_get(&q->command));
		return 0;
	}
	if (q->map >= s->program->maps.n)
		return -EBADMSG;
	m = &s->program->maps.data[q->map];
	fd = s->loaded.own.data[q->map];
	switch (q->type) {
	case TRACE_RECORD_PRINT:
		return print_map(s, q->map, q->print);
	case TRACE_RECORD_CLEAR:
		return tracer_map_clear(fd, m, s->printer.cpus);
	case TRACE_RECORD_ZERO:
		return tracer_map_zero(fd, m, s->printer.cpus);
	default:
		return 0;
	}
}

static void print_record(struct tracer_session *s, const void *data, size_t n)
{
	struct trace_request request = {};
	int r;

	/* What comes after exit() is not printed, but what END prints. */
	if (s->exits && !s->ends)
		return;
	if (give_values(s, data, n))
		return;
	if (trace_print_record(&s->printer, data, n, &s->text, &s->error_text, &request) < 0) {
		s->n_damaged++;
		return;
	}
	r = serve(s, &request);
	str_deinit(&request.command);
	write_out(s);
	if (r < 0 && !s->failed)
		s->failed = -r;
}

static int take_record(void *arg, void *data, size_t n)
{
	struct tracer_session *s = arg;

	print_record(s, data, n);
	return ++s->n_taken < MAX_TAKEN ? 0 : -EAGAIN;
}

/* Prints records that have arrived. False: there may be more. */
static bool consume(struct tracer_session *s)
{
	s->n_taken = 0;
	return ring_buffer__consume(s->ring) != -EAGAIN;
}

/* Prints all, when nothing is attached any more. */
static void drain(struct tracer_session *s)
{
	while (!consume(s))
		;
}

/* ---- what user space runs ---- */

static int run_program(const struct tracer_run *run)
{
	/* The context of a raw tracepoint without arguments. */
	u64 context[12] = {};
	LIBBPF_OPTS(bpf_test_run_opts, o, .ctx_in = context, .ctx_size_in = sizeof(context));

	return bpf_prog_test_run_opts(run->program, &o) < 0 ? -errno : 0;
}

static int run_all(struct tracer_session *s, const struct tracer_run *runs, size_t n,
		   struct diag *d)
{
	for (size_t i = 0; i < n; i++) {
		int r = run_program(&runs[i]);

		if (r < 0)
			return diag_set(d, r, "cannot run the action of %s: %s",
					s->program->probes.data[runs[i].probe].name, strerror(-r));
	}
	return 0;
}

void tracer_session_signal(struct tracer_session *s, int number)
{
	vec_foreach (&s->attached.signals, p)
		if (p->number == number)
			(void)run_program(&p->run);
}

/* The action runs for each object while the iterator's file is read. */
static int run_iterators(struct tracer_session *s, struct diag *d)
{
	char ignored[4096];

	vec_foreach (&s->attached.iterators, link) {
		_cleanup_close_ int fd = bpf_iter_create(*link);
		ssize_t n = fd < 0 ? -1 : 1;

		while (n > 0 || (n < 0 && fd >= 0 && errno == EAGAIN))
			n = read(fd, ignored, sizeof(ignored));
		if (n < 0)
			return diag_set(d, -errno, "cannot read an iterator: %s", strerror(errno));
	}
	s->is_over = tracer_attached_only_iterators(&s->attached, s->program);
	return 0;
}

static int start_timer(struct tracer_session *s, size_t i)
{
	u64 ns = s->attached.timers.data[i].period_ns;
	struct itimerspec t = {
		.it_interval = {.tv_sec = (time_t)(ns / 1000000000),
				.tv_nsec = (long)(ns % 1000000000)},
	};
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = i};
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	r = vec_push(&s->timers, fd);
	if (r < 0) {
		close(fd);
		return r;
	}
	t.it_value = t.it_interval;
	if (timerfd_settime(fd, 0, &t, NULL) < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e) < 0)
		return -errno;
	return 0;
}

static void fire_timer(struct tracer_session *s, size_t i)
{
	u64 n;

	if (i < s->timers.n && read(s->timers.data[i], &n, sizeof(n)) == sizeof(n) && !s->exits)
		(void)run_program(&s->attached.timers.data[i]);
}

/* ---- life ---- */

int tracer_session_load(struct tracer_session *s, const struct tracer_walk *walk,
			struct diag *reterr_diag)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = EPOLL_RING};
	int r;

	s->loaded.verbose = s->o.verbose;
	tracer_names_set_walk(s->names, walk);
	r = tracer_loaded_init(&s->loaded, s->program, walk, s->machine->target.cpus, reterr_diag);
	s->has_loaded = true;
	if (r < 0)
		return r;
	s->ring = ring_buffer__new(s->loaded.fixed[TRACE_MAP_RING], take_record, s, NULL);
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!s->ring || s->epoll < 0 ||
	    epoll_ctl(s->epoll, EPOLL_CTL_ADD, ring_buffer__epoll_fd(s->ring), &e) < 0)
		return diag_set(reterr_diag, -errno, "cannot read the ring of the script: %s",
				strerror(errno));
	return 0;
}

int tracer_session_start(struct tracer_session *s, struct diag *reterr_diag)
{
	int r;

	s->attached.script = s->script;
	s->attached.tells_places = s->o.tells_places;
	tracer_budget_init(&s->budget, s->o.budget_percent, s->o.cache_dir);
	r = tracer_attach_own(s->machine, &s->loaded, &s->attached, reterr_diag);

	if (r == 0)
		r = run_all(s, s->attached.begins.data, s->attached.begins.n, reterr_diag);
	if (r == 0)
		r = tracer_attach(s->machine, &s->loaded, &s->attached, reterr_diag);
	if (r == 0)
		r = run_iterators(s, reterr_diag);
	for (size_t i = 0; i < s->attached.timers.n && r == 0; i++) {
		r = start_timer(s, i);
		if (r < 0)
			return diag_set(reterr_diag, r, "cannot start a timer: %s", strerror(-r));
	}
	return r;
}

void tracer_session_pause(struct tracer_session *s)
{
	tracer_detach(&s->attached);
}

int tracer_session_resume(struct tracer_session *s, struct diag *reterr_diag)
{
	return tracer_attach(s->machine, &s->loaded, &s->attached, reterr_diag);
}

static void keep_budget(struct tracer_session *s)
{
	struct tracer_overrun o;

	if (!tracer_budget_exceeded(&s->budget, &s->loaded, &s->attached, &o))
		return;
	trace_print_detached(&s->printer, s->program->probes.data[o.probe].name, o.n_probes,
			     o.percent, o.budget, s->printer.json ? &s->text : &s->error_text);
	write_out(s);
}

int tracer_session_poll(struct tracer_session *s, int wait_ms)
{
	struct epoll_event events[16];
	int n = epoll_wait(s->epoll, events, ARRAY_SIZE(events),
			   s->exits || s->is_over || s->has_more ? 0 : wait_ms);

	if (n < 0 && errno != EINTR)
		return -errno;
	for (int i = 0; i < n; i++)
		if (events[i].data.u64 != EPOLL_RING)
			fire_timer(s, (size_t)events[i].data.u64);
	s->has_more = !consume(s);
	keep_budget(s);
	flush(s);
	if (s->failed)
		return -s->failed;
	return s->exits || (s->is_over && !s->has_more);
}

int tracer_session_end(struct tracer_session *s)
{
	struct diag ignored = {};

	tracer_detach(&s->attached);
	drain(s);
	s->ends = true;
	(void)run_all(s, s->attached.ends.data, s->attached.ends.n, &ignored);
	drain(s);
	for (u32 i = 0; s->program->print_maps_on_exit && !s->o.no_maps && i < s->program->maps.n;
	     i++)
		(void)print_map(s, i, NULL);
	flush(s);
	return s->status;
}

/* What the kernel counts of a program itself; since Linux 5.12. */
static u64 count_missed(const struct tracer_session *s)
{
	u64 missed = 0;

	vec_foreach (&s->loaded.programs, p) {
		struct bpf_prog_info info = {};
		u32 n = sizeof(info);

		if (bpf_obj_get_info_by_fd(p->fd, &info, &n) == 0)
			missed += info.recursion_misses;
	}
	return missed;
}

void tracer_session_losses(const struct tracer_session *s, u64 ret[TRACE_LOSS_N])
{
	u32 cpus = s->machine->target.cpus;

	for (u32 loss = 0; loss < TRACE_LOSS_N; loss++) {
		ret[loss] = 0;
		for (u32 cpu = 0; cpu < cpus; cpu++) {
			u32 key = loss * cpus + cpu;
			u64 n;

			if (bpf_map_lookup_elem(s->loaded.fixed[TRACE_MAP_LOST], &key, &n) == 0)
				ret[loss] += n;
		}
	}
	ret[TRACE_LOST_MISSED] += count_missed(s);
}

void tracer_session_destroy(struct tracer_session *s)
{
	if (!s)
		return;
	tracer_attached_deinit(&s->attached);
	tracer_budget_deinit(&s->budget);
	vec_foreach (&s->timers, fd)
		close(*fd);
	vec_deinit(&s->timers);
	ring_buffer__free(s->ring);
	if (s->epoll >= 0)
		close(s->epoll);
	if (s->has_loaded)
		tracer_loaded_deinit(&s->loaded);
	tracer_names_destroy(s->names);
	str_deinit(&s->text);
	str_deinit(&s->error_text);
	trace_program_destroy(s->program);
	trace_script_destroy(s->script);
	tracer_machine_destroy(s->machine);
	free(s);
}
