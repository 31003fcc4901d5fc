/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaces the destinations while profiles arrive: opens the new ones, ends all threads, moves
 * waiting requests to their new owners, and starts threads again. Profiles that arrive meanwhile
 * stay in the queue, which has room for more than a minute of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/export/export_private.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"

#define RETIRE_MS 2000

/* Returns the old destination that d continues; NULL: none. */
static struct destination *find_predecessor(struct exporters *e, const struct destination *d)
{
	for (size_t i = 0; i < e->n; i++) {
		struct destination *old = &e->destinations[i];

		if (!old->inherited && old->ops == d->ops && str_same(old->o.url, d->o.url))
			return old;
	}
	return NULL;
}

static bool same_spool(const struct destination *a, const struct destination *b)
{
	return str_same(a->o.spool_dir, b->o.spool_dir);
}

/* Moves the items of one spool to another, in order. */
static void move_items(struct destination *from, struct destination *to)
{
	struct spool_item *item;

	while ((item = spool_take(&from->spool))) {
		int r = spool_load(&from->spool, item);

		if (r == 0)
			r = spool_push(&to->spool, take_ptr(item->data), item->n, item->samples,
				       item->lost);
		if (r < 0) {
			export_count_drop(to, r == -E2BIG ? EXPORT_DROP_SPOOL : EXPORT_DROP_DAMAGED,
					  1, item->samples);
			to->unreported_lost += item->lost;
		}
		spool_done(&from->spool, item);
	}
}

static void inherit_spool(struct destination *d, struct destination *old)
{
	struct export_stats *s = &d->stats;
	u64 max_bytes = d->o.spool_bytes;

	old->inherited = true;
	*s = old->stats;
	d->unreported_lost = old->unreported_lost;
	d->failing = old->failing;
	if (d->ops->take)
		return;
	if (same_spool(d, old)) {
		d->spool = old->spool;
		if (!d->spool.first)
			d->spool.last = &d->spool.first;
		d->spool.max_bytes = max_bytes;
		old->spool = (struct spool){.dir = -1, .lock = -1};
		old->spool.last = &old->spool.first;
	} else {
		move_items(old, d);
	}
	export_keep_bound(d);
}

/* Ends all threads. */
static void stop_threads(struct exporters *e)
{
	pthread_mutex_lock(&e->lock);
	e->retiring = true;
	e->deadline_ms = clock_ns(CLOCK_MONOTONIC) / 1000000 + RETIRE_MS;
	pthread_cond_broadcast(&e->wake);
	pthread_mutex_unlock(&e->lock);
	pthread_join(e->thread, NULL);
	for (size_t i = 0; i < e->n; i++) {
		struct destination *d = &e->destinations[i];

		if (!d->started)
			continue;
		pthread_mutex_lock(&d->lock);
		pthread_cond_signal(&d->wake);
		pthread_mutex_unlock(&d->lock);
		pthread_join(d->thread, NULL);
		d->started = false;
	}
	pthread_mutex_lock(&e->lock);
	e->retiring = false;
	pthread_mutex_unlock(&e->lock);
}

static int open_all(struct exporters *e, const struct export_options *o, size_t n,
		    struct destination *fresh, size_t *ret_n, struct diag *reterr_diag)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		const struct destination *old;

		*ret_n = i + 1;
		r = export_open(e, &o[i], &fresh[i], reterr_diag);
		old = r == 0 ? find_predecessor(e, &fresh[i]) : NULL;
		if (r == 0 && !(old && same_spool(old, &fresh[i])))
			r = export_open_spool(&fresh[i], reterr_diag);
	}
	return r;
}

static void close_all(struct destination *d, size_t n)
{
	for (size_t i = 0; i < n; i++)
		export_close(&d[i]);
	free(d);
}

int exporters_replace(struct exporters *e, const struct export_options *o, size_t n,
		      struct diag *reterr_diag)
{
	struct destination *fresh = calloc(n + 1, sizeof(*fresh)), *old, *from;
	size_t n_fresh = 0, n_old;
	int r = fresh ? open_all(e, o, n, fresh, &n_fresh, reterr_diag) : -ENOMEM;

	if (r < 0) {
		if (fresh)
			close_all(fresh, n_fresh);
		return diag_set(reterr_diag, r, "cannot export: %s", strerror(-r));
	}
	stop_threads(e);
	for (size_t i = 0; i < n; i++)
		if ((from = find_predecessor(e, &fresh[i])))
			inherit_spool(&fresh[i], from);
	pthread_rwlock_wrlock(&e->list);
	old = e->destinations;
	n_old = e->n;
	e->destinations = fresh;
	e->n = n;
	pthread_rwlock_unlock(&e->list);
	close_all(old, n_old);
	for (size_t i = 0; i < n && r == 0; i++)
		r = export_start(&fresh[i]);
	if (r == 0)
		r = export_start_encoder(e);
	e->started = r == 0;
	if (r < 0)
		log_err("cannot start a thread: %s; nothing is sent any more", strerror(-r));
	return r;
}
