/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks parameters of the query string. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "server/api/internal.h"

#define DEFAULT_RANGE_MS (15 * 60000ULL)
#define MAX_TIME_MS 253402300799000ULL /* the end of the year 9999 */

static u64 unit_ms(const char *s)
{
	static const struct {
		const char *name;
		u64 ms;
	} units[] = {{"ms", 1},	     {"s", 1000},     {"m", 60000},
		     {"h", 3600000}, {"d", 86400000}, {"w", 604800000}};

	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (!strcmp(s, units[i].name))
			return units[i].ms;
	return 0;
}

static int relative(const char *text, u64 now_ms, u64 *ret_ms)
{
	u64 n, unit;
	char *end;

	if (!*text) {
		*ret_ms = now_ms;
		return 0;
	}
	if (*text != '-' || text[1] < '0' || text[1] > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text + 1, &end, 10);
	unit = unit_ms(end);
	if (errno || !unit || n > MAX_TIME_MS / unit)
		return -EINVAL;
	*ret_ms = n * unit < now_ms ? now_ms - n * unit : 0;
	return 0;
}

/* Reads n digits. */
static bool read_digits(const char **at, u32 n, int *ret)
{
	*ret = 0;
	for (; n; n--, (*at)++) {
		if (**at < '0' || **at > '9')
			return false;
		*ret = *ret * 10 + (**at - '0');
	}
	return true;
}

static bool read_char(const char **at, const char *any)
{
	if (!**at || !strchr(any, **at))
		return false;
	(*at)++;
	return true;
}

/* "Z", "+02:00", "-05:30"; an address that was not encoded makes a space of the plus. */
static bool read_offset(const char **at, s64 *ret_s)
{
	char sign = **at;
	int hours, minutes;

	*ret_s = 0;
	if (read_char(at, "Zz"))
		return true;
	if (!read_char(at, "+- ") || !read_digits(at, 2, &hours) || !read_char(at, ":") ||
	    !read_digits(at, 2, &minutes) || hours > 23 || minutes > 59)
		return false;
	*ret_s = (hours * 60 + minutes) * (sign == '-' ? -60 : 60);
	return true;
}

/* RFC 3339, section 5.6: 2026-01-31T12:00:00Z, with a fraction, an offset, a leap second. */
static int rfc3339(const char *s, u64 *ret_ms)
{
	struct tm tm = {}, day;
	bool leap;
	int ms = 0, scale = 100;
	s64 offset, at;

	if (!read_digits(&s, 4, &tm.tm_year) || !read_char(&s, "-") ||
	    !read_digits(&s, 2, &tm.tm_mon) || !read_char(&s, "-") ||
	    !read_digits(&s, 2, &tm.tm_mday) || !read_char(&s, "Tt ") ||
	    !read_digits(&s, 2, &tm.tm_hour) || !read_char(&s, ":") ||
	    !read_digits(&s, 2, &tm.tm_min) || !read_char(&s, ":") ||
	    !read_digits(&s, 2, &tm.tm_sec))
		return -EINVAL;
	if (read_char(&s, ".")) {
		if (*s < '0' || *s > '9')
			return -EINVAL;
		for (; *s >= '0' && *s <= '9'; s++, scale /= 10)
			ms += (*s - '0') * scale;
	}
	tm.tm_year -= 1900;
	tm.tm_mon--;
	if (!read_offset(&s, &offset) || *s || tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60)
		return -EINVAL;
	day = (struct tm){.tm_year = tm.tm_year, .tm_mon = tm.tm_mon, .tm_mday = tm.tm_mday};
	(void)timegm(&day); /* makes the 31st of February one of March */
	if (day.tm_mday != tm.tm_mday || day.tm_mon != tm.tm_mon)
		return -EINVAL;
	leap = tm.tm_sec == 60;
	at = timegm(&tm) - offset;
	/* A leap second ends a day of UTC; Unix time gives it the number of the next second. */
	if (at < 0 || at > (s64)(MAX_TIME_MS / 1000) || (leap && at % 86400 != 0))
		return -EINVAL;
	*ret_ms = (u64)at * 1000 + (leap ? 0 : (u64)ms);
	return 0;
}

int api_time(const char *text, u64 now_ms, u64 *ret_ms)
{
	u64 v;

	if (str_starts(text, "now"))
		return relative(text + 3, now_ms, ret_ms);
	if (*text >= '0' && *text <= '9' && str_to_u64(text, 10, &v) == 0) {
		if (v < 100000000000ULL)
			v *= 1000;
		if (v > MAX_TIME_MS)
			return -EINVAL;
		*ret_ms = v;
		return 0;
	}
	return rfc3339(text, ret_ms);
}

