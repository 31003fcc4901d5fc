/* SPDX-License-Identifier: Apache-2.0 */
/* Files that describe containers. The first byte chooses the format; the last is podman's list. */
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
	struct container_names names = {};
	const char *text = (const char *)data + 1;
	size_t n = 0;

	if (!size)
		return 0;
	if (data[0] % (CONTAINER_N + 1) < CONTAINER_N)
		(void)container_parse((enum container_file)(data[0] % (CONTAINER_N + 1)), text,
				      size - 1, note, &n, NULL);
	else if (container_names_parse(&names, text, size - 1, NULL) == 0)
		(void)container_names_get(&names, "ab");
	container_names_deinit(&names);
	return 0;
}
