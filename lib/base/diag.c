/* SPDX-License-Identifier: Apache-2.0 */
#include "base/diag.h"

#include <stdarg.h>
#include <stdio.h>

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
