/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a symbol cache file. The fuzzer adds a header with the right hash. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "symbol/answers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct symbol_chain chain;
	struct answers a = {};
	uint8_t *file = malloc(size + 16);
	uint64_t hash = hash_bytes(data, size), key = 0;

	if (!file)
		return 0;
	memcpy(file, "CULPSYM", 8);
	memcpy(file + 8, &hash, 8);
	if (size)
		memcpy(file + 16, data, size);
	if (size >= 8)
		memcpy(&key, data, 8);
	if (answers_parse(&a, file, size + 16, key) == 0)
		for (uint64_t i = 0; i < a.list.n; i++)
			if (answers_get(&a, a.list.data[i].svma, &chain) == 0 &&
			    (!chain.n || !chain.frames[0].name))
				abort();
	answers_deinit(&a);
	free(file);
	return 0;
}
