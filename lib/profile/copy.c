/* SPDX-License-Identifier: Apache-2.0 */
/* Copies single frames from one profile to another; profile_merge() takes all of a profile. */
#include <string.h>

#include "profile/profile.h"

static int copy_text(struct profile *to, const struct profile *from, u32 id, u32 *ret)
{
	const char *text = profile_string(from, id);

	return profile_add_string(to, text, strlen(text), ret);
}

static int copy_function(struct profile *to, const struct profile *from, u32 id, u32 *ret)
{
	struct profile_function f = from->functions.data[id];
	int r = copy_text(to, from, f.name, &f.name);

	if (r == 0)
		r = copy_text(to, from, f.system_name, &f.system_name);
	if (r == 0)
		r = copy_text(to, from, f.file, &f.file);
	return r < 0 ? r : profile_add_function(to, &f, ret);
}

static int copy_mapping(struct profile *to, const struct profile *from, u32 id, u32 *ret)
{
	struct profile_mapping m = from->mappings.data[id];
	int r = copy_text(to, from, m.path, &m.path);

	if (r == 0)
		r = copy_text(to, from, m.build_id, &m.build_id);
	return r < 0 ? r : profile_add_mapping(to, &m, ret);
}

int profile_copy_frame(struct profile *to, const struct profile *from, u32 frame, u32 *ret_id)
{
	struct profile_frame f = from->frames.data[frame];
	int r = 0;

	if (f.function != PROFILE_NONE)
		r = copy_function(to, from, f.function, &f.function);
	if (r == 0 && f.mapping != PROFILE_NONE)
		r = copy_mapping(to, from, f.mapping, &f.mapping);
	return r < 0 ? r : profile_add_frame(to, &f, ret_id);
}
