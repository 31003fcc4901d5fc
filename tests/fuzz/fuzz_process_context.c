/* SPDX-License-Identifier: Apache-2.0 */
/* OpenTelemetry's process context: the message to which the process's page points. */
#include <stdint.h>
#include <string.h>

#include "otlp/otlp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int hear(void *arg, const struct otlp_said *s)
{
	*(size_t *)arg += strlen(s->name) + strlen(s->value) + (s->of == OTLP_SAID_KEY);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t n = 0;

	(void)otlp_process_context_decode(data, size, 1 << 20, hear, &n);
	return 0;
}
