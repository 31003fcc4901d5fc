/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz_otlp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct otlp_profiles got = {};

	if (otlp_profiles_decode_json((const char *)data, size, FUZZ_MAX_BYTES, &got, NULL) == 0)
		check_request(&got);
	return 0;
}
