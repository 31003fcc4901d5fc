/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a debug file before it is kept. Reads headers only and decompresses nothing. */
#include <errno.h>
#include <gelf.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "server/symbols/internal.h"

/* Reading sections takes memory. Their total size may be this many times the limit of a file. */
#define MAX_EXPANSION 2

bool symstore_is_build_id(const char *text)
{
	size_t n = strlen(text);

	return n >= 4 && n % 2 == 0 && n < SYMSTORE_ID_BYTES &&
	       strspn(text, "0123456789abcdef") == n;
}

void symstore_path(const char *build_id, char ret[256])
{
	snprintf(ret, 256, "usr/lib/debug/.build-id/%.2s/%s.debug", build_id, build_id + 2);
}

/* A file that is cut off lacks its table of sections, which is at the end of most files. */
static int check_whole(const struct elf_file *f, struct diag *reterr_diag)
{
	GElf_Ehdr h;
	u64 end;

	if (!gelf_getehdr(f->elf, &h))
		return diag_set(reterr_diag, -EINVAL, "its header is damaged");
	if (!h.e_shoff)
		return diag_set(reterr_diag, -EINVAL,
				"it has no sections, and therefore no symbols");
	end = h.e_shoff + (u64)h.e_shnum * h.e_shentsize;
	if (end < h.e_shoff || end > f->size)
		return diag_set(reterr_diag, -EINVAL,
				"it is cut off: %llu bytes, and its sections end at %llu", f->size,
				end);
	return 0;
}

/* From the worst to the best. */
static const char *const sources[] = {".dynsym",    ".gnu_debugdata",
				      ".symtab",    ".data.rel.ro.gopclntab",
				      ".gopclntab", ".debug_info"};

u32 symstore_rank(const char *source, const char **ret_has)
{
	for (u32 i = 0; i < ARRAY_SIZE(sources); i++) {
		if (strcmp(sources[i], source) != 0)
			continue;
		*ret_has = sources[i];
		return i + 1;
	}
	*ret_has = "";
	return 0;
}

static int check_sections(struct elf_file *f, u64 max_bytes, struct symstore_kind *ret,
			  struct diag *reterr_diag)
{
	static const char *const others[] = {".debug_abbrev",	".debug_line",	      ".debug_str",
					     ".debug_line_str", ".debug_ranges",      ".debug_addr",
					     ".debug_rnglists", ".debug_str_offsets", ".strtab",
					     ".debug_aranges"};
	struct elf_section s;
	u64 sum = 0;

	for (u32 i = 0; i < ARRAY_SIZE(sources) + ARRAY_SIZE(others); i++) {
		bool source = i < ARRAY_SIZE(sources);
		const char *name = source ? sources[i] : others[i - ARRAY_SIZE(sources)];

		if (elf_file_section(f, name, &s, NULL) < 0 || s.type == SHT_NOBITS || !s.size)
			continue;
		if (s.foff >= f->size)
			return diag_set(reterr_diag, -EINVAL,
					"it is cut off: %s lies beyond its end", name);
		sum = s.size > max_bytes * MAX_EXPANSION ? ~0ULL >> 1 : sum + s.size;
		if (sum > max_bytes * MAX_EXPANSION)
			return diag_set(reterr_diag, -EFBIG,
					"its debug sections are more than %llu MiB",
					max_bytes * MAX_EXPANSION >> 20);
		if (source) {
			ret->has = name;
			ret->rank = i + 1;
		}
	}
	return ret->rank ? 0
			 : diag_set(reterr_diag, -EINVAL,
				    "it is stripped: it has no names of functions");
}

static void read_alt(struct elf_file *f, struct symstore_kind *ret)
{
	const char *name;
	struct buf b;

	if (elf_file_section(f, ".gnu_debugaltlink", NULL, &b) == 0 && buf_cstr(&b, &name) &&
	    buf_left(&b) >= 2 && buf_left(&b) <= ELF_MAX_BUILD_ID)
		text_hex(b.pos, buf_left(&b), ret->alt);
}

int symstore_check(int fd, const char *build_id, u64 max_bytes, struct symstore_kind *ret,
		   struct diag *reterr_diag)
{
	_cleanup_elf_file_ struct elf_file *f = NULL;
	char id[SYMSTORE_ID_BYTES];
	struct symstore_kind k = {};
	struct diag why = {};
	int own = dup(fd), r;

	if (own < 0)
		return -errno;
	r = elf_file_open(own, &why, &f);
	if (r == -ENOTSUP)
		return diag_set(reterr_diag, r, "it is not a 64-bit x86-64 or arm64 file");
	if (r < 0)
		return diag_set(reterr_diag, r == -ENOMEM ? r : -EINVAL,
				"it is not %s ELF file%s%s", r == -ENOEXEC ? "an" : "a whole",
				why.text[0] ? ": " : "", why.text);
	r = check_whole(f, reterr_diag);
	if (r < 0)
		return r;
	text_hex(f->build_id, f->build_id_n, id);
	if (strcmp(id, build_id) != 0)
		return diag_set(reterr_diag, -EINVAL, "its build-id is %s, not %s",
				f->build_id_n ? id : "missing", build_id);
	r = check_sections(f, max_bytes, &k, reterr_diag);
	if (r < 0)
		return r;
	read_alt(f, &k);
	*ret = k;
	return 0;
}
