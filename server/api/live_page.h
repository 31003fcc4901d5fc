/* SPDX-License-Identifier: Apache-2.0 */
/* The server's page, compressed with gzip by ui/build.mjs, and values for its HTTP headers. */
#pragma once

#include <stddef.h>

extern const unsigned char live_page[];
extern const size_t live_page_n;
extern const size_t live_page_plain_n; /* size in bytes before compression */
extern const char live_page_etag[], live_page_csp[];
