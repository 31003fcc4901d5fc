/* SPDX-License-Identifier: Apache-2.0 */
/* Perf maps. The first byte cuts the file in two, so that a refresh reads the second part. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbol/symbol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct perf_map *m = NULL;
	const char *name;
	size_t cut;
	int fd;

	if (!size)
		return 0;
	cut = (size - 1) * data[0] / 255;
	fd = memfd_create("perf-map", MFD_CLOEXEC);
	if (fd < 0 || write(fd, data + 1, cut) != (ssize_t)cut || perf_map_open(fd, 0, &m) < 0)
		return 0;
	if (write(fd, data + 1 + cut, size - 1 - cut) < 0)
		abort();
	(void)perf_map_refresh(m);
	for (uint64_t a = 0; a < 256; a++)
		if (perf_map_lookup(m, a, &name) == 0 && !name[0])
			abort();
	perf_map_destroy(m);
	return 0;
}
