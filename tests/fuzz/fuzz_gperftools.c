/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz_profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_reader(gperftools_read, gperftools_probe, data, size);
	return 0;
}
