/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/color.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/vocab.h"

bool color_wanted(void)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

/* Select Graphic Rendition, ECMA-48 8.3.117: colors that the terminal's theme defines. */
void color_begin(struct str *out, bool on, enum color c)
{
	static const char *const codes[COLOR_N] = {[COLOR_DIM] = "2",
						   [COLOR_RED] = "31",
						   [COLOR_GREEN] = "32",
						   [COLOR_YELLOW] = "33",
						   [COLOR_BLUE] = "34"};

	if (on && c < COLOR_N)
		str_printf(out, "\033[%sm", codes[c]);
}

void color_end(struct str *out, bool on)
{
	if (on)
		str_puts(out, "\033[0m");
}

enum color color_of_kind(u8 kind)
{
	switch (vocab_frame_kind(kind)->class) {
	case FRAME_CLASS_KERNEL:
		return COLOR_YELLOW;
	case FRAME_CLASS_MANAGED:
		return COLOR_GREEN;
	case FRAME_CLASS_UNKNOWN:
	case FRAME_CLASS_NOTE:
		return COLOR_DIM;
	default:
		return COLOR_N;
	}
}