/* A parameter that the base of a diff lacks has the value of its other side. */
static const char *parameter(struct api_call *c, const char *prefix, const char *name)
{
	const char *value;
	char full[64];

	snprintf(full, sizeof(full), "%s%s", prefix, name);
	value = net_parameter(c->r, full);
	return value || !*prefix ? value : net_parameter(c->r, name);
}

static int query_time(struct api_call *c, const char *prefix, const char *name, u64 now, u64 *ms)
{
	const char *text = parameter(c, prefix, name);

	if (!text)
		return 0;
	if (api_time(text, now, ms) < 0)
		return diag_set(&c->d, -EINVAL,
				"%s%s: a time is now, now-15m, seconds or milliseconds since 1970, "
				"or RFC 3339: 2026-01-31T12:00:00Z, 2026-01-31T14:00:00.5+02:00",
				prefix, name);
	return 0;
}

/* Only values of one unit that add up over time have a sum. */
static int check_sum(struct api_call *c, const struct query *q)
{
	struct store_type type, also;

	if (!q->type)
		return diag_set(&c->d, -EINVAL, "also is added to a type: which one? type=...");
	if (store_type_parse(q->type, &type) < 0 || store_type_parse(q->also, &also) < 0 ||
	    strcmp(type.unit, also.unit) != 0 || store_type_is_state(q->type) ||
	    store_type_is_state(q->also))
		return diag_set(&c->d, -EINVAL, "values of %s and %s do not add up", q->type,
				q->also);
	return 0;
}

int api_query(struct api_call *c, const char *prefix, struct query *q)
{
	const char *text = parameter(c, prefix, "query"), *type = parameter(c, prefix, "type");
	const char *stacks = parameter(c, prefix, "stacks"), *also = parameter(c, prefix, "also");
	u64 now = clock_epoch_ms();
	int r = 0;

	q->strict = true;
	/* The range includes samples of the current millisecond. */
	q->to_ms = now + 1;
	r = query_time(c, prefix, "to", now, &q->to_ms);
	q->from_ms = q->to_ms > DEFAULT_RANGE_MS ? q->to_ms - DEFAULT_RANGE_MS : 0;
	if (r == 0)
		r = query_time(c, prefix, "from", now, &q->from_ms);
	if (r == 0 && q->from_ms >= q->to_ms)
		r = diag_set(&c->d, -EINVAL, "%sfrom must be before %sto", prefix, prefix);
	if (r == 0 && text && *text)
		r = query_parse_selector(q, text, &c->d);
	if (r == 0 && type && *type) {
		free(q->type);
		q->type = strdup(type);
		r = q->type ? 0 : -ENOMEM;
	}
	if (r == 0 && stacks && *stacks) {
		q->stacks = strdup(stacks);
		r = q->stacks ? 0 : -ENOMEM;
	}
	if (r == 0 && also && *also) {
		q->also = strdup(also);
		r = q->also ? 0 : -ENOMEM;
	}
	if (r == 0 && q->also)
		r = check_sum(c, q);
	return r;
}

/* ---- of spans ---- */

static int add_service(struct query *q, const char *service)
{
	struct query_matcher m = {.label = strdup("service.name"), .value = strdup(service)};

	if (m.label && m.value && vec_push(&q->matchers, m) == 0)
		return 0;
	free(m.label);
	free(m.value);
	return -ENOMEM;
}

static int read_status(struct api_call *c, const char *prefix, u8 *statuses)
{
	const char *text = parameter(c, prefix, "status");

	if (!text || !*text)
		return 0;
	for (u32 i = 0; i < SPAN_STATUS_N; i++)
		if (!strcmp(text, span_status_name(i)))
			*statuses = (u8)(1 << i);
	return *statuses ? 0 : diag_set(&c->d, -EINVAL, "status: unset, ok or error");
}

static int read_ms(struct api_call *c, const char *prefix, const char *name, u64 *ns)
{
	const char *text = parameter(c, prefix, name);
	u64 ms = 0;

	if (!text || !*text)
		return 0;
	if (*text < '0' || *text > '9' || str_to_u64(text, 10, &ms) < 0 || ms > 1ULL << 40)
		return diag_set(&c->d, -EINVAL, "%s%s: a number of milliseconds", prefix, name);
	*ns = ms * 1000000;
	return 0;
}

