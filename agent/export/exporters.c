/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads: the sampling agent puts profiles into a queue of QUEUE_MAX. One thread takes them out,
 * writes them to files, and encodes them for other destinations into their spools. Each of those
 * has a thread that sends the oldest request of its spool until the destination accepts it, with
 * growing intervals. So a destination that hangs delays no other.
 *
 * The same thread asks the destination, between two requests (ask.c).
 *
 * While a destination fails, its spool is written to its directory, if it has one.
 *
 * Samples that were dropped are added to `lost` of the next profile for the same destination. If
 * that profile is dropped too, the one after it reports them.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "agent/export/export_private.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/vocab.h"
#include "compress/compress.h"

#define DEFAULT_SPOOL_BYTES (64ULL << 20)
#define DEFAULT_TIMEOUT_S 10
#define DEFAULT_RETRY_MS 1000
#define DEFAULT_KEEP_FILES 1000
#define MAX_DOUBLINGS_FACTOR 30
#define MAX_RETRY_AFTER_MS 300000

static const struct export_ops *const all_ops[] = {
	&export_otlp_grpc, &export_otlp_http, &export_pyroscope,
	&export_ingest,	   &export_file,      &export_local,
};

static u64 now_ms(void)
{
	return clock_ns(CLOCK_MONOTONIC) / 1000000;
}

/* ---- stopping ---- */

/* Returns the deadline in ms; 0: not stopping. */
static u64 deadline_of(struct exporters *e)
{
	u64 d;

	pthread_mutex_lock(&e->lock);
	d = e->stopping || e->retiring ? e->deadline_ms : 0;
	pthread_mutex_unlock(&e->lock);
	return d;
}

bool export_must_stop(const struct destination *d)
{
	u64 end = deadline_of(d->all);

	return end && now_ms() >= end;
}

/* ---- drops ---- */

static void count_drop_locked(struct destination *d, enum export_drop why, u64 profiles,
			      u64 samples)
{
	d->stats.dropped += profiles;
	d->stats.dropped_by[why] += profiles;
	d->stats.dropped_samples += samples;
	d->unreported_lost += samples;
}

void export_count_drop(struct destination *d, enum export_drop why, u64 profiles, u64 samples)
{
	pthread_mutex_lock(&d->lock);
	count_drop_locked(d, why, profiles, samples);
	pthread_mutex_unlock(&d->lock);
}

static void drop_item_locked(struct destination *d, struct spool_item *item, enum export_drop why)
{
	count_drop_locked(d, why, 1, item->samples);
	d->unreported_lost += item->lost;
	spool_done(&d->spool, item);
}

static void drop_over_limit_locked(struct destination *d)
{
	/* The request being sent counts as well, but cannot be dropped now. */
	while (spool_is_over(&d->spool) && d->spool.first)
		drop_item_locked(d, spool_take(&d->spool), EXPORT_DROP_SPOOL);
}

static u64 count_samples(const struct profile *p)
{
	return p->quality.measured ? p->quality.samples : profile_sample_count(p);
}

/* Losses that the profile reports: its own and those added to it. */
static u64 lost_of(const struct profile *p)
{
	return p->quality.measured ? p->quality.lost : 0;
}

/* Drops a profile, or a part of one, that is in no spool. */
static void drop_profile(struct destination *d, u64 samples, u64 lost, enum export_drop why)
{
	pthread_mutex_lock(&d->lock);
	count_drop_locked(d, why, 1, samples);
	d->unreported_lost += lost;
	pthread_mutex_unlock(&d->lock);
}

/* ---- from a profile to the spool ---- */

/* Returns a part of a profile: the same, with some of its samples. */
static struct profile view_of(const struct profile *p, size_t first, size_t n)
{
	struct profile view = *p;

	view.samples = p->samples + first * profile_sample_size(p);
	view.n_samples = n;
	view.cap_samples = 0;
	/* The first part reports the losses. */
	if (first)
		view.quality = (struct profile_quality){};
	return view;
}

