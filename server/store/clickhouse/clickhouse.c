/* SPDX-License-Identifier: Apache-2.0 */
/* The engine over a ClickHouse server or cluster: opening and figures. See clickhouse.h. */
#include "server/store/clickhouse/clickhouse.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"

static void close_store(struct store *base)
{
	struct ch *s = ch_of(base);

	ch_disconnect(s);
	ch_config_deinit(&s->config);
	for (size_t i = 0; i < CH_TABLES; i++)
		map_deinit(&s->sent[i]);
	ch_queue_deinit(&s->profiles);
	ch_queue_deinit(&s->spans);
	ch_partitions_deinit(&s->partitions);
	ch_cache_deinit(&s->cache);
	pthread_mutex_destroy(&s->conn_lock);
	pthread_mutex_destroy(&s->sent_lock);
	pthread_mutex_destroy(&s->cache_lock);
	pthread_mutex_destroy(&s->state_lock);
	free(s);
}

static struct ch *create_store(const struct store_limits *l)
{
	struct ch *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->base.ops = &store_clickhouse;
	pthread_mutex_init(&s->conn_lock, NULL);
	pthread_mutex_init(&s->sent_lock, NULL);
	pthread_mutex_init(&s->cache_lock, NULL);
	pthread_mutex_init(&s->state_lock, NULL);
	ch_queue_init(&s->profiles, CH_SAMPLES, ch_write_profiles);
	ch_queue_init(&s->spans, CH_SPANS, ch_write_span_group);
	s->limits = *l;
	return s;
}

static void init_curl(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

static int open_store(const char *where, const struct store_limits *l, struct diag *reterr_diag,
		      struct store **ret)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct ch *s = create_store(l);
	const char *host;
	struct diag d = {};
	int r;

	if (!s)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	pthread_once(&once, init_curl);
	r = ch_config_parse(where, &s->config, &d);
	if (r == 0) {
		host = strstr(s->config.hosts[0], "//") + 2;
		snprintf(s->where, sizeof(s->where), "clickhouse://%.*s/%s",
			 (int)strcspn(host, "/"), host, s->config.database);
		r = ch_schema(s, &d);
	}
	if (r < 0) {
		close_store(&s->base);
		return diag_set(reterr_diag, r, "%s", d.text[0] ? d.text : strerror(-r));
	}
	s->opened = true;
	*ret = &s->base;
	return 0;
}

/* ---- figures ---- */

/* Parses a line of numbers with tabs between them. */
static bool read_numbers(const char *line, u64 *ret, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char text[24] = "";
		size_t length = strcspn(line, "\t\n");

		if (length >= sizeof(text))
			return false;
		memcpy(text, line, length);
		if (str_to_u64(text, 10, &ret[i]) < 0)
			return false;
		line += length + (line[length] != 0);
	}
	return true;
}

static int select_numbers(struct ch *s, const char *sql, u64 *ret, size_t n,
			  struct diag *reterr_diag)
{
	_cleanup_str_ struct str answer = {};
	int r = ch_select(s, sql, &answer, reterr_diag);

	if (r == 0 && !read_numbers(str_get(&answer), ret, n))
		r = ch_damaged_answer(reterr_diag);
	return r;
}

static int count_all(struct ch *s, struct store_stats *st, struct diag *reterr_diag)
{
	const struct store_filter all = {.to_ms = 1ULL << 62};
	const struct {
		const char *table;
		u64 *into;
	} dictionaries[] = {{"series", &st->series},
			    {"functions", &st->functions},
			    {"frames", &st->frames},
			    {"stacks", &st->stacks}};
	_cleanup_str_ struct str sql = {};
	u64 v[4] = {};
	int r = ch_bytes(s, &st->bytes, reterr_diag);

	for (size_t i = 0; i < ARRAY_SIZE(dictionaries) && r == 0; i++) {
		str_clear(&sql);
		str_printf(&sql, "SELECT uniqExact(id) FROM %s", dictionaries[i].table);
		r = select_numbers(s, str_get(&sql), dictionaries[i].into, 1, reterr_diag);
	}
	str_clear(&sql);
	str_puts(&sql, "SELECT count(), toUInt64(sum(count)), "
		       "toUInt64(min(toUInt64(hour) * 3600000 + at)), "
		       "toUInt64(max(toUInt64(hour) * 3600000 + at))");
	if (r == 0)
		r = ch_put_where(s, &all, false, &sql, reterr_diag);
	if (r == 0)
		r = select_numbers(s, str_get(&sql), v, ARRAY_SIZE(v), reterr_diag);
	if (r == 0)
		r = select_numbers(s, "SELECT count() FROM spans WHERE kind < " CH_SPAN_MARKER,
				   &st->spans, 1, reterr_diag);
	if (r == 0)
		r = select_numbers(s, "SELECT count() FROM links WHERE type != ''",
				   &st->span_samples, 1, reterr_diag);
	st->rows = v[0];
	st->samples = v[1];
	st->first_ms = v[2];
	st->last_ms = v[3];
	return r;
}

/* Counting reads columns of all rows, so it is limited to a twentieth of the time. */
static int get_stats(struct store *base, struct store_stats *ret, struct diag *reterr_diag)
{
	struct ch *s = ch_of(base);
	u64 begin = clock_ns(CLOCK_MONOTONIC), end;
	struct store_stats st = {};
	int r = 0;

	pthread_mutex_lock(&s->state_lock);
	if (begin < s->stats_until_ns) {
		*ret = s->stats;
		pthread_mutex_unlock(&s->state_lock);
		return 0;
	}
	st.evicted_rows = s->evicted_rows;
	st.evicted_spans = s->evicted_spans;
	pthread_mutex_unlock(&s->state_lock);
	snprintf(st.where, sizeof(st.where), "%s", s->where);
	r = count_all(s, &st, reterr_diag);
	if (r < 0)
		return r;
	end = clock_ns(CLOCK_MONOTONIC);
	pthread_mutex_lock(&s->state_lock);
	s->stats = st;
	s->stats_until_ns = end + 20 * (end - begin);
	pthread_mutex_unlock(&s->state_lock);
	*ret = st;
	return 0;
}

const struct store_ops store_clickhouse = {
	.scheme = "clickhouse",
	.open = open_store,
	.each_file = ch_each_file,
	.close = close_store,
	.write = ch_write,
	.write_all = ch_write_all,
	.find_series = ch_find_series,
	.scan = ch_scan,
	.load_stacks = ch_load_stacks,
	.find_stacks = ch_find_stacks,
	.name_frames = ch_name_frames,
	.unname_frames = ch_unname_frames,
	.write_spans = ch_write_spans,
	.find_spans = ch_find_spans,
	.find_links = ch_find_links,
	.maintain = ch_maintain,
	.get_stats = get_stats,
	.share_reports = ch_share_reports,
	.find_reports = ch_find_reports,
	.note_symbols = ch_note_symbols,
	.find_symbols = ch_find_symbols,
	.write_symbol_part = ch_write_symbol_part,
	.read_symbol_part = ch_read_symbol_part,
};
