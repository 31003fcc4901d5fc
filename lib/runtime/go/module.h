/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Go's runtime.moduledata, which has addresses that .gopclntab lacks. */
#pragma once

#include "runtime/go/pclntab.h"

struct go_module {
	u64 text;   /* svma of runtime.text */
	u64 gofunc; /* svma that offsets of funcdata are relative to; 1.18 and later */
};

/* Fields that are not found stay 0. */
void go_module_read(const struct pclntab *t, struct go_module *ret);
