/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the place of a thread-local variable that a file exports, as the file's own code does: the
 * file's relocations show which model the compiler chose, the GOT holds the loader's result. System
 * V ABI, "ELF Handling For Thread-Local Storage" (Drepper) and the TLSDESC addenda.
 */
#include <elf.h>
#include <errno.h>
#include <gelf.h>
#include <string.h>

#include "agent/context/internal.h"
#include "agent/runtime/runtime.h"
#include "proc/proc.h"

#ifdef __x86_64__
#define R_TLSDESC R_X86_64_TLSDESC
#define R_DTPMOD R_X86_64_DTPMOD64
#define R_DTPOFF R_X86_64_DTPOFF64
#define R_TPOFF R_X86_64_TPOFF64
#else
#define R_TLSDESC R_AARCH64_TLSDESC
#define R_DTPMOD R_AARCH64_TLS_DTPMOD
#define R_DTPOFF R_AARCH64_TLS_DTPREL
#define R_TPOFF R_AARCH64_TLS_TPREL
#endif

/* Bounds on what a hostile file can make the agent read. */
#define MAX_CHAIN 4096
#define MAX_DYNAMIC 1024
#define MAX_RELOCATIONS (1u << 22)
/* A module's number and an offset in its block; real ones are far below. */
#define MAX_MODULES 65536
#define MAX_BLOCK_BYTES (1ULL << 31)
/* The range of addresses that code can have. */
#define RESOLVER_LEAST 4096ULL
#define RESOLVER_MOST (1ULL << 56)

/* ---- the symbol ---- */

struct gnu_hash {
	u32 n_buckets, first_symbol, n_bloom, bloom_shift;
};

struct symbols {
	struct elf_file *elf;
	struct elf_section hash, syms, strings;
};

static bool copy_bytes(struct elf_file *elf, const struct elf_section *s, u64 at, void *ret,
		       size_t n)
{
	return at <= s->size && n <= s->size - at &&
	       elf_file_copy(elf, s->svma + at, n, ret) == (ssize_t)n;
}

static bool symbol_is(const struct symbols *s, u64 index, const char *name, Elf64_Sym *ret)
{
	size_t n = strlen(name) + 1;
	char text[128];

	return n <= sizeof(text) &&
	       copy_bytes(s->elf, &s->syms, index * sizeof(*ret), ret, sizeof(*ret)) &&
	       copy_bytes(s->elf, &s->strings, ret->st_name, text, n) && !memcmp(text, name, n);
}

static u32 gnu_hash_of(const char *name)
{
	u32 h = 5381;

	for (; *name; name++)
		h = h * 33 + (u8)*name;
	return h;
}

/* Finds a symbol by a few small reads, whatever the file's size. -ENOENT. */
static int find_symbol(struct symbols *s, const char *name, u64 *ret_index, Elf64_Sym *ret)
{
	u32 h = gnu_hash_of(name), bucket, word;
	struct gnu_hash head;
	u64 bloom, buckets;

	if (!copy_bytes(s->elf, &s->hash, 0, &head, sizeof(head)) || !head.n_buckets ||
	    !head.n_bloom)
		return -ENOENT;
	if (!copy_bytes(s->elf, &s->hash, sizeof(head) + h / 64 % head.n_bloom * sizeof(bloom),
			&bloom, sizeof(bloom)) ||
	    !(bloom >> (h & 63) & 1) || !(bloom >> (h >> (head.bloom_shift & 31) & 63) & 1))
		return -ENOENT;
	buckets = sizeof(head) + (u64)head.n_bloom * sizeof(bloom);
	if (!copy_bytes(s->elf, &s->hash, buckets + (u64)(h % head.n_buckets) * 4, &bucket, 4) ||
	    bucket < head.first_symbol)
		return -ENOENT;
	for (u64 i = bucket; i - bucket < MAX_CHAIN; i++) {
		u64 at = buckets + (u64)head.n_buckets * 4 + (i - head.first_symbol) * 4;

		if (!copy_bytes(s->elf, &s->hash, at, &word, 4))
			return -ENOENT;
		if ((word | 1) == (h | 1) && symbol_is(s, i, name, ret)) {
			*ret_index = i;
			return ret->st_shndx == SHN_UNDEF ? -ENOENT : 0;
		}
		if (word & 1)
			break;
	}
	return -ENOENT;
}

static int open_symbols(struct elf_file *elf, struct symbols *ret)
{
	ret->elf = elf;
	if (elf_file_section(elf, ".gnu.hash", &ret->hash, NULL) < 0 ||
	    elf_file_section(elf, ".dynsym", &ret->syms, NULL) < 0 ||
	    elf_file_section(elf, ".dynstr", &ret->strings, NULL) < 0)
		return -ENOENT;
	return 0;
}

