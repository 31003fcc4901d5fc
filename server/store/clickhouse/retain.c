/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Late symbols are kept as long as the frames that they name. Those frames are sent again each
 * month as long as they are in use, and drop_months() drops old months:
 *
 * 1. A row of `names` whose frame is not in `frames` any more is deleted.
 * 2. The frames that the other rows list, and the functions of those, are not in any stack, so no
 *    writer sends them again: once a month their rows are copied to the month.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "server/store/clickhouse/clickhouse.h"

#define AT_ONCE 4096
#define DAY_NS (86400 * 1000000000ULL)

#define LATE_FRAMES "SELECT arrayJoin(frames) FROM names"

/* Deletes some rows; *ret_more: there may be further ones. */
static int delete_names(struct ch *s, bool *ret_more, struct diag *reterr_diag)
{
	_cleanup_str_ struct str ids = {}, sql = {};
	bool behind = false, busy = false;
	size_t n = 0;
	int r = ch_is_behind(s, "names", &behind, reterr_diag);

	if (r == 0 && !behind && s->config.cluster)
		r = ch_is_behind(s, "frames_local", &behind, reterr_diag);
	if (r == 0)
		r = ch_is_deleting(s, "names", &busy, reterr_diag);
	*ret_more = behind || busy;
	if (r < 0 || *ret_more)
		return r;
	str_printf(&sql,
		   "SELECT DISTINCT frame FROM names WHERE frame NOT IN (SELECT id FROM frames "
		   "WHERE id GLOBAL IN (SELECT frame FROM names)) LIMIT %u FORMAT RowBinary",
		   AT_ONCE);
	r = ch_list_ids(s, str_get(&sql), &ids, &n, reterr_diag);
	*ret_more = n == AT_ONCE;
	if (r < 0 || !n)
		return r;
	str_clear(&sql);
	str_printf(&sql, "ALTER TABLE names DELETE WHERE frame IN (%s)", str_get(&ids));
	return ch_select(s, str_get(&sql), NULL, reterr_diag);
}

int ch_copy_to_month(struct ch *s, enum ch_table t, u32 month, const char *where,
		     struct diag *reterr_diag)
{
	static const struct {
		const char *table, *columns, *values;
	} copies[CH_TABLES] = {
		[CH_FRAMES] = {"frames",
			       "id, kind, flags, path, build_id, address, function, line, col",
			       "id, any(kind), any(flags), any(path), any(build_id), any(address), "
			       "any(function), any(line), any(col)"},
		[CH_FUNCTIONS] = {"functions", "id, name, system_name, file, start_line",
				  "id, any(name), any(system_name), any(file), any(start_line)"},
	};
	_cleanup_str_ struct str sql = {};

	str_printf(&sql,
		   "INSERT INTO %s (month, %s) SELECT toUInt32(%u), %s FROM %s WHERE %s AND id "
		   "GLOBAL NOT IN (SELECT id FROM %s WHERE month = %u AND %s) GROUP BY id",
		   copies[t].table, copies[t].columns, month, copies[t].values, copies[t].table,
		   where, copies[t].table, month, where);
	return ch_select(s, str_get(&sql), NULL, reterr_diag);
}

int ch_retain_names(struct ch *s, struct diag *reterr_diag)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);
	u32 month = ch_day_of(clock_epoch_ms()) / 100;
	bool more = false;
	int r = 0;

	if (now >= s->names_until_ns) {
		r = delete_names(s, &more, reterr_diag);
		if (r == 0 && !more)
			s->names_until_ns = now + DAY_NS;
	}
	if (r < 0 || s->names_month == month)
		return r;
	r = ch_copy_to_month(s, CH_FRAMES, month, "id GLOBAL IN (" LATE_FRAMES ")", reterr_diag);
	if (r == 0)
		r = ch_copy_to_month(s, CH_FUNCTIONS, month,
				     "id GLOBAL IN (SELECT function FROM frames WHERE id GLOBAL IN "
				     "(" LATE_FRAMES "))",
				     reterr_diag);
	if (r == 0)
		s->names_month = month;
	return r;
}
