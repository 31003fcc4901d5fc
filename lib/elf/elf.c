/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens and reads ELF files that may be hostile.
 *
 * libelf validates and decodes the header tables once, when the file is opened; their content is
 * copied into structs of this file. The bytes of sections and segments are read here with pread (or
 * point into the image) and not with elf_getdata(): libdw, which shares the Elf handle, replaces
 * and frees libelf's copy when it decompresses a section, while our callers borrow bytes until the
 * file is destroyed.
 *
 * Invariants: 1. All ranges that are read lie inside the size that the file had when it was opened.
 * 2. The cached bytes of a section stay at their address until elf_file_destroy(). 3. Memory is
 * bounded: a section by ELF_MAX_SECTION_BYTES and by what its compressed bytes can hold; header
 * tables by the size of the file.
 *
 * Only one thread may use a file at a time.
 */
#include "elf/elf.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <string.h>
#include <sys/stat.h>

#include "base/map.h"
#include "base/vec.h"
#include "compress/compress.h"
#include "elf/damage.h"
#include "elf/decompress.h"

/* Small reads from segments are served from aligned chunks, so that many of them cost one pread. */
#define CHUNK_SHIFT 16
#define CHUNK_BYTES (1ULL << CHUNK_SHIFT)

struct cached_section {
	struct elf_section info; /* info.size is the size in the file, not decompressed */
	bool compressed;	 /* SHF_COMPRESSED */
	bool zdebug;		 /* the name begins with .zdebug_ */
	void *owned;		 /* decompressed or read bytes, NULL while not loaded */
	struct buf bytes;	 /* valid once loaded */
	bool loaded;
};

struct cached_range {
	u64 foff;
	u64 n;
	void *owned;
};

struct elf_cache {
	vec(struct cached_section) sections;
	char *names;	   /* owned; the section name table, followed by a NUL */
	struct map chunks; /* foff >> CHUNK_SHIFT → owned u8 * */
	vec(struct cached_range) ranges;
	vec(struct cached_range) relocated; /* foff: svma */
};

static bool range_ok(const struct elf_file *f, u64 foff, u64 n)
{
	return foff <= f->size && n <= f->size - foff;
}

/* Reads exactly n bytes. The caller has checked that the range is in the file. */
static int read_exact(struct elf_file *f, u64 foff, u64 n, void *ret)
{
	u8 *dst = ret;

	if (f->image) {
		memcpy(dst, (u8 *)f->image + foff, n);
		return 0;
	}
	while (n) {
		ssize_t got = pread(f->fd, dst, n, (off_t)foff);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -EINVAL; /* the file was truncated after it was opened */
		dst += got;
		foff += (u64)got;
		n -= (u64)got;
	}
	return 0;
}

/*
 * Returns the bytes [foff, foff + n), which live until the file is destroyed. Sets *ret_owned if
 * they are malloc()ed.
 */
static int read_keep(struct elf_file *f, u64 foff, u64 n, void **ret_owned, struct buf *ret)
{
	_cleanup_free_ void *p = NULL;
	int r;

	if (!range_ok(f, foff, n))
		return -EINVAL;
	if (n > ELF_MAX_SECTION_BYTES)
		return -E2BIG;
	if (f->image) {
		*ret_owned = NULL;
		*ret = buf_of((u8 *)f->image + foff, n);
		return 0;
	}
	p = malloc(n ? n : 1);
	if (!p)
		return -ENOMEM;
	r = read_exact(f, foff, n, p);
	if (r < 0)
		return r;
	*ret = buf_of(p, n);
	*ret_owned = take_ptr(p);
	return 0;
}

