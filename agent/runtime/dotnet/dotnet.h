/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of the .NET runtime: what a binary contains about its CoreCLR, and how to
 * read range sections, images and metadata in a process. doc/runtimes/dotnet.md says which source
 * defines what is read.
 */
#pragma once

#include "abi/runtime_dotnet.h"
#include "agent/runtime/runtime.h"
#include "base/map.h"

/* Offsets that differ between versions and are in no structure that can be recognised. */
struct dotnet_layout {
	u32 first, last;		      /* major versions */
	bool list;			      /* range sections are in a list; DOTNET_LIST */
	bool pointers;			      /* DOTNET_POINTERS */
	u8 next, section_flags, heap, module; /* as in struct dotnet_process */
	u16 composite;
	u16 simple_name;    /* in Module: the assembly's name, in the metadata's strings */
	u8 token_bits;	    /* bits of a token that are in the MethodDesc */
	u8 dynamic_name;    /* in DynamicMethodDesc */
	bool loader_module; /* the MethodTable has the loader's module, not its own */
};

/* Offsets that are found in the first process whose runtime has loaded an image. */
struct dotnet_found {
	u64 list; /* svma of the word that points to the list; 0: not found yet */
	u16 info; /* 0: not found yet; this and the next as in struct dotnet_process */
	u16 functions;
	u16 methods; /* in the ReadyToRun info: the hash table of methods, by their address */
};

struct dotnet_learned {
	u32 major, minor, patch;
	const struct dotnet_layout *layout;
	u64 image_start, image_end; /* svma */
	u64 data_start, data_end;   /* of writable data */
	u64 table;		    /* g_dacTable; 0: not exported */
	struct dotnet_found *found; /* owned */
	struct dotnet_cache *cache; /* owned */
};

/* A process that is being read. */
struct dotnet_reader {
	const struct runtime_target *t;
	const struct runtime_memory *m;
	const struct dotnet_learned *l;
	struct dotnet_process p;
};

/* ---- learn.c ---- */

int dotnet_learn(const struct procman_binary *b, struct runtime_binary *ret_bpf, void **ret_learned,
		 struct diag *reterr_diag);
void dotnet_forget(void *learned);

/* ---- section.c ---- */

struct dotnet_range {
	u64 begin, end;
	u64 heap, module; /* one of the two, or neither */
};

/* Finds the range sections of the process. -EAGAIN: the runtime has not started far enough. */
int dotnet_reader_init(const struct runtime_target *t, const struct dotnet_learned *l,
		       struct dotnet_reader *ret);
/* The range section at an avma. -ENOENT: there is none. */
int dotnet_find_range(const struct dotnet_reader *r, u64 avma, struct dotnet_range *ret);
/* Calls fn for each range section; a result other than 0 stops and is returned. */
int dotnet_each_range(const struct dotnet_reader *r,
		      int (*fn)(void *arg, const struct dotnet_range *range), void *arg);

/* ---- image.c ---- */

/* Finds the offsets of struct dotnet_found in an image's range section. -ENOENT. */
int dotnet_learn_image(const struct dotnet_reader *r, const struct dotnet_range *range,
		       struct dotnet_found *ret);
/* The MethodDesc of the code at an avma in an image. -ENOENT. */
int dotnet_image_method(const struct dotnet_reader *r, const struct dotnet_range *range, u64 avma,
			u64 *ret_method);

/* ---- metadata.c ---- */

/* Bytes of a name that is shown; a longer one is cut. */
#define DOTNET_MAX_TEXT 512

/* A module's metadata (ECMA-335, II.24), in the memory of the process. */
struct dotnet_metadata {
	u64 strings, n_strings;	  /* avma, and bytes */
	u64 type, method, nested; /* avma of the tables */
	u32 n_types, n_methods, n_nested;
	u8 string_bytes, type_row, method_row, nested_row; /* bytes */
	u8 type_list;	 /* offset of MethodList in a row of TypeDef */
	u8 method_index; /* bytes of an index of MethodDef */
	u8 type_index;	 /* and of TypeDef */
};

/* Finds the metadata that contains the string at `inside`. */
int dotnet_metadata_find(const struct runtime_memory *m, u64 inside, struct dotnet_metadata *ret);
/* Copies "Namespace.Outer.Inner.Method" of a row of MethodDef into the arena. */
int dotnet_metadata_name(const struct runtime_memory *m, const struct dotnet_metadata *d,
			 u32 method, struct arena *arena, const char **ret);
/* Copies a NUL-terminated text, made clean, into a buffer. */
int dotnet_text(const struct runtime_memory *m, u64 at, char *ret, size_t n);

/* ---- name.c ---- */

/* The modules whose metadata was found. Can be found again, so it may be dropped at any time. */
struct dotnet_cache {
	struct map modules; /* hash of process and module → struct dotnet_module *, owned */
};

void dotnet_cache_clear(struct dotnet_cache *c);
int dotnet_name(const struct runtime_target *t, const struct dotnet_learned *l, u64 address,
		u64 where, struct runtime_names *ret);
