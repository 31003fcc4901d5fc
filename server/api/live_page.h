/* SPDX-License-Identifier: Apache-2.0 */
/* The page that a server shows, made by ui/build.mjs: gzip, and what goes into its headers. */
#pragma once

#include <stddef.h>

extern const unsigned char live_page[];
extern const size_t live_page_n;
extern const size_t live_page_plain_n; /* bytes when it is not compressed */
extern const char live_page_etag[], live_page_csp[];