static int read_ids(struct api_call *c, const char *prefix, struct query_spans *s)
{
	const char *trace = parameter(c, prefix, "trace"), *span = parameter(c, prefix, "span");
	const char *children = parameter(c, prefix, "children");

	if (trace && *trace) {
		if (!span_parse_id(trace, s->trace_id, sizeof(s->trace_id)))
			return diag_set(&c->d, -EINVAL, "%strace: 32 hex digits", prefix);
		s->of = QUERY_OF_TRACE;
	}
	if (span && *span) {
		if (s->of != QUERY_OF_TRACE)
			return diag_set(&c->d, -EINVAL, "%sspan: of which trace? trace=ID", prefix);
		if (!span_parse_id(span, s->span_id, sizeof(s->span_id)))
			return diag_set(&c->d, -EINVAL, "%sspan: 16 hex digits", prefix);
		s->of = children && strcmp(children, "0") != 0 && strcmp(children, "false") != 0
				? QUERY_OF_CHILDREN
				: QUERY_OF_SPAN;
	}
	return 0;
}

int api_requests(struct api_call *c, const char *prefix, struct query *q)
{
	const char *service = parameter(c, prefix, "service");
	const char *endpoint = parameter(c, prefix, "endpoint");
	struct query_spans *s = &q->spans;
	int r = read_ms(c, prefix, "min_ms", &s->min_ns);

	if (r == 0)
		r = read_ms(c, prefix, "max_ms", &s->max_ns);
	if (r == 0)
		r = read_status(c, prefix, &s->statuses);
	if (r == 0 && endpoint && *endpoint) {
		s->endpoint = strdup(endpoint);
		r = s->endpoint ? 0 : -ENOMEM;
	}
	if (r == 0 && service && *service) {
		s->service = strdup(service);
		r = s->service ? 0 : -ENOMEM;
	}
	return r;
}

int api_spans(struct api_call *c, const char *prefix, struct query *q)
{
	struct query_spans *s = &q->spans;
	int r = api_requests(c, prefix, q);

	if (r == 0)
		r = read_ids(c, prefix, s);
	if (r == 0 && !s->of && (s->endpoint || s->min_ns || s->max_ns || s->statuses))
		s->of = QUERY_OF_REQUESTS;
	else if (r == 0 && s->service)
		r = add_service(q, s->service);
	return r;
}

int api_group(struct api_call *c, struct query *q)
{
	const char *label = net_parameter(c->r, "group_by");

	if (!label || !*label)
		return 0;
	free(q->group_by);
	q->group_by = strdup(label);
	return q->group_by ? 0 : -ENOMEM;
}

int api_number(struct api_call *c, const char *name, u64 min, u64 max, u64 *value)
{
	const char *text = net_parameter(c->r, name);
	u64 v;

	if (!text)
		return 0;
	if (*text < '0' || *text > '9' || str_to_u64(text, 10, &v) < 0 || v < min || v > max)
		return diag_set(&c->d, -EINVAL, "%s: a number of %llu to %llu", name, min, max);
	*value = v;
	return 0;
}

int api_flag(struct api_call *c, const char *name, bool *value)
{
	const char *text = net_parameter(c->r, name);

	if (!text)
		return 0;
	if (!*text || !strcmp(text, "1") || !strcmp(text, "true"))
		*value = true;
	else if (!strcmp(text, "0") || !strcmp(text, "false"))
		*value = false;
	else
		return diag_set(&c->d, -EINVAL, "%s: true or false", name);
	return 0;
}

int api_choice(struct api_call *c, const char *name, const char *first, const char *second,
	       bool *ret_second)
{
	const char *text = net_parameter(c->r, name);

	*ret_second = text && !strcmp(text, second);
	return !text || *ret_second || !strcmp(text, first)
		       ? 0
		       : diag_set(&c->d, -EINVAL, "%s: %s or %s", name, first, second);
}

int api_tree_options(struct api_call *c, struct profile_tree_options *o)
{
	int r = api_flag(c, "threads", &o->threads);

	if (r == 0)
		r = api_flag(c, "inverted", &o->inverted);
	if (r == 0)
		r = api_flag(c, "no_process", &o->no_process);
	if (r == 0)
		r = api_flag(c, "by_line", &o->by_line);
	if (r == 0)
		r = api_flag(c, "no_inline", &o->no_inline);
	o->waits = true;
	return r;
}
