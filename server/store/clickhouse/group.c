/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group commit: requests that arrive while an INSERT runs are written together by the next INSERT
 * of each table, and each is acknowledged after that. The first waiting writer writes for all
 * ("leads"), then the next one leads; there is no thread of its own.
 *
 * A lone writer never waits. Where several wait, groups begin a second apart, or sooner when no
 * further writer came for QUIET_NS: then all who could come wait already. A group that ClickHouse
 * refuses is written in halves, so that only the request that it refuses fails.
 *
 * Every request has a marker: a row of the same INSERT, partition and shard as its other rows, so
 * that either all of them are stored or none. Before a group is written, one query finds the
 * markers of requests that were written before, by any server. A marker is sorted by the time of
 * its request's newest sample, so that this query reads few rows. http.c repeats an INSERT whose
 * answer was lost: a modern server or a cluster recognises the same block; for an old single server
 * this file looks for the markers again.
 *
 * In a cluster the rows of an INSERT go to one shard, by the column `batch`: a random slot.
 *
 * What remains: while a server's INSERT runs inside ClickHouse, another server's query does not see
 * its markers yet. If a client repeats its request to the other server in that moment, the request
 * counts twice.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "server/store/clickhouse/clickhouse.h"

#define PAUSE_MS 100
#define BUSY 3 /* so many writers at once are worth waiting for */
#define PACE_NS 1000000000ULL
#define QUIET_NS 50000000ULL
#define STEP_NS 10000000L
#define MAX_MEMBERS 4096
#define MAX_GROUP_BYTES (32u << 20)
#define MAX_WAITING_BYTES (256u << 20)
/* Values of the column `batch` in a cluster, which many numbers of shards divide. */
#define SLOTS 240

/* ---- requests that were written before ---- */

static bool all_fresh(struct ch_member *const *m, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!m[i]->fresh)
			return false;
	return true;
}

int ch_find_stored(struct ch *s, const struct ch_insert *t, struct ch_member *const *m, size_t n,
		   struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, answer = {};
	struct map found = {};
	struct buf b;
	u64 token;
	int r;

	if (!n || all_fresh(m, n))
		return 0;
	t->put_find(m, n, &sql);
	r = sql.failed ? diag_set(reterr_diag, -ENOMEM, "out of memory")
		       : ch_select(s, str_get(&sql), &answer, reterr_diag);
	b = buf_of(str_get(&answer), answer.n);
	while (r == 0 && buf_left(&b)) {
		r = buf_u64(&b, &token) && ch_is_id(token) ? map_put(&found, token, 1) : -EBADMSG;
		if (r == -EBADMSG)
			r = ch_damaged_answer(reterr_diag);
	}
	for (size_t i = 0; r == 0 && i < n; i++)
		if (map_get(&found, m[i]->token))
			m[i]->stored[t->table] = true;
	map_deinit(&found);
	return r;
}

/* ---- one INSERT ---- */

static int insert_once(struct ch *s, const struct ch_insert *t, struct ch_member *const *m,
		       size_t n, struct diag *reterr_diag)
{
	bool old = !s->modern && !s->config.cluster;
	_cleanup_str_ struct str rows = {};
	u8 token[16], slot;
	char text[33];
	int r;

	if (getrandom(token, sizeof(token), 0) != sizeof(token))
		return diag_set(reterr_diag, -EIO, "no random numbers");
	slot = s->config.cluster ? token[0] % SLOTS : 0;
	for (size_t i = 0; i < n; i++)
		if (!m[i]->stored[t->table])
			t->put_rows(m[i], slot, &rows);
	if (!rows.n)
		return rows.failed ? -ENOMEM : 0;
	text_hex(token, sizeof(token), text);
	r = ch_run(s,
		   &(struct ch_request){.sql = t->sql,
					.rows = &rows,
					.token = s->modern ? text : NULL,
					.once = old},
		   NULL, reterr_diag);
	for (size_t i = 0; r == 0 && i < n; i++)
		m[i]->stored[t->table] = true;
	return r;
}

