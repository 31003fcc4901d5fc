/* SPDX-License-Identifier: Apache-2.0 */
/* The perf events that can drive sampling: names as perf(1) has them. */
#pragma once

#include <linux/perf_event.h>

#include "base/diag.h"
#include "base/types.h"

/* Type and config of an event by name: a generic PMU event, a software clock, or rHEX (raw). */
int event_by_name(const char *name, struct perf_event_attr *ret_attr, struct diag *reterr_diag);
/*
 * Opens one event per online CPU at `hz`; fds into a new array that the caller frees. Without a
 * name: cpu-clock. A PMU event that the hardware has not is -ENOENT and a diag.
 */
int event_open_all(const char *name, u64 hz, int **ret_fds, u32 *ret_n, struct diag *reterr_diag);
