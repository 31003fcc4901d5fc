/* SPDX-License-Identifier: Apache-2.0 */
/* Whose code a frame is, by abi/tbl/owner.tbl, as ui/model/owner.ts decides it for the page. */
#pragma once

#include "base/cleanup.h"
#include "base/types.h"

struct own;

/* The compiled patterns. -ENOMEM. No lock: one thread. */
int own_create(struct own **ret);
void own_destroy(struct own *o);
DEFINE_CLEANUP(own, struct own *, own_destroy)
#define _cleanup_own_ _cleanup_(own)
/*
 * Whether a frame is of the program itself: no code of the kernel, a runtime or a library, and no
 * note. kind: enum frame_kind; file: the source file, "" = not known; binary: a path or a name.
 */
bool own_is(struct own *o, u8 kind, const char *name, const char *file, const char *binary);