static int load_segments(struct elf_file *f, const GElf_Ehdr *e, struct diag *d)
{
	size_t n;

	if (elf_getphdrnum(f->elf, &n) < 0)
		return diag_set_at(d, -EINVAL, e->e_phoff, "damaged program headers: %s",
				   elf_errmsg(-1));
	/* Allocate no more than needed: the agent has hundreds of files open, most with four
	 * segments. */
	f->segments =
		calloc(MIN(MAX(n, (size_t)1), (size_t)ELF_MAX_SEGMENTS), sizeof(*f->segments));
	if (!f->segments)
		return -ENOMEM;
	for (size_t i = 0; i < n && i <= 0xffff; i++) {
		u64 offset = e->e_phoff + i * e->e_phentsize;
		GElf_Phdr p;

		if (!gelf_getphdr(f->elf, (int)i, &p))
			return diag_set_at(d, -EINVAL, offset, "damaged program headers: %s",
					   elf_errmsg(-1));
		if (p.p_type != PT_LOAD)
			continue;
		if (f->n_segments == ELF_MAX_SEGMENTS)
			return diag_set_at(d, -EINVAL, offset, "more than %d segments",
					   ELF_MAX_SEGMENTS);
		if (p.p_memsz < p.p_filesz || p.p_vaddr + p.p_memsz < p.p_vaddr ||
		    p.p_offset + p.p_filesz < p.p_offset)
			return diag_set_at(d, -EINVAL, offset, "segment %zu has impossible bounds",
					   i);
		f->segments[f->n_segments++] = (struct elf_segment){
			.svma = p.p_vaddr,
			.foff = p.p_offset,
			.filesz = p.p_filesz,
			.memsz = p.p_memsz,
			.flags = p.p_flags,
		};
	}
	return 0;
}

/* Reads the table of section names and appends a NUL. */
static int load_names(struct elf_file *f, u64 *ret_n)
{
	_cleanup_free_ char *names = NULL;
	size_t index;
	GElf_Shdr h;
	Elf_Scn *scn;
	int r;

	if (elf_getshdrstrndx(f->elf, &index) < 0 || index == SHN_UNDEF)
		return -ENOENT;
	scn = elf_getscn(f->elf, index);
	if (!scn || !gelf_getshdr(scn, &h) || h.sh_type == SHT_NOBITS ||
	    !range_ok(f, h.sh_offset, h.sh_size) || h.sh_size > ELF_MAX_SECTION_BYTES)
		return -EINVAL;
	names = malloc(h.sh_size + 1);
	if (!names)
		return -ENOMEM;
	r = read_exact(f, h.sh_offset, h.sh_size, names);
	if (r < 0)
		return r;
	names[h.sh_size] = 0;
	*ret_n = h.sh_size;
	f->cache->names = take_ptr(names);
	return 0;
}

static int add_section(struct elf_file *f, const char *name, const GElf_Shdr *h, size_t index)
{
	struct cached_section s = {
		.info =
			{
				.name = name,
				.svma = h->sh_addr,
				.foff = h->sh_offset,
				.size = h->sh_size,
				.type = h->sh_type,
				.flags = (u32)h->sh_flags,
				.index = (u32)index,
			},
		.compressed = h->sh_flags & SHF_COMPRESSED,
		.zdebug = !strncmp(name, ".zdebug_", 8),
	};

	return vec_push(&f->cache->sections, s);
}

/*
 * A file without section headers, or with damaged ones, still runs and must be unwound. A damaged
 * header is therefore no error: its section is left out.
 */
static int load_sections(struct elf_file *f)
{
	size_t n, max = f->size / sizeof(Elf64_Shdr);
	u64 names_n;
	int r;

	if (elf_getshdrnum(f->elf, &n) < 0 || n == 0)
		return 0;
	r = load_names(f, &names_n);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	for (size_t i = 1; i < n && i <= max; i++) {
		Elf_Scn *scn = elf_getscn(f->elf, i);
		GElf_Shdr h;

		if (!scn || !gelf_getshdr(scn, &h))
			break;
		if (h.sh_type == SHT_NULL || h.sh_name >= names_n)
			continue;
		r = add_section(f, f->cache->names + h.sh_name, &h, i);
		if (r < 0)
			return r;
	}
	return 0;
}

