/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the PHP runtime: php.c has the runtime_ops, learn.c reads binaries, name.c
 * reads objects.
 */
#pragma once

#include "abi/runtime_php.h"
#include "agent/runtime/tls.h"
#include "base/map.h"
#include "base/vec.h"

/*
 * Names that were read, by process and cookie. PHP frees a closure when it has run, maybe before
 * its name is read; but each evaluation of an expression makes a closure with the same cookie.
 */
struct php_cached {
	u32 function, file; /* in texts; file 0: none */
	u32 start_line;
};
struct php_cache {
	struct strtab texts;
	struct map index; /* hash → entries */
	vec(struct php_cached) entries;
};

struct php_learned {
	u32 version;   /* 0x0802 for 8.2 */
	char text[24]; /* "8.2.36" */
	/* executor_globals; of a thread-safe build executor_globals_offset, a variable with the
	 * offset of a thread's executor_globals in its memory for PHP, which `memory` points to. */
	u64 globals;
	struct runtime_tls memory; /* kind is 0: not a thread-safe build */
	struct runtime_libc *libc; /* owned */
	struct php_binary bpf;
	/* Offsets that only naming needs. */
	u32 class_name;		 /* in zend_class_entry */
	u32 string_text;	 /* in zend_string */
	struct php_cache *cache; /* owned */
};

/* learn.c */
/* Fills *ret from a binary. On failure the diag says what is missing; *ret is undefined. */
int php_learn(struct elf_file *elf, struct php_learned *ret, struct diag *reterr_diag);
/* Whether a path looks like PHP's executable, library or module. */
bool php_is_name(const char *path);
/* Whether the file contains the interpreter's loop. */
bool php_has_loop(struct elf_file *elf);

/* name.c */
/* Names a frame as runtime_ops.name() does. */
int php_name(const struct runtime_memory *m, const struct php_learned *l, u64 address, u64 where,
	     struct runtime_names *ret);

/* cache.c */
struct php_cache *php_cache_create(void);
void php_cache_destroy(struct php_cache *c);
void php_cache_clear(struct php_cache *c);
/* Names a frame of a process image as names before. False: its names are not known. */
bool php_cache_get(const struct php_cache *c, u64 image, u64 where, struct runtime_names *ret);
/* Keeps the names of a frame, if there is memory for them. */
void php_cache_put(struct php_cache *c, u64 image, u64 where, const struct runtime_names *names);
