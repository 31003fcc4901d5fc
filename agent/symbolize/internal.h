/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of agent/symbolize. */
#pragma once

#include "agent/symbolize/kernel.h"
#include "agent/symbolize/symbolize.h"
#include "base/map.h"
#include "symbol/symbol.h"

struct symbolizer {
	struct symbolizer_options options;
	char *cache_dir, *debuginfod_urls; /* owned */
	struct kernel_names *kernel;	   /* owned; NULL: not readable */
	bool kernel_hidden;
	bool hurry;	     /* atomic */
	struct map binaries; /* file id → struct named_binary *, owned: binaries.c */
	struct symbolizer_stats stats;
};

static inline bool is_in_a_hurry(const struct symbolizer *s)
{
	return __atomic_load_n(&s->hurry, __ATOMIC_RELAXED);
}

/* ---- binaries.c ---- */

struct named_binary {
	u32 file_id;
	u64 first_seen_ns;    /* of the binary: ids are reused */
	u32 unseen;	      /* batches without the binary */
	u32 unread;	      /* batches in which its sources were not needed */
	u64 n_read;	      /* how many lookups had read the sources by then */
	struct elf_file *elf; /* owned, like symbols; NULL: none */
	struct symbols *symbols;
	u32 mapping;   /* index in the current profile */
	bool left_out; /* no room to read it in this profile */
};

/*
 * Room in the budget to read something: what is kept of binaries goes first. False: there is none.
 * budget_end() with the same number of bytes gives it back.
 */
bool symbolizer_find_room(struct symbolizer *s, u64 bytes);
/* Returns the names of a binary, opened on first use. NULL: out of memory. */
struct named_binary *binaries_open(struct symbolizer *s, const struct procman_binary *b);
/* The build-id of the binary, or its replacement, as text; "" if it is no file. */
void binary_id(const struct procman_binary *b, char ret[ELF_MAX_BUILD_ID * 2 + 1]);
/* A batch begins: drops binaries that were not used for some batches. */
void binaries_begin(struct symbolizer *s, const struct pipeline_batch *batch);
/* A profile is complete: the next one has mappings of its own. */
void binaries_forget_mappings(struct symbolizer *s);
/* The batch is complete: drops what is not needed soon. */
void binaries_end(struct symbolizer *s);
void binaries_destroy(struct symbolizer *s);
/* Fills the stats of memory. */
void binaries_count_memory(struct symbolizer *s);
/*
 * Reads the names of n sorted frames of one binary for binary_name(). Sources above the bound of
 * all binaries are dropped.
 */
void binaries_read(struct symbolizer *s, struct named_binary *b, const u64 *frames, size_t n);
/* Negative: the address has no name. */
int binary_name(struct symbolizer *s, struct named_binary *b, u64 svma, struct symbol_chain *ret);
