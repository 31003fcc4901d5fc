/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/types.h"

/*
 * x86-64: how far behind the begin of a function the first instruction is that the kernel emulates,
 * and before which the stack pointer and the arguments are those of the call (`frees`: the first
 * argument). -ENOENT: there is none in these bytes.
 */
int alloc_emulated_place(const u8 *code, size_t n, bool frees);
