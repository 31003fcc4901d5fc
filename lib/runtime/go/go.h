/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about a Go program. All functions read the file only, and may be slow (1–30 ms). */
#pragma once

#include "base/types.h"
#include "elf/elf.h"

/*
 * Writes one line about a Go program for people: its release and the layout of its table. -ENOENT:
 * the file is not a Go program.
 */
int go_describe(struct elf_file *elf, char *ret, size_t n);
/* The release that the program names, as printable text: "go1.22.1". False: it names none. */
bool go_version(struct elf_file *elf, char *ret, size_t n);
/* The release as a number: 22 for "go1.22.1". False: the program names none. */
bool go_release(struct elf_file *elf, u32 *ret);

/* Offsets of the fields of runtime.g and runtime.m through which a goroutine's labels are found. */
struct go_labels {
	s32 g_tls; /* offset of g from the thread pointer; amd64 only */
	u16 m_curg, g_id, g_labels;
	bool is_list; /* labels are a list (1.24 and later), not a map */
};

/* A range of svmas. */
struct go_range {
	u64 start, end;
};

/* Where the goroutines of a program are, and the code of package runtime. */
struct go_goroutines {
	u64 allgs; /* svma of the slice runtime.allgs */
	u16 g_id;  /* offsets in runtime.g */
	u16 g_bp;
	struct go_range *runtime; /* owned; sorted */
	u32 n_runtime;
};

/*
 * -ENOTSUP: the program's release or machine is unknown, or its code does not tell where allgs is.
 * Undone by go_goroutines_deinit().
 */
int go_goroutines_find(struct elf_file *elf, struct go_goroutines *ret);
void go_goroutines_deinit(struct go_goroutines *g);
/* Whether an svma is in code of package runtime. */
bool go_goroutines_is_runtime(const struct go_goroutines *g, u64 svma);

/* -ENOTSUP: the program names no release, or one whose layout is unknown. */
int go_labels_find(struct elf_file *elf, struct go_labels *ret);

/* Words of the program's data that stkbucket() uses; one of them heads the list of sites. */
#define GO_HEAP_LISTS 32

/* Where a program has its memory profile. Addresses are svmas. */
struct go_heap {
	u64 lists[GO_HEAP_LISTS];
	u32 n_lists;
	u64 rate;		/* MemProfileRate: a word */
	u64 cycle;		/* the number of the profile's cycle: 32 bits */
	bool is_shifted;	/* bit 0 of it is a flag (1.19 and later) */
	bool has_bytes;		/* sites count bytes, not only objects (up to 1.26) */
	struct go_range goexit; /* code of the outermost function of a goroutine */
};

/*
 * -ENOTSUP: neither symbols nor code tell where the profile is, or the layout of the release is
 * unknown. Another error: the file has no
 * table of functions, or it is damaged. Machines: amd64 and arm64.
 */
int go_heap_find(struct elf_file *elf, struct go_heap *ret);