static void build_id_of_notes(struct elf_file *f, struct buf notes, u64 align)
{
	u64 mask = align == 8 ? 7 : 3;

	while (!f->build_id_n) {
		u32 namesz, descsz, type;
		struct buf name, desc;

		if (!buf_u32(&notes, &namesz) || !buf_u32(&notes, &descsz) ||
		    !buf_u32(&notes, &type) || !buf_take(&notes, namesz, &name) ||
		    !buf_skip(&notes, -(u64)(namesz + 12) & mask) ||
		    !buf_take(&notes, descsz, &desc))
			return;
		if (type == NT_GNU_BUILD_ID && namesz == 4 && !memcmp(name.pos, "GNU", 4) &&
		    descsz && descsz <= ELF_MAX_BUILD_ID) {
			memcpy(f->build_id, desc.pos, descsz);
			f->build_id_n = descsz;
		}
		if (!buf_skip(&notes, -(u64)descsz & mask))
			return;
	}
}

static void build_id_at(struct elf_file *f, u64 foff, u64 n, u64 align)
{
	_cleanup_free_ void *p = NULL;

	/* Notes are small. A note segment as large as that of a core file contains no build-id. */
	if (f->build_id_n || !n || n > (1 << 20) || !range_ok(f, foff, n))
		return;
	p = malloc(n);
	if (p && read_exact(f, foff, n, p) == 0)
		build_id_of_notes(f, buf_of(p, n), align);
}

/* Reads section headers first: in a separate debug file the offsets of segments are meaningless. */
static void load_build_id(struct elf_file *f)
{
	size_t n = 0;

	vec_foreach (&f->cache->sections, s)
		if (s->info.type == SHT_NOTE && !s->compressed)
			build_id_at(f, s->info.foff, s->info.size, 4);
	if (elf_getphdrnum(f->elf, &n) < 0)
		return;
	for (size_t i = 0; i < n && i <= 0xffff && !f->build_id_n; i++) {
		GElf_Phdr p;

		if (gelf_getphdr(f->elf, (int)i, &p) && p.p_type == PT_NOTE)
			build_id_at(f, p.p_offset, p.p_filesz, p.p_align);
	}
}

static struct cached_section *find_section(struct elf_file *f, const char *name)
{
	vec_foreach (&f->cache->sections, s)
		if (!strcmp(s->info.name, name))
			return s;
	return NULL;
}

/* Adds a section that only the segments describe, unless there is a section header of that name. */
static int synthesise_section(struct elf_file *f, const char *name, u32 type, u64 svma, u64 foff,
			      u64 n)
{
	GElf_Shdr h = {
		.sh_type = type,
		.sh_flags = SHF_ALLOC,
		.sh_addr = svma,
		.sh_offset = foff,
		.sh_size = n,
	};

	if (find_section(f, name) || !range_ok(f, foff, n))
		return 0;
	return add_section(f, name, &h, 0);
}

/* Nothing gives the size of .eh_frame: it ends at a zero length, or at the end of its segment. */
static int synthesise_eh_frame(struct elf_file *f, const GElf_Phdr *p)
{
	u8 head[8];
	u64 svma;
	s32 rel;

	/* version 1, eh_frame_ptr as pc-relative sdata4: what every linker writes. */
	if (p->p_filesz < 8 || !range_ok(f, p->p_offset, 8) ||
	    read_exact(f, p->p_offset, 8, head) < 0 || head[0] != 1 || head[1] != 0x1b)
		return 0;
	memcpy(&rel, head + 4, 4);
	svma = p->p_vaddr + 4 + (u64)(s64)rel;
	for (u32 i = 0; i < f->n_segments; i++) {
		const struct elf_segment *s = &f->segments[i];
		u64 at = svma - s->svma;

		if (svma < s->svma || at >= s->filesz || !range_ok(f, s->foff, s->filesz))
			continue;
		return synthesise_section(f, ".eh_frame", SHT_PROGBITS, svma, s->foff + at,
					  s->filesz - at);
	}
	return 0;
}

