/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of a JVM to an attach request. Whatever the bytes are, what is shown of them is one line
 * without control characters.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/attach/internal.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(const char *text, size_t n)
{
	char line[80];

	answer_line(text, line, n);
	if (!*line || strlen(line) >= n)
		abort();
	for (const char *c = line; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_str_ struct str all = {};
	size_t text = 0;
	s32 code = 0;

	if (str_append(&all, data, size) < 0)
		return 0;
	if (answer_parse(str_get(&all), all.n, &code, &text) == 0 &&
	    (text > all.n || text < 2 || all.data[text - 1] != '\n'))
		abort();
	if (text > all.n)
		abort();
	check_line(str_get(&all) + text, 80);
	check_line(str_get(&all) + text, 16);
	if (answer_release(str_get(&all) + text) > 9999)
		abort();
	(void)answer_has_recording(str_get(&all) + text, ATTACH_RECORDING);
	return 0;
}
