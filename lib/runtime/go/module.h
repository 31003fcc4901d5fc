/* SPDX-License-Identifier: Apache-2.0 */
/* Go's runtime.moduledata: addresses that .gopclntab does not have. */
#pragma once

#include "runtime/go/pclntab.h"

struct go_module {
	u64 text;   /* svma of runtime.text */
	u64 gofunc; /* svma that offsets of funcdata count from, 1.18 on */
};

/* Fields that are not found stay 0. */
void go_module_read(const struct pclntab *t, struct go_module *ret);