static int synthesise_sections(struct elf_file *f)
{
	size_t n = 0;
	int r = 0;

	if (elf_getphdrnum(f->elf, &n) < 0)
		return 0;
	for (size_t i = 0; i < n && i <= 0xffff && r == 0; i++) {
		GElf_Phdr p;

		if (!gelf_getphdr(f->elf, (int)i, &p))
			return 0;
		if (p.p_type == PT_DYNAMIC)
			r = synthesise_section(f, ".dynamic", SHT_DYNAMIC, p.p_vaddr, p.p_offset,
					       p.p_filesz);
		if (p.p_type != PT_GNU_EH_FRAME)
			continue;
		r = synthesise_section(f, ".eh_frame_hdr", SHT_PROGBITS, p.p_vaddr, p.p_offset,
				       p.p_filesz);
		if (r == 0)
			r = synthesise_eh_frame(f, &p);
	}
	return r;
}

static int load_headers(struct elf_file *f, struct diag *d)
{
	GElf_Ehdr e;
	int r;

	if (elf_kind(f->elf) != ELF_K_ELF)
		return diag_set(d, -ENOEXEC, "not an ELF file");
	if (!gelf_getehdr(f->elf, &e))
		return diag_set_at(d, -EINVAL, 0, "damaged ELF header: %s", elf_errmsg(-1));
	if (e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_ident[EI_DATA] != ELFDATA2LSB)
		return diag_set_at(d, -ENOTSUP, EI_CLASS, "not a 64-bit little-endian ELF file");
	if (e.e_machine != EM_X86_64 && e.e_machine != EM_AARCH64)
		return diag_set_at(d, -ENOTSUP, offsetof(Elf64_Ehdr, e_machine),
				   "an ELF file for machine %u, not x86-64 or arm64", e.e_machine);
	f->machine = e.e_machine;
	f->type = e.e_type;
	f->entry = e.e_entry;
	r = load_segments(f, &e, d);
	if (r == 0)
		r = load_sections(f);
	if (r == 0)
		r = synthesise_sections(f);
	if (r == 0)
		load_build_id(f);
	return r;
}

/* Finishes opening a file whose fd or image and whose size are set. */
static int open_common(struct elf_file *f, struct diag *d)
{
	f->cache = calloc(1, sizeof(*f->cache));
	if (!f->cache)
		return -ENOMEM;
	(void)elf_version(EV_CURRENT);
	f->elf = f->image ? elf_memory(f->image, f->size) : elf_begin(f->fd, ELF_C_READ, NULL);
	if (!f->elf)
		return diag_set(d, -ENOEXEC, "not an ELF file: %s", elf_errmsg(-1));
	return load_headers(f, d);
}

int elf_file_open(int fd, struct diag *reterr_diag, struct elf_file **ret)
{
	_cleanup_close_ int owned_fd = fd;
	_cleanup_elf_file_ struct elf_file *f = NULL;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return diag_set(reterr_diag, -errno, "cannot stat: %s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return diag_set(reterr_diag, -ENOEXEC, "not a regular file");
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->fd = take_fd(&owned_fd);
	f->size = (u64)st.st_size;
	r = open_common(f, reterr_diag);
	if (r < 0)
		return r;
	*ret = take_ptr(f);
	return 0;
}

/* Takes ownership of the image, also on failure. */
static int open_image(void *image, size_t n, struct diag *d, struct elf_file **ret)
{
	_cleanup_elf_file_ struct elf_file *f = NULL;
	int r;

	f = calloc(1, sizeof(*f));
	if (!f) {
		free(image);
		return -ENOMEM;
	}
	f->fd = -1;
	f->image = image;
	f->size = n;
	r = open_common(f, d);
	if (r < 0)
		return r;
	*ret = take_ptr(f);
	return 0;
}

int elf_file_open_memory(const void *image, size_t n, struct diag *reterr_diag,
			 struct elf_file **ret)
{
	void *copy;

	if (n < EI_NIDENT)
		return diag_set(reterr_diag, -ENOEXEC, "not an ELF file");
	copy = malloc(n);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, image, n);
	return open_image(copy, n, reterr_diag, ret);
}

