/* SPDX-License-Identifier: Apache-2.0 */
/* Ingest of spans: reads within limits, writes, and acknowledges when the spans are on disk. */
#include <errno.h>
#include <string.h>

#include "format/zipkin.h"
#include "otlp/otlp.h"
#include "server/ingest/internal.h"

/* A request in progress. */
struct reading {
	struct str own; /* decompressed data */
	const u8 *data;
	size_t n;
	struct spans spans;
};

static void reading_deinit(struct reading *r)
{
	str_deinit(&r->own);
	spans_deinit(&r->spans);
}
#define _cleanup_reading_ __attribute__((cleanup(reading_deinit)))

static int begin_reading(struct ingest *i, const u8 *data, size_t n, const char *encoding,
			 struct reading *at, struct diag *reterr_diag)
{
	int r = ingest_decode(i, data, n, encoding, &at->own, &at->data, &at->n, reterr_diag);

	return r < 0 ? r : spans_init(&at->spans);
}

int ingest_write_spans(struct ingest *i, struct spans *spans, const u8 *token, const char *host,
		       struct diag *reterr_diag)
{
	int r = spans->spans.n ? ingest_set_span_host(spans, host, reterr_diag) : 0;

	if (r < 0 || !spans->spans.n)
		return r;
	r = store_write_spans(i->store, spans, token, reterr_diag);
	/* Also if the store refuses them: the sender repeats them when it is too late. */
	if (i->o.tasks)
		tasks_see_spans(i->o.tasks, spans);
	/* After the tasks: one that a policy adds now is not about the requests before it. */
	if (i->o.policies)
		policies_see_spans(i->o.policies, spans);
	if (r == 0)
		atomic_fetch_add(&i->spans, spans->spans.n);
	return r;
}

static int write_spans(struct ingest *i, struct reading *at, const char *host,
		       struct diag *reterr_diag)
{
	u8 token[16];

	ingest_token(at->data, at->n, "spans", 0, token);
	return ingest_write_spans(i, &at->spans, token, host, reterr_diag);
}

static int otlp(struct ingest *i, const u8 *data, size_t n, const char *encoding, const char *host,
		bool json, struct str *ret_response, struct diag *reterr_diag)
{
	_cleanup_reading_ struct reading at = {};
	struct otlp_rejected rejected = {};
	u64 max = ingest_decoded_bytes(i);
	const char *why;
	int r = begin_reading(i, data, n, encoding, &at, reterr_diag);

	if (r == 0)
		r = json ? otlp_traces_decode_json((const char *)at.data, at.n, max, &at.spans,
						   &rejected, reterr_diag)
			 : otlp_traces_decode(at.data, at.n, max, &at.spans, &rejected,
					      reterr_diag);
	if (r == 0) {
		u64 dropped;

		(void)ingest_drop_spans(i, &at.spans, &dropped, &rejected.why);
		rejected.n += dropped;
		r = write_spans(i, &at, host, reterr_diag);
	}
	if (r < 0)
		return r;
	why = rejected.n ? rejected.why.text : NULL;
	if (!json)
		return otlp_profiles_response(rejected.n, why, ret_response);
	ingest_json_response("Spans", rejected.n, why, ret_response);
	return 0;
}

int ingest_otlp_traces(struct ingest *i, const u8 *data, size_t n, const char *encoding,
		       const char *host, bool json, struct str *ret_response,
		       struct diag *reterr_diag)
{
	return ingest_done(i, n, otlp(i, data, n, encoding, host, json, ret_response, reterr_diag));
}

static int zipkin(struct ingest *i, const u8 *data, size_t n, const char *encoding,
		  const char *host, struct diag *reterr_diag)
{
	_cleanup_reading_ struct reading at = {};
	u64 max = ingest_decoded_bytes(i), dropped;
	struct diag why = {};
	int r = begin_reading(i, data, n, encoding, &at, reterr_diag);

	if (r == 0)
		r = zipkin_read((const char *)at.data, at.n, max, &at.spans, reterr_diag);
	/* The answer cannot tell of a part: the rest is written, and only a whole list refused. */
	if (r == 0) {
		r = ingest_drop_spans(i, &at.spans, &dropped, &why);
		r = at.spans.spans.n || r == 0 ? write_spans(i, &at, host, reterr_diag)
					       : diag_set(reterr_diag, r, "%s", why.text);
	}
	return r;
}

int ingest_zipkin(struct ingest *i, const u8 *data, size_t n, const char *encoding,
		  const char *host, struct diag *reterr_diag)
{
	return ingest_done(i, n, zipkin(i, data, n, encoding, host, reterr_diag));
}