int tls_find_plain(struct elf_file *elf, const char *name, u64 *ret_svma)
{
	struct symbols s;
	Elf64_Sym sym;
	u64 index;
	int r = open_symbols(elf, &s);

	if (r == 0)
		r = find_symbol(&s, name, &index, &sym);
	if (r < 0 || ELF64_ST_TYPE(sym.st_info) != STT_OBJECT)
		return -ENOENT;
	*ret_svma = sym.st_value;
	return 0;
}

/* ---- the TLS model ---- */

static u64 round_up(u64 n, u64 align)
{
	return align > 1 ? (n + align - 1) / align * align : n;
}

static bool find_segment(struct elf_file *elf, GElf_Phdr *ret)
{
	size_t n = 0;

	if (elf_getphdrnum(elf->elf, &n) < 0)
		return false;
	for (size_t i = 0; i < MIN(n, (size_t)ELF_MAX_SEGMENTS); i++)
		if (gelf_getphdr(elf->elf, (int)i, ret) && ret->p_type == PT_TLS)
			return true;
	return false;
}

static bool is_executable(struct elf_file *elf)
{
	struct elf_section s;
	Elf64_Dyn d;

	if (elf->type == ET_EXEC)
		return true;
	if (elf_file_section(elf, ".dynamic", &s, NULL) < 0)
		return false;
	for (u64 at = 0; at < MAX_DYNAMIC * sizeof(d) && copy_bytes(elf, &s, at, &d, sizeof(d));
	     at += sizeof(d))
		if (d.d_tag == DT_FLAGS_1)
			return d.d_un.d_val & DF_1_PIE;
	return false;
}

/* The block of an executable is at an offset that the linker knows. */
static int find_fixed(struct elf_file *elf, const GElf_Phdr *tls, u64 value,
		      struct tls_variable *ret)
{
	if (!is_executable(elf) || tls->p_memsz > MAX_BLOCK_BYTES || tls->p_align > MAX_BLOCK_BYTES)
		return -ENOENT;
	ret->model = TLS_FIXED;
#ifdef __x86_64__
	ret->offset = (s64)value - (s64)round_up(tls->p_memsz, tls->p_align);
#else
	ret->offset = (s64)(round_up(16, tls->p_align) + value);
#endif
	return 0;
}

/* Reads the model from one relocation. False: the relocation does not concern the variable. */
static bool read_relocation(const Elf64_Rela *e, u64 index, u64 value, struct tls_variable *ret)
{
	u64 of = ELF64_R_SYM(e->r_info), type = ELF64_R_TYPE(e->r_info);
	/* A relocation of a local symbol has the symbol's value instead of its index. */
	bool ours = of == index || (!of && (u64)e->r_addend == value);

	ret->got = e->r_offset;
	if (type == R_TLSDESC && ours)
		ret->model = TLS_DESCRIPTOR;
	else if (type == R_TPOFF && ours)
		ret->model = TLS_OFFSET;
	else if (type == R_DTPMOD && of == index)
		ret->model = TLS_MODULE;
	else if (type == R_DTPMOD && !of)
		ret->model = TLS_MODULE_SELF;
	else
		return false;
	return true;
}

static int find_relocation(struct elf_file *elf, const char *section, u64 index, u64 value,
			   struct tls_variable *ret)
{
	struct tls_variable v = {.value = value}, self = {};
	struct elf_section s;
	Elf64_Rela e[128];
	bool have_self = false;

	if (elf_file_section(elf, section, &s, NULL) < 0)
		return -ENOENT;
	for (u64 at = 0; at + sizeof(e[0]) <= s.size && at / sizeof(e[0]) < MAX_RELOCATIONS;) {
		ssize_t got = elf_file_copy(elf, s.svma + at, MIN(sizeof(e), s.size - at), e);

		for (ssize_t i = 0; i < got / (ssize_t)sizeof(e[0]); i++) {
			if (!read_relocation(&e[i], index, value, &v))
				continue;
			if (v.model != TLS_MODULE_SELF) {
				*ret = v;
				return 0;
			}
			self = v;
			have_self = true;
		}
		if (got < (ssize_t)sizeof(e[0]))
			break;
		at += (u64)got / sizeof(e[0]) * sizeof(e[0]);
	}
	if (have_self)
		*ret = self;
	return have_self ? 0 : -ENOENT;
}

static bool find_foff(const struct elf_file *elf, u64 svma, u64 *ret)
{
	for (u32 i = 0; i < elf->n_segments; i++) {
		const struct elf_segment *s = &elf->segments[i];

		if (svma < s->svma || svma - s->svma >= s->filesz)
			continue;
		*ret = s->foff + (svma - s->svma);
		return true;
	}
	return false;
}

