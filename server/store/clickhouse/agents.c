/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports of agents, which all servers of a database share: a row has the labels of the last report
 * of a host to a server. ClickHouse keeps the newest row of a host, and drop_months() drops old
 * months.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/varint.h"
#include "server/store/clickhouse/clickhouse.h"

static void put_labels(struct str *rows, const struct profile *p, const struct profile_resource *r,
		       bool values)
{
	varint_put(rows, r->n);
	for (u32 i = 0; i < r->n; i++) {
		const struct profile_label *l = &p->labels.data[r->first + i];

		ch_put_text(rows, p, values ? l->value : l->name);
	}
}

static void put_label(struct str *rows, const struct profile *p, const struct profile_resource *r,
		      const char *name)
{
	for (u32 i = 0; i < r->n; i++) {
		const struct profile_label *l = &p->labels.data[r->first + i];

		if (strcmp(profile_string(p, l->name), name) != 0)
			continue;
		ch_put_text(rows, p, l->value);
		return;
	}
	ch_put_string(rows, "", 0);
}

int ch_share_reports(struct store *base, const struct store_reports *reports,
		     struct diag *reterr_diag)
{
	const struct profile *p = reports->profile;
	_cleanup_str_ struct str rows = {};

	for (size_t i = 0; i < reports->list.n; i++) {
		const struct store_report *e = &reports->list.data[i];
		const struct profile_resource *r = &p->resources.data[e->resource];

		ch_put_u32(&rows, ch_day_of(e->seen_ms) / 100);
		put_label(&rows, p, r, "host.name");
		put_label(&rows, p, r, "host.id");
		ch_put_u64(&rows, reports->server);
		ch_put_u64(&rows, e->seen_ms);
		ch_put_u64(&rows, e->newest_ms);
		put_labels(&rows, p, r, false);
		put_labels(&rows, p, r, true);
	}
	if (!rows.n && !rows.failed)
		return 0;
	return ch_run(ch_of(base),
		      &(struct ch_request){.sql = "INSERT INTO agents (month, host, id, server, "
						  "seen_ms, newest_ms, names, values) FORMAT "
						  "RowBinary",
					   .rows = &rows},
		      NULL, reterr_diag);
}

int ch_read_reports(const struct str *answer, struct store_reports *ret, struct diag *reterr_diag)
{
	struct buf b = buf_of(str_get(answer), answer->n);
	struct profile_label labels[PROFILE_MAX_LABELS];
	int r = 0;

	while (buf_left(&b) && r == 0) {
		struct store_report e = {};
		size_t n = 0;

		r = buf_u64(&b, &e.seen_ms) && buf_u64(&b, &e.newest_ms)
			    ? ch_get_labels(&b, ret->profile, labels, ARRAY_SIZE(labels), &n)
			    : -EBADMSG;
		if (r == 0)
			r = profile_add_resource(ret->profile, labels, n, &e.resource);
		if (r == 0)
			r = vec_push(&ret->list, e);
	}
	if (r == -EBADMSG)
		return ch_damaged_answer(reterr_diag);
	return r < 0 ? diag_set(reterr_diag, r, "out of memory") : 0;
}

int ch_find_reports(struct store *base, u64 since_ms, struct store_reports *ret,
		    struct diag *reterr_diag)
{
	_cleanup_str_ struct str sql = {}, answer = {};
	int r;

	str_printf(&sql,
		   "SELECT seen_ms, newest_ms, names, values FROM agents WHERE month >= %u AND "
		   "seen_ms >= %llu AND server != %llu ORDER BY seen_ms DESC LIMIT 1 BY host, id "
		   "FORMAT RowBinary",
		   ch_day_of(since_ms) / 100, since_ms, ret->server);
	r = ch_select(ch_of(base), str_get(&sql), &answer, reterr_diag);
	return r < 0 ? r : ch_read_reports(&answer, ret, reterr_diag);
}
