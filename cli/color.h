/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Colours of tables in a terminal. None where standard output is no terminal, with NO_COLOR
 * (https://no-color.org), or on a dumb terminal.
 */
#pragma once

#include "base/str.h"
#include "base/types.h"

enum color { COLOR_DIM, COLOR_RED, COLOR_GREEN, COLOR_YELLOW, COLOR_BLUE, COLOR_N };

bool color_wanted(void);
/* Between these, the text has the color; nothing is appended if !on. */
void color_begin(struct str *out, bool on, enum color c);
void color_end(struct str *out, bool on);
/* The color of the name of a frame of this kind (enum frame_kind), COLOR_N: none of its own. */
enum color color_of_kind(u8 kind);
