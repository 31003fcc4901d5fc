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

/* Offsets of the fields of runtime.g and runtime.m through which a goroutine's labels are found. */
struct go_labels {
	s32 g_tls; /* offset of g from the thread pointer; amd64 only */
	u16 m_curg, g_id, g_labels;
	bool is_list; /* labels are a list (1.24 and later), not a map */
};

/* -ENOTSUP: the program names no release, or one whose layout is unknown. */
int go_labels_find(struct elf_file *elf, struct go_labels *ret);