int ch_insert_group(struct ch *s, const struct ch_insert *t, struct ch_member *const *m, size_t n,
		    struct diag *reterr_diag)
{
	const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
	u64 end = clock_ns(CLOCK_MONOTONIC) + s->config.retry_ms * 1000000;

	for (;;) {
		int r = insert_once(s, t, m, n, reterr_diag);

		if (r != -EAGAIN || s->modern || s->config.cluster)
			return r;
		do {
			if (clock_ns(CLOCK_MONOTONIC) >= end)
				return r;
			nanosleep(&pause, NULL);
			for (size_t i = 0; i < n; i++)
				m[i]->fresh = false;
			r = ch_find_stored(s, t, m, n, reterr_diag);
		} while (r == -EAGAIN);
		if (r < 0)
			return r;
	}
}

/* ---- groups ---- */

static void write_group(struct ch *s, struct ch_queue *q, struct ch_member **m, size_t n)
{
	struct diag d = {};
	int r = q->write(s, m, n, &d);

	if (n > 1 && r < 0 && r != -EAGAIN && r != -ENOMEM && r != -ENOSPC) {
		/* A refused INSERT may have written some of its partitions. */
		for (size_t i = 0; i < n; i++)
			m[i]->fresh = false;
		write_group(s, q, m, n / 2);
		write_group(s, q, m + n / 2, n - n / 2);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		m[i]->r = m[i]->stored[q->table] ? 0 : r;
		m[i]->diag = d;
	}
}

/* Waits for further writers; the caller leads and holds the lock. */
static void linger(struct ch_queue *q)
{
	const struct timespec step = {.tv_nsec = STEP_NS};
	u64 now;

	while ((q->writers >= BUSY || q->last_writers >= BUSY) && q->writers < MAX_MEMBERS &&
	       q->bytes < MAX_GROUP_BYTES) {
		now = clock_ns(CLOCK_MONOTONIC);
		if (now >= q->began_ns + PACE_NS || now >= q->joined_ns + QUIET_NS)
			break;
		pthread_mutex_unlock(&q->lock);
		nanosleep(&step, NULL);
		pthread_mutex_lock(&q->lock);
	}
	q->began_ns = clock_ns(CLOCK_MONOTONIC);
}

/* The first in the queue, the leader's, is always a member. */
static size_t take_group(struct ch_queue *q, struct ch_member **ret)
{
	const struct ch_writer *last = NULL;
	size_t n = 0, bytes = 0;

	q->last_writers = 0;
	while (q->first && n < MAX_MEMBERS && (!n || bytes + q->first->bytes <= MAX_GROUP_BYTES)) {
		struct ch_member *m = q->first;

		q->last_writers += m->writer != last;
		last = m->writer;
		q->writers -= !--m->writer->waiting;
		bytes += m->bytes;
		ret[n++] = m;
		q->first = m->next;
	}
	if (!q->first)
		q->last = &q->first;
	return n;
}

static void lead(struct ch *s, struct ch_queue *q)
{
	struct ch_member *m[MAX_MEMBERS];
	size_t n;

	linger(q);
	n = take_group(q, m);
	pthread_mutex_unlock(&q->lock);
	write_group(s, q, m, n);
	pthread_mutex_lock(&q->lock);
	for (size_t i = 0; i < n; i++) {
		struct ch_writer *w = m[i]->writer;

		q->bytes -= m[i]->bytes;
		/* The last access: the writer's stack may be gone after the unlock. */
		if (!--w->left)
			pthread_cond_signal(&w->wake);
	}
	q->has_leader = q->first;
	if (q->first) {
		q->first->writer->leads = true;
		pthread_cond_signal(&q->first->writer->wake);
	}
}