int tls_find(struct elf_file *elf, const char *name, struct tls_variable *ret)
{
	struct tls_variable v = {};
	struct symbols s;
	GElf_Phdr tls;
	Elf64_Sym sym;
	u64 index;
	int r;

	if (!find_segment(elf, &tls) || open_symbols(elf, &s) < 0)
		return -ENOENT;
	r = find_symbol(&s, name, &index, &sym);
	if (r < 0 || ELF64_ST_TYPE(sym.st_info) != STT_TLS || sym.st_value > MAX_BLOCK_BYTES)
		return -ENOENT;
	r = find_relocation(elf, ".rela.dyn", index, sym.st_value, &v);
	if (r < 0)
		r = find_relocation(elf, ".rela.plt", index, sym.st_value, &v);
	if (r < 0)
		r = find_fixed(elf, &tls, sym.st_value, &v);
	if (r == 0 && v.model != TLS_FIXED && !find_foff(elf, v.got, &v.got_foff))
		r = -ENOENT;
	if (r == 0)
		*ret = v;
	return r;
}

/* ---- in a process ---- */

struct place {
	u64 avma, foff;
};

static int is_place(void *arg, const struct proc_mapping *m)
{
	const struct place *p = arg;

	if (p->avma >= m->end)
		return 0;
	return p->avma >= m->start && m->offset + (p->avma - m->start) == p->foff ? 1 : -ENOENT;
}

/*
 * Checks that the segment is mapped at its address: the loader first maps the whole file from its
 * start, then each segment.
 */
static bool is_mapped(u32 pid, u64 avma, u64 foff)
{
	struct place p = {avma, foff};

	return proc_maps_read(pid, PROC_MAPS_ALL, is_place, &p) == 1;
}

static int in_block(u64 module, u64 offset, struct context_tls *ret)
{
	if (!module || module > MAX_MODULES || offset > MAX_BLOCK_BYTES)
		return -EAGAIN;
	*ret = (struct context_tls){CONTEXT_TLS_DTV, (u32)module, (s64)offset};
	return 0;
}

static int at_distance(s64 offset, struct context_tls *ret)
{
	if (offset < -(s64)MAX_BLOCK_BYTES || offset > (s64)MAX_BLOCK_BYTES)
		return -EAGAIN;
	*ret = (struct context_tls){.how = CONTEXT_TLS_STATIC, .offset = offset};
	return 0;
}

/*
 * The GOT holds a resolver and its argument, an offset or a pointer. While the loader maps the
 * file, these words are other bytes of the file, neither of which is valid: too early.
 */
static int by_descriptor(const struct runtime_memory *m, const u64 got[2], struct context_tls *ret)
{
	u64 pair[2];

	if (got[0] < RESOLVER_LEAST || got[0] > RESOLVER_MOST)
		return -EAGAIN;
#ifdef __x86_64__
	if ((s64)got[1] <= 0) {
#else
	if (got[1] <= UINT32_MAX) {
#endif
		return at_distance((s64)got[1], ret);
	}
	return runtime_read(m, got[1], pair, sizeof(pair)) < 0 ? -EAGAIN
							       : in_block(pair[0], pair[1], ret);
}

int tls_locate(const struct tls_variable *v, u32 pid, u64 bias, struct context_tls *ret)
{
	struct runtime_memory m = {pid};
	u64 got[2] = {};
	size_t n = v->model == TLS_DESCRIPTOR || v->model == TLS_MODULE ? 16 : 8;

	if (v->model == TLS_FIXED)
		return at_distance(v->offset, ret);
	if (!is_mapped(pid, v->got + bias, v->got_foff) ||
	    runtime_read(&m, v->got + bias, got, n) < 0)
		return -EAGAIN;
	switch (v->model) {
	case TLS_DESCRIPTOR:
		return by_descriptor(&m, got, ret);
	case TLS_MODULE:
		return in_block(got[0], got[1], ret);
	case TLS_MODULE_SELF:
		return in_block(got[0], v->value, ret);
	default:
		return got[0] ? at_distance((s64)got[0], ret) : -EAGAIN;
	}
}

void tls_describe_libc(const struct procman_process *p, struct context_process *ret)
{
	bool musl = false;

	/* In musl, libc and the loader are one file. glibc's programs do not map musl's. */
	for (u32 i = 0; i < p->n && !musl; i++)
		musl = strstr(p->mappings[i].binary->path, "/ld-musl-") ||
		       strstr(p->mappings[i].binary->path, "/libc.musl-") ||
		       strstr(p->mappings[i].binary->path, "/musl/lib/libc.so") ||
		       strstr(p->mappings[i].binary->path, "-linux-musl/libc.so");
#ifdef __x86_64__
	ret->dtv_at = 8;
#else
	ret->dtv_at = musl ? -8 : 0;
#endif
	ret->dtv_slot = musl ? 8 : 16;
	ret->dtv_before = musl ? 0 : 16;
}
