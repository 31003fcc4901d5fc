/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of protocol buffers: an accepted message, written and read back, must be the same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/pb.h"
#include "base/pbjson.h"
#include "format/pyroscope.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(x)                                                                                    \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

static void check(const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t size)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(64 << 20);
	struct str json = {}, again = {}, bytes = {};
	ProtobufCMessage *m = NULL, *back = NULL;

	if (pbjson_read(&pbjson_plain, d, (const char *)data, size, &a, &m, NULL) < 0)
		return;
	pbjson_write(m, &json);
	MUST(pbjson_read(&pbjson_plain, d, str_get(&json), json.n, &a, &back, NULL) == 0);
	pbjson_write(back, &again);
	MUST(json.n == again.n && !memcmp(str_get(&json), str_get(&again), json.n));
	MUST(pb_pack(back, &bytes) == 0);
	MUST(pb_unpack(d, "a message", (const u8 *)str_get(&bytes), bytes.n, &a, &m, NULL) == 0);
	str_deinit(&json);
	str_deinit(&again);
	str_deinit(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check(&pyroscope__diff_request__descriptor, data, size);
	check(&pyroscope__push_request__descriptor, data, size);
	check(&pyroscope__select_series_request__descriptor, data, size);
	return 0;
}
