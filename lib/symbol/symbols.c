/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names the addresses of one ELF file from the best source that has a name:
 *
 *	answers	      of earlier lookups, in this run or (by build-id) an earlier one
 *	.gopclntab    Go's own code
 *	DWARF	      of the file, or of its debug file: names, lines, inlined calls
 *	symbols	      .symtab, else that of the debug file, else .gnu_debugdata and .dynsym
 *	PLT	      NAME@plt
 *
 * symbols_open() reads only headers, to find out which sources exist: they are part of the cache's
 * key. Everything else is read when the first address needs it, through an ELF handle that this
 * module owns, so that symbols_trim() can free all of it and keep the answers.
 */
#include "symbol/symbol.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/map.h"
#include "base/str.h"
#include "base/text.h"
#include "runtime/go/lines.h"
#include "symbol/answers.h"
#include "symbol/debugfile.h"
#include "symbol/dwarf.h"
#include "symbol/symtab.h"

/* Part of the cache's key: increment it when answers change. */
#define RESOLVER_VERSION 1
#define DWARF_BUDGET (256U << 20)

struct symbols {
	struct elf_file *elf; /* borrowed */
	struct elf_file *own; /* owned: the same file through another handle; NULL if in memory */
	bool inlines, lines;
	u64 max_section;
	char *cache_dir, *path, *urls; /* owned, or NULL */
	int root_fd;		       /* owned, or -1 */
	const char *from;
	/* Sources, opened at symbols_open() or when needed again. */
	bool sources_open;
	struct elf_file *debug; /* owned, or NULL */
	char *debug_path;	/* owned, or NULL */
	struct elf_file *mini;	/* owned, or NULL */
	bool tables_read;
	struct go_lines *go;
	struct symtab tab;
	bool dwarf_tried;
	struct dwarf *dwarf;
	struct answers answers;
	struct map demangled; /* system name's id in the pool → name's id */
	char *cache_name;     /* owned, NULL = no disk cache */
	u64 cache_key;
	u64 n_read;
};

DEFINE_CLEANUP(symbols, struct symbols *, symbols_destroy)

/* The handle through which sections are read. */
static struct elf_file *handle_of(const struct symbols *s)
{
	return s->own ? s->own : s->elf;
}

static struct debugfile_place place_of(const struct symbols *s)
{
	return (struct debugfile_place){
		.root_fd = s->root_fd, .path = s->path, .debuginfod_urls = s->urls};
}

static bool has_section(struct elf_file *f, const char *name)
{
	struct elf_section info;

	return f && elf_file_section(f, name, &info, NULL) == 0 && info.type != SHT_NOBITS &&
	       info.size;
}

static bool has_dwarf(struct elf_file *f)
{
	return has_section(f, ".debug_info");
}

/* ---- the sources ---- */

static void close_sources(struct symbols *s)
{
	/* Tables point into the files: close them first. */
	dwarf_close(s->dwarf);
	go_lines_close(s->go);
	symtab_deinit(&s->tab);
	s->dwarf = NULL;
	s->go = NULL;
	s->dwarf_tried = s->tables_read = s->sources_open = false;
	elf_file_destroy(s->debug);
	elf_file_destroy(s->mini);
	elf_file_destroy(s->own);
	s->debug = s->mini = s->own = NULL;
	free(s->debug_path);
	s->debug_path = NULL;
}

static int open_sources(struct symbols *s)
{
	struct debugfile_place place = place_of(s);
	int r;

	if (s->sources_open)
		return 0;
	if (s->elf->fd >= 0) {
		int fd = fcntl(s->elf->fd, F_DUPFD_CLOEXEC, 0);

		if (fd < 0)
			return -errno;
		r = elf_file_open(fd, NULL, &s->own);
		if (r < 0)
			return r;
	}
	s->sources_open = true;
	/* A file with both needs no debug file. Go's table describes all Go code. */
	if (!has_dwarf(handle_of(s)) || !has_section(handle_of(s), ".symtab"))
		(void)debugfile_find(handle_of(s), &place, &s->debug, &s->debug_path);
	if (s->own)
		s->own->max_memory = s->max_section;
	if (s->debug)
		s->debug->max_memory = s->max_section;
	return 0;
}

