/* SPDX-License-Identifier: Apache-2.0 */
#include "server/settings/settings.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/map.h"
#include "base/members.h"
#include "base/quota.h"
#include "server/tasks/tasks.h"

#define VERSION 1
#define MAX_FILE_BYTES (1u << 20)

struct agent {
	char host[CONTROL_TEXT_BYTES], host_id[CONTROL_TEXT_BYTES];
	u64 asked_ms;
	struct control_settings force;
	bool takes;
	char reason[CONTROL_TEXT_BYTES];
};

struct settings {
	pthread_mutex_t lock;
	char *path; /* owned; or NULL */
	vec(struct settings_rule) rules;
	vec(struct agent) agents;
	struct map by_name; /* hash of host and id → index in agents */
};

/* ---- JSON ---- */

static void put_settings(struct json_writer *w, const struct control_settings *s)
{
	if (s->budget_percent > 0)
		json_put_double(w, "budget", s->budget_percent);
	else
		json_put_null(w, "budget");
	if (s->off_cpu)
		json_put_bool(w, "waits", s->off_cpu == 1);
	else
		json_put_null(w, "waits");
}

static void put_rules(const struct settings *s, struct json_writer *w)
{
	json_open_array(w, "rules");
	vec_foreach (&s->rules, r) {
		json_open_object(w, NULL);
		json_put_exact(w, "host", r->host);
		if (r->set.hz)
			json_put_u64(w, "hz", r->set.hz);
		else
			json_put_null(w, "hz");
		put_settings(w, &r->set);
		json_put_u64(w, "at", r->at_ms);
		json_put_text(w, "by", r->by);
		json_close(w);
	}
	json_close(w);
}

void settings_put(struct settings *s, struct json_writer *w)
{
	u64 now = clock_epoch_ms();

	pthread_mutex_lock(&s->lock);
	put_rules(s, w);
	json_open_array(w, "agents");
	vec_foreach (&s->agents, a) {
		if (now >= a->asked_ms + SETTINGS_AGENT_MS)
			continue;
		json_open_object(w, NULL);
		json_put_text(w, "host", a->host);
		json_put_text(w, "host_id", a->host_id);
		json_put_u64(w, "asked", a->asked_ms);
		json_put_u64(w, "hz", a->force.hz);
		put_settings(w, &a->force);
		json_put_bool(w, "takes_settings", a->takes);
		json_put_text(w, "reason", a->reason);
		json_close(w);
	}
	json_close(w);
	pthread_mutex_unlock(&s->lock);
}

/* Under the lock. */
static int save(const struct settings *s, struct diag *reterr_diag)
{
	_cleanup_str_ struct str text = {};
	struct json_writer w = {.out = &text};
	int r;

	if (!s->path)
		return 0;
	json_open_object(&w, NULL);
	json_put_u64(&w, "version", VERSION);
	put_rules(s, &w);
	json_close(&w);
	str_putc(&text, '\n');
	r = text.failed ? -ENOMEM : io_replace(s->path, text.data, text.n);
	return r < 0 ? diag_set(reterr_diag, r, "cannot write %s: %s", s->path, strerror(-r)) : 0;
}

/* Changes what the object has: null unsets. */
static int read_members(json_t *o, struct control_settings *set, struct diag *reterr_diag)
{
	double hz = set->hz, budget = set->budget_percent;
	bool off_cpu = set->off_cpu == 1;
	int r = members_number(o, "hz", CONTROL_MAX_HZ, &hz, reterr_diag);

	if (json_is_null(json_object_get(o, "hz")))
		hz = 0;
	else if (r == 0 && (hz < 1 || hz != (double)(u32)hz))
		return diag_set(reterr_diag, -EINVAL, "hz: a whole number of 1 to %d",
				CONTROL_MAX_HZ);
	if (r == 0 || r == -ENOENT)
		r = members_number(o, "budget", CONTROL_MAX_BUDGET, &budget, reterr_diag);
	if (json_is_null(json_object_get(o, "budget")))
		budget = 0;
	else if (r == 0 && budget < CONTROL_MIN_BUDGET)
		return diag_set(reterr_diag, -EINVAL,
				"budget: %g to %g (%% of the machine's CPU time)",
				CONTROL_MIN_BUDGET, CONTROL_MAX_BUDGET);
	if (r == 0 || r == -ENOENT)
		r = members_flag(o, "waits", &off_cpu, reterr_diag);
	if (r < 0)
		return r;
	set->hz = (u32)hz;
	set->budget_percent = budget;
	if (json_is_null(json_object_get(o, "waits")))
		set->off_cpu = 0;
	else if (json_object_get(o, "waits"))
		set->off_cpu = off_cpu ? 1 : 2;
	return 0;
}

