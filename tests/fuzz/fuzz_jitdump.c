/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbol/symbol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct symbol_chain chain;
	struct jitdump *j = NULL;
	int fd = memfd_create("jitdump", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size || jitdump_open(fd, 0, &j) < 0)
		return 0;
	for (size_t i = 0; i + 8 <= size; i++) {
		uint64_t address;

		memcpy(&address, data + i, sizeof(address));
		if (jitdump_lookup(j, address, i & 1 ? ~0ULL : i, &chain) == 0 && !chain.n)
			abort();
	}
	jitdump_destroy(j);
	return 0;
}
