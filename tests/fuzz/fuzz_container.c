/* SPDX-License-Identifier: Apache-2.0 */
/* The first byte chooses the kind of file. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "agent/identity/container.h"

static int note(void *arg, const char *name, const char *value)
{
	*(size_t *)arg += strlen(name) + strlen(value);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t n = 0;

	if (size)
		(void)container_parse((enum container_file)(data[0] % CONTAINER_N),
				      (const char *)data + 1, size - 1, "ab", note, &n);
	return 0;
}