static int compress_request(const struct destination *d, const struct str *plain, struct str *out)
{
	return d->ops->gzip ? gzip_deflate(str_get(plain), plain->n, out)
			    : str_append(out, plain->data, plain->n);
}

static int spool_bytes(struct destination *d, struct str *data, u64 samples, u64 lost)
{
	int r;

	pthread_mutex_lock(&d->lock);
	r = spool_push(&d->spool, (u8 *)take_ptr(data->data), data->n, samples, lost);
	if (r == 0)
		drop_over_limit_locked(d);
	if (r == 0 && d->failing)
		spool_save(&d->spool);
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->lock);
	return r;
}

/* The part of a profile that reached the spool, even if the rest failed. */
struct kept {
	u64 samples;
	bool lost; /* the losses are reported */
};

/* Encodes the samples; halves them if they are too large for one request. */
static int encode_part(struct destination *d, const struct profile *p, size_t first, size_t n,
		       u64 lost, struct kept *kept, struct diag *reterr_diag)
{
	_cleanup_str_ struct str plain = {}, packed = {};
	struct profile view = view_of(p, first, n);
	u64 samples;
	int r = d->ops->encode(d, &view, &plain, reterr_diag);

	if (r < 0 && (r != -E2BIG || n < 2))
		return r;
	if (r == -E2BIG || (d->o.max_bytes && plain.n > d->o.max_bytes && n > 1)) {
		str_deinit(&plain);
		r = encode_part(d, p, first, n / 2, lost, kept, reterr_diag);
		return r < 0 ? r
			     : encode_part(d, p, first + n / 2, n - n / 2, 0, kept, reterr_diag);
	}
	if (!plain.n)
		return 0;
	samples = n == p->n_samples ? count_samples(p) : profile_sample_count(&view);
	r = compress_request(d, &plain, &packed);
	if (r == 0)
		r = spool_bytes(d, &packed, samples, lost);
	if (r == 0) {
		kept->samples += samples;
		kept->lost = true;
	}
	return r < 0 ? diag_set(reterr_diag, r, "cannot keep a profile of %zu bytes: %s", plain.n,
				r == -E2BIG ? "the spool is smaller" : strerror(-r))
		     : 0;
}

/*
 * Encodes the samples of each resource by themselves. Each part has a quality of its own, and the
 * first reports the losses.
 */
static int encode_by_resource(struct destination *d, const struct profile *p, u64 lost,
			      struct kept *kept, struct diag *reterr_diag)
{
	_cleanup_free_ u8 *samples = malloc(p->n_samples * profile_sample_size(p) + 1);
	int r = samples ? 0 : -ENOMEM;

	for (u32 i = 0; i < p->resources.n && r == 0; i++) {
		struct profile view = export_select_resource(p, i, samples);
		u64 own_lost = kept->lost ? 0 : lost;

		if (!view.n_samples)
			continue;
		profile_derive_quality(&view);
		view.quality.measured = p->quality.measured;
		view.quality.lost = own_lost;
		r = encode_part(d, &view, 0, view.n_samples, own_lost, kept, reterr_diag);
	}
	return r;
}

static int encode_all(struct destination *d, const struct profile *p, u64 lost, struct kept *kept,
		      struct diag *reterr_diag)
{
	return d->ops->by_resource ? encode_by_resource(d, p, lost, kept, reterr_diag)
				   : encode_part(d, p, 0, p->n_samples, lost, kept, reterr_diag);
}

static u64 take_unreported(struct destination *d)
{
	u64 lost;

	pthread_mutex_lock(&d->lock);
	lost = d->unreported_lost;
	d->unreported_lost = 0;
	pthread_mutex_unlock(&d->lock);
	return lost;
}

static void note_error(struct destination *d, const char *text)
{
	pthread_mutex_lock(&d->lock);
	snprintf(d->stats.last_error, sizeof(d->stats.last_error), "%s", text);
	pthread_mutex_unlock(&d->lock);
}

