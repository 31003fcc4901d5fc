/* SPDX-License-Identifier: Apache-2.0 */
/* The page around a payload, made by ui/build.mjs: what goes before it and what behind it. */
#pragma once

#include <stddef.h>

extern const unsigned char html_page_head[];
extern const size_t html_page_head_n;
extern const unsigned char html_page_tail[];
extern const size_t html_page_tail_n;
