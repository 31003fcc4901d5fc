/* SPDX-License-Identifier: Apache-2.0 */
/* Makes spans. */
#pragma once

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "profile/span.h"

/* Makes an id whose last bytes are the number. */
static inline void id_of(u64 n, u8 *ret, size_t size)
{
	memset(ret, 0, size);
	for (size_t i = 0; i < 8; i++)
		ret[size - 1 - i] = (u8)(n >> 8 * i);
}

struct span_of {
	const char *service, *name, *route; /* route: of a root span, or NULL */
	u64 trace, id, parent, start_ms, ms;
	u8 kind, status;
};

static inline void add_span(struct spans *s, struct span_of of)
{
	struct span e = {.start_ns = of.start_ms * 1000000 + 7,
			 .duration_ns = of.ms * 1000000 + 5,
			 .kind = of.kind,
			 .status = of.status};
	struct profile_label l;

	id_of(of.trace, e.trace_id, 16);
	id_of(of.id, e.span_id, 8);
	id_of(of.parent, e.parent_id, 8);
	cr_assert_eq(spans_add_text(s, of.service, &e.service), 0);
	cr_assert_eq(spans_add_text(s, of.name, &e.name), 0);
	cr_assert_eq(spans_add_text(s, "service.name", &l.name), 0);
	l.value = e.service;
	cr_assert_eq(profile_add_resource(s->profile, &l, 1, &e.resource), 0);
	if (of.route)
		cr_assert_eq(spans_add_attribute(s, &e, "http.route", of.route), 0);
	if (!of.parent || of.kind == SPAN_KIND_SERVER) {
		e.flags = SPAN_ROOT;
		cr_assert_eq(spans_set_endpoint(s, &e), 0);
	}
	cr_assert_eq(vec_push(&s->spans, e), 0);
}
