/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep_requests [BYTES [WINDOW_S]]: an always-on recording with agent/capture, whose server is
 * whoever writes to its standard input:
 *
 *	task ID SERVICE PERIOD_US FLOOR_US on|off|both	begins a task; again: changes it
 *	cancel ID
 *	keep ID TRACE SPAN BEGIN_NS END_NS		(reason: slow)
 *	report						prints the state of each task
 *
 * It prints
 *
 *	ready
 *	task ID STATE PROCESSES PUBLISHING SAMPLES EVENTS LOST EVICTED REASON
 *	kept ID TRACE SPAN OUTCOME SAMPLES
 *	profile TYPE UNIT SAMPLES LOST
 *	sample TYPE TIME_NS VALUE TID TRACE SPAN LABELS STACK
 *
 * LABELS are NAME=VALUE, joined by commas, of the process and of the sample; STACK is frames from
 * the leaf on, joined by semicolons, "-" if there is none. BYTES limits the history, 0: as it is.
 * It reaches WINDOW_S seconds back.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/capture/capture.h"
#include "agent/parser/parser.h"
#include "agent/pipeline/pipeline.h"
#include "agent/run/run.h"
#include "base/clock.h"
#include "base/text.h"

#define BATCH_NS 5000000000ULL
#define MAX_TASKS 16

struct server {
	struct capture *capture;
	struct control_task tasks[MAX_TASKS];
	size_t n;
};

/* ---- output ---- */

static void print_id(const u8 *id, size_t n)
{
	for (size_t i = 0; i < n; i++)
		printf("%02x", id[i]);
}

static void print_labels(const struct profile *p, u32 resource, const char **separator)
{
	const struct profile_resource *r = &p->resources.data[resource];

	for (u32 i = 0; i < r->n; i++) {
		const struct profile_label *l = &p->labels.data[r->first + i];

		printf("%s%s=", *separator, profile_string(p, l->name));
		for (const char *c = profile_string(p, l->value); *c; c++)
			putchar(*c == ' ' || *c == ',' ? '_' : *c);
		*separator = ",";
	}
}

static void print_stack(const struct profile *p, u32 stack)
{
	const struct profile_stack *s = &p->stacks.data[stack];
	_cleanup_str_ struct str scratch = {};

	for (u32 i = 0; i < s->n; i++) {
		const char *name =
			profile_frame_name(p, p->stack_frames.data[s->first + i], &scratch);

		putchar(i ? ';' : ' ');
		for (; *name; name++)
			putchar(*name == ' ' ? '_' : *name);
	}
	puts(s->n ? "" : " -");
}

static void print_sample(const struct profile *p, const char *type, const struct profile_sample *s)
{
	const struct profile_thread *t = &p->threads.data[s->thread];
	const struct profile_link *l = &p->links.data[s->link];
	const char *separator = " ";

	printf("sample %s %llu %lld %u ", type, s->time_ns, s->value[0], t->tid);
	print_id(l->trace_id, sizeof(l->trace_id));
	printf(" ");
	print_id(l->span_id, sizeof(l->span_id));
	print_labels(p, t->resource, &separator);
	print_labels(p, t->attributes, &separator);
	print_stack(p, s->stack);
}

static void take(void *arg, struct profile *p)
{
	const char *type = profile_string(p, p->types[0].name);

	(void)arg;
	flockfile(stdout); /* another thread prints reports */
	printf("profile %s %s %zu %llu\n", type, profile_string(p, p->types[0].unit), p->n_samples,
	       p->quality.lost);
	for (size_t i = 0; i < p->n_samples; i++)
		print_sample(p, type, profile_sample(p, i));
	fflush(stdout);
	funlockfile(stdout);
	profile_destroy(p);
}

static void report(struct server *s)
{
	_cleanup_control_request_ struct control_request q = {};

	if (capture_report(s->capture, 0, &q) < 0)
		return;
	flockfile(stdout);
	vec_foreach (&q.kept, k) {
		printf("kept %s ", k->task);
		print_id(k->trace_id, sizeof(k->trace_id));
		printf(" ");
		print_id(k->span_id, sizeof(k->span_id));
		printf(" %s %llu\n", control_outcome_name(k->outcome), k->samples);
	}
	capture_answered(s->capture, 0, q.kept.n);
	vec_foreach (&q.tasks, t)
		printf("task %s %s %u %u %llu %llu %llu %llu %s\n", t->id,
		       control_state_name(t->state), t->processes, t->publishing, t->samples,
		       t->events, t->lost, t->evicted, t->reason);
	puts("reported");
	fflush(stdout);
	funlockfile(stdout);
}

/* ---- input ---- */

static bool parse_id(const char *hex, u8 *ret, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int high = text_hex_digit(hex[2 * i]),
		    low = high < 0 ? -1 : text_hex_digit(hex[2 * i + 1]);

		if (low < 0)
			return false;
		ret[i] = (u8)(high << 4 | low);
	}
	return true;
}

