/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a destination (struct export_asking): a question goes out like a request with a profile, but
 * gets less time, is kept in no spool, and is not repeated as it is.
 */
#include <errno.h>
#include <string.h>

#include "agent/export/export_private.h"
#include "compress/compress.h"

#define MIN_WAIT_MS 100
#define NO_QUESTION_MS 1000

static void ask(struct destination *d, const struct str *question, struct str *answer,
		struct export_result *ret)
{
	_cleanup_str_ struct str packed = {};
	int r = d->ops->gzip ? gzip_deflate(str_get(question), question->n, &packed)
			     : str_append(&packed, question->data, question->n);

	if (r == 0) {
		d->ops->ask(d, (const u8 *)str_get(&packed), packed.n, answer, ret);
		r = answer->failed ? -ENOMEM : 0;
	}
	if (r < 0) {
		*ret = (struct export_result){.outcome = EXPORT_RETRY};
		(void)diag_set(&ret->error, r, "%s", strerror(-r));
	}
}

u64 export_ask(struct destination *d)
{
	const struct export_asking *q = d->o.asking;
	_cleanup_str_ struct str question = {}, answer = {};
	struct export_result res = {};
	struct export_answer a = {};
	u32 wait;

	if (q->question(q->userdata, d->o.url, &question) < 0)
		return NO_QUESTION_MS;
	ask(d, &question, &answer, &res);
	if (res.outcome == EXPORT_SENT) {
		a.data = (const u8 *)str_get(&answer);
		a.n = answer.n;
	} else {
		a.error = res.error.text;
		a.retry_after_ms = res.retry_after_ms;
		a.unknown = res.unknown;
		a.broken_off = export_must_stop(d);
	}
	wait = q->answer(q->userdata, d->o.url, &a);
	return MAX(wait, (u32)MIN_WAIT_MS);
}
