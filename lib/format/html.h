/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of the page (doc/format/html.md), as its writer and its reader have it. */
#pragma once

#define HTML_MAGIC "CULPRIT1"
#define HTML_ELEMENT "<script id=\"culprit-data\" type=\"application/x-culprit\">"

/* Of a frame. */
enum html_flags {
	HTML_INLINED = 1,
	HTML_GROUP = 2,	       /* root, process, thread */
	HTML_LINE_SAMPLED = 4, /* the line is one that was hit, not where the function starts */
};
