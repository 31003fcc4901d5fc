/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "symbol/symbol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_close_ int fd = memfd_create("kallsyms", MFD_CLOEXEC);
	struct kallsyms *k = NULL;
	const char *name, *module;
	char path[64];

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (kallsyms_open(path, &k) < 0)
		return 0;
	for (size_t i = 0; i + 16 <= size; i++) {
		char text[17] = {};

		memcpy(text, data + i, 16);
		if (kallsyms_lookup(k, strtoull(text, NULL, 16), &name, &module) == 0 &&
		    (!name[0] || !module))
			abort();
	}
	kallsyms_destroy(k);
	return 0;
}