struct drop_labels {
	struct profile *p;
	struct profile_label all[PROFILE_MAX_LABELS];
	size_t n;
	int r;
};

static void put_drop(struct drop_labels *l, const char *name, u64 count)
{
	struct profile_label *at = &l->all[l->n];
	char text[24];

	if (!count || l->r < 0)
		return;
	if (l->n == ARRAY_SIZE(l->all)) {
		l->r = -E2BIG;
		return;
	}
	snprintf(text, sizeof(text), "%llu", count);
	l->r = profile_add_string(l->p, name, strlen(name), &at->name);
	if (l->r == 0)
		l->r = profile_add_string(l->p, text, strlen(text), &at->value);
	l->n += l->r == 0;
}

/*
 * Returns the agent's report (agent/run/about.h) with what was dropped for this destination;
 * without memory for it, the report as it is.
 */
static u32 report_drops(struct destination *d, struct profile *p)
{
	const struct profile_resource *report = &p->resources.data[p->agent];
	struct drop_labels l = {.p = p, .n = report->n};
	struct export_stats s;
	u32 id;

	pthread_mutex_lock(&d->lock);
	s = d->stats;
	pthread_mutex_unlock(&d->lock);
	if (!p->agent || !s.dropped)
		return p->agent;
	memcpy(l.all, p->labels.data + report->first, report->n * sizeof(*l.all));
	for (u32 i = 0; i < EXPORT_DROP_N; i++) {
		char name[64];

		snprintf(name, sizeof(name), "culprit.agent.dropped.%s",
			 vocab_export_drop(i)->name);
		put_drop(&l, name, s.dropped_by[i]);
	}
	put_drop(&l, "culprit.agent.dropped_samples", s.dropped_samples);
	return l.r == 0 && profile_add_resource(p, l.all, l.n, &id) == 0 ? id : p->agent;
}

/* The profile gets the report for this destination as one more resource. */
static void export_profile(struct destination *d, struct profile *p)
{
	u32 agent = report_drops(d, p);
	struct profile view = *p;
	struct kept kept = {};
	struct diag diag = {};
	u64 lost;
	int r;

	view.agent = agent;
	/* A profile without measured quality cannot report losses. */
	if (p->quality.measured)
		view.quality.lost += take_unreported(d);
	lost = lost_of(&view);
	r = d->ops->take ? d->ops->take(d, &view, &diag) : encode_all(d, &view, lost, &kept, &diag);
	if (r < 0) {
		u64 dropped = count_samples(p) - MIN(kept.samples, count_samples(p));

		log_warn("%s: %s; %llu samples dropped", d->stats.url,
			 diag.text[0] ? diag.text : strerror(-r), dropped);
		note_error(d, diag.text[0] ? diag.text : strerror(-r));
		drop_profile(d, dropped, kept.lost ? 0 : lost, EXPORT_DROP_FAILED);
	} else if (!d->ops->take && !kept.lost) {
		/* There was nothing to send: the next profile reports the losses. */
		pthread_mutex_lock(&d->lock);
		d->unreported_lost += lost;
		pthread_mutex_unlock(&d->lock);
	} else if (d->ops->take) {
		pthread_mutex_lock(&d->lock);
		d->stats.sent++;
		d->stats.last_error[0] = 0;
		pthread_mutex_unlock(&d->lock);
	}
}

/* Waits for the next profile of the queue. NULL: stopping or retiring. */
static struct profile *next_profile(struct exporters *e)
{
	struct profile *p = NULL;

	pthread_mutex_lock(&e->lock);
	e->encoding = false;
	while (!e->n_queued && !e->stopping && !e->retiring)
		pthread_cond_wait(&e->wake, &e->lock);
	if (e->n_queued && !e->retiring) {
		p = e->queue[e->first];
		e->first = (e->first + 1) % QUEUE_MAX;
		e->n_queued--;
	}
	e->encoding = p != NULL;
	pthread_mutex_unlock(&e->lock);
	return p;
}

