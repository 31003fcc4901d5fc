/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of a server that claims to be ClickHouse. The first byte says which answer the rest is:
 * 'a' reports of agents, 's' series, 'l' labels, 'p' partitions, 't' spans, 'k' links, 'y' symbol
 * files; 'f' four answers, each after its length in two bytes: stacks, named frames, frames,
 * functions. 'u' is not an answer but a URL. Any other byte: rows of a scan, grouped by the low
 * three bits.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/clickhouse/clickhouse.h"
#include "server/store/clickhouse/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_rows(const struct str *answer, u32 by)
{
	const struct store_filter f = {.from_ms = 1000, .to_ms = 1ULL << 41};
	struct store_rows rows = {};
	struct diag d = {};

	if (ch_read_rows(answer, &f, by, 1000, &rows, &d) == 0)
		for (size_t i = 1; i < rows.rows.n; i++)
			if (rows.rows.data[i - 1].time_ms > rows.rows.data[i].time_ms)
				abort();
	store_rows_deinit(&rows);
}

static void read_series(const struct str *answer, bool labels)
{
	struct store_series_set set = {.profile = profile_create()};
	struct map resources = {};
	struct diag d = {};

	if (!labels)
		ch_read_series(answer, &set, &d);
	else if (ch_read_labels(answer, set.profile, &resources, &d) == 0)
		map_foreach (&resources, it)
			if (it->value >= set.profile->resources.n)
				abort();
	map_deinit(&resources);
	store_series_set_deinit(&set);
}

/* Takes the next part of the input. */
static void cut(struct buf *b, struct str *part)
{
	struct buf bytes = {};
	u16 n = 0;

	str_clear(part);
	buf_u16(b, &n);
	n = (u16)MIN((size_t)n, buf_left(b));
	buf_take(b, n, &bytes);
	str_append(part, bytes.pos, n);
}

static void read_stacks(struct buf b)
{
	_cleanup_profile_ struct profile *p = profile_create();
	_cleanup_ch_loading_ struct ch_loading l = {.into = p};
	_cleanup_str_ struct str part = {};
	struct ch_reals reals = {};
	struct map more = {};
	bool ok = true;

	cut(&b, &part);
	ok = ok && ch_read_lists(&l, &part, &l.stacks, &l.frames) == 0;
	cut(&b, &part);
	ok = ok && ch_read_lists(&l, &part, &l.named, &more) == 0;
	cut(&b, &part);
	ok = ok && ch_read_frames(&l, &part) == 0;
	cut(&b, &part);
	ok = ok && ch_read_functions(&l, &part) == 0;
	if (ok)
		map_foreach (&l.stacks, it) {
			u32 stack;

			if (ch_add_stack(&l, it->key, &reals, &stack) == 0 && stack >= p->stacks.n)
				abort();
		}
	vec_deinit(&reals.frames);
	map_deinit(&more);
}

static void read_partitions(const struct str *answer)
{
	_cleanup_ch_partitions_ struct ch_partitions p = {};
	struct diag d = {};

	if (ch_read_partitions(answer, &p, &d) < 0)
		return;
	for (size_t i = 0; i < p.list.n; i++)
		ch_is_hidden(&p, &p.list.data[i]);
}

static void read_spans(const struct str *answer, bool links)
{
	_cleanup_store_links_ struct store_links l = {};
	_cleanup_spans_ struct spans s = {};
	struct diag d = {};

	if (spans_init(&s) < 0 || store_links_init(&l) < 0)
		return;
	if (links)
		(void)ch_read_links(answer, &l, &d);
	else
		(void)ch_read_spans(answer, &s, &d);
	for (size_t i = 0; i < s.spans.n; i++)
		if (s.spans.data[i].first + s.spans.data[i].n > s.attributes.n)
			abort();
}

static void read_reports(const struct str *answer)
{
	_cleanup_store_reports_ struct store_reports reports = {};
	struct diag d = {};

	if (store_reports_init(&reports, 1) < 0)
		return;
	(void)ch_read_reports(answer, &reports, &d);
	for (size_t i = 0; i < reports.list.n; i++)
		if (reports.list.data[i].resource >= reports.profile->resources.n)
			abort();
}

static void read_symbols(const struct str *answer)
{
	struct store_symbols l = {};
	struct diag d = {};

	(void)ch_read_symbols(answer, &l, &d);
	for (size_t i = 0; i < l.list.n; i++)
		if (!memchr(l.list.data[i].build_id, 0, sizeof(l.list.data[i].build_id)))
			abort();
	vec_deinit(&l.list);
}

static void read_url(const struct str *text)
{
	struct ch_config c = {};
	struct diag d = {};

	/* Do not let the URL name a file, which would be read from this machine. */
	if (memmem(str_get(text), text->n, "file", 4) || memchr(str_get(text), '%', text->n))
		return;
	if (ch_config_parse(str_get(text), &c, &d) == 0 && (!c.n_hosts || !c.database[0]))
		abort();
	ch_config_deinit(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_str_ struct str answer = {};

	if (!size || str_append(&answer, data + 1, size - 1) < 0)
		return 0;
	switch (data[0]) {
	case 'a':
		read_reports(&answer);
		break;
	case 's':
		read_series(&answer, false);
		break;
	case 'l':
		read_series(&answer, true);
		break;
	case 'f':
		read_stacks(buf_of(data + 1, size - 1));
		break;
	case 'p':
		read_partitions(&answer);
		break;
	case 'u':
		read_url(&answer);
		break;
	case 'y':
		read_symbols(&answer);
		break;
	case 't':
	case 'k':
		read_spans(&answer, data[0] == 'k');
		break;
	default:
		read_rows(&answer, data[0] % 8);
	}
	return 0;
}