static struct settings_rule *find_rule(struct settings *s, const char *host)
{
	vec_foreach (&s->rules, r)
		if (!strcmp(r->host, host))
			return r;
	return NULL;
}

/* ---- changing ---- */

static const char *const members[] = {"host", "hz", "budget", "waits", "at", "by"};

static int read_rule(struct settings *s, json_t *o, const char *by, struct settings_rule *ret,
		     struct diag *reterr_diag)
{
	struct settings_rule new = {};
	const struct settings_rule *known;
	int r;

	if (!json_is_object(o))
		return diag_set(reterr_diag, -EINVAL,
				"settings are an object: {\"host\": \"*\", \"hz\": 49}");
	r = members_check(o, members, ARRAY_SIZE(members), "a rule of settings", reterr_diag);
	if (r == 0)
		r = members_text(o, "host", new.host, sizeof(new.host), reterr_diag);
	if (r == 0 && !new.host[0])
		r = diag_set(reterr_diag, -EINVAL, "host: of which hosts? *: of all");
	if (r < 0)
		return r;
	known = find_rule(s, new.host);
	if (known)
		new.set = known->set;
	r = read_members(o, &new.set, reterr_diag);
	new.at_ms = clock_epoch_ms();
	snprintf(new.by, sizeof(new.by), "%s", by);
	if (r == 0)
		*ret = new;
	return r;
}

static void remove_rule(struct settings *s, const struct settings_rule *r)
{
	size_t at = (size_t)(r - s->rules.data);

	s->rules.n--;
	memmove(s->rules.data + at, s->rules.data + at + 1,
		(s->rules.n - at) * sizeof(*s->rules.data));
}

/* Puts the rule in its place, or takes it away if it sets nothing. */
static int put_rule(struct settings *s, const struct settings_rule *new, struct diag *reterr_diag)
{
	struct settings_rule *known = find_rule(s, new->host);
	const bool sets = new->set.hz || new->set.budget_percent > 0 || new->set.off_cpu;

	if (known && sets)
		*known = *new;
	else if (known)
		remove_rule(s, known);
	else if (sets && s->rules.n >= SETTINGS_MAX_RULES)
		return diag_set(reterr_diag, -E2BIG, "%d rules of settings at most",
				SETTINGS_MAX_RULES);
	else if (sets)
		return vec_push(&s->rules, *new);
	return 0;
}

