/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes a Go program for people: the release that it names, the layout of its .gopclntab, and
 * whether unwinding continues from its system stacks to its goroutines.
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

bool go_release(struct elf_file *elf, u32 *ret)
{
	char version[VERSION_MAX + 1];
	const char *at = go_version(elf, version, sizeof(version)) ? strstr(version, "go1.") : NULL;

	return at && sscanf(at, "go1.%u", ret) == 1;
}

static const char *const versions[] = {
	[GO_1_2] = "1.2",
	[GO_1_16] = "1.16",
	[GO_1_18] = "1.18",
	[GO_1_20] = "1.20",
};

int go_describe(struct elf_file *elf, char *ret, size_t n)
{
	char version[VERSION_MAX + 1];
	struct go_layout layout = {};
	struct pclntab t = {};
	int r = pclntab_open_with_text(elf, &t);

	if (r == -ENOENT && elf_file_section(elf, ".go.buildinfo", NULL, NULL) < 0)
		return r;
	if (!go_version(elf, version, sizeof(version)))
		snprintf(version, sizeof(version), "unknown release");
	if (r < 0) {
		snprintf(ret, n, "%s; not supported: its .gopclntab is %s", version,
			 r == -ENOENT	 ? "missing"
			 : r == -ENOTSUP ? "of an unknown layout"
					 : "damaged");
		return 0;
	}
	go_layout_read(&t, &layout);
	snprintf(ret, n, "%s; rows and names of %u functions from .gopclntab, layout of Go %s; %s",
		 version, t.n, versions[t.version],
		 layout.known ? "goroutines below the system stack by offsets in its code"
			      : "missing: the goroutine below mcall, morestack and, up to 1.20, "
				"systemstack");
	return 0;
}
