/* SPDX-License-Identifier: Apache-2.0 */
/* Whether limits of cardinality concern an answer: see enum profile_limited. */
#include <string.h>

#include "server/query/plan.h"

static bool has_label(const struct profile *p, u32 resource, const char *name, const char *value)
{
	const char *own = profile_label(p, resource, name);

	return own && !strcmp(own, value);
}

static u32 of_labels(const struct profile *p, u32 resource)
{
	if (has_label(p, resource, "service.name", PROFILE_OTHER_SERVICES))
		return PROFILE_LIMITED_SERVICES;
	return has_label(p, resource, "thread.name", PROFILE_OTHER_SERIES) ? PROFILE_LIMITED_SERIES
									   : 0;
}

/* Without labels to select or to group by, a plan has no series: sums are right. */
u32 plan_limited(const struct plan *p)
{
	u32 limited = 0;

	for (size_t i = 0; i < p->set.series.n; i++)
		limited |= of_labels(p->set.profile, p->set.series.data[i].resource);
	return limited;
}

u32 query_limited(const struct profile *p)
{
	u32 limited = 0;

	for (size_t i = 0; i < p->threads.n; i++)
		limited |= of_labels(p, p->threads.data[i].resource);
	for (size_t i = 0; i < p->frames.n; i++) {
		const struct profile_frame *f = &p->frames.data[i];

		if (f->kind == FRAME_NOTE && f->function < p->functions.n &&
		    !strcmp(profile_string(p, p->functions.data[f->function].name),
			    PROFILE_OTHER_STACKS))
			limited |= PROFILE_LIMITED_STACKS;
	}
	return limited;
}