int elf_file_open_again(const struct elf_file *f, struct elf_file **ret)
{
	int fd;

	if (f->fd < 0)
		return elf_file_open_memory(f->image, f->size, NULL, ret);
	fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
	return fd < 0 ? -errno : elf_file_open(fd, NULL, ret);
}

void elf_file_forget(struct elf_file *f)
{
	vec_foreach (&f->cache->sections, s) {
		free(s->owned);
		s->owned = NULL;
		s->loaded = false;
	}
	vec_foreach (&f->cache->ranges, r)
		free(r->owned);
	vec_deinit(&f->cache->ranges);
	vec_foreach (&f->cache->relocated, r)
		free(r->owned);
	vec_deinit(&f->cache->relocated);
	map_foreach (&f->cache->chunks, slot)
		free((void *)(uintptr_t)slot->value);
	map_deinit(&f->cache->chunks);
}

void elf_file_destroy(struct elf_file *f)
{
	if (!f)
		return;
	if (f->elf)
		elf_end(f->elf);
	if (f->cache) {
		elf_file_forget(f);
		vec_deinit(&f->cache->sections);
		free(f->cache->names);
		free(f->cache);
	}
	free(f->segments);
	free(f->image);
	if (f->fd >= 0)
		close(f->fd);
	free(f);
}

/* Reads the compression and the decompressed size of a section from its first bytes. */
static int compression_of(struct elf_file *f, const struct cached_section *s,
			  struct elf_compression *ret)
{
	u8 head[sizeof(Elf64_Chdr)];
	u64 n = MIN(s->info.size, (u64)sizeof(head));
	int r;

	if (!range_ok(f, s->info.foff, s->info.size))
		return -EINVAL;
	r = read_exact(f, s->info.foff, n, head);
	if (r < 0)
		return r;
	return elf_compression_parse(buf_of(head, n), s->zdebug, s->info.size, ret);
}

static int load_compressed(struct elf_file *f, struct cached_section *s,
			   const struct elf_compression *c)
{
	_cleanup_free_ void *raw = NULL;
	struct diag why = {};
	struct buf bytes;
	int r;

	r = read_keep(f, s->info.foff, s->info.size, &raw, &bytes);
	if (r < 0)
		return r;
	r = elf_decompress(bytes, c, &s->owned, &why);
	if (r == -EINVAL)
		return elf_keep_damage(f, s->info.name, why.text);
	if (r < 0)
		return r;
	s->bytes = buf_of(s->owned, c->size);
	return 0;
}

static int load_section(struct elf_file *f, struct cached_section *s,
			const struct elf_compression *c)
{
	int r;

	if (s->loaded)
		return 0;
	if (s->info.type == SHT_NOBITS)
		return -ENOENT;
	r = c ? load_compressed(f, s, c)
	      : read_keep(f, s->info.foff, s->info.size, &s->owned, &s->bytes);
	if (r == -EINVAL) /* of what is compressed, the damage is known already */
		return elf_file_damaged(f, s->info.name, f->size - MIN(f->size, s->info.foff),
					"the file ends in the section");
	if (r == 0)
		s->loaded = true;
	return r;
}

size_t elf_file_memory(const struct elf_file *f)
{
	size_t n = f->cache->chunks.n * CHUNK_BYTES;

	vec_foreach (&f->cache->sections, s)
		n += s->owned ? buf_left(&s->bytes) : 0;
	vec_foreach (&f->cache->ranges, r)
		n += r->n;
	vec_foreach (&f->cache->relocated, r)
		n += r->n;
	return n + (f->image ? f->size : 0);
}

int elf_file_section(struct elf_file *f, const char *name, struct elf_section *ret_section,
		     struct buf *ret_bytes)
{
	struct cached_section *s = find_section(f, name);
	struct elf_compression c = {};
	struct elf_section info;
	char zname[64];
	bool packed;
	int r;

