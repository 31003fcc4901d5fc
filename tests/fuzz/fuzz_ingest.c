/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles that arrive over HTTP, except OTLP, which has a fuzzer of its own. The first byte
 * chooses the endpoint; a line of parameters and the body follow. The store accepts all batches and
 * keeps none.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/ingest/ingest.h"
#include "server/store/private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int write_nothing(struct store *s, const struct store_batch *b, const u8 token[16],
			 struct diag *reterr_diag)
{
	for (size_t i = 0; i < b->samples.n; i++)
		if (b->samples.data[i].series >= b->series.n ||
		    b->samples.data[i].type >= b->n_types)
			abort();
	return 0;
}

static void one(struct ingest *i, u8 way, char *line, const u8 *body, size_t n)
{
	static const char *const encodings[] = {NULL, "gzip", "zstd", "identity"};
	struct ingest_pyroscope p = {.name = line,
				     .format = strchr(line, ' '),
				     .encoding = encodings[way >> 4 & 3],
				     .sample_rate = way & 0x40 ? "7" : NULL,
				     .from = way & 0x80 ? "1700000000" : NULL};
	struct ingest_file f = {.labels = line, .encoding = p.encoding};
	struct diag d = {};

	if (p.format)
		*(char *)p.format++ = '\0';
	switch (way & 7) {
	case 0:
		(void)ingest_push(i, body, n, p.encoding, NULL, false, &d);
		break;
	case 1:
		(void)ingest_push(i, body, n, p.encoding, NULL, true, &d);
		break;
	case 2:
		p.content_type = "multipart/form-data; boundary=b";
		p.format = "pprof";
		(void)ingest_pyroscope(i, body, n, &p, &d);
		break;
	case 3:
		p.content_type = line;
		p.name = "app";
		(void)ingest_pyroscope(i, body, n, &p, &d);
		break;
	case 4:
		(void)ingest_file(i, body, n, &f, &d);
		break;
	default:
		(void)ingest_pyroscope(i, body, n, &p, &d);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct store_ops ops = {.write = write_nothing};
	static const struct ingest_options o = {.max_request_bytes = 1 << 20};
	const u8 *eol = size ? memchr(data + 1, '\n', size - 1) : NULL;
	struct store store = {&ops};
	struct ingest *i = NULL;
	char *line;

	if (!eol || ingest_create(&store, &o, &i) < 0)
		return 0;
	line = strndup((const char *)data + 1, (size_t)(eol - data - 1));
	if (line)
		one(i, data[0], line, eol + 1, size - (size_t)(eol + 1 - data));
	free(line);
	ingest_destroy(i);
	return 0;
}
