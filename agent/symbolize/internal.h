/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the symbolizer share. */
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
	u64 first_seen_ns;    /* of the binary: ids are used again */
	u32 unseen;	      /* batches */
	u32 unread;	      /* batches in which its sources were not needed */
	u64 n_read;	      /* how often they had been before */
	struct elf_file *elf; /* owned, as symbols; NULL: none */
	struct symbols *symbols;
	u32 mapping;   /* in the profile being made */
	bool left_out; /* of this profile: no room to read it */
};

/*
 * Room in the budget to read something: what is kept of binaries goes first. False: there is none.
 * budget_end() with the same number of bytes gives it back.
 */
bool symbolizer_find_room(struct symbolizer *s, u64 bytes);
/* The names of a binary, opened when it is seen first; NULL without memory. */
struct named_binary *binaries_open(struct symbolizer *s, const struct procman_binary *b);
/* The binary's build id, or what stands for one, as digits; "" of what is no file. */
void binary_id(const struct procman_binary *b, char ret[ELF_MAX_BUILD_ID * 2 + 1]);
/* A batch begins: binaries that nobody has run for some are forgotten. */
void binaries_begin(struct symbolizer *s, const struct pipeline_batch *batch);
/* A profile is done: the next one has mappings of its own. */
void binaries_forget_mappings(struct symbolizer *s);
/* The batch is done: what is not needed soon goes. */
void binaries_end(struct symbolizer *s);
void binaries_destroy(struct symbolizer *s);
/*
 * Reads the names of n sorted frames of one binary, so that binary_name() has them; what names are
 * read from goes when it is more than the bound, of all binaries together.
 */
void binaries_read(struct symbolizer *s, struct named_binary *b, const u64 *frames, size_t n);
/* Negative: it has none. */
int binary_name(struct symbolizer *s, struct named_binary *b, u64 svma, struct symbol_chain *ret);
