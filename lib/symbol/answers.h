/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What addresses of one file were resolved to, in memory and on disk (doc/format/symbol-cache.md).
 * An answer may be "no name".
 */
#pragma once

#include "base/map.h"
#include "base/types.h"
#include "base/vec.h"
#include "symbol/strpool.h"
#include "symbol/symbol.h"

struct answer_frame {
	u32 name, system_name, file; /* in the pool */
	u32 line;
	u32 start_line;
	u16 column; /* larger ones read 0 */
	u16 inlined;
};

struct answer {
	u64 svma;
	u32 first;
	u32 n;		/* 0 = no name */
	bool transient; /* not for the disk: what it lacks may be there next time */
};

struct answers {
	struct strpool pool;
	vec(struct answer_frame) frames;
	vec(struct answer) list;
	struct map by_svma; /* index in list */
	size_t n_loaded;    /* of them came from disk */
};

void answers_deinit(struct answers *a);
/* 0 with a chain, -ENOENT for a known miss, -EAGAIN when the address was never asked. */
int answers_get(const struct answers *a, u64 svma, struct symbol_chain *ret);
/* Strings are copied. */
int answers_put(struct answers *a, u64 svma, const struct symbol_chain *chain, bool transient);
size_t answers_memory(const struct answers *a);

/* `key`: whatever else the answers depend on; a file with another key is not used. -ENOENT,
 * -EBADMSG for a damaged file. */
int answers_load(struct answers *a, const char *dir, const char *name, u64 key);
/* Replaces the file atomically; drops the least recently used files of a folder that is full. */
int answers_save(const struct answers *a, const char *dir, const char *name, u64 key);
/* The file's bytes, for tests and the fuzzer. */
int answers_parse(struct answers *a, const void *bytes, size_t n, u64 key);
