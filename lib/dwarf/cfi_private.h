/* SPDX-License-Identifier: Apache-2.0 */
/* Between cfi.c and cfi_run.c. */
#pragma once

#include "dwarf/cfi.h"

/* Runs a CIE's program into cie->initial; false when it is damaged. */
bool cfi_initial_state(const struct cfi_table *t, struct cfi_cie *cie, struct buf program);
