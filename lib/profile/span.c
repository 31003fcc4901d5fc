/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/span.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#define MAX_TIME_NS ((1ULL << 42) * 1000000) /* that of the store */

int spans_init(struct spans *s)
{
	*s = (struct spans){.profile = profile_create()};
	return s->profile ? 0 : -ENOMEM;
}

void spans_deinit(struct spans *s)
{
	profile_destroy(s->profile);
	vec_deinit(&s->spans);
	vec_deinit(&s->attributes);
	*s = (struct spans){};
}

const char *spans_string(const struct spans *s, u32 id)
{
	return profile_string(s->profile, id);
}

int spans_add_text(struct spans *s, const char *text, u32 *ret_id)
{
	size_t n = strnlen(text, SPAN_MAX_TEXT + 1);

	if (n > SPAN_MAX_TEXT) {
		n = SPAN_MAX_TEXT;
		while (n && ((u8)text[n] & 0xc0) == 0x80)
			n--;
	}
	return profile_add_string(s->profile, text, n, ret_id);
}

static int push_attribute(struct spans *s, struct span *to, const char *name, const char *value)
{
	struct profile_label l;
	int r;

	if (!to->n)
		to->first = (u32)s->attributes.n;
	r = spans_add_text(s, name, &l.name);
	if (r == 0)
		r = spans_add_text(s, value, &l.value);
	if (r == 0)
		r = vec_push(&s->attributes, l);
	if (r == 0)
		to->n++;
	return r;
}

int spans_add_attribute(struct spans *s, struct span *to, const char *name, const char *value)
{
	if (to->n >= SPAN_MAX_ATTRIBUTES - SPAN_MAX_EVENTS || !*name || !strcmp(name, SPAN_EVENT))
		return 0;
	return push_attribute(s, to, name, value);
}

int spans_add_event(struct spans *s, struct span *to, u64 ns, const char *text)
{
	_cleanup_str_ struct str value = {};

	if (to->n >= SPAN_MAX_ATTRIBUTES)
		return 0;
	str_printf(&value, "%llu %s", ns, text);
	return value.failed ? -ENOMEM : push_attribute(s, to, SPAN_EVENT, str_get(&value));
}

const char *spans_attribute(const struct spans *s, const struct span *e, const char *name)
{
	for (u32 i = 0; i < e->n; i++) {
		const struct profile_label *l = &s->attributes.data[e->first + i];

		if (!strcmp(spans_string(s, l->name), name))
			return spans_string(s, l->value);
	}
	return NULL;
}

int spans_set_endpoint(struct spans *s, struct span *e)
{
	const char *route = spans_attribute(s, e, "http.route");
	const char *method = spans_attribute(s, e, "http.request.method");
	const char *service = spans_attribute(s, e, "rpc.service");
	const char *call = spans_attribute(s, e, "rpc.method");
	_cleanup_str_ struct str text = {};

	if (!method)
		method = spans_attribute(s, e, "http.method");
	if (route && *route)
		str_printf(&text, "%s%s%s", method ? method : "", method ? " " : "", route);
	else if (call && *call)
		str_printf(&text, "%s%s%s", service ? service : "", service ? "/" : "", call);
	else
		str_puts(&text, spans_string(s, e->name));
	return text.failed ? -ENOMEM : spans_add_text(s, str_get(&text), &e->endpoint);
}

static bool is_zero(const u8 *id, size_t n)
{
	u8 any = 0;

	for (size_t i = 0; i < n; i++)
		any |= id[i];
	return !any;
}

bool span_has_parent(const struct span *e)
{
	return !is_zero(e->parent_id, sizeof(e->parent_id));
}

int span_check(const struct span *e, struct diag *reterr_diag)
{
	if (is_zero(e->trace_id, sizeof(e->trace_id)))
		return diag_set(reterr_diag, -EBADMSG, "a span has no trace id");
	if (is_zero(e->span_id, sizeof(e->span_id)))
		return diag_set(reterr_diag, -EBADMSG, "a span has no span id");
	if (!e->start_ns)
		return diag_set(reterr_diag, -EBADMSG, "a span has no start time");
	if (e->start_ns >= MAX_TIME_NS || e->duration_ns >= MAX_TIME_NS - e->start_ns)
		return diag_set(reterr_diag, -EBADMSG, "a span is of a time after 2109");
	return 0;
}

const char *span_kind_name(u8 kind)
{
	static const char *const names[] = {"unspecified", "internal", "server",
					    "client",	   "producer", "consumer"};

	return kind < ARRAY_SIZE(names) ? names[kind] : names[0];
}

const char *span_status_name(u8 status)
{
	static const char *const names[] = {"unset", "ok", "error"};

	return status < ARRAY_SIZE(names) ? names[status] : names[0];
}

static int digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

bool span_parse_id(const char *text, u8 *ret, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int high = digit(text[2 * i]), low = high < 0 ? -1 : digit(text[2 * i + 1]);

		if (low < 0)
			return false;
		ret[i] = (u8)(high << 4 | low);
	}
	return !text[2 * n];
}
