/* SPDX-License-Identifier: Apache-2.0 */
/* Joins each wait with the wake-up that ended it, and that with what had woken the waker. */
#pragma once

#include "agent/pipeline/internal.h"

/* Remembers a wake-up: a record with SAMPLE_WAKES. */
void wakers_note(struct pipeline *p, const struct record_sample *s);
/*
 * Adds to the batch who ended the wait of a sample, with the chain of those who had woken the
 * wakers meanwhile. Returns its number, as in pipeline_key.waker; 0: unknown.
 */
u32 wakers_join(struct pipeline *p, const struct record_sample *s);
void wakers_deinit(struct pipeline *p);