	if (!s && !strncmp(name, ".debug_", 7) && strlen(name) < sizeof(zname) - 2) {
		snprintf(zname, sizeof(zname), ".z%s", name + 1);
		s = find_section(f, zname);
	}
	if (!s)
		return -ENOENT;
	info = s->info;
	packed = (s->compressed || s->zdebug) && info.type != SHT_NOBITS;
	if (packed) {
		r = compression_of(f, s, &c);
		if (r == -EINVAL)
			return elf_file_damaged(f, info.name, 0, "no whole compression header");
		if (r < 0)
			return r;
		info.size = c.size;
	}
	if (ret_bytes && !s->loaded && f->max_memory &&
	    (info.size > f->max_memory || elf_file_memory(f) > f->max_memory - info.size))
		return -E2BIG;
	if (ret_bytes) {
		r = load_section(f, s, packed ? &c : NULL);
		if (r < 0)
			return r;
		*ret_bytes = s->bytes;
	}
	if (ret_section)
		*ret_section = info;
	return 0;
}

static int bytes_in_chunk(struct elf_file *f, u64 foff, size_t n, struct buf *ret)
{
	u64 key = foff >> CHUNK_SHIFT, start = key << CHUNK_SHIFT;
	u64 *have = map_get(&f->cache->chunks, key);
	u8 *chunk = have ? (u8 *)(uintptr_t)*have : NULL;

	if (!chunk) {
		_cleanup_free_ u8 *p = malloc(CHUNK_BYTES);
		int r;

		if (!p)
			return -ENOMEM;
		r = read_exact(f, start, MIN(CHUNK_BYTES, f->size - start), p);
		if (r == 0)
			r = map_put(&f->cache->chunks, key, (u64)(uintptr_t)p);
		if (r < 0)
			return r;
		chunk = take_ptr(p);
	}
	*ret = buf_of(chunk + (foff - start), n);
	return 0;
}

static int bytes_at(struct elf_file *f, u64 foff, size_t n, struct buf *ret)
{
	struct cached_range range = {.foff = foff, .n = n};
	struct buf bytes;
	int r;

	if (!range_ok(f, foff, n))
		return -EINVAL;
	if (f->image) {
		*ret = buf_of((u8 *)f->image + foff, n);
		return 0;
	}
	if (n && foff >> CHUNK_SHIFT == (foff + n - 1) >> CHUNK_SHIFT)
		return bytes_in_chunk(f, foff, n, ret);
	vec_foreach (&f->cache->ranges, have) {
		if (foff >= have->foff && foff - have->foff <= have->n &&
		    n <= have->n - (foff - have->foff)) {
			*ret = buf_of((u8 *)have->owned + (foff - have->foff), n);
			return 0;
		}
	}
	r = read_keep(f, foff, n, &range.owned, &bytes);
	if (r < 0)
		return r;
	if (vec_push(&f->cache->ranges, range) < 0) {
		free(range.owned);
		return -ENOMEM;
	}
	*ret = bytes;
	return 0;
}

int elf_file_bytes(struct elf_file *f, u64 svma, size_t n, struct buf *ret_bytes)
{
	for (u32 i = 0; i < f->n_segments; i++) {
		const struct elf_segment *s = &f->segments[i];
		u64 at = svma - s->svma;

		if (svma >= s->svma && at <= s->filesz && n <= s->filesz - at &&
		    (n || at < s->filesz))
			return bytes_at(f, s->foff + at, n, ret_bytes);
	}
	return -ENOENT;
}

/* Applies the relocations of the n bytes at svma as the loader would, for a bias of 0. */
static void relocate_bytes(struct elf_file *f, const char *section, u64 svma, size_t n, u8 *bytes)
{
	u32 relative = f->machine == EM_AARCH64 ? R_AARCH64_RELATIVE : R_X86_64_RELATIVE;
	struct buf rela;
	Elf64_Rela e;

	if (elf_file_section(f, section, NULL, &rela) < 0)
		return;
	for (; buf_left(&rela) >= sizeof(e); rela.pos += sizeof(e)) {
		memcpy(&e, rela.pos, sizeof(e));
		if (ELF64_R_TYPE(e.r_info) == relative && e.r_offset >= svma && n >= 8 &&
		    e.r_offset - svma <= n - 8)
			memcpy(bytes + (e.r_offset - svma), &e.r_addend, 8);
	}
}

