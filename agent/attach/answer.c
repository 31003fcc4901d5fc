/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of a JVM: a decimal code and a newline, then text. The code is not 0 if the command is
 * unknown; the commands of Flight Recorder tell errors in the text only (jfrDcmds.cpp).
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/attach/internal.h"
#include "base/text.h"

#define MAX_DIGITS 9

int answer_parse(const char *data, size_t n, s32 *ret_code, size_t *ret_text)
{
	bool negative = n && data[0] == '-';
	size_t at = negative, first = at;
	s32 code = 0;

	for (; at < n && isdigit((unsigned char)data[at]) && at - first < MAX_DIGITS; at++)
		code = code * 10 + (data[at] - '0');
	if (at == first || at == n || data[at] != '\n')
		return -EPROTO;
	*ret_code = negative ? -code : code;
	*ret_text = at + 1;
	return 0;
}

/* "JDK 17.0.15" on a line of its own; "JDK 8.0_402". */
u32 answer_release(const char *text)
{
	for (const char *at = text; at; at = strchr(at, '\n')) {
		u32 release = 0;

		at += *at == '\n';
		if (strncmp(at, "JDK ", 4) != 0)
			continue;
		for (at += 4; isdigit((unsigned char)*at) && release < 1000; at++)
			release = release * 10 + (u32)(*at - '0');
		return release;
	}
	return 0;
}

/*
 * Up to JDK 8: `Recording: recording=1 name="culprit" ...`; from 9 on: `Recording 1: name=culprit
 * ...`. A name of another recording that contains this one is not it.
 */
bool answer_has_recording(const char *text, const char *name)
{
	static const char key[] = "name=";
	size_t n = strlen(name);

	for (const char *at = strstr(text, key); at; at = strstr(at, key)) {
		const char *value = at += sizeof(key) - 1;
		bool quoted = *value == '"';

		value += quoted;
		if (!strncmp(value, name, n) &&
		    (quoted ? value[n] == '"' : !value[n] || isspace((unsigned char)value[n])))
			return true;
	}
	return false;
}

void answer_line(const char *text, char *ret, size_t n)
{
	size_t used = 0;

	while (isspace((unsigned char)*text))
		text++;
	for (; *text && used + 1 < n; text++)
		ret[used++] = isspace((unsigned char)*text) ? ' ' : *text;
	ret[used] = '\0';
	while (used && ret[used - 1] == ' ')
		ret[--used] = '\0';
	text_clean(ret);
	if (!*ret)
		snprintf(ret, n, "no text");
}
