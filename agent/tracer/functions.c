/* SPDX-License-Identifier: Apache-2.0 */
/* The functions and USDT probes of an ELF file, by their names. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/tracer/internal.h"
#include "base/cleanup.h"
#include "disasm/disasm.h"
#include "elf/elf.h"
#include "runtime/go/go.h"
#include "symbol/debugfile.h"

#define MAX_SYMBOLS (1u << 21)
/* A function that is larger is not decoded up to an address inside of it. */
#define MAX_DECODED (1u << 20)
#define MAX_NAME 4096

/* Go 1.17 on amd64, 1.18 on arm64: register-based calls (Go's release notes). */
static bool has_go_registers(const char *version, u16 machine)
{
	u32 major = 0, minor = 0;

	if (sscanf(version, "go%u.%u", &major, &minor) < 2 &&
	    sscanf(version, "%u.%u", &major, &minor) < 2)
		return false;
	return major > 1 || minor >= (machine == EM_AARCH64 ? 18 : 17);
}

int tracer_file_open(const char *path, struct diag *reterr_diag, struct tracer_file **ret)
{
	struct tracer_file *f = calloc(1, sizeof(*f));
	struct diag why = {};
	char version[64];
	int fd, r;

	if (!f)
		return -ENOMEM;
	f->path = strdup(path);
	fd = f->path ? debugfile_open_path(-1, path) : -ENOMEM;
	r = fd < 0 ? fd : elf_file_open(fd, &why, &f->elf);
	if (r < 0) {
		tracer_file_destroy(f);
		return diag_set(reterr_diag, r, "cannot read '%s': %s", path,
				why.text[0] ? why.text : strerror(-r));
	}
	f->is_go = go_version(f->elf, version, sizeof(version));
	f->has_go_registers = f->is_go && has_go_registers(version, f->elf->machine);
	*ret = f;
	return 0;
}

void tracer_file_destroy(struct tracer_file *f)
{
	if (!f)
		return;
	vec_deinit(&f->functions);
	vec_deinit(&f->usdt);
	tracer_file_forget_signatures(f);
	elf_file_destroy(f->mini);
	elf_file_destroy(f->debug);
	elf_file_destroy(f->elf);
	free(f->path);
	free(f);
}

int tracer_file_offset(const struct tracer_file *f, u64 svma, u64 *ret_foff)
{
	for (u32 i = 0; i < f->elf->n_segments; i++) {
		const struct elf_segment *s = &f->elf->segments[i];

		if (s->flags & PF_X && svma >= s->svma && svma - s->svma < s->filesz) {
			*ret_foff = s->foff + (svma - s->svma);
			return 0;
		}
	}
	return -EINVAL;
}

/* ---- functions ---- */

/* Calls fn for each symbol that is defined in the file. Another value than 0 ends it. */
static int each_symbol(struct elf_file *elf, const char *section, const char *strings,
		       int (*fn)(void *arg, const char *name, const Elf64_Sym *s), void *arg)
{
	struct buf symbols, names;
	Elf64_Sym s;
	int r = 0;

	if (elf_file_section(elf, section, NULL, &symbols) < 0 ||
	    elf_file_section(elf, strings, NULL, &names) < 0)
		return 0;
	for (u32 i = 0; i < MAX_SYMBOLS && buf_left(&symbols) >= sizeof(s) && r == 0; i++) {
		struct buf name = names;
		const char *text;

		memcpy(&s, symbols.pos, sizeof(s));
		(void)buf_skip(&symbols, sizeof(s));
		if (s.st_shndx != SHN_UNDEF && buf_skip(&name, s.st_name) &&
		    buf_cstr(&name, &text) && *text && strlen(text) <= MAX_NAME)
			r = fn(arg, text, &s);
	}
	return r;
}

static int add_function(void *arg, const char *name, const Elf64_Sym *s)
{
	struct tracer_file *f = arg;
	u8 type = ELF64_ST_TYPE(s->st_info);
	u64 foff;

	if ((type != STT_FUNC && type != STT_GNU_IFUNC) ||
	    tracer_file_offset(f, s->st_value, &foff) < 0)
		return 0;
	return vec_push(&f->functions,
			(struct tracer_function){.name = name,
						 .svma = s->st_value,
						 .size = s->st_size,
						 .is_indirect = type == STT_GNU_IFUNC});
}

static int add_functions(struct tracer_file *f, struct elf_file *elf, const char *section,
			 const char *strings)
{
	return each_symbol(elf, section, strings, add_function, f);
}

struct wanted {
	const char *name;
	u64 svma;
};

static int compare_symbol(void *arg, const char *name, const Elf64_Sym *s)
{
	struct wanted *w = arg;

	if (strcmp(name, w->name) != 0 || ELF64_ST_TYPE(s->st_info) > STT_FUNC)
		return 0;
	w->svma = s->st_value;
	return 1;
}

int tracer_file_symbol(struct tracer_file *f, const char *name, u64 *ret)
{
	struct wanted w = {.name = name};

	if (each_symbol(f->elf, ".symtab", ".strtab", compare_symbol, &w) == 0 &&
	    each_symbol(f->elf, ".dynsym", ".dynstr", compare_symbol, &w) == 0)
		return -ENOENT;
	*ret = w.svma;
	return 0;
}

