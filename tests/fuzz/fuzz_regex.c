/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A regular expression, a newline, and the text to match. A match of the whole text is also a match
 * of a part.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "regex/regex.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_regex_ struct regex *part = NULL, *whole = NULL;
	_cleanup_free_ char *pattern = strndup((const char *)data, size);
	char *text = pattern ? strchr(pattern, '\n') : NULL;
	int in_part, in_whole;

	if (!text)
		return 0;
	*text++ = '\0';
	if (regex_create(pattern, false, NULL, &part) < 0)
		return 0;
	if (regex_create(pattern, true, NULL, &whole) < 0)
		abort();
	in_part = regex_match(part, text, NULL);
	in_whole = regex_match(whole, text, NULL);
	if (in_part < 0 || in_whole < 0 || (in_whole && !in_part))
		abort();
	return 0;
}
