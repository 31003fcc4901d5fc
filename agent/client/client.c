/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lock for all servers. It is held while capture is called, which returns soon, so that capture
 * can be taken away between two calls, and never while a destination is waited for.
 *
 * A server keeps its place, which is its number in capture, as long as its URL is a destination.
 */
#include "agent/client/client.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "control/control.h"

#define FIRST_RETRY_MS 1000
#define MAX_RETRY_MS 30000
#define UNKNOWN_MS 600000 /* until a destination without this call is asked again */
#define AWAY_MS 600000	  /* without an answer: its tasks end */
/* A server may ask for any interval between these. */
#define MIN_NEXT_MS 200
#define MAX_NEXT_MS 60000

enum server_state {
	SERVER_NEW,
	SERVER_ANSWERS,
	SERVER_UNKNOWN, /* it does not know the question */
	SERVER_FAILS,
};

struct server {
	char *url; /* owned; NULL: this place is free */
	enum server_state state;
	bool asking;			  /* a question is under way */
	size_t n_kept;			  /* outcomes in it */
	u64 cursor;			  /* of the last answer that was taken in */
	u32 wait_ms;			  /* interval after the next failure */
	u64 answered_ms;		  /* CLOCK_MONOTONIC; 0: never */
	u32 tasks;			  /* that it has given */
	struct control_settings settings; /* that it has set */
	u64 questions, answers, failures, keeps;
};

struct control_client {
	struct export_asking asking;
	u64 started_ms;
	pthread_mutex_t lock;	 /* of all fields below */
	struct capture *capture; /* borrowed; NULL: nobody is asked */
	struct watch *watch;	 /* borrowed; there if `capture` is, as the next */
	struct measures *measures;
	char host[CONTROL_TEXT_BYTES], host_id[CONTROL_TEXT_BYTES];
	struct control_settings in_force;
	bool takes_settings;
	char settings_reason[CONTROL_TEXT_BYTES];
	struct server servers[CAPTURE_MAX_SERVERS];
};

static u64 now_ms(void)
{
	return clock_ns(CLOCK_MONOTONIC) / 1000000;
}

static u32 number_of(const struct control_client *c, const struct server *s)
{
	return (u32)(s - c->servers);
}

static struct server *find_server(struct control_client *c, const char *url)
{
	for (size_t i = 0; i < ARRAY_SIZE(c->servers); i++)
		if (str_same(c->servers[i].url, url))
			return &c->servers[i];
	return NULL;
}

/* NULL: out of memory, or of places. */
static struct server *add_server(struct control_client *c, const char *url)
{
	struct server *s = find_server(c, NULL);

	if (!s)
		return NULL;
	*s = (struct server){.url = strdup(url), .wait_ms = FIRST_RETRY_MS};
	return s->url ? s : NULL;
}

static void forget_server(struct control_client *c, struct server *s)
{
	if (c->capture) {
		capture_forget_server(c->capture, number_of(c, s));
		(void)watch_set(c->watch, number_of(c, s), NULL, 0);
		(void)measures_set(c->measures, number_of(c, s), NULL, 0);
	}
	free(s->url);
	*s = (struct server){};
}

/* ---- the question ---- */

static int ask_locked(struct control_client *c, struct server *s, struct str *out)
{
	_cleanup_control_request_ struct control_request q = {
		.version = CULPRIT_VERSION, .started_ms = c->started_ms, .cursor = s->cursor};
	int r;

	memcpy(q.host, c->host, sizeof(q.host));
	memcpy(q.host_id, c->host_id, sizeof(q.host_id));
	q.settings = c->in_force;
	q.takes_settings = c->takes_settings;
	memcpy(q.settings_reason, c->settings_reason, sizeof(q.settings_reason));
	r = capture_report(c->capture, number_of(c, s), &q);
	if (r == 0)
		r = watch_report(c->watch, number_of(c, s), &q);
	if (r == 0)
		r = measures_report(c->measures, number_of(c, s), &q);
	if (r == 0)
		r = control_request_encode(&q, out);
	if (r < 0)
		return r;
	s->asking = true;
	s->n_kept = q.kept.n;
	s->questions++;
	return 0;
}