int elf_file_relocated(struct elf_file *f, u64 svma, size_t n, struct buf *ret_bytes)
{
	_cleanup_free_ void *owned = NULL;
	struct cached_range range = {.foff = svma, .n = n};

	vec_foreach (&f->cache->relocated, have) {
		if (have->foff == svma && have->n == n) {
			*ret_bytes = buf_of(have->owned, n);
			return 0;
		}
	}
	owned = malloc(n + 1);
	if (!owned)
		return -ENOMEM;
	if (elf_file_copy(f, svma, n, owned) != (ssize_t)n)
		return -ENOENT;
	/* Go's linker names the section .rela, all others .rela.dyn. */
	relocate_bytes(f, ".rela.dyn", svma, n, owned);
	relocate_bytes(f, ".rela", svma, n, owned);
	range.owned = owned;
	if (vec_push(&f->cache->relocated, range) < 0)
		return -ENOMEM;
	*ret_bytes = buf_of(take_ptr(owned), n);
	return 0;
}

ssize_t elf_file_copy(struct elf_file *f, u64 svma, size_t n, void *ret)
{
	for (u32 i = 0; i < f->n_segments; i++) {
		const struct elf_segment *s = &f->segments[i];
		u64 at = svma - s->svma, foff = s->foff + at;
		int r;

		if (svma < s->svma || at >= s->filesz || foff >= f->size)
			continue;
		n = MIN(n, s->filesz - at);
		n = MIN(n, f->size - foff);
		r = read_exact(f, foff, n, ret);
		return r < 0 ? r : (ssize_t)n;
	}
	return -ENOENT;
}

static bool foff_in(const struct elf_segment *s, u64 foff, u64 page, u64 *ret_svma)
{
	u64 before = page ? s->foff & (page - 1) : 0;
	u64 end = s->foff + s->filesz;

	if (before > s->svma)
		return false;
	if (page)
		end = (end + page - 1) & ~(page - 1);
	if (foff < s->foff - before || foff >= end)
		return false;
	*ret_svma = s->svma + (foff - s->foff);
	return true;
}

/*
 * The kernel maps whole pages, so a mapping's offset may lie before the first byte of its segment,
 * in a page that also belongs to the previous segment. Callers ask about code mappings, so at the
 * start of a page an executable segment takes precedence.
 */
bool elf_file_svma_of_foff(const struct elf_file *f, u64 foff, u64 *ret_svma)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE);
	bool begins_page = !(foff & (page - 1));

	for (int pass = 0; pass < 4; pass++) {
		bool exec = pass < 2, whole_pages = pass & 1;

		if (pass == 1 && !begins_page)
			continue;
		for (u32 i = 0; i < f->n_segments; i++) {
			const struct elf_segment *s = &f->segments[i];

			if ((!exec || s->flags & PF_X) &&
			    foff_in(s, foff, whole_pages ? page : 0, ret_svma))
				return true;
		}
	}
	return false;
}

int elf_file_minidebuginfo(struct elf_file *f, struct elf_file **ret)
{
	u64 max = ELF_MAX_MINIDEBUGINFO_BYTES;
	struct diag why = {};
	struct buf packed;
	void *image;
	size_t n;
	int r;

	r = elf_file_section(f, ".gnu_debugdata", NULL, &packed);
	if (r < 0)
		return r;
	if (f->max_memory)
		max = MIN(max, f->max_memory);
	r = xz_inflate(packed, max, &image, &n, &why);
	if (r == 0)
		r = open_image(image, n, &why, ret);
	if (r == 0)
		(*ret)->outer = f;
	else if (why.text[0])
		elf_keep_damage(f, ".gnu_debugdata", why.text);
	return r;
}
