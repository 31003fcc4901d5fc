/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples of events that are not over, such as a request to a disk: the sample has the stack of the
 * thread that has sent the request, and comes when it is sent; its values come later, in a record
 * with the same id. The walk of the stack may end on the host, so either may be first.
 */
#pragma once

#include "agent/pipeline/internal.h"

/* The sample's values will come: they belong to an entry of p->batch, and to its event or -1. */
void later_expect(struct pipeline *p, u64 id, u32 entry, s64 event);
/* The values. */
void later_add(struct pipeline *p, const struct record_later *l);
/*
 * A new batch begins: p->before is the old one, until later_move(), which moves the samples that
 * still expect values to the new one.
 */
void later_begin(struct pipeline *p);
void later_move(struct pipeline *p);
void later_deinit(struct pipeline *p);
