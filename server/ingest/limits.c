/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of cardinality: what a sender, by mistake or on purpose, can make the server remember.
 * Samples beyond a limit are stored under a name that says so, and counted by kind.
 *
 * Services and series count while they are active: what sent nothing for two windows counts no
 * more. So a known service keeps its place during a flood of others, and a flood of short-lived
 * ones (CI jobs, restarted pods) has no effect once it is over. The store itself forgets what it
 * has no samples of (server/store/sqlite/names.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/ingest/internal.h"

#define WINDOW_NS 3600000000000ULL
#define MAX_ACTIVE (4u << 20) /* series of all services; 200 MB at most */
#define ELLIPSIS "…"

void limiter_init(struct limiter *l)
{
	*l = (struct limiter){};
	pthread_mutex_init(&l->lock, NULL);
}

void limiter_deinit(struct limiter *l)
{
	map_deinit(&l->now);
	map_deinit(&l->before);
	map_deinit(&l->services);
	map_deinit(&l->threads.now);
	map_deinit(&l->threads.before);
	pthread_mutex_destroy(&l->lock);
}

/* ---- services and series ---- */

/* A key of struct map. */
static u64 key_of(const void *data, size_t n)
{
	return hash_bytes(data, n) >> 1;
}

static void count_series(struct limiter *l, u64 service)
{
	const u64 *n = map_get(&l->services, service);

	/* Without memory the limit holds less well. */
	(void)map_put(&l->services, service, n ? *n + 1 : 1);
}

static void begin_window(struct limiter *l, u64 now_ns)
{
	map_deinit(&l->before);
	/* After two windows without a request nothing is active. */
	if (now_ns < l->until_ns + WINDOW_NS)
		l->before = l->now;
	else
		map_deinit(&l->now);
	l->now = (struct map){};
	l->until_ns = now_ns + WINDOW_NS;
	map_deinit(&l->services);
	map_foreach (&l->before, e)
		count_series(l, e->value);
}

/* Under the lock. Returns the limit that the series is beyond, INGEST_LIMITS for none. */
static enum ingest_limit admit(struct limiter *l, const struct ingest_limits *max, u64 service,
			       u64 series)
{
	const u64 *n;

	if (map_get(&l->now, series))
		return INGEST_LIMITS;
	if (!map_get(&l->before, series)) {
		bool full = l->now.n + l->before.n >= MAX_ACTIVE;

		n = map_get(&l->services, service);
		if (!n && (full || l->services.n >= max->services))
			return INGEST_LIMIT_SERVICES;
		if (n && (full || *n >= max->series))
			return INGEST_LIMIT_SERIES;
		count_series(l, service);
	}
	(void)map_put(&l->now, series, service);
	return INGEST_LIMITS;
}

static void append_labels(const struct profile *p, u32 resource, struct str *out)
{
	const struct profile_resource *r = &p->resources.data[resource];

	for (u32 i = 0; i < r->n; i++) {
		const struct profile_label *l = &p->labels.data[r->first + i];

		str_append(out, profile_string(p, l->name), p->strings.lengths[l->name] + 1);
		str_append(out, profile_string(p, l->value), p->strings.lengths[l->value] + 1);
	}
	str_putc(out, '\0');
}

static int admit_thread(struct ingest *i, const struct profile *p, const struct profile_thread *t,
			struct str *scratch, enum ingest_limit *ret)
{
	const char *service = profile_label(p, t->resource, "service.name");
	u64 series;

	service = service ? service : "";
	str_clear(scratch);
	append_labels(p, t->resource, scratch);
	append_labels(p, t->attributes, scratch);
	str_puts(scratch, profile_string(p, t->thread_name));
	if (scratch->failed)
		return -ENOMEM;
	series = key_of(scratch->data, scratch->n);
	pthread_mutex_lock(&i->limiter.lock);
	if (clock_ns(CLOCK_MONOTONIC) >= i->limiter.until_ns)
		begin_window(&i->limiter, clock_ns(CLOCK_MONOTONIC));
	*ret = admit(&i->limiter, &i->o.limits, key_of(service, strlen(service)), series);
	pthread_mutex_unlock(&i->limiter.lock);
	return 0;
}

static int add_text(struct profile *p, const char *text, u32 *ret)
{
	return profile_add_string(p, text, strlen(text), ret);
}

/* Makes the thread one of all other series of its service, or of all other services. */
static int replace_thread(struct profile *p, struct profile_thread *t, enum ingest_limit limit)
{
	bool services = limit == INGEST_LIMIT_SERVICES;
	const char *service =
		services ? PROFILE_OTHER_SERVICES : profile_label(p, t->resource, "service.name");
	/* Adding a string may move the one that is added. */
	_cleanup_free_ char *own = strdup(service ? service : "");
	struct profile_thread other = {};
	struct profile_label label;
	int r = own ? add_text(p, "service.name", &label.name) : -ENOMEM;

	if (r == 0)
		r = add_text(p, own, &label.value);
	if (r == 0)
		r = profile_add_resource(p, &label, 1, &other.resource);
	if (r == 0 && !services)
		r = add_text(p, PROFILE_OTHER_SERIES, &other.thread_name);
	if (r == 0)
		*t = other;
	return r;
}

static int limit_threads(struct ingest *i, struct profile *p, u64 *counts)
{
	_cleanup_free_ u8 *limits = calloc(p->threads.n + 1, 1);
	_cleanup_str_ struct str scratch = {};
	int r = limits ? 0 : -ENOMEM;

	for (size_t k = 0; k < p->threads.n && r == 0; k++) {
		enum ingest_limit limit = INGEST_LIMITS;

		r = admit_thread(i, p, &p->threads.data[k], &scratch, &limit);
		limits[k] = (u8)limit;
		if (r == 0 && limit != INGEST_LIMITS)
			r = replace_thread(p, &p->threads.data[k], limit);
	}
	for (size_t k = 0; k < p->n_samples && r == 0; k++) {
		u32 t = profile_sample(p, k)->thread;

		if (t < p->threads.n && limits[t] != INGEST_LIMITS)
			counts[limits[t]]++;
	}
	return r;
}

/* ---- labels ---- */

/* Cuts a string at the limit, between two characters of UTF-8. */
static int cut_text(const struct ingest_limits *max, struct profile *p, u32 *text, u64 *count)
{
	_cleanup_str_ struct str cut = {};
	size_t n = max->label_bytes;
	const char *s;

	if (*text >= p->strings.n || p->strings.lengths[*text] <= n)
		return 0;
	s = profile_string(p, *text);
	while (n && ((u8)s[n] & 0xc0) == 0x80)
		n--;
	str_append(&cut, s, n);
	str_puts(&cut, ELLIPSIS);
	++*count;
	return cut.failed ? -ENOMEM : profile_add_string(p, cut.data, cut.n, text);
}

int ingest_limit_labels(struct ingest *i, struct profile *p, struct profile_label *labels,
			size_t *n, u64 *count)
{
	const struct ingest_limits *max = &i->o.limits;
	int r = 0;

	for (size_t k = 1; k<*n && * n> max->labels; k++)
		if (!strcmp(profile_string(p, labels[k].name), "service.name")) {
			struct profile_label service = labels[k];

			labels[k] = labels[0];
			labels[0] = service;
		}
	if (*n > max->labels) {
		*count += *n - max->labels;
		*n = max->labels;
	}
	for (size_t k = 0; k < *n && r == 0; k++) {
		r = cut_text(max, p, &labels[k].name, count);
		if (r == 0)
			r = cut_text(max, p, &labels[k].value, count);
	}
	return r;
}

static int limit_attributes(struct ingest *i, struct profile *p, u64 *count)
{
	int r = 0;

	for (size_t k = 0; k < p->threads.n && r == 0; k++) {
		struct profile_resource attributes =
			p->resources.data[p->threads.data[k].attributes];
		struct profile_label labels[PROFILE_MAX_LABELS];
		size_t n = MIN((size_t)attributes.n, (size_t)PROFILE_MAX_LABELS);
		u64 before = *count;
		u32 id = 0;

		r = cut_text(&i->o.limits, p, &p->threads.data[k].thread_name, count);
		if (n)
			memcpy(labels, p->labels.data + attributes.first, n * sizeof(*labels));
		if (r == 0)
			r = ingest_limit_labels(i, p, labels, &n, count);
		if (r < 0 || *count == before)
			continue;
		r = profile_add_resource(p, labels, n, &id);
		p->threads.data[k].attributes = id;
	}
	return r;
}

/* ---- stacks ---- */

struct weight {
	double weight;
	u32 stack;
};

static int compare_weights(const void *a, const void *b)
{
	const struct weight *x = a, *y = b;

	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	return x->stack < y->stack ? -1 : x->stack > y->stack;
}

/* Keeps the heaviest stacks. */
static int limit_stacks(struct ingest *i, struct profile *p, u64 *count)
{
	size_t n = p->stacks.n, max = i->o.limits.stacks;
	_cleanup_free_ struct weight *weights = NULL;
	u32 other = 0;
	int r;

	if (n <= max)
		return 0;
	weights = calloc(n, sizeof(*weights));
	r = weights ? profile_add_note_stack(p, PROFILE_OTHER_STACKS, &other) : -ENOMEM;
	for (size_t k = 0; k < n && r == 0; k++)
		weights[k].stack = (u32)k;
	for (size_t k = 0; k < p->n_samples && r == 0; k++) {
		const struct profile_sample *s = profile_sample(p, k);

		weights[s->stack].weight += (double)s->value[0];
	}
	if (r < 0)
		return r;
	qsort(weights, n, sizeof(*weights), compare_weights);
	for (size_t k = 0; k < max; k++)
		weights[k].weight = -1;
	/* Back to the order of stacks: -1 is a stack that stays. */
	for (size_t k = 0; k < n; k++)
		while (weights[k].stack != k) {
			struct weight swap = weights[weights[k].stack];

			weights[weights[k].stack] = weights[k];
			weights[k] = swap;
		}
	for (size_t k = 0; k < p->n_samples; k++) {
		struct profile_sample *s = (struct profile_sample *)profile_sample(p, k);

		if (s->stack >= n || weights[s->stack].weight == -1)
			continue;
		s->stack = other;
		++*count;
	}
	return 0;
}

/* ---- all of them ---- */

static const struct {
	const char *name, *text;
} kinds[INGEST_LIMITS] = {
	[INGEST_LIMIT_SERVICES] = {"services",
				   "samples are stored as service \"" PROFILE_OTHER_SERVICES
				   "\" (--max-services)"},
	[INGEST_LIMIT_SERIES] = {"series", "samples are stored as thread \"" PROFILE_OTHER_SERIES
					   "\" of their service (--max-series)"},
	[INGEST_LIMIT_LABELS] = {"labels", "labels were cut or left out "
					   "(--max-labels, --max-label-bytes)"},
	[INGEST_LIMIT_STACKS] = {"stacks",
				 "samples are stored with the stack \"" PROFILE_OTHER_STACKS
				 "\" (--max-stacks)"},
};

const char *ingest_limit_name(enum ingest_limit limit)
{
	return kinds[limit].name;
}

/* Tells the sender by the diag, and the log. */
static void tell(struct ingest *i, const u64 *counts, struct diag *ret_warning)
{
	_cleanup_str_ struct str text = {};

	for (u32 k = 0; k < INGEST_LIMITS; k++) {
		if (!counts[k])
			continue;
		str_printf(&text, "%s%llu %s",
			   text.n ? "; " : "beyond a limit of this server: ", counts[k],
			   kinds[k].text);
		atomic_fetch_add(&i->limiter.counts[k], counts[k]);
	}
	if (!text.n)
		return;
	(void)diag_set(ret_warning, 0, "%s", str_get(&text));
	log_warn_rarely("%s; /metrics counts them", str_get(&text));
}

int ingest_limit(struct ingest *i, struct profile *p, u64 n_labels, struct diag *ret_warning)
{
	u64 counts[INGEST_LIMITS] = {[INGEST_LIMIT_LABELS] = n_labels};
	int r = limit_attributes(i, p, &counts[INGEST_LIMIT_LABELS]);

	if (r == 0)
		r = limit_threads(i, p, counts);
	if (r == 0)
		r = limit_stacks(i, p, &counts[INGEST_LIMIT_STACKS]);
	if (r == 0)
		tell(i, counts, ret_warning);
	return r;
}
