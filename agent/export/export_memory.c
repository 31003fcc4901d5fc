/* SPDX-License-Identifier: Apache-2.0 */
/* Passes profiles to a function in this process: `culprit up`. */
#include <errno.h>

#include "agent/export/export_private.h"

static int open_memory(struct destination *d, struct diag *reterr_diag)
{
	return d->o.take ? 0 : diag_set(reterr_diag, -EINVAL, "%s: there is no receiver", d->o.url);
}

static int pass_profile(struct destination *d, const struct profile *p, struct diag *reterr_diag)
{
	return d->o.take(d->o.userdata, p, reterr_diag);
}

const struct export_ops export_memory = {
	.scheme = "memory",
	.open = open_memory,
	.take = pass_profile,
};
