/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz_session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void handler(void *userdata, const struct net_request *r, struct net_response *ret)
{
	(void)userdata;
	fuzz_echo(r, ret);
	ret->status = r->n_body % 2 ? NET_GRPC_OK : NET_GRPC_INVALID_ARGUMENT;
	memcpy(ret->message, "not % fine\n", 12);
}

static bool streams(void *userdata, const struct net_request *r)
{
	(void)userdata;
	return str_starts(r->path, "/s.");
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
	return 0;
}
