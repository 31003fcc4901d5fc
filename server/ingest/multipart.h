/* SPDX-License-Identifier: Apache-2.0 */
/* multipart/form-data, RFC 7578, as far as Pyroscope's clients use it. */
#pragma once

#include "base/types.h"

/* Whether the content type is multipart/form-data. */
bool multipart_is(const char *content_type);
/*
 * The content of the part with that name, borrowed from `data`. -ENOENT: no such part; -EBADMSG:
 * malformed.
 */
int multipart_find(const char *content_type, const u8 *data, size_t n, const char *name,
		   const u8 **ret_data, size_t *ret_n);