static int question(void *client, const char *url, struct str *out)
{
	struct control_client *c = client;
	struct server *s;
	int r = -EAGAIN;

	pthread_mutex_lock(&c->lock);
	if (c->capture) {
		s = find_server(c, url);
		if (!s)
			s = add_server(c, url);
		/* Two destinations with one URL: one of them asks. */
		if (s && !s->asking)
			r = ask_locked(c, s, out);
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

/* ---- the answer ---- */

/* Its tasks can reach no decision without it. */
static void end_tasks_if_away(struct control_client *c, struct server *s)
{
	if (now_ms() - s->answered_ms < AWAY_MS)
		return;
	if (c->capture)
		(void)watch_set(c->watch, number_of(c, s), NULL, 0);
	s->settings = (struct control_settings){};
	if (!s->tasks)
		return;
	if (c->capture && capture_set_tasks(c->capture, number_of(c, s), NULL, 0) < 0)
		return;
	log_warn("%s: has not answered about tasks for %u minutes; %u tasks end here until it does",
		 s->url, AWAY_MS / 60000, s->tasks);
	s->tasks = 0;
}

static u32 note_failure(struct control_client *c, struct server *s, const struct export_answer *a)
{
	u32 wait = MAX(s->wait_ms, MIN(a->retry_after_ms, (u32)MAX_RETRY_MS));

	s->failures++;
	if (s->state != SERVER_FAILS)
		log_warn("%s: cannot ask for tasks: %s; asking again, after %u s at most", s->url,
			 a->error, MAX_RETRY_MS / 1000);
	s->state = SERVER_FAILS;
	s->wait_ms = MIN(2 * s->wait_ms, (u32)MAX_RETRY_MS);
	end_tasks_if_away(c, s);
	return wait;
}

static u32 note_unknown(struct control_client *c, struct server *s, const struct export_answer *a)
{
	/* A proxy may answer so while its server starts again. */
	if (s->answered_ms && now_ms() - s->answered_ms < AWAY_MS)
		return note_failure(c, s, a);
	log_debug("%s: knows no tasks (%s); asking again in %u minutes", s->url, a->error,
		  UNKNOWN_MS / 60000);
	s->state = SERVER_UNKNOWN;
	s->wait_ms = FIRST_RETRY_MS;
	end_tasks_if_away(c, s);
	return UNKNOWN_MS;
}

/* The server gets the question again, and repeats its answer, after an error. */
static int take_response(struct control_client *c, struct server *s,
			 const struct control_response *r)
{
	u32 number = number_of(c, s);
	int e;

	capture_answered(c->capture, number, s->n_kept);
	watch_answered(c->watch, number);
	measures_answered(c->measures, number);
	e = measures_set(c->measures, number, r->measures.data, r->measures.n);
	if (e < 0)
		return e;
	e = watch_set(c->watch, number, r->watches.data, r->watches.n);
	if (e < 0)
		return e;
	e = capture_set_tasks(c->capture, number, r->tasks.data, r->tasks.n);
	if (e < 0)
		return e;
	s->tasks = (u32)r->tasks.n;
	e = capture_keep(c->capture, number, r->keeps.data, r->keeps.n);
	if (e < 0)
		return e;
	s->keeps += r->keeps.n;
	s->settings = r->settings;
	s->cursor = r->cursor;
	return 0;
}

static u32 read_response(struct control_client *c, struct server *s, const struct export_answer *a)
{
	_cleanup_control_response_ struct control_response r = {};
	struct diag d = {};
	int e = control_response_decode(a->data, a->n, &r, &d);

	/* What accepts everything answers with an empty message. */
	if (e == 0 && !r.next_ms)
		return note_unknown(c, s, &(struct export_answer){.error = "an empty answer"});
	if (e == 0)
		e = take_response(c, s, &r);
	if (e < 0)
		return note_failure(
			c, s, &(struct export_answer){.error = d.text[0] ? d.text : strerror(-e)});
	if (s->state == SERVER_FAILS)
		log_info("%s: answers about tasks again", s->url);
	s->state = SERVER_ANSWERS;
	s->answers++;
	s->answered_ms = now_ms();
	s->wait_ms = FIRST_RETRY_MS;
	return MIN(MAX(r.next_ms, (u32)MIN_NEXT_MS), (u32)MAX_NEXT_MS);
}

static u32 answer(void *client, const char *url, const struct export_answer *a)
{
	struct control_client *c = client;
	u32 wait = MIN_NEXT_MS;
	struct server *s;

	pthread_mutex_lock(&c->lock);
	s = find_server(c, url);
	if (s) {
		s->asking = false;
		if (a->broken_off || !c->capture)
			wait = MIN_NEXT_MS;
		else if (a->data)
			wait = read_response(c, s, a);
		else if (a->unknown)
			wait = note_unknown(c, s, a);
		else
			wait = note_failure(c, s, a);
	}
	pthread_mutex_unlock(&c->lock);
	return wait;
}

/* ---- settings ---- */

static bool sets_any(const struct control_settings *s)
{
	return s->hz || s->budget_percent > 0 || s->off_cpu;
}

struct control_settings control_client_settings(struct control_client *c)
{
	struct control_settings ret = {};

	pthread_mutex_lock(&c->lock);
	for (size_t i = ARRAY_SIZE(c->servers); i; i--)
		if (c->servers[i - 1].url && sets_any(&c->servers[i - 1].settings))
			ret = c->servers[i - 1].settings;
	pthread_mutex_unlock(&c->lock);
	return ret;
}

void control_client_in_force(struct control_client *c, const struct control_settings *s,
			     bool takes_settings, const char *reason)
{
	pthread_mutex_lock(&c->lock);
	c->in_force = *s;
	c->takes_settings = takes_settings;
	snprintf(c->settings_reason, sizeof(c->settings_reason), "%s", reason);
	pthread_mutex_unlock(&c->lock);
}

/* ---- life ---- */

int control_client_create(struct control_client **ret)
{
	struct control_client *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	pthread_mutex_init(&c->lock, NULL);
	c->asking = (struct export_asking){question, answer, c};
	c->started_ms = clock_epoch_ms();
	*ret = c;
	return 0;
}

void control_client_destroy(struct control_client *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(c->servers); i++)
		free(c->servers[i].url);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

const struct export_asking *control_client_asking(const struct control_client *c)
{
	return &c->asking;
}

void control_client_begin(struct control_client *c, struct capture *capture, struct watch *watch,
			  struct measures *measures, const char *host, const char *host_id)
{
	pthread_mutex_lock(&c->lock);
	c->capture = capture;
	c->watch = watch;
	c->measures = measures;
	snprintf(c->host, sizeof(c->host), "%s", host);
	snprintf(c->host_id, sizeof(c->host_id), "%s", host_id);
	pthread_mutex_unlock(&c->lock);
}

void control_client_end(struct control_client *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->capture = NULL;
	pthread_mutex_unlock(&c->lock);
}

void control_client_keep_only(struct control_client *c, const char *const *urls, size_t n)
{
	pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < ARRAY_SIZE(c->servers); i++) {
		bool stays = !c->servers[i].url;

		for (size_t k = 0; k < n && !stays; k++)
			stays = str_same(urls[k], c->servers[i].url);
		if (!stays)
			forget_server(c, &c->servers[i]);
	}
	pthread_mutex_unlock(&c->lock);
}

/* ---- /metrics ---- */

static void metric(struct str *out, const struct server *s, size_t n, const char *name,
		   const char *help, double (*value)(const struct server *s))
{
	metrics_family(out, name, help);
	for (size_t i = 0; i < n; i++)
		if (s[i].url)
			metrics_sample(out, name, METRICS_LABELS({"url", s[i].url}), value(&s[i]));
}

static double answers_now(const struct server *s)
{
	return s->state == SERVER_ANSWERS;
}

#define VALUE(member)                                                                              \
	static double member##_of(const struct server *s)                                          \
	{                                                                                          \
		return (double)s->member;                                                          \
	}
VALUE(questions)
VALUE(answers)
VALUE(failures)
VALUE(tasks)
VALUE(keeps)
#undef VALUE

void control_client_metrics(struct control_client *c, struct str *out)
{
#define METRIC(name, value, help)                                                                  \
	metric(out, c->servers, ARRAY_SIZE(c->servers), "culprit_agent_control_" name, help, value)
	pthread_mutex_lock(&c->lock);
	METRIC("answers", answers_now,
	       "1: the destination answers when it is asked for tasks; 0: it fails, or knows none.");
	METRIC("questions_total", questions_of, "Times that the destination was asked for tasks.");
	METRIC("answers_total", answers_of, "Questions that it has answered.");
	METRIC("failures_total", failures_of, "Questions that failed; not to know tasks is none.");
	METRIC("tasks", tasks_of, "Tasks that it has given to this agent.");
	METRIC("keeps_total", keeps_of, "Requests that it wanted kept.");
	pthread_mutex_unlock(&c->lock);
#undef METRIC
}
