/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by cfi.c and cfi_run.c. */
#pragma once

#include "dwarf/cfi.h"

/* Tells the file of damage at an offset of the section. */
void cfi_damaged(const struct cfi_table *t, u64 offset, const char *text);
/* Runs the program of a CIE into cie->initial. False: the program is damaged. */
bool cfi_initial_state(const struct cfi_table *t, struct cfi_cie *cie, struct buf program);
