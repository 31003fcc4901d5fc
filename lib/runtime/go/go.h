/* SPDX-License-Identifier: Apache-2.0 */
/* What a Go program says of itself. All functions read the file only, and may be slow (1–30 ms). */
#pragma once

#include "base/types.h"
#include "elf/elf.h"

/* Writes one line about a Go program for people: its release, and what is known of it. -ENOENT: the
 * file is not a Go program. */
int go_describe(struct elf_file *elf, char *ret, size_t n);
/* The release that the program names, as printable text: "go1.22.1". False: it names none. */
bool go_version(struct elf_file *elf, char *ret, size_t n);

/* Where a program keeps the labels of a goroutine: fields of runtime.g and runtime.m. */
struct go_labels {
	s32 g_tls; /* offset of g from the thread pointer; amd64 only */
	u16 m_curg, g_id, g_labels;
	bool is_list; /* labels are a list (1.24 on); before, a map */
};

/* -ENOTSUP: the program names no release, or one whose layout is not known. */
int go_labels_find(struct elf_file *elf, struct go_labels *ret);
