/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz_session.h"

#define MUST(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Messages of a framed body lie in it, one behind the other. */
static void walk(const struct net_request *r)
{
	const u8 *message, *end = r->body;
	const char *encoding;
	size_t at = 0, n;

	while (net_next_message(r, &at, &message, &n, &encoding)) {
		MUST(message == end + 5 && at <= r->n_body);
		end = message + n;
	}
	MUST(at == r->n_body && end == r->body + r->n_body);
}

/* What a stream that talks remembers between its requests; it is freed once. */
struct talked {
	bool ended;
	u64 requests;
};

static u64 talks; /* that were not freed */

static void forget(void *state)
{
	talks--;
	free(state);
}

static void talk(const struct net_request *r, struct net_response *ret)
{
	struct talked *t = r->talk->state;

	if (!t) {
		t = calloc(1, sizeof(*t));
		MUST(t);
		talks++;
		r->talk->state = t;
		r->talk->end = forget;
	}
	MUST(!t->ended && (r->talk->ended ? !r->n_body : r->n_body));
	t->ended = r->talk->ended;
	ret->answers = ++t->requests % 2;
}

static void handler(void *userdata, const struct net_request *r, struct net_response *ret)
{
	(void)userdata;
	if (r->framed)
		walk(r);
	if (r->talk)
		talk(r, ret);
	fuzz_echo(r, ret);
	ret->status = r->n_body % 2 || (r->talk && r->talk->ended) ? NET_GRPC_OK
								   : NET_GRPC_INVALID_ARGUMENT;
	memcpy(ret->message, "not % fine\n", 12);
}

static enum net_stream streams(void *userdata, const struct net_request *r)
{
	(void)userdata;
	if (str_starts(r->path, "/s.c"))
		return NET_STREAM_COLLECTS;
	if (str_starts(r->path, "/s.t"))
		return NET_STREAM_TALKS;
	return str_starts(r->path, "/s.") ? NET_STREAM_ANSWERS : NET_STREAM_NONE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct net_listener l = {.o = {.max_body = 4096,
				       .timeout_s = 30,
				       .handler = handler,
				       .streams = streams,
				       .grpc = true,
				       .address = "fuzz"},
				 .name = "fuzz"};

	fuzz_session(data, size, &l, grpc_session_create);
	MUST(!talks);
	return 0;
}
