/* SPDX-License-Identifier: Apache-2.0 */
/* Passes OTLP requests to another process of ours: the server of `culprit up`. */
#include <errno.h>
#include <string.h>

#include "agent/export/export_private.h"
#include "otlp/otlp.h"

#define MAX_REQUEST_BYTES ((size_t)4 << 20)

static int open_local(struct destination *d, struct diag *reterr_diag)
{
	return d->o.give ? 0 : diag_set(reterr_diag, -EINVAL, "%s: there is no receiver", d->o.url);
}

static int encode(struct destination *d, const struct profile *p, struct str *out,
		  struct diag *reterr_diag)
{
	return otlp_profiles_encode(p, NULL, out, reterr_diag);
}

static void give(struct destination *d, const u8 *data, size_t n, struct export_result *ret)
{
	int r = d->o.give(d->o.userdata, data, n, &ret->error);

	ret->outcome = r == 0 ? EXPORT_SENT : r == -EAGAIN ? EXPORT_RETRY : EXPORT_REFUSED;
	if (r < 0)
		(void)diag_set(&ret->error, r, "%s", strerror(-r));
}

static void ask(struct destination *d, const u8 *data, size_t n, struct str *answer,
		struct export_result *ret)
{
	int r = d->o.ask ? d->o.ask(d->o.userdata, data, n, answer, &ret->error) : -ENOSYS;

	ret->outcome = r == 0 ? EXPORT_SENT : r == -EAGAIN ? EXPORT_RETRY : EXPORT_REFUSED;
	ret->unknown = r == -ENOSYS;
	if (r < 0)
		(void)diag_set(&ret->error, r, "%s", strerror(-r));
}

const struct export_ops export_local = {
	.scheme = "local",
	.open = open_local,
	.encode = encode,
	.send = give,
	.ask = ask,
	.max_bytes = MAX_REQUEST_BYTES,
};
