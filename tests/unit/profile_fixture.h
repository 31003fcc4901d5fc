/* SPDX-License-Identifier: Apache-2.0 */
/* Small profiles, made from folded text or by hand, for the tests of lib/profile. */
#pragma once

#include <criterion/criterion.h>
#include <string.h>

#include "format/internal.h"
#include "profile/profile.h"

static inline struct profile *from_folded(const char *text)
{
	struct diag d = {};
	struct profile *p = NULL;

	cr_assert_eq(folded_read((const u8 *)text, strlen(text), &p, &d), 0, "%s", d.text);
	return p;
}

static inline void assert_folded(const struct profile *p, const struct profile_write_options *o,
				 const char *want)
{
	static const struct profile_write_options none = {};
	_cleanup_str_ struct str out = {};

	cr_assert_eq(folded_write(p, o ? o : &none, &out, NULL), 0);
	cr_assert_str_eq(str_get(&out), want);
}

static inline u32 string(struct profile *p, const char *s)
{
	u32 id;

	cr_assert_eq(profile_add_string(p, s, strlen(s), &id), 0);
	return id;
}

static inline u32 frame(struct profile *p, const char *name, const char *path, u64 address, u8 kind,
			u8 flags, u32 line)
{
	struct profile_frame f = {.address = address,
				  .mapping = PROFILE_NONE,
				  .function = PROFILE_NONE,
				  .line = line,
				  .kind = kind,
				  .flags = flags};
	u32 id;

	if (name) {
		struct profile_function fn = {.name = string(p, name),
					      .system_name = string(p, name)};

		cr_assert_eq(profile_add_function(p, &fn, &f.function), 0);
	}
	if (path) {
		struct profile_mapping m = {.path = string(p, path)};

		cr_assert_eq(profile_add_mapping(p, &m, &f.mapping), 0);
	}
	cr_assert_eq(profile_add_frame(p, &f, &id), 0);
	return id;
}

static inline u32 thread(struct profile *p, const char *comm, const char *name, u32 pid, u32 tid)
{
	struct profile_thread t = {
		.pid = pid, .tid = tid, .comm = string(p, comm), .thread_name = string(p, name)};
	u32 id;

	cr_assert_eq(profile_add_thread(p, &t, &id), 0);
	return id;
}

static inline void sample(struct profile *p, u64 time, u32 t, const u32 *frames, size_t n,
			  s64 value)
{
	u32 stack;

	cr_assert_eq(profile_add_stack(p, frames, n, &stack), 0);
	cr_assert_eq(profile_add_sample(p, time, t, stack, &value), 0);
}

/* Adds the link whose trace id ends with `trace` and whose span id ends with `span`. */
static inline u32 link_of(struct profile *p, u8 trace, u8 span)
{
	struct profile_link l = {.trace_id = {0xa0, [15] = trace}, .span_id = {[7] = span}};
	u32 id;

	cr_assert_eq(profile_add_link(p, &l, &id), 0);
	return id;
}

/* Makes a profile with every kind of frame: [kernel, user] below one process with two threads. */
static inline struct profile *full_profile(void)
{
	struct profile *p = profile_create();
	u32 work, read, vfs, inl, jit, raw, none, cut, main_, t1, t2;

	cr_assert_eq(profile_add_type(p, "samples", "count"), 0);
	work = frame(p, "work", "/usr/bin/app", 0x1000, FRAME_NATIVE, 0, 12);
	inl = frame(p, "tiny", "/usr/bin/app", 0x1000, FRAME_NATIVE, PROFILE_FRAME_INLINED, 3);
	main_ = frame(p, "main", "/usr/bin/app", 0x2000, FRAME_NATIVE, 0, 40);
	read = frame(p, "read", "/lib/libc.so.6", 0x3000, FRAME_NATIVE, 0, 0);
	vfs = frame(p, "vfs_read", "[kernel.kallsyms]", 0xffffffff81000000, FRAME_KERNEL, 0, 0);
	jit = frame(p, "LJ;fast", NULL, 0x7f0000001000, FRAME_JIT, 0, 0);
	raw = frame(p, NULL, "/lib/libfoo.so.1", 0x1234, FRAME_NATIVE, 0, 0);
	none = frame(p, NULL, NULL, 0x666, FRAME_UNKNOWN, 0, 0);
	cut = frame(p, "[truncated: stack memory not readable]", NULL, 0, FRAME_NOTE, 0, 0);
	t1 = thread(p, "app", "app", 10, 10);
	t2 = thread(p, "app", "io pool 7", 10, 11);
	sample(p, 0, t1, (u32[]){inl, work, main_}, 3, 5);
	sample(p, 0, t1, (u32[]){vfs, read, main_}, 3, 3);
	sample(p, 0, t2, (u32[]){jit, main_}, 2, 2);
	sample(p, 0, t2, (u32[]){raw, none, cut}, 3, 1);
	return p;
}
