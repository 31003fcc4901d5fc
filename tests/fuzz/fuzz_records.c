/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a perf ring. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/procman/sideband.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t pos = 0, n = 0;
	u64 time_ns = 0;

	while (sideband_next(data, size, &pos, &n, &time_ns)) {
		struct sideband r;

		if (n == 0 || pos > size)
			abort();
		if (sideband_parse(data + pos - n, n, &r) < 0)
			continue;
		if (r.time_ns != time_ns)
			abort();
		if (r.type == SIDEBAND_MMAP && (r.start >= r.end || !r.name))
			abort();
		/* The name ends before the time. */
		if (r.name && r.name + strlen(r.name) >= (const char *)data + pos - 8)
			abort();
	}
	return 0;
}
