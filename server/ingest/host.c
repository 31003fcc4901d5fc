/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Senders whose token is for one host (server/net/tokens.c): what they send is of that host, and
 * what says that it is of another is refused.
 */
#include <errno.h>
#include <string.h>

#include "server/ingest/internal.h"

#define HOST_LABEL "host.name"

static int add_host(struct profile *p, const char *host, u32 *resource)
{
	const struct profile_resource *r = &p->resources.data[*resource];
	struct profile_label all[PROFILE_MAX_LABELS + 1];
	struct profile_label *last = &all[r->n];
	int e;

	memcpy(all, p->labels.data + r->first, r->n * sizeof(*all));
	e = profile_add_string(p, HOST_LABEL, strlen(HOST_LABEL), &last->name);
	if (e == 0)
		e = profile_add_string(p, host, strlen(host), &last->value);
	return e < 0 ? e : profile_add_resource(p, all, (size_t)(last - all) + 1, resource);
}

static int set_host(struct profile *p, const char *host, u32 *resource, struct diag *reterr_diag)
{
	const char *said = profile_label(p, *resource, HOST_LABEL);

	if (!said || !*said)
		return add_host(p, host, resource);
	return !strcmp(said, host)
		       ? 0
		       : diag_set(reterr_diag, -EACCES,
				  "this token may write what is of the host %.60s only, not of "
				  "%.60s",
				  host, said);
}

int ingest_set_host(struct profile *p, const char *host, struct diag *reterr_diag)
{
	int r = 0;

	if (!host || !*host)
		return 0;
	for (size_t k = 0; k < p->threads.n && r == 0; k++)
		r = set_host(p, host, &p->threads.data[k].resource, reterr_diag);
	if (r == 0 && p->agent && p->agent < p->resources.n)
		r = set_host(p, host, &p->agent, reterr_diag);
	return r;
}

int ingest_set_span_host(struct spans *s, const char *host, struct diag *reterr_diag)
{
	int r = 0;

	if (!host || !*host)
		return 0;
	for (size_t k = 0; k < s->spans.n && r == 0; k++)
		r = set_host(s->profile, host, &s->spans.data[k].resource, reterr_diag);
	return r;
}
