/* SPDX-License-Identifier: Apache-2.0 */
/* What Elastic's agents publish about their process. */
#include <stdint.h>

#include "agent/context/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elastic_storage s;

	(void)elastic_parse(data, size, &s);
	return 0;
}
