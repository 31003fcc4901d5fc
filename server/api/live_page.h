/* SPDX-License-Identifier: Apache-2.0 */
/* The server's page and its scripts, compressed with gzip by ui/build.mjs. */
#pragma once

#include <stddef.h>

struct live_file {
	const char *name; /* of a script: /ui/NAME; it has a hash of the content */
	const char *etag;
	const unsigned char *gzip;
	size_t n;
	size_t plain_n; /* size in bytes before compression */
};

extern const struct live_file live_files[]; /* the first is the page */
extern const size_t live_files_n;
extern const char live_page_csp[]; /* what the page may load and run */
