/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answers for addresses of one file, in memory and on disk (doc/format/symbol-cache.md). An
 * answer may be "no name". There is no lock: one thread at a time may use it.
 */
#pragma once

#include "base/map.h"
#include "base/types.h"
#include "base/vec.h"
#include "symbol/strpool.h"
#include "symbol/symbol.h"

struct answer_frame {
	u32 name, system_name, file; /* ids in the pool */
	u32 line;
	u32 start_line;
	u16 column; /* 0 if it is larger than a u16 */
	u16 inlined;
};

struct answer {
	u64 svma;
	u32 first;
	u32 n;		/* 0 = no name */
	bool transient; /* not written to disk: a source that is missing now may exist later */
};

struct answers {
	struct strpool pool;
	vec(struct answer_frame) frames;
	vec(struct answer) list;
	struct map by_svma; /* index in list */
	size_t n_loaded;    /* number of answers at the start of `list` that came from disk */
};

void answers_deinit(struct answers *a);
/* 0: *ret is the chain; -ENOENT: the address has no name; -EAGAIN: there is no answer yet. */
int answers_get(const struct answers *a, u64 svma, struct symbol_chain *ret);
/* Adds an answer; strings are copied. -ENOMEM. */
int answers_put(struct answers *a, u64 svma, const struct symbol_chain *chain, bool transient);
/* Bytes of memory that the answers use. */
size_t answers_memory(const struct answers *a);

/*
 * Reads the cache file. `key` hashes everything that the answers depend on; a file with another key
 * is ignored. -ENOENT: there is no usable file; -EBADMSG: it is damaged.
 */
int answers_load(struct answers *a, const char *dir, const char *name, u64 key);
/* Replaces the file atomically. If the folder is full, deletes its least recently used files. */
int answers_save(const struct answers *a, const char *dir, const char *name, u64 key);
/* answers_load() for the bytes of a file, for tests and the fuzzer. */
int answers_parse(struct answers *a, const void *bytes, size_t n, u64 key);