/* Fails if too much waits already. Call with the lock. */
static bool enqueue(struct ch_queue *q, struct ch_writer *w, struct ch_member *m, size_t n)
{
	size_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += m[i].bytes;
	if (q->bytes && q->bytes + bytes > MAX_WAITING_BYTES)
		return false;
	for (size_t i = 0; i < n; i++) {
		m[i].writer = w;
		m[i].next = NULL;
		*q->last = &m[i];
		q->last = &m[i].next;
	}
	q->writers++;
	q->bytes += bytes;
	q->joined_ns = clock_ns(CLOCK_MONOTONIC);
	w->waiting = w->left = n;
	w->leads = !q->has_leader;
	q->has_leader = true;
	return true;
}

static bool join(struct ch *s, struct ch_queue *q, struct ch_member *m, size_t n)
{
	struct ch_writer w = {};
	bool joined;

	pthread_cond_init(&w.wake, NULL);
	pthread_mutex_lock(&q->lock);
	joined = enqueue(q, &w, m, n);
	while (w.left) {
		if (w.leads) {
			w.leads = false;
			lead(s, q);
		} else {
			pthread_cond_wait(&w.wake, &q->lock);
		}
	}
	pthread_mutex_unlock(&q->lock);
	pthread_cond_destroy(&w.wake);
	return joined;
}

/* ---- one token at a time ---- */

static int begin_token(struct ch_queue *q, u64 token)
{
	int r;

	pthread_mutex_lock(&q->lock);
	while (map_get(&q->writing, token))
		pthread_cond_wait(&q->token_done, &q->lock);
	r = map_put(&q->writing, token, 1);
	pthread_mutex_unlock(&q->lock);
	return r;
}

static void end_token(struct ch_queue *q, u64 token)
{
	pthread_mutex_lock(&q->lock);
	map_del(&q->writing, token, NULL);
	pthread_cond_broadcast(&q->token_done);
	pthread_mutex_unlock(&q->lock);
}

static int begin_member(struct ch_queue *q, struct ch_member *m, struct diag *reterr_diag)
{
	u8 own[16];
	int r;

	if (!m->key && getrandom(own, sizeof(own), 0) != sizeof(own))
		return diag_set(reterr_diag, -EIO, "no random numbers");
	m->fresh = !m->key;
	m->token = store_id(m->key ? m->key : own, sizeof(own));
	r = begin_token(q, m->token);
	return r < 0 ? diag_set(reterr_diag, r, "out of memory") : 0;
}

/* When a request comes again meanwhile, both writers take its tokens in the same order. */
void ch_write_grouped(struct ch *s, struct ch_queue *q, struct ch_member *m, size_t n)
{
	struct diag d = {};
	size_t begun = 0;
	int r = 0;

	while (begun < n && r == 0) {
		r = begin_member(q, &m[begun], &d);
		begun += r == 0;
	}
	if (r == 0 && !join(s, q, m, n))
		r = diag_set(&d, -EAGAIN, "too much waits to be written to %s; retry later",
			     s->where);
	for (size_t i = 0; i < begun; i++)
		end_token(q, m[i].token);
	for (size_t i = 0; i < n; i++) {
		if (r < 0)
			m[i].r = r;
		if (r < 0)
			m[i].diag = d;
		if (m[i].r < 0 && !m[i].diag.text[0])
			(void)diag_set(&m[i].diag, m[i].r, "%s", strerror(-m[i].r));
	}
}

void ch_queue_init(struct ch_queue *q, enum ch_once table,
		   int (*write)(struct ch *s, struct ch_member *const *m, size_t n,
				struct diag *reterr_diag))
{
	*q = (struct ch_queue){.table = table, .write = write};
	q->last = &q->first;
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->token_done, NULL);
}

void ch_queue_deinit(struct ch_queue *q)
{
	map_deinit(&q->writing);
	pthread_mutex_destroy(&q->lock);
	pthread_cond_destroy(&q->token_done);
}
