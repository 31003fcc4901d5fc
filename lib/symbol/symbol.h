/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, files, lines and inline chains of addresses.
 *
 * struct symbols resolves addresses of one ELF file from all sources on the machine: .symtab,
 * .dynsym, .gnu_debugdata, the debug file (by build-id or .gnu_debuglink), DWARF 2 to 5 (split,
 * dwz), Go's .gopclntab. It reads only the parts that a lookup needs, and caches answers on disk by
 * build-id. struct kallsyms, struct perf_map and struct jitdump are the sources that are not ELF
 * files.
 *
 * Objects here have no lock: one thread at a time may use each. Functions return 0 or a negative
 * errno; _destroy() accepts NULL.
 */
#pragma once

#include "base/types.h"
#include "elf/elf.h"

#define SYMBOL_MAX_CHAIN 64

/* One function at an address. Strings are borrowed until the symbols are destroyed. */
struct symbol_frame {
	const char *name;	 /* demangled, never NULL */
	const char *system_name; /* as in the file; the same pointer as `name` if not mangled */
	const char *file;	 /* or NULL */
	u32 line;		 /* 0 = not known */
	u32 column;
	u32 start_line;
	bool inlined; /* into the next frame of the chain */
};

struct symbol_chain {
	struct symbol_frame frames[SYMBOL_MAX_CHAIN]; /* innermost first */
	u32 n;
};

struct symbols_options {
	bool inlines;
	bool lines;
	const char *cache_dir; /* or NULL: no disk cache */
	int root_fd;	       /* borrowed: root of the file's mount namespace; -1 = culprit's */
	const char *path;      /* of the file below root_fd, for .gnu_debuglink; or NULL */
	const char *debuginfod_urls; /* or NULL: none */
	u64 max_section;	     /* larger sections are not read; 0: no limit */
};

struct symbols;

/* `elf` is borrowed until symbols_destroy(). Strings are copied, root_fd is duplicated. -ENOMEM. */
int symbols_open(struct elf_file *elf, const struct symbols_options *o, struct symbols **ret);
/* Writes new answers to the disk cache, unless symbols_skip_cache() was called. */
void symbols_destroy(struct symbols *s);
/*
 * Call it if answers are not trustworthy or not worth keeping: symbols_destroy() will not write
 * them.
 */
void symbols_skip_cache(struct symbols *s);
/* Resolves an address. 0 and a chain of at least one frame; -ENOENT when no source has a name. */
int symbols_lookup(struct symbols *s, u64 svma, struct symbol_chain *ret);
/* As symbols_lookup(), from known answers only. -EAGAIN: the files would have to be read. */
int symbols_recall(const struct symbols *s, u64 svma, struct symbol_chain *ret);
/* Estimates how many additional bytes of memory a lookup may need. */
u64 symbols_needs(struct symbols *s);
/* Frees what can be read again (sections, tables, file descriptors) and keeps the answers. */
void symbols_trim(struct symbols *s);
/* Bytes that symbols_trim() would free, and bytes of the answers. */
size_t symbols_memory(const struct symbols *s);
size_t symbols_answers_memory(const struct symbols *s);
/* Number of lookups that had to read the sources. */
u64 symbols_n_read(const struct symbols *s);
/*
 * The source of the names, for doctor and reports: static text such as ".symtab" or "debug file".
 */
const char *symbols_from(const struct symbols *s);

/*
 * What is damaged in the file or its debug file, of what lookups have read since symbols_trim():
 * "SECTION: TEXT at offset 0x…", or "". Borrowed until then.
 */
const char *symbols_damage(const struct symbols *s);

/* Demangles C++, Rust (both manglings) and D. Returns malloc'ed text, or NULL if not mangled. */
char *symbol_demangle(const char *name);

/* /proc/kallsyms with modules and BPF programs, or a file of the same format. */
struct kallsyms;
/* -EPERM: the file shows no addresses; other errors of reading it. */
int kallsyms_open(const char *path, struct kallsyms **ret);
/*
 * The kernel's own symbols, which never change (NULL: they are not wanted), and those of modules
 * and BPF programs, which do and of which there may be none.
 */
int kallsyms_open_parts(const char *path, struct kallsyms **ret_kernel,
			struct kallsyms **ret_loaded);
void kallsyms_destroy(struct kallsyms *k);
/* Bytes of memory; NULL has none. */
size_t kallsyms_memory(const struct kallsyms *k);
/*
 * Name and module ("" = the kernel itself, "bpf" = a program), borrowed until kallsyms_destroy().
 * -ENOENT.
 */
int kallsyms_lookup(const struct kallsyms *k, u64 address, const char **ret_name,
		    const char **ret_module);

/* /tmp/perf-PID.map: lines `START SIZE NAME`, numbers in hex; later lines override earlier ones. */
struct perf_map;
/* Takes fd. -E2BIG: it takes more memory than max_bytes (0: any), or has too many names. */
int perf_map_open(int fd, u64 max_bytes, struct perf_map **ret);
/* Reads the lines that were appended since the last call. */
int perf_map_refresh(struct perf_map *m);
void perf_map_destroy(struct perf_map *m);
/* The name is borrowed until the next refresh. -ENOENT. */
int perf_map_lookup(struct perf_map *m, u64 address, const char **ret_name);

/*
 * A jitdump file (perf's jit-PID.dump): records of loaded and moved code with names, files and
 * lines.
 */
struct jitdump;
/* As perf_map_open(). */
int jitdump_open(int fd, u64 max_bytes, struct jitdump **ret);
/* Reads the records that were appended since the last call. */
int jitdump_refresh(struct jitdump *j);
void jitdump_destroy(struct jitdump *j);
/*
 * time_ns: CLOCK_MONOTONIC of the sample, which distinguishes functions that had the same address.
 */
int jitdump_lookup(struct jitdump *j, u64 address, u64 time_ns, struct symbol_chain *ret);