static void *run_encoder(void *arg)
{
	struct exporters *e = arg;
	struct profile *p;

	while ((p = next_profile(e))) {
		for (size_t i = 0; i < e->n; i++) {
			struct destination *d = &e->destinations[i];

			/* The deadline applies to files as well. */
			if (export_must_stop(d))
				drop_profile(d, count_samples(p), lost_of(p), EXPORT_DROP_SHUTDOWN);
			else
				export_profile(d, p);
		}
		profile_destroy(p);
	}
	return NULL;
}

int exporters_send(struct exporters *e, struct profile *p, bool memory_is_short)
{
	bool full;

	pthread_mutex_lock(&e->lock);
	full = e->n_queued == QUEUE_MAX || (e->n_queued && memory_is_short);
	if (!full) {
		e->queue[(e->first + e->n_queued++) % QUEUE_MAX] = p;
		pthread_cond_signal(&e->wake);
	}
	pthread_mutex_unlock(&e->lock);
	if (!full)
		return 0;
	pthread_rwlock_rdlock(&e->list);
	for (size_t i = 0; i < e->n; i++)
		drop_profile(&e->destinations[i], count_samples(p), lost_of(p), EXPORT_DROP_QUEUE);
	pthread_rwlock_unlock(&e->list);
	profile_destroy(p);
	return -ENOBUFS;
}

/* ---- from the spool to the destination ---- */

struct sender {
	struct destination *d;
	u32 wait_ms; /* interval after the next failure */
	u64 ask_at;  /* when the next question is due */
	u64 jitter;  /* state of the generator */
};

/* Varies an interval by a fifth, so that many agents do not retry in step. */
static u64 add_jitter(struct sender *s, u64 ms)
{
	s->jitter = hash_u64(s->jitter + 1);
	return ms - ms / 5 + s->jitter % (ms * 2 / 5 + 1);
}

static void sent_locked(struct sender *s, struct spool_item *item, const struct export_result *res)
{
	struct destination *d = s->d;

	d->stats.sent++;
	d->stats.sent_bytes += item->n;
	d->stats.last_error[0] = 0;
	if (res->rejected) {
		d->stats.dropped += res->rejected;
		d->stats.dropped_by[EXPORT_DROP_PARTIAL] += res->rejected;
	}
	if (res->error.text[0])
		snprintf(d->stats.last_error, sizeof(d->stats.last_error), "%s", res->error.text);
	if (d->failing)
		log_info("%s: takes profiles again; %zu are waiting", d->stats.url,
			 d->spool.n_items);
	d->failing = false;
	s->wait_ms = d->o.retry_ms;
	spool_done(&d->spool, item);
}

/* Handles a failed attempt. Returns the interval in ms until the next one. */
static u64 failed_locked(struct sender *s, struct spool_item *item, const struct export_result *res)
{
	struct destination *d = s->d;
	u64 wait = res->retry_after_ms ? MIN(res->retry_after_ms, (u32)MAX_RETRY_AFTER_MS)
				       : add_jitter(s, s->wait_ms);

	s->wait_ms = MIN(s->wait_ms * 2, d->o.retry_ms * MAX_DOUBLINGS_FACTOR);
	d->stats.retried++;
	snprintf(d->stats.last_error, sizeof(d->stats.last_error), "%s", res->error.text);
	if (!d->failing)
		log_warn("%s: %s; profiles are kept, up to %llu MiB, and sent later", d->stats.url,
			 res->error.text, (unsigned long long)d->o.spool_bytes >> 20);
	d->failing = true;
	spool_put_back(&d->spool, item);
	drop_over_limit_locked(d);
	if (d->o.spool_dir) {
		int r = spool_save(&d->spool);

		if (r < 0)
			log_warn("%s: cannot write to %s: %s; profiles stay in memory",
				 d->stats.url, d->o.spool_dir, strerror(-r));
	}
	return wait;
}

