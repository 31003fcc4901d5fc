/* SPDX-License-Identifier: Apache-2.0 */
/* Rows in ClickHouse's RowBinary, and literals in SQL. */
#include <errno.h>
#include <string.h>

#include "base/varint.h"
#include "server/store/clickhouse/clickhouse.h"

void ch_put_u8(struct str *s, u8 v)
{
	str_append(s, &v, 1);
}

void ch_put_u32(struct str *s, u32 v)
{
	str_append(s, &v, sizeof(v));
}

void ch_put_u64(struct str *s, u64 v)
{
	str_append(s, &v, sizeof(v));
}

void ch_put_string(struct str *s, const char *text, size_t n)
{
	varint_put(s, n);
	str_append(s, text, n);
}

void ch_put_text(struct str *s, const struct profile *p, u32 id)
{
	ch_put_string(s, strtab_get(&p->strings, id), p->strings.lengths[id]);
}

bool ch_get_string(struct buf *b, const char **ret, size_t *ret_n)
{
	struct buf at = *b, text;
	u64 n;

	if (!varint_get(&at, &n) || !buf_take(&at, n, &text))
		return false;
	*ret = (const char *)text.pos;
	*ret_n = (size_t)n;
	*b = at;
	return true;
}

bool ch_get_count(struct buf *b, size_t element, size_t *ret_n)
{
	struct buf at = *b;
	u64 n;

	if (!varint_get(&at, &n) || n > buf_left(&at) / element)
		return false;
	*ret_n = (size_t)n;
	*b = at;
	return true;
}

int ch_get_text(struct buf *b, struct profile *into, u32 *ret)
{
	const char *text;
	size_t n;

	if (!ch_get_string(b, &text, &n))
		return -EBADMSG;
	return profile_add_string(into, text, n, ret);
}

int ch_get_labels(struct buf *b, struct profile *into, struct profile_label *labels, size_t max,
		  size_t *ret_n)
{
	size_t n, n_values;
	int r = ch_get_count(b, 1, &n) && n <= max ? 0 : -EBADMSG;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = ch_get_text(b, into, &labels[i].name);
	if (r == 0 && (!ch_get_count(b, 1, &n_values) || n_values != n))
		r = -EBADMSG;
	for (size_t i = 0; r == 0 && i < n; i++)
		r = ch_get_text(b, into, &labels[i].value);
	if (r == 0)
		*ret_n = n;
	return r;
}

void ch_sql_string(struct str *s, const char *text)
{
	str_putc(s, '\'');
	for (; *text; text++) {
		if (*text == '\'' || *text == '\\')
			str_putc(s, '\\');
		str_putc(s, *text);
	}
	str_putc(s, '\'');
}

void ch_sql_ids(struct str *s, const u64 *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		str_printf(s, "%s%llu", i ? "," : "", ids[i]);
}

int ch_damaged_answer(struct diag *reterr_diag)
{
	return diag_set(reterr_diag, -EIO, "ClickHouse's answer does not have the requested form");
}