int settings_set(struct settings *s, struct json_t *object, const char *by,
		 char ret_host[CONTROL_TEXT_BYTES], struct diag *reterr_diag)
{
	QUOTA_PAUSED; /* the list belongs to all requests */
	struct settings_rule new, old = {};
	int r;

	pthread_mutex_lock(&s->lock);
	r = read_rule(s, object, by, &new, reterr_diag);
	if (r == 0) {
		const struct settings_rule *known = find_rule(s, new.host);

		memcpy(old.host, new.host, sizeof(old.host));
		if (known)
			old = *known;
		r = put_rule(s, &new, reterr_diag);
	}
	if (r == 0) {
		r = save(s, reterr_diag);
		if (r < 0)
			(void)put_rule(s, &old, NULL);
		else
			memcpy(ret_host, new.host, CONTROL_TEXT_BYTES);
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

int settings_unset(struct settings *s, const char *host, struct diag *reterr_diag)
{
	QUOTA_PAUSED;
	struct settings_rule old, *known;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	known = find_rule(s, host);
	if (!known) {
		r = diag_set(reterr_diag, -ENOENT, "there are no settings for the hosts %.60s",
			     host);
	} else {
		old = *known;
		remove_rule(s, known);
		r = save(s, reterr_diag);
		if (r < 0)
			(void)put_rule(s, &old, NULL);
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* ---- agents ---- */

/* How much a rule is about this host: 0 is not at all. */
static size_t rank_of(const struct settings_rule *r, const char *host)
{
	if (task_pattern_match(r->host, NULL, host) <= 0)
		return 0;
	return strchr(r->host, '*') ? strlen(r->host) : CONTROL_TEXT_BYTES;
}

static struct control_settings settings_of(const struct settings *s, const char *host)
{
	struct control_settings out = {};
	size_t hz = 0, budget = 0, off_cpu = 0;

	vec_foreach (&s->rules, r) {
		size_t rank = rank_of(r, host);

		if (r->set.hz && rank > hz) {
			out.hz = r->set.hz;
			hz = rank;
		}
		if (r->set.budget_percent > 0 && rank > budget) {
			out.budget_percent = r->set.budget_percent;
			budget = rank;
		}
		if (r->set.off_cpu && rank > off_cpu) {
			out.off_cpu = r->set.off_cpu;
			off_cpu = rank;
		}
	}
	return out;
}

static u64 name_hash(const struct control_request *q)
{
	return (hash_bytes(q->host, strlen(q->host)) ^
		hash_u64(hash_bytes(q->host_id, strlen(q->host_id)))) >>
	       1; /* not one of the table's own */
}

static struct agent *agent_of(struct settings *s, const struct control_request *q)
{
	const u64 key = name_hash(q), *at = map_get(&s->by_name, key);
	struct agent new = {};

	if (at)
		return &s->agents.data[*at];
	if (s->agents.n >= SETTINGS_MAX_AGENTS) {
		map_clear(&s->by_name);
		vec_clear(&s->agents);
	}
	if (map_put(&s->by_name, key, s->agents.n) < 0)
		return NULL;
	if (vec_push(&s->agents, new) < 0) {
		(void)map_del(&s->by_name, key, NULL);
		return NULL;
	}
	return &s->agents.data[s->agents.n - 1];
}

void settings_sync(struct settings *s, const struct control_request *q,
		   struct control_response *ret)
{
	QUOTA_PAUSED;
	struct agent *a;

	pthread_mutex_lock(&s->lock);
	a = agent_of(s, q);
	if (a) {
		memcpy(a->host, q->host, sizeof(a->host));
		memcpy(a->host_id, q->host_id, sizeof(a->host_id));
		memcpy(a->reason, q->settings_reason, sizeof(a->reason));
		a->asked_ms = clock_epoch_ms();
		a->force = q->settings;
		a->takes = q->takes_settings;
	}
	ret->settings = settings_of(s, q->host);
	pthread_mutex_unlock(&s->lock);
}

/* ---- life ---- */

static int load(struct settings *s, struct diag *reterr_diag)
{
	_cleanup_str_ struct str text = {};
	json_t *o = NULL, *rule;
	struct diag d = {};
	size_t k;
	int r = io_read(s->path, MAX_FILE_BYTES, &text);

	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = json_read(str_get(&text), text.n, 0, &o, &d);
	if (r == 0 && json_integer_value(json_object_get(o, "version")) != VERSION)
		r = diag_set(&d, -EBADMSG, "another version of the format");
	if (r == 0)
		json_array_foreach(json_object_get(o, "rules"), k, rule)
		{
			const char *by = json_string_value(json_object_get(rule, "by"));
			json_int_t at = json_integer_value(json_object_get(rule, "at"));
			struct settings_rule new;

			r = read_rule(s, rule, by ? by : "", &new, &d);
			new.at_ms = at > 0 ? (u64)at : 0;
			if (r == 0)
				r = put_rule(s, &new, &d);
			if (r < 0)
				break;
		}
	json_decref(o);
	return r < 0 ? diag_set(reterr_diag, r, "%s: %s", s->path,
				d.text[0] ? d.text : strerror(-r))
		     : 0;
}

int settings_create(const char *directory, struct diag *reterr_diag, struct settings **ret)
{
	_cleanup_settings_ struct settings *s = calloc(1, sizeof(*s));
	int r = 0;

	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	if (directory && asprintf(&s->path, "%s/agents.json", directory) < 0) {
		s->path = NULL;
		return -ENOMEM;
	}
	if (s->path)
		r = load(s, reterr_diag);
	if (r == 0)
		*ret = take_ptr(s);
	return r;
}

void settings_destroy(struct settings *s)
{
	if (!s)
		return;
	vec_deinit(&s->rules);
	vec_deinit(&s->agents);
	map_deinit(&s->by_name);
	free(s->path);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