/* Tries to send an item; the caller does not hold the lock. */
static void send_item(struct destination *d, struct spool_item *item, struct export_result *ret)
{
	int r = spool_load(&d->spool, item);

	*ret = (struct export_result){};
	if (r == 0) {
		d->ops->send(d, item->data, item->n, ret);
		return;
	}
	ret->outcome = r == -ENOMEM ? EXPORT_RETRY : EXPORT_REFUSED;
	diag_set(&ret->error, r, "a file of the spool cannot be read: %s", strerror(-r));
}

/*
 * Sends the oldest item, then puts it back or drops it. Returns the interval in ms until the next
 * attempt.
 */
static u64 send_one_locked(struct sender *s)
{
	struct destination *d = s->d;
	struct spool_item *item = spool_take(&d->spool);
	struct export_result res;
	u64 wait = 0;

	d->in_flight = item;
	pthread_mutex_unlock(&d->lock);
	send_item(d, item, &res);
	pthread_mutex_lock(&d->lock);
	d->in_flight = NULL;
	if (res.outcome == EXPORT_SENT) {
		sent_locked(s, item, &res);
	} else if (res.outcome == EXPORT_RETRY) {
		wait = failed_locked(s, item, &res);
	} else {
		log_warn("%s: %s; %llu samples dropped", d->stats.url, res.error.text,
			 item->samples);
		snprintf(d->stats.last_error, sizeof(d->stats.last_error), "%s", res.error.text);
		drop_item_locked(d, item, item->data ? EXPORT_DROP_REFUSED : EXPORT_DROP_DAMAGED);
	}
	return wait;
}

static bool is_retiring(struct exporters *e)
{
	bool retiring;

	pthread_mutex_lock(&e->lock);
	retiring = e->retiring;
	pthread_mutex_unlock(&e->lock);
	return retiring;
}

/* Whether no more requests can arrive, because the encoding thread has ended. */
static bool is_encoder_done(struct destination *d)
{
	bool ended;

	pthread_mutex_lock(&d->all->lock);
	ended = d->all->stopping && !d->all->started;
	pthread_mutex_unlock(&d->all->lock);
	return ended;
}

/* Asks if it is time to. False: the state has not changed. */
static bool ask_locked(struct sender *s)
{
	struct destination *d = s->d;
	u64 wait;

	if (!d->ops->ask || !d->o.asking || now_ms() < s->ask_at || deadline_of(d->all))
		return false;
	pthread_mutex_unlock(&d->lock);
	wait = export_ask(d);
	pthread_mutex_lock(&d->lock);
	s->ask_at = now_ms() + wait;
	return true;
}

