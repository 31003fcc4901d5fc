/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"
#include "cli/cli.h"
#include "cli/naming.h"

#define A struct view_arguments
const struct option view_look_options[] = {
	OPTION_FLAG("threads", 0, A, threads, "show thread names below their process"),
	OPTION_FLAG("pids", 0, A, pids, "show each process by itself, as name-PID"),
	OPTION_STRING(
		"roots", 0, "NAME,...", A, roots,
		"put these above each stack: pod ([Pod]NAME), container ([Con]NAME), process\n"
		"([PID]NAME), as far as the profile has them"),
	OPTION_FLAG("annotate", 0, A, annotate,
		    "folded: mark inlined frames _[i] and JIT, Java and JavaScript frames _[j],\n"
		    "and end stacks of waits with what was waited for, such as [lock]"),
	OPTION_FLAG("icicle", 0, A, icicle, "svg: root at the top"),
	OPTION_STRING("title", 0, "TEXT", A, title, "title of the output"),
	{},
};

const struct option view_filter_options[] = {
	OPTION_FLAG("kernel-only", 0, A, kernel_only,
		    "show only kernel frames; samples without any end at their process"),
	OPTION_FLAG("user-only", 0, A, user_only,
		    "hide kernel frames; their time counts for their callers"),
	OPTION_FLAG("no-inline", 0, A, no_inline,
		    "hide inlined frames; their time counts for their callers"),
	{},
};
#undef A

int view_apply(struct view_arguments *a, const char *command, struct profile_write_options *o)
{
	struct diag d = {};

	if (a->kernel_only && a->user_only) {
		(void)cli_error(2, "%s: --kernel-only and --user-only exclude each other", command);
		return -EINVAL;
	}
	if (a->roots && profile_roots_parse(a->roots, &o->tree.roots, &d) < 0) {
		(void)cli_error(2, "%s: %s", command, d.text);
		return -EINVAL;
	}
	memset(a->drop_kinds, 0, sizeof(a->drop_kinds));
	for (int k = 0; k < FRAME_KIND_N; k++)
		a->drop_kinds[k] = a->kernel_only && k != FRAME_KERNEL && k != FRAME_WAIT;
	if (a->user_only)
		a->drop_kinds[FRAME_KERNEL] = 1;
	o->tree.threads = a->threads;
	o->tree.pids = a->pids;
	o->tree.no_inline = a->no_inline;
	o->tree.drop_kinds = a->drop_kinds;
	o->annotate = a->annotate;
	o->icicle = a->icicle;
	o->title = a->title;
	return 0;
}

static int pick_type(struct profile *p, const char *command, const char *path, const char *type)
{
	_cleanup_str_ struct str names = {};

	for (u32 i = 0; i < p->n_types; i++) {
		const char *name = profile_string(p, p->types[i].name);
		const char *group = profile_string(p, p->types[i].group);
		size_t n = *group && str_starts(type, group) ? strlen(group) : 0;

		/* "block:delay", where "delay" is of mutexes. */
		if (!strcmp(name, n && type[n] == ':' ? type + n + 1 : type)) {
			p->default_type = i;
			return 0;
		}
		str_printf(&names, "%s%s%s%s", i ? ", " : "", group, *group ? ":" : "", name);
	}
	return cli_error(-1, "%s: %s has no sample type '%s'; it has: %s", command, path, type,
			 str_get(&names));
}

int view_read(const char *command, char *const *paths, int n, const char *format, const char *type,
	      struct profile **ret)
{
	_cleanup_profile_ struct profile *all = NULL;

	for (int i = 0; i < n; i++) {
		_cleanup_profile_ struct profile *p = NULL;
		struct diag d = {};

		if (profile_read_file(paths[i], format, &p, &d) < 0)
			return cli_error(-1, "%s: %s", command, d.text);
		if (d.text[0]) /* what the reader left out */
			fprintf(stderr, "culprit: %s: %s\n", command, d.text);
		if (naming_apply(p, command) < 0)
			return cli_error(-1, "%s: out of memory", command);
		if (type && pick_type(p, command, paths[i], type) < 0)
			return -1;
		if (!all)
			all = take_ptr(p);
		else if (profile_merge(all, p, &d) < 0)
			return cli_error(-1, "%s: cannot add %s to the files before it: %s",
					 command, paths[i], d.text);
	}
	*ret = take_ptr(all);
	return 0;
}

int view_check_output(const char *path, const char *format, bool force,
		      const struct profile_format **ret, struct diag *reterr_diag)
{
	struct stat st;
	int r = profile_write_check(path, format, ret, reterr_diag);

	if (r < 0 || force || !strcmp(path, "-") || stat(path, &st) < 0)
		return r;
	if (!S_ISREG(st.st_mode) || !st.st_size)
		return 0;
	return diag_set(reterr_diag, -EEXIST, "%s exists: --force replaces it", path);
}