static void set_task(struct server *s, const struct control_task *t)
{
	size_t i = 0;

	while (i < s->n && strcmp(s->tasks[i].id, t->id) != 0)
		i++;
	if (i == MAX_TASKS)
		return;
	s->tasks[i] = *t;
	s->n = MAX(s->n, i + 1);
	(void)capture_set_tasks(s->capture, 0, s->tasks, s->n);
}

static void cancel(struct server *s, const char *id)
{
	for (size_t i = 0; i < s->n; i++)
		if (!strcmp(s->tasks[i].id, id))
			s->tasks[i--] = s->tasks[--s->n];
	(void)capture_set_tasks(s->capture, 0, s->tasks, s->n);
}

static void obey(struct server *s, const char *line)
{
	struct control_task t = {};
	struct control_keep k = {};
	char trace[33], span[17], how[8];

	if (sscanf(line, "task %31s %255s %u %u %7s", t.id, t.service, &t.period_us, &t.floor_us,
		   how) == 5) {
		t.on_cpu = strcmp(how, "off") != 0;
		t.off_cpu = strcmp(how, "on") != 0;
		set_task(s, &t);
	} else if (sscanf(line, "keep %31s %32s %16s %llu %llu", k.task, trace, span, &k.start_ns,
			  &k.end_ns) == 5 &&
		   parse_id(trace, k.trace_id, 16) && parse_id(span, k.span_id, 8)) {
		(void)capture_keep(s->capture, 0, &k, 1);
	} else if (sscanf(line, "cancel %31s", t.id) == 1) {
		cancel(s, t.id);
	} else if (!strncmp(line, "report", 6)) {
		report(s);
	}
}

/* Obeys what has come. False: the input has ended. */
static bool read_lines(struct server *s)
{
	static char text[1 << 16];
	static size_t n;
	struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
	char *end;

	while (poll(&fd, 1, 0) > 0) {
		ssize_t got = read(STDIN_FILENO, text + n, sizeof(text) - 1 - n);

		if (got <= 0)
			return false;
		n += (size_t)got;
		text[n] = '\0';
		while ((end = strchr(text, '\n'))) {
			*end = '\0';
			obey(s, text);
			n -= (size_t)(end + 1 - text);
			memmove(text, end + 1, n + 1);
		}
	}
	return true;
}

/* ---- the always-on recording ---- */

static int record(struct pipeline *p, struct identities *identities, struct server *s)
{
	u64 take_ns = 0;
	int r = 0;

	while (r >= 0 && read_lines(s)) {
		u64 now = clock_ns(CLOCK_MONOTONIC);

		r = pipeline_poll(p, 20);
		if (now < take_ns)
			continue;
		pipeline_give_back(p, pipeline_take(p));
		identities_sweep(identities);
		take_ns = now + BATCH_NS;
	}
	return r;
}

static int run(struct parsers *parsers, u64 max_bytes, u64 window_ns, struct diag *diag)
{
	_cleanup_identities_ struct identities *identities = NULL;
	_cleanup_pipeline_ struct pipeline *p = NULL;
	_cleanup_capture_ struct capture *capture = NULL;
	struct sampler_event events[] = {{.name = SAMPLER_DEFAULT_EVENT, .clock_hz = 19},
					 {.name = SAMPLER_WAITS}};
	struct pipeline_options po = {
		.sampler = {.events = events,
			    .n_events = ARRAY_SIZE(events),
			    .kernel_stacks = true,
			    .user_stacks = true},
		.parsers = parsers,
	};
	struct capture_options co = {
		.parsers = parsers,
		.max_bytes = max_bytes,
		.window_ns = window_ns,
		.take = take,
	};
	struct server s = {};
	int r = identities_create(&identities);

	if (r < 0)
		return r;
	run_connect_pipeline(identities, &po);
	co.identities = identities;
	r = pipeline_create(&po, diag, &p);
	if (r == 0)
		r = pipeline_start(p, diag);
	if (r == 0)
		r = capture_create(&co, diag, &capture);
	if (r < 0)
		return r;
	s.capture = capture;
	puts("ready");
	fflush(stdout);
	r = record(p, identities, &s);
	pipeline_stop(p);
	return r;
}

int main(int argc, char **argv)
{
	struct parsers *parsers = NULL;
	struct diag diag = {};
	int r;

	if (argc > 1 && !strcmp(argv[1], "parsers"))
		return parsers_main();
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	r = parsers_start(&diag, &parsers);
	if (r == 0)
		r = run(parsers, argc > 1 ? strtoull(argv[1], NULL, 10) : 0,
			argc > 2 ? strtoull(argv[2], NULL, 10) * 1000000000 : 0, &diag);
	parsers_stop(parsers);
	if (r < 0)
		fprintf(stderr, "keep_requests: %s\n", diag.text[0] ? diag.text : strerror(-r));
	return r < 0;
}
