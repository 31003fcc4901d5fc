/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz_profile.h"

/* Packed as it is in a page, nearly no input would be a body at all. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_reader(html_read_body, html_probe, data, size);
	return 0;
}