static void *run_sender(void *arg)
{
	struct sender s = {.d = arg};
	struct destination *d = arg;
	u64 until = 0;

	if (getrandom(&s.jitter, sizeof(s.jitter), GRND_NONBLOCK) < 0)
		s.jitter = now_ms();
	s.wait_ms = d->o.retry_ms;
	pthread_mutex_lock(&d->lock);
	while (!export_must_stop(d) && !is_retiring(d->all)) {
		u64 now = now_ms(), wait;

		if (ask_locked(&s))
			continue;
		if (d->spool.first && now >= until) {
			wait = send_one_locked(&s);
			until = wait ? now_ms() + wait : 0;
			continue;
		}
		/* Requests in files can wait for the next run. */
		if (is_encoder_done(d) && (!d->spool.first || (d->failing && d->o.spool_dir)))
			break;
		wait = d->spool.first ? until - now : 1000;
		if (s.ask_at > now)
			wait = MIN(wait, s.ask_at - now);
		/* Time is short now, and the thread is signalled only once. */
		if (deadline_of(d->all)) {
			until = MIN(until, now + d->o.retry_ms);
			wait = MIN(wait, 50ULL);
		}
		(void)thread_wait(&d->wake, &d->lock, wait * 1000000);
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

/* ---- life ---- */

static void forget_options(struct export_options *o)
{
	const char *strings[] = {o->url,   o->ca,   o->cert,	o->key,
				 o->token, o->user, o->headers, o->spool_dir};

	for (size_t i = 0; i < ARRAY_SIZE(strings); i++)
		free((void *)(uintptr_t)strings[i]);
}

static int copy_options(const struct export_options *o, struct export_options *ret)
{
	const char *from[] = {o->url,	o->ca,	 o->cert,    o->key,
			      o->token, o->user, o->headers, o->spool_dir};
	const char **to[] = {&ret->url,	  &ret->ca,   &ret->cert,    &ret->key,
			     &ret->token, &ret->user, &ret->headers, &ret->spool_dir};
	int r = 0;

	*ret = *o;
	for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
		*to[i] = from[i] ? strdup(from[i]) : NULL;
		r = from[i] && !*to[i] ? -ENOMEM : r;
	}
	ret->spool_bytes = o->spool_bytes ? o->spool_bytes : DEFAULT_SPOOL_BYTES;
	ret->timeout_s = o->timeout_s ? o->timeout_s : DEFAULT_TIMEOUT_S;
	ret->retry_ms = o->retry_ms ? o->retry_ms : DEFAULT_RETRY_MS;
	ret->keep_files = o->keep_files ? o->keep_files : DEFAULT_KEEP_FILES;
	return r;
}

static int find_ops(struct destination *d, struct diag *reterr_diag)
{
	const char *colon = strchr(d->o.url, ':');
	size_t n = colon ? (size_t)(colon - d->o.url) : 0;

	for (size_t i = 0; i < ARRAY_SIZE(all_ops); i++) {
		if (strlen(all_ops[i]->scheme) != n || memcmp(all_ops[i]->scheme, d->o.url, n) != 0)
			continue;
		d->ops = all_ops[i];
		d->rest = colon + 1;
		return 0;
	}
	return diag_set(reterr_diag, -EINVAL,
			"%s: not a destination; known are otlp://HOST:PORT, otlp+http://HOST:PORT, "
			"pyroscope://HOST:PORT, pyroscope+ingest://HOST:PORT, file:PATTERN",
			d->o.url);
}

int export_open(struct exporters *e, const struct export_options *o, struct destination *d,
		struct diag *reterr_diag)
{
	int r;

	d->all = e;
	d->spool.dir = d->spool.lock = -1;
	d->spool.last = &d->spool.first;
	thread_sync_init(&d->lock, &d->wake);
	r = copy_options(o, &d->o);
	if (r < 0)
		return r;
	snprintf(d->stats.url, sizeof(d->stats.url), "%s", d->o.url);
	r = find_ops(d, reterr_diag);
	if (r < 0)
		return r;
	d->o.max_bytes = o->max_bytes ? o->max_bytes : d->ops->max_bytes;
	return d->ops->open(d, reterr_diag);
}

int export_open_spool(struct destination *d, struct diag *reterr_diag)
{
	int r;

	if (d->ops->take)
		return 0;
	r = spool_init(&d->spool, d->o.spool_dir, d->o.spool_bytes, reterr_diag);
	if (r < 0)
		return r;
	if (d->spool.n_damaged) {
		log_warn("%s: %llu damaged files in %s removed", d->o.url, d->spool.n_damaged,
			 d->o.spool_dir);
		export_count_drop(d, EXPORT_DROP_DAMAGED, d->spool.n_damaged, 0);
	}
	drop_over_limit_locked(d);
	return 0;
}

int export_start(struct destination *d)
{
	int r = d->ops->take ? 0 : thread_start(&d->thread, "sender", run_sender, d);

	d->started = r == 0 && !d->ops->take;
	return r;
}

int export_start_encoder(struct exporters *e)
{
	return thread_start(&e->thread, "encoder", run_encoder, e);
}

void export_keep_bound(struct destination *d)
{
	pthread_mutex_lock(&d->lock);
	drop_over_limit_locked(d);
	pthread_mutex_unlock(&d->lock);
}

int exporters_create(const struct export_options *o, size_t n, struct diag *reterr_diag,
		     struct exporters **ret)
{
	struct exporters *e = calloc(1, sizeof(*e));
	int r = 0;

	if (!e)
		return -ENOMEM;
	thread_sync_init(&e->lock, &e->wake);
	pthread_rwlock_init(&e->list, NULL);
	e->destinations = calloc(n + 1, sizeof(*e->destinations));
	if (!e->destinations)
		r = -ENOMEM;
	/* Set before the threads of the destinations start, because they read it. */
	e->started = true;
	for (size_t i = 0; i < n && r == 0; i++) {
		e->n++;
		r = export_open(e, &o[i], &e->destinations[i], reterr_diag);
		if (r == 0)
			r = export_open_spool(&e->destinations[i], reterr_diag);
		if (r == 0)
			r = export_start(&e->destinations[i]);
	}
	if (r == 0)
		r = export_start_encoder(e);
	if (r < 0) {
		e->started = false;
		exporters_destroy(e, 0);
		return diag_set(reterr_diag, r, "cannot export: %s", strerror(-r));
	}
	*ret = e;
	return 0;
}

void export_close(struct destination *d)
{
	struct spool_item *item;
	int r = 0;

	if (d->started) {
		pthread_mutex_lock(&d->lock);
		pthread_cond_signal(&d->wake);
		pthread_mutex_unlock(&d->lock);
		pthread_join(d->thread, NULL);
	}
	if (d->spool.first && d->o.spool_dir) {
		r = spool_save(&d->spool);
		if (r < 0)
			log_warn("%s: cannot write to %s: %s", d->o.url, d->o.spool_dir,
				 strerror(-r));
	}
	/* Requests that are in no file are lost now. */
	while ((item = spool_take(&d->spool))) {
		if (item->in_file) {
			free(item->data);
			free(item);
			continue;
		}
		drop_item_locked(d, item, EXPORT_DROP_SHUTDOWN);
	}
	if (d->stats.dropped_by[EXPORT_DROP_SHUTDOWN])
		log_warn("%s: %llu profiles not sent", d->o.url,
			 d->stats.dropped_by[EXPORT_DROP_SHUTDOWN]);
	spool_deinit(&d->spool);
	if (d->ops && d->ops->close && d->private)
		d->ops->close(d);
	forget_options(&d->o);
	pthread_mutex_destroy(&d->lock);
	pthread_cond_destroy(&d->wake);
}

void exporters_destroy(struct exporters *e, u32 timeout_ms)
{
	if (!e)
		return;
	pthread_mutex_lock(&e->lock);
	e->stopping = true;
	e->deadline_ms = now_ms() + timeout_ms;
	pthread_cond_broadcast(&e->wake);
	pthread_mutex_unlock(&e->lock);
	if (e->started)
		pthread_join(e->thread, NULL);
	pthread_mutex_lock(&e->lock);
	e->started = false;
	pthread_mutex_unlock(&e->lock);
	for (size_t i = 0; i < e->n; i++)
		export_close(&e->destinations[i]);
	pthread_rwlock_destroy(&e->list);
	pthread_mutex_destroy(&e->lock);
	pthread_cond_destroy(&e->wake);
	free(e->destinations);
	free(e);
}

size_t exporters_stats(struct exporters *e, struct export_stats *ret, size_t max)
{
	u64 queued;
	size_t n;

	pthread_mutex_lock(&e->lock);
	queued = e->n_queued + e->encoding;
	pthread_mutex_unlock(&e->lock);
	pthread_rwlock_rdlock(&e->list);
	for (size_t i = 0; i < e->n && i < max; i++) {
		struct destination *d = &e->destinations[i];

		pthread_mutex_lock(&d->lock);
		ret[i] = d->stats;
		ret[i].queued = queued;
		ret[i].spooled = d->spool.n_items + (d->in_flight != NULL);
		ret[i].spooled_bytes = d->spool.bytes;
		pthread_mutex_unlock(&d->lock);
	}
	n = e->n;
	pthread_rwlock_unlock(&e->list);
	return n;
}
