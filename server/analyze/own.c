/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame of a stack of memory that a reader can change: not the allocator, not the C library,
 * and below an interpreter the function of the program that it runs.
 */
#include <string.h>

#include "base/str.h"
#include "base/vocab.h"
#include "server/analyze/analyze.h"

/* Files, by the beginning of their names, whose functions allocate for others. */
static const char *const plumbing_files[] = {
	"libc.",       "libc-",	  "ld-linux",	  "ld-musl",	 "libstdc++",
	"libc++",      "libgcc",  "libpthread",	  "libjemalloc", "libtcmalloc",
	"libmimalloc", "libasan", "libtbbmalloc", "[vdso]",
};
/* Interpreters: if a stack has functions of the program that they run, these come first. */
static const char *const runtime_files[] = {
	"python",  "libpython", "libjvm", "node",   "libnode",	  "ruby",
	"libruby", "php",	"libphp", "perl",   "libperl",	  "beam",
	"luajit",  "libluajit", "lua",	  "dotnet", "libcoreclr",
};
static const char *const plumbing_names[] = {
	"malloc",	  "calloc", "realloc", "reallocarray", "memalign",     "aligned_alloc",
	"posix_memalign", "valloc", "pvalloc", "strdup",       "strndup",      "memcpy",
	"memmove",	  "memset", "mmap",    "mmap64",       "brk",	       "sbrk",
	"sysmalloc",	  "_start", "clone",   "clone3",       "start_thread",
};
static const char *const plumbing_prefixes[] = {
	"_int_malloc", "_int_realloc", "_mid_memalign", "__libc_",  "__memset",	   "__memcpy",
	"__memmove",   "je_",	       "tc_",		"mi_",	    "_mi_",	   "g_malloc",
	"g_realloc",   "g_slice_",     "xmalloc",	"xrealloc", "xcalloc",	   "operator new",
	"std::",       "__gnu_cxx::",  "alloc::",	"core::",   "hashbrown::", "__rust_",
	"__rdl_",      "<alloc::",     "<core::",	"runtime.", "tcmalloc::",
};

static bool begins(const char *s, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (str_starts(s, list[i]))
			return true;
	return false;
}

static bool is_one_of(const char *s, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(s, list[i]))
			return true;
	return false;
}

static bool is_plumbing(const struct profile *p, const struct profile_frame *f, bool managed)
{
	const char *name = f->function == PROFILE_NONE
				   ? ""
				   : profile_string(p, p->functions.data[f->function].name);
	const char *file =
		f->mapping == PROFILE_NONE
			? ""
			: profile_basename(profile_string(p, p->mappings.data[f->mapping].path));

	/* Managed code may have any names. */
	if (vocab_frame_kind(f->kind)->class == FRAME_CLASS_MANAGED)
		return false;
	if (begins(file, plumbing_files, ARRAY_SIZE(plumbing_files)) ||
	    (managed && begins(file, runtime_files, ARRAY_SIZE(runtime_files))))
		return true;
	return is_one_of(name, plumbing_names, ARRAY_SIZE(plumbing_names)) ||
	       begins(name, plumbing_prefixes, ARRAY_SIZE(plumbing_prefixes));
}

static bool is_code(const struct profile_frame *f)
{
	enum frame_class class =
		f->kind < FRAME_KIND_N ? vocab_frame_kind(f->kind)->class : FRAME_CLASS_UNKNOWN;

	return class == FRAME_CLASS_NATIVE || class == FRAME_CLASS_MANAGED;
}

u32 analyze_own_frame(const struct profile *p, u32 stack)
{
	const struct profile_stack *s = &p->stacks.data[stack];
	const u32 *ids = p->stack_frames.data + s->first;
	u32 any = PROFILE_NONE;
	bool managed = false;

	for (u32 i = 0; i < s->n; i++) {
		const struct profile_frame *f = &p->frames.data[ids[i]];

		managed |= is_code(f) && vocab_frame_kind(f->kind)->class == FRAME_CLASS_MANAGED;
	}
	for (u32 i = 0; i < s->n; i++) {
		const struct profile_frame *f = &p->frames.data[ids[i]];

		if (!is_code(f))
			continue;
		if (any == PROFILE_NONE)
			any = i;
		if (!is_plumbing(p, f, managed))
			return i;
	}
	if (any == PROFILE_NONE && s->n)
		any = 0;
	return any;
}
