/* SPDX-License-Identifier: Apache-2.0 */
#include "base/members.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/closest.h"
#include "base/str.h"

int members_check(json_t *object, const char *const *members, size_t n, const char *what,
		  struct diag *reterr_diag)
{
	const char *name;
	json_t *value;

	json_object_foreach(object, name, value)
	{
		_cleanup_str_ struct str all = {};
		size_t i = 0;

		while (i < n && strcmp(members[i], name) != 0)
			i++;
		if (i < n)
			continue;
		if (closest_append(&all, name, members, n, 150) < 0)
			return -ENOMEM;
		return diag_set(reterr_diag, -EINVAL, "%s has no '%.30s'; it has %s", what, name,
				str_get(&all));
	}
	return 0;
}

int members_text(json_t *o, const char *name, char *ret, size_t room, struct diag *reterr_diag)
{
	json_t *v = json_object_get(o, name);
	const char *text = json_string_value(v);

	if (!v || json_is_null(v))
		return 0;
	if (!text || json_string_length(v) >= room || strlen(text) != json_string_length(v))
		return diag_set(reterr_diag, -EINVAL, "%s: a text of at most %zu bytes", name,
				room - 1);
	for (const char *c = text; *c; c++)
		if ((u8)*c < ' ' || *c == 0x7f)
			return diag_set(reterr_diag, -EINVAL,
					"%s: a text without control characters", name);
	memcpy(ret, text, json_string_length(v) + 1);
	return 0;
}

int members_number(json_t *o, const char *name, double max, double *ret, struct diag *reterr_diag)
{
	json_t *v = json_object_get(o, name);
	double x = json_number_value(v);

	if (!v || json_is_null(v))
		return -ENOENT;
	if (!json_is_number(v) || !(x >= 0 && x <= max))
		return diag_set(reterr_diag, -EINVAL, "%s: a number of 0 to %.0f", name, max);
	*ret = x;
	return 0;
}

int members_u64(json_t *o, const char *name, u64 max, u64 *ret, struct diag *reterr_diag)
{
	double x;
	int r = members_number(o, name, (double)max, &x, reterr_diag);

	if (r == -ENOENT)
		return 0;
	if (r == 0 && x != floor(x))
		r = diag_set(reterr_diag, -EINVAL, "%s: a whole number", name);
	if (r == 0)
		*ret = (u64)x;
	return r;
}

int members_u32(json_t *o, const char *name, u32 *ret, struct diag *reterr_diag)
{
	u64 x = *ret;
	int r = members_u64(o, name, 1ULL << 31, &x, reterr_diag);

	if (r == 0)
		*ret = (u32)x;
	return r;
}

int members_flag(json_t *o, const char *name, bool *ret, struct diag *reterr_diag)
{
	json_t *v = json_object_get(o, name);

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_boolean(v))
		return diag_set(reterr_diag, -EINVAL, "%s: true or false", name);
	*ret = json_is_true(v);
	return 0;
}
