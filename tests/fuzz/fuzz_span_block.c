/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Damaged blocks of spans or of links; the first byte chooses. The input has the columns
 * uncompressed, and the fuzzer compresses them.
 */
#include "fuzz_profile.h"
#include "server/store/block.h"
#include "server/store/span_block.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_store_links_ struct store_links links = {};
	_cleanup_spans_ struct spans spans = {};
	_cleanup_str_ struct str plain = {}, part = {};

	if (!size)
		return 0;
	MUST(spans_init(&spans) == 0 && store_links_init(&links) == 0);
	str_append(&plain, data + 1, size - 1);
	MUST(block_compress(NULL, &plain, 1, &part) == 0);
	(void)span_part_decode(data, size, &spans);
	if (*data & 1)
		(void)span_part_decode((const u8 *)part.data, part.n, &spans);
	else
		(void)link_part_decode((const u8 *)part.data, part.n, &links);
	for (size_t i = 0; i < spans.spans.n; i++) {
		const struct span *e = &spans.spans.data[i];

		MUST(e->first + e->n <= spans.attributes.n &&
		     e->resource < spans.profile->resources.n);
	}
	return 0;
}