static const char *best_source(struct symbols *s)
{
	if (has_section(handle_of(s), ".gopclntab") ||
	    has_section(handle_of(s), ".data.rel.ro.gopclntab"))
		return ".gopclntab";
	if (has_dwarf(handle_of(s)))
		return ".debug_info";
	if (s->debug)
		return "debug file";
	if (has_section(handle_of(s), ".symtab"))
		return ".symtab";
	if (has_section(handle_of(s), ".gnu_debugdata"))
		return ".gnu_debugdata";
	return has_section(handle_of(s), ".dynsym") ? ".dynsym" : "nothing";
}

static void key_of_file(struct str *key, const char *path, const struct elf_file *f)
{
	struct stat st;

	if (f->fd >= 0 && fstat(f->fd, &st) == 0)
		str_printf(key, "|%s %llu %lld.%ld", path ? path : "", (unsigned long long)f->size,
			   (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

/*
 * Hashes everything that answers depend on, except the file's content, which its build-id
 * identifies.
 */
static int make_cache_key(struct symbols *s)
{
	struct debugfile_place place = place_of(s);
	char name[2 * ELF_MAX_BUILD_ID + 8];
	struct elf_file *other;
	struct str key = {};
	size_t n = 0;

	str_printf(&key, "%d %d %d", RESOLVER_VERSION, s->inlines, s->lines);
	/*
	 * Files with equal build-ids may differ: strip and objcopy keep the build-id, and so does
	 * damage. Packages keep modification times, so that copies still share a cache entry.
	 */
	key_of_file(&key, "file", handle_of(s));
	str_printf(&key, " %d%d%d", has_dwarf(handle_of(s)), has_section(handle_of(s), ".symtab"),
		   has_section(handle_of(s), ".gnu_debugdata"));
	if (s->debug)
		key_of_file(&key, s->debug_path, s->debug);
	if (debugfile_alt(s->debug ? s->debug : handle_of(s), &place,
			  s->debug ? s->debug_path : s->path, &other) == 0) {
		key_of_file(&key, "alt", other);
		elf_file_destroy(other);
	}
	if (debugfile_dwp(&place, s->path, &other) == 0) {
		key_of_file(&key, "dwp", other);
		elf_file_destroy(other);
	}
	if (key.failed) {
		str_deinit(&key);
		return -ENOMEM;
	}
	s->cache_key = hash_bytes(key.data, key.n);
	str_deinit(&key);
	text_hex(s->elf->build_id, s->elf->build_id_n, name + n);
	n += 2 * s->elf->build_id_n;
	snprintf(name + n, sizeof(name) - n, "-%d%d", s->inlines, s->lines);
	s->cache_name = strdup(name);
	return s->cache_name ? 0 : -ENOMEM;
}

static int copy_option(const char *from, char **ret)
{
	if (!from)
		return 0;
	*ret = strdup(from);
	return *ret ? 0 : -ENOMEM;
}

int symbols_open(struct elf_file *elf, const struct symbols_options *o, struct symbols **ret)
{
	_cleanup_(symbols) struct symbols *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->elf = elf;
	s->inlines = o->inlines;
	s->lines = o->lines;
	s->max_section = o->max_section;
	s->root_fd = -1;
	r = copy_option(o->cache_dir, &s->cache_dir);
	if (r == 0)
		r = copy_option(o->path, &s->path);
	if (r == 0)
		r = copy_option(o->debuginfod_urls, &s->urls);
	if (r < 0)
		return r;
	if (o->root_fd >= 0) {
		s->root_fd = fcntl(o->root_fd, F_DUPFD_CLOEXEC, 0);
		if (s->root_fd < 0)
			return -errno;
	}
	r = open_sources(s);
	if (r < 0)
		return r;
	s->from = best_source(s);
	if (s->cache_dir && elf->build_id_n >= 4) {
		r = make_cache_key(s);
		if (r < 0)
			return r;
		r = answers_load(&s->answers, s->cache_dir, s->cache_name, s->cache_key);
		if (r == -ENOMEM)
			return r;
	}
	*ret = take_ptr(s);
	return 0;
}

void symbols_skip_cache(struct symbols *s)
{
	free(s->cache_name);
	s->cache_name = NULL;
}

void symbols_destroy(struct symbols *s)
{
	if (!s)
		return;
	if (s->cache_name && s->answers.list.n > s->answers.n_loaded)
		(void)answers_save(&s->answers, s->cache_dir, s->cache_name, s->cache_key);
	close_sources(s);
	answers_deinit(&s->answers);
	map_deinit(&s->demangled);
	cleanup_close(&s->root_fd);
	free(s->cache_dir);
	free(s->path);
	free(s->urls);
	free(s->cache_name);
	free(s);
}

void symbols_trim(struct symbols *s)
{
	close_sources(s);
}

size_t symbols_memory(const struct symbols *s)
{
	const struct elf_file *files[] = {s->own, s->debug, s->mini};
	size_t n = symtab_memory(&s->tab) + (s->dwarf ? dwarf_memory(s->dwarf) : 0);

	if (!s->sources_open)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		n += files[i] ? elf_file_memory(files[i]) : 0;
	/* The handle and its file descriptor count as memory, too. */
	return n + sizeof(*s->own);
}

/* Bytes of a file that may be read; a compressed section counts three times. */
static u64 file_needs(const struct symbols *s, const struct elf_file *f)
{
	return f ? MIN(f->size * 3, s->max_section ? s->max_section : ~0ULL) : 0;
}

u64 symbols_needs(struct symbols *s)
{
	size_t has = symbols_memory(s);
	u64 needs;

	if (open_sources(s) < 0)
		return 0;
	/* Twice: for the sections and for the tables made from them. */
	needs = 2 * (file_needs(s, handle_of(s)) + file_needs(s, s->debug));
	return needs - MIN(needs, (u64)has);
}

size_t symbols_answers_memory(const struct symbols *s)
{
	return answers_memory(&s->answers) + s->demangled.cap * sizeof(struct map_slot);
}

u64 symbols_n_read(const struct symbols *s)
{
	return s->n_read;
}

const char *symbols_from(const struct symbols *s)
{
	return s->from;
}

const char *symbols_damage(const struct symbols *s)
{
	const struct elf_file *f = handle_of(s);

	return f->damage.text[0] || !s->debug ? f->damage.text : s->debug->damage.text;
}

/* ---- reading the sources ---- */

static int read_tables(struct symbols *s)
{
	int r;

	if (s->tables_read)
		return 0;
	r = go_lines_open(handle_of(s), &s->go);
	if (r == -ENOMEM)
		return r;
	r = symtab_add(&s->tab, handle_of(s), false);
	if (r <= 0 && s->debug)
		r = symtab_add(&s->tab, s->debug, false);
	if (r <= 0) {
		if (elf_file_minidebuginfo(handle_of(s), &s->mini) == 0)
			(void)symtab_add(&s->tab, s->mini, false);
		(void)symtab_add(&s->tab, handle_of(s), true);
	}
	s->tables_read = true;
	return symtab_finish(&s->tab);
}

static bool host_is_code(void *arg, u64 svma)
{
	const struct symbols *s = arg;

	for (u32 i = 0; i < s->elf->n_segments; i++) {
		const struct elf_segment *g = &s->elf->segments[i];

		if (g->flags & PF_X && svma >= g->svma && svma - g->svma < g->memsz)
			return svma != 0;
	}
	return false;
}

static int limit_memory(const struct symbols *s, int r, struct elf_file **f)
{
	if (r == 0)
		(*f)->max_memory = s->max_section;
	return r;
}

static int host_open_alt(void *arg, struct elf_file *elf, struct elf_file **ret)
{
	const struct symbols *s = arg;
	struct debugfile_place place = place_of(s);

	return limit_memory(
		s, debugfile_alt(elf, &place, elf == s->debug ? s->debug_path : s->path, ret), ret);
}

static int host_open_dwp(void *arg, struct elf_file **ret)
{
	const struct symbols *s = arg;
	struct debugfile_place place = place_of(s);
	int r = debugfile_dwp(&place, s->path, ret);

	if (r < 0 && s->debug_path)
		r = debugfile_dwp(&place, s->debug_path, ret);
	return limit_memory(s, r, ret);
}

static int host_open_dwo(void *arg, const char *comp_dir, const char *name, struct elf_file **ret)
{
	struct debugfile_place place = place_of(arg);

	return limit_memory(arg, debugfile_dwo(&place, comp_dir, name, ret), ret);
}

static void open_dwarf(struct symbols *s)
{
	struct dwarf_host host = {
		.arg = s,
		.open_alt = host_open_alt,
		.open_dwp = host_open_dwp,
		.open_dwo = host_open_dwo,
		.is_code = host_is_code,
	};

	if (s->dwarf_tried)
		return;
	s->dwarf_tried = true;
	if (has_dwarf(handle_of(s)))
		(void)dwarf_open(handle_of(s), &host, &s->dwarf);
	else if (has_dwarf(s->debug))
		(void)dwarf_open(s->debug, &host, &s->dwarf);
}

/* ---- answering ---- */

/* The demangled name, or the name itself; lives until symbols_destroy(). */
static int display_name(struct symbols *s, const char *system_name, const char **ret,
			const char **ret_system)
{
	const u64 *known;
	char *text;
	u32 id, name;
	int r = strpool_add(&s->answers.pool, system_name, &id);

	if (r < 0)
		return r;
	*ret_system = strpool_get(&s->answers.pool, id);
	known = map_get(&s->demangled, id);
	if (known) {
		*ret = strpool_get(&s->answers.pool, (u32)*known);
		return 0;
	}
	name = id;
	text = symbol_demangle(*ret_system);
	if (text)
		r = strpool_add(&s->answers.pool, text, &name);
	free(text);
	if (r == 0)
		r = map_put(&s->demangled, id, name);
	if (r < 0)
		return r;
	*ret = strpool_get(&s->answers.pool, name);
	return 0;
}

/*
 * gcc emits no linkage name in DWARF for functions that other units cannot see. Their symbol may
 * still be mangled, and then has the parameters in addition to the qualified name.
 */
static const char *better_symbol(const struct symbols *s, const struct dwarf_frame *f)
{
	const struct symtab_entry *e = symtab_find(&s->tab, f->low);
	const char *name = f->name, *end;

	if (!e || !name || e->start != f->low ||
	    (!str_starts(e->name, "_Z") && !str_starts(e->name, "_R")))
		return NULL;
	/* A mangled name has the identifier verbatim, but not template arguments or operators. */
	end = name + strcspn(name, "<");
	for (const char *p = name; p < end; p++)
		if (*p == ':')
			name = p + 1;
	if (end == name || (strncmp(name, "operator", 8) != 0 &&
			    !memmem(e->name, strlen(e->name), name, (size_t)(end - name))))
		return NULL;
	return e->name;
}

static int name_frame(struct symbols *s, const struct dwarf_frame *f, bool outermost, u64 svma,
		      struct symbol_frame *ret)
{
	const char *system_name = f->linkage_name;
	const struct symtab_entry *e;

	*ret = (struct symbol_frame){
		.file = f->file,
		.line = f->line,
		.column = f->column,
		.start_line = f->start_line,
		.inlined = f->inlined,
	};
	if (!system_name && outermost && !f->plain_c)
		system_name = better_symbol(s, f);
	if (f->name && (!system_name || f->plain_c)) {
		/* The name is readable already; glibc's linkage names are aliases. */
		ret->name = f->name;
		ret->system_name = system_name ? system_name : f->name;
		return 0;
	}
	if (!system_name && outermost) {
		e = symtab_find(&s->tab, svma);
		system_name = e ? e->name : NULL;
	}
	if (!system_name)
		return -ENOENT;
	return display_name(s, system_name, &ret->name, &ret->system_name);
}

static int name_chain(struct symbols *s, const struct dwarf_chain *from, u64 svma,
		      struct symbol_chain *ret)
{
	for (u32 i = 0; i < from->n; i++) {
		bool outermost = i + 1 == from->n;
		int r = name_frame(s, &from->frames[i], outermost, svma, &ret->frames[i]);

		if (r == -ENOENT && !outermost)
			ret->frames[i].name = ret->frames[i].system_name = "[inlined]";
		else if (r < 0)
			return r;
	}
	ret->n = from->n;
	return 0;
}

/* Demangles the name of a PLT entry and appends @plt again. */
static int name_plt(struct symbols *s, u64 svma, struct symbol_frame *f)
{
	_cleanup_free_ char *plt = NULL, *text = NULL, *full = NULL;
	const char *unused;
	int r = symtab_plt_name(handle_of(s), svma, &plt);

	if (r == 0)
		r = display_name(s, plt, &f->name, &f->system_name);
	if (r < 0)
		return r;
	plt[strlen(plt) - strlen("@plt")] = 0;
	text = symbol_demangle(plt);
	if (!text)
		return 0;
	if (asprintf(&full, "%s@plt", text) < 0) {
		full = NULL;
		return -ENOMEM;
	}
	return display_name(s, full, &f->name, &unused);
}

static int name_from_symbol(struct symbols *s, u64 svma, struct symbol_chain *ret)
{
	const struct symtab_entry *e = symtab_find(&s->tab, svma);
	struct symbol_frame *f = &ret->frames[0];

	*f = (struct symbol_frame){};
	ret->n = 1;
	if (e) {
		const char *at = strchr(e->name, '@');
		_cleanup_free_ char *bare = NULL;

		/* NAME@VERSION */
		if (at && at != e->name) {
			bare = strndup(e->name, (size_t)(at - e->name));
			if (!bare)
				return -ENOMEM;
		}
		return display_name(s, bare ? bare : e->name, &f->name, &f->system_name);
	}
	return name_plt(s, svma, f);
}

/* Go's table has complete names: they need no demangling. */
static int lookup_go(const struct symbols *s, u64 svma, struct dwarf_chain *ret)
{
	struct go_frame frames[DW_MAX_CHAIN];
	u32 n;
	int r = go_lines_lookup(s->go, svma, s->inlines, s->lines, DW_MAX_CHAIN, frames, &n);

	if (r < 0)
		return r;
	for (u32 i = 0; i < n; i++)
		ret->frames[i] = (struct dwarf_frame){
			.name = frames[i].name,
			.file = frames[i].file,
			.line = frames[i].line,
			.start_line = frames[i].start_line,
			.low = frames[i].low,
			.inlined = frames[i].inlined,
			.plain_c = true,
		};
	ret->n = n;
	return 0;
}

static int resolve(struct symbols *s, u64 svma, struct symbol_chain *ret, bool *ret_incomplete)
{
	_cleanup_free_ struct dwarf_chain *raw = NULL;
	int r;

	if (!host_is_code(s, svma))
		return -ENOENT;
	s->n_read++;
	r = open_sources(s);
	if (r == 0)
		r = read_tables(s);
	if (r < 0)
		return r;
	raw = malloc(sizeof(*raw));
	if (!raw)
		return -ENOMEM;
	raw->incomplete = false;
	r = s->go ? lookup_go(s, svma, raw) : -ENOENT;
	if (r == -ENODATA)
		return -ENOENT;
	if (r < 0 && (s->inlines || s->lines)) {
		open_dwarf(s);
		if (s->dwarf)
			r = dwarf_lookup(s->dwarf, svma, s->inlines, s->lines, raw);
	}
	if (r == 0)
		r = name_chain(s, raw, svma, ret);
	*ret_incomplete = s->dwarf && raw->incomplete;
	return r == 0 || r == -ENOMEM ? r : name_from_symbol(s, svma, ret);
}

int symbols_recall(const struct symbols *s, u64 svma, struct symbol_chain *ret)
{
	return svma >= MAP_GONE_KEY ? -ENOENT : answers_get(&s->answers, svma, ret);
}

int symbols_lookup(struct symbols *s, u64 svma, struct symbol_chain *ret)
{
	_cleanup_free_ struct symbol_chain *chain = NULL;
	bool incomplete = false;
	int r, put;

	if (svma >= MAP_GONE_KEY)
		return -ENOENT;
	r = answers_get(&s->answers, svma, ret);
	if (r != -EAGAIN)
		return r;
	chain = malloc(sizeof(*chain));
	if (!chain)
		return -ENOMEM;
	r = resolve(s, svma, chain, &incomplete);
	/* Remember only answers, not failures such as a lack of memory or a missing file. */
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == -ENOENT)
		chain->n = 0;
	put = answers_put(&s->answers, svma, chain, incomplete);
	if (s->dwarf && dwarf_memory(s->dwarf) > (s->max_section ? s->max_section : DWARF_BUDGET)) {
		dwarf_close(s->dwarf);
		s->dwarf = NULL;
		s->dwarf_tried = false;
	}
	return put < 0 ? put : answers_get(&s->answers, svma, ret);
}
