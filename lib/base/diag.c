/* SPDX-License-Identifier: Apache-2.0 */
#include "base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int diag_set(struct diag *d, int error, const char *fmt, ...)
{
	va_list ap;

	if (!d || d->text[0])
		return error;
	va_start(ap, fmt);
	vsnprintf(d->text, sizeof(d->text), fmt, ap);
	va_end(ap);
	return error;
}

int diag_set_at(struct diag *d, int error, u64 offset, const char *fmt, ...)
{
	char where[40];
	size_t n, room;
	va_list ap;

	if (!d || d->text[0])
		return error;
	n = (size_t)snprintf(where, sizeof(where), " at offset 0x%llx", offset);
	room = sizeof(d->text) - n; /* cut a long text, but never the offset */
	va_start(ap, fmt);
	vsnprintf(d->text, room, fmt, ap);
	va_end(ap);
	memcpy(d->text + strlen(d->text), where, n + 1);
	return error;
}
