/* SPDX-License-Identifier: Apache-2.0 */
/* Zipkin's JSON, version 2: a list of spans, as reporters of B3 libraries send them. */
#pragma once

#include "base/diag.h"
#include "base/types.h"
#include "profile/span.h"

/*
 * Adds to spans that the caller has initialised. All or nothing, as Zipkin's own server does:
 * -EBADMSG and a diag when the list or one of its spans is wrong.
 *
 * A trace id of 8 bytes has zeros before it. A span that client and server share is two of one id;
 * its tags are attributes, its annotations are left out.
 */
int zipkin_read(const char *data, size_t n, size_t max_bytes, struct spans *into,
		struct diag *reterr_diag);
