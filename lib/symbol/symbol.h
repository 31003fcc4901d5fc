/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, files, lines and inline chains of addresses.
 *
 * struct symbols: one ELF file, from every source that the machine has: .symtab, .dynsym,
 * .gnu_debugdata, the debug file by build-id or .gnu_debuglink, DWARF 4 and 5 (split, dwz), Go's
 * .gopclntab. Only what is asked for is read; answers are cached on disk by build-id.
 * struct kallsyms, struct perf_map, struct jitdump: the sources that are not ELF files.
 */
#pragma once

#include "base/types.h"
#include "elf/elf.h"

#define SYMBOL_MAX_CHAIN 64

/* One function at an address. Strings are borrowed until the symbols are destroyed. */
struct symbol_frame {
	const char *name;	 /* demangled, never NULL */
	const char *system_name; /* as in the file; the same pointer when it is not mangled */
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
	int root_fd;	       /* root of the file's mount namespace for debug files; -1 = ours */
	const char *path;      /* of the file in there, for .gnu_debuglink; or NULL */
	const char *debuginfod_urls; /* or NULL: do not ask */
	u64 max_section;	     /* sections that are larger are not read; 0: any are */
};

struct symbols;

/* `elf` is borrowed and must outlive. Options' strings are copied, root_fd is duplicated. */
int symbols_open(struct elf_file *elf, const struct symbols_options *o, struct symbols **ret);
/* Writes what was found to the disk cache, unless symbols_skip_cache() was called. */
void symbols_destroy(struct symbols *s);
void symbols_skip_cache(struct symbols *s);
/* 0 and a chain of at least one, or -ENOENT when no source has a name for the address. */
int symbols_lookup(struct symbols *s, u64 svma, struct symbol_chain *ret);
/* The same without reading anything: -EAGAIN when it would have to. */
int symbols_recall(const struct symbols *s, u64 svma, struct symbol_chain *ret);
/* Bytes that looking up an address may take, about, more than it has now. */
u64 symbols_needs(struct symbols *s);
/* Gives back what can be read again (sections, tables, file descriptors) and keeps the answers: for
 * after a batch. */
void symbols_trim(struct symbols *s);
/* Bytes that symbols_trim() would give back; those of the answers. */
size_t symbols_memory(const struct symbols *s);
size_t symbols_answers_memory(const struct symbols *s);
/* How often the sources were asked, for want of an answer. */
u64 symbols_n_read(const struct symbols *s);
/* Where names came from, for doctor and reports: static text like ".symtab", "debug file",
 * ".dynsym". */
const char *symbols_from(const struct symbols *s);

/* Demangles C++, Rust (both manglings) and D. Returns malloc'ed text, or NULL if not mangled. */
char *symbol_demangle(const char *name);

/* /proc/kallsyms with modules and BPF programs, or any file of its format. */
struct kallsyms;
int kallsyms_open(const char *path, struct kallsyms **ret);
void kallsyms_destroy(struct kallsyms *k);
/* name and module ("" = the kernel itself, "bpf" = a program); -ENOENT. Borrowed. */
int kallsyms_lookup(const struct kallsyms *k, u64 address, const char **ret_name,
		    const char **ret_module);

/* /tmp/perf-PID.map: `START SIZE NAME` lines in hex, later ones win. Reads what was appended. */
struct perf_map;
int perf_map_open(int fd, struct perf_map **ret); /* takes fd */
int perf_map_refresh(struct perf_map *m);
void perf_map_destroy(struct perf_map *m);
int perf_map_lookup(struct perf_map *m, u64 address, const char **ret_name);

/* jitdump (perf's jit-PID.dump): code load, move, debug info; name, file and line at a time. */
struct jitdump;
int jitdump_open(int fd, struct jitdump **ret); /* takes fd */
int jitdump_refresh(struct jitdump *j);
void jitdump_destroy(struct jitdump *j);
/* time_ns: CLOCK_MONOTONIC of the sample, so that reused addresses are told apart. */
int jitdump_lookup(struct jitdump *j, u64 address, u64 time_ns, struct symbol_chain *ret);
