/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What SkyWalking's agents send. The first byte says what follows: a segment, segments, a snapshot,
 * or the text of a frame. Accepted spans and stacks must be within their bounds.
 */
#include "format/skywalking.h"
#include "fuzz_profile.h"

#define FUZZ_MAX_BYTES ((size_t)32 << 20)

static void segments(const u8 *data, size_t n, bool many)
{
	_cleanup_spans_ struct spans s = {};
	struct skywalking_segments all = {};
	int r;

	MUST(spans_init(&s) == 0);
	r = (many ? skywalking_read_segments : skywalking_read_segment)(data, n, FUZZ_MAX_BYTES, &s,
									&all, NULL);
	for (size_t i = 0; r == 0 && i < s.spans.n; i++) {
		const struct span *e = &s.spans.data[i];

		MUST(span_check(e, NULL) == 0);
		MUST(e->n <= SPAN_MAX_ATTRIBUTES && e->first + e->n <= s.attributes.n);
		MUST(strlen(spans_string(&s, e->name)) <= SPAN_MAX_TEXT);
		MUST(e->kind < SPAN_KIND_N && e->status < SPAN_STATUS_N);
		MUST(!(e->flags & SPAN_ROOT) || e->endpoint == e->name);
		MUST(spans_attribute(&s, e, SKYWALKING_SEGMENT));
	}
	MUST(r < 0 || many || all.list.n == 1);
	vec_deinit(&all.list);
}

static void snapshot(const u8 *data, size_t n)
{
	_cleanup_profile_ struct profile *p = profile_create();
	struct skywalking_snapshot s = {.stack = 7};

	MUST(p);
	if (skywalking_read_snapshot(data, n, FUZZ_MAX_BYTES, p, &s, NULL) < 0) {
		MUST(s.stack == 7);
		return;
	}
	MUST(s.stack < p->stacks.n && p->stacks.data[s.stack].n <= SKYWALKING_MAX_FRAMES);
	MUST(s.time_ns && s.sequence <= INT32_MAX && strlen(s.task) < sizeof(s.task));
}

static void frame(const u8 *data, size_t n)
{
	_cleanup_profile_ struct profile *p = profile_create();
	char *text = strndup((const char *)data, n);
	u32 id;

	MUST(p && text);
	MUST(skywalking_add_frame(p, text, &id) == 0 && id < p->frames.n);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	switch (*data % 4) {
	case 0:
	case 1:
		segments(data + 1, size - 1, *data % 4 == 1);
		break;
	case 2:
		snapshot(data + 1, size - 1);
		break;
	default:
		frame(data + 1, size - 1);
	}
	return 0;
}