static int compare_functions(const void *a, const void *b)
{
	const struct tracer_function *x = a, *y = b;
	int r = strcmp(x->name, y->name);

	if (r != 0)
		return r;
	return x->svma < y->svma ? -1 : x->svma > y->svma;
}

/* Removes what several tables have. */
static void remove_doubles(struct tracer_file *f)
{
	size_t n = 0;

	for (size_t i = 0; i < f->functions.n; i++) {
		struct tracer_function *p = &f->functions.data[i];

		if (n && compare_functions(p, &f->functions.data[n - 1]) == 0)
			continue;
		f->functions.data[n++] = *p;
	}
	f->functions.n = n;
}

int tracer_file_functions(struct tracer_file *f, struct diag *reterr_diag)
{
	const struct debugfile_place place = {.root_fd = -1, .path = f->path};
	int r;

	if (f->has_functions)
		return 0;
	r = add_functions(f, f->elf, ".dynsym", ".dynstr");
	if (r == 0)
		r = add_functions(f, f->elf, ".symtab", ".strtab");
	if (r == 0 && elf_file_section(f->elf, ".symtab", NULL, NULL) < 0) {
		if (elf_file_minidebuginfo(f->elf, &f->mini) == 0)
			r = add_functions(f, f->mini, ".symtab", ".strtab");
		if (r == 0 && debugfile_find(f->elf, &place, &f->debug, NULL) == 0)
			r = add_functions(f, f->debug, ".symtab", ".strtab");
	}
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot read the functions of '%s': %s", f->path,
				strerror(-r));
	if (f->functions.n)
		qsort(f->functions.data, f->functions.n, sizeof(*f->functions.data),
		      compare_functions);
	remove_doubles(f);
	f->has_functions = true;
	return 0;
}

const struct tracer_function *tracer_file_function(const struct tracer_file *f, const char *name)
{
	size_t low = 0, high = f->functions.n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(f->functions.data[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == f->functions.n || strcmp(f->functions.data[low].name, name) != 0)
		return NULL;
	return &f->functions.data[low];
}

const struct tracer_function *tracer_file_at(const struct tracer_file *f, u64 svma)
{
	const struct tracer_function *best = NULL;

	vec_foreach (&f->functions, p)
		if (svma >= p->svma && svma - p->svma < MAX(p->size, 1u) &&
		    (!best || p->svma > best->svma))
			best = p;
	return best;
}

int tracer_file_check(const struct tracer_file *f, const struct tracer_function *fn, u64 svma,
		      struct diag *reterr_diag)
{
	_cleanup_disasm_ struct disasm *d = NULL;
	_cleanup_free_ u8 *code = NULL;
	u64 at = fn->svma, bytes = svma - fn->svma + DISASM_MAX_INSN;
	struct disasm_insn insn;
	struct buf b;
	ssize_t n;
	int r;

	if (svma == fn->svma)
		return 0;
	if (svma < fn->svma || svma - fn->svma >= fn->size)
		return diag_set(reterr_diag, -EINVAL, "%s has %llu bytes: the probe is behind it",
				fn->name, fn->size);
	if (bytes > MAX_DECODED)
		return diag_set(reterr_diag, -E2BIG,
				"%s is too large to check where its "
				"instructions begin",
				fn->name);
	code = malloc(bytes);
	r = code ? disasm_create(f->elf->machine, &d) : -ENOMEM;
	if (r < 0)
		return r;
	n = elf_file_copy(f->elf, fn->svma, bytes, code);
	b = buf_of(code, n > 0 ? (size_t)n : 0);
	while (at < svma && disasm_one(d, b, at, &insn) && insn.length) {
		at += insn.length;
		(void)buf_skip(&b, insn.length);
	}
	if (at == svma)
		return 0;
	return diag_set(reterr_diag, -EINVAL,
			"no instruction begins at %s+%llu: a probe there would damage the program; "
			"the next one begins at +%llu",
			fn->name, svma - fn->svma, at - fn->svma);
}

/* ---- USDT ---- */

int tracer_file_usdt(struct tracer_file *f, struct diag *reterr_diag)
{
	struct elf_section base = {};
	struct buf notes;
	usdt_probes probes = {};
	int r;

	if (f->has_usdt)
		return 0;
	r = elf_file_section(f->elf, ".note.stapsdt", NULL, &notes);
	if (r == -ENOENT) {
		f->has_usdt = true;
		return 0;
	}
	if (r == 0) {
		(void)elf_file_section(f->elf, ".stapsdt.base", &base, NULL);
		r = usdt_parse(notes, base.svma, &probes);
		f->usdt = probes;
	}
	if (r == -EINVAL && !f->usdt.n)
		(void)elf_file_damaged(f->elf, ".note.stapsdt", 0, "the notes are damaged");
	else if (r == -EINVAL)
		r = 0;
	f->has_usdt = r == 0;
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot read the USDT probes of '%s': %s", f->path,
				strerror(-r));
	return 0;
}
