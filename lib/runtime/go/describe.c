/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What culprit sees of a Go program, for people: which release it says it is, whose layout its
 * table has, and whether the goroutine below another stack is found.
 */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/go/go.h"
#include "runtime/go/pclntab.h"
#include "runtime/go/switch.h"

#define BUILDINFO_BYTES 32 /* magic, size of a pointer, flags, two pointers */
#define BUILDINFO_INLINE 2 /* flag: strings follow; 1.18 and later */
#define VERSION_MAX 63

/* src/debug/buildinfo: the version follows the header, or is a Go string that it points to. */
static bool version_bytes(struct elf_file *elf, struct buf *ret)
{
	struct elf_section s;
	struct buf info, b;
	u64 at, n;

	if (elf_file_section(elf, ".go.buildinfo", &s, NULL) < 0 || s.size < BUILDINFO_BYTES ||
	    elf_file_relocated(elf, s.svma, s.size, &info) < 0 ||
	    memcmp(info.pos, "\xff Go buildinf:\x08", 15) != 0)
		return false;
	if (info.pos[15] & BUILDINFO_INLINE) {
		*ret = info;
		return buf_skip(ret, BUILDINFO_BYTES) && buf_uleb(ret, &n) && n <= buf_left(ret) &&
		       ((ret->end = ret->pos + n), true);
	}
	if (!buf_skip(&info, 16) || !buf_u64(&info, &at) ||
	    elf_file_relocated(elf, at, 16, &b) < 0 || !buf_u64(&b, &at) || !buf_u64(&b, &n) ||
	    n > VERSION_MAX)
		return false;
	return elf_file_bytes(elf, at, n, ret) == 0;
}

bool go_version(struct elf_file *elf, char *ret, size_t n)
{
	struct buf b = {};
	size_t length = version_bytes(elf, &b) ? MIN(buf_left(&b), n - 1) : 0;

	for (size_t i = 0; i < length; i++)
		ret[i] = b.pos[i] >= ' ' && b.pos[i] < 127 ? (char)b.pos[i] : '?';
	ret[length] = '\0';
	return length;
}

void go_code_range(const struct elf_file *elf, u64 *ret_lo, u64 *ret_hi)
{
	*ret_lo = ~0ULL;
	*ret_hi = 0;
	for (u32 i = 0; i < elf->n_segments; i++)
		if (elf->segments[i].flags & PF_X) {
			*ret_lo = MIN(*ret_lo, elf->segments[i].svma);
			*ret_hi = MAX(*ret_hi, elf->segments[i].svma + elf->segments[i].memsz);
		}
}

int go_describe(struct elf_file *elf, char *ret, size_t n)
{
	char version[VERSION_MAX + 1];
	struct go_layout layout = {};
	struct gotab t = {};
	u64 lo, hi;
	int r;

	go_code_range(elf, &lo, &hi);
	r = gotab_open(elf, lo, hi, &t);
	if (r == -ENOENT && elf_file_section(elf, ".go.buildinfo", NULL, NULL) < 0)
		return r;
	if (!go_version(elf, version, sizeof(version)))
		snprintf(version, sizeof(version), "a release that it does not say");
	if (r < 0) {
		snprintf(ret, n, "%s; not supported: its .gopclntab is %s", version,
			 r == -ENOENT ? "not there or of a layout that is not known" : "damaged");
		return 0;
	}
	go_layout_read(elf, &t, &layout);
	snprintf(ret, n, "%s; rows and names of %u functions from .gopclntab, layout of Go %s; %s",
		 version, t.n,
		 t.v115	  ? "1.2"
		 : t.v116 ? "1.16"
		 : t.v120 ? "1.20"
			  : "1.18",
		 layout.known ? "goroutines below the system stack by offsets in its code"
			      : "missing: the goroutine below mcall, morestack and, up to 1.20, "
				"systemstack");
	return 0;
}
