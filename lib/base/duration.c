/* SPDX-License-Identifier: Apache-2.0 */
#include "base/duration.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int duration_parse(const char *text, bool bare, double *ret_s)
{
	static const struct {
		const char *name;
		double s;
	} units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1},
		     {"m", 60},	   {"h", 3600},	 {"d", 86400}};
	char *end;
	double v;

	/* strtod() also takes spaces, signs, "inf" and hexadecimal numbers. */
	if (strspn(text, "0123456789.") == 0 || strpbrk(text, "xX"))
		return -EINVAL;
	v = strtod(text, &end);
	if (end == text || !isfinite(v))
		return -EINVAL;
	if (!*end) {
		if (!bare && v > 0)
			return -EINVAL;
		*ret_s = v;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (!strcmp(end, units[i].name)) {
			*ret_s = v * units[i].s;
			return 0;
		}
	}
	return -EINVAL;
}
