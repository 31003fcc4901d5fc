/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz_session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void handler(void *userdata, const struct net_request *r, struct net_response *ret)
{
	(void)userdata;
	fuzz_echo(r, ret);
	ret->status = r->n_body % 2 ? 200 : 404;
}

static void sink_part(void *userdata, const void *data, size_t n)
{
	str_append(userdata, data, n);
}

static void sink_end(void *userdata)
{
	str_deinit(userdata);
	free(userdata);
}

static bool open_sink(void *userdata, const struct net_request *r, struct net_sink *ret)
{
	struct str *s = strcmp(r->path, "/sink") != 0 ? NULL : calloc(1, sizeof(*s));

	(void)userdata;
	*ret = (struct net_sink){sink_part, sink_end, s, 2000};
	return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct net_listener l = {.o = {.max_body = 4096,
				       .timeout_s = 30,
				       .handler = handler,
				       .sink = open_sink,
				       .address = "fuzz"},
				 .name = "fuzz"};

	fuzz_session(data, size, &l, http_session_create);
	return 0;
}
