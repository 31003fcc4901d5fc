/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of services and types, and their numbers. A number is never given twice while the store
 * is open. 0 is the number of "".
 *
 * Reading needs list_lock, adding also write_lock. A sweep replaces the whole table by one without
 * the names that no block has, so that a reader that holds the old one still finds the names of the
 * blocks of its snapshot.
 */
#pragma once

#include <stdatomic.h>

#include "base/diag.h"
#include "base/map.h"
#include "base/types.h"
#include "base/vec.h"

struct sq;

struct sq_names {
	atomic_uint refs;
	struct strtab texts;
	vec(u32) numbers; /* by id in `texts`; new names are the last */
	struct map ids;	  /* number → id in `texts` */
	u32 next;	  /* the next number */
};

struct sq_names *sq_names_create(void);
struct sq_names *sq_names_get(struct sq_names *n);
void sq_names_put(struct sq_names *n);

/* Returns the name of a number, "" for an unknown one. Borrowed until a name is added. */
const char *sq_names_text(const struct sq_names *n, u32 number, size_t *ret_n);
bool sq_names_find(const struct sq_names *n, const char *text, u32 *ret);
/* Returns the number of a name, which gets the next number if it is new. */
int sq_names_add(struct sq_names *n, const char *text, size_t size, u32 *ret);
/* Adds a name that has a number. -EBADMSG if the name or the number is known. */
int sq_names_set(struct sq_names *n, u32 number, const char *text, size_t size);

/* Under maintain_lock: removes some of the names that no block has, from the database as well. */
int sq_sweep_names(struct sq *s, struct diag *reterr_diag);
